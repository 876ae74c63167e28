"""BioASQ's and SQuAD's measures, worked by hand from the rules of their programs."""

import pytest
from errors import raises

from lexome.errors import UsageError
from lexome.tasks.metrics import bioasq_factoid, bioasq_list, bioasq_yesno, squad
from lexome.tasks.metrics.answers import normalize_answer


def test_factoid_by_hand() -> None:
    gold = [[["BRCA1", "breast cancer 1"]], [["aspirin"]], [["p53"]], [["insulin"]]]
    found = [["brca1", "BRCA2"], ["ibuprofen", "paracetamol", "Aspirin"], ["p 53"], []]
    score = bioasq_factoid(gold, found)
    assert (score.strict, score.lenient, score.questions) == (1 / 4, 2 / 4, 4)
    assert score.mrr == pytest.approx((1 + 1 / 3) / 4)


def test_a_synonym_is_as_good_as_the_answer() -> None:
    assert bioasq_factoid([[["BRCA1", "breast cancer 1"]]], [["Breast Cancer 1"]]).strict == 1


def test_the_sixth_candidate_does_not_count() -> None:
    found = [["a", "b", "c", "d", "e", "right"]]
    assert bioasq_factoid([[["right"]]], found).lenient == 0
    assert bioasq_factoid([[["right"]]], found, candidates=6).mrr == pytest.approx(1 / 6)


def test_list_by_hand() -> None:
    gold = [[["a"], ["b", "beta"], ["c"], ["d"]], [["x"]], [["y"]]]
    found = [["A", "beta", "z"], ["x", "x"], []]
    score = bioasq_list(gold, found)
    assert score.precision == pytest.approx((2 / 3 + 1 / 2 + 0) / 3)
    assert score.recall == pytest.approx((2 / 4 + 1 + 0) / 3)
    assert score.f1 == pytest.approx((4 / 7 + 2 / 3 + 0) / 3)


def test_a_form_of_two_gold_answers_excuses_the_second() -> None:
    # "p" takes the first; the second, which has it too, is then not missed, and found by nobody.
    score = bioasq_list([[["p", "q"], ["p", "r"]]], [["p"]])
    assert (score.precision, score.recall) == (1, 1)


def test_yes_no_by_hand() -> None:
    score = bioasq_yesno(["yes", "yes", "yes", "no", "no"], ["Yes", "yes.", "no", "no", None])
    assert score.accuracy == 3 / 5
    assert score.f1_yes == pytest.approx(4 / (4 + 2))
    assert score.f1_no == pytest.approx(2 / (2 + 2))
    assert score.macro_f1 == pytest.approx((4 / 6 + 1 / 2) / 2)


def test_always_yes_is_half_right_at_best() -> None:
    score = bioasq_yesno(["yes"] * 9 + ["no"], ["yes"] * 10)
    assert score.accuracy == 0.9
    assert score.macro_f1 == pytest.approx(18 / 19 / 2)


def test_gold_that_is_neither_yes_nor_no_is_an_error() -> None:
    with raises(UsageError, code="invalid-choice", value="maybe"):
        bioasq_yesno(["yes", "maybe"], ["yes", "yes"])


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("The  BRCA1 gene.", "brca1 gene"),
        ("a-b", "ab"),  # punctuation goes without a space
        ("an analysis of the data", "analysis of data"),
        ("the", ""),
        ("5‑HT", "5‑ht"),  # a hyphen that isn't ASCII stays
    ],
)
def test_answers_are_normalize_answer_as_squad_does(answer: str, expected: str) -> None:
    assert normalize_answer(answer) == expected


def test_squad_by_hand() -> None:
    gold = [["the BRCA1 gene", "BRCA1"], ["insulin receptor substrate"], ["aspirin"]]
    found = ["BRCA1.", "insulin receptor", "ibuprofen"]
    score = squad(gold, found)
    assert score.exact == pytest.approx(1 / 3)
    assert score.f1 == pytest.approx((1 + 2 * 2 / 5 + 0) / 3)
    assert score.best_exact is None


def test_words_count_as_often_as_they_stand_in_both() -> None:
    assert squad([["very very good"]], ["very good good"]).f1 == pytest.approx(2 * 2 / 6)


def test_squad_without_answers_by_hand() -> None:
    score = squad([["x"], [], [], ["the"]], ["x", "", "y", ""])
    # An answer of articles alone is none.
    assert (score.exact, score.answerable, score.unanswerable_exact) == (3 / 4, 1, 2 / 3)


def test_an_answer_with_a_question_that_has_none_is_wrong() -> None:
    assert squad([["x"], []], ["", "y"]).f1 == 0


def test_the_best_threshold_by_hand() -> None:
    # Beliefs rising: right answer +1, answer where there is none -1, right answer +1, half right +0.5.
    gold = [["p"], [], ["c"], ["d e f"]]
    found = ["p", "b", "c", "d"]
    score = squad(gold, found, no_answer=[0.1, 0.2, 0.3, 0.9], threshold=0.15)
    assert score.exact == (1 + 1 + 0 + 0) / 4
    assert (score.best_exact, score.best_exact_threshold) == (2 / 4, 0.1)
    assert score.best_f1 == pytest.approx((1 + 0 + 1 + 0.5) / 4)
    assert score.best_f1_threshold == 0.9


def test_questions_come_in_pairs() -> None:
    for measure in (bioasq_factoid, bioasq_list, squad):
        with raises(UsageError, code="length-mismatch", value=(1, 0)):
            measure([[]], [])
