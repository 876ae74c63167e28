"""evaluate: predicted documents against gold ones, every measure that fits them, with intervals and tests."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from lexome.errors import UsageError
from lexome.tasks.evaluation.differences import Difference
from lexome.tasks.evaluation.files import Loaded, load
from lexome.tasks.evaluation.labels import label_differences, label_measures, without_number
from lexome.tasks.evaluation.measured import Draws, Measured
from lexome.tasks.evaluation.mentions import ALTERNATIVE, mention_differences, mention_measures
from lexome.tasks.evaluation.pairs import Pair, Pairs, paired
from lexome.tasks.evaluation.questions import pooled, question_differences, question_measures, unscored
from lexome.tasks.evaluation.relations import negative_types, relation_differences, relation_measures
from lexome.tasks.evaluation.tokens import tagged, token_differences, token_measures
from lexome.tasks.metrics.significance import Interval, Paired, approximate_randomization, paired_bootstrap
from lexome.values import value


@value
class Score:
    """A measure with its interval, and each type's."""

    measured: Measured
    interval: Interval
    types: Mapping[str, Interval]


@value
class Versus:
    """A measure of two systems on the same documents, and two tests of the difference."""

    measured: Measured
    other: Measured
    bootstrap: Paired
    randomization: Paired


@value
class Evaluation:
    """All that can be said of predictions and gold."""

    pairs: Pairs
    scores: tuple[Score, ...]
    differences: tuple[Difference, ...]
    notes: tuple[str, ...]
    versus: tuple[Versus, ...]
    draws: Draws

    def counts(self) -> dict[str, Counter[str]]:
        """How many differences there are of each kind, section by section."""
        counts: dict[str, Counter[str]] = {}
        for difference in self.differences:
            counts.setdefault(difference.section, Counter())[difference.kind] += 1
        return counts


@value
class Reading:
    """How a file is to be read: its format, if it isn't told from the file, and the format's options."""

    format: str | None = None
    options: Mapping[str, str] | None = None


AS_IT_IS = Reading()


def evaluate(
    found: Path,
    gold: Path,
    *,
    against: Path | None = None,
    reading: Reading = AS_IT_IS,
    gold_reading: Reading = AS_IT_IS,
    only: Collection[str] | None = None,
    draws: Draws | None = None,
) -> Evaluation:
    """What can be said of the predictions in one file, and of another system's in `against`, beside the gold file."""
    golden = load(gold, gold_reading.format, gold_reading.options)
    theirs = load(against, reading.format, reading.options) if against is not None else None
    return compare(load(found, reading.format, reading.options), golden, against=theirs, only=only, draws=draws)


def compare(
    found: Loaded,
    gold: Loaded,
    *,
    against: Loaded | None = None,
    only: Collection[str] | None = None,
    draws: Draws | None = None,
) -> Evaluation:
    """What can be said of predicted documents beside gold ones; `only` names the types and labels that count."""
    draws = draws if draws is not None else Draws()
    pairs = paired(found, gold)
    measures, differences, notes = _measured(pairs, only)
    if not measures:
        raise UsageError(_nothing(found, gold, only))
    notes += _strange_types(pairs.pairs)
    scores = tuple(Score(one, one.interval(draws), one.type_intervals(draws)) for one in measures)
    versus: tuple[Versus, ...] = ()
    if against is not None:
        others, _, _ = _measured(paired(against, gold), only)
        versus = _versus(measures, others, draws)
        tested = {one.measured.name for one in versus}
        left = sorted({f"{one.section}: {one.name}" for one in measures if one.name not in tested})
        notes += [f"not tested, for the other predictions have no such numbers: {name}" for name in left]
    return Evaluation(pairs, scores, tuple(differences), tuple(notes), versus, draws)


def _measured(pairs: Pairs, only: Collection[str] | None) -> tuple[list[Measured], list[Difference], list[str]]:
    """Every measure that fits, every difference, and what is to be known of them."""
    docs = pairs.pairs
    measures = mention_measures(docs, only)
    differences = list(mention_differences(docs, only))
    notes: list[str] = []
    both = tagged(pairs, only) if measures else None
    if both is not None:
        measures += token_measures(both)
        differences += token_differences(docs, both)
        notes += both.notes
    measures += relation_measures(docs, only) + label_measures(docs, only) + question_measures(docs)
    for section in (relation_differences(docs, only), label_differences(docs, only), question_differences(docs)):
        differences += section
    negative = negative_types(docs, only)
    if negative:
        notes.append(f"relations of {', '.join(negative)} say that there is none, and do not count")
    left_out = unscored(docs)
    if left_out:
        notes.append(f"{left_out:,} questions have no gold answer that could be compared, and do not count")
    again = pooled(docs)
    if again:
        notes.append(f"{again:,} times a question is asked of one more document; it counts once, with all answers")
    silent = without_number(docs)
    if silent:
        notes.append(f"{silent:,} documents were given no number, and are in no correlation")
    return measures, differences, notes


def _versus(measures: Sequence[Measured], others: Sequence[Measured], draws: Draws) -> tuple[Versus, ...]:
    """Each measure that both systems have, tested."""
    theirs = {(one.section, one.name, one.score): one for one in others}
    found: list[Versus] = []
    for one in measures:
        other = theirs.get((one.section, one.name, one.score))
        if other is None or one.rows.shape != other.rows.shape:
            continue
        bootstrap, randomization = (
            test(one.rows, other.rows, one.measure, samples=draws.samples, level=draws.level, seed=draws.seed)
            for test in (paired_bootstrap, approximate_randomization)
        )
        found.append(Versus(one, other, bootstrap, randomization))
    return tuple(found)


def _strange_types(pairs: Sequence[Pair]) -> list[str]:
    """A note where predictions and gold share no type of mention: they may be called otherwise."""
    gold, found = (
        {span.type for pair in pairs for span in (pair.gold, pair.found)[side].spans} - {ALTERNATIVE} for side in (0, 1)
    )
    if not gold or not found or gold & found:
        return []
    names = " and ".join(", ".join(sorted(types)[:5]) for types in (found, gold))
    return [f"no type of mention is in both: {names}. Where they mean the same, see the scores that ignore types"]


def _nothing(found: Loaded, gold: Loaded, only: Collection[str] | None) -> str:
    what = f" of {', '.join(sorted(only))}" if only is not None else ""
    return (
        f"neither {found.name} nor {gold.name} has a mention, relation, label or answer{what}; expected annotated "
        "documents. Check the files, their format and the types asked for."
    )
