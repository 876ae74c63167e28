"""The recipe of `lexome finetune`: a checkpoint and a task into fine-tuned models, one for each run of a grid."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, FiniteFloat, model_validator

from lexome.recipe import Beta, Recipe, Table
from lexome.recipe.pretrain import Seconds

# For data.dev: models are not chosen, the last weights are taken.
NO_SPLIT = "none"

Names = str | tuple[str, ...]
"""What a type is called: one name, or several for mentions that are of several types."""


class DataTable(Table):
    """What is learnt from: sets that Lexome knows by name, or a folder with a [task] table."""

    sets: tuple[str, ...] = Field(
        default=(), description="Names that `lexome datasets` lists; several with one [task]."
    )
    root: Path | None = Field(default=None, description="The folder of all sets; by default LEXOME_DATA, or ./data.")
    folder: Path | None = Field(default=None, description="A folder with files train, dev and test, of any format.")
    train: tuple[str, ...] = Field(default=("train",), min_length=1, description="Splits to learn from.")
    dev: str = Field(default="dev", description='The split to choose by; "none": the last weights are kept.')
    test: str = Field(default="test", description="The split that is scored where score_test says so.")
    max_tokens: int | None = Field(default=None, ge=8, description="Longest row; by default the model's longest.")
    dev_share: float | None = Field(
        default=None, gt=0, lt=1, description="Where there is no dev: the share of train's articles to draw as one."
    )
    limit: int | None = Field(default=None, ge=1, description="At most so many documents of each split, for trying.")
    overlap: Literal["keep", "drop", "error"] = Field(
        default="keep", description="What becomes of training documents that are in dev or test too; each is counted."
    )
    rename: dict[str, dict[str, Names]] = Field(
        default={},
        description="Types of mentions of a source under another name, or under several; others stay as they are.",
    )
    exclude: tuple[Annotated[str, Field(pattern="^[^:]+:[^:]+$")], ...] = Field(
        default=(), description='Never learn from articles of these splits, each as "SET:SPLIT", whatever set has them.'
    )
    exclude_words: int = Field(
        default=6,
        ge=1,
        description="A sentence of theirs is found by its first and last run of so many words; shorter ones are not.",
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if bool(self.sets) == (self.folder is not None):
            raise ValueError("expected either sets, a list of names, or folder, a path")
        for source, types in self.rename.items():
            for type_, given in types.items():
                names = (given,) if isinstance(given, str) else given
                if not all(names) or not names or len(set(names)) < len(names):
                    raise ValueError(f"{source}'s {type_} is renamed {list(names)}; expected names, each once")
        if self.dev in self.train:
            raise ValueError(f"the split {self.dev!r} is learnt from and chosen by; expected dev to be another")
        return self


class FoldsTable(Table):
    """Cross-validation: each fold in turn is the test split, and the rest is learnt from."""

    count: int | None = Field(default=None, ge=2, description="So many folds of train; none: the set's own, if any.")
    use: tuple[int, ...] = Field(default=(), description="Only these folds, counted from 0.")
    seed: int = Field(default=0, ge=0, description="How documents are dealt out.")
    dev: float = Field(default=0.0, ge=0, lt=1, description="Share of the rest that is kept apart as dev.")

    @model_validator(mode="after")
    def _there(self) -> Self:
        if len(set(self.use)) < len(self.use) or min(self.use, default=0) < 0:
            raise ValueError(f"use is {list(self.use)}; expected folds from 0 on, each once")
        if self.count is not None and max(self.use, default=0) >= self.count:
            raise ValueError(f"use names fold {max(self.use)}; the last of {self.count} is {self.count - 1}")
        return self


class HeadTable(Table):
    """What lies between encoder and labels; by default what transformers has for the architecture."""

    layers: int | None = Field(default=None, ge=0, description="Hidden layers; BioMegatron had 1 or 2.")
    width: int | None = Field(default=None, ge=1, description="Their width; by default the encoder's.")
    activation: Literal["gelu", "gelu_tanh", "relu", "silu", "tanh"] = Field(default="relu", description="Theirs.")
    dropout: float | None = Field(default=None, ge=0, lt=1, description="By default 0.1, or the checkpoint's own.")
    pooling: Literal["first", "mean"] | None = Field(
        default=None,
        description="What a text's label is told from: its first token, or all; by default as transformers.",
    )
    crf: bool = Field(default=False, description="Learn how tags follow one another; of token labels alone.")


class LoraTable(Table):
    """Low-rank adapters beside frozen weights (Hu et al. 2021), in the form of the peft library."""

    rank: int = Field(default=8, ge=1, description="Width between an adapter's two matrices.")
    alpha: float = Field(default=16.0, gt=0, description="The adapters' output is scaled by alpha / rank.")
    dropout: float = Field(default=0.1, ge=0, lt=1, description="Of what goes into the adapters.")
    targets: tuple[str, ...] = Field(
        default=("query", "value"), min_length=1, description="Of query, key, value, out, up, down; or their names."
    )


class BatchTable(Table):
    """How much goes into one step. A row is one window of a document."""

    sequences: int | None = Field(default=None, ge=1, description="Rows of a step, as papers say it; by default 32.")
    tokens: int | None = Field(default=None, ge=8, description="In its place, tokens of a step, at most.")
    pass_tokens: int = Field(default=32_768, ge=8, description="A step of more tokens goes through in several passes.")

    @model_validator(mode="after")
    def _one_size(self) -> Self:
        if self.sequences is not None and self.tokens is not None:
            raise ValueError("sequences and tokens are both given; expected one of them")
        return self


class OptimizerTable(Table):
    """AdamW."""

    lr: float = Field(default=5e-5, gt=0, allow_inf_nan=False, description="The highest learning rate.")
    head_lr: float | None = Field(default=None, gt=0, allow_inf_nan=False, description="The head's; by default lr.")
    layer_decay: float = Field(default=1.0, gt=0, le=1, description="Each layer down has so much of the rate above it.")
    betas: tuple[Beta, Beta] = Field(default=(0.9, 0.999), description="AdamW's.")
    eps: float = Field(default=1e-8, gt=0, description="AdamW's.")
    decay: float = Field(default=0.01, ge=0, description="Weight decay of matrices; vectors have none.")
    clip: float = Field(default=1.0, ge=0, description="Gradients of a larger norm are scaled down to it; 0: never.")


class ScheduleTable(Table):
    """The learning rate over the run."""

    kind: Literal["linear", "cosine", "constant"] = Field(default="linear", description="How it goes down.")
    warmup: float = Field(default=0.1, ge=0, lt=1, description="Share of the run.")
    end: float = Field(default=0.0, ge=0, le=1, description="Share of lr that is left at the end.")


class LossTable(Table):
    """What is minimised, and what is done about labels that are rare."""

    kind: Literal["plain", "weighted", "dice", "focal"] = Field(
        default="plain", description="plain: cross entropy, of one right label or of each; weighted: by rarity."
    )
    power: float = Field(default=1.0, gt=0, le=1, description="With weighted: weights are rarity to this power.")
    gamma: float = Field(default=2.0, ge=0, description="With focal: the exponent of what is left to learn.")
    alpha: float = Field(default=1.0, ge=0, description="With dice: the exponent of what is left to learn.")
    smooth: float = Field(default=1.0, gt=0, description="With dice: added above and below.")
    oversample: float = Field(default=0.0, ge=0, le=1, description="Rows of rare labels come more often; 1: all alike.")


class TeacherTable(Table):
    """Fine-tuned models with the same labels, whose shares of each label are learnt from too (Hinton et al. 2015).

    They tell about every token and every type: about types that a set does not annotate, and about text that nobody has
    annotated.
    """

    models: tuple[Path, ...] = Field(
        min_length=1, description="Checkpoints, or `out` of fine-tunings; of several the mean of their shares is taken."
    )
    shards: Path | None = Field(
        default=None, description="Text without labels: token shards that `lexome shard` made with the same tokenizer."
    )
    share: float = Field(
        default=1.0, gt=0, allow_inf_nan=False, description="How much of that text is read in an epoch of the sets."
    )
    weight: float = Field(
        default=1.0, gt=0, allow_inf_nan=False, description="What the teachers' loss is multiplied by."
    )
    temperature: float = Field(default=1.0, gt=0, description="What all logits are divided by at first.")


class EvaluationTable(Table):
    """Scores on dev, by the same decoding that serves."""

    every: int | None = Field(default=None, ge=1, description="Steps between two; by default once an epoch.")
    measure: str | None = Field(default=None, description="What models are chosen by; by default the task's first.")
    patience: int | None = Field(
        default=None,
        ge=1,
        description="Stop after so many without a better one, those of the first 100 steps not counted.",
    )
    pass_tokens: int = Field(default=65_536, ge=8, description="Tokens of one pass.")


class GridTable(Table):
    """Every combination of these is a run."""

    batch: tuple[int, ...] = Field(default=(), description="Values for batch.sequences.")
    lr: tuple[FiniteFloat, ...] = Field(default=(), description="Values for optimizer.lr.")
    epochs: tuple[FiniteFloat, ...] = Field(default=(), description="Values for epochs.")
    seeds: Literal["all", "first"] = Field(
        default="all", description="first: the grid with the first seed, then the other seeds for its best cell."
    )

    @model_validator(mode="after")
    def _apart(self) -> Self:
        for name in ("batch", "lr", "epochs"):
            given = getattr(self, name)
            if len(set(given)) < len(given) or min(given, default=1) <= 0:
                raise ValueError(f"{name} is {list(given)}; expected numbers above 0, each once")
        return self


class CardTable(Table):
    """What the model card says that no program knows."""

    title: str | None = Field(default=None, description="By default the name of `out`.")
    license: str = Field(default="unknown", description="The model's own.")
    data: str | None = Field(default=None, description="By default the set and its licence.")


class FinetuneRecipe(Recipe):
    """A checkpoint and a task to fine-tuned models."""

    stage: Literal["finetune"]
    start: Path = Field(
        description="A checkpoint, or `out` of an earlier fine-tuning (SQuAD, then BioASQ): its best model is meant."
    )
    layers: int | None = Field(default=None, ge=1, description="Only so many of its layers, from the first one on.")
    out: Path = Field(description="The folder for runs/, summary.json and summary.txt.")
    data: DataTable
    task: dict[str, Any] = Field(
        default={}, description="The task's settings: its kind and labels; over those of a named set."
    )
    method: Literal["full", "frozen", "lora"] = Field(
        default="full", description="Learn all weights, the head alone, or the head and low-rank adapters."
    )
    epochs: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="How long; one of epochs, steps and grid.epochs."
    )
    steps: int | None = Field(default=None, ge=1, description="In its place.")
    seeds: tuple[int, ...] = Field(default=(0,), min_length=1, description="Of new weights and order; a run for each.")
    score_test: Literal["never", "best", "every"] = Field(
        default="never", description="Score test with the best cell's runs, or with every run."
    )
    models: Literal["every", "best", "none"] = Field(
        default="every", description="Whose weights are kept; scores and predictions of every run are."
    )
    new_head: bool = Field(
        default=False, description="Draw a new head even where the checkpoint has one, or where its labels differ."
    )
    jobs: int = Field(default=1, ge=1, description="Runs at a time, in processes of their own, on one device.")
    dropout: float | None = Field(default=None, ge=0, lt=1, description="The encoder's; by default the checkpoint's.")
    attention_dropout: Annotated[float, Field(ge=0, lt=1)] | Literal["checkpoint"] = Field(
        default=0.0, description="Above 0 a GPU takes a slower path."
    )
    device: Literal["auto", "cpu", "cuda"] = Field(default="auto", description="auto: the GPU, where there is one.")
    precision: Literal["auto", "fp32", "autocast"] = Field(
        default="auto", description="auto: autocast to bfloat16 on CUDA, fp32 on CPU."
    )
    compile: bool = Field(default=False, description="torch.compile: minutes at first, which only long rows get back.")
    graphs: bool = Field(
        default=True, description="On CUDA, steps recorded and launched as one, where the model and the loss allow it."
    )
    rounding: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Share of the run, its last one, in which products are rounded as in an int8 export.",
    )
    checkpointing: bool = Field(
        default=False, description="Compute each layer again in the backward pass: less memory, a third more time."
    )
    deterministic: bool = Field(default=True, description="The same bits each time on a GPU.")
    save_every: Seconds = Field(
        default=120,
        ge=0,
        description='Seconds, or a time such as "2m", between two saved states; a stopped run goes on from there.',
    )
    folds: FoldsTable | None = None
    head: HeadTable = HeadTable()
    lora: LoraTable = LoraTable()
    batch: BatchTable = BatchTable()
    optimizer: OptimizerTable = OptimizerTable()
    schedule: ScheduleTable = ScheduleTable()
    loss: LossTable = LossTable()
    teacher: TeacherTable | None = None
    evaluation: EvaluationTable = EvaluationTable()
    grid: GridTable = GridTable()
    card: CardTable = CardTable()

    @model_validator(mode="after")
    def _whole(self) -> Self:
        said = [name for name, given in (("epochs", self.epochs), ("steps", self.steps)) if given is not None]
        said += ["grid.epochs"] if self.grid.epochs else []
        if len(said) != 1:
            raise ValueError(f"the length is told by {said or 'nothing'}; expected epochs, steps or grid.epochs")
        if self.grid.batch and (self.batch.tokens is not None or self.batch.sequences is not None):
            raise ValueError("grid.batch takes the place of batch.sequences and batch.tokens; expected one of them")
        if len(set(self.seeds)) < len(self.seeds) or min(self.seeds) < 0:
            raise ValueError(f"seeds are {list(self.seeds)}; expected numbers from 0 on, each once")
        if self.data.folder is not None and "kind" not in self.task:
            raise ValueError('a folder needs a [task] table with its kind, such as kind = "ner"')
        return self

    @model_validator(mode="after")
    def _apart(self) -> Self:
        data = self.data
        if self.folds is None and self.score_test != "never" and data.test in (data.dev, *data.train):
            how = "chosen by" if data.test == data.dev else "learnt from"
            raise ValueError(f"the split {data.test!r} is {how} and scored as test; expected data.test to be another")
        if self.folds is not None and self.folds.count is not None and data.dev_share is not None:
            raise ValueError("data.dev_share draws no dev in folds that are drawn themselves; expected folds.dev")
        return self

    @model_validator(mode="after")
    def _rounded(self) -> Self:
        if self.rounding and (self.method != "full" or self.compile):
            raise ValueError('rounding needs method = "full" and no compile; expected one of them')
        return self

    @property
    def draws_dev(self) -> bool:
        """Whether there is a dev split for sure; a set's own folds may have one each, which only their files tell."""
        return self.folds.dev > 0 if self.folds is not None else self.data.dev != NO_SPLIT

    @model_validator(mode="after")
    def _choosing(self) -> Self:
        has_dev = self.draws_dev or (self.folds is not None and self.folds.count is None)
        chosen = {
            "evaluation.patience": self.evaluation.patience is not None,
            'grid.seeds = "first"': self.grid.seeds == "first",
        }
        for name, asked in chosen.items():
            if asked and not has_dev:
                raise ValueError(f"{name} goes by scores on dev, and there is none; expected data.dev, or folds.dev")
        return self
