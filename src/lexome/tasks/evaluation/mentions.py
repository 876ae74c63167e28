"""Evaluation of mentions, by characters and by tags of tokens: metrics and differences."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from lexome.document import Document, Range
from lexome.tasks.evaluation.comparison import (
    Difference,
    DocumentPair,
    DocumentPairs,
    MetricResult,
    Sentence,
    context_of,
    micro_f1_result,
    sentence_tags,
)
from lexome.tasks.metrics.spans import (
    ANY_TYPE,
    NO_COUNTS,
    Agreement,
    Mention,
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
from lexome.tasks.metrics.tagging import (
    Chunk,
    Chunker,
    conll_chunks,
    conlleval,
    scheme_chunks,
    seqeval,
    strict_chunks,
    token_accuracy,
)

MENTIONS, TOKENS = "mentions", "tokens"

# The type of BC2GM's alternatives, which are no mentions of their own.
ALTERNATIVE = "ALTGENE"

_SCHEME_LETTERS = {"IOB1": set("BIO"), "IOB2": set("BIO"), "IOBES": set("BIOES"), "BILOU": set("BILOU")}


@dataclass(frozen=True, slots=True)
class _MentionPair:
    """A document's mentions, gold and predicted."""

    pair: DocumentPair
    gold: list[Mention]
    predicted: list[Mention]


def mention_metrics(pairs: Sequence[DocumentPair], only: Collection[str] | None = None) -> list[MetricResult]:
    """Every metric of mentions; none if neither gold nor predictions have any."""
    docs = _mention_pairs(pairs, only)
    if not any(doc.gold or doc.predicted for doc in docs):
        return []
    both = [([doc.gold], [doc.predicted]) for doc in docs]
    results = [
        micro_f1_result(MENTIONS, "strict", [spans_strict(*two) for two in both]),
        micro_f1_result(MENTIONS, "relaxed (overlap)", [spans_relaxed(*two) for two in both]),
        micro_f1_result(MENTIONS, "characters", [characters(*two) for two in both]),
    ]
    if len({mention.type for doc in docs for mention in (*doc.gold, *doc.predicted)}) > 1:
        for name, agreement in (("strict", spans_strict), ("relaxed", spans_relaxed)):
            untyped = [agreement(*two, typed=False) for two in both]
            results.append(micro_f1_result(MENTIONS, f"{name}, types ignored", untyped))
    discontinuous = [spans_discontinuous(*two) for two in both]
    if any(part.total != NO_COUNTS for part in discontinuous):
        results.append(micro_f1_result(MENTIONS, "discontinuous alone, strict", discontinuous))
    if any(span.type == ALTERNATIVE for pair in pairs for span in pair.gold.spans):
        results.append(micro_f1_result(MENTIONS, "BC2GM with alternatives", [_bc2gm(doc) for doc in docs]))
    return results


def _bc2gm(doc: _MentionPair) -> Agreement:
    """One sentence by the official rules: types are ignored, alternatives accepted."""
    text = doc.pair.gold.text
    gold, accepted, predicted = (
        without_spaces([(mention.parts[0][0], mention.parts[-1][1]) for mention in own], text)
        for own in (doc.gold, mentions(doc.pair.gold, {ALTERNATIVE}), doc.predicted)
    )
    return Agreement.from_types({ANY_TYPE: sentence_counts(gold, accepted, predicted)})


def _mention_pairs(pairs: Sequence[DocumentPair], only: Collection[str] | None) -> list[_MentionPair]:
    return [_MentionPair(pair, _scored(pair.gold, only), _scored(pair.predicted, only)) for pair in pairs]


def _scored(doc: Document, only: Collection[str] | None) -> list[Mention]:
    return [mention for mention in mentions(doc, only) if mention.type != ALTERNATIVE]


def mention_differences(pairs: Sequence[DocumentPair], only: Collection[str] | None = None) -> Iterator[Difference]:
    """Each wrong mention: wrong type, wrong boundary, both, missed or spurious.

    Every mention is in one difference at most. Those with only a wrong boundary are right in relaxed scoring; those
    with only a wrong type are right where types are ignored.
    """
    for doc in _mention_pairs(pairs, only):
        right = set(doc.gold) & set(doc.predicted)
        gold, predicted = ([mention for mention in own if mention not in right] for own in (doc.gold, doc.predicted))
        for kind, fits in (
            ("wrong boundary", lambda left, right: left.type == right.type),
            ("wrong type", lambda left, right: left.parts == right.parts),
            ("wrong boundary and type", lambda left, right: True),
        ):
            near = overlapping([mention.parts for mention in gold], [mention.parts for mention in predicted])
            allowed = [
                [place for place in places if fits(mention, predicted[place])]
                for mention, places in zip(gold, near, strict=True)
            ]
            matching = largest_matching(allowed)
            for left, place in sorted(matching.items()):
                yield _difference(doc.pair.gold, kind, gold[left], predicted[place])
            matched = set(matching.values())
            gold = [mention for place, mention in enumerate(gold) if place not in matching]
            predicted = [mention for place, mention in enumerate(predicted) if place not in matched]
        yield from (_difference(doc.pair.gold, "missed", mention, None) for mention in gold)
        yield from (_difference(doc.pair.gold, "spurious", None, mention) for mention in predicted)


def _difference(doc: Document, kind: str, gold: Mention | None, predicted: Mention | None) -> Difference:
    both = [mention for mention in (gold, predicted) if mention is not None]
    start = min(mention.parts[0][0] for mention in both)
    end = max(mention.parts[-1][1] for mention in both)
    gold_text, predicted_text = (_mention_text(doc, mention) for mention in (gold, predicted))
    return Difference(MENTIONS, kind, doc.id, gold_text, predicted_text, context_of(doc, start, end))


def _mention_text(doc: Document, mention: Mention | None) -> str | None:
    if mention is None:
        return None
    text = " ".join(" … ".join(doc.slice(start, end) for start, end in mention.parts).split())
    return f"{mention.type} {text!r}"


@dataclass(frozen=True, slots=True)
class TagPairs:
    """Both taggings of each document, and notes on mentions that have no tags."""

    gold: tuple[tuple[Sentence, ...], ...]
    predicted: tuple[tuple[Sentence, ...], ...]
    scheme: str
    notes: tuple[str, ...]


def tag_pairs(pairs: DocumentPairs, only: Collection[str] | None = None) -> TagPairs | None:
    """The tags of all documents: those of the files if both are CoNLL files, else tags of gold's tokens, if any.

    Tags of files are used as they are, unless `only` some types are scored, or the files' schemes differ.
    """
    notes: list[str] = []
    if pairs.with_tags and only is None:
        gold = tuple(pair.gold_tags for pair in pairs.pairs)
        predicted = tuple(pair.predicted_tags for pair in pairs.pairs)
        scheme = _scheme(_letters(gold))
        if _letters(gold) | _letters(predicted) <= _SCHEME_LETTERS[scheme]:
            return TagPairs(gold, predicted, scheme, ())
        notes.append("the files' tags have different schemes, and are compared as IOB2")
    if not any(passage.tokens for pair in pairs.pairs for passage in pair.gold.passages):
        return None
    lost = 0
    sides: list[list[tuple[Sentence, ...]]] = [[], []]
    for pair in pairs.pairs:
        for side, doc in zip(sides, (pair.gold, pair.predicted), strict=True):
            sentences, untagged = _tag_tokens(pair.gold, doc, only)
            side.append(sentences)
            lost += untagged
    if lost:
        notes.append(f"{lost:,} mentions that overlap a longer one, are discontinuous or hold no token have no tags")
    return TagPairs(tuple(sides[0]), tuple(sides[1]), "IOB2", tuple(notes))


def _letters(sides: Iterable[Iterable[Sentence]]) -> set[str]:
    return {tag[:1] for doc in sides for sentence in doc for _, tag in sentence}


def _scheme(letters: set[str]) -> str:
    """The scheme of tags with these letters. Without any B, an I begins mentions, as in IOB1."""
    if letters & set("LU"):
        return "BILOU"
    if letters & set("ES"):
        return "IOBES"
    return "IOB2" if "B" in letters or "I" not in letters else "IOB1"


def _tag_tokens(gold: Document, doc: Document, only: Collection[str] | None) -> tuple[tuple[Sentence, ...], int]:
    """The document's mentions as tags of gold's tokens, and the number of mentions without tags.

    A mention has all tokens that it shares a character with; of mentions that overlap, the longest is kept.
    """
    scored = _scored(doc, only)
    continuous = [mention for mention in scored if len(mention.parts) == 1]
    continuous.sort(key=lambda mention: mention.parts[0][1] - mention.parts[0][0])
    sentences = [(places, ["O"] * len(places)) for places in _token_sentences(gold)]
    lost = len(scored) - len(continuous)
    for mention in reversed(continuous):
        lost += not any(_put_tags(places, tags, mention.type, mention.parts[0]) for places, tags in sentences)
    return tuple(
        tuple((gold.slice(*place), tag) for place, tag in zip(places, tags, strict=True)) for places, tags in sentences
    ), lost


def _put_tags(places: Sequence[Range], tags: list[str], type: str, mention: Range) -> bool:
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
        boundaries = [start for start, _ in passage.sentences[1:]]
        places: list[Range] = []
        for place in passage.tokens:
            if boundaries and place[0] >= boundaries[0]:
                if places:
                    yield places
                places = []
                while boundaries and place[0] >= boundaries[0]:
                    boundaries.pop(0)
            places.append(place)
        if places:
            yield places


def token_metrics(tags: TagPairs) -> list[MetricResult]:
    """conlleval, seqeval by default, and strict seqeval."""
    both = [(sentence_tags(gold), sentence_tags(own)) for gold, own in zip(tags.gold, tags.predicted, strict=True)]
    gold, predicted = ([sentence for side in both for sentence in side[place]] for place in (0, 1))
    accuracy = token_accuracy(gold, predicted)
    results: list[MetricResult] = []
    # conlleval merges two adjacent mentions of S or U tags into one, and ignores bare S and U tags.
    if tags.scheme in ("IOB1", "IOB2"):
        conll = [conlleval(*two) for two in both]
        results.append(micro_f1_result(TOKENS, "conlleval", conll, {"token accuracy": accuracy}))
    if tags.scheme != "BILOU":
        results.append(micro_f1_result(TOKENS, "seqeval default", [seqeval(*two) for two in both]))
    strict = [seqeval(*two, mode="strict", scheme=tags.scheme) for two in both]
    results.append(micro_f1_result(TOKENS, f"seqeval strict ({tags.scheme})", strict))
    return results


def token_differences(pairs: Sequence[DocumentPair], tags: TagPairs) -> Iterator[Difference]:
    """The mentions that only one of conlleval (for IOBES, default seqeval) and strict seqeval reads in the tags."""
    loose = {"IOBES": ("seqeval default", scheme_chunks), "BILOU": None}.get(tags.scheme, ("conlleval", conll_chunks))
    if loose is None:
        return
    for pair, gold, predicted in zip(pairs, tags.gold, tags.predicted, strict=True):
        for left, right in zip(gold, predicted, strict=True):
            for is_gold, sentence in ((True, left), (False, right)):
                for kind, text, context in _read_by_one(sentence, tags.scheme, *loose):
                    gold_text, predicted_text = (text, None) if is_gold else (None, text)
                    yield Difference(TOKENS, kind, pair.gold.id, gold_text, predicted_text, context)


def _read_by_one(sentence: Sentence, scheme: str, name: str, loose: Chunker) -> Iterator[tuple[str, str, str]]:
    """The program that alone reads a mention, the mention, and the tags around it."""
    tags = [tag for _, tag in sentence]
    loosely, strictly = _with_named_types(loose(tags)), _with_named_types(strict_chunks(tags, scheme=scheme))
    for kind, chunks in ((f"{name} alone", loosely - strictly), ("strict seqeval alone", strictly - loosely)):
        for type, start, end in sorted(chunks, key=lambda chunk: chunk[1:]):
            context = " ".join(f"{word}/{tag}" for word, tag in sentence[max(0, start - 3) : end + 3])
            yield kind, f"{type} {' '.join(word for word, _ in sentence[start:end])!r}", context


def _with_named_types(chunks: Iterable[Chunk]) -> set[Chunk]:
    """The mentions, with one name for the type of bare tags, which the programs name differently."""
    return {("(no type)" if type in ("", "_") else type, start, end) for type, start, end in chunks}
