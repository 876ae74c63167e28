"""brat standoff: a .txt file with the text and an .ann file of the same name with what is said about it.

    T1  Gene 0 5;16 23   text         a mention, discontinuous here
    R1  Binds Arg1:T1 Arg2:T2         a relation
    E1  Binding:T3 Theme:T1           an event: a relation whose first argument is its Trigger
    *   Equiv T1 T2                   a relation of type Equiv whose arguments are all called Arg
    A1  Negation E1                   an attribute; M1 in older files
    N1  Reference T1 NCBIGene:672     a concept of the mention
    #1  AnnotatorNotes T1  text       an attribute of that name, the text its value

Offsets count the characters of the text file, line ends as they are. Names with white space, which
brat has not, are percent-encoded.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Literal

from lexome.document import Argument, Attribute, Document, Passage, Range, Relation, Span, shorten
from lexome.errors import BadDocument, FormatError
from lexome.files import atomic_write
from lexome.formats.concept_ids import FileStems, escape_name, id_from_stem, unescape_name
from lexome.formats.streams import Source, decode, pair_files, uncompressed_name
from lexome.formats.tally import Tally, drop_dependents, note_losses, repair_spans

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
    note_losses(doc, tally, supported=_HELD)
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
    return drop_dependents(dropped, kept, doc.attributes, tally=tally)


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
        yield f"{id}\t{escape_name(span.type)} {places}\t{_on_one_line(span.text)}"
        for concept in span.concepts:
            yield f"N{next(numbers)}\tReference {id} {escape_name(concept)}\t"


def _relation(relation: Relation, kind: str, names: dict[str, str]) -> str:
    arguments = [(escape_name(argument.role), names[str(argument.target)]) for argument in relation.arguments]
    head = escape_name(relation.type)
    if kind == "*":
        return _joined("*", head, (target for _, target in arguments))
    if kind == "E":
        head = f"{head}:{arguments.pop(0)[1]}"
    return _joined(names[relation.id], head, (f"{role}:{target}" for role, target in arguments))


def _joined(id: str, head: str, arguments: Iterable[str]) -> str:
    return f"{id}\t{' '.join((head, *arguments))}"


def _attribute(attribute: Attribute, id: str, target: str, tally: Tally) -> str:
    line = f"{id}\t{escape_name(attribute.name)} {target}"
    if attribute.value is None:
        return line
    if not id.startswith("#"):
        return f"{line} {escape_name(attribute.value)}"
    value = _on_one_line(attribute.value)
    if value != attribute.value:
        tally.note("line end in an annotator's note written as a space")
    return f"{line}\t{value}"


def _on_one_line(text: str) -> str:
    return _LINE_END.sub(" ", text)


_MENTION = re.compile(r"(\S*) ((?:[0-9]{1,15} [0-9]{1,15};)*[0-9]{1,15} [0-9]{1,15})")
_LINE_ENDS = str.maketrans("\r\n", "  ")


def read(
    sources: Iterator[Source],
    *,
    tally: Tally,
    offsets: Literal["strict", "repair"] = "strict",
    encoding: str = "utf-8",
) -> Iterator[Document]:
    """A document for each pair of .txt and .ann files, in whatever order they come.

    The id is the file's name. A text without annotations is a document without them; annotations
    without a text are rejected.
    """
    make = partial(_document, repair=offsets == "repair", encoding=encoding, tally=tally)
    for key, text, notes in pair_files(sources, (".txt", ".ann"), _key, tally):
        yield from _attempted(make, key, text, notes or b"", tally)


def _key(source: Source) -> tuple[str, str] | None:
    """The path that a text and its annotations share, and which of them this is."""
    ending = source.extension
    return (uncompressed_name(source.location)[: -len(ending)], ending) if ending in (".txt", ".ann") else None


def write(docs: Iterable[Document], folder: Path, *, tally: Tally) -> None:
    """Two files a document in the folder, named by its id, percent-encoded where a file cannot be called so.

    Ids that are not of brat's form (T1, R1, E1, A1) are numbered anew. What brat cannot hold is left
    out and counted.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FormatError(f"{folder}: cannot be made a folder ({error.strerror}). Name another place.") from error
    stems = FileStems()
    for doc in docs:
        made = tally.attempt(partial(_files, doc, stems, tally), where=f"document {shorten(doc.id)!r}", id=doc.id)
        if made is None:
            continue
        stem, text, notes = made
        # Annotations first: a text alone would pass for a document that has none.
        for ending, content in ((".ann", notes), (".txt", text)):
            with atomic_write(folder / f"{stem}{ending}") as stream:
                stream.write(content)
        tally.written += 1


def _files(doc: Document, stems: FileStems, tally: Tally) -> tuple[str, bytes, bytes]:
    """The name of a document's files, and what each holds."""
    notes = standoff(doc, tally)
    return stems.take(doc.id), doc.text.encode(), notes


def _attempted(
    make: "partial[Document]", key: str, text: bytes | None, notes: bytes, tally: Tally
) -> Iterator[Document]:
    id = id_from_stem(key.rpartition("/")[2])
    doc = tally.attempt(partial(make, id, text, notes), where=f"{key}.ann", id=id, raw=notes)
    if doc is not None:
        yield doc


def _document(
    id: str, raw_text: bytes | None, raw_notes: bytes, *, repair: bool, encoding: str, tally: Tally
) -> Document:
    if raw_text is None:
        raise BadDocument("no_text", "there is no .txt file of the same name beside it; expected one. Add it.")
    text = decode(raw_text, encoding)
    notes = _Notes(text, tally)
    for number, line in enumerate(decode(raw_notes, encoding).split("\n"), 1):
        if line and not line.isspace():
            notes.add(line.removesuffix("\r"), number)
    passages = (Passage(0, text),) if text else ()
    spans = tuple(
        replace(span, concepts=tuple(notes.concepts.pop(span.id))) if span.id in notes.concepts else span
        for span in notes.spans
    )
    relations, attributes = tuple(notes.relations), tuple(notes.attributes)
    if notes.concepts:
        target = next(iter(notes.concepts))
        raise BadDocument("unknown_target", f"a normalization is of {target!r}, which is no mention of the file.")
    if repair:
        spans, relations, attributes = repair_spans(passages, spans, relations, attributes, tally=tally)
    known = {span.id for span in spans} | {relation.id for relation in relations}
    remarks = {attribute for attribute in attributes if attribute.id.startswith("#") and attribute.target not in known}
    if remarks:
        # Annotators may comment on an attribute or a normalization; a Document has no place for that.
        tally.note("note on something other than a mention or relation ignored", len(remarks))
        attributes = tuple(attribute for attribute in attributes if attribute not in remarks)
    return Document(id, passages, spans, relations, attributes)


@dataclass(slots=True)
class _Notes:
    """What the lines of an .ann file have said so far."""

    text: str
    tally: Tally
    spans: list[Span] = field(default_factory=list)
    relations: list[Relation] = field(default_factory=list)
    attributes: list[Attribute] = field(default_factory=list)
    concepts: dict[str, list[str]] = field(default_factory=dict)
    equivalences: int = 0

    def add(self, line: str, number: int) -> None:
        """Take in one line; BadDocument where it is not of its kind's form."""
        kind = line[0]
        id, _, rest = line.partition("\t")
        body, tab, last = rest.partition("\t")
        if kind == "T":
            self._mention(id, body, last if tab else None, number)
        elif kind in "RE*":
            self._relation(id, body, number)
        elif kind in "AM":
            name, target, *value = _fields(body, 3, number)
            self.attributes.append(
                Attribute(id, target, unescape_name(name), unescape_name(value[0]) if value else None)
            )
        elif kind == "#":
            name, target, *_ = _fields(body, 2, number)
            self.attributes.append(Attribute(id, target, unescape_name(name), last if tab else None))
        elif kind == "N":
            self._normalization(body, last, number)
        else:
            self.tally.note("line of an unknown kind ignored")

    def _mention(self, id: str, body: str, given: str | None, number: int) -> None:
        match = _MENTION.fullmatch(body)
        if match is None:
            raise _bad_line(number, body, "a type and offsets, such as 'Gene 0 5' or 'Gene 0 5;16 23'")
        parts = tuple(_range(part) for part in match[2].split(";"))
        found = " ".join(self.text[start:end] for start, end in parts)
        if given is None:
            self.tally.note("mention without its text in the file")
            given = found
        elif found.translate(_LINE_ENDS) == given.translate(_LINE_ENDS):
            given = found  # brat writes the line ends inside a mention as spaces
        self.spans.append(Span(id, unescape_name(match[1]), parts, given))

    def _relation(self, id: str, body: str, number: int) -> None:
        head, *fields = body.split(" ")
        fields = [field for field in fields if field]
        if id == "*":
            self.equivalences += 1
            equals = tuple(Argument("Arg", target) for target in fields)
            self.relations.append(Relation(f"*{self.equivalences}", unescape_name(head), equals))
            return
        arguments = tuple(_argument(field, number) for field in fields)
        if id.startswith("E"):
            trigger = _argument(head, number)
            arguments = (Argument("Trigger", trigger.target), *arguments)
            name = trigger.role
        else:
            name = unescape_name(head)
        self.relations.append(Relation(id, name, arguments))

    def _normalization(self, body: str, name: str, number: int) -> None:
        kind, target, concept, *_ = *_fields(body, 3, number), ""
        if kind != "Reference":
            self.tally.note("normalization that is no Reference read as one")
        if name:
            self.tally.note("name of a normalization ignored")
        if target.startswith(("E", "R")):
            self.tally.note("normalization of an event or relation ignored")
            return
        self.concepts.setdefault(target, []).append(unescape_name(concept))


def _range(part: str) -> Range:
    start, _, end = part.partition(" ")
    return int(start), int(end)


def _argument(field: str, number: int) -> Argument:
    role, colon, target = field.rpartition(":")
    if not colon:
        raise _bad_line(number, field, "a role and an id, such as 'Theme:T1'")
    return Argument(unescape_name(role), target)


def _fields(body: str, most: int, number: int) -> list[str]:
    fields = body.split(" ", most - 1)
    if len(fields) < 2:
        raise _bad_line(number, body, "a name and the id that it is about, such as 'Negation E1'")
    return fields


def _bad_line(number: int, seen: str, expected: str) -> BadDocument:
    return BadDocument("bad_line", f"line {number}: {shorten(seen)!r} was seen; expected {expected}. Mend the line.")
