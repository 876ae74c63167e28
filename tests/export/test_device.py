"""Models on a device: the float weights of an exported model in torch, here and in a process of their own."""

import queue
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from dictionary_models import relation_model
from onnx import numpy_helper

from lexome import load, read
from lexome.document import Document, Passage
from lexome.errors import CheckpointError, UsageError
from lexome.export.device import Request, _next_batch, _run_batch, load_on_device, open_model, serve_models
from lexome.infer.annotator import Annotator, Model, default_model
from lexome.infer.bulk import BulkSettings, annotate_files
from lexome.infer.predictor import MODEL
from lexome.infer.sessions import Device, PackedPredictor, open_remote, packed_model
from lexome.models.exported import dequantize, read_exported

TEXTS = (
    "Mutations in BRCA1 raise the risk of breast cancer, and olaparib is used to treat it.",
    "Aspirin lowers the risk of stroke.",
    "Zika virus infects human neural progenitors. " * 30,
)


def mentions(docs: Iterator[Document]) -> list[set[tuple[int, int, str]]]:
    return [{(span.start, span.end, span.type) for span in doc.spans} for doc in docs]


def test_load_takes_a_device() -> None:
    docs = [Document.from_text(text, id=str(number)) for number, text in enumerate(TEXTS[:2])]
    there, here = load(device="cpu", link=False), load(threads=1, link=False)
    assert mentions(there.annotate(docs)) == mentions(here.annotate(docs))


def test_int8_weights_become_floats() -> None:
    arrays = {
        "layers.0.mlp.up.weight.int8": np.array([[127, -2], [4, 0]], np.int8),
        "layers.0.mlp.up.weight.step": np.array([0.5, 2.0], np.float32),
        "layers.0.mlp.up.weight.shares": np.array([2.0, 0.25], np.float32),
        "layers.0.mlp.down.weight.half": np.array([[1.5]], np.float16),
        "layers.0.mlp.up.bias": np.array([3.0], np.float32),
        "float321.0": np.array(1.0, np.float32),
    }
    weights = dequantize(arrays)
    assert weights.keys() == {"layers.0.mlp.up.weight", "layers.0.mlp.down.weight", "layers.0.mlp.up.bias"}
    np.testing.assert_allclose(weights["layers.0.mlp.up.weight"], [[127.0, -8.0], [0.5, 0.0]])


def test_the_default_models_float_weights_compute_what_it_does() -> None:
    """Logits differ by what rounding activations costs: under 0.5 where they range over 20."""
    model = Model.open(default_model(), threads=1)
    examples = model.encode(Document("text", (Passage(0, TEXTS[0]),)))
    rounded = model.run(examples)[0]
    ids = np.asarray(examples[0].ids, np.int32)
    every = tuple(range(len(model.settings.labels)))
    exact = open_model(default_model(), "cpu")(ids, np.array([len(ids)], np.int32), every)
    assert exact.shape == rounded.shape
    assert np.abs(exact - rounded).max() < 0.5 < np.ptp(rounded) / 20


def test_packed_batches_give_the_mentions_of_single_texts() -> None:
    annotator = load_on_device([default_model()], "cpu")
    assert annotator.batch_tokens
    together = mentions(annotator.annotate(TEXTS))
    single = [mentions(annotator.annotate([text], batch_tokens=1))[0] for text in TEXTS]
    assert together == single
    # int8 rounds activations as well; on these clear texts it changes nothing.
    assert together[:2] == mentions(load(threads=1).annotate(TEXTS[:2]))


def test_bulk_on_a_device_writes_what_one_process_does(tmp_path: Path) -> None:
    """Workers send their batches to the device's process; files are those of the same model in this one."""
    inputs = tmp_path / "in"
    inputs.mkdir()
    for number, text in enumerate(TEXTS):
        (inputs / f"{number}.txt").write_text(text)
    settings = BulkSettings((default_model(),), "jsonl")
    with serve_models([default_model()], "cpu") as server:
        assert server.device.precision == "fp32"
        result = annotate_files([inputs], tmp_path / "out", replace(settings, device=server.device))
        assert server.update().tokens == result.counts.tokens
    assert result.files == 3
    assert server.usage.tokens == result.counts.tokens > 0
    assert 0 < server.usage.busy_s <= server.usage.seconds
    expected = mentions(load_on_device([default_model()], "cpu").annotate(TEXTS))
    written = [mentions(read(tmp_path / "out" / f"{number}.jsonl"))[0] for number in range(3)]
    assert written == expected
    # Another run finds them done, without a device; one with onnxruntime is another setting.
    with pytest.raises(UsageError):
        annotate_files([inputs], tmp_path / "out", settings)


def test_problems_are_reported() -> None:
    with pytest.raises(UsageError) as usage:
        load_on_device([default_model()], "warp")
    assert usage.value.code == "unknown-device"
    if not torch.cuda.is_available():
        with pytest.raises(UsageError) as usage:
            load_on_device([default_model()], "cuda")
        assert usage.value.code == "unknown-device"
    with pytest.raises(CheckpointError) as gone:
        open_remote(default_model(), 0, Device("cuda", "bf16", "/nonexistent/socket", b"key"))
    assert gone.value.code == "no-device"
    with pytest.raises(CheckpointError) as kind:
        read_exported(default_model() / MODEL, kind="masked", labels=2)
    assert kind.value.code == "unsupported-model"


def test_models_of_other_tasks_are_refused(tmp_path: Path) -> None:
    """A relation model labels tokens as an NER model does."""
    folder = relation_model(tmp_path / "relations")
    with pytest.raises(UsageError) as error:
        load_on_device([default_model(), folder], "cpu")
    assert (error.value.code, error.value.value) == ("unsupported-model", "document-relation")


def test_graphs_of_another_architecture_are_refused(tmp_path: Path) -> None:
    graph = onnx.load(str(default_model() / MODEL))
    kept = [weight for weight in graph.graph.initializer if weight.name != "layers.3.mlp.up.bias"]
    del graph.graph.initializer[:]
    graph.graph.initializer.extend(kept)
    onnx.save(graph, str(tmp_path / MODEL))
    with pytest.raises(CheckpointError) as error:
        read_exported(tmp_path / MODEL, kind="token", labels=39)
    assert error.value.code == "unknown-weights"
    del graph.graph.initializer[:]
    graph.graph.initializer.append(numpy_helper.from_array(np.zeros(2, np.float32), "other"))
    onnx.save(graph, str(tmp_path / MODEL))
    with pytest.raises(CheckpointError) as error:
        read_exported(tmp_path / MODEL, kind="token", labels=39)
    assert error.value.code == "unsupported-model"


def test_sequences_are_packed_and_split_again() -> None:
    """In order, whatever their lengths, without padding, and no batch above the limit."""
    batches: list[list[int]] = []

    def run(ids_T: np.ndarray, lengths_S: np.ndarray, columns: tuple[int, ...]) -> np.ndarray:
        batches.append(lengths_S.tolist())
        return np.stack([ids_T * column for column in columns], axis=1).astype(np.float32)

    predictor = PackedPredictor(default_model(), run, (1, -1))
    rows = [[5, 6, 7], [8], [9, 4]]
    for limit, expected in ((4, [[3, 1], [2]]), (100, [[3, 1, 2]]), (0, [[3], [1], [2]])):
        batches.clear()
        logits = predictor.logits(rows, batch_tokens=limit)
        assert [window.tolist() for window in logits] == [[[token, -token] for token in row] for row in rows]
        assert batches == expected
    assert predictor.tokens_run == 18
    assert predictor.logits([]) == []
    with pytest.raises(UsageError) as error:
        predictor.logits([[1] * 513])
    assert error.value.code == "invalid-length"


def test_only_the_labels_of_requested_types_are_asked_for() -> None:
    """Mentions are those of all labels; what is asked for are three columns of each type."""
    asked: set[tuple[int, ...]] = set()
    whole = open_model(default_model(), "cpu")

    def run(ids_T: np.ndarray, lengths_S: np.ndarray, columns: tuple[int, ...]) -> np.ndarray:
        asked.add(columns)
        return whole(ids_T, lengths_S, columns)

    extra = Model.open(default_model(), threads=1).extra[0]
    for types, groups in ((None, 13), ((), 6), ((extra,), 7)):
        asked.clear()
        annotator = Annotator([packed_model(default_model(), run, types=types)])
        chosen = annotator.types if not types else (*annotator.types, *types)
        found = mentions(annotator.annotate(TEXTS, types=chosen))
        assert found == mentions(load_on_device([default_model()], "cpu").annotate(TEXTS, types=chosen))
        assert {len(columns) for columns in asked} == {3 * groups}


def test_a_document_that_fails_comes_after_those_before_it() -> None:
    """Groups are in progress together; the error is raised where its document would be."""
    whole = open_model(default_model(), "cpu")

    def run(ids_T: np.ndarray, lengths_S: np.ndarray, columns: tuple[int, ...]) -> np.ndarray:
        if (lengths_S > 300).any():
            raise CheckpointError("too long for this device", code="device-failed")
        return whole(ids_T, lengths_S, columns)

    annotator = Annotator([packed_model(default_model(), run)], batch_tokens=1000)
    texts = [*TEXTS[:2], *TEXTS[:1], TEXTS[2], *TEXTS[:2]]
    results = annotator.annotate(texts, together=2)
    expected = mentions(annotator.annotate(texts[:3]))
    assert [mentions(iter([next(results)]))[0] for _ in range(3)] == expected
    with pytest.raises(CheckpointError) as error:
        next(results)
    assert error.value.code == "device-failed"


def test_requests_of_other_columns_wait_for_the_next_batch() -> None:
    requests: queue.Queue[Request | None] = queue.Queue()
    later: deque[Request | None] = deque()
    for columns in ((0,), (0,), (1,)):
        ids, lengths = np.zeros(2, np.int32), np.array([2], np.int32)
        requests.put(Request((0, columns), ids, lengths, queue.SimpleQueue()))
    requests.put(None)
    batches: list[list[Request]] = []
    while (batch := _next_batch(requests, later)) is not None:
        batches.append(batch)
    assert [[request.key[1] for request in batch] for batch in batches] == [[(0,), (0,)], [(1,)]]
    run = lambda ids_T, lengths_S, columns: np.ones((len(ids_T), len(columns)), np.float32)  # noqa: E731
    assert [len(answer) for answer in _run_batch([run], batches[0])] == [2, 2]
    failed = _run_batch([lambda *_: 1 / 0], batches[0])  # type: ignore[list-item,return-value]
    assert len(failed) == 2
    assert "ZeroDivisionError" in failed[0]
