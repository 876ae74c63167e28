"""Concept ids as the last step of annotation: in Python, in bulk, on the command line, and for mentions given."""

import json
import pickle
from dataclasses import replace
from pathlib import Path

import pytest
from dictionary_models import dictionary_model
from typer.testing import CliRunner

import lexome
from lexome.cli import app
from lexome.concepts.index import default_index, preferred_names
from lexome.document import Document, Passage, Span
from lexome.errors import FormatError, UsageError
from lexome.infer.annotation import InputFiles, Linking
from lexome.infer.annotator import Annotator
from lexome.infer.concepts import ConceptOptions, Concepts

TEXT = "BRCA1 in breast cancer (BC); aspirin and red dye."
TERMS = """id\tname\tsynonyms\ttype\ttaxon
NCBIGene:672\tBRCA1\tRNF53\tGene\t9606
mesh:D001943\tBreast Neoplasms\tbreast cancer|BC\tDisease\t
LAB:1\tred dye\t\tDye\t
"""


@pytest.fixture
def terms(tmp_path: Path) -> Path:
    path = tmp_path / "terms.tsv"
    path.write_text(TERMS)
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return dictionary_model(tmp_path_factory.mktemp("concepts") / "words")


def options(terms: Path, **changes: object) -> ConceptOptions:
    return ConceptOptions(**{"terms": (str(terms),), "only_terms": True, **changes})  # type: ignore[arg-type]


def only(path: Path) -> InputFiles:
    return InputFiles([path], progress_shown=False)


def ids(doc: Document) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(span.text, span.type, span.concepts) for span in doc.spans]


def invoke(*arguments: str | Path, exit_code: int = 0):
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == exit_code, result.output + str(result.exception)
    return result


def test_mentions_get_ids_after_the_models(model: Path, terms: Path) -> None:
    annotator = Annotator.open(model, threads=1, concepts=options(terms))
    doc = annotator(TEXT)
    assert ids(doc) == [
        ("BRCA1", "Gene", ("NCBIGene:672",)),
        ("breast cancer", "Disease", ("mesh:D001943",)),
        ("aspirin", "Chemical", ()),
    ]
    assert {concept: [span.text for span in spans] for concept, spans in doc.concepts.items()} == {
        "NCBIGene:672": ["BRCA1"],
        "mesh:D001943": ["breast cancer"],
    }
    assert annotator.about()["linked_types"] == ["Disease", "Dye", "Gene"]
    [gene, disease, *_] = annotator.explain_concepts(doc).values()
    assert gene.candidates[0].concept == "NCBIGene:672"
    assert disease.candidates[0].preferred == "Breast Neoplasms"
    assert ids(pickle.loads(pickle.dumps(annotator))(TEXT)) == ids(doc)


def test_only_predicted_types_are_linked(model: Path, terms: Path) -> None:
    """Mentions of types that are not selected stay as they are."""
    given = Document("d", (Passage(0, TEXT),), (Span("T1", "Gene", ((0, 5),), "BRCA1"),))
    annotator = Annotator.open(model, threads=1, concepts=options(terms))
    [doc] = annotator.annotate([given], types=["Disease"])
    assert ids(doc) == [("BRCA1", "Gene", ()), ("breast cancer", "Disease", ("mesh:D001943",))]


def test_names_of_a_dictionary_are_mentions_of_their_types(model: Path, terms: Path) -> None:
    annotator = Annotator.open(model, threads=1, concepts=options(terms, find=True, abbreviations=True))
    assert annotator.types == ("Gene", "Disease", "Chemical", "Dye")
    [doc] = annotator.annotate([TEXT], types=["Dye"])
    assert ids(doc) == [
        ("red dye", "Dye", ("LAB:1",)),
        ("BC", "ShortForm", ()),
        ("breast cancer", "LongForm", ()),
    ]
    assert [relation.type for relation in doc.relations] == ["Abbreviation"]


def test_without_anything_to_do_there_is_no_step(model: Path, terms: Path) -> None:
    assert ConceptOptions(link=False).open() is None
    assert ids(lexome.load(model, threads=1, link=False)(TEXT))[0] == ("BRCA1", "Gene", ())
    with pytest.raises(UsageError) as error:
        ConceptOptions(find=True)
    assert (error.value.code, error.value.value) == ("missing-terms", "--find")


@pytest.mark.parametrize(
    ("changes", "code", "value"),
    [
        ({"link": False, "min_score": 0.5}, "conflicting-options", "--min-link-score"),
        ({"min_score": 1.5}, "out-of-range", 1.5),
        ({"link": False, "terms": ("terms.tsv",)}, "conflicting-options", "--terms"),
        ({"terms": ("terms.tsv",), "case": "match"}, "conflicting-options", "--case"),
    ],
)
def test_options_without_effect_are_refused(changes: dict[str, object], code: str, value: object) -> None:
    with pytest.raises(UsageError) as error:
        ConceptOptions(**changes)  # type: ignore[arg-type]
    assert (error.value.code, error.value.value) == (code, value)


def test_the_identity_is_that_of_the_dictionaries_bytes(terms: Path) -> None:
    before = options(terms).identity()
    assert options(terms).absolute().identity() == before
    terms.write_text(TERMS + "LAB:2\tblue dye\t\tDye\t\n")
    assert options(terms).identity() != before
    terms.unlink()
    with pytest.raises(FormatError) as error:
        options(terms).identity()
    assert error.value.code == "unreadable-file"


def test_a_folder_is_annotated_again_where_a_dictionary_has_changed(model: Path, terms: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text(TEXT)
    out = tmp_path / "out"
    command = ["annotate", tmp_path / "in", "--model", model, "--out", f"{out}/", "--terms", terms, "--only-terms"]
    first = json.loads(invoke(*command, "--jobs", "1", "--json").stdout)
    assert first["linked"] == {"Gene": 1, "Disease": 1}
    assert json.loads(invoke(*command, "--jobs", "1", "--json").stdout)["files_now"] == 0
    terms.write_text(TERMS.replace("BRCA1", "BRCA9"))
    refused = invoke(*command, "--jobs", "1", exit_code=1)
    assert isinstance(refused.exception, UsageError)
    again = json.loads(invoke(*command, "--jobs", "1", "--redo", "--json").stdout)
    assert again["linked"] == {"Disease": 1}


def test_the_terminal_shows_ids_and_why(model: Path, terms: Path) -> None:
    command = ["annotate", TEXT, "--model", model, "--terms", terms, "--only-terms", "--quiet"]
    shown = invoke(*command, "--explain").stdout
    assert "[BRCA1|Gene NCBIGene:672 " in shown
    assert "linked 0-5 'BRCA1' Gene: NCBIGene:672" in shown
    assert "no id" in shown or "aspirin" not in shown.partition("linked")[2]
    record = json.loads(invoke(*command, "--explain", "--json").stdout)
    assert [one["concepts"] for one in record["linked"]] == [["NCBIGene:672"], ["mesh:D001943"]]
    assert record["linked"][1]["candidates"][0]["preferred"] == "Breast Neoplasms"
    assert "NCBIGene" not in invoke(*command[:4], "--no-link", "--quiet").stdout
    assert "NCBIGene" not in invoke(*command, "--min-link-score", "1").stdout
    for wrong in (["--case", "some"], ["--find"]):
        plain = command if wrong[0] == "--case" else [*command[:4], "--quiet"]
        assert isinstance(invoke(*plain, *wrong, exit_code=1).exception, UsageError)


def test_tables_and_pages_have_preferred_names(model: Path, terms: Path, tmp_path: Path) -> None:
    command = ["annotate", TEXT, "--model", model, "--terms", terms, "--only-terms", "--quiet", "--out"]
    invoke(*command, tmp_path / "a.csv")
    assert "mesh:D001943,Breast Neoplasms" in (tmp_path / "a.csv").read_text()
    invoke(*command, tmp_path / "a.html")
    assert "Breast Neoplasms" in (tmp_path / "a.html").read_text()


GIVEN = Document(
    "1",
    (Passage(0, TEXT),),
    (
        Span("T1", "GeneOrGeneProduct", ((0, 5),), "BRCA1"),
        Span("T2", "Disease", ((9, 22),), "breast cancer", ("omim:1",)),
        Span("T3", "Disease", ((29, 36),), "aspirin"),
        Span("T4", "Weather", ((41, 44),), "red"),
    ),
)


def test_an_id_stays_where_no_other_is_found(terms: Path, tmp_path: Path) -> None:
    spans = tuple(replace(span, concepts=("omim:2",)) if span.id == "T3" else span for span in GIVEN.spans)
    lexome.write(tmp_path / "in.jsonl", [replace(GIVEN, spans=spans)])
    work = Linking(Concepts(options(terms)), only(tmp_path / "in.jsonl"), overwrite=True)
    [doc] = work.documents()
    assert [span.concepts for span in doc.spans[1:3]] == [("mesh:D001943",), ("omim:2",)]
    assert work.counts.kept == {"Disease": 1}


@pytest.mark.parametrize(
    ("changes", "linked"),
    [
        ({}, ["NCBIGene:672", "omim:1", None, None]),
        ({"overwrite": True}, ["NCBIGene:672", "mesh:D001943", None, None]),
        ({"overwrite": True, "types": ["gene"]}, ["NCBIGene:672", "omim:1", None, None]),
    ],
)
def test_mentions_that_documents_have_are_linked(
    terms: Path, tmp_path: Path, changes: dict[str, object], linked: list[str | None]
) -> None:
    lexome.write(tmp_path / "in.jsonl", [GIVEN])
    work = Linking(Concepts(options(terms)), only(tmp_path / "in.jsonl"), **changes)  # type: ignore[arg-type]
    [doc] = work.documents()
    assert [next(iter(span.concepts), None) for span in doc.spans] == linked
    counts = work.counts.as_dict()
    assert sum(counts["linked"].values()) == len(set(linked) - {None, "omim:1"})
    if not changes:
        assert counts == {
            "documents": 1,
            "found": {},
            "linked": {"GeneOrGeneProduct": 1},
            "abstained": {"Disease": 1},
            "kept": {"Disease": 1},
            "no_dictionary": {"Weather": 1},
        }


def test_names_that_link_finds_are_of_the_wanted_types_and_counted_as_found(terms: Path, tmp_path: Path) -> None:
    text = Document("a", (Passage(0, "BRCA1 and red dye"),), (Span("T1", "Gene", ((0, 5),), "BRCA1", ("A:1",)),))
    lexome.write(tmp_path / "in.jsonl", [text])
    concepts = Concepts(replace(options(terms), find=True))
    for types, found in ((None, {"Dye": 1}), ("Gene", {}), ("dye", {"Dye": 1})):
        work = Linking(concepts, only(tmp_path / "in.jsonl"), types=types)
        [doc] = work.documents()
        assert [span.type for span in doc.spans] == ["Gene", *found]
        assert (work.counts.found, work.counts.linked) == (found, found)
        assert work.counts.kept == ({} if types == "dye" else {"Gene": 1})


@pytest.mark.parametrize("option", ["--counts", "--set=write.table=relations"])
def test_options_of_tables_need_a_table(terms: Path, tmp_path: Path, option: str) -> None:
    lexome.write(tmp_path / "in.jsonl", [GIVEN])
    error = invoke("link", tmp_path / "in.jsonl", "--terms", terms, option, exit_code=1).exception
    assert isinstance(error, UsageError)
    assert error.code == "conflicting-options"


def test_the_link_command_writes_any_format(terms: Path, tmp_path: Path) -> None:
    lexome.write(tmp_path / "in.jsonl", [GIVEN])
    command = ["link", tmp_path / "in.jsonl", "--terms", terms, "--only-terms"]
    shown = invoke(*command)
    assert "[BRCA1|GeneOrGeneProduct NCBIGene:672]" in shown.stdout
    for name in ("a.bioc.xml", "a.pubtator", "a.jsonl", "a.html"):
        said = json.loads(invoke(*command, "--out", tmp_path / name, "--json").stdout)
        assert said["linked"] == {"GeneOrGeneProduct": 1}
        assert "672" in (tmp_path / name).read_text()
    [doc] = lexome.read(tmp_path / "a.bioc.xml")
    assert doc.spans[0].concepts == ("NCBIGene:672",)
    wrong = invoke(*command, "--types", "Weather", exit_code=1)
    assert isinstance(wrong.exception, UsageError)
    assert wrong.exception.code == "unknown-type"


@pytest.mark.parametrize("command", ["annotate", "link"])
def test_a_dictionary_is_never_the_output(terms: Path, tmp_path: Path, command: str) -> None:
    lexome.write(tmp_path / "in.jsonl", GIVEN)
    before = terms.read_bytes()
    given = [command, tmp_path / "in.jsonl", "--terms", f"Gene={terms}", "--out", terms]
    error = invoke(*given, exit_code=1).exception
    assert isinstance(error, UsageError)
    assert (error.code, error.value, terms.read_bytes()) == ("same-file", terms, before)


def test_link_counts_documents_without_mentions(terms: Path, tmp_path: Path) -> None:
    (tmp_path / "plain.txt").write_text("BRCA1 raises the risk of breast cancer.")
    shown = invoke("link", tmp_path / "plain.txt", "--terms", terms, "--only-terms")
    assert "noted      1 document without mentions: nothing to link" in shown.stderr
    assert "nothing to link: no document has mentions. `lexome annotate` finds" in shown.stderr


def test_link_gives_ids_to_the_names_of_lists_and_tables(terms: Path, tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("BRCA1\nTP53\n")
    (tmp_path / "table.csv").write_text("Name,Type,Clone\nred dye,Dye,c1\nbreast cancer,disease,c2\n")
    given = ("--terms", terms, "--only-terms", "--quiet")
    shown = invoke("link", tmp_path / "list.txt", tmp_path / "table.csv", "--type", "Gene", *given)
    assert shown.stdout.count("\n[") == 4
    invoke("link", tmp_path / "table.csv", *given, "--out", tmp_path / "out.tsv")
    assert [line.split("\t")[-1] for line in (tmp_path / "out.tsv").read_text().splitlines()] == ["Clone", "c1", "c2"]
    for linked in ("[BRCA1|Gene NCBIGene:672]", "[TP53|Gene]", "[red dye|Dye LAB:1]", "disease mesh:D001943]"):
        assert linked in shown.stdout
    (tmp_path / "own.csv").write_text("id,name\nLAB:7,TP53\n")
    own = invoke("link", tmp_path / "list.txt", "--type", "Gene", "--terms", tmp_path / "own.csv", "--only-terms", "-q")
    assert "[TP53|Gene LAB:7]" in own.stdout
    without_type = invoke("link", tmp_path / "list.txt", *given)
    assert "[" not in without_type.stdout
    (tmp_path / "table.csv").write_text("Name\nBRCA1\n")
    error = invoke("link", tmp_path / "table.csv", *given, exit_code=1).exception
    assert isinstance(error, FormatError)
    assert "--type TYPE" in str(error)


def test_the_type_of_names_is_refused_for_documents_with_mentions(terms: Path, tmp_path: Path) -> None:
    lexome.write(tmp_path / "in.pubtator", [Document("1", (Passage(0, "BRCA1", "title"),))])
    error = invoke("link", tmp_path / "in.pubtator", "--type", "Gene", exit_code=1).exception
    assert isinstance(error, UsageError)
    assert "--types" in str(error)


def test_a_dictionary_whose_type_no_mention_has_is_noted(model: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("name,id\nBRCA1,LAB:1\n")
    for option, noted in ((tmp_path / "mine.csv", True), (f"Gene={tmp_path / 'mine.csv'}", False)):
        command = ["annotate", "BRCA1 melanoma", "--model", model, "--terms", option, "--only-terms"]
        shown = invoke(*command)
        assert ("mine.csv: no mention has the type of its terms, Term" in shown.stderr) is noted
        assert ("LAB:1" in shown.stdout) is not noted


HOSTILE = (
    "<script>alert(1)</script>",
    "a\"b'c",
    "x" * 5000,
    "((((" * 500,
    "a-" * 2000,
    "\u202e\u0000\u00ad",
    "&lt;b&gt;",
)


@pytest.mark.parametrize("evil", HOSTILE)
def test_any_text_may_be_a_mention(terms: Path, evil: str) -> None:
    """It is linked or not, and never fails."""
    text = f"{evil} BRCA1"
    doc = Document("d", (Passage(0, text),), (Span("T1", "Gene", ((0, len(evil)),), evil),))
    concepts = Concepts(options(terms, find=True, abbreviations=True))
    done = concepts.apply(doc, ["Gene"])
    assert done.spans[0].concepts == ()
    assert [span.text for span in done.spans[1:]][:1] == ["BRCA1"]
    assert concepts.explain(done)


def test_many_mentions_are_linked(terms: Path) -> None:
    text = "BRCA1 " * 10_000
    spans = tuple(Span(f"T{n}", "Gene", ((6 * n, 6 * n + 5),), "BRCA1") for n in range(10_000))
    doc = Concepts(options(terms)).apply(Document("d", (Passage(0, text),), spans), ["Gene"])
    assert {span.concepts for span in doc.spans} == {("NCBIGene:672",)}


def test_common_species_and_cell_lines_have_the_names_that_people_use(tmp_path: Path) -> None:
    own = tmp_path / "own.tsv"
    own.write_text("id\tname\ttype\nNCBITaxon:562\tour strain\tSpecies\n")
    names = Concepts(ConceptOptions()).preferred_name
    assert [names(id) for id in ("NCBITaxon:9606", "NCBITaxon:562", "cellosaurus:CVCL_0030", "NCBIGene:672")] == [
        "Homo sapiens",
        "Escherichia coli",
        "HeLa",
        "BRCA1",
    ]
    assert Concepts(ConceptOptions(terms=(str(own),))).preferred_name("NCBITaxon:562") == "our strain"


def test_the_default_index_has_every_concept_with_a_name_of_its_own() -> None:
    index = default_index()
    assert [id for id in preferred_names() if index.concept_of(id) is None] == []


def test_terms_that_no_index_can_have_are_counted(model: Path, tmp_path: Path) -> None:
    terms, docs = tmp_path / "own.tsv", tmp_path / "in.jsonl"
    terms.write_text("LAB:1\tred dye\tDye\nLAB:1\tcrimson\tDye\nLAB 2\tblue dye\tDye\nLAB:3\tI\tDye\nLAB:4\n")
    lexome.write(docs, [Document("1", (Passage(0, "A red dye."),))])
    reasons = (
        "row whose id has a space",
        "name of one letter, or none",
        "term without a usable name",
        "row with too few columns",
    )
    expected = {f"own.tsv: {reason}": 1 for reason in reasons}
    work = Linking(Concepts(options(terms)), only(docs))
    assert len(list(work.documents())) == 1
    assert {note: count for note, count in work.tally.notes.items() if note.startswith("own.tsv")} == expected
    result = invoke(
        "annotate", docs, "--model", model, "--terms", terms, "--find", "--json", "--out", tmp_path / "out.jsonl"
    )
    assert json.loads(result.stdout)["notes"] == expected
