"""int8 models: quantization of an ONNX graph, and acceptance by agreement with fp32 on held-out documents.

Activations are scaled as in SmoothQuant. Then linear weights are quantized per output channel, embeddings per row, and
activations dynamically: per tensor, or per token if a few tokens are outliers. Norms, biases and the head stay in
fp32. The search keeps more weights in fp32, those that change predictions most, until a model is accepted; a
certificate records what was measured.

N tokens, R input channels and C output channels of a linear weight
"""

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from lexome.datasets import find, folder, names
from lexome.document import Document
from lexome.errors import CheckpointError, UsageError
from lexome.export.onnx_graph import save_graph
from lexome.files import file_sha256, write_json
from lexome.formats import read
from lexome.formats.jsonl import to_json
from lexome.infer.annotator import Model
from lexome.infer.predictor import MODEL
from lexome.recipe.finetune import Names
from lexome.tasks import Task
from lexome.tasks.metrics.spans import Counts
from lexome.tasks.task import Example
from lexome.training.finetune.examples import rename_types
from lexome.training.record import RUN, surroundings

Floats = NDArray[np.float32]

# Weights are symmetric in [-127, 127], so that products need no zero-point correction.
WEIGHT_MAX = 127
# Activations are asymmetric uint8.
ACTIVATION_MAX = 255
# Embeddings are looked up, not multiplied.
EMBEDDINGS = ("embed.tokens", "embed.positions")
# The head decides between labels and is small.
HEAD = "head."


def linear_weights(model: onnx.ModelProto) -> list[str]:
    """The weights of linear layers outside the head, in the order of the graph."""
    ranks = {weight.name: len(weight.dims) for weight in model.graph.initializer}
    return [
        node.input[1]
        for node in model.graph.node
        if node.op_type == "MatMul" and ranks.get(node.input[1]) == 2 and not node.input[1].startswith(HEAD)
    ]


def _with_nodes(
    model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto], weights: Sequence[onnx.TensorProto]
) -> onnx.ModelProto:
    """The model with other nodes and weights."""
    graph = helper.make_graph(nodes, model.graph.name, model.graph.input, model.graph.output, weights)
    return helper.make_model(
        graph, opset_imports=model.opset_import, ir_version=model.ir_version, producer_name=model.producer_name
    )


# SmoothQuant-style scaling (Xiao et al. 2023)

# Scaling costs a multiplication; it must lower the quantization error to this fraction.
MAX_ERROR_RATIO = 0.5
# Migration strengths to try, and limits above the median channel to clip channels to.
STRENGTHS = (0.5, 0.6, 0.7, 0.8)
CLIP_LIMITS = (1.5, 2.0, 4.0)
# Per-token quantization costs some time; it is used if a token is this many times as large as the median one.
OUTLIER_RATIO = 8.0
# Tokens to calibrate on: enough to see which channels are outliers.
CALIBRATION_TOKENS = 500
TINY = 1e-6
# The output projection's input channels are scaled in the value projection, without a multiplication.
ATTENTION_OUT, QKV = "attention.out.weight", "attention.qkv"


@dataclass(frozen=True, slots=True)
class Smoothed:
    """A scaled graph, the weights whose inputs are scaled by channel, and those to quantize by token."""

    model: onnx.ModelProto
    channels: tuple[str, ...]
    by_token: tuple[str, ...]


def smooth(model: onnx.ModelProto, examples: Sequence[Example]) -> Smoothed:
    """The graph with outlier channels scaled into the weights, where that lowers the quantization error.

    `examples` calibrate which channels and tokens are outliers.
    """
    weights = {weight.name: numpy_helper.to_array(weight) for weight in model.graph.initializer}
    scales: dict[str, Floats] = {}
    by_token: list[str] = []
    for name, inputs in linear_inputs(model, examples).items():
        if has_outlier_tokens(inputs):
            by_token.append(name)
        elif (scale_R := best_scale(inputs, weights[name])) is not None:
            scales[name] = scale_R
    return Smoothed(_scale_channels(model, scales), tuple(scales), tuple(by_token))


def linear_inputs(model: onnx.ModelProto, examples: Sequence[Example]) -> dict[str, list[Floats]]:
    """The inputs of each linear weight in the calibration examples, (N, R) each."""
    names = set(linear_weights(model))
    inputs = {node.input[1]: node.input[0] for node in model.graph.node if node.input[1:2] and node.input[1] in names}
    observed = onnx.ModelProto()
    observed.CopyFrom(model)
    outputs = list(dict.fromkeys(inputs.values()))
    observed.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs)
    options = onnxruntime.SessionOptions()
    # It warns that by_heads is no constant, which is intended.
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(observed.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feeds = {feed.name for feed in session.get_inputs()}
    activations: dict[str, list[Floats]] = {name: [] for name in outputs}
    tokens = 0
    for example in examples:
        if tokens >= CALIBRATION_TOKENS:
            break
        tokens += len(example.ids)
        feed = {"ids": example.ids, "mask": np.ones_like(example.ids), "segments": example.segments}
        arrays = session.run(outputs, {name: array[None] for name, array in feed.items() if name in feeds})
        for name, array in zip(outputs, arrays, strict=True):
            activations[name].append(array.reshape(-1, array.shape[-1]))
    return {weight: activations[name] for weight, name in inputs.items()}


def has_outlier_tokens(inputs: Sequence[Floats]) -> bool:
    """Whether a few tokens are far larger than the others and would determine the range of all."""
    largest_N = np.concatenate([np.abs(input_NR).max(1) for input_NR in inputs])
    return bool(largest_N.max() > OUTLIER_RATIO * max(float(np.median(largest_N)), TINY))


def best_scale(inputs: Sequence[Floats], weight_RC: Floats) -> Floats | None:
    """The divisor of each input channel, (R,); None if no candidate lowers the error enough."""
    exact = [input_NR @ weight_RC for input_NR in inputs]
    unscaled = quantization_error(inputs, weight_RC, np.ones(len(weight_RC), np.float32), exact)
    candidates = list(_candidate_scales(inputs, weight_RC))
    errors = [quantization_error(inputs, weight_RC, scale_R, exact) for scale_R in candidates]
    best = int(np.argmin(errors))
    return candidates[best] if errors[best] < MAX_ERROR_RATIO * unscaled else None


def _candidate_scales(inputs: Sequence[Floats], weight_RC: Floats) -> Iterator[Floats]:
    """Scales that share the range between activations and weights, or clip outlier channels."""
    inputs_R = np.maximum(np.abs(np.concatenate(inputs)).max(0), TINY)
    weights_R = np.maximum(np.abs(weight_RC).max(1), TINY)
    shared = [inputs_R**strength / weights_R ** (1 - strength) for strength in STRENGTHS]
    normalized = (scale_R / np.exp(np.log(scale_R).mean()) for scale_R in shared)
    clipped = (np.maximum(1, inputs_R / (limit * np.median(inputs_R))) for limit in CLIP_LIMITS)
    for scale_R in (*normalized, *clipped):
        yield scale_R.astype(np.float32)


def quantization_error(inputs: Sequence[Floats], weight_RC: Floats, scale_R: Floats, exact: Sequence[Floats]) -> float:
    """The mean squared error of int8 products whose input channels are divided by the scale."""
    scaled_RC = weight_RC * scale_R[:, None]
    step_C = np.maximum(np.abs(scaled_RC).max(0), TINY) / WEIGHT_MAX
    quantized_RC = np.rint(scaled_RC / step_C) * step_C
    total, count = 0.0, 0
    for input_NR, exact_NC in zip(inputs, exact, strict=True):
        scaled_NR = input_NR / scale_R
        low, high = min(float(scaled_NR.min()), 0.0), max(float(scaled_NR.max()), TINY)
        step = (high - low) / ACTIVATION_MAX
        zero = np.rint(-low / step)
        quantized_NR = (np.clip(np.rint(scaled_NR / step) + zero, 0, ACTIVATION_MAX) - zero) * step
        error_NC = quantized_NR.astype(np.float32) @ quantized_RC - exact_NC
        total, count = total + float(np.square(error_NC).sum()), count + error_NC.size
    return total / count


def _scale_channels(model: onnx.ModelProto, scales: Mapping[str, Floats]) -> onnx.ModelProto:
    """The graph with a multiplication before each of these weights, which are scaled to compensate.

    Inputs of attention's output projection are scaled by the projection that makes the values instead.
    """
    weights = {weight.name: numpy_helper.to_array(weight) for weight in model.graph.initializer}
    values = {name: name.removesuffix(ATTENTION_OUT) + QKV for name in scales if name.endswith(ATTENTION_OUT)}
    nodes: list[onnx.NodeProto] = []
    for node in model.graph.node:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        if node.op_type == "MatMul" and node.input[1] in scales and node.input[1] not in values:
            copy.input[0] = f"{node.output[0]}.even"
            inputs = [node.input[0], f"{node.input[1]}.shares"]
            nodes.append(helper.make_node("Mul", inputs, [copy.input[0]], name=f"Mul.{copy.input[0]}"))
        nodes.append(copy)
    for name, scale_R in scales.items():
        weights[name] = weights[name] * scale_R[:, None]
        if name not in values:
            weights[f"{name}.shares"] = (1 / scale_R).astype(np.float32)
            continue
        for part in (f"{values[name]}.weight", f"{values[name]}.bias"):
            if part in weights:
                # Values come after queries and keys.
                query_key, value = np.split(weights[part], [-len(scale_R)], axis=-1)
                weights[part] = np.concatenate((query_key, value / scale_R), -1)
    return _with_nodes(model, nodes, [numpy_helper.from_array(array, name) for name, array in weights.items()])


# int8

# Outputs of these activations are hardly ever negative, so that the maximum gives their range.
ONE_SIDED = ("Gelu", "Relu")
# A token with only smaller values is not scaled up. GELU's minimum is -0.17.
MIN_RANGE, MIN_RANGE_ONE_SIDED = 1e-3, 0.17


def quantize(
    model: onnx.ModelProto,
    *,
    keep: Collection[str] = (),
    only: Collection[str] | None = None,
    by_token: Collection[str] = (),
) -> onnx.ModelProto:
    """The graph in int8; weights in `keep` are stored in fp16 and multiplied in fp32. `only` lists those to quantize.

    Inputs of the weights in `by_token` are quantized per token. All operators are ONNX's own; onnxruntime fuses the
    four of a quantized product into one.
    """
    int8 = set(linear_weights(model)) - set(keep) if only is None else set(only)
    fp16 = set(keep) if only is None else set()
    embeddings = set(EMBEDDINGS) if only is None else set()
    weights = {weight.name: weight for weight in model.graph.initializer}
    arrays = {name: numpy_helper.to_array(weights[name]) for name in (*int8, *fp16, *embeddings) if name in weights}
    quantizer = _Quantizer(arrays, {node.output[0] for node in model.graph.node if node.op_type in ONE_SIDED})
    nodes: list[onnx.NodeProto] = []
    for node in model.graph.node:
        if node.op_type == "MatMul" and node.input[1] in int8:
            nodes += quantizer.product_by_token(node) if node.input[1] in by_token else quantizer.product(node)
        elif node.op_type == "MatMul" and node.input[1] in fp16:
            nodes += quantizer.half_precision(node)
        elif node.op_type == "Gather" and node.input[0] in embeddings:
            nodes += quantizer.embedding(node)
        elif node.op_type == "Gelu" and only is None:
            # The tanh approximation is a quarter faster, and its error is below that of quantization.
            nodes.append(_node("Gelu", list(node.input), list(node.output), approximate="tanh"))
        else:
            nodes.append(node)
    unchanged = [weight for name, weight in weights.items() if name not in quantizer.done]
    return _with_nodes(model, nodes, unchanged + quantizer.weights)


class _Quantizer:
    """Nodes that replace those of the fp32 graph, and the weights these need, each made once."""

    def __init__(self, arrays: dict[str, Floats], one_sided: Collection[str]) -> None:
        self.arrays, self.one_sided = arrays, one_sided
        self.done: set[str] = set()
        self.weights: list[onnx.TensorProto] = []
        self._quantized: set[str] = set()
        self._normalized: set[str] = set()

    def product(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        """An integer product with a weight: its input is quantized dynamically, the result scaled back."""
        left, name, out = node.input[0], node.input[1], node.output[0]
        self._quantize_weight(name, axis=0)
        quantized, step, zero = (f"{left}.{part}" for part in ("rounded", "step", "zero"))
        nodes = []
        if left not in self._quantized:
            self._quantized.add(left)
            nodes.append(_node("DynamicQuantizeLinear", [left], [quantized, step, zero]))
        return [
            *nodes,
            _node("MatMulInteger", [quantized, f"{name}.int8", zero], [f"{out}.whole"]),
            _node("Cast", [f"{out}.whole"], [f"{out}.float"], to=TensorProto.FLOAT),
            _node("Mul", [step, f"{name}.step"], [f"{out}.step"]),
            _node("Mul", [f"{out}.float", f"{out}.step"], [out]),
        ]

    def product_by_token(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        """A product whose input is divided by each token's largest value before, and multiplied by it after.

        Encoders have tokens, the special ones above all, with values twenty times as large as others'. Per tensor they
        would make the quantization steps of all tokens as coarse as theirs.
        """
        left, out = node.input[0], node.output[0]
        one_sided = left in self.one_sided
        minimum = "least_one_sided" if one_sided else "least_range"
        self._constant("last_axis", np.array([-1], np.int64))
        self._constant(minimum, np.array(MIN_RANGE_ONE_SIDED if one_sided else MIN_RANGE, np.float32))
        most, least, size, normalized = (f"{left}.{part}" for part in ("most", "least", "size", "by_token"))
        nodes: list[onnx.NodeProto] = []
        if left not in self._normalized:
            self._normalized.add(left)
            bounds = [most, minimum]
            if not one_sided:
                nodes += [
                    _node("ReduceMin", [left, "last_axis"], [least], keepdims=1),
                    _node("Neg", [least], [f"{least}.positive"]),
                ]
                bounds.append(f"{least}.positive")
            nodes += [
                _node("ReduceMax", [left, "last_axis"], [most], keepdims=1),
                _node("Max", bounds, [size]),
                _node("Reciprocal", [size], [f"{size}.inverse"]),
                _node("Mul", [left, f"{size}.inverse"], [normalized]),
            ]
        inner = onnx.NodeProto()
        inner.CopyFrom(node)
        inner.input[0], inner.output[0] = normalized, f"{out}.by_token"
        return [*nodes, *self.product(inner), _node("Mul", [f"{out}.by_token", size], [out])]

    def half_precision(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        """A product with a weight stored in fp16, which onnxruntime casts to fp32 once, when it loads the model."""
        left, name = node.input[0], node.input[1]
        if name not in self.done:
            self.done.add(name)
            self.weights.append(numpy_helper.from_array(self.arrays[name].astype(np.float16), f"{name}.half"))
        return [
            _node("Cast", [f"{name}.half"], [f"{name}.single"], to=TensorProto.FLOAT),
            _node("MatMul", [left, f"{name}.single"], list(node.output)),
        ]

    def embedding(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        """A lookup in an embedding that is quantized per row."""
        name, indices, out = node.input[0], node.input[1], node.output[0]
        self._quantize_weight(name, axis=1)
        return [
            _node("Gather", [f"{name}.int8", indices], [f"{out}.whole"]),
            _node("Gather", [f"{name}.step", indices], [f"{out}.step"]),
            _node("Cast", [f"{out}.whole"], [f"{out}.float"], to=TensorProto.FLOAT),
            _node("Mul", [f"{out}.float", f"{out}.step"], [out]),
        ]

    def _constant(self, name: str, array: NDArray[Any]) -> None:
        if name not in self.done:
            self.done.add(name)
            self.weights.append(numpy_helper.from_array(array, name))

    def _quantize_weight(self, name: str, *, axis: int) -> None:
        """Quantize a weight with a step for each column (axis 0) or row (axis 1)."""
        if name in self.done:
            return
        self.done.add(name)
        array_RC = self.arrays[name]
        largest = np.abs(array_RC).max(axis=axis, keepdims=True)
        # A column of zeros stays one, whatever its step.
        step = np.where(largest > 0, largest / WEIGHT_MAX, 1.0).astype(np.float32)
        int8_RC = np.rint(array_RC / step).clip(-WEIGHT_MAX, WEIGHT_MAX).astype(np.int8)
        self.weights.append(numpy_helper.from_array(int8_RC, f"{name}.int8"))
        self.weights.append(numpy_helper.from_array(step[0] if axis == 0 else step, f"{name}.step"))


def _node(kind: str, inputs: list[str], outputs: list[str], **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(kind, inputs, outputs, name=f"{kind}.{outputs[0]}", **attributes)


# Held-out documents and thresholds

CERTIFICATE = "certificate.json"

# Default acceptance thresholds: with larger differences int8 is another model.
AGREEMENT = 0.995
DIFFERENCE = 0.001

Log = Callable[[str], None]
Predictions = Sequence[Sequence[Document]]
"""Predicted documents by source."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Acceptance thresholds of an int8 model: agreement with fp32, and the largest difference between the scores.

    lowered  whether they are below Lexome's defaults
    """

    agreement: float = AGREEMENT
    difference: float = DIFFERENCE
    lowered: bool = False

    @classmethod
    def checked(
        cls, *, agreement: float | None = None, difference: float | None = None, relax: bool = False
    ) -> "Thresholds":
        """Thresholds in place of the defaults; UsageError for lower ones without `relax`."""
        agreement = AGREEMENT if agreement is None else agreement
        difference = DIFFERENCE if difference is None else difference
        for name, value in (("agreement", agreement), ("difference", difference)):
            if not 0 <= value <= 1:
                message = f"{name} is {value:g}; expected a fraction from 0 to 1."
                raise UsageError(message, code="not-a-fraction", value=value)
        lowered = agreement < AGREEMENT or difference > DIFFERENCE
        if lowered and not relax:
            raise UsageError(
                f"agreement {agreement:g} and difference {difference:g} are below the defaults, {AGREEMENT:g} and "
                f"{DIFFERENCE:g}. Raise them, or add --relax-thresholds, which the certificate records.",
                code="lowered-thresholds",
                value=(agreement, difference),
            )
        return cls(agreement, difference, lowered)


@dataclass(frozen=True, slots=True)
class HeldOutEvaluation:
    """Held-out documents to calibrate a model on, and to accept or reject its int8 form.

    held_out  names of datasets, folders with splits, or files
    split     the split to use of datasets and folders
    data      folder with the datasets; by default ./data
    """

    held_out: tuple[str, ...]
    split: str = "dev"
    data: Path | None = None
    thresholds: Thresholds = field(default_factory=Thresholds)

    def load(self, task: Task, checkpoint: Path) -> list["HeldOutSource"]:
        """The documents of each source; types are renamed as in the checkpoint's fine-tuning."""
        trained = _training_data(checkpoint)
        renames: dict[str, dict[str, Names]] = trained.get("rename") or {}
        sources: list[HeldOutSource] = []
        for name in self.held_out:
            source = load_held_out(
                name, split=self.split, task=task, data=self.data, dev_fraction=trained.get("dev_fraction")
            )
            if any(source.name == other.name for other in sources):
                message = (
                    f"two held-out sources have the name {source.name!r}; expected different names. Rename one file."
                )
                raise UsageError(message, code="duplicate-source", value=source.name)
            if types := renames.get(source.name):
                source = replace(source, docs=[rename_types(doc, types) for doc in source.docs])
            sources.append(source)
        return sources


def _training_data(checkpoint: Path) -> dict[str, Any]:
    """The table `data` of the recipe that the checkpoint was fine-tuned with, from its record and that of its run."""
    data: dict[str, Any] = {}
    for path in (checkpoint.parent / RUN, checkpoint / RUN):
        # The record of another stage has no such key.
        with suppress(OSError, ValueError, LookupError, TypeError):
            data |= json.loads(path.read_bytes())["recipe"]["data"]
    return data


@dataclass(frozen=True)
class HeldOutSource:
    """Held-out documents of one source; `name` is the one that the task knows the source by."""

    name: str
    split: str | None
    docs: list[Document]

    def as_json(self) -> dict[str, Any]:
        """The entry in the certificate: name, size, and a hash of the documents."""
        digest = hashlib.sha256()
        for doc in self.docs:
            digest.update(to_json(doc) + b"\n")
        return {"source": self.name, "split": self.split, "documents": len(self.docs), "sha256": digest.hexdigest()}


def load_held_out(
    name: str, *, split: str, task: Task, data: Path | None = None, dev_fraction: float | None = None
) -> HeldOutSource:
    """All documents of a file, or one split of a folder or of a dataset, which is searched in `data`.

    `dev_fraction` is what training has split off as dev from a dataset without a dev split.
    """
    path = Path(name)
    if path.is_file():
        source = HeldOutSource(path.name.partition(".")[0], None, list(read(path)))
    elif path.is_dir():
        source = HeldOutSource(path.resolve().name, split, folder(path, task=task.settings()).split(split))
    elif name.lower() in map(str.lower, names()):
        dataset = find(name, data=data)
        splits = dataset.splits(partial=True, dev_fraction=dev_fraction)
        if split not in splits:
            raise UsageError(
                f"{dataset.name} has no split {split!r}; expected one of {', '.join(splits)}. Choose it with --split.",
                code="unknown-split",
                value=split,
            )
        source = HeldOutSource(dataset.card.name, split, splits[split])
    else:
        message = f"{name!r} is not a file, a folder or a dataset. `lexome datasets` lists the datasets."
        raise UsageError(message, code="unknown-dataset", value=name)
    if not source.docs:
        raise UsageError(f"{name} has no documents to evaluate on.", code="no-documents", value=name)
    return source


# Scores and agreement


@dataclass(frozen=True, slots=True)
class SourceScores:
    """The task's first metric, for each source and as their mean."""

    metric: str
    mean: float
    sources: dict[str, float]

    def as_json(self) -> dict[str, Any]:
        """The entry in the certificate."""
        return {"measure": self.metric, "value": self.mean, "sources": self.sources}


def predict(model: Model, sources: Sequence[HeldOutSource]) -> list[list[Document]]:
    """The model's predictions for the documents of each source."""
    return [model.annotate(source.docs) for source in sources]


def score(task: Task, sources: Sequence[HeldOutSource], predictions: Predictions) -> SourceScores:
    """Each source scored on what it annotates; sources have equal weight."""
    metric, scores = "", {}
    for source, predicted in zip(sources, predictions, strict=True):
        metric, scores[source.name] = next(iter(task.for_source(source.name).score(source.docs, predicted).items()))
    return SourceScores(metric, sum(scores.values()) / len(scores), scores)


def agreement(task: Task, reference: Predictions, predictions: Predictions) -> Counts:
    """Counts of the predictions that two models share and that only one makes; their F1 is the agreement."""
    shared = extra = missing = 0
    for expected_docs, docs in zip(reference, predictions, strict=True):
        for expected_doc, doc in zip(expected_docs, docs, strict=True):
            expected, predicted = task.predictions(expected_doc), task.predictions(doc)
            shared += len(expected & predicted)
            extra += len(predicted - expected)
            missing += len(expected - predicted)
    return Counts(shared, extra, missing)


# The search for an accepted int8 form

# Examples to calibrate activations on, and to measure each weight's sensitivity.
CALIBRATION_EXAMPLES = 32
# With more than this fraction of the weights in fp32, int8 has no advantage.
MAX_KEPT = 0.5


@dataclass(frozen=True)
class Trial:
    """One int8 form: the weights left in fp32, and how its predictions compare with those of fp32."""

    kept: tuple[str, ...]
    agreed: Counts
    scores: SourceScores
    predictions: Predictions
    size: int

    def accepted(self, thresholds: Thresholds, reference: SourceScores) -> bool:
        """Whether agreement and score are within the thresholds."""
        difference = abs(self.scores.mean - reference.mean)
        return self.agreed.f1 >= thresholds.agreement and difference <= thresholds.difference


class Int8Search:
    """int8 forms of one model, evaluated on held-out documents until one is accepted.

    The folder holds the fp32 model at the start, and the model of the last trial afterwards.
    """

    def __init__(
        self, folder: Path, task: Task, sources: Sequence[HeldOutSource], thresholds: Thresholds, log: Log
    ) -> None:
        self.path, self.task, self.sources = folder / MODEL, task, sources
        self.thresholds, self.log = thresholds, log
        self.fp32 = onnx.load(str(self.path))
        self.fp32_size, self.fp32_sha256 = self.path.stat().st_size, file_sha256(self.path)
        model = Model.open(folder)
        self.reference = predict(model, sources)
        self.reference_scores = score(task, sources, self.reference)
        examples = [example for source in sources for doc in source.docs for example in model.encode(doc)]
        # Evenly spaced, because sources follow one another.
        self.examples = examples[:: max(1, len(examples) // CALIBRATION_EXAMPLES)][:CALIBRATION_EXAMPLES]
        self.smoothed = smooth(self.fp32, self.examples)
        self.trials: list[Trial] = []

    def run(self) -> Trial:
        """The first accepted form, with as few weights in fp32 as possible; CheckpointError if none is accepted."""
        weights = linear_weights(self.fp32)
        kept: tuple[str, ...] = ()
        order: list[str] = []
        while len(kept) <= int(len(weights) * MAX_KEPT):
            trial = self._try(kept)
            if trial.accepted(self.thresholds, self.reference_scores):
                return trial
            order = order or self._most_sensitive_first(weights)
            worst = order[: len(kept) + 1]
            kept = tuple(name for name in weights if name in worst)
        closest = max(self.trials, key=lambda trial: trial.agreed.f1)
        difference = 100 * abs(closest.scores.mean - self.reference_scores.mean)
        raise CheckpointError(
            f"int8 rejected: in the best of {len(self.trials)} trials it agrees with fp32 on "
            f"{100 * closest.agreed.f1:.2f}%, and its {closest.scores.metric} differs by {difference:.2f} points; "
            f"expected at least {100 * self.thresholds.agreement:g}% and at most {100 * self.thresholds.difference:g}. "
            "Nothing was written. Export as fp32, or evaluate on more documents: with few mentions, each one matters.",
            code="int8-rejected",
            value=closest.agreed.f1,
        )

    def _try(self, kept: tuple[str, ...]) -> Trial:
        model = self._open(quantize(self.smoothed.model, keep=kept, by_token=self.smoothed.by_token))
        predictions = predict(model, self.sources)
        agreed = agreement(self.task, self.reference, predictions)
        scores = score(self.task, self.sources, predictions)
        trial = Trial(kept, agreed, scores, predictions, self.path.stat().st_size)
        self.trials.append(trial)
        self.log(
            f"int8, {len(kept)} weights in fp32: agreement {100 * agreed.f1:.2f}%, {scores.metric} "
            f"{100 * scores.mean:.2f} (fp32: {100 * self.reference_scores.mean:.2f})"
        )
        return trial

    def _most_sensitive_first(self, weights: Sequence[str]) -> list[str]:
        """The weights by the squared error of the logits when one of them alone is quantized."""
        expected = self._open(self.fp32).run(self.examples)
        errors: dict[str, float] = {}
        for name in weights:
            alone = quantize(self.smoothed.model, only=[name], by_token=self.smoothed.by_token)
            logits = self._open(alone).run(self.examples)
            errors[name] = sum(float(np.square(one - other).sum()) for one, other in zip(logits, expected, strict=True))
        order = sorted(errors, key=lambda name: -errors[name])
        self.log(f"most sensitive to quantization: {order[0]}")
        return order

    def _open(self, graph: onnx.ModelProto) -> Model:
        save_graph(graph, self.path)
        return Model.open(self.path.parent)

    def as_json(self, accepted: Trial) -> dict[str, Any]:
        """The entries in the certificate."""
        agreed, reference = accepted.agreed, self.reference_scores
        return {
            "agreement": {
                "value": agreed.f1,
                "at_least": self.thresholds.agreement,
                "both": agreed.true_positives,
                "only_fp32": agreed.false_negatives,
                "only_int8": agreed.false_positives,
            },
            "score": {
                **accepted.scores.as_json(),
                "fp32": reference.as_json(),
                "difference": abs(accepted.scores.mean - reference.mean),
                "at_most": self.thresholds.difference,
            },
            "bar_lowered": self.thresholds.lowered,
            "left_in_fp32": list(accepted.kept),
            "equalised": list(self.smoothed.channels),
            "by_token": list(self.smoothed.by_token),
            "tried": [
                {"left_in_fp32": len(one.kept), "agreement": one.agreed.f1, one.scores.metric: one.scores.mean}
                for one in self.trials
            ],
            "bytes": {"fp32": self.fp32_size, "int8": accepted.size},
            "fp32_sha256": self.fp32_sha256,
        }


# The certificate


def write_certificate(
    folder: Path, *, precision: str, sources: Sequence[HeldOutSource], facts: Mapping[str, Any]
) -> None:
    """Write certificate.json beside the model: what was measured, on which documents, files, versions and hardware."""
    environment = surroundings()
    environment["versions"] |= {"onnx": onnx.__version__, "onnxruntime": onnxruntime.__version__}
    certificate = {
        "precision": precision,
        "model_sha256": file_sha256(folder / MODEL),
        "held_out": [source.as_json() for source in sources],
        **facts,
        **environment,
    }
    write_json(folder / CERTIFICATE, certificate)
