"""The float weights of an exported ONNX folder, int8 or fp32, as a model that torch trains and runs.

The package ships the default model in int8 only. Its weights times their quantization steps are float weights again,
without what rounding has lost: the model differs from the trained one as much as its int8 form does.
"""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lexome.errors import CheckpointError, MissingExtraError
from lexome.models.checkpoint import Card, build, save
from lexome.models.encoder import EncoderConfig
from lexome.models.heads import HiddenLayers
from lexome.models.hf import fuse_qkv

Floats = NDArray[np.float32]

ARCHITECTURE = "bert"
# In the order of preference for the encoder's activation: tanh is used by poolers.
ACTIVATIONS = {"Gelu": "gelu", "Relu": "relu", "Tanh": "tanh"}
# The prefixes of weights' names; constants of the graph have others.
MODULES = ("embed.", "layers.", "head.")
KINDS = ("token", "sequence", "span")


def read_exported(graph: Path, *, kind: str, labels: int) -> nn.Module:
    """The model in an ONNX graph that `lexome export` wrote, of BERT's architecture, in evaluation mode."""
    try:
        import onnx
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or "onnx", extra="train", purpose="reading exported weights") from None
    if kind not in KINDS:
        message = f"{graph}: a model of kind {kind!r}; expected one of {', '.join(KINDS)}."
        raise CheckpointError(message, code="unsupported-model", value=kind)
    nodes, arrays = _nodes_and_arrays(onnx.load(str(graph)).graph)
    weights = dequantize(arrays)
    config = _config(graph, nodes, arrays, weights)
    # Of the graphs with a label for each sequence, only those with mean pooling sum over tokens.
    pooling = "mean" if kind == "sequence" and any(node.op_type == "ReduceSum" for node in nodes) else "first"
    model = build(config, kind, labels=labels, hidden=_hidden_layers(nodes, weights, config), pooling=pooling)
    state = _state(weights, config)
    expected = model.state_dict()
    shapes = {name: tensor.shape for name, tensor in state.items()}
    wanted = {name: tensor.shape for name, tensor in expected.items()}
    wrong = sorted(name for name in shapes.keys() | wanted.keys() if shapes.get(name) != wanted.get(name))
    if wrong:
        message = f"{graph}: the weight {wrong[0]!r} is not that of a {ARCHITECTURE} model. Use its checkpoint."
        raise CheckpointError(message, code="unknown-weights", value=wrong[0])
    model.load_state_dict(state)
    return model.eval()


def write_exported(
    graph: Path, folder: Path, *, kind: str, labels: Sequence[str], tokenizer: Path, name: str, license: str = "other"
) -> None:
    """Write the model of an exported graph as a checkpoint folder, which fine-tuning starts from."""
    model = read_exported(graph, kind=kind, labels=len(labels))
    card = Card(
        title=name,
        summary=f"The weights of the exported model {name}, converted back to fp32.",
        license=license,
        data="See the card of the exported model.",
    )
    save(folder, model, architecture=ARCHITECTURE, tokenizer=tokenizer, card=card, labels=labels)


def dequantize(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Floats]:
    """The float weights of a graph by name: int8 times its step, by the scale of its input channels, and fp16."""
    weights: dict[str, Floats] = {}
    for name, array in arrays.items():
        stem, _, form = name.rpartition(".")
        if form == "int8":
            weights[stem] = array.astype(np.float32) * arrays[f"{stem}.step"]
        elif form == "half":
            weights[stem] = array.astype(np.float32)
        elif form not in ("step", "shares") and name.startswith(MODULES):
            weights[name] = array.astype(np.float32)
    for name in weights:
        # The graph multiplies the input by these factors, and the weight contains their inverse.
        if (shares_R := arrays.get(f"{name}.shares")) is not None:
            weights[name] = weights[name] * shares_R[:, None]
    return weights


def _nodes_and_arrays(graph: Any) -> tuple[list[Any], dict[str, NDArray[Any]]]:
    """All nodes, those of branches too, and the stored tensors by name."""
    from onnx import numpy_helper

    nodes, waiting = [], list(graph.node)
    while waiting:
        node = waiting.pop()
        nodes.append(node)
        waiting += [inner for attribute in node.attribute for inner in attribute.g.node]
    return nodes, {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}


def _config(
    graph: Path, nodes: Sequence[Any], arrays: Mapping[str, NDArray[Any]], weights: Mapping[str, Floats]
) -> EncoderConfig:
    """The encoder's configuration, from the shapes of its weights, the constants of its reshapes and its operators."""
    segments = "embed.segments" if "embed.segments" in weights else "embed.segment"
    required = ("embed.tokens", "embed.positions", segments, "layers.0.mlp.up.weight")
    if missing := [name for name in required if name not in weights]:
        message = f"{graph}: no weight {missing[0]!r}; expected a {ARCHITECTURE} model. Use its checkpoint."
        raise CheckpointError(message, code="unsupported-model", value=missing[0])
    # Attention splits the hidden size by the shape [0, 0, heads, size].
    shapes = [array.tolist() for array in arrays.values() if array.shape == (4,) and array.dtype == np.int64]
    heads = next((shape[2] for shape in shapes if shape[:2] == [0, 0]), 0)
    vocab, hidden_size = weights["embed.tokens"].shape
    if not heads or hidden_size % heads:
        message = f"{graph}: the number of attention heads is not in the graph. Use the model's checkpoint."
        raise CheckpointError(message, code="unsupported-model", value=heads)
    activations = [name for name in ACTIVATIONS if any(node.op_type == name for node in nodes)]
    if activations == ["Gelu", "Relu"] or len(activations) > 2:
        message = (
            f"{graph}: several activations, {', '.join(activations)}; which are the encoder's is not in the graph."
        )
        raise CheckpointError(f"{message} Use the model's checkpoint.", code="unsupported-model", value=activations[0])
    eps = next(
        (
            attribute.f
            for node in nodes
            if node.op_type == "LayerNormalization"
            for attribute in node.attribute
            if attribute.name == "epsilon"
        ),
        1e-12,
    )
    return EncoderConfig(
        vocab=vocab,
        layers=1 + max(int(name.split(".")[1]) for name in weights if name.startswith("layers.")),
        hidden_size=hidden_size,
        heads=heads,
        intermediate_size=weights["layers.0.mlp.up.weight"].shape[1],
        max_tokens=len(weights["embed.positions"]),
        activation=ACTIVATIONS[activations[0]] if activations else "gelu",
        norm_eps=float(f"{eps:.6g}"),
        dropout=0.1,
        attention_dropout=0.0,
    )


def _hidden_layers(nodes: Sequence[Any], weights: Mapping[str, Floats], config: EncoderConfig) -> HiddenLayers | None:
    """The hidden layers of the head, if it has any; their activation is tanh, or else the encoder's."""
    sizes = [array.shape[1] for name, array in weights.items() if re.fullmatch(r"head\.dense\d+\.weight", name)]
    if not sizes:
        return None
    tanh = any(node.op_type == "Tanh" for node in nodes)
    return HiddenLayers(
        count=len(sizes),
        hidden_size=sizes[0],
        activation="tanh" if tanh else config.activation,
        norm="head.norm0.weight" in weights,
        biases="head.dense0.bias" in weights,
    )


def _state(weights: Mapping[str, Floats], config: EncoderConfig) -> dict[str, Tensor]:
    """The weights by the names of Lexome's modules."""
    state: dict[str, Tensor] = {}
    for name, array in weights.items():
        tensor = torch.from_numpy(np.array(array))
        if name == "embed.segment":
            # The graph of a model of single texts has only the first segment, which is all that these use.
            state["encoder.embed.segments.weight"] = tensor.expand(config.segments, -1).clone()
            continue
        if name in ("embed.tokens", "embed.positions", "embed.segments"):
            name = f"{name}.weight"
        elif ".attention.qkv." in name:
            # All queries, keys and values in turn, the softmax scale in the queries.
            query, key, value = tensor.T.contiguous().chunk(3) if tensor.dim() > 1 else tensor.chunk(3)
            tensor = fuse_qkv(query * math.sqrt(config.head_size), key, value, heads=config.heads)
        elif tensor.dim() > 1:
            tensor = tensor.T.contiguous()
        state[name if name.startswith("head.") else f"encoder.{name}"] = tensor
    return state
