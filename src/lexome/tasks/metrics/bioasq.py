"""BioASQ task B, phase B: factoid, list and yes/no questions, by the rules of the challenge's own program.

Answers are compared in lower case and otherwise as they are written. A gold answer is a list of forms, each as good as
the others; of a found answer one form counts, as since the fifth challenge.
"""

from collections.abc import Sequence

from lexome.errors import UsageError
from lexome.tasks.metrics.counts import mean, require_pairs, share
from lexome.values import value

# The forms of an answer: itself and its synonyms.
Forms = Sequence[str]

# The most candidates that a system may submit for a factoid question.
CANDIDATES = 5


@value
class Factoid:
    """Factoid questions: the first candidate is right, one of them is, the mean of 1 / rank of the first that is."""

    strict: float
    lenient: float
    mrr: float
    questions: int


@value
class ListAnswers:
    """List questions: the means over questions of precision, recall and F1."""

    precision: float
    recall: float
    f1: float
    questions: int


@value
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
    precision, recall = share(right, len(found)), share(right, right + missed)
    return precision, recall, share(2 * precision * recall, precision + recall)


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
    return YesNo(mean(right), share(2 * yes, 2 * yes + wrong), share(2 * no, 2 * no + wrong), len(gold))


def yes_or_no(answer: str | None) -> str | None:
    """The answer that a text is taken for."""
    lowered = (answer or "").lower()
    return next((word for word in ("yes", "no") if word in lowered), None)
