"""A model as an ONNX graph, written node by node from its configuration and weights: nothing is traced.

B texts of a batch, T tokens of the longest, D width, H heads, K width a head, I inner width, M asked positions,
V vocabulary, C labels
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
from lexome.models.heads import Labeller, MaskedLM, SequenceHead
from lexome.models.names import cut_qkv

# The first in which Attention is an operator. Every operator is ONNX's own, so that other runtimes can read the file.
OPSET = 23
IR_VERSION = 11

# protobuf holds less than 2 GiB. Larger weights lie in a file beside the graph.
INLINE_BYTES = 2_000_000_000

# What is added to the score of a token that may not be seen: exp of it is 0.
NEVER = np.float32(-1e9)

# So many heads at a time leave a core's cache to the rest (docs/decisions/0010-inference.md).
HEADS_TOGETHER = 2


class Graph:
    """Nodes and weights as they are added. Names of values are strings."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, onnx.TensorProto] = {}
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self._conditions: dict[str, str] = {}
        self._count = 0

    def weight(self, name: str, tensor: Tensor) -> str:
        """A weight of the model under its own name; the second time, the one that is there."""
        if name not in self.weights:
            array = np.array(tensor.detach().float().numpy(), order="C")
            self.weights[name] = numpy_helper.from_array(array, name)
        return name

    def constant(self, held: Any, dtype: type = np.int64) -> str:
        """A number or a list of numbers."""
        array: Any = np.array(held, dtype=dtype)
        name = f"{array.dtype}{array.tolist()}"
        self.weights.setdefault(name, numpy_helper.from_array(array, name))
        return name

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output, and give the name of that."""
        return self.ops(kind, *inputs, count=1, **attributes)[0]

    def ops(self, kind: str, *inputs: str, count: int, **attributes: Any) -> list[str]:
        """Add a node with several outputs."""
        self._count += 1
        name = f"{kind}_{self._count}"
        made = [f"{name}.{number}" for number in range(count)]
        self.nodes.append(helper.make_node(kind, inputs, made, name=name, **attributes))
        return made

    def either(self, condition: str, then: Callable[[], str], otherwise: Callable[[], str]) -> str:
        """Add a node that computes one of two values, as a condition says when it is run."""
        branches = {"then_branch": self._branch(then), "else_branch": self._branch(otherwise)}
        return self.op("If", condition, **branches)

    def _branch(self, build: Callable[[], str]) -> onnx.GraphProto:
        outer, self.nodes = self.nodes, []
        held = build()
        nodes, self.nodes = self.nodes, outer
        return helper.make_graph(nodes, held, [], [helper.make_tensor_value_info(held, TensorProto.FLOAT, None)])

    def takes(self, name: str, shape: list[str]) -> str:
        """Declare an input of whole numbers."""
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.INT64, shape))
        return name

    def may_take(self, name: str, default: int) -> str:
        """Declare a whole number that is taken for given where none is."""
        if name not in self.weights:
            self.inputs.append(helper.make_tensor_value_info(name, TensorProto.INT64, []))
            self.weights[name] = numpy_helper.from_array(np.array(default, dtype=np.int64), name)
        return name

    def once(self, name: str, build: Callable[[], str]) -> str:
        """A value that the first who asks for it builds, and all others find."""
        if name not in self._conditions:
            self._conditions[name] = build()
        return self._conditions[name]

    def gives(self, name: str, held: str, shape: list[str | int]) -> None:
        """Declare an output of floats."""
        self.nodes.append(helper.make_node("Identity", [held], [name], name=f"output_{name}"))
        self.outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))

    def model(self) -> onnx.ModelProto:
        """The whole as ONNX holds it."""
        graph = helper.make_graph(self.nodes, "lexome", self.inputs, self.outputs, list(self.weights.values()))
        opset = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, opset_imports=opset, ir_version=IR_VERSION, producer_name="lexome")


def graph_of(model: nn.Module, kind: str) -> onnx.ModelProto:
    """The graph of a model.

    Inputs: ids and mask, (B, T), where mask is 1 for tokens and 0 for padding; segments, (B, T), where the kind reads
    pairs and the encoder has segments; positions, (M,), of a masked LM, counted through the rows of the batch.
    by_heads may be given, a number: 1 has the same computed a few heads at a time, which suits one core.
    Outputs: hidden, (B, T, D), and logits of what has a head.
    """
    if kind not in HEADS:
        raise CheckpointError(f"a model of kind {kind!r} has no ONNX form; expected one of {', '.join(HEADS)}.")
    encoder = model if isinstance(model, Encoder) else model.encoder
    assert isinstance(encoder, Encoder)
    graph = Graph()
    graph.takes("ids", ["B", "T"])
    graph.takes("mask", ["B", "T"])
    if has_segments(encoder, kind):
        graph.takes("segments", ["B", "T"])
    hidden_BTD = _encoder(graph, encoder, pairs=has_segments(encoder, kind))
    graph.gives("hidden", hidden_BTD, ["B", "T", encoder.config.width])
    HEADS[kind](graph, model, hidden_BTD)
    return graph.model()


def save_graph(model: onnx.ModelProto, path: Path) -> None:
    """Write a graph, in place of the one that is there; large weights go into a file beside it."""
    beside = path.with_name(f"{path.name}.data")
    beside.unlink(missing_ok=True)
    size = sum(len(weight.raw_data) for weight in model.graph.initializer)
    onnx.save_model(model, str(path), save_as_external_data=size > INLINE_BYTES, location=beside.name)


def has_segments(encoder: Encoder, kind: str) -> bool:
    """Whether a graph asks which segment a token is in: only where texts come in pairs."""
    return kind in ("sequence", "span") and encoder.embed.segments is not None


def _encoder(graph: Graph, encoder: Encoder, *, pairs: bool) -> str:
    config = encoder.config
    length = graph.op("Gather", graph.op("Shape", "ids"), graph.constant(1))
    positions_T = graph.op("Range", graph.constant(0), length, graph.constant(1))
    hidden_BTD = _embeddings(graph, encoder, positions_T, pairs=pairs)
    unseen = _unseen(graph, encoder, positions_T)
    turns = _turns(graph, encoder, positions_T)
    for number, layer in enumerate(encoder.layers):
        assert isinstance(layer, Layer)
        name = f"layers.{number}"
        mask, angles = unseen[config.window(number)], turns.get(config.angle_base(number))
        first = _norm(graph, hidden_BTD, f"{name}.attention_norm", layer.attention_norm) if layer.pre else hidden_BTD
        mixed_BTD = _attention(graph, first, f"{name}.attention", layer.attention, mask=mask, turns=angles)
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
        rows = embed.positions.weight[embed.position_offset :]
        sum_BTD = graph.op("Add", sum_BTD, graph.op("Gather", graph.weight("embed.positions", rows), positions_T))
    if embed.segments is not None and pairs:
        kinds = graph.weight("embed.segments", embed.segments.weight)
        sum_BTD = graph.op("Add", sum_BTD, graph.op("Gather", kinds, "segments"))
    elif embed.segments is not None:
        sum_BTD = graph.op("Add", sum_BTD, graph.weight("embed.segment", embed.segments.weight[0]))
    return _norm(graph, sum_BTD, "embed.norm", embed.norm)


def _unseen(graph: Graph, encoder: Encoder, positions_T: str) -> dict[int | None, str]:
    """For each window in use, what is added to the scores: 0, or NEVER for padding and what is too far away."""
    mask_BT = graph.op("Cast", "mask", to=TensorProto.FLOAT)
    never_BT = graph.op(
        "Mul", graph.op("Sub", graph.constant(1, np.float32), mask_BT), graph.constant(NEVER, np.float32)
    )
    padding_B11T = graph.op("Unsqueeze", never_BT, graph.constant([1, 2]))
    masks: dict[int | None, str] = {None: padding_B11T}
    for number in range(encoder.config.layers):
        window = encoder.config.window(number)
        if window not in masks:
            column_T1 = graph.op("Unsqueeze", positions_T, graph.constant([1]))
            far_TT = graph.op(
                "Greater", graph.op("Abs", graph.op("Sub", column_T1, positions_T)), graph.constant(window)
            )
            zero, never = graph.constant(0, np.float32), graph.constant(NEVER, np.float32)
            # A row of padding may see nothing at all; it is then even, and nobody reads it.
            masks[window] = graph.op("Add", padding_B11T, graph.op("Where", far_TT, never, zero))
    return masks


def _turns(graph: Graph, encoder: Encoder, positions_T: str) -> dict[float, tuple[str, str]]:
    """Cosines and sines of the rotary angles, (T, K) each, for each base in use."""
    config = encoder.config
    if config.positions != "rotary":
        return {}
    turns = {}
    column_T1 = graph.op("Unsqueeze", graph.op("Cast", positions_T, to=TensorProto.FLOAT), graph.constant([1]))
    for base in sorted({config.angle_base(number) for number in range(config.layers)}):
        even = torch.arange(0, config.head_width, 2, dtype=torch.float32)
        frequencies = (1.0 / base ** (even / config.head_width)).repeat(2)
        angles_TK = graph.op("Mul", column_T1, graph.weight(f"frequencies.{base:g}", frequencies))
        turns[base] = graph.op("Cos", angles_TK), graph.op("Sin", angles_TK)
    return turns


def _attention(
    graph: Graph, hidden_BTD: str, name: str, attention: Attention, *, mask: str, turns: tuple[str, str] | None
) -> str:
    heads = attention.out.in_features // attention.head_width
    qkv = _linear(graph, hidden_BTD, f"{name}.qkv", _scaled_qkv(attention, heads))

    def masked() -> str:
        return _masked_attention(graph, qkv, attention.head_width, heads, mask=mask, turns=turns)

    def whole() -> str:
        return _whole_attention(graph, qkv, heads, groups=1)

    def by_heads() -> str:
        return _whole_attention(graph, qkv, heads, groups=heads // math.gcd(heads, HEADS_TOGETHER))

    if turns is not None or attention.window is not None:
        mixed_BTD = masked()
    else:
        # Most texts come alone, and then nothing is padding: an operator without a mask is quicker.
        padded, wanted = _padded(graph), _by_heads(graph)
        mixed_BTD = graph.either(wanted, by_heads, lambda: graph.either(padded, masked, whole))
    return _linear(graph, mixed_BTD, f"{name}.out", attention.out)


def _padded(graph: Graph) -> str:
    """Whether any token is padding."""
    return graph.once("padded", lambda: graph.op("Equal", graph.op("ReduceMin", "mask", keepdims=0), graph.constant(0)))


def _by_heads(graph: Graph) -> str:
    """Whether a few heads at a time are asked for, and nothing is padding."""

    def build() -> str:
        asked = graph.op("Equal", graph.may_take("by_heads", 0), graph.constant(1))
        return graph.op("And", asked, graph.op("Not", _padded(graph)))

    return graph.once("by_heads", build)


def _whole_attention(graph: Graph, qkv: str, heads: int, *, groups: int) -> str:
    """Attention of texts without padding, in so many groups of heads one after another."""
    parts = graph.ops("Split", qkv, count=3 * groups, axis=-1, num_outputs=3 * groups)
    own = heads // groups
    mixed = [
        graph.op("Attention", *parts[number::groups], q_num_heads=own, kv_num_heads=own, scale=1.0)
        for number in range(groups)
    ]
    return mixed[0] if groups == 1 else graph.op("Concat", *mixed, axis=-1)


def _masked_attention(
    graph: Graph, qkv: str, head_width: int, heads: int, *, mask: str, turns: tuple[str, str] | None
) -> str:
    parts = graph.ops("Split", qkv, count=3, axis=-1, num_outputs=3)
    apart = graph.constant([0, 0, heads, head_width])
    query_BHTK, key_BHTK, value_BHTK = (
        graph.op("Transpose", graph.op("Reshape", part, apart), perm=[0, 2, 1, 3]) for part in parts
    )
    if turns is not None:
        query_BHTK, key_BHTK = (_turned(graph, part, turns) for part in (query_BHTK, key_BHTK))
    scores_BHTT = graph.op("MatMul", query_BHTK, graph.op("Transpose", key_BHTK, perm=[0, 1, 3, 2]))
    weights_BHTT = graph.op("Softmax", graph.op("Add", scores_BHTT, mask), axis=-1)
    mixed_BTHK = graph.op("Transpose", graph.op("MatMul", weights_BHTT, value_BHTK), perm=[0, 2, 1, 3])
    return graph.op("Reshape", mixed_BTHK, graph.constant([0, 0, heads * head_width]))


def _scaled_qkv(attention: Attention, heads: int) -> nn.Linear:
    """One matrix that gives all queries, then all keys, then all values.

    The scale of the scores is in the weights of the query, where it costs nothing.
    """
    scale = 1 / math.sqrt(attention.head_width)
    joined = nn.Linear(1, 1, bias=attention.qkv.bias is not None)
    for name, held in attention.qkv.named_parameters():
        query, key, value = cut_qkv(held.detach(), heads=heads)
        setattr(joined, name, nn.Parameter(torch.cat((query * scale, key, value)), requires_grad=False))
    return joined


def _turned(graph: Graph, vectors_BHTK: str, turns: tuple[str, str]) -> str:
    first, second = graph.ops("Split", vectors_BHTK, count=2, axis=-1, num_outputs=2)
    quarter_BHTK = graph.op("Concat", graph.op("Neg", second), first, axis=-1)
    return graph.op("Add", graph.op("Mul", vectors_BHTK, turns[0]), graph.op("Mul", quarter_BHTK, turns[1]))


def _feed_forward(graph: Graph, hidden_BTD: str, name: str, mlp: FeedForward) -> str:
    inner_BTI = _linear(graph, hidden_BTD, f"{name}.up", mlp.up)
    if mlp.gated:
        inner_BTI, gate_BTI = graph.ops("Split", inner_BTI, count=2, axis=-1, num_outputs=2)
        inner_BTI = graph.op("Mul", _activation(graph, inner_BTI, mlp.activation), gate_BTI)
    else:
        inner_BTI = _activation(graph, inner_BTI, mlp.activation)
    return _linear(graph, inner_BTI, f"{name}.down", mlp.down)


def _linear(graph: Graph, held: str, name: str, linear: nn.Linear) -> str:
    product = graph.op("MatMul", held, graph.weight(f"{name}.weight", linear.weight.T))
    bias = dict(linear.named_parameters()).get("bias")
    return product if bias is None else graph.op("Add", product, graph.weight(f"{name}.bias", bias))


def _norm(graph: Graph, held: str, name: str, norm: nn.Module) -> str:
    if isinstance(norm, nn.Identity):
        return held
    assert isinstance(norm, nn.LayerNorm)
    weights = [graph.weight(f"{name}.weight", norm.weight)]
    if norm.bias is not None:
        weights.append(graph.weight(f"{name}.bias", norm.bias))
    return graph.op("LayerNormalization", held, *weights, axis=-1, epsilon=norm.eps)


def _activation(graph: Graph, held: str, module: nn.Module) -> str:
    if isinstance(module, nn.GELU):
        return graph.op("Gelu", held, approximate=module.approximate)
    if isinstance(module, nn.SiLU):
        return graph.op("Mul", held, graph.op("Sigmoid", held))
    if isinstance(module, nn.ReLU | nn.Tanh):
        return graph.op("Relu" if isinstance(module, nn.ReLU) else "Tanh", held)
    raise CheckpointError(f"no ONNX form is known for the activation {type(module).__name__}.")


# What each kind of model adds behind the encoder. A new kind is one more of these functions.
def _no_head(graph: Graph, model: nn.Module, hidden_BTD: str) -> None:
    """An encoder is its hidden states."""


def _word_head(graph: Graph, model: nn.Module, hidden_BTD: str) -> None:
    assert isinstance(model, MaskedLM)
    head, tokens_VD = model.head, model.encoder.embed.tokens.weight
    graph.takes("positions", ["M"])
    flat_TD = graph.op("Reshape", hidden_BTD, graph.constant([-1, tokens_VD.shape[1]]))
    hidden_MD = graph.op("Gather", flat_TD, "positions")
    inner_MD = _activation(graph, _linear(graph, hidden_MD, "head.dense", head.dense), head.activation)
    normed_MD = _norm(graph, inner_MD, "head.norm", head.norm)
    # The embedding a second time, under its own name: it is stored once.
    weights = graph.weight("embed.tokens", tokens_VD), graph.weight("head.bias", head.bias)
    graph.gives("logits", graph.op("Gemm", normed_MD, *weights, transB=1), ["M", tokens_VD.shape[0]])


def _label_head(graph: Graph, model: nn.Module, hidden_BTD: str) -> None:
    assert isinstance(model, Labeller)
    last = model.head.get_submodule("out")
    assert isinstance(last, nn.Linear)
    if isinstance(model.head, SequenceHead):
        pooled_BD = _pooled(graph, hidden_BTD, model.head.pooling)
        graph.gives("logits", _through(graph, pooled_BD, model.head), ["B", last.out_features])
    else:
        graph.gives("logits", _through(graph, hidden_BTD, model.head), ["B", "T", last.out_features])


def _pooled(graph: Graph, hidden_BTD: str, pooling: str) -> str:
    if pooling == "first":
        return graph.op("Gather", hidden_BTD, graph.constant(0), axis=1)
    mask_BT1 = graph.op("Unsqueeze", graph.op("Cast", "mask", to=TensorProto.FLOAT), graph.constant([2]))
    sum_BD = graph.op("ReduceSum", graph.op("Mul", hidden_BTD, mask_BT1), graph.constant([1]), keepdims=0)
    return graph.op("Div", sum_BD, graph.op("ReduceSum", mask_BT1, graph.constant([1]), keepdims=0))


def _through(graph: Graph, held: str, head: nn.Module) -> str:
    """The layers of a head, in the order they are run in."""
    for name, layer in head.named_children():
        if isinstance(layer, nn.Linear):
            held = _linear(graph, held, f"head.{name}", layer)
        elif isinstance(layer, nn.LayerNorm):
            held = _norm(graph, held, f"head.{name}", layer)
        elif not isinstance(layer, nn.Dropout):
            held = _activation(graph, held, layer)
    return held


HEADS: Mapping[str, Callable[[Graph, nn.Module, str], None]] = {
    "encoder": _no_head,
    "masked": _word_head,
    "token": _label_head,
    "sequence": _label_head,
    "span": _label_head,
}
