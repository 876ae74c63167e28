"""Ranges made even before rounding: what is far larger than the rest, be it a channel or a token, is found here.

Rounding takes one step for all that is multiplied with a matrix. One channel of 384 that is sixteen times as large as
the rest, as encoders have before their feed-forward layers, makes that step sixteen times as coarse (Xiao et al. 2023);
it shares its size with its weights. Inside feed-forward layers it is a token: the one before the text, or behind it, is
twenty times as large as any other. Such products are rounded token by token (quantise.py).

N tokens of some rows, R channels (rows of a matrix), C columns
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from lexome.tasks.task import Row
from lexome.train.quantise import LARGEST, matrices
from lexome.values import value

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


@value
class Even:
    """A graph with channels made even, the matrices before which they were, and those to be rounded token by token."""

    model: onnx.ModelProto
    channels: tuple[str, ...]
    tokens: tuple[str, ...]


def equalised(model: onnx.ModelProto, rows: Sequence[Row]) -> Even:
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


def inputs_of(model: onnx.ModelProto, rows: Sequence[Row]) -> dict[str, list[Floats]]:
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


def _few(rows: Sequence[Row]) -> Iterator[Row]:
    """The first rows that have enough tokens together."""
    count = 0
    for row in rows:
        if count >= MOST_TOKENS:
            return
        count += len(row.ids)
        yield row


def _given(row: Row, asked: set[str]) -> dict[str, Any]:
    given = {"ids": row.ids[None], "mask": np.ones_like(row.ids)[None], "segments": row.segments[None]}
    return {name: held for name, held in given.items() if name in asked}
