"""Documents with every field filled, made from the model's own type hints, so that a new field is covered at once."""

from dataclasses import MISSING, Field, fields, is_dataclass, replace
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from lexome import Answer, Argument, Attribute, Document, Passage, Question, Relation, Span

TITLE = "Zorblin (ZBL1) and left and right ventricle\x00 — naïve 🧬 μ"
ABSTRACT = "Background: ZBL1 binds\n\tquuxamide\u00a0 in e\u0301lan mice.\u0085 It did.\u2028 Nothing else <b>&amp;\r\n"

_PASSAGES = (
    Passage(
        3,
        TITLE,
        "title",
        ("Front", "Front / “matter”"),
        "TITLE",
        "en",
        "article-title \x00 測試",
        sentences=((3, 20), (20, 3 + len(TITLE))),
        tokens=((3, 10), (11, 11), (12, 16)),
    ),
    Passage(
        70,
        ABSTRACT,
        "abstract",
        ("Abstract",),
        "BACKGROUND",
        "de",
        "pubmed",
        sentences=((70, 90),),
        tokens=((70, 80), (80, 81)),
    ),
)

# What a value made from the type alone would get wrong: offsets, links and CURIEs must hold together.
_GIVEN: dict[tuple[type, str], Any] = {
    (Document, "id"): "full-1 é|\x00 <&>",
    (Document, "passages"): _PASSAGES,
    (Document, "spans"): (
        Span("T1", "Gene", ((12, 16),), "ZBL1", ("NCBIGene:999999", "hgnc:0"), 0.1),
        Span("T2", 'Anatomy "x" <y>', ((22, 26), (37, 46)), "left ventricle", ("uberon:0002084",), -1e-300),
        Span("T3", "Gene", ((82, 86),), "ZBL1", ("NCBIGene:999999",), 1.0),
        Span("T4", "Chemical", ((94, 103),), "quuxamide", ("mesh:C000000", "x:y:z/é"), 0.0),
    ),
    (Document, "relations"): (
        Relation("R1", "binds", (Argument("Theme", "T3"), Argument("Cause", None, "mesh:C000000")), True, 0.75),
        Relation("R2", "regulates", (Argument("Trigger", "T1"), Argument("Theme", "R1")), False, 1e-7),
    ),
    (Document, "attributes"): (
        Attribute("A1", "T1", "Negation", "yes"),
        Attribute("A2", "R1", "Speculation", "weak \x00"),
    ),
    (Answer, "text"): "quuxamide",
    (Answer, "start"): 94,
    (Question, "concepts"): ("mesh:C000000", "go:0008150"),
}


def full_document() -> Document:
    """A document in which no field of any part is left at its default or empty."""
    document: Document = _filled(Document, "document")
    return document


def full_documents() -> list[Document]:
    """The full document and the sparse ones around it: empty, without text, bare, only metadata, each flag turned."""
    full = full_document()
    bare = Document("bare", (Passage(0, "One passage."),))
    return [
        full,
        Document(""),
        Document("empty passage", (Passage(0, ""),)),
        bare,
        replace(bare, id="only metadata", passages=(), meta=full.meta),
        replace(bare, id="labeled", labels=("", "a", "a", "é\x00")),
        replace(full, id="no metadata", meta=Document("x").meta),
        replace(full, id="empty parts", meta=_emptied(full.meta), questions=(Question("q", "Why?"),)),
        replace(
            full,
            id="unscored",
            spans=tuple(replace(span, score=None, concepts=()) for span in full.spans),
            relations=tuple(replace(relation, novel=None, score=None) for relation in full.relations),
            attributes=tuple(replace(attribute, value=None) for attribute in full.attributes),
        ),
        replace(bare, id="relation without arguments", relations=(Relation("R1", "alone", ()),)),
    ]


def _emptied(meta: Any) -> Any:
    """The same metadata, its optional parts present with nothing in them and its texts empty."""
    parts = ("journal", "note")
    blank = {part: type(getattr(meta, part))() for part in parts}
    return replace(meta, **blank, license="", deleted=False, languages=("",), authors=(type(meta.authors[0])(),))


def _filled(cls: type, path: str) -> Any:
    hints = get_type_hints(cls)
    return cls(**{field.name: _value(cls, field, hints[field.name], f"{path}.{field.name}") for field in fields(cls)})


def _value(cls: type, field: Field[Any], hint: Any, path: str) -> Any:
    if (cls, field.name) in _GIVEN:
        return _GIVEN[cls, field.name]
    value = _of_type(hint, path)
    # A flag is turned away from what it is when nothing is said.
    return not field.default if isinstance(value, bool) and field.default is not MISSING else value


def _of_type(hint: Any, path: str) -> Any:
    """A value of a type hint; its text names the field it stands in, so that a mix-up shows."""
    if is_dataclass(hint):
        return _filled(hint, path)  # type: ignore[arg-type]
    if get_origin(hint) in (Union, UnionType):
        return _of_type(next(choice for choice in get_args(hint) if choice is not type(None)), path)
    if get_origin(hint) is tuple:
        inner = get_args(hint)[0]
        return (_of_type(inner, f"{path}[0]"), _of_type(inner, f"{path}[1]"))
    simple: dict[type, Any] = {str: f"{path} é🧬\x00", int: 7, float: 0.1, bool: True}
    return simple[hint]
