"""Calibrated scores promise what is true, keep their order, and are not led astray by a handful of mentions."""

from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from services import table_model

from lexome.document import Answer, Argument, Document, Passage, Question, Relation, Span
from lexome.export.calibration import (
    LIST_THRESHOLDS,
    MIN_MENTIONS,
    MIN_QUESTIONS,
    ScoredMentions,
    calibrate,
    calibrate_reader,
    expected_calibration_error,
    fit,
    held_out_examples,
    min_probability,
    platt,
)
from lexome.export.int8 import HeldOutSource
from lexome.infer.annotator import Model, calibrated
from lexome.tasks import DocumentRelations, Ner, Questions


def drawn(count: int, *, slope: float, offset: float) -> ScoredMentions:
    """Mentions of a model whose scores have to be bent by this curve to be true."""
    rng = np.random.default_rng(1)
    odds = rng.normal(1.5, 1.5, count)
    right = rng.random(count) < 1 / (1 + np.exp(-(slope * odds + offset)))
    return ScoredMentions(1 / (1 + np.exp(-odds)), right.astype(np.float64), rng.integers(0, 200, count))


def test_platt_scaling_recovers_the_curve() -> None:
    own = drawn(20_000, slope=0.5, offset=-0.4)
    assert platt(own.scores_N, own.correct_N) == pytest.approx((0.5, -0.4), abs=0.05)


def test_the_error_falls_on_documents_not_fitted_on() -> None:
    found = fit(drawn(2_000, slope=0.4, offset=-0.5))
    assert found.ece_before > 0.1
    assert found.ece_after < found.ece_before / 3
    assert found.mentions == 2_000


def test_calibrated_scores_are_unchanged() -> None:
    assert fit(drawn(20_000, slope=1.0, offset=0.0)).curve == pytest.approx((1.0, 0.0), abs=0.05)


def test_the_order_of_scores_is_kept() -> None:
    scores = np.linspace(0.5, 0.99, 100)
    curve = platt(scores, (scores < 0.7).astype(np.float64))
    assert curve[0] > 0
    # As many as are right are promised, with the slope at its lowest.
    assert np.mean([calibrated(score, curve) for score in scores]) == pytest.approx((scores < 0.7).mean(), abs=0.02)


@pytest.mark.parametrize("all_right", [0.0, 1.0])
def test_one_sided_data_gives_finite_parameters(all_right: float) -> None:
    slope, offset = platt(np.full(30, 0.9), np.full(30, all_right))
    assert np.isfinite([slope, offset]).all()
    assert 0 < calibrated(0.9, (slope, offset)) < 1


def test_expected_calibration_error() -> None:
    scores = np.array([0.95, 0.95, 0.95, 0.95, 0.15, 0.15])
    right = np.array([1.0, 1.0, 1.0, 0.0, 0.0, 0.0])
    assert expected_calibration_error(scores, right) == pytest.approx((4 * abs(0.95 - 0.75) + 2 * 0.15) / 6)
    assert expected_calibration_error(np.array([]), np.array([])) == 0.0


def document(number: int, *spans: tuple[int, int, str, float | None]) -> Document:
    text = "abcdefghij"
    made = [
        Span(f"T{place}", type_, ((start, end),), text[start:end], score=score)
        for place, (start, end, type_, score) in enumerate(spans)
    ]
    return Document(str(number), (Passage(0, text),), tuple(made))


def test_a_type_is_calibrated_only_on_sources_that_annotate_it() -> None:
    task = Ner(["Gene", "Drug"], nested=True, annotated={"genes": ["Gene"]})
    gold = [document(0, (0, 2, "Gene", None))]
    both = [document(0, (0, 2, "Gene", None), (8, 9, "Drug", None))]
    found = [document(0, (0, 2, "Gene", 0.9), (3, 5, "Gene", 0.6), (6, 8, "Drug", 0.8))]
    sources = [HeldOutSource("genes", "dev", both), HeldOutSource("all", "dev", both)]
    assert [astuple(example) for example in held_out_examples(task, sources, [found, found])] == [
        ("Gene", "", 0.9, True, 1),
        ("Gene", "", 0.6, False, 1),
        ("Gene", "", 0.9, True, 2),
        ("Gene", "", 0.6, False, 2),
        ("Drug", "", 0.8, False, 2),
    ]
    # A file without a single drug says nothing of drugs.
    examples = held_out_examples(task, [HeldOutSource("file", None, gold)], [found])
    assert {example.type for example in examples} == {"Gene"}


def test_types_with_few_mentions_are_not_calibrated() -> None:
    task = Ner(["Gene", "Drug"])
    gold = [document(number, (0, 2, "Gene", None)) for number in range(MIN_MENTIONS)]
    found = [document(number, (0, 2, "Gene", 0.9)) for number in range(MIN_MENTIONS)]
    found[0] = document(0, (0, 2, "Gene", 0.9), (3, 5, "Drug", 0.9))
    assert list(calibrate(task, [HeldOutSource("s", "dev", gold)], [found])) == ["Gene"]


# Readers


def question(name: str, text: str, answer: str, form: str = "factoid") -> Document:
    """A document whose question is answered by a part of its text."""
    return Document(
        name, (Passage(0, text, "snippet"),), questions=(Question(name, "which ?", form, (Answer(answer),)),)
    )


def held_out(form: str = "factoid") -> HeldOutSource:
    """Texts in which the reader is sure and right, and others in which it is neither sure nor, elsewhere, right."""
    sure = [question(f"a{number}", "olaparib cancer .", "olaparib cancer", form) for number in range(30)]
    vague = [question(f"b{number}", f"{word} .", word, form) for number, word in enumerate(("breast", "melanoma") * 5)]
    return HeldOutSource("held", "dev", [*sure, *vague])


def reader(folder: Path, **settings: Any) -> Model:
    task = Questions("factoid", null=True, **settings)
    return Model.open(table_model(folder, task, {"olaparib": 0, "cancer": 1}))


def test_a_reader_does_not_know_where_questions_are_more_often_unanswerable(tmp_path: Path) -> None:
    (fitted,) = calibrate_reader(reader(tmp_path / "reader", min_probability=0.99, null_threshold=-9.0), [held_out()])
    assert (fitted.form, fitted.questions, fitted.list_threshold) == ("factoid", 40, None)
    # "breast .", and no answer, are equally likely where the reader is not sure.
    high, low = (calibrated(score, fitted.answerable.curve) for score in (1.0, 0.75))
    assert low < fitted.min_probability < high
    assert fitted.unknown == (39 / 40, 10 / 40)
    assert set(fitted.as_json()) >= {"min_probability", "unknown", "ece_after", "questions"}


def test_the_least_probability_separates_answerable_from_unanswerable_questions() -> None:
    answerable, unanswerable = np.array([0.9, 0.7, 0.7, 0.2]), np.array([0.7, 0.3, 0.1])
    assert min_probability(answerable, unanswerable) == pytest.approx((0.7 + 0.3) / 2)
    assert min_probability(answerable, np.array([0.05])) == pytest.approx((0.2 + 0.05) / 2)
    assert min_probability(unanswerable, answerable) == 0
    assert min_probability(answerable, answerable) == 0
    assert min_probability(answerable, np.array([])) == 0


def test_a_reader_of_factoids_is_calibrated_for_lists_with_a_threshold_of_their_own(tmp_path: Path) -> None:
    factoid, listed = calibrate_reader(reader(tmp_path / "reader"), [held_out(), held_out("list")])
    assert (factoid.form, listed.form) == ("factoid", "list")
    assert listed.list_threshold in LIST_THRESHOLDS
    few = HeldOutSource("few", "dev", held_out("list").docs[: MIN_QUESTIONS - 1])
    assert calibrate_reader(reader(tmp_path / "other"), [few]) == []


def test_a_reader_of_yes_or_no_is_calibrated(tmp_path: Path) -> None:
    docs = [question(f"y{number}", "good ." if number % 2 else "bad .", "yes", "yesno") for number in range(30)]
    folder = table_model(tmp_path / "reader", Questions("yesno"), {"good": 0, "bad": 1})
    (fitted,) = calibrate_reader(Model.open(folder), [HeldOutSource("held", None, docs)])
    assert (fitted.form, fitted.questions) == ("yesno", 30)
    # Half of the answers to answerable questions are right, and none to the others.
    assert fitted.answers.right == 15
    assert calibrated(0.9, fitted.answers.curve) < 0.6


# Relations


def related(number: int, label: str | None, score: float | None = None) -> Document:
    """A chemical and a gene in a sentence, related or not; a gene and another in the text."""
    spans = tuple(
        Span(f"T{place}", type_, ((2 * place, 2 * place + 1),), "abcdefghij"[2 * place])
        for place, type_ in enumerate(("Chemical", "Gene", "Gene"))
    )
    sides = (Argument("Chemical", "T0"), Argument("Gene", "T1"))
    relations = () if label is None else (Relation("R1", label, sides, score=score),)
    return Document(str(number), (Passage(0, "a c e g i"),), spans, relations)


SCHEMAS = (
    {"name": "acts", "labels": ["INHIBITOR", "ACTIVATOR"], "pairs": [["Chemical", "Gene"]], "level": "mention"},
    {"name": "links", "labels": ["Association"], "pairs": [["Gene", "Gene"], ["Chemical", "Gene"]]},
)


def test_relations_are_calibrated_by_type_or_where_rare_by_schema() -> None:
    task = DocumentRelations(SCHEMAS, annotated={"acts": ["acts"]})
    truth = ["INHIBITOR" if number % 2 else None for number in range(60)]
    gold = [related(number, label) for number, label in enumerate(truth)]
    found = [related(number, "INHIBITOR", 0.95) for number in range(55)]
    found += [related(number, "ACTIVATOR", 0.9) for number in range(55, 60)]
    fitted = calibrate(task, [HeldOutSource("acts", "dev", gold)], [found])
    assert set(fitted) == {"INHIBITOR", "ACTIVATOR"}
    inhibitor, activator = fitted["INHIBITOR"], fitted["ACTIVATOR"]
    assert (inhibitor.mentions, inhibitor.right, inhibitor.pooled) == (55, 27, None)
    assert (activator.mentions, activator.right, activator.pooled) == (60, 27, "acts")
    assert inhibitor.ece_after < inhibitor.ece_before / 3
    assert calibrated(0.95, inhibitor.curve) == pytest.approx(27 / 55, abs=0.1)
    assert "pooled" not in inhibitor.as_json()


def test_a_file_without_relations_of_a_schema_says_nothing_of_it() -> None:
    task = DocumentRelations(SCHEMAS)
    gold = [related(number, "INHIBITOR") for number in range(MIN_MENTIONS)]
    found = [
        replace(doc, relations=(*doc.relations, Relation("R2", "Association", doc.relations[0].arguments, score=0.9)))
        for doc in (related(number, "INHIBITOR", 0.9) for number in range(MIN_MENTIONS))
    ]
    fitted = calibrate(task, [HeldOutSource("file", None, gold)], [found])
    assert "Association" not in fitted
    assert fitted["INHIBITOR"].right == MIN_MENTIONS
