"""Settings for tests of fine-tuning."""

from pathlib import Path

import pytest
from finetuning import tiny_model


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint to begin with."""
    return tiny_model(tmp_path_factory.mktemp("start") / "tiny")
