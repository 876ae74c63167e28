"""The corpus table: documents, words and bytes of each source, what was dropped and why, and the licences."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from lexome.corpus.claim import said
from lexome.recipe.build import BuildRecipe

_COUNTS = ("drops", "set_aside", "leaks", "licences", "notes")


@dataclass(frozen=True, slots=True)
class SourceCount:
    """What one source came to."""

    name: str
    read: int
    documents: int
    words: int
    bytes: int
    drops: dict[str, int]
    set_aside: dict[str, int]
    leaks: dict[str, int]
    licences: dict[str, int]
    notes: dict[str, int]


@dataclass(frozen=True, slots=True)
class Corpus:
    """A finished corpus: its sources, its files, and the identity of recipe and inputs ("" where files failed)."""

    identity: str
    sources: tuple[SourceCount, ...]
    files: tuple[str, ...]
    near_pairs_compared: int
    recipe: dict[str, Any]

    @classmethod
    def load(cls, out: Path) -> Self | None:
        """The corpus that an earlier run has finished in a folder, if it can be read."""
        try:
            stored = json.loads((out / "corpus.json").read_text(encoding="utf-8"))
            sources = tuple(SourceCount(**source) for source in stored.pop("sources"))
            return cls(sources=sources, files=tuple(stored.pop("files")), **stored)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    @property
    def total(self) -> SourceCount:
        """All sources together."""
        return SourceCount(
            "all",
            *(sum(getattr(source, key) for source in self.sources) for key in ("read", "documents", "words", "bytes")),
            *(_added([asdict(source) for source in self.sources], key) for key in _COUNTS),
        )

    def markdown(self) -> str:
        """The table of the papers, then drops and licences, for people."""
        total = self.total
        everything = (*self.sources, total)
        sizes = [
            (part.name, f"{part.read:,}", f"{part.documents:,}", f"{part.words:,}", f"{part.bytes:,}")
            for part in everything
        ]
        parts = [_rows(("source", "read", "documents", "words", "bytes"), sizes)]
        for title, key, names in (
            ("dropped because", "drops", list(total.drops)),
            ("set aside as unreadable", "set_aside", list(total.set_aside)),
            ("found in benchmarks", "leaks", list(total.leaks)),
            ("licence", "licences", list(total.licences)),
        ):
            if names:
                lines = [(name, *(f"{getattr(part, key).get(name, 0):,}" for part in everything)) for name in names]
                parts.append(_rows((title, *(part.name for part in everything)), lines))
        return "\n\n".join(parts) + "\n"


def counted(
    recipe: BuildRecipe, reports: Mapping[str, Mapping[str, Any]], decided: Mapping[str, Any], *, identity: str
) -> Corpus:
    """The corpus from what reading and deciding reported."""
    sources = []
    for source in recipe.sources:
        mine = [report for name, report in reports.items() if name.partition("/")[0] == source.name]
        last = decided["sources"][source.name]
        drops = Counter(_added(mine, "drops")) + Counter(last["drops"])
        sources.append(
            SourceCount(
                name=source.name,
                read=sum(report["read"] for report in mine),
                documents=last["documents"],
                words=last["words"],
                bytes=last["bytes"],
                drops=dict(drops.most_common()),
                set_aside=_added(mine, "set_aside"),
                leaks=_added(mine, "leaks"),
                licences=last["licences"],
                notes=_added(mine, "notes"),
            )
        )
    files = tuple(f"records/{name}.parquet" for name in reports)
    return Corpus(identity, tuple(sources), files, decided["compared"], said(recipe))


def _added(reports: Sequence[Mapping[str, Any]], key: str) -> dict[str, int]:
    return dict(sum((Counter(report[key]) for report in reports), Counter()).most_common())


def _rows(head: tuple[str, ...], lines: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table with numbers to the right."""
    align = "| " + " | ".join(["---", *["---:"] * (len(head) - 1)]) + " |"
    return "\n".join([f"| {' | '.join(head)} |", align, *(f"| {' | '.join(line)} |" for line in lines)])
