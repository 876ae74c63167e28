"""link: mentions that documents already have get the ids of their concepts; no model runs."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lexome.concepts.abbreviations import annotate_abbreviations
from lexome.document import Document
from lexome.errors import UsageError
from lexome.formats import Tally, read, write, writing_format
from lexome.formats.conversion import input_files
from lexome.infer.concepts import Concepts, naming_options
from lexome.infer.selection import match_case
from lexome.progress import progress


@dataclass(slots=True)
class LinkCounts:
    """Mentions by type: linked, without an id that is likely enough, with the id they had, without a dictionary."""

    documents: int = 0
    linked: Counter[str] = field(default_factory=Counter)
    abstained: Counter[str] = field(default_factory=Counter)
    kept: Counter[str] = field(default_factory=Counter)
    no_dictionary: Counter[str] = field(default_factory=Counter)

    def as_dict(self) -> dict[str, Any]:
        """The counts for JSON, most frequent types first."""
        counters = ("linked", "abstained", "kept", "no_dictionary")
        return {"documents": self.documents, **{name: dict(getattr(self, name).most_common()) for name in counters}}


class Linking:
    """One pass of the linker over files: `documents` yields them, `write` writes them; counts are attributes.

    Mentions of `types`, by default all, get ids; those that have some keep them unless `overwrite`.
    """

    def __init__(
        self,
        concepts: Concepts,
        inputs: Sequence[Path],
        *,
        types: Sequence[str] | None = None,
        overwrite: bool = False,
        from_: str | None = None,
        read_options: Mapping[str, Any] | None = None,
        rejects: Path | None = None,
        progress_shown: bool = True,
    ) -> None:
        self.concepts, self.inputs, self.overwrite = concepts, inputs, overwrite
        self.types = None if types is None else _linkable(types, concepts)
        self.tally = Tally(rejects)
        self.counts = LinkCounts()
        self.seconds = 0.0
        self._from, self._read_options, self._progress_shown = from_, read_options or {}, progress_shown

    def documents(self) -> Iterator[Document]:
        """The linked documents, in order."""
        return self._link(input_files(self.inputs, self._from, self.tally, out=None))

    def write(self, out: Path, format: str | None, **options: object) -> None:
        """Write all documents to one file, or to one folder in a format that is written so."""
        files, rejects = input_files(self.inputs, self._from, self.tally, out=out), self.tally.rejects_path
        if rejects is not None and rejects.is_file():
            rejects.unlink()  # of an earlier run
        naming = naming_options(writing_format(out, format).name, self.concepts)
        write(out, self._link(files), format, tally=self.tally, **{**naming, **options})

    def as_dict(self) -> dict[str, Any]:
        """All counts for JSON."""
        tally = self.tally
        return {
            **self.counts.as_dict(),
            "written": tally.written,
            "rejected": dict(tally.rejected.most_common()),
            "notes": dict(tally.notes.most_common()),
            "files": dict(tally.files.most_common()),
            "failures": list(tally.failures),
            "seconds": round(self.seconds, 3),
        }

    def _link(self, files: Sequence[Path]) -> Iterator[Document]:
        tally, start = self.tally, time.monotonic()
        size = sum(path.stat().st_size for path in files if path.is_file())
        shown = self._progress_shown and size > 0
        docs = read(files, self._from, tally=tally, **self._read_options)
        with tally, progress("linking", total=size, position=lambda: tally.bytes_read, shown=shown) as track:
            yield from link_documents(
                track(docs), self.concepts, self.counts, types=self.types, overwrite=self.overwrite
            )
            self.seconds = time.monotonic() - start


def link_documents(
    docs: Iterable[Document],
    concepts: Concepts,
    counts: LinkCounts,
    *,
    types: Sequence[str] | None = None,
    overwrite: bool = False,
) -> Iterator[Document]:
    """The documents with ids for their mentions, counted.

    `types` are those of mentions or of dictionaries: Gene is also a mention of GeneOrGeneProduct.
    """
    linker = concepts.linker
    assert linker is not None
    for doc in docs:
        if concepts.finder is not None:
            doc = concepts.finder.find(doc)
        present = {span.type for span in doc.spans}
        wanted = {type for type in present if types is None or type in types or linker.linked_type(type) in types}
        linked = linker.link(doc, types=wanted, relink=overwrite)
        counts.documents += 1
        for before, after in zip(doc.spans, linked.spans, strict=True):
            if before.type not in wanted:
                continue
            if linker.linked_type(before.type) is None:
                counts.no_dictionary[before.type] += 1
            elif before.concepts and not overwrite:
                counts.kept[before.type] += 1
            else:
                (counts.linked if after.concepts else counts.abstained)[before.type] += 1
        yield next(annotate_abbreviations([linked])) if concepts.options.abbreviations else linked


def _linkable(types: Sequence[str], concepts: Concepts) -> tuple[str, ...]:
    """The types in the spelling of the dictionaries; UsageError for one that none has."""
    linker = concepts.linker
    assert linker is not None
    matched = match_case(types, sorted(linker.types))
    for type in matched:
        if linker.linked_type(type) is None:
            listed = ", ".join(sorted(linker.types)) or "none"
            message = f"no dictionary has concepts of the type {type!r}. Types: {listed}. Add one with --terms."
            raise UsageError(message, code="unknown-type", value=type)
    return matched
