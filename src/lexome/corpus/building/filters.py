"""Reasons to drop a document, and passages to leave out of it; each reason is counted by its name."""

from collections.abc import Sequence
from dataclasses import replace

from lexome.corpus.building.language import language_of, two_letters
from lexome.corpus.building.licences import allowed, licence_name
from lexome.document import Document, Passage
from lexome.formats.repair import without
from lexome.formats.tally import Tally


def stated_reason(doc: Document, *, licences: str, retracted: str) -> str | None:
    """Why what a document says about itself forbids to use it, or None.

    Retracted first, so that a retracted article is never counted as a matter of licences.
    """
    if doc.meta.retracted and retracted == "drop":
        return "retracted"
    return None if allowed(licence_name(doc.meta), licences) else "licence"


def text_reason(words: Sequence[str], count: int, *, languages: Sequence[str], min_words: int) -> str | None:
    """Why a document's text is not worth keeping, or None; `count` is its size in words between spaces."""
    if count == 0:
        return "empty"
    if count < min_words:
        return "too_short"
    return None if not languages or language_of(words) in languages else "language"


def running_text(doc: Document, *, leave_out: Sequence[str], languages: Sequence[str], tally: Tally) -> Document:
    """The document without passages of these kinds, without empty ones and without those said to be in other languages.

    Spans in what is left out go with it, and the relations between them.
    """
    kept = tuple(passage for passage in doc.passages if _left_out(passage, leave_out, languages, tally) is None)
    if len(kept) == len(doc.passages):
        return doc
    if not (doc.spans or doc.questions):
        return replace(doc, passages=kept)
    starts = {passage.offset for passage in kept}
    gone = {span.id for span in doc.spans if not _stands_in(doc, span.parts, starts)}
    relations, attributes = without(gone, doc.relations, doc.attributes, tally=tally)
    spans = tuple(span for span in doc.spans if span.id not in gone)
    return replace(doc, passages=kept, spans=spans, relations=relations, attributes=attributes, questions=())


def _left_out(passage: Passage, kinds: Sequence[str], languages: Sequence[str], tally: Tally) -> str | None:
    """The note for a passage that is left out."""
    if passage.kind in kinds:
        note = f"{passage.kind} left out"
    elif languages and passage.language and two_letters(passage.language) not in languages:
        note = "passage in another language left out"
    elif not passage.text or passage.text.isspace():
        note = "empty passage left out"
    else:
        return None
    tally.note(note)
    return note


def _stands_in(doc: Document, parts: Sequence[tuple[int, int]], starts: set[int]) -> bool:
    places = (doc.passage_at(start) for start, _ in parts)
    return all(passage is not None and passage.offset in starts for passage in places)
