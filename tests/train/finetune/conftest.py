"""Settings for tests of fine-tuning."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from finetuning import tiny_model


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """Tiny matrices are slower on several threads, and tests run side by side."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint to begin with."""
    return tiny_model(tmp_path_factory.mktemp("start") / "tiny")
