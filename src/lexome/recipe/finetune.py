"""The recipe of `lexome finetune`: a checkpoint and a task into fine-tuned models, one for each run of a grid."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, FiniteFloat, model_validator

from lexome import recipe
from lexome.recipe import Beta, CardTable, DataParallelTable, Device, LearningRate, Recipe, Seconds, Table, invalid

# For data.dev: no model selection, the last weights are kept.
NO_SPLIT = "none"

# The folder in `out` for splits that are passed as documents in Python.
SPLITS = "splits"

Names = str | tuple[str, ...]
"""The new name of a type, or several for mentions that have several types."""


class DataTable(Table):
    """Training data: datasets that Lexome knows by name, or a folder with a [task] table."""

    sets: tuple[str, ...] = Field(
        default=(), description="Names listed by `lexome datasets`; several need a [task] for all of them."
    )
    root: Path | None = Field(default=None, description="The folder of all datasets; default: ./data.")
    folder: Path | None = Field(default=None, description="A folder with files train, dev and test, of any format.")
    train: tuple[str, ...] = Field(default=("train",), min_length=1, description="Splits to train on.")
    dev: str = Field(
        default="dev", description='The split for model selection; "none": the weights of the last step are kept.'
    )
    test: str = Field(default="test", description="The split that score_test scores.")
    max_tokens: int | None = Field(default=None, ge=8, description="Maximum window length; default: the model's.")
    dev_fraction: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="If there is no dev split: fraction of the training articles to hold out as one.",
    )
    limit: int | None = Field(default=None, ge=1, description="Maximum number of documents per split, for test runs.")
    overlap: Literal["keep", "drop", "error"] = Field(
        default="keep", description="Training documents that are also in dev or test; they are counted either way."
    )
    rename: dict[str, dict[str, Names]] = Field(
        default={}, description="Other names for a source's mention types, one or several each."
    )
    exclude: tuple[Annotated[str, Field(pattern="^[^:]+:[^:]+$")], ...] = Field(
        default=(), description='Drop articles of these splits, each as "SET:SPLIT", from all training data (leakage).'
    )
    exclude_ngram: int = Field(
        default=6,
        ge=1,
        description="An excluded sentence is recognized by its first and last n-gram of this many words.",
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if bool(self.sets) == (self.folder is not None):
            raise invalid("sets", "expected either sets, a list of names, or folder, a path")
        for source, types in self.rename.items():
            for type_, renamed in types.items():
                names = (renamed,) if isinstance(renamed, str) else renamed
                if not all(names) or not names or len(set(names)) < len(names):
                    raise invalid(
                        f"rename.{source}.{type_}",
                        f"{source}'s {type_} is renamed {list(names)}; expected distinct names",
                    )
        if self.dev in self.train:
            raise invalid(
                "dev", f"the split {self.dev!r} is used for training and for model selection; expected another dev"
            )
        return self


class FoldsTable(Table):
    """Cross-validation: each fold in turn is the test split, and the others are trained on."""

    count: int | None = Field(
        default=None, ge=2, description="Number of folds of the train split; default: the dataset's own folds."
    )
    use: tuple[int, ...] = Field(default=(), description="Only these folds, counted from 0.")
    seed: int = Field(default=0, ge=0, description="Random seed of the assignment to folds.")
    dev_fraction: float = Field(default=0.0, ge=0, lt=1, description="Fraction of the training folds used as dev.")

    @model_validator(mode="after")
    def _folds_exist(self) -> Self:
        if len(set(self.use)) < len(self.use) or min(self.use, default=0) < 0:
            raise invalid("use", f"use is {list(self.use)}; expected distinct folds from 0 on")
        if self.count is not None and max(self.use, default=0) >= self.count:
            raise invalid("use", f"use names fold {max(self.use)}; the last of {self.count} is {self.count - 1}")
        return self


class HeadTable(Table):
    """The head on top of the encoder; by default that of transformers for the architecture."""

    layers: int | None = Field(default=None, ge=0, description="Number of hidden layers; BioMegatron has 1 or 2.")
    hidden_size: int | None = Field(default=None, ge=1, description="Their width; by default the encoder's.")
    activation: Literal["gelu", "gelu_tanh", "relu", "silu", "tanh"] = Field(
        default="relu", description="Their activation function."
    )
    dropout: float | None = Field(default=None, ge=0, lt=1, description="By default 0.1, or the checkpoint's own.")
    pooling: Literal["first", "mean"] | None = Field(
        default=None, description="For sequence labels: the first token, or the mean; default: as transformers."
    )
    crf: bool = Field(default=False, description="A conditional random field over the tags; for token labels only.")


class ProbeTable(Table):
    """Linear probing before fine-tuning: a new head is trained on the frozen encoder first (Kumar et al. 2022)."""

    epochs: int | None = Field(
        default=None,
        ge=0,
        description="Epochs over the training set's cached vectors; by default 8 for labels of sequences and for "
        "relations in one pass, 0 otherwise.",
    )
    lr: LearningRate = Field(default=1e-3, description="Peak learning rate, decayed linearly to 0.")
    weight_decay: float = Field(default=0.01, ge=0, le=1000, description="Weight decay of matrices.")
    standardize: bool = Field(
        default=True,
        description="Standardize the vectors by the training set's mean and standard deviation, then fold both into "
        "the head.",
    )


class LoraTable(Table):
    """Low-rank adapters beside frozen weights (Hu et al. 2021), in the format of the peft library."""

    rank: int = Field(default=8, ge=1, description="Rank of the adapters.")
    alpha: float = Field(default=16.0, gt=0, description="The adapters' output is scaled by alpha / rank.")
    dropout: float = Field(default=0.1, ge=0, lt=1, description="Dropout of the adapters' input.")
    targets: tuple[str, ...] = Field(
        default=("query", "value"), min_length=1, description="Of query, key, value, out, up, down; or weight names."
    )


class BatchTable(recipe.BatchTable):
    """The size of a step. A sequence is one window of a document."""

    sequences: int | None = Field(default=None, ge=1, description="Sequences per micro-batch; by default 32.")
    tokens: int | None = Field(
        default=None, ge=8, description="Maximum number of tokens per micro-batch, instead of sequences."
    )
    micro_batch_tokens: int = Field(
        default=32_768, ge=8, description="A micro-batch of more tokens is split further, to save memory."
    )

    @model_validator(mode="after")
    def _one_size(self) -> Self:
        if self.sequences is not None and self.tokens is not None:
            raise invalid("tokens", "sequences and tokens are both given; expected one of them")
        return self


class OptimizerTable(recipe.OptimizerTable):
    """AdamW, or Muon for the matrices of the layers and AdamW for everything else."""

    lr: LearningRate = Field(default=5e-5, description="Peak learning rate.")
    head_lr: LearningRate | None = Field(default=None, description="Learning rate of the head; by default lr.")
    layerwise_lr_decay: float = Field(
        default=1.0, gt=0, le=1, description="Each layer's learning rate, as a fraction of that of the layer above."
    )
    betas: tuple[Beta, Beta] = Field(default=(0.9, 0.999), description="AdamW's betas.")
    eps: float = Field(default=1e-8, gt=0, le=1, description="AdamW's epsilon.")


class ScheduleTable(recipe.ScheduleTable):
    """The learning-rate schedule."""

    warmup_ratio: float = Field(default=0.1, ge=0, lt=1, description="Fraction of the run used for linear warm-up.")
    warmup_steps: int | None = Field(default=None, ge=0, description="Warm-up steps, instead of warmup_ratio.")
    decay_ratio: float = Field(
        default=0.0, ge=0, le=1, description="With constant: fraction of the run, at its end, of linear decay."
    )


class LossTable(Table):
    """The loss, and how it treats rare labels."""

    kind: Literal["plain", "weighted", "dice", "focal"] = Field(
        default="plain", description="plain: cross entropy, or binary cross entropy; weighted: by label rarity."
    )
    power: float = Field(default=1.0, gt=0, le=1, description="With weighted: weights are rarity to this power.")
    gamma: float = Field(default=2.0, ge=0, description="With focal: the exponent of 1 - p.")
    alpha: float = Field(default=1.0, ge=0, description="With dice: the exponent of 1 - p.")
    smooth: float = Field(default=1.0, gt=0, description="With dice: added to numerator and denominator.")
    oversample: float = Field(
        default=0.0, ge=0, le=1, description="Oversample examples of rare labels; 1: all labels equally often."
    )


class TeacherTable(Table):
    """Distillation from fine-tuned models with the same labels: their probabilities are soft labels (Hinton 2015).

    They label every token with all their types, even those that a dataset does not annotate, and unlabeled text.
    """

    models: tuple[Path, ...] = Field(
        min_length=1, description="Checkpoints, or `out` of fine-tunings; several are averaged (ensemble)."
    )
    shards: Path | None = Field(
        default=None, description="Unlabeled text: token shards that `lexome shard` made with the same tokenizer."
    )
    text_ratio: float = Field(
        default=1.0, gt=0, allow_inf_nan=False, description="How much of that text an epoch of the datasets reads."
    )
    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False, description="Weight of the distillation loss.")
    temperature: float = Field(default=1.0, gt=0, description="Softmax temperature of teachers and student.")


class EvaluationTable(recipe.EvaluationTable):
    """Scores on dev, by the same decoding as in serving."""

    every: int | None = Field(default=None, ge=1, description="Steps between evaluations; by default once an epoch.")
    metric: str | None = Field(default=None, description="The metric for model selection; by default the task's first.")
    patience: int | None = Field(
        default=None,
        ge=1,
        description="Early-stopping patience, in evaluations; those of the first 100 steps do not count.",
    )
    batch_tokens: int = Field(default=65_536, ge=8, description="Tokens per batch.")


class LogTable(recipe.LogTable):
    """Logging and divergence checks; these keys may change between interrupting and resuming a run."""

    every: int = Field(default=50, ge=1, description="Steps between lines of metrics.jsonl.")
    divergence_threshold: float | None = Field(
        default=None, gt=0, description="Stop if three logged losses in a row are this far above the lowest."
    )


class GridTable(Table):
    """A grid search: every combination of these is a run."""

    batch: tuple[int, ...] = Field(default=(), description="Values for batch.sequences.")
    lr: tuple[LearningRate, ...] = Field(default=(), description="Values for optimizer.lr.")
    epochs: tuple[FiniteFloat, ...] = Field(default=(), description="Values for epochs.")
    seeds: Literal["all", "first"] = Field(
        default="all", description="first: the grid with the first seed, then the other seeds for the best cell."
    )

    @model_validator(mode="after")
    def _distinct_values(self) -> Self:
        for name in ("batch", "lr", "epochs"):
            values = getattr(self, name)
            if len(set(values)) < len(values) or min(values, default=1) <= 0:
                raise invalid(name, f"{name} is {list(values)}; expected distinct numbers above 0")
        return self


class FinetuneRecipe(Recipe):
    """Fine-tunes a checkpoint on a task."""

    stage: Literal["finetune"]
    start: Path = Field(
        description="A checkpoint, or `out` of an earlier fine-tuning (SQuAD, then BioASQ), whose best model is used; "
        '"default" is the default model.'
    )
    layers: int | None = Field(default=None, ge=1, description="Number of its layers to keep, from the first.")
    out: Path = Field(description="The folder for runs/, summary.json and summary.txt.")
    data: DataTable
    task: dict[str, Any] = Field(
        default={}, description="Task settings, such as its kind and labels; they override those of a named dataset."
    )
    method: Literal["full", "frozen", "lora"] = Field(
        default="full", description="Train all weights, the head only, or the head and low-rank adapters."
    )
    epochs: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="Length; one of epochs, steps and grid.epochs."
    )
    steps: int | None = Field(default=None, ge=1, description="Length in steps, instead of epochs.")
    seeds: tuple[int, ...] = Field(
        default=(0,), min_length=1, description="Random seeds of new weights and data order; one run for each."
    )
    score_test: Literal["never", "best", "every"] = Field(
        default="never",
        description="Score test with the best cell's runs, or with every run. With [folds] the default is every: the "
        "scores of cross-validation are those of its test folds.",
    )
    keep_models: Literal["every", "best", "none"] = Field(
        default="every", description="Which runs keep their weights; all keep scores and predictions."
    )
    new_head: bool = Field(
        default=False, description="Initialize a new head even if the checkpoint has one, or one with other labels."
    )
    jobs: int = Field(default=1, ge=1, description="Concurrent runs, each in its own process, on one device.")
    dropout: float | None = Field(default=None, ge=0, lt=1, description="The encoder's; by default the checkpoint's.")
    attention_dropout: Annotated[float, Field(ge=0, lt=1)] | Literal["checkpoint"] = Field(
        default=0.0, description="Above 0 a GPU uses a slower attention kernel."
    )
    device: Device = Field(default="auto", description="auto: a GPU if available.")
    precision: Literal["auto", "fp32", "autocast"] = Field(
        default="auto", description="auto: autocast to bfloat16 on CUDA, fp32 on CPU."
    )
    compile: bool = Field(default=False, description="torch.compile: minutes of warm-up, worth it for long runs only.")
    cuda_graphs: bool = Field(
        default=True, description="Capture each step as a CUDA graph, if the model and the loss allow it."
    )
    qat_ratio: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Quantization-aware training (fake int8) in this last fraction of the run.",
    )
    gradient_checkpointing: bool = Field(
        default=False, description="Recompute each layer in the backward pass: less memory, a third more time."
    )
    deterministic: bool = Field(default=True, description="Bit-exact reproducible on a GPU.")
    save_every: Seconds = Field(
        default=120, ge=0, description='Seconds, or a duration such as "2m", between saved training states.'
    )
    folds: FoldsTable | None = None
    head: HeadTable = HeadTable()
    probe: ProbeTable = ProbeTable()
    lora: LoraTable = LoraTable()
    batch: BatchTable = BatchTable()
    optimizer: OptimizerTable = OptimizerTable()
    schedule: ScheduleTable = ScheduleTable()
    loss: LossTable = LossTable()
    teacher: TeacherTable | None = None
    evaluation: EvaluationTable = EvaluationTable()
    grid: GridTable = GridTable()
    parallel: DataParallelTable = DataParallelTable()
    log: LogTable = LogTable()
    card: CardTable = CardTable()

    @model_validator(mode="before")
    @classmethod
    def _score_folds(cls, keys: Any) -> Any:
        if isinstance(keys, Mapping) and keys.get("folds") is not None and "score_test" not in keys:
            return {**keys, "score_test": "every"}
        return keys

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        lengths = [name for name in ("epochs", "steps") if getattr(self, name) is not None]
        lengths += ["grid.epochs"] if self.grid.epochs else []
        if len(lengths) != 1:
            raise invalid(
                lengths[-1] if lengths else "epochs",
                f"the length is given by {lengths or 'nothing'}; expected epochs, steps or grid.epochs",
            )
        if self.grid.batch and (self.batch.tokens is not None or self.batch.sequences is not None):
            raise invalid(
                "grid.batch", "grid.batch takes the place of batch.sequences and batch.tokens; expected one of them"
            )
        if len(set(self.seeds)) < len(self.seeds) or min(self.seeds) < 0:
            raise invalid("seeds", f"seeds is {list(self.seeds)}; expected a list of distinct integers from 0")
        if self.method != "lora" and self.lora != LoraTable():
            raise invalid("lora", f'[lora] needs method = "lora"; the method is "{self.method}"')
        if self.data.folder is not None and "kind" not in self.task:
            raise invalid("task.kind", 'a folder needs a [task] table with its kind, such as kind = "ner"')
        return self

    @model_validator(mode="after")
    def _splits_disjoint(self) -> Self:
        data = self.data
        if self.folds is None and self.score_test != "never" and data.test in (data.dev, *data.train):
            use = "model selection" if data.test == data.dev else "training"
            raise invalid(
                "data.test", f"the split {data.test!r} is used for {use} and scored as test; expected another data.test"
            )
        if self.folds is not None and self.folds.count is not None:
            if data.dev_fraction is not None:
                raise invalid(
                    "data.dev_fraction", "data.dev_fraction does not apply to random folds; expected folds.dev_fraction"
                )
            if self.score_test == "never" and not self.has_dev:
                raise invalid(
                    "score_test",
                    'score_test is "never", and these folds have no dev split, so nothing is scored; expected '
                    'score_test = "every", or folds.dev_fraction',
                )
        return self

    @model_validator(mode="after")
    def _qat_fits(self) -> Self:
        if self.qat_ratio and (self.method != "full" or self.compile):
            raise invalid("qat_ratio", 'qat_ratio needs method = "full" and compile = false')
        return self

    @property
    def has_dev(self) -> bool:
        """Whether a dev split is certain; a dataset's own folds may have one each, but only their files show it."""
        return self.folds.dev_fraction > 0 if self.folds is not None else self.data.dev != NO_SPLIT

    @model_validator(mode="after")
    def _selection_has_dev(self) -> Self:
        if self.has_dev or (self.folds is not None and self.folds.count is None):
            return self
        selecting = {
            "evaluation.patience": self.evaluation.patience is not None,
            'grid.seeds = "first"': self.grid.seeds == "first",
        }
        for name, active in selecting.items():
            if active:
                raise invalid(name, f"{name} needs scores on dev; expected data.dev, or folds.dev_fraction")
        return self


# The runs of a recipe


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination of a grid; None for settings that the grid does not vary."""

    batch: int | None = None
    lr: float | None = None
    epochs: float | None = None

    @property
    def name(self) -> str:
        """Such as batch16-lr3e-05; empty if nothing is varied."""
        settings = (("batch", self.batch), ("lr", self.lr), ("epochs", self.epochs))
        return "-".join(f"{key}{value:g}" for key, value in settings if value is not None)


@dataclass(frozen=True, slots=True)
class Run:
    """One training run: a cell, a seed, and a fold in cross-validation."""

    cell: Cell
    seed: int
    fold: int | None = None

    @property
    def name(self) -> str:
        """The name of its folder."""
        parts = [self.cell.name, f"seed{self.seed}", "" if self.fold is None else f"fold{self.fold}"]
        return "-".join(filter(None, parts))


def cells_of(grid: GridTable) -> list[Cell]:
    """Every combination of the grid, or the one cell of a recipe without one."""
    return [Cell(*values) for values in product(grid.batch or (None,), grid.lr or (None,), grid.epochs or (None,))]


def runs_of(cells: Sequence[Cell], seeds: Sequence[int], folds: Sequence[int | None]) -> list[Run]:
    """Fold by fold, so that each fold is encoded once."""
    return [Run(cell, seed, fold) for fold in folds for cell in cells for seed in seeds]


def recipe_of_run(recipe: FinetuneRecipe, run: Run) -> FinetuneRecipe:
    """The recipe of one run alone, validated again: no grid, one seed, one fold."""
    changed: dict[str, Any] = recipe.model_dump()
    changed |= {"grid": {}, "seeds": (run.seed,)}
    if run.cell.batch is not None:
        changed["batch"] |= {"sequences": run.cell.batch, "tokens": None}
    if run.cell.lr is not None:
        changed["optimizer"]["lr"] = run.cell.lr
    if run.cell.epochs is not None:
        changed["epochs"] = run.cell.epochs
    if run.fold is not None:
        changed["folds"]["use"] = (run.fold,)
    return FinetuneRecipe.model_validate(changed)
