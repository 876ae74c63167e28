"""Spans whose offsets miss their text."""

import pytest

from lexome import Argument, Attribute, Passage, Relation, Span, Tally
from lexome.formats.tally import MAX_SHIFT, find_nearest, repair_spans, text_at

TITLE = Passage(0, "Zorin and zorin", "title")
TEXT = Passage(20, "In mice zorin binds left and right kinase.")


def span(start: int, end: int, text: str) -> Span:
    return Span("T1", "Gene", ((start, end),), text)


def mended(found: Span, tally: Tally | None = None) -> tuple[Span, ...]:
    return repair_spans((TITLE, TEXT), (found,), tally=tally or Tally())[0]


def test_a_span_that_is_right_stays_as_it_is() -> None:
    tally = Tally()
    assert mended(span(28, 33, "zorin"), tally) == (span(28, 33, "zorin"),)
    assert not tally.notes


def test_a_span_moves_to_the_nearest_place_of_its_text() -> None:
    tally = Tally()
    assert mended(span(26, 31, "zorin"), tally) == (span(28, 33, "zorin"),)
    assert tally.notes == {"span moved to its text": 1}


def test_a_span_may_move_into_another_passage() -> None:
    assert mended(span(19, 24, "zorin")) == (span(10, 15, "zorin"),)


@pytest.mark.parametrize("place", [(16, 19), (900, 905), (28, 29)], ids=["a gap", "beyond the end", "too short"])
def test_a_span_that_cannot_be_is_placed_or_dropped(place: tuple[int, int]) -> None:
    expected = (
        () if place == (900, 905) else (span(10, 15, "zorin"),) if place == (16, 19) else (span(28, 33, "zorin"),)
    )
    assert mended(span(*place, "zorin")) == expected


def test_spaces_around_a_mention_may_go() -> None:
    assert mended(span(28, 33, " zorin  ")) == (span(28, 33, "zorin"),)


def test_the_parts_of_a_discontinuous_span_move_together() -> None:
    found = Span("T1", "Gene", ((41, 45), (56, 62)), "left kinase")
    assert mended(found) == (Span("T1", "Gene", ((40, 44), (55, 61)), "left kinase"),)


def test_what_refers_to_a_dropped_span_falls_with_it() -> None:
    tally = Tally()
    spans = (span(0, 5, "Zorin"), Span("T2", "Gene", ((0, 5),), "quux"))
    relations = (
        Relation("R1", "binds", (Argument("A", "T1"), Argument("B", concept="mesh:D1"))),
        Relation("R2", "binds", (Argument("A", "T1"), Argument("B", "T2"))),
        Relation("R3", "causes", (Argument("A", "R2"),)),
    )
    attributes = (Attribute("A1", "T1", "Negation"), Attribute("A2", "R3", "Negation"))
    assert repair_spans((TITLE,), spans, relations, attributes, tally=tally) == (
        spans[:1],
        relations[:1],
        attributes[:1],
    )
    assert tally.notes == {
        "span dropped: its text is not near its offsets": 1,
        "relation dropped: it refers to a dropped span": 2,
        "attribute dropped: its target was dropped": 1,
    }


def test_nearest_reaches_so_far_and_no_further() -> None:
    text = "x" * MAX_SHIFT + "zorin" + "x" * (MAX_SHIFT + 5)
    assert find_nearest(text, "zorin", 0) == MAX_SHIFT
    assert find_nearest("x" + text, "zorin", 0) is None
    assert find_nearest(text, "zorin", 2 * MAX_SHIFT) == MAX_SHIFT
    assert find_nearest(text, "zorin", 2 * MAX_SHIFT + 1) is None


def test_the_earlier_of_two_equally_near_places_is_taken() -> None:
    assert find_nearest("ab---ab", "ab", 3) == 5
    assert find_nearest("ab--ab", "ab", 2) == 0


def test_text_at_is_inside_one_passage() -> None:
    assert text_at((TITLE, TEXT), (20, 22)) == "In"
    assert text_at((TITLE, TEXT), (10, 22)) is None


def test_a_long_chain_of_relations_falls_at_once() -> None:
    count = 20_000
    first = Relation("R0", "Binds", (Argument("Theme", "T1"),))
    chain = [Relation(f"R{n}", "Binds", (Argument("Theme", f"R{n - 1}"),)) for n in range(1, count)]
    other = Relation("X", "Binds", (Argument("Theme", concept="mesh:D000001"),))
    tally = Tally()
    _, relations, _ = repair_spans((TEXT,), (span(900, 905, "quux"),), (*reversed(chain), other, first), tally=tally)
    assert relations == (other,)
    assert tally.notes["relation dropped: it refers to a dropped span"] == count
