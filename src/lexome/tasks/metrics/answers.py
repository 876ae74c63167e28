"""SQuAD 1.1 and 2.0: exact match and F1 of answers' words, with or without questions that have no answer."""

import re
import string
from collections import Counter
from collections.abc import Sequence

from lexome.tasks.metrics.counts import mean, require_pairs, share
from lexome.values import value

_ARTICLE = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


@value
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
    return share(2 * same, len(wanted) + len(given))


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
    return share(best, len(scores)), threshold


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
