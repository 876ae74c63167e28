"""Muon against plain references, weight decay by name, and full-precision copies of rounded weights."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lexome.models.encoder import EncoderConfig
from lexome.models.heads import MaskedLM
from lexome.training.optim import SINGLE, Fused, Muon, Optimizers, OptimizerSettings, orthogonalize, parameter_groups

CONFIG = EncoderConfig(vocab=40, layers=2, hidden_size=16, heads=2, intermediate_size=32, max_tokens=16)


def reference(gradients: list[Tensor], start: Tensor, *, lr: float, momentum: float, decay: float) -> Tensor:
    """Muon as it is written down: one matrix, step by step, in float64."""
    weight, mean = start.double().clone(), torch.zeros_like(start, dtype=torch.float64)
    for gradient in gradients:
        mean = momentum * mean + (1 - momentum) * gradient.double()
        x = (1 - momentum) * gradient.double() + momentum * mean
        x = x / x.norm()
        if x.shape[0] > x.shape[1]:
            x = x.T
        for _ in range(5):
            square = x @ x.T
            x = 3.4445 * x - 4.7750 * square @ x + 2.0315 * square @ square @ x
        x = x.T if gradient.shape[0] > gradient.shape[1] else x
        weight = weight * (1 - lr * decay) - lr * 0.2 * math.sqrt(max(gradient.shape)) * x
    return weight


def group(*matrices: nn.Parameter, fused: Fused = SINGLE, weight_decay: float = 0.0) -> dict[str, Any]:
    """One group of Muon's parameters."""
    return {"params": list(matrices), "fused": [fused] * len(matrices), "weight_decay": weight_decay}


@pytest.mark.parametrize("shape", [(16, 16), (48, 16), (16, 48)])
def test_muon_is_the_written_algorithm(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    start, gradients = torch.randn(shape), [torch.randn(shape) for _ in range(3)]
    weight = nn.Parameter(start.clone())
    muon = Muon([group(weight, weight_decay=0.1)], momentum=0.9)
    for gradient in gradients:
        weight.grad = gradient.clone()
        muon.param_groups[0]["lr"] = 0.02
        muon.step()
    expected = reference(gradients, start, lr=0.02, momentum=0.9, decay=0.1)
    assert torch.allclose(weight.double(), expected, atol=1e-5)


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this torch has no Muon of its own")
def test_muon_is_torchs_own_up_to_its_bfloat16() -> None:
    torch.manual_seed(0)
    start, gradients = torch.randn(24, 16), [torch.randn(24, 16) for _ in range(3)]
    ours, theirs = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    muon = Muon([group(ours, weight_decay=0.1)], momentum=0.95)
    other = torch.optim.Muon([theirs], lr=0.02, momentum=0.95, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    for gradient in gradients:
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        muon.param_groups[0]["lr"] = 0.02
        muon.step()
        other.step()
    assert torch.allclose(ours - start, theirs - start, atol=0.02 * 0.2)
    assert nn.functional.cosine_similarity((ours - start).ravel(), (theirs - start).ravel(), dim=0) > 0.999


@pytest.mark.parametrize("fused", [Fused(3, head_width=4), Fused(2)])
def test_fused_maps_are_stepped_as_if_apart(fused: Fused) -> None:
    torch.manual_seed(0)
    whole = nn.Parameter(torch.randn(24, 16))
    parts = [nn.Parameter(part.clone()) for part in fused.split(whole.detach())]
    whole.grad = torch.randn(24, 16)
    for part, gradient in zip(parts, fused.split(whole.grad), strict=True):
        part.grad = gradient.clone()
    for muon in (Muon([group(whole, fused=fused)]), Muon([group(*parts)])):
        muon.param_groups[0]["lr"] = 0.1
        muon.step()
    assert torch.equal(fused.split(whole.detach()), torch.stack([part.detach() for part in parts]))


def test_query_key_and_value_are_taken_apart_head_by_head() -> None:
    rows = torch.arange(12.0)[:, None]  # two heads: q0 q1 k2 k3 v4 v5, then q6 q7 k8 k9 v10 v11
    apart = Fused(3, head_width=2).split(rows)
    assert apart[..., 0].tolist() == [[0, 1, 6, 7], [2, 3, 8, 9], [4, 5, 10, 11]]
    assert torch.equal(Fused(3, head_width=2).join(apart), rows)


def test_an_orthogonal_update_has_singular_values_near_one() -> None:
    torch.manual_seed(0)
    values = torch.linalg.svdvals(orthogonalize(torch.randn(3, 32, 64)))
    assert 0.6 < values.min() < values.max() < 1.3


def test_muon_takes_the_layers_matrices_and_adamw_the_rest() -> None:
    model = MaskedLM(CONFIG)
    muon, adamw = Optimizers(model, CONFIG, OptimizerSettings("muon")).parts
    hidden = {id(weight) for weight in muon.param_groups[0]["params"]}
    names = {name for name, weight in model.named_parameters() if id(weight) in hidden}
    assert names == {
        f"encoder.layers.{n}.{part}.weight"
        for n in range(2)
        for part in ("attention.qkv", "attention.out", "mlp.up", "mlp.down")
    }
    rest = [weight for group in adamw.param_groups for weight in group["params"]]
    assert len(rest) + len(hidden) == len(list(model.parameters()))


def test_vectors_are_not_decayed() -> None:
    model = MaskedLM(CONFIG)
    (adamw,) = Optimizers(model, CONFIG, OptimizerSettings(weight_decay=0.1)).parts
    decays = {group["weight_decay"]: {weight.ndim for weight in group["params"]} for group in adamw.param_groups}
    assert decays == {0.1: {2}, 0.0: {1}}


def test_small_steps_are_not_lost_in_bfloat16_weights() -> None:
    torch.manual_seed(0)
    model = MaskedLM(CONFIG).to(torch.bfloat16)
    weight = model.encoder.layers[0].mlp.up.weight
    nn.init.ones_(weight)
    optimizers = Optimizers(model, CONFIG, OptimizerSettings(weight_decay=0.0, max_grad_norm=None))
    optimizers.set_lr(1e-4)
    for _ in range(100):
        weight.grad = torch.ones_like(weight)
        optimizers.gather()
        optimizers.step()
    # Each step of 1e-4 is below bfloat16's 0.4%, and would be rounded away.
    assert weight.float().mean().item() == pytest.approx(0.99, abs=2e-3)


def test_gradients_above_the_limit_are_scaled_down() -> None:
    torch.manual_seed(0)
    model = MaskedLM(CONFIG)
    optimizers = Optimizers(model, CONFIG, OptimizerSettings())
    for weight in model.parameters():
        weight.grad = torch.ones_like(weight)
    before = math.sqrt(sum(weight.numel() for weight in model.parameters()))
    assert optimizers.step().item() == pytest.approx(before, rel=1e-5)
    assert all(weight.grad is None for weight in model.parameters())


def test_heads_and_lower_layers_have_learning_rates_of_their_own() -> None:
    model = MaskedLM(CONFIG)
    for kind in ("adamw", "muon"):
        settings = OptimizerSettings(kind, head_lr_scale=10.0, layerwise_lr_decay=0.5)  # type: ignore[arg-type]
        groups = [
            group for part in parameter_groups(list(model.named_parameters()), CONFIG, settings) for group in part
        ]
        scale_of = {id(weight): group["lr_scale"] for group in groups for weight in group["params"]}
        scales = {name: scale_of[id(weight)] for name, weight in model.named_parameters()}
        assert scales["head.dense.weight"] == 10.0
        assert scales["encoder.layers.1.mlp.up.weight"] == 0.5
        assert scales["encoder.layers.0.mlp.up.weight"] == 0.25
        assert scales["encoder.embed.tokens.weight"] == 0.125
        optimizers = Optimizers(model, CONFIG, settings)
        optimizers.set_lr(0.1)
        rates = {
            id(weight): group["lr"]
            for part in optimizers.parts
            for group in part.param_groups
            for weight in group["params"]
        }
        assert rates[id(model.encoder.layers[0].mlp.up.weight)] == pytest.approx(0.025)
