"""Relations in every output: both levels come back from the formats that hold them, and tables say who does what."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from errors import raises

import lexome
from lexome import Argument, Attribute, Document, Passage, Relation, Span, Tally
from lexome.errors import UsageError
from lexome.formats.mention_table import RELATION_COLUMNS, RELATION_COUNT_COLUMNS
from lexome.metadata import Metadata

TEXT = "Olaparib blocks PARP1; olaparib hits PARP1."
DOC = Document(
    "d1",
    (Passage(0, TEXT),),
    (
        Span("T1", "Chemical", ((0, 8),), "Olaparib", ("mesh:C531550",)),
        Span("T2", "Gene", ((16, 21),), "PARP1", ("NCBIGene:142",)),
        Span("T3", "Chemical", ((23, 31),), "olaparib", ("mesh:C531550",)),
        Span("T4", "Gene", ((37, 42),), "PARP1", ("NCBIGene:142",)),
    ),
    (
        Relation("R1", "INHIBITOR", (Argument("Chemical", "T1"), Argument("Gene", "T2")), score=0.9),
        Relation("R2", "INHIBITOR", (Argument("Chemical", "T3"), Argument("Gene", "T4")), score=0.75),
        Relation(
            "R3",
            "Negative_Correlation",
            (Argument("Gene", concept="NCBIGene:142"), Argument("Chemical", concept="mesh:C531550")),
            novel=True,
            score=0.5,
        ),
    ),
    meta=Metadata(pmid="7"),
)


@pytest.mark.parametrize("name", ["d.jsonl", "d.bioc.xml", "d.bioc.json", "d.parquet", "brat"])
def test_both_levels_come_back_with_scores_and_novelty(tmp_path: Path, name: str) -> None:
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    lexome.write(tmp_path / name, [DOC], "brat" if name == "brat" else None)
    (back,) = lexome.read(tmp_path / name)
    assert back.relations == DOC.relations
    assert back.attributes == ()


def test_pubtator_has_each_relation_of_concepts_once(tmp_path: Path) -> None:
    tally = Tally()
    lexome.write(tmp_path / "d.pubtator", [DOC], tally=tally)
    lines = [line for line in (tmp_path / "d.pubtator").read_text().splitlines() if line.count("\t") in (3, 4)]
    assert lines == ["d1\tINHIBITOR\tMESH:C531550\t142", "d1\tNegative_Correlation\t142\tMESH:C531550\tNovel"]
    assert tally.notes["relation between mentions written as one between their concepts"] == 2
    (back,) = lexome.read(tmp_path / "d.pubtator")
    assert back.relations[1] == replace(DOC.relations[2], id="R2", score=None)


def test_a_note_in_brat_that_an_annotator_has_changed_stays_a_note(tmp_path: Path) -> None:
    lexome.write(tmp_path / "brat", [DOC], "brat")
    path = tmp_path / "brat" / "d1.ann"
    path.write_text(path.read_text().replace('{"score": 0.9}', "surely"))
    (back,) = lexome.read(tmp_path / "brat")
    assert (back.relations[0].score, back.relations[1].score) == (None, 0.75)
    assert [(note.target, note.value) for note in back.attributes] == [("R1", "surely")]


def test_a_concept_without_a_mention_is_left_out_of_brat(tmp_path: Path) -> None:
    tally = Tally()
    alone = replace(DOC, spans=DOC.spans[:1], relations=DOC.relations[2:], attributes=(Attribute("A1", "R3", "Sure"),))
    lexome.write(tmp_path / "brat", [alone], "brat", tally=tally)
    (back,) = lexome.read(tmp_path / "brat")
    assert (back.relations, back.attributes) == ((), ())
    assert tally.notes["relation to a concept not written"] == 1


def test_only_what_brat_does_not_have_is_counted_as_lost(tmp_path: Path) -> None:
    tally = Tally()
    cause = Relation("R4", "cause", (Argument("of", "R3"),), score=0.5)
    alone = replace(DOC, spans=DOC.spans[:1], relations=(DOC.relations[2], cause))
    lexome.write(tmp_path / "brat", [alone], "brat", tally=tally)
    # Scores and novelty are in notes of relations that are written, which are no attributes of the document.
    assert tally.notes == {
        "relation to a concept not written": 1,
        "relation dropped: it refers to a dropped span": 1,
        "metadata not written": 1,
    }


@pytest.mark.parametrize(
    "note", ['{"score": NaN}', '{"score": 1e999}', f'{{"score": {"9" * 400}}}', "[" * 100_000, "{}[]"], ids=range(5)
)
def test_a_note_in_brat_that_is_damaged_stays_a_note(tmp_path: Path, note: str) -> None:
    lexome.write(tmp_path / "brat", [DOC], "brat")
    path = tmp_path / "brat" / "d1.ann"
    path.write_text(path.read_text().replace('{"score": 0.9}', note))
    (back,) = lexome.read(tmp_path / "brat")
    assert (back.relations[0].score, back.relations[1].score) == (None, 0.75)
    assert [(attribute.target, attribute.value) for attribute in back.attributes] == [("R1", note)]


def test_a_side_that_an_annotator_has_moved_in_brat_stays_moved(tmp_path: Path) -> None:
    other = Span("T5", "Gene", ((9, 15),), "blocks")
    lexome.write(tmp_path / "brat", [replace(DOC, spans=(*DOC.spans, other))], "brat")
    path = tmp_path / "brat" / "d1.ann"
    path.write_text(path.read_text().replace("Negative_Correlation Gene:T2", "Negative_Correlation Gene:T5"))
    (back,) = lexome.read(tmp_path / "brat")
    moved = back.relations[2]
    assert [(side.target, side.concept) for side in moved.arguments] == [("T5", None), ("T1", None)]


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ","))


@pytest.mark.parametrize("name", ["r.csv", "r.tsv"])
def test_a_table_of_relations_has_a_row_for_each(tmp_path: Path, name: str) -> None:
    names = {"NCBIGene:142": "poly(ADP-ribose) polymerase 1"}
    event = Relation("R4", "alone", (Argument("x", "T1"),))
    tally = Tally()
    doc = replace(DOC, relations=(*DOC.relations, event))
    lexome.write(tmp_path / name, [doc, Document("d2")], table="relations", preferred_name=names.get, tally=tally)
    table = rows(tmp_path / name)
    assert tuple(table[0]) == RELATION_COLUMNS
    assert [(row["first"], row["relation"], row["second"], row["score"], row["level"]) for row in table] == [
        ("Olaparib", "INHIBITOR", "PARP1", "0.9", "mention"),
        ("olaparib", "INHIBITOR", "PARP1", "0.75", "mention"),
        ("PARP1", "Negative_Correlation", "Olaparib", "0.5", "concept"),
    ]
    assert [table[1][f"second_{what}"] for what in ("start", "end", "concept")] == ["37", "42", "NCBIGene:142"]
    assert (table[2]["first_name"], table[2]["novel"], table[2]["pmid"]) == (names["NCBIGene:142"], "yes", "7")
    assert tally.notes["relation of other than two sides: no row"] == 1
    assert tally.notes["document without relations: no row"] == 1
    assert "relations not written" not in tally.notes


def test_counts_put_the_mentions_of_a_pair_of_concepts_together(tmp_path: Path) -> None:
    lexome.write(tmp_path / "r.csv", [DOC, replace(DOC, id="d2")], table="relations", counts=True)
    table = rows(tmp_path / "r.csv")
    assert tuple(table[0]) == RELATION_COUNT_COLUMNS
    assert [(row["relation"], row["documents"], row["relations"], row["highest_score"]) for row in table] == [
        ("INHIBITOR", "2", "4", "0.9"),
        ("Negative_Correlation", "2", "2", "0.5"),
    ]


@pytest.mark.parametrize(
    ("relation", "pairs"),
    [
        (Relation("R1", "Bind", (Argument("Arg1", concept="a:1"), Argument("Arg2", concept="a:2"))), 1),
        (Relation("R1", "Bind", (Argument("Arg1", "T1"), Argument("Arg2", "T2")), score=0.5), 1),
        # Curated relations between mentions may have a direction under the names that brat gives its sides.
        (Relation("R1", "Bind", (Argument("Arg1", "T1"), Argument("Arg2", "T2"))), 2),
        (Relation("R1", "Bind", (Argument("Agent", concept="a:1"), Argument("Target", concept="a:2"))), 2),
    ],
    ids=["concepts", "predicted", "curated", "roles"],
)
def test_pairs_without_a_direction_are_counted_whichever_side_is_first(
    tmp_path: Path, relation: Relation, pairs: int
) -> None:
    spans = (Span("T1", "Gene", ((0, 4),), "RAD1", ("a:1",)), Span("T2", "Gene", ((5, 9),), "RAD2", ("a:2",)))
    one = Document("d1", (Passage(0, "RAD1 RAD2"),), spans, (relation,))
    first, second = relation.arguments
    turned = (
        replace(first, target=second.target, concept=second.concept),
        replace(second, target=first.target, concept=first.concept),
    )
    other = replace(one, id="d2", relations=(replace(relation, arguments=turned),))
    lexome.write(tmp_path / "r.csv", [one, other], table="relations", counts=True)
    table = rows(tmp_path / "r.csv")
    assert [int(row["documents"]) for row in table] == [2] * (pairs == 1) + [1, 1] * (pairs == 2)
    assert (table[0]["first"], table[0]["second_concept"]) == ("RAD1", "a:2")


def test_counts_name_relations_that_have_no_row(tmp_path: Path) -> None:
    tally = Tally()
    event = Relation("R4", "alone", (Argument("x", "T1"),))
    doc = replace(DOC, relations=(*DOC.relations, event))
    lexome.write(tmp_path / "r.csv", [doc], table="relations", counts=True, tally=tally)
    assert tally.notes["relation of other than two sides: no row"] == 1


@pytest.mark.parametrize("name", ["r.csv", "r.xlsx"])
def test_an_id_that_is_no_unicode_rejects_its_document_alone(tmp_path: Path, name: str) -> None:
    if name.endswith("xlsx"):
        pytest.importorskip("openpyxl")
    cause = Relation("\ud800", "cause", (Argument("of", "R1"), Argument("to", "T1")))
    again = Relation("R4", "cause", (Argument("of", "\ud800"), Argument("to", "T1")))
    bad = replace(DOC, id="d2", relations=(*DOC.relations, cause, again))
    with Tally(tmp_path / "rejects.jsonl") as tally:
        lexome.write(tmp_path / name, [DOC, bad], table="relations", tally=tally)
    assert (tally.written, dict(tally.rejected)) == (1, {"not_unicode": 1})


def test_an_excel_file_has_the_table_of_relations(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    lexome.write(tmp_path / "r.xlsx", [DOC], table="relations")
    sheet = openpyxl.load_workbook(tmp_path / "r.xlsx").active
    assert sheet.title == "relations"
    assert [row[2] for row in sheet.iter_rows(values_only=True)] == ["first", "Olaparib", "olaparib", "PARP1"]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_dataframe_of_relations_has_numbers_where_they_are(library: str) -> None:
    pytest.importorskip(library)
    nowhere = Relation("R4", "r", (Argument("a", concept="mesh:D1"), Argument("b", "T1")))
    table = lexome.to_dataframe(replace(DOC, relations=(*DOC.relations, nowhere)), table="relations", library=library)
    starts = table["first_start"].to_list() if library == "polars" else list(table["first_start"].fillna(-1))
    assert [-1 if start is None else start for start in starts] == [0, 23, 16, -1]
    with raises(UsageError, code="unknown-table", value="words"):
        lexome.to_dataframe(DOC, table="words")  # type: ignore[arg-type]
