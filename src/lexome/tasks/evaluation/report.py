"""An evaluation in words and numbers: lines for a terminal, and plain values for JSON."""

from collections.abc import Iterator, Sequence
from math import isnan
from typing import Any

from lexome.document import shorten
from lexome.tasks.evaluation.differences import Difference
from lexome.tasks.evaluation.evaluate import Evaluation, Score, Versus
from lexome.tasks.metrics.counts import Counts
from lexome.tasks.metrics.significance import Interval, Paired

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
        yield from _versus(result.versus)
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


def _versus(pairs: Sequence[Versus]) -> Iterator[str]:
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
