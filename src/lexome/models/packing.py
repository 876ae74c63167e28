"""Sequences laid end to end in one row of tokens, so that no padding is ever computed.

T tokens of the packed batch, S sequences, S1 one more than that, N sequences of one length, L that length, B tiles
"""

from collections.abc import Callable, Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lexome.errors import UsageError

# How many tokens of a sequence a program of the attention kernel works on.
TILE = 64


class Packing:
    """Where each sequence of a packed batch begins and ends.

    bounds_S1    int32: the first is 0, the last is T
    longest      at least the length of the longest sequence
    positions_T  int64: each token's place in its own sequence, from 0
    tiles_B3     int32: for each tile its first token, and the first and the end of its sequence; zeros fill it up
    lengths      of each sequence, in Python, for the path without a packed kernel
    """

    def __init__(
        self, lengths: tuple[int, ...], bounds_S1: Tensor, *, longest: int, positions_T: Tensor, tiles_B3: Tensor
    ) -> None:
        self.lengths = lengths
        self.tiles_B3 = tiles_B3
        self.bounds_S1 = bounds_S1
        self.longest = longest
        self.positions_T = positions_T
        self._groups: tuple[list[Tensor], Tensor] | None = None

    @classmethod
    def of(
        cls,
        ends: Iterable[int],
        device: torch.device | str = "cpu",
        *,
        longest: int | None = None,
        sequences: int | None = None,
    ) -> "Packing":
        """The packing of sequences that end (exclusive) at these tokens: ends [3, 5] are tokens 0-2 and 3-4.

        Compiled code is made anew where a size changes. `longest` fixes one to an upper limit, and `sequences` fixes
        the number of sequences: those that are lacking are empty, at the end.
        """
        bounds = np.concatenate([[0], np.asarray(list(ends), dtype=np.int64)])
        lengths = np.diff(bounds)
        if len(lengths) == 0 or (lengths < 0).any():
            raise UsageError(f"sequence ends {bounds[1:].tolist()[:8]}; expected at least one, in rising order.")
        most = int(lengths.max())
        if longest is not None and longest < most:
            raise UsageError(f"a sequence has {most} tokens, over the limit of {longest}. Cut it, or raise longest.")
        if sequences is not None:
            if sequences < len(lengths):
                raise UsageError(f"{len(lengths)} sequences, more than the limit of {sequences}.")
            bounds = np.pad(bounds, (0, sequences - len(lengths)), mode="edge")
        positions = np.arange(bounds[-1]) - np.repeat(bounds[: len(lengths)], lengths)
        return cls(
            tuple(lengths.tolist()),
            torch.from_numpy(bounds.astype(np.int32)).to(device, non_blocking=True),
            longest=most if longest is None else longest,
            positions_T=torch.from_numpy(positions).to(device, non_blocking=True),
            tiles_B3=torch.from_numpy(_tiles(bounds, fixed=sequences is not None)).to(device, non_blocking=True),
        )

    def to(self, device: torch.device | str) -> "Packing":
        """The same packing on another device."""
        return self.mapped(lambda tensor: tensor.to(device, non_blocking=True))

    def mapped(self, change: Callable[[Tensor], Tensor]) -> "Packing":
        """The same packing with every tensor changed."""
        bounds_S1, positions_T, tiles_B3 = map(change, self.tensors)
        return Packing(self.lengths, bounds_S1, longest=self.longest, positions_T=positions_T, tiles_B3=tiles_B3)

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """All that lies on the device."""
        return self.bounds_S1, self.positions_T, self.tiles_B3

    @property
    def firsts_S(self) -> Tensor:
        """The first token of each sequence, in BERT's form [CLS]; for an empty one at the end, the last token."""
        return self.bounds_S1[:-1].long().clamp(max=self.positions_T.shape[0] - 1)

    def groups(self) -> tuple[list[Tensor], Tensor]:
        """Token numbers of sequences of equal length, (N, L) each, and the order that undoes their concatenation."""
        if self._groups is None:
            starts = np.cumsum([0, *self.lengths[:-1]])
            by_length: dict[int, list[int]] = {}
            for start, length in zip(starts.tolist(), self.lengths, strict=True):
                if length:
                    by_length.setdefault(length, []).append(start)
            places = [np.asarray(found)[:, None] + np.arange(length) for length, found in by_length.items()]
            undo = np.argsort(np.concatenate([place.ravel() for place in places]), kind="stable")
            device = self.positions_T.device
            self._groups = ([torch.from_numpy(place).to(device) for place in places], torch.from_numpy(undo).to(device))
        return self._groups


def _tiles(bounds: NDArray[np.int64], *, fixed: bool) -> NDArray[np.int32]:
    """The tiles of all sequences; with `fixed`, filled up to the most that so many tokens and sequences can have."""
    firsts, ends = bounds[:-1], bounds[1:]
    counts = -(-(ends - firsts) // TILE)
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    begins = np.repeat(firsts, counts) + TILE * within
    tiles = np.stack([begins, np.repeat(firsts, counts), np.repeat(ends, counts)], axis=1).astype(np.int32)
    most = int(bounds[-1]) // TILE + len(firsts) if fixed else len(tiles)
    return np.pad(tiles, ((0, most - len(tiles)), (0, 0)))
