"""Settings for tests of training."""

import pytest


@pytest.fixture(autouse=True, scope="session")
def _small(one_thread: None) -> None:
    """Every model here is tiny."""
