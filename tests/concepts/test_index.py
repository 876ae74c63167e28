"""The index of names: written, opened, searched; damaged files and other versions are refused."""

import json
import struct
import zlib
from pathlib import Path

import pytest
from errors import raises
from hypothesis import given
from hypothesis import strategies as st

from lexome.concepts.index import TermIndex, encode_postings
from lexome.concepts.index_writer import MAX_CONCEPTS, write_index
from lexome.concepts.names import Agreement
from lexome.concepts.terms import Term, TermTable
from lexome.errors import FormatError

DICTIONARIES = [{"name": "diseases", "license": "CC0"}, {"name": "genes", "license": "public domain"}]
TERMS = (
    (Term("mesh:D001943", "Disease", "Breast Neoplasms", ("Breast Cancer", "Cancer of the Breast")), 0),
    (Term("mesh:D006973", "Disease", "Hypertension", ("High Blood Pressure",), xrefs=("DOID:10763",)), 0),
    (Term("mesh:D011507", "Disease", "Proteinuria"), 0),
    (Term("NCBIGene:672", "Gene", "BRCA1", ("breast cancer 1",), taxon="NCBITaxon:9606"), 1),
    (Term("NCBIGene:12189", "Gene", "Brca1", taxon="NCBITaxon:10090"), 1),
    (Term("NCBIGene:7124", "Gene", "TNF", ("TNF-alpha",), taxon="NCBITaxon:9606"), 1),
)


def write(path: Path, terms=TERMS, near=("Disease",)) -> Path:  # type: ignore[no-untyped-def]
    table = TermTable()
    for term, source in terms:
        table.add(term, source)
    write_index(path, table, DICTIONARIES, near=near)
    return path


@pytest.fixture
def index(tmp_path: Path) -> TermIndex:
    return TermIndex.open(write(tmp_path / "a.lexterms"))


def found(index: TermIndex, name: str, type: str | None = None) -> list[tuple[str, str, Agreement | None]]:
    return [(index.concept(match.concept).id, match.name, match.agreement) for match in index.find(name, type)]


def test_a_name_finds_its_concepts_closest_first(index: TermIndex) -> None:
    assert found(index, "BRCA1") == [
        ("NCBIGene:672", "BRCA1", Agreement.EXACT),
        ("NCBIGene:12189", "Brca1", Agreement.CASE),
    ]
    assert found(index, "TNF-α") == [("NCBIGene:7124", "TNF-alpha", Agreement.FOLDED)]
    assert found(index, "breast cancers") == [("mesh:D001943", "Breast Cancer", Agreement.LOOSE)]
    assert found(index, "breast cancer 1", "Disease") == found(index, "nothing") == found(index, "") == []


def test_a_concept_has_all_that_its_dictionary_says(index: TermIndex) -> None:
    gene = index.concept_of("NCBIGene:672")
    assert gene is not None
    assert (gene.type, gene.preferred, gene.names) == ("Gene", "BRCA1", ("BRCA1", "breast cancer 1"))
    assert (gene.taxon, gene.xrefs, gene.source) == ("NCBITaxon:9606", (), "genes")
    disease = index.concept_of("mesh:D006973")
    assert disease is not None
    assert (disease.xrefs, disease.taxon, disease.source) == (("DOID:10763",), None, "diseases")
    assert index.concept_of("mesh:D000000") is index.concept_of("omim:1") is None
    assert [concept.number for concept in index.concepts()] == list(range(len(index))) == list(range(6))
    assert [concept.id for concept in index.concepts("Gene")] == ["NCBIGene:672", "NCBIGene:7124", "NCBIGene:12189"]
    with pytest.raises(IndexError):
        index.concept(6)


def test_similar_names_are_found_where_the_index_has_them(index: TermIndex) -> None:
    best = index.near("hypertensoin", "Disease")[0]
    assert (index.concept(best.concept).id, best.agreement) == ("mesh:D006973", None)
    assert 0.4 < best.similarity < 1
    same = index.near("Cancers of the breast", "Disease", 1)
    assert [(match.name, match.agreement, match.similarity) for match in same] == [
        ("Breast Cancer", Agreement.LOOSE, 1.0)
    ]
    assert index.near("BRCA2", "Gene") == index.near("xyz", "Disease") == ()


def test_the_same_terms_in_any_order_give_the_same_bytes(tmp_path: Path) -> None:
    first, second = write(tmp_path / "a.lexterms"), write(tmp_path / "b.lexterms", reversed(TERMS))
    assert first.read_bytes() == second.read_bytes()


def test_every_name_of_many_concepts_finds_its_concept(tmp_path: Path) -> None:
    terms = [(Term(f"X:{number}", "Gene", f"gene {number}", (f"G-{number}",)), 1) for number in range(3000)]
    index = TermIndex.open(write(tmp_path / "many.lexterms", terms, near=("Gene",)))
    for number in range(0, 3000, 7):
        assert [hit[0] for hit in found(index, f"g{number}")] == [f"X:{number}"]
        concept = index.concept_of(f"X:{number}")
        assert concept is not None
        assert index.concept(concept.number) == concept
        assert index.concept(index.near(f"gene {number}", "Gene", 1)[0].concept).id == f"X:{number}"


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (lambda raw: raw[:-1], "damaged-index"),
        (lambda raw: raw[:40], "damaged-index"),
        (lambda raw: raw[:10], "not-an-index"),
        (lambda raw: b"", "not-an-index"),
        (lambda raw: b"PK" + raw[2:], "not-an-index"),
        (lambda raw: raw[:-9] + bytes([raw[-9] ^ 1]) + raw[-8:], "damaged-index"),
        (lambda raw: raw[:60] + b"?" + raw[61:], "damaged-index"),
        (lambda raw: raw[:8] + struct.pack("<I", 99) + raw[12:], "other-version"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, damage, code: str) -> None:  # type: ignore[no-untyped-def]
    path = write(tmp_path / "a.lexterms")
    path.write_bytes(damage(path.read_bytes()))
    with raises(FormatError, code=code):
        TermIndex.open(path)


def test_an_index_whose_names_have_other_rules_is_refused(tmp_path: Path) -> None:
    raw = write(tmp_path / "a.lexterms").read_bytes()
    length = struct.unpack_from("<I", raw, 12)[0]
    header = json.loads(raw[20 : 20 + length])
    changed = json.dumps({**header, "key_rules": 7}, separators=(",", ":")).encode()
    assert len(changed) == length
    path = tmp_path / "b.lexterms"
    path.write_bytes(raw[:16] + struct.pack("<I", zlib.crc32(changed)) + changed + raw[20 + length :])
    with raises(FormatError, code="other-version", value=7):
        TermIndex.open(path)


def test_a_missing_file_and_an_index_of_nothing_are_errors(tmp_path: Path) -> None:
    with raises(FormatError, code="unreadable-file"):
        TermIndex.open(tmp_path / "missing")
    with raises(FormatError, code="no-terms"):
        write_index(tmp_path / "none", [], DICTIONARIES)


def test_dictionaries_that_disagree_are_counted_and_the_first_decides() -> None:
    table = TermTable()
    table.add(Term("X:1", "Gene", "alpha", ("beta",)))
    table.add(Term("X:1", "Gene", "gamma", xrefs=("Y:2", "no curie")))
    table.add(Term("X:1", "Disease", "delta"))
    table.add(Term("not a curie", "Gene", "epsilon"))
    table.add(Term("X:2", "Gene", "Q", ("7", "-")))
    (entry,) = table
    assert (list(entry.names), list(entry.xrefs), entry.type) == (["alpha", "beta", "gamma"], ["Y:2"], "Gene")
    assert sum(table.dropped.values()) == 8
    assert {reason.split()[0] for reason in table.dropped} == {"preferred", "term", "id", "name", "cross-reference"}


def test_too_many_names_of_a_concept_and_concepts_of_a_name_are_counted(tmp_path: Path) -> None:
    table = TermTable(max_names=10, max_name_characters=20)
    table.add(Term("X:0", "Gene", "first", (*(f"name {number}" for number in range(30)), "long " * 20)))
    assert len(next(iter(table)).names) == 10
    assert sorted(table.dropped.values()) == [1, 21]
    for number in range(1, MAX_CONCEPTS + 2):
        table.add(Term(f"X:{number}", "Gene", f"own {number}", ("unknown protein",)))
    counts = write_index(tmp_path / "a", table, DICTIONARIES)
    assert sum(counts.dropped.values()) == MAX_CONCEPTS + 1
    assert TermIndex.open(tmp_path / "a").find("unknown protein") == ()


@given(st.sets(st.integers(0, 200_000), min_size=1, max_size=50))
def test_posting_lists_are_read_as_they_were_written(keys: set[int]) -> None:
    import numpy as np

    expected = np.array(sorted(keys), np.int64)
    raw, wide = encode_postings(expected)
    dtype = np.dtype("<u2") if wide else np.dtype("u1")
    steps = np.frombuffer(raw, dtype)
    assert (np.cumsum(steps, dtype=np.int64)[steps != np.iinfo(dtype).max] - 1).tolist() == expected.tolist()
