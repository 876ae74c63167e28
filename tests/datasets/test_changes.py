"""What is done to a set's documents: nothing is lost in silence."""

from errors import raises

from lexome import Document, Relation, Span, Tally
from lexome.datasets.transforms import (
    drop_duplicates,
    drop_relations,
    keep_question_types,
    keep_types,
    merge_span_parts,
    rename_labels,
    rename_types,
    single_question,
    split_passages,
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
    (doc,) = rename_types({"Gene": "gene", "Organ": "organ"})([DOC], Tally())
    assert [span.type for span in doc.spans] == ["organ", "gene", "gene"]
    with raises(DataSetError, code="unknown-type", value="Organ"):
        list(rename_types({"Gene": "gene"})([DOC], Tally()))


def test_mentions_of_other_types_go_with_what_leans_on_them_and_are_counted() -> None:
    tally = Tally()
    (doc,) = keep_types(("Gene",))([DOC], tally)
    assert ([span.id for span in doc.spans], [relation.id for relation in doc.relations]) == (["T2", "T3"], ["R2"])
    assert doc.attributes == ()
    assert tally.notes == {"mention skipped: Organ": 1}


def test_a_document_that_comes_again_is_dropped_and_counted() -> None:
    tally = Tally()
    other = Document("d2", (Passage(0, TEXT),))
    assert [doc.id for doc in drop_duplicates([DOC, other, DOC], tally)] == ["d1", "d2"]
    assert tally.notes == {"duplicate document skipped": 1}


def test_a_mention_in_parts_becomes_all_between_its_ends() -> None:
    tally = Tally()
    (doc,) = merge_span_parts([DOC], tally)
    assert doc.spans[0].text == "left and right ventricle"
    assert tally.notes == {"discontinuous mention taken as one": 1}


def test_each_passage_is_a_document_with_what_lies_inside_it() -> None:
    first, second = split_passages([DOC], Tally())
    assert (first.id, second.id, second.meta.part_of) == ("d1.s0", "d1.s1", "d1")
    assert [relation.id for relation in first.relations] == ["R1"]
    assert [(span.start, span.text) for span in second.spans] == [(0, "TP53")]


def test_relations_of_some_types_are_dropped_and_counted() -> None:
    tally = Tally()
    (doc,) = drop_relations(("same",))([DOC], tally)
    assert [relation.type for relation in doc.relations] == ["in"]
    assert tally.notes == {"relation skipped: unknown type": 1}


def test_labels_are_renamed() -> None:
    docs = [Document("a", labels=("NA",)), Document("b", labels=("CPR:3",))]
    assert [doc.labels for doc in rename_labels({"NA": "false"})(docs, Tally())] == [("false",), ("CPR:3",)]


def test_keep_question_types_a_type() -> None:
    docs = [Document(id, questions=(Question(id, "Why?", type),)) for id, type in (("a", "list"), ("b", "yesno"))]
    assert [doc.id for doc in keep_question_types(("yesno",))(docs, Tally())] == ["b"]


def test_the_documents_single_question_belong_together() -> None:
    docs = [Document(name, questions=(Question(f"q1_{name}", "Why?"),)) for name in ("000", "001")]
    made = list(single_question(docs, Tally()))
    assert {(doc.meta.part_of, doc.questions[0].type) for doc in made} == {("q1", "factoid")}
    with raises(DataSetError, code="question-count", value=0):
        list(single_question([Document("a")], Tally()))
