"""A service on a port of its own, and models whose words are known: what the tests of the service share."""

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import httpx
import numpy as np
import onnx
import uvicorn
from dictionary_models import OPSET, SPECIAL, put_settings
from onnx import TensorProto, helper, numpy_helper
from patience import PATIENCE_S

from lexome.corpus.vocab.tokenizers import bert_tokenizer
from lexome.document import Document, Passage, Span
from lexome.infer.annotator import Model
from lexome.infer.predictor import MODEL, TOKENIZER
from lexome.metadata import Author, Journal, Metadata
from lexome.serve.limits import Limits
from lexome.serve.server import listening, uvicorn_config
from lexome.serve.service import Library
from lexome.tasks import Task
from lexome.tasks.task import Example, Floats

Made = TypeVar("Made")


def patient_limits(**bounds: Any) -> Limits:
    """Limits whose timeouts a busy machine does not reach, but for those given here."""
    times = dict.fromkeys(("answer_s", "read_s", "send_s", "idle_s", "stop_s"), PATIENCE_S)
    return Limits(**{**times, **bounds})


def shorten(limits: Limits, **times: float) -> None:
    """Change timeouts of a service that is running: once all else has happened that they must not cut off."""
    for name, seconds in times.items():
        object.__setattr__(limits, name, seconds)


class BlockingModel(Model):
    """A model with windows of 64 tokens whose first run waits until `release` is set, and which records all runs."""

    def __init__(self, model: Model, *, fails: int = 0) -> None:
        super().__init__(model.predictor, model.task)
        self.frame = replace(self.frame, max_tokens=64)
        self.runs: list[list[int]] = []
        self.first_ids: list[int] = []
        self.fails = fails
        self.started, self.release = threading.Event(), threading.Event()

    def run(self, examples: Sequence[Example], *, batch_tokens: int = 0) -> list[Floats]:
        """Fails at windows of the length `fails`."""
        lengths = [len(example.ids) for example in examples]
        is_first = not self.runs
        self.runs.append(lengths)
        self.first_ids.append(int(examples[0].ids[1]))
        self.started.set()
        if is_first:
            assert self.release.wait(PATIENCE_S), "nobody released the model"
        if self.fails in lengths:
            raise RuntimeError("a model that breaks")
        return super().run(examples, batch_tokens=batch_tokens)


Serving = Callable[..., AbstractContextManager[httpx.Client]]

WORDS = ("brca1", "melanoma", "olaparib", "breast", "cancer", "good", "bad", "which", "?", ".")


def table_model(folder: Path, task: Task, words: dict[str, int]) -> Path:
    """A folder as `lexome export` makes it: each word speaks for one of the head's outputs."""
    folder.mkdir(parents=True)
    pieces = [*SPECIAL, *dict.fromkeys((*WORDS, *words, "@", "gene", "disease", "$"))]
    bert_tokenizer({piece: number for number, piece in enumerate(pieces)}, cased=False).save(str(folder / TOKENIZER))
    table = np.zeros((len(pieces), len(task.labels)), np.float32)
    for word, output in words.items():
        table[pieces.index(word.strip("@$")), output] = 8.0
    onnx.save(_graph(table, pooled=task.head == "sequence"), folder / MODEL)
    put_settings(folder, task, max_tokens=64)
    return folder


def _graph(table: np.ndarray, *, pooled: bool) -> onnx.ModelProto:
    rows = ["rows", "tokens"]
    nodes = [helper.make_node("Gather", ["table", "ids"], ["found" if pooled else "logits"])]
    if pooled:
        nodes.append(helper.make_node("ReduceMean", ["found"], ["logits"], axes=[1], keepdims=0))
    shape = ["rows", table.shape[1]] if pooled else [*rows, table.shape[1]]
    graph = helper.make_graph(
        nodes,
        "table",
        [helper.make_tensor_value_info(name, TensorProto.INT64, rows) for name in ("ids", "mask")],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(table, "table")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)


def library() -> Library:
    """A citation to be annotated, and one that is annotated already."""
    bare = Document(
        "a",
        (Passage(0, "BRCA1 in breast cancer", "title"), Passage(23, "Olaparib helps.", "abstract")),
        meta=Metadata(
            pmid="101",
            pmcid="PMC7",
            published="2021-03",
            journal=Journal(abbreviation="J Test"),
            authors=(Author("Curie", "Marie", "M"), Author(collective="The Group")),
        ),
    )
    known = Document("102", (Passage(0, "BRCA1"),), (Span("T1", "Gene", ((0, 5),), "BRCA1", ("NCBIGene:672",)),))
    return Library.of([bare, known])


def awaited(work: Coroutine[Any, Any, Made]) -> Made:
    """What a coroutine gives, from a thread of its own: once a browser was used, the main one has a loop that runs."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


@contextmanager
def running(
    app: Any, limits: Limits, *, send_buffer: int = 0, servers: list[uvicorn.Server] | None = None
) -> Iterator[int]:
    """An application on a free port, in a thread of its own; with a send buffer of this size, where it is given.

    The server is added to `servers`.
    """
    with listening("127.0.0.1", 0) as listener:
        if send_buffer:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        server = uvicorn.Server(uvicorn_config(app, limits))
        if servers is not None:
            servers.append(server)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), "the service did not stop"
