"""How far labs are apart on the same checkpoint and set: what any claim to have reproduced a number is measured by."""

from collections.abc import Iterable

from lexome.recipe import Table
from lexome.recipe.study import ReportedTable, StudyRecipe


class Spread(Table):
    """The numbers of several labs for one model, task and measure."""

    model: str
    labs: dict[str, float]

    @property
    def low(self) -> float:
        """The lowest."""
        return min(self.labs.values())

    @property
    def high(self) -> float:
        """The highest."""
        return max(self.labs.values())

    def holds(self, number: float) -> bool:
        """Whether a number lies between them."""
        return self.low <= number <= self.high


Spreads = dict[tuple[str, str, str], Spread]
"""By model, task and measure."""


def spreads(studies: Iterable[StudyRecipe]) -> Spreads:
    """What all studies and the labs they quote report, by model, task and measure.

    Only numbers of the same measure are put together: a macro F1 says nothing about a micro F1.
    """
    found: dict[tuple[str, str, str], dict[str, float]] = {}
    for study in studies:
        for row in study.reported:
            for task, measure, number in numbers(study, row):
                found.setdefault((row.model, task, measure), {}).setdefault(row.lab or study.name, number)
    return {key: Spread(model=key[0], labs=labs) for key, labs in found.items()}


def numbers(study: StudyRecipe, row: ReportedTable) -> Iterable[tuple[str, str, float]]:
    """The numbers of a row by task and measure; averages are left out."""
    measures = {task.name: task.measures for task in study.tasks}
    for name, given in row.values.items():
        if name in measures:
            each = given if isinstance(given, tuple) else (given,)
            yield from ((name, measure, number) for measure, number in zip(measures[name], each, strict=True))
