"""From a Document to the lines of a brat .ann file: ids of brat's form, and only what brat can hold."""

import re
from collections.abc import Iterable, Iterator
from itertools import count

from lexome.document import Attribute, Document, Relation
from lexome.errors import BadDocument
from lexome.formats.annotation.percent import escaped
from lexome.formats.losses import note_losses
from lexome.formats.repair import without
from lexome.formats.tally import Tally

_HELD = frozenset({"relations", "attributes", "concepts"})
_LINE_END = re.compile(r"[\r\n]")


def standoff(doc: Document, tally: Tally) -> bytes:
    """The .ann file of a document, UTF-8."""
    relations, attributes = _held(doc, tally)
    kinds = [_kind(relation, {span.id for span in doc.spans}) for relation in relations]
    names = _names([(span.id, "T") for span in doc.spans])
    names |= _names([(relation.id, kind) for relation, kind in zip(relations, kinds, strict=True)])
    lines = [*_mentions(doc, names)]
    lines += (_relation(relation, kind, names) for relation, kind in zip(relations, kinds, strict=True))
    marks = _names([(attribute.id, _mark(attribute)) for attribute in attributes])
    lines += (_attribute(attribute, marks[attribute.id], names[attribute.target], tally) for attribute in attributes)
    if any(old != new for old, new in (*names.items(), *marks.items())):
        tally.note("ids numbered anew")
    note_losses(doc, tally, held=_HELD)
    try:
        return "".join(f"{line}\n" for line in lines).encode()
    except UnicodeEncodeError:
        raise BadDocument("not_unicode", "a type or name has half a surrogate pair; expected whole text.") from None


def _held(doc: Document, tally: Tally) -> tuple[tuple[Relation, ...], tuple[Attribute, ...]]:
    """The relations between mentions, and the attributes of what is written."""
    dropped = {
        relation.id for relation in doc.relations if any(argument.target is None for argument in relation.arguments)
    }
    if not dropped:
        return doc.relations, doc.attributes
    tally.note("relation to a concept not written", len(dropped))
    kept = (relation for relation in doc.relations if relation.id not in dropped)
    return without(dropped, kept, doc.attributes, tally=tally)


def _kind(relation: Relation, spans: set[str]) -> str:
    """The letter of the relation's line: * for an equivalence, E for an event, R for the others."""
    arguments = relation.arguments
    if _has_form(relation.id, "*") and all(argument.role == "Arg" for argument in arguments):
        return "*"
    triggered = bool(arguments) and arguments[0].role == "Trigger" and arguments[0].target in spans
    return "E" if triggered and not _has_form(relation.id, "R") else "R"


def _mark(attribute: Attribute) -> str:
    return next((letter for letter in "#M" if _has_form(attribute.id, letter)), "A")


def _has_form(id: str, letter: str) -> bool:
    return id[:1] == letter and id[1:].isascii() and id[1:].isdigit()


def _names(wanted: list[tuple[str, str]]) -> dict[str, str]:
    """Ids of brat's form for these, each with its letter: its own where that is of the form, else the next free."""
    taken = {id for id, letter in wanted if letter != "*" and _has_form(id, letter)}
    numbers = {letter: count(1) for _, letter in wanted}
    names: dict[str, str] = {}
    for id, letter in wanted:
        if id in taken or id in names:
            names.setdefault(id, id)
            continue
        # Equivalences have no ids in the file; readers number them in order.
        names[id] = next(name for number in numbers[letter] if (name := f"{letter}{number}") not in taken)
    return names


def _mentions(doc: Document, names: dict[str, str]) -> Iterator[str]:
    numbers = count(1)
    for span in doc.spans:
        id = names[span.id]
        places = ";".join(f"{start} {end}" for start, end in span.parts)
        yield f"{id}\t{escaped(span.type)} {places}\t{_on_one_line(span.text)}"
        for concept in span.concepts:
            yield f"N{next(numbers)}\tReference {id} {escaped(concept)}\t"


def _relation(relation: Relation, kind: str, names: dict[str, str]) -> str:
    arguments = [(escaped(argument.role), names[str(argument.target)]) for argument in relation.arguments]
    head = escaped(relation.type)
    if kind == "*":
        return _joined("*", head, (target for _, target in arguments))
    if kind == "E":
        head = f"{head}:{arguments.pop(0)[1]}"
    return _joined(names[relation.id], head, (f"{role}:{target}" for role, target in arguments))


def _joined(id: str, head: str, arguments: Iterable[str]) -> str:
    return f"{id}\t{' '.join((head, *arguments))}"


def _attribute(attribute: Attribute, id: str, target: str, tally: Tally) -> str:
    line = f"{id}\t{escaped(attribute.name)} {target}"
    if attribute.value is None:
        return line
    if not id.startswith("#"):
        return f"{line} {escaped(attribute.value)}"
    value = _on_one_line(attribute.value)
    if value != attribute.value:
        tally.note("line end in an annotator's note written as a space")
    return f"{line}\t{value}"


def _on_one_line(text: str) -> str:
    return _LINE_END.sub(" ", text)
