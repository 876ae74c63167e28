"""Bootstrap intervals over test documents."""

from dataclasses import replace

import numpy as np
import pytest
from errors import raises

from lexome.document import Answer, Document, Question, Span, lay_out
from lexome.errors import DataSetError
from lexome.reproduce.aggregate import bootstrap_intervals
from lexome.tasks import task_of

GENES = task_of({"kind": "ner", "types": ["Gene"]})
FACTOIDS = task_of({"kind": "questions", "form": "factoid"})


def gene(number: int) -> Document:
    """A document that is one gene."""
    return Document(f"d{number}", lay_out([("text", "TP53")]), (Span("T1", "Gene", ((0, 4),), "TP53"),))


def test_the_interval_covers_the_expected_sampling_error() -> None:
    gold = [gene(number) for number in range(40)]
    found = [doc if number % 2 else replace(doc, spans=()) for number, doc in enumerate(gold)]
    low, high = bootstrap_intervals(GENES, gold, found)["f1"]
    # 20 of 40 found, none wrong: F1 is 66.7. Drawn, a share p of 0.5 ± 0.155 is found, and F1 is 2p / (1 + p).
    assert low == pytest.approx(51, abs=5)
    assert high == pytest.approx(79, abs=5)


def test_resampled_counts_equal_scoring_resampled_documents() -> None:
    gold = [gene(number) for number in range(12)]
    found = [doc if number % 4 else replace(doc, spans=()) for number, doc in enumerate(gold)]
    places = np.random.default_rng(0).integers(12, size=12)
    expected = GENES.score([gold[n] for n in places], [found[n] for n in places])
    # The only draw is both ends of its interval.
    assert bootstrap_intervals(GENES, gold, found, samples=1)["f1"] == pytest.approx(
        (100 * expected["f1"], 100 * expected["f1"])
    )
    assert 0 < expected["f1"] < 1


def test_the_interval_of_perfect_predictions_has_no_width() -> None:
    gold = [gene(number) for number in range(5)]
    assert bootstrap_intervals(GENES, gold, gold)["f1"] == (100, 100)


def test_the_bootstrap_is_reproducible() -> None:
    gold = [gene(number) for number in range(9)]
    found = [doc if number % 3 else replace(doc, spans=()) for number, doc in enumerate(gold)]
    assert bootstrap_intervals(GENES, gold, found) == bootstrap_intervals(GENES, gold, found)


def question(number: int, text: int, answer: str) -> Document:
    """A text with a question that several texts share."""
    asked = Question(f"q{number}_{text:03}", "Which gene?", "factoid", (Answer(answer),))
    return Document(f"q{number}-{text}", lay_out([("text", "TP53 or MYC")]), questions=(asked,))


def test_a_question_is_resampled_with_all_its_contexts() -> None:
    gold = [question(number, text, "TP53") for number in range(30) for text in range(3)]
    found = [question(number, text, "TP53" if number % 2 else "MYC") for number in range(30) for text in range(3)]
    low, high = bootstrap_intervals(FACTOIDS, gold, found)["strict"]
    # Half of 30 questions right, each with the standard deviation of a coin: 50 ± 1.96 * 50 / sqrt(30).
    assert (low, high) == (pytest.approx(32, abs=6), pytest.approx(68, abs=6))


def test_predictions_for_other_documents_are_refused() -> None:
    with raises(DataSetError, code="document-mismatch", value=1):
        bootstrap_intervals(GENES, [gene(0), gene(1)], [gene(0)])


@pytest.mark.parametrize("texts", [1, 2])
def test_the_interval_of_yes_no_macro_f1_contains_the_score(texts: int) -> None:
    task = task_of({"kind": "questions", "form": "yesno"})
    known = [("yes", "no")[number % 2] for number in range(40)]
    said = [answer if number % 5 else "no" for number, answer in enumerate(known)]
    gold, found = (
        [_yes_or_no(n, text, answers[n]) for n in range(40) for text in range(texts)] for answers in (known, said)
    )
    score = 100 * task.score(gold, found)["macro_f1"]
    low, high = bootstrap_intervals(task, gold, found)["macro_f1"]
    # 36 of 40 are right: a share of 0.9 ± 0.09.
    assert low < score < high
    assert (low, high) == (pytest.approx(score - 9, abs=4), pytest.approx(score + 9, abs=4))


def _yes_or_no(number: int, text: int, answer: str) -> Document:
    asked = Question(f"q{number}_{text:03}", "Is it a gene?", "yesno", (Answer(answer),))
    return Document(f"q{number}-{text}", lay_out([("text", "TP53")]), questions=(asked,))


def test_a_sample_without_positives_is_dropped() -> None:
    task = task_of({"kind": "classes", "labels": ["no", "yes"], "scored": ["yes"]})
    docs = [
        Document(f"d{number}", lay_out([("text", "TP53")]), labels=("no" if number else "yes",)) for number in range(3)
    ]
    assert bootstrap_intervals(task, docs, docs)["f1"] == (100, 100)
