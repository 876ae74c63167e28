"""Training data: documents of datasets and folders, their examples for one model, and warnings about them."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from lexome.corpus.dedup import pubmed_id, sentences_of, words_of
from lexome.corpus.sentences import with_sentences
from lexome.corpus.shards import open_shards
from lexome.corpus.vocab.tokenizers import TOKENIZER_FILE, load_tokenizer, special_token_template, tokenizer_sha256
from lexome.datasets import DataSet, find, folder
from lexome.datasets.audit import count_contents, find_overlaps, warn_degenerate_splits
from lexome.datasets.dataset import assign_folds, split_off
from lexome.document import Document, Span
from lexome.errors import DataSetError, UsageError, did_you_mean
from lexome.files import read_json
from lexome.formats import read
from lexome.formats.jsonl import to_json
from lexome.formats.tally import Tally
from lexome.infer.tokenizer import SubwordTokenizer, open_tokenizer
from lexome.models.checkpoint import Checkpoint, encoder_of
from lexome.models.encoder import Encoder
from lexome.models.hf_folder import write_tokenizer
from lexome.recipe.finetune import NO_SPLIT, Names
from lexome.tasks import task_of
from lexome.tasks.document_relation import LABEL
from lexome.tasks.task import IGNORE_INDEX, Example, Frame, Task
from lexome.training.finetune.task_model import label_count
from lexome.training.sampling import Specials, Text


def export_tokenizer(checkpoint: Checkpoint, folder: Path) -> None:
    """Write a checkpoint's tokenizer into a folder, tokenizer.json included whatever its own format is."""
    source = checkpoint.folder
    if checkpoint.tokenizer_files:
        source = folder / "original"
        source.mkdir(exist_ok=True)
        for name, content in checkpoint.tokenizer_files.items():
            (source / name).write_bytes(content)
    write_tokenizer(source, folder, max_tokens=checkpoint.config.max_tokens, vocab=checkpoint.config.vocab)


def frame_of(checkpoint: Checkpoint, tokenizer: Path, *, max_tokens: int | None) -> Frame:
    """How sequences of this model are framed; none is longer than `max_tokens`, nor than the model takes."""
    limit = checkpoint.config.max_tokens
    if max_tokens is not None and max_tokens > limit:
        message = f"data.max_tokens is {max_tokens}, but the model takes {limit} at most. Lower it."
        raise UsageError(message, code="too-long", value=max_tokens)
    loaded = load_tokenizer(tokenizer / TOKENIZER_FILE)
    before, between, after = special_token_template(loaded) or _declared_tokens(loaded, tokenizer)
    return Frame(before, between, after, max_tokens or limit, has_segments(checkpoint))


def has_segments(checkpoint: Checkpoint) -> bool:
    """Whether the model distinguishes a second text from the first by segments."""
    encoder = encoder_of(checkpoint.model)
    if isinstance(encoder, Encoder):
        return encoder.config.segments > 1
    return (getattr(encoder.model.config, "type_vocab_size", None) or 0) > 1


def _declared_tokens(loaded: Any, tokenizer: Path) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """CLS and SEP as special_tokens_map.json names them."""
    path = tokenizer / "special_tokens_map.json"
    declared = read_json(path) if path.is_file() else {}
    ids = []
    for name in ("cls_token", "sep_token"):
        token = declared.get(name)
        text = token["content"] if isinstance(token, dict) else token
        token_id = loaded.token_to_id(text) if text else None
        ids.append(() if token_id is None else (token_id,))
    return ids[0], ids[1], ids[1]


# Held-out documents

BY_ID, BY_TEXT = "its PubMed id is held out", "a sentence of it is held out"


class HeldOut:
    """Documents that must not be trained on: their PubMed ids, and the first and last n-gram of each sentence."""

    def __init__(self, ngram_words: int) -> None:
        self.ngram_words = ngram_words
        self.pmids: set[str] = set()
        self.ends: defaultdict[str, set[str]] = defaultdict(set)

    @classmethod
    def of(cls, names: Iterable[str], *, root: Path | None, ngram_words: int) -> Self:
        """The splits that are named as SET:SPLIT, of datasets that Lexome knows."""
        held_out = cls(ngram_words)
        for name in names:
            source, _, split = name.partition(":")
            held_out.add(_split(find(source, data=root), split))
        return held_out

    def add(self, docs: Iterable[Document]) -> None:
        """Hold out documents. A sentence that occurs in two of them is a stock phrase and does not count.

        A repeated text counts once. Question datasets repeat parts of a text for each question about it, so all
        sentences of documents with questions count.
        """
        counts: Counter[tuple[str, str]] = Counter()
        seen: set[str] = set()
        for doc in docs:
            if (pmid := pubmed_id(doc)) is not None:
                self.pmids.add(pmid)
            if doc.text in seen:
                continue
            seen.add(doc.text)
            ends = {(ngrams[0], ngrams[-1]) for text in sentences_of(doc) if (ngrams := self._ngrams(text))}
            if doc.questions:
                self._add_ends(ends)
            counts.update(ends)
        self._add_ends(end for end, times in counts.items() if times == 1)

    def _add_ends(self, ends: Iterable[tuple[str, str]]) -> None:
        for first, last in ends:
            self.ends[first].add(last)

    def reason(self, doc: Document) -> str | None:
        """Why a document must not be trained on, or None."""
        if pubmed_id(doc) in self.pmids:
            return BY_ID
        ngrams = set(self._ngrams(doc.text))
        candidates = (self.ends[ngram] for ngram in ngrams if ngram in self.ends)
        return None if all(ngrams.isdisjoint(lasts) for lasts in candidates) else BY_TEXT

    def _ngrams(self, text: str) -> list[str]:
        """Each n-gram of words; none where there are fewer words."""
        words = words_of(text)
        size = self.ngram_words
        return [" ".join(words[at : at + size]) for at in range(len(words) - size + 1)]


def _split(source: DataSet, name: str) -> list[Document]:
    """One split of a dataset, without reading the others where it has a file of its own."""
    if name in source.files and source.card.refine is None:
        return source.split(name)
    splits = source.splits(partial=True)
    if name not in splits:
        raise DataSetError(
            f"data.exclude names {source.name}:{name}, and {source.name} has {', '.join(splits)} here. Name one of "
            "those, or get the dataset.",
            code="missing-split",
            value=name,
        )
    return splits[name]


# Statistics of labels


def label_counts(examples: Sequence[Example], task: Task) -> dict[str, int]:
    """How often each label is the target, by name; empty for numbers and for spans."""
    targets = [example.targets for example in examples if example.targets is not None]
    if task.loss == "binary":
        positive = np.sum([target == 1 for target in targets], axis=0)
        return dict(zip(task.labels, map(int, positive), strict=True))
    if task.loss != "choice":
        return {}
    parts = zip(_targets_by_group(examples, task), task.groups, strict=True)
    counts = [np.bincount(part, minlength=size) for part, size in parts]
    return dict(zip(task.labels, map(int, np.concatenate(counts)), strict=True))


def label_bias(examples: Sequence[Example], task: Task) -> float | None:
    """The fraction of targets that are not the majority label, as in BioMegatron's table 8; None for other losses.

    For token labels this is the fraction of tokens in mentions, for classes that of sequences outside the largest
    class, for labels that are true or false that of true ones, and for questions that of tokens inside answers.
    """
    if task.loss == "span":
        spans = [example.targets for example in examples if example.targets is not None]
        inside = sum(int(last - first + 1) for first, last in spans if first != IGNORE_INDEX and first > 0)
        return inside / max(1, sum(len(example.ids) for example in examples))
    if task.loss == "binary":
        targets = [example.targets for example in examples if example.targets is not None]
        return float(np.concatenate([target[target != IGNORE_INDEX] for target in targets]).mean())
    if task.loss != "choice":
        return None
    parts = [np.bincount(part) for part in _targets_by_group(examples, task) if len(part)]
    total = sum(int(part.sum()) for part in parts)
    return 1 - sum(int(part.max()) for part in parts) / max(1, total)


def label_weights(examples: Sequence[Example], task: Task, *, power: float) -> tuple[float, ...]:
    """A weight for each label, larger for rarer labels; labels that never or always occur have the weight 1.

    With one label per group and a power of 1, the mean weight over all targets of a group is 1. For labels that are
    true or false it is the ratio of false to true targets.
    """
    counts = np.array(list(label_counts(examples, task).values()), dtype=np.float64)
    if task.loss == "binary":
        negative = np.sum([example.targets == 0 for example in examples if example.targets is not None], axis=0)
        # A weight of 0 would leave a label that is always true untrained.
        known = (counts > 0) & (negative > 0)
        return tuple(np.where(known, negative / np.maximum(counts, 1), 1.0) ** power)
    if task.loss != "choice":
        return ()
    weights = []
    for part in np.split(counts, np.cumsum(task.groups)[:-1]):
        mean = part.sum() / max(1, int((part > 0).sum()))
        weights += (np.where(part > 0, mean / np.maximum(part, 1), 1.0) ** power).tolist()
    return tuple(weights)


def oversampling(examples: Sequence[Example], task: Task, *, power: float) -> NDArray[np.float64]:
    """How often each example occurs in an epoch: more often for rarer labels, to the given power."""
    if not power:
        return np.ones(len(examples))
    majority = [int(np.bincount(part).argmax()) if len(part) else 0 for part in _targets_by_group(examples, task)]
    labels_of = [_distinctive_labels(example, task, majority) for example in examples]
    counts = Counter(label for labels in labels_of for label in labels)
    most = max(counts.values())
    return np.array([max(most / counts[label] for label in labels) ** power for labels in labels_of])


def _targets_by_group(examples: Sequence[Example], task: Task) -> list[NDArray[np.int64]]:
    """The targets of each group, without those to ignore."""
    if task.loss != "choice":
        return []
    targets_NG = np.concatenate([np.atleast_2d(example.targets) for example in examples if example.targets is not None])
    return [part[part != IGNORE_INDEX] for part in targets_NG.T]


def _distinctive_labels(example: Example, task: Task, majority: Sequence[int]) -> set[object]:
    """The labels of an example; for token tasks without the majority label, which is in every example."""
    targets = np.asarray(example.targets)
    if task.loss == "span":
        return {bool(targets[0] > 0)}
    if task.loss == "value":
        return {None}
    if task.loss == "pairs":
        return set(np.unique(targets[:, LABEL]).tolist()) - {0, IGNORE_INDEX} or {None}
    if task.loss == "binary":
        return set(np.flatnonzero(targets == 1).tolist()) or {None}
    labels: set[object] = set()
    for group, column in enumerate(np.atleast_2d(targets).T):
        present = set(np.unique(column).tolist()) - {IGNORE_INDEX}
        present -= {majority[group]} if task.head == "token" else set()
        labels |= {(group, label) for label in present}
    return labels or {None}


# Documents


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSettings:
    """Where training data is and which parts of it are used: the keys of a recipe's [data] table."""

    sets: tuple[str, ...] = ()
    root: Path | None = None
    folder: Path | None = None
    train: tuple[str, ...] = ("train",)
    dev: str = "dev"
    test: str = "test"
    max_tokens: int | None = None
    dev_fraction: float | None = None
    limit: int | None = None
    overlap: Literal["keep", "drop", "error"] = "keep"
    rename: Mapping[str, Mapping[str, Names]] = field(default_factory=dict)
    exclude: tuple[str, ...] = ()
    exclude_ngram: int = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldSettings:
    """Cross-validation: the keys of a recipe's [folds] table."""

    count: int | None = None
    use: tuple[int, ...] = ()
    seed: int = 0
    dev_fraction: float = 0.0


def open_sources(data: DataSettings, task: Mapping[str, Any]) -> list[DataSet]:
    """The datasets that the settings name, or their folder."""
    if data.folder is not None:
        # Types and labels that are not given are those of the training documents.
        explicit = task.keys() & {"types", "labels"}
        return [folder(data.folder, task=task if explicit else str(task["kind"]))]
    if len(data.sets) > 1 and not task:
        message = f"{len(data.sets)} datasets without a [task] table; expected one that fits them all."
        raise UsageError(message, code="missing-task", value=data.sets)
    return [find(name, data=data.root) for name in data.sets]


def require_sources(renames: Mapping[str, object], sources: Sequence[DataSet]) -> None:
    """UsageError where data.rename names an unknown source."""
    known = [source.card.name for source in sources]
    for name in renames:
        if name not in known:
            message = f"data.rename names {name!r}; expected one of {', '.join(known)}."
            raise UsageError(message, code="unknown-source", value=name)


def require_types(renames: Mapping[str, Mapping[str, Names]], task: Task) -> None:
    """UsageError where data.rename gives a mention type that is not trained for a source: its mentions would be lost.

    A type is trained for a source if it is in the task and, where the source has types in [task.annotated], in those.
    """
    known = task.types or task.input_types
    if not known:
        return
    for source, types in renames.items():
        annotated = task.source_types(source)
        for type_, names in types.items():
            for name in (names,) if isinstance(names, str) else names:
                if name in known and name in annotated:
                    continue
                table = f"[task.annotated] for {source}" if name in known else "[task]"
                expected = annotated if name in known else known
                raise UsageError(
                    f"data.rename calls {source}'s {type_} {name!r}; expected one of the types in {table}: "
                    f"{', '.join(expected)}. Name one of those, or add it to them.",
                    code="unknown-type",
                    value=name,
                )


# Keys of a [task] table that name mention types.
TYPE_KEYS = frozenset(("types", "pairs", "schemas"))


def require_known_types(types: Sequence[str], counts: Mapping[str, int]) -> None:
    """UsageError where no document has a mention of one of these types, usually because it is misspelled."""
    for type_ in types:
        if type_ in counts:
            continue
        known = ", ".join(f"{name} ({count:,})" for name, count in sorted(counts.items())) or "no mentions"
        remedy = did_you_mean(type_, counts) or " Leave it out, or rename types with data.rename."
        message = f"[task] names the type {type_!r}, which no document has; they have {known}.{remedy}"
        raise UsageError(message, code="unknown-type", value=type_)


def select_folds(folds: FoldSettings | None, sources: Sequence[DataSet]) -> list[int | None]:
    """The folds to run, by number; [None] without cross-validation."""
    source = sources[0]
    own = len(source.folds)
    if folds is None:
        if own:
            message = f"{source.name} is cross-validated in {own} folds. Add a [folds] table."
            raise UsageError(message, code="missing-folds", value=source.name)
        return [None]
    if len(sources) > 1:
        message = f"folds of {len(sources)} datasets at once; expected one dataset."
        raise UsageError(message, code="too-many-datasets", value=len(sources))
    if own and folds.count is not None:
        raise UsageError(
            f"folds.count is {folds.count}, but {source.name} has {own} folds of its own. Remove folds.count, and "
            "select some of them with folds.use.",
            code="own-folds",
            value=folds.count,
        )
    count = folds.count or own
    if not count:
        message = f"{source.name} has no folds of its own. Set folds.count."
        raise UsageError(message, code="missing-folds", value=source.name)
    if wrong := [number for number in folds.use if number >= count]:
        message = f"folds.use names fold {wrong[0]}; the last of {count} is {count - 1}."
        raise UsageError(message, code="unknown-fold", value=wrong[0])
    return list(folds.use or range(count))


def rename_splits(
    splits: dict[str, list[Document]], names: Mapping[str, Names], source: str
) -> dict[str, list[Document]]:
    """The documents with some mention types renamed; UsageError where a type does not occur at all."""
    if not names:
        return splits
    present = {span.type for docs in splits.values() for doc in docs for span in doc.spans}
    if unknown := sorted(names.keys() - present):
        raise UsageError(
            f"data.rename has the type {unknown[0]!r} of {source}, which has {', '.join(sorted(present)) or 'none'}. "
            "Name one of those.",
            code="unknown-type",
            value=unknown[0],
        )
    return {name: [rename_types(doc, names) for doc in docs] for name, docs in splits.items()}


def rename_types(doc: Document, names: Mapping[str, Names]) -> Document:
    """The document with mention types renamed; a mention with several new types is repeated for each."""
    spans: list[Span] = []
    for span in doc.spans:
        new = names.get(span.type, span.type)
        for number, name in enumerate([new] if isinstance(new, str) else new):
            # Under the first name it keeps its id, which relations refer to.
            spans.append(replace(span, type=name, id=f"{span.id}.{name}" if number else span.id))
    return replace(doc, spans=tuple(spans))


# Examples

TRAIN, DEV, TEST = "train", "dev", "test"
Documents = list[tuple[str, Document]]
"""Documents, each with the name of its source."""


@dataclass(frozen=True)
class Split:
    """Documents, their sources, and the function that encodes a document as examples."""

    docs: list[Document]
    sources: list[str]
    encode: Callable[[str, Document], list[Example]]

    @cached_property
    def encoded(self) -> list[list[Example]]:
        """The examples of each document, encoded on first use."""
        return [self.encode(source, doc) for source, doc in zip(self.sources, self.docs, strict=True)]

    @cached_property
    def examples(self) -> list[Example]:
        """All examples, one document after another."""
        return [example for examples in self.encoded for example in examples]

    def sha256(self) -> str:
        """A hash of the content of its documents."""
        total = hashlib.sha256()
        for source, doc in zip(self.sources, self.docs, strict=True):
            total.update(source.encode() + b"\t" + to_json(doc) + b"\n")
        return total.hexdigest()


@dataclass(frozen=True)
class Splits:
    """The splits of one run, and warnings about them.

    `notes` counts what was changed or dropped when documents were read, and annotations of train and dev that could not
    be encoded; `unlabeled` are examples that only teachers label.
    """

    train: Split
    dev: Split | None
    test: Split | None
    warnings: tuple[str, ...] = ()
    notes: dict[str, int] = field(default_factory=dict)
    unlabeled: tuple[Example, ...] = ()

    @cached_property
    def identity(self) -> str:
        """The hashes of all three."""
        return " ".join("-" if part is None else part.sha256() for part in (self.train, self.dev, self.test))


@dataclass
class TaskData:
    """A task, its sources and a model's tokenizer; documents become examples when a fold is needed.

    selecting  whether something is selected by scores on dev
    scored     whether test is scored
    unlabeled  token shards of text that only teachers label
    explicit_types  mention types that the recipe names and only the documents can teach; they must have them
    """

    task: Task
    sources: list[DataSet]
    tokenizer: Path
    tokens: SubwordTokenizer
    frame: Frame
    data: DataSettings
    folds: FoldSettings | None = None
    selecting: bool = False
    scored: bool = False
    unlabeled: Path | None = None
    explicit_several: bool = False
    explicit_types: tuple[str, ...] = ()
    _splits: dict[int | None, Splits] = field(default_factory=dict)

    @classmethod
    def open(
        cls,
        checkpoint: Checkpoint,
        tokenizer: Path,
        data: DataSettings,
        task_settings: Mapping[str, Any],
        *,
        folds: FoldSettings | None = None,
        selecting: bool = False,
        scored: bool = False,
        unlabeled: Path | None = None,
    ) -> "TaskData":
        """The data for the model of a checkpoint, whose tokenizer has been exported into a folder."""
        sources = open_sources(data, task_settings)
        require_sources(data.rename, sources)
        task = task_of({**sources[0].settings, **task_settings} if len(sources) == 1 else task_settings)
        require_types(data.rename, task)
        frame = frame_of(checkpoint, tokenizer, max_tokens=data.max_tokens)
        return cls(
            task,
            sources,
            tokenizer,
            open_tokenizer(tokenizer / TOKENIZER_FILE),
            frame,
            data,
            folds,
            selecting=selecting,
            scored=scored,
            unlabeled=unlabeled,
            explicit_several="several" in task_settings,
            explicit_types=(task.types or task.input_types) if task_settings.keys() & TYPE_KEYS else (),
        )

    def splits(self, fold: int | None) -> Splits:
        """The splits of a run, encoded once and kept for other seeds."""
        if fold not in self._splits:
            if len(self._splits) > 1:
                # Folds share nothing, and runs go fold by fold.
                self._splits.clear()
            self._splits[fold] = self._encode(fold)
        return self._splits[fold]

    def _encode(self, fold: int | None) -> Splits:
        self.task.notes.clear()
        splits = {name: self._split(docs, labeled=name == TRAIN) for name, docs in self._documents(fold).items()}
        self._check({name: split for name, split in splits.items() if name != TEST})
        docs = {name: split.docs for name, split in splits.items()}
        contents = {name: count_contents(split) for name, split in docs.items()}
        warnings = [*map(str, find_overlaps(docs)), *warn_degenerate_splits(contents)]
        if self.task.loss == "binary" and not self.explicit_several:
            warnings += warn_unlabeled(docs[TRAIN])
        where = "" if fold is None else f"fold {fold}: "
        return Splits(
            splits[TRAIN],
            splits.get(DEV),
            splits.get(TEST),
            tuple(where + warning for warning in warnings),
            dict(self.task.notes),
            self._unlabeled_examples,
        )

    @cached_property
    def _unlabeled_examples(self) -> tuple[Example, ...]:
        if self.unlabeled is None:
            return ()
        return unlabeled_examples(self.unlabeled, self.tokenizer, self.task, max_tokens=self.frame.max_tokens)

    def _documents(self, fold: int | None) -> dict[str, Documents]:
        """The documents of train, dev and test, as far as the recipe needs them, from all sources."""
        documents: dict[str, Documents] = {}
        types: Counter[str] = Counter()
        for source in self.sources:
            tally = Tally()
            name = source.card.name
            splits = source.resolve_overlap(self._source_splits(source, fold, tally), self.data.overlap, tally)
            splits = rename_splits(splits, self.data.rename.get(name, {}), name)
            self.task.notes.update(tally.notes)
            types.update(span.type for docs in splits.values() for doc in docs for span in doc.spans)
            for split, docs in splits.items():
                docs = list(map(with_sentences, docs)) if self.task.needs_sentences else docs
                kept = self._without_held_out(name, docs) if split == TRAIN else docs
                documents.setdefault(split, []).extend((name, doc) for doc in self._limit(kept))
        require_known_types(self.explicit_types, types)
        return documents

    def _source_splits(self, source: DataSet, fold: int | None, tally: Tally) -> dict[str, list[Document]]:
        """One source's documents for train, dev and test. A fold's own dev is used where the recipe has no other."""
        options: dict[str, Any] = {"partial": True, "dev_fraction": self.data.dev_fraction, "tally": tally}
        if fold is None:
            return self._named_splits(source, source.splits(**options))
        folds = self.folds
        assert folds is not None
        if folds.count is None:
            splits = source.folds[fold].splits(**options)
            if DEV in splits and not folds.dev_fraction:
                return {name: splits[name] for name in (TRAIN, DEV, TEST)}
            rest, test = [*splits[TRAIN], *splits.get(DEV, ())], splits[TEST]
        else:
            docs = [doc for name in self.data.train for doc in source.split(name, tally=tally)]
            numbers = assign_folds(docs, folds=folds.count, seed=folds.seed)
            rest = [doc for doc, number in zip(docs, numbers, strict=True) if number != fold]
            test = [doc for doc, number in zip(docs, numbers, strict=True) if number == fold]
        if not folds.dev_fraction:
            return {TRAIN: rest, TEST: test}
        rest, dev = split_off(rest, fraction=folds.dev_fraction, seed=folds.seed)
        return {TRAIN: rest, DEV: dev, TEST: test}

    def _named_splits(self, source: DataSet, splits: dict[str, list[Document]]) -> dict[str, list[Document]]:
        """The splits under the names that the recipe gives them; those of train together."""
        data = self.data
        needed: dict[str, tuple[str, ...]] = {TRAIN: data.train}
        needed |= {} if data.dev == NO_SPLIT else {DEV: (data.dev,)}
        # A split that is trained on and never scored is no test split, whose documents training would have to avoid.
        if self.scored or (data.test in splits and data.test not in (data.dev, *data.train)):
            needed[TEST] = (data.test,)
        for name in (name for names in needed.values() for name in names):
            if name not in splits and needed.get(TEST) == (name,):
                raise DataSetError(
                    f"{source.name} has no split {name!r} here, which score_test scores; it has {', '.join(splits)}. "
                    'Add that file, name another split with data.test, or set score_test = "never".',
                    code="missing-split",
                    value=name,
                )
            if name not in splits:
                raise DataSetError(
                    f"{source.name} has no split {name!r} here; it has {', '.join(splits)}. Name others in [data], "
                    'split one off with data.dev_fraction, or go without: dev = "none".',
                    code="missing-split",
                    value=name,
                )
        return {name: [doc for part in names for doc in splits[part]] for name, names in needed.items()}

    def _without_held_out(self, source: str, docs: list[Document]) -> list[Document]:
        """The documents that are not held out; the others are counted."""
        if self._held_out is None:
            return docs
        kept = []
        for doc in docs:
            reason = self._held_out.reason(doc)
            if reason is None:
                kept.append(doc)
            else:
                self.task.notes[f"document of {source} left out of training: {reason}"] += 1
        return kept

    @cached_property
    def _held_out(self) -> HeldOut | None:
        data = self.data
        return HeldOut.of(data.exclude, root=data.root, ngram_words=data.exclude_ngram) if data.exclude else None

    def _limit(self, docs: list[Document]) -> list[Document]:
        """At most data.limit documents, evenly spaced, because files are often sorted by label."""
        limit = self.data.limit
        if limit is None or limit >= len(docs):
            return docs
        return [docs[number * len(docs) // limit] for number in range(limit)]

    def _split(self, documents: Documents, *, labeled: bool) -> Split:
        encode = self._encode_labeled if labeled else partial(self._encode_document, labeled=False)
        return Split([doc for _, doc in documents], [source for source, _ in documents], encode)

    def _encode_document(self, source: str, doc: Document, *, labeled: bool) -> list[Example]:
        return self.task.for_source(source).encode(doc, self.tokens, self.frame, with_targets=labeled)

    def _encode_labeled(self, source: str, doc: Document) -> list[Example]:
        """The examples of a training document, without those that have no labels."""
        examples = self._encode_document(source, doc, labeled=True)
        labeled = [example for example in examples if label_count(example)]
        if len(labeled) < len(examples):
            self.task.notes["example without labels, left out of training"] += len(examples) - len(labeled)
        return labeled

    def _check(self, splits: dict[str, Split]) -> None:
        """UsageError where a split is empty or missing, an example too long, or training has no labels."""
        some_labels = ", ".join(self.task.labels[:6])
        if not splits[TRAIN].examples:
            raise UsageError(
                f"no training example has one of the labels {some_labels}. Compare the kind of [task], and its types "
                "or labels, with the annotations of the documents.",
                code="no-labels",
                value=TRAIN,
            )
        for name, split in splits.items():
            if not split.examples:
                message = f"the split {name} has no examples; expected documents that the task can encode."
                raise UsageError(message, code="empty-split", value=name)
            if long := [len(example.ids) for example in split.examples if len(example.ids) > self.frame.max_tokens]:
                raise UsageError(
                    f"{len(long):,} examples of {name} have more than {self.frame.max_tokens:,} tokens, the longest "
                    f"{max(long):,}. Raise data.max_tokens, or shorten the documents where the model takes no more.",
                    code="too-long",
                    value=max(long),
                )
        if DEV not in splits and self.selecting:
            raise UsageError(
                f"the folds of {self.sources[0].name} have no dev split, which evaluation.patience, grid.seeds = "
                '"first" and score_test = "best" need. Set folds.dev_fraction.',
                code="missing-split",
                value=DEV,
            )
        if label_bias(splits[TRAIN].examples, self.task) == 0:
            raise UsageError(
                f"all targets in train are the same, so there is nothing to learn; expected several of {some_labels}. "
                "Compare the types or labels in [task] with those in the documents.",
                code="one-label",
                value=TRAIN,
            )


def unlabeled_examples(shards: Path, tokenizer: Path, task: Task, *, max_tokens: int) -> tuple[Example, ...]:
    """The sequences of token shards as examples without labels."""
    opened = open_shards(shards, tokenizer_sha256=tokenizer_sha256(tokenizer))
    specials = Specials.of(read_json(tokenizer / TOKENIZER_FILE))
    text = Text(opened.train, specials, kind="sentences", shuffled=False)
    ordered = text.epoch(0, max_tokens)
    packed = text.packed(ordered.ranges, ordered.order)
    # Examples are views of one array, and share the arrays that are the same in all of them.
    unknown = np.broadcast_to(np.int64(IGNORE_INDEX), (max_tokens, len(task.groups)))
    zeros = np.zeros(max_tokens, np.int64)
    return tuple(
        Example(ids, zeros[: len(ids)], zeros[: len(ids)], zeros[: len(ids)], unknown[: len(ids)])
        for ids in np.split(packed.ids, packed.ends[:-1])
    )


def warn_unlabeled(docs: list[Document]) -> list[str]:
    """A warning where labels are trained as true or false only because some documents have none."""
    counts = [len(doc.labels) for doc in docs]
    if max(counts, default=0) > 1 or 0 not in counts:
        return []
    return [
        f"{counts.count(0):,} documents of train have no label and none has several, so each label is trained as true "
        "or false; where labels are missing by mistake, add them and set several = false in [task]"
    ]


def warn_collapsed(predicted: Path, gold: Split, scores: Mapping[str, Any], metric: str | None) -> str | None:
    """A warning where the model has learned nothing: it gives one answer for all documents, or scores 0."""
    answers = {(doc.labels, tuple(relation.type for relation in doc.relations)) for doc in read(predicted, "jsonl")}
    expected = {(doc.labels, tuple(relation.type for relation in doc.relations)) for doc in gold.docs}
    if len(answers) == 1 and len(expected) > 1 and (answer := next(iter(answers))) and any(answer):
        names = ", ".join(map(repr, (*answer[0], *answer[1])))
        return f"the model collapsed: it answers {names} for all {len(gold.docs):,} documents of dev"
    if metric is not None and scores.get(metric) == 0:
        return f"the model has learned nothing that is scored: {metric} on dev is 0"
    return None
