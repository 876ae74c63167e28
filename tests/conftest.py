"""Shared by all tests: where the real data is, how to say that it is missing, and one thread for tiny models."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from patience import NIGHTLY
from shared_data import DATA


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real corpora and benchmarks beside the project."""
    if not DATA.is_dir():
        pytest.skip(f"the real data is not beside the project ({DATA} is missing)")
    return DATA


@pytest.fixture(scope="session")
def one_thread() -> Iterator[None]:
    """Tiny matrices are slower on several threads, and tests run side by side."""
    import torch  # here, because most tests do without it

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def pytest_configure() -> None:
    """Take signals as in a terminal: nohup and shells in the background ignore some, and processes inherit that."""
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


# The same examples in every run, so that a change is judged by what it changes; other examples are for the nightly run.
settings.register_profile(
    "ordinary",
    max_examples=100,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "nightly", parent=settings.get_profile("ordinary"), derandomize=False, max_examples=20_000, print_blob=True
)
settings.load_profile("nightly" if NIGHTLY else "ordinary")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every hypothesis test, so that `make nightly` can choose them, and skip what is only for that."""
    for item in items:
        if getattr(getattr(item, "function", None), "is_hypothesis_test", False):
            item.add_marker("property")
        if not NIGHTLY and item.get_closest_marker("nightly"):
            item.add_marker(pytest.mark.skip(reason="large: only by make nightly"))
