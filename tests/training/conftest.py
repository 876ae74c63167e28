"""Settings for tests of training, and the token shards that most of them read."""

import pytest
from pretraining import make_shards

from lexome.corpus.shards import Shards


@pytest.fixture(autouse=True, scope="session")
def _small(one_thread: None) -> None:
    """Every model here is tiny."""


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Shards:
    """A few invented documents as token shards; no test changes them."""
    return make_shards(tmp_path_factory.mktemp("made"))
