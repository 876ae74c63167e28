"""BioC XML: what stands in a file, what XML cannot hold, and what others make of what we write."""

import io
from pathlib import Path

import pytest
from errors import raises
from hypothesis import given
from lxml import etree
from memory_files import source_of
from mutations import damaged
from strategies import documents

from lexome import Argument, Attribute, Document, Metadata, Passage, Relation, Span, Tally
from lexome.errors import BadDocument, FormatError, LexomeError
from lexome.formats import bioc_xml

# The elements of BioC as it is published, with annotations beside sentences as its later tools have them.
DTD = """
<!ELEMENT collection (source, date, key, infon*, document*)>
<!ELEMENT source (#PCDATA)> <!ELEMENT date (#PCDATA)> <!ELEMENT key (#PCDATA)>
<!ELEMENT infon (#PCDATA)> <!ATTLIST infon key CDATA #REQUIRED>
<!ELEMENT document (id, infon*, passage*, relation*)>
<!ELEMENT id (#PCDATA)> <!ELEMENT offset (#PCDATA)> <!ELEMENT text (#PCDATA)>
<!ELEMENT passage (infon*, offset, (text? | sentence*), annotation*, relation*)>
<!ELEMENT sentence (infon*, offset, text?, annotation*, relation*)>
<!ELEMENT annotation (infon*, location*, text, infon*)> <!ATTLIST annotation id CDATA #IMPLIED>
<!ELEMENT location EMPTY> <!ATTLIST location offset CDATA #REQUIRED length CDATA #REQUIRED>
<!ELEMENT relation (infon*, node*)> <!ATTLIST relation id CDATA #IMPLIED>
<!ELEMENT node EMPTY> <!ATTLIST node refid CDATA #REQUIRED role CDATA "">
"""

FILE = """<?xml version='1.0' encoding='UTF-8'?><!DOCTYPE collection SYSTEM 'BioC.dtd'>
<collection><source>Pubtator</source><date>2020/08/03</date><key>x.key</key>
<document><id>901</id>
  <passage>
    <infon key="type">title</infon><offset>0</offset><text>Zorin &lt; &#945;-quux</text>
    <annotation id='0'><infon key="type">Gene</infon>
      <location offset='8' length='6' /><text>&#945;-quux</text><infon key="NCBI Gene">672</infon></annotation>
  </passage>
</document>
</collection>
"""

DOC = Document(
    "901 <&>\r\n",
    (
        Passage(0, 'Zorin\r\n\t"binds" <left> & right kinase.\x85 ', "title", sentences=((0, 38), (39, 40))),
        Passage(45, "Quux. Zorin.", "abstract", ("Results", "Mice"), sentences=((45, 50), (51, 57))),
    ),
    (
        Span('T"1\n', "Gene\r", ((0, 5),), "Zorin", ("NCBIGene:672",), 0.25),
        Span("T2", "Protein", ((17, 21), (31, 37)), "left kinase"),
        Span("T3", "Gene", ((45, 57),), "Quux. Zorin."),
        Span("T4", "Gene", ((51, 56),), "Zorin"),
    ),
    (
        Relation("R1", "binds", (Argument("a\t", 'T"1\n'), Argument("b", "R2")), score=1.0),
        Relation("R2", "treats", (Argument("Arg1", concept="NCBIGene:672"), Argument("Arg2", concept="mesh:D000001"))),
    ),
    (Attribute("A1", "T2", "Negation"),),
    labels=("new", "\x00\ufffe"),
    meta=Metadata(pmid="901", keywords=("a", "b")),
)


def read(content: str | bytes, tally: Tally | None = None, **options: str) -> list[Document]:
    source = source_of("a.xml", content)
    return list(bioc_xml.read(source, tally=tally or Tally(), **options))  # type: ignore[arg-type]


def written(*docs: Document) -> bytes:
    stream = io.BytesIO()
    bioc_xml.write(docs, stream, tally=Tally())
    return stream.getvalue()


def test_documents_are_read_and_what_the_collection_says_is_noted() -> None:
    tally = Tally()
    assert read(FILE, tally) == [
        Document(
            "901",
            (Passage(0, "Zorin < α-quux", "title"),),
            (Span("0", "Gene", ((8, 14),), "α-quux", ("NCBIGene:672",)),),
        )
    ]
    assert tally.notes == {f"<{tag}> of the collection ignored": 1 for tag in ("source", "date", "key")}


def test_one_bad_document_costs_no_other(tmp_path: Path) -> None:
    tally = Tally(tmp_path / "rejects.jsonl")
    good = "<document><id>2</id></document>"
    content = f"<collection><document><id> 1 </id><passage></document>{good}</collection>"
    assert [doc.id for doc in read(content, tally)] == ["2"]
    tally.close()
    assert tally.rejected == {"malformed_xml": 1}
    assert '"id": "1"' in (tmp_path / "rejects.jsonl").read_text()


def test_a_file_that_breaks_off_says_so() -> None:
    with raises(BadDocument, code="truncated", mentions="<document>"):
        read(FILE[: FILE.index("</passage>")])
    with raises(FormatError, code="truncated", mentions="</collection>"):
        read(FILE[: FILE.index("</collection>")])


def test_elements_and_infons_that_are_unknown_or_repeated_are_noted() -> None:
    tally = Tally()
    infons = '<infon key="type">Gene</infon><infon key="type">x</infon><infon key="MESH">D000001</infon>'
    more = '<infon key="MESH">D000002</infon><score>1</score>'
    (doc,) = read(
        "<collection><document><id>1</id><passage><offset>0</offset><text>a<b>b</b></text>"
        f'<annotation>{infons}{more}<location offset="0" length="1"/><text>a</text></annotation></passage></document>'
        "</collection>",
        tally,
    )
    assert (doc.text, doc.spans[0].concepts) == ("ab", ("mesh:D000001", "mesh:D000002"))
    assert tally.notes == {
        "second infon 'type' ignored": 1,
        "element 'score' ignored": 1,
        "markup inside 'text' ignored": 1,
    }


def test_everything_comes_back_even_line_ends_and_quotes() -> None:
    assert read(written(DOC)) == [DOC]


def test_the_same_documents_give_the_same_bytes() -> None:
    assert written(DOC, DOC) == written(DOC, DOC)
    assert written(DOC).count(b"<document>") == 1


def test_mentions_stand_in_the_sentence_that_holds_them() -> None:
    (second,) = etree.fromstring(written(DOC)).xpath("//passage[2]")
    assert [found.get("id") for found in second.findall("sentence/annotation")] == ["T4"]
    assert [found.get("id") for found in second.findall("annotation")] == ["T3"]


def test_what_bioc_has_a_place_for_is_not_repeated_in_an_infon_of_our_own() -> None:
    plain = Document(
        "1",
        (Passage(0, "Zorin", "title", ("Intro",), "TITLE"), Passage(6, "Quux", "heading")),
        (Span("T1", "Gene", ((0, 5),), "Zorin", ("NCBIGene:672", "mesh:D000001"), 0.5),),
        (
            Relation(
                "R1", "is", (Argument("Gene", concept="NCBIGene:672"), Argument("Disease", concept="omim:1")), True
            ),
        ),
        meta=Metadata(pmid="901", published="1999", keywords=("a", "b")),
    )
    assert b"lexome" not in written(plain).replace(b"lexome.key", b"")
    assert read(written(plain)) == [plain]


@pytest.mark.parametrize("character", ["\x00", "\x0b", "\x1f", "\ufffe", "\uffff"])
def test_what_xml_cannot_hold_is_refused_with_its_place(character: str) -> None:
    with raises(BadDocument, code="not_xml_text", value=character, mentions="passages 2, text"):
        written(Document("1", (Passage(0, "a"), Passage(2, f"abc{character}"))))


def test_a_surrogate_is_refused_wherever_it_is() -> None:
    for doc in (Document("\ud800"), Document("1", labels=("\ud800",))):
        with pytest.raises(BadDocument):
            written(doc)


def test_no_documents_are_a_collection_too() -> None:
    assert read(written()) == []


def test_what_is_written_has_the_published_structure() -> None:
    dtd = etree.DTD(io.StringIO(DTD))
    assert dtd.validate(etree.fromstring(written(DOC, Document("2")))), dtd.error_log
    assert not dtd.validate(etree.fromstring(b"<collection><key/></collection>"))


@given(documents(keep=lambda character: bioc_xml.can_represent(character)))
def test_anything_written_has_the_published_structure(doc: Document) -> None:
    assert etree.DTD(io.StringIO(DTD)).validate(etree.fromstring(written(doc)))


def test_the_bioc_package_reads_what_is_written(tmp_path: Path) -> None:
    biocxml = pytest.importorskip("bioc.biocxml")
    (tmp_path / "a.xml").write_bytes(written(DOC))
    with (tmp_path / "a.xml").open("rb") as stream:
        (found,) = biocxml.load(stream).documents
    assert found.id == DOC.id
    assert [(passage.offset, len(passage.sentences)) for passage in found.passages] == [(0, 2), (45, 2)]
    mentions = {mention.id: mention for passage in found.passages for mention in _annotations(passage)}
    assert {span.id: span.text for span in DOC.spans} == {id_: mention.text for id_, mention in mentions.items()}
    assert mentions["T2"].total_span.offset == 17
    assert [node.refid for node in found.relations[0].nodes] == ['T"1\n', "R2"]


def _annotations(passage: object) -> list[object]:
    return [*passage.annotations, *(found for sentence in passage.sentences for found in sentence.annotations)]  # type: ignore[attr-defined]


@given(damaged(written(DOC) + FILE.encode()))
def test_no_damage_raises_anything_but_our_errors(raw: bytes) -> None:
    for offsets in ("strict", "repair"):
        try:
            read(raw, offsets=offsets)
        except LexomeError:
            continue
