"""spaCy: conversion between Documents and spaCy Docs, and DocBin files.

The text of a spaCy Doc is the Document's text. Each part of a span is a spaCy span in doc.spans["lexome"], with its
type as label, its first concept as kb_id and the span's id, which the parts of a discontinuous span share. Continuous
spans that do not overlap are entities too. The complete Document is stored as JSON in doc.user_data["lexome"], so
the round trip is exact.

DocBin files are msgpack: nothing in them is unpickled or executed.
"""

import gc
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from lexome.document import Document, Passage, Range, Span, numbered_ids
from lexome.errors import BadDocument, FormatError, MissingExtraError, UsageError
from lexome.formats.jsonl import from_json, to_json
from lexome.formats.streams import BLOCK_BYTES, MAX_WHOLE_BYTES, Source, too_large
from lexome.formats.tally import Tally, drop_dependents

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc
    from spacy.vocab import Vocab

T = TypeVar("T")

# The key of the span group and of the entry in user_data.
KEY = "lexome"
# Annotations of other Docs that a Document cannot represent.
IGNORED_ANNOTATIONS = ("TAG", "POS", "MORPH", "LEMMA", "DEP")
# Token attributes in a DocBin: entities and sentence starts.
ATTRIBUTES = ("ENT_IOB", "ENT_TYPE", "ENT_KB_ID", "ENT_ID", "SENT_START")

# Larger gaps between passages would make a Doc of line breaks.
MAX_GAP_CHARACTERS = 1 << 20

# Tokens without a pipeline's tokenizer: runs of characters other than white space and ASCII punctuation; single
# punctuation marks; single spaces; runs of other white space.
_TOKEN = re.compile(r" |[^\S ]+|[!-/:-@\[-`{-~]|[^\s!-/:-@\[-`{-~]+")


@dataclass(frozen=True, slots=True)
class SpanPart:
    """The fields of a spaCy span that a Document uses, with character offsets."""

    start: int
    end: int
    label: str
    concept: str
    id: str


def read(source: Source, *, tally: Tally) -> Iterator[Document]:
    """The documents of a DocBin file: Lexome's own exactly, others with entities, span groups and sentences.

    The DocBin is read into memory; documents are built one by one.
    """
    vocab = _spacy("reading spaCy files").vocab.Vocab()
    packed = _wrap_errors(
        partial(_unpack, source.read(), source.name),
        lambda cause: _damaged_error(source, f"not a DocBin, or a damaged one ({cause})"),
    )
    _wrap_errors(
        lambda: [vocab[string] for string in packed.strings],
        lambda cause: _damaged_error(source, f"the string table is damaged ({cause})"),
    )
    packed.strings = set()
    for index in range(len(packed)):
        yield from tally.accept(
            partial(_document, packed, index, vocab, f"{source.stem}-{index + 1}", tally),
            where=f"{source.name}, document {index + 1}",
        )


def _document(packed: Any, index: int, vocab: "Vocab", name: str, tally: Tally) -> Document:
    """One document of a DocBin, unpacked separately so that a bad one does not affect the others."""
    from spacy.tokens import DocBin

    def build() -> Document:
        one = DocBin()
        one.attrs = packed.attrs
        for column in ("tokens", "spaces", "cats", "span_groups", "flags", "user_data"):
            setattr(one, column, [getattr(packed, column)[index]])
        return from_spacy(next(one.get_docs(vocab)), id=name, tally=tally)

    return _wrap_errors(build, lambda cause: BadDocument("malformed_doc", f"{cause}; expected a Doc in a DocBin"))


def _unpack(raw: bytes, name: str) -> Any:
    from spacy.tokens import DocBin

    unzip = zlib.decompressobj()
    size, remaining = 0, raw
    while remaining and not unzip.eof:
        size += len(unzip.decompress(remaining, BLOCK_BYTES))
        remaining = unzip.unconsumed_tail
        if size > 4 * MAX_WHOLE_BYTES:
            advice = "A DocBin is read into memory: split the file."
            raise too_large(name, "the decompressed content", advice, limit=4 * MAX_WHOLE_BYTES, value=name)
    return DocBin().from_bytes(raw)


def _wrap_errors(make: Callable[[], T], to_error: Callable[[str], Exception]) -> T:
    """The result of `make`; exceptions of spaCy on malformed data become Lexome's."""
    collecting = gc.isenabled()
    try:
        return make()
    except (BadDocument, FormatError):
        raise
    except Exception as error:
        cause = f"{type(error).__name__}: {error}".split("\n", 1)[0]
        raise to_error(cause) from error
    finally:
        # spaCy's msgpack disables garbage collection while it reads; an error leaves it disabled.
        if collecting:
            gc.enable()


def _damaged_error(source: Source, problem: str) -> FormatError:
    return FormatError(f"{source.name}: {problem}. Write or download it again.", code="damaged", value=source.name)


def write(docs: Iterable[Document], stream: BinaryIO, *, tally: Tally, language: str = "en") -> None:
    """One DocBin of all documents, tokenized by spaCy's blank pipeline of the language.

    A DocBin cannot be streamed: the packed tokens of all documents stay in memory until the end.
    """
    spacy = _spacy("writing spaCy files")
    nlp = _blank(language)
    packed = spacy.tokens.DocBin(attrs=ATTRIBUTES, store_user_data=True)
    for doc in docs:
        name = doc.id.encode(errors="backslashreplace").decode()
        spacy_doc = tally.attempt(partial(to_spacy, doc, nlp), where=f"document {doc.id!r}", id=name)
        if spacy_doc is not None:
            packed.add(spacy_doc)
            tally.written += 1
    try:
        stream.write(packed.to_bytes())
    except ValueError as error:
        raise FormatError(
            f"the documents are too large for one DocBin ({error}). Write several files.", code="too-large"
        ) from error


def _blank(language: str) -> "Language":
    import spacy

    try:
        return spacy.blank(language)
    except ImportError as error:
        raise UsageError(
            f"spaCy has no tokenizer for the language {language!r} ({error}). "
            "Set the option language to another code, or to xx for any language.",
            code="unknown-language",
            value=language,
        ) from None


def _spacy(purpose: str) -> Any:
    try:
        import spacy
        import spacy.tokens
        import spacy.vocab
    except ImportError:
        raise MissingExtraError("spacy", extra="spacy", purpose=purpose) from None
    return spacy


def to_spacy(doc: Document, nlp: "Language | Vocab") -> "Doc":
    """The document as a spaCy Doc; from_spacy restores it exactly.

    Tokens are those of the pipeline (or plain words, for a bare vocab), split further where a span, sentence or
    passage begins or ends, so that every mention aligns with tokens.
    """
    spacy = _spacy("conversion to spaCy")
    gaps = sum(-len(passage.text) for passage in doc.passages) + (doc.passages[-1].end if doc.passages else 0)
    if gaps > MAX_GAP_CHARACTERS:
        raise BadDocument(
            "too_long",
            f"there are {gaps:,} characters between the passages, which a spaCy Doc includes; the limit is "
            f"{MAX_GAP_CHARACTERS:,}. Place the passages closer together.",
            value=gaps,
        )
    text = doc.text
    vocab = getattr(nlp, "vocab", nlp)
    has_sentences = any(passage.sentences for passage in doc.passages)
    sentence_starts = {passage.offset for passage in doc.passages}
    sentence_starts.update(start for passage in doc.passages for start, _ in passage.sentences)
    parts = [part for span in doc.spans for part in span.parts]
    starts, ends = sentence_starts | {start for start, _ in parts}, {end for _, end in parts}
    edges = _token_edges(text, nlp) | {passage.end for passage in doc.passages}
    pieces, spaces = _split_tokens(text, edges, starts, ends)
    try:
        spacy_doc = spacy.tokens.Doc(
            vocab,
            words=[text[start:end] for start, end in pieces],
            spaces=spaces,
            sent_starts=[start in sentence_starts for start, _ in pieces] if has_sentences else None,
        )
        _add_spans(spacy_doc, doc, pieces)
        spacy_doc.cats = _categories(doc)
        spacy_doc.user_data[KEY] = to_json(doc).decode()
    except ValueError as error:
        # A lone surrogate in an id or a type.
        raise BadDocument("not_unicode", f"{error}; expected valid Unicode in every field") from None
    return spacy_doc  # type: ignore[no-any-return]


def _token_edges(text: str, nlp: "Language | Vocab") -> set[int]:
    """The boundaries of tokens: the pipeline's, if it has a tokenizer that preserves the text."""
    tokenizer = getattr(nlp, "tokenizer", None)
    tokens = tokenizer(text) if tokenizer is not None else None
    if tokens is not None and tokens.text == text:
        return {edge for token in tokens for edge in (token.idx, token.idx + len(token))}
    return {match.start() for match in _TOKEN.finditer(text)}


def _split_tokens(text: str, edges: set[int], starts: set[int], ends: set[int]) -> tuple[list[Range], list[bool]]:
    """Token ranges that cover the text, and whether a single space follows each.

    A space where something begins, or after which something ends, is a separate token, because in spaCy the space
    after a token belongs to neither side.
    """
    pieces: list[Range] = []
    spaces: list[bool] = []
    cuts = sorted({0, len(text)} | edges | starts | ends)
    for start, end in pairwise(cuts):
        alone = end - start == 1 and text[start] == " " and start not in starts and end not in ends
        if alone and spaces and not spaces[-1]:
            spaces[-1] = True
        else:
            pieces.append((start, end))
            spaces.append(False)
    return pieces, spaces


def _add_spans(spacy_doc: "Doc", doc: Document, pieces: list[Range]) -> None:
    from spacy.tokens import Span as SpacySpan

    first = {start: index for index, (start, _) in enumerate(pieces)}
    after = {end: index + 1 for index, (_, end) in enumerate(pieces)}
    group, whole = [], []
    for span in doc.spans:
        concept = span.concepts[0] if span.concepts else ""
        for start, end in span.parts:
            part = SpacySpan(spacy_doc, first[start], after[end], label=span.type, kb_id=concept, span_id=span.id)
            group.append(part)
            # spaCy rejects entities that begin or end with white space.
            if len(span.parts) == 1 and span.type and span.text == span.text.strip():
                whole.append(part)
    spacy_doc.spans[KEY] = group
    _add_entities(spacy_doc, whole)


def _add_entities(spacy_doc: "Doc", candidates: Iterable[Any]) -> None:
    """Add spans to the entities of a Doc, the longest first, unless they overlap one."""
    entities = list(spacy_doc.ents)
    used = {index for entity in entities for index in range(entity.start, entity.end)}
    for part in sorted(candidates, key=lambda part: (part.start - part.end, part.start)):
        tokens = range(part.start, part.end)
        if used.isdisjoint(tokens):
            used.update(tokens)
            entities.append(part)
    spacy_doc.ents = tuple(entities)


def _categories(doc: Document) -> dict[str, float]:
    """The labels with their scores, which are 1 for labels without one."""
    return dict(zip(doc.labels, doc.label_scores or (1.0,) * len(doc.labels), strict=True))


def add_mentions(spacy_doc: "Doc", doc: Document, *, entities: bool = True) -> None:
    """Store an annotated Document of its text in an existing Doc: as JSON, as spans, and as entities.

    The tokens stay as they are: a mention that begins or ends inside a token covers all of it. The scores of mentions
    are in the attribute "scores" of the group of spans, if all have one.
    """
    group, whole, scores = [], [], []
    for span in doc.spans:
        concept = span.concepts[0] if span.concepts else ""
        for start, end in span.parts:
            part: Any = spacy_doc.char_span(
                start, end, label=span.type, kb_id=concept, span_id=span.id, alignment_mode="expand"
            )
            group.append(part)
            scores.append(span.score)
            if len(span.parts) == 1 and span.type and part.text == part.text.strip():
                whole.append(part)
    spacy_doc.spans[KEY] = group
    if None not in scores:
        spacy_doc.spans[KEY].attrs["scores"] = scores
    if entities:
        _add_entities(spacy_doc, whole)
    spacy_doc.cats |= _categories(doc)
    spacy_doc.user_data[KEY] = to_json(doc).decode()


def from_spacy(spacy_doc: "Doc", *, id: str = "spacy", tally: Tally | None = None) -> Document:
    """The Document of a spaCy Doc: the one it was created from, or a new one of its text.

    Its spans are the current ones of the Doc, in the group "lexome", in other groups and as entities: added spans are
    included, removed ones are not, nor are relations that refer to them. A Doc that Lexome did not create (or a part
    of one) gives one passage with spaCy's tokens and sentences, labels from categories with a score of at least 0.5,
    and the id `id`.
    """
    tally = tally if tally is not None else Tally()
    text = spacy_doc.text
    stored = spacy_doc.user_data.get(KEY)
    known = from_json(stored) if isinstance(stored, str) else None
    if known is None or known.text != text:
        known = document_from_text(spacy_doc, text, id, tally)
    spans = tuple(current_spans(spacy_doc, known, tally))
    return known if spans == known.spans else with_spans(known, spans, tally)


def document_from_text(spacy_doc: "Doc", text: str, id: str, tally: Tally) -> Document:
    """A document of one passage, without spans, from a Doc that Lexome did not create."""
    for name in IGNORED_ANNOTATIONS:
        if spacy_doc.has_annotation(name):
            tally.note(f"spaCy's {name} ignored")
    sentences = spacy_doc.sents if spacy_doc.has_annotation("SENT_START") else ()
    passage = Passage(
        0,
        text,
        sentences=tuple((sentence.start_char, sentence.end_char) for sentence in sentences),
        tokens=tuple((token.idx, token.idx + len(token)) for token in spacy_doc if not token.is_space),
    )
    labels = tuple(label for label, score in spacy_doc.cats.items() if score >= 0.5)
    return Document(id, (passage,) if text else (), labels=labels)


def current_spans(spacy_doc: "Doc", doc: Document, tally: Tally) -> Iterator[Span]:
    """The current spans of a spaCy Doc; unchanged ones keep all fields of the Document's span."""
    group = list(_mentions(spacy_doc.spans.get(KEY, ()), "", doc, tally))
    others = list(_mentions(spacy_doc.ents, "entity", doc, tally))
    for name, spans in spacy_doc.spans.items():
        if name != KEY:
            others += _mentions(spans, name, doc, tally)
    seen = {(mention.start, mention.end, mention.label) for mention in group}
    used = {mention.id for mention in group} | {relation.id for relation in doc.relations} | {""}
    known = {span.id: span for span in doc.spans}
    fresh = (id_ for id_ in numbered_ids("T") if id_ not in used and id_ not in known)
    unchanged = [
        SpanPart(start, end, span.type, span.concepts[0] if span.concepts else "", span.id)
        for span in doc.spans
        for start, end in span.parts
    ]
    yield from doc.spans if group == unchanged else _spans_by_id(group, doc, known, fresh)
    for mention in others:
        key = (mention.start, mention.end, mention.label)
        if key not in seen:
            seen.add(key)
            id_ = mention.id if mention.id not in used else next(fresh)
            used.add(id_)
            yield _span(id_, [mention], doc, known)


def _mentions(spans: Iterable[Any], label: str, doc: Document, tally: Tally) -> Iterator[SpanPart]:
    """spaCy spans as plain values; empty ones and those outside the passages are skipped and noted.

    Only numbers and names are read from spaCy here: a span group in a damaged file may point anywhere.
    """
    for span in spans:
        start, end = span.start_char, span.end_char
        passage = doc.passage_at(start) if 0 <= start < end else None
        if passage is None or end > passage.end:
            tally.note("spaCy span that is empty or not inside one passage skipped")
        else:
            yield SpanPart(start, end, span.label_ or label, span.kb_id_, span.id_)


def _spans_by_id(group: list[SpanPart], doc: Document, known: dict[str, Span], fresh: Iterator[str]) -> Iterator[Span]:
    """The spans of an edited group: one per id, its parts in reading order."""
    relations = {relation.id for relation in doc.relations} | {""}
    parts: dict[str, list[SpanPart]] = {}
    for mention in group:
        parts.setdefault(mention.id if mention.id not in relations else next(fresh), []).append(mention)
    for id_, mentions in parts.items():
        yield _span(id_, sorted(mentions, key=lambda mention: mention.start), doc, known)


def _span(id: str, mentions: list[SpanPart], doc: Document, known: dict[str, Span]) -> Span:
    parts = tuple((mention.start, mention.end) for mention in mentions)
    original = known.get(id)
    # spaCy's entity linker writes NIL for no match; its ids need not be CURIEs.
    concept = mentions[0].concept
    prefix, _, local = concept.partition(":")
    concepts = (concept if prefix and local else f"kb:{concept}",) if concept not in ("", "NIL") else ()
    current = (mentions[0].label, parts, concepts)
    if original is not None and (original.type, original.parts, original.concepts[:1]) == current:
        return original
    text = " ".join(doc.slice(start, end) for start, end in parts)
    return Span(id, mentions[0].label, parts, text, concepts)


def with_spans(doc: Document, spans: tuple[Span, ...], tally: Tally) -> Document:
    """The document with other spans, without relations and attributes of removed ones."""
    removed = {span.id for span in doc.spans} - {span.id for span in spans}
    relations, attributes = drop_dependents(removed, doc.relations, doc.attributes, tally=tally)
    return replace(doc, spans=spans, relations=relations, attributes=attributes)
