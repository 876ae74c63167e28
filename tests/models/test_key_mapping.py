"""State-dict keys: a bijection for each architecture; unknown and missing weights raise."""

import pytest
import torch
from errors import raises
from tiny_models import hf_model

from lexome.errors import CheckpointError
from lexome.models.checkpoint import build
from lexome.models.encoder import EncoderConfig
from lexome.models.hf import ARCHITECTURES, KINDS, from_hf, fuse_qkv, hf_names, read_config, split_qkv, to_hf

CASES = [(architecture, kind) for architecture, mapping in ARCHITECTURES.items() for kind in mapping.classes]


def config_of(architecture: str) -> EncoderConfig:
    return read_config(hf_model(ARCHITECTURES[architecture].classes["encoder"], architecture).config.to_dict())


def our_weights(architecture: str, kind: str) -> dict[str, torch.Tensor]:
    from lexome.models import hf

    config = config_of(architecture)
    hidden = hf.read_hidden_layers({}, architecture, kind) if kind in ("token", "sequence", "span") else None
    torch.manual_seed(3)
    weights = build(config, kind, hidden=hidden).state_dict()
    return {
        name if kind != "encoder" else f"encoder.{name}": torch.randn_like(tensor) for name, tensor in weights.items()
    }


@pytest.mark.parametrize(("architecture", "kind"), CASES)
def test_a_mapping_is_a_bijection_onto_the_state_dict_of_transformers(architecture: str, kind: str) -> None:
    mapping = ARCHITECTURES[architecture]
    rows = hf_names(mapping, kind, our_weights(architecture, kind))
    theirs = [name for row in rows.values() for name in row]
    assert len(set(theirs)) == len(theirs)
    model = hf_model(mapping.classes[kind], architecture)
    expected = {name if kind != "encoder" else mapping.prefix + name for name in model.state_dict()}
    expected -= mapping.tied.keys()
    if kind == "encoder":
        expected = {name for name in expected if ".pooler." not in name}
    assert set(theirs) == expected


@pytest.mark.parametrize(("architecture", "kind"), CASES)
def test_round_trip(architecture: str, kind: str) -> None:
    mapping, ours = ARCHITECTURES[architecture], our_weights(architecture, kind)
    theirs = to_hf(ours, mapping, kind=kind, heads=4)
    back = from_hf(theirs, mapping, kind=kind, heads=4, keys=ours)
    assert (back.missing, back.unused) == ((), ())
    assert all(torch.equal(back.weights[name], tensor) for name, tensor in ours.items())
    assert sum(tensor.numel() for tensor in theirs.values()) == sum(tensor.numel() for tensor in ours.values())


def test_every_kind_is_mapped() -> None:
    assert {kind for _, kind in CASES} == set(KINDS)


def test_fused_qkv_is_ordered_by_head() -> None:
    query, key, value = (torch.tensor([1.0, 2.0, 3.0, 4.0]) * scale for scale in (1, 10, 100))
    fused = fuse_qkv(query, key, value, heads=2)
    assert fused.tolist() == [1, 2, 10, 20, 100, 200, 3, 4, 30, 40, 300, 400]
    assert all(torch.equal(*pair) for pair in zip(split_qkv(fused, heads=2), (query, key, value), strict=True))


def read(theirs: dict[str, torch.Tensor], ours: dict[str, torch.Tensor], kind: str = "masked") -> None:
    from_hf(theirs, ARCHITECTURES["bert"], kind=kind, heads=4, keys=ours)


def test_an_unknown_weight_is_refused() -> None:
    ours = our_weights("bert", "masked")
    theirs = to_hf(ours, ARCHITECTURES["bert"], kind="masked", heads=4)
    theirs["bert.encoder.layer.0.adapter.weight"] = torch.ones(1)
    with raises(CheckpointError, code="unknown-weights", value="bert.encoder.layer.0.adapter.weight"):
        read(theirs, ours)


def test_a_surplus_layer_is_refused() -> None:
    ours = our_weights("bert", "masked")
    theirs = to_hf(ours, ARCHITECTURES["bert"], kind="masked", heads=4)
    theirs["bert.encoder.layer.9.output.dense.bias"] = torch.ones(32)
    with raises(CheckpointError, code="unknown-weights", value="bert.encoder.layer.9.output.dense.bias"):
        read(theirs, ours)


def test_incomplete_query_key_value_is_refused() -> None:
    ours = our_weights("bert", "masked")
    theirs = to_hf(ours, ARCHITECTURES["bert"], kind="masked", heads=4)
    del theirs["bert.encoder.layer.2.attention.self.key.weight"]
    with raises(CheckpointError, code="missing-weights", value="bert.encoder.layer.2.attention.self.key.weight"):
        read(theirs, ours)


def test_buffers_legacy_suffixes_and_tied_weights_are_accepted() -> None:
    ours = our_weights("bert", "masked")
    theirs = to_hf(ours, ARCHITECTURES["bert"], kind="masked", heads=4)
    theirs["bert.embeddings.position_ids"] = torch.arange(40)
    theirs["bert.embeddings.LayerNorm.gamma"] = theirs.pop("bert.embeddings.LayerNorm.weight")
    theirs["bert.embeddings.LayerNorm.beta"] = theirs.pop("bert.embeddings.LayerNorm.bias")
    theirs["cls.predictions.decoder.weight"] = theirs["bert.embeddings.word_embeddings.weight"].clone()
    mapped = from_hf(theirs, ARCHITECTURES["bert"], kind="masked", heads=4, keys=ours)
    assert (mapped.missing, mapped.unused) == ((), ())
    assert torch.equal(mapped.weights["encoder.embed.norm.weight"], ours["encoder.embed.norm.weight"])


def test_a_weight_saved_only_under_its_tied_key_is_used() -> None:
    ours = our_weights("bert", "masked")
    theirs = to_hf(ours, ARCHITECTURES["bert"], kind="masked", heads=4)
    theirs["cls.predictions.decoder.bias"] = theirs.pop("cls.predictions.bias")
    mapped = from_hf(theirs, ARCHITECTURES["bert"], kind="masked", heads=4, keys=ours)
    assert torch.equal(mapped.weights["head.bias"], ours["head.bias"])


def test_an_untied_output_matrix_is_refused() -> None:
    ours = our_weights("bert", "masked")
    theirs = to_hf(ours, ARCHITECTURES["bert"], kind="masked", heads=4)
    theirs["cls.predictions.decoder.weight"] = theirs["bert.embeddings.word_embeddings.weight"] + 1
    with raises(CheckpointError, code="untied-embeddings", value="cls.predictions.decoder.weight"):
        read(theirs, ours)
