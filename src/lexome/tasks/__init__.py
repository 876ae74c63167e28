"""Problems without torch: what a model is to say of a text, what its numbers mean, and how good that is."""

from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any

from lexome.errors import UsageError
from lexome.tasks.classify import Classes, Inference, Similarity
from lexome.tasks.ner import Ner
from lexome.tasks.qa import Questions
from lexome.tasks.relation import Relations
from lexome.tasks.task import Task

__all__ = ["KINDS", "Classes", "Inference", "Ner", "Questions", "Relations", "Similarity", "Task", "task_of"]

KINDS: Mapping[str, Callable[..., Task]] = {
    "ner": Ner,
    "relation": Relations,
    "classes": Classes,
    "inference": Inference,
    "similarity": Similarity,
    "questions": Questions,
}


def task_of(settings: Mapping[str, Any]) -> Task:
    """The task that these settings describe, as `Task.settings` gives them: its kind, and arguments of its class.

    Arguments that are left out have their defaults.

    >>> task_of({"kind": "ner", "types": ["Gene"]}).labels
    ('O', 'B-Gene', 'I-Gene')
    """
    given = dict(settings)
    kind = given.pop("kind", None)
    if kind not in KINDS:
        raise UsageError(f"a task of the kind {kind!r} is asked for; expected one of {', '.join(KINDS)}.")
    make = KINDS[kind]
    parameters = signature(make).parameters
    unknown = sorted(given.keys() - parameters.keys())
    if unknown:
        raise UsageError(
            f"a task of the kind {kind!r} has no setting {unknown[0]!r}; expected some of {', '.join(parameters)}."
        )
    needed = [name for name, one in parameters.items() if one.default is one.empty and name not in given]
    if needed:
        raise UsageError(f"a task of the kind {kind!r} needs the setting {needed[0]!r}. Add it.")
    return make(**given)
