"""Names of weights: a bijection for each architecture, and nothing unknown or lacking passes."""

import pytest
import torch
from tiny_models import hf_model

from lexome.errors import CheckpointError
from lexome.models.checkpoint import build
from lexome.models.config import EncoderConfig
from lexome.models.hf_config import read_config
from lexome.models.names import ARCHITECTURES, KINDS, cut_qkv, from_hf, join_qkv, table, to_hf

CASES = [(architecture, kind) for architecture, names in ARCHITECTURES.items() for kind in names.classes]


def config_of(architecture: str) -> EncoderConfig:
    return read_config(hf_model(ARCHITECTURES[architecture].classes["encoder"], architecture).config.to_dict())


def our_weights(architecture: str, kind: str) -> dict[str, torch.Tensor]:
    from lexome.models import hf_config

    config = config_of(architecture)
    hidden = hf_config.hidden_of({}, architecture, kind) if kind in ("token", "sequence", "span") else None
    torch.manual_seed(3)
    weights = build(config, kind, hidden=hidden).state_dict()
    return {name if kind != "encoder" else f"encoder.{name}": torch.randn_like(held) for name, held in weights.items()}


@pytest.mark.parametrize(("architecture", "kind"), CASES)
def test_a_table_is_a_bijection_onto_the_weights_of_transformers(architecture: str, kind: str) -> None:
    names = ARCHITECTURES[architecture]
    rows = table(names, kind, our_weights(architecture, kind))
    theirs = [name for row in rows.values() for name in row]
    assert len(set(theirs)) == len(theirs)
    model = hf_model(names.classes[kind], architecture)
    stated = {name if kind != "encoder" else names.prefix + name for name in model.state_dict()}
    stated -= names.copies.keys()
    if kind == "encoder":
        stated = {name for name in stated if ".pooler." not in name}
    assert set(theirs) == stated


@pytest.mark.parametrize(("architecture", "kind"), CASES)
def test_there_and_back_changes_nothing(architecture: str, kind: str) -> None:
    names, ours = ARCHITECTURES[architecture], our_weights(architecture, kind)
    theirs = to_hf(ours, names, kind=kind, heads=4)
    back = from_hf(theirs, names, kind=kind, heads=4, ours=ours)
    assert (back.missing, back.unused) == ((), ())
    assert all(torch.equal(back.weights[name], tensor) for name, tensor in ours.items())
    assert sum(tensor.numel() for tensor in theirs.values()) == sum(tensor.numel() for tensor in ours.values())


def test_every_kind_is_in_some_table() -> None:
    assert {kind for _, kind in CASES} == set(KINDS)


def test_query_key_and_value_lie_head_by_head() -> None:
    query, key, value = (torch.tensor([1.0, 2.0, 3.0, 4.0]) * scale for scale in (1, 10, 100))
    joined = join_qkv(query, key, value, heads=2)
    assert joined.tolist() == [1, 2, 10, 20, 100, 200, 3, 4, 30, 40, 300, 400]
    assert all(torch.equal(*pair) for pair in zip(cut_qkv(joined, heads=2), (query, key, value), strict=True))


def read(theirs: dict[str, torch.Tensor], ours: dict[str, torch.Tensor], kind: str = "masked") -> None:
    from_hf(theirs, ARCHITECTURES["bert"], kind=kind, heads=4, ours=ours)


def test_an_unknown_weight_is_refused() -> None:
    ours = our_weights("bert", "masked")
    theirs = to_hf(ours, ARCHITECTURES["bert"], kind="masked", heads=4)
    theirs["bert.encoder.layer.0.adapter.weight"] = torch.ones(1)
    with pytest.raises(CheckpointError, match=r"1 unknown weights, first 'bert.encoder.layer.0.adapter.weight'"):
        read(theirs, ours)


def test_a_layer_more_than_the_configuration_says_is_refused() -> None:
    ours = our_weights("bert", "masked")
    theirs = to_hf(ours, ARCHITECTURES["bert"], kind="masked", heads=4)
    theirs["bert.encoder.layer.9.output.dense.bias"] = torch.ones(32)
    with pytest.raises(CheckpointError, match=r"layer.9.output.dense.bias"):
        read(theirs, ours)


def test_half_of_query_key_value_is_damage() -> None:
    ours = our_weights("bert", "masked")
    theirs = to_hf(ours, ARCHITECTURES["bert"], kind="masked", heads=4)
    del theirs["bert.encoder.layer.2.attention.self.key.weight"]
    with pytest.raises(CheckpointError, match=r"layer.2.attention.self.key.weight' is missing"):
        read(theirs, ours)


def test_buffers_and_old_endings_and_copies_are_known() -> None:
    ours = our_weights("bert", "masked")
    theirs = to_hf(ours, ARCHITECTURES["bert"], kind="masked", heads=4)
    theirs["bert.embeddings.position_ids"] = torch.arange(40)
    theirs["bert.embeddings.LayerNorm.gamma"] = theirs.pop("bert.embeddings.LayerNorm.weight")
    theirs["bert.embeddings.LayerNorm.beta"] = theirs.pop("bert.embeddings.LayerNorm.bias")
    theirs["cls.predictions.decoder.weight"] = theirs["bert.embeddings.word_embeddings.weight"].clone()
    found = from_hf(theirs, ARCHITECTURES["bert"], kind="masked", heads=4, ours=ours)
    assert (found.missing, found.unused) == ((), ())
    assert torch.equal(found.weights["encoder.embed.norm.weight"], ours["encoder.embed.norm.weight"])


def test_a_copy_alone_is_the_weight() -> None:
    ours = our_weights("bert", "masked")
    theirs = to_hf(ours, ARCHITECTURES["bert"], kind="masked", heads=4)
    theirs["cls.predictions.decoder.bias"] = theirs.pop("cls.predictions.bias")
    found = from_hf(theirs, ARCHITECTURES["bert"], kind="masked", heads=4, ours=ours)
    assert torch.equal(found.weights["head.bias"], ours["head.bias"])


def test_an_output_matrix_of_its_own_is_refused() -> None:
    ours = our_weights("bert", "masked")
    theirs = to_hf(ours, ARCHITECTURES["bert"], kind="masked", heads=4)
    theirs["cls.predictions.decoder.weight"] = theirs["bert.embeddings.word_embeddings.weight"] + 1
    with pytest.raises(CheckpointError, match=r"differs from 'bert.embeddings.word_embeddings.weight'"):
        read(theirs, ours)
