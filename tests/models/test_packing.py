"""Packed batches: where sequences are, and what is refused."""

import numpy as np
import pytest
import torch
from errors import raises

from lexome.errors import UsageError
from lexome.models.encoder import Packing, _attend_by_length, _attend_by_sequence


def test_bounds_positions_and_the_longest() -> None:
    packing = Packing.of(np.array([3, 5, 9]))
    assert packing.bounds_S1.tolist() == [0, 3, 5, 9]
    assert packing.bounds_S1.dtype == torch.int32
    assert packing.positions_T.tolist() == [0, 1, 2, 0, 1, 0, 1, 2, 3]
    assert (packing.longest, packing.lengths) == (4, (3, 2, 4))
    assert packing.firsts_S.tolist() == [0, 3, 5]


def test_sizes_can_be_fixed_for_compiled_code() -> None:
    packing = Packing.of([3, 5], longest=8, sequences=4)
    assert (packing.bounds_S1.tolist(), packing.longest) == ([0, 3, 5, 5, 5], 8)
    # An empty sequence has no first token; the last one stands in, and nobody reads the answer.
    assert packing.firsts_S.tolist() == [0, 3, 4, 4]


def test_tiles_cover_each_sequence_by_itself() -> None:
    packing = Packing.of([70, 70, 198, 199])
    assert packing.tiles_B3.tolist() == [[0, 0, 70], [64, 0, 70], [70, 70, 198], [134, 70, 198], [198, 198, 199]]
    assert packing.tiles_B3.dtype == torch.int32


def test_fixed_sizes_have_a_fixed_number_of_tiles_and_it_is_enough() -> None:
    # As many tiles as can be: each sequence has one token more than whole tiles.
    most = Packing.of([65, 130, 195], sequences=3)
    less = Packing.of([195], sequences=3)
    assert most.tiles_B3.shape == less.tiles_B3.shape == (6, 3)
    assert less.tiles_B3[4:].tolist() == [[0, 0, 0]] * 2


def test_groups_are_sequences_of_equal_length_and_can_be_undone() -> None:
    packing = Packing.of([2, 5, 7, 7, 8])
    places, undo_T = packing.groups()
    assert [place.tolist() for place in places] == [[[0, 1], [5, 6]], [[2, 3, 4]], [[7]]]
    assert torch.cat([place.flatten() for place in places])[undo_T].tolist() == list(range(8))


@pytest.mark.parametrize("window", [None, 2])
def test_attention_by_sequence_and_by_length_are_the_same_to_the_bit(window: int | None) -> None:
    packing = Packing.of([5, 8, 13, 13, 14, 19])
    torch.manual_seed(0)
    sides = [torch.randn(19, 2, 8, requires_grad=True) for _ in range(3)]
    results = []
    for attend in (_attend_by_sequence, _attend_by_length):
        context = attend(*sides, packing, window=window, dropout=0.0)
        results.append([context, *torch.autograd.grad(context.square().sum(), sides)])
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


@pytest.mark.parametrize(
    ("ends", "options", "code", "value"),
    [
        ([], {}, "bad-sequence-ends", []),
        ([4, 2], {}, "bad-sequence-ends", [4, 2]),
        ([4, 9], {"longest": 4}, "sequence-too-long", 5),
        ([1, 2, 3], {"sequences": 2}, "too-many-sequences", 3),
    ],
)
def test_invalid_sequences_are_refused(ends: list[int], options: dict[str, int], code: str, value: object) -> None:
    with raises(UsageError, code=code, value=value):
        Packing.of(ends, **options)
