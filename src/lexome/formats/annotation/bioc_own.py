"""What BioC has no place for, kept as JSON in an infon named "lexome", so that a document comes back exact.

The infon is written only where the standard elements and infons would not give the same document
back. On a document it may hold attributes, questions, labels, meta (as Lexome's JSON lines have
them) and spans, the order of the mentions; on a passage kind, section, category, language,
source, tokens, sentences (where the text cannot be cut into them) and between, the text around the
sentences where that is not single spaces; on an annotation its concepts; on a relation its arguments.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar, cast

from lexome.document import Argument, Attribute, Question, Range
from lexome.errors import BadDocument, DocumentError
from lexome.metadata import Metadata

KEY = "lexome"


@dataclass(frozen=True, slots=True)
class OfDocument:
    """A document's own fields; `meta` is None where the infons say it all."""

    attributes: tuple[Attribute, ...] = ()
    questions: tuple[Question, ...] = ()
    labels: tuple[str, ...] = ()
    meta: Metadata | None = None
    spans: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OfPassage:
    """A passage's own fields; None and empty ones are as the infons say."""

    kind: str | None = None
    section: tuple[str, ...] = ()
    category: str | None = None
    language: str | None = None
    source: str | None = None
    sentences: tuple[Range, ...] = ()
    tokens: tuple[Range, ...] = ()
    between: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OfAnnotation:
    """The concepts of a mention, where its ids cannot be written in BioC's usual way."""

    concepts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OfRelation:
    """The arguments of a relation, where its nodes and infons cannot name them all."""

    arguments: tuple[Argument, ...] = ()


Own = TypeVar("Own", OfDocument, OfPassage, OfAnnotation, OfRelation)


def infons_of(own: OfDocument | OfPassage | OfAnnotation | OfRelation) -> dict[str, str]:
    """The infon that holds these fields, or none where all are empty."""
    if own == type(own)():
        return {}
    try:
        raw: str = _adapter(cast(Any, type(own))).dump_json(own, exclude_defaults=True).decode()
    except ValueError:
        raise BadDocument("not_unicode", "the document has half a surrogate pair; expected whole characters") from None
    # JSON escapes control characters itself; these two XML cannot hold either.
    return {KEY: raw.replace("\ufffe", "\\ufffe").replace("\uffff", "\\uffff")}


def read_own(kind: type[Own], raw: str | None) -> Own | None:
    """The fields in such an infon; BadDocument says which is wrong."""
    if raw is None:
        return None
    from pydantic import ValidationError

    try:
        own: Own = _adapter(cast(Any, kind)).validate_json(raw, extra="forbid")
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        cause = first.get("ctx", {}).get("error")
        if isinstance(cause, DocumentError):
            raise cause from None
        field = ".".join(str(step) for step in first["loc"]) or KEY
        raise BadDocument("bad_field", f"infon {KEY!r}, {field}: {first['msg']}; expected what Lexome writes") from None
    return own


@cache
def _adapter(kind: Any) -> Any:
    """pydantic's validator, made on first use: it takes a tenth of a second to import."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)
