"""Relations: pairs of annotated documents and of marked sentences, and the way back."""

from typing import Literal

import numpy as np
import pytest
from errors import raises
from task_rows import frame, perfect, tokenizer

from lexome.document import Argument, Document, Passage, Relation, Span, lay_out
from lexome.errors import BadDocument, UsageError
from lexome.tasks import Relations, task_of
from lexome.tasks.relation import mark_pair
from lexome.tasks.task import IGNORE_INDEX

TEXT = "Aspirin blocks COX1 and COX2. Ibuprofen blocks COX1 with aspirin."
LABELS = ("none", "INHIBITOR", "ACTIVATOR")
PAIRS = (("Chemical", "Gene"),)


def span(number: int, type_: str, start: int, end: int, text: str = TEXT, *concepts: str) -> Span:
    return Span(f"T{number}", type_, ((start, end),), text[start:end], concepts)


def related(number: int, type_: str, first: str, second: str) -> Relation:
    return Relation(f"R{number}", type_, (Argument("Chemical", first), Argument("Gene", second)))


def annotated(*relations: Relation, sentences: bool = True) -> Document:
    spans = (
        span(1, "Chemical", 0, 7),
        span(2, "Gene", 15, 19),
        span(3, "Gene", 24, 28),
        span(4, "Chemical", 30, 39),
        span(5, "Gene", 47, 51),
    )
    passage = Passage(0, TEXT, sentences=((0, 29), (30, len(TEXT))) if sentences else ())
    return Document("d", (passage,), spans, relations)


def told(doc: Document) -> set[tuple[str, frozenset[str | None]]]:
    return {
        (relation.type, frozenset(argument.target or argument.concept for argument in relation.arguments))
        for relation in doc.relations
    }


def again(task: Relations, doc: Document, size: int = 128) -> Document:
    rows = task.encode(doc, tokenizer(), frame(size), with_targets=True)
    return task.decode(doc, rows, perfect(task, rows))


def texts(task: Relations, doc: Document) -> list[str]:
    return [mark_pair(doc, pair, marking=task.marking, masks=task.masks).text for pair in task.candidates(doc)]


def test_pairs_of_a_sentence_are_masked_one_after_another() -> None:
    assert texts(Relations(LABELS, none="none", pairs=PAIRS), annotated()) == [
        "@CHEMICAL$ blocks @GENE$ and COX2.",
        "@CHEMICAL$ blocks COX1 and @GENE$.",
        "@CHEMICAL$ blocks @GENE$ with aspirin.",
    ]


def test_markers_keep_the_words() -> None:
    task = Relations(LABELS, none="none", pairs=(("Gene", "Chemical"),), marking="markers")
    assert texts(task, annotated())[0] == "[E2] Aspirin [/E2] blocks [E1] COX1 [/E1] and COX2."


def test_without_sentences_a_passage_is_one() -> None:
    assert len(texts(Relations(LABELS, none="none", pairs=PAIRS), annotated(sentences=False))) == 6


def test_relations_come_back_with_a_score_and_roles() -> None:
    doc = annotated(related(1, "INHIBITOR", "T1", "T2"), related(2, "ACTIVATOR", "T4", "T5"))
    found = again(Relations(LABELS, none="none", pairs=PAIRS), doc)
    assert told(found) == told(doc)
    assert [argument.role for argument in found.relations[0].arguments] == ["Chemical", "Gene"]
    assert found.relations[0].score == pytest.approx(1, abs=0.001)


def test_relations_of_types_that_are_not_the_tasks_stay() -> None:
    doc = annotated(related(1, "INHIBITOR", "T1", "T2"), related(7, "OTHER", "T2", "T3"))
    task = Relations(LABELS, none="none", pairs=PAIRS, others="none")
    assert told(again(task, doc)) == told(doc)


def test_relations_of_types_that_are_not_asked_for_stay() -> None:
    doc = annotated(related(1, "INHIBITOR", "T1", "T2"), related(2, "ACTIVATOR", "T4", "T5"))
    task = Relations(LABELS, none="none", pairs=PAIRS)
    examples = task.encode(doc, tokenizer(), frame(128), with_targets=True)
    bare = annotated(related(1, "INHIBITOR", "T1", "T3"))
    found = task.decode(bare, examples, perfect(task, examples), types=["ACTIVATOR"])
    assert [(one.id, one.type, one.score is None) for one in found.relations] == [
        ("R1", "INHIBITOR", True),
        ("R2", "ACTIVATOR", False),
    ]


def test_what_refers_to_a_replaced_relation_goes_with_it() -> None:
    doc = annotated(related(1, "INHIBITOR", "T1", "T2"), related(7, "OTHER", "R1", "T3"))
    task = Relations(LABELS, none="none", pairs=PAIRS, others="none")
    assert [one.type for one in again(task, doc).relations] == ["INHIBITOR"]


def test_two_of_the_same_type_are_asked_once() -> None:
    task = Relations(LABELS, none="none", pairs=(("Gene", "Gene"),))
    assert [(pair.first.name, pair.second.name) for pair in task.candidates(annotated())] == [("T2", "T3")]


def test_a_relation_over_two_sentences_is_counted_and_scored_as_missed() -> None:
    doc = annotated(related(1, "INHIBITOR", "T1", "T5"), related(2, "INHIBITOR", "T1", "T2"))
    task = Relations(LABELS, none="none", pairs=PAIRS)
    found = again(task, doc)
    assert task.notes == {"relation skipped: its entities are no pair of these types in one sentence": 1}
    assert task.score([doc], [found])["recall"] == 0.5


def test_scores_count_a_spurious_relation() -> None:
    gold, found = (
        annotated(related(1, "INHIBITOR", "T1", "T2")),
        annotated(related(1, "INHIBITOR", "T1", "T2"), related(2, "ACTIVATOR", "T1", "T3")),
    )
    scores = Relations(LABELS, none="none", pairs=PAIRS).score([gold], [found])
    assert (scores["precision"], scores["recall"], scores["accuracy"]) == (0.5, 1, pytest.approx(2 / 3))


@pytest.mark.parametrize(("others", "target"), [("none", 0), ("skip", IGNORE_INDEX)])
def test_other_relations_are_none_or_not_asked(others: str, target: int) -> None:
    task = task_of({"kind": "relation", "labels": LABELS, "none": "none", "pairs": PAIRS, "others": others})
    rows = task.encode(annotated(related(1, "CPR:1", "T1", "T2")), tokenizer(), frame(), with_targets=True)
    assert rows[0].targets is not None
    assert rows[0].targets.tolist() == [target]
    assert sum(task.notes.values()) == 1


@pytest.mark.parametrize("others", ["none", "skip"])
def test_a_relation_of_another_type_never_takes_the_place_of_one_that_is_asked(others: Literal["none", "skip"]) -> None:
    doc = annotated(related(1, "CPR:1", "T1", "T2"), related(2, "INHIBITOR", "T1", "T2"))
    task = Relations(LABELS, none="none", pairs=PAIRS, others=others)
    rows = task.encode(doc, tokenizer(), frame(), with_targets=True)
    assert rows[0].targets is not None
    assert rows[0].targets.tolist() == [LABELS.index("INHIBITOR")]
    assert task.score([doc], [annotated(related(1, "INHIBITOR", "T1", "T2"))])["f1"] == 1


def test_annotated_documents_without_pairs_of_types_are_refused_with_what_is_lacking() -> None:
    with raises(BadDocument, code="no_label"):
        Relations(LABELS).encode(
            annotated(related(1, "INHIBITOR", "T1", "T2")), tokenizer(), frame(), with_targets=True
        )


def test_other_relations_are_refused_unless_said() -> None:
    task = Relations(LABELS, none="none", pairs=PAIRS)
    with raises(BadDocument, code="unknown_label", mentions="CPR:1"):
        task.encode(annotated(related(1, "CPR:1", "T1", "T2")), tokenizer(), frame(), with_targets=True)


def test_entities_that_overlap_are_one_mask() -> None:
    text = "EGFR inhibitor works"
    spans = (span(1, "Chemical", 0, 14, text), span(2, "Gene", 0, 4, text))
    doc = Document("d", lay_out((("sentence", text),)), spans)
    assert texts(Relations(LABELS, none="none", pairs=PAIRS), doc) == ["@CHEMICAL-GENE$ works"]
    markers = Relations(LABELS, none="none", pairs=PAIRS, marking="markers")
    assert texts(markers, doc) == ["[E1] [E2] EGFR inhibitor [/E2] [/E1] works"]


def test_concepts_are_related_over_a_document_with_all_their_mentions_marked() -> None:
    text = "Lithium gave tremor. Tremor came with lithium."
    spans = (
        span(1, "Chemical", 0, 7, text, "mesh:D008094"),
        span(2, "Disease", 13, 19, text, "mesh:D014202"),
        span(3, "Disease", 21, 27, text, "mesh:D014202"),
        span(4, "Chemical", 38, 45, text, "mesh:D008094"),
    )
    sides = (Argument("Chemical", concept="mesh:D008094"), Argument("Disease", concept="mesh:D014202"))
    doc = Document("d", lay_out((("abstract", text),)), spans, (Relation("R1", "CID", sides),))
    task = Relations(("none", "CID"), none="none", pairs=(("Chemical", "Disease"),), scope="document", level="concept")
    assert texts(task, doc) == ["@CHEMICAL$ gave @DISEASE$. @DISEASE$ came with @CHEMICAL$."]
    assert told(again(task, doc)) == told(doc)


def test_mentions_are_related_as_their_concepts_are() -> None:
    text = "Lithium gave tremor"
    spans = (span(1, "Chemical", 0, 7, text, "mesh:D008094"), span(2, "Disease", 13, 19, text, "mesh:D014202"))
    sides = (Argument("Chemical", concept="mesh:D008094"), Argument("Disease", concept="mesh:D014202"))
    doc = Document("d", lay_out((("abstract", text),)), spans, (Relation("R1", "CID", sides),))
    task = Relations(("none", "CID"), none="none", pairs=(("Chemical", "Disease"),))
    found = again(task, doc)
    assert told(found) == {("CID", frozenset({"T1", "T2"}))}
    assert task.score([doc], [found])["f1"] == 1


def test_a_pair_in_a_long_sentence_keeps_the_text_around_it() -> None:
    text = "the gene " * 40 + "Aspirin blocks COX1" + " the gene" * 40
    start = text.index("Aspirin")
    spans = (span(1, "Chemical", start, start + 7, text), span(2, "Gene", start + 15, start + 19, text))
    sides = (Argument("Chemical", "T1"), Argument("Gene", "T2"))
    doc = Document("d", lay_out((("abstract", text),)), spans, (Relation("R1", "INHIBITOR", sides),))
    task = Relations(LABELS, none="none", pairs=PAIRS)
    (row,) = task.encode(doc, tokenizer(), frame(64), with_targets=True)
    assert len(row.ids) <= 64
    assert tokenizer().vocabulary["@"] in row.ids.tolist()
    assert task.notes == {"text far from a pair skipped": 1}
    assert told(again(task, doc, 64)) == told(doc)


def test_a_pair_farther_apart_than_a_row_is_read_in_windows() -> None:
    text = "Aspirin " + "the gene " * 60 + "COX1"
    spans = (span(1, "Chemical", 0, 7, text), span(2, "Gene", len(text) - 4, len(text), text))
    sides = (Argument("Chemical", "T1"), Argument("Gene", "T2"))
    doc = Document("d", lay_out((("abstract", text),)), spans, (Relation("R1", "INHIBITOR", sides),))
    task = Relations(LABELS, none="none", pairs=PAIRS)
    assert len(task.encode(doc, tokenizer(), frame(64), with_targets=True)) > 2
    assert told(again(task, doc, 64)) == told(doc)


def test_sentences_already_marked_carry_a_label() -> None:
    doc = Document("d", lay_out((("sentence", "@GENE$ causes @DISEASE$"),)), labels=("1",))
    task = Relations(("0", "1"), scored=("1",))
    assert again(task, doc).labels == ("1",)
    assert task.none == "0"


def test_a_pair_without_numbers_is_an_error() -> None:
    task = Relations(LABELS, none="none", pairs=PAIRS)
    rows = task.encode(annotated(), tokenizer(), frame(), with_targets=False)
    with raises(UsageError, code="missing-example", value=("T1", "T3")):
        task.decode(annotated(), rows[:1], [np.zeros(3)])


@pytest.mark.parametrize(
    ("settings", "code", "value"),
    [
        ({"labels": ["a", "b"], "pairs": PAIRS}, "missing-key", "none"),
        ({"labels": ["a", "b"], "none": "c"}, "invalid-choice", "c"),
        ({"labels": ["a"], "none": "a", "pairs": PAIRS, "level": "concept"}, "conflicting-settings", "scope"),
        ({"labels": ["a"], "marking": "bold"}, "invalid-choice", "bold"),
    ],
)
def test_wrong_settings_of_relations_are_refused(settings: dict[str, object], code: str, value: object) -> None:
    with raises(UsageError, code=code, value=value):
        task_of({"kind": "relation", **settings})
