"""The document model: what can be built, and what cannot."""

from collections.abc import Callable

import pytest
from errors import raises
from hypothesis import given
from strategies import documents

from lexome import Answer, Argument, Attribute, Document, Passage, Question, Relation, Span
from lexome.document import lay_out
from lexome.errors import DocumentError

TEXT = "Left and right ventricle, BRCA1 and β-catenin."


def gene(start: int, end: int, text: str, **rest: object) -> Span:
    return Span("T1", "Gene", ((start, end),), text, **rest)  # type: ignore[arg-type]


def test_span_text_is_the_text_at_its_place() -> None:
    doc = Document("1", (Passage(0, TEXT),), (gene(26, 31, "BRCA1"),))
    assert doc.text_of(doc.spans[0]) == "BRCA1"


def test_a_span_whose_text_differs_cannot_be_built() -> None:
    with raises(DocumentError, code="offset_mismatch", value="T1", mentions="'RCA1 '"):
        Document("1", (Passage(0, TEXT),), (gene(27, 32, "BRCA1"),))


def test_offsets_count_characters_not_bytes() -> None:
    doc = Document("1", (Passage(0, "κ 👩\u200d🔬 p53"),), (gene(6, 9, "p53"),))
    assert doc.text_of(doc.spans[0]) == "p53"


def test_a_discontinuous_span_is_its_parts_joined_by_a_space() -> None:
    span = Span("T1", "Anatomy", ((0, 4), (15, 24)), "Left ventricle")
    doc = Document("1", (Passage(0, TEXT),), (span,))
    assert (doc.text_of(span), span.start, span.end) == ("Left ventricle", 0, 24)


def test_nested_and_overlapping_spans_are_allowed() -> None:
    spans = (
        Span("T1", "Anatomy", ((0, 24),), "Left and right ventricle"),
        Span("T2", "Anatomy", ((9, 24),), "right ventricle"),
        Span("T3", "Other", ((5, 14),), "and right"),
    )
    assert len(Document("1", (Passage(0, TEXT),), spans).spans) == 3


def test_passages_keep_their_offsets_and_gaps_are_line_breaks() -> None:
    doc = Document("1", (Passage(0, "Title."), Passage(8, "Text.")))
    assert doc.text == "Title.\n\nText."


def test_a_span_over_a_gap_cannot_be_built() -> None:
    with raises(DocumentError, code="bad_offset", value=(3, 9)):
        Document("1", (Passage(0, "Title."), Passage(7, "Text.")), (gene(3, 9, "le.\nTe"),))


@pytest.mark.parametrize(
    "parts",
    [(), ((3, 3),), ((5, 8), (0, 3)), ((0, 4), (2, 6))],
)
def test_invalid_ranges_cannot_be_built(parts: tuple[tuple[int, int], ...]) -> None:
    with raises(DocumentError, code="bad_span", value="T1"):
        Span("T1", "Gene", parts, "text")


def test_overlapping_passages_cannot_be_built() -> None:
    with raises(DocumentError, code="passage_overlap", value=3):
        Document("1", (Passage(0, "Title."), Passage(3, "Text.")))


@pytest.mark.parametrize("offset", [-1, 10**15])
def test_an_offset_out_of_bounds_cannot_be_built(offset: int) -> None:
    with raises(DocumentError, code="bad_offset", value=offset):
        Passage(offset, "Title.")


def test_half_a_surrogate_pair_cannot_be_built() -> None:
    with raises(DocumentError, code="not_unicode", value=2):
        Passage(0, "ab\ud83d")


def test_sentences_outside_their_passage_cannot_be_built() -> None:
    with raises(DocumentError, code="bad_offset", value=(0, 9)):
        Passage(0, "Title.", sentences=((0, 9),))


def test_a_concept_that_is_no_curie_cannot_be_built() -> None:
    with raises(DocumentError, code="bad_concept", value="672"):
        gene(0, 5, "BRCA1", concepts=("672",))


def test_a_score_that_is_no_number_cannot_be_built() -> None:
    with raises(DocumentError, code="bad_score"):
        gene(0, 5, "BRCA1", score=float("nan"))
    with raises(DocumentError, code="bad_score"):
        Relation("R1", "Bind", (), score=float("inf"))
    for scores in ((0.5, 0.5), (float("nan"),)):
        with raises(DocumentError, code="bad_score", value=scores):
            Document("d", labels=("a",), label_scores=scores)


def test_ids_used_twice_cannot_be_built() -> None:
    spans = (gene(26, 31, "BRCA1"), gene(0, 4, "Left"))
    with raises(DocumentError, code="duplicate_id", value="T1"):
        Document("1", (Passage(0, TEXT),), spans)


def test_a_relation_to_nothing_cannot_be_built() -> None:
    relation = Relation("R1", "binds", (Argument("Subject", target="T9"),))
    with raises(DocumentError, code="unknown_target", value="T9"):
        Document("1", (Passage(0, TEXT),), (), (relation,))


def test_an_attribute_of_nothing_cannot_be_built() -> None:
    with raises(DocumentError, code="unknown_target", value="T9"):
        Document("1", attributes=(Attribute("A1", "T9", "Negation"),))


def test_an_argument_is_a_target_or_a_concept_and_not_both() -> None:
    with raises(DocumentError, code="bad_relation", value="Subject"):
        Argument("Subject", target="T1", concept="mesh:D001943")


def test_an_answer_must_stand_where_it_says() -> None:
    question = Question("Q1", "Which gene?", answers=(Answer("BRCA1", 0),))
    with raises(DocumentError, code="offset_mismatch", value="Q1"):
        Document("1", (Passage(0, TEXT),), questions=(question,))


def test_documents_are_frozen() -> None:
    with pytest.raises(AttributeError):
        Document("1").id = "2"  # type: ignore[misc]


def test_place_puts_passages_one_apart() -> None:
    assert [passage.offset for passage in lay_out([("title", "Title."), ("abstract", "Text.")])] == [0, 7]


@given(documents())
def test_every_span_slices_the_whole_text(doc: Document) -> None:
    for span in doc.spans:
        assert " ".join(doc.text[start:end] for start, end in span.parts) == span.text


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: Document.from_text("x", id=7), "bad_id"),  # type: ignore[arg-type]  # as pandas has ids
        (lambda: Document.from_text(None), "not_text"),  # type: ignore[arg-type]
        (lambda: Document.from_text(float("nan")), "not_text"),  # type: ignore[arg-type]
        (lambda: Passage(0, b"x"), "not_text"),  # type: ignore[arg-type]
        (lambda: Document("1", [Passage(0, "x")]), "bad_type"),  # type: ignore[arg-type]
        (lambda: Document("1", "x"), "bad_type"),  # type: ignore[arg-type]
        (lambda: Span("T1", "Gene", (0, 1), "x"), "bad_span"),  # type: ignore[arg-type]
    ],
)
def test_values_of_another_type_are_refused(make: Callable[[], object], code: str) -> None:
    with raises(DocumentError, code=code):
        make()
