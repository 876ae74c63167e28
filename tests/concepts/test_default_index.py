"""The index that comes with Lexome: the file that its README describes, with well-known names in it."""

import hashlib
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from small_terms import marked

from lexome.concepts.index import default_index, default_terms, displayed_name
from lexome.concepts.linker import Linker
from lexome.concepts.names import Agreement
from lexome.concepts.ranking import POPULAR_GENES, POPULAR_SPECIES

LINKER = Linker.load()
README = default_terms().with_name("README.md").read_text(encoding="utf-8")


def test_the_file_is_the_one_that_the_readme_describes() -> None:
    raw = default_terms().read_bytes()
    assert hashlib.sha256(raw).hexdigest() in README
    assert f"{len(raw):,} bytes" in README
    assert len(raw) < 15_000_000
    counts = default_index().header["counts"]
    for type, concepts in counts["concepts"].items():
        assert f"| {type} | {concepts:,} | {counts['names'][type]:,} |" in README


def test_every_dictionary_has_a_license_and_is_in_the_readme() -> None:
    for dictionary in default_index().dictionaries:
        assert dictionary["license"] != "unknown"
        assert f"| {dictionary['name']} | {dictionary['terms']:,} |" in README
    assert not re.search(r"(?i)/home/|/tmp/|/users/", str(default_index().header))


@pytest.mark.parametrize(
    ("name", "type", "curie"),
    [
        ("BRCA1", "Gene", "NCBIGene:672"),
        ("tumor necrosis factor-α", "Gene", "NCBIGene:7124"),
        ("Trp53", "Gene", "MGI:98834"),
        ("breast cancer", "Disease", "mesh:D001943"),
        ("Parkinson’s disease", "Disease", "mesh:D010300"),
        ("aspirin", "Chemical", "mesh:D001241"),
        ("5-FU", "Chemical", "mesh:D005472"),
        ("Cl-", "Chemical", "mesh:D002712"),
        ("Estrogen", "Chemical", "mesh:D004967"),
        ("Fe", "Chemical", "mesh:D007501"),
        ("LPS", "Chemical", "mesh:D008070"),
        ("bevacizumab", "Chemical", "mesh:D000068258"),
        ("Gleevec", "Chemical", "mesh:D000068877"),
        ("UTI", "Disease", "mesh:D014552"),
        ("chronic renal failure", "Disease", "mesh:D007676"),
        ("MERS-CoV", "Species", "NCBITaxon:1335626"),
        ("E. coli", "Species", "NCBITaxon:562"),
        ("Influenza A virus", "Species", "NCBITaxon:11320"),
        ("Lactobacillus", "Species", "NCBITaxon:1578"),
        ("Candida auris", "Species", "NCBITaxon:498019"),
        ("AAV9", "Species", "NCBITaxon:235455"),
        ("natalizumab", "Chemical", "mesh:D000069442"),
        ("dupilumab", "Chemical", "mesh:C582203"),
        ("Autism Spectrum Disorder", "Disease", "mesh:D000067877"),
        ("POTS", "Disease", "mesh:D054972"),
        ("HOTAIR", "Gene", "NCBIGene:100124700"),
        ("patients", "Species", "NCBITaxon:9606"),
        ("HeLa", "CellLine", "cellosaurus:CVCL_0030"),
        ("HEK-293", "CellLine", "cellosaurus:CVCL_0045"),
        ("NECTIN4", "Gene", "NCBIGene:81607"),
        ("STING1", "Gene", "NCBIGene:340061"),
        ("entecavir", "Chemical", "CHEBI:473990"),
        ("ZIKV", "Species", "NCBITaxon:64320"),
    ],
)
def test_well_known_names_find_their_ids(name: str, type: str, curie: str) -> None:
    index = default_index()
    assert index.concept(index.find(name, type)[0].concept).id == curie


@pytest.mark.parametrize(
    "name",
    [
        "HDL",
        "Proteinase",
        "ATPase",
        "polymerase",
        "E6",
        "E7",
        "E6/E7",
        "NS1",
        "NS5",
        "H-B",
        "E3 ubiquitin ligase",
        "RTK",
        "protein kinase",
        "homodimer",
    ],
)
def test_names_that_mean_no_single_gene_are_of_none(name: str) -> None:
    assert not [match for match in default_index().find(name, "Gene") if match.agreement is not Agreement.LOOSE]


@pytest.mark.parametrize(
    ("mention", "expected"),
    [
        # A dictionary gives these names to other concepts as well.
        ("{IBD|Disease}", "mesh:D015212"),
        ("{PKU|Disease}", "mesh:D010661"),
        ("{pertussis|Disease}", "mesh:D014917"),
        ("{TG|Chemical}", "mesh:D014280"),
        ("{ABA|Chemical}", "mesh:D000040"),
        ("{PCBs|Chemical}", "mesh:D011078"),
        ("{DHEA|Chemical}", "mesh:D003687"),
        ("{LY294002|Chemical}", "mesh:C085911"),
        ("{P-gp|Gene}", "NCBIGene:5243"),
        ("{β-actin|Gene}", "NCBIGene:60"),
        ("{protein C|Gene}", "NCBIGene:5624"),
        ("{p-p65|Gene}", "NCBIGene:5970"),
        ("{O. sativa|Species}", "NCBITaxon:4530"),
        ("{M. bovis|Species}", "NCBITaxon:1765"),
        ("{neonates|Species}", "NCBITaxon:9606"),
        # The dictionary of one species only has the name.
        ("{IL-4Rα|Gene}", "NCBIGene:3566"),
        ("{ENaC|Gene}", "NCBIGene:6337"),
    ],
)
def test_names_are_linked_to_what_texts_mean_by_them(mention: str, expected: str) -> None:
    assert [span.concepts for span in LINKER.link(marked(mention)).spans] == [(expected,)]


@pytest.mark.parametrize(
    ("mention", "expected"),
    [
        ("piperacillin-tazobactam", ("mesh:D010878", "mesh:D000078142")),
        ("sofosbuvir/velpatasvir", ("mesh:D000069474", "mesh:C000604171")),
        # Those that a dictionary has, and words with a hyphen that are one name.
        ("trimethoprim-sulfamethoxazole", ("mesh:D015662",)),
        ("polyethylene-glycol", ("mesh:D011092",)),
    ],
)
def test_combinations_of_drugs_have_the_ids_of_both(mention: str, expected: tuple[str, ...]) -> None:
    assert LINKER.link(marked(f"{{{mention}|Chemical}}")).spans[0].concepts == expected


def test_popular_names_are_of_concepts_in_the_index() -> None:
    index = default_index()
    unknown = [taxon for taxon in POPULAR_SPECIES.values() if index.number_of(taxon) is None]
    for name, symbol in POPULAR_GENES:
        found = {index.concept(match.concept).preferred.upper() for match in index.find(name, "Gene")}
        unknown += [] if symbol in found else [f"{name}: {symbol}"]
    assert not unknown


def test_common_names_are_of_one_concept_each_and_in_the_index() -> None:
    index = default_index()
    table = (Path(__file__).parents[2] / "recipes" / "terms" / "common-names.tsv").read_text(encoding="utf-8")
    rows = [line.split("\t") for line in table.splitlines()[1:]]
    names = [(type, name) for _, type, joined in rows for name in joined.split("|")]
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    missing = [
        (curie, name)
        for curie, type, joined in rows
        for name in joined.split("|")
        if (concept := index.concept_of(curie)) is None or concept.type != type or name not in concept.names
    ]
    assert (twice, missing) == ([], [])


def test_misspelled_names_find_similar_ones() -> None:
    index = default_index()
    assert index.types == ("CellLine", "Chemical", "Disease", "Gene", "Species")
    found = [index.concept(match.concept).preferred for match in index.near("ibuprophen", "Chemical", 5)]
    assert "Ibuprofen" in found


def test_a_concept_is_found_by_its_id() -> None:
    gene = default_index().concept_of("NCBIGene:672")
    assert gene is not None
    assert (gene.preferred, gene.taxon, gene.source) == ("BRCA1", "NCBITaxon:9606", "NCBI-Gene-human")
    assert default_index().concept_of("MGI:98834") is not None


def test_the_index_is_opened_once() -> None:
    assert default_index() is default_index()
    assert Path(default_index().name) == default_terms()


def test_common_species_are_shown_by_their_usual_names() -> None:
    zebrafish = default_index().concept_of("NCBITaxon:7955")
    assert zebrafish is not None
    assert (zebrafish.preferred, displayed_name(zebrafish)) == ("Brachydanio rerio", "Danio rerio")
    assert displayed_name(replace(zebrafish, preferred="my own name")) == "my own name"


def test_renamed_genes_are_shown_by_their_present_symbol() -> None:
    gene = default_index().concept_of("NCBIGene:23586")
    assert gene is not None
    assert (gene.preferred, displayed_name(gene)) == ("DDX58", "RIGI")


def test_no_preferred_name_of_a_species_is_abbreviated() -> None:
    assert not [one.preferred for one in default_index().concepts("Species") if re.match(r"[A-Z]\. ?\w", one.preferred)]
