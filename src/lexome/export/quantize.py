"""A graph in eight bits: its matrices column by column, its embeddings row by row; the head and norms stay as they are.

R rows and C columns of a matrix
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from lexome.tasks.task import Example

# Weights are -LARGEST to LARGEST, so that the products of a column need no correction.
LARGEST = 127

# What these give is hardly ever below 0, so that its largest number tells its range.
ONE_SIDED = ("Gelu", "Relu")

# A token whose numbers are all smaller than this is not made larger. GELU goes down to -0.17.
LEAST_RANGE, LEAST_ONE_SIDED = 1e-3, 0.17

# What is looked up and not multiplied.
TABLES = ("embed.tokens", "embed.positions")

# The last layers decide between labels and are small.
HEAD = "head."


def matrices(model: onnx.ModelProto) -> list[str]:
    """The weights that become eight-bit numbers and are multiplied with, in the order of the graph."""
    known = {weight.name: len(weight.dims) for weight in model.graph.initializer}
    return [node.input[1] for node in model.graph.node if _is_linear(node, known)]


def quantised(
    model: onnx.ModelProto,
    *,
    keep: Collection[str] = (),
    only: Collection[str] | None = None,
    by_token: Collection[str] = (),
) -> Any:
    """A copy of the graph in eight bits; products with the matrices in `keep` stay as they are, or all but `only`.

    Weights are rounded here, once; what is multiplied with them is rounded as it comes, each time by its own range, and
    before the matrices in `by_token` each token by its own.
    The matrices in `keep` are stored in half precision, which moves the numbers far less than eight bits do.
    All operators are ONNX's own. onnxruntime joins the four that stand for a product into one.
    """
    wanted = set(matrices(model)) - set(keep) if only is None else set(only)
    stored = set(keep) if only is None else set()
    tables = set(TABLES) if only is None else set()
    held = {weight.name: weight for weight in model.graph.initializer}
    arrays = {name: numpy_helper.to_array(held[name]) for name in (*wanted, *stored, *tables) if name in held}
    small = _Small(arrays, {node.output[0] for node in model.graph.node if node.op_type in ONE_SIDED})
    nodes: list[onnx.NodeProto] = []
    for node in model.graph.node:
        if node.op_type == "MatMul" and node.input[1] in wanted:
            nodes += small.product(node) if node.input[1] not in by_token else small.product_by_token(node)
        elif node.op_type == "MatMul" and node.input[1] in stored:
            nodes += small.stored(node)
        elif node.op_type == "Gather" and node.input[0] in tables:
            nodes += small.look_up(node)
        elif node.op_type == "Gelu" and only is None:
            nodes.append(_quick_gelu(node))
        else:
            nodes.append(node)
    weights = [weight for name, weight in held.items() if name not in small.done] + small.weights
    graph = helper.make_graph(nodes, model.graph.name, model.graph.input, model.graph.output, weights)
    return helper.make_model(
        graph, opset_imports=model.opset_import, ir_version=model.ir_version, producer_name=model.producer_name
    )


class _Small:
    """Weights in eight bits, made as nodes ask for them, and the nodes that take the place of these."""

    def __init__(self, arrays: dict[str, NDArray[np.float32]], one_sided: Collection[str]) -> None:
        self.arrays, self.one_sided = arrays, one_sided
        self.done: set[str] = set()
        self.weights: list[onnx.TensorProto] = []
        self._rounded: set[str] = set()
        self._levelled: set[str] = set()

    def product(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        """A product with a matrix: the left side is rounded, multiplied as whole numbers and scaled back."""
        left, name, out = node.input[0], node.input[1], node.output[0]
        self._put(name, axis=0)
        rounded, step, zero = (f"{left}.{part}" for part in ("rounded", "step", "zero"))
        made = []
        if left not in self._rounded:
            self._rounded.add(left)
            made.append(_node("DynamicQuantizeLinear", [left], [rounded, step, zero]))
        return [
            *made,
            _node("MatMulInteger", [rounded, f"{name}.int8", zero], [f"{out}.whole"]),
            _node("Cast", [f"{out}.whole"], [f"{out}.float"], to=TensorProto.FLOAT),
            _node("Mul", [step, f"{name}.step"], [f"{out}.step"]),
            _node("Mul", [f"{out}.float", f"{out}.step"], [out]),
        ]

    def product_by_token(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        """A product whose left side is first divided by the largest number of each token, and multiplied by it after.

        Encoders have tokens, those before and behind the text above all, with numbers twenty times as large as others';
        they would make the steps of all tokens as coarse as theirs.
        """
        left, out = node.input[0], node.output[0]
        self._constant("last_axis", np.array([-1], np.int64))
        one_sided = left in self.one_sided
        smallest = "least_one_sided" if one_sided else "least_range"
        self._constant(smallest, np.array(LEAST_ONE_SIDED if one_sided else LEAST_RANGE, np.float32))
        most, least, size, level = (f"{left}.{part}" for part in ("most", "least", "size", "by_token"))
        made: list[onnx.NodeProto] = []
        if left not in self._levelled:
            self._levelled.add(left)
            bounds = [most, smallest]
            if not one_sided:
                made += [
                    _node("ReduceMin", [left, "last_axis"], [least], keepdims=1),
                    _node("Neg", [least], [f"{least}.positive"]),
                ]
                bounds.append(f"{least}.positive")
            made += [
                _node("ReduceMax", [left, "last_axis"], [most], keepdims=1),
                _node("Max", bounds, [size]),
                _node("Reciprocal", [size], [f"{size}.inverse"]),
                _node("Mul", [left, f"{size}.inverse"], [level]),
            ]
        inner = onnx.NodeProto()
        inner.CopyFrom(node)
        inner.input[0], inner.output[0] = level, f"{out}.by_token"
        return [*made, *self.product(inner), _node("Mul", [f"{out}.by_token", size], [out])]

    def _constant(self, name: str, held: NDArray[Any]) -> None:
        if name not in self.done:
            self.done.add(name)
            self.weights.append(numpy_helper.from_array(held, name))

    def stored(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        """A product with a matrix that is stored in half precision: onnxruntime makes it single once, on opening."""
        left, name = node.input[0], node.input[1]
        if name not in self.done:
            self.done.add(name)
            self.weights.append(numpy_helper.from_array(self.arrays[name].astype(np.float16), f"{name}.half"))
        return [
            _node("Cast", [f"{name}.half"], [f"{name}.single"], to=TensorProto.FLOAT),
            _node("MatMul", [left, f"{name}.single"], list(node.output)),
        ]

    def look_up(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        """Rows of a table, each with its own step."""
        name, places, out = node.input[0], node.input[1], node.output[0]
        self._put(name, axis=1)
        return [
            _node("Gather", [f"{name}.int8", places], [f"{out}.whole"]),
            _node("Gather", [f"{name}.step", places], [f"{out}.step"]),
            _node("Cast", [f"{out}.whole"], [f"{out}.float"], to=TensorProto.FLOAT),
            _node("Mul", [f"{out}.float", f"{out}.step"], [out]),
        ]

    def _put(self, name: str, *, axis: int) -> None:
        """Round a weight, with one step for each column (axis 0) or row (axis 1)."""
        if name in self.done:
            return
        self.done.add(name)
        array_RC = self.arrays[name]
        largest = np.abs(array_RC).max(axis=axis, keepdims=True)
        # A column of zeros stays one, whatever its step.
        step = np.where(largest > 0, largest / LARGEST, 1.0).astype(np.float32)
        whole_RC = np.rint(array_RC / step).clip(-LARGEST, LARGEST).astype(np.int8)
        self.weights.append(numpy_helper.from_array(whole_RC, f"{name}.int8"))
        self.weights.append(numpy_helper.from_array(step[0] if axis == 0 else step, f"{name}.step"))


def _quick_gelu(node: onnx.NodeProto) -> onnx.NodeProto:
    """GELU by its usual approximation, which is off by less than rounding is, and a quarter quicker."""
    return _node("Gelu", list(node.input), list(node.output), approximate="tanh")


def _is_linear(node: onnx.NodeProto, known: dict[str, int]) -> bool:
    return (
        node.op_type == "MatMul"
        and known.get(node.input[1]) == len(("rows", "columns"))
        and not node.input[1].startswith(HEAD)
    )


def _node(kind: str, inputs: list[str], outputs: list[str], **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(kind, inputs, outputs, name=f"{kind}.{outputs[0]}", **attributes)


Floats = NDArray[np.float32]

# A division by channel costs a little time; it must lower the error to this share of what it was.
WORTH = 0.5
# How much of a channel's size goes to the weights, and how far above the usual a channel is before any of it does.
POWERS = (0.5, 0.6, 0.7, 0.8)
LIMITS = (1.5, 2.0, 4.0)
# A product is rounded token by token, which costs some time, where one is so many times as large as the usual ones.
FAR = 8.0
# Tokens are enough to see which channels stand out.
MOST_TOKENS = 500
ACTIVATION_STEPS = 255
# What attention gives is multiplied with the one, what it reads was made by the other.
ATTENTION_OUT, QKV = "attention.out.weight", "attention.qkv"
TINY = 1e-6


@dataclass(frozen=True, slots=True)
class Even:
    """A graph with channels made even, the matrices before which they were, and those to be rounded token by token."""

    model: onnx.ModelProto
    channels: tuple[str, ...]
    tokens: tuple[str, ...]


def equalised(model: onnx.ModelProto, rows: Sequence[Example]) -> Even:
    """The same graph with channels made even before matrices where that helps.

    What it computes is the same but for rounding. `rows` show which channels and tokens are large.
    """
    weights = {weight.name: numpy_helper.to_array(weight) for weight in model.graph.initializer}
    sizes: dict[str, Floats] = {}
    tokens: list[str] = []
    for name, seen in inputs_of(model, rows).items():
        if large_tokens(seen):
            tokens.append(name)
        elif (best_R := best_sizes(seen, weights[name])) is not None:
            sizes[name] = best_R
    return Even(_divided(model, sizes), tuple(sizes), tuple(tokens))


def large_tokens(seen: Sequence[Floats]) -> bool:
    """Whether a few tokens are far larger than the others, so that all would be rounded by their range."""
    largest_N = np.concatenate([np.abs(left_NR).max(1) for left_NR in seen])
    return bool(largest_N.max() > FAR * max(float(np.median(largest_N)), TINY))


def inputs_of(model: onnx.ModelProto, rows: Sequence[Example]) -> dict[str, list[Floats]]:
    """What each matrix is multiplied with, (tokens of a row, R) for each of the rows."""
    wanted = set(matrices(model))
    lefts = {node.input[1]: node.input[0] for node in model.graph.node if node.input[1:2] and node.input[1] in wanted}
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    names = list(dict.fromkeys(lefts.values()))
    shown.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names)
    options = onnxruntime.SessionOptions()
    # It warns that by_heads is no constant, which it is not meant to be.
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(shown.SerializeToString(), options, providers=["CPUExecutionProvider"])
    asked = {given.name for given in session.get_inputs()}
    seen: dict[str, list[Floats]] = {name: [] for name in names}
    for row in _few(rows):
        for name, held in zip(names, session.run(names, _given(row, asked)), strict=True):
            seen[name].append(held.reshape(-1, held.shape[-1]))
    return {matrix: seen[left] for matrix, left in lefts.items()}


def best_sizes(seen: Sequence[Floats], weight_RC: Floats) -> Floats | None:
    """What each channel is best divided by, (R,); None where it is not worth it."""
    right = [left_NR @ weight_RC for left_NR in seen]
    plain = rounding_error(seen, weight_RC, np.ones(len(weight_RC), np.float32), right)
    ways = list(_ways(seen, weight_RC))
    errors = [rounding_error(seen, weight_RC, sizes_R, right) for sizes_R in ways]
    best = int(np.argmin(errors))
    return ways[best] if errors[best] < WORTH * plain else None


def rounding_error(seen: Sequence[Floats], weight_RC: Floats, sizes_R: Floats, right: Sequence[Floats]) -> float:
    """The mean square that products are off the right ones in eight bits, when channels are divided before."""
    scaled_RC = weight_RC * sizes_R[:, None]
    step_C = np.maximum(np.abs(scaled_RC).max(0), TINY) / LARGEST
    rounded_RC = np.rint(scaled_RC / step_C) * step_C
    total, count = 0.0, 0
    for left_NR, right_NC in zip(seen, right, strict=True):
        even_NR = left_NR / sizes_R
        low, high = min(float(even_NR.min()), 0.0), max(float(even_NR.max()), TINY)
        step = (high - low) / ACTIVATION_STEPS
        zero = np.rint(-low / step)
        rounded_NR = (np.clip(np.rint(even_NR / step) + zero, 0, ACTIVATION_STEPS) - zero) * step
        off = rounded_NR.astype(np.float32) @ rounded_RC - right_NC
        total, count = total + float(np.square(off).sum()), count + off.size
    return total / count


def _ways(seen: Sequence[Floats], weight_RC: Floats) -> Iterator[Floats]:
    """Sizes to try: parted between channels and weights, or cut above a limit."""
    largest_R = np.maximum(np.abs(np.concatenate(seen)).max(0), TINY)
    weights_R = np.maximum(np.abs(weight_RC).max(1), TINY)
    parted = [largest_R**power / weights_R ** (1 - power) for power in POWERS]
    cut = [np.maximum(1, largest_R / (limit * np.median(largest_R))) for limit in LIMITS]
    even = (sizes_R / np.exp(np.log(sizes_R).mean()) for sizes_R in parted)
    for sizes_R in (*even, *cut):
        yield sizes_R.astype(np.float32)


def _divided(model: onnx.ModelProto, sizes: Mapping[str, Floats]) -> onnx.ModelProto:
    """The graph with a product before each of these matrices, whose weights make up for it.

    What attention gives is divided without one: its values are, by the weights that make them.
    """
    weights = {weight.name: numpy_helper.to_array(weight) for weight in model.graph.initializer}
    nodes: list[onnx.NodeProto] = []
    values = {name: name.removesuffix(ATTENTION_OUT) + QKV for name in sizes if name.endswith(ATTENTION_OUT)}
    for node in model.graph.node:
        made = onnx.NodeProto()
        made.CopyFrom(node)
        if node.op_type == "MatMul" and node.input[1] in sizes and node.input[1] not in values:
            made.input[0] = f"{node.output[0]}.even"
            shares = f"{node.input[1]}.shares"
            nodes.append(helper.make_node("Mul", [node.input[0], shares], [made.input[0]], name=f"Mul.{made.input[0]}"))
        nodes.append(made)
    for name, sizes_R in sizes.items():
        weights[name] = weights[name] * sizes_R[:, None]
        if name not in values:
            weights[f"{name}.shares"] = (1 / sizes_R).astype(np.float32)
            continue
        for held in (f"{values[name]}.weight", f"{values[name]}.bias"):
            if held in weights:
                # Behind queries and keys.
                kept, own = np.split(weights[held], [-len(sizes_R)], axis=-1)
                weights[held] = np.concatenate((kept, own / sizes_R), -1)
    held_weights = [numpy_helper.from_array(held, name) for name, held in weights.items()]
    graph = helper.make_graph(nodes, model.graph.name, model.graph.input, model.graph.output, held_weights)
    return helper.make_model(
        graph, opset_imports=model.opset_import, ir_version=model.ir_version, producer_name=model.producer_name
    )


def _few(rows: Sequence[Example]) -> Iterator[Example]:
    """The first rows that have enough tokens together."""
    count = 0
    for row in rows:
        if count >= MOST_TOKENS:
            return
        count += len(row.ids)
        yield row


def _given(row: Example, asked: set[str]) -> dict[str, Any]:
    given = {"ids": row.ids[None], "mask": np.ones_like(row.ids)[None], "segments": row.segments[None]}
    return {name: held for name, held in given.items() if name in asked}
