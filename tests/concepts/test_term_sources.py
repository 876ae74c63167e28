"""Dictionaries in the forms of their owners, in small invented files."""

import gzip
import io
import lzma
import tarfile
from collections import Counter
from pathlib import Path

import pytest
from errors import raises

from lexome.concepts.sources import SourceOptions, read_terms, to_curie
from lexome.concepts.terms import Term
from lexome.errors import FormatError
from lexome.formats import Tally

MESH_XML = """<?xml version="1.0"?><!DOCTYPE DescriptorRecordSet>
<DescriptorRecordSet LanguageCode="eng">
<DescriptorRecord DescriptorClass="1"><DescriptorUI>D900001</DescriptorUI>
<DescriptorName><String>Marsh Fever</String></DescriptorName>
<TreeNumberList><TreeNumber>C01.100</TreeNumber></TreeNumberList>
<ConceptList><Concept><TermList><Term><String>Marsh Fever</String></Term><Term><String>Fever, Marsh</String></Term>
</TermList></Concept></ConceptList></DescriptorRecord>
<DescriptorRecord><DescriptorUI>D900002</DescriptorUI><DescriptorName><String>Marshes</String></DescriptorName>
<TreeNumberList><TreeNumber>G16.500</TreeNumber></TreeNumberList></DescriptorRecord>
<DescriptorRecord><DescriptorUI>D900003</DescriptorUI><DescriptorName><String>Bogamine</String></DescriptorName>
<TreeNumberList><TreeNumber>D02.1</TreeNumber></TreeNumberList></DescriptorRecord>
</DescriptorRecordSet>
"""
SUPPLEMENT_XML = """<SupplementalRecordSet>
<SupplementalRecord SCRClass="1"><SupplementalRecordUI>C900001</SupplementalRecordUI>
<SupplementalRecordName><String>norbogamine</String></SupplementalRecordName></SupplementalRecord>
<SupplementalRecord SCRClass="3"><SupplementalRecordUI>C900002</SupplementalRecordUI>
<SupplementalRecordName><String>Glass bone syndrome</String></SupplementalRecordName></SupplementalRecord>
<SupplementalRecord SCRClass="2"><SupplementalRecordUI>C900003</SupplementalRecordUI>
<SupplementalRecordName><String>BOG protocol</String></SupplementalRecordName></SupplementalRecord>
</SupplementalRecordSet>
"""
MESH_ASCII = """*NEWRECORD
RECTYPE = D
MH = Marsh Fever
ENTRY = Fever, Marsh|T047|NON|EQV|UNK (19XX)|751029|abcdef
PRINT ENTRY = Bog Fever|T047
MN = C01.100
UI = D900001

*NEWRECORD
RECTYPE = C
NM = norbogamine
SY = N-nor-bogamine|T109|EQV
UI = C900001
"""
GENE_INFO = (
    "#Format: tax_id GeneID Symbol\n"
    "9606\t90001\tMFR1\t-\tMFRA|MFR-1\tMIM:690001|HGNC:HGNC:9001|Ensembl:ENSG9\t1\t-\tmarsh fever receptor 1"
    "\tprotein-coding\tMFR1\tmarsh fever receptor 1\tO\tbog receptor\t20260101\n"
    "10090\t90002\tMfr1\t-\t-\t-\t1\t-\tmarsh fever receptor 1\tprotein-coding\t-\t-\t-\t-\t20260101\n"
)
NAMES_DMP = (
    "1\t|\troot\t|\t\t|\tscientific name\t|\n"
    "900\t|\tPalustria febris\t|\t\t|\tscientific name\t|\n"
    "900\t|\tPalustria febris Linn 1758\t|\t\t|\tauthority\t|\n"
    "900\t|\tmarsh bug\t|\t\t|\tgenbank common name\t|\n"
)
CELLOSAURUS = """----
 Cellosaurus
----
ID   MarshOne
AC   CVCL_9001
SY   Marsh-1; MO
OX   NCBI_TaxID=9606; ! Homo sapiens (Human)
//
ID   BogTwo
AC   CVCL_9002
//
"""
OBO = r"""format-version: 1.2

[Term]
id: DOID:90001
name: marsh fever
alt_id: DOID:90009
synonym: "fever \"of marshes\"" EXACT [x:1]
synonym: "wet fever" BROAD []
xref: MSH:D900001
xref: OMIM:690001 ! x
is_a: DOID:4 ! disease

[Term]
id: DOID:90002
name: gone
is_obsolete: true

[Typedef]
id: part_of
name: part of
"""
CTD = (
    "# Fields:\n# DiseaseName\tDiseaseID\tAltDiseaseIDs\tDefinition\tParentIDs\tTreeNumbers\tParentTreeNumbers\t"
    "Synonyms\n#\nMarsh Fever\tMESH:D900001\tOMIM:690001|DO:DOID:9\t\t\t\t\tBog Fever|Fever, Marsh\n"
    "Glass Bones\tOMIM:690002\t\t\t\t\t\t\n"
)
CTD_CHEMICALS = "# ChemicalName\tChemicalID\tCasRN\tSynonyms\nbogamine\tMESH:D900003\t\tBG-1\n"
BIOSYN = "D900001||Marsh Fever|Bog Fever\nC900002|690002||Glass Bones\n\n690003||Reed Rash\n"
COMPOUNDS = "ID\tSTATUS\tCHEBI_ACCESSION\tNAME\n9001\tC\tCHEBI:9001\tbogamine\n9002\tC\tCHEBI:9002\tnull\n"
CHEBI_NAMES = (
    "ID\tCOMPOUND_ID\tTYPE\tNAME\tLANGUAGE\n1\t9001\tSYNONYM\tBG-1\ten\n2\t9001\tSYNONYM\tbogamina\tes\n"
    "3\t9001\tIUPAC NAME\t1-bog\ten\n"
)
TSV = (
    "# a comment\nid\tname\tkind\tother\n"
    "MESH:D900001\tMarsh Fever\tC01\tBog Fever;Fever, Marsh\nX-2\tReeds\tB01\t\nonly\n"
)


def read(folder: Path, content: str | bytes, format: str, *, name: str = "file", **options: object):  # type: ignore[no-untyped-def]
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    dropped: Counter[str] = Counter()
    settings = SourceOptions(**options)  # type: ignore[arg-type]
    return list(read_terms(path, format, settings, tally=Tally(), dropped=dropped)), +dropped


def test_mesh_descriptors_have_the_type_of_their_tree(tmp_path: Path) -> None:
    terms, dropped = read(tmp_path, MESH_XML, "mesh-xml")
    assert [(term.id, term.type, term.name, term.names) for term in terms] == [
        ("mesh:D900001", "Disease", "Marsh Fever", ("Marsh Fever", "Fever, Marsh")),
        ("mesh:D900003", "Chemical", "Bogamine", ()),
    ]
    assert sum(dropped.values()) == 1
    diseases, dropped = read(tmp_path, MESH_XML, "mesh-xml", type="Disease")
    assert ([term.id for term in diseases], sum(dropped.values())) == (["mesh:D900001"], 2)


def test_supplementary_records_have_the_type_of_their_class(tmp_path: Path) -> None:
    terms, dropped = read(tmp_path, SUPPLEMENT_XML, "mesh-xml")
    assert [(term.id, term.type) for term in terms] == [("mesh:C900001", "Chemical"), ("mesh:C900002", "Disease")]
    assert sum(dropped.values()) == 1


def test_mesh_in_ascii(tmp_path: Path) -> None:
    terms, _ = read(tmp_path, MESH_ASCII, "mesh-ascii")
    assert terms == [
        Term("mesh:D900001", "Disease", "Marsh Fever", ("Bog Fever", "Fever, Marsh")),
        Term("mesh:C900001", "Chemical", "norbogamine", ("N-nor-bogamine",)),
    ]


def test_gene_info(tmp_path: Path) -> None:
    terms, dropped = read(tmp_path, GENE_INFO, "gene-info", taxa=frozenset({"NCBITaxon:9606"}))
    (gene,) = terms
    assert (gene.id, gene.type, gene.name, gene.taxon) == ("NCBIGene:90001", "Gene", "MFR1", "NCBITaxon:9606")
    assert {"MFRA", "MFR-1", "marsh fever receptor 1", "bog receptor"} == set(gene.names) - {"MFR1"}
    assert gene.xrefs == ("omim:690001", "HGNC:9001", "Ensembl:ENSG9")
    assert sum(dropped.values()) == 1


@pytest.mark.parametrize("packed", [False, True])
def test_taxonomy_with_abbreviated_species(tmp_path: Path, packed: bool) -> None:
    content, name = NAMES_DMP.encode(), "names.dmp"
    if packed:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
            for member, raw in (("nodes.dmp", b"1\t|\t1\t|\n"), ("names.dmp", content)):
                entry = tarfile.TarInfo(member)
                entry.size = len(raw)
                archive.addfile(entry, io.BytesIO(raw))
        content, name = buffer.getvalue(), "taxdump.tar.gz"
    terms, dropped = read(tmp_path, content, "taxdump", name=name)
    assert terms == [
        Term("NCBITaxon:1", "Species", "root", ()),
        Term("NCBITaxon:900", "Species", "Palustria febris", ("marsh bug", "P. febris")),
    ]
    assert sum(dropped.values()) == 1


def test_chebi_and_its_names(tmp_path: Path) -> None:
    terms, dropped = read(tmp_path, COMPOUNDS, "chebi")
    assert (terms, sum(dropped.values())) == ([Term("CHEBI:9001", "Chemical", "bogamine")], 1)
    terms, dropped = read(tmp_path, CHEBI_NAMES, "chebi")
    assert ([term.names for term in terms], sum(dropped.values())) == ([("BG-1",), ("1-bog",)], 1)


def test_cellosaurus(tmp_path: Path) -> None:
    terms, _ = read(tmp_path, CELLOSAURUS, "cellosaurus")
    assert terms == [
        Term("cellosaurus:CVCL_9001", "CellLine", "MarshOne", ("Marsh-1", "MO"), "NCBITaxon:9606"),
        Term("cellosaurus:CVCL_9002", "CellLine", "BogTwo"),
    ]


def test_obo(tmp_path: Path) -> None:
    (term,), dropped = read(tmp_path, OBO, "obo", type="Disease")
    assert term == Term(
        "DOID:90001",
        "Disease",
        "marsh fever",
        ('fever "of marshes"',),
        None,
        ("DOID:90009", "mesh:D900001", "omim:690001"),
    )
    assert sum(dropped.values()) == 1
    (broad,), _ = read(tmp_path, OBO, "obo", synonyms=("BROAD",))
    assert (broad.type, broad.names) == ("Term", ("wet fever",))


def test_tables_of_ctd(tmp_path: Path) -> None:
    terms, _ = read(tmp_path, CTD, "ctd")
    assert terms == [
        Term(
            "mesh:D900001", "Disease", "Marsh Fever", ("Bog Fever", "Fever, Marsh"), None, ("omim:690001", "DO:DOID:9")
        ),
        Term("omim:690002", "Disease", "Glass Bones"),
    ]
    assert read(tmp_path, CTD_CHEMICALS, "ctd")[0] == [Term("mesh:D900003", "Chemical", "bogamine", ("BG-1",))]


def test_dictionaries_of_biosyn(tmp_path: Path) -> None:
    terms, _ = read(tmp_path, BIOSYN, "biosyn")
    assert terms == [
        Term("mesh:D900001", "Disease", "Marsh Fever", ("Bog Fever",)),
        Term("mesh:C900002", "Disease", "Glass Bones", (), None, ("omim:690002",)),
        Term("omim:690003", "Disease", "Reed Rash"),
    ]


def test_tables_by_name_and_number_of_columns(tmp_path: Path) -> None:
    columns = {"id": "id", "name": "name", "names": "other"}
    terms, dropped = read(
        tmp_path, TSV, "tsv", type="Disease", columns=columns, rows={"kind": ("C",)}, split=";", prefix="LAB"
    )
    assert terms == [Term("mesh:D900001", "Disease", "Marsh Fever", ("Bog Fever", "Fever, Marsh"))]
    assert sorted(dropped.values()) == [1, 1]
    terms, _ = read(tmp_path, "a\tX\tGene\n", "tsv", columns={"id": 1, "name": 0, "type": 2}, prefix="LAB")
    assert terms == [Term("LAB:X", "Gene", "a")]


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress])
def test_compressed_files(tmp_path: Path, compress) -> None:  # type: ignore[no-untyped-def]
    assert len(read(tmp_path, compress(BIOSYN.encode()), "biosyn")[0]) == 3


@pytest.mark.parametrize(
    ("raw", "prefix", "curie"),
    [
        ("MESH:D001943", None, "mesh:D001943"),
        ("D001943", "mesh", "mesh:D001943"),
        ("MGI:MGI:97490", None, "MGI:MGI:97490"),
        ("LAB-17", "LAB", "LAB:LAB-17"),
        ("two words", None, "two words"),
        ("", None, ""),
    ],
)
def test_ids_become_curies(raw: str, prefix: str | None, curie: str) -> None:
    assert to_curie(raw, prefix) == curie


@pytest.mark.parametrize(
    ("content", "format", "code"),
    [
        (MESH_XML[:-300], "mesh-xml", "truncated"),
        (MESH_ASCII[:-20], "mesh-ascii", "truncated"),
        (OBO[: OBO.index("name: marsh")], "obo", "truncated"),
        (OBO[: OBO.index(" EXACT") - 3], "obo", "truncated"),
        (CELLOSAURUS[:-4], "cellosaurus", "truncated"),
        (gzip.compress(GENE_INFO.encode())[:-20], "gene-info", "truncated"),
        (b"\xff\xfe", "obo", "invalid-encoding"),
        *(("neither this\nnor that\n", format, "wrong-format") for format in ("mesh-ascii", "gene-info", "ctd", "obo")),
        *(("a\tb\n", format, "wrong-format") for format in ("taxdump", "chebi", "cellosaurus", "biosyn")),
        ("a\tb\n", "tsv", "missing-column"),
    ],
)
def test_other_and_truncated_files_are_errors(tmp_path: Path, content: str | bytes, format: str, code: str) -> None:
    with raises(FormatError, code=code):
        read(tmp_path, content, format, type="Disease", name="names.dmp", columns={"id": "curie", "name": "name"})
