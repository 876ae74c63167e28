"""The files of a dataset's splits: located in folders and archives, read as Documents; and random splits and folds."""

import hashlib
import math
import os
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path

from lexome.document import Document
from lexome.errors import DataSetError, FormatError, UsageError
from lexome.formats.registry import get_format, parse_options
from lexome.formats.streams import ARCHIVES, COMPRESSIONS, Source, is_archive, open_sources, uncompressed_name
from lexome.formats.tally import Tally

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
    "i2b2-2010": ("lexome.datasets.i2b2", "concepts_2010"),
    "i2b2-2012": ("lexome.datasets.i2b2", "events_2012"),
    "i2b2-2014": ("lexome.datasets.i2b2", "identifiers_2014"),
    "bioasq-golden": ("lexome.datasets.bioasq_squad", "answered_from_golden"),
}

# The environment variable with the folders of datasets, separated as in PATH.
VARIABLE = "LEXOME_DATA"
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
    """The folders where datasets are looked for: the one named, else those of LEXOME_DATA and ./data."""
    if data is not None:
        if not Path(data).is_dir():
            raise DataSetError(
                f"{data}: there is no such folder. Name the folder that holds the datasets.",
                code="missing-folder",
                value=str(data),
            )
        return [Path(data)]
    named = [Path(part) for part in os.environ.get(VARIABLE, "").split(os.pathsep) if part]
    return [folder for folder in (*named, DEFAULT) if folder.is_dir()]


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


def read_documents(located: Iterable[LocatedFile], files: Files, tally: Tally) -> Iterator[Document]:
    """The documents of the files, with the dataset's changes."""
    docs = _read(located, files, tally)
    for change in files.changes:
        docs = change(docs, tally)
    for doc in docs:
        tally.count(doc)
        yield doc


def _read(located: Iterable[LocatedFile], files: Files, tally: Tally) -> Iterator[Document]:
    sources = _sources(located, tally)
    reader = files.reader
    if isinstance(reader, str) and reader in READERS:
        module, name = READERS[reader]
        reader = getattr(import_module(module), name)
    if not isinstance(reader, str):
        yield from reader(sources, tally=tally, **files.options)
        return
    format = get_format(reader)
    function = format.read_function()
    options = parse_options(format, function, files.options)
    if format.grouped:
        yield from function(sources, tally=tally, **options)
        return
    for source in sources:
        if not source.head():
            raise FormatError(
                f"{source.name}: the file is empty; expected documents.", code="empty-file", value=source.name
            )
        yield from function(source, tally=tally, **options)


def _sources(located: Iterable[LocatedFile], tally: Tally) -> Iterator[Source]:
    for file in located:
        for source in open_sources(file.path, tally):
            if file.member is None or _fits(source.member or "", file.member):
                yield source


def split_off(docs: Sequence[Document], *, fraction: float, seed: int) -> tuple[Split, Split]:
    """The documents without a random fraction of them, and that fraction, each in their order.

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


def pubmedqa_splits(labelled: Iterable[tuple[str, str]]) -> tuple[list[str], list[list[str]]]:
    """The test PMIDs and ten folds of the others, from PubMedQA's 1,000 labelled questions in their file's order.

    The project's own split: Python's random module seeded with 0; for each of yes, no and maybe in turn the PMIDs are
    shuffled and cut, first in two halves and then the first half in ten. If the last part is smaller, one random PMID
    of each other part is moved to it.
    """
    rng = random.Random(0)
    by_label: dict[str, list[str]] = {"yes": [], "no": [], "maybe": []}
    label_of: dict[str, str] = {}
    for pmid, label in labelled:
        by_label[label].append(pmid)
        label_of[pmid] = label
    development, test = _stratified(by_label, 2, rng)
    again: dict[str, list[str]] = {"yes": [], "no": [], "maybe": []}
    for pmid in development:
        again[label_of[pmid]].append(pmid)
    return test, _stratified(again, 10, rng)


def _stratified(by_label: dict[str, list[str]], count: int, rng: random.Random) -> list[list[str]]:
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
