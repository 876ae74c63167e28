"""The sentences of hard_sentences.txt with their expected mentions, and scores; a benchmark uses them too."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from lexome.document import Document, Passage

SENTENCES = Path(__file__).with_name("hard_sentences.txt")
MARK = re.compile(r"\[([^\[\]|]+)\|(\w+)\]")

Mention = tuple[int, int, str]


class Sentence(NamedTuple):
    """A sentence, the section that it stands in and the mentions that are expected."""

    section: str
    text: str
    mentions: set[Mention]


class Scores(NamedTuple):
    """Precision, recall and F1, and how many mentions are expected."""

    precision: float
    recall: float
    f1: float
    expected: int


def sentences() -> list[Sentence]:
    """All sentences, in order."""
    rows, section = [], ""
    for line in SENTENCES.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        elif line and not line.startswith("#"):
            text, mentions, end = "", set(), 0
            for mark in MARK.finditer(line):
                text += line[end : mark.start()]
                mentions.add((len(text), len(text) + len(mark[1]), mark[2]))
                text += mark[1]
                end = mark.end()
            rows.append(Sentence(section, text + line[end:], mentions))
    return rows


def documents(rows: Iterable[Sentence]) -> list[Document]:
    """A document for each sentence."""
    return [Document(f"s{number}", (Passage(0, row.text),)) for number, row in enumerate(rows)]


def scores(rows: Sequence[Sentence], annotated: Iterable[Document]) -> dict[str, Scores]:
    """Scores of annotated documents, overall and by type."""
    right, found, wanted = Counter[str](), Counter[str](), Counter[str]()
    for row, doc in zip(rows, annotated, strict=True):
        predicted = mentions(doc)
        for counter, part in ((right, row.mentions & predicted), (found, predicted), (wanted, row.mentions)):
            counter.update(type_ for *_, type_ in part)
            counter["all"] += len(part)
    return {
        type_: Scores(
            right[type_] / max(1, found[type_]),
            right[type_] / wanted[type_],
            2 * right[type_] / max(1, found[type_] + wanted[type_]),
            wanted[type_],
        )
        for type_ in sorted(wanted, key=lambda type_: (type_ != "all", type_))
    }


def mentions(doc: Document) -> set[Mention]:
    """Place and type of each mention of a document."""
    return {(span.start, span.end, span.type) for span in doc.spans}
