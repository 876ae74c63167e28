"""SQuAD 1.1 and 2.0: exact match and F1 of answers' words, with or without questions that have no answer."""

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
    """Scores of questions, of those that have an answer and of those that have none.

    best_exact and best_f1 are those that a threshold on the model's belief that there is no answer could give, with the
    thresholds: an answer counts as none where the belief is above. They are None where no beliefs were given.
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
    found: Sequence[str],
    *,
    no_answer: Sequence[float] | None = None,
    threshold: float = 1.0,
) -> Squad:
    """Exact match and F1; `gold` has each question's accepted answers, none where it has no answer; found "" is none.

    `no_answer` is how far the model believes that each question has none: above `threshold` its answer counts as none.
    """
    require_pairs(gold, found, what="questions")
    scores = [answer_scores(answers, given) for answers, given in zip(gold, found, strict=True)]
    answerable = [any(normalised(answer) for answer in answers) for answers in gold]
    if no_answer is None:
        return _squad(scores, answerable)
    require_pairs(gold, no_answer, what="questions")
    believed = [belief > threshold for belief in no_answer]
    kept = [
        (float(not has), float(not has)) if none else score
        for score, has, none in zip(scores, answerable, believed, strict=True)
    ]
    best = [best_threshold([score[part] for score in scores], found, answerable, no_answer) for part in range(2)]
    return _squad(kept, answerable, *best[0], *best[1])


def answer_scores(gold: Sequence[str], found: str) -> tuple[float, float]:
    """Exact match and F1 of one answer: the best over the gold ones."""
    accepted = [answer for answer in gold if normalised(answer)] or [""]
    given = normalised(found)
    exact = max(normalised(answer) == given for answer in accepted)
    return float(exact), max(word_f1(answer, found) for answer in accepted)


def word_f1(gold: str, found: str) -> float:
    """F1 of the words that two answers share, each as often as it stands in both."""
    wanted, given = normalised(gold).split(), normalised(found).split()
    if not wanted or not given:
        return float(wanted == given)
    same = (Counter(wanted) & Counter(given)).total()
    return ratio(2 * same, len(wanted) + len(given))


def normalised(answer: str) -> str:
    """The answer in lower case, without ASCII punctuation, articles and white space beyond a space between words."""
    return " ".join(_ARTICLE.sub(" ", answer.lower().translate(_PUNCTUATION)).split())


def best_threshold(
    scores: Sequence[float], found: Sequence[str], answerable: Sequence[bool], no_answer: Sequence[float]
) -> tuple[float, float]:
    """The best mean score that a threshold gives, and the lowest threshold that gives it.

    Below all beliefs every answer counts as none. Rising, each question gets its answer back: that is worth its score
    where it has an answer, and costs 1 where it has none and something was said.
    """
    current = best = float(len(answerable) - sum(answerable))
    threshold = 0.0
    for place in sorted(range(len(scores)), key=lambda place: no_answer[place]):
        current += scores[place] if answerable[place] else -float(bool(found[place]))
        if current > best:
            best, threshold = current, float(no_answer[place])
    return ratio(best, len(scores)), threshold


def _squad(scores: Sequence[tuple[float, float]], answerable: Sequence[bool], *best: float) -> Squad:
    with_answer = [score for score, has in zip(scores, answerable, strict=True) if has]
    without = [score for score, has in zip(scores, answerable, strict=True) if not has]
    return Squad(
        mean([exact for exact, _ in scores]),
        mean([f1 for _, f1 in scores]),
        len(scores),
        len(with_answer),
        mean([exact for exact, _ in with_answer]),
        mean([f1 for _, f1 in with_answer]),
        mean([exact for exact, _ in without]),
        *best,
    )


# The forms of an answer: itself and its synonyms.
Forms = Sequence[str]

# The most candidates that a system may submit for a factoid question.
CANDIDATES = 5


@dataclass(frozen=True, slots=True)
class Factoid:
    """Factoid questions: the first candidate is right, one of them is, the mean of 1 / rank of the first that is."""

    strict: float
    lenient: float
    mrr: float
    questions: int


@dataclass(frozen=True, slots=True)
class ListAnswers:
    """List questions: the means over questions of precision, recall and F1."""

    precision: float
    recall: float
    f1: float
    questions: int


@dataclass(frozen=True, slots=True)
class YesNo:
    """Yes/no questions: accuracy, F1 of each answer, and the mean of the two."""

    accuracy: float
    f1_yes: float
    f1_no: float
    questions: int

    @property
    def macro_f1(self) -> float:
        """The mean of both answers' F1, which the challenge ranks by."""
        return (self.f1_yes + self.f1_no) / 2


def bioasq_factoid(
    gold: Sequence[Sequence[Forms]], found: Sequence[Sequence[str]], *, candidates: int = CANDIDATES
) -> Factoid:
    """Strict and lenient accuracy and mean reciprocal rank; `found` has each question's candidates, best first.

    A question with no candidates is answered wrong. The challenge's program leaves out questions that a submission does
    not have at all; leave them out of both for that.
    """
    require_pairs(gold, found, what="questions")
    scores = [reciprocal_rank(forms, given[:candidates]) for forms, given in zip(gold, found, strict=True)]
    return Factoid(
        mean([score == 1 for score in scores]), mean([score > 0 for score in scores]), mean(scores), len(gold)
    )


def reciprocal_rank(gold: Sequence[Forms], found: Sequence[str]) -> float:
    """1 / the rank of the first candidate that is right, or 0."""
    accepted = {form.lower() for forms in gold for form in forms}
    return next((1 / rank for rank, answer in enumerate(found, 1) if answer.lower() in accepted), 0.0)


def bioasq_list(gold: Sequence[Sequence[Forms]], found: Sequence[Sequence[str]]) -> ListAnswers:
    """Mean precision, recall and F1; all are 0 for a question without an answer."""
    require_pairs(gold, found, what="questions")
    scores = [list_scores(forms, given) for forms, given in zip(gold, found, strict=True)]
    precision, recall, f1 = (mean([score[part] for score in scores]) for part in range(3))
    return ListAnswers(precision, recall, f1, len(gold))


def list_scores(gold: Sequence[Forms], found: Sequence[str]) -> tuple[float, float, float]:
    """Precision, recall and F1 of one list question.

    Each found answer takes the first gold one that has it among its forms and isn't taken, so that one that is said
    twice is once wrong. A gold answer that nobody took is missed, unless a found answer that it has among its forms
    took another one.
    """
    left = [{form.lower() for form in forms} for forms in gold]
    given = [answer.lower() for answer in found]
    right = 0
    for answer in given:
        taken = next((place for place, forms in enumerate(left) if answer in forms), None)
        if taken is not None:
            right += 1
            del left[taken]
    missed = 0
    for forms in left:
        also = next((place for place, answer in enumerate(given) if answer in forms), None)
        if also is None:
            missed += 1
        else:
            del given[also]
    precision, recall = ratio(right, len(found)), ratio(right, right + missed)
    return precision, recall, ratio(2 * precision * recall, precision + recall)


def bioasq_yesno(gold: Sequence[str], found: Sequence[str | None]) -> YesNo:
    """Accuracy and F1. An answer counts as the first of "yes" and "no" that is in it; None and others are wrong.

    F1 of an answer is 2 right / (2 right + all wrong): whoever doesn't say yes has said no.
    """
    require_pairs(gold, found, what="questions")
    wanted = [yes_or_no(answer) for answer in gold]
    if None in wanted:
        raise UsageError(f"a gold answer is {gold[wanted.index(None)]!r}; expected yes or no.")
    right = [left == yes_or_no(given) for left, given in zip(wanted, found, strict=True)]
    yes = sum(good for good, answer in zip(right, wanted, strict=True) if answer == "yes")
    no, wrong = sum(right) - yes, len(right) - sum(right)
    return YesNo(mean(right), ratio(2 * yes, 2 * yes + wrong), ratio(2 * no, 2 * no + wrong), len(gold))


def yes_or_no(answer: str | None) -> str | None:
    """The answer that a text is taken for."""
    lowered = (answer or "").lower()
    return next((word for word in ("yes", "no") if word in lowered), None)
