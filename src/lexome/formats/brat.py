"""brat standoff: a .txt file with the text and an .ann file of the same name with its annotations.

    T1  Gene 0 5;16 23   text         a mention, discontinuous here
    R1  Binds Arg1:T1 Arg2:T2         a relation
    E1  Binding:T3 Theme:T1           an event: a relation whose first argument is its Trigger
    *   Equiv T1 T2                   a relation of type Equiv with the role Arg for all arguments
    A1  Negation E1                   an attribute; M1 in older files
    N1  Reference T1 NCBIGene:672     a concept of the mention
    #1  AnnotatorNotes T1  text       an attribute of that name, the text its value
    #2  Lexome R1  {"score": 0.9}     what brat cannot represent: score, novelty and concepts of a relation

A relation to a concept is written as one to the concept's first mention, with the concept in such a note.
Offsets count the characters of the text file, including line endings. Names with white space, which brat does
not allow, are percent-encoded.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from lexome.document import Argument, Attribute, Document, Passage, Relation, Span, encode_utf8, shorten
from lexome.errors import BadDocument, LexomeError
from lexome.files import fill_folder
from lexome.formats.streams import Source, decode, uncompressed_name
from lexome.formats.tally import Offsets, Tally, drop_dependents, note_losses, settle

_SUPPORTED = frozenset({"relations", "attributes", "concepts", "relation novelty"})
# The name of notes on what brat cannot represent.
OWN_NOTE = "Lexome"
_MENTION = re.compile(r"(\S*) ((?:[0-9]{1,15} [0-9]{1,15};)*[0-9]{1,15} [0-9]{1,15})")
_STANDOFF = (".ann", ".a1", ".a2")
_LINE_ENDS = str.maketrans("\r\n", "  ")
_UNSAFE = re.compile(r"[\s%\x00-\x1f\x7f]")
_NUMBERED = re.compile(r"(.*)%_[0-9]+", re.DOTALL)

# File systems allow 255 bytes; extension, number and the affixes of the temporary name need room too.
MAX_STEM_BYTES = 200


def read(
    sources: Iterator[Source], *, tally: Tally, offsets: Offsets = "keep", encoding: str = "utf-8"
) -> Iterator[Document]:
    """One document per pair of .txt and .ann files, in any order.

    The id is the file name. A text may lack annotations; annotations without a text are rejected. Annotations may also
    be in x.txt.ann beside x.txt, or, as in the shared tasks of BioNLP, in .a1 and .a2.
    """
    make = partial(_document, offsets=offsets, encoding=encoding, tally=tally)
    for key, text, standoff in _texts_with_annotations(sources, tally):
        id = id_from_stem(key.rpartition("/")[2])
        yield from tally.accept(partial(make, id, text, standoff), where=f"{key}.ann", id=id, raw=standoff)


def _key(source: Source) -> tuple[str, str] | None:
    """The path that a text and its annotations share, and which of the two this is."""
    extension = source.extension
    if extension not in (".txt", *_STANDOFF):
        return None
    key = uncompressed_name(source.location)[: -len(extension)]
    return (key.removesuffix(".txt") if extension == ".ann" else key), extension


def _texts_with_annotations(sources: Iterable[Source], tally: Tally) -> Iterator[tuple[str, bytes | None, bytes]]:
    """Keys with the text and the annotations of files in any order; those that lack one come last."""
    waiting: dict[str, dict[str, bytes]] = {}
    for source in sources:
        key_and_part = _key(source)
        if key_and_part is None:
            tally.note("file that is neither .txt nor .ann skipped")
            continue
        key, part = key_and_part
        content = source.read()
        files = waiting.setdefault(key, {})
        if part in files:
            duplicate = BadDocument("duplicate_file", f"second {part} file of this name; expected one.", value=key)
            tally.reject(duplicate, where=source.name, raw=content)
            continue
        files[part] = content
        if ".txt" in files and (".ann" in files or (".a1" in files and ".a2" in files)):
            del waiting[key]
            yield key, files.pop(".txt"), _join_standoff(files)
    for key, files in waiting.items():
        text = files.pop(".txt", None)
        if not files:
            tally.note("text without an annotation file (.ann), read as one without mentions")
        yield key, text, _join_standoff(files)


def _join_standoff(files: dict[str, bytes]) -> bytes:
    return b"\n".join(files[part] for part in _STANDOFF if part in files)


def _document(
    id: str, raw_text: bytes | None, raw_standoff: bytes, *, offsets: Offsets, encoding: str, tally: Tally
) -> Document:
    if raw_text is None:
        raise BadDocument("no_text", "there is no .txt file of the same name. Add it.", value=id)
    text = decode(raw_text, encoding)
    annotations = _Annotations(text, tally)
    for number, line in enumerate(decode(raw_standoff, encoding).split("\n"), 1):
        if line and not line.isspace():
            try:
                annotations.add(line.removesuffix("\r"), number)
            except BadDocument:
                if offsets != "keep":
                    raise
                tally.note("line of an annotation dropped: it is malformed")
    passages = (Passage(0, text),) if text else ()
    spans = tuple(
        replace(span, concepts=tuple(annotations.concepts.pop(span.id))) if span.id in annotations.concepts else span
        for span in annotations.spans
    )
    relations, attributes = tuple(annotations.relations), tuple(annotations.attributes)
    if annotations.concepts and offsets == "keep":
        tally.note("normalization of an unknown mention dropped", len(annotations.concepts))
    elif annotations.concepts:
        target = next(iter(annotations.concepts))
        raise BadDocument(
            "unknown_target", f"a normalization refers to {target!r}, which is not a mention.", value=target
        )
    relations, attributes = _restore(relations, attributes, spans, tally)
    known = {span.id for span in spans} | {relation.id for relation in relations}
    comments = {attribute for attribute in attributes if attribute.id.startswith("#") and attribute.target not in known}
    if comments:
        # Annotators may comment on an attribute or a normalization, which a Document cannot represent.
        tally.note("note on something other than a mention or relation ignored", len(comments))
        attributes = tuple(attribute for attribute in attributes if attribute not in comments)
    make = partial(Document, id, passages)
    return settle(make, passages, spans, relations, attributes, offsets=offsets, tally=tally)


def _restore(
    relations: tuple[Relation, ...], attributes: tuple[Attribute, ...], spans: tuple[Span, ...], tally: Tally
) -> tuple[tuple[Relation, ...], tuple[Attribute, ...]]:
    """The relations with the facts in their notes, and the attributes without these notes."""
    notes: dict[str, Attribute] = {}
    for attribute in attributes:
        if attribute.id.startswith("#") and attribute.name == OWN_NOTE:
            notes[attribute.target] = attribute
    concepts = {span.id: span.concepts for span in spans} if notes else {}
    restored: list[Relation] = []
    for relation in relations:
        note = notes.get(relation.id)
        try:
            restored.append(relation if note is None else _with_facts(relation, json.loads(note.value or ""), concepts))
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError, LexomeError):
            # An annotator's own, or one that an annotator has changed: it stays a note.
            tally.note(f"note {OWN_NOTE} without the facts of a relation")
            restored.append(relation)
            del notes[relation.id]
    own = {notes[relation.id].id for relation in relations if relation.id in notes}
    return tuple(restored), tuple(attribute for attribute in attributes if attribute.id not in own)


def _with_facts(relation: Relation, facts: dict[str, Any], mentioned: Mapping[str, Sequence[str]]) -> Relation:
    """The relation with the facts in its note; ValueError if they do not fit it.

    `mentioned` are the concepts of mentions: an argument that an annotator has moved may not have the note's concept.
    """
    concepts = facts.get("concepts") or [None] * len(relation.arguments)
    arguments: list[Argument] = []
    for argument, concept in zip(relation.arguments, concepts, strict=True):
        if concept is not None and concept not in mentioned.get(str(argument.target), ()):
            raise ValueError(f"{argument.target} is not a mention of {concept}")
        arguments.append(argument if concept is None else Argument(argument.role, concept=concept))
    score, novel = facts.get("score"), facts.get("novel")
    return replace(
        relation,
        arguments=tuple(arguments),
        novel=None if novel is None else bool(novel),
        score=None if score is None else float(score),
    )


@dataclass(slots=True)
class _Annotations:
    text: str
    tally: Tally
    spans: list[Span] = field(default_factory=list)
    relations: list[Relation] = field(default_factory=list)
    attributes: list[Attribute] = field(default_factory=list)
    concepts: dict[str, list[str]] = field(default_factory=dict)
    equivalences: int = 0

    def add(self, line: str, number: int) -> None:
        """Add one line; BadDocument if it is malformed."""
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
            self.tally.note("unknown line ignored")

    def _mention(self, id: str, body: str, mention: str | None, number: int) -> None:
        match = _MENTION.fullmatch(body)
        if match is None:
            raise _bad_line(number, body, "a type and offsets, such as 'Gene 0 5' or 'Gene 0 5;16 23'")
        parts = tuple((int(start), int(end)) for start, end in (part.split(" ") for part in match[2].split(";")))
        text = " ".join(self.text[start:end] for start, end in parts)
        if mention is None:
            self.tally.note("mention without its text in the file")
            mention = text
        elif text.translate(_LINE_ENDS) == mention.translate(_LINE_ENDS):
            mention = text  # brat writes line breaks inside a mention as spaces
        self.spans.append(Span(id, unescape_name(match[1]), parts, mention))

    def _relation(self, id: str, body: str, number: int) -> None:
        head, *fields = body.split(" ")
        fields = [field for field in fields if field]
        if id == "*":
            self.equivalences += 1
            members = tuple(Argument("Arg", target) for target in fields)
            self.relations.append(Relation(f"*{self.equivalences}", unescape_name(head), members))
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
            self.tally.note("normalization other than Reference read as one")
        if name:
            self.tally.note("name of a normalization ignored")
        if target.startswith(("E", "R")):
            self.tally.note("normalization of an event or relation ignored")
            return
        self.concepts.setdefault(target, []).append(unescape_name(concept))


def _argument(field: str, number: int) -> Argument:
    role, colon, target = field.rpartition(":")
    if not colon:
        raise _bad_line(number, field, "a role and an id, such as 'Theme:T1'")
    return Argument(unescape_name(role), target)


def _fields(body: str, maximum: int, number: int) -> list[str]:
    fields = body.split(" ", maximum - 1)
    if len(fields) < 2:
        raise _bad_line(number, body, "a name and a target id, such as 'Negation E1'")
    return fields


def _bad_line(number: int, seen: str, expected: str) -> BadDocument:
    return BadDocument("bad_line", f"line {number} has {shorten(seen)!r}; expected {expected}.", value=number)


class FileStems:
    """Unique file names for ids, also on file systems that ignore case."""

    def __init__(self) -> None:
        self._used: dict[str, int] = {}

    def take(self, id: str) -> str:
        """The id's file name; a repeated name gets a number, which id_from_stem removes."""
        stem = file_stem(id)
        number = self._used[stem.lower()] = self._used.get(stem.lower(), 0) + 1
        return stem if stem and number == 1 else f"{stem}%_{number}"


def file_stem(id: str) -> str:
    """The id as a file name without extension: a single path component that is not hidden."""
    stem = quote(encode_utf8(id, "the id"), safe="")
    if len(stem) > MAX_STEM_BYTES:
        raise BadDocument(
            "id_too_long",
            f"the id {shorten(id)!r} makes a file name of {len(stem)} bytes; the limit is {MAX_STEM_BYTES}. "
            "Give the document a shorter id.",
            value=id,
        )
    return f"%2E{stem[1:]}" if stem.startswith(".") else stem


def id_from_stem(stem: str) -> str:
    """The inverse of file_stem; a name that it did not produce is returned unchanged."""
    numbered = _NUMBERED.fullmatch(stem)
    base = numbered[1] if numbered is not None else stem
    id = unquote(base)
    try:
        return id if file_stem(id) == base else stem
    except BadDocument:
        return stem


def escape_name(name: str) -> str:
    """The name with white space and control characters percent-encoded, as one field of a line."""
    return _UNSAFE.sub(lambda match: quote(match[0], safe=""), name)


def unescape_name(field: str) -> str:
    """The inverse of escape_name; a field that it did not produce is returned unchanged."""
    if "%" not in field:
        return field
    name = unquote(field)
    return name if escape_name(name) == field else field


def write(docs: Iterable[Document], folder: Path, *, tally: Tally) -> None:
    """Two files per document in the folder, named by its id, percent-encoded where needed.

    Ids that do not have brat's form (T1, R1, E1, A1) are renumbered. What brat cannot represent is skipped and
    counted. If writing fails, none of its files remain.
    """
    stems = FileStems()
    with fill_folder(folder) as draft:
        for doc in docs:
            make = partial(_standoff, doc, stems, tally)
            files = tally.attempt(make, where=f"document {shorten(doc.id)!r}", id=doc.id)
            if files is None:
                continue
            standoff, stem = files
            for extension, content in ((".ann", standoff), (".txt", doc.text.encode())):
                (draft / f"{stem}{extension}").write_bytes(content)
            tally.written += 1


def _standoff(doc: Document, stems: FileStems, tally: Tally) -> tuple[bytes, str]:
    """The content of a document's .ann file, and the name of its files."""
    first = {concept: mentions[0].id for concept, mentions in doc.concepts.items()}
    relations, attributes = _writable(doc, first, tally)
    doc = _with_notes(replace(doc, relations=relations, attributes=attributes), first, tally)
    relations, attributes = doc.relations, doc.attributes
    letters = [_relation_letter(relation, {span.id for span in doc.spans}) for relation in relations]
    ids = _brat_ids([(span.id, "T") for span in doc.spans])
    ids |= _brat_ids([(relation.id, letter) for relation, letter in zip(relations, letters, strict=True)])
    lines = [*_mention_lines(doc, ids)]
    lines += (_relation_line(relation, letter, ids) for relation, letter in zip(relations, letters, strict=True))
    attribute_ids = _brat_ids(
        [(item.id, next((letter for letter in "#M" if _has_form(item.id, letter)), "A")) for item in attributes]
    )
    lines += (
        _attribute_line(attribute, attribute_ids[attribute.id], ids[attribute.target], tally)
        for attribute in attributes
    )
    if any(old != new for old, new in (*ids.items(), *attribute_ids.items())):
        tally.note("ids renumbered")
    note_losses(doc, tally, supported=_SUPPORTED)
    return encode_utf8("".join(f"{line}\n" for line in lines)), stems.take(doc.id)


def _writable(
    doc: Document, first: Mapping[str, str], tally: Tally
) -> tuple[tuple[Relation, ...], tuple[Attribute, ...]]:
    """The relations whose concepts have a first mention, and the attributes whose target is written."""
    dropped = {
        relation.id
        for relation in doc.relations
        if any(argument.concept is not None and argument.concept not in first for argument in relation.arguments)
    }
    if not dropped:
        return doc.relations, doc.attributes
    tally.note("relation to a concept not written", len(dropped))
    kept = (relation for relation in doc.relations if relation.id not in dropped)
    return drop_dependents(dropped, kept, doc.attributes, tally=tally)


def _with_notes(doc: Document, first: Mapping[str, str], tally: Tally) -> Document:
    """The document with relations to the first mentions of concepts, and notes of what that and brat lose."""
    used = {attribute.id for attribute in doc.attributes}
    ids = (id for number in count(1) if (id := f"#{number}") not in used)
    relations: list[Relation] = []
    notes: list[Attribute] = []
    for relation in doc.relations:
        facts: dict[str, Any] = {}
        if any(argument.concept is not None for argument in relation.arguments):
            facts["concepts"] = [argument.concept for argument in relation.arguments]
            tally.note("relation to a concept written as one to its first mention")
        if relation.score is not None:
            facts["score"] = relation.score
        if relation.novel is not None:
            facts["novel"] = relation.novel
        if facts:
            notes.append(Attribute(next(ids), relation.id, OWN_NOTE, json.dumps(facts, ensure_ascii=False)))
        arguments = tuple(
            argument if argument.concept is None else Argument(argument.role, first[argument.concept])
            for argument in relation.arguments
        )
        relations.append(replace(relation, arguments=arguments, score=None))
    return replace(doc, relations=tuple(relations), attributes=(*doc.attributes, *notes))


def _relation_letter(relation: Relation, spans: set[str]) -> str:
    """* for an equivalence, E for an event, R for other relations."""
    arguments = relation.arguments
    if _has_form(relation.id, "*") and all(argument.role == "Arg" for argument in arguments):
        return "*"
    has_trigger = bool(arguments) and arguments[0].role == "Trigger" and arguments[0].target in spans
    return "E" if has_trigger and not _has_form(relation.id, "R") else "R"


def _has_form(id: str, letter: str) -> bool:
    return id[:1] == letter and id[1:].isascii() and id[1:].isdigit()


def _brat_ids(ids_and_letters: list[tuple[str, str]]) -> dict[str, str]:
    """brat ids by document id: the id itself if it has brat's form, else the letter with the next free number."""
    used = {id for id, letter in ids_and_letters if letter != "*" and _has_form(id, letter)}
    numbers = {letter: count(1) for _, letter in ids_and_letters}
    brat_ids: dict[str, str] = {}
    for id, letter in ids_and_letters:
        if id in used or id in brat_ids:
            brat_ids.setdefault(id, id)
            continue
        # Equivalences have no ids in the file; readers number them in order.
        brat_ids[id] = next(name for number in numbers[letter] if (name := f"{letter}{number}") not in used)
    return brat_ids


def _mention_lines(doc: Document, ids: dict[str, str]) -> Iterator[str]:
    numbers = count(1)
    for span in doc.spans:
        id = ids[span.id]
        offsets = ";".join(f"{start} {end}" for start, end in span.parts)
        yield f"{id}\t{escape_name(span.type)} {offsets}\t{span.text.translate(_LINE_ENDS)}"
        for concept in span.concepts:
            yield f"N{next(numbers)}\tReference {id} {escape_name(concept)}\t"


def _relation_line(relation: Relation, letter: str, ids: dict[str, str]) -> str:
    arguments = [(escape_name(argument.role), ids[str(argument.target)]) for argument in relation.arguments]
    head = escape_name(relation.type)
    if letter == "*":
        return f"*\t{' '.join((head, *(target for _, target in arguments)))}"
    if letter == "E":
        head = f"{head}:{arguments.pop(0)[1]}"
    return f"{ids[relation.id]}\t{' '.join((head, *(f'{role}:{target}' for role, target in arguments)))}"


def _attribute_line(attribute: Attribute, id: str, target: str, tally: Tally) -> str:
    line = f"{id}\t{escape_name(attribute.name)} {target}"
    if attribute.value is None:
        return line
    if not id.startswith("#"):
        return f"{line} {escape_name(attribute.value)}"
    value = attribute.value.translate(_LINE_ENDS)
    if value != attribute.value:
        tally.note("line break in an annotator's note written as a space")
    return f"{line}\t{value}"
