"""BioCreative II gene mention: offsets that leave out spaces, files in any order."""

from itertools import permutations
from pathlib import Path

import pytest
from errors import raises
from hypothesis import given
from hypothesis import strategies as st
from memory_files import sources_of
from strategies import texts

import lexome
from lexome import Document, Passage, Span, Tally
from lexome.errors import BadDocument
from lexome.formats import bc2gm

SENTENCES = ("t.in", "S1 The  zorin kinase|x binds.\nS2 Nothing here\n")
GENES = ("GENE.eval", "S1|3 13|zorin kinase\n")
ALTERNATIVES = ("x/altGene.eval", "S1|3 7|zorin\nS1|8 15|kinase|x\n")


def read(*files: tuple[str, str | bytes], tally: Tally | None = None, **options: object) -> list[Document]:
    return list(bc2gm.read(iter(sources_of(*files)), tally=tally or Tally(), **options))  # type: ignore[arg-type]


@pytest.mark.parametrize("files", list(permutations((SENTENCES, GENES, ALTERNATIVES))))
def test_mentions_find_their_sentences_in_whatever_order_files_come(files: tuple[tuple[str, str], ...]) -> None:
    assert read(*files) == [
        Document(
            "S1",
            (Passage(0, "The  zorin kinase|x binds.", "sentence"),),
            (
                Span("T1", "GENE", ((5, 17),), "zorin kinase"),
                Span("T2", "ALTGENE", ((5, 10),), "zorin"),
                Span("T3", "ALTGENE", ((11, 19),), "kinase|x"),
            ),
        ),
        Document("S2", (Passage(0, "Nothing here", "sentence"),)),
    ]


def test_sentences_alone_are_documents_without_mentions() -> None:
    tally = Tally()
    assert [doc.spans for doc in read(SENTENCES, ("README", "x"), tally=tally)] == [(), ()]
    assert tally.notes == {"file that is neither .in nor .eval skipped": 1}


def test_files_beside_the_one_named_are_read_too(tmp_path: Path) -> None:
    for name, text in (("train.in", SENTENCES[1]), ("GENE.eval", GENES[1]), ("ALTGENE.eval", ALTERNATIVES[1])):
        (tmp_path / name).write_text(text)
    assert [len(doc.spans) for doc in lexome.read(tmp_path / "train.in")] == [3, 0]
    assert [len(doc.spans) for doc in lexome.read(tmp_path)] == [3, 0]


def test_only_the_space_is_left_out_of_the_count() -> None:
    (doc,) = read(("a.in", "S1 a\u00a0b\tc d"), ("GENE.eval", "S1|4 5|c d\n"))
    assert doc.spans[0].parts == ((4, 7),)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("S1|3 12|zorin kinase", "offset_mismatch"),
        ("S1|300 310|zorin kinase", "bad_offset"),
        ("S1|9 3|zorin", "bad_span"),
        ("S1 3 12 zorin", "bad_line"),
        ("S1|3|zorin", "bad_line"),
        ("S9|3 7|zorin", "unknown_target"),
    ],
)
def test_a_bad_mention_is_set_aside_with_its_sentence_or_alone(tmp_path: Path, line: str, reason: str) -> None:
    with Tally(tmp_path / "rejects.jsonl") as tally:
        ids = [doc.id for doc in read(SENTENCES, ("GENE.eval", line), tally=tally)]
    assert tally.rejected == {reason: 1}
    assert ids == (["S1", "S2"] if reason in ("bad_line", "unknown_target") else ["S2"])


def test_a_sentence_given_twice_is_rejected() -> None:
    with raises(BadDocument, code="duplicate_id"):
        read(SENTENCES, SENTENCES)


def test_offsets_that_miss_are_repaired_where_asked() -> None:
    tally = Tally()
    docs = read(SENTENCES, ("GENE.eval", "S1|5 13|zorin kinase\nS1|99 120|other"), tally=tally, offsets="repair")
    assert [span.parts for span in docs[0].spans] == [((5, 17),)]
    assert sum(tally.notes.values()) == 2


@given(texts(lambda c: c != "\n", min_size=1).filter(lambda text: text.strip(" ") == text), st.data())
def test_any_mention_is_found_again(text: str, data: st.DataObject) -> None:
    text = text.rstrip("\r") or "x"  # before a line end it would be part of that
    counted = [place for place, character in enumerate(text) if character != " "]
    first = data.draw(st.integers(0, len(counted) - 1))
    last = data.draw(st.integers(first, len(counted) - 1))
    mention = text[counted[first] : counted[last] + 1]
    ended = mention + "\r" if mention.endswith("\r") else mention
    (doc,) = read(("a.in", f"S1 {text}\n"), ("GENE.eval", f"S1|{first} {last}|{ended}\n"))
    assert (doc.text, doc.spans[0].text) == (text, mention)


@given(st.binary(max_size=100), st.sampled_from([b"", b"S1|0 3|", b"S1|"]))
def test_no_bytes_break_the_reader(tmp_path_factory: pytest.TempPathFactory, raw: bytes, start: bytes) -> None:
    with Tally(tmp_path_factory.mktemp("bc2gm") / "rejects.jsonl") as tally:
        for doc in read(("a.in", b"S1 zorin\n" + raw), ("GENE.eval", start + raw), tally=tally):
            assert all(doc.text_of(span) == span.text for span in doc.spans)


def test_the_official_test_set_reads_whole(real_data: Path) -> None:
    tally = Tally()
    list(lexome.read(real_data / "benchmarks" / "BC2GM" / "official" / "test", tally=tally))
    assert (tally.documents, tally.spans) == (5000, {"GENE": 6331, "ALTGENE": 5068})
    columns = Tally()
    list(lexome.read(real_data / "benchmarks" / "BC2GM" / "test.tsv.xz", tally=columns))
    assert columns.spans == {"Entity": 6325}, "the columns of the papers hold six mentions fewer"


def test_the_official_training_set_has_four_offsets_that_miss(real_data: Path, tmp_path: Path) -> None:
    path = real_data / "benchmarks" / "BC2GM" / "official" / "train" / "train.in.xz"
    with Tally(tmp_path / "rejects.jsonl") as strict:
        list(lexome.read(path, tally=strict))
    assert (strict.documents, strict.rejected) == (14996, {"offset_mismatch": 4})
    tally = Tally()
    list(lexome.read(path, tally=tally, offsets="repair"))
    assert (tally.documents, tally.spans) == (15000, {"GENE": 18265, "ALTGENE": 14499})
    assert tally.notes == {"span moved to its text": 4}


@pytest.mark.parametrize("line", ["hello", "@@@", "S1 ", " Nothing here"])
def test_a_line_without_an_id_and_a_sentence_is_rejected(tmp_path: Path, line: str) -> None:
    with Tally(tmp_path / "rejects.jsonl") as tally:
        docs = read(("t.in", f"{line}\nS2 Nothing here\n"), tally=tally)
    assert [doc.id for doc in docs] == ["S2"]
    assert tally.rejected == {"bad_line": 1}
