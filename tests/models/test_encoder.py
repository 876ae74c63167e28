"""The encoder by itself: packed or one by one, in half precision, recomputed, compiled."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from errors import raises
from tiny_models import LENGTHS, VOCAB, batch
from torch import Tensor
from torch._dynamo.testing import CompileCounter

from lexome.errors import UsageError
from lexome.models import encoder
from lexome.models.encoder import Encoder, EncoderConfig, Packing, apply_rotary, attend, init_weights, rotary_cos_sin
from lexome.models.heads import MaskedLM

BERT = EncoderConfig(vocab=VOCAB, layers=3, hidden_size=32, heads=4, intermediate_size=48, max_tokens=40)
MEGATRON = replace(BERT, norm="pre", embedding_norm=False, final_norm=True, scaled_init=True)
MODERN = replace(
    BERT,
    norm="pre",
    positions="rotary",
    segments=0,
    gated=True,
    biases=False,
    norm_biases=False,
    final_norm=True,
    first_norm=False,
    local_window=4,
    global_every=3,
    rotary_base=160_000.0,
    local_rotary_base=10_000.0,
)
FORMS = pytest.mark.parametrize("config", [BERT, MEGATRON, MODERN], ids=["bert", "megatron", "modern"])


def seeded(config: EncoderConfig) -> Encoder:
    torch.manual_seed(0)
    return Encoder(config)


@FORMS
def test_packed_is_the_same_as_one_by_one(config: EncoderConfig) -> None:
    encoder = seeded(config).eval()
    ids_T, packing = batch()
    with torch.no_grad():
        together = encoder(ids_T, packing)
        alone = [encoder(part, Packing.of([len(part)])) for part in ids_T.split(LENGTHS)]
    assert (together - torch.cat(alone)).abs().max() < 1e-5


@FORMS
def test_a_token_of_one_sequence_never_moves_another(config: EncoderConfig) -> None:
    encoder = seeded(config).eval()
    ids_T, packing = batch()
    changed_T = ids_T.clone()
    changed_T[10] = ids_T[10] % 50 + 6
    with torch.no_grad():
        moved_T = (encoder(ids_T, packing) - encoder(changed_T, packing)).abs().amax(-1) > 0
    assert moved_T[7:38].any()
    assert not moved_T[:7].any()
    assert not moved_T[38:].any()


def test_local_attention_reaches_only_its_window() -> None:
    encoder = seeded(replace(MODERN, layers=2, global_every=2)).eval()
    _, packing = batch((31,))
    local = encoder.layers[1]
    hidden_TD = torch.randn(31, 32)
    turns = encoder._rotary(packing)
    other_TD = hidden_TD.clone()
    other_TD[0] = torch.randn(32)
    with torch.no_grad():
        moved_T = (local(hidden_TD, packing, turns) - local(other_TD, packing, turns)).abs().amax(-1) > 0
    assert moved_T.nonzero().flatten().tolist() == [0, 1, 2, 3, 4]


def test_empty_sequences_at_the_end_change_nothing() -> None:
    encoder = seeded(BERT).eval()
    ids_T, packing = batch((5, 3))
    fixed = Packing.of([5, 8], longest=16, sequences=6)
    with torch.no_grad():
        assert torch.equal(encoder(ids_T, packing), encoder(ids_T, fixed))


@FORMS
def test_half_precision_stays_near(config: EncoderConfig) -> None:
    encoder = seeded(config).eval()
    ids_T, packing = batch()
    with torch.no_grad():
        exact = encoder(ids_T, packing)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            mixed = encoder(ids_T, packing)
        rough = encoder.to(torch.bfloat16)(ids_T, packing)
    assert rough.dtype == torch.bfloat16
    for other in (mixed, rough):
        assert (exact - other.float()).abs().mean() < 0.02


@FORMS
def test_gradients_in_half_precision_stay_near(config: EncoderConfig) -> None:
    encoder = seeded(config).eval()
    ids_T, packing = batch()
    weights = [weight for name, weight in encoder.named_parameters() if "qkv" in name]
    assert weights
    direction_TD = torch.randn(len(ids_T), config.hidden_size)

    def gradients() -> Tensor:
        loss = (encoder(ids_T, packing).float() * direction_TD).sum()
        return torch.cat([one.flatten() for one in torch.autograd.grad(loss, weights)])

    exact = gradients()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = gradients()
    assert (exact - mixed).norm() < 0.05 * exact.norm()


def test_attention_weights_in_half_precision_are_dropped_at_their_rate() -> None:
    packing = Packing.of([64, 100])
    ones_THK = torch.ones(100, 4, 8, dtype=torch.bfloat16, requires_grad=True)
    torch.manual_seed(0)
    context_THK = attend(ones_THK, ones_THK, ones_THK, packing, window=None, dropout=0.5).float()
    assert context_THK.std() > 0.05
    assert abs(context_THK.mean() - 1) < 0.05


def test_rotary_angles_are_exact_where_bfloat16_cannot_count() -> None:
    cos_T1K, sin_T1K = rotary_cos_sin(torch.tensor([8_001]), 4, base=10_000.0)
    expected = torch.tensor([8_001.0, 80.01], dtype=torch.float64)
    assert torch.allclose(cos_T1K[0, 0, :2].double(), expected.cos(), atol=1e-3)
    vectors_THK = torch.ones(1, 1, 4, dtype=torch.bfloat16)
    assert apply_rotary(vectors_THK, (cos_T1K, sin_T1K)).dtype == torch.bfloat16


def test_a_turned_product_depends_on_the_distance_alone() -> None:
    query, key = torch.randn(2, 1, 1, 8)
    products = []
    for first in (0, 100, 5_000):
        turns = rotary_cos_sin(torch.tensor([first, first + 7]), 8, base=10_000.0)
        both = torch.cat([query, key])
        turned_query, turned_key = apply_rotary(both, turns)
        products.append((turned_query * turned_key).sum())
    assert max(products) - min(products) < 1e-2


def gradients(encoder: Encoder) -> list[Tensor]:
    ids_T, packing = batch()
    torch.manual_seed(5)
    encoder.zero_grad()
    encoder(ids_T, packing).square().sum().backward()
    return [weight.grad.clone() for weight in encoder.parameters() if weight.grad is not None]


@FORMS
def test_recomputing_layers_changes_no_gradient(config: EncoderConfig) -> None:
    encoder = seeded(config).train()
    kept = gradients(encoder)
    encoder.gradient_checkpointing = True
    assert all(torch.equal(*pair) for pair in zip(kept, gradients(encoder), strict=True))


def test_dropout_is_in_training_only() -> None:
    encoder = seeded(BERT)
    ids_T, packing = batch()
    with torch.no_grad():
        assert not torch.equal(encoder.train()(ids_T, packing), encoder(ids_T, packing))
        assert torch.equal(encoder.eval()(ids_T, packing), encoder(ids_T, packing))
        attention_only = seeded(replace(BERT, dropout=0.0)).train()
        assert not torch.equal(attention_only(ids_T, packing), attention_only(ids_T, packing))


def test_new_weights_follow_the_seed_and_the_deviation() -> None:
    one, two = seeded(MEGATRON), seeded(MEGATRON)
    assert all(torch.equal(*pair) for pair in zip(one.parameters(), two.parameters(), strict=True))
    wide = replace(MEGATRON, hidden_size=256, intermediate_size=512)
    layer = seeded(wide).layers[0]
    assert layer.attention.qkv.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert layer.mlp.down.weight.std().item() == pytest.approx(0.02 / 6**0.5, rel=0.05)


def test_a_model_made_without_memory_can_be_filled_later() -> None:
    with torch.device("meta"):
        model = MaskedLM(BERT)
    model = model.to_empty(device="cpu")
    torch.manual_seed(0)
    init_weights(model, BERT)
    ids_T, packing = batch()
    assert model.head.bias.abs().max() == 0
    assert model(ids_T, packing, torch.arange(4)).isfinite().all()


def stand_in_kernel(query: Tensor, key: Tensor, value: Tensor, *sizes: Any, window_size: Any = None) -> Tensor:
    """As CUDA's packed kernel to the compiler: tensors and numbers in, one tensor out."""
    return query + key + value


@pytest.mark.parametrize(("config", "checkpointing"), [(BERT, False), (MODERN, True)], ids=["bert", "modern"])
def test_the_packed_path_compiles_to_one_graph(
    config: EncoderConfig, checkpointing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoder, "_varlen", stand_in_kernel)
    monkeypatch.setattr(encoder, "_varlen_kernel_supports", lambda *given, **options: True)
    torch._dynamo.reset()
    model = MaskedLM(replace(config, attention_dropout=0.0))
    model.encoder.gradient_checkpointing = checkpointing
    counter = CompileCounter()
    compiled: Callable[..., Tensor] = torch.compile(model, backend=counter, fullgraph=True)
    for ends in ([3, 9, 20], [5, 30], [1, 2, 3, 33], [4, 37]):
        packing = Packing.of(ends, longest=40, sequences=8)
        ids_T = torch.randint(0, VOCAB, (ends[-1],))
        compiled(ids_T, packing, torch.arange(0, ends[-1], 3)).sum().backward()
    # Once for the first number of tokens, once for any.
    assert counter.frame_count == 2


@pytest.mark.parametrize(
    ("change", "code", "value"),
    [
        ({"hidden_size": 30}, "heads-mismatch", 4),
        ({"layers": 0}, "bad-size", "layers"),
        ({"norm": "both"}, "unknown-option", "both"),
        ({"activation": "swish"}, "unknown-option", "swish"),
        ({"hidden_size": 36, "heads": 4, "positions": "rotary"}, "odd-head-size", 9),
    ],
)
def test_an_invalid_configuration_is_refused(change: dict[str, Any], code: str, value: Any) -> None:
    with raises(UsageError, code=code, value=value):
        replace(BERT, **change)
