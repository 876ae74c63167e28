"""lexome convert-model: checkpoints of every framework become folders that transformers reads, with the same logits."""

import json
import tarfile
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from errors import raises
from foreign_writers import (
    PIECES,
    fairseq_names,
    google_folder,
    megatron_ranks,
    onnx_folder,
    state_of,
    tiny_bert,
    tiny_megatron,
    tiny_roberta,
)
from safetensors.torch import load_file
from tiny_models import padded
from typer.testing import CliRunner

from lexome.cli import app
from lexome.errors import CheckpointError, LexomeError
from lexome.models.checkpoint import load
from lexome.models.convert_model import convert_model
from lexome.models.encoder import Packing

LENGTHS = (12, 3, 7)


def google(folder: Path) -> tuple[Path, Any]:
    model = tiny_bert()
    return google_folder(folder, model), model


def google_archive(folder: Path) -> tuple[Path, Any]:
    source, model = google(folder / "biobert")
    archive = folder / "biobert.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(source, arcname="biobert")
    return archive, model


def fairseq(folder: Path) -> tuple[Path, Any]:
    """A release with a byte-level vocabulary of four letters, the shape of which its arguments tell."""
    folder.mkdir()
    encoder = {letter: number for number, letter in enumerate("geno")} | {"ge": 4}
    (folder / "encoder.json").write_text(json.dumps(encoder))
    (folder / "vocab.bpe").write_text("#version: 0.2\ng e\n")
    (folder / "dict.txt").write_text("".join(f"{number} 9\n" for number in encoder.values()))
    model = tiny_roberta(len(encoder) + 5)
    shape = {"encoder_layers": 2, "encoder_embed_dim": 16, "encoder_ffn_embed_dim": 40, "encoder_attention_heads": 4}
    arguments = {"arch": "roberta_base", "activation_fn": "gelu", "max_positions": 22, **shape}
    torch.save({"model": fairseq_names(model), "args": Namespace(**arguments)}, folder / "model.pt")
    return folder, model


def megatron(folder: Path) -> tuple[Path, Any]:
    model = tiny_megatron()
    for rank, nested in enumerate(megatron_ranks(model, version=2.0, ranks=2)):
        (folder / f"mp_rank_{rank:02d}").mkdir(parents=True)
        shape = Namespace(num_layers=2, hidden_size=16, num_attention_heads=4, layernorm_epsilon=1e-5)
        saved = {"model": nested, "checkpoint_version": 2.0, "args": shape}
        torch.save(saved, folder / f"mp_rank_{rank:02d}" / "model_optim_rng.pt")
    (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    return folder, model


def pickled(folder: Path) -> tuple[Path, Any]:
    model = tiny_bert()
    folder.mkdir()
    model.config.to_json_file(folder / "config.json")
    torch.save(state_of(model), folder / "pytorch_model.bin")
    (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    return folder / "pytorch_model.bin", model


def onnx(folder: Path) -> tuple[Path, Any]:
    model = tiny_bert()
    return onnx_folder(folder, model), model


WRITERS = {
    "google": google,
    "google archive": google_archive,
    "fairseq": fairseq,
    "megatron": megatron,
    "pickle": pickled,
    "onnx": onnx,
}


def run(*arguments: Any) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


@pytest.mark.parametrize("layout", WRITERS)
def test_the_folder_gives_the_logits_of_the_release(tmp_path: Path, layout: str) -> None:
    source, wanted = WRITERS[layout](tmp_path / "release")
    done = run("convert-model", source, tmp_path / "model", "--kind", "masked", "--json")
    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout)
    assert (summary["layout"], summary["kind"], summary["backend"]) == (layout.split()[0], "masked", "lexome")
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "model").eval()
    lengths, words = LENGTHS, wanted.config.vocab_size
    ids_T = torch.randint(4, words, (sum(lengths),), generator=torch.Generator().manual_seed(1))
    real = padded(torch.ones_like(ids_T), lengths)
    given = {"input_ids": padded(ids_T, lengths, fill=theirs.config.pad_token_id), "attention_mask": real}
    with torch.no_grad():
        output = wanted(**given)
        logits = output["prediction_logits"] if "prediction_logits" in output else output["logits"]
        assert logits.std() > 0.01
        assert (theirs(**given).logits - logits)[real.bool()].abs().max() < 1e-4
        # The release itself, without a folder in between.
        found = load(source, kind="masked")
        packing = Packing.of(torch.tensor(lengths).cumsum(0).tolist())
        own_TV = found.model(ids_T, packing, torch.arange(len(ids_T)))
    assert (own_TV - logits[real.bool()]).abs().max() < 1e-4
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    assert tokenizer.mask_token in ("[MASK]", "<mask>")
    assert tokenizer("gene")["input_ids"][0] == tokenizer.cls_token_id
    run_json = json.loads((tmp_path / "model" / "run.json").read_text())
    assert (run_json["source"], run_json["layout"]) == (source.name, layout.split()[0])
    assert f"from `{source.name}`" in (tmp_path / "model" / "README.md").read_text()


def test_unused_and_left_out_content_is_reported(tmp_path: Path) -> None:
    source, _ = google(tmp_path / "release")
    done = run("convert-model", source, tmp_path / "model", "--kind", "encoder")
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[1] == "model     bert, encoder, 6,192 parameters, float32"
    assert lines[2] == "unused    bert.pooler.dense.bias and 8 more"
    assert lines[3].startswith("left out  bert/encoder/layer_0/output/dense/kernel/adam_m and 2 more")
    assert run("convert-model", source, tmp_path / "again", "--quiet").stdout == ""
    # By default the folder has everything that the release has.
    assert load(tmp_path / "again").kind == "paired"


def test_weights_keep_their_dtype(tmp_path: Path) -> None:
    source, _ = pickled(tmp_path / "release")
    half = {name: tensor.half() for name, tensor in torch.load(source).items()}
    torch.save(half, source)
    convert_model(source, tmp_path / "model", kind="paired")
    assert {tensor.dtype for tensor in load_file(tmp_path / "model" / "model.safetensors").values()} == {torch.float16}


def test_a_release_without_a_tokenizer_is_given_one(tmp_path: Path) -> None:
    source, _ = google(tmp_path / "release")
    vocabulary = (source / "vocab.txt").rename(tmp_path / "vocab.txt")
    with raises(CheckpointError, code="missing-tokenizer", value=source, mentions="--tokenizer"):
        convert_model(source, tmp_path / "model")
    assert not (tmp_path / "model").exists()
    assert run("convert-model", source, tmp_path / "model", "--tokenizer", vocabulary).exit_code == 0


def test_a_loaded_model_does_not_depend_on_the_release(tmp_path: Path) -> None:
    """Weights may be mapped from the file; a model has copies of them."""
    source, _ = google(tmp_path / "release")
    found = load(source, kind="masked")
    before = {name: tensor.clone() for name, tensor in found.model.state_dict().items()}
    for file in source.glob("*.data-*"):
        file.write_bytes(bytes(file.stat().st_size))
    assert all(torch.equal(before[name], tensor) for name, tensor in found.model.state_dict().items())


def test_an_untied_output_matrix_is_kept(tmp_path: Path) -> None:
    source, model = pickled(tmp_path / "release")
    weights = state_of(model)
    weights["cls.predictions.decoder.weight"] = torch.randn(48, 16)
    torch.save(weights, source)
    done = convert_model(source, tmp_path / "model", kind="masked")
    assert (done.backend, done.layout) == ("transformers", "pickle")
    kept = load_file(tmp_path / "model" / "model.safetensors")
    assert torch.equal(kept["cls.predictions.decoder.weight"], weights["cls.predictions.decoder.weight"])


@pytest.mark.parametrize(
    ("arguments", "code", "value"),
    [
        (["nowhere", "model"], "missing-file", Path("nowhere")),
        (["notes.txt", "model"], "unknown-layout", Path("notes.txt")),
        (["empty", "model"], "missing-file", Path("empty/config.json")),
        (["release", "full"], "not-empty", Path("full")),
        (["release", "model", "--kind", "tagger"], "unknown-kind", "tagger"),
        (["release", "model", "--backend", "jax"], "unknown-option", "jax"),
    ],
)
def test_invalid_arguments_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: str, value: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    google(tmp_path / "release")
    (tmp_path / "notes.txt").write_text("not a model")
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "something").write_text("kept")
    with raises(LexomeError, code=code, value=value):
        run("convert-model", *arguments)
    assert not (tmp_path / "model").exists()
    assert (tmp_path / "full" / "something").read_text() == "kept"


def test_weights_are_averaged(tmp_path: Path) -> None:
    sources = []
    for number in range(3):
        torch.manual_seed(number)
        source, _ = google(tmp_path / f"google{number}")
        convert_model(source, tmp_path / str(number))
        sources.append(tmp_path / str(number))
    done = CliRunner().invoke(
        app,
        [
            "convert-model",
            str(sources[0]),
            str(tmp_path / "mean"),
            "--average",
            str(sources[1]),
            "--average",
            str(sources[2]),
        ],
    )
    assert done.exit_code == 0, done.output
    assert str(sources[2]) in done.output
    expected = [load_file(source / "model.safetensors") for source in sources]
    found = load_file(tmp_path / "mean" / "model.safetensors")
    assert found.keys() == expected[0].keys()
    for name, tensor in found.items():
        assert torch.allclose(tensor, sum(one[name] for one in expected) / 3, atol=1e-6), name
    assert not torch.equal(
        found["bert.embeddings.word_embeddings.weight"], expected[0]["bert.embeddings.word_embeddings.weight"]
    )
    load(tmp_path / "mean")


@pytest.mark.parametrize(("kind", "kept"), [(None, True), ("token", True), ("encoder", False)])
def test_a_fine_tuned_model_keeps_its_task_with_its_head(tmp_path: Path, kind: str | None, kept: bool) -> None:
    source, model = google(tmp_path / "google")
    convert_model(source, tmp_path / "tuned", kind="encoder")
    assert not (tmp_path / "tuned" / "task.json").exists()
    transformers.BertForTokenClassification(model.config).save_pretrained(tmp_path / "tuned")
    (tmp_path / "tuned" / "checksums.json").unlink()
    (tmp_path / "tuned" / "task.json").write_text('{"kind": "ner", "types": ["Gene"]}')
    convert_model(tmp_path / "tuned", tmp_path / "copy", kind=kind)
    assert (tmp_path / "copy" / "task.json").exists() == kept
    load(tmp_path / "copy")


def test_models_of_another_shape_are_not_averaged(tmp_path: Path) -> None:
    source, model = google(tmp_path / "google")
    convert_model(source, tmp_path / "one")
    model.config.num_hidden_layers += 1
    type(model)(model.config).save_pretrained(tmp_path / "other")
    with raises(CheckpointError, code="different-model", value=tmp_path / "other"):
        convert_model(tmp_path / "one", tmp_path / "mean", average=[tmp_path / "other"])
    assert not (tmp_path / "mean").exists()
    convert_model(tmp_path / "one", tmp_path / "encoder", kind="encoder")
    with raises(CheckpointError, code="missing-head", value=tmp_path / "encoder", mentions="--kind encoder"):
        convert_model(tmp_path / "one", tmp_path / "mean", average=[tmp_path / "encoder"])
