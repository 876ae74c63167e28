"""Models of other architectures: computed by transformers, packed, and read back as they were written."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from errors import raises
from safetensors.torch import load_file, save_file
from tiny_models import CARD, LENGTHS, VOCAB, batch, hf_model, tokenizer_folder

from lexome.errors import CheckpointError, UsageError
from lexome.models.backend import length_groups
from lexome.models.checkpoint import Checkpoint, encoder_of, kind_of, load, save
from lexome.models.encoder import Packing
from lexome.models.heads import HiddenLayers

# transformers' DeBERTa uses what torch is about to give up.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")

SHAPE = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 40,
}
DISTANCES = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8}
CONFIGS: dict[str, Any] = {
    "deberta-v2": lambda: transformers.DebertaV2Config(
        **SHAPE, **DISTANCES, position_biased_input=False, type_vocab_size=0
    ),
    "mpnet": lambda: transformers.MPNetConfig(**SHAPE),
    "electra": lambda: transformers.ElectraConfig(**SHAPE, embedding_size=16),
    "albert": lambda: transformers.AlbertConfig(**SHAPE, embedding_size=16),
    "big_bird": lambda: transformers.BigBirdConfig(**SHAPE, attention_type="original_full"),
    "gpt2": lambda: transformers.GPT2Config(vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4, n_positions=40),
    "llama": lambda: transformers.LlamaConfig(**SHAPE, num_key_value_heads=2),
    "biogpt": lambda: transformers.BioGptConfig(**SHAPE),
}
MASKED = ("deberta-v2", "mpnet", "electra", "albert", "big_bird")
CAUSAL = ("gpt2", "llama", "biogpt")


def their_model(model_type: str, kind: str = "MaskedLM", **changes: Any) -> Any:
    """A model of transformers whose weights are all random, and large enough to tell mistakes."""
    torch.manual_seed(0)
    config = CONFIGS[model_type]()
    for key, held in changes.items():
        setattr(config, key, held)
    auto = "AutoModel" if kind == "Model" else f"AutoModelFor{kind}"
    model = getattr(transformers, auto).from_config(config)
    for key, weight in model.named_parameters():
        norm = "norm" in key.lower() or ".ln_" in key
        torch.nn.init.normal_(weight, mean=1.0 if norm and key.endswith("weight") else 0.0, std=0.2)
    return model.eval()


def folder_of(model: Any, folder: Path) -> Path:
    """Their model, saved by them."""
    model.save_pretrained(folder)
    tokenizer_folder(folder)
    return folder


def saved(found: Checkpoint, folder: Path, **options: Any) -> Path:
    tokenizer = tokenizer_folder(folder.parent / "tokenizer")
    save(folder, found.model, architecture=found.architecture, tokenizer=tokenizer, card=CARD, **options)
    return folder


def one_by_one(model: Any, ids_T: torch.Tensor, lengths: tuple[int, ...] = LENGTHS, **options: Any) -> list[Any]:
    with torch.no_grad():
        return [model(input_ids=ids[None], **options) for ids in ids_T.split(lengths)]


@pytest.mark.parametrize("model_type", [*MASKED, *CAUSAL])
def test_packed_hidden_states_are_those_of_each_sequence_alone(tmp_path: Path, model_type: str) -> None:
    theirs = their_model(model_type, "Model")
    found = load(folder_of(theirs, tmp_path / "theirs"), kind="encoder")
    assert (found.architecture, found.kind, found.backend, found.new) == (model_type, "encoder", "transformers", ())
    ids_T, packing = batch()
    with torch.no_grad():
        hidden_TD = found.model(ids_T, packing)
    wanted_TD = torch.cat([output.last_hidden_state[0] for output in one_by_one(theirs, ids_T)])
    assert hidden_TD.std() > 0.1
    assert (hidden_TD - wanted_TD).abs().max() < 1e-4


@pytest.mark.parametrize("model_type", MASKED)
def test_masked_lm_logits_equal_those_of_the_whole_model(tmp_path: Path, model_type: str) -> None:
    theirs = their_model(model_type)
    found = load(folder_of(theirs, tmp_path / "theirs"))
    assert (found.kind, found.unused, found.new) == ("masked", (), ())
    ids_T, packing = batch()
    positions_M = torch.tensor([40, 3, 3, 0, 65])  # in any order, one of them twice
    with torch.no_grad():
        logits_MV = found.model(ids_T, packing, positions_M)
    wanted_TV = torch.cat([output.logits[0] for output in one_by_one(theirs, ids_T)])
    assert (logits_MV - wanted_TV[positions_M]).abs().max() < 1e-4


@pytest.mark.parametrize("model_type", [*MASKED, *CAUSAL])
def test_round_trip(tmp_path: Path, model_type: str) -> None:
    kind = "masked" if model_type in MASKED else "encoder"
    theirs = their_model(model_type, "MaskedLM" if kind == "masked" else "CausalLM")
    found = load(folder_of(theirs, tmp_path / "theirs"), kind=kind)
    again = load(saved(found, tmp_path / "again"))
    assert (again.kind, again.config, again.unused, again.new) == (kind, found.config, (), ())
    before, after = found.model.state_dict(), again.model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert found.model.model.config.to_dict() == again.model.model.config.to_dict()
    text = (tmp_path / "again" / "README.md").read_text()
    assert "2 layers, hidden size 32, 4 heads" in text


@pytest.mark.parametrize("model_type", ["deberta-v2", "gpt2"])
@pytest.mark.parametrize("kind", ["token", "sequence", "span"])
def test_heads_train_and_are_saved(tmp_path: Path, model_type: str, kind: str) -> None:
    folder = folder_of(their_model(model_type, "Model"), tmp_path / "theirs")
    labels = () if kind == "span" else ("O", "B", "I")
    found = load(folder, kind=kind, labels=labels, hidden=HiddenLayers(1, hidden_size=16, norm=True), new_head=True)
    assert found.new[0] == "head.dense0.weight"
    if kind == "sequence":
        assert found.model.head.pooling == ("mean" if model_type in CAUSAL else "first")
    ids_T, packing = batch()
    before = encoder_of(found.model).model.get_input_embeddings().weight.clone()
    optimizer = torch.optim.SGD(found.model.parameters(), lr=0.05)
    losses = []
    for _ in range(2):
        logits = found.model(ids_T, packing)
        loss = torch.nn.functional.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long))
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[1] < losses[0]
    assert not torch.equal(before, encoder_of(found.model).model.get_input_embeddings().weight)
    again = load(saved(found, tmp_path / "again", labels=labels))
    assert (again.kind, again.new, again.unused) == (kind, (), ())
    assert kind == "span" or again.labels == labels
    with torch.no_grad():
        assert torch.equal(again.model(ids_T, packing), found.model(ids_T, packing))
    assert load(tmp_path / "again", kind="encoder").unused[0].startswith("lexome_head.")


@pytest.mark.parametrize(
    ("model_type", "kind", "name"),
    [
        ("deberta-v2", "token", "TokenClassification"),
        ("llama", "token", "TokenClassification"),
        ("electra", "span", "QuestionAnswering"),
        ("mpnet", "span", "QuestionAnswering"),
    ],
)
def test_a_linear_head_of_transformers_is_loaded(tmp_path: Path, model_type: str, kind: str, name: str) -> None:
    theirs = their_model(model_type, name, id2label={0: "O", 1: "B"}, label2id={"O": 0, "B": 1})
    found = load(folder_of(theirs, tmp_path / "theirs"))
    assert (found.kind, found.labels, found.unused, found.new) == (kind, ("O", "B"), (), ())
    ids_T, packing = batch()
    with torch.no_grad():
        logits = found.model(ids_T, packing)
    outputs = one_by_one(theirs, ids_T)
    wanted = [
        output.logits[0] if kind == "token" else torch.stack((output.start_logits[0], output.end_logits[0]), -1)
        for output in outputs
    ]
    assert (logits - torch.cat(wanted)).abs().max() < 1e-4


@pytest.mark.parametrize("model_type", ["electra", "albert", "deberta-v2", "mpnet"])
@pytest.mark.parametrize("kind", ["token", "span"])
def test_a_linear_head_is_saved_in_the_class_that_transformers_has(tmp_path: Path, model_type: str, kind: str) -> None:
    folder = folder_of(their_model(model_type, "Model"), tmp_path / "theirs")
    labels = ("O", "B", "I") if kind == "token" else ()
    found = load(folder, kind=kind, labels=labels, new_head=True)
    auto = "TokenClassification" if kind == "token" else "QuestionAnswering"
    again = saved(found, tmp_path / "again", labels=labels)
    theirs, report = getattr(transformers, f"AutoModelFor{auto}").from_pretrained(again, output_loading_info=True)
    assert not any(report.values())
    ids_T, packing = batch()
    with torch.no_grad():
        logits = found.model(ids_T, packing)
        outputs = one_by_one(theirs.eval(), ids_T)
        assert torch.equal(load(again).model(ids_T, packing), logits)
    wanted = [
        output.logits[0] if kind == "token" else torch.stack((output.start_logits[0], output.end_logits[0]), -1)
        for output in outputs
    ]
    assert (logits - torch.cat(wanted)).abs().max() < 1e-4


def test_the_card_of_a_head_that_transformers_lacks_names_lexome(tmp_path: Path) -> None:
    folder = folder_of(their_model("electra", "Model"), tmp_path / "theirs")
    found = load(folder, kind="sequence", labels=("no", "yes"), new_head=True)
    card = (saved(found, tmp_path / "again", labels=("no", "yes")) / "README.md").read_text()
    assert "pipeline_tag" not in card
    assert "lexome.models.checkpoint.load" in card


def test_a_sequence_head_of_transformers_is_not_loaded(tmp_path: Path) -> None:
    folder = folder_of(their_model("deberta-v2", "SequenceClassification"), tmp_path / "theirs")
    with raises(CheckpointError, code="missing-head", value="sequence"):
        load(folder)
    assert "classifier.weight" in load(folder, kind="sequence", labels="ab", new_head=True).unused


@pytest.mark.parametrize("model_type", CAUSAL)
def test_a_causal_model_has_no_masked_lm_head(tmp_path: Path, model_type: str) -> None:
    folder = folder_of(their_model(model_type, "CausalLM"), tmp_path / "theirs")
    with raises(CheckpointError, code="unsupported-kind", value="masked"):
        load(folder, kind="masked")
    with raises(CheckpointError, code="unknown-kind"):
        load(folder)


def test_segments_are_passed_to_models_that_have_them(tmp_path: Path) -> None:
    theirs = their_model("electra", "Model")
    found = load(folder_of(theirs, tmp_path / "theirs"), kind="encoder")
    ids_T, packing = batch((7, 31))
    segments_T = (packing.positions_T > 3).long()
    with torch.no_grad():
        hidden_TD = found.model(ids_T, packing, segments_T)
        alone_LD = theirs(input_ids=ids_T[None, 7:], token_type_ids=segments_T[None, 7:]).last_hidden_state[0]
        assert (hidden_TD[7:] - alone_LD).abs().max() < 1e-4
        assert (hidden_TD - found.model(ids_T, packing)).abs().max() > 0.01


def test_length_groups_need_little_padding() -> None:
    lengths = (500, 3, 0, 480, 120, 118, 5, 401, 10)
    groups = length_groups(lengths)
    assert sorted(token for group in groups for token in group.tokens.tolist()) == list(range(sum(lengths)))
    assert sum(group.arrays[0].size for group in groups) < 1.2 * sum(lengths)
    assert len(groups) == 3


def test_positions_that_start_at_the_padding_id_shorten_max_tokens(tmp_path: Path) -> None:
    found = load(folder_of(their_model("mpnet"), tmp_path / "theirs"))
    assert (found.config.max_tokens, found.config.layers, found.config.initial_std) == (38, 2, 0.02)
    assert kind_of(found.model) == "masked"
    with torch.no_grad():
        assert encoder_of(found.model)(torch.full((38,), 5), Packing.of([38])).isfinite().all()
    with raises(UsageError, code="sequence-too-long", value=39, mentions="38"):
        encoder_of(found.model)(torch.full((39,), 5), Packing.of([39]))


def test_gradient_checkpointing(tmp_path: Path) -> None:
    found = load(folder_of(their_model("electra"), tmp_path / "theirs"))
    ids_T, packing = batch()
    gradients = []
    for wanted in (False, True):
        encoder_of(found.model).gradient_checkpointing = wanted
        assert encoder_of(found.model).gradient_checkpointing == wanted
        found.model.zero_grad()
        # Dropout is on in training: the same is dropped each time.
        torch.manual_seed(1)
        found.model.train()(ids_T, packing, torch.arange(5)).square().mean().backward()
        gradients.append(found.model.model.get_input_embeddings().weight.grad.clone())
    assert torch.allclose(gradients[0], gradients[1], atol=1e-6)


@pytest.mark.parametrize("architecture", ["bert", "roberta", "distilbert", "modernbert"])
def test_both_backends_agree(tmp_path: Path, architecture: str) -> None:
    names = {"bert": "Bert", "roberta": "Roberta", "distilbert": "DistilBert", "modernbert": "ModernBert"}
    folder = folder_of(hf_model(f"{names[architecture]}ForMaskedLM", architecture), tmp_path / "theirs")
    own, theirs = load(folder), load(folder, backend="transformers")
    assert (own.backend, theirs.backend) == ("lexome", "transformers")
    assert own.config.max_tokens == theirs.config.max_tokens
    ids_T, packing = batch()
    with torch.no_grad():
        one, other = (found.model(ids_T, packing, torch.arange(66)) for found in (own, theirs))
    assert (one - other).abs().max() < 1e-4


def test_untied_embeddings_use_the_transformers_backend(tmp_path: Path) -> None:
    theirs = hf_model("BertForMaskedLM", "bert", tie_word_embeddings=False)
    folder = folder_of(theirs, tmp_path / "theirs")
    weights = load_file(folder / "model.safetensors")
    assert not torch.equal(weights["cls.predictions.decoder.weight"], weights["bert.embeddings.word_embeddings.weight"])
    # Checkpoints of earlier years have the bias under its first name alone.
    weights["cls.predictions.bias"] = weights.pop("cls.predictions.decoder.bias")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    found = load(folder)
    assert found.backend == "transformers"
    ids_T, packing = batch()
    with torch.no_grad():
        logits_TV = found.model(ids_T, packing, torch.arange(66))
    wanted_TV = torch.cat([output.logits[0] for output in one_by_one(theirs, ids_T)])
    assert (logits_TV - wanted_TV).abs().max() < 1e-4
    assert load(folder, kind="encoder").backend == "lexome"


def edited(folder: Path, **changes: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return folder


@pytest.mark.parametrize(
    ("changes", "code", "mentions"),
    [
        ({"model_type": "nobody-knows"}, "unknown-architecture", "nobody-knows"),
        ({"model_type": "t5", "classifier_dropout": 0.1}, "unsupported-model", "t5"),
        ({"quantization_config": {"bits": 4}}, "quantized-weights", "config.json"),
        ({"intermediate_size": 50}, "shape-mismatch", "config.json"),
        ({"num_hidden_layers": 3}, "missing-weights", "electra.encoder.layer.2"),
        ({"num_hidden_layers": 1}, "unknown-weights", "electra.encoder.layer.1"),
        ({"architectures": ["ElectraForPreTraining"]}, "unknown-kind", "ElectraForPreTraining"),
    ],
)
def test_a_mismatched_configuration_is_refused(
    tmp_path: Path, changes: dict[str, Any], code: str, mentions: str
) -> None:
    folder = edited(folder_of(their_model("electra"), tmp_path / "theirs"), **changes)
    with raises(CheckpointError, code=code, mentions=mentions):
        load(folder)


def test_invalid_requests_are_refused(tmp_path: Path) -> None:
    folder = folder_of(their_model("electra", "Model"), tmp_path / "theirs")
    with raises(CheckpointError, code="missing-head", value="masked"):
        load(folder, kind="masked")
    assert load(folder, kind="masked", new_head=True).new[0].startswith("generator_")
    with raises(CheckpointError, code="unsupported-kind", value="paired"):
        load(folder, kind="paired")
    with raises(CheckpointError, code="unknown-kind", value="tagger"):
        load(folder, kind="tagger")
    with raises(CheckpointError, code="unknown-architecture", value="electra"):
        load(folder, kind="encoder", backend="lexome")
    with raises(UsageError, code="unknown-option", value="torch"):
        load(folder, backend="torch")


def test_no_code_in_a_folder_is_executed(tmp_path: Path) -> None:
    folder = folder_of(their_model("electra"), tmp_path / "theirs")
    (folder / "modeling.py").write_text("raise SystemExit('it was run')\n")
    edited(folder, auto_map={"AutoModelForMaskedLM": "modeling.Mine", "AutoConfig": "modeling.MyConfig"})
    found = load(folder)
    assert type(found.model.model).__name__ == "ElectraForMaskedLM"
    assert "auto_map" not in json.loads((saved(found, tmp_path / "again") / "config.json").read_text())


def test_the_error_without_transformers_names_the_extra(tmp_path: Path) -> None:
    folder = folder_of(their_model("electra"), tmp_path / "theirs")
    program = f"""
import sys
from pathlib import Path
sys.modules["transformers"] = None
from lexome.errors import MissingExtraError
from lexome.models.checkpoint import load
try:
    load(Path({str(folder)!r}))
except MissingExtraError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pip install 'lexome[transformers]'" in done.stdout
