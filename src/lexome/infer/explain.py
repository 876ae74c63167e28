"""explain: mentions that were considered and are not in the result, and why."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import takewhile

from lexome.document import Document, Range, Span
from lexome.infer.calibrate import calibrated
from lexome.infer.choice import Choice
from lexome.infer.model import Model
from lexome.tasks import Ner
from lexome.tasks.ner import Inside
from lexome.values import value

# How probable it has to be that a word is inside a mention for it to count as considered.
CONSIDERED = 0.1


@value
class Candidate:
    """A mention that was considered and dropped; `score` is on the scale of the mentions' scores.

    >>> Candidate(0, 5, "BRCA1", "Gene", 0.31, "its score 0.31 is below 0.5").why
    'its score 0.31 is below 0.5'
    """

    start: int
    end: int
    text: str
    type: str
    score: float
    why: str


def candidates(model: Model, doc: Document, choice: Choice) -> list[Candidate]:
    """What a ner model found and was not asked for, or considered and did not find.

    Considered is every longest stretch of words each of which is inside a mention of an asked type with a probability
    of CONSIDERED or more. It is not listed where mentions that were found cover it.
    """
    task = model.task
    assert isinstance(task, Ner)
    rows = model.rows(doc)
    numbers = model.run(rows)
    found = [span for span in model.decoded(doc, rows, numbers).spans if span.type in task.types]
    # Nobody expects a type that is found only by name where it was not named.
    usual = [span for span in found if span.type in choice.types or span.type not in task.extra]
    dropped = [candidate for span in usual if (candidate := _dropped(span, choice)) is not None]
    curves = model.settings.calibration or {}
    inside = model.inside(doc, rows, numbers)
    own = {type_: [span for span in found if span.type == type_] for type_ in task.types}
    for type_, first, end, score in _stretches(inside, task.types):
        place = (inside.ranges[first][0], inside.ranges[end - 1][1])
        # Mentions of different types exclude one another unless they may be nested.
        why = _unread(place, type_, own[type_], () if task.nested else found)
        if why is not None and type_ in choice.types:
            score = calibrated(score, curves.get(type_))
            dropped.append(Candidate(*place, doc.slice(*place), type_, score, why))
    return sorted(dropped, key=lambda one: (one.start, one.end, one.type))


def _dropped(span: Span, choice: Choice) -> Candidate | None:
    """A mention that the model found, where the caller did not want it."""
    score = span.score if span.score is not None else 1.0
    least = choice.least.get(span.type, 0.0)
    if span.type not in choice.types:
        why = f"the type {span.type} was not asked for"
    elif score < least:
        why = f"its score {score:.2f} is below {least:g}"
    else:
        return None
    return Candidate(span.start, span.end, span.text, span.type, score, why)


def _stretches(inside: Inside, types: Sequence[str]) -> Iterator[tuple[str, int, int, float]]:
    """Of each type the stretches of units that may be inside it, with the mean of their probabilities."""
    for number, type_ in enumerate(types):
        for low, high in inside.runs:
            begun = low
            for place in range(low, high + 1):
                if place < high and inside.shares_UT[place, number] >= CONSIDERED:
                    continue
                if place > begun:
                    yield type_, begun, place, float(inside.shares_UT[begun:place, number].mean())
                begun = place + 1


def _unread(place: Range, type_: str, own: Sequence[Span], others: Sequence[Span]) -> str | None:
    """Why a stretch is no mention as a whole; None where mentions that were found cover it.

    `own` are the mentions of its type, `others` those that exclude it; both are in order, and apart.
    """
    near = list(_touching(own, place))
    if near and near[0].start <= place[0] and place[1] <= near[-1].end:
        return None
    if near:
        return f"found with other bounds: {', '.join(repr(span.text) for span in near)}"
    best = max(_touching(others, place), key=lambda span: span.score or 0.0, default=None)
    if best is not None:
        return f"read as {best.type} instead: {best.text!r}, {best.score or 0.0:.2f}"
    return f"the best reading of the text has no {type_} here"


def _touching(spans: Sequence[Span], place: Range) -> Iterator[Span]:
    """Those of some spans, in order and apart, that share characters with a range."""
    first = bisect_right(spans, place[0], key=lambda span: span.end)
    return takewhile(lambda span: span.start < place[1], (spans[number] for number in range(first, len(spans))))
