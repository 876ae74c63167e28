"""An exported model at work: rows of token ids to numbers, with onnxruntime.

B texts of a batch, T tokens of the longest, D width, M asked positions, V vocabulary
"""

import hashlib
import os
from collections.abc import Sequence
from copy import copy
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lexome.errors import CheckpointError, UsageError
from lexome.infer.settings import MODEL, TOKENIZER, Settings, read_settings
from lexome.infer.tokens import Tokens, open_tokens

Floats = NDArray[np.float32]
Row = Sequence[int] | NDArray[np.int64]

# What others call the inputs of a graph.
NAMES = {"ids": "input_ids", "mask": "attention_mask", "segments": "token_type_ids"}

# What a graph may be given beside these, to compute the same a few heads at a time. On one core that is quicker for
# texts so long that the scores of all heads do not fit into its cache (docs/decisions/0010-inference.md).
BY_HEADS = "by_heads"
LONG = 128


class Run:
    """How many tokens were run, by however many threads."""

    def __init__(self) -> None:
        self.tokens = 0
        self._change = Lock()

    def add(self, tokens: int) -> None:
        """Count some more."""
        with self._change:
            self.tokens += tokens


class Predictor:
    """A model folder opened: its settings, its tokenizer, and the graph ready to run.

    >>> predictor = Predictor.open(Path("model-onnx"))                    # doctest: +SKIP
    >>> predictor.hidden([predictor.row("BRCA1 binds RAD51.")])[0].shape  # doctest: +SKIP
    (9, 512)
    """

    def __init__(
        self, folder: Path, settings: Settings, tokens: Tokens, session: Any, *, graph: Path | None = None
    ) -> None:
        self.folder = folder
        self.settings = settings
        self.tokens = tokens
        self.threads: int = session.get_session_options().intra_op_num_threads
        self._graph = (graph or folder / MODEL).absolute()
        self._graph_facts = _file_facts(self._graph)
        self._session = session
        self._inputs = _inputs(folder, session)
        self._run_so_far = Run()

    @property
    def tokens_run(self) -> int:
        """The tokens of all rows so far, special ones included."""
        return self._run_so_far.tokens

    def of_one_thread(self) -> "Predictor":
        """The same model for several threads to run at once, each on one core; the tokens are counted together.

        It takes memory for its weights a second time (docs/decisions/0010-inference.md). Where the file is gone or
        another one by now, it is this one, which threads may share too.
        """
        if self.threads == 1 or self._graph_facts is None or _file_facts(self._graph) != self._graph_facts:
            return self
        made = copy(self)
        made._session, made.threads = open_session(self._graph, 1), 1
        return made

    def aside(self) -> "Predictor":
        """The same model, with a count of tokens of its own."""
        made = copy(self)
        made._run_so_far = Run()
        return made

    @classmethod
    def open(cls, folder: Path, *, threads: int | None = None) -> "Predictor":
        """The model in a folder that `lexome export` made; on all usable cores, or on so many threads."""
        settings = read_settings(folder)
        for name in (MODEL, TOKENIZER):
            if not (folder / name).is_file():
                raise CheckpointError(f"{folder}: {name} is missing; expected a complete folder. Export it again.")
        seen = hashlib.sha256((folder / TOKENIZER).read_bytes()).hexdigest()
        if seen != settings.tokenizer_sha256:
            raise CheckpointError(
                f"{folder / TOKENIZER} is {seen[:8]}, but the model was exported with {settings.tokenizer_sha256[:8]}. "
                "Put the right file back, or export it again."
            )
        return cls(folder, settings, open_tokens(folder / TOKENIZER), open_session(folder / MODEL, threads))

    def row(self, text: str) -> list[int]:
        """The ids of a text between its special tokens; UsageError for a text that is too long."""
        row = self.between(self.tokens.ids(text))
        if len(row) > self.settings.max_tokens:
            raise UsageError(
                f"the text has {len(row):,} tokens, more than the {self.settings.max_tokens:,} that the model takes. "
                "Shorten it."
            )
        return row

    def between(self, ids: Row) -> list[int]:
        """Ids between the special tokens that stand around a text."""
        return [*self.settings.before, *ids, *self.settings.after]

    @property
    def room(self) -> int:
        """How many tokens of a text fit between the special ones."""
        return self.settings.max_tokens - len(self.settings.before) - len(self.settings.after)

    def hidden(self, rows: Sequence[Row], *, batch: int = 1) -> list[Floats]:
        """The hidden states of each row, (its tokens, D).

        Rows of like length go together, up to `batch` at a time. On a CPU one at a time is fastest: no padding is
        computed (docs/decisions/0010-inference.md).
        """
        results: dict[int, Floats] = {}
        for places in _batches(rows, batch):
            hidden_BTD = self._run([rows[place] for place in places], "hidden")
            for place, hidden_TD in zip(places, hidden_BTD, strict=True):
                # A copy, so that the rest of the batch need not stay.
                results[place] = hidden_TD[: len(rows[place])].copy()
        return [results[place] for place in range(len(rows))]

    def pooled(self, rows: Sequence[Row], *, pooling: str = "mean", batch: int = 1) -> Floats:
        """One vector a row, (rows, D): the mean of its hidden states, or with "cls" the first of them."""
        vectors = np.empty((len(rows), self.settings.width), dtype=np.float32)
        for places in _batches(rows, batch):
            hidden_BTD = self._run([rows[place] for place in places], "hidden")
            for place, hidden_TD in zip(places, hidden_BTD, strict=True):
                vectors[place] = hidden_TD[0] if pooling == "cls" else hidden_TD[: len(rows[place])].mean(axis=0)
        return vectors

    def words(self, row: Row, positions: Sequence[int]) -> Floats:
        """Of a masked LM, the logits over the vocabulary at some positions of a row, (M, V)."""
        if self.settings.kind != "masked":
            raise UsageError(
                f"{self.folder}: this is a model of kind {self.settings.kind!r}, which guesses no words. "
                "Export a masked language model: lexome export CHECKPOINT FOLDER --kind masked"
            )
        return self._run([row], "logits", positions=np.asarray(positions, dtype=np.int64))

    def logits(
        self, rows: Sequence[Row], *, segments: Sequence[Row] | None = None, batch: int = 1, batch_tokens: int = 0
    ) -> list[Floats]:
        """Of a label head, the logits of each row: (C,) of a sequence, (its tokens, C) else.

        With `batch_tokens`, as many rows go together as have so many tokens, padding counted.
        """
        if self.settings.kind not in ("token", "sequence", "span"):
            raise UsageError(f"{self.folder}: this is a model of kind {self.settings.kind!r}, which has no labels.")
        results: dict[int, Floats] = {}
        for places in batches_of(rows, batch_tokens) if batch_tokens else _batches(rows, batch):
            kinds = None if segments is None else [segments[place] for place in places]
            found = self._run([rows[place] for place in places], "logits", segments=kinds)
            for place, logits in zip(places, found, strict=True):
                results[place] = (logits if logits.ndim == 1 else logits[: len(rows[place])]).copy()
        return [results[place] for place in range(len(rows))]

    def _run(
        self,
        rows: Sequence[Row],
        output: str,
        *,
        segments: Sequence[Row] | None = None,
        positions: NDArray[np.int64] | None = None,
    ) -> Floats:
        ids_BT = _padded(rows, self.settings.pad)
        self._check(ids_BT.shape[1])
        self._run_so_far.add(sum(map(len, rows)))
        given = {"ids": ids_BT, "mask": _padded([[1] * len(row) for row in rows], 0)}
        if "segments" in self._inputs:
            given["segments"] = np.zeros_like(ids_BT) if segments is None else _padded(segments, 0)
        if self.settings.kind == "masked":
            given["positions"] = np.zeros(0, dtype=np.int64) if positions is None else positions
        if self.threads == 1 and ids_BT.shape[1] >= LONG:
            given[BY_HEADS] = np.array(1, dtype=np.int64)
        named = {self._inputs[name]: held for name, held in given.items() if name in self._inputs}
        result: Floats = self._session.run([output], named)[0]
        return result

    def _check(self, length: int) -> None:
        """The graph itself would only say that an index is out of bounds."""
        if not 0 < length <= self.settings.max_tokens:
            raise UsageError(f"a row of {length:,} tokens; expected 1 to {self.settings.max_tokens:,}. Cut it.")


def _inputs(folder: Path, session: Any) -> dict[str, str]:
    """By our names, what a graph calls its inputs: the same, or as Hugging Face calls them."""
    ours = {theirs: name for name, theirs in NAMES.items()}
    seen = [given.name for given in session.get_inputs()]
    unknown = [name for name in seen if name not in (*ours, *NAMES, "positions")]
    if unknown:
        raise CheckpointError(
            f"{folder}: the graph asks for {unknown[0]!r}; expected {', '.join(NAMES.values())}. Export it with these."
        )
    seen += [given.name for given in session.get_overridable_initializers() if given.name == BY_HEADS]
    return {ours.get(name, name): name for name in seen}


def _file_facts(path: Path) -> tuple[int, int, int] | None:
    """What tells a file from one that takes its place; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def usable_cores() -> int:
    """The cores this process may run on, which a container or a batch system may have limited."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def open_session(path: Path, threads: int | None) -> Any:
    """A graph ready to run; on all usable cores, or on so many threads."""
    if threads is not None and threads < 1:
        raise UsageError(f"{threads} threads; expected at least 1.")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or usable_cores()
    options.inter_op_num_threads = 1
    # Warnings about its own optimisations tell a user nothing.
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the library has a dozen kinds without a common parent
        why = str(error).partition("\n")[0]
        raise CheckpointError(f"{path}: onnxruntime cannot open it ({why}). Export the model again.") from None


def _batches(rows: Sequence[Row], batch: int) -> list[list[int]]:
    """The places of the rows in batches of like length."""
    order = sorted(range(len(rows)), key=lambda place: len(rows[place]))
    return [order[start : start + batch] for start in range(0, len(order), batch)]


def batches_of(rows: Sequence[Row], tokens: int) -> list[list[int]]:
    """The places of the rows in batches of like length, none of more than so many tokens unless one row has more."""
    batches: list[list[int]] = []
    for place in sorted(range(len(rows)), key=lambda place: len(rows[place])):
        if not batches or (len(batches[-1]) + 1) * len(rows[place]) > tokens:
            batches.append([])
        batches[-1].append(place)
    return batches


def _padded(rows: Sequence[Row], fill: int) -> NDArray[np.int64]:
    padded_BT = np.full((len(rows), max(map(len, rows))), fill, dtype=np.int64)
    for number, row in enumerate(rows):
        padded_BT[number, : len(row)] = row
    return padded_BT
