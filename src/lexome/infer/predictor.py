"""An exported model at work: rows of token ids to numbers, with onnxruntime.

B texts of a batch, T tokens of the longest, D width, M asked positions, V vocabulary
"""

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from copy import copy
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lexome.errors import CheckpointError, UsageError
from lexome.files import usable_cores
from lexome.infer.model_folder import MODEL, SETTINGS, TOKENIZER, Settings, read_settings
from lexome.infer.tokenizer import Tokens, open_tokens
from lexome.tasks import Ner, task_of

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


# One row at a time, and batches of so many tokens. Larger ones only wait longer for their numbers.
BUDGETS = (0, 1024, 2048, 4096)

# Abstracts are so many tokens long, most of them.
LENGTHS = (60, 400)


def rates(
    predictor: Predictor, *, budgets: Sequence[int] = BUDGETS, rows: int = 16, rounds: int = 3
) -> dict[int, float]:
    """Tokens a second for each number of tokens at a time, 0 for one row at a time: the median of some rounds.

    The rows are random, of the lengths of abstracts; which tokens they are changes no speed.
    """
    rng = np.random.default_rng(0)
    settings = predictor.settings
    low, high = (min(length, settings.max_tokens) for length in LENGTHS)
    known = max(predictor.tokens.vocabulary.values()) + 1
    made = [rng.integers(0, known, size) for size in rng.integers(low, high + 1, rows)]
    predictor.logits(made[:1])
    taken: dict[int, list[float]] = {budget: [] for budget in budgets}
    # They take turns, so that whatever else the machine does meets all of them.
    for _ in range(rounds):
        for budget in budgets:
            began = time.perf_counter()
            predictor.logits(made, batch_tokens=budget)
            taken[budget].append(time.perf_counter() - began)
    tokens = sum(map(len, made))
    return {budget: tokens / float(np.median(seconds)) for budget, seconds in taken.items()}


def fastest(predictor: Predictor) -> int:
    """The number of tokens at a time that is fastest on this machine; 0 is one row at a time."""
    found = rates(predictor)
    return max(found, key=lambda budget: found[budget])


CONFIG = "config.json"
# Where `optimum-cli export onnx` and the Hub's own exports put the graph.
GRAPHS = (MODEL, f"onnx/{MODEL}")

# Their first positions are those of padding.
PADDED_POSITIONS = ("roberta", "xlm-roberta", "camembert", "xlm-roberta-xl", "longformer", "mpnet")

# BILOU's letters in IOBES.
LETTERS = {"L": "E", "U": "S"}


def is_hugging_face(folder: Path) -> bool:
    """Whether a folder holds an ONNX graph beside Hugging Face's configuration, and is none of Lexome's own."""
    return not (folder / SETTINGS).exists() and (folder / CONFIG).is_file() and _graph(folder) is not None


def open_hugging_face(folder: Path, *, threads: int | None = None) -> tuple[Predictor, list[int | None]]:
    """The model, and for each label of its task the column of the model's that says it."""
    graph = _graph(folder)
    assert graph is not None
    config, held = _json(folder / CONFIG), _json(folder / TOKENIZER)
    names = _labels(folder, config)
    task, columns = _task(folder, names)
    before, after = around(held)
    settings = Settings(
        kind="token",
        max_tokens=_max_tokens(folder, config),
        width=int(config.get("hidden_size") or config.get("dim") or 0),
        before=before,
        after=after,
        between=after,
        pad=int(config.get("pad_token_id") or 0),
        mask=None,
        segments=False,
        labels=tuple(names),
        tokenizer_sha256=hashlib.sha256((folder / TOKENIZER).read_bytes()).hexdigest(),
        opset=0,
        precision="fp32",
        difference=0.0,
        source={"name": folder.resolve().name, "architecture": str(config.get("model_type", "unknown"))},
        task=dict(task.settings()),
    )
    session = open_session(graph, threads)
    _check_output(folder, session, len(names))
    return Predictor(folder, settings, open_tokens(folder / TOKENIZER), session, graph=graph), columns


def _check_output(folder: Path, session: Any, labels: int) -> None:
    """CheckpointError where a graph gives something else than a number for each label of each token."""
    found = {output.name: output.shape for output in session.get_outputs()}
    if "logits" not in found:
        raise CheckpointError(
            f"{folder}: the graph gives {', '.join(found)}; expected logits. Export it as a token classifier."
        )
    shape = found["logits"]
    # What a graph leaves open has a name in place of a number.
    other = isinstance(shape[-1], int) and shape[-1] != labels if shape else False
    if other or (shape and len(shape) != len(("texts", "tokens", "labels"))):
        raise CheckpointError(
            f"{folder}: the graph's logits have the shape {shape}; expected texts, tokens and the {labels} labels of "
            f"{CONFIG}. Export model and {CONFIG} together."
        )


def around(held: Mapping[str, Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids that a tokenizer.json puts before and after a text."""
    step = held.get("post_processor") or {}
    for one in step["processors"] if step.get("type") == "Sequence" else (step,):
        if one.get("type") == "TemplateProcessing":
            text = next(place for place, part in enumerate(one["single"]) if "Sequence" in part)
            return _special(one, one["single"][:text]), _special(one, one["single"][text + 1 :])
        if one.get("type") in ("BertProcessing", "RobertaProcessing"):
            return (int(one["cls"][1]),), (int(one["sep"][1]),)
    return (), ()


def _special(step: Mapping[str, Any], parts: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
    return tuple(id_ for part in parts for id_ in step["special_tokens"][part["SpecialToken"]["id"]]["ids"])


def _graph(folder: Path) -> Path | None:
    return next((folder / name for name in GRAPHS if (folder / name).is_file()), None)


def _json(path: Path) -> dict[str, Any]:
    try:
        held = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise CheckpointError(
            f"{path.parent}: {path.name} is missing; expected a Hugging Face folder that has it. "
            "Save the model's fast tokenizer there."
        ) from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read ({error}). Get the file again.") from None
    if not isinstance(held, dict):
        raise CheckpointError(f"{path}: holds a {type(held).__name__}; expected a JSON object. Get the file again.")
    return held


def _max_tokens(folder: Path, config: Mapping[str, Any]) -> int:
    most = int(config.get("max_position_embeddings") or 512)
    if config.get("model_type") in PADDED_POSITIONS:
        most -= int(config.get("pad_token_id") or 0) + 1
    path = folder / "tokenizer_config.json"
    said = _json(path).get("model_max_length") if path.is_file() else None
    return min(most, int(said)) if said else most


def _labels(folder: Path, config: Mapping[str, Any]) -> list[str]:
    held = config.get("id2label") or {}
    try:
        names = [str(held[str(number)]) for number in range(len(held))]
    except KeyError as error:
        raise CheckpointError(f"{folder / CONFIG}: id2label has no {error}; expected 0 and on. Correct it.") from None
    if "O" not in names or not any(name[1:2] == "-" for name in names):
        seen = ", ".join(names[:4]) or "none"
        raise CheckpointError(
            f"{folder}: its labels are {seen}; expected tags of mentions such as O, B-Gene, I-Gene. "
            "Use a token classifier, or write the tags into id2label of its config.json."
        )
    return names


def _task(folder: Path, names: Sequence[str]) -> tuple[Ner, list[int | None]]:
    """The task that tags describe, and the columns of its labels."""
    places: dict[str, int] = {}
    for place, name in enumerate(names):
        letter, dash, type_ = name.partition("-")
        places[f"{LETTERS.get(letter, letter)}-{type_}" if dash else name] = place
    odd = sorted(name for name in places if name != "O" and name[:2] not in ("B-", "I-", "E-", "S-"))
    if odd:
        raise CheckpointError(
            f"{folder}: one of its labels is {odd[0]!r}; expected O and tags that begin with B-, I-, E-, S-, L- or "
            f"U-. Write such tags into id2label of its {CONFIG}."
        )
    types = list(dict.fromkeys(name[2:] for name in places if name != "O"))
    iobes = any(name[:2] in ("E-", "S-") for name in places)
    # Tags of IOB1 and of types without a beginning are read as conlleval reads them.
    strict = all(f"B-{type_}" in places for type_ in types)
    task = task_of(
        {
            "kind": "ner",
            "types": types,
            "scheme": "iobes" if iobes else "iob2",
            "decoding": "viterbi" if strict else "repair",
        }
    )
    assert isinstance(task, Ner)
    return task, [places.get(label) for label in task.labels]
