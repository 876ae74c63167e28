"""An exported model folder and its ONNX session: token ids in, logits or hidden states out.

B sequences of a batch, T tokens of the longest, D hidden size, M masked positions, V vocabulary, C labels
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass, fields
from math import isfinite, nan
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lexome.errors import CheckpointError, UsageError
from lexome.files import CHECKSUMS, file_sha256, usable_cores, verify_checksums, write_json
from lexome.infer.rules import RULES
from lexome.infer.tokenizer import SubwordTokenizer, open_tokenizer
from lexome.tasks import Ner

Floats = NDArray[np.float32]
TokenIds = Sequence[int] | NDArray[np.int64]
"""Token ids of one input."""

MODEL, SETTINGS, TOKENIZER = "model.onnx", "model.json", "tokenizer.json"

CHANGED = f"Copy or export the model again; if it was changed on purpose, remove {CHECKSUMS}."

# Incremented when older versions of Lexome could no longer read model.json.
FORM_VERSION = 1
MAX_THREADS = 1024

# Keys that model.json may lack.
OPTIONAL_SETTINGS = ("calibration", "rules", "min_scores")


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """model.json: what is needed to run an exported model.

    kind              encoder, masked, token, sequence or span
    max_tokens        maximum sequence length, special tokens included
    width             hidden size
    before, after     ids of the special tokens around a text: [CLS] and [SEP], or <s> and </s>
    between           ids of the special tokens between two texts
    pad, mask         ids of the padding and mask tokens; mask is None if the tokenizer has none
    segments          whether the graph has an input for segment ids
    labels            of a token or sequence head, in order
    tokenizer_sha256  of tokenizer.json
    difference        maximum absolute difference from torch in double precision, measured at export
    source            provenance: name of the folder, architecture, hash of the weights
    task              of a fine-tuned model, the settings that tasks.task_of reads; else None
    calibration       of mention scores, by type, slope and intercept on the log-odds (Platt scaling); None if scores
                      are not calibrated
    rules             rules of decoding to apply to the model's mentions, see `lexome.infer.rules`; None for none
    min_scores        default minimum scores of mentions, by type; None for none
    """

    kind: str
    max_tokens: int
    width: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    between: tuple[int, ...]
    pad: int
    mask: int | None
    segments: bool
    labels: tuple[str, ...]
    tokenizer_sha256: str
    opset: int
    precision: str
    difference: float
    source: dict[str, str]
    task: dict[str, Any] | None = None
    calibration: dict[str, tuple[float, float]] | None = None
    rules: tuple[str, ...] | None = None
    min_scores: dict[str, float] | None = None
    version: int = FORM_VERSION


def _is_number(value: object, *, least: int = 0) -> bool:
    return type(value) is int and least <= value < 1 << 31


def _is_list_of(kind: type, value: object) -> bool:
    return isinstance(value, list) and all(type(item) is kind for item in value)


_IDS = (lambda value: _is_list_of(int, value) and all(map(_is_number, value)), "a list of token ids")
_TEXT = (lambda value: isinstance(value, str), "a string")
_SIZE = (lambda value: _is_number(value, least=1), "a number above 0")
_VALUES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "kind": _TEXT,
    "max_tokens": _SIZE,
    "width": _SIZE,
    "before": _IDS,
    "after": _IDS,
    "between": _IDS,
    "pad": (_is_number, "a token id"),
    "mask": (lambda value: value is None or _is_number(value), "a token id, or null"),
    "segments": (lambda value: isinstance(value, bool), "true or false"),
    "labels": (lambda value: _is_list_of(str, value), "a list of strings"),
    "tokenizer_sha256": _TEXT,
    "opset": (_is_number, "a number"),
    "precision": _TEXT,
    "difference": (lambda value: type(value) in (int, float), "a number"),
    "source": (lambda value: isinstance(value, dict) and _is_list_of(str, [*value.values()]), "strings by name"),
    "rules": (lambda value: value is None or _is_list_of(str, value), "a list of strings, or null"),
    "task": (lambda value: value is None or isinstance(value, dict), "a table of settings, or null"),
}


def read_settings(folder: Path) -> ModelSettings:
    """The settings of an exported model folder."""
    path = folder / SETTINGS
    try:
        content = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise _not_exported(folder) from None
    except (OSError, ValueError) as error:
        message = f"{path}: cannot be read ({error}). Export the model again."
        raise CheckpointError(message, code="unreadable-file", value=path) from None
    version = content.get("version") if isinstance(content, dict) else None
    if version != FORM_VERSION:
        message = f"{path}: version {version}; expected {FORM_VERSION}. Export the model again with this Lexome."
        raise CheckpointError(message, code="unsupported-version", value=version)
    # Folders written before these existed, or without them, do not have the keys.
    for name in OPTIONAL_SETTINGS:
        content.setdefault(name, None)
    names = {field.name for field in fields(ModelSettings)}
    if wrong := sorted(names ^ content.keys()):
        problem = "missing key" if wrong[0] in names else "unknown key"
        message = f"{path}: {problem} {wrong[0]!r}. Export the model again."
        raise CheckpointError(message, code=problem.replace(" ", "-"), value=wrong[0])
    for key, (is_valid, expected) in _VALUES.items():
        if not is_valid(content[key]):
            message = f"{path}: {key} is {json.dumps(content[key])[:60]}; expected {expected}. Export the model again."
            raise CheckpointError(message, code="invalid-value", value=key)
    if unknown := sorted(set(content["rules"] or ()) - set(RULES)):
        message = f"{path}: unknown rule {unknown[0]!r}; expected {', '.join(RULES)}. Update Lexome."
        raise CheckpointError(message, code="unknown-rule", value=unknown[0])
    values: dict[str, Any] = {key: tuple(item) if isinstance(item, list) else item for key, item in content.items()}
    return ModelSettings(**{**values, "calibration": _curves(path, content["calibration"])})


def write_settings(folder: Path, settings: ModelSettings) -> None:
    """Write model.json."""
    # Keys without a value are left out, so that older versions of Lexome can read the file.
    unset = {name for name in ("rules", "min_scores") if getattr(settings, name) is None}
    content = {name: value for name, value in asdict(settings).items() if name not in unset}
    write_json(folder / SETTINGS, content, indent=2)


def _curves(path: Path, calibration: Any) -> dict[str, tuple[float, float]] | None:
    if calibration is None:
        return None
    try:
        curves = {str(type_): (float(slope), float(offset)) for type_, (slope, offset) in calibration.items()}
    except (AttributeError, TypeError, ValueError):
        curves = {"": (nan, nan)}
    if not all(isfinite(number) for curve in curves.values() for number in curve):
        message = f"{path}: calibration {calibration!r}; expected slope and intercept by type. Export the model again."
        raise CheckpointError(message, code="invalid-calibration", value=calibration)
    return curves


def _not_exported(folder: Path) -> CheckpointError:
    if not folder.exists():
        code, problem = "missing-folder", "no such folder; expected an exported model. Check the path."
    elif not folder.is_dir():
        code, problem = "not-a-folder", "a file; expected a folder written by `lexome export`."
    elif (folder / "config.json").is_file():
        code = "not-exported"
        problem = f"a checkpoint; expected an exported model. Export it first: lexome export {folder} {folder}-onnx"
    else:
        code, problem = "missing-file", f"no {SETTINGS}; expected a folder written by `lexome export`. Check the path."
    return CheckpointError(f"{folder}: {problem}", code=code, value=folder)


# Graph and weights, settings, tokenizer. The certificate and the model card change no prediction.
IDENTITY_PATTERNS = ("*.onnx*", "onnx/*.onnx*", "*.json", "*.txt", "*.model")


def identity_of(folder: Path) -> dict[str, str]:
    """Name of a model folder and SHA-256 over its files, independent of its location."""
    digest = hashlib.sha256()
    files = {path for pattern in IDENTITY_PATTERNS for path in folder.glob(pattern) if path.is_file()}
    for path in sorted(files, key=lambda path: path.relative_to(folder).as_posix()):
        if path.name not in ("certificate.json", CHECKSUMS):
            digest.update(f"{path.relative_to(folder).as_posix()} {file_sha256(path)}\n".encode())
    return {"name": folder.resolve().name, "sha256": digest.hexdigest()}


# Hugging Face's names of the graph's inputs.
INPUT_NAMES = {"ids": "input_ids", "mask": "attention_mask", "segments": "token_type_ids"}

# Optional input: compute attention a few heads at a time. On one core this is faster for texts so long that the
# scores of all heads do not fit into the cache (docs/decisions/0010-inference.md).
BY_HEADS = "by_heads"
LONG_TOKENS = 128


class TokenCounter:
    """A thread-safe count of tokens."""

    def __init__(self) -> None:
        self.tokens = 0
        self._lock = Lock()

    def add(self, tokens: int) -> None:
        """Add some tokens."""
        with self._lock:
            self.tokens += tokens


class Predictor:
    """An opened model folder: settings, tokenizer and ONNX session.

    >>> predictor = Predictor.open(Path("model-onnx"))                    # doctest: +SKIP
    >>> predictor.hidden([predictor.row("BRCA1 binds RAD51.")])[0].shape  # doctest: +SKIP
    (9, 512)
    """

    def __init__(
        self,
        folder: Path,
        settings: ModelSettings,
        tokenizer: SubwordTokenizer,
        session: Any,
        *,
        graph: Path | None = None,
    ) -> None:
        self.folder, self.settings, self.tokenizer = folder, settings, tokenizer
        self.threads: int = session.get_session_options().intra_op_num_threads
        self._graph = (graph or folder / MODEL).absolute()
        self._graph_stamp = _file_stamp(self._graph)
        self._session = session
        self._inputs = _graph_inputs(folder, session)
        self._counter = TokenCounter()

    @classmethod
    def open(cls, folder: str | Path, *, threads: int | None = None) -> "Predictor":
        """The model in a folder written by `lexome export`, on all usable cores or on `threads`."""
        folder = Path(folder)
        settings = read_settings(folder)
        for name in (MODEL, TOKENIZER):
            if not (folder / name).is_file():
                message = f"{folder}: {name} is missing; expected a complete folder. Export the model again."
                raise CheckpointError(message, code="missing-file", value=name)
        sha256 = file_sha256(folder / TOKENIZER)
        if sha256 != settings.tokenizer_sha256:
            expected = settings.tokenizer_sha256[:8]
            message = f"{folder / TOKENIZER}: SHA-256 {sha256[:8]}; expected {expected}. Export the model again."
            raise CheckpointError(message, code="tokenizer-mismatch", value=sha256)
        verify_checksums(folder, remedy=CHANGED)
        return cls(folder, settings, open_tokenizer(folder / TOKENIZER), open_session(folder / MODEL, threads))

    def single_threaded(self) -> "Predictor":
        """The same model for several threads to run at once, each on one core; tokens are counted together.

        This takes memory for the weights a second time (docs/decisions/0010-inference.md). If the file was removed or
        replaced since, it is this predictor, which threads may share too.
        """
        if self.threads == 1 or self._graph_stamp is None or _file_stamp(self._graph) != self._graph_stamp:
            return self
        predictor = copy(self)
        predictor._session, predictor.threads = open_session(self._graph, 1), 1
        return predictor

    def uncounted(self) -> "Predictor":
        """The same model with its own token counter."""
        predictor = copy(self)
        predictor._counter = TokenCounter()
        return predictor

    @property
    def tokens_run(self) -> int:
        """Tokens of all sequences so far, special ones included."""
        return self._counter.tokens

    @property
    def room(self) -> int:
        """Maximum number of tokens between the special ones."""
        return self.settings.max_tokens - len(self.settings.before) - len(self.settings.after)

    def row(self, text: str) -> list[int]:
        """Token ids of a text with special tokens; UsageError if it is too long."""
        row = self.with_special_tokens(self.tokenizer.ids(text))
        if len(row) > self.settings.max_tokens:
            message = f"the text has {len(row):,} tokens; expected at most {self.settings.max_tokens:,}. Shorten it."
            raise UsageError(message, code="too-long", value=len(row))
        return row

    def with_special_tokens(self, ids: TokenIds) -> list[int]:
        """Token ids between the special tokens."""
        return [*self.settings.before, *ids, *self.settings.after]

    def hidden(self, rows: Sequence[TokenIds], *, batch: int = 1) -> list[Floats]:
        """Hidden states of each sequence, (T, D).

        Sequences of similar length are batched. On a CPU a batch size of 1 is fastest: there is no padding
        (docs/decisions/0010-inference.md).
        """
        # Copied so that the rest of the batch can be freed.
        results = {index: hidden_TD.copy() for index, hidden_TD in self._hidden_states(rows, batch)}
        return [results[index] for index in range(len(rows))]

    def pooled(self, rows: Sequence[TokenIds], *, pooling: str = "mean", batch: int = 1) -> Floats:
        """One vector for each sequence, (sequences, D): the mean of its hidden states, or with "cls" the first."""
        vectors = np.empty((len(rows), self.settings.width), dtype=np.float32)
        for index, hidden_TD in self._hidden_states(rows, batch):
            vectors[index] = hidden_TD[0] if pooling == "cls" else hidden_TD.mean(axis=0)
        return vectors

    def _hidden_states(self, rows: Sequence[TokenIds], batch: int) -> Iterator[tuple[int, Floats]]:
        for indices in _batches(rows, batch):
            hidden_BTD = self._run([rows[index] for index in indices], "hidden")
            for index, hidden_TD in zip(indices, hidden_BTD, strict=True):
                yield index, hidden_TD[: len(rows[index])]

    def words(self, row: TokenIds, positions: Sequence[int]) -> Floats:
        """Logits of a masked LM over the vocabulary at some positions of a sequence, (M, V)."""
        if self.settings.kind != "masked":
            message = (
                f"{self.folder}: a model of kind {self.settings.kind!r}; expected a masked language model. Export a "
                "checkpoint that has such a head with --kind masked."
            )
            raise UsageError(message, code="wrong-kind", value=self.settings.kind)
        return self._run([row], "logits", positions=np.asarray(positions, dtype=np.int64))

    def logits(
        self,
        rows: Sequence[TokenIds],
        *,
        segments: Sequence[TokenIds] | None = None,
        batch: int = 1,
        batch_tokens: int = 0,
    ) -> list[Floats]:
        """Logits of each sequence: (C,) for a sequence head, (T, C) for others.

        With `batch_tokens`, batches are filled up to that many tokens, padding included.
        """
        if self.settings.kind not in ("token", "sequence", "span"):
            message = f"{self.folder}: a model of kind {self.settings.kind!r}, which has no labels."
            raise UsageError(message, code="wrong-kind", value=self.settings.kind)
        results: dict[int, Floats] = {}
        for indices in token_batches(rows, batch_tokens) if batch_tokens else _batches(rows, batch):
            batch_segments = None if segments is None else [segments[index] for index in indices]
            batch_logits = self._run([rows[index] for index in indices], "logits", segments=batch_segments)
            for index, logits in zip(indices, batch_logits, strict=True):
                results[index] = (logits if logits.ndim == 1 else logits[: len(rows[index])]).copy()
        return [results[index] for index in range(len(rows))]

    def _run(
        self,
        rows: Sequence[TokenIds],
        output: str,
        *,
        segments: Sequence[TokenIds] | None = None,
        positions: NDArray[np.int64] | None = None,
    ) -> Floats:
        ids_BT = _pad(rows, self.settings.pad)
        length = ids_BT.shape[1]
        # The graph itself would only report an index out of bounds.
        if not 0 < length <= self.settings.max_tokens:
            message = f"a sequence of {length:,} tokens; expected 1 to {self.settings.max_tokens:,}. Truncate it."
            raise UsageError(message, code="invalid-length", value=length)
        self._counter.add(sum(map(len, rows)))
        inputs = {"ids": ids_BT, "mask": _pad([[1] * len(row) for row in rows], 0)}
        if "segments" in self._inputs:
            inputs["segments"] = np.zeros_like(ids_BT) if segments is None else _pad(segments, 0)
        if self.settings.kind == "masked":
            inputs["positions"] = np.zeros(0, dtype=np.int64) if positions is None else positions
        if self.threads == 1 and length >= LONG_TOKENS:
            inputs[BY_HEADS] = np.array(1, dtype=np.int64)
        named = {self._inputs[name]: array for name, array in inputs.items() if name in self._inputs}
        try:
            result: Floats = self._session.run([output], named)[0]
        except Exception as error:  # onnxruntime's exceptions have no common base class
            reason = str(error).partition("\n")[0]
            message = f"{self.folder}: the model cannot be run ({reason}). {CHANGED}"
            raise CheckpointError(message, code="invalid-graph", value=self._graph) from None
        return result


def open_session(path: Path, threads: int | None) -> Any:
    """An ONNX session on all usable cores, or on `threads`."""
    # Each thread has its own buffers: those of thousands would fill the memory.
    if threads is not None and not (isinstance(threads, int) and 1 <= threads <= MAX_THREADS):
        message = f"{threads!r} threads; expected 1 to {MAX_THREADS:,}. More than one per core does not help."
        raise UsageError(message, code="invalid-threads", value=threads)
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or usable_cores()
    options.inter_op_num_threads = 1
    # Warnings about graph optimizations are of no use to users.
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's exceptions have no common base class
        reason = str(error).partition("\n")[0]
        message = f"{path}: onnxruntime cannot open it ({reason}). Export the model again."
        raise CheckpointError(message, code="invalid-graph", value=path) from None


def _graph_inputs(folder: Path, session: Any) -> dict[str, str]:
    """The graph's input names by ours; they are the same, or Hugging Face's."""
    ours = {theirs: name for name, theirs in INPUT_NAMES.items()}
    names = [argument.name for argument in session.get_inputs()]
    unknown = [name for name in names if name not in (*ours, *INPUT_NAMES, "positions")]
    if unknown:
        message = f"{folder}: the graph has the input {unknown[0]!r}; expected {', '.join(INPUT_NAMES.values())}."
        raise CheckpointError(message, code="unknown-input", value=unknown[0])
    names += [argument.name for argument in session.get_overridable_initializers() if argument.name == BY_HEADS]
    return {ours.get(name, name): name for name in names}


def _file_stamp(path: Path) -> tuple[int, int, int] | None:
    """Inode, size and modification time; None if there is no file."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def _batches(rows: Sequence[TokenIds], batch: int) -> list[list[int]]:
    """Indices of sequences in batches of similar length."""
    order = sorted(range(len(rows)), key=lambda index: len(rows[index]))
    return [order[start : start + batch] for start in range(0, len(order), batch)]


def token_batches(rows: Sequence[TokenIds], tokens: int) -> list[list[int]]:
    """Indices in batches of similar length, none of more than `tokens` unless a single sequence is longer."""
    batches: list[list[int]] = []
    for index in sorted(range(len(rows)), key=lambda index: len(rows[index])):
        if not batches or (len(batches[-1]) + 1) * len(rows[index]) > tokens:
            batches.append([])
        batches[-1].append(index)
    return batches


def _pad(rows: Sequence[TokenIds], fill: int) -> NDArray[np.int64]:
    padded_BT = np.full((len(rows), max(map(len, rows))), fill, dtype=np.int64)
    for index, row in enumerate(rows):
        padded_BT[index, : len(row)] = row
    return padded_BT


# Batch sizes in tokens to compare; 0 is one sequence at a time. Larger ones only add latency.
BUDGETS = (0, 1024, 2048, 4096)

# Range of the lengths of most abstracts, in tokens.
LENGTHS = (60, 400)


def throughput(
    predictor: Predictor, *, budgets: Sequence[int] = BUDGETS, sequences: int = 16, rounds: int = 3
) -> dict[int, float]:
    """Tokens per second for each batch size in tokens, 0 for one sequence at a time: the median of some rounds.

    The inputs are random, with the lengths of abstracts; speed does not depend on the tokens.
    """
    rng = np.random.default_rng(0)
    low, high = (min(length, predictor.settings.max_tokens) for length in LENGTHS)
    vocabulary_size = max(predictor.tokenizer.vocabulary.values()) + 1
    rows = [rng.integers(0, vocabulary_size, size) for size in rng.integers(low, high + 1, sequences)]
    predictor.logits(rows[:1])
    seconds: dict[int, list[float]] = {budget: [] for budget in budgets}
    # Interleaved, so that other load on the machine affects all of them.
    for _ in range(rounds):
        for budget in budgets:
            start = time.perf_counter()
            predictor.logits(rows, batch_tokens=budget)
            seconds[budget].append(time.perf_counter() - start)
    tokens = sum(map(len, rows))
    return {budget: tokens / float(np.median(times)) for budget, times in seconds.items()}


def fastest(predictor: Predictor) -> int:
    """The batch size in tokens with the highest throughput on this machine; 0 is one sequence at a time."""
    rates = throughput(predictor)
    return max(rates, key=lambda budget: rates[budget])


# Token classifiers of Hugging Face, exported by others

CONFIG = "config.json"
# Where `optimum-cli export onnx` and the Hub's own exports put the graph.
GRAPHS = (MODEL, f"onnx/{MODEL}")

# Architectures whose position ids start after the padding id.
OFFSET_POSITIONS = ("roberta", "xlm-roberta", "camembert", "xlm-roberta-xl", "longformer", "mpnet")

# BILOU's prefixes in IOBES.
BILOU = {"L": "E", "U": "S"}


def is_hugging_face(folder: Path) -> bool:
    """Whether a folder has an ONNX graph with Hugging Face's config.json, and was not exported by Lexome."""
    return not (folder / SETTINGS).exists() and (folder / CONFIG).is_file() and _graph_path(folder) is not None


def open_hugging_face(folder: Path, *, threads: int | None = None) -> tuple[Predictor, list[int | None]]:
    """The model, and for each label of its task the column of the logits, None if there is none."""
    graph = _graph_path(folder)
    assert graph is not None
    config, tokenizer = _read_json(folder / CONFIG), _read_json(folder / TOKENIZER)
    task, columns = _task_of_tags(folder, config)
    try:
        settings = _hugging_face_settings(folder, config, tokenizer, task)
    except (AttributeError, IndexError, KeyError, StopIteration, TypeError, ValueError) as error:
        message = f"{folder}: {CONFIG} or {TOKENIZER} has a value of an unexpected type ({error!r}). Download it again."
        raise CheckpointError(message, code="invalid-value", value=folder) from None
    session = open_session(graph, threads)
    _check_output(folder, session, len(settings.labels))
    return Predictor(folder, settings, open_tokenizer(folder / TOKENIZER), session, graph=graph), columns


def _hugging_face_settings(
    folder: Path, config: Mapping[str, Any], tokenizer: Mapping[str, Any], task: Ner
) -> ModelSettings:
    labels = tuple(str(config["id2label"][str(column)]) for column in range(len(config["id2label"])))
    before, after = special_tokens(tokenizer)
    return ModelSettings(
        kind="token",
        max_tokens=_max_tokens(folder, config),
        width=int(config.get("hidden_size") or config.get("dim") or 0),
        before=before,
        after=after,
        between=after,
        pad=int(config.get("pad_token_id") or 0),
        mask=None,
        segments=False,
        labels=labels,
        tokenizer_sha256=file_sha256(folder / TOKENIZER),
        opset=0,
        precision="fp32",
        difference=0.0,
        source={"name": folder.resolve().name, "architecture": str(config.get("model_type", "unknown"))},
        task=dict(task.settings()),
    )


def _graph_path(folder: Path) -> Path | None:
    return next((folder / name for name in GRAPHS if (folder / name).is_file()), None)


def _check_output(folder: Path, session: Any, labels: int) -> None:
    """CheckpointError unless the graph has logits for each label of each token."""
    shapes = {output.name: output.shape for output in session.get_outputs()}
    if "logits" not in shapes:
        message = f"{folder}: the graph's outputs are {', '.join(shapes)}; expected logits. Export a token classifier."
        raise CheckpointError(message, code="missing-output", value="logits")
    shape = shapes["logits"]
    # A dynamic dimension has a name in place of a number.
    wrong_labels = isinstance(shape[-1], int) and shape[-1] != labels if shape else False
    if wrong_labels or (shape and len(shape) != len(("batch", "tokens", "labels"))):
        message = f"{folder}: logits of shape {shape}; expected batch, tokens, {labels} labels. Export the model again."
        raise CheckpointError(message, code="shape-mismatch", value=shape)


def special_tokens(tokenizer: Mapping[str, Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Ids that the post-processor of a tokenizer.json puts before and after a text."""
    processor = tokenizer.get("post_processor") or {}
    for step in processor["processors"] if processor.get("type") == "Sequence" else (processor,):
        if step.get("type") == "TemplateProcessing":
            template = step["single"]
            text = next(index for index, part in enumerate(template) if "Sequence" in part)
            return _template_ids(step, template[:text]), _template_ids(step, template[text + 1 :])
        if step.get("type") in ("BertProcessing", "RobertaProcessing"):
            return (int(step["cls"][1]),), (int(step["sep"][1]),)
    return (), ()


def _template_ids(step: Mapping[str, Any], parts: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
    return tuple(id_ for part in parts for id_ in step["special_tokens"][part["SpecialToken"]["id"]]["ids"])


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        message = f"{path.parent}: {path.name} is missing. Save the model and its fast tokenizer there."
        raise CheckpointError(message, code="missing-file", value=path.name) from None
    except (OSError, ValueError) as error:
        message = f"{path}: cannot be read ({error}). Download it again."
        raise CheckpointError(message, code="unreadable-file", value=path) from None
    if not isinstance(content, dict):
        message = f"{path}: a JSON {type(content).__name__}; expected an object. Download it again."
        raise CheckpointError(message, code="unreadable-file", value=path)
    return content


def _max_tokens(folder: Path, config: Mapping[str, Any]) -> int:
    max_tokens = int(config.get("max_position_embeddings") or 512)
    if config.get("model_type") in OFFSET_POSITIONS:
        max_tokens -= int(config.get("pad_token_id") or 0) + 1
    path = folder / "tokenizer_config.json"
    model_max_length = _read_json(path).get("model_max_length") if path.is_file() else None
    return min(max_tokens, int(model_max_length)) if model_max_length else max_tokens


def _task_of_tags(folder: Path, config: Mapping[str, Any]) -> tuple[Ner, list[int | None]]:
    """The task that the tags in id2label describe, and the column of each of its labels."""
    id2label = config.get("id2label") or {}
    if not isinstance(id2label, dict):
        message = f"{folder / CONFIG}: id2label is a {type(id2label).__name__}; expected a label for each number."
        raise CheckpointError(message, code="invalid-labels", value="id2label")
    columns: dict[str, int] = {}
    for column in range(len(id2label)):
        if str(column) not in id2label:
            message = f"{folder / CONFIG}: id2label has no {column}; expected consecutive numbers from 0."
            raise CheckpointError(message, code="invalid-labels", value=column)
        prefix, dash, type_ = str(id2label[str(column)]).partition("-")
        columns[f"{BILOU.get(prefix, prefix)}-{type_}" if dash else prefix] = column
    unknown = [name for name in columns if name != "O" and name[:2] not in ("B-", "I-", "E-", "S-")]
    if unknown or "O" not in columns or len(columns) == 1:
        labels = ", ".join(list(columns)[:4]) or "missing"
        message = f"{folder}: labels {labels}; expected O, B-Gene, ... In {CONFIG}, write the tags into id2label."
        raise CheckpointError(message, code="invalid-labels", value=unknown[0] if unknown else None)
    types = list(dict.fromkeys(name[2:] for name in columns if name != "O"))
    iobes = any(name[:2] in ("E-", "S-") for name in columns)
    # Tags of IOB1, and of types without B-, are decoded as conlleval does.
    strict = all(f"B-{type_}" in columns for type_ in types)
    task = Ner(types, scheme="iobes" if iobes else "iob2", decoding="viterbi" if strict else "repair")
    return task, [columns.get(label) for label in task.labels]
