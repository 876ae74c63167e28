"""Sessions that stand in for onnxruntime's: packed sequences, run by a function here or by another process.

T tokens of all sequences of a batch, without padding; C labels
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Client, Connection
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lexome.errors import CheckpointError
from lexome.infer.predictor import TOKENIZER, Predictor, read_settings
from lexome.infer.tokenizer import open_tokenizer
from lexome.tasks.task import Floats

RunPacked = Callable[[NDArray[np.int32], NDArray[np.int32]], Floats]
"""Ids of all tokens and the length of each sequence, to logits (T, C)."""


class PackedSession:
    """An ONNX session's interface over a function of packed sequences: padding is removed before, and added after."""

    def __init__(self, run: RunPacked) -> None:
        self._run = run

    def get_session_options(self) -> Any:
        """One thread: the work is done elsewhere."""
        return SimpleNamespace(intra_op_num_threads=1)

    def get_inputs(self) -> list[Any]:
        """Ids and their mask."""
        return [SimpleNamespace(name="ids"), SimpleNamespace(name="mask")]

    def get_overridable_initializers(self) -> list[Any]:
        """None."""
        return []

    def run(self, outputs: Sequence[str], inputs: Mapping[str, NDArray[np.int64]]) -> list[Floats]:
        """The logits of a padded batch, (B, T, C)."""
        assert list(outputs) == ["logits"]
        mask_BT = inputs["mask"] > 0
        logits_TC = self._run(inputs["ids"][mask_BT].astype(np.int32), mask_BT.sum(1).astype(np.int32))
        padded_BTC = np.zeros((*mask_BT.shape, logits_TC.shape[1]), np.float32)
        padded_BTC[mask_BT] = logits_TC
        return [padded_BTC]


@dataclass(frozen=True, slots=True)
class Device:
    """A device that a process of `lexome.export.device` serves models on.

    name       as torch names it: cuda, cuda:1, cpu
    precision  of the model there
    address    of the process, a path or a host with its port; `key` authenticates connections to it
    """

    name: str
    precision: str
    address: Any
    key: bytes


def open_remote(folder: Path, number: int, device: Device) -> Predictor:
    """The predictor of a model folder whose sequences run on a device, as the `number`th model that it serves."""
    try:
        connection = Client(device.address, authkey=device.key)
    except OSError as error:
        message = f"the process that runs models on {device.name} cannot be reached ({error}). Run the command again."
        raise CheckpointError(message, code="no-device", value=device.name) from None
    return predictor_of(folder, partial(_run_remotely, connection, Lock(), number))


def predictor_of(folder: Path, run: RunPacked) -> Predictor:
    """The predictor of a model folder whose sequences are run by a function."""
    return Predictor(folder, read_settings(folder), open_tokenizer(folder / TOKENIZER), PackedSession(run))


def _run_remotely(
    connection: Connection, lock: Lock, number: int, ids_T: NDArray[np.int32], lengths_S: NDArray[np.int32]
) -> Floats:
    with lock:
        connection.send((number, ids_T, lengths_S))
        answer = connection.recv()
    if isinstance(answer, str):
        raise CheckpointError(f"the model failed on its device: {answer}", code="device-failed", value=answer)
    return np.asarray(answer, np.float32)
