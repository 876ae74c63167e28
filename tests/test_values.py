"""value: a dataclass in all but the speed of its constructor."""

import inspect
import pickle
from dataclasses import FrozenInstanceError, asdict, dataclass, replace

import pytest

from lexome.metadata import value


@value
class Point:
    """A value with a default and a check."""

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


def test_value_is_constructed_by_place_by_name_and_by_default() -> None:
    assert (Point(1), Point(1, y=2), Point(y=2, x=1)) == (Point(1, 0), Point(1, 2), Point(1, 2))


def test_value_has_the_signature_and_repr_of_a_dataclass() -> None:
    assert inspect.signature(Point) == inspect.signature(Plain)
    assert repr(Point(1)) == repr(Plain(1)).replace("Plain", "Point")


def test_value_is_frozen_hashable_and_can_be_copied() -> None:
    with pytest.raises(FrozenInstanceError):
        Point(1).x = 2  # type: ignore[misc]
    assert {Point(1): "here"}[Point(1)] == "here"
    assert asdict(replace(Point(1), y=3)) == {"x": 1, "y": 3}
    assert pickle.loads(pickle.dumps(Point(1, 2))) == Point(1, 2)


def test_value_runs_its_check_and_refuses_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="below zero"):
        Point(-1)
    with pytest.raises(TypeError, match="z"):
        Point(1, z=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="'x'"):
        Point()  # type: ignore[call-arg]
