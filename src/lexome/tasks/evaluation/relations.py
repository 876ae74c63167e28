"""Relations side by side: type and arguments, each argument a mention at its place or a concept."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence

from lexome.document import Document, Relation
from lexome.tasks.evaluation.differences import Difference
from lexome.tasks.evaluation.measured import Measured, counted, macro
from lexome.tasks.evaluation.pairs import Pair
from lexome.tasks.metrics.counts import of_sets, together
from lexome.tasks.metrics.spans import ANY_TYPE, joined

SECTION = "relations"

# What a relation is told by: its type, and its arguments in the order of their text.
Key = tuple[str, tuple[str, ...]]

ROLES_IGNORED = "type and arguments, roles ignored"

_NEGATIVE = frozenset({"false", "none", "na", "0", "negative"})


def relation_measures(pairs: Sequence[Pair], only: Collection[str] | None = None) -> list[Measured]:
    """Typed, untyped and macro F1; none where neither side has a relation that counts.

    Where roles make a difference, typed and macro F1 come without them as well: models of pairs do not tell who is who.
    """
    keys = [(_keys(pair.gold, only), _keys(pair.found, only)) for pair in pairs]
    if not any(gold or found for gold, found in keys):
        return []
    typed = [of_sets(_by_type(gold), _by_type(found)) for gold, found in keys]
    untyped = [of_sets(_untyped(gold), _untyped(found)) for gold, found in keys]
    types = list(together(typed).types)
    measures = [counted(SECTION, "type and arguments", typed), counted(SECTION, "arguments alone", untyped)]
    if len(types) > 1:
        measures.append(macro(SECTION, "type and arguments", typed, types))
    bare = [tuple(_keys(doc, only, roles=False) for doc in (pair.gold, pair.found)) for pair in pairs]
    unordered = [of_sets(_by_type(gold), _by_type(found)) for gold, found in bare]
    if together(unordered).total != together(typed).total:
        measures.append(counted(SECTION, ROLES_IGNORED, unordered))
        if len(types) > 1:
            measures.append(macro(SECTION, ROLES_IGNORED, unordered, types))
    return measures


def relation_differences(pairs: Sequence[Pair], only: Collection[str] | None = None) -> Iterator[Difference]:
    """Each relation that was missed, is spurious, or is of a wrong type."""
    for pair in pairs:
        gold, found = _keys(pair.gold, only), _keys(pair.found, only)
        missed, spurious = sorted(gold - found), sorted(found - gold)
        for key in missed:
            other = next((one for one in spurious if one[1] == key[1]), None)
            if other is not None:
                spurious.remove(other)
            kind = "missed" if other is None else "wrong type"
            yield Difference(SECTION, kind, pair.gold.id, _said(key), _said(other))
        for key in spurious:
            yield Difference(SECTION, "spurious", pair.gold.id, None, _said(key))


def negative_types(pairs: Sequence[Pair], only: Collection[str] | None = None) -> list[str]:
    """The types that say that there is no relation, which do not count unless they were asked for."""
    types = {relation.type for pair in pairs for doc in (pair.gold, pair.found) for relation in doc.relations}
    return sorted(type for type in types if is_negative(type)) if only is None else []


def is_negative(type: str) -> bool:
    """Whether a type says that there is nothing, as DDI-false does."""
    return type.lower() in _NEGATIVE or type.lower().endswith(("-false", ":false"))


def _keys(doc: Document, only: Collection[str] | None, *, roles: bool = True) -> set[Key]:
    counts = (not is_negative(relation.type) if only is None else relation.type in only for relation in doc.relations)
    wanted = [relation for relation, counted in zip(doc.relations, counts, strict=True) if counted]
    if not wanted:
        return set()
    named = _named(doc, roles=roles)
    return {(relation.type, named[relation.id]) for relation in wanted}


def _named(doc: Document, *, roles: bool) -> dict[str, tuple[str, ...]]:
    """What each relation is told by besides its type: ids are a file's own, so mentions are named by text and place."""
    names = {
        span.id: f"{span.text!r} at {','.join(f'{start}-{end}' for start, end in joined(span.parts))}"
        for span in doc.spans
    }
    relations = {relation.id: relation for relation in doc.relations}
    return {id: _arguments(relation, names, relations, (id,), roles=roles) for id, relation in relations.items()}


def _arguments(
    relation: Relation, names: dict[str, str], relations: dict[str, Relation], above: tuple[str, ...], *, roles: bool
) -> tuple[str, ...]:
    """The arguments in words, sorted; a relation among them is named by its own arguments."""
    said: list[str] = []
    for argument in relation.arguments:
        target = argument.target
        if target is None:
            name = str(argument.concept)
        elif target in names:
            name = names[target]
        elif target in above:
            name = "itself"
        else:
            inner = relations[target]
            name = f"{inner.type}({'; '.join(_arguments(inner, names, relations, (*above, target), roles=roles))})"
        said.append(f"{argument.role}: {name}" if roles else name)
    return tuple(sorted(said))


def _by_type(keys: set[Key]) -> dict[str, set[Key]]:
    types: defaultdict[str, set[Key]] = defaultdict(set)
    for key in keys:
        types[key[0]].add(key)
    return types


def _untyped(keys: set[Key]) -> dict[str, set[tuple[str, ...]]]:
    return {ANY_TYPE: {arguments for _, arguments in keys}}


def _said(key: Key | None) -> str | None:
    return None if key is None else f"{key[0]}: {'; '.join(key[1])}"
