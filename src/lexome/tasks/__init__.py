"""Tasks without torch: encoding, decoding and metrics of each kind of problem."""

from collections.abc import Mapping
from inspect import signature
from typing import Any

from lexome.errors import UsageError
from lexome.tasks.classify import Classes, Inference, Similarity
from lexome.tasks.ner import Ner
from lexome.tasks.qa import Questions
from lexome.tasks.relation import Relations
from lexome.tasks.task import Task

__all__ = ["KINDS", "Classes", "Inference", "Ner", "Questions", "Relations", "Similarity", "Task", "task_of"]

KINDS: Mapping[str, type[Task]] = {
    task.kind: task for task in (Ner, Relations, Classes, Inference, Similarity, Questions)
}


def task_of(settings: Mapping[str, Any]) -> Task:
    """The task that these settings describe: its kind, and arguments of its class.

    Missing arguments have their defaults.

    >>> task_of({"kind": "ner", "types": ["Gene"]}).labels
    ('O', 'B-Gene', 'I-Gene')
    """
    arguments = dict(settings)
    kind = arguments.pop("kind", None)
    if kind not in KINDS:
        raise UsageError(
            f"the task has kind {kind!r}; expected one of {', '.join(KINDS)}.", code="unknown-task", value=kind
        )
    parameters = signature(KINDS[kind]).parameters
    unknown = sorted(arguments.keys() - parameters.keys())
    if unknown:
        raise UsageError(
            f"a task of kind {kind!r} has no setting {unknown[0]!r}; expected some of {', '.join(parameters)}.",
            code="unknown-key",
            value=unknown[0],
        )
    missing = [name for name, one in parameters.items() if one.default is one.empty and name not in arguments]
    if missing:
        raise UsageError(
            f"a task of kind {kind!r} needs the setting {missing[0]!r}. Add it.", code="missing-key", value=missing[0]
        )
    return KINDS[kind](**arguments)
