"""fast_dataclass: a frozen dataclass in everything but the speed of its constructor."""

import inspect
import pickle
from dataclasses import FrozenInstanceError, asdict, dataclass, replace

import pytest

from lexome.frozen import fast_dataclass


@fast_dataclass
class Point:
    """A class with a default and a check."""

    x: int
    y: int = 0

    def __post_init__(self) -> None:
        if self.x < 0:
            raise ValueError("x is below zero")


@dataclass(frozen=True, slots=True)
class Plain:
    """The same, as the standard library makes it."""

    x: int
    y: int = 0


def test_constructor_takes_positional_and_keyword_arguments() -> None:
    assert (Point(1), Point(1, y=2), Point(y=2, x=1)) == (Point(1, 0), Point(1, 2), Point(1, 2))


def test_signature_and_repr_equal_those_of_a_dataclass() -> None:
    assert inspect.signature(Point) == inspect.signature(Plain)
    assert repr(Point(1)) == repr(Plain(1)).replace("Plain", "Point")


def test_instances_are_frozen_hashable_and_copyable() -> None:
    with pytest.raises(FrozenInstanceError):
        Point(1).x = 2  # type: ignore[misc]
    assert {Point(1): "here"}[Point(1)] == "here"
    assert asdict(replace(Point(1), y=3)) == {"x": 1, "y": 3}
    assert pickle.loads(pickle.dumps(Point(1, 2))) == Point(1, 2)


def test_post_init_runs_and_wrong_arguments_raise() -> None:
    with pytest.raises(ValueError, match="below zero"):
        Point(-1)
    with pytest.raises(TypeError, match="z"):
        Point(1, z=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="'x'"):
        Point()  # type: ignore[call-arg]
