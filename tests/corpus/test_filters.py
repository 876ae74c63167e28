"""Reasons to drop documents and passages."""

import pytest

from lexome.corpus.ingest import metadata_reason, running_text, text_reason
from lexome.document import Argument, Document, Passage, Relation, Span
from lexome.formats.tally import Tally
from lexome.metadata import Metadata, Notice


@pytest.mark.parametrize(
    ("meta", "licenses", "retracted", "reason"),
    [
        (Metadata(), "any", "drop", None),
        (Metadata(), "commercial", "drop", "license"),
        (Metadata(license="cc-by-4.0"), "commercial", "drop", None),
        (Metadata(article_types=("Retracted Publication",)), "any", "drop", "retracted"),
        (Metadata(notices=(Notice("RetractionIn", "1"),)), "commercial", "drop", "retracted"),
        (Metadata(article_types=("Retracted Publication",)), "any", "keep", None),
        (Metadata(article_types=("Retraction of Publication",)), "any", "drop", None),
    ],
)
def test_what_a_document_says_of_itself(meta: Metadata, licenses: str, retracted: str, reason: str | None) -> None:
    assert metadata_reason(Document("x", meta=meta), licenses=licenses, retracted=retracted) == reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("the heart of", "too_short"),
        ("the heart of the mouse is small and it was weighed", None),
        ("le coeur de la souris est dans le corps et il est petit", "language"),
    ],
)
def test_what_a_text_is_dropped_for(text: str, reason: str | None) -> None:
    words = text.split()
    assert text_reason(words, len(words), languages=("en",), min_words=5) == reason


def test_every_language_stays_where_none_is_named() -> None:
    assert text_reason(["le", "coeur"], 2, languages=(), min_words=1) is None


def test_passages_that_are_no_running_text_are_left_out_and_noted() -> None:
    passages = (
        Passage(0, "A title", "title"),
        Passage(8, "1\t2\n3\t4", "table"),
        Passage(16, "Le texte", "abstract", language="fre"),
        Passage(25, " ", "paragraph"),
        Passage(27, "The text", "abstract", language="eng"),
    )
    tally = Tally()
    doc = running_text(Document("x", passages), leave_out=("table",), languages=("en",), tally=tally)
    assert [passage.text for passage in doc.passages] == ["A title", "The text"]
    assert tally.notes == {
        "table left out": 1,
        "passage in another language left out": 1,
        "empty passage left out": 1,
    }


def test_spans_in_what_is_left_out_go_with_their_relations() -> None:
    passages = (Passage(0, "BRCA1 binds"), Passage(12, "TP53", "table"))
    spans = (Span("T1", "Gene", ((0, 5),), "BRCA1"), Span("T2", "Gene", ((12, 16),), "TP53"))
    relation = Relation("R1", "binds", (Argument("a", "T1"), Argument("b", "T2")))
    doc = Document("x", passages, spans, (relation,))
    kept = running_text(doc, leave_out=("table",), languages=(), tally=Tally())
    assert ([span.id for span in kept.spans], kept.relations) == (["T1"], ())


def test_a_document_that_loses_nothing_is_the_same_object() -> None:
    doc = Document("x", (Passage(0, "text"),))
    assert running_text(doc, leave_out=("table",), languages=("en",), tally=Tally()) is doc
