"""What was considered and dropped is listed with the true reason, and nothing else is."""

import json
from pathlib import Path

import pytest
from dictionary_models import dictionary_model
from hypothesis import given
from hypothesis import strategies as st
from patience import linear_work

from lexome.document import Document, Passage
from lexome.infer.annotator import Annotator

# With seven tags and the others at 0, a logit of 1 is a probability of 0.31, of 0.2 one of 0.17; O has the rest.
WORDS = {
    "brca1": ("B-Gene", 6.0),
    "tp53": ("B-Gene", 2.5),
    "breast": ("B-Disease", 5.0),
    "cancer": ("I-Disease", 5.0),
    "odd": ("O", 1.0),
    "plain": ("O", 6.0),
}


@pytest.fixture(scope="module")
def annotator(tmp_path_factory: pytest.TempPathFactory) -> Annotator:
    return Annotator.open(dictionary_model(tmp_path_factory.mktemp("explain") / "words", WORDS), threads=1)


def reasons(annotator: Annotator, text: str, **asked: object) -> list[tuple[str, str, str]]:
    found = annotator.explain(text, **asked)  # type: ignore[arg-type]
    return [(candidate.text, candidate.type, candidate.why) for candidate in found]


def test_nothing_is_said_of_what_was_found(annotator: Annotator) -> None:
    assert annotator.explain("brca1 in plain breast cancer") == []


def test_a_score_below_the_minimum_is_given(annotator: Annotator) -> None:
    [why] = [why for text, type_, why in reasons(annotator, "tp53", min_score=0.9) if (text, type_) == ("tp53", "Gene")]
    assert ("0.67" in why, "0.9" in why) == (True, True)
    assert ("tp53", "Gene") not in [one[:2] for one in reasons(annotator, "tp53", min_score={"Disease": 0.9})]


def test_a_type_that_was_not_asked_for_is_named(annotator: Annotator) -> None:
    [(text, type_, why)] = reasons(annotator, "brca1", types=["Disease"])
    assert (text, type_, "Gene" in why) == ("brca1", "Gene", True)


def test_words_of_which_the_best_reading_says_nothing_are_listed_for_each_type(annotator: Annotator) -> None:
    found = reasons(annotator, "plain odd odd plain")
    assert [one[:2] for one in found] == [("odd odd", type_) for type_ in ("Chemical", "Disease", "Gene")]
    assert all(type_ in why for _, type_, why in found)
    assert [one[1] for one in reasons(annotator, "odd", types=["Gene"])] == ["Gene"]


def test_a_stretch_of_which_a_part_was_found_is_listed_with_that_part(annotator: Annotator) -> None:
    [(text, type_, why)] = reasons(annotator, "odd breast cancer", types=["Disease"])
    assert (text, type_, "'breast cancer'" in why) == ("odd breast cancer", "Disease", True)


def test_what_was_read_as_another_type_is_said(annotator: Annotator) -> None:
    [(text, type_, why)] = reasons(annotator, "tp53", types=["Gene", "Disease"])
    assert (text, type_, "Gene" in why, "0.67" in why) == ("tp53", "Disease", True, True)


def test_a_model_that_reads_sentence_by_sentence_considers_no_more_than_one(tmp_path: Path) -> None:
    folder = dictionary_model(tmp_path / "m", {**WORDS, "?": ("O", 1.0)})
    held = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps({**held, "task": {**held["task"], "context": "sentence"}}))
    found = reasons(Annotator.open(folder, threads=1), "Plain odd? Odd plain.", types=["Gene"])
    assert [one[0] for one in found] == ["odd?", "Odd"]


def test_scores_of_candidates_are_calibrated(tmp_path: Path) -> None:
    folder = dictionary_model(tmp_path / "m", WORDS)
    held = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps({**held, "calibration": {"Gene": [1.0, -30.0]}}))
    found = Annotator.open(folder, threads=1).explain("odd")
    assert {candidate.type: round(candidate.score, 2) for candidate in found} == {
        "Chemical": 0.23,
        "Disease": 0.23,
        "Gene": 0.0,
    }


def test_a_book_is_explained_in_time(annotator: Annotator) -> None:
    text = " ".join(f"brca1 odd plain w{number % 50} tp53 plain" for number in range(5_000))
    # Where each stretch is held against every mention, it takes minutes.
    with linear_work():
        found = annotator.explain(text, types=["Gene"], min_score=0.9)
    assert [candidate.text for candidate in found[:3]] == ["brca1 odd", "tp53", "brca1 odd"]


@given(st.lists(st.sampled_from([*WORDS, "w1"]), max_size=30), st.floats(0, 1))
def test_found_and_dropped_are_apart_and_in_place(annotator: Annotator, words: list[str], least: float) -> None:
    doc = Document("d", (Passage(3, " ".join(words)),))
    (found,) = annotator.annotate([doc], min_score=least)
    kept = {(span.start, span.end, span.type) for span in found.spans}
    for candidate in annotator.explain(doc, min_score=least):
        assert doc.slice(candidate.start, candidate.end) == candidate.text
        assert (candidate.start, candidate.end, candidate.type) not in kept
        assert 0 <= candidate.score <= 1
