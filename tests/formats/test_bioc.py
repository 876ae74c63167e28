"""BioC records as documents: passages, sentences, ids, infons and relations of every dialect."""

import json
from typing import Any

import pytest
from errors import raises
from memory_files import source_of

from lexome import Argument, Document, Metadata, Passage, Relation, Span, Tally
from lexome.errors import BadDocument
from lexome.formats import bioc_json
from lexome.metadata import Author, Journal


def read(record: dict[str, Any], tally: Tally | None = None, **options: str) -> Document:
    raw = json.dumps({"id": "d", "passages": [], **record}).encode()
    source = source_of("a.json", raw)
    (doc,) = bioc_json.read(source, tally=tally or Tally(), **options)  # type: ignore[arg-type]
    return doc


def mention(offset: int, text: str, *, id: str | None = "1", **infons: object) -> dict[str, Any]:
    named = {key.replace("_", " "): value for key, value in infons.items()}
    return {"id": id, "infons": named, "text": text, "locations": [{"offset": offset, "length": len(text)}]}


def passage(offset: int, text: str, *annotations: dict[str, Any], **infons: object) -> dict[str, Any]:
    return {"offset": offset, "text": text, "infons": infons, "annotations": list(annotations)}


def test_passages_and_their_mentions() -> None:
    doc = read(
        {
            "passages": [
                passage(0, "Zorin", mention(0, "Zorin", type="Gene", identifier="672"), type="title"),
                passage(6, "Quux failure", mention(6, "Quux", id="2", type="Disease", score="0.5"), type="abstract"),
            ]
        }
    )
    assert doc == Document(
        "d",
        (Passage(0, "Zorin", "title"), Passage(6, "Quux failure", "abstract")),
        (
            Span("1", "Gene", ((0, 5),), "Zorin", ("NCBIGene:672",)),
            Span("2", "Disease", ((6, 10),), "Quux", (), 0.5),
        ),
    )


def test_text_that_stands_in_sentences_is_put_together() -> None:
    sentences = [
        {"offset": 27, "text": "Zorin binds.", "annotations": [mention(27, "Zorin", type="Gene")]},
        {"offset": 41, "text": "It does."},
    ]
    doc = read({"passages": [{"offset": 27, "sentences": sentences}]})
    assert doc.passages == (Passage(27, "Zorin binds.  It does.", sentences=((27, 39), (41, 49))),)
    assert doc.text_of(doc.spans[0]) == "Zorin"


def test_sentences_beside_the_text_must_agree_with_it() -> None:
    record = {**passage(5, "One. Two."), "sentences": [{"offset": 5, "text": "One."}, {"offset": 10, "text": "Two."}]}
    assert read({"passages": [record]}).passages == (Passage(5, "One. Two.", sentences=((5, 9), (10, 14))),)
    record["sentences"][1]["offset"] = 11
    with raises(BadDocument, code="offset_mismatch", value=11):
        read({"passages": [record]}, offsets="strict")
    assert read({"passages": [record]}, offsets="repair").passages[0].sentences == ((5, 9),)


@pytest.mark.parametrize("offset", [3, 10**11])
def test_sentences_cannot_lie_outside_their_passage(offset: int) -> None:
    with raises(BadDocument, code="bad_offset", value=offset):
        read({"passages": [{"offset": 5, "sentences": [{"offset": offset, "text": "One."}]}]})


def test_annotations_and_relations_stand_at_any_level() -> None:
    nodes = [{"refid": "1", "role": "a"}, {"refid": "R9", "role": "b"}]
    sentence = {"offset": 0, "text": "ab", "annotations": [mention(0, "a", id="1", type="x")]}
    inner = {
        "offset": 0,
        "sentences": [{**sentence, "relations": [{"id": "R1", "infons": {"type": "s"}, "nodes": nodes}]}],
        "annotations": [mention(1, "b", id="2", type="x")],
        "relations": [{"id": "R2", "infons": {"type": "p"}, "nodes": nodes[:1]}],
    }
    doc = read(
        {
            "passages": [inner],
            "annotations": [mention(0, "ab", id="3", type="x")],
            "relations": [{"id": "R9", "infons": {"type": "d"}, "nodes": nodes[:1]}],
        }
    )
    assert [span.id for span in doc.spans] == ["1", "2", "3"]
    assert doc.relations == (
        Relation("R1", "s", (Argument("a", "1"), Argument("b", "R9"))),
        Relation("R2", "p", (Argument("a", "1"),)),
        Relation("R9", "d", (Argument("a", "1"),)),
    )


def test_ids_that_begin_anew_in_each_passage_are_told_apart() -> None:
    tally = Tally()
    related = {"id": "R", "infons": {"type": "x"}, "nodes": [{"refid": "0", "role": "a"}]}
    doc = read(
        {
            "passages": [
                {**passage(0, "ab", mention(0, "a", id="0", type="x")), "relations": [related]},
                {**passage(3, "cd", mention(3, "c", id="0", type="x")), "relations": [related]},
            ]
        },
        tally,
    )
    assert [span.id for span in doc.spans] == ["0", "0-2"]
    assert [(relation.id, relation.arguments[0].target) for relation in doc.relations] == [("R", "0"), ("R-2", "0-2")]
    assert tally.notes == {
        "duplicate annotation id renumbered": 1,
        "duplicate relation id renumbered": 1,
    }


def test_ids_that_are_missing_are_made() -> None:
    doc = read(
        {
            "passages": [passage(0, "ab", mention(0, "a", id=None, type="x"), mention(1, "b", id="T1", type="x"))],
            "relations": [{"infons": {"type": "y"}}, {"id": "", "infons": {"type": "y"}}, {"id": "", "infons": {}}],
        }
    )
    assert [span.id for span in doc.spans] == ["T2", "T1"]
    assert [relation.id for relation in doc.relations] == ["R1", "R2", "R3"]


def test_an_annotation_without_a_place_falls_and_its_relations_with_it() -> None:
    tally = Tally()
    nowhere = {"id": "2", "infons": {"type": "x"}, "text": "b"}
    doc = read(
        {
            "passages": [passage(0, "a", mention(0, "a", type="x"), nowhere)],
            "relations": [{"id": "R", "infons": {"type": "y"}, "nodes": [{"refid": "2", "role": ""}]}],
        },
        tally,
    )
    assert ([span.id for span in doc.spans], doc.relations) == (["1"], ())
    assert tally.notes["annotation without location skipped"] == 1


def test_a_discontinuous_mention_has_its_parts_in_order() -> None:
    parts = [{"offset": 15, "length": 2}, {"offset": 0, "length": 4}]
    for text in ("left ax", "leftax", "left and right ax"):
        record = {"id": "1", "infons": {"type": "x"}, "text": text, "locations": parts}
        doc = read({"passages": [passage(0, "left and right ax", record)]})
        assert doc.spans == (Span("1", "x", ((0, 4), (15, 17)), "left ax"),)


def test_an_offset_that_misses_is_refused_or_repaired() -> None:
    record = {"passages": [passage(0, "A zorin.", mention(1, "zorin", type="Gene"))]}
    with pytest.raises(BadDocument) as caught:
        read(record, offsets="strict")
    assert caught.value.reason == "offset_mismatch"
    assert read(record, offsets="repair").spans[0].parts == ((2, 7),)
    record["passages"][0]["annotations"][0]["locations"][0]["length"] = 0
    assert read(record, offsets="repair").spans[0].parts == ((2, 7),)


def test_ids_of_every_dialect_become_concepts() -> None:
    doc = read(
        {
            "passages": [
                passage(
                    0,
                    "a",
                    mention(0, "a", type="Gene", identifier="672", NCBI_Homologene="532"),
                    mention(0, "a", id="2", type="Gene", NCBI_Gene="672", identifier="672"),
                    mention(0, "a", id="3", type="Disease", MESH="D000001"),
                    mention(0, "a", id="4", type="Species", identifier=9606),
                )
            ]
        }
    )
    assert [span.concepts for span in doc.spans] == [
        ("NCBIGene:672", "homologene:532"),
        ("NCBIGene:672",),
        ("mesh:D000001",),
        ("NCBITaxon:9606",),
    ]


def test_what_nothing_is_made_of_is_noted() -> None:
    tally = Tally()
    item = {**mention(0, "a", color="red", score="high"), "taste": "sweet"}
    first = passage(0, "a", item, shape="round", type="title_2")
    read({"infons": {"size": "1"}, "passages": [first, passage(2, "b", year="1999", name_0="x", name_1="y")]}, tally)
    assert tally.notes == {
        "annotation infon 'color' ignored": 1,
        "score that is not a number ignored": 1,
        "field 'taste' ignored": 1,
        "annotation without a type read as Mention": 1,
        "passage infon 'shape' ignored": 1,
        "passage type 'title_2' read as heading": 1,
        "document infon 'size' ignored": 1,
        "passage infon 'year' ignored": 1,
        "passage infon 'name_N' ignored": 2,
    }


@pytest.mark.parametrize(
    ("type", "category", "kind"),
    [
        ("front", "TITLE", "title"),
        ("title", None, "title"),
        ("title", "REF", "heading"),
        ("title_3", "METHODS", "heading"),
        ("abstract_title_1", "ABSTRACT", "heading"),
        ("fig_title_caption", "FIG", "caption"),
        ("table_footnote", "TABLE", "footnote"),
        ("ref", "REF", "ref"),
        (None, None, "paragraph"),
    ],
)
def test_passages_are_called_by_one_name(type: str | None, category: str | None, kind: str) -> None:
    doc = read({"passages": [passage(0, "a", type=type, section_type=category, section="Results")]})
    assert doc.passages == (Passage(0, "a", kind, ("Results",), category),)


def test_the_first_passage_says_what_is_known_of_the_article() -> None:
    infons = {
        "article-id_pmid": "901",
        "article-id_pmc": "902",
        "article-id_doi": "10.1/x",
        "article-id_publisher-id": "77",
        "journal": "J. Zorin Res.; 1992 Apr; 117(2) 27-35",
        "year": "1992",
        "volume": "117",
        "fpage": "27",
        "lpage": "35",
        "authors": "Van Quux F, Zorin group",
        "license": "CC BY, see https://creativecommons.org/licenses/by/4.0/.",
        "kwd": "zorin; quux",
    }
    assert read({"passages": [passage(0, "a", **infons)]}).meta == Metadata(
        pmid="901",
        pmcid="PMC902",
        doi="10.1/x",
        other_ids=("publisher-id:77",),
        journal=Journal(abbreviation="J. Zorin Res.", volume="117", pages="27-35"),
        published="1992-04",
        authors=(Author(family="Van Quux", initials="F"), Author(family="Zorin group")),
        keywords=("zorin", "quux"),
        license="CC BY, see https://creativecommons.org/licenses/by/4.0/.",
        license_url="https://creativecommons.org/licenses/by/4.0/",
    )


def related(*relations: dict[str, Any], tally: Tally | None = None, **more: object) -> tuple[Relation, ...]:
    """Relations of a document that mentions a chemical, a disease and a gene, twice."""
    mentions = [
        mention(0, "a", id="0", type="Chemical", identifier="MESH:D000001", accession="@CHEMICAL_A"),
        mention(1, "b", id="1", type="Disease", identifier="MESH:D000002", accession="@DISEASE_B"),
        mention(2, "c", id="2", type="Gene", identifier="672"),
    ]
    return read({"passages": [passage(0, "abc", *mentions)], "relations": list(relations), **more}, tally).relations


def test_pubtator3_relations_are_between_concepts_whatever_their_nodes_say() -> None:
    tally = Tally()
    infons = {
        "score": "0.99",
        "type": "Association",
        "role1": {"identifier": "MESH:D000001", "type": "Chemical", "accession": "@CHEMICAL_A"},
        "role2": {"identifier": "672", "type": "Gene"},
    }
    nodes = [{"refid": "1", "role": "10,9"}]
    assert related({"id": "R1", "infons": infons, "nodes": nodes}, tally=tally) == (
        Relation(
            "R1",
            "Association",
            (Argument("Chemical", concept="mesh:D000001"), Argument("Gene", concept="NCBIGene:672")),
            score=0.99,
        ),
    )
    assert tally.notes["nodes of a relation between concepts ignored"] == 1


def test_pubtator3_relations_in_xml_name_type_and_id() -> None:
    infons = {"type": "Association", "role1": "Gene|672", "role2": "Gene|673"}
    assert related({"id": "R1", "infons": infons})[0].arguments == (
        Argument("Arg1", concept="NCBIGene:672"),
        Argument("Arg2", concept="NCBIGene:673"),
    )


def test_biored_relations_name_entities_and_novelty() -> None:
    infons = {"type": "Bind", "entity1": "D000001", "entity2": "672", "novel": "No"}
    assert related({"id": "R1", "infons": infons}) == (
        Relation(
            "R1",
            "Bind",
            (Argument("Chemical", concept="mesh:D000001"), Argument("Gene", concept="NCBIGene:672")),
            novel=False,
        ),
    )


def test_bc5cdr_relations_name_concepts_under_the_types_of_their_mentions() -> None:
    infons = {"relation": "CID", "Chemical": "D000001", "Disease": "D000002"}
    assert related({"id": "R0", "infons": infons}) == (
        Relation(
            "R0", "CID", (Argument("Chemical", concept="mesh:D000001"), Argument("Disease", concept="mesh:D000002"))
        ),
    )


def test_relations_that_are_only_displayed_are_read() -> None:
    shown = [{"name": "treat|@CHEMICAL_A|@DISEASE_B"}, {"name": "associate|@CHEMICAL_A|@GENE_X"}]
    assert related(relations_display=shown) == (
        Relation(
            "R1", "treat", (Argument("Chemical", concept="mesh:D000001"), Argument("Disease", concept="mesh:D000002"))
        ),
        Relation(
            "R2", "associate", (Argument("Arg1", concept="mesh:D000001"), Argument("Arg2", concept="pubtator3:@GENE_X"))
        ),
    )


def test_a_relation_to_nothing_is_dropped_or_refused() -> None:
    relation = {"id": "R1", "infons": {"type": "x"}, "nodes": [{"refid": "7", "role": "a"}]}
    tally = Tally()
    assert related(relation, tally=tally) == ()
    assert tally.notes["relation dropped: it refers to a dropped span"] == 1
    with raises(BadDocument, code="unknown_target"):
        read({"passages": [passage(0, "abc")], "relations": [relation]}, offsets="strict")


def test_pubtator3_says_more_of_the_article_beside_its_passages() -> None:
    meta = read(
        {
            "pmid": 901,
            "pmcid": "PMC902",
            "date": "2024-01-24T00:00:00Z",
            "journal": "Zorin Lett",
            "authors": ["Quux AB", "Foo C"],
            "passages": [
                passage(0, "a", journal="Zorin Lett;2024Jan24. doi:10.1/x.", year="2024", authors="Quux AB, ")
            ],
        }
    ).meta
    assert meta == Metadata(
        pmid="901",
        pmcid="PMC902",
        doi="10.1/x",
        journal=Journal(abbreviation="Zorin Lett"),
        published="2024-01-24",
        authors=(Author(family="Quux", initials="AB"), Author(family="Foo", initials="C")),
    )


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"id": None}, "bad_field"),
        ({"passages": 5}, "bad_field"),
        ({"passages": [{"offset": "1_0", "text": "a"}]}, "bad_offset"),
        ({"passages": [{"offset": -1, "text": "a"}]}, "bad_offset"),
        ({"passages": [{"offset": True, "text": "a"}]}, "bad_offset"),
        ({"passages": [{"text": "a"}]}, "bad_offset"),
        ({"passages": [{"offset": 0, "text": ["a"]}]}, "bad_field"),
        ({"passages": [{"offset": 0, "text": "\ud800"}]}, "not_unicode"),
        ({"passages": [passage(3, "a"), passage(0, "b")]}, "passage_overlap"),
        ({"passages": [passage(0, "a", lexome="{}}")]}, "bad_field"),
        ({"infons": {"lexome": '{"color": 1}'}}, "bad_field"),
    ],
)
def test_a_record_that_makes_no_sense_is_refused(record: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadDocument) as caught:
        read(record)
    assert caught.value.reason == reason
