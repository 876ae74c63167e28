"""A BERT exported to ONNX, as transformers.js and light packages ship it: config.json and onnx/model.onnx.

torch's exporters keep the names of biases, norms and embeddings. The matrix of a linear layer is transposed and loses
its name; it is identified by the bias of the Add that follows its MatMul.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from lexome.errors import CheckpointError, MissingExtraError
from lexome.models.foreign import legacy_hf
from lexome.models.foreign.release import ForeignCheckpoint, Release, damaged_error, missing_weights_error, read_json
from lexome.models.hf_folder import without_truncation

LAYOUT = "onnx"

Weights = dict[str, torch.Tensor]

# protobuf's limit.
GRAPH_LIMIT = 2 << 30

_FLOATS = ("FLOAT", "FLOAT16", "DOUBLE")
# Shapes, indices and conditions of the graph itself.
_OTHERS = ("INT32", "INT64", "BOOL", "STRING")

_EMBEDDINGS = "bert.embeddings.word_embeddings.weight"
_OUTPUT = "cls.predictions.decoder.weight"
_REQUIRED = (
    _EMBEDDINGS,
    "bert.embeddings.position_embeddings.weight",
    "bert.encoder.layer.0.intermediate.dense.weight",
)
_HEADS = ("cls.", "classifier.", "qa_outputs.")


def find_graph(release: Release) -> list[str]:
    """The model's graph, beside or below its config.json; empty if there is none, or if there are weights as well."""
    if "config.json" not in release.names:
        return []
    if release.selected is not None:
        return [release.selected] if release.selected.endswith(".onnx") else []
    if release.find("*.safetensors") or release.find("*.bin"):
        return []
    whole = release.find("onnx/model.onnx") + release.find("model.onnx")
    return (whole or release.find("onnx/*.onnx") + release.find("*.onnx"))[:1]


def read(release: Release) -> ForeignCheckpoint:
    """The model as transformers would save it, without truncation or padding in its tokenizer."""
    name = find_graph(release)[0]
    where, config = release.where(name), read_json(release, "config.json")
    if config.get("model_type") != "bert":
        message = f"{where}: an ONNX export of {config.get('model_type')!r}; expected bert. Use the original weights."
        raise CheckpointError(message, code="unsupported-model", value=config.get("model_type"))
    graph = _load_graph(release, name)
    _check_unmodified(graph, where)
    foreign = legacy_hf.from_state(release, _weights(graph, where), config, where=where, layout=LAYOUT)
    for needed in _REQUIRED:
        if needed not in foreign.weights:
            raise missing_weights_error(where, needed, layout="BERT")
    settings = dict(foreign.config)
    if not any(weight.startswith(_HEADS) for weight in foreign.weights):
        # Exports without the head still have the configuration of the model with one.
        settings["architectures"] = ["BertModel"]
    return replace(foreign, config=settings, tokenizer_files=without_truncation(foreign.tokenizer_files))


def _load_graph(release: Release, name: str) -> Any:
    try:
        import onnx
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or "onnx", extra="train", purpose="reading an ONNX export") from None
    content = release.read(name, limit=GRAPH_LIMIT)
    try:
        graph = onnx.ModelProto.FromString(content).graph
    except Exception as error:  # protobuf's DecodeError, whose package has no types
        raise damaged_error(release.where(name), f"invalid ONNX: {error}") from None
    if not graph.node:
        raise damaged_error(release.where(name), "ONNX without a graph")
    return graph


def _check_unmodified(graph: Any, where: str) -> None:
    """Raise if the graph is quantized, optimized, or has external weights."""
    from onnx import TensorProto

    types = Counter(TensorProto.DataType.Name(tensor.data_type) for tensor in graph.initializer)
    for kind, count in types.items():
        if kind not in (*_FLOATS, *_OTHERS):
            message = f"{where}: {count} quantized tensors ({kind}). Use model.onnx in full precision."
            raise CheckpointError(message, code="quantized-weights", value=kind)
    if any(tensor.data_location == TensorProto.EXTERNAL for tensor in graph.initializer):
        message = f"{where}: its weights are in an external file. Save it as a single file with onnx.save."
        raise CheckpointError(message, code="external-weights", value=where)
    fused = sorted({node.op_type for node in graph.node if node.domain == "com.microsoft"})
    if fused:
        message = f"{where}: was optimized by onnxruntime ({', '.join(fused)}). Use the graph as it was exported."
        raise CheckpointError(message, code="optimized-graph", value=fused[0])


def _weights(graph: Any, where: str) -> Weights:
    """All weights by their keys in torch; CheckpointError for a matrix that cannot be identified."""
    stored = _initializers(graph, where)
    weights = {name: tensor for name, tensor in stored.items() if name.endswith((".weight", ".bias"))}
    identified = set(weights)
    for key, name, transposed in _matrices(graph, stored):
        identified.add(name)
        matrix = stored[name].T.contiguous() if transposed else stored[name]
        if not torch.equal(weights.setdefault(key, matrix), matrix):
            message = f"{where}: two matrices are {key!r}, by their bias. Check the export."
            raise CheckpointError(message, code="ambiguous-weights", value=key)
    for name, tensor in stored.items():
        if name not in identified and tensor.dim() > 1:
            remedy = "Use a BERT exported by torch with a dynamic sequence length."
            message = f"{where}: {name!r} of shape {tuple(tensor.shape)} has no named bias to identify it. {remedy}"
            raise CheckpointError(message, code="unknown-weights", value=name)
    for name in weights:
        if name.endswith(".bias") and name != "cls.predictions.bias" and _matrix_of(name) not in weights:
            raise missing_weights_error(where, _matrix_of(name), layout="BERT")
    if _EMBEDDINGS not in weights and _OUTPUT in weights:
        # They are one tensor, for which the newer exporter keeps this name.
        weights[_EMBEDDINGS] = weights[_OUTPUT]
    return weights


def _initializers(graph: Any, where: str) -> Weights:
    """The floating-point tensors of a graph by name, including the second names that Identity gives shared ones."""
    from onnx import TensorProto, numpy_helper

    stored: Weights = {}
    for tensor in graph.initializer:
        if TensorProto.DataType.Name(tensor.data_type) in _FLOATS:
            try:
                stored[tensor.name] = torch.from_numpy(numpy_helper.to_array(tensor).copy())
            except ValueError as error:
                raise damaged_error(where, f"{tensor.name}: {error}") from None
    for node in graph.node:
        if node.op_type == "Identity" and node.input[0] in stored:
            stored[node.output[0]] = stored[node.input[0]]
    return stored


def _matrices(graph: Any, stored: Weights) -> Iterator[tuple[str, str, bool]]:
    """Each linear layer's matrix: its key in torch, its name in the graph, and whether it is transposed there."""
    products = {node.output[0]: node.input[1] for node in graph.node if node.op_type == "MatMul"}
    for node in graph.node:
        if node.op_type == "Add":
            bias = next((name for name in node.input if name in stored), "")
            matrix = next((products[name] for name in node.input if name in products), "")
            transposed = True
        elif node.op_type == "Gemm" and len(node.input) == 3:
            _, matrix, bias = node.input
            transposed = not any(option.name == "transB" and option.i for option in node.attribute)
        else:
            continue
        if bias.endswith(".bias") and matrix in stored:
            yield _matrix_of(bias), matrix, transposed


def _matrix_of(bias: str) -> str:
    """The key of the matrix that a bias belongs to; in the masked-LM head they are in different modules."""
    if bias == "cls.predictions.bias":
        return _OUTPUT
    return f"{bias.removesuffix('.bias')}.weight"
