"""A BERT that was exported to ONNX, as transformers.js and light packages carry it: config.json, onnx/model.onnx.

torch's exporters keep the names of biases, norms and embeddings. The matrix of a linear layer is transposed and loses
its name; it is known by the bias of the Add that follows its MatMul.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from lexome.errors import CheckpointError, MissingExtraError
from lexome.models.foreign import legacy_hf
from lexome.models.foreign.release import ForeignCheckpoint, Release, missing_weights_error, read_json
from lexome.models.tokenizer_files import without_truncation

LAYOUT = "onnx"

Weights = dict[str, torch.Tensor]

# protobuf holds no more.
GRAPH_LIMIT = 2 << 30

_FLOATS = ("FLOAT", "FLOAT16", "DOUBLE")
# Counts, places and conditions of the graph itself.
_OTHERS = ("INT32", "INT64", "BOOL", "STRING")

_EMBEDDINGS = "bert.embeddings.word_embeddings.weight"
_OUTPUT = "cls.predictions.decoder.weight"
_NEEDED = (
    _EMBEDDINGS,
    "bert.embeddings.position_embeddings.weight",
    "bert.encoder.layer.0.intermediate.dense.weight",
)
_HEADS = ("cls.", "classifier.", "qa_outputs.")


def find_graph(release: Release) -> list[str]:
    """The graph of the model, beside or below its config.json; empty where there is none, or weights as well."""
    if "config.json" not in release.names:
        return []
    if release.chosen is not None:
        return [release.chosen] if release.chosen.endswith(".onnx") else []
    if release.find("*.safetensors") or release.find("*.bin"):
        return []
    whole = release.find("onnx/model.onnx") + release.find("model.onnx")
    return (whole or release.find("onnx/*.onnx") + release.find("*.onnx"))[:1]


def read(release: Release) -> ForeignCheckpoint:
    """The export as transformers would write the model, its tokenizer neither cutting nor padding."""
    name = find_graph(release)[0]
    where, config = release.where(name), read_json(release, "config.json")
    if config.get("model_type") != "bert":
        raise CheckpointError(
            f"{where}: model_type is {config.get('model_type')!r} in config.json; of exports to ONNX, a bert is read. "
            "Take the release with the model's own weights."
        )
    graph = _graph(release, name)
    _refuse_what_was_changed(graph, where)
    foreign = legacy_hf.from_state(release, _weights(graph, where), config, where=where, layout=LAYOUT)
    for needed in _NEEDED:
        if needed not in foreign.weights:
            raise missing_weights_error(where, needed, layout="BERT")
    settings = dict(foreign.config)
    if not any(weight.startswith(_HEADS) for weight in foreign.weights):
        # An export without its head still comes with the configuration of the model that had one.
        settings["architectures"] = ["BertModel"]
    return replace(foreign, config=settings, tokenizer_files=without_truncation(foreign.tokenizer_files))


def _graph(release: Release, name: str) -> Any:
    try:
        import onnx
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or "onnx", extra="train", purpose="reading an ONNX export") from None
    content = release.read(name, limit=GRAPH_LIMIT)
    try:
        graph = onnx.ModelProto.FromString(content).graph
    except Exception as error:  # protobuf's DecodeError, whose package has no types
        raise CheckpointError(f"{release.where(name)}: no ONNX file ({error}). Fetch it again.") from None
    if not graph.node:
        raise CheckpointError(f"{release.where(name)}: an ONNX file without a graph. Fetch it again.")
    return graph


def _refuse_what_was_changed(graph: Any, where: str) -> None:
    """Raise where a program has rounded the weights, moved them elsewhere, or melted layers together."""
    from onnx import TensorProto

    types = Counter(TensorProto.DataType.Name(tensor.data_type) for tensor in graph.initializer)
    for kind, count in types.items():
        if kind not in (*_FLOATS, *_OTHERS):
            raise CheckpointError(
                f"{where}: {count} tensors of type {kind}, so the graph is quantised; expected whole weights "
                f"({', '.join(_FLOATS)}). Take model.onnx in full precision."
            )
    if any(tensor.data_location == TensorProto.EXTERNAL for tensor in graph.initializer):
        raise CheckpointError(
            f"{where}: its weights lie in another file; expected them inside. Save it as one, with "
            "onnx.save(onnx.load(...), ...)."
        )
    fused = sorted({node.op_type for node in graph.node if node.domain == "com.microsoft"})
    if fused:
        raise CheckpointError(
            f"{where}: has {', '.join(fused)} of onnxruntime's optimiser, in which layers have lost their names. "
            "Take the graph as it was exported."
        )


def _weights(graph: Any, where: str) -> Weights:
    """All weights by the names they had in torch; CheckpointError for one that has no place or no name."""
    held = _initialisers(graph, where)
    weights = {name: tensor for name, tensor in held.items() if name.endswith((".weight", ".bias"))}
    placed = set(weights)
    for name, stored, turned in _matrices(graph, held):
        placed.add(stored)
        matrix = held[stored].T.contiguous() if turned else held[stored]
        if not torch.equal(weights.setdefault(name, matrix), matrix):
            raise CheckpointError(f"{where}: two matrices are {name!r}, by the bias that follows. Check the export.")
    for name, tensor in held.items():
        if name not in placed and tensor.dim() > 1:
            raise CheckpointError(
                f"{where}: {name!r} of shape {tuple(tensor.shape)} is followed by no bias with a name, so its place is "
                "not known; expected a BERT as torch exports it, for any length of text. Take another export."
            )
    for name in weights:
        if name.endswith(".bias") and name != "cls.predictions.bias" and _matrix_of(name) not in weights:
            raise missing_weights_error(where, _matrix_of(name), layout="BERT")
    if _EMBEDDINGS not in weights and _OUTPUT in weights:
        # One tensor for both, of which the newer exporter keeps this name.
        weights[_EMBEDDINGS] = weights[_OUTPUT]
    return weights


def _initialisers(graph: Any, where: str) -> Weights:
    """The floating tensors of a graph by name, also by the second name that Identity gives one that is there twice."""
    from onnx import TensorProto, numpy_helper

    held: Weights = {}
    for tensor in graph.initializer:
        if TensorProto.DataType.Name(tensor.data_type) in _FLOATS:
            try:
                held[tensor.name] = torch.from_numpy(numpy_helper.to_array(tensor).copy())
            except ValueError as error:
                raise CheckpointError(f"{where}: {tensor.name!r} is damaged ({error}). Fetch it again.") from None
    for node in graph.node:
        if node.op_type == "Identity" and node.input[0] in held:
            held[node.output[0]] = held[node.input[0]]
    return held


def _matrices(graph: Any, held: Weights) -> Iterator[tuple[str, str, bool]]:
    """Each linear layer's matrix: its name in torch, its name in the graph, and whether it is turned there."""
    products = {node.output[0]: node.input[1] for node in graph.node if node.op_type == "MatMul"}
    for node in graph.node:
        if node.op_type == "Add":
            bias = next((name for name in node.input if name in held), "")
            stored = next((products[name] for name in node.input if name in products), "")
            turned = True
        elif node.op_type == "Gemm" and len(node.input) == 3:
            _, stored, bias = node.input
            turned = not any(option.name == "transB" and option.i for option in node.attribute)
        else:
            continue
        if bias.endswith(".bias") and stored in held:
            yield _matrix_of(bias), stored, turned


def _matrix_of(bias: str) -> str:
    """The name of the matrix that a bias belongs to; the one for words has its own under another module."""
    if bias == "cls.predictions.bias":
        return _OUTPUT
    return f"{bias.removesuffix('.bias')}.weight"
