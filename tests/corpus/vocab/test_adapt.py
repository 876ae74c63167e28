"""A vocabulary adapted to a text: what it gives up, what it takes in, and that nothing else changes."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from errors import raises
from foreign_writers import mpnet_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer

import lexome
from lexome import Document, Passage
from lexome.corpus.vocab.learn import AdaptationStats, LearnedVocab, adapt, learn_vocab
from lexome.corpus.vocab.tokenizers import BERT_SPECIAL, bert_tokenizer, load_tokenizer
from lexome.errors import RecipeError, UsageError
from lexome.recipe.corpus_stages import VocabRecipe

LETTERS = "abcdefghijklmnopqrstuvwxyzα"
UNUSED = [f"[unused{number}]" for number in range(4)]
WORDS = ("the", "mansion", "kinase", "##ase", "##ville")
TEXTS = ("The kinase phosphorylase.", "PHOSPHORYLASE and tnfα", "the naïve kinome-1 cat2", "kinome TNFα kinome")


def base(*more: str, cased: bool = False) -> Any:
    """A tokenizer that can spell everything of some letters."""
    pieces = [*BERT_SPECIAL, *UNUSED, *LETTERS, *(f"##{letter}" for letter in LETTERS), *".-12", "##2", *WORDS, *more]
    return bert_tokenizer({piece: number for number, piece in enumerate(dict.fromkeys(pieces))}, cased=cased)


def adapted(tokenizer: Any, *texts: str, new: int = 100, min_documents: int = 1) -> tuple[Any, AdaptationStats]:
    return adapt(lambda: [[text] for text in texts], tokenizer, new=new, min_documents=min_documents)


def taken(old: Any, new: Any) -> tuple[set[str], set[str]]:
    """The pieces that are gone, and the words that came."""
    before, after = set(old.get_vocab()), set(new.get_vocab())
    return before - after, after - before


def tokens(tokenizer: Any, *texts: str) -> list[str]:
    return [token for text in texts for token in tokenizer.encode(text, add_special_tokens=False).tokens]


def test_words_that_are_cut_up_take_the_slots_of_pieces_that_never_occur() -> None:
    old = base()
    new, found = adapted(old, *TEXTS)
    gone, came = taken(old, new)
    assert came == {"phosphorylase", "and", "tnfα", "kinome", "naive"}
    # The unused slots are the first to go, then what has the highest id.
    assert gone == {*UNUSED, "##ville"}
    assert (found.free, found.given) == (6, 5)
    assert (found.tokens_before, found.tokens_after) == (len(tokens(old, *TEXTS)), len(tokens(new, *TEXTS)))


def test_those_come_first_that_cost_most() -> None:
    # 3 x 5 pieces beyond one, 2 x 3, 2 x 3, 1 x 12.
    texts = ("kinome kinome kinome", "tnfα tnfα cats cats", "phosphorylase")
    for new, expected in enumerate(["kinome", "phosphorylase", "cats", "tnfα"], 1):
        assert expected in taken(base(), adapted(base(), *texts, new=new)[0])[1]
        assert len(taken(base(), adapted(base(), *texts, new=new)[0])[1]) == new


def test_a_word_of_letters_that_the_vocabulary_lacks_is_no_longer_unknown() -> None:
    old = base()
    assert tokens(old, "5 µl β-kinase") == ["[UNK]", "[UNK]", "[UNK]", "-", "kinase"]
    new, found = adapted(old, "µl µl β-kinase", "µl 5 ± µ2", min_documents=1)
    # Numbers and signs are no words.
    assert taken(old, new)[1] == {"µl", "β"}
    assert tokens(new, "µl β-kinase ±") == ["µl", "β", "-", "kinase", "[UNK]"]
    assert found.given == 2


def test_an_unknown_word_costs_each_of_its_letters() -> None:
    # 2 x 3 letters of µmß, 5 pieces beyond one of kinome, 4 x 1 letter of β.
    texts = ("µmß µmß kinome", "β β β β")
    for new, expected in enumerate(["µmß", "kinome", "β"], 1):
        came = taken(base(), adapted(base(), *texts, new=new)[0])[1]
        assert (expected in came, len(came)) == (True, new)


def test_a_word_too_long_for_any_vocabulary_takes_no_slot() -> None:
    old = base()
    assert taken(old, adapted(old, f"kinome {'β' * 101} {'β' * 100}")[0])[1] == {"kinome", "β" * 100}


def test_words_of_too_few_documents_stay_as_they_are() -> None:
    old = base()
    assert taken(old, adapted(old, *TEXTS, min_documents=2)[0])[1] == {"phosphorylase", "tnfα", "kinome"}


def test_a_cased_vocabulary_takes_words_as_they_are_written() -> None:
    old = base("T", "N", "F", "##N", "##F", cased=True)
    assert "TNFα" in taken(old, adapted(old, *TEXTS)[0])[1]


def test_a_word_behind_which_others_could_not_be_spelled_is_passed_over() -> None:
    pieces = [*BERT_SPECIAL, *UNUSED, "x", "##y", "##yq", "z"]
    old = bert_tokenizer({piece: number for number, piece in enumerate(pieces)}, cased=True)
    # "xy" gains most. Behind it there would be no piece for the q of "xyq", unless that is a new word too.
    new, found = adapted(old, "xy xy", "xyq", "zy", new=1)
    assert taken(old, new)[1] == {"xyq"}
    assert tokens(new, "xyq xy") == ["xyq", "x", "##y"]
    assert found.given == 1
    assert taken(old, adapted(old, "xy xy", "xyq", "zy", new=3)[0])[1] == {"xy", "xyq", "zy"}


words = st.text("abαβ", min_size=1, max_size=6)
texts = st.lists(st.lists(words, max_size=12).map(" ".join), min_size=1, max_size=6)


@settings(max_examples=200)
@given(texts, st.sets(words), st.sets(words.map("##{}".format)), st.integers(1, 6), st.integers(1, 3))
def test_all_other_pieces_keep_their_ids_and_no_text_is_lost(
    documents: list[str], whole: set[str], inner: set[str], new: int, min_documents: int
) -> None:
    old = base(*sorted(whole), *sorted(inner))
    made, found = adapted(old, *documents, new=new, min_documents=min_documents)
    gone, came = taken(old, made)
    before, after = old.get_vocab(), made.get_vocab()
    assert {piece: number for piece, number in before.items() if piece not in gone}.items() <= after.items()
    assert sorted(before.values()) == sorted(after.values())
    assert not gone & {*tokens(old, *documents), *BERT_SPECIAL}
    assert all(len(piece.removeprefix("##")) > 1 for piece in gone)
    assert len(gone) == len(came) == found.given <= min(new, found.free)
    for word in came:
        assert sum(word in text.split() for text in documents) >= min_documents
        assert tokens(made, word) == [word]
    for word in {word for text in documents for word in text.split()}:
        if tokens(old, word) != ["[UNK]"]:
            assert made.decode(made.encode(word).ids) == old.decode(old.encode(word).ids)
    assert (found.tokens_before, found.tokens_after) == (len(tokens(old, *documents)), len(tokens(made, *documents)))


@pytest.mark.parametrize("text", ["kin\x0bome", "kin\u200bome", "kin\x85ome kin\u2028ome", "kin\u00a0ome"])
def test_words_are_those_that_the_tokenizer_sees(text: str) -> None:
    old = base("kin", "ome", "kinome")
    new, found = adapted(old, text, new=10)
    assert found.tokens_before == len(tokens(old, text))
    assert not taken(old, new)[0] & set(tokens(old, text))


@pytest.mark.parametrize(
    "text", ["kinome [SEP] [UNK] kinome", "geneopathy GENEopathy gene", "the [MASK]kinome, gene 漢"]
)
def test_added_tokens_are_no_words_and_nothing_that_holds_one_is(text: str) -> None:
    old = base("opathy")
    old.add_tokens([AddedToken("gene", normalized=True)])
    new, found = adapted(old, text)
    assert (found.tokens_before, found.tokens_after) == (len(tokens(old, text)), len(tokens(new, text)))
    gone, came = taken(old, new)
    assert not gone & set(tokens(old, text))
    assert came <= set(tokens(new, text))
    assert old.token_to_id("gene") == new.token_to_id("gene")


def test_an_added_token_of_two_words_is_found_across_the_space() -> None:
    old = base("attack")
    old.add_tokens([AddedToken("heart attack", normalized=True)])
    new, found = adapted(old, "the heart attack kinome", "heart kinome heart")
    assert taken(old, new)[1] == {"heart", "kinome"}
    assert "attack" in taken(old, adapted(old, "heart attack kinome kinase and", "naive cats tnfα phosphorylase")[0])[0]
    assert (found.tokens_before, found.tokens_after) == (24, 6)


def test_a_word_that_is_an_added_token_elsewhere_gets_no_second_id() -> None:
    old = base()
    old.add_tokens([AddedToken("gene", normalized=False)])
    new, _ = adapted(old, "GENE GENE kinome")
    assert taken(old, new)[1] == {"kinome"}
    assert {piece: old.token_to_id(piece) for piece in ("gene", "the")}.items() <= new.get_vocab().items()


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with records and a tokenizer of a model, to work in."""
    monkeypatch.chdir(tmp_path)
    docs = [Document(f"d{number}", (Passage(0, text),)) for number, text in enumerate(TEXTS * 10)]
    lexome.write(tmp_path / "records" / "a.parquet", docs)
    folder = tmp_path / "model"
    folder.mkdir()
    base().save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "model_max_length": 77, "note": "kept"}
    settings |= {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"mask_token": "[MASK]"}))
    return tmp_path


def learned(**settings: object) -> LearnedVocab:
    given = {"stage": "learn-vocab", "inputs": ["records"], "out": "adapted", "adapt": "model", **settings}
    return learn_vocab(VocabRecipe.model_validate(given))


def test_the_folder_is_that_of_the_model_but_for_its_pieces(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = learned(min_documents=20)
    ours = load_tokenizer(made.folder)
    assert (made.pieces, made.documents, made.adapted and made.adapted.given) == (base().get_vocab_size(), 40, 3)
    assert json.loads((made.folder / "tokenizer_config.json").read_text())["note"] == "kept"
    lines = (made.folder / "vocab.txt").read_text().splitlines()
    assert {piece: number for number, piece in enumerate(lines)} == ours.get_vocab()
    transformers = pytest.importorskip("transformers")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    theirs = transformers.AutoTokenizer.from_pretrained(made.folder)
    for text in TEXTS:
        assert theirs(text)["input_ids"] == ours.encode(text).ids
    assert (theirs.model_max_length, len(theirs)) == (77, made.pieces)


def test_a_vocabulary_alone_can_be_adapted(desk: Path) -> None:
    pieces = sorted(base().get_vocab(), key=base().token_to_id)
    (desk / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces))
    made = learned(adapt="vocab.txt", min_documents=10)
    found = load_tokenizer(made.folder)
    assert tokens(found, "phosphorylase") == ["phosphorylase"]
    said = json.loads((made.folder / "tokenizer_config.json").read_text())
    assert said["do_lower_case"] == found.normalizer.lowercase


def test_special_tokens_are_told_by_what_the_tokenizer_does_with_them(desk: Path) -> None:
    pieces = [*UNUSED, *LETTERS, *(f"##{letter}" for letter in LETTERS), *".-12"]
    mpnet_tokenizer(*pieces).save("mpnet.json")
    made = learned(adapt="mpnet.json", min_documents=10)
    said = json.loads((made.folder / "special_tokens_map.json").read_text())
    assert said == {
        "cls_token": "<s>",
        "sep_token": "</s>",
        "pad_token": "<pad>",
        "mask_token": "<mask>",
        "unk_token": "[UNK]",
    }


def test_what_lies_beside_a_tokenizer_is_kept_and_a_length_that_is_given_counts(desk: Path) -> None:
    made = learned(adapt="model/tokenizer.json", max_length=128)
    said = json.loads((made.folder / "tokenizer_config.json").read_text())
    assert (said["note"], said["model_max_length"]) == ("kept", 128)


def test_the_same_again_is_nothing_to_do_and_another_tokenizer_is_refused(desk: Path) -> None:
    first, again = learned(), learned()
    assert (again.new, again.adapted, again.sha256) == (False, first.adapted, first.sha256)
    base("another").save("model/tokenizer.json")
    with raises(UsageError, code="other-settings"):
        learned()


def test_fresh_processes_write_the_same_bytes(desk: Path) -> None:
    code = (
        "import sys; from lexome.corpus.vocab.learn import learn_vocab\n"
        "from lexome.recipe.corpus_stages import VocabRecipe\n"
        "learn_vocab(VocabRecipe(stage='learn-vocab', inputs=['records'], out=sys.argv[1] + '/v', adapt='model'))"
    )
    written = []
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", code, seed], env=environment, check=True)
        written.append({path.name: path.read_bytes() for path in Path(seed, "v").iterdir()})
    # The name of `out` is told in lexome.json, and nothing else differs.
    for files in written:
        files["lexome.json"] = re.sub(rb'"out": "./v"', b"", files["lexome.json"])
    assert written[0] == written[1]


def test_only_word_pieces_are_adapted(desk: Path) -> None:
    learn_vocab(
        VocabRecipe.model_validate(
            {"stage": "learn-vocab", "kind": "byte-bpe", "inputs": ["records"], "out": "bytes", "size": 300}
        )
    )
    with raises(RecipeError, code="not-wordpiece", value="BPE"):
        learned(adapt="bytes")


def test_the_command_says_what_was_free_and_what_is_saved(desk: Path) -> None:
    Path("adapt.toml").write_text(
        'stage = "learn-vocab"\ninputs = ["records"]\nout = "adapted"\nadapt = "model"\nmin_documents = 10\n'
    )
    command = [sys.executable, "-m", "lexome", "learn-vocab", "adapt.toml"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "5 new words in 6 " in said
    old, new = Tokenizer.from_file("model/tokenizer.json"), Tokenizer.from_file("adapted/tokenizer.json")
    before, after = (10 * len(tokens(tokenizer, *TEXTS)) for tokenizer in (old, new))
    assert f"tokens    {before:,} before, {after:,} after, {1 - after / before:.1%} fewer\n" in said


def test_of_no_words_none_are_saved(desk: Path) -> None:
    lexome.write(desk / "blank" / "a.parquet", [Document("d", (Passage(0, "   "),))])
    Path("adapt.toml").write_text('stage = "learn-vocab"\ninputs = ["blank"]\nout = "adapted"\nadapt = "model"\n')
    command = [sys.executable, "-m", "lexome", "learn-vocab", "adapt.toml"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "tokens    0 before, 0 after, 0.0% fewer\n" in said
