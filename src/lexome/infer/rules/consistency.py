"""Agreement inside a document: names found elsewhere, abbreviations with their long forms, repeated sentences."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from lexome.infer.rules.mention import Drop, Mention, NameIndex, Occupied

Definition = tuple[tuple[int, int], tuple[int, int]]
"""The places of a long form and of the short form that it defines."""

REPEATED, SENTENCES, ABBREVIATIONS = "repeated-names", "repeated-sentences", "abbreviations"

# By type: how often a name must be found, with what score on average, before its other occurrences are taken too.
# Chosen on development sets (results/annotator_rules.json); Gene and the rest gained nothing.
REPEATED_TYPES: Mapping[str, tuple[int, float]] = {
    "Chemical": (2, 0.7),
    "Species": (2, 0.7),
    "Disease": (2, 0.8),
    "Gene": (2, 0.8),
    "CellLine": (1, 0.5),
}
MIN_NAME = 3
# Types whose abbreviations agree with their long forms. That of a gene's is another gene's or a disease's too often.
DEFINED_TYPES = frozenset(("Disease", "Chemical", "Species"))
# From this score on, a long form says what its abbreviation is.
MIN_DEFINED_SCORE = 0.6
# Below this score, a mention takes the type of the long form that it abbreviates.
RETYPE_BELOW = 0.6
# What an occurrence found by its name alone is worth, relative to those it was found from.
DISCOUNT = 0.85

# Sentences are told apart well enough to notice that one is repeated.
SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n")
MIN_SENTENCE = 15


def repeated_names(text: str, mentions: Sequence[Mention]) -> Iterator[Mention]:
    """Occurrences of names that were found several times, as one type, and missed here."""
    scores: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for mention in mentions:
        if mention.end - mention.start >= MIN_NAME:
            scores[text[mention.start : mention.end]][mention.type].append(mention.score)
    types: dict[str, tuple[str, float]] = {}
    for name, by_type in scores.items():
        if len(by_type) > 1:
            continue
        type_, found = next(iter(by_type.items()))
        if type_ in REPEATED_TYPES:
            times, mean = REPEATED_TYPES[type_]
            average = sum(found) / len(found)
            if len(found) >= times and average >= mean:
                types[name] = (type_, average * DISCOUNT)
    index, taken = NameIndex(types), Occupied(text, mentions)
    for start, end in index.find(text) if index else ():
        if not taken.overlaps(start, end):
            type_, score = types[text[start:end]]
            yield Mention(start, end, type_, score, REPEATED)


def repeated_sentences(text: str, mentions: Sequence[Mention]) -> list[Mention]:
    """The mentions, the same ones in each copy of a sentence: those that at least half of the copies have."""
    copies = _copies(text)
    if not copies:
        return list(mentions)
    places = sorted(start for starts in copies.values() for start in starts)
    sentence_of = {start: sentence for sentence, starts in copies.items() for start in starts}
    inside: dict[str, dict[tuple[int, int, str], list[Mention]]] = defaultdict(lambda: defaultdict(list))
    outside: list[Mention] = []
    ordered = sorted(mentions, key=lambda mention: mention.start)
    number = -1
    for mention in ordered:
        while number + 1 < len(places) and places[number + 1] <= mention.start:
            number += 1
        start = places[number] if number >= 0 else None
        sentence = sentence_of[start] if start is not None else ""
        if start is None or mention.end > start + len(sentence):
            outside.append(mention)
            continue
        key = (mention.start - start, mention.end - start, mention.type)
        inside[sentence][key].append(mention)
    agreed = list(outside)
    for sentence, found in inside.items():
        starts = copies[sentence]
        for (low, high, type_), same in found.items():
            if 2 * len(same) < len(starts):
                continue
            own = {mention.start - low: mention for mention in same}
            score = sum(mention.score for mention in same) / len(same)
            agreed += [
                own[start] if start in own else Mention(start + low, start + high, type_, score, SENTENCES)
                for start in starts
            ]
    return agreed


def _copies(text: str) -> dict[str, list[int]]:
    """Sentences that occur more than once, and where."""
    starts: dict[str, list[int]] = defaultdict(list)
    begin = 0
    for boundary in SENTENCE_END.finditer(text):
        starts[text[begin : boundary.start()]].append(begin)
        begin = boundary.end()
    starts[text[begin:]].append(begin)
    return {
        sentence: places for sentence, places in starts.items() if len(places) > 1 and len(sentence) >= MIN_SENTENCE
    }


def abbreviations(
    text: str, mentions: Sequence[Mention], definitions: Iterable[Definition], drops: list[Drop]
) -> Iterator[Mention]:
    """The mentions, with abbreviations that the model missed or is unsure of as the type of their long form."""
    at = {mention.place: mention for mention in mentions if mention.type in DEFINED_TYPES}
    meaning: dict[str, Mention] = {}
    for long_form, short_form in definitions:
        mention = at.get(long_form)
        if mention is not None and mention.score >= MIN_DEFINED_SCORE:
            meaning.setdefault(text[slice(*short_form)], mention)
    for mention in mentions:
        long_mention = meaning.get(text[slice(*mention.place)], mention)
        if long_mention.type != mention.type and mention.score < RETYPE_BELOW:
            drops.append(Drop(mention, f"abbreviates {text[slice(*long_mention.place)]!r}, {long_mention.type}"))
            yield Mention(*mention.place, long_mention.type, long_mention.score * DISCOUNT, ABBREVIATIONS)
        else:
            yield mention
    index, taken = NameIndex(meaning), Occupied(text, mentions)
    for start, end in index.find(text) if index else ():
        if not taken.overlaps(start, end):
            long_mention = meaning[text[start:end]]
            yield Mention(start, end, long_mention.type, long_mention.score * DISCOUNT, ABBREVIATIONS)
