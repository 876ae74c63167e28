"""Tags: mentions to tags and back, and the best sequence that a scheme allows."""

from collections.abc import Iterator, Sequence
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lexome.tasks.ner import (
    Scheme,
    Transitions,
    best_valid_tags,
    decode_tags,
    encode_tags,
    scheme_transitions,
    tag_set,
    viterbi,
)

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
    tags = tag_set(TYPES, scheme)
    numbers = encode_tags(found, 40, tags, scheme)
    assert list(decode_tags(numbers, tags)) == found
    assert allowed(numbers.tolist(), scheme_transitions(tags, scheme))


def allowed(numbers: Sequence[int], grammar: Transitions) -> bool:
    """Whether a sequence of tags keeps to the scheme's rules."""
    edges = grammar.first[0, numbers[0]] + grammar.last[0, numbers[-1]]
    return bool(edges + sum(grammar.between[0, one, other] for one, other in pairwise(numbers)) == 0)


def conlleval(tags: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """Mentions as the program reads them, tag after tag."""
    begun, open_type = 0, ""
    for place, tag in enumerate((*tags, "O")):
        letter, _, type_ = tag.partition("-")
        if open_type and (letter in "OBS" or type_ != open_type):
            yield begun, place, open_type
            open_type = ""
        if letter != "O" and not open_type:
            begun, open_type = place, type_
        if letter in "ES":
            yield begun, place + 1, type_
            open_type = ""


@given(data=st.data(), scheme=st.sampled_from(SCHEMES), cut=st.integers(0, 8))
def test_any_tags_are_read_as_conlleval_reads_each_run_of_them(data: st.DataObject, scheme: Scheme, cut: int) -> None:
    tags = tag_set(TYPES, scheme)
    numbers = data.draw(st.lists(st.integers(0, len(tags) - 1), min_size=8, max_size=8))
    names = [tags[number] for number in numbers]
    expected = [*conlleval(names[:cut]), *((cut + one, cut + end, type_) for one, end, type_ in conlleval(names[cut:]))]
    assert list(decode_tags(np.array(numbers), tags, {0, cut})) == expected


def by_numpy(scores_UK: np.ndarray, crf: Transitions) -> list[int]:
    """Viterbi for one group, written plainly."""
    total, steps = scores_UK[0] + crf.first[0], []
    for scores in scores_UK[1:]:
        ways = total[:, None] + crf.between[0]
        steps.append(ways.argmax(0))
        total = ways.max(0) + scores
    chosen = [int((total + crf.last[0]).argmax())]
    for step in reversed(steps):
        chosen.append(int(step[chosen[-1]]))
    return chosen[::-1]


@given(seed=st.integers(0, 10_000), count=st.integers(1, 30), types=st.integers(1, 8), ties=st.booleans())
def test_few_tags_and_many_are_chosen_alike(seed: int, count: int, types: int, ties: bool) -> None:
    rng = np.random.default_rng(seed)
    tags = tag_set([f"T{number}" for number in range(types)], "iobes" if seed % 2 else "iob2")
    scores = rng.integers(-2, 1, (count, 1, len(tags))) * 1.0 if ties else rng.normal(size=(count, 1, len(tags)))
    size = len(tags)
    crf = Transitions(rng.normal(size=(1, size, size)), rng.normal(size=(1, size)), rng.normal(size=(1, size)))
    for transitions in (scheme_transitions(tags, "iobes" if seed % 2 else "iob2"), crf):
        assert viterbi(scores, transitions)[:, 0].tolist() == by_numpy(scores[:, 0], transitions)


@given(seed=st.integers(0, 10_000), scheme=st.sampled_from(SCHEMES), groups=st.integers(1, 6), cut=st.integers(0, 20))
def test_the_best_tags_of_runs_are_the_best_sequence_of_each(seed: int, scheme: Scheme, groups: int, cut: int) -> None:
    grammar = scheme_transitions(tag_set(("Gene",), scheme), scheme)
    scores = np.random.default_rng(seed).normal(size=(20, groups, grammar.first.shape[1]))
    scores[:, :, 0] += 1.0
    found = best_valid_tags(scores, [(0, cut), (cut, cut), (cut, 20)], grammar)
    expected = [viterbi(scores[:cut], grammar), viterbi(scores[cut:], grammar)]
    assert found.tolist() == np.concatenate(expected).tolist()


@given(data=st.data(), scheme=st.sampled_from(SCHEMES), count=st.integers(1, 4))
def test_the_best_sequence_is_the_best_of_all_that_are_allowed(data: st.DataObject, scheme: Scheme, count: int) -> None:
    tags = tag_set(("Gene",), scheme)
    numbers = st.floats(-3, 3, allow_nan=False, width=16)
    scores = np.array(
        data.draw(st.lists(st.lists(numbers, min_size=len(tags), max_size=len(tags)), min_size=count, max_size=count))
    )
    grammar = scheme_transitions(tags, scheme)
    found = viterbi(scores[:, None], grammar)[:, 0].tolist()
    assert allowed(found, grammar)
    best = max(
        sum(scores[place, number] for place, number in enumerate(ways))
        for ways in product(range(len(tags)), repeat=count)
        if allowed(ways, grammar)
    )
    assert sum(scores[place, number] for place, number in enumerate(found)) == pytest.approx(best)


def test_a_crf_can_overrule_the_tags_own_numbers() -> None:
    scores = np.array([[[1.0, 0.0]], [[1.0, 0.0]]])
    crf = Transitions(np.array([[[0.0, 0.0], [0.0, 5.0]]]), np.zeros((1, 2)), np.zeros((1, 2)))
    assert viterbi(scores, crf)[:, 0].tolist() == [1, 1]


def test_groups_are_decoded_side_by_side() -> None:
    tags = tag_set(("Gene",), "iob2")
    one, other = np.array([[0.0, 3, 0], [0, 0, 3]]), np.array([[3.0, 0, 0], [0, 0, 3]])
    found = viterbi(np.stack((one, other), 1), scheme_transitions(tags, "iob2"))
    assert found.T.tolist() == [[1, 2], [0, 0]]


def test_no_units_have_no_tags() -> None:
    assert viterbi(np.zeros((0, 2, 3)), scheme_transitions(tag_set(("Gene",), "iob2"), "iob2")).shape == (0, 2)
