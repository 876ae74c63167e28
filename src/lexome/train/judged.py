"""Documents that a model was not trained on: where they are from, what a model says of them, and how far two agree."""

import hashlib
import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lexome.document import Document
from lexome.errors import UsageError
from lexome.formats import read
from lexome.formats.records.jsonl import to_json
from lexome.infer.model import Model
from lexome.recipe.finetune import Names
from lexome.tasks import Ner, Relations, Task
from lexome.tasks.metrics import mentions
from lexome.tasks.metrics.counts import Counts
from lexome.tasks.sets import find, folder, names
from lexome.train.finetune.sources import under
from lexome.train.record import RUN
from lexome.values import value

Said = Callable[[Task, Document], set[Hashable]]
NOTHING: Mapping[str, Mapping[str, str]] = {}


@dataclass(frozen=True)
class HeldOut:
    """Documents of one source, the name that a task knows the source by, and the split they are."""

    source: str
    split: str | None
    docs: list[Document]

    def facts(self) -> dict[str, Any]:
        """What is kept in a certificate: name, size, and a hash of all that the documents say."""
        total = hashlib.sha256()
        for doc in self.docs:
            total.update(to_json(doc) + b"\n")
        return {
            "source": self.source,
            "split": self.split,
            "documents": len(self.docs),
            "sha256": total.hexdigest(),
        }


def held_out(
    name: str, *, split: str, task: Task, data: Path | None = None, rename: Mapping[str, Mapping[str, Names]] = NOTHING
) -> HeldOut:
    """The documents that are meant: a split of a set or of a folder with splits, or all of a file.

    Sets are looked for in `data`, else where LEXOME_DATA says. `rename` has, by source, the names that the model knows
    types under.
    """
    path = Path(name)
    if path.is_file():
        found = HeldOut(plain_stem(path), None, list(read(path)))
    elif path.is_dir():
        found = HeldOut(path.resolve().name, split, folder(path, task=task.settings()).split(split))
    elif name.lower() in map(str.lower, names()):
        known = find(name, data=data)
        parts = known.splits(partial=True)
        if split not in parts:
            raise UsageError(
                f"{known.name} has no split {split!r}; it has {', '.join(parts)}. Choose one with --split."
            )
        found = HeldOut(known.card.name, split, parts[split])
    else:
        raise UsageError(f"{name!r} is no file, no folder and no data set. `lexome datasets` lists the sets.")
    if not found.docs:
        raise UsageError(f"{name} has no documents; expected some that the model was not trained on.")
    others = rename.get(found.source, {})
    return replace(found, docs=[under(doc, others) for doc in found.docs]) if others else found


def renamed_types(checkpoint: Path) -> dict[str, dict[str, Names]]:
    """By source, the types that a checkpoint learnt under other names, as the record of its fine-tuning says."""
    for path in (checkpoint / RUN, checkpoint.parent / RUN):
        # A record of something else says nothing of types.
        with suppress(OSError, ValueError, LookupError, TypeError):
            found: dict[str, dict[str, Names]] = json.loads(path.read_bytes())["recipe"]["data"]["rename"]
            return found
    return {}


def require_apart(sources: Sequence[str]) -> None:
    """UsageError where two sources have one name, under which both would be scored."""
    for number, name in enumerate(sources):
        if name in sources[:number]:
            raise UsageError(f"two held-out sources are called {name!r}; expected names apart. Rename one file.")


def plain_stem(path: Path) -> str:
    """The name of a file without its endings."""
    return path.name.partition(".")[0]


def answers(model: Model, held: Sequence[HeldOut]) -> list[list[Document]]:
    """What a model says of the documents of each source, in its own words."""
    return [list(model.annotated(part.docs)) for part in held]


@value
class Scored:
    """How good answers are: the task's first measure, of each source and as the mean over them."""

    measure: str
    mean: float
    sources: dict[str, float]


def scores(task: Task, held: Sequence[HeldOut], found: Sequence[Sequence[Document]]) -> Scored:
    """The first measure of the task; each source is scored by what it annotates, and counts the same."""
    measure, sources = "", {}
    for part, own in zip(held, found, strict=True):
        measure, sources[part.source] = next(iter(task.of_source(part.source).score(part.docs, own).items()))
    return Scored(measure, sum(sources.values()) / len(sources), sources)


def agreement(task: Task, one: Sequence[Sequence[Document]], other: Sequence[Sequence[Document]]) -> Counts:
    """What both models say, and what only one of them says; F1 of it is the share that they agree on."""
    kind = str(task.settings()["kind"])
    both = first = second = 0
    for left, right in zip(_flat(one), _flat(other), strict=True):
        own, said = SAID[kind](task, left), SAID[kind](task, right)
        both, first, second = both + len(own & said), first + len(own - said), second + len(said - own)
    return Counts(both, second, first)


def _flat(parts: Sequence[Sequence[Document]]) -> list[Document]:
    return [doc for part in parts for doc in part]


def _mentions(task: Task, doc: Document) -> set[Hashable]:
    assert isinstance(task, Ner)
    return set(mentions(doc, task.types))


def _relations(task: Task, doc: Document) -> set[Hashable]:
    assert isinstance(task, Relations)
    if not task.pairs:
        return set(doc.labels)
    return {
        (relation.type, *((side.role, side.target, side.concept) for side in relation.arguments))
        for relation in doc.relations
        if relation.type in task.labels
    }


def _labels(task: Task, doc: Document) -> set[Hashable]:
    return set(doc.labels)


def _number(task: Task, doc: Document) -> set[Hashable]:
    """To one decimal, as similarity is judged by people."""
    return {round(float(label), 1) for label in doc.labels}


def _best_answers(task: Task, doc: Document) -> set[Hashable]:
    """Of each question the best answer; a question without one has an answer too."""
    return {(question.id, question.answers[0].text if question.answers else None) for question in doc.questions}


# What each kind of task says of a document, as things that are the same or not.
SAID: Mapping[str, Said] = {
    "ner": _mentions,
    "relation": _relations,
    "classes": _labels,
    "inference": _labels,
    "similarity": _number,
    "questions": _best_answers,
}
