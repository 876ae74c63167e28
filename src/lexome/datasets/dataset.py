"""A dataset: its card, its files, its splits and folds as Documents, and its task."""

import hashlib
import json
import math
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lexome.datasets import hf_rows
from lexome.datasets.audit import (
    AuditReport,
    audit_splits,
    count_contents,
    find_errors,
    find_overlaps,
    identities,
    shares_id,
    texts_by_id,
)
from lexome.document import Document
from lexome.errors import BadDocument, DataSetError, FormatError, UsageError
from lexome.formats import get_format, option_parameters, parse_options
from lexome.formats import read as read_files
from lexome.formats.streams import ARCHIVES, COMPRESSIONS, Source, is_archive, open_sources, uncompressed_name
from lexome.formats.tally import OFFSET_REASONS, Tally

if TYPE_CHECKING:
    from lexome.tasks.task import Task

Split = list[Document]
Splits = dict[str, Split]

Reader = Callable[..., Iterator[Document]]
"""A function of an iterator of Sources and a tally, for files that are read together."""

Change = Callable[[Iterable[Document], Tally], Iterator[Document]]
"""A change of a split's documents; what it drops or changes is noted in the tally."""

Refinement = Callable[[Splits, str | None], Splits]
"""A change of all splits together, for a fold or for the whole dataset."""

# Readers of datasets' own file formats, by the names that cards use: modules and functions, imported when needed.
READERS: Mapping[str, tuple[str, str]] = {
    "i2b2-2010": ("lexome.datasets.own_layouts", "concepts_2010"),
    "i2b2-2012": ("lexome.datasets.own_layouts", "events_2012"),
    "i2b2-2014": ("lexome.datasets.own_layouts", "identifiers_2014"),
    "med1250": ("lexome.datasets.own_layouts", "read_abbreviations"),
    "bioasq-golden": ("lexome.datasets.bioasq_squad", "answered_from_golden"),
    "drugprot": ("lexome.datasets.own_layouts", "read_drugprot"),
}

# The folder of all datasets, unless another is named.
DEFAULT = Path("data")


@dataclass(frozen=True)
class Files:
    """The files of one split, and how they are read.

    patterns  paths in the dataset's folder, with * for anything; all are needed. After "!" comes a path inside the
              archive named before it, or in the folder it was unpacked to. Extensions of compressions and archives
              are left out
    reader    the name of a format or of one of READERS, or a function of all sources
    options   of the reader
    changes   applied to the documents, in order
    folders   the names of the dataset's folders that hold such files, if not all do
    """

    patterns: tuple[str, ...]
    reader: str | Reader
    options: Mapping[str, object] = field(default_factory=dict)
    changes: tuple[Change, ...] = ()
    folders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LocatedFile:
    """A file of a split; of an archive, `member` is the pattern of its members."""

    path: Path
    member: str | None = None


def data_roots(data: str | Path | None) -> list[Path]:
    """The folder of all datasets: the one named, else ./data; none if there is no such folder."""
    if data is not None:
        if not Path(data).is_dir():
            message = f"{data}: there is no such folder. Name the folder that holds the datasets."
            raise DataSetError(message, code="missing-folder", value=str(data))
        return [Path(data)]
    return [DEFAULT] if DEFAULT.is_dir() else []


def locate(folder: Path, files: Files) -> list[LocatedFile]:
    """The files in a folder that match the patterns, in their order; none if a pattern has no match."""
    located: list[LocatedFile] = []
    for pattern in files.patterns:
        matches = _match(folder, pattern)
        if not matches:
            return []
        located += matches
    return list(dict.fromkeys(located))


def _match(folder: Path, pattern: str) -> list[LocatedFile]:
    archive, separator, member = pattern.partition("!")
    if not separator:
        return [LocatedFile(path) for path in _match_names(folder, pattern)]
    archives = [path for path in _match_names(folder, archive) if is_archive(path.name)]
    if archives:
        return [LocatedFile(path, member) for path in archives]
    # Unpacked to a folder of the archive's name, or, if the path inside has folders of its own, beside it.
    own = folder / archive
    if not own.is_dir() and "/" not in member:
        return []
    unpacked = (path for path in sorted((own if own.is_dir() else folder).rglob("*")) if path.is_file())
    return [LocatedFile(path) for path in unpacked if _fits(path.relative_to(folder).as_posix(), member)]


def _match_names(folder: Path, pattern: str) -> list[Path]:
    """The files of this name, with or without the extension of a compression or an archive."""
    if "*" not in pattern:
        paths = (folder / (pattern + extension) for extension in ("", *COMPRESSIONS, *ARCHIVES))
        return [path for path in paths if path.is_file()][:1]
    return sorted(path for path in folder.glob(pattern) if path.is_file()) or sorted(
        path for extension in COMPRESSIONS for path in folder.glob(pattern + extension) if path.is_file()
    )


def _fits(path: str, pattern: str) -> bool:
    """Whether the path, or its end from some folder on, matches the pattern."""
    name = uncompressed_name(path)
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"*/{pattern}")


# A wrong offset is an error: what training and test documents hold must not depend on repairs that nobody asked for.
_STRICT = {"offsets": "strict"}


def read_documents(located: Iterable[LocatedFile], files: Files, tally: Tally) -> Iterator[Document]:
    """The documents of the files, with the dataset's changes."""
    docs = _read(located, files, tally)
    for change in files.changes:
        docs = change(docs, tally)
    for doc in docs:
        tally.count(doc)
        yield doc


def _read(located: Iterable[LocatedFile], files: Files, tally: Tally) -> Iterator[Document]:
    sources = (
        source
        for file in located
        for source in open_sources(file.path, tally)
        if file.member is None or _fits(source.member or "", file.member)
    )
    reader = files.reader
    if isinstance(reader, str) and reader in READERS:
        module, name = READERS[reader]
        reader = getattr(import_module(module), name)
    if not isinstance(reader, str):
        yield from reader(sources, tally=tally, **files.options)
        return
    format = get_format(reader)
    function = format.read_function()
    strict = {name: value for name, value in _STRICT.items() if name in option_parameters(function)}
    options = parse_options(format, function, {**strict, **files.options})
    if format.grouped:
        yield from function(sources, tally=tally, **options)
        return
    for source in sources:
        if not source.head():
            raise FormatError(
                f"{source.name}: the file is empty; expected documents.", code="empty-file", value=source.name
            )
        yield from function(source, tally=tally, **options)


def split_off(docs: Sequence[Document], *, fraction: float, seed: int) -> tuple[Split, Split]:
    """The documents without a random fraction of them, and that fraction, both in the original order.

    The sample depends on the documents' ids and the seed, not on their order. Documents of one article, by `part_of` or
    PMID, stay together.
    """
    if not 0 < fraction < 1:
        raise UsageError(
            f"the fraction is {fraction}; expected one between 0 and 1.", code="out-of-range", value=fraction
        )
    articles = sorted({_article(doc) for doc in docs}, key=lambda name: _random_key(name, seed))
    chosen = set(articles[: max(1, round(fraction * len(articles)))])
    if len(chosen) == len(articles):
        raise UsageError(
            f"a fraction of {fraction} of {len(docs)} documents, which are of {len(articles)} articles, leaves none. "
            "Name a smaller fraction, or more documents: those of one article stay together.",
            code="too-few-documents",
            value=len(articles),
        )
    return [doc for doc in docs if _article(doc) not in chosen], [doc for doc in docs if _article(doc) in chosen]


def assign_folds(docs: Sequence[Document], *, folds: int, seed: int) -> list[int]:
    """The fold of each document, from 0, stratified by label; documents of one article stay together."""
    labels: dict[str, tuple[str, ...]] = {}
    for doc in docs:
        labels.setdefault(_article(doc), tuple(sorted(doc.labels)))
    if not 2 <= folds <= len(labels):
        raise UsageError(
            f"{folds} folds of {len(docs)} documents, which are of {len(labels)} articles; expected at least 2 folds, "
            "and at most as many as articles, whose documents stay together.",
            code="out-of-range",
            value=folds,
        )
    strata: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
    for article, label in labels.items():
        strata[label].append(article)
    shuffled = (
        article
        for label in sorted(strata)
        for article in sorted(strata[label], key=lambda article: _random_key(article, seed))
    )
    fold_of = {article: place % folds for place, article in enumerate(shuffled)}
    return [fold_of[_article(doc)] for doc in docs]


def _article(doc: Document) -> str:
    return doc.meta.part_of or doc.meta.pmid or doc.id


def _random_key(name: str, seed: int) -> bytes:
    return hashlib.sha256(f"{seed}\t{name}".encode()).digest()


def pubmedqa_splits(labeled: Iterable[tuple[str, str]]) -> tuple[list[str], list[list[str]]]:
    """The test PMIDs and ten folds of the others, from PubMedQA's 1,000 labeled questions in their file's order.

    The project's own split: Python's random module seeded with 0; for each of yes, no and maybe in turn the PMIDs are
    shuffled and cut, first in two halves and then the first half in ten. If the last part is smaller, one random PMID
    of each other part is moved to it.
    """
    rng = random.Random(0)
    label_of = dict(labeled)
    development, test = _stratify(label_of, label_of, 2, rng)
    return test, _stratify(development, label_of, 10, rng)


def _stratify(names: Iterable[str], label_of: Mapping[str, str], count: int, rng: random.Random) -> list[list[str]]:
    by_label: dict[str, list[str]] = {"yes": [], "no": [], "maybe": []}
    for pmid in names:
        by_label[label_of[pmid]].append(pmid)
    cut: list[list[list[str]]] = []
    for pmids in by_label.values():
        rng.shuffle(pmids)
        size = math.ceil(len(pmids) / count)
        cut.append([pmids[number * size : (number + 1) * size] for number in range(count)])
    parts = [[pmid for pieces in cut for pmid in pieces[number]] for number in range(count)]
    if len(parts[-1]) != len(parts[0]):
        for part in parts[:-1]:
            picked = rng.choice(part)
            parts[-1].append(picked)
            part.remove(picked)
    return parts


TRAIN, DEV, TEST = "train", "dev", "test"

OverlapPolicy = Literal["keep", "drop", "error"]


@dataclass(frozen=True)
class DatasetCard:
    """The description of a dataset, independent of where its files are.

    task          settings for lexome.tasks.task_of
    metric        what the papers report
    splits        the files of each split: the first of the alternatives that exists is used
    folders       possible names of its folder, within the folder of all datasets
    source        where to get it, and how to apply if that is needed
    expected      known counts of each split, to detect a damaged copy
    positive      the labels that are scored; every split needs at least one
    papers        the studies that use it
    notes         caveats for comparing scores
    folds         the names of its folds, if it is cross-validated; patterns of splits then contain {fold}
    refine        makes splits of all files of a fold, or of the dataset, as its authors define them
    dev_fraction  the fraction of train that is split off as dev, if the dataset has none and its users do so
    restricted    whether each user has to apply for it
    optional      splits that may be missing
    """

    name: str
    description: str
    task: Mapping[str, Any]
    metric: str
    splits: Mapping[str, tuple[Files, ...]]
    folders: tuple[str, ...]
    license: str
    source: str
    citation: str = ""
    expected: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    positive: tuple[str, ...] = ()
    papers: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    folds: tuple[str, ...] = ()
    refine: Refinement | None = None
    dev_fraction: float = 0.0
    restricted: bool = False
    optional: tuple[str, ...] = ()


@dataclass(frozen=True)
class DataSet:
    """A dataset, and the folders that may have its files; `fold` is the name of the fold, if it is one."""

    card: DatasetCard
    roots: tuple[Path, ...]
    fold: str | None = None

    @property
    def name(self) -> str:
        """The dataset's name, with that of the fold."""
        return self.card.name if self.fold is None else f"{self.card.name} fold {self.fold}"

    @property
    def settings(self) -> Mapping[str, Any]:
        """The task's settings, for lexome.tasks.task_of."""
        return self.card.task

    @property
    def task(self) -> "Task":
        """The dataset's task."""
        from lexome.tasks import task_of

        return task_of(self.card.task)

    @cached_property
    def folder(self) -> Path | None:
        """The dataset's folder: of all candidates, the one with most of its splits."""
        names = {Path(name).name for name in self.card.folders}
        candidates = [root / name for root in self.roots for name in self.card.folders]
        candidates += [root for root in self.roots if root.resolve().name in names]
        best = max(candidates, key=lambda folder: len(self._locate(folder)), default=None)
        return best if best is not None and self._locate(best) else None

    @cached_property
    def files(self) -> Mapping[str, tuple[Files, list[LocatedFile]]]:
        """How each split that exists is read, and its files."""
        return self._locate(self.folder) if self.folder is not None else {}

    def _locate(self, folder: Path) -> dict[str, tuple[Files, list[LocatedFile]]]:
        located: dict[str, tuple[Files, list[LocatedFile]]] = {}
        if folder.is_dir():
            for name, alternatives in self.card.splits.items():
                for files in alternatives:
                    if files.folders and folder.name not in files.folders:
                        continue
                    if self.card.folds:
                        fold = self.fold if self.fold is not None else self.card.folds[0]
                        patterns = tuple(pattern.replace("{fold}", fold) for pattern in files.patterns)
                        files = replace(files, patterns=patterns)
                    if paths := locate(folder, files):
                        located[name] = (files, paths)
                        break
        return located

    @property
    def missing(self) -> list[str]:
        """The splits without files, in any of the folds if it is cross-validated."""
        if self.folds:
            missing = {name for fold in self.folds for name in fold.missing}
            return [name for name in self.card.splits if name in missing]
        return [name for name in self.card.splits if name not in self.files and name not in self.card.optional]

    @property
    def available(self) -> bool:
        """Whether the files of all splits exist."""
        return not self.missing

    @property
    def folds(self) -> list["DataSet"]:
        """The folds of a cross-validated dataset, each with its own splits; none otherwise."""
        if self.fold is not None:
            return []
        return [DataSet(self.card, self.roots, name) for name in self.card.folds]

    def split(self, name: str, *, tally: Tally | None = None) -> Split:
        """The documents of one split, as they are in its files."""
        if name not in self.card.splits:
            message = f"{self.name} has no split {name!r}; it has {', '.join(self.card.splits)}."
            raise UsageError(message, code="unknown-split", value=name)
        if self.card.folds and self.fold is None:
            message = f"{self.name} is cross-validated: only its {len(self.card.folds)} folds have splits. Use .folds."
            raise UsageError(message, code="has-folds", value=self.name)
        if name not in self.files:
            raise DataSetError(self._not_found(name), code="missing-split", value=name)
        files, located = self.files[name]
        docs = list(read_documents(located, files, tally if tally is not None else Tally()))
        if not docs:
            paths = ", ".join(str(file.path) for file in located)
            message = f"{self.name}: the split {name} is empty; expected documents in {paths}. Get it again."
            raise DataSetError(message, code="empty-split", value=name)
        return docs

    def splits(
        self,
        *,
        dev_fraction: float | None = None,
        seed: int = 0,
        overlap: OverlapPolicy = "keep",
        partial: bool = False,
        tally: Tally | None = None,
    ) -> Splits:
        """The documents of train, dev and test, in that order.

        A missing split is an error, unless `partial`. If the dataset has no dev split, `dev_fraction` of train's
        articles are split off with `seed`; the default is that of the papers, mostly no dev split.
        Training documents whose id or text is in dev or test are kept, dropped and counted, or an error (`overlap`).
        """
        if overlap not in ("keep", "drop", "error"):
            raise UsageError(
                f"overlap is {overlap!r}; expected keep, drop or error.", code="invalid-choice", value=overlap
            )
        tally = tally if tally is not None else Tally()
        names = list(self.files) if partial and self.files else [*self.missing, *self.files]
        splits = {name: self.split(name, tally=tally) for name in names}
        if self.card.refine is not None:
            splits = self.card.refine(splits, self.fold)
        fraction = self.card.dev_fraction if dev_fraction is None else dev_fraction
        if fraction and DEV not in splits and TRAIN in splits:
            splits[TRAIN], splits[DEV] = split_off(splits[TRAIN], fraction=fraction, seed=seed)
            tally.note("document of train split off as dev", len(splits[DEV]))
        counts = {name: count_contents(docs) for name, docs in splits.items()}
        errors = find_errors(counts, positive=self.card.positive, labels=self.task.closed_labels)
        if errors:
            message = f"{self.name}: {'; '.join(errors)}. Its scores would be meaningless."
            raise DataSetError(message, code="invalid-split", value=self.name)
        splits = self.resolve_overlap(splits, overlap, tally)
        known = [name for name in (TRAIN, DEV, TEST) if name in splits]
        return {name: splits[name] for name in dict.fromkeys((*known, *splits))}

    def resolve_overlap(self, splits: Splits, overlap: OverlapPolicy, tally: Tally) -> Splits:
        """The splits without training documents that are in another split, or an error, by the policy."""
        if overlap == "keep":
            return splits
        held_out = identities([doc for name in splits if name != TRAIN for doc in splits[name]])
        ids, texts = texts_by_id(held_out), {key[3] for key in held_out} - {""}
        shared = {
            place
            for place, doc in enumerate(splits.get(TRAIN, ()))
            if any(key[3] in texts or shares_id(key, ids) for key in identities([doc]))
        }
        if not shared:
            return splits
        if overlap == "error":
            listed = ", ".join(splits[TRAIN][place].id for place in sorted(shared)[:5])
            details = "; ".join(map(str, find_overlaps(splits)))
            raise DataSetError(
                f"{self.name}: {len(shared):,} training documents are in dev or test too: {listed}. {details}. "
                'Load it with overlap="drop" to train without them, or with overlap="keep" to do as the papers do.',
                code="overlapping-splits",
                value=len(shared),
            )
        tally.note("document of train skipped: it is in dev or test", len(shared))
        return {**splits, TRAIN: [doc for place, doc in enumerate(splits[TRAIN]) if place not in shared]}

    def check(self) -> AuditReport:
        """Counts, overlaps, warnings and errors of the splits that exist, or of all folds."""
        if self.card.folds and self.fold is None:
            return _merge_reports({fold.fold or "": fold.check() for fold in self.folds}, self.card)
        if not self.files:
            return AuditReport({}, errors=(self._not_found(None),))
        splits: Splits = {}
        errors: list[str] = []
        tally = Tally()
        for name in self.files:
            try:
                splits[name] = self.split(name, tally=tally)
            except DataSetError as error:
                errors.append(str(error))
        raw = {name: counts for name, counts in self.card.expected.items() if name not in (TRAIN, DEV, TEST)}
        warnings = audit_splits({name: splits[name] for name in raw if name in splits}, expected=raw).warnings
        if self.card.refine is not None and not errors:
            splits = self.card.refine(splits, self.fold)
        expected = dict(self.card.expected) if self.fold is None else {}
        if any(name not in self.files for name in self.card.optional):
            expected.pop(TRAIN, None)
        report = audit_splits(splits, expected=expected, positive=self.card.positive, labels=self.task.closed_labels)
        missing = [f"the split {name} is missing" for name in self.missing]
        return replace(
            report,
            warnings=(*missing, *warnings, *report.warnings),
            errors=(*errors, *report.errors),
            notes=dict(tally.notes.most_common()),
        )

    def _not_found(self, split: str | None) -> str:
        searched = ", ".join(str(root) for root in self.roots) or "./data, which does not exist"
        what = f"the split {split} of {self.name}" if split is not None else self.name
        patterns = "; ".join(
            f"{name}: {' or '.join(' + '.join(files.patterns) for files in alternatives)}"
            for name, alternatives in self.card.splits.items()
            if split in (None, name)
        )
        return (
            f"{what} is not in {searched}; expected in a folder {' or '.join(self.card.folders)} the files {patterns} "
            f"(each may be compressed). To get it: {self.card.source} Name the folder with --data "
            "or in a recipe with data.root."
        )


def _merge_reports(reports: Mapping[str, AuditReport], card: DatasetCard) -> AuditReport:
    """One report of all folds: the sum of their test splits, and their warnings and errors by name."""
    counts = {f"{fold}/{split}": count for fold, report in reports.items() for split, count in report.counts.items()}
    total = sum((Counter(report.counts.get(TEST, {})) for report in reports.values()), Counter[str]())
    warnings = [f"fold {fold}: {warning}" for fold, report in reports.items() for warning in report.warnings]
    warnings += [
        f"the folds' test splits have {total[what]:,} {what}; expected {number:,}: "
        "the files are damaged or another version"
        for what, number in card.expected.get(TEST, {}).items()
        if total[what] != number
    ]
    errors = [f"fold {fold}: {error}" for fold, report in reports.items() for error in report.errors]
    overlaps = tuple(overlap for report in reports.values() for overlap in report.overlaps)
    notes = sum((Counter(report.notes) for report in reports.values()), Counter[str]())
    counts["all folds' test"] = dict(total)
    return AuditReport(counts, overlaps, tuple(warnings), tuple(errors), dict(notes.most_common()))


_SPLIT_NAMES = {
    **dict.fromkeys(("train", "training"), TRAIN),
    **dict.fromkeys(("dev", "devel", "development", "val", "valid", "validation"), DEV),
    **dict.fromkeys(("test", "testing"), TEST),
}
# Files next to a dataset's rows that have none themselves.
_IGNORED = frozenset(
    {"dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json", "readme", "license"}
)
_TABLES = (".arrow", ".parquet", ".jsonl", ".ndjson")
# Extensions of files that are read together.
_COMPANIONS = ({".txt", ".ann"}, {".in", ".eval"})
_NO_LETTERS = re.compile(r"[^a-z]+")


def folder(
    path: str | Path,
    *,
    task: Mapping[str, Any] | str,
    format: str | None = None,
    files: Mapping[str, str | Path] | None = None,
    **options: Any,
) -> DataSet:
    """The dataset in a folder, whose files or subfolders are named train, dev (or validation, ...) and test.

    `task` is a task's settings, or its kind alone ("ner", "classes", ...): types or labels are then those of the
    training documents. Tables (Arrow, Parquet, JSON lines) are read as Hugging Face datasets, other files by
    `lexome.read` with this `format` and these `options`. `files` names each split's file or folder if their names do
    not.
    """
    root = Path(path)
    if not root.is_dir():
        message = f"{root}: there is no such folder. Name the one that holds the train, dev and test files."
        raise DataSetError(message, code="missing-folder", value=str(root))
    paths = _named_paths(root, files) if files else _paths_by_name(root)
    if not paths:
        raise DataSetError(
            f"{root}: no file or subfolder is named train, dev (validation) or test. Rename them, as in train.csv, or "
            'in Python name each with files={"train": ...}.',
            code="no-splits",
            value=str(root),
        )
    for name, split_paths in paths.items():
        _require_one_form(name, split_paths)
    card = DatasetCard(
        name=root.resolve().name,
        description=f"the folder {root}",
        task={"kind": task} if isinstance(task, str) else task,
        metric="",
        splits={name: (_files(name, paths[name], root, format, options),) for name in sorted(paths)},
        folders=("",),
        license="your own",
        source="",
    )
    dataset = DataSet(card, (root,))
    return DataSet(replace(card, task=_infer_task(task, dataset)), (root,)) if isinstance(task, str) else dataset


# What a task learns from, where it is not what its setting is called.
_ANNOTATIONS = {"ner": "mentions", "relation": "relations", "document-relation": "relations"}


def _infer_task(kind: str, dataset: DataSet) -> dict[str, Any]:
    """Settings of a task with the types or labels of the training documents."""
    from lexome.tasks import KINDS
    from lexome.tasks.task import require_choice

    require_choice(kind, tuple(KINDS), "task")
    splits = dataset.card.splits
    name = TRAIN if TRAIN in splits else next(iter(splits))
    # A generator: tasks without types or labels need not read the files.
    settings = KINDS[kind].infer_settings(doc for _ in (0,) for doc in dataset.split(name))
    for key in ("types", "labels"):
        if key in settings and not settings[key]:
            missing = _ANNOTATIONS.get(kind, key)
            message = (
                f"{dataset.folder}: the training documents have no {missing}, from which the task {kind!r} learns. "
                "Check the kind of the task, and the files."
            )
            raise DataSetError(message, code="missing-annotations", value=key)
    return settings


def _paths_by_name(root: Path) -> dict[str, list[Path]]:
    """The files of each split, by the words in their paths; files with words of two, as train_dev, are left out."""
    by_split: dict[str, list[Path]] = {}
    # The files that a saved dataset lists, without the caches beside them.
    states = sorted(root.rglob("state.json"))
    saved = [state.parent / item["filename"] for state in states for item in _read_json(state).get("_data_files") or ()]
    for path in saved if states else sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        ignored = {path.name.lower(), path.stem.lower()} & _IGNORED or path.suffix.lower() in (".md", ".lock", ".py")
        if not path.is_file() or ignored or any(part.startswith(".") for part in parts):
            continue
        splits = {
            _SPLIT_NAMES[word] for part in parts for word in _NO_LETTERS.split(part.lower()) if word in _SPLIT_NAMES
        }
        if not splits and states:
            name = str(_read_json(path.parent / "state.json").get("_split") or TRAIN)
            splits = {_SPLIT_NAMES.get(name.lower(), name)}
        if len(splits) == 1:
            by_split.setdefault(splits.pop(), []).append(path)
    return by_split


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        message = f"{path}: {error}; expected the JSON of a saved dataset. Save it again."
        raise DataSetError(message, code="invalid-json", value=str(path)) from None
    return content if isinstance(content, dict) else {}


def _named_paths(root: Path, files: Mapping[str, str | Path]) -> dict[str, list[Path]]:
    by_split: dict[str, list[Path]] = {}
    for split, name in files.items():
        path = root / name
        if not path.exists():
            message = f"{path}: there is no such file or folder for the split {split}. Check the name."
            raise DataSetError(message, code="missing-file", value=str(path))
        inside = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
        by_split[_SPLIT_NAMES.get(split, split)] = inside
    return by_split


def _require_one_form(split: str, paths: list[Path]) -> None:
    """DataSetError if a split exists in two formats or twice, and would be read as one of double size."""
    extensions = {Path(_without_compression(path.name).lower()).suffix for path in paths}
    if len(extensions) > 1 and extensions not in _COMPANIONS:
        raise DataSetError(
            f"{paths[0].parent}: {split} has the extensions {', '.join(sorted(extensions))}; expected one. Move the "
            'others away, or in Python name the files with files={"train": ...}.',
            code="several-formats",
            value=split,
        )
    folders = sorted({str(path.parent) for path in paths})
    if extensions <= set(_TABLES) and len(folders) > 1:
        raise DataSetError(
            f"{split} is in {', '.join(folders[:3])}; expected the rows of one dataset. Name one of these folders.",
            code="several-folders",
            value=split,
        )


def _files(split: str, paths: list[Path], root: Path, format: str | None, options: Mapping[str, object]) -> Files:
    patterns = tuple(_without_compression(path.relative_to(root).as_posix()) for path in paths)
    for pattern in patterns:
        if "!" in pattern or "*" in pattern:
            message = f"{root}: {pattern} has ! or * in its name; expected neither. Rename it."
            raise DataSetError(message, code="invalid-name", value=pattern)
    tables = format is None and all(_without_compression(path.name).lower().endswith(_TABLES) for path in paths)
    return Files(patterns, partial(_rows, paths, split) if tables else partial(_any_format, paths, format), options)


def _without_compression(name: str) -> str:
    return uncompressed_name(name) if name.lower().endswith(COMPRESSIONS) else name


def _rows(paths: list[Path], split: str, sources: Iterable[Source], *, tally: Tally) -> Iterator[Document]:
    return hf_rows.read(paths, tally=tally, split=split)


def _any_format(
    paths: list[Path], format: str | None, sources: Iterable[Source], *, tally: Tally, **options: Any
) -> Iterator[Document]:
    # Whoever reads the dataset counts the documents, so only notes are passed on.
    inner = Tally(tally.rejects_path)
    strict = {name: value for name, value in _STRICT.items() if name not in options}
    try:
        yield from read_files(paths, format, tally=inner, options_if_supported=strict, **options)
    except BadDocument as error:
        if error.reason not in OFFSET_REASONS:
            raise
        raise DataSetError(
            f"{error}. Correct the annotation, or train on a repaired copy: `lexome convert IN OUT --set "
            "read.offsets=repair` counts what it moves and what it drops.",
            code=error.code,
            value=error.value,
        ) from error
    for note, times in inner.notes.items():
        tally.note(note, times)
