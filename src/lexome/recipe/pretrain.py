"""Recipes of `lexome pretrain` and `lexome distill`: token shards into an encoder."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from lexome import recipe
from lexome.recipe import (
    CardTable,
    Device,
    OptimizerTable,
    ParallelTable,
    Recipe,
    ScheduleTable,
    Seconds,
    Table,
    invalid,
)

Points = tuple[tuple[float, float], ...]
Times = Annotated[int, Field(ge=0, strict=True)]


def _check_points(name: str, points: Points, *, least: float, to_end: bool = False) -> None:
    """Raise unless points ascend from 0 to below 1, or with `to_end` up to 1, and no value is below `least`."""
    places = [place for place, _ in points]
    beyond = places and (places[-1] > 1 if to_end else places[-1] >= 1)
    if places and (places[0] != 0 or beyond or sorted(set(places)) != places):
        limit = "to 1" if to_end else "below 1"
        raise invalid(
            name, f"{name} begins at {places}; expected fractions of the run that begin at 0 and ascend {limit}"
        )
    if any(value < least for _, value in points):
        raise invalid(name, f"{name} has a value below {least:g}")


class TextTable(Table):
    """How sequences are made from the shards."""

    kind: Literal["sentences", "across_documents", "next_sentence", "sentence_order"] = Field(
        default="sentences", description="Whole sentences of one document, or across documents; or pairs (NSP, SOP)."
    )
    max_tokens: int = Field(
        default=512, ge=8, le=recipe.MAX_BATCH_TOKENS, description="Maximum sequence length, special tokens included."
    )
    ramp: Points = Field(
        default=(), description="[fraction of the run, maximum length] pairs, such as 128 first, then 512."
    )
    short_seq_prob: float = Field(
        default=0.1, ge=0, le=1, description="Fraction of documents whose pairs are made shorter (BERT)."
    )
    repeat: dict[str, Times] = Field(
        default={}, description="How often a source occurs per epoch: {abstracts = 3}; 0 excludes it."
    )

    @model_validator(mode="after")
    def _ramp_fits(self) -> Self:
        _check_points("ramp", self.ramp, least=8)
        if self.ramp and self.ramp[-1][1] != self.max_tokens:
            raise invalid("ramp", f"ramp ends at {self.ramp[-1][1]:g} tokens; expected max_tokens, {self.max_tokens}")
        if (longest := max((length for _, length in self.ramp), default=0)) > self.max_tokens:
            raise invalid("ramp", f"ramp has {longest:g} tokens; expected max_tokens, {self.max_tokens}, at most")
        return self


class MaskingTable(Table):
    """Masked language modeling; docs/explanation/masking.md explains the choices."""

    unit: Literal["token", "word", "span"] = Field(default="word", description="What is masked as a whole.")
    rate: float = Field(default=0.15, gt=0, le=1, description="Masking rate: fraction of tokens to predict.")
    ramp: Points = Field(default=(), description="[fraction of the run, masking rate] pairs, instead of one rate.")
    linear: bool = Field(default=False, description="Interpolate the rate linearly between the points of the ramp.")
    mask_ratio: float = Field(
        default=0.8, ge=0, le=1, description="Fraction of the selected tokens that is replaced with [MASK]."
    )
    random_ratio: float = Field(
        default=0.1, ge=0, le=1, description="Fraction of the selected tokens that is replaced with a random token."
    )
    replace_whole_unit: bool = Field(
        default=False, description="Choose [MASK], random or unchanged once per word or span, not per token."
    )
    independent: bool = Field(default=False, description="Sample each word independently, not up to an exact budget.")
    dupe_factor: int | None = Field(
        default=None, ge=1, description="Number of fixed maskings to cycle through; by default always new ones."
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        _check_points("ramp", self.ramp, least=1e-6, to_end=self.linear)
        if self.mask_ratio + self.random_ratio > 1 + 1e-9:
            raise invalid("random_ratio", "mask_ratio and random_ratio add up to more than 1")
        return self


class BatchTable(recipe.BatchTable):
    """The size of a step: micro-batches of packed sequences, whose gradients are accumulated."""

    tokens: int = Field(
        default=65_536,
        ge=8,
        le=recipe.MAX_BATCH_TOKENS,
        description="Tokens per micro-batch, all sequences together.",
    )
    ramp: Points = Field(
        default=(), description="[fraction of the run, gradient_accumulation] pairs: a batch size that grows."
    )

    @model_validator(mode="after")
    def _ramp_fits(self) -> Self:
        _check_points("ramp", self.ramp, least=1)
        if any(passes > recipe.MAX_PASSES for _, passes in self.ramp):
            raise invalid("ramp", f"ramp has a value above {recipe.MAX_PASSES:,}")
        if self.ramp and self.ramp[-1][1] != self.gradient_accumulation:
            raise invalid(
                "ramp",
                f"ramp ends at {self.ramp[-1][1]:g}; expected gradient_accumulation, {self.gradient_accumulation}",
            )
        return self


class EvaluationTable(recipe.EvaluationTable):
    """Loss on the held-out shards, with the same masks every time."""

    tokens: int = Field(default=1_000_000, ge=1, description="At most this many held-out tokens.")
    masking_rate: float = Field(
        default=0.15,
        gt=0,
        le=1,
        description="Masking rate of the evaluation, independent of training, so that runs are comparable.",
    )
    seed: int = Field(default=0, ge=0, description="Random seed of its masks.")


class LogTable(recipe.LogTable):
    """Logging, checkpointing and divergence checks; these keys may change between interrupting and resuming a run."""

    save_every: int = Field(default=1000, ge=1, description="Steps between saved training states.")
    keep_states: int = Field(default=2, ge=1, description="Training states to keep; older ones are removed.")
    checkpoint_steps: tuple[int, ...] = Field(
        default=(), description="Steps at which the model is also saved as a checkpoint, in models/step-N."
    )


class TrainingRecipe(Recipe):
    """The keys of every stage that trains on token shards."""

    shards: Path = Field(description="A folder written by `lexome shard`.")
    out: Path = Field(
        description="The folder for model/, the checkpoint, and run.json, metrics.jsonl, loss.png, state/."
    )
    seed: int = Field(default=0, ge=0, description="Random seed of new weights, the order of the text and its masks.")
    preset: str | None = Field(
        default=None, description="A model configuration by name, such as bert-base; an unknown name lists all."
    )
    model: dict[str, Any] = Field(
        default={}, description="Fields of EncoderConfig that override the preset's or the checkpoint's."
    )
    steps: int | None = Field(
        default=None, ge=1, description="Length of the run; one of steps, tokens, epochs and time_budget."
    )
    tokens: int | None = Field(default=None, ge=1, description="Length in tokens, instead of steps.")
    epochs: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="Length in epochs, instead of steps."
    )
    time_budget: Seconds | None = Field(
        default=None,
        gt=0,
        description='Length in seconds, or as "20m", instead of steps; loading and compiling are not counted.',
    )
    resume_from: Path | None = Field(
        default=None,
        description="Lengthen a finished run: its `out`. The recipes may differ in length and schedule only.",
    )
    device: Device = Field(default="auto", description="auto: a GPU if available.")
    precision: Literal["auto", "fp32", "autocast", "bf16"] = Field(
        default="auto", description="auto: autocast on CUDA, fp32 on CPU. bf16: weights too, fp32 in the optimizer."
    )
    compile: bool | None = Field(default=None, description="torch.compile; by default on CUDA.")
    gradient_checkpointing: bool = Field(
        default=False, description="Recompute each layer in the backward pass: less memory, a third more time."
    )
    deterministic: bool | None = Field(
        default=None, description="Bit-exact reproducible on a GPU; by default, unless the length is a time budget."
    )
    text: TextTable = TextTable()
    masking: MaskingTable = MaskingTable()
    batch: BatchTable = BatchTable()
    optimizer: OptimizerTable = OptimizerTable()
    schedule: ScheduleTable = ScheduleTable()
    evaluation: EvaluationTable = EvaluationTable()
    parallel: ParallelTable = ParallelTable()
    log: LogTable = LogTable()
    card: CardTable = CardTable()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        lengths = [name for name in ("steps", "tokens", "epochs", "time_budget") if getattr(self, name) is not None]
        if len(lengths) != 1:
            # Usually one was set on the command line in addition to the recipe's own.
            fix = f". Keep one: --set {lengths[-1]}= removes a key" if lengths else ""
            raise invalid(
                lengths[-1] if lengths else "steps",
                f"the length is given by {' and '.join(lengths) or 'nothing'}; expected one of steps, tokens, epochs "
                f"and time_budget{fix}",
            )
        if self.schedule.warmup_steps is not None and self.steps is None:
            raise invalid(
                "schedule.warmup_steps", "schedule.warmup_steps needs a length in steps; use schedule.warmup_ratio"
            )
        beyond = [
            step for step in self.log.checkpoint_steps if step < 1 or (self.steps is not None and step > self.steps)
        ]
        if beyond:
            raise invalid(
                "log.checkpoint_steps",
                f"log.checkpoint_steps has {beyond[0]}; expected steps from 1 to {self.steps or 'the last'}",
            )
        if self.batch.tokens < self.text.max_tokens:
            raise invalid("batch.tokens", f"batch.tokens is {self.batch.tokens}, less than the longest sequence")
        return self


class EmbeddingDistillationTable(Table):
    """Embedding distillation: match a teacher's mean-pooled embedding of each sequence, by cosine distance."""

    teacher: Path = Field(description="A checkpoint of a sentence encoder, such as gte-small.")
    new_vocabulary: Literal["error", "transfer"] = Field(
        default="error",
        description="If the tokenizers of shards and teacher differ: error, or transfer the shared embeddings.",
    )
    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False, description="Loss weight; masked words have 1.")


class ContrastiveTable(Table):
    """In-batch contrastive loss (InfoNCE) between two parts of a text: title and abstract, or adjacent passages.

    Documents of two names of one concept, which `lexome build-terms` writes, are contrasted like any other text.
    """

    fraction: float = Field(
        default=0.5, gt=0, le=1, description="Fraction of sequences that are split in two at a sentence boundary."
    )
    weight: float = Field(default=0.1, gt=0, allow_inf_nan=False, description="Loss weight; masked words have 1.")
    temperature: float = Field(default=0.05, gt=0, description="Divides the cosine similarities.")
    pooling: Literal["first", "mean"] = Field(
        default="first", description="The embedding that is contrasted: of the first token, or the mean of all tokens."
    )
    single_sentence: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Fraction of splits in which one part is a single sentence, as short as a question.",
    )


class PretrainRecipe(TrainingRecipe):
    """Pre-trains an encoder on token shards."""

    stage: Literal["pretrain"]
    start: Path | None = Field(
        default=None, description="A checkpoint for continued pre-training; without it, random weights."
    )
    new_vocabulary: Literal["error", "transfer"] = Field(
        default="error",
        description="If the tokenizers of shards and checkpoint differ: error, or transfer the shared embeddings.",
    )
    embedding_distillation: EmbeddingDistillationTable | None = None
    contrastive: ContrastiveTable | None = None

    @model_validator(mode="after")
    def _sentence_objectives(self) -> Self:
        paired = self.text.kind in ("next_sentence", "sentence_order")
        for name in ("embedding_distillation", "contrastive"):
            if paired and getattr(self, name) is not None:
                raise ValueError(f"{name} does not combine with text.kind {self.text.kind}; expected sentences")
        return self

    @model_validator(mode="after")
    def _one_model(self) -> Self:
        if self.start is None and self.preset is None and not self.model:
            raise invalid("start", "there is no model; expected start, preset or a [model] table")
        if self.start is not None and self.preset is not None:
            raise invalid("preset", "start and preset are both given; expected one of them")
        return self


class LossTable(Table):
    """The distillation loss: a weighted sum of three means, with the weights of Lewis et al. (2020)."""

    mlm: float = Field(default=5.0, ge=0, description="Weight of the masked-language-modeling cross entropy.")
    kl: float = Field(default=2.0, ge=0, description="Weight of KL(teacher || student) of the predictions.")
    cosine: float = Field(default=1.0, ge=0, description="Weight of 1 - cosine of last hidden states, over all tokens.")
    temperature: float = Field(default=2.0, gt=0, description="Temperature of both logits in kl.")
    scale_by_temperature: bool = Field(default=True, description="Multiply kl by the square of the temperature.")
    positions: Literal["masked", "all"] = Field(
        default="masked", description="Compare predictions at masked tokens, or at all tokens as DistilBERT does."
    )
    projection: bool | None = Field(
        default=None, description="Learn a projection to the teacher's hidden size; by default if the sizes differ."
    )

    @model_validator(mode="after")
    def _uses_teacher(self) -> Self:
        if not (self.kl or self.cosine):
            raise invalid(
                "kl", "kl and cosine are both 0, so the teacher is not used; expected control = true for that"
            )
        if not (self.mlm or self.kl):
            raise invalid("mlm", "mlm and kl are both 0, so the masked-language-modeling head would not be trained")
        return self


class DistillRecipe(TrainingRecipe):
    """Distills a teacher into a smaller encoder on token shards."""

    stage: Literal["distill"]
    teacher: Path = Field(description="A checkpoint with a masked-language-modeling head and the shards' tokenizer.")
    student: Literal["layers"] | Path | None = Field(
        default=None,
        description='A checkpoint, or "layers": layers of the teacher. Default: new, by preset or [model].',
    )
    layers: tuple[int, ...] = Field(default=(), description="Which of the teacher's layers, counted from 0.")
    layer_stride: int | None = Field(default=None, ge=1, description="Layers 0, n, 2n, ..., instead of layers.")
    control: bool = Field(
        default=False,
        description="Control run: train the same student on the same text, for the same length, without the teacher.",
    )
    loss: LossTable = LossTable()

    @model_validator(mode="after")
    def _student_fits(self) -> Self:
        if self.student is None and self.preset is None and not self.model:
            raise invalid("student", "there is no student; expected student, preset or a [model] table")
        if self.student is not None and self.preset is not None:
            raise invalid("preset", "student and preset are both given; expected one of them")
        if bool(self.layers) + (self.layer_stride is not None) != (self.student == "layers"):
            raise invalid(
                "layer_stride",
                'expected either layers or layer_stride together with student = "layers", and neither without it',
            )
        if list(self.layers) != sorted(set(self.layers)) or min(self.layers, default=0) < 0:
            raise invalid("layers", "layers are not ascending from 0 or more; expected numbers such as [0, 2, 4]")
        if self.text.kind in ("next_sentence", "sentence_order"):
            raise invalid(
                "text.kind", "the loss has no term for pairs; expected text.kind sentences or across_documents"
            )
        return self
