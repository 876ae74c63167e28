"""Windows hide nothing from a model that looks no farther than they overlap, and fall where the text near them says."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from dictionary_models import WORDS, dictionary_model
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from lexome.document import Document, Passage
from lexome.infer.annotator import Annotator
from lexome.infer.predictor import read_settings, write_settings

OVERLAP = 8
VOCABULARY = [*WORDS, ".", ",", *(f"w{number}" for number in range(50))]


def sees(reach: int, folder: Path, size: int) -> Path:
    """A model whose numbers for a token are of the tokens up to so far from it, with random weights."""
    made = dictionary_model(folder)
    settings = read_settings(made)
    assert settings.task is not None
    write_settings(made, replace(settings, max_tokens=size, task={**settings.task, "overlap": OVERLAP}))
    graph = onnx.load(made / "model.onnx").graph
    rng = np.random.default_rng(3)
    tags = 7
    table = rng.normal(size=(len(numpy_helper.to_array(graph.initializer[0])), tags)).astype(np.float32)
    weights = rng.normal(size=(tags, tags, 2 * reach + 1)).astype(np.float32)
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["found"]),
        helper.make_node("Transpose", ["found"], ["turned"], perm=[0, 2, 1]),
        helper.make_node("Conv", ["turned", "weights"], ["mixed"], pads=[reach, reach]),
        helper.make_node("Transpose", ["mixed"], ["logits"], perm=[0, 2, 1]),
    ]
    rows: list[str | int] = ["rows", "tokens"]
    model = helper.make_graph(
        nodes,
        "sees",
        [helper.make_tensor_value_info(name, TensorProto.INT64, rows) for name in ("ids", "mask")],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [*rows, tags])],
        [numpy_helper.from_array(table, "table"), numpy_helper.from_array(weights, "weights")],
    )
    onnx.save(helper.make_model(model, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), made / "model.onnx")
    return made


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("windows")


def article(words: int, *, seed: int) -> Document:
    return Document("d", (Passage(0, " ".join(np.random.default_rng(seed).choice(VOCABULARY, words))),))


def found(annotator: Annotator, doc: Document, *, after: int = 0) -> list[tuple[int, int, str]]:
    return [(span.start, span.end, span.type) for span in annotator(doc).spans if span.start >= after]


@pytest.fixture(scope="module")
def near(root: Path) -> tuple[Annotator, Annotator]:
    """A model that looks as far as half of what windows share, in short rows and in rows that hold all."""
    opened = [Annotator.open(sees(OVERLAP // 2, root / str(size), size), threads=1) for size in (64, 4096)]
    return opened[0], opened[1]


@given(words=st.integers(65, 200), seed=st.integers(0, 1 << 30))
def test_mentions_are_those_of_a_text_read_at_once(near: tuple[Annotator, Annotator], words: int, seed: int) -> None:
    doc = article(words, seed=seed)
    assert len(near[0].models[0].encode(doc)) > 1
    assert found(near[0], doc) == found(near[1], doc)


def test_a_model_that_looks_farther_reads_otherwise_in_windows(root: Path) -> None:
    short, whole = (Annotator.open(sees(30, root / f"far-{size}", size), threads=1) for size in (64, 4096))
    doc = article(2000, seed=0)
    assert found(short, doc) != found(whole, doc)


@pytest.mark.parametrize("cut", [1, 2, 7, 30, 100, 333])
def test_what_is_cut_off_before_changes_nothing_behind(root: Path, cut: int) -> None:
    folder = root / f"cut-{cut}"
    annotator = Annotator.open(sees(30, folder, 64), threads=1)
    doc = article(3000, seed=1)
    begin = len(" ".join(doc.text.split()[:cut])) + 1
    short = Document("d", (Passage(begin, doc.text[begin:]),))
    after = len(" ".join(doc.text.split()[: cut + 3 * 64]))
    mentions = found(annotator, doc, after=after)
    assert len(mentions) > 1000
    assert found(annotator, short, after=after) == mentions
