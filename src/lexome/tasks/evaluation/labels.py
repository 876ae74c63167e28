"""Labels of documents side by side: one each, any number, or numbers."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from lexome.document import Document, Question, Relation
from lexome.tasks.evaluation.comparison import Difference, Measured, Pair, averaged, counted, macro
from lexome.tasks.metrics.answers import CANDIDATES, answer_scores, list_scores, reciprocal_rank, yes_or_no
from lexome.tasks.metrics.bootstrap import Rows, Statistic
from lexome.tasks.metrics.classification import correlation, example, ranks
from lexome.tasks.metrics.spans import ANY_TYPE, compare_sets, mean, merge_parts, ratio, together
from lexome.tasks.qa import QuestionPair, base_question_id, merge_questions, normalize

RELATIONS = "relations"

# What a relation is told by: its type, and its arguments in the order of their text.
Key = tuple[str, tuple[str, ...]]

ROLES_IGNORED = "type and arguments, roles ignored"

_NEGATIVE = frozenset({"false", "none", "na", "0", "negative"})


def relation_measures(pairs: Sequence[Pair], only: Collection[str] | None = None) -> list[Measured]:
    """Typed, untyped and macro F1; none where neither side has a relation that counts.

    Where roles make a difference, typed and macro F1 come without them as well: models of pairs do not tell who is who.
    """
    keys = [(_keys(pair.gold, only), _keys(pair.found, only)) for pair in pairs]
    if not any(gold or found for gold, found in keys):
        return []
    typed = [compare_sets(_by_type(gold), _by_type(found)) for gold, found in keys]
    untyped = [compare_sets(_untyped(gold), _untyped(found)) for gold, found in keys]
    types = list(together(typed).types)
    measures = [counted(RELATIONS, "type and arguments", typed), counted(RELATIONS, "arguments alone", untyped)]
    if len(types) > 1:
        measures.append(macro(RELATIONS, "type and arguments", typed, types))
    bare = [tuple(_keys(doc, only, roles=False) for doc in (pair.gold, pair.found)) for pair in pairs]
    unordered = [compare_sets(_by_type(gold), _by_type(found)) for gold, found in bare]
    if together(unordered).total != together(typed).total:
        measures.append(counted(RELATIONS, ROLES_IGNORED, unordered))
        if len(types) > 1:
            measures.append(macro(RELATIONS, ROLES_IGNORED, unordered, types))
    return measures


def relation_differences(pairs: Sequence[Pair], only: Collection[str] | None = None) -> Iterator[Difference]:
    """Each relation that was missed, is spurious, or is of a wrong type."""
    for pair in pairs:
        gold, found = _keys(pair.gold, only), _keys(pair.found, only)
        missed, spurious = sorted(gold - found), sorted(found - gold)
        for key in missed:
            other = next((one for one in spurious if one[1] == key[1]), None)
            if other is not None:
                spurious.remove(other)
            kind = "missed" if other is None else "wrong type"
            yield Difference(RELATIONS, kind, pair.gold.id, _relation_text(key), _relation_text(other))
        for key in spurious:
            yield Difference(RELATIONS, "spurious", pair.gold.id, None, _relation_text(key))


def negative_types(pairs: Sequence[Pair], only: Collection[str] | None = None) -> list[str]:
    """The types that say that there is no relation, which do not count unless they were asked for."""
    types = {relation.type for pair in pairs for doc in (pair.gold, pair.found) for relation in doc.relations}
    return sorted(type for type in types if is_negative(type)) if only is None else []


def is_negative(type: str) -> bool:
    """Whether a type says that there is nothing, as DDI-false does."""
    return type.lower() in _NEGATIVE or type.lower().endswith(("-false", ":false"))


def _keys(doc: Document, only: Collection[str] | None, *, roles: bool = True) -> set[Key]:
    counts = (not is_negative(relation.type) if only is None else relation.type in only for relation in doc.relations)
    wanted = [relation for relation, counted in zip(doc.relations, counts, strict=True) if counted]
    if not wanted:
        return set()
    named = _named(doc, roles=roles)
    return {(relation.type, named[relation.id]) for relation in wanted}


def _named(doc: Document, *, roles: bool) -> dict[str, tuple[str, ...]]:
    """What each relation is told by besides its type: ids are a file's own, so mentions are named by text and place."""
    names = {
        span.id: f"{span.text!r} at {','.join(f'{start}-{end}' for start, end in merge_parts(span.parts))}"
        for span in doc.spans
    }
    relations = {relation.id: relation for relation in doc.relations}
    return {id: _arguments(relation, names, relations, (id,), roles=roles) for id, relation in relations.items()}


def _arguments(
    relation: Relation, names: dict[str, str], relations: dict[str, Relation], above: tuple[str, ...], *, roles: bool
) -> tuple[str, ...]:
    """The arguments in words, sorted; a relation among them is named by its own arguments."""
    said: list[str] = []
    for argument in relation.arguments:
        target = argument.target
        if target is None:
            name = str(argument.concept)
        elif target in names:
            name = names[target]
        elif target in above:
            name = "itself"
        else:
            inner = relations[target]
            name = f"{inner.type}({'; '.join(_arguments(inner, names, relations, (*above, target), roles=roles))})"
        said.append(f"{argument.role}: {name}" if roles else name)
    return tuple(sorted(said))


def _by_type(keys: set[Key]) -> dict[str, set[Key]]:
    types: defaultdict[str, set[Key]] = defaultdict(set)
    for key in keys:
        types[key[0]].add(key)
    return types


def _untyped(keys: set[Key]) -> dict[str, set[tuple[str, ...]]]:
    return {ANY_TYPE: {arguments for _, arguments in keys}}


def _relation_text(key: Key | None) -> str | None:
    return None if key is None else f"{key[0]}: {'; '.join(key[1])}"


LABELS = "labels"


def label_measures(pairs: Sequence[Pair], only: Collection[str] | None = None) -> list[Measured]:
    """The measures that fit the labels: of numbers, of one label each, or of sets of them."""
    if not any(pair.gold.labels or pair.found.labels for pair in pairs):
        return []
    if are_numbers(pairs):
        return _number_measures(pairs)
    if all(len(pair.gold.labels) == 1 and len(pair.found.labels) <= 1 for pair in pairs):
        return _single_measures(pairs, only)
    return _multi_measures(pairs, only)


def label_differences(pairs: Sequence[Pair], only: Collection[str] | None = None) -> Iterator[Difference]:
    """Each document whose labels are not right."""
    if are_numbers(pairs):
        return
    for pair in pairs:
        gold, found = (_kept(labels, only) for labels in (pair.gold.labels, pair.found.labels))
        if gold != found:
            kind = "wrong label" if gold and found else ("missed" if gold else "spurious")
            text = " ".join(pair.gold.text[:80].split())
            yield Difference(LABELS, kind, pair.gold.id, _label_text(gold), _label_text(found), text or None)


def are_numbers(pairs: Sequence[Pair]) -> bool:
    """Whether every document has one label that is a number, and at least one has a decimal point: a similarity."""
    labels = [pair.gold.labels for pair in pairs]
    return all(len(own) == 1 and _number(own[0]) is not None for own in labels) and any("." in own[0] for own in labels)


def without_number(pairs: Sequence[Pair]) -> int:
    """How many documents whose label is a number were given none, and so are in no correlation."""
    found = [pair.found.labels for pair in pairs] if are_numbers(pairs) else []
    return sum(len(labels) != 1 or _number(labels[0]) is None for labels in found)


def _number_measures(pairs: Sequence[Pair]) -> list[Measured]:
    """Correlations over the documents that were given a number."""
    both = [
        (float(pair.gold.labels[0]), number)
        for pair in pairs
        if len(pair.found.labels) == 1 and (number := _number(pair.found.labels[0])) is not None
    ]
    if not both:
        return []
    rows = np.asarray(both, dtype=np.float64)
    measures: list[tuple[str, Statistic]] = [("Pearson", _pearson), ("Spearman", _spearman)]
    return [Measured(LABELS, name, "correlation", rows, measure, None, (), {}) for name, measure in measures]


def _pearson(rows: Rows) -> float:
    return correlation(rows[:, 0], rows[:, 1])


def _spearman(rows: Rows) -> float:
    return correlation(ranks(rows[:, 0]), ranks(rows[:, 1]))


def _single_measures(pairs: Sequence[Pair], only: Collection[str] | None) -> list[Measured]:
    """Accuracy, and F1 over all classes and, where one of them is negative or some were asked for, over the others."""
    right = [[float(pair.gold.labels == pair.found.labels)] for pair in pairs]
    measures = [averaged(LABELS, "one label each", "accuracy", right)]
    classes = {label for pair in pairs for label in (*pair.gold.labels, *pair.found.labels)}
    positive = {name for name in classes if (not is_negative(name) if only is None else name in only)}
    measures += _f1_measures(pairs, classes, "all classes")
    if positive and positive != classes:
        names = ", ".join(sorted(classes - positive))
        measures += _f1_measures(pairs, positive, "asked classes" if only is not None else f"without {names}")
    return measures


def _multi_measures(pairs: Sequence[Pair], only: Collection[str] | None) -> list[Measured]:
    """Micro and macro F1, and the means over documents."""
    names = {label for pair in pairs for label in (*pair.gold.labels, *pair.found.labels)}
    chosen = names if only is None else names & set(only)
    rows = [example(chosen & set(pair.gold.labels), chosen & set(pair.found.labels)) for pair in pairs]
    by_example = Measured(
        LABELS, "example-based", "F1", np.asarray(rows, dtype=np.float64), _example_f1, None, (), _example_others(rows)
    )
    exact = averaged(LABELS, "all labels right", "accuracy", [[row[3]] for row in rows])
    return [*_f1_measures(pairs, chosen, "any number of labels"), by_example, exact]


def _f1_measures(pairs: Sequence[Pair], classes: Collection[str], name: str) -> list[Measured]:
    documents = [
        compare_sets(_present(pair.gold.labels, classes), _present(pair.found.labels, classes)) for pair in pairs
    ]
    return [
        counted(LABELS, name, documents),
        macro(LABELS, name, documents, sorted(classes)),
    ]


def _present(labels: Sequence[str], classes: Collection[str]) -> dict[str, set[int]]:
    return {label: {0} for label in labels if label in classes}


def _example_f1(rows: Rows) -> float:
    """The harmonic mean of mean precision and mean recall, as BLUE scores HoC."""
    precision, recall = (float(column) for column in rows[:, :2].mean(axis=0))
    return ratio(2 * precision * recall, precision + recall)


def _example_others(rows: Sequence[tuple[float, float, float, float]]) -> dict[str, float]:
    names = ("precision", "recall", "mean F1")
    return {name: mean([row[place] for row in rows]) for place, name in enumerate(names)}


def _kept(labels: Sequence[str], only: Collection[str] | None) -> list[str]:
    return sorted({label for label in labels if only is None or label in only})


def _label_text(labels: Sequence[str]) -> str | None:
    return ", ".join(labels) or None


def _number(label: str) -> float | None:
    try:
        number = float(label)
    except ValueError:
        return None
    return number if np.isfinite(number) else None


QUESTIONS = "questions"

TYPES = ("factoid", "list", "yesno")


@dataclass(frozen=True, slots=True)
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
            yield Difference(QUESTIONS, kind, one.document, gold, "; ".join(one.answers) or None, one.gold.text)


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
    same: dict[tuple[int | str, str, str], list[tuple[int, QuestionPair]]] = {}
    for place, pair in enumerate(pairs):
        found = {question.id: question for question in pair.found.questions}
        for question in filter(_can_be_scored, pair.gold.questions):
            once = _type(question) is not None
            key = ("", base_question_id(question.id), normalize(question.text)) if once else (place, question.id, "")
            same.setdefault(key, []).append((place, (question, found.get(question.id))))
    documents: dict[int, list[_Asked]] = {}
    for group in same.values():
        place = group[0][0]
        for question, said in merge_questions(asked for _, asked in group):
            documents.setdefault(place, []).append(_Asked(pairs[place].gold.id, question, said))
    return [documents[place] for place in sorted(documents)]


def _type(question: Question) -> str | None:
    return question.type if question.type in TYPES else None


def _factoid(docs: Sequence[Sequence[_Asked]]) -> list[Measured]:
    ranks = [[reciprocal_rank(one.forms, one.answers[:CANDIDATES]) for one in doc] for doc in docs]
    return [
        averaged(QUESTIONS, "factoid, strict", "accuracy", [[float(rank == 1) for rank in own] for own in ranks]),
        averaged(QUESTIONS, "factoid, lenient", "accuracy", [[float(rank > 0) for rank in own] for own in ranks]),
        averaged(QUESTIONS, "factoid", "MRR", ranks),
    ]


def _list(docs: Sequence[Sequence[_Asked]]) -> list[Measured]:
    scores = [[list_scores(one.forms, one.answers) for one in doc] for doc in docs]
    return [
        averaged(QUESTIONS, "list", f"mean {name}", [[score[place] for score in own] for own in scores])
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
        Measured(QUESTIONS, "yes/no", "macro F1", counts, _yes_no_f1, None, (), {}),
        averaged(QUESTIONS, "yes/no", "accuracy", right),
    ]


def _yes_no_row(doc: Sequence[_Asked]) -> tuple[int, int, int]:
    """How many a yes are right, how many a no, and how many are wrong."""
    right = [yes_or_no(one.gold.answers[0].text) for one in doc if _first(one) == yes_or_no(one.gold.answers[0].text)]
    return right.count("yes"), right.count("no"), len(doc) - len(right)


def _yes_no_f1(rows: Rows) -> float:
    yes, no, wrong = (float(number) for number in rows.sum(axis=0))
    return (ratio(2 * yes, 2 * yes + wrong) + ratio(2 * no, 2 * no + wrong)) / 2


def _first(one: _Asked) -> str | None:
    return yes_or_no(one.answers[0]) if one.answers else None


def _choices(docs: Sequence[Sequence[_Asked]], classes: Sequence[str]) -> list[Measured]:
    """Answers as classes."""
    pairs = [
        [(one.gold.answers[0].text.lower(), [text.lower() for text in one.answers[:1]]) for one in doc] for doc in docs
    ]
    agreements = [
        compare_sets(
            {name: {place for place, (gold, _) in enumerate(doc) if gold == name} for name in classes},
            {name: {place for place, (_, found) in enumerate(doc) if found == [name]} for name in classes},
        )
        for doc in pairs
    ]
    right = [[float([gold] == found) for gold, found in doc] for doc in pairs]
    return [
        averaged(QUESTIONS, "/".join(classes), "accuracy", right),
        macro(QUESTIONS, "/".join(classes), agreements, classes),
    ]


def _squad(docs: Sequence[Sequence[_Asked]]) -> list[Measured]:
    scores = [[_squad_scores(one) for one in doc] for doc in docs]
    measures = [
        averaged(QUESTIONS, "SQuAD", name, [[score[place] for score in own] for own in scores])
        for place, name in ((1, "F1"), (0, "exact match"))
    ]
    for name, impossible in (("SQuAD, with an answer", False), ("SQuAD, without an answer", True)):
        own = [[_squad_scores(one)[1] for one in doc if one.gold.impossible == impossible] for doc in docs]
        if any(own) and any(one.gold.impossible for doc in docs for one in doc):
            measures.append(averaged(QUESTIONS, name, "F1", own))
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
