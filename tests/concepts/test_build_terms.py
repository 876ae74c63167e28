"""build-terms: dictionaries to an index, joined, with everything that was dropped counted."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from errors import raises, rejects

import lexome
from lexome.concepts.build_terms import build_terms, synonym_pairs
from lexome.concepts.index import TermIndex, TermStack
from lexome.corpus.records import split_document
from lexome.errors import FormatError, UsageError
from lexome.recipe.corpus_stages import TermsRecipe

ROOT = Path(__file__).resolve().parents[2]
FILES = {
    "diseases.tsv": "D1\tMarsh Fever\nD2\tReed Rash\nD2\tRash, Reed\n",
    "more.obo": 'format-version: 1.2\n\n[Term]\nid: DOID:1\nname: fever of marshes\nsynonym: "bog fever" EXACT []\n'
    'xref: MSH:D1\n\n[Term]\nid: DOID:2\nname: reed rash\nsynonym: "scirpitis" EXACT []\n\n[Term]\nid: DOID:3\n'
    "name: new thing\n\n[Term]\nid: DOID:4\nname: mapped thing\n",
    "map.tsv": "4\tD9\n",
    "genes.tsv": "1\tMFR1;Mfr-1;Gm100\n2\tGm200\n",
}


def recipe(folder: Path, **changes: object) -> TermsRecipe:
    for name, content in FILES.items():
        (folder / name).write_text(content)
    keys = {
        "stage": "build-terms",
        "out": folder / "out.lexterms",
        "data": folder,
        "near": ("Disease",),
        "mappings": [{"name": "do-mesh", "path": "map.tsv", "prefixes": ("DOID", "mesh")}],
        "dictionaries": [
            {"name": "mesh", "paths": ("diseases.tsv",), "format": "tsv", "type": "Disease", "prefix": "mesh"},
            {
                "name": "do",
                "paths": ("more.obo",),
                "format": "obo",
                "type": "Disease",
                "mappings": ("do-mesh",),
                "join": ("id", "xrefs", "names"),
            },
            {
                "name": "genes",
                "paths": ("genes.tsv",),
                "format": "tsv",
                "type": "Gene",
                "prefix": "LAB",
                "columns": {"id": 0, "names": 1},
                "split": ";",
                "exclude_names": r"Gm\d+",
            },
        ],
        **changes,
    }
    return TermsRecipe.model_validate(keys)


def names_of(path: Path) -> dict[str, tuple[str, ...]]:
    return {concept.id: concept.names for concept in TermIndex.open(path).concepts()}


def test_terms_join_by_id_cross_reference_name_and_mapping(tmp_path: Path) -> None:
    result = build_terms(recipe(tmp_path), progress_shown=False)
    assert names_of(result.path) == {
        "mesh:D1": ("Marsh Fever", "fever of marshes", "bog fever"),
        "mesh:D2": ("Reed Rash", "Rash, Reed", "reed rash", "scirpitis"),
        "mesh:D9": ("mapped thing",),
        "DOID:3": ("new thing",),
        "LAB:1": ("MFR1", "Mfr-1"),
    }
    index = TermIndex.open(result.path)
    joined = index.concept_of("mesh:D1")
    assert joined is not None
    assert (joined.xrefs, joined.source) == (("DOID:1",), "mesh")
    assert [(row.name, row.terms, row.joined) for row in result.dictionaries] == [
        ("mesh", 2, 0),
        ("do", 4, 2),
        ("genes", 1, 0),
    ]
    assert result.dictionaries[2].dropped["name excluded by the recipe"] == 2
    assert (result.concepts, result.names) == ({"Disease": 4, "Gene": 1}, {"Disease": 9, "Gene": 2})
    assert [row["license"] for row in index.dictionaries] == ["unknown"] * 3
    assert "| do | 4 | 2 |" in result.markdown()


@pytest.mark.parametrize(
    ("unjoined", "ids"),
    [("keep-mapped", {"mesh:D1", "mesh:D2", "mesh:D9", "LAB:1"}), ("drop", {"mesh:D1", "mesh:D2", "LAB:1"})],
)
def test_terms_that_join_nothing_can_be_dropped(tmp_path: Path, unjoined: str, ids: set[str]) -> None:
    keys = recipe(tmp_path).model_dump(mode="json")
    keys["dictionaries"][1]["unjoined"] = unjoined
    result = build_terms(TermsRecipe.model_validate(keys), progress_shown=False)
    assert set(names_of(result.path)) == ids
    assert sum(result.dictionaries[1].dropped.values()) == 4 - len(ids & {"mesh:D1", "mesh:D2", "mesh:D9"})


def test_the_same_recipe_keeps_its_index_and_another_is_refused(tmp_path: Path) -> None:
    first = build_terms(recipe(tmp_path), progress_shown=False)
    assert first.new
    again = build_terms(recipe(tmp_path), progress_shown=False)
    assert (again.new, again.sha256, again.dictionaries) == (False, first.sha256, first.dictionaries)
    with raises(UsageError, code="other-settings"):
        build_terms(recipe(tmp_path, near=()), progress_shown=False)
    (tmp_path / "out.lexterms").rename(tmp_path / "kept")
    rebuilt = build_terms(recipe(tmp_path), progress_shown=False)
    assert rebuilt.path.read_bytes() == (tmp_path / "kept").read_bytes()
    smaller = build_terms(recipe(tmp_path, near=(), overwrite=True), progress_shown=False)
    assert smaller.bytes < first.bytes


def test_a_changed_dictionary_and_a_foreign_file_are_refused(tmp_path: Path) -> None:
    settings = recipe(tmp_path)
    build_terms(settings, progress_shown=False)
    (tmp_path / "genes.tsv").write_text("1\tother\n")
    with raises(UsageError, code="other-settings"):
        build_terms(settings, progress_shown=False)
    settings.out.write_text("notes")
    with raises(UsageError, code="foreign-output"):
        build_terms(settings, progress_shown=False)


@pytest.mark.parametrize(
    ("file", "content", "code", "value"),
    [
        ("diseases.tsv", "", "no-terms", "mesh"),
        ("diseases.tsv", "D 1 X\tname\n", "no-terms", "mesh"),
        ("map.tsv", "", "no-terms", "do-mesh"),
        ("diseases.tsv", None, "unreadable-file", None),
    ],
)
def test_dictionaries_without_terms_are_errors(
    tmp_path: Path, file: str, content: str | None, code: str, value: str | None
) -> None:
    settings = recipe(tmp_path)
    (tmp_path / file).unlink()
    if content is not None:
        (tmp_path / file).write_text(content)
    with raises(FormatError, code=code, value=value if value else tmp_path / file):
        build_terms(settings, progress_shown=False)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"name": "do"}, "dictionaries"),
        ({"mappings": ("none",)}, "dictionaries.0.mappings"),
        ({"columns": {"name": 0}}, "dictionaries.0.columns"),
        ({"columns": {"id": 0}}, "dictionaries.0.columns"),
        ({"type": None}, "dictionaries.0.type"),
        ({"exclude_names": "("}, "dictionaries.0.exclude_names"),
        ({"format": "owl"}, "dictionaries.0.format"),
        ({"taxon": "9606"}, "dictionaries.0.taxon"),
    ],
)
def test_recipes_that_cannot_work_are_rejected(tmp_path: Path, changes: dict[str, object], key: str) -> None:
    keys = recipe(tmp_path).model_dump(mode="json")
    keys["dictionaries"][0] |= changes
    with rejects(key):
        TermsRecipe.model_validate(keys)


def test_an_index_is_not_compressed(tmp_path: Path) -> None:
    with rejects("out"):
        recipe(tmp_path, out=tmp_path / "out.lexterms.gz")


def test_the_first_index_of_a_stack_decides(tmp_path: Path) -> None:
    default = TermIndex.open(build_terms(recipe(tmp_path), progress_shown=False).path)
    (tmp_path / "own.tsv").write_text("mesh:D2\tSwamp Rash\nLAB:7\tMarsh Fever\n")
    own = {"name": "own", "paths": ("own.tsv",), "format": "tsv", "type": "Disease"}
    keys = recipe(tmp_path, out=tmp_path / "own.lexterms", dictionaries=[own])
    index = TermStack([TermIndex.open(build_terms(keys, progress_shown=False).path), default])

    def ids(name: str, type: str | None = None) -> list[str]:
        return [index.concept(match.concept).id for match in index.find(name, type)]

    assert ids("marsh fevers") == ["LAB:7", "mesh:D1"]
    assert ids("scirpitis") == ids("swamp rash") == ["mesh:D2"]
    assert ids("MFR1", "Gene") == ["LAB:1"]
    assert ids("MFR1", "Disease") == []
    merged = index.concept_of("mesh:D2")
    assert merged is not None
    assert (merged.preferred, merged.names[-1], merged.source) == ("Swamp Rash", "scirpitis", "own")
    assert index.type_of(merged.number) == "Disease"
    assert index.concept(index.near("scirpitus", "Disease", 1)[0].concept) == merged
    assert index.concept_of("mesh:D7") is None
    listed = [concept.id for concept in index.concepts()]
    assert len(listed) == len(set(listed)) == len(index) - 1 == 6
    assert index.types == ("Disease", "Gene")
    with pytest.raises(IndexError):
        index.concept(len(index))


def test_the_sample_on_the_command_line(tmp_path: Path) -> None:
    for name in ("samples", "recipes"):
        (tmp_path / name).symlink_to(ROOT / name)
    command = [sys.executable, "-m", "lexome", "build-terms", "recipes/tiny/terms.toml"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (result.returncode, "wrote     tiny/sample.lexterms" in result.stdout) == (0, True), result.stderr
    again = subprocess.run([*command, "--json"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert json.loads(again.stdout)["concepts"] == {"Disease": 2, "Gene": 2}
    assert TermIndex.open(tmp_path / "tiny" / "sample.lexterms").find("fevers of the marsh")[0].name


def test_pairs_of_synonyms_are_documents_of_two_sentences(tmp_path: Path) -> None:
    table = {"out": tmp_path / "synonyms.jsonl.gz", "types": ("Disease",)}
    assert build_terms(recipe(tmp_path, synonyms=table), progress_shown=False).pairs == 2
    docs = list(lexome.read(table["out"]))
    pairs = {doc.id: {passage.text for passage in doc.passages} for doc in docs}
    # "fever of marshes" and "Rash, Reed" say nothing new.
    assert pairs == {"mesh:D1/0": {"Marsh Fever", "bog fever"}, "mesh:D2/0": {"Reed Rash", "scirpitis"}}
    for doc in docs:
        assert split_document(doc).pieces == tuple(passage.text for passage in doc.passages)
    assert build_terms(recipe(tmp_path, synonyms=table), progress_shown=False).pairs is None


def test_a_file_in_the_place_of_synonyms_is_kept(tmp_path: Path) -> None:
    other = tmp_path / "notes.jsonl"
    other.write_text("{}")
    with raises(UsageError, code="foreign-output", value=other):
        build_terms(recipe(tmp_path, synonyms={"out": other}), progress_shown=False)


@pytest.mark.parametrize("change", [{"near": ("Spell",)}, {"synonyms": {"out": "new.jsonl", "types": ("Spell",)}}])
def test_a_type_that_no_dictionary_has_is_refused_before_anything_is_written(
    tmp_path: Path, change: dict[str, object]
) -> None:
    with raises(UsageError, code="unknown-type", value="Spell"):
        build_terms(recipe(tmp_path, **change), progress_shown=False)
    assert not (tmp_path / "out.lexterms").exists()


def test_pairs_of_a_concept_are_bounded(tmp_path: Path) -> None:
    (tmp_path / "many.tsv").write_text("D1\tague\nD1\tbog fever\nD1\tcold bath\nD1\tdamp rot\n")
    many = {"name": "many", "paths": ("many.tsv",), "format": "tsv", "type": "Disease", "prefix": "mesh"}
    index = TermIndex.open(build_terms(recipe(tmp_path, dictionaries=[many]), progress_shown=False).path)
    every, two = (list(synonym_pairs(index, types=["Disease"], max_pairs=count)) for count in (9, 2))
    names = Counter(passage.text for doc in every for passage in doc.passages)
    assert names == dict.fromkeys(("ague", "bog fever", "cold bath", "damp rot"), 2)
    assert two == every[:2]


def test_species_without_a_preferred_name_have_the_binomial_in_use(tmp_path: Path) -> None:
    """Not an abbreviation, a common name with a plural, a misspelled genus or an older name without other forms."""
    rows = {
        "1": "A. marshii|Acinus marshii|Acinus marshii DSM 4|Bacillus marshii|Marsh rod|Marsh rods",
        "2": "R. lutea|Reeda lutea|Reedda lutea|Reeda lutaea",
        "3": "Reeda magna|Reeda magna L-1",
        "4": "Giant reed|Giant reeds|G. reed",
    }
    (tmp_path / "species.tsv").write_text("".join(f"{name}\t{id}\n" for id in rows for name in rows[id].split("|")))
    species = {
        "name": "taxa",
        "paths": ("species.tsv",),
        "format": "tsv",
        "type": "Species",
        "prefix": "NCBITaxon",
        "columns": {"names": 0, "id": 1},
        "split": "\t",
    }
    path = build_terms(recipe(tmp_path, dictionaries=[species], mappings=[], near=()), progress_shown=False).path
    preferred = [concept.preferred for concept in TermIndex.open(path).concepts("Species")]
    assert preferred == ["Acinus marshii", "Reeda lutea", "Reeda magna", "Giant reed"]


def test_genes_get_names_without_what_dictionaries_add(tmp_path: Path) -> None:
    def row(number: int, symbol: str, *names: str) -> str:
        return "\t".join(["9606", str(number), symbol, *"-----", names[0], *"----", "|".join(names[1:]) or "-"])

    rows = [
        row(1, "MFR1", "marsh-like 4 (Drosophila)", "CD999 antigen", "lin-99 homolog (C. elegans)"),
        row(2, "MFR2", "bog kinase 2, cAMP-specific", "bog kinase, intestinal"),
        row(3, "MFR3", "bog kinase 3, mitochondrial", "fen ligase (reed)"),
        row(4, "MFR4", "fen ligase (rush)"),
    ]
    (tmp_path / "gene_info").write_text("".join(f"{line}\n" for line in rows))
    dictionary = {"name": "genes", "paths": ("gene_info",), "format": "gene-info"}
    result = build_terms(recipe(tmp_path, dictionaries=[dictionary], near=()), progress_shown=False)
    names = names_of(result.path)
    # No name of a family, "bog kinase", of several genes, "fen ligase", or of the gene of another species, "lin-99".
    assert set(names["NCBIGene:1"]) >= {"marsh-like 4", "CD999"}
    assert "lin-99" not in names["NCBIGene:1"]
    assert set(names["NCBIGene:2"]) == {"MFR2", "bog kinase 2, cAMP-specific", "bog kinase, intestinal", "bog kinase 2"}
    assert set(names["NCBIGene:3"]) == {"MFR3", "bog kinase 3, mitochondrial", "fen ligase (reed)", "bog kinase 3"}


def test_terms_are_left_out_by_their_preferred_name(tmp_path: Path) -> None:
    (tmp_path / "mouse.tsv").write_text("1\tMfr1\tMFR\n2\tTg(MFR1)1Lab\tMFR1\n")
    dictionary = {
        "name": "mouse",
        "paths": ("mouse.tsv",),
        "format": "tsv",
        "type": "Gene",
        "prefix": "LAB",
        "columns": {"id": 0, "name": 1, "names": 2},
        "exclude_terms": r"Tg\(.*",
    }
    result = build_terms(recipe(tmp_path, dictionaries=[dictionary], near=()), progress_shown=False)
    assert names_of(result.path) == {"LAB:1": ("Mfr1", "MFR")}
    assert result.dictionaries[0].dropped == {"term excluded by the recipe": 1}


def test_names_that_another_concept_prefers_can_be_dropped(tmp_path: Path) -> None:
    (tmp_path / "wrong.tsv").write_text("D1\tReed rash\nD1\tswamp fever\n")
    wrong = {
        "name": "wrong",
        "paths": ("wrong.tsv",),
        "format": "tsv",
        "type": "Disease",
        "prefix": "mesh",
        "columns": {"id": 0, "names": 1},
        "drop_preferred_names": True,
    }
    mesh = {"name": "mesh", "paths": ("diseases.tsv",), "format": "tsv", "type": "Disease", "prefix": "mesh"}
    result = build_terms(recipe(tmp_path, dictionaries=[mesh, wrong]), progress_shown=False)
    assert names_of(result.path)["mesh:D1"] == ("Marsh Fever", "swamp fever")
    assert result.dictionaries[1].dropped == {"name that another concept prefers": 1}
