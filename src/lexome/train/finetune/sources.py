"""The sources of a recipe: sets and folders, their folds, and what their mentions are called."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from lexome.document import Document, Span
from lexome.errors import UsageError
from lexome.recipe.finetune import FinetuneRecipe, Names
from lexome.tasks import Ner, Relations
from lexome.tasks.sets import DataSet, find, folder
from lexome.tasks.task import Task


def sources_of(recipe: FinetuneRecipe) -> list[DataSet]:
    """The sets that the recipe names, or its folder."""
    if recipe.data.folder is not None:
        told = recipe.task.keys() & {"types", "labels"}
        # Types and labels that are not told are those of the training documents.
        return [folder(recipe.data.folder, task=recipe.task if told else str(recipe.task["kind"]))]
    if len(recipe.data.sets) > 1 and not recipe.task:
        raise UsageError(f"{len(recipe.data.sets)} sets without a [task] table; expected one that fits them all.")
    return [find(name, data=recipe.data.root) for name in recipe.data.sets]


def require_sources(named: Mapping[str, object], sources: Sequence[DataSet]) -> None:
    """UsageError where data.rename names a source that is not there."""
    known = [source.card.name for source in sources]
    for name in named:
        if name not in known:
            raise UsageError(f"data.rename names {name!r}; expected one of {', '.join(known)}.")


def require_types(named: Mapping[str, Mapping[str, Names]], task: Task) -> None:
    """UsageError where data.rename gives a name that the task does not ask a source for: such mentions would be lost.

    That is one which is none of its types, or none of those that [task.annotated] says of the source.
    """
    if isinstance(task, Ner):
        known = task.types
    elif isinstance(task, Relations) and task.pairs:
        known = tuple(dict.fromkeys(type_ for pair in task.pairs for type_ in pair))
    else:
        return
    for source, types in named.items():
        asked = task.annotated.get(source, known) if isinstance(task, Ner) else known
        for type_, given in types.items():
            for name in (given,) if isinstance(given, str) else given:
                if name not in known:
                    raise UsageError(
                        f"data.rename calls {source}'s {type_} {name!r}; expected one of the types in [task]: "
                        f"{', '.join(known)}. Name one of those, or add it to them."
                    )
                if name not in asked:
                    raise UsageError(
                        f"data.rename calls {source}'s {type_} {name!r}; expected one of those in [task.annotated] for "
                        f"{source}: {', '.join(asked)}. Name one of those, or add it to them."
                    )


def folds_of(recipe: FinetuneRecipe, sources: Sequence[DataSet]) -> list[int | None]:
    """The folds to run, by number; None where there are none."""
    own = len(sources[0].folds)
    if recipe.folds is None:
        if own:
            raise UsageError(f"{sources[0].name} is cross-validated in {own} folds. Add a [folds] table.")
        return [None]
    if len(sources) > 1:
        raise UsageError(f"folds of {len(sources)} sets at once; expected one set.")
    if own and recipe.folds.count is not None:
        raise UsageError(
            f"folds.count is {recipe.folds.count}, and {sources[0].name} has {own} folds of its own; expected those. "
            "Leave folds.count out, and name some of them with folds.use."
        )
    count = recipe.folds.count or own
    if not count:
        raise UsageError(f"{sources[0].name} has no folds of its own. Say how many: folds.count.")
    wrong = [number for number in recipe.folds.use if number >= count]
    if wrong:
        raise UsageError(f"folds.use names fold {wrong[0]}; the last of {count} is {count - 1}.")
    return list(recipe.folds.use or range(count))


def renamed(read: dict[str, list[Document]], names: Mapping[str, Names], source: str) -> dict[str, list[Document]]:
    """The documents with some types of mentions under other names; UsageError where a type is not there at all."""
    there = {span.type for docs in read.values() for doc in docs for span in doc.spans}
    unknown = sorted(names.keys() - there)
    if unknown:
        raise UsageError(
            f"data.rename has the type {unknown[0]!r} of {source}, which has {', '.join(sorted(there)) or 'none'}. "
            "Name one of those."
        )
    if not names:
        return read
    return {name: [under(doc, names) for doc in docs] for name, docs in read.items()}


def under(doc: Document, names: Mapping[str, Names]) -> Document:
    """The document with types of mentions under other names; a mention of several types is there once for each."""
    return replace(doc, spans=tuple(other for span in doc.spans for other in _named(span, names.get(span.type))))


def _named(span: Span, names: Names | None) -> Iterator[Span]:
    """The mention under its names. Under the first it keeps its id, which relations go by."""
    if names is None:
        yield span
        return
    for number, name in enumerate([names] if isinstance(names, str) else names):
        yield replace(span, type=name, id=f"{span.id}.{name}" if number else span.id)
