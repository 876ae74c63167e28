"""What is learnt from: documents of sets and folders, their rows for one model, and what is odd about them."""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from lexome.corpus.dedup import words_of
from lexome.corpus.leakage import pubmed_id, sentences_of
from lexome.corpus.vocab.tokenizers import TOKENIZER_FILE, load_tokenizer, special_token_template
from lexome.datasets import DataSet, find, folder
from lexome.datasets.audit import count_contents, find_overlaps
from lexome.datasets.splits import assign_folds, split_off
from lexome.document import Document, Span
from lexome.errors import DataSetError, UsageError
from lexome.formats.jsonl import to_json
from lexome.formats.tally import Tally
from lexome.infer.tokenizer import SubwordTokenizer, open_tokenizer
from lexome.models.checkpoint import Checkpoint, encoder_of, load
from lexome.models.encoder import Encoder
from lexome.models.tokenizer_files import write_tokenizer
from lexome.recipe.finetune import NO_SPLIT, DataTable, FinetuneRecipe, Names
from lexome.tasks import task_of
from lexome.tasks.task import IGNORE_INDEX, Example, Frame, Task
from lexome.training.finetune.batching import asked_of
from lexome.training.finetune.grid import cells_of
from lexome.training.finetune.objective import text_rows


def put_tokenizer(start: Path, folder: Path) -> None:
    """Write a checkpoint's tokenizer into a folder, tokenizer.json included whatever its own form is."""
    found = load(start, kind="encoder")
    source = found.folder
    if found.tokenizer_files:
        source = folder / "given"
        source.mkdir(exist_ok=True)
        for name, content in found.tokenizer_files.items():
            (source / name).write_bytes(content)
    write_tokenizer(source, folder, max_tokens=found.config.max_tokens, vocab=found.config.vocab)


def frame_of(found: Checkpoint, tokenizer: Path, *, max_tokens: int | None) -> Frame:
    """How rows of this model are built; no row is longer than `max_tokens`, nor than the model takes."""
    limit = found.config.max_tokens
    if max_tokens is not None and max_tokens > limit:
        raise UsageError(f"data.max_tokens is {max_tokens}, but the model takes {limit} at most. Lower it.")
    loaded = load_tokenizer(tokenizer / TOKENIZER_FILE)
    before, between, after = special_token_template(loaded) or _stated(loaded, tokenizer)
    return Frame(before, between, after, max_tokens or limit, has_segments(found))


def has_segments(found: Checkpoint) -> bool:
    """Whether the model tells a second text from the first by segments."""
    encoder = encoder_of(found.model)
    if isinstance(encoder, Encoder):
        return encoder.config.segments > 1
    return (getattr(encoder.model.config, "type_vocab_size", None) or 0) > 1


def _stated(loaded: Any, tokenizer: Path) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """CLS and SEP as its companions name them."""
    path = tokenizer / "special_tokens_map.json"
    stated = json.loads(path.read_bytes()) if path.is_file() else {}
    ids = []
    for name in ("cls_token", "sep_token"):
        held = stated.get(name)
        text = held["content"] if isinstance(held, dict) else held
        number = loaded.token_to_id(text) if text else None
        ids.append(() if number is None else (number,))
    return ids[0], ids[1], ids[1]


BY_ID, BY_TEXT = "its PubMed id is held out", "a sentence of it is held out"


class HeldOut:
    """What is held out: PubMed ids, and the first and last run of words of each sentence that is long enough."""

    def __init__(self, run_words: int) -> None:
        self.run_words = run_words
        self.pmids: set[str] = set()
        self.ends: defaultdict[str, set[str]] = defaultdict(set)

    @classmethod
    def of(cls, names: Iterable[str], *, root: Path | None, run_words: int) -> Self:
        """The splits that are named as SET:SPLIT, of sets that Lexome knows."""
        held = cls(run_words)
        for name in names:
            source, _, split = name.partition(":")
            held.add(_split(find(source, data=root), split))
        return held

    def add(self, docs: Iterable[Document]) -> None:
        """Hold out documents. A sentence that two of them have is a phrase of the trade, and is not looked for.

        A text that is there again counts once. Sets of questions have a text again, in part, for each question about
        it; of these every sentence is looked for.
        """
        counts: Counter[tuple[str, str]] = Counter()
        seen: set[str] = set()
        for doc in docs:
            if (pmid := pubmed_id(doc)) is not None:
                self.pmids.add(pmid)
            if doc.text in seen:
                continue
            seen.add(doc.text)
            ends = {(runs[0], runs[-1]) for text in sentences_of(doc) if (runs := self._runs(text))}
            if doc.questions:
                self._hold(ends)
            counts.update(ends)
        self._hold(end for end, times in counts.items() if times == 1)

    def _hold(self, ends: Iterable[tuple[str, str]]) -> None:
        for first, last in ends:
            self.ends[first].add(last)

    def why(self, doc: Document) -> str | None:
        """Why a document must not be learnt from, or None."""
        if pubmed_id(doc) in self.pmids:
            return BY_ID
        runs = set(self._runs(doc.text))
        shared = (self.ends[run] for run in runs if run in self.ends)
        return None if all(runs.isdisjoint(lasts) for lasts in shared) else BY_TEXT

    def _runs(self, text: str) -> list[str]:
        """Each run of so many words; none where there are fewer."""
        words = words_of(text)
        return [" ".join(words[at : at + self.run_words]) for at in range(len(words) - self.run_words + 1)]


def _split(source: DataSet, name: str) -> list[Document]:
    """One split of a set, without reading the others where it has a file of its own."""
    if name in source.files and source.card.refine is None:
        return source.split(name)
    read = source.splits(partial=True)
    if name not in read:
        raise DataSetError(
            f"data.exclude names {source.name}:{name}, and {source.name} has {', '.join(read)} here. Name one of "
            "those, or get the set."
        )
    return read[name]


def label_counts(rows: Sequence[Example], task: Task) -> dict[str, int]:
    """How often each label is right, by name; empty for numbers and for spans."""
    targets = [row.targets for row in rows if row.targets is not None]
    if task.loss == "binary":
        yes = np.sum([target == 1 for target in targets], axis=0)
        return dict(zip(task.labels, map(int, yes), strict=True))
    if task.loss != "choice":
        return {}
    counts = [np.bincount(part, minlength=size) for part, size in zip(_by_group(rows, task), task.groups, strict=True)]
    return dict(zip(task.labels, map(int, np.concatenate(counts)), strict=True))


def label_bias(rows: Sequence[Example], task: Task) -> float | None:
    """The share of what is asked whose right label is not the usual one, as BioMegatron's table 8 has it.

    Of tokens, those in a mention; of sequences, those that are not of the largest class; of labels that are true or
    not, the true ones; of questions, the tokens inside their answers. None where there is no such thing.
    """
    if task.loss == "span":
        places = [row.targets for row in rows if row.targets is not None and row.targets[0] != IGNORE_INDEX]
        inside = sum(int(last - first + 1) for first, last in places if first > 0)
        return inside / max(1, sum(len(row.ids) for row in rows))
    if task.loss == "binary":
        asked = [row.targets[row.targets != IGNORE_INDEX] for row in rows if row.targets is not None]
        return float(np.concatenate(asked).mean())
    if task.loss != "choice":
        return None
    parts = [np.bincount(part) for part in _by_group(rows, task) if len(part)]
    total = sum(int(part.sum()) for part in parts)
    return 1 - sum(int(part.max()) for part in parts) / max(1, total)


def label_weights(rows: Sequence[Example], task: Task, *, power: float) -> tuple[float, ...]:
    """A weight for each label: the rarer, the larger. One that never occurs has 1, and one that is always true.

    Of one right label: in each group, the weights of all that is asked are 1 in the mean where the power is 1. Of
    labels that are true or not: how many times as often the label is not true.
    """
    counts = np.array(list(label_counts(rows, task).values()), dtype=np.float64)
    if task.loss == "binary":
        wrong = np.sum([row.targets == 0 for row in rows if row.targets is not None], axis=0)
        # A weight of 0 would leave a label that is always true unlearnt.
        return tuple(np.where((counts > 0) & (wrong > 0), wrong / np.maximum(counts, 1), 1.0) ** power)
    if task.loss != "choice":
        return ()
    weights = []
    for part in np.split(counts, np.cumsum(task.groups)[:-1]):
        usual = part.sum() / max(1, int((part > 0).sum()))
        weights += (np.where(part > 0, usual / np.maximum(part, 1), 1.0) ** power).tolist()
    return tuple(weights)


def repetitions(rows: Sequence[Example], task: Task, *, power: float) -> NDArray[np.float64]:
    """How often each row comes in an epoch: more often the rarer the rarest label in it, as far as `power` says."""
    if not power:
        return np.ones(len(rows))
    usual = [int(np.bincount(part).argmax()) if len(part) else 0 for part in _by_group(rows, task)]
    held = [_held(row, task, usual) for row in rows]
    counts = Counter(label for labels in held for label in labels)
    most = max(counts.values())
    return np.array([max(most / counts[label] for label in labels) ** power for labels in held])


def _by_group(rows: Sequence[Example], task: Task) -> list[NDArray[np.int64]]:
    """Of each group, the labels that are right wherever it is asked."""
    if task.loss != "choice":
        return []
    joined_NG = np.concatenate([np.atleast_2d(row.targets) for row in rows if row.targets is not None])
    return [part[part != IGNORE_INDEX] for part in joined_NG.T]


def _held(row: Example, task: Task, usual: Sequence[int]) -> set[object]:
    """The labels of a row that set it apart; of a token task not the usual one, which is in every row."""
    targets = np.asarray(row.targets)
    if task.loss == "span":
        return {bool(targets[0] > 0)}
    if task.loss == "value":
        return {None}
    if task.loss == "binary":
        return set(np.flatnonzero(targets == 1).tolist()) or {None}
    found: set[object] = set()
    for group, column in enumerate(np.atleast_2d(targets).T):
        own = set(np.unique(column).tolist()) - {IGNORE_INDEX}
        own -= {usual[group]} if task.head == "token" else set()
        found |= {(group, label) for label in own}
    return found or {None}


def sources_of(recipe: FinetuneRecipe) -> list[DataSet]:
    """The sets that the recipe names, or its folder."""
    if recipe.data.folder is not None:
        told = recipe.task.keys() & {"types", "labels"}
        # Types and labels that are not told are those of the training documents.
        return [folder(recipe.data.folder, task=recipe.task if told else str(recipe.task["kind"]))]
    if len(recipe.data.sets) > 1 and not recipe.task:
        raise UsageError(f"{len(recipe.data.sets)} sets without a [task] table; expected one that fits them all.")
    return [find(name, data=recipe.data.root) for name in recipe.data.sets]


def require_sources(named: Mapping[str, object], sources: Sequence[DataSet]) -> None:
    """UsageError where data.rename names a source that is not there."""
    known = [source.card.name for source in sources]
    for name in named:
        if name not in known:
            raise UsageError(f"data.rename names {name!r}; expected one of {', '.join(known)}.")


def require_types(named: Mapping[str, Mapping[str, Names]], task: Task) -> None:
    """UsageError where data.rename gives a name that the task does not ask a source for: such mentions would be lost.

    That is one which is none of its types, or none of those that [task.annotated] says of the source.
    """
    known = task.types or task.input_types
    if not known:
        return
    for source, types in named.items():
        asked = task.source_types(source)
        for type_, given in types.items():
            for name in (given,) if isinstance(given, str) else given:
                if name not in known:
                    raise UsageError(
                        f"data.rename calls {source}'s {type_} {name!r}; expected one of the types in [task]: "
                        f"{', '.join(known)}. Name one of those, or add it to them."
                    )
                if name not in asked:
                    raise UsageError(
                        f"data.rename calls {source}'s {type_} {name!r}; expected one of those in [task.annotated] for "
                        f"{source}: {', '.join(asked)}. Name one of those, or add it to them."
                    )


def folds_of(recipe: FinetuneRecipe, sources: Sequence[DataSet]) -> list[int | None]:
    """The folds to run, by number; None where there are none."""
    own = len(sources[0].folds)
    if recipe.folds is None:
        if own:
            raise UsageError(f"{sources[0].name} is cross-validated in {own} folds. Add a [folds] table.")
        return [None]
    if len(sources) > 1:
        raise UsageError(f"folds of {len(sources)} sets at once; expected one set.")
    if own and recipe.folds.count is not None:
        raise UsageError(
            f"folds.count is {recipe.folds.count}, and {sources[0].name} has {own} folds of its own; expected those. "
            "Leave folds.count out, and name some of them with folds.use."
        )
    count = recipe.folds.count or own
    if not count:
        raise UsageError(f"{sources[0].name} has no folds of its own. Say how many: folds.count.")
    wrong = [number for number in recipe.folds.use if number >= count]
    if wrong:
        raise UsageError(f"folds.use names fold {wrong[0]}; the last of {count} is {count - 1}.")
    return list(recipe.folds.use or range(count))


def renamed(read: dict[str, list[Document]], names: Mapping[str, Names], source: str) -> dict[str, list[Document]]:
    """The documents with some types of mentions under other names; UsageError where a type is not there at all."""
    there = {span.type for docs in read.values() for doc in docs for span in doc.spans}
    unknown = sorted(names.keys() - there)
    if unknown:
        raise UsageError(
            f"data.rename has the type {unknown[0]!r} of {source}, which has {', '.join(sorted(there)) or 'none'}. "
            "Name one of those."
        )
    if not names:
        return read
    return {name: [under(doc, names) for doc in docs] for name, docs in read.items()}


def under(doc: Document, names: Mapping[str, Names]) -> Document:
    """The document with types of mentions under other names; a mention of several types is there once for each."""
    return replace(doc, spans=tuple(other for span in doc.spans for other in _rename_types(span, names.get(span.type))))


def _rename_types(span: Span, names: Names | None) -> Iterator[Span]:
    """The mention under its names. Under the first it keeps its id, which relations go by."""
    if names is None:
        yield span
        return
    for number, name in enumerate([names] if isinstance(names, str) else names):
        yield replace(span, type=name, id=f"{span.id}.{name}" if number else span.id)


TRAIN, DEV, TEST = "train", "dev", "test"
Documents = list[tuple[str, Document]]
"""Documents, each with the name of its source."""


@dataclass(frozen=True)
class Split:
    """Documents, where each is from, and how the rows of one are made."""

    docs: list[Document]
    sources: list[str]
    encode: Callable[[str, Document], list[Example]]

    @cached_property
    def rows(self) -> list[list[Example]]:
        """The rows of each document, made when they are first asked for."""
        return [self.encode(source, doc) for source, doc in zip(self.sources, self.docs, strict=True)]

    @cached_property
    def flat(self) -> list[Example]:
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
    text: tuple[Example, ...] = ()

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
    tokens: SubwordTokenizer
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
        return cls(recipe, task, sources, tokenizer, open_tokenizer(tokenizer / "tokenizer.json"), frame)

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
        warnings = [*map(str, find_overlaps(docs)), *lone_answers(docs)]
        if self.task.loss == "binary" and "several" not in self.recipe.task:
            warnings += unlabelled(docs[TRAIN])
        where = "" if fold is None else f"fold {fold}: "
        said = tuple(where + warning for warning in warnings)
        return Parts(made[TRAIN], made.get(DEV), made.get(TEST), said, dict(self.task.notes), self._text)

    @cached_property
    def _text(self) -> tuple[Example, ...]:
        teacher = self.recipe.teacher
        if teacher is None or teacher.shards is None:
            return ()
        return text_rows(teacher.shards, self.tokenizer, self.task, max_tokens=self.frame.max_tokens)

    def _documents(self, fold: int | None) -> dict[str, Documents]:
        """The documents of train, dev and test, as far as the recipe wants them, from all sources."""
        given: dict[str, Documents] = {}
        for source in self.sources:
            tally = Tally()
            read = source.resolve_overlap(_splits(source, self.recipe, fold), self.recipe.data.overlap, tally)
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
        return HeldOut.of(data.exclude, root=data.root, run_words=data.exclude_ngram) if data.exclude else None

    def _some(self, docs: list[Document]) -> list[Document]:
        """As many as the recipe's limit allows, spread over all: files are often sorted by label."""
        limit = self.recipe.data.limit
        if limit is None or limit >= len(docs):
            return docs
        return [docs[number * len(docs) // limit] for number in range(limit)]

    def _split(self, given: Documents, *, known: bool) -> Split:
        encode = partial(self._asking if known else self._rows, known=known)
        return Split([doc for _, doc in given], [source for source, _ in given], encode)

    def _rows(self, source: str, doc: Document, *, known: bool) -> list[Example]:
        return self.task.for_source(source).encode(doc, self.tokens, self.frame, with_targets=known)

    def _asking(self, source: str, doc: Document, *, known: bool) -> list[Example]:
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
                "best cell of a grid goes by scores there. Set folds.dev_fraction."
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
        if DEV in read and not recipe.folds.dev_fraction:
            return {name: read[name] for name in (TRAIN, DEV, TEST)}
        rest, test = [*read[TRAIN], *read.get(DEV, ())], read[TEST]
    else:
        docs = [doc for name in recipe.data.train for doc in source.split(name)]
        numbers = assign_folds(docs, folds=recipe.folds.count, seed=recipe.folds.seed)
        rest = [doc for doc, number in zip(docs, numbers, strict=True) if number != fold]
        test = [doc for doc, number in zip(docs, numbers, strict=True) if number == fold]
    if not recipe.folds.dev_fraction:
        return {TRAIN: rest, TEST: test}
    rest, dev = split_off(rest, fraction=recipe.folds.dev_fraction, seed=recipe.folds.seed)
    return {TRAIN: rest, DEV: dev, TEST: test}


def _options(data: DataTable) -> dict[str, Any]:
    return {"partial": True, "dev_fraction": data.dev_fraction}


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
                'with data.dev_fraction, or go without: dev = "none".'
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
    counts = {name: count_contents(given) for name, given in docs.items()}
    said = []
    for name, count in counts.items():
        for what in ("mentions", "relations", "labels"):
            own, known = ([kind for kind in given if kind.startswith(f"{what} ")] for given in (count, counts[TRAIN]))
            if known and not own:
                said.append(f"{name} has no {what}, and train has {counts[TRAIN][what]:,}")
            elif what == "labels" and len(own) == 1 and len(known) > 1:
                said.append(f"every label of {name} is {own[0].removeprefix('labels ')!r}")
    return said
