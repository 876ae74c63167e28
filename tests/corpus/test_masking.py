"""Masking: equal to a slow reference, and distributed as it says."""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from errors import raises
from hypothesis import given
from hypothesis import strategies as st
from masking_reference import CLS, MASK, SEP, batch, slow_mask, text_of, vocabulary
from scipy import stats

from lexome.corpus.masking import DRAWS, Masking, Schedule, Vocabulary, mask, mask_rng, rate_at, sequence_draws
from lexome.errors import UsageError


@st.composite
def cases(draw: st.DrawFn) -> tuple[Any, ...]:
    """A small vocabulary of every kind of piece, a batch, any masking, and a seed."""
    size = draw(st.integers(4, 12))
    flags = st.lists(st.booleans(), min_size=size, max_size=size)
    special = np.array(draw(flags))
    special[MASK], special[3] = True, False
    pieces = Vocabulary(MASK, special, np.array(draw(flags)), np.array(draw(flags)))
    sequences = draw(st.lists(st.lists(st.integers(0, size - 1), max_size=25), max_size=5))
    mask_ratio = draw(st.floats(0, 1))
    masking = Masking(
        draw(st.sampled_from(["token", "word", "span"])),
        rate=draw(st.floats(0.01, 1)),
        mask_ratio=mask_ratio,
        random_ratio=draw(st.floats(0, 1 - mask_ratio)),
        replace_whole_unit=draw(st.booleans()),
        independent=draw(st.booleans()),
        span_stop=draw(st.floats(0.05, 0.95)),
        span_longest=draw(st.integers(1, 12)),
    )
    ids, ends = batch(*sequences)
    dtype = draw(st.sampled_from([np.uint16, np.uint32, np.int64]))
    return ids.astype(dtype), ends, pieces, masking, draw(st.integers(0, 2**32))


@given(cases())
def test_masking_equals_the_slow_reference(case: tuple[Any, ...]) -> None:
    ids, ends, pieces, masking, seed = case
    given_rng = mask(ids, ends, pieces, masking, np.random.default_rng(seed))
    draws = np.random.default_rng(seed).random((DRAWS, ids.size))
    expected = slow_mask(ids, ends, pieces, masking, draws)
    assert given_rng.inputs.tolist() == expected.inputs.tolist()
    assert given_rng.positions.tolist() == expected.positions.tolist()
    assert given_rng.labels.tolist() == expected.labels.tolist()


@given(cases())
def test_masking_keeps_its_promises(case: tuple[Any, ...]) -> None:
    ids, ends, pieces, masking, seed = case
    before = ids.copy()
    masked = mask(ids, ends, pieces, masking, np.random.default_rng(seed))
    inputs, positions, labels = masked.inputs, masked.positions, masked.labels
    assert ids.tolist() == before.tolist()
    assert (inputs.dtype, labels.dtype, positions.dtype) == (ids.dtype, ids.dtype, np.int64)
    assert positions.tolist() == sorted(set(positions.tolist()))
    assert labels.tolist() == ids[positions].tolist()
    assert not pieces.special[labels].any()
    assert set(np.flatnonzero(inputs != ids)) <= set(positions)
    new = inputs[positions][inputs[positions] != labels]
    assert all(id_ == MASK or not pieces.special[id_] for id_ in new)
    for start, end in zip([0, *ends[:-1]], ends, strict=False):
        maskable = int((~pieces.special[ids[start:end]]).sum())
        chosen = int(((positions >= start) & (positions < end)).sum())
        budget = max(1, round(masking.rate * maskable)) if maskable else 0
        assert masking.independent or chosen <= budget
        assert masking.independent or masking.unit != "token" or chosen == budget


def test_a_batch_as_long_as_in_training_equals_the_slow_reference() -> None:
    rng = np.random.default_rng(5)
    pieces = vocabulary(3000, continuing=range(2000, 3000), closing=range(3, 30))
    ids, ends = text_of(rng, 6, 512, 3000)
    ids[ends - 1], ids[ends - 512], ids[ends - 200] = SEP, CLS, SEP
    for unit in ("token", "word", "span"):
        masking = Masking(unit)
        draws = rng.random((DRAWS, ids.size))
        seen, expected = mask(ids, ends, pieces, masking, draws), slow_mask(ids, ends, pieces, masking, draws)
        assert seen.inputs.tolist() == expected.inputs.tolist()
        assert seen.positions.tolist() == expected.positions.tolist()
        stored = mask(ids, ends.astype(np.uint64), pieces, masking, draws)
        assert stored.inputs.tolist() == expected.inputs.tolist()


# Edges.


@pytest.mark.parametrize("unit", ["token", "word", "span"])
@pytest.mark.parametrize("independent", [False, True])
def test_batches_with_nothing_to_mask(unit: Any, independent: bool) -> None:
    masking = Masking(unit, independent=independent)
    for sequences in ([], [[]], [[CLS, SEP]], [[CLS], [], [SEP, SEP]]):
        ids, ends = batch(*sequences)
        seen = mask(ids, ends, vocabulary(), masking, np.random.default_rng(0))
        assert (seen.inputs.tolist(), seen.positions.size, seen.labels.size) == (ids.tolist(), 0, 0)


@pytest.mark.parametrize("unit", ["token", "word", "span"])
@pytest.mark.parametrize("independent", [False, True])
def test_a_rate_of_one_asks_for_every_ordinary_token(unit: Any, independent: bool) -> None:
    ids, ends = batch([CLS, 5, 41, 42, 6, SEP, 41, SEP], [7])
    masking = Masking(unit, rate=1.0, mask_ratio=1.0, random_ratio=0.0, independent=independent)
    seen = mask(ids, ends, vocabulary(continuing=range(40, 50)), masking, np.random.default_rng(0))
    assert seen.inputs.tolist() == [CLS, MASK, MASK, MASK, MASK, SEP, MASK, SEP, MASK]


def test_a_sequence_of_one_token_is_masked() -> None:
    ids, ends = batch([7], [8])
    assert mask(ids, ends, vocabulary(), Masking("word"), np.random.default_rng(0)).positions.tolist() == [0, 1]


def test_a_word_longer_than_the_budget_is_never_chosen() -> None:
    # Ten tokens, a budget of two: the word of eight never fits, so both others are always taken.
    ids, ends = batch([5, *[41] * 7, 6, 7])
    for seed in range(30):
        masking = Masking("word", rate=0.2)
        seen = mask(ids, ends, vocabulary(continuing=range(40, 50)), masking, np.random.default_rng(seed))
        assert seen.positions.tolist() == [8, 9]


def test_where_only_longer_words_are_nothing_is_chosen() -> None:
    ids, ends = batch([5, *[41] * 9])
    pieces = vocabulary(continuing=range(40, 50))
    assert mask(ids, ends, pieces, Masking("word"), np.random.default_rng(0)).positions.size == 0


def test_skipping_goes_on_until_the_budget_is_used() -> None:
    # Lengths 3, 2, 2, 1 in the order of the keys, and a budget of 4: 3 is taken, both 2 are skipped, 1 is taken.
    ids, ends = batch([5, 41, 41, 6, 41, 7, 41, 8])
    draws = np.full((DRAWS, 8), 0.5)
    draws[0, [0, 3, 5, 7]] = [0.1, 0.2, 0.3, 0.4]
    seen = mask(ids, ends, vocabulary(continuing=range(40, 50)), Masking("word", rate=0.5), draws)
    assert seen.positions.tolist() == [0, 1, 2, 7]


def test_a_span_is_cut_between_words_where_the_budget_ends() -> None:
    # Draws of 0.99 ask for ten words, from the last of five on; the third has two tokens, and four or three fit.
    ids, ends = batch([CLS, 5, 6, 41, 7, 8, 9, SEP])
    draws = np.full((DRAWS, 8), 0.99)
    pieces = vocabulary(continuing=range(40, 50))
    assert mask(ids, ends, pieces, Masking("span", rate=0.67), draws).positions.tolist() == [1, 2, 3, 6]
    assert mask(ids, ends, pieces, Masking("span", rate=0.5), draws).positions.tolist() == [1, 4, 6]


def test_a_span_does_not_cross_a_special_token() -> None:
    ids, ends = batch([CLS, 5, 6, SEP, 7, 8, SEP])
    draws = np.full((DRAWS, 7), 0.99)
    draws[0, 4] = 0.1
    assert mask(ids, ends, vocabulary(), Masking("span", rate=0.5), draws).positions.tolist() == [4, 5]


def test_together_gives_a_word_one_fate() -> None:
    ids, ends = batch([5, 41, 41, 41] * 200)
    pieces = vocabulary(continuing=range(40, 50))
    seen = mask(ids, ends, pieces, Masking("word", rate=1.0, replace_whole_unit=True), np.random.default_rng(1))
    masked = (seen.inputs == MASK).reshape(-1, 4)
    assert {tuple(word) for word in masked.tolist()} == {(True,) * 4, (False,) * 4}
    apart = mask(ids, ends, pieces, Masking("word", rate=1.0), np.random.default_rng(1))
    assert len({tuple(word) for word in (apart.inputs == MASK).reshape(-1, 4).tolist()}) > 4


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"unit": "sentence"}, "masking-unit"),
        ({"rate": 0.0}, "masking-rate"),
        ({"rate": 15.0}, "masking-rate"),
        ({"mask_ratio": 0.95}, "masking-ratios"),
        ({"random_ratio": -0.1}, "masking-ratios"),
        ({"span_stop": 1.0}, "masking-spans"),
        ({"span_longest": 0}, "masking-spans"),
    ],
)
def test_a_masking_that_makes_no_sense_is_refused(options: dict[str, Any], code: str) -> None:
    with raises(UsageError, code=code):
        Masking(**options)


def test_ends_and_ids_of_another_batch_are_refused() -> None:
    ids, _ = batch([5, 6, 7])
    for ends in ([2], [4], [2, 1, 3], []):
        with raises(UsageError, code="sequence-ends", value=3):
            mask(ids, np.array(ends, np.int64), vocabulary(), Masking(), np.random.default_rng(0))
    with raises(UsageError, code="token-id", value=7):
        mask(ids, np.array([3]), vocabulary(6), Masking(), np.random.default_rng(0))


# Distributions. Seeds are fixed; a right share passes at RIGHT, and each test shows a wrong one to fall below WRONG.

RIGHT, WRONG = 0.001, 1e-6


def chance(observed: Any, shares: Any) -> float:
    """The p-value of a chi-square test that counts have these shares."""
    expected = np.array(shares) / np.sum(shares) * np.sum(observed)
    return float(stats.chisquare(observed, expected).pvalue)


def fates(masking: Masking, seed: int = 3) -> list[int]:
    """How many chosen tokens were masked, exchanged, kept; ids are so many that an exchange is seen."""
    rng = np.random.default_rng(seed)
    ids, ends = text_of(rng, 400, 500, 60_000)
    seen = mask(ids, ends, vocabulary(60_000), masking, rng)
    new = seen.inputs[seen.positions]
    kept, masked = int((new == seen.labels).sum()), int((new == MASK).sum())
    return [masked, new.size - kept - masked, kept]


@pytest.mark.parametrize("unit", ["token", "word", "span"])
def test_the_split_is_80_10_10(unit: Any) -> None:
    masking = Masking(unit)
    assert chance(fates(masking), [0.8, 0.1, 0.1]) > RIGHT
    assert chance(fates(replace(masking, mask_ratio=0.85)), [0.8, 0.1, 0.1]) < WRONG
    assert chance(fates(replace(masking, random_ratio=0.12)), [0.8, 0.1, 0.1]) < WRONG


def test_any_split_is_drawn_as_given() -> None:
    assert chance(fates(Masking(mask_ratio=0.5, random_ratio=0.2)), [0.5, 0.2, 0.3]) > RIGHT
    assert fates(Masking(mask_ratio=1.0, random_ratio=0.0))[1:] == [0, 0]
    assert fates(Masking(mask_ratio=0.0, random_ratio=0.0))[:2] == [0, 0]


@pytest.mark.parametrize("rate", [0.15, 0.2, 0.4])
def test_a_budget_gives_each_sequence_the_same_share(rate: float) -> None:
    rng = np.random.default_rng(4)
    ids, ends = text_of(rng, 50, 130)
    for unit in ("token", "word", "span"):
        positions = mask(ids, ends, vocabulary(), Masking(unit, rate=rate), rng).positions
        assert set(np.bincount(positions // 130).tolist()) == {round(130 * rate)}


@pytest.mark.parametrize("unit", ["token", "word"])
def test_independent_units_are_chosen_at_the_rate(unit: Any) -> None:
    rng = np.random.default_rng(6)
    ids, ends = text_of(rng, 500, 500)
    tokens = ids.size
    for rate, right in ((0.15, True), (0.155, False)):
        chosen = mask(ids, ends, vocabulary(), Masking(unit, rate=rate, independent=True), rng).positions.size
        p_value = chance([chosen, tokens - chosen], [0.15, 0.85])
        assert p_value > RIGHT if right else p_value < WRONG


def test_exchanged_pieces_are_uniform_over_ordinary_ones() -> None:
    rng = np.random.default_rng(7)
    ids, ends = text_of(rng, 200, 500, 40)
    ids[:] = 3
    masking = Masking("token", rate=1.0, mask_ratio=0.0, random_ratio=1.0)
    counts = np.bincount(mask(ids, ends, vocabulary(40), masking, rng).inputs, minlength=40)
    assert counts[:3].tolist() == [0, 0, 0]
    assert chance(counts[3:], np.ones(37)) > RIGHT
    # One piece never drawn, as where the last id is forgotten, would be seen.
    assert chance(np.append(counts[3:-1], 0), np.ones(37)) < WRONG


def position_chance(counts: Any, draws: int) -> float:
    """The p-value that places are equally likely, when each of `draws` sequences takes the same number of them."""
    places, share = len(counts), counts.sum() / draws / len(counts)
    # Without replacement the counts spread less: by 1 - share, and n / (n - 1) for the fixed sum.
    statistic = ((counts - counts.mean()) ** 2 / counts.mean()).sum() / ((1 - share) * places / (places - 1))
    return float(stats.chi2.sf(statistic, places - 1))


@pytest.mark.parametrize("unit", ["token", "word"])
def test_every_place_is_equally_likely(unit: Any) -> None:
    rng = np.random.default_rng(8)
    ids, ends = text_of(rng, 4000, 60)
    counts = np.bincount(mask(ids, ends, vocabulary(), Masking(unit), rng).positions % 60, minlength=60)
    assert position_chance(counts, 4000) > RIGHT
    tilted = counts + np.round(counts.mean() * np.linspace(-0.1, 0.1, 60)).astype(int)
    assert position_chance(tilted, 4000) < WRONG


def test_words_of_one_length_are_equally_likely_whatever_their_neighbors() -> None:
    # Words of 1, 2, 1, 3, 1 tokens, chosen by themselves: every word at the rate.
    ids, ends = batch(*[[5, 6, 41, 7, 8, 41, 42, 9]] * 20_000)
    pieces = vocabulary(continuing=range(40, 50))
    rng = np.random.default_rng(9)
    positions = mask(ids, ends, pieces, Masking("word", rate=0.3, independent=True), rng).positions
    counts = np.bincount(positions % 8, minlength=8)
    assert counts[1] == counts[2]
    assert counts[4] == counts[5] == counts[6]
    assert chance(counts[[0, 1, 3, 4, 7]], np.ones(5)) > RIGHT


def span_lengths(masking: Masking, seed: int = 10) -> list[int]:
    """How often spans of 1, 2, ... words were chosen; at a low rate, since neighbors cannot be told apart."""
    ids, ends = text_of(np.random.default_rng(seed), 1, 3_000_000)
    positions = mask(ids, ends, vocabulary(), masking, np.random.default_rng(seed)).positions
    runs = np.split(positions, np.flatnonzero(np.diff(positions) > 1) + 1)
    counts = Counter(len(run) for run in runs)
    return [counts[length] for length in range(1, 11)]


def test_spans_have_spanberts_lengths() -> None:
    shares = 0.2 * 0.8 ** np.arange(10)
    mean = (np.arange(1, 11) * shares / shares.sum()).sum()
    assert 3.79 < mean < 3.81
    masking = Masking("span", rate=0.004, independent=True)
    seen = span_lengths(masking)
    assert chance(seen, shares) > RIGHT
    # Cut at ten instead of drawn anew, as a careless reading of "at most ten" would have it: mean 4.5.
    clipped = np.append(shares[:9], 0.8**9)
    assert chance(seen, clipped) < WRONG
    assert chance(span_lengths(replace(masking, span_stop=0.25)), shares) < WRONG


@pytest.mark.parametrize("independent", [False, True])
def test_spans_cover_every_place_at_the_rate(independent: bool) -> None:
    rng = np.random.default_rng(11)
    ids, ends = text_of(rng, 30_000, 40)
    masking = Masking("span", independent=independent)
    positions = mask(ids, ends, vocabulary(), masking, rng).positions
    counts = np.bincount(positions % 40, minlength=40)
    # Places within a sequence hang together in spans; each by itself is binomial.
    spread = (counts - 30_000 * 0.15) / np.sqrt(30_000 * 0.15 * 0.85)
    assert np.abs(spread).max() < 3.5


# Epochs, seeds, schedules.


def masks_of(epochs: int, *, dupe_factor: int | None = None, each: bool = False) -> Any:
    """A row for each epoch: which of 100,000 tokens were chosen."""
    ids, ends = text_of(np.random.default_rng(12), 200, 500)
    chosen = np.zeros((epochs, ids.size), bool)
    for epoch in range(epochs):
        rng: Any = mask_rng(1, epoch, 7, dupe_factor=dupe_factor)
        if each:
            rng = sequence_draws(1, epoch, np.arange(200), ends, dupe_factor=dupe_factor)
        chosen[epoch, mask(ids, ends, vocabulary(), Masking("token"), rng).positions] = True
    return chosen


@pytest.mark.parametrize("each", [False, True])
def test_epochs_are_masked_independently(each: bool) -> None:
    chosen = masks_of(4, each=each)
    for one in range(4):
        for other in range(one):
            table = [[(chosen[one] & chosen[other]).sum(), (chosen[one] & ~chosen[other]).sum()]]
            table += [[(~chosen[one] & chosen[other]).sum(), (~chosen[one] & ~chosen[other]).sum()]]
            assert stats.chi2_contingency(table).pvalue > RIGHT


@pytest.mark.parametrize("each", [False, True])
def test_static_maskings_take_turns(each: bool) -> None:
    chosen = masks_of(6, dupe_factor=3, each=each)
    assert (chosen[:3] == chosen[3:]).all()
    assert len({row.tobytes() for row in chosen}) == 3
    # Turned into dynamic masking, the first epochs are the same.
    assert (masks_of(3, each=each) == chosen[:3]).all()


def test_generators_differ_by_seed_epoch_and_index() -> None:
    numbers = {(s, e, i): mask_rng(s, e, i).random() for s in range(3) for e in range(3) for i in range(3)}
    assert len(set(numbers.values())) == 27
    assert mask_rng(1, 2, 3).random(5).tolist() == mask_rng(1, 2, 3).random(5).tolist()
    with raises(UsageError, code="dupe-factor"):
        mask_rng(1, 2, 3, dupe_factor=0)


def test_a_sequence_is_masked_alike_in_any_batch() -> None:
    rng = np.random.default_rng(13)
    texts = [rng.integers(3, 50, length).tolist() for length in (5, 300, 1, 40, 77)]
    pieces = vocabulary(continuing=range(30, 50))

    def masked(order: list[int], unit: Any) -> dict[int, list[int]]:
        ids, ends = batch(*[texts[number] for number in order])
        draws = sequence_draws(9, 4, np.array(order), ends)
        inputs = mask(ids, ends, pieces, Masking(unit), draws).inputs
        return dict(zip(order, [part.tolist() for part in np.split(inputs, ends[:-1])], strict=True))

    for unit in ("token", "word", "span"):
        together = masked([0, 1, 2, 3, 4], unit)
        assert masked([3, 0, 4, 2, 1], unit) == together
        assert masked([1, 3], unit) == {number: together[number] for number in (1, 3)}


def test_draws_by_sequence_are_uniform_and_uncorrelated() -> None:
    ends = np.arange(1, 401) * 100
    draws = sequence_draws(0, 0, np.arange(400), ends)
    assert draws.shape == (DRAWS, 40_000)
    assert draws.min() >= 0
    assert draws.max() < 1
    assert chance(np.histogram(draws, 100, (0, 1))[0], np.ones(100)) > RIGHT
    another_seed = sequence_draws(1, 0, np.arange(400), ends)[0]
    next_token, next_sequence = np.roll(draws[0], 1), np.roll(draws[0], 100)
    for other in (draws[1], draws[2], draws[3], next_token, next_sequence, another_seed):
        assert stats.pearsonr(draws[0], other).pvalue > RIGHT


def test_a_rate_may_stay_step_or_slide() -> None:
    steps = Schedule(((0.0, 0.30), (0.75, 0.15)))
    slide = Schedule(((0.0, 0.40), (0.5, 0.20), (1.0, 0.10)), linear=True)
    places = (0.0, 0.25, 0.75, 1.0)
    assert [rate_at(0.15, place) for place in places] == [0.15] * 4
    assert [rate_at(steps, place) for place in places] == [0.30, 0.30, 0.15, 0.15]
    assert [rate_at(slide, place) for place in places] == pytest.approx([0.40, 0.30, 0.15, 0.10])


@pytest.mark.parametrize(
    "points", [(), ((0.5, 0.2),), ((0.0, 0.2), (0.0, 0.1)), ((0.0, 0.0),), ((0.0, 0.2), (2.0, 0.1))]
)
def test_a_schedule_that_makes_no_sense_is_refused(points: Any) -> None:
    with pytest.raises(UsageError):
        Schedule(points)
