"""What a new piece was before: the old tokenizer's pieces of the same text, whatever kinds the two are of."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from foreign_writers import mpnet_tokenizer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from lexome.corpus.vocab.tokenizers import BERT_SPECIAL, bert_tokenizer
from lexome.models.encoder import EncoderConfig
from lexome.models.heads import MaskedLM
from lexome.training.start import map_special_tokens, split_new_tokens, token_ids, transfer_embeddings

LETTERS = "abcdefghijklmnopqrstuvwxyz"
ROBERTA = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")


def byte_pairs(*merges: tuple[str, str]) -> Any:
    """Byte pairs as GPT-2 has them, with these merges."""
    pieces = [*ROBERTA, *sorted(pre_tokenizers.ByteLevel.alphabet()), *(left + right for left, right in merges)]
    made = Tokenizer(models.BPE({piece: number for number, piece in enumerate(pieces)}, list(merges)))
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    made.add_special_tokens(list(ROBERTA))
    return made


def word_pieces(*more: str, cased: bool = False) -> Any:
    letters = [*LETTERS, *(f"##{letter}" for letter in LETTERS)]
    pieces = [*BERT_SPECIAL, *letters, *more]
    return bert_tokenizer({piece: number for number, piece in enumerate(pieces)}, cased=cased)


def unigrams(*pieces: str, unknown: int | None) -> Any:
    first = [("<unk>", 0.0)] if unknown is not None else []
    made = Tokenizer(models.Unigram([*first, *((piece, -1.0) for piece in pieces)], unknown, False))
    made.pre_tokenizer, made.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    return made


@pytest.fixture
def parts(tmp_path: Path) -> Any:
    """Parts by their names."""

    def found(old: Any, new: Any) -> dict[str, list[str]]:
        for name, tokenizer in (("old", old), ("new", new)):
            (tmp_path / name).mkdir()
            tokenizer.save(str(tmp_path / name / "tokenizer.json"))
        names = {number: piece for piece, number in token_ids(tmp_path / "old").items()}
        told = split_new_tokens(tmp_path / "old", tmp_path / "new")
        return {piece: [names[number] for number in ids] for piece, ids in told.items()}

    return found


def test_word_pieces_are_cut_as_the_old_ones_were(parts: Any) -> None:
    new = word_pieces("Heart", "heartache", "##itis", "[unused1]", "β", cased=True)
    assert parts(word_pieces("heart"), new) == {
        "Heart": ["heart"],
        "heartache": ["heart", "##a", "##c", "##h", "##e"],
        "##itis": ["i", "##t", "##i", "##s"],
    }


def test_byte_pairs_tell_a_word_from_the_same_letters_inside_one(parts: Any) -> None:
    both = (("h", "e"), ("Ġ", "he"))
    longer = (*both, ("Ġhe", "a"), ("he", "a"), ("Î", "²"))
    assert parts(byte_pairs(*both), byte_pairs(*longer)) == {
        "Ġhea": ["Ġhe", "a"],
        "hea": ["he", "a"],
        "Î²": ["Î", "²"],
    }


def test_a_word_of_another_kind_has_its_space_in_byte_pairs(parts: Any) -> None:
    found = parts(byte_pairs(("h", "e"), ("Ġ", "he")), word_pieces("hea", "##hea"))
    assert (found["hea"], found["##hea"]) == (["Ġhe", "a"], ["he", "a"])
    assert not found.keys() & set(BERT_SPECIAL)


def test_pieces_with_an_unknown_part_are_left_out(parts: Any) -> None:
    short = Tokenizer(models.BPE({"a": 0, "b": 1}, []))
    assert parts(short, word_pieces("ab", "abc")) == {"ab": ["a", "b"], "##a": ["a"], "##b": ["b"]}


@pytest.mark.parametrize("unknown", [0, None])
def test_unigrams_need_no_piece_for_the_unknown(parts: Any, unknown: int | None) -> None:
    found = parts(unigrams("▁he", *"▁hear", unknown=unknown), unigrams("▁hear", "▁heat", unknown=0))
    assert found == {"▁hear": ["▁he", "a", "r"]}


SAID = {"cls_token": "<s>", "sep_token": "</s>", "mask_token": {"content": "<mask>"}, "pad_token": "<pad>"}


@pytest.fixture(params=["alone", "with its companions"])
def mpnet(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A tokenizer whose vocabulary has special pieces of BERT's that it does not use."""
    (tmp_path / "mpnet").mkdir()
    mpnet_tokenizer("heart", "##s").save(str(tmp_path / "mpnet" / "tokenizer.json"))
    if request.param != "alone":
        (tmp_path / "mpnet" / "special_tokens_map.json").write_text(json.dumps({**SAID, "unk_token": "[UNK]"}))
    return tmp_path / "mpnet"


def test_special_pieces_begin_as_what_did_their_work_and_not_as_their_namesakes(mpnet: Path, tmp_path: Path) -> None:
    new = tmp_path / "tokenizer.json"
    word_pieces("heart").save(str(new))
    roles = map_special_tokens(mpnet, new)
    assert roles == {"[CLS]": "<s>", "[SEP]": "</s>", "[MASK]": "<mask>", "[PAD]": "<pad>", "[UNK]": "[UNK]"}
    before, after = token_ids(mpnet), token_ids(new)
    model = MaskedLM(
        EncoderConfig(vocab=len(before), layers=1, hidden_size=8, heads=2, intermediate_size=8, max_tokens=8)
    )
    torch.nn.init.normal_(model.head.bias)
    weights, kept = transfer_embeddings(model, before, after, roles=roles, parts={}, std=0.02)
    for name in ("encoder.embed.tokens.weight", "head.bias"):
        old, made = model.state_dict()[name], weights[name]
        for piece, was in {**roles, "heart": "heart"}.items():
            assert torch.equal(made[after[piece]], old[before[was]]), (name, piece)
    assert (kept.kept, kept.gone) == (7, len(before) - 7)


def test_the_special_pieces_of_bert_and_roberta_are_each_others(tmp_path: Path) -> None:
    word_pieces().save(str(tmp_path / "bert.json"))
    byte_pairs().save(str(tmp_path / "roberta.json"))
    pairs = {("[CLS]", "<s>"), ("[SEP]", "</s>"), ("[MASK]", "<mask>"), ("[PAD]", "<pad>"), ("[UNK]", "<unk>")}
    assert set(map_special_tokens(tmp_path / "roberta.json", tmp_path / "bert.json").items()) == pairs
    assert {
        pair[::-1] for pair in map_special_tokens(tmp_path / "bert.json", tmp_path / "roberta.json").items()
    } == pairs


def test_a_companion_that_names_a_piece_that_is_not_there_is_not_believed(mpnet: Path, tmp_path: Path) -> None:
    (mpnet / "special_tokens_map.json").write_text(json.dumps({**SAID, "cls_token": "<cls>", "unk_token": "<none>"}))
    word_pieces().save(str(tmp_path / "bert.json"))
    roles = map_special_tokens(mpnet, tmp_path / "bert.json")
    assert (roles["[CLS]"], roles["[UNK]"]) == ("<s>", "[UNK]")
