"""Metrics of tag sequences: conlleval, and seqeval by default and in strict mode, each equal to its program.

By default seqeval reads tags much as conlleval does, and knows E and S as well. In strict mode a mention must be valid
in its scheme: in IOB2 an I that follows nothing of its type is no mention, nor is a B without its E in IOBES.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Literal

from lexome.document import shorten
from lexome.errors import UsageError
from lexome.tasks.metrics.spans import Agreement, compare_sets, mean, require_pairs

Chunk = tuple[str, int, int]
"""A mention in tokens: its type, its first token, and its end, exclusive."""

Chunker = Callable[[Sequence[str]], Iterable[Chunk]]

Tag = tuple[str, str]
"""The letter of a tag and its type. Evaluation makes one of every token: a plain tuple is the fastest record."""

_LETTERS = "BIOESLU"
OUTSIDE: Tag = ("O", "")


def require_tags(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], *, letters: str = _LETTERS) -> None:
    """Raise unless both have the same sentences, token for token, and every tag begins with one of these letters."""
    require_pairs(gold, predicted, what="sentences")
    for number, (tags, others) in enumerate(zip(gold, predicted, strict=True), 1):
        if len(tags) != len(others):
            raise UsageError(
                f"sentence {number:,} has {len(tags):,} gold tags and {len(others):,} predicted ones; expected one per "
                "token.",
                code="length-mismatch",
                value=number,
            )
    for tag in sorted(set[str]().union(*gold, *predicted)):
        letter, dash, _ = tag.partition("-")
        if len(letter) != 1 or letter not in letters or (letter == "O" and dash):
            raise UsageError(
                f"there is a tag {shorten(tag)!r}; expected one of {' '.join(letters)}, and after all but O perhaps a "
                "type, as in I-Gene. Check the tags, or name another scheme.",
                code="invalid-tag",
                value=tag,
            )


def chunk_agreement(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], chunker: Chunker) -> Agreement:
    """The agreement of the mentions that `chunker` reads in two taggings."""
    return compare_sets(_chunks_by_type(gold, chunker), _chunks_by_type(predicted, chunker))


def _chunks_by_type(sentences: Sequence[Sequence[str]], chunker: Chunker) -> dict[str, set[tuple[int, int, int]]]:
    types: defaultdict[str, set[tuple[int, int, int]]] = defaultdict(set)
    for number, tags in enumerate(sentences):
        for type, start, end in chunker(tags):
            types[type].add((number, start, end))
    return types


# Pairs of letters between which a mention of one type ends, and those between which one begins.
_CONLL_ENDS = frozenset({"BB", "BO", "IB", "IO", "EE", "EI", "EO"})
_CONLL_BEGINS = frozenset({"BB", "IB", "OB", "OI", "EE", "EI", "OE"})

# Bare letters that conlleval does not know: it counts mentions of them that never end.
_UNKNOWN_TO_CONLLEVAL = frozenset("SLU")


def conlleval(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> Agreement:
    """The agreement of two taggings, a list of tags per sentence, by the rules of conlleval.

    Tags are O, or a letter and a type as in B-Gene; bare letters have the type "".
    """
    require_tags(gold, predicted)
    for tag in _UNKNOWN_TO_CONLLEVAL.intersection(tag for tags in (*gold, *predicted) for tag in tags):
        raise UsageError(
            f"there is a tag {tag!r} without a type, which conlleval does not know. Score with seqeval, or write the "
            "tags as IOB2.",
            code="invalid-tag",
            value=tag,
        )
    return chunk_agreement(gold, predicted, conll_chunks)


def token_accuracy(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> float:
    """The fraction of tokens with the correct tag, as conlleval prints it first; high because most tokens are O."""
    require_tags(gold, predicted)
    pairs = [pair for tags in zip(gold, predicted, strict=True) for pair in zip(*tags, strict=True)]
    return mean([left == right for left, right in pairs])


def conll_chunks(tags: Sequence[str]) -> Iterator[Chunk]:
    """The mentions that conlleval reads in a sentence."""
    start = -1
    last, last_type = OUTSIDE
    for place, text in enumerate((*tags, "O")):
        letter, _, type = text.partition("-")
        pair, changed = last + letter, last_type != type
        if start >= 0 and (pair in _CONLL_ENDS or (last != "O" and changed)):
            yield last_type, start, place
            start = -1
        if pair in _CONLL_BEGINS or (letter != "O" and changed):
            start = place
        last, last_type = letter, type


# What seqeval calls the type of a bare tag.
_NO_TYPE = "_"

_SCHEME_ENDS = frozenset({"BB", "BS", "BO", "IB", "IS", "IO"})
_SCHEME_BEGINS = frozenset({"EE", "EI", "SE", "SI", "OE", "OI"})

# The letters of each scheme, and the pairs of tags between which a mention begins, continues and ends. A pair is three
# characters: the letter before ("*" for any), the letter, and "=" if their types must be the same, "!" if they must
# differ, or "*".
_SCHEMES = {
    "IOB1": ("IOB", "OI* II! BI* IB= BB=", "BI= II=", "II! IO* IB* BO* BI! BB="),
    "IOE1": ("IOE", "OI* II! EI* EE=", "II= IE=", "II! IO* IE! EI= EE="),
    "IOB2": ("IOB", "*B*", "BI= II=", "IO* II! IB* BO* BI! BB*"),
    "IOE2": ("IOE", "OI* OE* EI* EE* II! IE!", "IE= II=", "E**"),
    "IOBES": ("IOBES", "*B* *S*", "BI= BE= II= IE=", "S** E**"),
    "BILOU": ("BILOU", "*B* *U*", "BI= BL= II= IL=", "U** L**"),
}


def seqeval(
    gold: Sequence[Sequence[str]],
    predicted: Sequence[Sequence[str]],
    *,
    mode: Literal["default", "strict"] = "default",
    scheme: str = "IOB2",
) -> Agreement:
    """The agreement of two taggings, a list of tags per sentence, equal to that of the package seqeval 1.2.2.

    `scheme` applies in strict mode only: IOB1, IOB2, IOE1, IOE2, IOBES or BILOU. Bare letters have the type "_".
    """
    if mode == "default":
        require_tags(gold, predicted, letters="BIOES")
        return chunk_agreement(gold, predicted, scheme_chunks)
    for value, choices, what in ((mode, ("default", "strict"), "mode"), (scheme, tuple(_SCHEMES), "scheme")):
        if value not in choices:
            message = f"seqeval has no {what} {value!r}; expected one of {', '.join(choices)}."
            raise UsageError(message, code="invalid-choice", value=value)
    require_tags(gold, predicted, letters=_SCHEMES[scheme][0])
    return chunk_agreement(gold, predicted, partial(strict_chunks, scheme=scheme))


def scheme_chunks(tags: Sequence[str]) -> Iterator[Chunk]:
    """The mentions that seqeval reads by default."""
    start = 0
    last, last_type = OUTSIDE
    for place, text in enumerate((*tags, "O")):
        letter, type = text[0], text[1:].removeprefix("-") or _NO_TYPE
        pair, changed = last + letter, last_type != type
        if last in "ES" or pair in _SCHEME_ENDS or (last != "O" and changed):
            yield last_type, start, place
        if letter in "BS" or pair in _SCHEME_BEGINS or (letter != "O" and changed):
            start = place
        last, last_type = letter, type


def strict_chunks(tags: Sequence[str], *, scheme: str) -> Iterator[Chunk]:
    """The mentions that are valid in the scheme."""
    begins, inside, ends = _TABLES[scheme]
    read: list[Tag] = [(text[0], text[1:].strip("-") or _NO_TYPE) for text in (*tags, "O")]
    last, place = ("O", _NO_TYPE), 0
    while place < len(read):
        tag = read[place]
        end = place + 1
        if _transition(last, tag) in begins:
            while end < len(read) and _transition(read[end - 1], read[end]) in inside:
                end += 1
            if end < len(read) and _transition(read[end - 1], read[end]) in ends:
                yield tag[1], place, end
        place, last = end, read[end - 1]


_Transition = tuple[str, str, bool]
"""The letter before, the letter, and whether their types are the same."""


def _transition(last: Tag, tag: Tag) -> _Transition:
    return last[0], tag[0], last[1] == tag[1]


def _table(pairs: str, letters: str) -> frozenset[_Transition]:
    """The transitions that some pairs of a scheme allow."""
    return frozenset(
        (before, letter, same)
        for before in letters
        for letter in letters
        for same in (True, False)
        for pair in pairs.split()
        if pair[0] in (before, "*") and pair[1] in (letter, "*") and pair[2] in ("=" if same else "!", "*")
    )


_TABLES = {name: tuple(_table(pairs, letters) for pairs in rules) for name, (letters, *rules) in _SCHEMES.items()}
