"""Metrics of answers: SQuAD 1.1 and 2.0, and BioASQ's for factoid, list and yes/no questions."""

import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from lexome.errors import UsageError
from lexome.tasks.metrics.spans import mean, ratio, require_pairs

_ARTICLE = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True, slots=True)
class Squad:
    """Scores of all questions, of answerable and of unanswerable ones.

    best_exact and best_f1 are the best scores that a threshold on the no-answer probability could give, with the
    thresholds: an answer whose probability is above counts as none. They are None without such probabilities.
    """

    exact: float
    f1: float
    questions: int
    answerable: int
    answerable_exact: float
    answerable_f1: float
    unanswerable_exact: float
    best_exact: float | None = None
    best_exact_threshold: float | None = None
    best_f1: float | None = None
    best_f1_threshold: float | None = None


def squad(
    gold: Sequence[Sequence[str]],
    predicted: Sequence[str],
    *,
    no_answer: Sequence[float] | None = None,
    threshold: float = 1.0,
) -> Squad:
    """Exact match and F1; `gold` has the accepted answers of each question, none if unanswerable; "" predicts none.

    `no_answer` is the model's probability that each question has none: above `threshold` its answer counts as none.
    """
    require_pairs(gold, predicted, what="questions")
    scores = [answer_scores(answers, answer) for answers, answer in zip(gold, predicted, strict=True)]
    answerable = [any(normalize_answer(answer) for answer in answers) for answers in gold]
    if no_answer is None:
        return _squad(scores, answerable)
    require_pairs(gold, no_answer, what="questions")
    thresholded = [
        (float(not has), float(not has)) if probability > threshold else score
        for score, has, probability in zip(scores, answerable, no_answer, strict=True)
    ]
    best = [best_threshold([score[part] for score in scores], predicted, answerable, no_answer) for part in range(2)]
    return _squad(thresholded, answerable, *best[0], *best[1])


def answer_scores(gold: Sequence[str], predicted: str) -> tuple[float, float]:
    """Exact match and F1 of one answer: the best over the gold answers."""
    accepted = [answer for answer in gold if normalize_answer(answer)] or [""]
    exact = any(normalize_answer(answer) == normalize_answer(predicted) for answer in accepted)
    return float(exact), max(word_f1(answer, predicted) for answer in accepted)


def word_f1(gold: str, predicted: str) -> float:
    """F1 of the words that two answers share, with multiplicity."""
    gold_words, words = normalize_answer(gold).split(), normalize_answer(predicted).split()
    if not gold_words or not words:
        return float(gold_words == words)
    same = (Counter(gold_words) & Counter(words)).total()
    return ratio(2 * same, len(gold_words) + len(words))


def normalize_answer(answer: str) -> str:
    """The answer in lower case, without ASCII punctuation, articles and extra white space."""
    return " ".join(_ARTICLE.sub(" ", answer.lower().translate(_PUNCTUATION)).split())


def best_threshold(
    scores: Sequence[float], predicted: Sequence[str], answerable: Sequence[bool], no_answer: Sequence[float]
) -> tuple[float, float]:
    """The best mean score that a threshold gives, and the lowest threshold that gives it.

    Below all probabilities every answer counts as none. As the threshold rises, each question gets its answer back:
    that is worth its score if the question is answerable, and costs 1 if it is not and something was predicted.
    """
    current = best = float(len(answerable) - sum(answerable))
    threshold = 0.0
    for place in sorted(range(len(scores)), key=lambda place: no_answer[place]):
        current += scores[place] if answerable[place] else -float(bool(predicted[place]))
        if current > best:
            best, threshold = current, float(no_answer[place])
    return ratio(best, len(scores)), threshold


def _squad(scores: Sequence[tuple[float, float]], answerable: Sequence[bool], *best: float) -> Squad:
    with_answer, without = (
        [score for score, has in zip(scores, answerable, strict=True) if has == kind] for kind in (True, False)
    )
    (exact, f1), (answerable_exact, answerable_f1), (unanswerable_exact, _) = (
        [mean([score[part] for score in own]) for part in range(2)] for own in (scores, with_answer, without)
    )
    counts = (len(scores), len(with_answer))
    return Squad(exact, f1, *counts, answerable_exact, answerable_f1, unanswerable_exact, *best)


Forms = Sequence[str]
"""An answer and its synonyms."""

# The maximum number of candidates for a factoid question.
CANDIDATES = 5


@dataclass(frozen=True, slots=True)
class Factoid:
    """Factoid questions: strict accuracy (the first candidate), lenient accuracy (any), and mean reciprocal rank."""

    strict: float
    lenient: float
    mrr: float
    questions: int


@dataclass(frozen=True, slots=True)
class ListAnswers:
    """List questions: means over questions of precision, recall and F1."""

    precision: float
    recall: float
    f1: float
    questions: int


@dataclass(frozen=True, slots=True)
class YesNo:
    """Yes/no questions: accuracy, the F1 of each answer, and their mean."""

    accuracy: float
    f1_yes: float
    f1_no: float
    questions: int

    @property
    def macro_f1(self) -> float:
        """The mean of both F1 scores, which ranks the challenge."""
        return (self.f1_yes + self.f1_no) / 2


def bioasq_factoid(
    gold: Sequence[Sequence[Forms]], predicted: Sequence[Sequence[str]], *, candidates: int = CANDIDATES
) -> Factoid:
    """Strict and lenient accuracy and mean reciprocal rank; `predicted` has each question's candidates, best first.

    A question without candidates counts as wrong. The challenge's scorer ignores questions that a submission omits;
    remove them from both lists to match it.
    """
    require_pairs(gold, predicted, what="questions")
    scores = [reciprocal_rank(forms, answers[:candidates]) for forms, answers in zip(gold, predicted, strict=True)]
    return Factoid(
        mean([score == 1 for score in scores]), mean([score > 0 for score in scores]), mean(scores), len(gold)
    )


def reciprocal_rank(gold: Sequence[Forms], predicted: Sequence[str]) -> float:
    """1 / the rank of the first right candidate, or 0."""
    accepted = {form.lower() for forms in gold for form in forms}
    return next((1 / rank for rank, answer in enumerate(predicted, 1) if answer.lower() in accepted), 0.0)


def bioasq_list(gold: Sequence[Sequence[Forms]], predicted: Sequence[Sequence[str]]) -> ListAnswers:
    """Mean precision, recall and F1; all are 0 for a question without an answer."""
    require_pairs(gold, predicted, what="questions")
    scores = [list_scores(forms, answers) for forms, answers in zip(gold, predicted, strict=True)]
    precision, recall, f1 = (mean([score[part] for score in scores]) for part in range(3))
    return ListAnswers(precision, recall, f1, len(gold))


def list_scores(gold: Sequence[Forms], predicted: Sequence[str]) -> tuple[float, float, float]:
    """Precision, recall and F1 of one list question.

    Each predicted answer is matched to the first unmatched gold answer that has it among its forms, so a repeated one
    is wrong. An unmatched gold answer is missed, unless a predicted answer among its forms was matched to another one.
    """
    unmatched = [{form.lower() for form in forms} for forms in gold]
    answers = [answer.lower() for answer in predicted]
    for answer in answers:
        match = next((place for place, forms in enumerate(unmatched) if answer in forms), None)
        if match is not None:
            del unmatched[match]
    right, missed = len(gold) - len(unmatched), len(unmatched)
    for forms in unmatched:
        also = next((place for place, answer in enumerate(answers) if answer in forms), None)
        if also is not None:
            missed -= 1
            del answers[also]
    precision, recall = ratio(right, len(predicted)), ratio(right, right + missed)
    return precision, recall, ratio(2 * precision * recall, precision + recall)


def bioasq_yesno(gold: Sequence[str], predicted: Sequence[str | None]) -> YesNo:
    """Accuracy and F1. An answer counts as the first of "yes" and "no" that it contains; None and others are wrong.

    The F1 of an answer is 2 right / (2 right + all wrong): a wrong yes is a missed no.
    """
    require_pairs(gold, predicted, what="questions")
    expected = [yes_or_no(answer) for answer in gold]
    if None in expected:
        answer = gold[expected.index(None)]
        raise UsageError(f"a gold answer is {answer!r}; expected yes or no.", code="invalid-choice", value=answer)
    right = [own == yes_or_no(answer) for own, answer in zip(expected, predicted, strict=True)]
    yes = sum(good for good, own in zip(right, expected, strict=True) if own == "yes")
    no, wrong = sum(right) - yes, len(right) - sum(right)
    return YesNo(mean(right), ratio(2 * yes, 2 * yes + wrong), ratio(2 * no, 2 * no + wrong), len(gold))


def yes_or_no(answer: str | None) -> str | None:
    """The first of "yes" and "no" that a text contains, or None."""
    lowered = (answer or "").lower()
    return next((word for word in ("yes", "no") if word in lowered), None)
