"""Questions side by side: BioASQ's measures by the questions' types, SQuAD's for those that have none."""

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np

from lexome.document import Question
from lexome.tasks.answers import plain
from lexome.tasks.evaluation.differences import Difference
from lexome.tasks.evaluation.measured import Measured, averaged, macro
from lexome.tasks.evaluation.pairs import Pair
from lexome.tasks.metrics.answers import answer_scores
from lexome.tasks.metrics.bioasq import CANDIDATES, list_scores, reciprocal_rank, yes_or_no
from lexome.tasks.metrics.counts import of_sets, share
from lexome.tasks.metrics.significance import Rows
from lexome.tasks.qa import Asked, question_of, together
from lexome.values import value

SECTION = "questions"

TYPES = ("factoid", "list", "yesno")


@value
class _Asked:
    """A question with its gold answers, and with those that were predicted, if there are any."""

    document: str
    gold: Question
    found: Question | None

    @property
    def forms(self) -> list[list[str]]:
        """The gold answers, each with its synonyms."""
        return [[answer.text, *answer.synonyms] for answer in self.gold.answers]

    @property
    def answers(self) -> list[str]:
        """The predicted answers, best first."""
        if self.found is None or self.found.impossible:
            return []
        return [answer.text for answer in self.found.answers]


def question_measures(pairs: Sequence[Pair]) -> list[Measured]:
    """The measures of each type of question that is there."""
    asked = _asked(pairs)
    measures: list[Measured] = []
    for type in (*TYPES, None):
        own = [[one for one in doc if _type(one.gold) == type] for doc in asked]
        if any(own):
            measures += _MEASURES[type](own)
    return measures


def question_differences(pairs: Sequence[Pair]) -> Iterator[Difference]:
    """Each question whose first answer is not right, or whose list isn't."""
    for one in chain.from_iterable(_asked(pairs)):
        kind = _problem(one)
        if kind is not None:
            gold = "; ".join(answer.text for answer in one.gold.answers) or None
            yield Difference(SECTION, kind, one.document, gold, "; ".join(one.answers) or None, one.gold.text)


def unscored(pairs: Sequence[Pair]) -> int:
    """How many questions have no answer to compare with, or one in sentences alone."""
    return sum(not _can_be_scored(question) for pair in pairs for question in pair.gold.questions)


def pooled(pairs: Sequence[Pair]) -> int:
    """How often a question is asked of one more document than the first."""
    scored = sum(_can_be_scored(question) for pair in pairs for question in pair.gold.questions)
    return scored - sum(map(len, _asked(pairs)))


def _can_be_scored(question: Question) -> bool:
    """Whether it has a gold answer, or is said to have none; summaries cannot."""
    return bool(question.answers or question.impossible) and question.type != "summary"


def _asked(pairs: Sequence[Pair]) -> list[list[_Asked]]:
    """The questions that can be scored, document by document.

    One of BioASQ's types that several documents ask is one question, of the first of them, with the answers of all.
    """
    same: dict[tuple[int | str, str, str], list[tuple[int, Asked]]] = {}
    for place, pair in enumerate(pairs):
        found = {question.id: question for question in pair.found.questions}
        for question in filter(_can_be_scored, pair.gold.questions):
            once = _type(question) is not None
            key = ("", question_of(question.id), plain(question.text)) if once else (place, question.id, "")
            same.setdefault(key, []).append((place, (question, found.get(question.id))))
    documents: dict[int, list[_Asked]] = {}
    for group in same.values():
        place = group[0][0]
        for question, said in together(asked for _, asked in group):
            documents.setdefault(place, []).append(_Asked(pairs[place].gold.id, question, said))
    return [documents[place] for place in sorted(documents)]


def _type(question: Question) -> str | None:
    return question.type if question.type in TYPES else None


def _factoid(docs: Sequence[Sequence[_Asked]]) -> list[Measured]:
    ranks = [[reciprocal_rank(one.forms, one.answers[:CANDIDATES]) for one in doc] for doc in docs]
    return [
        averaged(SECTION, "factoid, strict", "accuracy", [[float(rank == 1) for rank in own] for own in ranks]),
        averaged(SECTION, "factoid, lenient", "accuracy", [[float(rank > 0) for rank in own] for own in ranks]),
        averaged(SECTION, "factoid", "MRR", ranks),
    ]


def _list(docs: Sequence[Sequence[_Asked]]) -> list[Measured]:
    scores = [[list_scores(one.forms, one.answers) for one in doc] for doc in docs]
    return [
        averaged(SECTION, "list", f"mean {name}", [[score[place] for score in own] for own in scores])
        for place, name in ((2, "F1"), (0, "precision"), (1, "recall"))
    ]


def _yes_no(docs: Sequence[Sequence[_Asked]]) -> list[Measured]:
    """BioASQ's measures; where gold has other answers too, such as maybe, accuracy and the mean of their F1."""
    gold = {one.gold.answers[0].text.lower() for doc in docs for one in doc}
    if gold - {"yes", "no"}:
        return _choices(docs, sorted(gold))
    rows = [_yes_no_row(doc) for doc in docs]
    right = [[float(_first(one) == yes_or_no(one.gold.answers[0].text)) for one in doc] for doc in docs]
    counts = np.asarray(rows, dtype=np.float64).reshape(-1, 3)
    return [
        Measured(SECTION, "yes/no", "macro F1", counts, _yes_no_f1, None, (), {}),
        averaged(SECTION, "yes/no", "accuracy", right),
    ]


def _yes_no_row(doc: Sequence[_Asked]) -> tuple[int, int, int]:
    """How many a yes are right, how many a no, and how many are wrong."""
    right = [yes_or_no(one.gold.answers[0].text) for one in doc if _first(one) == yes_or_no(one.gold.answers[0].text)]
    return right.count("yes"), right.count("no"), len(doc) - len(right)


def _yes_no_f1(rows: Rows) -> float:
    yes, no, wrong = (float(number) for number in rows.sum(axis=0))
    return (share(2 * yes, 2 * yes + wrong) + share(2 * no, 2 * no + wrong)) / 2


def _first(one: _Asked) -> str | None:
    return yes_or_no(one.answers[0]) if one.answers else None


def _choices(docs: Sequence[Sequence[_Asked]], classes: Sequence[str]) -> list[Measured]:
    """Answers as classes."""
    pairs = [
        [(one.gold.answers[0].text.lower(), [text.lower() for text in one.answers[:1]]) for one in doc] for doc in docs
    ]
    agreements = [
        of_sets(
            {name: {place for place, (gold, _) in enumerate(doc) if gold == name} for name in classes},
            {name: {place for place, (_, found) in enumerate(doc) if found == [name]} for name in classes},
        )
        for doc in pairs
    ]
    right = [[float([gold] == found) for gold, found in doc] for doc in pairs]
    return [
        averaged(SECTION, "/".join(classes), "accuracy", right),
        macro(SECTION, "/".join(classes), agreements, classes),
    ]


def _squad(docs: Sequence[Sequence[_Asked]]) -> list[Measured]:
    scores = [[_squad_scores(one) for one in doc] for doc in docs]
    measures = [
        averaged(SECTION, "SQuAD", name, [[score[place] for score in own] for own in scores])
        for place, name in ((1, "F1"), (0, "exact match"))
    ]
    for name, impossible in (("SQuAD, with an answer", False), ("SQuAD, without an answer", True)):
        own = [[_squad_scores(one)[1] for one in doc if one.gold.impossible == impossible] for doc in docs]
        if any(own) and any(one.gold.impossible for doc in docs for one in doc):
            measures.append(averaged(SECTION, name, "F1", own))
    return measures


def _squad_scores(one: _Asked) -> tuple[float, float]:
    gold = [] if one.gold.impossible else [answer.text for answer in one.gold.answers]
    return answer_scores(gold, one.answers[0] if one.answers else "")


def _problem(one: _Asked) -> str | None:
    """What is wrong with an answer, or None."""
    type = _type(one.gold)
    if one.gold.impossible:
        return "answered, but there is none" if one.answers and one.answers[0] else None
    if not one.answers:
        return "not answered"
    if type == "list":
        precision, recall, _ = list_scores(one.forms, one.answers)
        return None if precision == recall == 1 else "list not right"
    if type == "factoid":
        rank = reciprocal_rank(one.forms, one.answers[:CANDIDATES])
        return None if rank == 1 else ("wrong" if not rank else "right, but not first")
    if type == "yesno":
        return None if one.answers[0].lower() == one.gold.answers[0].text.lower() else "wrong"
    exact, f1 = _squad_scores(one)
    return None if exact else ("partly right" if f1 else "wrong")


_MEASURES = {"factoid": _factoid, "list": _list, "yesno": _yes_no, None: _squad}
