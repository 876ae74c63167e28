"""Mentions side by side: strict, relaxed, without types, character by character, and why they differ."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from lexome.document import Document, Range
from lexome.tasks.evaluation.comparison import Difference, Measured, Pair, Pairs, Sentence, around, counted, tags_of
from lexome.tasks.metrics.spans import (
    ANY_TYPE,
    Agreement,
    Counts,
    Mention,
    agreement,
    characters,
    largest_matching,
    mentions,
    overlapping,
    sentence_counts,
    spans_discontinuous,
    spans_relaxed,
    spans_strict,
    without_spaces,
)
from lexome.tasks.metrics.tagging import Chunk, conlleval, scheme_chunks, seqeval, strict_chunks, token_accuracy
from lexome.tasks.metrics.tagging import conll_chunks as conll_chunks

MENTIONS = "mentions"

# The type of BC2GM's alternatives, which are no mentions of their own.
ALTERNATIVE = "ALTGENE"


@dataclass(frozen=True, slots=True)
class _Marked:
    """A document's mentions, gold and found."""

    pair: Pair
    gold: list[Mention]
    found: list[Mention]


def mention_measures(pairs: Sequence[Pair], only: Collection[str] | None = None) -> list[Measured]:
    """Every measure of mentions; none where neither gold nor predictions have any."""
    marked = _marked(pairs, only)
    if not any(doc.gold or doc.found for doc in marked):
        return []
    both = [([doc.gold], [doc.found]) for doc in marked]
    measures = [
        counted(MENTIONS, "strict", [spans_strict(*two) for two in both]),
        counted(MENTIONS, "relaxed (overlap)", [spans_relaxed(*two) for two in both]),
        counted(MENTIONS, "characters", [characters(*two) for two in both]),
    ]
    if len({mention.type for doc in marked for mention in (*doc.gold, *doc.found)}) > 1:
        untyped = [spans_strict(*two, typed=False) for two in both]
        measures.append(counted(MENTIONS, "strict, types ignored", untyped))
        untyped = [spans_relaxed(*two, typed=False) for two in both]
        measures.append(counted(MENTIONS, "relaxed, types ignored", untyped))
    apart = [spans_discontinuous(*two) for two in both]
    if any(part.total != Counts(0, 0, 0) for part in apart):
        measures.append(counted(MENTIONS, "discontinuous alone, strict", apart))
    if any(span.type == ALTERNATIVE for pair in pairs for span in pair.gold.spans):
        measures.append(counted(MENTIONS, "BC2GM with alternatives", [_bc2gm(doc) for doc in marked]))
    return measures


def mention_differences(pairs: Sequence[Pair], only: Collection[str] | None = None) -> Iterator[Difference]:
    """Each mention that is not right: wrong type, wrong boundary, both, missed or spurious.

    Every mention is in one difference at most. The ones with a wrong boundary alone are just what relaxed scoring finds
    right beyond strict scoring; the ones of a wrong type alone come back where types are ignored.
    """
    for doc in _marked(pairs, only):
        yield from _differences(doc)


def _differences(doc: _Marked) -> Iterator[Difference]:
    same = set(doc.gold) & set(doc.found)
    gold = [mention for mention in doc.gold if mention not in same]
    found = [mention for mention in doc.found if mention not in same]
    for kind, fits in (
        ("wrong boundary", lambda left, right: left.type == right.type),
        ("wrong type", lambda left, right: left.parts == right.parts),
        ("wrong boundary and type", lambda left, right: True),
    ):
        near = overlapping(gold, found)
        allowed = [
            [place for place in places if fits(mention, found[place])]
            for mention, places in zip(gold, near, strict=True)
        ]
        chosen = largest_matching(allowed)
        for left, right in sorted(chosen.items()):
            yield _difference(doc.pair.gold, kind, gold[left], found[right])
        taken = set(chosen.values())
        gold = [mention for place, mention in enumerate(gold) if place not in chosen]
        found = [mention for place, mention in enumerate(found) if place not in taken]
    for mention in gold:
        yield _difference(doc.pair.gold, "missed", mention, None)
    for mention in found:
        yield _difference(doc.pair.gold, "spurious", None, mention)


def _difference(doc: Document, kind: str, gold: Mention | None, found: Mention | None) -> Difference:
    given = [mention for mention in (gold, found) if mention is not None]
    start = min(mention.parts[0][0] for mention in given)
    end = max(mention.parts[-1][1] for mention in given)
    return Difference(MENTIONS, kind, doc.id, _said(doc, gold), _said(doc, found), around(doc, start, end))


def _said(doc: Document, mention: Mention | None) -> str | None:
    if mention is None:
        return None
    text = " ".join(" … ".join(doc.slice(start, end) for start, end in mention.parts).split())
    return f"{mention.type} {text!r}"


def _bc2gm(doc: _Marked) -> Agreement:
    """One sentence by the official rules: types do not count, alternatives do."""
    text = doc.pair.gold.text
    gold, found = (_places(mentions, text) for mentions in (doc.gold, doc.found))
    accepted = _places(mentions(doc.pair.gold, {ALTERNATIVE}), text)
    return agreement({ANY_TYPE: sentence_counts(gold, accepted, found)})


def _places(mentions: Iterable[Mention], text: str) -> list[tuple[int, int]]:
    return without_spaces([(mention.parts[0][0], mention.parts[-1][1]) for mention in mentions], text)


def _marked(pairs: Sequence[Pair], only: Collection[str] | None) -> list[_Marked]:
    return [_Marked(pair, _wanted(pair.gold, only), _wanted(pair.found, only)) for pair in pairs]


def _wanted(doc: Document, only: Collection[str] | None) -> list[Mention]:
    return [mention for mention in mentions(doc, only) if mention.type != ALTERNATIVE]


TOKENS = "tokens"

_SCHEME_LETTERS = {"IOB1": set("BIO"), "IOB2": set("BIO"), "IOBES": set("BIOES"), "BILOU": set("BILOU")}

Chunks = Callable[[Sequence[str]], Iterable[Chunk]]


@dataclass(frozen=True, slots=True)
class Tagged:
    """Both taggings of each document, and what was lost where they were made of mentions."""

    gold: tuple[tuple[Sentence, ...], ...]
    found: tuple[tuple[Sentence, ...], ...]
    scheme: str
    notes: tuple[str, ...]


def tagged(pairs: Pairs, only: Collection[str] | None = None) -> Tagged | None:
    """The tags of all documents: the files' own where both are in columns, else made on gold's tokens; None without.

    Files' own tags are taken as they stand. Where `only` some types count, or the files' schemes differ, tags are made.
    """
    notes: list[str] = []
    if pairs.with_tags and only is None:
        gold, found = tuple(pair.gold_tags for pair in pairs.pairs), tuple(pair.found_tags for pair in pairs.pairs)
        scheme = _scheme(_letters(gold))
        if _letters(gold) | _letters(found) <= _SCHEME_LETTERS[scheme]:
            return Tagged(gold, found, scheme, ())
        notes.append("the files' tags are of different schemes, and compared as IOB2")
    if not any(passage.tokens for pair in pairs.pairs for passage in pair.gold.passages):
        return None
    lost = 0
    sides: list[list[tuple[Sentence, ...]]] = [[], []]
    for pair in pairs.pairs:
        for side, doc in zip(sides, (pair.gold, pair.found), strict=True):
            sentences, left_out = _made(pair.gold, doc, only)
            side.append(sentences)
            lost += left_out
    if lost:
        notes.append(f"{lost:,} mentions that overlap a longer one, are in parts or hold no token have no tags")
    return Tagged(tuple(sides[0]), tuple(sides[1]), "IOB2", tuple(notes))


def token_measures(both: Tagged) -> list[Measured]:
    """conlleval, seqeval as it is by default, and strict seqeval."""
    taggings = [(tags_of(gold), tags_of(found)) for gold, found in zip(both.gold, both.found, strict=True)]
    together = [[tags for side in taggings for tags in side[place]] for place in (0, 1)]
    accuracy = token_accuracy(together[0], together[1])
    measures: list[Measured] = []
    # Of tags with S and U conlleval makes one mention of two that touch, and of bare ones nothing at all.
    if both.scheme in ("IOB1", "IOB2"):
        conll = [conlleval(*two) for two in taggings]
        measures.append(counted(TOKENS, "conlleval", conll, {"token accuracy": accuracy}))
    if both.scheme != "BILOU":
        measures.append(counted(TOKENS, "seqeval default", [seqeval(*two) for two in taggings]))
    strict = [seqeval(*two, mode="strict", scheme=both.scheme) for two in taggings]
    measures.append(counted(TOKENS, f"seqeval strict ({both.scheme})", strict))
    return measures


def token_differences(pairs: Sequence[Pair], both: Tagged) -> Iterator[Difference]:
    """The mentions that conlleval (of IOBES tags, seqeval by default) sees in tags and strict seqeval doesn't."""
    loose = {"IOBES": ("seqeval default", scheme_chunks), "BILOU": None}.get(both.scheme, ("conlleval", conll_chunks))
    if loose is None:
        return
    for pair, gold, found in zip(pairs, both.gold, both.found, strict=True):
        for left, right in zip(gold, found, strict=True):
            for side, sentence in (("gold", left), ("found", right)):
                for kind, said, words in _seen_by_one(sentence, both.scheme, *loose):
                    gold_said, found_said = (said, None) if side == "gold" else (None, said)
                    yield Difference(TOKENS, kind, pair.gold.id, gold_said, found_said, words)


def _seen_by_one(sentence: Sentence, scheme: str, name: str, loose: Chunks) -> Iterator[tuple[str, str, str]]:
    """Which of the two sees a mention, the mention, and the tags around it."""
    tags = [tag for _, tag in sentence]
    seen, strict = _named(loose(tags)), _named(strict_chunks(tags, scheme=scheme))
    for kind, found in ((f"{name} alone", seen - strict), ("strict seqeval alone", strict - seen)):
        for type, start, end in sorted(found, key=lambda chunk: chunk[1:]):
            words = " ".join(f"{word}/{tag}" for word, tag in sentence[max(0, start - 3) : end + 3])
            yield kind, f"{type} {' '.join(word for word, _ in sentence[start:end])!r}", words


def _named(chunks: Iterable[Chunk]) -> set[Chunk]:
    """Mentions whose type is one that both programs call alike where tags have none."""
    return {("(no type)" if type in ("", "_") else type, start, end) for type, start, end in chunks}


def _letters(sides: Iterable[Iterable[Sentence]]) -> set[str]:
    return {tag[:1] for doc in sides for sentence in doc for _, tag in sentence}


def _scheme(letters: set[str]) -> str:
    """The scheme of tags with these letters. Without any B an I begins mentions, which IOB1 allows."""
    if letters & set("LU"):
        return "BILOU"
    if letters & set("ES"):
        return "IOBES"
    return "IOB2" if "B" in letters or "I" not in letters else "IOB1"


def _made(gold: Document, doc: Document, only: Collection[str] | None) -> tuple[tuple[Sentence, ...], int]:
    """The document's mentions as tags on gold's tokens, and how many of them have none.

    A mention is all tokens that it shares a character with; of mentions that overlap, the longest is kept.
    """
    wanted = [mention for mention in mentions(doc, only) if mention.type != ALTERNATIVE]
    whole = sorted((mention for mention in wanted if len(mention.parts) == 1), key=lambda one: _size(one.parts[0]))
    sentences = [(places, ["O"] * len(places)) for places in _token_sentences(gold)]
    lost = len(wanted) - len(whole)
    for mention in reversed(whole):
        lost += not any(_mark(places, tags, mention.type, mention.parts[0]) for places, tags in sentences)
    return tuple(
        tuple((gold.slice(*place), tag) for place, tag in zip(places, tags, strict=True)) for places, tags in sentences
    ), lost


def _mark(places: Sequence[Range], tags: list[str], type: str, mention: Range) -> bool:
    """Tag the tokens of a mention, unless one of them has a tag; whether that was done."""
    inside = [number for number, (start, end) in enumerate(places) if start < mention[1] and mention[0] < end]
    if not inside or any(tags[number] != "O" for number in inside):
        return False
    for number in inside:
        tags[number] = f"{'B' if number == inside[0] else 'I'}-{type}"
    return True


def _token_sentences(doc: Document) -> Iterator[list[Range]]:
    """The tokens of each sentence; of a passage without sentences, all of them."""
    for passage in doc.passages:
        borders = [start for start, _ in passage.sentences[1:]]
        places: list[Range] = []
        for place in passage.tokens:
            if borders and place[0] >= borders[0]:
                if places:
                    yield places
                places = []
                while borders and place[0] >= borders[0]:
                    borders.pop(0)
            places.append(place)
        if places:
            yield places


def _size(place: Range) -> int:
    return place[1] - place[0]
