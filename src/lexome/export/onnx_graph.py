"""A model as an ONNX graph, built node by node from its configuration and weights: nothing is traced.

B batch, T tokens, D width, H heads, K width per head, I feed-forward width, M masked positions, V vocabulary, C labels
"""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from lexome.errors import CheckpointError
from lexome.models.encoder import Attention, Encoder, FeedForward, Layer
from lexome.models.heads import EncoderWithHead, MaskedLM, SequenceHead
from lexome.models.hf import split_qkv

# The first opset with the Attention operator. All operators are ONNX's own, so that other runtimes can load the file.
OPSET = 23
IR_VERSION = 11

# protobuf's limit is 2 GiB. Larger weights go into an external data file.
INLINE_BYTES = 2_000_000_000

# Added to the attention score of a masked token: its exponential is 0.
MASKED = np.float32(-1e9)

# Heads computed together on one core: so few leave room in its cache (docs/decisions/0010-inference.md).
HEADS_TOGETHER = 2


class Graph:
    """An ONNX graph under construction; values are referred to by name."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, onnx.TensorProto] = {}
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self._cache: dict[str, str] = {}
        self._count = 0

    def weight(self, name: str, tensor: Tensor) -> str:
        """Add a weight under this name, unless it is there already."""
        if name not in self.weights:
            array = np.array(tensor.detach().float().numpy(), order="C")
            self.weights[name] = numpy_helper.from_array(array, name)
        return name

    def constant(self, value: Any, dtype: type = np.int64) -> str:
        """Add a scalar or vector constant."""
        array: Any = np.array(value, dtype=dtype)
        name = f"{array.dtype}{array.tolist()}"
        self.weights.setdefault(name, numpy_helper.from_array(array, name))
        return name

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output, and return the output's name."""
        return self.ops(kind, *inputs, count=1, **attributes)[0]

    def ops(self, kind: str, *inputs: str, count: int, **attributes: Any) -> list[str]:
        """Add a node with several outputs."""
        self._count += 1
        name = f"{kind}_{self._count}"
        outputs = [f"{name}.{number}" for number in range(count)]
        self.nodes.append(helper.make_node(kind, inputs, outputs, name=name, **attributes))
        return outputs

    def branch(self, condition: str, then: Callable[[], str], otherwise: Callable[[], str]) -> str:
        """Add an If node: at run time, one of two values is computed."""

        def subgraph(build: Callable[[], str]) -> onnx.GraphProto:
            outer, self.nodes = self.nodes, []
            output = build()
            nodes, self.nodes = self.nodes, outer
            return helper.make_graph(
                nodes, output, [], [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)]
            )

        return self.op("If", condition, then_branch=subgraph(then), else_branch=subgraph(otherwise))

    def input(self, name: str, shape: list[str]) -> str:
        """Declare an integer input."""
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.INT64, shape))
        return name

    def optional_input(self, name: str, default: int) -> str:
        """Declare an integer scalar input with a default."""
        if name not in self.weights:
            self.inputs.append(helper.make_tensor_value_info(name, TensorProto.INT64, []))
            self.weights[name] = numpy_helper.from_array(np.array(default, dtype=np.int64), name)
        return name

    def once(self, name: str, build: Callable[[], str]) -> str:
        """A value that is built on first use and shared afterwards."""
        if name not in self._cache:
            self._cache[name] = build()
        return self._cache[name]

    def output(self, name: str, value: str, shape: list[str | int]) -> None:
        """Declare a float output."""
        self.nodes.append(helper.make_node("Identity", [value], [name], name=f"output_{name}"))
        self.outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))

    def model(self) -> onnx.ModelProto:
        """The finished ONNX model."""
        graph = helper.make_graph(self.nodes, "lexome", self.inputs, self.outputs, list(self.weights.values()))
        opset = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, opset_imports=opset, ir_version=IR_VERSION, producer_name="lexome")


def build_graph(model: nn.Module, kind: str) -> onnx.ModelProto:
    """The ONNX graph of a model.

    Inputs: ids and mask, (B, T), where mask is 1 for tokens and 0 for padding; segments, (B, T), for kinds that read
    pairs if the encoder has segments; positions, (M,), of a masked LM, as indices into the flattened batch; by_heads,
    an optional scalar: 1 computes a few heads at a time, which is faster on one core.
    Outputs: hidden, (B, T, D), and logits if there is a head.
    """
    if kind not in HEADS:
        message = f"cannot export a model of kind {kind!r}; expected one of {', '.join(HEADS)}."
        raise CheckpointError(message, code="unknown-kind", value=kind)
    encoder = model if isinstance(model, Encoder) else model.encoder
    assert isinstance(encoder, Encoder)
    graph = Graph()
    graph.input("ids", ["B", "T"])
    graph.input("mask", ["B", "T"])
    if has_segments(encoder, kind):
        graph.input("segments", ["B", "T"])
    hidden_BTD = _encoder(graph, encoder, pairs=has_segments(encoder, kind))
    graph.output("hidden", hidden_BTD, ["B", "T", encoder.config.hidden_size])
    HEADS[kind](graph, model, hidden_BTD)
    return graph.model()


def save_graph(model: onnx.ModelProto, path: Path) -> None:
    """Write a graph, replacing an existing one; large weights go into an external data file."""
    external = path.with_name(f"{path.name}.data")
    external.unlink(missing_ok=True)
    size = sum(len(weight.raw_data) for weight in model.graph.initializer)
    onnx.save_model(model, str(path), save_as_external_data=size > INLINE_BYTES, location=external.name)


def has_segments(encoder: Encoder, kind: str) -> bool:
    """Whether a graph has segment ids as input: only for kinds that read text pairs."""
    return kind in ("sequence", "span") and encoder.embed.segments is not None


def _encoder(graph: Graph, encoder: Encoder, *, pairs: bool) -> str:
    config = encoder.config
    length = graph.op("Gather", graph.op("Shape", "ids"), graph.constant(1))
    positions_T = graph.op("Range", graph.constant(0), length, graph.constant(1))
    hidden_BTD = _embeddings(graph, encoder, positions_T, pairs=pairs)
    masks = _attention_masks(graph, encoder, positions_T)
    rotations = _rotations(graph, encoder, positions_T)
    for number, layer in enumerate(encoder.layers):
        assert isinstance(layer, Layer)
        name = f"layers.{number}"
        mask, rotation = masks[config.window(number)], rotations.get(config.rotary_base_of(number))
        first = _norm(graph, hidden_BTD, f"{name}.attention_norm", layer.attention_norm) if layer.pre else hidden_BTD
        mixed_BTD = _attention(graph, first, f"{name}.attention", layer.attention, mask=mask, rotation=rotation)
        hidden_BTD = graph.op("Add", mixed_BTD, hidden_BTD)
        if not layer.pre:
            hidden_BTD = _norm(graph, hidden_BTD, f"{name}.attention_norm", layer.attention_norm)
        second = _norm(graph, hidden_BTD, f"{name}.mlp_norm", layer.mlp_norm) if layer.pre else hidden_BTD
        hidden_BTD = graph.op("Add", _feed_forward(graph, second, f"{name}.mlp", layer.mlp), hidden_BTD)
        if not layer.pre:
            hidden_BTD = _norm(graph, hidden_BTD, f"{name}.mlp_norm", layer.mlp_norm)
    return _norm(graph, hidden_BTD, "final_norm", encoder.final_norm)


def _embeddings(graph: Graph, encoder: Encoder, positions_T: str, *, pairs: bool) -> str:
    embed = encoder.embed
    sum_BTD = graph.op("Gather", graph.weight("embed.tokens", embed.tokens.weight), "ids")
    if embed.positions is not None:
        table = graph.weight("embed.positions", embed.positions.weight[embed.position_offset :])
        sum_BTD = graph.op("Add", sum_BTD, graph.op("Gather", table, positions_T))
    if embed.segments is not None and pairs:
        table = graph.weight("embed.segments", embed.segments.weight)
        sum_BTD = graph.op("Add", sum_BTD, graph.op("Gather", table, "segments"))
    elif embed.segments is not None:
        sum_BTD = graph.op("Add", sum_BTD, graph.weight("embed.segment", embed.segments.weight[0]))
    return _norm(graph, sum_BTD, "embed.norm", embed.norm)


def _attention_masks(graph: Graph, encoder: Encoder, positions_T: str) -> dict[int | None, str]:
    """The mask to add to attention scores, by attention window: 0, or MASKED for padding and outside the window."""
    mask_BT = graph.op("Cast", "mask", to=TensorProto.FLOAT)
    masked_BT = graph.op(
        "Mul", graph.op("Sub", graph.constant(1, np.float32), mask_BT), graph.constant(MASKED, np.float32)
    )
    padding_B11T = graph.op("Unsqueeze", masked_BT, graph.constant([1, 2]))
    masks: dict[int | None, str] = {None: padding_B11T}
    for number in range(encoder.config.layers):
        window = encoder.config.window(number)
        if window not in masks:
            column_T1 = graph.op("Unsqueeze", positions_T, graph.constant([1]))
            far_TT = graph.op(
                "Greater", graph.op("Abs", graph.op("Sub", column_T1, positions_T)), graph.constant(window)
            )
            zero, masked = graph.constant(0, np.float32), graph.constant(MASKED, np.float32)
            # A padding token may have nothing to attend to; its uniform attention is never read.
            masks[window] = graph.op("Add", padding_B11T, graph.op("Where", far_TT, masked, zero))
    return masks


def _rotations(graph: Graph, encoder: Encoder, positions_T: str) -> dict[float, tuple[str, str]]:
    """The cosines and sines of the rotary angles by rotary base, (T, K) each."""
    config = encoder.config
    if config.positions != "rotary":
        return {}
    rotations = {}
    column_T1 = graph.op("Unsqueeze", graph.op("Cast", positions_T, to=TensorProto.FLOAT), graph.constant([1]))
    for base in sorted({config.rotary_base_of(number) for number in range(config.layers)}):
        even = torch.arange(0, config.head_size, 2, dtype=torch.float32)
        frequencies = (1.0 / base ** (even / config.head_size)).repeat(2)
        angles_TK = graph.op("Mul", column_T1, graph.weight(f"frequencies.{base:g}", frequencies))
        rotations[base] = graph.op("Cos", angles_TK), graph.op("Sin", angles_TK)
    return rotations


def _attention(
    graph: Graph, hidden_BTD: str, name: str, attention: Attention, *, mask: str, rotation: tuple[str, str] | None
) -> str:
    heads = attention.out.in_features // attention.head_size
    qkv = _linear(graph, hidden_BTD, f"{name}.qkv", _scaled_qkv(attention, heads))

    def masked() -> str:
        return _masked_attention(graph, qkv, attention.head_size, heads, mask=mask, rotation=rotation)

    def unmasked() -> str:
        return _unmasked_attention(graph, qkv, heads, groups=1)

    def by_heads() -> str:
        return _unmasked_attention(graph, qkv, heads, groups=heads // math.gcd(heads, HEADS_TOGETHER))

    def is_padded() -> str:
        return graph.once(
            "padded", lambda: graph.op("Equal", graph.op("ReduceMin", "mask", keepdims=0), graph.constant(0))
        )

    def use_by_heads() -> str:
        requested = graph.op("Equal", graph.optional_input("by_heads", 0), graph.constant(1))
        return graph.op("And", requested, graph.op("Not", is_padded()))

    if rotation is not None or attention.window is not None:
        mixed_BTD = masked()
    else:
        # Most batches are one text, without padding: the operator without a mask is faster.
        padded, condition = is_padded(), graph.once("by_heads", use_by_heads)
        mixed_BTD = graph.branch(condition, by_heads, lambda: graph.branch(padded, masked, unmasked))
    return _linear(graph, mixed_BTD, f"{name}.out", attention.out)


def _unmasked_attention(graph: Graph, qkv: str, heads: int, *, groups: int) -> str:
    """Attention of texts without padding, in groups of heads one after another."""
    parts = graph.ops("Split", qkv, count=3 * groups, axis=-1, num_outputs=3 * groups)
    size = heads // groups
    mixed = [
        graph.op("Attention", *parts[number::groups], q_num_heads=size, kv_num_heads=size, scale=1.0)
        for number in range(groups)
    ]
    return mixed[0] if groups == 1 else graph.op("Concat", *mixed, axis=-1)


def _masked_attention(
    graph: Graph, qkv: str, head_width: int, heads: int, *, mask: str, rotation: tuple[str, str] | None
) -> str:
    parts = graph.ops("Split", qkv, count=3, axis=-1, num_outputs=3)
    shape = graph.constant([0, 0, heads, head_width])
    query_BHTK, key_BHTK, value_BHTK = (
        graph.op("Transpose", graph.op("Reshape", part, shape), perm=[0, 2, 1, 3]) for part in parts
    )
    if rotation is not None:
        query_BHTK, key_BHTK = (_rotate(graph, part, rotation) for part in (query_BHTK, key_BHTK))
    scores_BHTT = graph.op("MatMul", query_BHTK, graph.op("Transpose", key_BHTK, perm=[0, 1, 3, 2]))
    weights_BHTT = graph.op("Softmax", graph.op("Add", scores_BHTT, mask), axis=-1)
    mixed_BTHK = graph.op("Transpose", graph.op("MatMul", weights_BHTT, value_BHTK), perm=[0, 2, 1, 3])
    return graph.op("Reshape", mixed_BTHK, graph.constant([0, 0, heads * head_width]))


def _scaled_qkv(attention: Attention, heads: int) -> nn.Linear:
    """A projection to all queries, then all keys, then all values, with the softmax scale in the query's weights."""
    scale = 1 / math.sqrt(attention.head_size)
    projection = nn.Linear(1, 1, bias=attention.qkv.bias is not None)
    for name, parameter in attention.qkv.named_parameters():
        query, key, value = split_qkv(parameter.detach(), heads=heads)
        setattr(projection, name, nn.Parameter(torch.cat((query * scale, key, value)), requires_grad=False))
    return projection


def _rotate(graph: Graph, vectors_BHTK: str, rotation: tuple[str, str]) -> str:
    first, second = graph.ops("Split", vectors_BHTK, count=2, axis=-1, num_outputs=2)
    rotated_BHTK = graph.op("Concat", graph.op("Neg", second), first, axis=-1)
    return graph.op("Add", graph.op("Mul", vectors_BHTK, rotation[0]), graph.op("Mul", rotated_BHTK, rotation[1]))


def _feed_forward(graph: Graph, hidden_BTD: str, name: str, mlp: FeedForward) -> str:
    inner_BTI = _linear(graph, hidden_BTD, f"{name}.up", mlp.up)
    if mlp.gated:
        inner_BTI, gate_BTI = graph.ops("Split", inner_BTI, count=2, axis=-1, num_outputs=2)
        inner_BTI = graph.op("Mul", _activation(graph, inner_BTI, mlp.activation), gate_BTI)
    else:
        inner_BTI = _activation(graph, inner_BTI, mlp.activation)
    return _linear(graph, inner_BTI, f"{name}.down", mlp.down)


def _linear(graph: Graph, value: str, name: str, linear: nn.Linear) -> str:
    product = graph.op("MatMul", value, graph.weight(f"{name}.weight", linear.weight.T))
    bias = dict(linear.named_parameters()).get("bias")
    return product if bias is None else graph.op("Add", product, graph.weight(f"{name}.bias", bias))


def _norm(graph: Graph, value: str, name: str, norm: nn.Module) -> str:
    if isinstance(norm, nn.Identity):
        return value
    assert isinstance(norm, nn.LayerNorm)
    weights = [graph.weight(f"{name}.weight", norm.weight)]
    if norm.bias is not None:
        weights.append(graph.weight(f"{name}.bias", norm.bias))
    return graph.op("LayerNormalization", value, *weights, axis=-1, epsilon=norm.eps)


def _activation(graph: Graph, value: str, module: nn.Module) -> str:
    if isinstance(module, nn.GELU):
        return graph.op("Gelu", value, approximate=module.approximate)
    if isinstance(module, nn.SiLU):
        return graph.op("Mul", value, graph.op("Sigmoid", value))
    if isinstance(module, nn.ReLU | nn.Tanh):
        return graph.op("Relu" if isinstance(module, nn.ReLU) else "Tanh", value)
    name = type(module).__name__
    raise CheckpointError(f"cannot export the activation {name}.", code="unknown-activation", value=name)


# Heads: one function for each kind of model


def _no_head(graph: Graph, model: nn.Module, hidden_BTD: str) -> None:
    """An encoder's output is its hidden states."""


def _masked_lm_head(graph: Graph, model: nn.Module, hidden_BTD: str) -> None:
    assert isinstance(model, MaskedLM)
    head, tokens_VD = model.head, model.encoder.embed.tokens.weight
    graph.input("positions", ["M"])
    flat_TD = graph.op("Reshape", hidden_BTD, graph.constant([-1, tokens_VD.shape[1]]))
    hidden_MD = graph.op("Gather", flat_TD, "positions")
    inner_MD = _activation(graph, _linear(graph, hidden_MD, "head.dense", head.dense), head.activation)
    normed_MD = _norm(graph, inner_MD, "head.norm", head.norm)
    # The tied embedding has the name it is stored under already.
    weights = graph.weight("embed.tokens", tokens_VD), graph.weight("head.bias", head.bias)
    graph.output("logits", graph.op("Gemm", normed_MD, *weights, transB=1), ["M", tokens_VD.shape[0]])


def _label_head(graph: Graph, model: nn.Module, hidden_BTD: str) -> None:
    assert isinstance(model, EncoderWithHead)
    head, value, shape = model.head, hidden_BTD, ["B", "T"]
    if isinstance(head, SequenceHead):
        value, shape = _pool(graph, hidden_BTD, head.pooling), ["B"]
    for name, layer in head.named_children():
        if isinstance(layer, nn.Linear):
            value = _linear(graph, value, f"head.{name}", layer)
        elif isinstance(layer, nn.LayerNorm):
            value = _norm(graph, value, f"head.{name}", layer)
        elif not isinstance(layer, nn.Dropout):
            value = _activation(graph, value, layer)
    last = head.get_submodule("out")
    assert isinstance(last, nn.Linear)
    graph.output("logits", value, [*shape, last.out_features])


def _pool(graph: Graph, hidden_BTD: str, pooling: str) -> str:
    if pooling == "first":
        return graph.op("Gather", hidden_BTD, graph.constant(0), axis=1)
    mask_BT1 = graph.op("Unsqueeze", graph.op("Cast", "mask", to=TensorProto.FLOAT), graph.constant([2]))
    sum_BD = graph.op("ReduceSum", graph.op("Mul", hidden_BTD, mask_BT1), graph.constant([1]), keepdims=0)
    return graph.op("Div", sum_BD, graph.op("ReduceSum", mask_BT1, graph.constant([1]), keepdims=0))


HEADS: Mapping[str, Callable[[Graph, nn.Module, str], None]] = {
    "encoder": _no_head,
    "masked": _masked_lm_head,
    "token": _label_head,
    "sequence": _label_head,
    "span": _label_head,
}
