"""Settings for tests of fine-tuning."""

from pathlib import Path

import pytest
from finetuning import ner_documents, tiny_model, write_splits


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint to begin with."""
    return tiny_model(tmp_path_factory.mktemp("start") / "tiny")


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three splits that share nothing."""
    docs = ner_documents(15)
    folder = tmp_path_factory.mktemp("data") / "made"
    return write_splits(folder, train=docs[:10], dev=docs[10:12], test=docs[12:])
