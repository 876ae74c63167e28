"""Mentions at their characters, BC2GM's alternatives, and the matching under the relaxed score."""

import random
from itertools import combinations
from pathlib import Path

from errors import raises
from hypothesis import given
from hypothesis import strategies as st

import lexome
from lexome import Document, Passage, Span
from lexome.errors import UsageError
from lexome.tasks.metrics import (
    Counts,
    Mention,
    bc2gm,
    characters,
    mentions,
    spans_discontinuous,
    spans_relaxed,
    spans_strict,
)
from lexome.tasks.metrics.spans import largest_matching, overlap, overlapping


def m(type: str, *parts: tuple[int, int]) -> Mention:
    return Mention(type, parts)


def test_strict_asks_for_type_and_place() -> None:
    gold = [[m("Gene", (0, 5)), m("Gene", (10, 15)), m("Disease", (20, 25))]]
    found = [[m("Gene", (0, 5)), m("Gene", (10, 14)), m("Gene", (20, 25))]]
    score = spans_strict(gold, found)
    assert score.types == {"Disease": Counts(0, 0, 1), "Gene": Counts(1, 2, 1)}
    assert score.f1 == 1 / 3
    assert spans_strict(gold, found, typed=False).total == Counts(2, 1, 1)


def test_relaxed_asks_for_type_and_a_shared_character() -> None:
    gold = [[m("Gene", (0, 5)), m("Gene", (10, 15)), m("Disease", (20, 25))]]
    found = [[m("Gene", (4, 9)), m("Gene", (15, 18)), m("Gene", (20, 25))]]
    assert spans_relaxed(gold, found).total == Counts(1, 2, 2)
    assert spans_relaxed(gold, found, typed=False).total == Counts(2, 1, 1)


def test_one_found_mention_makes_one_gold_one_right() -> None:
    gold, wide = [[m("G", (0, 2)), m("G", (3, 5)), m("G", (6, 8))]], [[m("G", (0, 8))]]
    assert spans_relaxed(gold, wide).total == Counts(1, 0, 2)
    assert spans_relaxed(wide, gold).total == Counts(1, 2, 0)


def test_as_many_pairs_as_can_be() -> None:
    # Whoever pairs the first with the first leaves the second alone.
    gold = [[m("G", (0, 6)), m("G", (8, 9))]]
    found = [[m("G", (5, 10)), m("G", (0, 3))]]
    assert spans_relaxed(gold, found).total == Counts(2, 0, 0)


def test_the_same_are_paired_first() -> None:
    gold = [[m("G", (0, 4)), m("G", (3, 8))]]
    found = [[m("G", (0, 4)), m("G", (0, 2))]]
    assert spans_relaxed(gold, found).total == Counts(1, 1, 1)


def test_what_is_said_twice_counts_once() -> None:
    gold, found = [[m("G", (0, 4))]], [[m("G", (0, 4)), m("G", (0, 4))]]
    assert spans_strict(gold, found).total == Counts(1, 0, 0)


def test_all_parts_of_a_discontinuous_mention_must_be_right() -> None:
    gold = [[m("G", (0, 4), (15, 24)), m("G", (30, 33))]]
    found = [[m("G", (0, 4)), m("G", (30, 33))]]
    assert spans_strict(gold, found).total == Counts(1, 1, 1)
    assert spans_relaxed(gold, found).total == Counts(2, 0, 0)
    assert spans_discontinuous(gold, found).total == Counts(0, 0, 1)
    assert characters(gold, found).total == Counts(7, 0, 9)


def test_between_its_parts_a_mention_is_not() -> None:
    assert not overlap(((0, 4), (15, 24)), ((5, 14),))


def test_parts_that_touch_are_one() -> None:
    assert spans_strict([[m("G", (0, 4), (4, 8))]], [[m("G", (0, 8))]]).f1 == 1
    assert spans_discontinuous([[m("G", (0, 4), (4, 8))]], [[]]).total == Counts(0, 0, 0)


def test_characters_count_once() -> None:
    gold, found = [[m("G", (0, 10)), m("G", (2, 5))]], [[m("G", (5, 15))]]
    assert characters(gold, found).total == Counts(5, 5, 5)


def test_mentions_of_a_document_are_of_the_types_asked() -> None:
    doc = Document(
        "1",
        (Passage(0, "BRCA1 and flu"),),
        (Span("T1", "Disease", ((10, 13),), "flu"), Span("T2", "Gene", ((0, 5),), "BRCA1")),
    )
    assert mentions(doc) == [m("Gene", (0, 5)), m("Disease", (10, 13))]
    assert mentions(doc, {"Gene"}) == [m("Gene", (0, 5))]


def test_documents_come_in_pairs() -> None:
    for measure in (spans_strict, spans_relaxed, characters):
        with raises(UsageError, code="length-mismatch", value=(2, 1)):
            measure([[], []], [[]])


def test_bc2gm_by_hand() -> None:
    # The sentence's genes are at 0-10 and 20-30; 0-7 and 3-10 stand for the first, 50-60 for neither.
    gold, alternatives = [[(0, 10), (20, 30)]], [[(0, 7), (3, 10), (50, 60)]]
    for found, expected in [
        ([(0, 10), (20, 30)], Counts(2, 0, 0)),
        ([(0, 7)], Counts(1, 0, 1)),  # an alternative does as well
        ([(0, 7), (3, 10)], Counts(1, 0, 1)),  # two of them make one gene right, and neither is wrong
        ([(0, 5)], Counts(0, 1, 2)),  # overlap is not enough
        ([(50, 60)], Counts(0, 0, 2)),  # an alternative to nothing: not wrong, and makes nothing right
        ([(40, 45), (40, 45)], Counts(0, 2, 2)),  # what is wrong twice counts twice
        ([], Counts(0, 0, 2)),
    ]:
        assert bc2gm(gold, alternatives, [found]) == expected


def test_bc2gm_counts_what_its_program_printed(real_data: Path) -> None:
    # The corpus' own alt_eval.perl, given these predictions as a file, printed TP 4478, FP 1797, FN 1853.
    docs = sorted(lexome.read(real_data / "benchmarks" / "BC2GM" / "official" / "test"), key=lambda doc: doc.id)
    rng = random.Random(0)
    gold, alternatives, found = [], [], []
    for doc in docs:
        genes = [span.parts[0] for span in doc.spans if span.type == "GENE"]
        others = [span.parts[0] for span in doc.spans if span.type == "ALTGENE"]
        own = [place for place in genes if rng.random() < 0.6] + [place for place in others if rng.random() < 0.3]
        for start, end in genes:
            if rng.random() < 0.2 and end - start > 2:
                own.append((start, end - 1))
            if rng.random() < 0.1:
                own.append((max(0, start - 3), end))
        gold.append(genes)
        alternatives.append(others)
        found.append(own)
    assert bc2gm(gold, alternatives, found, texts=[doc.text for doc in docs]) == Counts(4478, 1797, 1853)


def test_one_alternative_can_stand_for_two_genes() -> None:
    assert bc2gm([[(0, 4), (6, 10)]], [[(0, 10)]], [[(0, 10)]]) == Counts(2, 0, 0)


def test_bc2gm_does_not_count_spaces() -> None:
    assert bc2gm([[(4, 8)]], [[]], [[(3, 8)]], texts=["the gene"]) == Counts(1, 0, 0)
    assert bc2gm([[(4, 8)]], [[]], [[(3, 8)]]) == Counts(0, 1, 1)


GRAPHS = st.lists(st.lists(st.integers(0, 4), unique=True, max_size=5), max_size=5)


@given(GRAPHS)
def test_no_other_matching_is_larger(neighbors: list[list[int]]) -> None:
    pairs = largest_matching(neighbors)
    assert all(right in neighbors[left] for left, right in pairs.items())
    assert len(set(pairs.values())) == len(pairs)
    edges = [(left, right) for left, rights in enumerate(neighbors) for right in rights]
    for larger in combinations(edges, len(pairs) + 1):
        lefts, rights = {left for left, _ in larger}, {right for _, right in larger}
        assert min(len(lefts), len(rights)) < len(larger)


MENTIONS = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 6), st.sampled_from("GD")).map(
        lambda drawn: m(drawn[2], (drawn[0], drawn[0] + drawn[1]))
    ),
    unique=True,
    max_size=12,
)


@given(MENTIONS, MENTIONS)
def test_overlaps_are_found_as_by_looking_at_all(left: list[Mention], right: list[Mention]) -> None:
    all_of_them = [[place for place, other in enumerate(right) if overlap(one.parts, other.parts)] for one in left]
    assert overlapping([one.parts for one in left], [one.parts for one in right]) == all_of_them


@given(MENTIONS, MENTIONS)
def test_relaxed_is_never_below_strict(gold: list[Mention], found: list[Mention]) -> None:
    strict, relaxed = spans_strict([gold], [found]).total, spans_relaxed([gold], [found]).total
    assert relaxed.true_positives >= strict.true_positives
    assert (relaxed.gold, relaxed.predicted) == (strict.gold, strict.predicted)
