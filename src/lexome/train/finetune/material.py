"""What is learnt from: documents of sets and folders, their rows for one model, and what is odd about them."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from lexome.document import Document
from lexome.errors import DataSetError, UsageError
from lexome.formats.records.jsonl import to_json
from lexome.formats.tally import Tally
from lexome.infer.tokens import Tokens, open_tokens
from lexome.models.checkpoint import load
from lexome.recipe.finetune import NO_SPLIT, DataTable, FinetuneRecipe
from lexome.tasks import task_of
from lexome.tasks.sets import DataSet
from lexome.tasks.sets.checks import counted, overlaps
from lexome.tasks.sets.drawing import fold_numbers, part_off
from lexome.tasks.task import Frame, Row, Task
from lexome.train.finetune.batches import asked_of
from lexome.train.finetune.frame import frame_of
from lexome.train.finetune.held import HeldOut
from lexome.train.finetune.labels import label_bias
from lexome.train.finetune.runs import cells_of
from lexome.train.finetune.sources import renamed, require_sources, require_types, sources_of
from lexome.train.finetune.teaching import text_rows

TRAIN, DEV, TEST = "train", "dev", "test"
Documents = list[tuple[str, Document]]
"""Documents, each with the name of its source."""


@dataclass(frozen=True)
class Split:
    """Documents, where each is from, and how the rows of one are made."""

    docs: list[Document]
    sources: list[str]
    encode: Callable[[str, Document], list[Row]]

    @cached_property
    def rows(self) -> list[list[Row]]:
        """The rows of each document, made when they are first asked for."""
        return [self.encode(source, doc) for source, doc in zip(self.sources, self.docs, strict=True)]

    @cached_property
    def flat(self) -> list[Row]:
        """All rows, one document after another."""
        return [row for rows in self.rows for row in rows]

    def sha256(self) -> str:
        """A hash of all that its documents say."""
        total = hashlib.sha256()
        for source, doc in zip(self.sources, self.docs, strict=True):
            total.update(source.encode() + b"\t" + to_json(doc) + b"\n")
        return total.hexdigest()


@dataclass(frozen=True)
class Parts:
    """What one run learns from, is chosen by and is scored on; and what should be known about it.

    `notes` counts what of the training and development documents could not be said to the model; `text` are rows that
    only a teacher tells something about.
    """

    train: Split
    dev: Split | None
    test: Split | None
    warnings: tuple[str, ...] = ()
    notes: dict[str, int] = field(default_factory=dict)
    text: tuple[Row, ...] = ()

    @cached_property
    def identity(self) -> str:
        """The hashes of all three."""
        return " ".join("-" if part is None else part.sha256() for part in (self.train, self.dev, self.test))


@dataclass
class Material:
    """A task, its sources and a model's tokens; documents become rows when a fold is asked for."""

    recipe: FinetuneRecipe
    task: Task
    sources: list[DataSet]
    tokenizer: Path
    tokens: Tokens
    frame: Frame
    _made: dict[int | None, Parts] = field(default_factory=dict)

    @classmethod
    def opened(cls, recipe: FinetuneRecipe, start: Path, tokenizer: Path) -> "Material":
        """The recipe's material for the model in a checkpoint, whose tokenizer has been put into a folder."""
        sources = sources_of(recipe)
        require_sources(recipe.data.rename, sources)
        settings = {**sources[0].settings, **recipe.task} if len(sources) == 1 else recipe.task
        task = task_of(settings)
        require_types(recipe.data.rename, task)
        found = load(start, kind="encoder")
        frame = frame_of(found, tokenizer, max_tokens=recipe.data.max_tokens)
        return cls(recipe, task, sources, tokenizer, open_tokens(tokenizer / "tokenizer.json"), frame)

    def parts(self, fold: int | None) -> Parts:
        """The rows of a run, made once and kept for other seeds."""
        if fold not in self._made:
            if len(self._made) > 1:
                # Folds share nothing, and runs go fold by fold.
                self._made.clear()
            self._made[fold] = self._parts(fold)
        return self._made[fold]

    def _parts(self, fold: int | None) -> Parts:
        self.task.notes.clear()
        made = {name: self._split(docs, known=name == TRAIN) for name, docs in self._documents(fold).items()}
        self._check({name: split for name, split in made.items() if name != TEST})
        docs = {name: split.docs for name, split in made.items()}
        warnings = [*map(str, overlaps(docs)), *lone_answers(docs)]
        if self.task.loss == "binary" and "several" not in self.recipe.task:
            warnings += unlabelled(docs[TRAIN])
        where = "" if fold is None else f"fold {fold}: "
        said = tuple(where + warning for warning in warnings)
        return Parts(made[TRAIN], made.get(DEV), made.get(TEST), said, dict(self.task.notes), self._text)

    @cached_property
    def _text(self) -> tuple[Row, ...]:
        teacher = self.recipe.teacher
        if teacher is None or teacher.shards is None:
            return ()
        return text_rows(teacher.shards, self.tokenizer, self.task, max_tokens=self.frame.max_tokens)

    def _documents(self, fold: int | None) -> dict[str, Documents]:
        """The documents of train, dev and test, as far as the recipe wants them, from all sources."""
        given: dict[str, Documents] = {}
        for source in self.sources:
            tally = Tally()
            read = source.apart(_splits(source, self.recipe, fold), self.recipe.data.overlap, tally)
            read = renamed(read, self.recipe.data.rename.get(source.card.name, {}), source.card.name)
            self.task.notes.update(tally.notes)
            for name, docs in read.items():
                fit = self._learnable(source.card.name, docs) if name == TRAIN else docs
                given.setdefault(name, []).extend((source.card.name, doc) for doc in self._some(fit))
        return given

    def _learnable(self, source: str, docs: list[Document]) -> list[Document]:
        """The documents that are not held out; the others are counted."""
        if self._held is None:
            return docs
        kept = []
        for doc in docs:
            why = self._held.why(doc)
            if why is None:
                kept.append(doc)
            else:
                self.task.notes[f"document of {source} left out of training: {why}"] += 1
        return kept

    @cached_property
    def _held(self) -> HeldOut | None:
        data = self.recipe.data
        return HeldOut.of(data.exclude, root=data.root, run_words=data.exclude_words) if data.exclude else None

    def _some(self, docs: list[Document]) -> list[Document]:
        """As many as the recipe's limit allows, spread over all: files are often sorted by label."""
        limit = self.recipe.data.limit
        if limit is None or limit >= len(docs):
            return docs
        return [docs[number * len(docs) // limit] for number in range(limit)]

    def _split(self, given: Documents, *, known: bool) -> Split:
        encode = partial(self._asking if known else self._rows, known=known)
        return Split([doc for _, doc in given], [source for source, _ in given], encode)

    def _rows(self, source: str, doc: Document, *, known: bool) -> list[Row]:
        return self.task.of_source(source).rows(doc, self.tokens, self.frame, known=known)

    def _asking(self, source: str, doc: Document, *, known: bool) -> list[Row]:
        """The rows of a document to learn from, without those that ask nothing."""
        made = self._rows(source, doc, known=known)
        asking = [row for row in made if asked_of(row)]
        if len(asking) < len(made):
            self.task.notes["row that asks nothing, left out of training"] += len(made) - len(asking)
        return asking

    def _check(self, made: dict[str, Split]) -> None:
        """UsageError where a split is empty or missing, a row too long, or nothing is asked in training."""
        if not made[TRAIN].flat:
            raise UsageError(
                f"no training document says anything about {', '.join(self.task.labels[:6])}; expected some that do. "
                "Compare the labels in [task] with those in the documents."
            )
        for name, split in made.items():
            if not split.flat:
                raise UsageError(f"the split {name} has nothing to judge by; expected documents that the task fits.")
            long = [len(row.ids) for row in split.flat if len(row.ids) > self.frame.max_tokens]
            if long:
                raise UsageError(
                    f"{len(long):,} rows of {name} have up to {max(long):,} tokens; expected {self.frame.max_tokens:,} "
                    "at most. Raise data.max_tokens."
                )
        if DEV not in made and self._chooses():
            raise UsageError(
                f"{self.sources[0].name} has no dev split in its folds, and evaluation.patience, grid.seeds or the "
                "best cell of a grid goes by scores there. Draw one: folds.dev."
            )
        if label_bias(made[TRAIN].flat, self.task) == 0:
            raise UsageError(
                f"all answers in train are alike, so there is nothing to learn; expected several of "
                f"{', '.join(self.task.labels[:6])}. Compare the types or labels in [task] with those in the documents."
            )

    def _chooses(self) -> bool:
        """Whether something is chosen by scores on dev."""
        recipe = self.recipe
        best = recipe.score_test == "best" and len(cells_of(recipe.grid)) > 1
        return recipe.evaluation.patience is not None or recipe.grid.seeds == "first" or best


def _splits(source: DataSet, recipe: FinetuneRecipe, fold: int | None) -> dict[str, list[Document]]:
    """One source's documents for train, dev and test. A fold's own dev is taken where the recipe asks for no other."""
    if fold is None:
        return _named(source, source.splits(**_options(recipe.data)), recipe)
    assert recipe.folds is not None
    if recipe.folds.count is None:
        read = source.folds[fold].splits(**_options(recipe.data))
        if DEV in read and not recipe.folds.dev:
            return {name: read[name] for name in (TRAIN, DEV, TEST)}
        rest, test = [*read[TRAIN], *read.get(DEV, ())], read[TEST]
    else:
        docs = [doc for name in recipe.data.train for doc in source.split(name)]
        numbers = fold_numbers(docs, folds=recipe.folds.count, seed=recipe.folds.seed)
        rest = [doc for doc, number in zip(docs, numbers, strict=True) if number != fold]
        test = [doc for doc, number in zip(docs, numbers, strict=True) if number == fold]
    if not recipe.folds.dev:
        return {TRAIN: rest, TEST: test}
    rest, dev = part_off(rest, share=recipe.folds.dev, seed=recipe.folds.seed)
    return {TRAIN: rest, DEV: dev, TEST: test}


def _options(data: DataTable) -> dict[str, Any]:
    return {"partial": True, "dev_share": data.dev_share}


def _named(source: DataSet, read: dict[str, list[Document]], recipe: FinetuneRecipe) -> dict[str, list[Document]]:
    """The splits under the names that the recipe gives them; those of train together."""
    data = recipe.data
    wanted: dict[str, tuple[str, ...]] = {TRAIN: data.train}
    wanted |= {} if data.dev == NO_SPLIT else {DEV: (data.dev,)}
    # What is learnt from and never scored is no test split, from which documents would have to be kept apart.
    scored = recipe.score_test != "never" or (data.test in read and data.test not in (data.dev, *data.train))
    wanted |= {TEST: (data.test,)} if scored else {}
    for name in (name for names in wanted.values() for name in names):
        if name not in read:
            raise DataSetError(
                f"{source.name} has no split {name!r} here; it has {', '.join(read)}. Say others in [data], draw one "
                'with data.dev_share, or go without: dev = "none".'
            )
    return {name: [doc for part in names for doc in read[part]] for name, names in wanted.items()}


def unlabelled(docs: list[Document]) -> list[str]:
    """What to say where labels are learnt as true or not only because some documents have none: they may be lost."""
    counts = [len(doc.labels) for doc in docs]
    if max(counts, default=0) > 1 or 0 not in counts:
        return []
    return [
        f"{counts.count(0):,} documents of train have no label and none has several, so each label is learnt as true "
        "or not; where a label is lacking, mend that and set several = false in [task]"
    ]


def lone_answers(docs: dict[str, list[Document]]) -> list[str]:
    """What to say about splits that lack what is learnt, or where all answers are one: scores there mean nothing."""
    counts = {name: counted(given) for name, given in docs.items()}
    said = []
    for name, count in counts.items():
        for what in ("mentions", "relations", "labels"):
            own, known = ([kind for kind in given if kind.startswith(f"{what} ")] for given in (count, counts[TRAIN]))
            if known and not own:
                said.append(f"{name} has no {what}, and train has {counts[TRAIN][what]:,}")
            elif what == "labels" and len(own) == 1 and len(known) > 1:
                said.append(f"every label of {name} is {own[0].removeprefix('labels ')!r}")
    return said
