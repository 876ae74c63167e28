"""Batches: every sequence once an epoch, masked by its own number, filled to one size, decoded back to the text."""

from collections import Counter
from dataclasses import fields
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from errors import raises
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pretraining import make_shards, recipe, tokenizer
from torch import Tensor

from lexome.corpus.masking import Masking, Schedule
from lexome.corpus.shards import Shards
from lexome.errors import ShardError
from lexome.training.loop import prefetch, to_tensors
from lexome.training.sampling import (
    IGNORE_INDEX,
    Arrays,
    BatchPosition,
    Pieces,
    Plan,
    Text,
    batch,
    evaluation_batches,
    round_up,
    steps,
    take,
)
from lexome.training.session import batches_of

PLAN = Plan(tokens=256, max_tokens=32, seed=3)
BEGIN = (BatchPosition(), 0, 0)


def assert_equal(one: object, other: object) -> None:
    """Assert that two records of arrays have equal fields."""
    for field in fields(one):  # type: ignore[arg-type]
        left, right = getattr(one, field.name), getattr(other, field.name)
        assert left is right is None or np.array_equal(left, right), field.name


@pytest.fixture(scope="module")
def pieces(shards: Shards) -> Pieces:
    return Pieces.read(shards.folder / "tokenizer.json", words=True)


def text_of(shards: Shards, pieces: Pieces, kind: str = "sentences", **keys: Any) -> Text:
    return Text(shards.train, pieces.specials, kind=kind, seed=3, **keys)  # type: ignore[arg-type]


def made(text: Text, pieces: Pieces, plan: Plan = PLAN, *, begin: Any = BEGIN, share: Any = None) -> Any:
    return steps(text, plan, pieces.vocabulary, share or (lambda step, tokens: 0.0), begin=begin)


def unmasked(arrays: Arrays) -> list[list[int]]:
    """The real sequences of a batch with what was masked put back."""
    ids = arrays.ids_T.copy()
    ids[arrays.positions_M[: arrays.masked]] = arrays.labels_M[: arrays.masked]
    ends = arrays.ends_S[: arrays.sequences]
    return [part.tolist() for part in np.split(ids, ends)[: ends.size]]


def source(shards: Shards) -> list[list[int]]:
    """The documents of the shards as lists of ids."""
    return [
        part.tolist() for shard in shards.train for part in np.split(np.asarray(shard.tokens), shard.document_ends)[:-1]
    ]


def test_a_batch_decodes_back_to_the_text(shards: Shards, pieces: Pieces) -> None:
    documents = [" ".join(map(str, document)) for document in source(shards)]
    cls_id, sep_id = pieces.specials.cls_id, pieces.specials.sep_id
    for step in islice(made(text_of(shards, pieces), pieces), 3):
        for sequence in unmasked(step.passes[0]):
            assert (sequence[0], sequence[-1]) == (cls_id, sep_id)
            assert any(" ".join(map(str, sequence[1:-1])) in document for document in documents)


def test_words_are_masked_whole_and_shown_as_the_mask(shards: Shards, pieces: Pieces) -> None:
    plan = Plan(tokens=256, max_tokens=32, masking=Masking("word", mask_ratio=1.0, random_ratio=0.0), rate=0.4)
    arrays = next(made(text_of(shards, pieces), pieces, plan)).passes[0]
    shown = tokenizer().decode(arrays.ids_T[: arrays.tokens].tolist(), skip_special_tokens=False)
    assert "[MASK] ##" not in shown
    assert shown.count("[MASK]") == arrays.masked > 0


def test_every_sequence_comes_once_an_epoch(shards: Shards, pieces: Pieces) -> None:
    text, place, seen = text_of(shards, pieces), BatchPosition(0, 0, 32), Counter[tuple[int, int]]()
    while place.epoch < 2:
        parts, place = take(text, place, 256)
        seen.update((epoch, number) for epoch, numbers in parts for number in numbers.tolist())
    total = text.epoch(0, 32).order.size
    assert {key: seen[key] for key in seen if key[0] < 2} == {(e, n): 1 for e in range(2) for n in range(total)}


def test_every_epoch_has_another_order(shards: Shards, pieces: Pieces) -> None:
    text = text_of(shards, pieces)
    assert text.epoch(0, 32).order.tolist() != text.epoch(1, 32).order.tolist()


def test_all_batches_have_one_size_and_lack_less_than_a_sequence(shards: Shards, pieces: Pieces) -> None:
    batches = [step.passes[0] for step in islice(made(text_of(shards, pieces), pieces), 20)]
    assert {one.ids_T.size for one in batches} == {256}
    assert all(256 - one.tokens < 32 for one in batches)
    assert all(one.ends_S[-1] == 256 and np.diff(one.ends_S, prepend=0).max() <= 32 for one in batches)


def test_nothing_is_asked_about_fillings(shards: Shards, pieces: Pieces) -> None:
    arrays = next(made(text_of(shards, pieces), pieces)).passes[0]
    assert arrays.positions_M.size == round_up(arrays.masked, 256)
    assert set(arrays.labels_M[arrays.masked :].tolist()) <= {IGNORE_INDEX}
    assert set(arrays.ids_T[arrays.tokens :].tolist()) == {pieces.specials.pad_id}


def test_batches_from_a_place_on_are_those_of_an_unbroken_run(shards: Shards, pieces: Pieces) -> None:
    text = text_of(shards, pieces)
    whole = list(islice(made(text, pieces), 30))
    tokens = sum(step.passes[0].tokens for step in whole[:17])
    again = list(islice(made(text_of(shards, pieces), pieces, begin=(whole[16].after, 17, tokens)), 13))
    for one, other in zip(whole[17:], again, strict=True):
        assert_equal(one.passes[0], other.passes[0])


def test_with_duplicates_masks_take_turns(shards: Shards, pieces: Pieces) -> None:
    def masks(epoch: int) -> list[int]:
        plan = Plan(tokens=256, max_tokens=32, dupe_factor=2)
        return batch(
            text_of(shards, pieces), [(epoch, np.arange(5))], plan, pieces.vocabulary, rate=0.15, max_tokens=32
        ).positions_M.tolist()

    assert masks(0) == masks(2)
    assert masks(0) != masks(1)


def test_the_masking_rate_follows_its_schedule(shards: Shards, pieces: Pieces) -> None:
    plan = Plan(tokens=2048, max_tokens=32, rate=Schedule(((0.0, 0.4), (0.5, 0.1))))
    run = made(text_of(shards, pieces), pieces, plan, share=lambda step, tokens: step / 4)
    shares = [step.passes[0].masked / step.passes[0].tokens for step in islice(run, 4)]
    assert shares[:2] == pytest.approx([0.37, 0.37], abs=0.03)
    assert shares[2:] == pytest.approx([0.1, 0.1], abs=0.03)


def test_the_batch_grows_by_whole_passes(shards: Shards, pieces: Pieces) -> None:
    plan = Plan(tokens=256, max_tokens=32, passes=4, passes_ramp=((0.0, 1), (0.25, 2), (0.5, 4)))
    run = made(text_of(shards, pieces), pieces, plan, share=lambda step, tokens: step / 4)
    assert [len(step.passes) for step in islice(run, 4)] == [1, 2, 4, 4]


def test_sequences_grow_and_a_new_epoch_begins(shards: Shards, pieces: Pieces) -> None:
    plan = Plan(tokens=256, max_tokens=32, lengths_ramp=((0.0, 16), (0.5, 32)))
    run = list(islice(made(text_of(shards, pieces), pieces, plan, share=lambda step, tokens: step / 4), 4))
    longest = [max(map(len, unmasked(step.passes[0]))) for step in run]
    assert max(longest[:2]) <= 16 < min(longest[2:]) <= 32
    assert [step.after.epoch for step in run] == [0, 0, 1, 1]


def covered(text: Text, max_tokens: int) -> list[list[int]]:
    """How often an epoch has each token, shard by shard, a second part of a pair left out."""
    ranges = text.epoch(0, max_tokens).ranges
    changes = np.zeros(text.offsets[-1] + 1, np.int64)
    np.add.at(changes, ranges.starts, 1)
    np.add.at(changes, ranges.ends, -1)
    return [part.tolist() for part in np.split(np.cumsum(changes)[:-1], text.offsets[1:-1])]


@settings(max_examples=50)
@given(st.integers(0, 4), st.integers(0, 4), st.sampled_from(["sentences", "across_documents"]), st.integers(8, 64))
def test_an_epoch_has_every_token_as_often_as_its_source_is_repeated(
    shards: Shards, pieces: Pieces, first: int, second: int, kind: str, max_tokens: int
) -> None:
    assume(first or second)
    text = text_of(shards, pieces, kind, repeat={"0": first, "1": second})
    assert [set(times) for times in covered(text, max_tokens)] == [{times} for times in (first, second) if times]


def test_text_that_is_repeated_once_is_the_same_text(shards: Shards, pieces: Pieces) -> None:
    for kind in ("sentences", "next_sentence"):
        plain, once_each = (text_of(shards, pieces, kind, repeat=times) for times in (None, {"0": 1, "1": 1}))
        one, other = (next(made(text, pieces)).passes[0] for text in (plain, once_each))
        assert_equal(one, other)


def test_each_time_has_its_own_place_and_masks(shards: Shards, pieces: Pieces) -> None:
    text = text_of(shards, pieces, repeat={"1": 3})
    ordered = text.epoch(0, 32)
    same = np.flatnonzero(ordered.ranges.starts == ordered.ranges.starts[-1])
    places = [int(np.flatnonzero(ordered.order == number)[0]) for number in same]
    assert len(set(places)) == 3
    assert max(np.diff(sorted(places))) > 1
    masks = [
        batch(text, [(0, same[at : at + 1])], PLAN, pieces.vocabulary, rate=0.5, max_tokens=32).positions_M.tolist()
        for at in range(3)
    ]
    assert len(set(map(tuple, masks))) == 3


def test_repeated_batches_from_a_place_on_are_those_of_an_unbroken_run(shards: Shards, pieces: Pieces) -> None:
    keys: dict[str, Any] = {"kind": "next_sentence", "repeat": {"0": 2, "1": 3}}
    whole = list(islice(made(text_of(shards, pieces, **keys), pieces), 60))
    assert whole[-1].after.epoch > 0
    tokens = sum(step.passes[0].tokens for step in whole[:47])
    again = list(islice(made(text_of(shards, pieces, **keys), pieces, begin=(whole[46].after, 47, tokens)), 13))
    for one, other in zip(whole[47:], again, strict=True):
        assert_equal(one.passes[0], other.passes[0])


@pytest.mark.parametrize("times", [{"0": 0, "1": 3}, {"0": 1, "1": 2}])
def test_pairs_of_a_repeated_source_are_of_its_text_and_drawn_anew(
    shards: Shards, pieces: Pieces, times: dict[str, int]
) -> None:
    text = text_of(shards, pieces, "sentence_order", repeat=times, short=0.0)
    ends = np.concatenate([one.document_ends + at for one, at in zip(text.shards, text.offsets, strict=False)])
    ranges = text.epoch(0, 64).ranges
    assert ranges.b_starts is not None
    first, second = (np.searchsorted(ends, starts, side="right") for starts in (ranges.starts, ranges.b_starts))
    assert first.tolist() == second.tolist()
    counts = Counter(first.tolist())
    cuts = {number: set(ranges.starts[first == number].tolist()) for number in counts}
    last = len(ends) - 1
    assert counts[last] >= times["1"]
    assert any(len(cuts[number]) > counts[number] / times["1"] for number in counts)


def test_what_comes_from_another_document_is_never_the_same_one_again(shards: Shards, pieces: Pieces) -> None:
    text = text_of(shards, pieces, "next_sentence", repeat={"0": 0, "1": 4}, short=0.0)
    ends = text.shards[0].document_ends
    for epoch in range(5):
        ranges = text.epoch(epoch, 64).ranges
        assert ranges.labels is not None
        assert ranges.b_starts is not None
        one, two = (np.searchsorted(ends, starts, side="right") for starts in (ranges.starts, ranges.b_starts))
        assert ((one == two) == (ranges.labels == 0)).all()


def test_a_round_of_one_document_has_no_other_to_draw_from(pieces: Pieces, tmp_path: Path) -> None:
    made = make_shards(tmp_path, documents=3, held_out=0.0)
    assert [one.document_ends.size for one in made.train] == [1, 2]
    assert text_of(made, pieces, "next_sentence", repeat={"1": 2}).epoch(0, 64).order.size
    assert text_of(made, pieces, "sentence_order", repeat={"0": 2}).epoch(0, 64).order.size
    with raises(ShardError, code="no-negatives", value="0"):
        text_of(made, pieces, "next_sentence", repeat={"0": 2}).epoch(0, 64)


@pytest.mark.parametrize("kind", ["next_sentence", "sentence_order"])
def test_the_label_of_a_pair_tells_whether_the_second_follows(shards: Shards, pieces: Pieces, kind: str) -> None:
    documents = [f" {' '.join(map(str, document))} " for document in source(shards)]
    plan = Plan(tokens=1024, max_tokens=64)
    arrays = next(made(text_of(shards, pieces, kind, short=0.0), pieces, plan)).passes[0]
    assert arrays.pair_labels_S is not None
    seen = Counter[tuple[int, bool]]()
    for sequence, label in zip(unmasked(arrays), arrays.pair_labels_S.tolist(), strict=False):
        cut = sequence.index(pieces.specials.sep_id)
        one, two = sequence[1:cut], sequence[cut + 1 : -1]
        if label == 1 and kind == "sentence_order":
            one, two = two, one
        joined = f" {' '.join(map(str, one + two))} "
        seen[label, any(joined in document for document in documents)] += 1
    assert seen[0, True] > 0
    assert seen[0, False] == 0
    if kind == "sentence_order":
        assert seen[1, True] > 0
        assert seen[1, False] == 0
    else:
        assert seen[1, False] > 0


def test_the_second_of_a_pair_is_the_second_segment(shards: Shards, pieces: Pieces) -> None:
    arrays = next(made(text_of(shards, pieces, "sentence_order"), pieces)).passes[0]
    for sequence, segments in zip(unmasked(arrays), np.split(arrays.segments_T, arrays.ends_S), strict=False):
        first = sequence.index(pieces.specials.sep_id) + 1
        assert segments.tolist() == [0] * first + [1] * (len(sequence) - first)


def test_held_out_text_is_gone_through_once(shards: Shards, pieces: Pieces) -> None:
    text = Text(shards.held_out, pieces.specials)
    measured = list(evaluation_batches(text, PLAN, pieces.vocabulary, tokens=10**9, rate=0.15))
    assert sum(one.tokens for one in measured) == int(text.epoch(0, 32).reached[-1])
    assert all(np.diff(one.ends_S, prepend=0).max() <= 32 for one in measured)


def test_shards_without_text_are_refused(pieces: Pieces) -> None:
    with raises(ShardError, code="no-tokens"):
        Text([], pieces.specials)


def test_tensors_know_the_counts_of_their_whole_step(shards: Shards, pieces: Pieces) -> None:
    plan = Plan(tokens=256, max_tokens=32, passes=3)
    step = to_tensors(next(made(text_of(shards, pieces), pieces, plan)))
    assert [one.masked_of_step for one in step.batches] == [sum(one.masked for one in step.batches)] * 3
    assert step.batches[0].ids_T.dtype == torch.int64


def test_items_prepared_ahead_are_the_same_items() -> None:
    with prefetch(iter(range(100)), 4) as items:
        assert list(items) == list(range(100))


def test_an_error_in_the_background_comes_out_in_front() -> None:
    def broken() -> Any:
        yield 1
        raise ShardError("a shard is gone", code="missing-file")

    with prefetch(broken(), 2) as items:
        assert next(items) == 1
        with raises(ShardError, code="missing-file"):
            next(items)


def test_the_thread_ends_when_no_one_asks_any_more(tmp_path: Path) -> None:
    taken: list[int] = []

    def endless() -> Any:
        number = 0
        while True:
            taken.append(number)
            yield number
            number += 1

    with prefetch(endless(), 2) as items:
        next(items)
    before = len(taken)
    assert before <= 5
    assert len(taken) == before


def test_held_out_masks_are_of_their_own_seed_whatever_that_of_the_run(shards: Shards, tmp_path: Path) -> None:
    def inputs(seed: int, own: int) -> Tensor:
        made = recipe(shards.folder, tmp_path, seed=seed, evaluation={"seed": own})
        return batches_of(made, shards).held_out[0].ids_T

    assert torch.equal(inputs(1, 7), inputs(2, 7))
    assert not torch.equal(inputs(1, 7), inputs(1, 8))
