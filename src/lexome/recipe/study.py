"""The recipe of `lexome reproduce`: a paper's tasks, protocols and averages, and the scores it reports."""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from lexome.errors import UsageError
from lexome.recipe import Recipe, Table, extended_file, invalid, load, merge
from lexome.recipe.finetune import FinetuneRecipe

# In a checkout the studies are next to src; in an installed package, inside it.
_HERE = Path(__file__).resolve()
FOLDERS = (_HERE.parents[1] / "studies", _HERE.parents[3] / "studies")
# Keys that the command line sets.
_OWN_KEYS = ("stage", "start", "out", "jobs", "device")


class ProtocolTable(Table):
    """How models are fine-tuned and how their scores are aggregated.

    If there are variants, each is run with the keys of `selection`, and the best of them, by the first metric on
    `select_on`, with those of `report`. Without `selection` and `report`, the runs for selection are also reported.
    """

    description: str = Field(description="One sentence that describes the protocol, with its place in the paper.")
    recipe: dict[str, Any] = Field(description="Keys of a fine-tuning recipe.")
    variants: tuple[dict[str, Any], ...] = Field(
        default=(), description="Keys that override those of the recipe; one variant is selected."
    )
    selection: dict[str, Any] = Field(default={}, description="Keys of the runs that select a variant.")
    report: dict[str, Any] = Field(default={}, description="Keys of the runs that are reported.")
    select_on: Literal["dev", "test"] = Field(
        default="dev", description="The split that variants are compared on; test only with separate folds."
    )
    folds: Literal["mean", "median"] | None = Field(default=None, description="Aggregation over folds.")
    seeds: Literal["mean", "median"] = Field(default="mean", description="Aggregation over seeds, after folds.")

    @model_validator(mode="after")
    def _selected_apart(self) -> Self:
        if (self.selection or self.report) and not self.variants:
            raise invalid("selection", "selection and report apply to variants, and there are none")
        selecting, reported = (_folds_of(merge(self.recipe, keys)) for keys in (self.selection, self.report))
        if self.select_on == "test" and not disjoint(selecting, reported):
            raise invalid("select_on", "variants are compared on the test split of a fold that is also reported")
        return self


class TaskTable(Table):
    """One row of the paper's table, or an intermediate task on the way to one."""

    name: str = Field(description="Its name, the same in every study with this dataset and initialization.")
    set: str = Field(description="A name listed by `lexome datasets`.")
    protocol: str = Field(description="The name of a table in [protocols].")
    group: str = Field(default="", description="The heading above it.")
    metrics: tuple[str, ...] = Field(default=("f1",), min_length=1, description="The metrics to report.")
    init_from: str | None = Field(default=None, description="The task whose fine-tuned model it starts from.")
    intermediate: bool = Field(default=False, description="Only an intermediate task, not a row of the table.")
    recipe: dict[str, Any] = Field(default={}, description="Keys that override the protocol's.")
    source: str | None = Field(default=None, description="Where to get the dataset, if Lexome does not know it.")
    note: str = Field(default="", description="A note below the table.")


class AverageTable(Table):
    """A mean over tasks, or over other averages: each counts once, with the mean of its metrics."""

    name: str = Field(description="The name of its row.")
    of: tuple[str, ...] = Field(min_length=1, description="Names of tasks or averages.")


class ReportedTable(Table):
    """The scores of one model in one table, in percent."""

    table: str = Field(description="The table in the paper.")
    model: str = Field(description="Its column.")
    lab: str | None = Field(default=None, description="Who reports them, if it is another paper.")
    values: dict[str, float | tuple[float, ...]] = Field(
        description="By task, in the order of its metrics, or by average."
    )


class DecisionTable(Table):
    """A decision made because the paper contradicts itself, its code or others, or is incomplete."""

    seen: str = Field(description="What the paper says.")
    decided: str = Field(description="What Lexome does.")


class StudyRecipe(Recipe):
    """A paper's experiment: tasks, protocols, aggregation, and the reported scores."""

    stage: Literal["reproduce"]
    name: str = Field(description="The folder of its runs is reproduced/NAME.")
    title: str = Field(description="The title of its table.")
    paper: str = Field(description="How to cite it.")
    description: str = Field(default="", description="What it compares, and how to name its models.")
    extends: str | None = Field(
        default=None, description="A study in the same folder from which protocols, tasks and averages are inherited."
    )
    only: tuple[str, ...] = Field(
        default=(), description="With extends: only these of its tasks, and their intermediate tasks."
    )
    curve: str | None = Field(
        default=None, description="Models have numeric names, plotted along an axis with this label."
    )
    reference: str | None = Field(default=None, description="The model whose scores, by all labs, make the spread.")
    protocols: dict[str, ProtocolTable] = Field(default={})
    tasks: tuple[TaskTable, ...] = ()
    averages: tuple[AverageTable, ...] = ()
    decisions: tuple[DecisionTable, ...] = ()
    reported: tuple[ReportedTable, ...] = ()

    @model_validator(mode="after")
    def _names_are_known(self) -> Self:
        if self.extends is not None:
            return self
        if not self.tasks:
            raise invalid("tasks", "there are no tasks; expected [[tasks]], or extends")
        names = [task.name for task in self.tasks] + [average.name for average in self.averages]
        if len(set(names)) < len(names):
            raise invalid("tasks", "two tasks or averages have the same name")
        wrong = [f"protocol {task.protocol}" for task in self.tasks if task.protocol not in self.protocols]
        wrong += [f"task {task.init_from}" for task in self.tasks if task.init_from and task.init_from not in names]
        wrong += [f"task {item}" for average in self.averages for item in average.of if item not in names]
        wrong += [f"task {name}" for row in self.reported for name in row.values if name not in names]
        if wrong:
            raise invalid(wrong[0], f"unknown names: {', '.join(dict.fromkeys(wrong))}")
        for what, parts in (
            ("starts from", {task.name: [task.init_from] if task.init_from else [] for task in self.tasks}),
            ("is a mean over", {average.name: list(average.of) for average in self.averages}),
        ):
            if (name := _cyclic(parts)) is not None:
                raise invalid(name, f"{name} {what} itself, directly or through others; expected no cycle")
        return self

    @model_validator(mode="after")
    def _numbers_fit(self) -> Self:
        if self.extends is not None:
            return self
        sizes = {task.name: len(task.metrics) for task in self.tasks}
        for row in self.reported:
            for name, numbers in row.values.items():
                count = len(numbers) if isinstance(numbers, tuple) else 1
                if count != sizes.get(name, 1):
                    raise invalid(
                        f"reported.{name}", f"{row.model} has {count} scores for {name}; expected {sizes.get(name, 1)}"
                    )
        return self

    @model_validator(mode="after")
    def _recipes_are_valid(self) -> Self:
        for task in () if self.extends is not None else self.tasks:
            protocol = self.protocols[task.protocol]
            for keys in (protocol.selection, protocol.report) if protocol.selection or protocol.report else ({},):
                for variant in protocol.variants or ({},):
                    _check(task, merge(protocol.recipe, task.recipe, variant, keys))
            # Runs for selection may use folds where the reported ones do not.
            reported = [merge(protocol.recipe, task.recipe, variant, protocol.report) for variant in protocol.variants]
            reported = reported or [merge(protocol.recipe, task.recipe)]
            if protocol.folds is None and any("folds" in recipe for recipe in reported):
                raise invalid(
                    f"protocols.{task.protocol}.folds",
                    f"{task.name} is cross-validated, but protocol {task.protocol} does not aggregate folds; expected "
                    'folds = "mean" or "median" beside its recipe',
                )
        return self

    def task(self, name: str) -> TaskTable:
        """The task of a known name."""
        return next(task for task in self.tasks if task.name == name)


def _cyclic(parts: Mapping[str, Collection[str]]) -> str | None:
    """The first name that depends on itself, or None."""
    for name in parts:
        seen: set[str] = set()
        pending = list(parts[name])
        while pending:
            other = pending.pop()
            if other == name:
                return name
            if other not in seen:
                seen.add(other)
                pending += parts.get(other, ())
    return None


def disjoint(selecting: Collection[int], reported: Collection[int]) -> bool:
    """Whether no fold is used for selection and also reported; no folds named means all, or a test split."""
    return bool(selecting) and bool(reported) and set(selecting).isdisjoint(reported)


def open_study(study: str | Path) -> StudyRecipe:
    """The study with this name or in this TOML file, including what it extends."""
    return _open((_path(study),))


def shipped() -> Iterator[StudyRecipe]:
    """The studies that come with Lexome, sorted by name."""
    for path in _study_files():
        yield open_study(path)


def _open(files: tuple[Path, ...]) -> StudyRecipe:
    """The study in the last of some files, each of which extends the next."""
    study = load(files[-1], StudyRecipe)
    if study.extends is None:
        return study
    return _extend(study, _open((*files, extended_file(files, study.extends))))


def _extend(study: StudyRecipe, source: StudyRecipe) -> StudyRecipe:
    """A study with the tasks, protocols and averages of the one that it extends."""
    names = {task.name for task in source.tasks}
    if unknown := sorted(set(study.only) - names):
        raise UsageError(
            f"{study.name}: {source.name} has no task {unknown[0]!r}; expected some of {', '.join(sorted(names))}.",
            code="unknown-task",
            value=unknown[0],
        )
    selected = set(study.only) or names
    while earlier := {task.init_from for task in source.tasks if task.name in selected and task.init_from} - selected:
        selected |= earlier
    tasks = (*(task for task in source.tasks if task.name in selected), *study.tasks)
    keys = study.model_dump(exclude={"extends", "only"}) | {
        "protocols": {**dict(source.protocols), **dict(study.protocols)},
        "tasks": tasks,
        "averages": (*(() if study.only else source.averages), *study.averages),
        "decisions": (*source.decisions, *study.decisions),
        "reference": study.reference or source.reference,
    }
    try:
        return StudyRecipe.model_validate(keys)
    except ValidationError as error:
        message = f"{study.name}: {error.errors()[0]['msg']}. It extends {source.name}."
        raise UsageError(message, code="invalid-study", value=study.name) from None


def _path(study: str | Path) -> Path:
    if Path(study).suffix == ".toml":
        return Path(study)
    for path in _study_files():
        if path.stem == str(study):
            return path
    names = ", ".join(path.stem for path in _study_files())
    raise UsageError(
        f"unknown study {str(study)!r}; expected one of {names or 'none here'}, or a TOML file.",
        code="unknown-study",
        value=str(study),
    )


def _study_files() -> list[Path]:
    folder = next((folder for folder in FOLDERS if folder.is_dir()), None)
    return sorted(folder.glob("*.toml")) if folder is not None else []


def _folds_of(keys: Mapping[str, Any]) -> set[int]:
    folds = keys.get("folds")
    return set(folds.get("use", ())) if isinstance(folds, Mapping) else set()


def _check(task: TaskTable, keys: Mapping[str, Any]) -> None:
    """Raise unless the keys are those of a fine-tuning recipe."""
    if own := [key for key in _OWN_KEYS if key in keys]:
        raise invalid(
            f"{task.name}.{own[0]}", f"{task.name}: {own[0]} is set on the command line; a study has no such key"
        )
    needed = {"stage": "finetune", "start": "start", "out": "out", "data": {"sets": [task.set]}}
    try:
        FinetuneRecipe.model_validate(merge(needed, keys))
    except ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(map(str, problem["loc"])) or problem.get("ctx", {}).get("key", "")
        raise invalid(f"{task.name}.{key}", f"{task.name}: {key}: {problem['msg']}") from None
