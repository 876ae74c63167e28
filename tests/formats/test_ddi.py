"""DDI 2013 XML: inclusive offsets, discontinuous drugs, pairs of every kind."""

import tarfile
from collections import Counter
from pathlib import Path

import pytest
from errors import raises
from hypothesis import given
from hypothesis import strategies as st
from memory_files import source_of

import lexome
from lexome import Argument, Document, Passage, Relation, Span, Tally
from lexome.errors import BadDocument, FormatError
from lexome.formats import ddi

SMALL = """<?xml version="1.0" encoding="UTF-8"?>
<document id="D1">
  <sentence id="D1.s0" text="Zorin &amp; alpha- or beta-blockers&#10;clash."/>
  <sentence id="D1.s1" text="Alpha- or beta-blockers with zorin, maybe.">
    <entity id="D1.s1.e0" charOffset="0-5;15-22" type="group" text="Alpha-blockers"/>
    <entity id="D1.s1.e1" charOffset="10-22" type="group" text="beta-blockers"/>
    <entity id="D1.s1.e2" charOffset="29-33" type="drug" text="zorin"/>
    <pair id="D1.s1.p0" e1="D1.s1.e0" e2="D1.s1.e1" ddi="false"/>
    <pair id="D1.s1.p1" e1="D1.s1.e0" e2="D1.s1.e2" ddi="true" type="effect"/>
    <pair id="D1.s1.p2" e1="D1.s1.e1" e2="D1.s1.e2" ddi="true"/>
  </sentence>
</document>
"""


def read(text: str | bytes, tally: Tally | None = None, **options: object) -> list[Document]:
    source = source_of("a.xml", text)
    return list(ddi.read(source, tally=tally or Tally(), **options))  # type: ignore[arg-type]


def test_a_document_has_its_sentences_drugs_and_pairs() -> None:
    tally = Tally()
    (doc,) = read(SMALL, tally)
    assert doc.id == "D1"
    assert doc.passages == (
        Passage(0, "Zorin & alpha- or beta-blockers\nclash.", "sentence", source="D1.s0"),
        Passage(39, "Alpha- or beta-blockers with zorin, maybe.", "sentence", source="D1.s1"),
    )
    assert doc.spans == (
        Span("D1.s1.e0", "group", ((39, 45), (54, 62)), "Alpha- blockers"),
        Span("D1.s1.e1", "group", ((49, 62),), "beta-blockers"),
        Span("D1.s1.e2", "drug", ((68, 73),), "zorin"),
    )
    pairs = [("p0", "false", "e0", "e1"), ("p1", "effect", "e0", "e2"), ("p2", "true", "e1", "e2")]
    assert doc.relations == tuple(
        Relation(f"D1.s1.{id}", f"DDI-{type}", (Argument("e1", f"D1.s1.{e1}"), Argument("e2", f"D1.s1.{e2}")))
        for id, type, e1, e2 in pairs
    )
    assert tally.notes == {"space added between the parts of a mention": 1}


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('charOffset="29-33"', 'charOffset="28-32"', "offset_mismatch"),
        ('charOffset="29-33"', 'charOffset="290-330"', "bad_offset"),
        ('charOffset="29-33"', 'charOffset="33-29"', "bad_span"),
        ('charOffset="29-33"', 'charOffset="x"', "bad_offset"),
        ('charOffset="29-33"', "", "missing_field"),
        ('e2="D1.s1.e2" ddi="true" type', 'e2="D1.s1.e9" ddi="true" type', "unknown_target"),
        ('ddi="false"', 'ddi="no"', "bad_field"),
        ('id="D1.s1.e1"', 'id="D1.s1.e0"', "duplicate_id"),
        ("</sentence>", "</sentense>", "malformed_xml"),
    ],
)
def test_a_bad_record_costs_its_document(tmp_path: Path, old: str, new: str, reason: str) -> None:
    assert old in SMALL
    two = f"<all>{SMALL.partition('?>')[2].replace(old, new, 1)}<document id='D2'/></all>"
    with Tally(tmp_path / "rejects.jsonl") as tally:
        assert [doc.id for doc in read(two, tally)] == ["D2"]
    assert tally.rejected == {reason: 1}


def test_offsets_that_miss_are_repaired_where_asked() -> None:
    shifted = SMALL.replace('"29-33"', '"27-31"').replace('"0-5;15-22"', '"1-6;16-23"')
    with raises(BadDocument, code="offset_mismatch"):
        read(shifted)
    tally = Tally()
    (doc,) = read(shifted, tally, offsets="repair")
    assert doc.spans == read(SMALL)[0].spans
    assert tally.notes["span moved to its text"] == 2


def test_what_is_not_known_is_noted() -> None:
    tally = Tally()
    read('<document id="a" version="2">x<sentence id="s" text="a"><verb id="v"/></sentence></document>', tally)
    assert tally.notes == {
        "unknown attribute ignored": 1,
        "text outside sentences ignored": 1,
        "unknown element ignored": 1,
    }


def test_a_cut_file_gives_its_error_and_no_other() -> None:
    for size in range(0, len(SMALL) - len(">\n"), 7):
        with pytest.raises((FormatError, BadDocument)):
            read(SMALL[:size])


@given(st.integers(0, len(SMALL) - 1), st.integers(0, 255))
def test_no_byte_breaks_the_reader(tmp_path_factory: pytest.TempPathFactory, place: int, byte: int) -> None:
    raw = bytearray(SMALL.encode())
    raw[place] = byte
    with Tally(tmp_path_factory.mktemp("ddi") / "rejects.jsonl") as tally:
        try:
            for doc in read(bytes(raw), tally):
                assert all(doc.text_of(span) == span.text for span in doc.spans)
        except FormatError:
            pass


def test_the_corpus_reads_whole_with_one_offset_that_misses(real_data: Path, tmp_path: Path) -> None:
    path = real_data / "benchmarks" / "DDI-2013" / "DDICorpus-2013-xml.tar.xz"
    with Tally(tmp_path / "rejects.jsonl") as strict:
        docs = list(lexome.read(path, tally=strict))
    assert (strict.files, strict.rejected) == ({"ddi": 1017}, {"offset_mismatch": 1})
    assert len(docs) == 1016
    assert strict.notes == {"space added between the parts of a mention": 4}


def test_the_parts_of_the_corpus_have_their_documents_and_pairs(real_data: Path) -> None:
    folders: Counter[str] = Counter()
    pairs: Counter[tuple[str, str]] = Counter()
    tally = Tally()
    with tarfile.open(real_data / "benchmarks" / "DDI-2013" / "DDICorpus-2013-xml.tar.xz") as archive:
        for member in archive:
            part, _, name = member.name.rpartition("/")[0].removeprefix("DDICorpus/").rpartition("/")
            opened = archive.extractfile(member) if member.isfile() else None
            if opened is None:
                continue
            for doc in read(opened.read(), tally, offsets="repair"):
                folders[f"{part.rpartition('/')[2]} {name}"] += 1
                pairs.update((part.rpartition("/")[2], relation.type) for relation in doc.relations)
    assert folders == {
        "Train DrugBank": 572,
        "Train MedLine": 142,
        "Test for DDI Extraction task DrugBank": 158,
        "Test for DDI Extraction task MedLine": 33,
        "Test for DrugNER task DrugBank": 54,
        "Test for DrugNER task MedLine": 58,
    }
    kinds = ("effect", "mechanism", "advise", "int", "true", "false")
    train = {kind: pairs["Train", f"DDI-{kind}"] for kind in kinds}
    test = {kind: pairs["Test for DDI Extraction task", f"DDI-{kind}"] for kind in kinds}
    assert train == {"effect": 1687, "mechanism": 1319, "advise": 826, "int": 188, "true": 1, "false": 23771}
    assert (sum(train.values()), sum(train.values()) - train["false"]) == (27792, 4021)
    assert test == {"effect": 360, "mechanism": 302, "advise": 221, "int": 96, "true": 0, "false": 4737}
    assert (sum(test.values()), sum(test.values()) - test["false"]) == (5716, 979)
    assert tally.notes["span moved to its text"] == 1
