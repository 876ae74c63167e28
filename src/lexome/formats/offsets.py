"""What is done with annotations that do not match their text: the option `offsets` of readers.

keep    the document is kept: a mention at the right place takes the text's own spelling, any other is dropped, both
        with a note; a document of which most mentions fail is rejected, for its offsets count something else
strict  the document is rejected
repair  a mention is moved to the nearest occurrence of its text, or dropped
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from html import unescape
from typing import Literal

from lexome.document import Attribute, Document, Passage, Relation, Span
from lexome.errors import BadDocument, DocumentError
from lexome.formats.tally import Tally, drop_dependents, repair_spans

Offsets = Literal["keep", "strict", "repair"]
Make = Callable[[tuple[Span, ...], tuple[Relation, ...], tuple[Attribute, ...]], Document]

# Of fewer mentions than this, more than half may fail by chance.
MIN_FAILURES = 3


def settle(
    make: Make,
    passages: Sequence[Passage],
    spans: tuple[Span, ...],
    relations: tuple[Relation, ...],
    attributes: tuple[Attribute, ...],
    *,
    offsets: Offsets,
    tally: Tally,
) -> Document:
    """The document that `make` builds from its annotations, after what `offsets` says is done with bad ones."""
    if offsets == "repair":
        return make(*repair_spans(passages, spans, relations, attributes, tally=tally))
    try:
        return make(spans, relations, attributes)
    except DocumentError as error:
        if offsets == "strict" or error.reason not in ("offset_mismatch", "bad_offset", "unknown_target"):
            raise
        failure = error
    kept, dropped = _matching(make((), (), ()), spans, failure, tally)
    known = {span.id for span in kept} | {relation.id for relation in relations}
    targets = {argument.target for relation in relations for argument in relation.arguments}
    targets |= {attribute.target for attribute in attributes}
    unknown = {target for target in targets if target is not None and target not in known}
    return make(kept, *drop_dependents(dropped | unknown, relations, attributes, tally=tally))


def _matching(
    bare: Document, spans: tuple[Span, ...], failure: BadDocument, tally: Tally
) -> tuple[tuple[Span, ...], set[str]]:
    """The spans with the spelling of the text, and the ids of those dropped."""
    kept: list[Span] = []
    respelled = 0
    for span in spans:
        try:
            text = bare.text_of(span)
        except BadDocument:  # beyond the end
            continue
        if text == span.text:
            kept.append(span)
        elif len(text) == sum(end - start for start, end in span.parts) + len(span.parts) - 1 and is_respelling(
            span.text, text
        ):
            respelled += 1
            kept.append(replace(span, text=text))
    dropped = {span.id for span in spans} - {span.id for span in kept}
    if len(dropped) >= MIN_FAILURES and 2 * len(dropped) > len(spans):
        raise failure
    if respelled:
        tally.note("mention spelled as in the text", respelled)
    if dropped:
        tally.note("mention dropped: the text at its offsets is another", len(dropped))
    return tuple(kept), dropped


def is_respelling(mention: str, text: str) -> bool:
    """Whether a mention is the text in another spelling: escaped, with other spaces, or with letters replaced.

    Many tools write a for α, a plain space for a no-break space, and ? for what they do not know.
    """
    if unescape(mention) == text:
        return True
    if len(mention) != len(text):
        return False
    pairs = [(one, other) for one, other in zip(mention, text, strict=True) if one != other]
    replaced = all((one.isspace() and other.isspace()) or not (one + other).isascii() for one, other in pairs)
    # A mention of one replaced letter is its text; of longer ones, half must be the same.
    return replaced and (len(text) <= 2 or 2 * len(pairs) <= len(text))
