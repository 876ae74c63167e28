"""MPNet without relative positions: a BERT that equals an MPNet whose relative positions are zero."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from errors import raises
from foreign_writers import SHAPE, mpnet_tokenizer, tiny
from safetensors.torch import load_file
from typer.testing import CliRunner

from lexome.cli import app
from lexome.errors import CheckpointError, UsageError
from lexome.models.checkpoint import load
from lexome.models.convert_model import convert_model
from lexome.models.encoder import Packing

DROP = "relative-positions"
LENGTHS = (22, 3, 9)


def mpnet(folder: Path, *, words: bool = True, dtype: torch.dtype = torch.float32) -> tuple[Path, Any]:
    """A folder as transformers saves it, with truncation and padding in the tokenizer, as in sentence encoders."""
    kind = transformers.MPNetForMaskedLM if words else transformers.MPNetModel
    model = tiny(kind, transformers.MPNetConfig(**SHAPE, layer_norm_eps=1e-5))
    model.to(dtype).save_pretrained(folder)
    tokenizer = mpnet_tokenizer("gene", "##s", "bind")
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(pad_id=1, pad_token="<pad>", length=4)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder, model.float()


def outputs(folder: Path, theirs: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits or hidden states of the converted model and of MPNet, sequence after sequence."""
    found = load(folder)
    ids_T = torch.randint(9, SHAPE["vocab_size"], (sum(LENGTHS),), generator=torch.Generator().manual_seed(1))
    packing = Packing.of(torch.tensor(LENGTHS).cumsum(0).tolist())
    asked = (torch.arange(len(ids_T)),) if found.kind == "masked" else ()
    with torch.no_grad():
        ours = found.model(ids_T, packing, *asked)
        return ours, torch.cat([theirs(ids[None])[0][0] for ids in ids_T.split(LENGTHS)])


@pytest.mark.parametrize("words", [True, False])
def test_it_computes_what_mpnet_does_where_relative_positions_are_zero(tmp_path: Path, words: bool) -> None:
    source, model = mpnet(tmp_path / "source", words=words)
    done = convert_model(source, tmp_path / "model", drop=DROP)
    assert (done.architecture, done.kind, done.backend) == ("bert", "masked" if words else "encoder", "lexome")
    ours, theirs = outputs(tmp_path / "model", model)
    assert (ours - theirs).abs().max() > 0.01
    encoder = (model.mpnet if words else model).encoder
    encoder.relative_attention_bias.weight.data.zero_()
    ours, theirs = outputs(tmp_path / "model", model)
    assert theirs.std() > 0.01
    assert (ours - theirs).abs().max() < 1e-4


def test_the_card_run_json_and_summary_report_the_drop(tmp_path: Path) -> None:
    source, _ = mpnet(tmp_path / "source")
    arguments = ["convert-model", str(source), str(tmp_path / "model"), "--drop", DROP]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert "dropped   relative-positions" in done.stdout
    noted = json.loads((tmp_path / "model" / "run.json").read_text())
    assert (noted["dropped"], noted["left_out"]) == (DROP, ["mpnet.encoder.relative_attention_bias.weight"])
    card = (tmp_path / "model" / "README.md").read_text()
    assert "relative positions" in card


def test_relative_positions_are_dropped_only_on_request(tmp_path: Path) -> None:
    source, model = mpnet(tmp_path / "source")
    with raises(CheckpointError, code="unknown-architecture", value="mpnet", mentions="--drop relative-positions"):
        convert_model(source, tmp_path / "model", backend="lexome")
    assert not (tmp_path / "model").exists()
    done = convert_model(source, tmp_path / "model")
    assert (done.architecture, done.backend, done.dropped) == ("mpnet", "transformers", None)
    kept = load_file(tmp_path / "model" / "model.safetensors")["mpnet.encoder.relative_attention_bias.weight"]
    assert torch.equal(kept, model.mpnet.encoder.relative_attention_bias.weight)


def test_the_error_for_a_sentence_encoder_without_a_head_names_both_solutions(tmp_path: Path) -> None:
    source, _ = mpnet(tmp_path / "source", words=False)
    settings = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps(settings | {"architectures": ["MPNetForMaskedLM"]}))
    with raises(CheckpointError, code="missing-head", value="masked", mentions="--drop relative-positions"):
        convert_model(source, tmp_path / "model")
    assert convert_model(source, tmp_path / "as-it-is", kind="encoder").architecture == "mpnet"
    assert convert_model(source, tmp_path / "bert", drop=DROP).kind == "encoder"


def test_weights_keep_their_dtype_and_positions_start_after_padding(tmp_path: Path) -> None:
    source, model = mpnet(tmp_path / "source", dtype=torch.bfloat16)
    convert_model(source, tmp_path / "model", drop=DROP)
    weights = load_file(tmp_path / "model" / "model.safetensors")
    assert {tensor.dtype for tensor in weights.values()} == {torch.bfloat16}
    positions = weights["bert.embeddings.position_embeddings.weight"]
    assert torch.equal(positions.float(), model.mpnet.embeddings.position_embeddings.weight[2:])
    assert not weights["bert.embeddings.token_type_embeddings.weight"].any()
    settings = json.loads((tmp_path / "model" / "config.json").read_text())
    assert (settings["max_position_embeddings"], settings["pad_token_id"]) == (22, 1)


def test_the_tokenizer_no_longer_truncates_or_pads(tmp_path: Path) -> None:
    source, _ = mpnet(tmp_path / "source")
    convert_model(source, tmp_path / "model", drop=DROP)
    before, after = (json.loads((folder / "tokenizer.json").read_text()) for folder in (source, tmp_path / "model"))
    assert before["padding"] is not None
    assert after == before | {"padding": None, "truncation": None}
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    assert (tokenizer.cls_token, tokenizer.mask_token, tokenizer.unk_token) == ("<s>", "<mask>", "[UNK]")
    assert tokenizer.convert_ids_to_tokens(tokenizer("genes bind")["input_ids"]) == [
        "<s>",
        "gene",
        "##s",
        "bind",
        "</s>",
    ]


def test_what_cannot_be_dropped_is_refused(tmp_path: Path) -> None:
    source, _ = mpnet(tmp_path / "source")
    with raises(UsageError, code="unknown-option", value="pooler"):
        convert_model(source, tmp_path / "model", drop="pooler")
    convert_model(source, tmp_path / "bert", drop=DROP)
    with raises(CheckpointError, code="unsupported-model", value="bert"):
        convert_model(tmp_path / "bert", tmp_path / "model", drop=DROP)
    with raises(CheckpointError, code="unknown-layout", value=source / "model.safetensors"):
        convert_model(source / "model.safetensors", tmp_path / "model", drop=DROP)
    (source / "tokenizer.json").rename(source / "vocab.txt")
    with raises(CheckpointError, code="missing-file", value="tokenizer.json"):
        convert_model(source, tmp_path / "model", drop=DROP)
    assert not (tmp_path / "model").exists()
