"""conlleval: the mentions that the CoNLL shared tasks' program sees in tags, and how many of them are right.

An I that follows nothing of its type begins a mention; so does every change of type. The program knows B, I, O and E:
S is one more letter without a meaning, which goes on with what is there, and an E before a B of the same type doesn't
end it. Tags with S and E are therefore better scored with seqeval.
"""

from collections.abc import Iterator, Sequence

from lexome.errors import UsageError
from lexome.tasks.metrics.counts import Agreement, mean
from lexome.tasks.metrics.tags import OUTSIDE, Chunk, Tag, chunk_agreement, require_tags

# Pairs of letters between which a mention of one type ends, and those between which one begins.
_ENDS = frozenset({"BB", "BO", "IB", "IO", "EE", "EI", "EO"})
_BEGINS = frozenset({"BB", "IB", "OB", "OI", "EE", "EI", "OE"})

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
    return chunk_agreement(gold, found, chunks)


def token_accuracy(gold: Sequence[Sequence[str]], found: Sequence[Sequence[str]]) -> float:
    """The share of tokens whose tag is right, which conlleval prints first; most tokens are O, so it is high."""
    require_tags(gold, found)
    pairs = [pair for tags in zip(gold, found, strict=True) for pair in zip(*tags, strict=True)]
    return mean([left == right for left, right in pairs])


def chunks(tags: Sequence[str]) -> Iterator[Chunk]:
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
    return last.letter + tag.letter in _ENDS or (last.letter != "O" and last.type != tag.type)


def _began(last: Tag, tag: Tag) -> bool:
    return last.letter + tag.letter in _BEGINS or (tag.letter != "O" and last.type != tag.type)
