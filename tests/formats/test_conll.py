"""CoNLL columns: every scheme read and written, tokens kept to the character, nothing widened or lost unsaid."""

import io
import json
import lzma
import re
from bisect import bisect_left
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from errors import raises
from hypothesis import given
from hypothesis import strategies as st
from memory_files import source_of
from shared_data import DATA
from strategies import TRICKY, documents, texts

import lexome
from lexome import Document, Passage, Relation, Span, Tally
from lexome.errors import BadDocument, FormatError
from lexome.formats import conll
from lexome.formats.streams import Source

SCHEMES = ["iob1", "iob2", "iobes", "io"]


def source(text: str | bytes, name: str = "train.tsv") -> Source:
    return source_of(name, text)


def read(text: str | bytes, tally: Tally | None = None, **options: object) -> list[Document]:
    return list(conll.read(source(text), tally=tally or Tally(), **options))  # type: ignore[arg-type]


def written(docs: list[Document], tally: Tally | None = None, **options: object) -> str:
    stream = io.BytesIO()
    conll.write(docs, stream, tally=tally or Tally(), **options)  # type: ignore[arg-type]
    return stream.getvalue().decode()


def mentions(doc: Document) -> list[tuple[str, str]]:
    return [(span.type, span.text) for span in doc.spans]


def sentence(text: str, *spans: Span, **facts: object) -> Document:
    return Document("d1", (Passage(0, text, "sentence", **facts),), spans)  # type: ignore[arg-type]


def test_a_sentence_becomes_text_with_tokens_and_mentions() -> None:
    (doc,) = read("Zorin\tB-Gene\nkinase\tI-Gene\nbinds\tO\nκ\tB-Gene\n")
    assert doc.id == "train-1"
    passage = Passage(
        0, "Zorin kinase binds κ", "sentence", sentences=((0, 20),), tokens=((0, 5), (6, 12), (13, 18), (19, 20))
    )
    assert doc.passages == (passage,)
    assert mentions(doc) == [("Gene", "Zorin kinase"), ("Gene", "κ")]


def test_without_docstart_each_sentence_is_a_document_named_by_its_line() -> None:
    assert [doc.id for doc in read("\na\tO\nb\tO\n\n\nc\tO")] == ["train-2", "train-6"]


@pytest.mark.parametrize(
    ("line", "id"),
    [
        ("-DOCSTART- (10037531)", "10037531"),
        ("-DOCSTART- (a (b) c)\tO", "a (b) c"),
        ("-DOCSTART-\tO", "train-1"),
        ("-DOCSTART- -X- O O", "train-1"),
        ("-DOCSTART-", "train-1"),
    ],
)
def test_docstart_in_any_form_begins_a_document(line: str, id: str) -> None:
    docs = read(f"{line}\n\na\tO\n\nb\tB\nc\tI\n\n-DOCSTART- (2)\n\nd\tO\n")
    assert [doc.id for doc in docs] == [id, "2"]
    assert docs[0].passages[0].text == "a\nb c"
    assert docs[0].passages[0].sentences == ((0, 1), (2, 5))
    assert docs[0].passages[0].kind == "paragraph"
    assert mentions(docs[0]) == [("Entity", "b c")]


def test_a_document_without_tokens_is_still_a_document() -> None:
    assert read("-DOCSTART- (1)\n\n-DOCSTART- (2)\n") == [Document("1"), Document("2")]


def test_columns_between_are_passed_over_and_noted() -> None:
    tally = Tally()
    (doc,) = read("Zorin NN  x I-INT\nhelps VB x O\n", tally)
    assert mentions(doc) == [("INT", "Zorin")]
    assert tally.notes["columns between token and tag ignored"] == 1


@pytest.mark.parametrize(
    "odd", ["\u00a0", "\u0085", "\u200b", "\u2028", "\x1c", "\r", "e\u0301", "👩\u200d🔬", '"', "#"]
)
def test_tokens_of_odd_characters_survive(odd: str) -> None:
    (doc,) = read(f"a\tO\n{odd}\tB-X\nb\tO\n")
    assert mentions(doc) == [("X", odd)]
    assert doc.passages[0].text == f"a {odd} b"


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("B-X I-X I-X", ["a b"]),
        ("B-X O I-X", ["a", "b"]),
        ("I-X B-X I-X", ["a", "b"]),
        ("I-X I-Y I-X", ["a", "b"]),
        ("O B-X O", []),
        ("B-X E-X E-X", ["a", "b"]),
    ],
)
def test_a_line_that_lost_its_token_still_tells_mentions_apart(tags: str, expected: list[str]) -> None:
    tally = Tally()
    (doc,) = read("".join(f"{word}\t{tag}\n" for word, tag in zip(("a", "", "b"), tags.split(), strict=True)), tally)
    assert doc.text == "a b"
    assert [text for _, text in mentions(doc)] == expected
    assert tally.notes["line without a token skipped"] == 1


def test_windows_line_ends_and_a_bom_are_not_text() -> None:
    (first, second) = read(b"\xef\xbb\xbfa\tB\r\n\r\nb\tO\r\n")
    assert (first.text, second.text) == ("a", "b")


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("B I B O", ["a b", "c"]),  # IOB2
        ("I I B O", ["a b", "c"]),  # IOB1
        ("I I O I", ["a b", "d"]),  # IO
        ("B E S O", ["a b", "c"]),  # IOBES
        ("B I L U", ["a b c", "d"]),  # BILOU
        ("B M E W", ["a b c", "d"]),  # BMEWO
        ("S I O E", ["a", "b", "d"]),
        ("B-x I-y I-y B-y", ["a", "b c", "d"]),
    ],
)
def test_every_scheme_reads_as_conlleval_reads_it(tags: str, expected: list[str]) -> None:
    (doc,) = read("".join(f"{word}\t{tag}\n" for word, tag in zip("abcd", tags.split(), strict=True)))
    assert [text for _, text in mentions(doc)] == expected


def test_an_i_without_a_b_is_noted_unless_the_scheme_is_so() -> None:
    notes = {}
    for scheme in ("auto", "iob2", "iob1", "io"):
        tally = Tally()
        assert mentions(read("a\tI-X\nb\tO\nc\tI-X\nd\tI-Y\n", tally, scheme=scheme)[0]) == [
            ("X", "a"),
            ("X", "c"),
            ("Y", "d"),
        ]
        notes[scheme] = tally.notes["I without B"]
    assert notes == {"auto": 3, "iob2": 3, "iob1": 0, "io": 0}


def test_a_mention_that_iobes_leaves_open_is_noted() -> None:
    tally = Tally()
    (doc,) = read("a\tB-X\nb\tI-X\nc\tO\nd\tB-X\n", tally, scheme="iobes")
    assert mentions(doc) == [("X", "a b"), ("X", "d")]
    assert tally.notes["B without E"] == 2


@pytest.mark.parametrize(
    ("text", "reason", "mentions"),
    [
        ("a\tO\nb\tQ-Gene\n", "bad_tag", "line 2"),
        ("a\tGene-B\n", "bad_tag", "line 1"),
        ("a\tO-Gene\n", "bad_tag", "line 1"),
        ("a\tb-Gene\n", "bad_tag", "line 1"),
        ("\n\na\n", "one_column", "line 3"),
        ("-DOCSTART- (1)\n\na\tO\nb\tX\n", "bad_tag", "line 4"),
        (b"a\tO\n\xff\tO\n", "wrong_encoding", "0xff"),
    ],
)
def test_a_bad_line_costs_its_document_and_says_where(tmp_path: Path, text: str, reason: str, mentions: str) -> None:
    with raises(BadDocument, code=reason, mentions=mentions):
        read(text)
    with Tally(tmp_path / "rejects.jsonl") as tally:
        raw = text if isinstance(text, bytes) else text.encode()
        assert read(raw + b"\n-DOCSTART- (good)\n\nb\tO\n", tally)[-1].id == "good"
    assert tally.rejected == {reason: 1}


def test_letters_are_checked_where_a_scheme_is_named() -> None:
    for scheme, tag in (("io", "B-X"), ("iob1", "S-X"), ("iob2", "E-X")):
        with raises(BadDocument, code="bad_tag", value=tag):
            read(f"a\t{tag}\n", scheme=scheme)


def test_task_tokens_are_left_out_and_noted_unless_kept() -> None:
    text = "<ALL>\tO\na\tB-X\n</ALL>\tO\n\n<ALL>\tO\nb\tO\n"
    tally = Tally()
    assert [doc.text for doc in read(text, tally)] == ["a", "<ALL> b"]
    assert tally.notes["task token removed"] == 2
    assert [doc.text for doc in read(text, task_tokens=True)] == ["<ALL> a </ALL>", "<ALL> b"]


def test_the_type_of_bare_tags_is_an_option() -> None:
    assert mentions(read("a\tB\n", type="Disease")[0]) == [("Disease", "a")]


def test_a_document_is_written_with_its_id_and_tags() -> None:
    doc = sentence("Zorin kinase binds it.", Span("T1", "Gene", ((0, 12),), "Zorin kinase"))
    assert written([doc]) == "-DOCSTART- (d1)\tO\n\nZorin\tB-Gene\nkinase\tI-Gene\nbinds\tO\nit\tO\n.\tO\n\n"
    assert written([doc], scheme="iobes", docstart=False, types=False, separator="space").startswith(
        "Zorin B\nkinase E\n"
    )


def test_tokens_are_cut_where_a_mention_ends_so_that_none_is_widened() -> None:
    tally = Tally()
    doc = sentence("a 5-HT6 site", Span("T1", "Chem", ((2, 6),), "5-HT"), tokens=((0, 1), (2, 7), (8, 12)))
    (back,) = read(written([doc], tally))
    assert mentions(back) == [("Chem", "5-HT")]
    assert back.text == "a 5-HT 6 site"
    assert tally.notes["token split at the boundary of a mention, sentence or column"] == 1


def test_the_longest_of_overlapping_mentions_is_kept_and_the_rest_noted() -> None:
    tally = Tally()
    spans = (
        Span("T1", "Gene", ((0, 5),), "human"),
        Span("T2", "Gene", ((0, 15),), "human zorin six"),
        Span("T3", "Gene", ((6, 19),), "zorin six low"),
        Span("T4", "Gene", ((0, 5), (16, 19)), "human low"),
    )
    (back,) = read(written([sentence("human zorin six low", *spans)], tally))
    assert mentions(back) == [("Gene", "human zorin six")]
    assert tally.notes["overlapping span not written"] == 2
    assert tally.notes["discontinuous span not written"] == 1


def test_a_mention_across_sentences_joins_them_rather_than_being_two() -> None:
    tally = Tally()
    text = "It is St. Zorin fire. Next one."
    doc = sentence(text, Span("T1", "D", ((6, 20),), "St. Zorin fire"), sentences=((0, 9), (10, 21), (22, 31)))
    (back,) = read(written([doc], tally))
    assert mentions(back) == [("D", "St . Zorin fire")]
    assert len(back.passages[0].sentences) == 2
    assert tally.notes["sentences merged: a mention crosses their boundary"] == 1


def test_touching_mentions_of_one_type_survive_all_schemes_but_io() -> None:
    doc = read("-DOCSTART- (1)\na\tB-X\nb\tB-X\nc\tI-X\nd\tB-Y\n")[0]
    for scheme in ("iob1", "iob2", "iobes"):
        assert read(written([doc], scheme=scheme)) == [doc]
    tally = Tally()
    (merged,) = read(written([doc], tally, scheme="io"))
    assert mentions(merged) == [("X", "a b c"), ("Y", "d")]
    assert tally.notes["adjacent spans of one type written as one"] == 1


def test_touching_mentions_of_two_types_stay_apart_where_types_are_not_written() -> None:
    doc = read("-DOCSTART- (1)\na\tB-X\nb\tB-Y\n")[0]
    (back,) = read(written([doc], scheme="iob1", types=False))
    assert mentions(back) == [("Entity", "a"), ("Entity", "b")]


def test_text_that_tokens_leave_out_is_written_too() -> None:
    doc = sentence("one two, three", Span("T1", "N", ((4, 14),), "two, three"), tokens=((0, 3), (9, 14)))
    (back,) = read(written([doc]))
    assert back.text == "one two , three"
    assert mentions(back) == [("N", "two , three")]


def test_a_token_that_looks_like_the_beginning_of_a_document_is_cut() -> None:
    doc = sentence("a -DOCSTART- b", tokens=((0, 1), (2, 12), (13, 14)))
    assert [back.text for back in read(written([doc]))] == ["a - DOCSTART- b"]


def test_a_bom_that_is_text_is_not_lost() -> None:
    doc = sentence("\ufeffa", Span("T1", "X", ((0, 2),), "\ufeffa"), tokens=((0, 2),))
    assert mentions(read(written([doc], docstart=False))[0]) == [("X", "\ufeffa")]


def test_what_columns_cannot_hold_is_noted() -> None:
    tally = Tally()
    doc = Document(
        "d",
        (Passage(0, "Title", "title"), Passage(6, "Text")),
        (Span("T1", "X", ((0, 5),), "Title", ("mesh:D1",), 0.5),),
        (Relation("R1", "r", ()),),
        labels=("a",),
        meta=lexome.Metadata(pmid="1"),
    )
    assert read(written([doc], tally))[0].text == "Title\nText"
    assert {note.removesuffix(" not written") for note in tally.notes} == {
        "relations", "labels", "metadata", "concepts", "scores", "passage offsets", "passage kinds and sections",
    }  # fmt: skip


@pytest.mark.parametrize("doc", [
    Document("a\tb"), Document("a\nb"), Document("\ud800"), sentence("a", Span("T1", "a\tb", ((0, 1),), "a")),
    sentence("a", Span("T1", "b ", ((0, 1),), "a")),
])  # fmt: skip
def test_ids_and_types_that_would_break_the_columns_are_refused(doc: Document) -> None:
    with pytest.raises(BadDocument):
        written([doc])


def in_one_column(character: str) -> bool:
    return character not in "\t\n" and not "\ud800" <= character <= "\udfff"


WORDS = st.one_of(
    st.sampled_from([piece for piece in TRICKY if all(map(in_one_column, piece)) and piece != "-DOCSTART-"]),
    st.text(st.characters(codec="utf-8", exclude_characters="\t\n"), min_size=1, max_size=3),
)


@st.composite
def from_columns(draw: st.DrawFn, *, touching: bool) -> Document:
    """A document as the reader makes them: sentences of tokens, mentions of whole tokens."""
    kinds = st.sampled_from(["Gene", "Cell line", "", "B-x"])
    sentences = draw(st.lists(st.lists(WORDS, min_size=1, max_size=6), max_size=3))
    pieces: list[str] = []
    tokens: list[tuple[int, int]] = []
    bounds: list[tuple[int, int]] = []
    found: list[tuple[int, int, str]] = []
    at = 0
    for words in sentences:
        first = len(tokens)
        for text in words:
            tokens.append((at, at + len(text)))
            at += len(text) + 1
        bounds.append((tokens[first][0], at - 1))
        pieces.append(" ".join(words))
        place = first
        while place < len(tokens):
            size = draw(st.integers(0, len(tokens) - place))
            if size:
                found.append((tokens[place][0], tokens[place + size - 1][1], draw(kinds)))
            place += size + (1 if not size or not touching else 0)
    text = "\n".join(pieces)
    spans = tuple(Span(f"T{n}", kind, ((s, e),), text[s:e]) for n, (s, e, kind) in enumerate(found, 1))
    kind = "sentence" if len(sentences) == 1 else "paragraph"
    passage = Passage(0, text, kind, sentences=tuple(bounds), tokens=tuple(tokens))
    id = draw(texts(in_one_column))
    return Document(id, (passage,) if sentences else (), spans)


@given(st.lists(from_columns(touching=True), max_size=3), st.sampled_from(["iob1", "iob2", "iobes"]))
def test_documents_from_columns_come_back_exactly(docs: list[Document], scheme: str) -> None:
    assert read(written(docs, scheme=scheme), task_tokens=True) == docs
    assert read(written(docs, scheme=scheme), task_tokens=True, scheme=scheme) == docs


@given(from_columns(touching=False))
def test_io_brings_back_mentions_that_do_not_touch(doc: Document) -> None:
    assert read(written([doc], scheme="io"), task_tokens=True, scheme="io") == [doc]


@given(documents(), st.sampled_from(SCHEMES), st.sampled_from(["tab", "space"]))
def test_mentions_of_any_document_come_back_with_their_text(doc: Document, scheme: str, separator: str) -> None:
    tally = Tally()
    backs = read(written([doc], tally, scheme=scheme, separator=separator), task_tokens=True)
    assert [back.id for back in backs] == [doc.id]
    lost = sum(count for note, count in tally.notes.items() if "span" in note and "one type" not in note)
    merged = tally.notes["adjacent spans of one type written as one"]
    assert len(backs[0].spans) == len(doc.spans) - lost - merged
    if not merged:
        whole = {(span.type, bare(span.text)) for span in doc.spans}
        assert {(span.type, bare(span.text)) for span in backs[0].spans} <= whole
    assert bare(backs[0].text) == bare(doc.text)


def bare(text: str) -> str:
    return re.sub(r"\s", "", text)


@given(st.binary(max_size=200) | texts().map(str.encode), st.booleans())
def test_no_bytes_break_the_reader(tmp_path_factory: pytest.TempPathFactory, raw: bytes, tagged: bool) -> None:
    raw = raw.replace(b"\n", b"\tB-X\n") if tagged else raw
    with Tally(tmp_path_factory.mktemp("conll") / "rejects.jsonl") as tally:
        for doc in read(raw, tally):
            assert all(doc.text_of(span) == span.text for span in doc.spans)


# --- The real files: counts made by another program, beside the corpora ---------------------------------------------

COUNTS = DATA / "benchmarks" / "COUNTS-conll.json"
FILES = json.loads(COUNTS.read_text()) if COUNTS.is_file() else {}


def counted(docs: list[Document]) -> dict[str, object]:
    """What the reference counts hold, from documents."""
    lengths: Counter[int] = Counter()
    types: Counter[str] = Counter()
    touching = 0
    for doc in docs:
        for passage in doc.passages:
            starts = [start for start, _ in passage.tokens]
            lengths.update(bisect_left(starts, end) - bisect_left(starts, start) for start, end in passage.sentences)
        types.update(span.type for span in doc.spans)
        touching += sum(
            left.type == right.type and doc.slice(left.end, right.start) == " " for left, right in pairwise(doc.spans)
        )
    return {
        "sents": lengths.total(),
        "tokens": sum(length * times for length, times in lengths.items()),
        "ents": dict(types),
        "maxlen": max(lengths),
        "one": lengths[1],
        "adjB": touching,
    }


@pytest.mark.parametrize("name", FILES)
def test_real_files_have_the_counts_of_the_reference(real_data: Path, name: str) -> None:
    expected = dict(FILES[name])
    docstart, orphans = expected.pop("docstart"), expected.pop("orphanI")
    tally = Tally()
    docs = list(lexome.read(real_data / "benchmarks" / name, tally=tally, type="", task_tokens=True))
    assert tally.files == {"conll": 1}
    assert counted(docs) == expected
    assert tally.notes["I without B"] == orphans
    assert len(docs) == (docstart or expected["sents"])


def test_real_columns_are_written_as_they_were_read(real_data: Path) -> None:
    """BC2GM's development set, touching mentions and long sentences included, byte for byte."""
    raw = lzma.decompress((real_data / "benchmarks" / "BC2GM" / "devel.tsv.xz").read_bytes()).decode()
    assert written(read(raw), docstart=False, types=False).rstrip() == raw.rstrip()


def test_touching_mentions_are_lost_in_io_and_nowhere_else(real_data: Path) -> None:
    """JNLPBA's development part has 215 of them."""
    docs = list(lexome.read(real_data / "benchmarks" / "JNLPBA" / "devel.tsv.xz"))
    assert read(written(docs, scheme="iob1"), scheme="iob1") == docs
    tally = Tally()
    merged = read(written(docs, tally, scheme="io"), scheme="io")
    assert sum(len(doc.spans) for doc in merged) == 8575 - 215
    assert tally.notes["adjacent spans of one type written as one"] == 215


def test_jnlpba_in_one_class_is_protein_dna_and_rna(real_data: Path) -> None:
    typed = Tally()
    list(lexome.read(real_data / "benchmarks" / "JNLPBA" / "typed-5class" / "test.tsv.xz", tally=typed))
    merged = Tally()
    list(lexome.read(real_data / "benchmarks" / "JNLPBA" / "test.tsv.xz", tally=merged))
    assert merged.spans["Entity"] == sum(typed.spans[name] for name in ("PRGE", "DNA", "RNA")) == 6241


def test_a_mention_cut_by_the_sentence_splitter_is_two(real_data: Path) -> None:
    """BC5CDR's development set has 4246 diseases in columns, 4244 by offsets: St. | Anthony's fire, twice."""
    docs = list(lexome.read(real_data / "benchmarks" / "BC5CDR-disease" / "devel.tsv.xz"))
    assert sum(len(doc.spans) for doc in docs) == 4246
    cut = [
        (left, right)
        for left, right in pairwise(docs)
        if left.text.endswith("St .") and right.text.startswith("Anthony")
    ]
    assert len(cut) == 2
    assert all(left.spans[-1].text == "St ." and right.spans[0].text.startswith("Anthony") for left, right in cut)


def test_no_mention_given_by_offsets_is_lost_or_widened_in_columns(real_data: Path) -> None:
    """BC5CDR's development set: ten of its chemicals end inside a word, as 5-HT in 5-HT6."""
    path = real_data / "benchmarks" / "BC5CDR-pubtator" / "CDR_DevelopmentSet.PubTator.txt.xz"
    docs = list(lexome.read(path, "pubtator"))
    backs = read(written(docs))
    for doc, back in zip(docs, backs, strict=True):
        expected = Counter((span.type, bare(span.text)) for span in doc.spans)
        assert Counter((span.type, bare(span.text)) for span in back.spans) == expected
    assert sum(len(doc.spans) for doc in backs) == 5347 + 4244


def test_sentences_shared_by_two_parts_of_a_set(real_data: Path) -> None:
    """89 sentences of six tokens and more stand in JNLPBA's test and training parts both."""

    def long_ones(part: str) -> set[str]:
        docs = lexome.read(real_data / "benchmarks" / "JNLPBA" / f"{part}.tsv.xz")
        return {doc.text for doc in docs if len(doc.passages[0].tokens) >= 6}

    assert len(long_ones("test") & long_ones("train")) == 89


def test_pico_folds_are_read_from_their_archive(real_data: Path) -> None:
    path = real_data / "benchmarks" / "EBM-NLP" / "PICO-section-specific-5fold.tar.xz"
    tally = Tally()
    tokens = sum(len(passage.tokens) for doc in lexome.read(path, tally=tally) for passage in doc.passages)
    assert (tally.files, tally.documents, tokens) == ({"conll": 45}, 4000, 485120)
    assert tally.spans == {"I": 13635, "O": 12825, "P": 5090, "C": 2615}
    assert tally.notes == {"line without a token skipped": 107, "I without B": 90}


def test_hostile_columns_stay_within_our_errors() -> None:
    for text in ("a\tB-" + "x" * 10_000 + "\nb\tQ", "(" * 10_000, "a " * 100_000, "-DOCSTART- (" * 1000 + "\n\na"):
        with pytest.raises(BadDocument) as raised:
            read(text)
        assert len(str(raised.value)) < 500


def test_blank_lines_count_towards_the_size_of_a_document() -> None:
    small = replace(source("-DOCSTART-\n" + "\n" * 32), record_bytes=1000)
    with raises(FormatError, code="too-large", value=1, mentions="train.tsv"):
        list(conll.read(small, tally=Tally()))


def test_text_that_tokens_space_anew_is_noted() -> None:
    tally = Tally()
    assert "Zorin\tO\n.\tO\n" in written([Document("1", (Passage(0, "Zorin."), Passage(6, "Zorin.")))], tally)
    assert tally.notes["white space between tokens changed"] == 1


def test_white_space_at_the_edge_of_a_mention_is_noted() -> None:
    tally = Tally()
    spans = (Span("T1", "Gene", ((0, 6),), "Zorin "), Span("T2", "Gene", ((6, 11),), "binds"))
    (doc,) = read(written([Document("1", (Passage(0, "Zorin binds"),), spans)], tally))
    assert [span.text for span in doc.spans] == ["Zorin", "binds"]
    assert tally.notes == {"white space at the edge of a mention not written": 1}
