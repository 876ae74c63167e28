"""Token shards: written from records, read back, refused when they do not fit."""

import json
import os
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from errors import raises
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

import lexome
from lexome.corpus.records import SentenceText, read_texts, split_document
from lexome.corpus.shards import open_shards, shard, token_dtype
from lexome.document import Document, Passage
from lexome.errors import FormatError, ShardError, UsageError
from lexome.pipeline import Engine, Part
from lexome.recipe.corpus_stages import ShardRecipe

HERE = Engine(workers=0)
DOCS = [
    Document(
        f"d{number}",
        (
            Passage(0, f"The {word} of mice", "title"),
            Passage(40, f"We weighed the {word}. It was small (p < 0.05). The β-cells of ♀ mice grew.", "abstract"),
        ),
    )
    for number, word in enumerate(["heart", "liver", "spleen", "kidney", "brain", "lung"])
]
WORDS = [passage.text for doc in DOCS for passage in doc.passages]


def wordpiece() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=120, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    tokenizer.train_from_iterator(WORDS, trainer)
    return tokenizer


def byte_bpe() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=["<s>", "</s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(WORDS, trainer)
    return tokenizer


def unigram() -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=100, special_tokens=["<unk>", "<s>"], unk_token="<unk>")
    tokenizer.train_from_iterator(WORDS, trainer)
    return tokenizer


def recipe(folder: Path, tokenizer: Tokenizer, **keys: object) -> ShardRecipe:
    (folder / "records").mkdir(exist_ok=True)
    if not list((folder / "records").iterdir()):
        lexome.write(folder / "records" / "one.parquet", DOCS[:4])
        lexome.write(folder / "records" / "two.parquet", DOCS[4:])
    tokenizer.save(str(folder / "tokenizer.json"))
    keys = {"inputs": (folder / "records",), "tokenizer": folder, "out": folder / "shards", **keys}
    return ShardRecipe(stage="shard", **keys)  # type: ignore[arg-type]


def contents(folder: Path) -> dict[str, bytes]:
    hidden = folder / ".lexome"
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and hidden not in path.parents
    }


@pytest.mark.parametrize("make", [wordpiece, byte_bpe, unigram])
def test_tokens_are_those_of_the_passages_encoded_whole(tmp_path: Path, make) -> None:  # type: ignore[no-untyped-def]
    tokenizer = make()
    shard(recipe(tmp_path, tokenizer), engine=HERE)
    first, second = open_shards(tmp_path / "shards").train
    wanted = [
        [id_ for passage in doc.passages for id_ in tokenizer.encode(passage.text, add_special_tokens=False).ids]
        for doc in DOCS
    ]
    assert first.tokens.tolist() == list(chain.from_iterable(wanted[:4]))
    assert first.document_ends.tolist() == np.cumsum([len(ids) for ids in wanted[:4]]).tolist()
    assert second.tokens.tolist() == list(chain.from_iterable(wanted[4:]))


def test_sentences_end_where_the_text_says(tmp_path: Path) -> None:
    tokenizer = wordpiece()
    shard(recipe(tmp_path, tokenizer), engine=HERE)
    (first, _) = open_shards(tmp_path / "shards").train
    sentences = [
        "The heart of mice",
        "We weighed the heart.",
        "It was small (p < 0.05).",
        "The β-cells of ♀ mice grew.",
    ]
    lengths = [len(tokenizer.encode(text, add_special_tokens=False).ids) for text in sentences]
    assert first.sentence_ends[:4].tolist() == np.cumsum(lengths).tolist()
    assert set(first.document_ends.tolist()) <= set(first.sentence_ends.tolist())


def test_the_manifest_counts_what_is_there(tmp_path: Path) -> None:
    done = shard(recipe(tmp_path, wordpiece()), engine=HERE)
    assert done.manifest is not None
    opened = open_shards(tmp_path / "shards")
    assert opened.manifest == done.manifest
    assert done.manifest["totals"]["train"] == {
        "documents": 6,
        "sentences": 24,
        "tokens": sum(len(one.tokens) for one in opened.train),
    }
    assert done.manifest["tokenizer"]["special"]["[MASK]"] == 4
    assert done.manifest["unknown"] == 0


def test_tokens_take_two_bytes_and_little_more(tmp_path: Path) -> None:
    shard(recipe(tmp_path, wordpiece()), engine=HERE)
    folder = tmp_path / "shards" / "train"
    assert (folder / "one.tokens").stat().st_size == 2 * len(open_shards(tmp_path / "shards").train[0].tokens)
    assert (token_dtype(65_536), token_dtype(65_537)) == (np.uint16, np.uint32)


def test_held_out_documents_are_chosen_by_id_and_stay_out_of_training(tmp_path: Path) -> None:
    made = recipe(tmp_path, wordpiece(), held_out=0.5)
    shard(made, engine=HERE)
    opened = open_shards(tmp_path / "shards")
    train, apart = (sum(len(one.document_ends) for one in part) for part in (opened.train, opened.held_out))
    assert (train + apart, 0 < apart < 6) == (6, True)
    shard(made.model_copy(update={"seed": 2, "out": tmp_path / "other"}), engine=HERE)
    chosen = {folder: contents(tmp_path / folder / "held_out") for folder in ("shards", "other")}
    assert chosen["shards"] != chosen["other"]


def test_sharding_again_does_nothing_and_changes_nothing(tmp_path: Path) -> None:
    made = recipe(tmp_path, wordpiece())
    shard(made, engine=HERE)
    before = contents(tmp_path / "shards")
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "shards" / "train").iterdir()}
    shard(made, engine=HERE)
    assert contents(tmp_path / "shards") == before
    assert {path: path.stat().st_mtime_ns for path in times} == times


def test_shards_of_another_recipe_are_replaced_only_when_that_is_said(tmp_path: Path) -> None:
    made = recipe(tmp_path, wordpiece())
    shard(made, engine=HERE)
    before = contents(tmp_path / "shards")
    other = made.model_copy(update={"held_out": 0.5})
    with raises(UsageError, code="other-settings", value="held_out", mentions="overwrite=true"):
        shard(other, engine=HERE)
    assert contents(tmp_path / "shards") == before
    shard(other.model_copy(update={"overwrite": True}), engine=HERE)
    replaced = contents(tmp_path / "shards")
    assert replaced != before
    # The key is no part of what was made: a training on these shards knows them again.
    shard(other, engine=HERE)
    assert contents(tmp_path / "shards") == replaced


def test_shards_that_another_recipe_has_only_begun_are_kept_too(tmp_path: Path) -> None:
    made = recipe(tmp_path, wordpiece())
    assert shard(made, engine=HERE, part=Part(1, 2)).waiting
    with raises(UsageError, code="other-settings", value="seed"):
        shard(made.model_copy(update={"seed": 1}), engine=HERE)
    assert shard(made, engine=HERE).manifest is not None


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_of_something_else_is_not_written_to(tmp_path: Path, overwrite: bool) -> None:
    other = tmp_path / "shards" / "tokenizer.json"
    other.parent.mkdir()
    unigram().save(str(other))
    before = other.read_bytes()
    with raises(UsageError, code="foreign-output"):
        shard(recipe(tmp_path, wordpiece(), overwrite=overwrite), engine=HERE)
    assert other.read_bytes() == before


def test_shards_may_lie_beside_their_own_tokenizer(tmp_path: Path) -> None:
    assert shard(recipe(tmp_path, wordpiece(), out=tmp_path), engine=HERE).manifest is not None


def test_another_tokenizer_shards_anew_and_is_refused_by_the_old_shards(tmp_path: Path) -> None:
    first = shard(recipe(tmp_path, wordpiece()), engine=HERE)
    second = shard(recipe(tmp_path, unigram()), engine=HERE)
    assert first.manifest is not None
    assert second.manifest is not None
    old, new = first.manifest["tokenizer"]["sha256"], second.manifest["tokenizer"]["sha256"]
    assert open_shards(tmp_path / "shards", tokenizer_sha256=new).tokenizer_sha256 == new
    with raises(ShardError, code="tokenizer-mismatch", value=new, mentions=old[:8]):
        open_shards(tmp_path / "shards", tokenizer_sha256=old)


def test_a_damaged_file_of_records_fails_alone_and_leaves_no_manifest(tmp_path: Path) -> None:
    made = recipe(tmp_path, wordpiece())
    whole = (tmp_path / "records" / "one.parquet").read_bytes()
    (tmp_path / "records" / "one.parquet").write_bytes(whole[:-200])
    done = shard(made, engine=HERE)
    assert list(done.failures) == ["one"]
    with raises(ShardError, code="missing-manifest"):
        open_shards(tmp_path / "shards")
    (tmp_path / "records" / "one.parquet").write_bytes(whole)
    assert shard(made, engine=HERE).manifest is not None


def test_a_run_that_is_cut_short_leaves_no_manifest_of_earlier_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = recipe(tmp_path, wordpiece())
    shard(made, engine=HERE)

    def cut_short(*given: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("lexome.corpus.shards.run", cut_short)
    with pytest.raises(KeyboardInterrupt):
        shard(made.model_copy(update={"held_out": 0.5, "overwrite": True}), engine=HERE)
    with raises(ShardError, code="missing-manifest"):
        open_shards(tmp_path / "shards")


def test_ids_that_are_left_out_count_for_the_width_of_tokens(tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "The": 1, "heart": 70_000}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    done = shard(recipe(tmp_path, tokenizer), engine=HERE)
    assert (done.failures, done.manifest and done.manifest["tokenizer"]["pieces"]) == ({}, 70_001)
    assert 70_000 in open_shards(tmp_path / "shards").train[0].tokens


def test_a_file_of_any_name_can_be_sharded(tmp_path: Path) -> None:
    lexome.write(tmp_path / "x.jsonl", DOCS)
    (tmp_path / "text").mkdir()
    (tmp_path / "x.jsonl").rename(tmp_path / "text" / os.fsdecode(b"\xff one.jsonl"))
    shard(recipe(tmp_path, wordpiece(), inputs=(tmp_path / "text",)), engine=HERE)
    assert [one.name for one in open_shards(tmp_path / "shards").train] == ["\\xff one"]


def test_shards_that_do_not_fit_their_manifest_are_refused(tmp_path: Path) -> None:
    shard(recipe(tmp_path, wordpiece()), engine=HERE)
    path = tmp_path / "shards" / "train" / "one.tokens"
    path.write_bytes(path.read_bytes()[:-2])
    with raises(ShardError, code="truncated-shard", mentions="one.tokens"):
        open_shards(tmp_path / "shards")
    path.unlink()
    with raises(ShardError, code="truncated-shard"):
        open_shards(tmp_path / "shards")


@pytest.mark.parametrize(
    ("content", "code"),
    [("{", "bad-manifest"), ("[]", "bad-manifest"), ('{"form": "lexome.shards", "version": 99}', "shard-version")],
)
def test_a_strange_manifest_is_refused(tmp_path: Path, content: str, code: str) -> None:
    (tmp_path / "manifest.json").write_text(content)
    with raises(ShardError, code=code):
        open_shards(tmp_path)


def test_a_folder_without_tokenizer_is_refused(tmp_path: Path) -> None:
    made = recipe(tmp_path, wordpiece()).model_copy(update={"tokenizer": tmp_path / "records"})
    with raises(ShardError, code="missing-tokenizer"):
        shard(made, engine=HERE)


def test_a_tokenizer_file_that_is_none_fails_with_its_name(tmp_path: Path) -> None:
    made = recipe(tmp_path, wordpiece())
    (tmp_path / "tokenizer.json").write_text("{}")
    done = shard(made, engine=HERE)
    assert "tokenizer.json" in done.failures["one"]


def test_any_format_can_be_sharded(tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    lexome.write(tmp_path / "text" / "plain.jsonl.gz", DOCS)
    tokenizer = wordpiece()
    shard(recipe(tmp_path, tokenizer, inputs=(tmp_path / "text",), out=tmp_path / "plain"), engine=HERE)
    shard(recipe(tmp_path, tokenizer), engine=HERE)
    (plain,) = open_shards(tmp_path / "plain").train
    parts = [one.tokens for one in open_shards(tmp_path / "shards").train]
    assert plain.tokens.tolist() == np.concatenate(parts).tolist()


def test_columns_and_documents_give_the_same_text(tmp_path: Path) -> None:
    docs = [*DOCS, Document("bare"), Document("empty", (Passage(0, ""),)), Document("gap", (Passage(9, "One. Two."),))]
    lexome.write(tmp_path / "a.parquet", docs)
    assert list(read_texts((tmp_path / "a.parquet",))) == [split_document(doc) for doc in docs]


@pytest.mark.parametrize("passages", ["a text", {"text": "a text"}])
def test_a_table_whose_passages_are_not_ours_is_refused_by_its_reader(tmp_path: Path, passages: object) -> None:
    pq.write_table(pa.table({"id": ["1"], "passages": [[passages]]}), tmp_path / "a.parquet")
    with raises(FormatError, code="bad-schema"):
        list(read_texts((tmp_path / "a.parquet",)))


def test_pieces_joined_are_the_passage_again() -> None:
    doc = Document("x", (Passage(5, "  One.  Two. ", sentences=((7, 11), (13, 17))),))
    assert split_document(doc) == SentenceText("x", ("  One.", "  Two. "))


def test_damaged_records_are_named(tmp_path: Path) -> None:
    lexome.write(tmp_path / "a.parquet", DOCS)
    raw = bytearray((tmp_path / "a.parquet").read_bytes())
    raw[20:60] = bytes(40)
    (tmp_path / "a.parquet").write_bytes(raw)
    with raises(FormatError, code="damaged", value=tmp_path / "a.parquet"):
        list(read_texts((tmp_path / "a.parquet",)))


def test_the_manifest_is_plain_json(tmp_path: Path) -> None:
    shard(recipe(tmp_path, wordpiece()), engine=HERE)
    assert json.loads((tmp_path / "shards" / "manifest.json").read_text())["dtype"] == "<u2"
