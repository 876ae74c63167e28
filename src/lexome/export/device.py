"""Exported models on a GPU: their float weights in torch, packed batches over the documents of many processes.

Worker processes read, tokenize, decode and write; one process holds the device and runs what they send, all requests
that are waiting at a time. So the device waits for no file, and files are resumable as ever.

T tokens of all sequences of a batch, C labels
"""

import queue
import secrets
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from threading import Thread
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from lexome.errors import CheckpointError, UsageError
from lexome.infer.annotator import Annotator
from lexome.infer.concepts import ConceptOptions
from lexome.infer.predictor import MODEL, read_settings
from lexome.infer.sessions import Device, RunPacked, predictor_of
from lexome.models.encoder import Packing
from lexome.models.exported import read_exported
from lexome.tasks.task import Floats

# Tokens in one run of the device; a request that is longer runs alone.
BATCH_TOKENS = 1 << 17
# How long the process may take to load torch and the models.
START_TIMEOUT_S = 300.0


def precision_of(device: str) -> str:
    """bf16 on CUDA devices, fp32 elsewhere."""
    return "bf16" if torch.device(device).type == "cuda" else "fp32"


def load_on_device(folders: Sequence[Path], device: str, *, concepts: ConceptOptions | None = None) -> Annotator:
    """An annotator whose models run on a device, in this process; with `concepts`, mentions are linked."""
    annotator = Annotator.open(*folders, threads=1, concepts=concepts)
    models = [
        model.with_predictor(predictor_of(model.predictor.folder, open_model(model.predictor.folder, device)))
        for model in annotator.models
    ]
    return Annotator(models, annotator.concepts, batch_tokens=BATCH_TOKENS)


def open_model(folder: Path, device: str) -> RunPacked:
    """A function that runs packed sequences on a device with the float weights of an exported model."""
    settings = read_settings(folder)
    if settings.kind != "token":
        message = f"{folder}: a {settings.kind} model; --device runs NER models only. Leave the option out."
        raise UsageError(message, code="unsupported-model", value=settings.kind)
    _require_device(device)
    model = read_exported(folder / MODEL, kind=settings.kind, labels=len(settings.labels)).to(device)
    if precision_of(device) == "bf16":
        model = model.bfloat16()

    @torch.inference_mode()
    def run(ids_T: NDArray[np.int32], lengths_S: NDArray[np.int32]) -> Floats:
        packing = Packing.of(np.cumsum(lengths_S), device)
        logits_TC = model(torch.from_numpy(ids_T.astype(np.int64)).to(device, non_blocking=True), packing)
        # fp16 has more bits than bf16's for logits, and half the bytes of fp32.
        half = torch.float16 if logits_TC.dtype == torch.bfloat16 else torch.float32
        return cast(Floats, logits_TC.to(half).cpu().numpy())

    return run


def _require_device(device: str) -> None:
    try:
        kind = torch.device(device).type
    except RuntimeError:
        kind = ""
    if kind not in ("cpu", "cuda", "mps") or (kind == "cuda" and not torch.cuda.is_available()):
        message = f"device {device!r} is not available; expected cuda, cuda:1, ... or cpu. Leave --device out."
        raise UsageError(message, code="unknown-device", value=device)


@dataclass(slots=True)
class Usage:
    """What a device has done: seconds since the first request, seconds at work, tokens and runs."""

    seconds: float = 0.0
    busy_s: float = 0.0
    tokens: int = 0
    batches: int = 0


@dataclass(slots=True)
class Server:
    """A device that other processes may use, and after the context its usage."""

    device: Device
    usage: Usage


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
            server = Server(Device(device, precision_of(device), address, key), Usage())
            yield server
            ours.send("stop")
            server.usage = ours.recv()
        except EOFError:
            raise CheckpointError(f"the process on {device} ended.", code="no-device", value=device) from None
        finally:
            ours.close()
            process.join(timeout=10)
            process.terminate()


Request = tuple[Connection, int, NDArray[np.int32], NDArray[np.int32]]


def _serve(control: Connection, folders: Sequence[Path], device: str, address: str, key: bytes) -> None:
    """The device's process: one thread accepts, one reads each connection, and this one runs the models."""
    requests: queue.Queue[Request | None] = queue.Queue()
    try:
        models = [open_model(folder, device) for folder in folders]
        listener = Listener(address, authkey=key)
    except Exception as error:  # whatever it is, the main process reports it
        control.send(f"{type(error).__name__}: {error}")
        return
    Thread(target=_accept, args=(listener, requests), daemon=True).start()
    Thread(target=_await_stop, args=(control, requests), daemon=True).start()
    control.send(True)
    usage, start = Usage(), 0.0
    while (batch := _next_batch(requests)) is not None:
        begin = time.perf_counter()
        start = start or begin
        _run_batch(models, batch)
        usage.busy_s += time.perf_counter() - begin
        usage.tokens += sum(len(ids) for _, _, ids, _ in batch)
        usage.batches += 1
        usage.seconds = time.perf_counter() - start
    control.send(usage)


def _accept(listener: Listener, requests: "queue.Queue[Request | None]") -> None:
    while True:
        try:
            connection = listener.accept()
        except OSError:
            return
        except Exception:  # a stranger without the key
            continue
        Thread(target=_read, args=(connection, requests), daemon=True).start()


def _read(connection: Any, requests: "queue.Queue[Request | None]") -> None:
    try:
        while True:
            requests.put((connection, *connection.recv()))
    except (EOFError, OSError):
        connection.close()


def _await_stop(control: Connection, requests: "queue.Queue[Request | None]") -> None:
    with suppress(EOFError, OSError):  # the main process is gone
        control.recv()
    requests.put(None)


def _next_batch(requests: "queue.Queue[Request | None]") -> list[Request] | None:
    """The next request of one model, with those of it that are waiting; None at the end."""
    first = requests.get()
    if first is None:
        return None
    batch, tokens = [first], len(first[2])
    later: list[Request | None] = []
    while tokens < BATCH_TOKENS:
        try:
            request = requests.get_nowait()
        except queue.Empty:
            break
        if request is None or request[1] != first[1]:
            later.append(request)
            break
        batch.append(request)
        tokens += len(request[2])
    for request in later:
        requests.put(request)
    return batch


def _run_batch(models: Sequence[RunPacked], batch: Sequence[Request]) -> None:
    """Run the requests as one packed batch, and send each its logits."""
    run = models[batch[0][1]]
    ids_T = np.concatenate([ids for _, _, ids, _ in batch])
    lengths_S = np.concatenate([lengths for _, _, _, lengths in batch])
    parts: list[Any]
    try:
        parts = np.split(run(ids_T, lengths_S), np.cumsum([len(ids) for _, _, ids, _ in batch])[:-1])
    except Exception as error:  # each worker reports it for its file
        parts = [f"{type(error).__name__}: {error}"] * len(batch)
    for (connection, *_), part in zip(batch, parts, strict=True):
        try:
            connection.send(part)
        except OSError:
            continue  # a worker that was killed
