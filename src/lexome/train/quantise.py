"""A graph in eight bits: its matrices column by column, its embeddings row by row; the head and norms stay as they are.

R rows and C columns of a matrix
"""

from collections.abc import Collection
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

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
