"""How long a run is, how far it has come, and what the learning rate is there."""

import math
from collections.abc import Sequence
from typing import Literal

from lexome.errors import UsageError
from lexome.values import value

Curve = Literal["linear", "cosine", "constant"]


@value
class Length:
    """The length of a run: one of steps, tokens and seconds."""

    steps: int | None = None
    tokens: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if sum(given is not None for given in (self.steps, self.tokens, self.seconds)) != 1:
            raise UsageError(f"the length of a run is {self}; expected one of steps, tokens and seconds.")

    def share(self, *, steps: float, tokens: float, elapsed_s: float) -> float:
        """How much of the run is done, from 0 to 1."""
        if self.steps is not None:
            return min(1.0, steps / self.steps)
        if self.tokens is not None:
            return min(1.0, tokens / self.tokens)
        assert self.seconds is not None
        return min(1.0, elapsed_s / self.seconds)


@value
class LearningRate:
    """A warm-up in a straight line from 0, then a curve down to `end` times the peak.

    linear and cosine fall from the warm-up on. constant stays, and falls in a straight line over the last `decay`.
    """

    peak: float
    kind: Curve = "linear"
    warmup: float = 0.0
    decay: float = 0.2
    end: float = 0.0

    def at(self, share: float) -> float:
        """The learning rate after a share of the run."""
        if share < self.warmup:
            return self.peak * share / self.warmup
        return self.peak * (self.end + (1 - self.end) * self._height(share))

    def _height(self, share: float) -> float:
        """1 at the peak, 0 at the end of the run."""
        begins = max(self.warmup, 1 - self.decay) if self.kind == "constant" else self.warmup
        fallen = min(1.0, max(0.0, (share - begins) / (1 - begins))) if begins < 1 else 0.0
        return (1 + math.cos(math.pi * fallen)) / 2 if self.kind == "cosine" else 1 - fallen


def held(points: Sequence[tuple[float, float]], share: float, *, otherwise: float) -> float:
    """The value of the last point that the share has reached; `otherwise` where there are no points."""
    reached = [given for place, given in points if place <= max(share, 0.0)]
    return reached[-1] if reached else otherwise
