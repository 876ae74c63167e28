"""Reader of DrugProt's files: abstracts, entities and relations as columns of three tables.

abstracts   PMID, title, abstract
entities    PMID, id, CHEMICAL or GENE-Y or GENE-N, start, end, text; offsets are of title + one character + abstract
relations   PMID, type, Arg1:T1, Arg2:T2
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from lexome.document import Argument, Document, Relation, Span, lay_out, shorten
from lexome.errors import BadDocument
from lexome.formats.streams import Source, decode
from lexome.formats.tally import Tally

TABLES = ("abstracts", "entities", "relations")


def read_drugprot(sources: Iterable[Source], *, tally: Tally) -> Iterator[Document]:
    """A document for each abstract, with its entities and relations."""
    tables: dict[str, defaultdict[str, list[list[str]]]] = {}
    for source in sources:
        name = next((name for name in TABLES if name in source.stem), None)
        if name is None:
            tally.note("file of another name skipped")
            continue
        rows = tables.setdefault(name, defaultdict(list))
        for line in decode(source.read(), "utf-8").splitlines():
            if line.strip():
                pmid, *columns = line.split("\t")
                rows[pmid].append(columns)
    empty: defaultdict[str, list[list[str]]] = defaultdict(list)
    entities, relations = tables.get("entities", empty), tables.get("relations", empty)
    for pmid, texts in tables.get("abstracts", empty).items():
        make = partial(_document, pmid, texts, entities.get(pmid, ()), relations.get(pmid, ()))
        yield from tally.accept(make, where=f"abstract {pmid}", id=pmid, raw=None)
    for name in ("entities", "relations"):
        if missing := tables.get(name, empty).keys() - tables.get("abstracts", empty).keys():
            tally.note(f"{name} of an abstract that is not there skipped", len(missing))


def _document(
    pmid: str, texts: Sequence[list[str]], entities: Sequence[list[str]], relations: Sequence[list[str]]
) -> Document:
    if len(texts) != 1 or len(texts[0]) != 2:
        message = f"abstract {shorten(pmid)!r} has {len(texts)} rows; expected one, with PMID, title and abstract."
        raise BadDocument("bad_field", message, value=pmid)
    passages = lay_out([("title", texts[0][0]), ("abstract", texts[0][1])])
    spans = []
    for columns in entities:
        if len(columns) != 5 or not (columns[2].isdecimal() and columns[3].isdecimal()):
            expected = "id, type, start, end, text"
            message = f"abstract {shorten(pmid)!r}: an entity has the columns {columns}; expected {expected}."
            raise BadDocument("bad_field", message, value=pmid)
        id, type_, start, end, text = columns
        spans.append(Span(id, type_, ((int(start), int(end)),), text))
    found = []
    for number, columns in enumerate(relations, 1):
        sides = [side.partition(":") for side in columns[1:]]
        if len(columns) != 3 or not all(target for _, _, target in sides):
            expected = "type, Arg1:T1, Arg2:T2"
            message = f"abstract {shorten(pmid)!r}: a relation has the columns {columns}; expected {expected}."
            raise BadDocument("bad_field", message, value=pmid)
        arguments = tuple(Argument(role, target) for role, _, target in sides)
        found.append(Relation(f"R{number}", columns[0], arguments))
    return Document(pmid, passages, tuple(spans), tuple(found))
