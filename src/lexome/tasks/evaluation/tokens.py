"""Tokens side by side: conlleval and seqeval, on a file's own tags or on tags made of mentions."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from lexome.document import Document, Range
from lexome.tasks.evaluation.differences import Difference
from lexome.tasks.evaluation.files import Sentence, tags_of
from lexome.tasks.evaluation.measured import Measured, counted
from lexome.tasks.evaluation.mentions import ALTERNATIVE
from lexome.tasks.evaluation.pairs import Pair, Pairs
from lexome.tasks.metrics.conll_tags import chunks as conll_chunks
from lexome.tasks.metrics.conll_tags import conlleval, token_accuracy
from lexome.tasks.metrics.scheme_tags import chunks, seqeval, strict_chunks
from lexome.tasks.metrics.spans import mentions
from lexome.tasks.metrics.tags import Chunk
from lexome.values import value

SECTION = "tokens"

_SCHEME_LETTERS = {"IOB1": set("BIO"), "IOB2": set("BIO"), "IOBES": set("BIOES"), "BILOU": set("BILOU")}

Chunks = Callable[[Sequence[str]], Iterable[Chunk]]


@value
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
        measures.append(counted(SECTION, "conlleval", conll, {"token accuracy": accuracy}))
    if both.scheme != "BILOU":
        measures.append(counted(SECTION, "seqeval default", [seqeval(*two) for two in taggings]))
    strict = [seqeval(*two, mode="strict", scheme=both.scheme) for two in taggings]
    measures.append(counted(SECTION, f"seqeval strict ({both.scheme})", strict))
    return measures


def token_differences(pairs: Sequence[Pair], both: Tagged) -> Iterator[Difference]:
    """The mentions that conlleval (of IOBES tags, seqeval by default) sees in tags and strict seqeval doesn't."""
    loose = {"IOBES": ("seqeval default", chunks), "BILOU": None}.get(both.scheme, ("conlleval", conll_chunks))
    if loose is None:
        return
    for pair, gold, found in zip(pairs, both.gold, both.found, strict=True):
        for left, right in zip(gold, found, strict=True):
            for side, sentence in (("gold", left), ("found", right)):
                for kind, said, words in _seen_by_one(sentence, both.scheme, *loose):
                    gold_said, found_said = (said, None) if side == "gold" else (None, said)
                    yield Difference(SECTION, kind, pair.gold.id, gold_said, found_said, words)


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
