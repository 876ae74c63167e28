"""Every document comes back exact from BioC XML and BioC JSON, whatever it holds."""

import io
from dataclasses import fields, is_dataclass, replace
from types import ModuleType
from typing import Any

import pytest
from errors import raises
from full_document import full_documents
from hypothesis import given
from hypothesis import strategies as st
from memory_files import source_of
from strategies import documents

from lexome import Attribute, Document, Passage, Tally
from lexome.errors import BadDocument
from lexome.formats import bioc_json, bioc_xml

FORMATS = pytest.mark.parametrize("format", [bioc_xml, bioc_json], ids=["xml", "json"])
WORDS = st.sampled_from(
    ["", "title", "front", "heading", "title_1", "fig_caption", "caption", "METHODS", "TITLE", "é & <", "\t"]
)


def round_trip(format: ModuleType, docs: list[Document]) -> list[Document]:
    stream = io.BytesIO()
    format.write(docs, stream, tally=Tally())
    source = source_of("a", stream.getvalue())
    return list(format.read(source, tally=Tally()))


@st.composite
def ranges(draw: st.DrawFn, passage: Passage) -> tuple[tuple[int, int], ...]:
    """Ranges of a passage, in order, some of them empty or touching."""
    cuts = draw(st.lists(st.integers(passage.offset, passage.end), max_size=6))
    edges = sorted(cuts)[: len(cuts) // 2 * 2]
    return tuple(zip(edges[::2], edges[1::2], strict=True))


@st.composite
def rich_documents(draw: st.DrawFn, *, keep: Any) -> Document:
    """Documents in which passages, spans and relations have all they can have, in any order."""
    doc = draw(documents(keep=keep))
    passages = tuple(
        replace(
            passage,
            kind=draw(WORDS),
            section=tuple(draw(st.lists(WORDS, max_size=2))),
            category=draw(st.none() | WORDS),
            language=draw(st.none() | WORDS),
            sentences=draw(ranges(passage)),
            tokens=draw(ranges(passage)),
        )
        for passage in doc.passages
    )
    spans = tuple(replace(span, score=draw(st.none() | st.floats(0, 1))) for span in draw(st.permutations(doc.spans)))
    targets = [item.id for item in (*doc.spans, *doc.relations)]
    attributes = (
        (Attribute("A1", draw(st.sampled_from(targets)), draw(WORDS), draw(st.text(max_size=3))),) if targets else ()
    )
    labels = tuple(draw(st.lists(WORDS, max_size=2)))
    return replace(doc, passages=passages, spans=spans, attributes=attributes, labels=labels)


@given(rich_documents(keep=bioc_xml.can_represent))
def test_xml_round_trip_is_exact(doc: Document) -> None:
    assert round_trip(bioc_xml, [doc]) == [doc]


@given(rich_documents(keep=lambda character: True))
def test_json_round_trip_is_exact(doc: Document) -> None:
    assert round_trip(bioc_json, [doc]) == [doc]


@given(documents())
def test_xml_takes_a_document_or_names_the_character_that_it_cannot_hold(doc: Document) -> None:
    if all(map(bioc_xml.can_represent, doc.text)):
        assert round_trip(bioc_xml, [doc]) == [doc]
    else:
        with raises(BadDocument, code="not_xml_text"):
            round_trip(bioc_xml, [doc])


def test_full_documents_come_back_from_json() -> None:
    docs = full_documents()
    assert round_trip(bioc_json, docs) == docs


def test_full_documents_come_back_from_xml_without_their_nulls() -> None:
    docs = [_spaced(doc) for doc in full_documents()]
    assert round_trip(bioc_xml, docs) == docs


def _spaced(value: Any) -> Any:
    """The same value with spaces for the characters that XML cannot hold."""
    if isinstance(value, str):
        return "".join(character if bioc_xml.can_represent(character) else " " for character in value)
    if isinstance(value, tuple):
        return tuple(map(_spaced, value))
    if is_dataclass(value):
        return replace(value, **{field.name: _spaced(getattr(value, field.name)) for field in fields(value)})  # type: ignore[type-var]
    return value
