"""seqeval: the mentions that this library sees in tags, as it does by default and in its strict mode.

By default it reads much as conlleval does, and knows E and S as well. In strict mode a mention must be as its scheme
says: in IOB2 an I that follows nothing of its type is no mention, nor is a B without its E in IOBES.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

from lexome.document import shorten
from lexome.errors import UsageError
from lexome.tasks.metrics.spans import Agreement, compare_sets, mean, require_pairs

# A mention in tokens: its type, its first token, and where it ends, exclusive.
Chunk = tuple[str, int, int]

_LETTERS = "BIOESLU"


class Tag(NamedTuple):
    """A tag's letter and its type."""

    letter: str
    type: str


OUTSIDE = Tag("O", "")


def chunk_agreement(
    gold: Sequence[Sequence[str]], found: Sequence[Sequence[str]], chunks: Callable[[Sequence[str]], Iterable[Chunk]]
) -> Agreement:
    """How far the mentions that `chunks` sees in two taggings agree."""
    return compare_sets(_by_type(gold, chunks), _by_type(found, chunks))


def _by_type(
    sentences: Sequence[Sequence[str]], chunks: Callable[[Sequence[str]], Iterable[Chunk]]
) -> dict[str, set[tuple[int, int, int]]]:
    types: defaultdict[str, set[tuple[int, int, int]]] = defaultdict(set)
    for number, tags in enumerate(sentences):
        for type, start, end in chunks(tags):
            types[type].add((number, start, end))
    return types


def require_tags(gold: Sequence[Sequence[str]], found: Sequence[Sequence[str]], *, letters: str = _LETTERS) -> None:
    """Raise unless both have the same sentences, token for token, and every tag begins with one of these letters."""
    require_pairs(gold, found, what="sentences")
    for number, (tags, others) in enumerate(zip(gold, found, strict=True), 1):
        if len(tags) != len(others):
            raise UsageError(
                f"sentence {number:,} has {len(tags):,} gold tags and {len(others):,} found ones; expected one a token."
            )
    known: set[str] = set()
    for sentences in (gold, found):
        known.update(*sentences)
    for tag in sorted(known):
        letter, dash, _ = tag.partition("-")
        if len(letter) != 1 or letter not in letters or (letter == "O" and dash):
            raise UsageError(
                f"there is a tag {shorten(tag)!r}; expected one of {' '.join(letters)}, and after all but O perhaps a "
                "type, as in I-Gene. Check the tags, or name another scheme."
            )


# Pairs of letters between which a mention of one type ends, and those between which one begins.
_CONLL_ENDS = frozenset({"BB", "BO", "IB", "IO", "EE", "EI", "EO"})
_CONLL_BEGINS = frozenset({"BB", "IB", "OB", "OI", "EE", "EI", "OE"})

# Bare letters that it doesn't know: of these it counts mentions that never end.
_MEANINGLESS = frozenset("SLU")


def conlleval(gold: Sequence[Sequence[str]], found: Sequence[Sequence[str]]) -> Agreement:
    """The agreement of two taggings, a list of tags a sentence, by the rules of conlleval.

    Tags are O, or a letter and a type as in B-Gene; bare letters are of the type "".
    """
    require_tags(gold, found)
    for tag in _MEANINGLESS.intersection(tag for tags in (*gold, *found) for tag in tags):
        raise UsageError(
            f"there is a tag {tag!r}, which conlleval does not know and cannot tell by its type. Score with seqeval, "
            "or write the tags as IOB2."
        )
    return chunk_agreement(gold, found, conll_chunks)


def token_accuracy(gold: Sequence[Sequence[str]], found: Sequence[Sequence[str]]) -> float:
    """The share of tokens whose tag is right, which conlleval prints first; most tokens are O, so it is high."""
    require_tags(gold, found)
    pairs = [pair for tags in zip(gold, found, strict=True) for pair in zip(*tags, strict=True)]
    return mean([left == right for left, right in pairs])


def conll_chunks(tags: Sequence[str]) -> Iterator[Chunk]:
    """The type, first token and end of each mention that conlleval sees in a sentence."""
    begun = -1
    last = OUTSIDE
    for place, tag in enumerate((*map(_tag, tags), OUTSIDE)):
        if begun >= 0 and _ended(last, tag):
            yield last.type, begun, place
            begun = -1
        if _began(last, tag):
            begun = place
        last = tag


def _tag(text: str) -> Tag:
    letter, _, type = text.partition("-")
    return Tag(letter, type)


def _ended(last: Tag, tag: Tag) -> bool:
    return last.letter + tag.letter in _CONLL_ENDS or (last.letter != "O" and last.type != tag.type)


def _began(last: Tag, tag: Tag) -> bool:
    return last.letter + tag.letter in _CONLL_BEGINS or (tag.letter != "O" and last.type != tag.type)


# What the library calls the type of a bare tag.
_BARE = "_"

_SCHEME_ENDS = frozenset({"BB", "BS", "BO", "IB", "IS", "IO"})
_SCHEME_BEGINS = frozenset({"EE", "EI", "SE", "SI", "OE", "OI"})


@dataclass(frozen=True, slots=True)
class _Scheme:
    """The letters of a scheme, and the pairs of letters between which a mention begins, goes on and ends.

    A pair is three characters: the letter before ("*" for any), the letter, and "=" where their types must be the same,
    "!" where they must differ, or "*".
    """

    letters: str
    begins: str
    inside: str
    ends: str


_SCHEMES = {
    "IOB1": _Scheme("IOB", "OI* II! BI* IB= BB=", "BI= II=", "II! IO* IB* BO* BI! BB="),
    "IOE1": _Scheme("IOE", "OI* II! EI* EE=", "II= IE=", "II! IO* IE! EI= EE="),
    "IOB2": _Scheme("IOB", "*B*", "BI= II=", "IO* II! IB* BO* BI! BB*"),
    "IOE2": _Scheme("IOE", "OI* OE* EI* EE* II! IE!", "IE= II=", "E**"),
    "IOBES": _Scheme("IOBES", "*B* *S*", "BI= BE= II= IE=", "S** E**"),
    "BILOU": _Scheme("BILOU", "*B* *U*", "BI= BL= II= IL=", "U** L**"),
}


def seqeval(
    gold: Sequence[Sequence[str]],
    found: Sequence[Sequence[str]],
    *,
    mode: Literal["default", "strict"] = "default",
    scheme: str = "IOB2",
) -> Agreement:
    """The agreement of two taggings, a list of tags a sentence, equal to what the package seqeval 1.2.2 says.

    `scheme` is asked in strict mode alone: IOB1, IOB2, IOE1, IOE2, IOBES or BILOU. Bare letters are of the type "_".
    """
    if mode == "default":
        require_tags(gold, found, letters="BIOES")
        return chunk_agreement(gold, found, scheme_chunks)
    if mode != "strict":
        raise UsageError(f"seqeval has no mode {mode!r}; expected 'default' or 'strict'.")
    if scheme not in _SCHEMES:
        raise UsageError(f"seqeval has no scheme {scheme!r}; expected one of {', '.join(_SCHEMES)}.")
    require_tags(gold, found, letters=_SCHEMES[scheme].letters)
    return chunk_agreement(gold, found, partial(strict_chunks, scheme=scheme))


def scheme_chunks(tags: Sequence[str]) -> Iterator[Chunk]:
    """The type, first token and end of each mention that seqeval sees by default."""
    begun = 0
    last = OUTSIDE
    for place, text in enumerate((*tags, "O")):
        tag = Tag(text[0], text[1:].removeprefix("-") or _BARE)
        pair, changed = last.letter + tag.letter, last.type != tag.type
        if last.letter in "ES" or pair in _SCHEME_ENDS or (last.letter != "O" and changed):
            yield last.type, begun, place
        if tag.letter in "BS" or pair in _SCHEME_BEGINS or (tag.letter != "O" and changed):
            begun = place
        last = tag


def strict_chunks(tags: Sequence[str], *, scheme: str) -> Iterator[Chunk]:
    """The type, first token and end of each mention that is as the scheme says."""
    rules = _TABLES[scheme]
    read = [Tag(text[0], text[1:].strip("-") or _BARE) for text in (*tags, "O")]
    last, place = Tag("O", _BARE), 0
    while place < len(read):
        tag = read[place]
        end = place + 1
        if rules.begins[last.letter, tag.letter, last.type == tag.type]:
            while end < len(read) and rules.inside[_between(read, end)]:
                end += 1
            if end < len(read) and rules.ends[_between(read, end)]:
                yield tag.type, place, end
        place, last = end, read[end - 1]


def _between(read: Sequence[Tag], place: int) -> tuple[str, str, bool]:
    """What a scheme's tables ask of a tag and the one before it."""
    last, tag = read[place - 1], read[place]
    return last.letter, tag.letter, last.type == tag.type


@dataclass(frozen=True, slots=True)
class _Tables:
    """A scheme's pairs to look up: by the letter before, the letter, and whether their types are the same."""

    begins: dict[tuple[str, str, bool], bool]
    inside: dict[tuple[str, str, bool], bool]
    ends: dict[tuple[str, str, bool], bool]


def _table(pairs: str, letters: str) -> dict[tuple[str, str, bool], bool]:
    return {
        (before, letter, same): any(
            pair[0] in (before, "*") and pair[1] in (letter, "*") and pair[2] in ("=" if same else "!", "*")
            for pair in pairs.split()
        )
        for before in letters
        for letter in letters
        for same in (True, False)
    }


_TABLES = {
    name: _Tables(*(_table(pairs, scheme.letters) for pairs in (scheme.begins, scheme.inside, scheme.ends)))
    for name, scheme in _SCHEMES.items()
}
