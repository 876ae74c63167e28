"""Sentences that are hard for an annotator: precision and recall by type, with the default model's rules and without.

The expected mentions are in hard_sentences.txt, written by hand. `pytest -s` prints the tables.
"""

import re
from collections import Counter
from pathlib import Path

import pytest

from lexome import load
from lexome.document import Document, Passage
from lexome.infer.annotator import Annotator

SENTENCES = Path(__file__).parent / "hard_sentences.txt"
MARK = re.compile(r"\[([^\[\]|]+)\|(\w+)\]")

Mention = tuple[int, int, str]

# What the rules must reach, overall and by type. The model alone is far below most of them.
MIN_F1 = {
    "all": 0.93,
    "CellLine": 0.9,
    "Chemical": 0.92,
    "Disease": 0.93,
    "Gene": 0.92,
    "Species": 0.93,
    "Variant": 0.97,
}
# At most this many mentions in the twelve sentences of general English.
MAX_IN_GENERAL_ENGLISH = 1


def sentences() -> list[tuple[str, str, set[Mention]]]:
    """Section, text and mentions of each sentence."""
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
            rows.append((section, text + line[end:], mentions))
    return rows


@pytest.fixture(scope="module")
def annotator() -> Annotator:
    return load(threads=1)


def predict(annotator: Annotator, **options: object) -> list[set[Mention]]:
    docs = [Document(f"s{number}", (Passage(0, text),)) for number, (_, text, _) in enumerate(sentences())]
    return [
        {(span.start, span.end, span.type) for span in doc.spans}
        for doc in annotator.annotate(docs, **options)  # type: ignore[arg-type]
    ]


def scores(predicted: list[set[Mention]]) -> dict[str, tuple[float, float, float]]:
    """Precision, recall and F1 by type."""
    right, found, wanted = Counter[str](), Counter[str](), Counter[str]()
    for (_, _, gold), given in zip(sentences(), predicted, strict=True):
        for counter, mentions in ((right, gold & given), (found, given), (wanted, gold)):
            counter.update(type_ for *_, type_ in mentions)
            counter["all"] += len(mentions)
    return {
        type_: (
            right[type_] / max(1, found[type_]),
            right[type_] / wanted[type_],
            2 * right[type_] / max(1, found[type_] + wanted[type_]),
        )
        for type_ in sorted(wanted, key=lambda type_: (type_ != "all", type_))
    }


def test_the_rules_hold_on_hard_sentences(annotator: Annotator) -> None:
    before = scores(predict(annotator, overlaps="keep", without_rules=("all",), min_score=0.0))
    predicted = predict(annotator)
    after = scores(predicted)
    print(f"\n{len(sentences())} sentences: precision, recall, F1 of the model alone, and with rules")
    for type_, values in after.items():
        print(f"{type_:<9}", *(f"{value:6.3f}" for value in (*before[type_], *values)))
    for (section, text, gold), given in zip(sentences(), predicted, strict=True):
        if gold != given:
            missed, spurious = ({(text[a:b], t) for a, b, t in part} for part in (gold - given, given - gold))
            print(f"{section}: {text}\n    missed {sorted(missed)}, spurious {sorted(spurious)}")
    for type_, least in MIN_F1.items():
        assert after[type_][2] >= least, type_
        assert after[type_][2] >= before[type_][2], type_
    general = [given for (section, *_), given in zip(sentences(), predicted, strict=True) if "general" in section]
    assert len(general) == 12
    assert sum(map(len, general)) <= MAX_IN_GENERAL_ENGLISH


def test_there_are_a_hundred_sentences_of_all_types() -> None:
    rows = sentences()
    assert len(rows) >= 100
    types = {type_ for _, _, mentions in rows for *_, type_ in mentions}
    assert types == {"Gene", "Disease", "Chemical", "Species", "CellLine", "Variant"}


def test_copies_of_a_sentence_keep_their_mentions(annotator: Annotator) -> None:
    """Four copies in one text have the same mentions in each."""
    for _, text, _ in sentences()[:12]:
        doc = Document("copies", (Passage(0, " ".join([text] * 4)),))
        step = len(text) + 1
        (found,) = annotator.annotate([doc])
        copies = [{(s.start % step, s.text, s.type) for s in found.spans if s.start // step == i} for i in range(4)]
        assert copies[0] == copies[1] == copies[2] == copies[3]
