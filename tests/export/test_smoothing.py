"""SmoothQuant-style scaling changes nothing in fp32, and lowers the quantization error of outlier channels."""

import numpy as np
import onnx
import onnxruntime
import torch
from numpy.typing import NDArray

from lexome.export.int8 import (
    best_scale,
    has_outlier_tokens,
    linear_inputs,
    linear_weights,
    quantization_error,
    quantize,
    smooth,
)
from lexome.export.onnx_graph import build_graph
from lexome.models.checkpoint import build
from lexome.models.encoder import EncoderConfig
from lexome.tasks.task import Example

IDS = np.arange(5, 45) % 64
ROW = Example(IDS, np.zeros_like(IDS), IDS, IDS)


def uneven() -> onnx.ModelProto:
    """A graph whose first norm makes one channel forty times as large as the others."""
    torch.manual_seed(0)
    config = EncoderConfig(
        vocab=64, layers=1, hidden_size=32, heads=2, intermediate_size=48, max_tokens=40, initial_std=0.2
    )
    model = build(config, "token", labels=5).eval()
    norm = model.encoder.layers[0].attention_norm  # type: ignore[union-attr, index]
    norm.weight.data[3] *= 40  # type: ignore[union-attr, operator]
    return build_graph(model, "token")


def uneven_values() -> onnx.ModelProto:
    """A graph in which one channel of attention's values is forty times as large as the others."""
    torch.manual_seed(0)
    config = EncoderConfig(
        vocab=64, layers=1, hidden_size=32, heads=2, intermediate_size=48, max_tokens=40, initial_std=0.2
    )
    model = build(config, "token", labels=5).eval()
    qkv = model.encoder.layers[0].attention.qkv  # type: ignore[union-attr, index]
    qkv.weight.data[-3] *= 40  # type: ignore[union-attr, operator, index]
    return build_graph(model, "token")


def logits(model: onnx.ModelProto) -> NDArray[np.float32]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found: NDArray[np.float32] = session.run(["logits"], {"ids": IDS[None], "mask": np.ones_like(IDS)[None]})[0]
    return found


def test_scaling_keeps_outputs_and_lowers_the_quantization_error() -> None:
    exact = uneven()
    made = smooth(exact, [ROW])
    even, names = made.model, made.channels
    assert "layers.0.mlp.up.weight" in names
    before = logits(exact)
    assert np.abs(logits(even) - before).max() < 1e-4 * np.abs(before).max()
    plain, better = (np.abs(logits(quantize(model)) - before).mean() for model in (exact, even))
    assert better < plain * 0.7


def test_the_output_projection_is_scaled_by_the_value_projection() -> None:
    exact = uneven_values()
    made = smooth(exact, [ROW])
    assert "layers.0.attention.out.weight" in made.channels
    products = [node.output[0] for node in made.model.graph.node if node.output[0].endswith(".even")]
    assert len(products) == len(made.channels) - 1
    before = logits(exact)
    assert np.abs(logits(made.model) - before).max() < 1e-4 * np.abs(before).max()
    plain, better = (np.abs(logits(quantize(model)) - before).mean() for model in (exact, made.model))
    assert better < plain * 0.7


def test_inputs_are_those_of_each_linear_weight() -> None:
    exact = uneven()
    seen = linear_inputs(exact, [ROW])
    assert list(seen) == linear_weights(exact)
    assert [seen[name][0].shape for name in seen] == [(40, 32), (40, 32), (40, 32), (40, 48)]
    assert np.abs(seen["layers.0.mlp.up.weight"][0]).max(0).argmax() == 3


def test_channels_without_outliers_are_not_scaled() -> None:
    rng = np.random.default_rng(0)
    left, weight = rng.normal(size=(50, 16)).astype(np.float32), rng.normal(size=(16, 8)).astype(np.float32)
    assert best_scale([left], weight) is None
    left[:, 2] *= 50
    sizes = best_scale([left], weight)
    assert sizes is not None
    right = [left @ weight]
    assert (
        quantization_error([left], weight, sizes, right)
        < quantization_error([left], weight, np.ones_like(sizes), right) / 2
    )


def test_an_outlier_token_is_found() -> None:
    rng = np.random.default_rng(0)
    seen = [rng.normal(size=(20, 16)).astype(np.float32) for _ in range(3)]
    assert not has_outlier_tokens(seen)
    seen[1][4] *= 40
    assert has_outlier_tokens(seen)
