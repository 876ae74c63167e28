"""A tiny model, exported once for all tests of inference."""

from pathlib import Path

import pytest
from tiny_models import hf_model, tokenizer_folder

from lexome.export.export import export
from lexome.infer.predictor import Predictor


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> Path:
    """A masked LM of transformers with 64 pieces, w0 to w58 among them, for rows of 40 tokens."""
    folder = tmp_path_factory.mktemp("tiny") / "tiny-bert"
    hf_model("BertForMaskedLM", "bert").save_pretrained(folder)
    return tokenizer_folder(folder)


@pytest.fixture(scope="session")
def exported(checkpoint: Path) -> Path:
    """The same as an ONNX folder."""
    folder = checkpoint.with_name("tiny-onnx")
    export(checkpoint, folder)
    return folder


@pytest.fixture(scope="session")
def predictor(exported: Path) -> Predictor:
    return Predictor.open(exported, threads=1)
