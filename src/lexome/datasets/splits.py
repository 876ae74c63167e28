"""The files of a set: found in a folder or an archive, under any compression, and read as Documents."""

import hashlib
import math
import os
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeVar

from lexome.document import Document
from lexome.errors import DataSetError, FormatError, UsageError
from lexome.formats.registry import get_format, parse_options
from lexome.formats.streams import ARCHIVES, COMPRESSIONS, Source, is_archive, open_sources, uncompressed_name
from lexome.formats.tally import Tally

Reader = Callable[..., Iterator[Document]]
"""A function of an iterator of Sources and a tally, for files that are read together."""

Change = Callable[[Iterable[Document], Tally], Iterator[Document]]
"""What is done to the documents of a split, one after another; all that it drops or changes is noted in the tally."""

# Where the files are looked for: a variable may name several folders, as PATH does.
VARIABLE = "LEXOME_DATA"
DEFAULT = Path("data")


@dataclass(frozen=True)
class Files:
    """The files of one split, and how they are read.

    `patterns` are paths in the set's folder, with * for anything; all of them are needed. What stands behind a "!" is a
    path inside the archive named before it, or, where there is no such archive, in the folder it was unpacked to. The
    endings of compressions and archives are left out. `reader` is a format's name, or a function that is given all the
    sources at once. `folders` are the names of the set's folders that hold such files, where not all do.
    """

    patterns: tuple[str, ...]
    reader: str | Reader
    options: Mapping[str, object] = field(default_factory=dict)
    changes: tuple[Change, ...] = ()
    folders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """A file that belongs to a split, and the members of it that do where it is an archive."""

    path: Path
    member: str | None = None


def roots(data: str | Path | None) -> list[Path]:
    """The folders where sets are looked for: the one named, else those of LEXOME_DATA, else ./data."""
    if data is not None:
        if not Path(data).is_dir():
            raise DataSetError(f"{data}: there is no such folder. Name the folder that holds the data sets.")
        return [Path(data)]
    named_folders = [Path(part) for part in os.environ.get(VARIABLE, "").split(os.pathsep) if part]
    return [folder for folder in (*named_folders, DEFAULT) if folder.is_dir()]


def locate(folder: Path, files: Files) -> list[Found]:
    """The files in a folder that the patterns mean, in the order of the patterns; none where one of them has none."""
    found: list[Found] = []
    for pattern in files.patterns:
        matching = _matching(folder, pattern)
        if not matching:
            return []
        found += matching
    return list(dict.fromkeys(found))


def documents(found: Iterable[Found], files: Files, tally: Tally) -> Iterator[Document]:
    """The documents in the files, read and changed as the set says."""
    docs = _read(found, files, tally)
    for change in files.changes:
        docs = change(docs, tally)
    for doc in docs:
        tally.count(doc)
        yield doc


def _matching(folder: Path, pattern: str) -> list[Found]:
    archive, inside, member = pattern.partition("!")
    if not inside:
        return [Found(path) for path in _named(folder, pattern)]
    packed = [path for path in _named(folder, archive) if is_archive(path.name)]
    if packed:
        return [Found(path, member) for path in packed]
    # Unpacked to a folder of the archive's name, or, where the path inside has folders of its own, beside it.
    own = folder / archive
    if not own.is_dir() and "/" not in member:
        return []
    unpacked = (path for path in sorted((own if own.is_dir() else folder).rglob("*")) if path.is_file())
    return [Found(path) for path in unpacked if _fits(path.relative_to(folder).as_posix(), member)]


def _named(folder: Path, pattern: str) -> list[Path]:
    """The files whose names are the pattern's, with or without the ending of a compression or an archive."""
    endings = ("", *COMPRESSIONS, *ARCHIVES)
    if "*" not in pattern:
        paths = (folder / (pattern + ending) for ending in endings)
        return [path for path in paths if path.is_file()][:1]
    return sorted(path for path in folder.glob(pattern) if path.is_file()) or sorted(
        path for ending in COMPRESSIONS for path in folder.glob(pattern + ending) if path.is_file()
    )


def _fits(path: str, pattern: str) -> bool:
    """True where the path, or its end from some folder on, is of the pattern."""
    plain = uncompressed_name(path)
    return fnmatchcase(plain, pattern) or fnmatchcase(plain, f"*/{pattern}")


def _read(found: Iterable[Found], files: Files, tally: Tally) -> Iterator[Document]:
    sources = _sources(found, tally)
    if not isinstance(files.reader, str):
        yield from files.reader(sources, tally=tally, **files.options)
        return
    format = get_format(files.reader)
    function = format.read_function()
    options = parse_options(format, function, files.options)
    if format.grouped:
        yield from function(sources, tally=tally, **options)
        return
    for source in sources:
        if not source.head():
            raise FormatError(f"{source.name}: the file is empty; expected documents.")
        yield from function(source, tally=tally, **options)


def _sources(found: Iterable[Found], tally: Tally) -> Iterator[Source]:
    for file in found:
        for source in open_sources(file.path, tally):
            if file.member is None or _fits(source.member or "", file.member):
                yield source


Item = TypeVar("Item")


def part_off(docs: Sequence[Document], *, share: float, seed: int) -> tuple[list[Document], list[Document]]:
    """The documents without a share of them, and that share, each in the order they came.

    What is drawn depends on the documents' ids and the seed alone, not on their order. Documents of one article, by
    `part_of` or PMID, stay together, so that no article is on both sides.
    """
    if not 0 < share < 1:
        raise UsageError(f"a share of {share} was asked for; expected one between 0 and 1.")
    groups = sorted({_article(doc) for doc in docs}, key=lambda name: _draw(name, seed))
    drawn = set(groups[: max(1, round(share * len(groups)))])
    if len(drawn) == len(groups):
        raise UsageError(
            f"a share of {share} of {len(docs)} documents was asked for, which are of {len(groups)} articles; expected "
            "it to leave some. Name a smaller share, or more documents: those of one article stay together."
        )
    return [doc for doc in docs if _article(doc) not in drawn], [doc for doc in docs if _article(doc) in drawn]


def fold_numbers(docs: Sequence[Document], *, folds: int, seed: int) -> list[int]:
    """The fold, 0 and up, that each document is in: as many of each label in all folds, articles together."""
    strata: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
    labels: dict[str, tuple[str, ...]] = {}
    for doc in docs:
        labels.setdefault(_article(doc), tuple(sorted(doc.labels)))
    if not 2 <= folds <= len(labels):
        raise UsageError(
            f"{folds} folds of {len(docs)} documents were asked for, which are of {len(labels)} articles; expected 2 "
            "folds to as many as articles, whose documents stay together. Ask for fewer."
        )
    for name, label in labels.items():
        strata[label].append(name)
    numbers: dict[str, int] = {}
    dealt = 0
    for label in sorted(strata):
        for name in sorted(strata[label], key=lambda name: _draw(name, seed)):
            numbers[name] = dealt % folds
            dealt += 1
    return [numbers[_article(doc)] for doc in docs]


def pubmedqa_parts(labelled: Iterable[tuple[str, str]]) -> tuple[list[str], list[list[str]]]:
    """The test PMIDs and the ten folds of the others, of PubMedQA's 1,000 labelled questions in their file's order.

    The project's own split: Python's random module seeded with 0; for each of yes, no and maybe in turn the PMIDs are
    shuffled and cut, first in two halves and then the first half in ten. Where the last part comes out smaller, one
    PMID drawn from each of the others is moved to it.
    """
    rng = random.Random(0)
    by_label: dict[str, list[str]] = {"yes": [], "no": [], "maybe": []}
    label_of: dict[str, str] = {}
    for pmid, label in labelled:
        by_label[label].append(pmid)
        label_of[pmid] = label
    kept, test = _stratified(by_label, 2, rng)
    again: dict[str, list[str]] = {"yes": [], "no": [], "maybe": []}
    for pmid in kept:
        again[label_of[pmid]].append(pmid)
    return test, _stratified(again, 10, rng)


def _stratified(by_label: dict[str, list[str]], parts: int, rng: random.Random) -> list[list[str]]:
    cut: list[list[list[str]]] = []
    for pmids in by_label.values():
        rng.shuffle(pmids)
        size = math.ceil(len(pmids) / parts)
        cut.append([pmids[number * size : (number + 1) * size] for number in range(parts)])
    output = [[pmid for pieces in cut for pmid in pieces[number]] for number in range(parts)]
    if len(output[-1]) != len(output[0]):
        for part in output[:-1]:
            picked = rng.choice(part)
            output[-1].append(picked)
            part.remove(picked)
    return output


def _article(doc: Document) -> str:
    return doc.meta.part_of or doc.meta.pmid or doc.id


def _draw(name: str, seed: int) -> bytes:
    return hashlib.sha256(f"{seed}\t{name}".encode()).digest()
