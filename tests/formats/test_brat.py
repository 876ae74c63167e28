"""brat standoff: pairs of files in any order, every kind of line, names that stay inside their folder."""

import io
import tarfile
from pathlib import Path

import pytest
from errors import raises
from hypothesis import given
from hypothesis import strategies as st
from memory_files import sources_of
from strategies import documents, spans_of, texts

import lexome
from lexome import Argument, Attribute, Document, Metadata, Passage, Relation, Span, Tally
from lexome.errors import BadDocument, FormatError
from lexome.formats import brat
from lexome.formats.brat import escape_name, file_stem, id_from_stem, unescape_name

TEXT = "Zorin binds left and right kinase.\r\nIt does not bind zorin\nbeta."


def read(*files: tuple[str, str | bytes], tally: Tally | None = None, **options: object) -> list[Document]:
    return list(brat.read(iter(sources_of(*files)), tally=tally or Tally(), **options))  # type: ignore[arg-type]


def document(ann: str, text: str = TEXT, **options: object) -> Document:
    (doc,) = read(("a.txt", text), ("a.ann", ann), **options)  # type: ignore[arg-type]
    return doc


def test_every_kind_of_line_has_its_place() -> None:
    tally = Tally()
    doc = document(
        "T1\tGene 0 5\tZorin\n"
        "T2\tGene 12 16;27 33\tleft kinase\n"
        "T3\tBinding 6 11\tbinds\n"
        "T4\tGene 53 63\tzorin beta\n"
        "E1\tBinding:T3 Theme:T1 Theme2:T2 Site2:T2\n"
        "E2\tRegulation:T3 Theme:E1\n"
        "R1\tSame_as Arg1:T1 Arg2:T4\t\n"
        "*\tEquiv T1 T4\n"
        "A1\tNegation E1\n"
        "M2\tConfidence E1 High\n"
        "N1\tReference T1 NCBIGene:672\tzorin 1\n"
        "N2\tReference T1 uniprot:P1\t\n"
        "#1\tAnnotatorNotes T1\tis it,\treally?\n",
        tally=tally,
    )
    assert doc.passages == (Passage(0, TEXT),)
    assert doc.spans == (
        Span("T1", "Gene", ((0, 5),), "Zorin", ("NCBIGene:672", "uniprot:P1")),
        Span("T2", "Gene", ((12, 16), (27, 33)), "left kinase"),
        Span("T3", "Binding", ((6, 11),), "binds"),
        Span("T4", "Gene", ((53, 63),), "zorin\nbeta"),
    )
    themes = (Argument("Trigger", "T3"), Argument("Theme", "T1"), Argument("Theme2", "T2"), Argument("Site2", "T2"))
    assert doc.relations == (
        Relation("E1", "Binding", themes),
        Relation("E2", "Regulation", (Argument("Trigger", "T3"), Argument("Theme", "E1"))),
        Relation("R1", "Same_as", (Argument("Arg1", "T1"), Argument("Arg2", "T4"))),
        Relation("*1", "Equiv", (Argument("Arg", "T1"), Argument("Arg", "T4"))),
    )
    assert doc.attributes == (
        Attribute("A1", "E1", "Negation"),
        Attribute("M2", "E1", "Confidence", "High"),
        Attribute("#1", "T1", "AnnotatorNotes", "is it,\treally?"),
    )
    assert tally.notes == {"name of a normalization ignored": 1}


def test_all_of_it_comes_back_from_files(tmp_path: Path) -> None:
    ann = (
        "T1\tGene 0 5\tZorin\nN1\tReference T1 NCBIGene:672\t\nT4\tGene 53 63\tzorin beta\n"
        "E1\tBinding:T4 Theme:T1 Theme2:T1\n*\tEquiv T1 T4\nA1\tNegation E1\n#1\tAnnotatorNotes T1\tsure\n"
    )
    doc = document(ann)
    lexome.write(tmp_path / "out", [doc], "brat")
    assert (tmp_path / "out" / "a.ann").read_bytes().decode() == ann
    assert (tmp_path / "out" / "a.txt").read_bytes().decode() == TEXT
    assert list(lexome.read(tmp_path / "out")) == [doc]
    assert list(lexome.read(tmp_path / "out" / "a.ann")) == [doc]
    assert list(lexome.read(tmp_path / "out" / "a.txt", "brat")) == [doc]


def test_files_pair_by_path_in_any_order() -> None:
    docs = read(("x/1.txt", "ab"), ("y/1.txt", "cd"), ("y/1.ann", "T1\tG 0 1\tc\n"), ("x/1.ann", "T1\tG 0 1\ta\n"))
    assert [doc.spans[0].text for doc in docs] == ["c", "a"]


def test_a_text_alone_is_a_document_and_annotations_alone_are_rejected(tmp_path: Path) -> None:
    with Tally(tmp_path / "rejects.jsonl") as tally:
        docs = read(("b.ann", "T1\tG 0 1\ta\n"), ("a.txt", "ab"), ("c.conf", ""), tally=tally)
    assert docs == [Document("a", (Passage(0, "ab"),))]
    assert tally.rejected == {"no_text": 1}
    assert tally.notes == {
        "file that is neither .txt nor .ann skipped": 1,
        "text without an annotation file (.ann), read as one without mentions": 1,
    }


@pytest.mark.parametrize("notes", ["", "\n \n", "hello\n", "T1\tG 0 1\ta\n"])
def test_annotations_without_a_text_are_rejected_whatever_they_hold(tmp_path: Path, notes: str) -> None:
    with Tally(tmp_path / "rejects.jsonl") as tally:
        assert read(("b.ann", notes), tally=tally) == []
    assert tally.rejected == {"no_text": 1}
    assert not tally.notes


def test_an_archive_is_known_by_its_first_annotations(tmp_path: Path) -> None:
    path = tmp_path / "corpus.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, content in (("d/1.ann", b"T1\tG 0 1\ta\n"), ("d/2.txt", b"x"), ("d/1.txt", b"ab"), ("d/2.ann", b"")):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    tally = Tally()
    assert [doc.id for doc in lexome.read(path, tally=tally)] == ["1", "2"]
    assert tally.files == {"brat": 4}


def test_the_text_is_kept_to_the_character() -> None:
    text = "\ufeffA\r\nB\u0085C\u2028D e\u0301 👩\u200d🔬 \u00a0\n\n"
    assert document("", text).text == text


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("T1\tGene 0 5\tzorin", "offset_mismatch"),
        ("T1\tGene 0 500\tZorin", "bad_offset"),
        ("T1\tGene 5 5\t", "bad_span"),
        ("T1\tGene x 5\tZorin", "bad_line"),
        ("T1\tGene 0 " + "9" * 5000 + "\tZorin", "bad_line"),
        ("Title of a paper", "bad_line"),
        ("R1\tSame Arg1:T9 Arg2:T8", "unknown_target"),
        ("R1\tSame T9", "bad_line"),
        ("E1\tBinding", "bad_line"),
        ("A1\tNegation", "bad_line"),
        ("A1\tNegation T9", "unknown_target"),
        ("N1\tReference T9 a:b", "unknown_target"),
        ("T1\tGene 0 5\tZorin\nN1\tReference T1 672", "bad_concept"),
        ("T1\tGene 0 5\tZorin\nT1\tGene 0 5\tZorin", "duplicate_id"),
    ],
)
def test_a_bad_line_costs_its_document(tmp_path: Path, line: str, reason: str) -> None:
    with Tally(tmp_path / "rejects.jsonl") as tally:
        docs = read(("a.txt", TEXT), ("a.ann", line), ("b.txt", "ok"), ("b.ann", ""), tally=tally, offsets="strict")
    assert [doc.id for doc in docs] == ["b"]
    assert tally.rejected == {reason: 1}


def test_offsets_that_miss_are_repaired_where_asked() -> None:
    tally = Tally()
    ann = "T1\tGene 1 6\tZorin\nT2\tGene 0 4\tNone\nR1\tr Arg1:T1 Arg2:T2\nA1\tNegation T2\n"
    doc = document(ann, tally=tally, offsets="repair")
    assert [(span.id, span.parts) for span in doc.spans] == [("T1", ((0, 5),))]
    assert doc.relations == doc.attributes == ()
    assert tally.notes["span moved to its text"] == 1


def test_notes_on_attributes_are_counted_and_left_out() -> None:
    tally = Tally()
    doc = document("T1\tGene 0 5\tZorin\nA1\tNegation T1\n#1\tAnnotatorNotes A1\tsure\n?what\n", tally=tally)
    assert doc.attributes == (Attribute("A1", "T1", "Negation"),)
    assert tally.notes == {
        "note on something other than a mention or relation ignored": 1,
        "unknown line ignored": 1,
    }


@pytest.mark.parametrize(
    "id", ["../../x", "a/b", "/etc/x", "..", ".", "", ".hidden", "C:\\x", "a\x00b", "50%", "%2e%2e", "κ", "a b!c"]
)
def test_no_id_leaves_the_folder_or_is_lost(tmp_path: Path, id: str) -> None:
    folder = tmp_path / "in" / "out"
    docs = [Document(id, (Passage(0, "x"),))]
    lexome.write(folder, docs, "brat")
    assert len(list(folder.iterdir())) == len(list(tmp_path.rglob("*.*"))) == 2
    assert list(lexome.read(folder, "brat")) == docs


def test_ids_that_are_the_same_or_differ_in_case_alone_get_files_of_their_own(tmp_path: Path) -> None:
    docs = [Document(id, (Passage(0, text),)) for id, text in (("a", "1"), ("A", "2"), ("a", "3"), ("a%_2", "4"))]
    lexome.write(tmp_path, docs, "brat")
    assert len({path.name.lower() for path in tmp_path.iterdir()}) == 8
    assert sorted(lexome.read(tmp_path, "brat"), key=lambda doc: doc.text) == docs


def test_an_id_too_long_for_a_file_is_refused_and_the_rest_written(tmp_path: Path) -> None:
    with Tally(tmp_path / "rejects.jsonl") as tally:
        lexome.write(tmp_path / "out", [Document("x" * 300), Document("b")], "brat", tally=tally)
    assert tally.rejected == {"id_too_long": 1}
    assert [path.name for path in sorted((tmp_path / "out").iterdir())] == ["b.ann", "b.txt"]


def test_a_folder_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with raises(FormatError, code="not-writable", value=tmp_path / "file"):
        lexome.write(tmp_path / "file", [], "brat")


def written(doc: Document, folder: Path, tally: Tally | None = None) -> Document:
    brat.write([doc], folder, tally=tally or Tally())
    (back,) = lexome.read(folder, "brat")
    return back


def test_ids_of_other_forms_are_numbered_anew_and_links_kept(tmp_path: Path) -> None:
    doc = Document(
        "d",
        (Passage(0, "Zorin binds"),),
        (Span("0", "Gene", ((0, 5),), "Zorin"), Span("T1", "Verb", ((6, 11),), "binds")),
        (
            Relation("x", "Event", (Argument("Trigger", "T1"), Argument("Theme", "0"))),
            Relation("R1", "r", (Argument("a", "x"),)),
        ),
        (Attribute("n", "x", "Sure", "very much"),),
    )
    tally = Tally()
    back = written(doc, tmp_path, tally)
    assert [span.id for span in back.spans] == ["T2", "T1"]
    assert back.relations == (
        Relation("E1", "Event", (Argument("Trigger", "T1"), Argument("Theme", "T2"))),
        Relation("R1", "r", (Argument("a", "E1"),)),
    )
    assert back.attributes == (Attribute("A1", "E1", "Sure", "very much"),)
    assert tally.notes == {"ids renumbered": 1}


def test_what_brat_cannot_hold_is_noted(tmp_path: Path) -> None:
    tally = Tally()
    doc = Document(
        "d",
        (Passage(0, "Title", "title"), Passage(7, "Text", sentences=((7, 11),))),
        (Span("T1", "X", ((7, 11),), "Text", score=0.5),),
        (
            Relation("R1", "r", (Argument("a", "T1"), Argument("b", concept="mesh:D1"))),
            Relation("R2", "r", (Argument("a", "R1"),)),
            Relation("R3", "r", (Argument("a", "T1"),), novel=True),
        ),
        (Attribute("A1", "R2", "Negation"), Attribute("#1", "T1", "AnnotatorNotes", "a\nb")),
        labels=("x",),
        meta=Metadata(pmid="1"),
    )
    back = written(doc, tmp_path, tally)
    assert (back.text, back.spans[0].parts) == ("Title\n\nText", ((7, 11),))
    assert [relation.id for relation in back.relations] == ["R3"]
    assert back.attributes == (Attribute("#1", "T1", "AnnotatorNotes", "a b"),)
    assert set(tally.notes) == {
        "relation to a concept not written",
        "relation dropped: it refers to a dropped span",
        "attribute dropped: its target was dropped",
        "line break in an annotator's note written as a space",
        "labels not written",
        "metadata not written",
        "scores not written",
        "passage offsets not written",
        "passage kinds and sections not written",
        "sentences and tokens not written",
    }


def test_half_a_surrogate_pair_is_refused(tmp_path: Path) -> None:
    for doc in (Document("\ud800"), Document("a", (Passage(0, "x"),), (Span("T1", "\ud800", ((0, 1),), "x"),))):
        with raises(BadDocument, code="not_unicode"):
            brat.write([doc], tmp_path, tally=Tally())


NAMES = st.one_of(st.sampled_from(["Gene", "Cell line", "", "a:b", "50%", "%20", "T1", "\n", "\u0085"]), texts())


@st.composite
def standoff(draw: st.DrawFn) -> Document:
    """A document as the reader makes them, with everything that brat holds."""
    passages = draw(texts(min_size=1).map(lambda text: (Passage(0, text),)) | st.just(()))
    spans = tuple(
        Span(span.id, draw(NAMES), span.parts, span.text, (*span.concepts, *(["x:a b"] if draw(st.booleans()) else [])))
        for span in draw(spans_of(passages))
    )
    targets = [span.id for span in spans]
    relations: list[Relation] = []
    for number in range(draw(st.integers(0, 3)) if targets else 0):
        ends = draw(st.lists(st.tuples(NAMES, st.sampled_from(targets)), max_size=3))
        arguments = tuple(Argument(role, target) for role, target in ends)
        kind = draw(st.sampled_from("RE*"))
        if kind == "E":
            arguments = (Argument("Trigger", draw(st.sampled_from(spans)).id), *arguments)
        if kind == "*":
            number = sum(relation.id.startswith("*") for relation in relations)
            arguments = tuple(Argument("Arg", argument.target) for argument in arguments)
        relations.append(Relation(f"{kind}{number + 1}", draw(NAMES), arguments))
        targets.append(relations[-1].id)
    attributes: list[Attribute] = []
    for number in range(draw(st.integers(0, 3)) if targets else 0):
        kind = draw(st.sampled_from("AM#"))
        value = draw(st.none() | (texts(lambda c: c not in "\r\n") if kind == "#" else texts()))
        attributes.append(Attribute(f"{kind}{number + 1}", draw(st.sampled_from(targets)), draw(NAMES), value))
    return Document(draw(NAMES.filter(lambda id: len(id) < 20)), passages, spans, tuple(relations), tuple(attributes))


@given(standoff())
def test_documents_of_brat_come_back_exactly(tmp_path_factory: pytest.TempPathFactory, doc: Document) -> None:
    tally = Tally()
    assert written(doc, tmp_path_factory.mktemp("brat"), tally) == doc
    assert tally.notes == {}


@given(documents())
def test_spans_of_any_document_come_back(tmp_path_factory: pytest.TempPathFactory, doc: Document) -> None:
    back = written(doc, tmp_path_factory.mktemp("brat"))
    assert back.text == doc.text
    assert back.spans == doc.spans


@given(texts(), st.text())
def test_names_come_back_and_fit(name: str, other: str) -> None:
    for text in (name, other):
        assert unescape_name(escape_name(text)) == text
        assert not any(character.isspace() for character in escape_name(text))
        if len(text) < 10:
            stem = file_stem(text)
            assert id_from_stem(stem) == text
            assert stem.isascii()
            assert not set(stem) & set("/\\ \x00")


@given(
    st.binary(max_size=100) | texts().map(str.encode),
    st.sampled_from([b"", b"T1\tGene 0 5\t", b"E1\t", b"A1\tx ", b"N1\t", b"#1\t", b"*\t"]),
)
def test_no_bytes_break_the_reader(tmp_path_factory: pytest.TempPathFactory, raw: bytes, start: bytes) -> None:
    with Tally(tmp_path_factory.mktemp("brat") / "rejects.jsonl") as tally:
        for doc in read(("a.txt", TEXT), ("a.ann", start + raw), ("b.txt", raw), tally=tally):
            assert all(doc.text_of(span) == span.text for span in doc.spans)


def test_the_species_corpus_reads_whole_and_comes_back(real_data: Path, tmp_path: Path) -> None:
    tally = Tally()
    docs = list(lexome.read(real_data / "benchmarks" / "s800" / "original-standoff.tar.xz", tally=tally))
    assert (tally.documents, tally.spans) == (800, {"Species": 3708})
    assert not tally.notes
    assert all(span.concepts[0].startswith("Taxonomy:") for doc in docs for span in doc.spans)
    lexome.write(tmp_path, docs[:100], "brat")
    assert list(lexome.read(tmp_path)) == sorted(docs[:100], key=lambda doc: doc.id)
