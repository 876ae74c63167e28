"""Packed batches: sequences concatenated into one row of tokens, so that no padding is computed.

T tokens of the packed batch, S sequences, S1 = S + 1, N sequences of one length, L that length, B tiles
"""

from collections.abc import Callable, Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lexome.errors import UsageError

# Tokens of a sequence per program of the attention kernel.
TILE = 64


class Packing:
    """The boundaries of each sequence in a packed batch.

    bounds_S1    int32, cumulative lengths: the first is 0, the last is T
    longest      at least the length of the longest sequence
    positions_T  int64: each token's position in its sequence
    tiles_B3     int32: for each tile its first token, and the start and end of its sequence; padded with zeros
    lengths      of each sequence, as Python integers, for the path without a packed kernel
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
        """The packing of sequences with these ends (exclusive): ends [3, 5] are tokens 0-2 and 3-4.

        torch.compile recompiles when a size changes. `longest` and `sequences` fix two of them to upper bounds; the
        sequences added for that are empty, at the end.
        """
        bounds = np.concatenate([[0], np.asarray(list(ends), dtype=np.int64)])
        lengths = np.diff(bounds)
        if len(lengths) == 0 or (lengths < 0).any():
            first = bounds[1:].tolist()[:8]
            raise UsageError(
                f"sequence ends {first}; expected at least one, ascending.", code="bad-sequence-ends", value=first
            )
        most = int(lengths.max())
        if longest is not None and longest < most:
            raise UsageError(
                f"a sequence has {most} tokens; the limit is {longest}. Truncate it.",
                code="sequence-too-long",
                value=most,
            )
        if sequences is not None:
            if sequences < len(lengths):
                raise UsageError(
                    f"{len(lengths)} sequences; the limit is {sequences}", code="too-many-sequences", value=len(lengths)
                )
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
        return self.map(lambda tensor: tensor.to(device, non_blocking=True))

    def map(self, transform: Callable[[Tensor], Tensor]) -> "Packing":
        """The same packing with a function applied to every tensor."""
        bounds_S1, positions_T, tiles_B3 = map(transform, self.tensors)
        return Packing(self.lengths, bounds_S1, longest=self.longest, positions_T=positions_T, tiles_B3=tiles_B3)

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """All tensors on the device."""
        return self.bounds_S1, self.positions_T, self.tiles_B3

    @property
    def firsts_S(self) -> Tensor:
        """The first token of each sequence, [CLS] in BERT; for empty sequences at the end, the last token."""
        return self.bounds_S1[:-1].long().clamp(max=self.positions_T.shape[0] - 1)

    def groups(self) -> tuple[list[Tensor], Tensor]:
        """Token indices of sequences of equal length, (N, L) each, and the permutation back to the packed order."""
        if self._groups is None:
            starts = np.cumsum([0, *self.lengths[:-1]])
            by_length: dict[int, list[int]] = {}
            for start, length in zip(starts.tolist(), self.lengths, strict=True):
                if length:
                    by_length.setdefault(length, []).append(start)
            indices = [np.asarray(firsts)[:, None] + np.arange(length) for length, firsts in by_length.items()]
            undo = np.argsort(np.concatenate([index.ravel() for index in indices]), kind="stable")
            device = self.positions_T.device
            self._groups = (
                [torch.from_numpy(index).to(device) for index in indices],
                torch.from_numpy(undo).to(device),
            )
        return self._groups


def _tiles(bounds: NDArray[np.int64], *, fixed: bool) -> NDArray[np.int32]:
    """The tiles of all sequences; with `fixed`, padded to the maximum for this number of tokens and sequences."""
    firsts, ends = bounds[:-1], bounds[1:]
    counts = -(-(ends - firsts) // TILE)
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    begins = np.repeat(firsts, counts) + TILE * within
    tiles = np.stack([begins, np.repeat(firsts, counts), np.repeat(ends, counts)], axis=1).astype(np.int32)
    most = int(bounds[-1]) // TILE + len(firsts) if fixed else len(tiles)
    return np.pad(tiles, ((0, most - len(tiles)), (0, 0)))
