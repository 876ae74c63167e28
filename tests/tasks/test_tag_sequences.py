"""Tags: mentions to tags and back, and the best sequence that a scheme allows."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lexome.tasks.tags import Scheme, Transitions, allowed, best_sequence, mentions_in, put, rules, tags_of

TYPES = ("Gene", "Drug")
SCHEMES: tuple[Scheme, ...] = ("iob2", "iobes")


@st.composite
def mentions(draw: st.DrawFn) -> list[tuple[int, int, str]]:
    """Mentions that lie apart, some of them side by side."""
    found = []
    at = 0
    for _ in range(draw(st.integers(0, 6))):
        start = at + draw(st.integers(0, 2))
        at = start + draw(st.integers(1, 4))
        found.append((start, at, draw(st.sampled_from(TYPES))))
    return found


@given(found=mentions(), scheme=st.sampled_from(SCHEMES))
def test_mentions_come_back_from_their_tags(found: list[tuple[int, int, str]], scheme: Scheme) -> None:
    tags = tags_of(TYPES, scheme)
    names = [tags[number] for number in put(found, 40, tags, scheme)]
    assert list(mentions_in(names)) == found
    assert allowed(names, scheme)


@given(data=st.data(), scheme=st.sampled_from(SCHEMES), count=st.integers(1, 4))
def test_the_best_sequence_is_the_best_of_all_that_are_allowed(data: st.DataObject, scheme: Scheme, count: int) -> None:
    tags = tags_of(("Gene",), scheme)
    numbers = st.floats(-3, 3, allow_nan=False, width=16)
    scores = np.array(
        data.draw(st.lists(st.lists(numbers, min_size=len(tags), max_size=len(tags)), min_size=count, max_size=count))
    )
    found = best_sequence(scores[:, None], rules(tags, scheme))[:, 0]
    names = [tags[number] for number in found]
    assert allowed(names, scheme)
    best = max(
        sum(scores[place, number] for place, number in enumerate(ways))
        for ways in product(range(len(tags)), repeat=count)
        if allowed([tags[number] for number in ways], scheme)
    )
    assert sum(scores[place, number] for place, number in enumerate(found)) == pytest.approx(best)


def test_a_crf_can_overrule_the_tags_own_numbers() -> None:
    scores = np.array([[[1.0, 0.0]], [[1.0, 0.0]]])
    crf = Transitions(np.array([[[0.0, 0.0], [0.0, 5.0]]]), np.zeros((1, 2)), np.zeros((1, 2)))
    assert best_sequence(scores, crf)[:, 0].tolist() == [1, 1]


def test_groups_are_decoded_side_by_side() -> None:
    tags = tags_of(("Gene",), "iob2")
    one, other = np.array([[0.0, 3, 0], [0, 0, 3]]), np.array([[3.0, 0, 0], [0, 0, 3]])
    found = best_sequence(np.stack((one, other), 1), rules(tags, "iob2"))
    assert found.T.tolist() == [[1, 2], [0, 0]]


def test_no_units_have_no_tags() -> None:
    assert best_sequence(np.zeros((0, 2, 3)), rules(tags_of(("Gene",), "iob2"), "iob2")).shape == (0, 2)
