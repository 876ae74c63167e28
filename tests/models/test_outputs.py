"""Scaled encoder outputs: every kind of model gives the same logits, and what cannot be scaled is refused."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from errors import raises
from safetensors.torch import load_file
from tiny_models import SPECIAL, VOCAB, batch, hf_model
from torch import nn
from typer.testing import CliRunner

from lexome.cli import app
from lexome.errors import UsageError
from lexome.models.convert_model import output_rms, scale_outputs
from lexome.models.encoder import Encoder, EncoderConfig
from lexome.models.heads import EncoderWithHead, HiddenLayers, MaskedLM, PairedLM, SequenceHead, SpanHead, TokenHead

POST = EncoderConfig(vocab=VOCAB, layers=2, hidden_size=32, heads=4, intermediate_size=48, max_tokens=40)
PRE = EncoderConfig(
    vocab=VOCAB, layers=2, hidden_size=32, heads=4, intermediate_size=48, max_tokens=40, norm="pre", final_norm=True
)


def uneven(model: nn.Module) -> nn.Module:
    """The model with weights that are large enough to tell mistakes, its norms among them."""
    generator = torch.Generator().manual_seed(0)
    for name, weight in model.named_parameters():
        norm = "norm" in name and name.endswith("weight")
        nn.init.normal_(weight, mean=0.4 if norm else 0.0, std=0.2, generator=generator)
    return model.eval()


def logits_of(model: nn.Module) -> torch.Tensor:
    """All logits of a model on one batch, in a row."""
    ids_T, packing = batch()
    places = (torch.arange(len(ids_T)),) if isinstance(model, MaskedLM | PairedLM) else ()
    with torch.no_grad():
        logits = model(ids_T, packing, *places)
    return torch.cat([part.flatten() for part in (logits if isinstance(logits, tuple) else (logits,))])


MODELS: dict[str, Any] = {
    "masked": lambda config: MaskedLM(config),
    "paired": lambda config: PairedLM(config),
    "tokens": lambda config: EncoderWithHead(Encoder(config), TokenHead(config, 5)),
    "sequences": lambda config: EncoderWithHead(
        Encoder(config), SequenceHead(config, 3, hidden=HiddenLayers(1), pooling="mean")
    ),
    "spans": lambda config: EncoderWithHead(
        Encoder(config), SpanHead(config, hidden=HiddenLayers(2, hidden_size=20, norm=True))
    ),
}


@pytest.mark.parametrize("config", [POST, PRE], ids=["post", "pre"])
@pytest.mark.parametrize("kind", MODELS)
def test_every_head_gives_the_same_logits(kind: str, config: EncoderConfig) -> None:
    model = uneven(MODELS[kind](config))
    before, size = logits_of(model), output_rms(model.encoder)
    factor = scale_outputs(model, 1.0)
    assert factor == pytest.approx(1 / size)
    assert factor > 1.5
    assert output_rms(model.encoder) == pytest.approx(1.0)
    assert (logits_of(model) - before).abs().max() < 1e-4 * before.abs().max()


def test_the_outputs_have_the_requested_rms() -> None:
    encoder = uneven(Encoder(POST))
    ids_T, packing = batch()
    with torch.no_grad():
        before_TD = encoder(ids_T, packing)
        factor = scale_outputs(encoder, 3.0)
        assert torch.allclose(encoder(ids_T, packing), factor * before_TD, atol=1e-4)
    # What a norm is given has a mean of 0 and a deviation of 1 in each token, so its weights tell the size.
    assert float(encoder(ids_T, packing).detach().square().mean().sqrt()) == pytest.approx(3.0, rel=0.1)


def test_a_new_encoder_has_an_output_rms_of_one() -> None:
    assert output_rms(Encoder(POST)) == 1.0


@pytest.mark.parametrize("size", [0.0, -1.0, float("nan"), float("inf")])
def test_an_invalid_rms_is_refused(size: float) -> None:
    with raises(UsageError, code="bad-scale"):
        scale_outputs(Encoder(POST), size)


def test_an_extreme_scale_is_refused() -> None:
    model = MaskedLM(POST)
    before = copy.deepcopy(model.state_dict())
    with raises(UsageError, code="bad-scale", value=1e6):
        scale_outputs(model, 1e6)
    nn.init.zeros_(model.encoder.layers[-1].mlp_norm.weight)
    with raises(UsageError, code="bad-scale", value=1.0):
        scale_outputs(model, 1.0)
    before["encoder.layers.1.mlp_norm.weight"].zero_()
    assert all(torch.equal(before[name], weight) for name, weight in model.state_dict().items())


def test_an_encoder_without_a_final_norm_is_refused() -> None:
    with raises(UsageError, code="no-final-norm"):
        scale_outputs(
            Encoder(EncoderConfig(vocab=VOCAB, layers=1, hidden_size=32, heads=4, intermediate_size=48, norm="pre")),
            1.0,
        )


def test_a_model_of_transformers_is_refused() -> None:
    with raises(UsageError, code="unsupported-backend"):
        scale_outputs(hf_model("BertModel", "bert"), 1.0)


def run(*arguments: Any) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


def saved(folder: Path) -> Path:
    """A folder with a BERT whose last norm is small."""
    theirs = hf_model("BertForMaskedLM", "bert")
    with torch.no_grad():
        for weight in theirs.bert.encoder.layer[-1].output.LayerNorm.parameters():
            weight.mul_(0.15)
    theirs.save_pretrained(folder)
    (folder / "vocab.txt").write_text(
        "\n".join([*SPECIAL, *(f"word{number}" for number in range(VOCAB - len(SPECIAL)))])
    )
    return folder


def test_transformers_gives_the_same_logits_for_the_scaled_folder(tmp_path: Path) -> None:
    source = saved(tmp_path / "release")
    done = run("convert-model", source, tmp_path / "scaled", "--outputs", "1")
    assert any(line.startswith("rescaled") and " 6." in line for line in done.stdout.splitlines())
    assert " 6." in (tmp_path / "scaled" / "README.md").read_text()
    assert json.loads((tmp_path / "scaled" / "run.json").read_text())["outputs_scaled"] > 6
    before, after = (
        transformers.AutoModelForMaskedLM.from_pretrained(folder).eval() for folder in (source, tmp_path / "scaled")
    )
    ids = torch.arange(5, 30)[None]
    with torch.no_grad():
        logits = before(ids).logits
        assert (after(ids).logits - logits).abs().max() < 1e-4 * logits.abs().max()
        grown = after.bert(ids).last_hidden_state / before.bert(ids).last_hidden_state
    assert grown.median() > 6


def test_weights_are_written_in_the_requested_dtype(tmp_path: Path) -> None:
    source = saved(tmp_path / "release")
    assert "bfloat16" in run("convert-model", source, tmp_path / "half", "--dtype", "bfloat16").stdout
    kept = load_file(tmp_path / "half" / "model.safetensors")
    assert {weight.dtype for weight in kept.values()} == {torch.bfloat16}
    # A type that was small stays so where outputs are scaled, which is done in full precision.
    run("convert-model", tmp_path / "half", tmp_path / "scaled", "--outputs", "2")
    kept = load_file(tmp_path / "scaled" / "model.safetensors")
    assert {weight.dtype for weight in kept.values()} == {torch.bfloat16}
    with raises(UsageError, code="unknown-option", value="int8"):
        run("convert-model", source, tmp_path / "other", "--dtype", "int8")
    assert not (tmp_path / "other").exists()
