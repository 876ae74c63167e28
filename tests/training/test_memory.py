"""The formula for memory against tensors that are counted."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from lexome.models import encoder
from lexome.models.encoder import PRESETS, EncoderConfig, Packing, count_parameters
from lexome.models.heads import MaskedLM
from lexome.training.memory import Load, activations, count_weights, layer_activations, memory, outer_activations
from lexome.training.optim import Optimizers, OptimizerSettings
from lexome.training.parallel import Sizes

SEQUENCES, LENGTH, MASKED = 4, 32, 20
TOKENS = SEQUENCES * LENGTH
POST = EncoderConfig(
    vocab=96, layers=2, hidden_size=32, heads=4, intermediate_size=80, max_tokens=64, dropout=0.0, attention_dropout=0.0
)
PRE = replace(POST, norm="pre", final_norm=True, embedding_norm=False)
GATED = replace(PRE, gated=True, positions="rotary", biases=False, norm_biases=False, segments=0, first_norm=False)
SHAPES = {"post": POST, "pre": PRE, "gated": GATED}


@pytest.fixture(autouse=True)
def fused_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention that keeps no weights, as on a GPU: CPUs train in bfloat16 with products, which keep them."""

    def attend(query: Tensor, key: Tensor, value: Tensor, *, dropout: float) -> Tensor:
        return functional.scaled_dot_product_attention(query, key, value, dropout_p=dropout)

    monkeypatch.setattr(encoder, "_attend_by_products", attend)


each_shape = pytest.mark.parametrize("config", SHAPES.values(), ids=SHAPES)


def passed(model: nn.Module, *, half: bool = False) -> Tensor:
    """The loss of a pass over sequences of one length, for which CPUs keep what the packed kernel keeps."""
    vocab = model.encoder.config.vocab  # type: ignore[union-attr]
    ids_T, labels_M = torch.randint(0, vocab, (TOKENS,)), torch.randint(0, vocab, (MASKED,))
    packing = Packing.of(range(LENGTH, TOKENS + 1, LENGTH))
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        logits_MV = model(ids_T, packing, torch.arange(MASKED))
        return functional.cross_entropy(logits_MV.float(), labels_M, reduction="sum")


def kept(config: EncoderConfig, *, half: bool) -> tuple[int, int]:
    """Bytes kept for the backward pass: of activations, and of autocast's copies of matrices."""
    model = MaskedLM(config)
    own = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    shapes = {tuple(weight.mT.shape) for weight in model.parameters() if weight.ndim == 2}
    seen: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        seen.setdefault(tensor.untyped_storage().data_ptr(), tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        passed(model, half=half)
    found = [tensor for place, tensor in seen.items() if place not in own]
    copies = [tensor for tensor in found if tensor.dtype == torch.bfloat16 and tuple(tensor.shape) in shapes]
    total = sum(tensor.untyped_storage().nbytes() for tensor in found)
    of_copies = sum(tensor.untyped_storage().nbytes() for tensor in copies)
    return total - of_copies, of_copies


@pytest.mark.parametrize("name", PRESETS)
def test_weights_are_counted_to_the_last(name: str) -> None:
    with torch.device("meta"):
        model = MaskedLM(PRESETS[name])
    assert count_weights(PRESETS[name]).total == count_parameters(model)


@each_shape
@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_weights_gradients_and_optimizer_state_are_exact(config: EncoderConfig, kind: str) -> None:
    model = MaskedLM(config)
    optimizers = Optimizers(model, config, OptimizerSettings(kind))  # type: ignore[arg-type]
    passed(model).backward()
    gradients = sum(weight.grad.nbytes for weight in model.parameters() if weight.grad is not None)
    optimizers.set_lr(1e-3)
    optimizers.step()
    states = [state for part in optimizers.parts for one in part.state.values() for state in one.values()]
    expected = memory(config, Load(TOKENS, MASKED, half=False), optimizer=kind)
    assert expected.weights == sum(weight.nbytes for weight in model.parameters())
    assert expected.gradients == gradients
    # AdamW's numbers of steps are left out: four bytes for each tensor.
    assert expected.optimizer == sum(state.nbytes for state in states if state.ndim)
    assert expected.gathered == 0


@each_shape
@pytest.mark.parametrize("half", [False, True], ids=["fp32", "autocast"])
def test_activations_are_what_the_backward_pass_finds(config: EncoderConfig, half: bool) -> None:
    found, copies = kept(config, half=half)
    expected = memory(config, Load(TOKENS, MASKED, half=half))
    # All but the one number that the loss keeps.
    assert found == pytest.approx(expected.activations, rel=0.001)
    assert copies == expected.gathered


def test_dropout_keeps_a_mask_after_each_block_and_the_embeddings() -> None:
    dropped, _ = kept(replace(POST, dropout=0.1), half=False)
    plain, _ = kept(POST, half=False)
    load = Load(TOKENS, MASKED, half=False)
    bytes_on_gpu = activations(replace(POST, dropout=0.1), load) - activations(POST, load)
    # A CPU keeps a mask as four bytes a number, a GPU as one.
    assert dropped - plain == 4 * bytes_on_gpu


@each_shape
@pytest.mark.parametrize("half", [False, True], ids=["fp32", "autocast"])
def test_checkpointing_keeps_the_inputs_of_layers_and_one_layer(config: EncoderConfig, half: bool) -> None:
    model = MaskedLM(config)
    model.encoder.gradient_checkpointing = True
    inputs: list[int] = []
    for layer in model.encoder.layers:
        layer.register_forward_pre_hook(lambda module, given: inputs.append(given[0].nbytes))
    passed(model, half=half)
    load = Load(TOKENS, MASKED, half=half, checkpointing=True)
    one = layer_activations(config, load)
    assert activations(config, load) == sum(inputs) + outer_activations(config, load)
    assert memory(config, load).layer == one
    # The layer is measured too: what two layers keep more than one.
    assert one == kept(config, half=half)[0] - kept(replace(config, layers=1), half=half)[0]


def test_more_processes_need_less_memory_each() -> None:
    config = PRESETS["biomegatron-1.2b"]
    load = Load(8192, 1229)
    cut = [memory(config, load, Sizes(tensor=tensor)).total for tensor in (1, 2, 4, 8)]
    assert cut == sorted(cut, reverse=True)
    sharded = [memory(config, load, Sizes(shard=shard)) for shard in (2, 4, 8)]
    assert sharded[0].optimizer == pytest.approx(4 * sharded[2].optimizer, rel=1e-6)
    assert sharded[0].activations == sharded[2].activations


def test_the_formula_is_near_what_was_measured_on_a_gpu() -> None:
    stored = Path(__file__).parents[2] / "results" / "training_memory.json"
    for step in json.loads(stored.read_text())["steps"]:
        config = replace(PRESETS[step["preset"]], attention_dropout=0.0)
        load = Load(step["tokens"], step["masked"], checkpointing=step["checkpointing"])
        assert step["measured_gb"] * 1e9 == pytest.approx(memory(config, load).total, rel=0.08), step
