"""Classes of texts and of pairs: one label each, or any number of them."""

from collections import defaultdict
from collections.abc import Collection, Hashable, Sequence

from lexome.errors import UsageError
from lexome.tasks.metrics.counts import NONE, Agreement, Counts, agreement, mean, require_pairs, share
from lexome.values import value


@value
class MultiLabel:
    """How far sets of labels agree.

    agreement  micro and macro averages, and each label on its own
    precision  example-based: the mean over texts of the share of its found labels that are right
    recall     example-based: the mean over texts of the share of its gold labels that were found
    f1         the harmonic mean of these two, as BLUE scores HoC
    mean_f1    the mean over texts of each one's F1
    exact      the share of texts whose labels are exactly right
    hamming    the share of all decisions, text by label, that are wrong
    """

    agreement: Agreement
    precision: float
    recall: float
    mean_f1: float
    exact: float
    hamming: float

    @property
    def f1(self) -> float:
        """The harmonic mean of example-based precision and recall."""
        return share(2 * self.precision * self.recall, self.precision + self.recall)


def classification(gold: Sequence[str], found: Sequence[str], *, labels: Collection[str] | None = None) -> Agreement:
    """The agreement of one label a text with its gold one, over `labels`, or over all that occur.

    With the positive classes as `labels`, a text that is of none of them and is said to be of none counts nowhere: that
    is how relation sets are scored. Over all labels, micro F1 is accuracy.
    """
    require_pairs(gold, found, what="labels")
    names = _names(labels, {*gold, *found})
    right: defaultdict[str, int] = defaultdict(int)
    missed: defaultdict[str, int] = defaultdict(int)
    spurious: defaultdict[str, int] = defaultdict(int)
    for wanted, given in zip(gold, found, strict=True):
        if wanted == given:
            right[wanted] += 1
        else:
            missed[wanted] += 1
            spurious[given] += 1
    return agreement({name: Counts(right[name], spurious[name], missed[name]) for name in names})


def multilabel(
    gold: Sequence[Collection[str]], found: Sequence[Collection[str]], *, labels: Collection[str] | None = None
) -> MultiLabel:
    """The agreement of sets of labels, a set a text, over `labels`, or over all that occur.

    Of a text without gold labels precision, recall and F1 are 1 where nothing was found for it, and 0 otherwise. Where
    something is to be found and nothing was, precision is 0.
    """
    require_pairs(gold, found, what="sets of labels")
    names = _names(labels, {name for names in (*gold, *found) for name in names})
    types = dict.fromkeys(names, NONE)
    rows = []
    for wanted, given in zip(gold, found, strict=True):
        left, right = types.keys() & set(wanted), types.keys() & set(given)
        for name in left | right:
            types[name] += Counts(name in left and name in right, name not in left, name not in right)
        rows.append(example(left, right))
    whole = agreement(types)
    wrong = whole.total.false_positives + whole.total.false_negatives
    return MultiLabel(
        whole,
        mean([row[0] for row in rows]),
        mean([row[1] for row in rows]),
        mean([row[2] for row in rows]),
        mean([row[3] for row in rows]),
        share(wrong, len(gold) * len(names)),
    )


def example(gold: Collection[str], found: Collection[str]) -> tuple[float, float, float, float]:
    """Precision, recall and F1 of one text's labels, and 1 where they are exactly right."""
    if not gold:
        return (0.0, 0.0, 0.0, 0.0) if found else (1.0, 1.0, 1.0, 1.0)
    right = len(set(gold) & set(found))
    return (
        share(right, len(found)),
        share(right, len(gold)),
        share(2 * right, len(gold) + len(found)),
        float(right == len(gold) == len(found)),
    )


def pooled(documents: Sequence[Hashable], labels: Sequence[Collection[str]]) -> list[set[str]]:
    """The labels of each document, in the order of first sight: all those of its sentences.

    `documents` says for each sentence whose it is. So sentence-level predictions are scored on documents, as HoC is.
    """
    require_pairs(documents, labels, what="sentences")
    pools: dict[Hashable, set[str]] = {}
    for document, names in zip(documents, labels, strict=True):
        pools.setdefault(document, set()).update(names)
    return list(pools.values())


def _names(labels: Collection[str] | None, seen: set[str]) -> list[str]:
    """The labels to count; an error where the ones that were named occur nowhere, which makes every score 0."""
    if labels is None:
        return sorted(seen)
    if not labels:
        raise UsageError("no label is to be counted; expected at least one. Name the classes of the score.")
    if seen and not seen & set(labels):
        raise UsageError(
            f"none of the labels to count ({', '.join(sorted(labels)[:5])}) occurs; seen were "
            f"{', '.join(sorted(seen)[:5])}. Check how the labels are written."
        )
    return sorted(set(labels))
