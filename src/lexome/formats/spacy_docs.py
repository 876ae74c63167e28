"""spaCy: Documents as spaCy's Doc objects and back, and the DocBin files that hold them.

The text of a spaCy doc is the Document's text, character for character. Each part of a span is a
spaCy span in doc.spans["lexome"], with its type as label, its first concept as kb_id and the span's id;
the parts of a discontinuous span share that id. Spans that are whole and apart are entities too. The
complete Document goes along as JSON in doc.user_data["lexome"], so the way back is exact.

DocBin files are msgpack and hold no code: nothing in them is unpickled or run.
"""

import gc
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from lexome.document import Document, Passage, Range, Relation, Span, numbered_ids
from lexome.errors import BadDocument, FormatError, MissingExtraError, UsageError
from lexome.formats.jsonl import from_json, to_json
from lexome.formats.streams import BLOCK_BYTES, MAX_WHOLE_BYTES, Source
from lexome.formats.tally import Tally

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc
    from spacy.vocab import Vocab

# The key of our span group and of our entry in user_data.
KEY = "lexome"

# Annotations of foreign docs that a Document has no field for.
UNREAD = ("TAG", "POS", "MORPH", "LEMMA", "DEP")


@dataclass(frozen=True, slots=True)
class Mention:
    """A spaCy span in characters, as far as a Document can use it."""

    start: int
    end: int
    label: str
    concept: str
    id: str


def plain_document(spacy_doc: "Doc", text: str, id: str, tally: Tally) -> Document:
    """A document of one passage, without spans, from a spaCy doc that is not ours."""
    for name in UNREAD:
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


def _mentions(spans: Iterable[Any], label: str, doc: Document, tally: Tally) -> Iterator[Mention]:
    """spaCy spans as plain values, those without text or outside the passages left out and noted.

    Only numbers and names are asked of spaCy here: a span group in a damaged file may point anywhere.
    """
    for span in spans:
        start, end = span.start_char, span.end_char
        passage = doc.passage_at(start) if 0 <= start < end else None
        if passage is None or end > passage.end:
            tally.note("spaCy span that is empty or not inside one passage, left out")
        else:
            yield Mention(start, end, span.label_ or label, span.kb_id_, span.id_)


def current_spans(spacy_doc: "Doc", doc: Document, tally: Tally) -> Iterator[Span]:
    """The spans a spaCy doc has now; those that the document knows come with all that it knows of them."""
    group = list(_mentions(spacy_doc.spans.get(KEY, ()), "", doc, tally))
    others = list(_mentions(spacy_doc.ents, "entity", doc, tally))
    for name, spans in spacy_doc.spans.items():
        if name != KEY:
            others += _mentions(spans, name, doc, tally)
    seen = {(mention.start, mention.end, mention.label) for mention in group}
    taken = {mention.id for mention in group} | {relation.id for relation in doc.relations} | {""}
    known = {span.id: span for span in doc.spans}
    fresh = (id_ for id_ in numbered_ids("T") if id_ not in taken and id_ not in known)
    yield from doc.spans if group == _own(doc) else _regrouped(group, doc, known, fresh)
    for mention in others:
        key = (mention.start, mention.end, mention.label)
        if key not in seen:
            seen.add(key)
            id_ = mention.id if mention.id not in taken else next(fresh)
            taken.add(id_)
            yield _span(id_, [mention], doc, known)


def _own(doc: Document) -> list[Mention]:
    """What our span group holds after to_spacy."""
    return [
        Mention(start, end, span.type, span.concepts[0] if span.concepts else "", span.id)
        for span in doc.spans
        for start, end in span.parts
    ]


def _regrouped(group: list[Mention], doc: Document, known: dict[str, Span], fresh: Iterator[str]) -> Iterator[Span]:
    """The spans of our group after someone changed it: one for each id, its parts in reading order."""
    relations = {relation.id for relation in doc.relations} | {""}
    parts: dict[str, list[Mention]] = {}
    for mention in group:
        parts.setdefault(mention.id if mention.id not in relations else next(fresh), []).append(mention)
    for id_, mentions in parts.items():
        yield _span(id_, sorted(mentions, key=lambda mention: mention.start), doc, known)


def _span(id: str, mentions: list[Mention], doc: Document, known: dict[str, Span]) -> Span:
    parts = tuple((mention.start, mention.end) for mention in mentions)
    before = known.get(id)
    concepts = _concepts(mentions[0])
    if before is not None and (before.type, before.parts, before.concepts[:1]) == (mentions[0].label, parts, concepts):
        return before
    text = " ".join(doc.slice(start, end) for start, end in parts)
    return Span(id, mentions[0].label, parts, text, concepts)


def _concepts(mention: Mention) -> tuple[str, ...]:
    # spaCy's linker says NIL for nothing found; its ids need not be CURIEs, ours are.
    if mention.concept in ("", "NIL"):
        return ()
    prefix, colon, local = mention.concept.partition(":")
    return (mention.concept if prefix and colon and local else f"kb:{mention.concept}",)


def with_spans(doc: Document, spans: tuple[Span, ...], tally: Tally) -> Document:
    """The document with other spans, and without the links to those that are gone."""
    kept = list(doc.relations)
    while True:
        targets = _ids(spans, kept)
        held = [relation for relation in kept if _holds(relation, targets)]
        if len(held) == len(kept):
            break
        kept = held
    attributes = tuple(attribute for attribute in doc.attributes if attribute.target in targets)
    lost = len(doc.relations) - len(kept) + len(doc.attributes) - len(attributes)
    if lost:
        tally.note("relation or attribute of a span removed in spaCy, left out", lost)
    return replace(doc, spans=spans, relations=tuple(kept), attributes=attributes)


def _holds(relation: Relation, targets: set[str]) -> bool:
    return all(argument.target is None or argument.target in targets for argument in relation.arguments)


def _ids(spans: Iterable[Span], relations: Iterable[Relation]) -> set[str]:
    return {span.id for span in spans} | {relation.id for relation in relations}


Made = TypeVar("Made")

# What a DocBin stores of each token beside its text: entities and sentence starts.
ATTRIBUTES = ("ENT_IOB", "ENT_TYPE", "ENT_KB_ID", "ENT_ID", "SENT_START")

# Offsets far beyond the text would make a spaCy doc of nothing but line breaks.
MAX_GAP_CHARACTERS = 1 << 20

# Without a pipeline's own tokenizer: runs of letters, digits and anything else that is neither space
# nor ASCII punctuation; each mark of punctuation alone; each space alone; other white space in runs.
_TOKEN = re.compile(r" |[^\S ]+|[!-/:-@\[-`{-~]|[^\s!-/:-@\[-`{-~]+")


def read(source: Source, *, tally: Tally) -> Iterator[Document]:
    """The documents of a DocBin file: Lexome's own exactly, others with entities, span groups and sentences.

    A DocBin is one block and is held in memory, documents are built one by one.
    """
    vocab = _spacy("reading spaCy files").vocab.Vocab()
    packed = _safely(
        partial(_unpacked, source.read(), source.name),
        lambda cause: FormatError(f"{source.name}: not a DocBin, or a damaged one ({cause}). Write or fetch it again."),
    )
    _safely(
        lambda: [vocab[string] for string in packed.strings],
        lambda cause: FormatError(f"{source.name}: its strings are damaged ({cause}). Write or fetch it again."),
    )
    packed.strings = set()
    for index in range(len(packed)):
        doc = tally.attempt(
            partial(_document, packed, index, vocab, f"{source.stem}-{index + 1}", tally),
            where=f"{source.name}, document {index + 1}",
        )
        if doc is not None:
            yield doc


def write(docs: Iterable[Document], stream: BinaryIO, *, tally: Tally, language: str = "en") -> None:
    """All documents as one DocBin, tokens cut as spaCy's blank pipeline of the language cuts them.

    The form allows no streaming: the packed tokens of all documents are held until the end.
    """
    spacy = _spacy("writing spaCy files")
    nlp = _blank(language)
    packed = spacy.tokens.DocBin(attrs=ATTRIBUTES, store_user_data=True)
    for doc in docs:
        name = doc.id.encode(errors="backslashreplace").decode()
        made = tally.attempt(partial(to_spacy, doc, nlp), where=f"document {doc.id!r}", id=name)
        if made is not None:
            packed.add(made)
            tally.written += 1
    try:
        stream.write(packed.to_bytes())
    except ValueError as error:
        raise FormatError(f"spaCy cannot pack so much into one DocBin ({error}). Write several files.") from error


def to_spacy(doc: Document, nlp: "Language | Vocab") -> "Doc":
    """The document as a spaCy doc; from_spacy gives it back exactly.

    Tokens are those of the pipeline (or plain words, for a bare vocab), cut further wherever a span,
    a sentence or a passage begins or ends, so that every mention is a whole number of tokens.
    """
    spacy = _spacy("making spaCy docs")
    _require_text(doc)
    text = doc.text
    vocab = getattr(nlp, "vocab", nlp)
    starts, ends = _edges(doc)
    edges = _token_edges(text, nlp) | {passage.end for passage in doc.passages}
    pieces, spaces = _cut(text, edges, starts, ends)
    try:
        made = spacy.tokens.Doc(
            vocab,
            words=[text[start:end] for start, end in pieces],
            spaces=spaces,
            sent_starts=_sentence_starts(doc, pieces),
        )
        _add_spans(made, doc, pieces)
        made.cats = dict.fromkeys(doc.labels, 1.0)
        made.user_data[KEY] = to_json(doc).decode()
    except ValueError as error:
        # Half a surrogate pair in an id or a type, in spaCy's or pydantic's words.
        raise BadDocument("not_unicode", f"{error}; expected whole Unicode characters in every field") from None
    return made  # type: ignore[no-any-return]


def from_spacy(spacy_doc: "Doc", *, id: str = "spacy", tally: Tally | None = None) -> Document:
    """The Document of a spaCy doc: the one it was made from, or a new one of its text.

    Its spans are what the spaCy doc has now, in the group "lexome", in other groups and as entities: what
    a pipeline or a person added is there, what was removed is gone, with the relations that named
    it. A doc that Lexome did not make (or of which only a part is left) has one passage with spaCy's
    tokens and sentences, and labels from categories scored 0.5 or more; `id` is its name then.
    """
    tally = tally if tally is not None else Tally()
    text = spacy_doc.text
    stored = spacy_doc.user_data.get(KEY)
    known = from_json(stored) if isinstance(stored, str) else None
    if known is None or known.text != text:
        known = plain_document(spacy_doc, text, id, tally)
    spans = tuple(current_spans(spacy_doc, known, tally))
    return known if spans == known.spans else with_spans(known, spans, tally)


def _spacy(purpose: str) -> Any:
    try:
        import spacy
        import spacy.tokens
        import spacy.vocab
    except ImportError:
        raise MissingExtraError("spacy", extra="spacy", purpose=purpose) from None
    return spacy


def _blank(language: str) -> "Language":
    import spacy

    try:
        return spacy.blank(language)
    except ImportError as error:
        raise UsageError(
            f"spaCy has no tokenizer for the language {language!r} here ({error}). "
            "Give another code with the option language, or xx for any language."
        ) from None


def _safely(make: Callable[[], Made], complaint: Callable[[str], Exception]) -> Made:
    """What `make` returns; whatever spaCy raises over strange bytes becomes our own error."""
    collecting = gc.isenabled()
    try:
        return make()
    except (BadDocument, FormatError):
        raise
    except Exception as error:
        cause = f"{type(error).__name__}: {error}".split("\n", 1)[0]
        raise complaint(cause) from error
    finally:
        # spaCy's msgpack turns the collector off while it reads, and an error leaves it off.
        if collecting:
            gc.enable()


def _unpacked(raw: bytes, name: str) -> Any:
    from spacy.tokens import DocBin

    unzip = zlib.decompressobj()
    size, waiting = 0, raw
    while waiting and not unzip.eof:
        size += len(unzip.decompress(waiting, BLOCK_BYTES))
        waiting = unzip.unconsumed_tail
        if size > 4 * MAX_WHOLE_BYTES:
            raise FormatError(
                f"{name}: unpacks to more than {4 * MAX_WHOLE_BYTES >> 20} MiB, and a DocBin is read whole. "
                "Cut it into several files."
            )
    return DocBin().from_bytes(raw)


def _document(packed: Any, index: int, vocab: "Vocab", name: str, tally: Tally) -> Document:
    """One document of a DocBin, on its own so that a bad one leaves the others readable."""
    from spacy.tokens import DocBin

    def build() -> Document:
        one = DocBin()
        one.attrs = packed.attrs
        for column in ("tokens", "spaces", "cats", "span_groups", "flags", "user_data"):
            setattr(one, column, [getattr(packed, column)[index]])
        return from_spacy(next(one.get_docs(vocab)), id=name, tally=tally)

    return _safely(
        build, lambda cause: BadDocument("malformed_doc", f"{cause}; expected what spaCy's DocBin writes for a doc")
    )


def _require_text(doc: Document) -> None:
    gaps = sum(-len(passage.text) for passage in doc.passages) + (doc.passages[-1].end if doc.passages else 0)
    if gaps > MAX_GAP_CHARACTERS:
        raise BadDocument(
            "too_long",
            f"{gaps:,} characters lie between the passages; a spaCy doc has them all, and at most "
            f"{MAX_GAP_CHARACTERS:,} were expected. Place the passages closer together.",
        )


def _edges(doc: Document) -> tuple[set[int], set[int]]:
    """Where a passage, sentence or mention begins, and where a mention ends."""
    starts = {passage.offset for passage in doc.passages}
    starts.update(start for passage in doc.passages for start, _ in passage.sentences)
    ends = set()
    for span in doc.spans:
        for start, end in span.parts:
            starts.add(start)
            ends.add(end)
    return starts, ends


def _token_edges(text: str, nlp: "Language | Vocab") -> set[int]:
    """Where tokens begin and end: the pipeline's, where it has a tokenizer that keeps the text."""
    tokenizer = getattr(nlp, "tokenizer", None)
    tokens = tokenizer(text) if tokenizer is not None else None
    if tokens is not None and tokens.text == text:
        return {edge for token in tokens for edge in (token.idx, token.idx + len(token))}
    return {match.start() for match in _TOKEN.finditer(text)}


def _cut(text: str, edges: set[int], starts: set[int], ends: set[int]) -> tuple[list[Range], list[bool]]:
    """Token ranges that make up the whole text, and whether a single space follows each.

    A space at which something begins, or after which something ends, is a token of its own: spaCy
    counts the space after a token to neither side.
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


def _sentence_starts(doc: Document, pieces: list[Range]) -> list[bool] | None:
    """For each token whether a sentence begins there; None where the document has no sentences."""
    if not any(passage.sentences for passage in doc.passages):
        return None
    starts = {passage.offset for passage in doc.passages}
    starts.update(start for passage in doc.passages for start, _ in passage.sentences)
    return [start in starts for start, _ in pieces]


def _add_spans(made: "Doc", doc: Document, pieces: list[Range]) -> None:
    from spacy.tokens import Span as SpacySpan

    first = {start: index for index, (start, _) in enumerate(pieces)}
    after = {end: index + 1 for index, (_, end) in enumerate(pieces)}
    group, whole = [], []
    for span in doc.spans:
        concept = span.concepts[0] if span.concepts else ""
        for start, end in span.parts:
            part = SpacySpan(made, first[start], after[end], label=span.type, kb_id=concept, span_id=span.id)
            group.append(part)
            # spaCy trains on entities, and refuses those that begin or end with white space.
            if len(span.parts) == 1 and span.type and span.text == span.text.strip():
                whole.append(part)
    made.spans[KEY] = group
    taken: set[int] = set()
    entities = []
    for part in sorted(whole, key=lambda part: (part.start - part.end, part.start)):
        tokens = range(part.start, part.end)
        if taken.isdisjoint(tokens):
            taken.update(tokens)
            entities.append(part)
    made.ents = tuple(entities)
