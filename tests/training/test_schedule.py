"""The length of a run and its learning rate, by numbers."""

import pytest
from errors import raises

from lexome.errors import UsageError
from lexome.training.optim import LearningRateSchedule, Length, value_at


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("linear", [0.0, 1.0, 2.0, 1.5, 1.0, 0.0]),
        ("cosine", [0.0, 1.0, 2.0, 1.707107, 1.0, 0.0]),
        ("constant", [0.0, 1.0, 2.0, 2.0, 2.0, 0.0]),
    ],
)
def test_the_rate_warms_up_and_falls(kind: str, expected: list[float]) -> None:
    curve = LearningRateSchedule(2.0, kind, warmup_ratio=0.2, decay_ratio=0.2)  # type: ignore[arg-type]
    assert [curve.at(share) for share in (0.0, 0.1, 0.2, 0.4, 0.6, 1.0)] == pytest.approx(expected, abs=1e-6)


def test_constant_falls_in_its_last_part_alone() -> None:
    curve = LearningRateSchedule(1.0, "constant", warmup_ratio=0.1, decay_ratio=0.4)
    assert [curve.at(share) for share in (0.1, 0.6, 0.8, 1.0)] == pytest.approx([1.0, 1.0, 0.5, 0.0])


def test_a_share_of_the_rate_is_left_at_the_end() -> None:
    assert LearningRateSchedule(1.0, "cosine", min_ratio=0.1).at(1.0) == pytest.approx(0.1)


def test_constant_without_decay_never_falls() -> None:
    assert LearningRateSchedule(1.0, "constant", decay_ratio=0.0).at(1.0) == 1.0


def test_each_kind_of_length_counts_its_own() -> None:
    at = {"steps": 10, "tokens": 3000, "elapsed_s": 45.0}
    shares = [Length(steps=40).fraction(**at), Length(tokens=4000).fraction(**at), Length(seconds=60.0).fraction(**at)]
    assert shares == [0.25, 0.75, 0.75]


def test_a_run_is_never_more_than_done() -> None:
    assert Length(tokens=100).fraction(steps=1, tokens=140, elapsed_s=0.0) == 1.0


def test_two_lengths_are_refused() -> None:
    with raises(UsageError, code="invalid-length"):
        Length(steps=1, tokens=1)


def test_a_ramp_holds_each_value_from_its_point_on() -> None:
    ramp = ((0.0, 128.0), (0.9, 512.0))
    assert [value_at(ramp, share, default=1) for share in (0.0, 0.899, 0.9, 1.0)] == [128, 128, 512, 512]
