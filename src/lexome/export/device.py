"""Exported models on a GPU: their float weights in torch, packed batches over the documents of many processes.

Worker processes read, tokenize, decode and write; one process owns the device and runs what they send, all waiting
requests as one batch. So the device never waits for a file, and bulk annotation remains resumable.

T tokens of all sequences of a batch, C labels
"""

import queue
import secrets
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from threading import Thread
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from lexome.errors import CheckpointError, UsageError
from lexome.files import verify_checksums
from lexome.infer.annotator import Annotator
from lexome.infer.concepts import ConceptOptions
from lexome.infer.predictor import CHANGED, MODEL, read_settings
from lexome.infer.sessions import Columns, Device, RunPacked, packed_model
from lexome.models.encoder import Packing
from lexome.models.exported import read_exported
from lexome.tasks import Ner
from lexome.tasks.task import Floats

# Tokens in one run of the device; a longer request has a run to itself.
BATCH_TOKENS = 1 << 17
# How long the process may take to load torch and the models.
START_TIMEOUT_S = 300.0
# The backlog of connections: workers start at the same time, and the default is 1.
BACKLOG = 128


def precision_of(device: str) -> str:
    """bf16 on CUDA devices, fp32 elsewhere."""
    return "bf16" if torch.device(device).type == "cuda" else "fp32"


def load_on_device(folders: Sequence[Path], device: str, *, concepts: ConceptOptions | None = None) -> Annotator:
    """An annotator whose models run on a device, in this process; with `concepts`, mentions are linked."""
    models = [packed_model(folder, open_model(folder, device)) for folder in folders]
    return Annotator(models, None if concepts is None else concepts.open(), batch_tokens=BATCH_TOKENS)


def open_model(folder: Path, device: str) -> RunPacked:
    """A function that runs packed sequences on a device with the float weights of an exported model."""
    settings = read_settings(folder)
    # Heads of other tasks have token labels too, but other layers.
    kind = (settings.task or {}).get("kind", settings.kind)
    if kind != Ner.kind:
        message = f"{folder}: a {kind} model; only NER models run on a device. Leave out the device, or the model."
        raise UsageError(message, code="unsupported-model", value=kind)
    _require_device(device)
    verify_checksums(folder, remedy=CHANGED)
    model = read_exported(folder / MODEL, kind=settings.kind, labels=len(settings.labels)).to(device)
    if precision_of(device) == "bf16":
        model = model.bfloat16()
    on_cuda = torch.device(device).type == "cuda"
    every = tuple(range(len(settings.labels)))
    chosen = lru_cache(maxsize=16)(lambda columns: torch.tensor(columns, device=device))

    @torch.inference_mode()
    def run(ids_T: NDArray[np.int32], lengths_S: NDArray[np.int32], columns: Columns) -> Floats:
        packing = Packing.of(np.cumsum(lengths_S), device)
        ids = torch.from_numpy(ids_T.astype(np.int64))
        # From pinned memory a copy does not wait for what the device is doing.
        logits_TC = model((ids.pin_memory() if on_cuda else ids).to(device, non_blocking=True), packing)
        if columns != every:
            logits_TC = logits_TC[:, chosen(columns)]
        # fp16 has more bits than bf16's for logits, and half the bytes of fp32.
        half = torch.float16 if logits_TC.dtype == torch.bfloat16 else torch.float32
        logits_TC = logits_TC.to(half)
        if not on_cuda:
            return cast(Floats, logits_TC.cpu().numpy())
        # torch keeps pinned memory that is no longer used for the next batch.
        pinned_TC = torch.empty(logits_TC.shape, dtype=half, pin_memory=True)
        pinned_TC.copy_(logits_TC, non_blocking=True)
        torch.cuda.current_stream(device).synchronize()
        return cast(Floats, pinned_TC.numpy())

    # Loads libraries and compiles kernels now, for numbers of tokens that are a multiple of 16 and that are not.
    for tokens in (64, 65):
        run(np.full(tokens, settings.pad, np.int32), np.array([tokens], np.int32), every)
    return run


def _require_device(device: str) -> None:
    try:
        kind = torch.device(device).type
    except RuntimeError:
        kind = ""
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not available.get(kind, False):
        message = f"device {device!r} is not available; expected cuda, cuda:1, ... or cpu. Leave --device out."
        raise UsageError(message, code="unknown-device", value=device)


@dataclass(slots=True)
class Usage:
    """Counters of a device: seconds since the first request, busy seconds, tokens and runs."""

    seconds: float = 0.0
    busy_s: float = 0.0
    tokens: int = 0
    batches: int = 0


@dataclass(slots=True)
class Server:
    """A device that other processes may use, and its usage until `update` was called or the context ended."""

    device: Device
    usage: Usage
    control: Connection

    def update(self) -> Usage:
        """The usage so far."""
        self.control.send("usage")
        self.usage = self.control.recv()
        return self.usage


@contextmanager
def serve_models(folders: Sequence[Path], device: str) -> Iterator[Server]:
    """A process that runs these models on a device for the workers of bulk annotation, until the context ends."""
    _require_device(device)
    key = secrets.token_bytes(32)
    spawn = get_context("spawn")
    ours, theirs = spawn.Pipe()
    with tempfile.TemporaryDirectory(prefix="lexome-device-") as folder:
        address = str(Path(folder) / "socket")
        arguments = (theirs, tuple(folders), device, address, key)
        process = spawn.Process(target=_serve, args=arguments, name="lexome device", daemon=True)
        process.start()
        theirs.close()
        try:
            ready = ours.recv() if ours.poll(START_TIMEOUT_S) else "it did not start in time"
            if ready is not True:
                raise CheckpointError(f"models cannot run on {device}: {ready}", code="no-device", value=device)
            server = Server(Device(device, precision_of(device), address, key), Usage(), ours)
            yield server
            ours.send("stop")
            server.usage = ours.recv()
        except EOFError:
            raise CheckpointError(f"the process on {device} ended.", code="no-device", value=device) from None
        finally:
            ours.close()
            process.join(timeout=10)
            process.terminate()


@dataclass(slots=True)
class Request:
    """Sequences of one connection that wait for the device; `key` is the model and the columns to return."""

    key: tuple[int, Columns]
    ids_T: NDArray[np.int32]
    lengths_S: NDArray[np.int32]
    answer: "queue.SimpleQueue[Any]"


def _serve(control: Connection, folders: Sequence[Path], device: str, address: str, key: bytes) -> None:
    """The device's process: one thread accepts, one serves each connection, and this one runs the models."""
    requests: queue.Queue[Request | None] = queue.Queue()
    try:
        models = [open_model(folder, device) for folder in folders]
        listener = Listener(address, backlog=BACKLOG, authkey=key)
    except Exception as error:  # whatever it is, the main process reports it
        control.send(f"{type(error).__name__}: {error}")
        return
    Thread(target=_accept, args=(listener, requests), daemon=True).start()
    usage, start = Usage(), 0.0
    Thread(target=_await_stop, args=(control, requests, usage), daemon=True).start()
    control.send(True)
    later: deque[Request | None] = deque()
    while (batch := _next_batch(requests, later)) is not None:
        begin = time.perf_counter()
        start = start or begin
        answers = _run_batch(models, batch)
        usage.busy_s += time.perf_counter() - begin
        usage.tokens += sum(len(request.ids_T) for request in batch)
        usage.batches += 1
        usage.seconds = time.perf_counter() - start
        for request, answer in zip(batch, answers, strict=True):
            request.answer.put(answer)
    control.send(usage)


def _accept(listener: Listener, requests: "queue.Queue[Request | None]") -> None:
    while True:
        try:
            connection = listener.accept()
        except OSError:
            return
        except Exception:  # a stranger without the key
            continue
        Thread(target=_answer, args=(connection, requests), daemon=True).start()


def _answer(connection: Any, requests: "queue.Queue[Request | None]") -> None:
    """Pass on the requests of one process and send the responses, so that the device never waits for a slow process."""
    answer: queue.SimpleQueue[Any] = queue.SimpleQueue()
    # The process may be killed at any time.
    with suppress(EOFError, OSError), connection:
        while True:
            key, ids_T, lengths_S = connection.recv()
            requests.put(Request(key, ids_T, lengths_S, answer))
            connection.send(answer.get())


def _await_stop(control: Connection, requests: "queue.Queue[Request | None]", usage: Usage) -> None:
    with suppress(EOFError, OSError):  # the main process is gone
        while control.recv() == "usage":
            control.send(usage)
    requests.put(None)


def _next_batch(requests: "queue.Queue[Request | None]", later: deque[Request | None]) -> list[Request] | None:
    """The next request, with those for the same model and columns that are waiting; None at the end.

    Other requests are put into `later`, which is read first.
    """
    first = later.popleft() if later else requests.get()
    if first is None:
        return None
    batch, tokens = [first], len(first.ids_T)
    while tokens < BATCH_TOKENS:
        try:
            request = requests.get_nowait()
        except queue.Empty:
            break
        if request is None or request.key != first.key:
            later.append(request)
            break
        batch.append(request)
        tokens += len(request.ids_T)
    return batch


def _run_batch(models: Sequence[RunPacked], batch: Sequence[Request]) -> list[Any]:
    """The logits of each request, from one packed batch of all; if the batch fails, its error for each."""
    number, columns = batch[0].key
    ids_T = np.concatenate([request.ids_T for request in batch])
    lengths_S = np.concatenate([request.lengths_S for request in batch])
    try:
        logits_TC = models[number](ids_T, lengths_S, columns)
    except Exception as error:  # each worker reports it for its file
        return [f"{type(error).__name__}: {error}"] * len(batch)
    return np.split(logits_TC, np.cumsum([len(request.ids_T) for request in batch])[:-1])
