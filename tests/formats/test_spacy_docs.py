"""spaCy: exact text and spans, the whole Document there and back, foreign docs, and files that are broken."""

import gc
import io
import pickle
import random
import subprocess
import sys
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from errors import raises
from full_document import full_document, full_documents
from hypothesis import given
from strategies import documents

import lexome
from lexome import Argument, Document, Passage, Relation, Span, Tally
from lexome.document import lay_out
from lexome.errors import BadDocument, FormatError, LexomeError, UsageError
from lexome.formats import spacy_docs
from lexome.formats.spacy_docs import from_spacy, to_spacy
from lexome.formats.streams import open_stream

spacy = pytest.importorskip("spacy", reason="spaCy files need the extra lexome[spacy]")
srsly = pytest.importorskip("srsly")

ENGLISH = spacy.blank("en")

HEART = Document(
    "d1",
    lay_out([("title", "Zorblin in the heart"), ("abstract", "Left and right ventricle need ZBL1  protein.")]),
    spans=(
        Span("T1", "Gene", ((51, 55),), "ZBL1", ("NCBIGene:1", "hgnc:2"), 0.5),
        Span("T2", "Protein", ((51, 64),), "ZBL1  protein"),
        Span("T3", "Anatomy", ((21, 25), (36, 45)), "Left ventricle", ("uberon:0002084",)),
    ),
    relations=(Relation("R1", "in", (Argument("a", "T1"), Argument("b", "T3"))),),
)


def written(docs, tally=None, **options) -> bytes:
    stream = io.BytesIO()
    spacy_docs.write(docs, stream, tally=tally or Tally(), **options)
    return stream.getvalue()


def read_back(raw: bytes, tally=None) -> list[Document]:
    tally = tally or Tally()
    return list(spacy_docs.read(open_stream(io.BytesIO(raw), "x.spacy", tally), tally=tally))


@given(doc=documents())
def test_documents_over_all_of_unicode_come_back(doc: Document) -> None:
    made = to_spacy(doc, ENGLISH)
    assert made.text == doc.text
    parts = [made.text[part.start_char : part.end_char] for part in made.spans["lexome"]]
    assert parts == [doc.slice(start, end) for span in doc.spans for start, end in span.parts]
    assert [part.text for part in made.spans["lexome"]] == parts
    assert from_spacy(made) == doc


@given(doc=documents())
def test_a_bare_vocab_cuts_plain_words_and_keeps_the_text(doc: Document) -> None:
    made = to_spacy(doc, spacy.vocab.Vocab())
    assert made.text == doc.text
    assert from_spacy(made) == doc


def test_every_field_of_every_document_comes_back_from_a_file() -> None:
    docs = full_documents()
    tally = Tally()
    raw = written(docs, tally)
    assert read_back(raw) == docs
    assert tally.written == len(docs)


def test_spans_have_label_concept_and_id_and_parts_share_theirs() -> None:
    made = to_spacy(HEART, ENGLISH)
    assert [(part.text, part.label_, part.kb_id_, part.id_) for part in made.spans["lexome"]] == [
        ("ZBL1", "Gene", "NCBIGene:1", "T1"),
        ("ZBL1  protein", "Protein", "", "T2"),
        ("Left", "Anatomy", "uberon:0002084", "T3"),
        ("ventricle", "Anatomy", "uberon:0002084", "T3"),
    ]


def test_entities_are_the_longest_whole_spans_that_do_not_overlap() -> None:
    assert [(entity.text, entity.label_) for entity in to_spacy(HEART, ENGLISH).ents] == [("ZBL1  protein", "Protein")]


def test_single_spaces_are_no_tokens_and_others_are() -> None:
    made = to_spacy(Document("d", (Passage(0, " a b  c\t\nd "),)), ENGLISH.vocab)
    assert [(token.text, token.whitespace_) for token in made] == [
        (" ", ""), ("a", " "), ("b", " "), (" ", ""), ("c", ""), ("\t\n", ""), ("d", " ")
    ]  # fmt: skip


def test_a_span_may_begin_or_end_with_a_space() -> None:
    doc = Document("d", (Passage(0, "a b c"),), (Span("T1", "X", ((1, 4),), " b "), Span("T2", "Y", ((2, 3),), "b")))
    made = to_spacy(doc, ENGLISH)
    assert [part.text for part in made.spans["lexome"]] == [" b ", "b"]
    assert [entity.text for entity in made.ents] == ["b"]


def test_tokens_are_cut_where_a_span_ends_inside_a_word() -> None:
    doc = Document("d", (Passage(0, "antiZBL1like"),), (Span("T1", "Gene", ((4, 8),), "ZBL1"),))
    assert [token.text for token in to_spacy(doc, ENGLISH)] == ["anti", "ZBL1", "like"]


def test_sentences_and_labels_are_spacys_own() -> None:
    doc = Document("d", (Passage(2, "One. Two. Three.", sentences=((2, 6), (7, 11), (12, 18))),), labels=("good",))
    made = to_spacy(doc, ENGLISH)
    assert [sentence.text.strip() for sentence in made.sents] == ["", "One.", "Two.", "Three."]
    assert made.cats == {"good": 1.0}


def test_a_document_with_half_a_character_or_a_huge_gap_is_set_aside(tmp_path: Path) -> None:
    tally = Tally(tmp_path / "rejects.jsonl")
    with tally:
        raw = written([Document("\ud800"), HEART, Document("far", (Passage(1 << 26, "x"),))], tally)
    assert read_back(raw) == [HEART]
    assert tally.rejected == {"not_unicode": 1, "too_long": 1}


def test_what_a_pipeline_added_is_added() -> None:
    made = to_spacy(replace(HEART, spans=HEART.spans[:1], relations=()), ENGLISH)
    zorblin = made.char_span(0, 7, label="Gene", kb_id="Q42")
    made.ents = (*made.ents, zorblin)
    made.spans["sc"] = [made.char_span(15, 20)]
    doc = from_spacy(made)
    assert doc.spans == (
        HEART.spans[0],
        Span("T2", "Gene", ((0, 7),), "Zorblin", ("kb:Q42",)),
        Span("T3", "sc", ((15, 20),), "heart"),
    )
    assert doc.passages == HEART.passages


def test_what_was_removed_is_gone_with_its_relations() -> None:
    made = to_spacy(HEART, ENGLISH)
    made.spans["lexome"] = [span for span in made.spans["lexome"] if span.id_ != "T3"]
    tally = Tally()
    doc = from_spacy(made, tally=tally)
    assert doc.spans == HEART.spans[:2]
    assert doc.relations == ()
    assert tally.notes == {"relation dropped: it refers to a dropped span": 1}


def test_a_label_that_was_changed_is_changed() -> None:
    made = to_spacy(replace(HEART, spans=HEART.spans[:1], relations=()), ENGLISH)
    made.spans["lexome"] = [made.char_span(51, 55, label="Protein", span_id="T1")]
    made.ents = ()
    assert from_spacy(made).spans == (Span("T1", "Protein", ((51, 55),), "ZBL1"),)


def test_a_part_of_a_doc_is_a_document_of_its_own() -> None:
    made = to_spacy(HEART, ENGLISH)[0:2].as_doc(copy_user_data=True)
    doc = from_spacy(made, id="part")
    assert (doc.id, doc.text) == ("part", made.text)
    assert [span.text for span in doc.spans] == []


def foreign_doc():
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    ruler = nlp.add_pipe("entity_ruler")
    ruler.add_patterns([{"label": "GENE", "pattern": "ZBL1", "id": "zbl"}])
    made = nlp("ZBL1 is here.  And ZBL1 there 🧬.")
    made.spans["sc"] = [made[0:3], made[0:1]]
    made.cats = {"yes": 0.9, "no": 0.1}
    made[0].tag_ = "NN"
    return made


def test_a_foreign_doc_becomes_a_proper_document() -> None:
    tally = Tally()
    doc = from_spacy(foreign_doc(), id="f", tally=tally)
    assert doc.text == "ZBL1 is here.  And ZBL1 there 🧬."
    assert [(span.id, span.type, span.text) for span in doc.spans] == [
        ("zbl", "GENE", "ZBL1"),
        ("T1", "GENE", "ZBL1"),
        ("T2", "sc", "ZBL1 is here"),
        ("T3", "sc", "ZBL1"),
    ]
    assert [doc.slice(*sentence).strip() for sentence in doc.passages[0].sentences] == [
        "ZBL1 is here.",
        "And ZBL1 there 🧬.",
    ]
    assert [doc.slice(*token) for token in doc.passages[0].tokens][:4] == ["ZBL1", "is", "here", "."]
    assert doc.labels == ("yes",)
    assert tally.notes == {"spaCy's TAG ignored": 1}


def test_a_foreign_file_is_read_and_its_docs_are_numbered() -> None:
    packed = spacy.tokens.DocBin(store_user_data=False, docs=[foreign_doc(), ENGLISH("Nothing."), ENGLISH("")])
    docs = read_back(packed.to_bytes())
    assert [(doc.id, len(doc.spans), doc.text) for doc in docs] == [
        ("x-1", 4, foreign_doc().text),
        ("x-2", 0, "Nothing."),
        ("x-3", 0, ""),
    ]


def test_files_of_the_ending_are_read_and_written(tmp_path: Path) -> None:
    lexome.write(tmp_path / "a.spacy.gz", [HEART], language="xx")
    assert list(lexome.read(tmp_path / "a.spacy.gz")) == [HEART]


def test_an_unknown_language_is_a_wrong_use() -> None:
    with raises(UsageError, code="unknown-language", value="qq"):
        written([HEART], language="qq")


def test_the_same_documents_give_the_same_bytes() -> None:
    assert written(full_documents()) == written(full_documents())


def packed_with(**changes) -> bytes:
    content = srsly.msgpack_loads(zlib.decompress(written([HEART, HEART])))
    return zlib.compress(srsly.msgpack_dumps({**content, **changes}))


@pytest.mark.parametrize(
    "raw",
    [b"", b"no DocBin", zlib.compress(b"\x81\xa1"), zlib.compress(srsly.msgpack_dumps([1])), packed_with(attrs=[])],
)
def test_what_is_no_docbin_is_refused(raw: bytes) -> None:
    with raises(FormatError, code="damaged", value="x.spacy"):
        read_back(raw)
    assert gc.isenabled()


def test_one_damaged_doc_leaves_the_others() -> None:
    content = srsly.msgpack_loads(zlib.decompress(written([HEART, HEART])))
    raw = packed_with(user_data=[srsly.msgpack_dumps({"lexome": '{"id": 5}'}), content["user_data"][1]])
    with raises(BadDocument, code="bad_field", mentions="x.spacy, document 1"):
        read_back(raw)


def test_a_damaged_span_group_is_set_aside_and_never_followed(tmp_path: Path) -> None:
    """Its offsets point far outside the doc, where spaCy itself would read foreign memory."""
    import struct

    group = srsly.msgpack_dumps(
        {"name": "lexome", "attrs": {}, "spans": [struct.pack(">QQQllll", 1, 2, 3, -(2**31), 2**31 - 1, 0, 2**31 - 1)]}
    )
    good = srsly.msgpack_loads(zlib.decompress(written([HEART, HEART])))["span_groups"][1]
    tally = Tally(tmp_path / "rejects.jsonl")
    with tally:
        docs = read_back(packed_with(span_groups=[srsly.msgpack_dumps({group: ["lexome"]}), good]), tally)
    assert docs[-1] == HEART
    assert docs[:-1] == [] or docs[0].spans != HEART.spans


def test_nothing_is_unpickled(monkeypatch, tmp_path: Path) -> None:
    """A pickle where arrays may be is refused or left as bytes; its code does not run."""
    mark = tmp_path / "mark"

    class Evil:
        def __reduce__(self):
            return (Path.touch, (mark,))

    evil = pickle.dumps(Evil())
    monkeypatch.setattr(pickle, "loads", lambda *_: pytest.fail("something was unpickled"))
    array = {b"nd": True, b"type": "|O", b"kind": b"O", b"shape": [1], b"data": evil}
    user = srsly.msgpack.packb({"x": array, "lexome": evil})
    for changes in ({"user_data": [user, user]}, {"tokens": array}, {"cats": [{"x": array}, {}]}):
        try:
            read_back(packed_with(**changes))
        except LexomeError:
            continue
    assert not mark.exists()


def test_a_bomb_is_refused(monkeypatch) -> None:
    monkeypatch.setattr(spacy_docs, "MAX_WHOLE_BYTES", 1 << 20)
    with raises(FormatError, code="too-large", value="x.spacy"):
        read_back(zlib.compress(b"\0" * (6 << 20)))


def test_flipped_and_missing_bytes_end_in_our_errors(tmp_path: Path) -> None:
    plain = zlib.decompress(written([HEART, full_document()]))
    random_ = random.Random(3)
    rejected = 0
    for turn in range(200):
        broken = bytearray(plain[: random_.randrange(len(plain))] if turn % 4 == 0 else plain)
        for _ in range(random_.choice((1, 3))):
            if broken:
                broken[random_.randrange(len(broken))] = random_.randrange(256)
        tally = Tally(tmp_path / "rejects.jsonl")
        try:
            with tally:
                read_back(zlib.compress(bytes(broken)), tally)
        except FormatError:
            rejected += 1
    assert rejected > 20


def test_without_spacy_the_message_names_the_extra() -> None:
    script = (
        "import sys; sys.modules['spacy'] = None\n"
        "from lexome.formats import spacy_docs\n"
        "from lexome import Tally\n"
        "from lexome.errors import MissingExtraError\n"
        "try: spacy_docs.write([], None, tally=Tally())\n"
        "except MissingExtraError as error: print(error)\n"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert "lexome[spacy]" in out


def test_real_abstracts_come_back(real_data: Path) -> None:
    path = next(iter(sorted((real_data / "corpus" / "abstracts").glob("*.jsonl.xz"))))
    docs = [doc for doc, _ in zip(lexome.read(path), range(300), strict=False)]
    assert read_back(written(docs)) == docs
