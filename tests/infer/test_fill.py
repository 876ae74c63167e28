"""Masks are filled with the words, and the probabilities, that transformers gives."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from errors import raises
from tiny_models import hf_model
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from lexome.errors import CheckpointError, UsageError
from lexome.export.export import export
from lexome.infer.embed import fill
from lexome.infer.predictor import Predictor, open_session


def test_guesses_are_those_of_transformers(predictor: Predictor, checkpoint: Path) -> None:
    model = transformers.AutoModelForMaskedLM.from_pretrained(checkpoint).eval()
    words = fill(predictor, "w1 [MASK] w2 w3 [MASK]", top=3)
    with torch.no_grad():
        shares = model(torch.tensor([[2, 6, 4, 7, 8, 4, 3]])).logits[0].double().softmax(-1)
    for place, found in zip((2, 5), words, strict=True):
        best = shares[place].topk(3)
        assert [word.id for word in found] == best.indices.tolist()
        assert np.allclose([word.probability for word in found], best.values.numpy(), rtol=1e-4)


def test_probabilities_are_over_the_whole_vocabulary(predictor: Predictor) -> None:
    (words,) = fill(predictor, "[MASK]", top=1000)
    assert len(words) == 64
    assert sum(word.probability for word in words) == pytest.approx(1)
    assert {word.word for word in words} >= {"w0", "w58", "[MASK]"}


def test_a_text_without_a_mask_is_refused(predictor: Predictor) -> None:
    with raises(UsageError, code="no-mask"):
        fill(predictor, "w1 w2")


def test_a_text_that_is_too_long_is_refused(predictor: Predictor) -> None:
    with raises(UsageError, code="too-long", mentions="40"):
        fill(predictor, "w1 " * 40 + "[MASK]")


def test_an_encoder_guesses_no_words(checkpoint: Path, tmp_path: Path) -> None:
    export(checkpoint, tmp_path / "encoder", kind="encoder")
    with raises(UsageError, code="wrong-kind", value="encoder"):
        fill(Predictor.open(tmp_path / "encoder"), "[MASK]")


def test_a_tokenizer_without_a_mask_is_said(predictor: Predictor) -> None:
    session = open_session(predictor.folder / "model.onnx", 1)
    bare = Predictor(predictor.folder, replace(predictor.settings, mask=None), predictor.tokenizer, session)
    with raises(UsageError, code="no-mask-token", value=predictor.folder):
        fill(bare, "[MASK]")


def byte_level(folder: Path) -> None:
    """RoBERTa's form: bytes, and a mask token that takes the space before it."""
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())[:59]
    made = Tokenizer(models.BPE({piece: id_ for id_, piece in enumerate([*special, *letters])}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(special)
    made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    made.save(str(folder / "tokenizer.json"))


def test_another_mask_token_is_understood_under_both_names(tmp_path: Path) -> None:
    hf_model("RobertaForMaskedLM", "roberta").save_pretrained(tmp_path / "roberta")
    byte_level(tmp_path / "roberta")
    settings = export(tmp_path / "roberta", tmp_path / "onnx")
    assert (settings.before, settings.after, settings.pad, settings.mask) == ((0,), (2,), 1, 4)
    predictor = Predictor.open(tmp_path / "onnx")
    assert fill(predictor, "AB[MASK]C") == fill(predictor, "AB<mask>C")


def test_a_tokenizer_that_is_none_is_said(exported: Path, tmp_path: Path) -> None:
    from lexome.infer.tokenizer import open_tokenizer

    (tmp_path / "tokenizer.json").write_text("{}")
    with raises(CheckpointError, code="invalid-tokenizer", value=tmp_path / "tokenizer.json"):
        open_tokenizer(tmp_path / "tokenizer.json")
