"""The recipe of `lexome pretrain`: shards and an encoder into a checkpoint folder; and what others share with it."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PlainSerializer, model_validator

from lexome.recipe import Beta, Recipe, Table

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds(given: Any) -> Any:
    """The seconds that "90s", "20m", "1h30m" or "2d" stand for; other values pass for the schema to judge."""
    if not isinstance(given, str):
        return given
    if not re.fullmatch(r"(\d+(\.\d+)?[smhd])+", given):
        raise ValueError('expected a time such as "90s", "20m", "1h30m" or "2d"')
    return sum(float(number) * _UNITS[unit] for number, unit in re.findall(r"(\d+(?:\.\d+)?)([smhd])", given))


Seconds = Annotated[float, BeforeValidator(seconds), PlainSerializer(lambda value: f"{value:g}s")]


class ParallelTable(Table):
    """data x shard x tensor processes, one for each GPU, started by torchrun."""

    data: int | None = Field(
        default=None, ge=1, description="Whole copies of the model, each with its own batches. None: as many as fit."
    )
    shard: int = Field(
        default=1, ge=1, description="Processes that share weights, gradients and optimizer state of one copy (FSDP2)."
    )
    tensor: int = Field(
        default=1, ge=1, description="Processes that cut each matrix among them and work on the same batch."
    )
    backend: Literal["auto", "nccl", "gloo"] = Field(
        default="auto", description="How processes talk; auto: nccl for GPUs, gloo for CPUs."
    )


Points = tuple[tuple[float, float], ...]
Times = Annotated[int, Field(ge=0, strict=True)]


def _check_points(name: str, points: Points, *, least: float, to_end: bool = False) -> None:
    """ValueError where points do not ascend from 0, to the end of the run where they may reach it."""
    places = [place for place, _ in points]
    beyond = places and (places[-1] > 1 if to_end else places[-1] >= 1)
    if places and (places[0] != 0 or beyond or sorted(set(places)) != places):
        limit = "to 1" if to_end else "below 1"
        raise ValueError(f"{name} begins at {places}; expected shares of the run that begin at 0 and ascend {limit}")
    if any(value < least for _, value in points):
        raise ValueError(f"{name} has a value below {least:g}")


class TextTable(Table):
    """Which sequences are made of the shards."""

    kind: Literal["sentences", "across_documents", "next_sentence", "sentence_order"] = Field(
        default="sentences", description="Whole sentences of one document, or of any; or pairs (NSP, SOP)."
    )
    max_tokens: int = Field(default=512, ge=8, description="Longest sequence, special tokens included.")
    ramp: Points = Field(default=(), description="[share of the run, longest sequence] pairs; 128 first, then 512.")
    short: float = Field(default=0.1, ge=0, le=1, description="Share of documents whose pairs are made short.")
    repeat: dict[str, Times] = Field(
        default={}, description="How often an epoch has the text of a source: {abstracts = 3}; 0 leaves it out."
    )

    @model_validator(mode="after")
    def _ramp_fits(self) -> Self:
        _check_points("ramp", self.ramp, least=8)
        if self.ramp and self.ramp[-1][1] != self.max_tokens:
            raise ValueError(f"ramp ends at {self.ramp[-1][1]:g} tokens; expected max_tokens, {self.max_tokens}")
        if (longest := max((length for _, length in self.ramp), default=0)) > self.max_tokens:
            raise ValueError(f"ramp has {longest:g} tokens; expected max_tokens, {self.max_tokens}, at most")
        return self


class MaskingTable(Table):
    """What is hidden, and what stands in its place; docs/explanation/masking.md explains it."""

    unit: Literal["token", "word", "span"] = Field(default="word", description="What is hidden as one.")
    rate: float = Field(default=0.15, gt=0, le=1, description="Share of a sequence's tokens that are asked for.")
    ramp: Points = Field(default=(), description="[share of the run, rate] pairs in place of one rate.")
    linear: bool = Field(default=False, description="The rate moves in straight lines from point to point.")
    mask_share: float = Field(default=0.8, ge=0, le=1, description="Of these, the share that the mask stands for.")
    random_share: float = Field(default=0.1, ge=0, le=1, description="The share that any other token stands for.")
    together: bool = Field(default=False, description="Draw between them once for a word or span, not for each token.")
    independent: bool = Field(default=False, description="Choose each word by itself; by default up to a budget.")
    duplicates: int | None = Field(default=None, ge=1, description="So many maskings take turns; none: always new.")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        _check_points("ramp", self.ramp, least=1e-6, to_end=self.linear)
        if self.mask_share + self.random_share > 1 + 1e-9:
            raise ValueError("mask_share and random_share are more than 1 together")
        return self


class BatchTable(Table):
    """How much goes through the model at once."""

    tokens: int = Field(default=65_536, ge=8, description="Tokens of one pass, all sequences of it together.")
    passes: int = Field(default=1, ge=1, description="Passes whose gradients are added up before a step.")
    ramp: Points = Field(default=(), description="[share of the run, passes] pairs: a batch that grows.")
    ahead: int = Field(default=8, ge=0, description="Steps prepared ahead in the background; 0 prepares in line.")

    @model_validator(mode="after")
    def _ramp_fits(self) -> Self:
        _check_points("ramp", self.ramp, least=1)
        if self.ramp and self.ramp[-1][1] != self.passes:
            raise ValueError(f"ramp ends at {self.ramp[-1][1]:g} passes; expected passes, {self.passes}")
        return self


class OptimizerTable(Table):
    """AdamW, or Muon for the layers' matrices with AdamW for the rest."""

    kind: Literal["adamw", "muon"] = Field(default="adamw", description="muon: of matrices; adamw does the rest.")
    lr: float = Field(
        default=5e-4,
        gt=0,
        allow_inf_nan=False,
        description="The highest learning rate; Muon's steps are scaled to AdamW's.",
    )
    betas: tuple[Beta, Beta] = Field(default=(0.9, 0.98), description="AdamW's.")
    eps: float = Field(default=1e-6, gt=0, description="AdamW's.")
    decay: float = Field(default=0.01, ge=0, description="Weight decay of matrices; vectors have none.")
    decay_embeddings: bool = Field(default=True, description="Whether embeddings are matrices in this.")
    momentum: float = Field(default=0.95, ge=0, lt=1, description="Muon's.")
    clip: float | None = Field(default=1.0, gt=0, description="Gradients of a larger norm are scaled down to it.")


class ScheduleTable(Table):
    """The learning rate over the run."""

    kind: Literal["linear", "cosine", "constant"] = Field(default="linear", description="constant decays at its end.")
    warmup: float = Field(default=0.02, ge=0, lt=1, description="Share of the run.")
    warmup_steps: int | None = Field(default=None, ge=0, description="In its place, where the run is told in steps.")
    decay: float = Field(default=0.2, ge=0, le=1, description="With constant: share of the run it decays in, linearly.")
    end: float = Field(default=0.0, ge=0, le=1, description="Share of lr that is left at the end.")


class EvaluationTable(Table):
    """Loss on the held-out shards; its masks are the same at every time."""

    every: int | None = Field(default=None, ge=1, description="Steps between two; without it only at the end.")
    tokens: int = Field(default=1_000_000, ge=1, description="At most so many held-out tokens.")
    rate: float = Field(default=0.15, gt=0, le=1, description="Masking rate, so that runs compare.")
    seed: int = Field(default=0, ge=0, description="Of its masks.")


class LogTable(Table):
    """What is written down, and when. This may change between stopping and going on."""

    every: int = Field(default=20, ge=1, description="Steps between two lines of metrics.jsonl.")
    save_every: int = Field(default=1000, ge=1, description="Steps between two saved states.")
    keep: int = Field(default=2, ge=1, description="States kept; older ones are removed.")
    models: tuple[int, ...] = Field(
        default=(), description="Steps whose model is kept as a checkpoint, in models/step-N: to compare them later."
    )
    diverged: float = Field(default=2.0, gt=0, description="Stop where three lines on end are so far above the best.")


class CardTable(Table):
    """What the model card says that no program knows."""

    title: str | None = Field(default=None, description="By default the name of `out`.")
    license: str = Field(default="unknown", description="The model's own.")
    data: str | None = Field(default=None, description="The text it was trained on, and that text's licences.")


def _less(said: list[str]) -> str:
    """What to do where the length is told more than once: on the command line another was set beside the recipe's."""
    return f". Take out all but one: --set {said[-1]}= leaves a key out" if len(said) > 1 else ""


class TrainingRecipe(Recipe):
    """What every training on token shards says, whatever its loss."""

    shards: Path = Field(description="A folder that `lexome shard` made.")
    out: Path = Field(
        description="The folder for model/, the checkpoint, and run.json, metrics.jsonl, loss.png, state/."
    )
    seed: int = Field(default=0, ge=0, description="Of new weights, the order of the text, and its masks.")
    preset: str | None = Field(
        default=None, description="A shape by its name, such as bert-base; a wrong name lists all."
    )
    model: dict[str, Any] = Field(
        default={}, description="EncoderConfig's fields, in place of the preset's or the checkpoint's."
    )
    steps: int | None = Field(default=None, ge=1, description="How long; one of steps, tokens, epochs and budget.")
    tokens: int | None = Field(default=None, ge=1, description="In their place: tokens read.")
    epochs: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="In their place: times that the text is read."
    )
    budget: Seconds | None = Field(
        default=None,
        gt=0,
        description='In their place: seconds, or a time such as "20m"; reading in and compiling are not counted.',
    )
    device: Literal["auto", "cpu", "cuda"] = Field(default="auto", description="auto: the GPU, where there is one.")
    precision: Literal["auto", "fp32", "autocast", "bf16"] = Field(
        default="auto", description="auto: autocast on CUDA, fp32 on CPU. bf16: weights too, fp32 in the optimizer."
    )
    compile: bool | None = Field(default=None, description="torch.compile; by default on CUDA.")
    checkpointing: bool = Field(
        default=False, description="Compute each layer again in the backward pass: less memory, a third more time."
    )
    deterministic: bool | None = Field(
        default=None, description="The same bits each time on a GPU; by default, unless the length is a time."
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
    def _whole(self) -> Self:
        said = [name for name in ("steps", "tokens", "epochs", "budget") if getattr(self, name) is not None]
        if len(said) != 1:
            seen = " and ".join(said) or "nothing"
            raise ValueError(
                f"the length is told by {seen}; expected one of steps, tokens, epochs and budget{_less(said)}"
            )
        if self.schedule.warmup_steps is not None and self.steps is None:
            raise ValueError("schedule.warmup_steps needs a length in steps; say schedule.warmup, a share")
        beyond = [step for step in self.log.models if step < 1 or (self.steps is not None and step > self.steps)]
        if beyond:
            raise ValueError(f"log.models names step {beyond[0]}, which the run does not make; expected 1 to steps")
        if self.batch.tokens < self.text.max_tokens:
            raise ValueError(f"batch.tokens is {self.batch.tokens}, less than the longest sequence")
        return self


class PretrainRecipe(TrainingRecipe):
    """Token shards to a pre-trained encoder."""

    stage: Literal["pretrain"]
    start: Path | None = Field(default=None, description="A checkpoint to go on from; without it, random weights.")
    new_vocabulary: Literal["refuse", "carry"] = Field(
        default="refuse", description="carry: take another tokenizer than the checkpoint's, keep what both have."
    )

    @model_validator(mode="after")
    def _one_model(self) -> Self:
        if self.start is None and self.preset is None and not self.model:
            raise ValueError("there is no model; expected start, preset or a [model] table")
        if self.start is not None and self.preset is not None:
            raise ValueError("start and preset are both given; expected one of them")
        return self


class LossTable(Table):
    """What is minimised: a sum of three means, weighed as Lewis et al. (2020) did."""

    mlm: float = Field(default=5.0, ge=0, description="Weight of the cross entropy of masked words.")
    kl: float = Field(default=2.0, ge=0, description="Weight of KL(teacher || student) of the guesses.")
    cosine: float = Field(default=1.0, ge=0, description="Weight of 1 - cosine of last hidden states, over all tokens.")
    temperature: float = Field(default=2.0, gt=0, description="What both logits are divided by for kl.")
    squared: bool = Field(default=True, description="Multiply kl by the square of the temperature.")
    over: Literal["masked", "all"] = Field(
        default="masked", description="Compare guesses at masked words, or at all tokens as DistilBERT did."
    )
    projection: bool | None = Field(
        default=None, description="Learn a matrix from student to teacher width; none: where the widths differ."
    )

    @model_validator(mode="after")
    def _teaches(self) -> Self:
        if not (self.kl or self.cosine):
            raise ValueError("kl and cosine are both 0, so the teacher has no say; say control = true for that")
        if not (self.mlm or self.kl):
            raise ValueError("mlm and kl are both 0, so the head of masked words would learn nothing")
        return self


class DistillRecipe(TrainingRecipe):
    """Token shards, a teacher and a student to a smaller encoder."""

    stage: Literal["distill"]
    teacher: Path = Field(description="A checkpoint with a head of masked words, and the tokenizer of the shards.")
    student: Literal["layers"] | Path | None = Field(
        default=None, description='A checkpoint, or "layers": some of the teacher\'s. None: new, by preset or [model].'
    )
    layers: tuple[int, ...] = Field(default=(), description="Which of the teacher's layers, counted from 0.")
    every: int | None = Field(default=None, ge=1, description="In its place: layers 0, n, 2n, ...")
    control: bool = Field(
        default=False, description="Train the same student on the same text as long, by masked words alone."
    )
    loss: LossTable = LossTable()

    @model_validator(mode="after")
    def _student_fits(self) -> Self:
        if self.student is None and self.preset is None and not self.model:
            raise ValueError("there is no student; expected student, preset or a [model] table")
        if self.student is not None and self.preset is not None:
            raise ValueError("student and preset are both given; expected one of them")
        said = bool(self.layers) + (self.every is not None)
        if said != (self.student == "layers"):
            raise ValueError('expected either layers or every together with student = "layers", and neither without it')
        if list(self.layers) != sorted(set(self.layers)) or min(self.layers, default=0) < 0:
            raise ValueError("layers do not rise from 0 or more; expected numbers such as [0, 2, 4]")
        if self.text.kind in ("next_sentence", "sentence_order"):
            raise ValueError("pairs have no part in the loss; expected text.kind sentences or across_documents")
        return self
