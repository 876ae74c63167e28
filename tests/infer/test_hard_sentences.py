"""Sentences that are hard for an annotator: precision and recall by type, with the default model's rules and without.

`pytest -s` prints the tables; benchmarks/annotator_rules.py records them.
"""

import pytest
from hard_sentences import documents, mentions, scores, sentences

from lexome import load
from lexome.document import Document, Passage
from lexome.infer.annotator import Annotator

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


@pytest.fixture(scope="module")
def annotator() -> Annotator:
    return load(threads=1)


def test_the_rules_hold_on_hard_sentences(annotator: Annotator) -> None:
    rows = sentences()
    docs = documents(rows)
    before = scores(rows, annotator.annotate(docs, overlaps="keep", without_rules=("all",), min_score=0.0))
    annotated = list(annotator.annotate(docs))
    after = scores(rows, annotated)
    print(f"\n{len(rows)} sentences: precision, recall, F1 of the model alone, and with rules")
    for type_, values in after.items():
        print(f"{type_:<9}", *(f"{value:6.3f}" for value in (*before[type_][:3], *values[:3])))
    for row, doc in zip(rows, annotated, strict=True):
        if row.mentions != mentions(doc):
            parts = (row.mentions - mentions(doc), mentions(doc) - row.mentions)
            missed, spurious = (sorted((row.text[a:b], type_) for a, b, type_ in part) for part in parts)
            print(f"{row.section}: {row.text}\n    missed {missed}, spurious {spurious}")
    for type_, least in MIN_F1.items():
        assert after[type_].f1 >= least, type_
        assert after[type_].f1 >= before[type_].f1, type_
    general = [doc for row, doc in zip(rows, annotated, strict=True) if "general" in row.section]
    assert len(general) == 12
    assert sum(len(doc.spans) for doc in general) <= MAX_IN_GENERAL_ENGLISH


def test_there_are_a_hundred_sentences_of_all_types() -> None:
    rows = sentences()
    assert len(rows) >= 100
    types = {type_ for row in rows for *_, type_ in row.mentions}
    assert types == {"Gene", "Disease", "Chemical", "Species", "CellLine", "Variant"}


def test_copies_of_a_sentence_keep_their_mentions(annotator: Annotator) -> None:
    """Three copies in one text, with another sentence between them, have the same mentions with the same scores."""
    between = " Nothing else was found in this study. "
    rows = [row for row in sentences() if row.text.endswith(".")]
    docs = [Document(row.text, (Passage(0, between.join([row.text] * 3)),)) for row in rows]
    for row, doc in zip(rows, annotator.annotate(docs), strict=True):
        step = len(row.text + between)
        copies = [
            {(s.start % step, s.text, s.type, s.score) for s in doc.spans if s.start // step == i} for i in range(3)
        ]
        assert copies[0] == copies[1] == copies[2], row.text
