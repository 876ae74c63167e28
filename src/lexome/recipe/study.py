"""The file of `lexome reproduce`: a paper's tasks, protocols and averages, and the numbers it reports."""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from lexome.errors import UsageError
from lexome.recipe import Recipe, Table, alike, load, merged
from lexome.recipe.finetune import FinetuneRecipe

# In a checkout the files lie beside src; in an installed package inside it.
_HERE = Path(__file__).resolve()
FOLDERS = (_HERE.parents[1] / "studies", _HERE.parents[3] / "studies")
# What is told on the command line.
_OWN_KEYS = ("stage", "start", "out", "jobs", "device")


class ProtocolTable(Table):
    """How models are fine-tuned and what is made of their scores.

    Where there are variants, each is run with the keys of `choose`, and the best of them, by the first measure on `by`,
    with those of `report`. Without `choose` and `report` the runs that choose are those that are reported.
    """

    about: str = Field(description="The paper's own description in a sentence, and where it is.")
    recipe: dict[str, Any] = Field(description="Keys of a fine-tuning recipe.")
    variants: tuple[dict[str, Any], ...] = Field(default=(), description="Keys laid over these; one of them is chosen.")
    choose: dict[str, Any] = Field(default={}, description="Keys of the runs that choose a variant.")
    report: dict[str, Any] = Field(default={}, description="Keys of the runs that are reported.")
    by: Literal["dev", "test"] = Field(default="dev", description="Where variants are compared; test of a fold apart.")
    folds: Literal["mean", "median"] | None = Field(default=None, description="What is taken over the folds.")
    seeds: Literal["mean", "median"] = Field(default="mean", description="What is taken over the seeds, after folds.")

    @model_validator(mode="after")
    def _chosen_apart(self) -> Self:
        if (self.choose or self.report) and not self.variants:
            raise ValueError("choose and report tell apart the runs of variants, and there are none")
        choosing, reported = (_folds_of(merged(self.recipe, keys)) for keys in (self.choose, self.report))
        if self.by == "test" and not apart(choosing, reported):
            raise ValueError("variants are compared on the test split of a fold that is also reported")
        return self


class TaskTable(Table):
    """One row of the paper's table, or a step on the way to one."""

    name: str = Field(description="The same in every study where it is the same set, learnt from after the same.")
    set: str = Field(description="A name that `lexome datasets` lists.")
    protocol: str = Field(description="The name of a table of [protocols].")
    group: str = Field(default="", description="The heading it stands under.")
    measures: tuple[str, ...] = Field(default=("f1",), min_length=1, description="Of the scores, those reported.")
    after: str | None = Field(default=None, description="The task whose fine-tuned model is the start.")
    step: bool = Field(default=False, description="Only a step on the way: not a row.")
    recipe: dict[str, Any] = Field(default={}, description="Keys laid over the protocol's.")
    get: str | None = Field(default=None, description="Where the set is to be had, where Lexome does not know it.")
    note: str = Field(default="", description="What the table says below it.")


class AverageTable(Table):
    """A mean over tasks, or over other averages: each counts once, with the mean of its measures."""

    name: str = Field(description="Its row.")
    of: tuple[str, ...] = Field(min_length=1, description="Names of tasks or averages.")


class ReportedTable(Table):
    """The numbers of one model in one table, in percent."""

    table: str = Field(description="Where they stand in the paper.")
    model: str = Field(description="Its column.")
    lab: str | None = Field(default=None, description="Who reports them, where it is not this paper.")
    values: dict[str, float | tuple[float, ...]] = Field(description="By task, in its measures' order, or by average.")


class DecisionTable(Table):
    """Where the paper contradicts itself, its code or others, or is silent."""

    seen: str = Field(description="What it says.")
    decided: str = Field(description="What is done here.")


class StudyRecipe(Recipe):
    """A paper's experiment: tasks, protocols, aggregation, and what was reported."""

    stage: Literal["reproduce"]
    name: str = Field(description="That of the folder for its runs: reproduced/NAME.")
    title: str = Field(description="Above its table.")
    paper: str = Field(description="How to cite it.")
    about: str = Field(default="", description="What it compares, and how its models are to be named.")
    like: str | None = Field(default=None, description="A study in the same folder: its protocols, tasks and averages.")
    only: tuple[str, ...] = Field(default=(), description="With like: these of its tasks alone, and their steps.")
    curve: str | None = Field(default=None, description="Models are named by numbers, drawn along an axis called so.")
    reference: str | None = Field(default=None, description="The model whose numbers by all labs make the spread.")
    protocols: dict[str, ProtocolTable] = Field(default={})
    tasks: tuple[TaskTable, ...] = ()
    averages: tuple[AverageTable, ...] = ()
    decisions: tuple[DecisionTable, ...] = ()
    reported: tuple[ReportedTable, ...] = ()

    @model_validator(mode="after")
    def _names_are_known(self) -> Self:
        if self.like is not None:
            return self
        if not self.tasks:
            raise ValueError("there are no tasks; expected [[tasks]], or like, a study to take them from")
        names = [task.name for task in self.tasks] + [average.name for average in self.averages]
        if len(set(names)) < len(names):
            raise ValueError("a name of a task or an average is there twice")
        wrong = [f"protocol {task.protocol}" for task in self.tasks if task.protocol not in self.protocols]
        wrong += [f"task {task.after}" for task in self.tasks if task.after and task.after not in names]
        wrong += [f"task {item}" for average in self.averages for item in average.of if item not in names]
        wrong += [f"task {name}" for row in self.reported for name in row.values if name not in names]
        if wrong:
            raise ValueError(f"named but not there: {', '.join(dict.fromkeys(wrong))}")
        for what, parts in (
            ("comes after", {task.name: [task.after] if task.after else [] for task in self.tasks}),
            ("is a mean over", {average.name: list(average.of) for average in self.averages}),
        ):
            if (turning := _turning(parts)) is not None:
                raise ValueError(f"{turning} {what} itself, by way of others or not; expected an end")
        return self

    @model_validator(mode="after")
    def _numbers_fit(self) -> Self:
        if self.like is not None:
            return self
        sizes = {task.name: len(task.measures) for task in self.tasks}
        for row in self.reported:
            for name, numbers in row.values.items():
                given = len(numbers) if isinstance(numbers, tuple) else 1
                if given != sizes.get(name, 1):
                    raise ValueError(f"{row.model} has {given} numbers for {name}; expected {sizes.get(name, 1)}")
        return self

    @model_validator(mode="after")
    def _recipes_are_valid(self) -> Self:
        for task in () if self.like is not None else self.tasks:
            protocol = self.protocols[task.protocol]
            for keys in (protocol.choose, protocol.report) if protocol.choose or protocol.report else ({},):
                for variant in protocol.variants or ({},):
                    _check(task, merged(protocol.recipe, task.recipe, variant, keys))
            # Runs that choose may be of folds where those that are reported are not.
            reported = [merged(protocol.recipe, task.recipe, variant, protocol.report) for variant in protocol.variants]
            reported = reported or [merged(protocol.recipe, task.recipe)]
            if protocol.folds is None and any("folds" in recipe for recipe in reported):
                raise ValueError(
                    f"{task.name} is run in folds, and protocol {task.protocol} does not say what is taken over them; "
                    'expected folds = "mean" or "median" beside its recipe'
                )
        return self

    def task(self, name: str) -> TaskTable:
        """The task of a name that is known to be there."""
        return next(task for task in self.tasks if task.name == name)


def _turning(parts: Mapping[str, Collection[str]]) -> str | None:
    """The first name that leads back to itself by what it is made of, or None."""
    for name in parts:
        seen: set[str] = set()
        ahead = list(parts[name])
        while ahead:
            other = ahead.pop()
            if other == name:
                return name
            if other not in seen:
                seen.add(other)
                ahead += parts.get(other, ())
    return None


def apart(choosing: Collection[int], reported: Collection[int]) -> bool:
    """Whether no fold both chooses and is reported; that no folds are named means all of them, or a test split."""
    return bool(choosing) and bool(reported) and set(choosing).isdisjoint(reported)


def open_study(study: str | Path) -> StudyRecipe:
    """The study of a name or in a TOML file, with what it takes from another filled in."""
    return _opened((_path(study),))


def shipped() -> Iterator[StudyRecipe]:
    """Every study that comes with Lexome, in the order of their names."""
    for path in _shipped():
        yield open_study(path)


def _opened(files: tuple[Path, ...]) -> StudyRecipe:
    """The study in the last of some files, each of which is like the next."""
    read = load(files[-1], StudyRecipe)
    if read.like is None:
        return read
    return _filled(read, _opened((*files, alike(files, read.like))))


def _filled(study: StudyRecipe, source: StudyRecipe) -> StudyRecipe:
    """A study with the tasks, protocols and averages of the one that it is like."""
    wanted = set(study.only) or {task.name for task in source.tasks}
    unknown = wanted - {task.name for task in source.tasks}
    if unknown:
        raise UsageError(f"{study.name}: {source.name} has no task {sorted(unknown)[0]!r}; expected one of its own.")
    while steps := {task.after for task in source.tasks if task.name in wanted and task.after} - wanted:
        wanted |= steps
    tasks = (*(task for task in source.tasks if task.name in wanted), *study.tasks)
    keys = study.model_dump(exclude={"like", "only"}) | {
        "protocols": {**dict(source.protocols), **dict(study.protocols)},
        "tasks": tasks,
        "averages": (*(() if study.only else source.averages), *study.averages),
        "decisions": (*source.decisions, *study.decisions),
        "reference": study.reference or source.reference,
    }
    try:
        return StudyRecipe.model_validate(keys)
    except ValidationError as error:
        raise UsageError(f"{study.name}: {error.errors()[0]['msg']}. It is like {source.name}.") from None


def _path(study: str | Path) -> Path:
    if Path(study).suffix == ".toml":
        return Path(study)
    for path in _shipped():
        if path.stem == str(study):
            return path
    names = ", ".join(path.stem for path in _shipped())
    raise UsageError(f"there is no study {str(study)!r}; expected one of {names or 'none here'}, or a TOML file.")


def _shipped() -> list[Path]:
    folder = next((folder for folder in FOLDERS if folder.is_dir()), None)
    return sorted(folder.glob("*.toml")) if folder is not None else []


def _folds_of(keys: Mapping[str, Any]) -> set[int]:
    folds = keys.get("folds")
    return set(folds.get("use", ())) if isinstance(folds, Mapping) else set()


def _check(task: TaskTable, keys: Mapping[str, Any]) -> None:
    """Raise where keys are not those of a fine-tuning recipe."""
    own = [key for key in _OWN_KEYS if key in keys]
    if own:
        raise ValueError(f"{task.name}: {own[0]} is told on the command line; a study has no such key")
    needed = {"stage": "finetune", "start": "start", "out": "out", "data": {"sets": [task.set]}}
    try:
        FinetuneRecipe.model_validate(merged(needed, keys))
    except ValidationError as error:
        problem = error.errors()[0]
        raise ValueError(f"{task.name}: {'.'.join(map(str, problem['loc']))}: {problem['msg']}") from None
