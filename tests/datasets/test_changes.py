"""What is done to a set's documents: nothing is lost in silence."""

import pytest

from lexome import Document, Relation, Span, Tally
from lexome.datasets.transforms import (
    each_once,
    in_one_part,
    labels_called,
    of_one_question,
    only_types,
    questions_of,
    sentences,
    typed_relations,
    types_called,
)
from lexome.document import Argument, Attribute, Passage, Question
from lexome.errors import DataSetError

TEXT = "left and right ventricle hold TP53"
DOC = Document(
    "d1",
    (Passage(0, TEXT, "sentence", source="d1.s0"), Passage(40, "TP53 acts.", "sentence", source="d1.s1")),
    (
        Span("T1", "Organ", ((0, 4), (15, 24)), "left ventricle"),
        Span("T2", "Gene", ((30, 34),), "TP53"),
        Span("T3", "Gene", ((40, 44),), "TP53"),
    ),
    (
        Relation("R1", "in", (Argument("a", "T2"), Argument("b", "T1"))),
        Relation("R2", "same", (Argument("a", "T2"), Argument("b", "T3"))),
    ),
    (Attribute("A1", "T1", "Negation"),),
)


def test_types_are_renamed_and_unknown_ones_refused() -> None:
    (doc,) = types_called({"Gene": "gene", "Organ": "organ"})([DOC], Tally())
    assert [span.type for span in doc.spans] == ["organ", "gene", "gene"]
    with pytest.raises(DataSetError, match="a mention of the type 'Organ'; expected one of Gene"):
        list(types_called({"Gene": "gene"})([DOC], Tally()))


def test_mentions_of_other_types_go_with_what_leans_on_them_and_are_counted() -> None:
    tally = Tally()
    (doc,) = only_types(("Gene",))([DOC], tally)
    assert ([span.id for span in doc.spans], [relation.id for relation in doc.relations]) == (["T2", "T3"], ["R2"])
    assert doc.attributes == ()
    assert tally.notes == {"mention left out: Organ": 1}


def test_a_document_that_comes_again_is_dropped_and_counted() -> None:
    tally = Tally()
    other = Document("d2", (Passage(0, TEXT),))
    assert [doc.id for doc in each_once([DOC, other, DOC], tally)] == ["d1", "d2"]
    assert tally.notes == {"document given twice left out": 1}


def test_a_mention_in_parts_becomes_all_between_its_ends() -> None:
    tally = Tally()
    (doc,) = in_one_part([DOC], tally)
    assert doc.spans[0].text == "left and right ventricle"
    assert tally.notes == {"mention in parts taken as one": 1}


def test_each_passage_is_a_document_with_what_lies_inside_it() -> None:
    first, second = sentences([DOC], Tally())
    assert (first.id, second.id, second.meta.part_of) == ("d1.s0", "d1.s1", "d1")
    assert [relation.id for relation in first.relations] == ["R1"]
    assert [(span.start, span.text) for span in second.spans] == [(0, "TP53")]


def test_relations_are_renamed_or_left_out_and_counted() -> None:
    tally = Tally()
    (doc,) = typed_relations({"in": "within", "same": None})([DOC], tally)
    assert [relation.type for relation in doc.relations] == ["within"]
    assert tally.notes == {"relation left out: its type is not known": 1}


def test_labels_are_renamed() -> None:
    docs = [Document("a", labels=("NA",)), Document("b", labels=("CPR:3",))]
    assert [doc.labels for doc in labels_called({"NA": "false"})(docs, Tally())] == [("false",), ("CPR:3",)]


def test_questions_of_a_type() -> None:
    docs = [Document(id, questions=(Question(id, "Why?", type),)) for id, type in (("a", "list"), ("b", "yesno"))]
    assert [doc.id for doc in questions_of(("yesno",))(docs, Tally())] == ["b"]


def test_the_documents_of_one_question_belong_together() -> None:
    docs = [Document(name, questions=(Question(f"q1_{name}", "Why?"),)) for name in ("000", "001")]
    made = list(of_one_question(docs, Tally()))
    assert {(doc.meta.part_of, doc.questions[0].type) for doc in made} == {("q1", "factoid")}
    with pytest.raises(DataSetError, match="has 0 questions"):
        list(of_one_question([Document("a")], Tally()))
