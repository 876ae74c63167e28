"""The settings of the tasks that sets are for, as lexome.tasks.task_of reads them."""

from collections.abc import Mapping, Sequence
from typing import Any

Settings = Mapping[str, Any]


def mentions(*types: str) -> Settings:
    """Mentions of these types."""
    return {"kind": "ner", "types": list(types)}


def masked_relations(labels: Sequence[str], *, scored: Sequence[str]) -> Settings:
    """The relation of two entities that are masked in a sentence; the labels that are not scored say there is none."""
    return {"kind": "relation", "labels": list(labels), "scored": list(scored)}


def paired_relations(labels: Sequence[str], *, none: str, pairs: Sequence[tuple[str, str]], **more: object) -> Settings:
    """The relation of each two entities of these types in an annotated document, or that there is none."""
    return {
        "kind": "relation",
        "labels": [*labels, none],
        "scored": list(labels),
        "none": none,
        "pairs": [list(pair) for pair in pairs],
        **more,
    }


def classes(labels: Sequence[str], *, several: bool = False) -> Settings:
    """A class of a text, or several."""
    return {"kind": "classes", "labels": list(labels), "several": several}


def inference(labels: Sequence[str]) -> Settings:
    """What a sentence says of another."""
    return {"kind": "inference", "labels": list(labels)}


def similarity() -> Settings:
    """How alike two sentences are."""
    return {"kind": "similarity"}


def questions(form: str, **more: object) -> Settings:
    """Questions of one form on a text: factoid, list or yesno."""
    return {"kind": "questions", "form": form, **more}
