"""Model folders: complete when written; missing, unknown and mismatched weights raise when read."""

import json
import pickle
import resource
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from errors import raises
from safetensors.torch import load_file, save_file
from tiny_models import CARD, LENGTHS, VOCAB, batch, hf_model, hf_outputs, tokenizer_folder

from lexome.errors import CheckpointError
from lexome.files import write_checksums
from lexome.models.checkpoint import Card, build, kind_of, load, save
from lexome.models.encoder import EncoderConfig
from lexome.models.heads import EncoderWithHead, HiddenLayers, MaskedLM
from lexome.models.hf import read_config, write_config

CONFIG = EncoderConfig(vocab=VOCAB, layers=2, hidden_size=32, heads=4, intermediate_size=48, max_tokens=40)


def saved(folder: Path, model: torch.nn.Module | None = None, **options: Any) -> Path:
    tokenizer = tokenizer_folder(folder.parent / "tokenizer")
    model = MaskedLM(CONFIG) if model is None else model
    save(folder, model, **{"architecture": "bert", "tokenizer": tokenizer, "card": CARD, **options})
    return folder


def edit_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    settings = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({key: value for key, value in settings.items() if value is not None}))
    write_checksums(folder)


def test_a_folder_has_all_files_that_transformers_reads(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model", run={"seed": 7})
    assert {file.name for file in folder.iterdir()} == {
        "config.json",
        "model.safetensors",
        "README.md",
        "checksums.json",
        "run.json",
        "special_tokens_map.json",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert json.loads((folder / "run.json").read_text())["seed"] == 7
    assert json.loads((folder / "tokenizer_config.json").read_text())["model_max_length"] == 40
    settings = json.loads((folder / "config.json").read_text())
    assert (settings["architectures"], settings["pad_token_id"]) == (["BertForMaskedLM"], 0)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert tokenizer("w1 w2")["input_ids"] == [2, 6, 7, 3]
    assert (tokenizer.mask_token, tokenizer.model_max_length) == ("[MASK]", 40)
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".")] == []


def test_round_trip(tmp_path: Path) -> None:
    model = MaskedLM(replace(CONFIG, scaled_init=True))
    found = load(saved(tmp_path / "model", model))
    assert (found.config, found.kind, found.unused, found.new) == (CONFIG, "masked", (), ())
    assert not found.model.training
    again = found.model.state_dict()
    assert all(torch.equal(again[name], tensor) for name, tensor in model.state_dict().items())
    assert [file.name for file in found.tokenizer] == [
        "tokenizer.json",
        "special_tokens_map.json",
        "tokenizer_config.json",
    ]


def test_paths_may_be_strings(tmp_path: Path) -> None:
    folder, tokenizer = str(tmp_path / "model"), str(tokenizer_folder(tmp_path / "tokenizer"))
    save(folder, MaskedLM(CONFIG), architecture="bert", tokenizer=tokenizer, card=CARD)
    assert load(folder).folder == Path(folder)


def test_half_precision_is_kept_and_can_be_requested(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model", MaskedLM(CONFIG).to(torch.bfloat16))
    assert {tensor.dtype for tensor in load_file(folder / "model.safetensors").values()} == {torch.bfloat16}
    assert json.loads((folder / "config.json").read_text())["torch_dtype"] == "bfloat16"
    assert next(load(folder).model.parameters()).dtype == torch.float32
    assert next(load(folder, dtype=torch.bfloat16).model.parameters()).dtype == torch.bfloat16


def test_unused_weights_are_listed(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model", build(CONFIG, "paired"))
    found = load(folder, kind="masked")
    assert found.unused == (
        "bert.pooler.dense.bias",
        "bert.pooler.dense.weight",
        "cls.seq_relationship.bias",
        "cls.seq_relationship.weight",
    )


def test_a_new_head_is_initialized_only_on_request(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model", build(CONFIG, "encoder"))
    with raises(CheckpointError, code="missing-head", value="masked"):
        load(folder, kind="masked")
    found = load(folder, kind="masked", new_head=True)
    assert found.new == ("head.bias", "head.dense.weight", "head.dense.bias", "head.norm.weight", "head.norm.bias")
    ids_T, packing = batch(LENGTHS[:1])
    assert found.model(ids_T, packing, torch.arange(3)).isfinite().all()


def test_missing_encoder_weights_always_raise(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    del weights["bert.encoder.layer.1.output.dense.weight"]
    save_file(weights, folder / "model.safetensors")
    write_checksums(folder)
    with raises(CheckpointError, code="missing-weights", value="encoder.layers.1.mlp.down.weight"):
        load(folder, new_head=True)


def test_shapes_must_match_the_configuration(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model")
    edit_config(folder, vocab_size=VOCAB + 1)
    with raises(CheckpointError, code="shape-mismatch", value="encoder.embed.tokens.weight", mentions="(65, 32)"):
        load(folder)


def test_a_new_label_head_on_an_encoder(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model", build(CONFIG, "encoder"))
    found = load(folder, kind="token", labels=["O", "B", "I"], hidden=HiddenLayers(2, hidden_size=16), new_head=True)
    assert found.labels == ("O", "B", "I")
    assert found.new[0] == "head.dense0.weight"
    with raises(CheckpointError, code="missing-labels", value="token"):
        load(folder, kind="token", new_head=True)
    # Without `hidden`: the head of transformers for the kind, which for a sequence includes BERT's pooler.
    assert [name for name in load(folder, kind="sequence", labels="ab", new_head=True).new if "dense" in name] == [
        "head.dense0.weight",
        "head.dense0.bias",
    ]


def test_a_pooler_that_was_trained_is_used_by_a_new_sequence_head(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model", build(CONFIG, "paired"))
    found = load(folder, kind="sequence", labels=["no", "yes"], new_head=True)
    assert found.new == ("head.out.weight", "head.out.bias")
    pooler = load_file(folder / "model.safetensors")["bert.pooler.dense.weight"]
    assert torch.equal(found.model.head.dense0.weight, pooler)


def test_a_head_transformers_does_not_have_is_kept_and_the_encoder_still_loads_there(tmp_path: Path) -> None:
    model = build(CONFIG, "token", labels=3, hidden=HiddenLayers(2, hidden_size=16, dropout=0.5)).eval()
    folder = saved(tmp_path / "model", model, labels=("O", "B", "I"))
    found = load(folder)
    assert (found.kind, found.labels, found.unused, found.new) == ("token", ("O", "B", "I"), (), ())
    assert isinstance(found.model, EncoderWithHead)
    assert found.model.head.hidden == HiddenLayers(2, hidden_size=16, dropout=0.5)
    ids_T, packing = batch()
    with torch.no_grad():
        assert torch.equal(found.model(ids_T, packing), model(ids_T, packing))
        theirs = transformers.BertModel.from_pretrained(folder, add_pooling_layer=False).eval()
        output, real = hf_outputs(theirs, ids_T, LENGTHS)
        assert (output.last_hidden_state[real] - model.encoder(ids_T, packing)).abs().max() < 1e-4
    assert load(folder, kind="encoder").unused[:2] == ("lexome_head.dense0.bias", "lexome_head.dense0.weight")


@pytest.mark.parametrize(
    ("architecture", "pooling", "layers", "in_transformers"),
    [("bert", "first", 1, True), ("bert", "mean", 1, False), ("bert", "first", 0, False), ("bert", "first", 2, False)],
)
def test_a_card_claims_a_pipeline_only_where_transformers_has_the_head(
    tmp_path: Path, architecture: str, pooling: str, layers: int, in_transformers: bool
) -> None:
    hidden = HiddenLayers(layers, activation="tanh", input_dropout=0.0)
    model = build(CONFIG, "sequence", labels=2, hidden=hidden, pooling=pooling)
    folder = saved(tmp_path / "model", model, labels=("no", "yes"))
    card = (folder / "README.md").read_text()
    assert ('pipeline_tag: "text-classification"' in card) == in_transformers
    assert ('library_name: "transformers"' in card) == in_transformers
    assert ("lexome export FOLDER" in card) != in_transformers
    _, report = transformers.AutoModelForSequenceClassification.from_pretrained(folder, output_loading_info=True)
    assert (not report["missing_keys"]) == in_transformers


def test_a_card_of_a_model_that_lexome_decodes_claims_no_pipeline(tmp_path: Path) -> None:
    card = replace(CARD, decoding="a CRF chooses the tags")
    folder = saved(tmp_path / "model", build(CONFIG, "token", labels=3), labels=("O", "B", "I"), card=card)
    text = (folder / "README.md").read_text()
    assert "pipeline_tag" not in text
    assert "a CRF chooses the tags. `AutoModelForTokenClassification` loads it" in text


def test_shards_and_pickles_are_read(tmp_path: Path) -> None:
    model = hf_model("BertForMaskedLM", "bert")
    model.save_pretrained(tmp_path / "shards", max_shard_size="20KB")
    assert (tmp_path / "shards" / "model.safetensors.index.json").is_file()
    model.save_pretrained(tmp_path / "pickle")
    (tmp_path / "pickle" / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "pickle" / "pytorch_model.bin")
    one, two = (load(tmp_path / name).model.state_dict() for name in ("shards", "pickle"))
    assert all(torch.equal(one[name], two[name]) for name in one)
    removed = next((tmp_path / "shards").glob("model-00002*"))
    removed.unlink()
    with raises(CheckpointError, code="missing-file", value=removed.name):
        load(tmp_path / "shards")


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("went-off"),))


def test_a_pickle_is_never_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = saved(tmp_path / "model")
    (folder / "model.safetensors").unlink()
    (folder / "checksums.json").unlink()
    monkeypatch.chdir(tmp_path)
    torch.save({"bert.embeddings.word_embeddings.weight": Bomb()}, folder / "pytorch_model.bin", pickle_module=pickle)
    with raises(CheckpointError, code="unsafe-pickle", value=folder / "pytorch_model.bin"):
        load(folder)
    assert not (tmp_path / "went-off").exists()


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model")
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with raises(CheckpointError, code="checksum-mismatch", value=path):
        load(folder)
    (folder / "checksums.json").unlink()
    with raises(CheckpointError, code="damaged-file", value=path):
        load(folder)
    path.unlink()
    with raises(CheckpointError, code="missing-weights", value=folder):
        load(folder)


@pytest.mark.parametrize(
    ("changes", "code", "value"),
    [
        ({"model_type": "deberta-v2"}, "unknown-architecture", "deberta-v2"),
        ({"model_type": None, "architectures": ["Bert"]}, "unknown-architecture", ["Bert"]),
        ({"architectures": None}, "unknown-kind", []),
        ({"position_embedding_type": "relative_key"}, "unsupported-setting", "position_embedding_type"),
        ({"hidden_act": "mish"}, "unknown-activation", "mish"),
        ({"intermediate_size": None}, "missing-key", "intermediate_size"),
        ({"num_attention_heads": 5}, "heads-mismatch", 5),
        ({"tie_word_embeddings": False}, "untied-embeddings", "tie_word_embeddings"),
    ],
)
def test_an_unsupported_configuration_is_refused(
    tmp_path: Path, changes: dict[str, Any], code: str, value: Any
) -> None:
    folder = saved(tmp_path / "model")
    edit_config(folder, **changes)
    with raises(CheckpointError, code=code, value=value):
        load(folder, backend="lexome")


def test_an_encoder_with_untied_embeddings_is_still_loaded(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    save_file({**weights, "cls.predictions.decoder.weight": torch.ones(VOCAB, 32)}, folder / "model.safetensors")
    edit_config(folder, tie_word_embeddings=False)
    assert "cls.predictions.decoder.weight" in load(folder, kind="encoder").unused


def test_one_head_can_be_saved(tmp_path: Path) -> None:
    model = MaskedLM(replace(CONFIG, heads=1))
    again = load(saved(tmp_path / "model", model)).model.state_dict()
    assert all(torch.equal(again[name], tensor) for name, tensor in model.state_dict().items())


def test_a_missing_model_type_is_inferred_from_the_class(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model")
    edit_config(folder, model_type=None)
    assert load(folder).architecture == "bert"


def test_a_model_that_a_folder_cannot_represent_is_refused(tmp_path: Path) -> None:
    with raises(CheckpointError, code="not-representable", value="norm"):
        saved(tmp_path / "model", MaskedLM(replace(CONFIG, norm="pre")))
    roberta = replace(CONFIG, position_offset=2, norm_eps=1e-5)
    with raises(CheckpointError, code="unsupported-kind", value="paired", mentions="roberta"):
        saved(tmp_path / "model", build(roberta, "paired"), architecture="roberta")
    with raises(CheckpointError, code="unsupported-model", value="Linear"):
        kind_of(torch.nn.Linear(2, 2))
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("architecture", ["bert", "roberta", "megatron-bert", "distilbert", "modernbert"])
def test_configurations_round_trip(architecture: str) -> None:
    config = read_config(hf_model({"bert": "BertModel"}.get(architecture, "BertModel"), "bert").config.to_dict())
    changes: dict[str, dict[str, Any]] = {
        "roberta": {"position_offset": 2, "segments": 1},
        "megatron-bert": {"norm": "pre", "embedding_norm": False, "final_norm": True, "activation": "relu"}
        | {"head_activation": "relu"},
        "distilbert": {"segments": 0, "dropout": 0.3},
    }
    if architecture == "modernbert":
        config = read_config(hf_model("ModernBertModel", "modernbert").config.to_dict())
    config = replace(config, **changes.get(architecture, {}))
    assert read_config(write_config(config, architecture)) == config


def test_weights_have_the_file_mode_of_other_files(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model")
    assert (folder / "model.safetensors").stat().st_mode == (folder / "config.json").stat().st_mode


def test_a_full_disk_leaves_the_existing_folder_unchanged(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16_384, before[1]))
    try:
        with raises(CheckpointError, code="not-writable"):
            saved(folder, replace=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert load(folder).config == CONFIG
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".")] == []


def test_an_existing_folder_is_not_overwritten(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model")
    with raises(CheckpointError, code="not-empty", value=folder):
        saved(folder)
    other = MaskedLM(CONFIG)
    saved(folder, other, replace=True)
    assert torch.equal(load(folder).model.head.dense.weight, other.head.dense.weight)


def test_a_tokenizer_with_more_pieces_than_embeddings_is_refused(tmp_path: Path) -> None:
    with raises(CheckpointError, code="vocabulary-mismatch", value=63, mentions="60"):
        saved(tmp_path / "model", MaskedLM(replace(CONFIG, vocab=60)))
    assert not (tmp_path / "model").exists()


def test_the_model_card_has_the_metadata_that_hubs_read(tmp_path: Path) -> None:
    card = Card(
        title="Small",
        summary="A summary.",
        license="apache-2.0",
        data="Abstracts, public domain.",
        language=("en", "no"),
        base_model="someone/model",
        datasets=("pubmed",),
        recipe='stage = "pretrain"',
        scores=(("held-out loss", "1.89", "30 documents"),),
    )
    text = (saved(tmp_path / "model", card=card) / "README.md").read_text()
    yaml = pytest.importorskip("yaml")
    front = yaml.safe_load(text.split("---")[1])
    assert front == {
        "license": "apache-2.0",
        "language": ["en", "no"],
        "base_model": "someone/model",
        "pipeline_tag": "fill-mask",
        "tags": ["lexome", "biomedical"],
        "library_name": "transformers",
        "datasets": ["pubmed"],
    }
    assert "| held-out loss | 1.89 | 30 documents |" in text
    assert '```toml\nstage = "pretrain"\n```' in text
    assert "2 layers, hidden size 32, 4 heads" in text
