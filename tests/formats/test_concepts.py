"""Concept ids of files as CURIEs, and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lexome import Tally
from lexome.formats.concept_ids import read_ids, read_infon, write_ids

VARIANT = "tmVar:p|SUB|V|600|E;HGVS:p.V600E;VariantGroup:2;CorrespondingGene:673;RS#:113488022;CA#:123643"

READ = [
    ("D001943", "Disease", ["mesh:D001943"]),
    ("MESH:C000657245", "Disease", ["mesh:C000657245"]),
    (" D008661", "DiseaseClass", ["mesh:D008661"]),
    ("OMIM:300322+OMIM:102600", "Modifier", ["omim:300322", "omim:102600"]),
    ("D003110|D009369", "CompositeMention", ["mesh:D003110", "mesh:D009369"]),
    ("672", "Gene", ["NCBIGene:672"]),
    ("672", "GeneOrGeneProduct", ["NCBIGene:672"]),
    ("26395,5604;26396", "Gene", ["NCBIGene:26395", "NCBIGene:5604", "NCBIGene:26396"]),
    ("172659(Tax:6239)", "Gene", ["NCBIGene:172659"]),
    ("9606", "OrganismTaxon", ["NCBITaxon:9606"]),
    ("9606", "Disease", ["local:9606"]),
    ("CVCL:0030", "CellLine", ["cellosaurus:CVCL_0030"]),
    ("CVCL_0030", "CellLine", ["cellosaurus:CVCL_0030"]),
    ("rs113488022", "SequenceVariant", ["dbsnp:rs113488022"]),
    ("c|SUB|A|1|T", "SequenceVariant", ["tmvar:c|SUB|A|1|T"]),
    ("|DEL|46|S", "SequenceVariant", ["tmvar:|DEL|46|S"]),
    ("p.R1441G,C;RS#:33939927|34995376", "Mutation", ["hgvs:p.R1441G,C", "dbsnp:rs33939927", "dbsnp:rs34995376"]),
    (VARIANT, "Variant", ["tmvar:p|SUB|V|600|E", "hgvs:p.V600E", "dbsnp:rs113488022", "clingen:CA123643"]),
    ("GO:0005515,HP:0001250", "Process", ["GO:0005515", "HP:0001250"]),
    ("LAB-17", "Chemical", ["local:LAB-17"]),
    ("4-(2,3-dimethyl)phenol", "Chemical", ["local:4-(2,3-dimethyl)phenol"]),
    ("D002544|-1", "Disease", ["mesh:D002544"]),
    ("", "Gene", []),
    ("-", "Gene", []),
    ("-1", "Gene", []),
]


@pytest.mark.parametrize(("raw", "type", "concepts"), READ)
def test_ids_are_read_as_curies(raw: str, type: str, concepts: list[str]) -> None:
    assert list(read_ids(raw, type, Tally())) == concepts


@pytest.mark.parametrize(("raw", "type", "concepts"), READ)
def test_what_was_read_is_written_so_that_it_reads_the_same(raw: str, type: str, concepts: list[str]) -> None:
    written = write_ids(tuple(concepts), type)
    assert written is not None
    assert list(read_ids(written, type, Tally())) == concepts


@pytest.mark.parametrize(
    ("key", "raw", "type", "concept"),
    [
        ("MESH", "D001943", "Disease", "mesh:D001943"),
        ("MEDIC", "OMIM:114480", "Disease", "omim:114480"),
        ("OMIM", "114480", "Disease", "omim:114480"),
        ("NCBI Gene", "672", "Gene", "NCBIGene:672"),
        ("NCBI Homologene", "532", "Gene", "homologene:532"),
        ("ncbi_homologene", "532", "Gene", "homologene:532"),
        ("NCBI Species", "9606", "Species", "NCBITaxon:9606"),
        ("CVCL", "0030", "CellLine", "cellosaurus:CVCL_0030"),
        ("rs", "113488022", "Mutation", "dbsnp:rs113488022"),
        ("tmVar", "p.S195A", "Mutation", "hgvs:p.S195A"),
        ("identifier", "MESH:D001943", "Disease", "mesh:D001943"),
        ("Identifier", "672", "Gene", "NCBIGene:672"),
    ],
)
def test_the_name_of_an_infon_says_whose_ids_it_holds(key: str, raw: str, type: str, concept: str) -> None:
    assert read_infon(key, raw, type, Tally()) == (concept,)


def test_what_an_id_loses_is_noted() -> None:
    tally = Tally()
    read_ids("172659(Tax:6239)", "Gene", tally)
    read_ids("D002544|-1", "Disease", tally)
    read_ids(VARIANT, "Variant", tally)
    assert tally.notes == {
        "taxon of a gene id ignored": 1,
        "part without an id in a list of ids": 1,
        "field VariantGroup of a variant ignored": 1,
        "field CorrespondingGene of a variant ignored": 1,
    }


def test_ids_are_written_as_pubtator_has_them() -> None:
    assert write_ids(("mesh:D001943", "omim:114480"), "Disease") == "MESH:D001943;OMIM:114480"
    assert write_ids(("NCBIGene:672",), "Gene") == "672"
    assert write_ids(("NCBIGene:672",), "Disease") == "NCBIGene:672"


def test_an_id_that_looks_like_another_is_written_in_full() -> None:
    assert write_ids(("local:D001943",), "Disease") == "local:D001943"
    assert write_ids(("local:-1",), "Disease") == "local:-1"


def test_concepts_that_cannot_be_written_are_not_written_wrong() -> None:
    assert write_ids(("mesh:D000001", "local:a;b"), "Gene") is None
    assert write_ids(("MESH:D001943",), "Disease") is None


PREFIXES = st.sampled_from(["mesh", "NCBIGene", "local", "tmvar", "hgvs", "dbsnp", "cellosaurus", "GO", "x.y"])
CURIES = st.tuples(PREFIXES, st.text(min_size=1, max_size=8)).map(":".join)


@given(st.lists(CURIES, max_size=3).map(tuple), st.sampled_from(["Gene", "Species", "Disease", ""]))
def test_whatever_is_written_reads_the_same(concepts: tuple[str, ...], type: str) -> None:
    written = write_ids(concepts, type)
    if written is not None:
        assert read_ids(written, type, Tally()) == concepts


@given(st.text(), st.sampled_from(["Gene", "Species", "Disease", ""]))
def test_any_field_gives_curies_that_a_span_can_have(raw: str, type: str) -> None:
    for concept in read_ids(raw, type, Tally()):
        assert all(concept.partition(":"))
