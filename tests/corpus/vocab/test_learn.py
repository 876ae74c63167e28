"""Vocabularies learned from a small text: what they keep, and that the same text gives the same bytes."""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from errors import raises
from tokenizers import Tokenizer

import lexome
from lexome import Document, Passage
from lexome.corpus.vocab.learn import LearnedVocab, learn_vocab
from lexome.corpus.vocab.tokenizers import GREEK, SYMBOLS, tokenizer_sha256
from lexome.errors import FormatError, LexomeError, RecipeError, UsageError
from lexome.recipe.corpus_stages import Kind, VocabRecipe

KINDS: tuple[Kind, ...] = ("wordpiece", "byte-bpe", "sentencepiece-bpe", "sentencepiece-unigram")

SENTENCES = (
    "Zorin-alpha inhibits the kinase BRK2 in ♂ and ♀ mice.",
    "Levels of β-catenin were ≤ 5 µM, whereas TNFα rose (p < 0.01).",
    "The inhibitors of kinases inhibit inhibition; inhibitory kinases do not.",
    "Naïve cells of Ångström size were treated with hydroxyzorin.",
    "Hydroxyzorin and methylhydroxyzorin were given to mice with catenin.",
)

ODD = (
    "♂ and ♀: β-catenin ≤ 5 µM, 10⁻⁶ M",
    "  two  spaces\tand a tab\n\nand lines ",
    "naïve İstanbul straße ΑΣΣ ς",
    "中文 text",
    "e\u0301 is not é",
    "[MASK] or <mask> or [UNK]",
    "",
    " ",
    "😀 zero\u200bwidth \u00ad \x00 \ufeff",
)


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """Forty documents as `lexome build` leaves them, in two files."""
    docs = [
        Document(f"d{number}", (Passage(0, SENTENCES[number % 5]), Passage(200, SENTENCES[number * 2 % 5])))
        for number in range(40)
    ]
    folder = tmp_path / "records"
    lexome.write(folder / "a.parquet", docs[:25])
    lexome.write(folder / "b.parquet", docs[25:])
    return folder


@pytest.fixture
def learn(records: Path, tmp_path: Path) -> Callable[..., LearnedVocab]:
    """learn_vocab on the records, with settings."""

    def learned(kind: Kind = "wordpiece", **settings: object) -> LearnedVocab:
        given: dict[str, object] = {"inputs": [records], "out": tmp_path / kind, "size": 700, **settings}
        return learn_vocab(VocabRecipe.model_validate({"stage": "learn-vocab", "kind": kind, **given}))

    return learned


@pytest.mark.parametrize("kind", KINDS)
def test_transformers_encodes_as_the_tokenizer_file_does(
    kind: Kind, learn: Callable[..., LearnedVocab], monkeypatch: pytest.MonkeyPatch
) -> None:
    transformers = pytest.importorskip("transformers")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    made = learn(kind, max_length=128)
    theirs = transformers.AutoTokenizer.from_pretrained(made.folder)
    ours = Tokenizer.from_file(str(made.folder / "tokenizer.json"))
    for text in (*SENTENCES, *ODD):
        assert theirs(text)["input_ids"] == ours.encode(text).ids
        assert theirs(text, "a pair")["input_ids"] == ours.encode(text, "a pair").ids
    assert (theirs.model_max_length, len(theirs)) == (128, made.pieces)
    for name in ("pad", "unk", "cls", "sep", "mask"):
        assert getattr(theirs, f"{name}_token_id") == ours.token_to_id(getattr(theirs, f"{name}_token")) is not None


@pytest.mark.parametrize("kind", KINDS)
def test_no_symbol_of_the_field_is_unknown(kind: Kind, learn: Callable[..., LearnedVocab]) -> None:
    tokenizer = Tokenizer.from_file(str(learn(kind).folder / "tokenizer.json"))
    unknown = {tokenizer.token_to_id("[UNK]"), tokenizer.token_to_id("<unk>")}
    for text in (*SENTENCES, *GREEK, *SYMBOLS):
        assert not unknown & set(tokenizer.encode(text, add_special_tokens=False).ids), text


@pytest.mark.parametrize("kind", ["wordpiece", "sentencepiece-bpe", "sentencepiece-unigram"])
def test_frequent_words_become_one_piece_and_case_is_kept(kind: Kind, learn: Callable[..., LearnedVocab]) -> None:
    tokenizer = Tokenizer.from_file(str(learn(kind).folder / "tokenizer.json"))
    tokens = tokenizer.encode("the kinase BRK2", add_special_tokens=False).tokens
    assert [token.removeprefix("▁") for token in tokens] == ["the", "kinase", "BRK2"]


@pytest.mark.parametrize("kind", KINDS)
def test_text_comes_back_from_its_pieces(kind: Kind, learn: Callable[..., LearnedVocab]) -> None:
    tokenizer = Tokenizer.from_file(str(learn(kind).folder / "tokenizer.json"))
    back = tokenizer.decode(tokenizer.encode(SENTENCES[1]).ids)
    if kind == "wordpiece":  # which does not know where spaces were
        assert back.replace(" ", "") == SENTENCES[1].replace(" ", "")
    else:
        assert back == SENTENCES[1]


def test_uncased_drops_case_and_accents(learn: Callable[..., LearnedVocab]) -> None:
    tokenizer = Tokenizer.from_file(str(learn(cased=False).folder / "tokenizer.json"))
    assert tokenizer.encode("NAÏVE").tokens == ["[CLS]", "naive", "[SEP]"]


@pytest.mark.parametrize("kind", KINDS)
def test_fresh_processes_with_other_threads_and_hash_seeds_write_the_same_bytes(
    kind: Kind, records: Path, tmp_path: Path
) -> None:
    code = (
        "import sys; from lexome.corpus.vocab.learn import learn_vocab; "
        "from lexome.recipe.corpus_stages import VocabRecipe; "
        "learn_vocab(VocabRecipe(stage='learn-vocab', kind=sys.argv[1], inputs=[sys.argv[2]], out='vocab', size=600))"
    )
    written = []
    for threads in ("1", "2", "2"):
        folder = tmp_path / f"run{len(written)}"
        folder.mkdir()
        environment = {**os.environ, "RAYON_NUM_THREADS": threads, "PYTHONHASHSEED": str(len(written) + 1)}
        subprocess.run([sys.executable, "-c", code, kind, records], cwd=folder, env=environment, check=True)
        written.append({path.name: path.read_bytes() for path in (folder / "vocab").iterdir()})
    assert written[0] == written[1] == written[2]


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_documents_and_files_does_not_matter(
    kind: Kind, learn: Callable[..., LearnedVocab], records: Path, tmp_path: Path
) -> None:
    docs = list(lexome.read(records))
    lexome.write(tmp_path / "turned.jsonl", reversed(docs))
    settings = {"sample_documents": 20, "seed": 3}
    first = learn(kind, **settings)
    second = learn(kind, inputs=[tmp_path / "turned.jsonl"], out=tmp_path / "other", **settings)
    assert first.sha256 == second.sha256
    assert 15 <= first.documents <= 25


def test_a_sample_is_another_with_another_seed_and_holds_what_was_asked_for(learn: Callable[..., LearnedVocab]) -> None:
    made = [learn(out=f"s{seed}", sample_megabytes=0.002, seed=seed) for seed in range(2)]
    assert made[0].sha256 != made[1].sha256
    assert all(1_500 < one.text_bytes < 2_500 for one in made)


@pytest.fixture(autouse=True)
def _in_a_scratch_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_plain_text_is_enough(learn: Callable[..., LearnedVocab], tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("\n".join(SENTENCES))
    assert learn(inputs=[file]).documents == 1
    assert learn(inputs=[file], format="text", out="lines").documents == 5


def test_a_sample_may_come_from_a_file_of_any_name(learn: Callable[..., LearnedVocab], tmp_path: Path) -> None:
    (tmp_path / "odd").mkdir()
    file = tmp_path / "odd" / os.fsdecode(b"not utf-8 \xff.jsonl")  # which is also the document's id
    file.write_text(json.dumps({"text": SENTENCES[0]}))
    assert learn(inputs=[tmp_path / "odd"], sample_documents=1).documents == 1


def test_a_document_without_text_and_a_damaged_file(learn: Callable[..., LearnedVocab], tmp_path: Path) -> None:
    file = tmp_path / "some.parquet"
    lexome.write(file, [Document("1"), Document("2", (Passage(0, SENTENCES[0]),)), Document("3")])
    assert learn("byte-bpe", inputs=[file]).documents == 3
    file.write_bytes(file.read_bytes()[:-10])
    with raises(FormatError, code="bad-parquet", mentions="some.parquet"):
        learn(inputs=[file], out="other")


def test_the_same_again_is_nothing_to_do_and_something_else_is_refused(
    learn: Callable[..., LearnedVocab], tmp_path: Path
) -> None:
    first = learn()
    assert first.new
    before = {path: path.stat().st_mtime_ns for path in first.folder.iterdir()}
    again = learn()
    assert (again.new, again.sha256, again.pieces) == (False, first.sha256, first.pieces)
    assert {path: path.stat().st_mtime_ns for path in first.folder.iterdir()} == before
    with raises(UsageError, code="other-settings"):
        learn(size=420)
    other = learn(size=420, overwrite=True)
    assert other.new
    assert other.sha256 == tokenizer_sha256(other.folder) != first.sha256
    assert [path.name for path in tmp_path.glob(".*")] == []


def test_a_folder_of_somebody_else_is_never_replaced(learn: Callable[..., LearnedVocab], tmp_path: Path) -> None:
    mine = tmp_path / "thesis"
    mine.mkdir()
    (mine / "chapter.txt").write_text("years of work")
    with raises(UsageError, code="foreign-output"):
        learn(out=mine, overwrite=True)
    assert (mine / "chapter.txt").read_text() == "years of work"


def test_a_tokenizer_that_was_changed_is_not_taken_for_the_one_learned(learn: Callable[..., LearnedVocab]) -> None:
    file = learn().folder / "tokenizer.json"
    file.write_text(file.read_text().replace("kinase", "kinsae"))
    with raises(UsageError, code="other-settings", mentions="tokenizer.json"):
        learn()


def test_a_source_tree_that_is_not_installed_can_learn(
    learn: Callable[..., LearnedVocab], monkeypatch: pytest.MonkeyPatch
) -> None:
    def installed(name: str) -> str:
        if name == "lexome":
            raise PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr("lexome.corpus.vocab.learn.version", installed)
    run = json.loads((learn().folder / "lexome.json").read_bytes())
    assert run["versions"]["lexome"] == lexome.__version__


def test_the_run_file_says_what_was_made(learn: Callable[..., LearnedVocab]) -> None:
    made = learn("sentencepiece-unigram")
    run = json.loads((made.folder / "lexome.json").read_text())
    assert run["recipe"]["kind"] == "sentencepiece-unigram"
    assert (run["documents"], run["pieces"], run["sha256"]) == (40, made.pieces, made.sha256)
    assert set(run["versions"]) == {"lexome", "tokenizers", "sentencepiece"}


@pytest.mark.parametrize(
    ("settings", "error", "code"),
    [
        ({"size": 300}, RecipeError, "vocabulary-too-small"),
        ({"inputs": ["nowhere"]}, FormatError, "missing-file"),
    ],
)
def test_what_cannot_be_learned_says_why(
    settings: dict[str, object], error: type[LexomeError], code: str, learn: Callable[..., LearnedVocab]
) -> None:
    with raises(error, code=code):
        learn(**settings)


def test_files_without_text_are_an_error(learn: Callable[..., LearnedVocab], tmp_path: Path) -> None:
    lexome.write(tmp_path / "empty.jsonl", [Document("1")])
    with raises(FormatError, code="no-text"):
        learn(inputs=[tmp_path / "empty.jsonl"])


def test_a_vocabulary_that_finds_no_room_leaves_nothing(learn: Callable[..., LearnedVocab], tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with raises(FormatError, code="not-writable"):
            learn()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [path.name for path in tmp_path.iterdir()] == ["records"]
