"""Channels made even change nothing in fp32, and make rounding better where one of them stands out."""

import numpy as np
import onnx
import onnxruntime
import torch
from numpy.typing import NDArray

from lexome.export.onnx_graph import graph_of
from lexome.export.quantize import best_sizes, equalised, inputs_of, large_tokens, matrices, quantised, rounding_error
from lexome.models.checkpoint import build
from lexome.models.config import EncoderConfig
from lexome.tasks.task import Example

IDS = np.arange(5, 45) % 64
ROW = Example(IDS, np.zeros_like(IDS), IDS, IDS)


def uneven() -> onnx.ModelProto:
    """A graph whose first norm makes one channel forty times as large as the others."""
    torch.manual_seed(0)
    config = EncoderConfig(vocab=64, layers=1, width=32, heads=2, inner=48, max_tokens=40, initial_std=0.2)
    model = build(config, "token", labels=5).eval()
    norm = model.encoder.layers[0].attention_norm  # type: ignore[union-attr, index]
    norm.weight.data[3] *= 40  # type: ignore[union-attr, operator]
    return graph_of(model, "token")


def uneven_values() -> onnx.ModelProto:
    """A graph in which one channel of attention's values is forty times as large as the others."""
    torch.manual_seed(0)
    config = EncoderConfig(vocab=64, layers=1, width=32, heads=2, inner=48, max_tokens=40, initial_std=0.2)
    model = build(config, "token", labels=5).eval()
    qkv = model.encoder.layers[0].attention.qkv  # type: ignore[union-attr, index]
    qkv.weight.data[-3] *= 40  # type: ignore[union-attr, operator, index]
    return graph_of(model, "token")


def numbers(model: onnx.ModelProto) -> NDArray[np.float32]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found: NDArray[np.float32] = session.run(["logits"], {"ids": IDS[None], "mask": np.ones_like(IDS)[None]})[0]
    return found


def test_the_graph_says_the_same_and_bears_rounding_better() -> None:
    exact = uneven()
    made = equalised(exact, [ROW])
    even, names = made.model, made.channels
    assert "layers.0.mlp.up.weight" in names
    before = numbers(exact)
    assert np.abs(numbers(even) - before).max() < 1e-4 * np.abs(before).max()
    plain, better = (np.abs(numbers(quantised(model)) - before).mean() for model in (exact, even))
    assert better < plain * 0.7


def test_what_attention_gives_is_made_even_by_its_values_and_costs_no_product() -> None:
    exact = uneven_values()
    made = equalised(exact, [ROW])
    assert "layers.0.attention.out.weight" in made.channels
    products = [node.output[0] for node in made.model.graph.node if node.output[0].endswith(".even")]
    assert len(products) == len(made.channels) - 1
    before = numbers(exact)
    assert np.abs(numbers(made.model) - before).max() < 1e-4 * np.abs(before).max()
    plain, better = (np.abs(numbers(quantised(model)) - before).mean() for model in (exact, made.model))
    assert better < plain * 0.7


def test_inputs_are_those_of_each_matrix() -> None:
    exact = uneven()
    seen = inputs_of(exact, [ROW])
    assert list(seen) == matrices(exact)
    assert [seen[name][0].shape for name in seen] == [(40, 32), (40, 32), (40, 32), (40, 48)]
    assert np.abs(seen["layers.0.mlp.up.weight"][0]).max(0).argmax() == 3


def test_even_channels_are_left_alone() -> None:
    rng = np.random.default_rng(0)
    left, weight = rng.normal(size=(50, 16)).astype(np.float32), rng.normal(size=(16, 8)).astype(np.float32)
    assert best_sizes([left], weight) is None
    left[:, 2] *= 50
    sizes = best_sizes([left], weight)
    assert sizes is not None
    right = [left @ weight]
    assert rounding_error([left], weight, sizes, right) < rounding_error([left], weight, np.ones_like(sizes), right) / 2


def test_a_token_that_stands_out_is_seen() -> None:
    rng = np.random.default_rng(0)
    seen = [rng.normal(size=(20, 16)).astype(np.float32) for _ in range(3)]
    assert not large_tokens(seen)
    seen[1][4] *= 40
    assert large_tokens(seen)
