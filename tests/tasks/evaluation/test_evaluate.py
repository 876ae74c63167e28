"""Predictions beside gold: how documents are matched, and what is said of mentions and tokens."""

from dataclasses import replace
from pathlib import Path

import pytest
from errors import raises
from hypothesis import given
from hypothesis import strategies as st

import lexome
from lexome import Document, Passage, Span
from lexome.errors import BadDocument, UsageError
from lexome.tasks.evaluation.comparison import LoadedFile, Resampling
from lexome.tasks.evaluation.scoring import Evaluation, Score, compare, evaluate
from lexome.tasks.metrics import Counts

TEXT = "BRCA1 causes breast cancer in the left ventricle."
FEW = Resampling(samples=20)


def doc(id: str, *mentions: tuple[str, int, int], text: str = TEXT, **fields: object) -> Document:
    spans = tuple(
        Span(f"T{number}", type, ((start, end),), text[start:end])
        for number, (type, start, end) in enumerate(mentions, 1)
    )
    return Document(id, (Passage(0, text),), spans, **fields)


def compared(found: list[Document], gold: list[Document], **options: object) -> Evaluation:
    sides = (LoadedFile(name, tuple(docs), None) for name, docs in (("PRED", found), ("GOLD", gold)))
    return compare(*sides, resampling=FEW, **options)


def score(result: Evaluation, name: str, kind: str = "F1") -> Score:
    return next(one for one in result.scores if (one.result.name, one.result.score) == (name, kind))


def counts(result: Evaluation, name: str) -> Counts:
    agreement = score(result, name).result.agreement
    assert agreement is not None
    return agreement.total


GENE, DISEASE = ("Gene", 0, 5), ("Disease", 13, 26)


def test_documents_are_matched_by_id_and_not_by_place() -> None:
    result = compared([doc("2", DISEASE), doc("1", GENE)], [doc("1", GENE), doc("2", DISEASE)])
    assert score(result, "strict").interval.value == 1
    assert (result.pairs.matched, result.pairs.by_place) == (2, False)


def test_what_is_in_a_missing_document_was_missed() -> None:
    result = compared([doc("1", GENE), doc("9", GENE)], [doc("1", GENE), doc("2", DISEASE)])
    assert counts(result, "strict") == Counts(1, 0, 1)
    assert (result.pairs.missing, result.pairs.extra) == (("2",), ("9",))


def test_the_second_of_an_id_is_matched_with_the_second() -> None:
    result = compared([doc("1", GENE), doc("1", DISEASE)], [doc("1", GENE), doc("1", DISEASE)])
    assert counts(result, "strict") == Counts(2, 0, 0)


def test_files_whose_ids_are_their_names_are_matched_by_place() -> None:
    result = compared([doc("pred-1", GENE), doc("pred-9")], [doc("gold-1", GENE), doc("gold-9")])
    assert (result.pairs.by_place, counts(result, "strict")) == (True, Counts(1, 0, 0))


def test_another_text_is_an_error_that_says_where() -> None:
    with raises(UsageError, code="text-mismatch", value="1", mentions="BRCA1 kills breast"):
        compared([doc("1", GENE, text="BRCA1 kills breast cancer")], [doc("1", GENE)])


def test_documents_of_another_set_are_an_error() -> None:
    with raises(UsageError, code="no-common-documents", value="PRED"):
        compared([doc("8", text="Another.")], [doc("1", GENE)])


def test_nothing_to_compare_is_an_error() -> None:
    with raises(UsageError, code="nothing-to-score", value="PRED"):
        compared([doc("1")], [doc("1")])
    with raises(UsageError, code="nothing-to-score", value=["Cell"]):
        compared([doc("1", GENE)], [doc("1", GENE)], only=["Cell"])
    with raises(UsageError, code="no-documents", value="GOLD"):
        compared([doc("1", GENE)], [])


def test_each_mention_that_differs_is_explained() -> None:
    gold = [doc("1", ("Gene", 0, 5), ("Disease", 13, 26), ("Organ", 34, 48))]
    found = [doc("1", ("Disease", 0, 5), ("Disease", 20, 26), ("Gene", 27, 29))]
    result = compared(found, gold)
    told = [(one.kind, one.gold, one.predicted, one.context) for one in result.differences]
    assert told == [
        (
            "wrong boundary",
            "Disease 'breast cancer'",
            "Disease 'cancer'",
            "BRCA1 causes [breast cancer] in the left ventricle.",
        ),
        ("wrong type", "Gene 'BRCA1'", "Disease 'BRCA1'", "[BRCA1] causes breast cancer in the l…"),
        ("missed", "Organ 'left ventricle'", None, "…1 causes breast cancer in the [left ventricle]."),
        ("spurious", None, "Gene 'in'", "BRCA1 causes breast cancer [in] the left ventricle."),
    ]
    assert counts(result, "strict") == Counts(0, 3, 3)
    assert counts(result, "relaxed (overlap)") == Counts(1, 2, 2)
    assert counts(result, "strict, types ignored") == Counts(1, 2, 2)
    assert counts(result, "relaxed, types ignored") == Counts(2, 1, 1)


MENTIONS = st.lists(
    st.tuples(st.sampled_from(["Gene", "Disease"]), st.integers(0, 30), st.integers(1, 8)).map(
        lambda drawn: (drawn[0], drawn[1], drawn[1] + drawn[2])
    ),
    unique=True,
    min_size=1,
    max_size=8,
)


@given(MENTIONS, MENTIONS)
def test_differences_add_up_to_the_scores(gold: list[tuple[str, int, int]], found: list[tuple[str, int, int]]) -> None:
    sides = (LoadedFile("", (doc("1", *mentions),), None) for mentions in (found, gold))
    result = compare(*sides, resampling=Resampling(samples=1))
    kinds = result.counts().get("mentions", {})
    strict, relaxed = counts(result, "strict"), counts(result, "relaxed (overlap)")
    assert relaxed.true_positives - strict.true_positives == kinds.get("wrong boundary", 0)
    half_right = sum(kinds.get(kind, 0) for kind in ("wrong boundary", "wrong type", "wrong boundary and type"))
    assert strict.false_negatives == half_right + kinds.get("missed", 0)
    assert strict.false_positives == half_right + kinds.get("spurious", 0)


def test_only_the_types_asked_for_count() -> None:
    result = compared([doc("1", GENE)], [doc("1", GENE, DISEASE)], only=["Gene"])
    assert counts(result, "strict") == Counts(1, 0, 0)


def test_types_that_are_called_otherwise_are_noted() -> None:
    result = compared([doc("1", ("gene", 0, 5))], [doc("1", GENE)])
    assert result.notes == (
        "no mention type is in both: gene and Gene. If they mean the same, see the scores that ignore types",
    )


def test_discontinuous_mentions_have_a_line_of_their_own() -> None:
    apart = Span("T1", "Organ", ((34, 38), (39, 48)), "left ventricle")
    gold = replace(doc("1"), spans=(apart,))
    result = compared([doc("1", ("Organ", 34, 48))], [gold])
    assert counts(result, "strict") == Counts(0, 1, 1)
    assert counts(result, "discontinuous alone, strict") == Counts(0, 0, 1)


def test_alternatives_of_bc2gm_count_as_its_program_counts_them() -> None:
    gold = [doc("1", ("GENE", 13, 26), ("ALTGENE", 20, 26))]
    result = compared([doc("1", ("GENE", 20, 26))], gold)
    assert counts(result, "strict") == Counts(0, 1, 1)
    assert counts(result, "BC2GM with alternatives") == Counts(1, 0, 0)


def test_intervals_hold_the_score_and_repeat(tmp_path: Path) -> None:
    gold = [doc(str(number), GENE, DISEASE) for number in range(30)]
    found = [doc(str(number), *([GENE] if number % 3 else [GENE, DISEASE])) for number in range(30)]
    first, second = (score(compared(found, gold), "strict") for _ in range(2))
    assert first.interval == second.interval
    assert first.interval.low < first.interval.value < first.interval.high
    assert first.types["Gene"].low == first.types["Gene"].high == 1
    assert 0 < first.types["Disease"].low < first.types["Disease"].high < 1


def test_against_another_system() -> None:
    gold = [doc(str(number), GENE, DISEASE) for number in range(30)]
    worse = [doc(str(number), GENE) for number in range(30)]
    sides = [LoadedFile(name, tuple(docs), None) for name, docs in (("a", gold), ("b", worse))]
    better, same = (
        compare(sides[0], sides[0], against=other, resampling=Resampling(samples=99)) for other in (sides[1], sides[0])
    )
    strict = better.comparisons[0]
    assert (strict.result.name, strict.bootstrap.p_value, strict.randomization.p_value) == ("strict", 0.01, 0.01)
    assert strict.bootstrap.difference == pytest.approx(1 / 3)
    assert {one.randomization.p_value for one in same.comparisons} == {1}


COLUMNS = "BRCA1\tB-Gene\nis\tO\nnew\t{}\ngene\t{}\n\nNone\tO\n"


def columns(folder: Path, name: str, *tags: str, opening: str = "") -> Path:
    path = folder / name
    path.write_text(opening + COLUMNS.format(*tags))
    return path


def test_tags_are_scored_as_they_stand(tmp_path: Path) -> None:
    gold = columns(tmp_path, "gold.conll", "B-Gene", "I-Gene")
    result = evaluate(columns(tmp_path, "pred.conll", "I-Gene", "I-Gene"), gold, resampling=FEW)
    assert (
        counts(result, "strict") == counts(result, "conlleval") == counts(result, "seqeval default") == Counts(2, 0, 0)
    )
    assert counts(result, "seqeval strict (IOB2)") == Counts(1, 0, 1)
    (told,) = [one for one in result.differences if one.section == "tokens"]
    assert (told.kind, told.predicted) == ("conlleval alone", "Gene 'new gene'")
    assert told.context == "BRCA1/B-Gene is/O new/I-Gene gene/I-Gene"


def test_documents_in_columns_keep_their_tags(tmp_path: Path) -> None:
    opening = "-DOCSTART- (7)\tO\n\n"
    gold = columns(tmp_path, "gold.conll", "B-Gene", "I-Gene", opening=opening)
    pred = columns(tmp_path, "pred.conll", "I-Gene", "I-Gene", opening=opening)
    result = evaluate(pred, gold, resampling=FEW)
    assert (result.pairs.by_place, [pair.gold.id for pair in result.pairs.pairs]) == (False, ["7"])
    assert counts(result, "seqeval strict (IOB2)") == Counts(1, 0, 1)


def test_files_of_two_schemes_are_compared_by_their_mentions(tmp_path: Path) -> None:
    gold = columns(tmp_path, "gold.conll", "B-Gene", "I-Gene")
    pred = tmp_path / "pred.conll"
    pred.write_text("BRCA1\tS-Gene\nis\tO\nnew\tB-Gene\ngene\tE-Gene\n\nNone\tO\n")
    result = evaluate(pred, gold, resampling=FEW)
    assert counts(result, "conlleval") == Counts(2, 0, 0)
    assert result.notes == ("the files' tags have different schemes, and are compared as IOB2",)


def test_iobes_tags_are_not_given_to_conlleval(tmp_path: Path) -> None:
    paths = [tmp_path / "gold.conll", tmp_path / "pred.conll"]
    for path in paths:
        path.write_text("BRCA1\tS-Gene\nnew\tB-Gene\ngene\tE-Gene\n")
    names = [one.result.name for one in evaluate(*paths, resampling=FEW).scores if one.result.section == "tokens"]
    assert names == ["seqeval default", "seqeval strict (IOBES)"]


def test_io_tags_are_read_as_iob1(tmp_path: Path) -> None:
    path = tmp_path / "gold.conll"
    path.write_text("BRCA1\tI-Gene\nis\tO\nnew\tI-Gene\n")
    assert counts(evaluate(path, path, resampling=FEW), "seqeval strict (IOB1)") == Counts(2, 0, 0)


def test_mentions_on_golds_tokens_are_tagged() -> None:
    tokens = ((0, 5), (6, 12), (13, 19), (20, 26), (27, 29), (30, 33), (34, 38), (39, 48), (48, 49))
    passage = Passage(0, TEXT, tokens=tokens)
    gold = [replace(doc("1", GENE, DISEASE, ("Disease", 13, 19)), passages=(passage,))]
    result = compared([doc("1", GENE, ("Disease", 13, 24))], gold)
    # A mention that ends inside a token is all of it, so tokens are kinder than characters.
    assert counts(result, "strict") == Counts(1, 1, 2)
    assert counts(result, "conlleval") == Counts(2, 0, 0)
    assert result.notes == ("1 mentions that overlap a longer one, are discontinuous or hold no token have no tags",)


def test_tokens_of_two_sentences_stay_apart() -> None:
    passage = Passage(0, "p53 p63", sentences=((0, 3), (4, 7)), tokens=((0, 3), (4, 7)))
    gold = Document("1", (passage,), (Span("T1", "Gene", ((0, 3),), "p53"), Span("T2", "Gene", ((4, 7),), "p63")))
    assert counts(compared([gold], [gold]), "conlleval") == Counts(2, 0, 0)


SETS = (
    "BC5CDR-pubtator/CDR_TestSet.PubTator.txt.xz",
    "BC2GM/official/test",
    "NCBI-disease/test.tsv.xz",
    "EBM-NLP/test.txt.xz",
    "ChemProt-pairs/blue_dev.tsv.xz",
    "HoC/test.tsv.xz",
    "BioASQ/golden/7B_golden.json.xz",
    "PubMedQA/ori_pqal.json.xz",
)


@pytest.mark.parametrize("name", SETS)
def test_gold_is_all_right_in_every_measure(name: str, real_data: Path) -> None:
    path = real_data / "benchmarks" / name
    result = evaluate(path, path, resampling=Resampling(samples=1))
    assert {one.result.value for one in result.scores} == {1.0}
    assert result.differences == ()


def test_a_bad_document_stops_the_comparison(tmp_path: Path) -> None:
    lexome.write(tmp_path / "gold.jsonl", [doc("1", GENE)])
    (tmp_path / "pred.jsonl").write_bytes((tmp_path / "gold.jsonl").read_bytes() + b"{broken\n")
    with raises(BadDocument, code="malformed_json", mentions="pred.jsonl, line 2"):
        evaluate(tmp_path / "pred.jsonl", tmp_path / "gold.jsonl")
