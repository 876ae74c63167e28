"""Quantization-aware training: the numbers of an int8 export, in the last part of a run alone."""

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from errors import rejects
from finetuning import context_of, ner_documents, recipe_of, write_splits
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from lexome.export.int8 import quantize
from lexome.models.checkpoint import load
from lexome.training.finetune.fit import (
    FakeQuantLinear,
    QuantizationAwareTraining,
    fake_quantize_input,
    fake_quantize_weight,
)
from lexome.training.finetune.run import build_model
from lexome.training.finetune.stage import finetune

NER = {"kind": "ner", "types": ["Gene", "Drug"]}


def drawn(*shape: int, shift: float = 0.0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1)) + shift


@pytest.mark.parametrize("shift", [0.0, 3.0, -3.0])
def test_a_product_is_that_of_an_export_in_eight_bits(shift: float) -> None:
    input_TD, weight_RD = drawn(7, 16, shift=shift), drawn(5, 16)
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph(
        [node],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["T", 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["T", 5])],
        [numpy_helper.from_array(np.ascontiguousarray(weight_RD.T.numpy()), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    session = onnxruntime.InferenceSession(quantize(model).SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, {"x": input_TD.numpy()})[0]
    found = fake_quantize_input(input_TD) @ fake_quantize_weight(weight_RD).T
    assert not np.allclose(expected, (input_TD @ weight_RD.T).numpy(), atol=1e-4)
    assert np.allclose(expected, found.numpy(), atol=1e-4)


def test_gradients_go_through_as_if_nothing_were_rounded() -> None:
    layer = FakeQuantLinear(16, 5)
    layer.enabled = torch.ones(())
    input_TD = drawn(7, 16).requires_grad_()
    layer(input_TD).sum().backward()
    assert input_TD.grad is not None
    assert layer.weight.grad is not None
    assert torch.allclose(input_TD.grad[0], fake_quantize_weight(layer.weight).sum(0), atol=1e-5)
    assert torch.allclose(layer.weight.grad[0], fake_quantize_input(input_TD).sum(0), atol=1e-5)


def test_it_begins_late_ends_with_the_run_and_leaves_plain_layers(start: Path, tmp_path: Path) -> None:
    docs = ner_documents()
    recipe = recipe_of(start, write_splits(tmp_path / "data", train=docs, dev=docs), tmp_path / "out", NER)
    with context_of(recipe) as context:
        learner = build_model(recipe, context)[0]
    rounding = QuantizationAwareTraining(learner, begin=0.75)
    with rounding.prepared():
        assert {type(part) for part in rounding.layers} == {FakeQuantLinear}
        for done, on in ((0.0, 0.0), (0.74, 0.0), (0.75, 1.0), (1.0, 1.0)):
            rounding.set_progress(done)
            assert float(rounding.enabled) == on
    assert {type(part) for part in rounding.layers} == {nn.Linear}
    assert len(rounding.layers) == 8


def test_a_model_learns_under_it_and_is_saved_with_plain_layers(start: Path, tmp_path: Path) -> None:
    docs = ner_documents()
    data = write_splits(tmp_path / "data", train=docs, dev=docs)
    found = []
    for share in (0.0, 0.5):
        recipe = recipe_of(start, data, tmp_path / str(share), NER, qat_ratio=share)
        done = finetune(recipe, progress_shown=False)
        assert done.model is not None
        assert done.summary.rows[0].spreads["dev"]["f1"].mean == 1.0
        found.append(load(done.model).model.encoder.layers[0].attention.out)
    assert {type(layer) for layer in found} == {nn.Linear}
    assert not torch.equal(found[0].weight, found[1].weight)


def test_weights_from_before_it_began_are_not_kept(start: Path, tmp_path: Path) -> None:
    docs = ner_documents()
    recipe = recipe_of(
        start, write_splits(tmp_path / "data", train=docs, dev=docs), tmp_path / "out", NER, qat_ratio=0.25, epochs=40
    )
    finetune(recipe, progress_shown=False)
    facts = json.loads(next((tmp_path / "out").rglob("runs/*/run.json")).read_text())
    assert facts["best_step"] > 0.75 * facts["steps"]


def test_adapters_and_compiled_layers_are_refused() -> None:
    for keys in ({"method": "lora"}, {"compile": True}):
        with rejects("qat_ratio"):
            recipe_of(Path("start"), Path("data"), Path("out"), NER, qat_ratio=0.5, **keys)
