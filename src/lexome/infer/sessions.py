"""Models that run packed sequences through a function, such as a connection to the process that holds a device.

T tokens of all sequences of a batch, without padding; S sequences; C requested labels
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Client, Connection
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lexome.errors import CheckpointError, UsageError
from lexome.infer.annotator import Model
from lexome.infer.predictor import TOKENIZER, Predictor, TokenCounter, TokenIds, read_settings
from lexome.infer.tokenizer import open_tokenizer
from lexome.tasks.task import Floats, fill

Columns = tuple[int, ...]
"""The labels whose logits are requested, by index."""

RunPacked = Callable[[NDArray[np.int32], NDArray[np.int32], Columns], Floats]
"""Ids of all tokens, the length of each sequence, and the columns to return: to logits (T, C), fp16 or fp32."""


class PackedPredictor(Predictor):
    """The predictor of a token classifier whose packed sequences are run by a function."""

    def __init__(self, folder: Path, run: RunPacked, columns: Columns) -> None:
        self.folder, self.settings = folder, read_settings(folder)
        self.tokenizer = open_tokenizer(folder / TOKENIZER)
        # The model itself runs elsewhere.
        self.threads = 1
        self._run_packed, self._columns = run, columns
        self._counter = TokenCounter()

    def single_threaded(self) -> Predictor:
        """Itself, since several threads may use it."""
        return self

    def logits(
        self,
        rows: Sequence[TokenIds],
        *,
        segments: Sequence[TokenIds] | None = None,
        batch: int = 1,
        batch_tokens: int = 0,
    ) -> list[Floats]:
        """Logits (T, C) of each sequence, in batches of up to `batch_tokens`, without padding."""
        logits: list[Floats] = []
        for part in fill(range(len(rows)), list(map(len, rows)), batch_tokens):
            lengths_S = np.array([len(rows[index]) for index in part], np.int32)
            if not 0 < lengths_S.min() <= lengths_S.max() <= self.settings.max_tokens:
                message = f"a sequence of {lengths_S.max():,} tokens; expected 1 to {self.settings.max_tokens:,}."
                raise UsageError(message, code="invalid-length", value=int(lengths_S.max()))
            ids_T = np.concatenate([rows[index] for index in part]).astype(np.int32)
            self._counter.add(len(ids_T))
            logits += np.split(self._run_packed(ids_T, lengths_S, self._columns), np.cumsum(lengths_S)[:-1])
        return logits


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


def open_remote(folder: Path, number: int, device: Device, *, types: Collection[str] | None = None) -> Model:
    """A model folder that runs on a device, as the `number`th model that it serves; `types` as in `packed_model`."""
    try:
        connection = Client(device.address, authkey=device.key)
    except OSError as error:
        message = f"the process that runs models on {device.name} cannot be reached ({error}). Run the command again."
        raise CheckpointError(message, code="no-device", value=device.name) from None
    return packed_model(folder, partial(_run_remotely, connection, Lock(), number), types=types)


def packed_model(folder: Path, run: RunPacked, *, types: Collection[str] | None = None) -> Model:
    """A model whose sequences are run by a function, which is asked for the labels of these types only.

    Types that are predicted by default are always among them: the model's rules need all of those.
    """
    every = tuple(range(len(read_settings(folder).labels)))
    model = Model.of(PackedPredictor(folder, run, every))
    if not model.types or types is None:
        return model
    needed = [type_ for type_ in model.types if type_ not in model.extra or type_ in types]
    columns = model.task.columns_of(needed)
    place = {column: number for number, column in enumerate(columns)}
    return Model.of(PackedPredictor(folder, run, columns), columns=[place.get(column) for column in every])


def _run_remotely(
    connection: Connection,
    lock: Lock,
    number: int,
    ids_T: NDArray[np.int32],
    lengths_S: NDArray[np.int32],
    columns: Columns,
) -> Floats:
    with lock:
        connection.send(((number, columns), ids_T, lengths_S))
        answer = connection.recv()
    if isinstance(answer, str):
        raise CheckpointError(f"the model failed on its device: {answer}", code="device-failed", value=answer)
    return np.asarray(answer)
