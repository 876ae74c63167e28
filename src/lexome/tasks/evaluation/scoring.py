"""evaluate: predicted documents against gold ones, by every applicable metric, with intervals and tests."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isnan
from pathlib import Path
from typing import Any

from lexome.document import as_names, shorten
from lexome.errors import UsageError
from lexome.tasks.evaluation.annotations import (
    ALTERNATIVE,
    concept_differences,
    concept_metrics,
    count_repeated,
    label_differences,
    label_metrics,
    mention_differences,
    mention_metrics,
    negative_types,
    question_differences,
    question_metrics,
    relation_differences,
    relation_metrics,
    tag_pairs,
    token_differences,
    token_metrics,
    unscored,
    without_number,
)
from lexome.tasks.evaluation.comparison import (
    Difference,
    DocumentPair,
    DocumentPairs,
    LoadedFile,
    MetricResult,
    Resampling,
    load,
    pair_documents,
)
from lexome.tasks.metrics.bootstrap import Interval, PairedTest, approximate_randomization, paired_bootstrap
from lexome.tasks.metrics.spans import Counts


@dataclass(frozen=True, slots=True)
class Score:
    """A metric with its interval, and those of its types."""

    result: MetricResult
    interval: Interval
    types: Mapping[str, Interval]


@dataclass(frozen=True, slots=True)
class SystemComparison:
    """A metric of two systems on the same documents, and two tests of the difference."""

    result: MetricResult
    other: MetricResult
    bootstrap: PairedTest
    randomization: PairedTest


@dataclass(frozen=True, slots=True)
class Evaluation:
    """All metrics and differences of predictions and gold."""

    pairs: DocumentPairs
    scores: tuple[Score, ...]
    differences: tuple[Difference, ...]
    notes: tuple[str, ...]
    comparisons: tuple[SystemComparison, ...]
    resampling: Resampling

    def counts(self) -> dict[str, Counter[str]]:
        """The number of differences of each kind, by section."""
        counts: dict[str, Counter[str]] = {}
        for difference in self.differences:
            counts.setdefault(difference.section, Counter())[difference.kind] += 1
        return counts


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How to read a file: its format, None to detect it, and the format's options."""

    format: str | None = None
    options: Mapping[str, str] | None = None


DEFAULT_OPTIONS = ReadOptions()


def evaluate(
    predicted: Path,
    gold: Path,
    *,
    against: Path | None = None,
    options: ReadOptions = DEFAULT_OPTIONS,
    gold_options: ReadOptions = DEFAULT_OPTIONS,
    only: str | Collection[str] | None = None,
    relations: bool = True,
    resampling: Resampling | None = None,
) -> Evaluation:
    """The evaluation of the predictions in a file, and of another system's in `against`, on a gold file."""
    gold_file = load(gold, gold_options.format, gold_options.options)
    other = load(against, options.format, options.options) if against is not None else None
    return compare(
        load(predicted, options.format, options.options),
        gold_file,
        against=other,
        only=only,
        relations=relations,
        resampling=resampling,
    )


def compare(
    predicted: LoadedFile,
    gold: LoadedFile,
    *,
    against: LoadedFile | None = None,
    only: str | Collection[str] | None = None,
    relations: bool = True,
    resampling: Resampling | None = None,
) -> Evaluation:
    """The evaluation of predicted documents on gold ones; `only` names the types and labels to score.

    Without `relations`, these are not scored.
    """
    resampling = resampling if resampling is not None else Resampling()
    only = None if only is None else as_names(only)
    pairs = pair_documents(predicted, gold)
    results, differences, notes = _apply_metrics(pairs, only, relations=relations)
    if not results:
        types = f" of {', '.join(sorted(only))}" if only is not None else ""
        raise UsageError(
            f"neither {predicted.name} nor {gold.name} has a mention, relation, label or answer{types}; expected "
            "annotated documents. Check the files, their format and the types asked for.",
            code="nothing-to-score",
            value=sorted(only) if only is not None else predicted.name,
        )
    notes += _note_disjoint_types(pairs.pairs)
    scores = tuple(Score(one, one.interval(resampling), one.type_intervals(resampling)) for one in results)
    comparisons: tuple[SystemComparison, ...] = ()
    if against is not None:
        others, _, _ = _apply_metrics(pair_documents(against, gold), only, relations=relations)
        comparisons = _compare_systems(results, others, resampling)
        tested = {one.result.name for one in comparisons}
        untested = sorted({f"{one.section}: {one.name}" for one in results if one.name not in tested})
        notes += [f"not tested, as the metric does not apply to the other predictions: {name}" for name in untested]
    return Evaluation(pairs, scores, tuple(differences), tuple(notes), comparisons, resampling)


def _apply_metrics(
    pairs: DocumentPairs, only: Collection[str] | None, *, relations: bool
) -> tuple[list[MetricResult], list[Difference], list[str]]:
    """Every applicable metric, every difference, and notes on them."""
    docs = pairs.pairs
    results = mention_metrics(docs, only)
    differences = list(mention_differences(docs, only))
    notes: list[str] = []
    tags = tag_pairs(pairs, only) if results else None
    if tags is not None:
        results += token_metrics(tags)
        differences += token_differences(docs, tags)
        notes += tags.notes
    results += concept_metrics(docs, only)
    differences += concept_differences(docs, only)
    if relations:
        results += relation_metrics(docs, only)
        differences += relation_differences(docs, only)
        if negative := negative_types(docs, only):
            notes.append(f"relations of {', '.join(negative)} mean no relation, and are not scored")
    results += label_metrics(docs, only) + question_metrics(docs)
    for section in (label_differences(docs, only), question_differences(docs)):
        differences += section
    for count, note in (
        (unscored(docs), "questions have no gold answer to compare with, and are not scored"),
        (count_repeated(docs), "times a question is asked of a further document; it counts once, with all answers"),
        (without_number(docs), "documents have no predicted number, and are in no correlation"),
    ):
        if count:
            notes.append(f"{count:,} {note}")
    return results, differences, notes


def _compare_systems(
    results: Sequence[MetricResult], others: Sequence[MetricResult], resampling: Resampling
) -> tuple[SystemComparison, ...]:
    """Tests of each metric that both systems have."""
    by_name = {(one.section, one.name, one.score): one for one in others}
    comparisons: list[SystemComparison] = []
    for one in results:
        other = by_name.get((one.section, one.name, one.score))
        if other is None or one.rows.shape != other.rows.shape:
            continue
        tests = (
            test(one.rows, other.rows, one.statistic, **asdict(resampling))
            for test in (paired_bootstrap, approximate_randomization)
        )
        comparisons.append(SystemComparison(one, other, *tests))
    return tuple(comparisons)


def _note_disjoint_types(pairs: Sequence[DocumentPair]) -> list[str]:
    """A note if predictions and gold share no mention type: they may be named differently."""
    gold = {span.type for pair in pairs for span in pair.gold.spans} - {ALTERNATIVE}
    predicted = {span.type for pair in pairs for span in pair.predicted.spans} - {ALTERNATIVE}
    if not gold or not predicted or gold & predicted:
        return []
    names = " and ".join(", ".join(sorted(types)[:5]) for types in (predicted, gold))
    return [f"no mention type is in both: {names}. If they mean the same, see the scores that ignore types"]


_NAME_WIDTH = 34
_SAMPLE_IDS = 3


def lines(evaluation: Evaluation, *, explain: int = 0, types: bool = True) -> Iterator[str]:
    """The output of `lexome evaluate`, with up to `explain` examples of each kind of difference."""
    yield from _document_lines(evaluation.pairs)
    for section in dict.fromkeys(score.result.section for score in evaluation.scores):
        yield ""
        yield from _section_lines(section, evaluation, types=types)
    counts = evaluation.counts()
    for section in counts:
        yield ""
        yield f"{section} that differ: " + ", ".join(f"{count:,} {kind}" for kind, count in counts[section].items())
        if explain:
            for kind in counts[section]:
                matching = [one for one in evaluation.differences if (one.section, one.kind) == (section, kind)]
                yield from _example_lines(kind, matching, explain)
    if evaluation.comparisons:
        yield ""
        yield from _comparison_lines(evaluation.comparisons)
    if evaluation.notes:
        yield ""
        yield from (f"note: {note}" for note in evaluation.notes)


def _document_lines(pairs: DocumentPairs) -> Iterator[str]:
    how = "by place, since no id is in both" if pairs.by_place else "by id"
    yield f"documents  {len(pairs.pairs):,} gold, {pairs.matched:,} of them predicted (matched {how})"
    if pairs.missing:
        ids = _some_ids(pairs.missing)
        yield f"missing    {len(pairs.missing):,} gold documents are not among the predictions ({ids})"
        yield "           and are scored as documents without predictions"
    if pairs.extra:
        yield f"extra      {len(pairs.extra):,} predicted documents are not gold ({_some_ids(pairs.extra)})"
        yield "           and are not scored"


def _some_ids(ids: Sequence[str]) -> str:
    shown = ", ".join(shorten(id, 30) for id in ids[:_SAMPLE_IDS])
    return f"{shown}, ..." if len(ids) > _SAMPLE_IDS else shown


def _section_lines(section: str, evaluation: Evaluation, *, types: bool) -> Iterator[str]:
    scores = [score for score in evaluation.scores if score.result.section == section]
    if any(score.result.agreement is not None for score in scores):
        level = f"{100 * evaluation.resampling.level:g}%"
        columns = f"{'P':>7}{'R':>7}{'F1':>7}  {level:<13}{'right':>8}{'spurious':>10}{'missed':>8}"
        yield f"{section:<{_NAME_WIDTH}}{columns}"
    else:
        yield section
    for score in scores:
        yield from _score_lines(score, types=types)


def _score_lines(score: Score, *, types: bool) -> Iterator[str]:
    metric, agreement = score.result, score.result.agreement
    if agreement is None:
        others = "".join(f"  {name} {_percent(number)}" for name, number in metric.others.items())
        name = shorten(f"  {metric.name}, {metric.score}", _NAME_WIDTH + 13)
        value = f"{_percent(score.interval.value):>7}  {_interval(score.interval):<13}{others}"
        yield f"{name:<{_NAME_WIDTH + 14}}{value}".rstrip()
        return
    yield _count_line(f"  {metric.name}", agreement.total, score.interval)
    if types and len(agreement.types) > 1:
        for name, counts in agreement.types.items():
            yield _count_line(f"    {shorten(name or '(no type)', 28)}", counts, score.types[name])
        means = _percents(agreement.macro_precision, agreement.macro_recall, agreement.macro_f1)
        yield f"{'    mean of types':<{_NAME_WIDTH}}{means}"
    for name, number in metric.others.items():
        yield f"    {name:<{_NAME_WIDTH - 4}}{_percent(number):>21}"


def _count_line(name: str, counts: Counts, interval: Interval) -> str:
    numbers = f"{counts.true_positives:>8,}{counts.false_positives:>10,}{counts.false_negatives:>8,}"
    scores = _percents(counts.precision, counts.recall, counts.f1)
    return f"{shorten(name, _NAME_WIDTH):<{_NAME_WIDTH}}{scores}  {_interval(interval):<13}{numbers}"


def _percents(*numbers: float) -> str:
    return "".join(f"{_percent(number):>7}" for number in numbers)


def _interval(interval: Interval) -> str:
    return f"{_percent(interval.low)}-{_percent(interval.high)}"


def _percent(number: float) -> str:
    return "none" if isnan(number) else f"{100 * number:.2f}"


def _example_lines(kind: str, differences: Sequence[Difference], most: int) -> Iterator[str]:
    yield f"  {kind}"
    for one in differences[:most]:
        sides = (("gold", one.gold), ("predicted", one.predicted))
        texts = ", ".join(f"{side} {text}" for side, text in sides if text is not None)
        yield f"    {shorten(one.document, 40)}: {texts}"
        if one.context is not None:
            yield f"      {one.context}"
    if len(differences) > most:
        yield f"    and {len(differences) - most:,} more"


def _comparison_lines(comparisons: Sequence[SystemComparison]) -> Iterator[str]:
    heads = f"{'this':>8}{'other':>8}{'differ':>9}  {'bootstrap':<16}{'p':>7}{'p (random)':>12}"
    yield f"{'against the other predictions':<{_NAME_WIDTH + 12}}{heads}"
    for one in comparisons:
        name = f"  {shorten(f'{one.result.section}: {one.result.name}, {one.result.score}', _NAME_WIDTH + 9)}"
        scores = f"{_percent(one.result.value):>8}{_percent(one.other.value):>8}"
        low, high = (f"{100 * number:+.2f}" for number in (one.bootstrap.low, one.bootstrap.high))
        tests = f"{100 * one.bootstrap.difference:>+9.2f}  {f'{low} {high}':<16}{one.bootstrap.p_value:>7.3f}"
        yield f"{name:<{_NAME_WIDTH + 12}}{scores}{tests}{one.randomization.p_value:>12.3f}"


def as_json(evaluation: Evaluation, *, explain: int = 0) -> dict[str, Any]:
    """The evaluation in JSON's types; differences are counted, with up to `explain` examples of each kind."""
    pairs, resampling = evaluation.pairs, evaluation.resampling
    return {
        "documents": {
            "gold": len(pairs.pairs),
            "matched": pairs.matched,
            "matched_by": "place" if pairs.by_place else "id",
            "missing": list(pairs.missing),
            "extra": list(pairs.extra),
        },
        "interval": {name: getattr(resampling, name) for name in ("level", "samples", "seed")},
        "scores": [_score_json(score) for score in evaluation.scores],
        "differences": {section: dict(kinds) for section, kinds in evaluation.counts().items()},
        "examples": list(_examples_json(evaluation.differences, explain)),
        "against": [_comparison_json(one) for one in evaluation.comparisons],
        "notes": list(evaluation.notes),
    }


def _score_json(score: Score) -> dict[str, Any]:
    metric, agreement = score.result, score.result.agreement
    fields: dict[str, Any] = {
        "section": metric.section,
        "measure": metric.name,
        "score": metric.score,
        **{name: _number(getattr(score.interval, name)) for name in ("value", "low", "high")},
        **{name.replace(" ", "_"): number for name, number in metric.others.items()},
    }
    if agreement is not None:
        fields |= {**_counts_json(agreement.total), "macro_f1": agreement.macro_f1}
        fields["types"] = {
            name: {**_counts_json(counts), "low": score.types[name].low, "high": score.types[name].high}
            for name, counts in agreement.types.items()
        }
    return fields


def _counts_json(counts: Counts) -> dict[str, Any]:
    names = ("precision", "recall", "f1", "true_positives", "false_positives", "false_negatives")
    return {name: getattr(counts, name) for name in names}


def _examples_json(differences: Sequence[Difference], most: int) -> Iterator[dict[str, Any]]:
    counts: Counter[tuple[str, str]] = Counter()
    for one in differences:
        counts[one.section, one.kind] += 1
        if counts[one.section, one.kind] <= most:
            yield {
                "section": one.section,
                "kind": one.kind,
                "document": one.document,
                "gold": one.gold,
                "found": one.predicted,
                "context": one.context,
            }


def _comparison_json(one: SystemComparison) -> dict[str, Any]:
    return {
        "section": one.result.section,
        "measure": one.result.name,
        "score": one.result.score,
        "this": _number(one.result.value),
        "other": _number(one.other.value),
        **{name: _number(getattr(one.bootstrap, name)) for name in ("difference", "low", "high")},
        "p_bootstrap": one.bootstrap.p_value,
        "p_randomization": one.randomization.p_value,
    }


def _number(number: float) -> float | None:
    """The number, or None for NaN, which JSON does not have."""
    return None if isnan(number) else number
