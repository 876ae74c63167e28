"""Shared by all tests: where the real data is, and how to say that it is missing."""

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real corpora and benchmarks beside the project."""
    if not SHARED.is_dir():
        pytest.skip(f"the real data is not beside the project ({SHARED.name} is missing)")
    return SHARED
