"""evaluate: predicted documents against gold ones, every measure that fits them, with intervals and tests."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any

from lexome.document import shorten
from lexome.errors import UsageError
from lexome.tasks.evaluation.comparison import Difference, Draws, Loaded, Measured, Pair, Pairs, load, paired
from lexome.tasks.evaluation.labels import (
    label_differences,
    label_measures,
    negative_types,
    pooled,
    question_differences,
    question_measures,
    relation_differences,
    relation_measures,
    unscored,
    without_number,
)
from lexome.tasks.evaluation.mentions import (
    ALTERNATIVE,
    mention_differences,
    mention_measures,
    tagged,
    token_differences,
    token_measures,
)
from lexome.tasks.metrics.bootstrap import Interval, Paired, approximate_randomization, paired_bootstrap
from lexome.tasks.metrics.spans import Counts


@dataclass(frozen=True, slots=True)
class Score:
    """A measure with its interval, and each type's."""

    measured: Measured
    interval: Interval
    types: Mapping[str, Interval]


@dataclass(frozen=True, slots=True)
class Versus:
    """A measure of two systems on the same documents, and two tests of the difference."""

    measured: Measured
    other: Measured
    bootstrap: Paired
    randomization: Paired


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
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


_NAME_WIDTH = 34
_SAMPLE_IDS = 3


def lines(result: Evaluation, *, explain: int = 0, types: bool = True) -> Iterator[str]:
    """What `lexome evaluate` prints, with up to `explain` examples of each kind of difference."""
    yield from _documents(result)
    for section in dict.fromkeys(score.measured.section for score in result.scores):
        yield ""
        yield from _section(section, result, types=types)
    counts = result.counts()
    for section in counts:
        yield ""
        yield f"{section} that differ: " + ", ".join(f"{count:,} {kind}" for kind, count in counts[section].items())
        if explain:
            for kind in counts[section]:
                own = [one for one in result.differences if (one.section, one.kind) == (section, kind)]
                yield from _examples(kind, own, explain)
    if result.versus:
        yield ""
        yield from _versus_line(result.versus)
    if result.notes:
        yield ""
        yield from (f"note: {note}" for note in result.notes)


def _documents(result: Evaluation) -> Iterator[str]:
    pairs = result.pairs
    how = "by place, since no id is in both" if pairs.by_place else "by id"
    yield f"documents  {len(pairs.pairs):,} gold, {pairs.matched:,} of them predicted (matched {how})"
    if pairs.missing:
        yield f"missing    {len(pairs.missing):,} gold documents are not among the predictions ({_some(pairs.missing)})"
        yield "           and are scored as if nothing was found in them"
    if pairs.extra:
        yield f"extra      {len(pairs.extra):,} predicted documents are not gold ({_some(pairs.extra)})"
        yield "           and do not count"


def _some(ids: Sequence[str]) -> str:
    shown = ", ".join(shorten(id, 30) for id in ids[:_SAMPLE_IDS])
    return f"{shown}, ..." if len(ids) > _SAMPLE_IDS else shown


def _section(section: str, result: Evaluation, *, types: bool) -> Iterator[str]:
    scores = [score for score in result.scores if score.measured.section == section]
    if any(score.measured.agreement is not None for score in scores):
        columns = f"{'P':>7}{'R':>7}{'F1':>7}  {_level(result):<13}{'right':>8}{'spurious':>10}{'missed':>8}"
        yield f"{section:<{_NAME_WIDTH}}{columns}"
    else:
        yield section
    for score in scores:
        yield from _score(score, types=types)


def _level(result: Evaluation) -> str:
    return f"{100 * result.draws.level:g}%"


def _score(score: Score, *, types: bool) -> Iterator[str]:
    measured = score.measured
    whole = measured.agreement
    if whole is None:
        others = "".join(f"  {name} {_percent(number)}" for name, number in measured.others.items())
        name = shorten(f"  {measured.name}, {measured.score}", _NAME_WIDTH + 13)
        numbers = f"{_percent(score.interval.value):>7}  {_interval(score.interval):<13}{others}"
        yield f"{name:<{_NAME_WIDTH + 14}}{numbers}".rstrip()
        return
    yield _counted(f"  {measured.name}", whole.total, score.interval)
    if types and len(whole.types) > 1:
        for name, counts in whole.types.items():
            yield _counted(f"    {shorten(name or '(no type)', 28)}", counts, score.types[name])
        means = _three(whole.macro_precision, whole.macro_recall, whole.macro_f1)
        yield f"{'    mean of types':<{_NAME_WIDTH}}{means}"
    for name, number in measured.others.items():
        yield f"    {name:<{_NAME_WIDTH - 4}}{_percent(number):>21}"


def _counted(name: str, counts: Counts, interval: Interval) -> str:
    numbers = f"{counts.true_positives:>8,}{counts.false_positives:>10,}{counts.false_negatives:>8,}"
    scores = _three(counts.precision, counts.recall, counts.f1)
    return f"{shorten(name, _NAME_WIDTH):<{_NAME_WIDTH}}{scores}  {_interval(interval):<13}{numbers}"


def _three(precision: float, recall: float, f1: float) -> str:
    return "".join(f"{_percent(number):>7}" for number in (precision, recall, f1))


def _interval(interval: Interval | Paired) -> str:
    return f"{_percent(interval.low)}-{_percent(interval.high)}"


def _percent(number: float) -> str:
    return "none" if isnan(number) else f"{100 * number:.2f}"


def _examples(kind: str, differences: Sequence[Difference], most: int) -> Iterator[str]:
    yield f"  {kind}"
    for one in differences[:most]:
        said = [
            f"gold {one.gold}" if one.gold is not None else "",
            f"found {one.found}" if one.found is not None else "",
        ]
        yield f"    {shorten(one.document, 40)}: {', '.join(part for part in said if part)}"
        if one.context is not None:
            yield f"      {one.context}"
    if len(differences) > most:
        yield f"    and {len(differences) - most:,} more"


def _versus_line(pairs: Sequence[Versus]) -> Iterator[str]:
    heads = f"{'this':>8}{'other':>8}{'differ':>9}  {'bootstrap':<16}{'p':>7}{'p (random)':>12}"
    yield f"{'against the other predictions':<{_NAME_WIDTH + 12}}{heads}"
    for pair in pairs:
        name = f"{pair.measured.section}: {pair.measured.name}, {pair.measured.score}"
        scores = f"{_percent(pair.measured.value):>8}{_percent(pair.other.value):>8}"
        low, high = (f"{100 * number:+.2f}" for number in (pair.bootstrap.low, pair.bootstrap.high))
        tests = f"{100 * pair.bootstrap.difference:>+9.2f}  {f'{low} {high}':<16}{pair.bootstrap.p_value:>7.3f}"
        name = f"  {shorten(name, _NAME_WIDTH + 9)}"
        yield f"{name:<{_NAME_WIDTH + 12}}{scores}{tests}{pair.randomization.p_value:>12.3f}"


def as_json(result: Evaluation, *, explain: int = 0) -> dict[str, Any]:
    """The evaluation as plain values; differences are counted, and given up to `explain` of each kind."""
    pairs = result.pairs
    return {
        "documents": {
            "gold": len(pairs.pairs),
            "matched": pairs.matched,
            "matched_by": "place" if pairs.by_place else "id",
            "missing": list(pairs.missing),
            "extra": list(pairs.extra),
        },
        "interval": {"level": result.draws.level, "samples": result.draws.samples, "seed": result.draws.seed},
        "scores": [_score_json(score) for score in result.scores],
        "differences": {section: dict(kinds) for section, kinds in result.counts().items()},
        "examples": list(_examples_json(result.differences, explain)),
        "against": [_versus_json(pair) for pair in result.versus],
        "notes": list(result.notes),
    }


def _score_json(score: Score) -> dict[str, Any]:
    measured = score.measured
    found: dict[str, Any] = {
        "section": measured.section,
        "measure": measured.name,
        "score": measured.score,
        "value": _number(score.interval.value),
        "low": _number(score.interval.low),
        "high": _number(score.interval.high),
        **{name.replace(" ", "_"): number for name, number in measured.others.items()},
    }
    whole = measured.agreement
    if whole is not None:
        found |= {**_counts_json(whole.total), "macro_f1": whole.macro_f1}
        found["types"] = {
            name: {**_counts_json(counts), "low": score.types[name].low, "high": score.types[name].high}
            for name, counts in whole.types.items()
        }
    return found


def _counts_json(counts: Counts) -> dict[str, Any]:
    return {
        "precision": counts.precision,
        "recall": counts.recall,
        "f1": counts.f1,
        "true_positives": counts.true_positives,
        "false_positives": counts.false_positives,
        "false_negatives": counts.false_negatives,
    }


def _examples_json(differences: Sequence[Difference], most: int) -> Iterator[dict[str, Any]]:
    given: dict[tuple[str, str], int] = {}
    for one in differences:
        key = (one.section, one.kind)
        given[key] = given.get(key, 0) + 1
        if given[key] <= most:
            yield {
                "section": one.section,
                "kind": one.kind,
                "document": one.document,
                "gold": one.gold,
                "found": one.found,
                "context": one.context,
            }


def _versus_json(pair: Versus) -> dict[str, Any]:
    return {
        "section": pair.measured.section,
        "measure": pair.measured.name,
        "score": pair.measured.score,
        "this": _number(pair.measured.value),
        "other": _number(pair.other.value),
        "difference": _number(pair.bootstrap.difference),
        "low": _number(pair.bootstrap.low),
        "high": _number(pair.bootstrap.high),
        "p_bootstrap": pair.bootstrap.p_value,
        "p_randomization": pair.randomization.p_value,
    }


def _number(number: float) -> float | None:
    """The number, or None where there is none: JSON has no nan."""
    return None if isnan(number) else number
