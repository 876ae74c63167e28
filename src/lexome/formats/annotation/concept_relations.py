"""Relations between concepts as two id fields, the form that PubTator text and PubTator's BioC share.

The two sides have as roles the types of the mentions of their concepts where these are two different
types, and otherwise Arg1 and Arg2. PubTator3 names the types itself: Chemical|MESH:D001241.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from lexome.document import Argument, Relation, Span
from lexome.formats.annotation.concepts import Ids, parsed_ids, vocabulary_of, write_ids

NOVELTY = {True: "Novel", False: "No"}
SAID_NOVEL = {"novel": True, "yes": True, "true": True, "no": False, "false": False}

_TYPED = re.compile(r"([A-Z][A-Za-z_]+)\|(.+)", re.DOTALL)

Types = Mapping[str, set[str]]
Side = tuple[str, Ids]


def types_by_concept(spans: Iterable[Span]) -> Types:
    """For each concept the types of the mentions that refer to it."""
    types: dict[str, set[str]] = {}
    for span in spans:
        for concept in span.concepts:
            types.setdefault(concept, set()).add(span.type)
    return types


def sides_of(first: str, second: str, types: Types) -> tuple[Side, Side]:
    """The roles and concepts of a relation's two id fields, in a document whose concepts have these types."""
    return _with_roles(_side(first, types), _side(second, types))


def sides_between(left: Ids, right: Ids, types: Types) -> tuple[Side, Side]:
    """The same for concepts that are known already."""
    return _with_roles((_only_type(left, types), left), (_only_type(right, types), right))


def arguments_of(sides: Sequence[Side]) -> tuple[Argument, ...]:
    """An argument for each concept, in its side's role."""
    return tuple(Argument(role, concept=concept) for role, concepts in sides for concept in concepts)


def fields_of(relation: Relation, concepts: Mapping[str, Ids], types: Types) -> tuple[str, str] | None:
    """The two id fields of a relation, or None where it has no two sides that ids can name.

    An argument that is a mention counts as the concepts that the mapping has for it.
    """
    pairs = [(argument.role, _concepts_of(argument, concepts)) for argument in relation.arguments]
    # Arguments that follow one another in the same role are one side.
    sides = (
        pairs if len(pairs) == 2 else [(role, _joined(group)) for role, group in groupby(pairs, lambda pair: pair[0])]
    )
    fields = [field for _, ids in sides if (field := _field(ids, types)) is not None]
    return (fields[0], fields[1]) if len(sides) == len(fields) == 2 else None


def _concepts_of(argument: Argument, concepts: Mapping[str, Ids]) -> Ids:
    return (argument.concept,) if argument.concept is not None else concepts.get(str(argument.target), ())


def _joined(pairs: Iterable[Side]) -> Ids:
    return tuple(concept for _, concepts in pairs for concept in concepts)


def _field(concepts: Ids, types: Types) -> str | None:
    """The id field that is read as these concepts in a document with these types."""
    if not concepts:
        return None
    known = sorted(set[str]().union(*(types.get(concept, ()) for concept in concepts)))
    for field in (*(write_ids(concepts, type) for type in (*known, "")), ";".join(concepts)):
        if field and _side(field, types)[1] == concepts:
            return field
    return None


def _side(field: str, types: Types) -> tuple[str | None, Ids]:
    """The concepts of an id field, and their type where they all have the same."""
    typed = _TYPED.fullmatch(field)
    if typed is not None:
        return typed[1], parsed_ids(typed[2], vocabulary_of(typed[1]))[0]
    # A bare number is of the vocabulary that the document's mentions have it in.
    readings = [parsed_ids(field, vocabulary)[0] for vocabulary in (None, "NCBIGene", "NCBITaxon")]
    concepts = next((reading for reading in readings if all(concept in types for concept in reading)), readings[0])
    return _only_type(concepts, types), concepts


def _only_type(concepts: Ids, types: Types) -> str | None:
    found = set[str]().union(*(types.get(concept, ()) for concept in concepts))
    return found.pop() if len(found) == 1 else None


def _with_roles(left: tuple[str | None, Ids], right: tuple[str | None, Ids]) -> tuple[Side, Side]:
    if left[0] is not None and right[0] is not None and left[0] != right[0]:
        return (left[0], left[1]), (right[0], right[1])
    return ("Arg1", left[1]), ("Arg2", right[1])
