"""Applies a model's rules to the mentions it predicted in a document, and marks what the rules added."""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from lexome.concepts.abbreviations import find_abbreviations
from lexome.document import Attribute, Document, Span, numbered_ids
from lexome.infer.rules import (
    RULES,
    Definition,
    Drop,
    Mention,
    abbreviations,
    apply_boundaries,
    apply_cell_lines,
    apply_coordination,
    apply_lexicon,
    repeated_names,
    repeated_sentences,
    resolve_overlaps,
)
from lexome.infer.selection import Selection
from lexome.infer.variant_rules import apply_variants
from lexome.tasks.ner import PredictedMention, replace_spans

# Name of the attribute of mentions that a rule added; its value is the rule.
RULE_ATTRIBUTE = "rule"

Key = tuple[int, int, str]
"""Place and type of a mention."""


@dataclass(frozen=True, slots=True)
class Refinement:
    """Rules to apply to a model's mentions of `types`, and whether to keep one type per place."""

    types: tuple[str, ...]
    rules: tuple[str, ...]
    resolve: bool

    @classmethod
    def of(cls, types: Sequence[str], rules: Collection[str] | None, selection: Selection) -> "Refinement | None":
        """What a selection leaves of a model's rules; None where nothing is to be done."""
        enabled = tuple(rule for rule in RULES if rule in (rules or ()) and selection.enables(rule))
        resolve = selection.overlaps == "resolve" or (selection.overlaps is None and rules is not None)
        if not (enabled or resolve) or not any(type_ in types for type_ in selection.types):
            return None
        return cls(tuple(types), enabled, resolve)


@dataclass(frozen=True, slots=True)
class Refined:
    """The document with selected mentions, and why mentions that the model predicted are not among them."""

    doc: Document
    reasons: dict[Key, str]


def refine_document(
    doc: Document, predicted: Iterable[PredictedMention], selection: Selection, refinement: Refinement
) -> Refined:
    """Replace the selected types' mentions of `doc` with the refined ones of `predicted`, whose scores are calibrated.

    `predicted` has all types of the refinement.
    """
    layout = Layout(doc)
    mentions: list[Mention] = []
    spans: list[Span] = []
    for start, end, type_, score in predicted:
        if type_ in refinement.types:
            mentions.append(Mention(*layout.to_text(start, end), type_, score))
        elif selection.keeps(type_, score):
            spans.append(Span("", type_, ((start, end),), doc.slice(start, end), (), score))
    definitions = [
        (layout.to_text(one.long[0][0], one.long[-1][1]), layout.to_text(*one.short))
        for one in (find_abbreviations(doc) if mentions and "abbreviations" in refinement.rules else ())
    ]
    refined, drops = apply_rules(
        layout.text,
        mentions,
        types=refinement.types,
        rules=refinement.rules,
        resolve=refinement.resolve,
        definitions=definitions,
    )
    rules: dict[Key, str] = {}
    for mention in refined:
        if selection.keeps(mention.type, mention.score):
            place = layout.to_document(mention.start, mention.end)
            text = layout.text[mention.start : mention.end]
            spans.append(Span("", mention.type, (place,), text, (), mention.score))
            if mention.rule is not None:
                rules[(*place, mention.type)] = mention.rule
    reasons = {(*layout.to_document(*drop.mention.place), drop.mention.type): drop.reason for drop in drops}
    result = replace_spans(doc, spans, selection.types)
    return Refined(_with_marks(result, rules) if rules else result, reasons)


def apply_rules(
    text: str,
    mentions: Sequence[Mention],
    *,
    types: Collection[str],
    rules: Collection[str],
    resolve: bool = True,
    definitions: Sequence[Definition] = (),
) -> tuple[list[Mention], list[Drop]]:
    """The mentions that a model of these types predicted, after rules, and those that rules removed or moved.

    With `resolve`, one type per place is kept. `definitions` are the abbreviations that the text defines.
    """
    drops: list[Drop] = []
    current = list(mentions)
    if "boundaries" in rules:
        current = list(apply_boundaries(text, current, drops))
    if "cell-lines" in rules and "CellLine" in types:
        current = list(apply_cell_lines(text, current, drops))
    if "variants" in rules and "Variant" in types:
        current = apply_variants(text, current, drops)
    if "coordination" in rules and "Gene" in types:
        current = apply_coordination(text, current, drops)
    if "lexicon" in rules:
        current = apply_lexicon(text, current, drops, types=types)
    if resolve:
        current = resolve_overlaps(current, drops)
    if "abbreviations" in rules and definitions:
        current = list(abbreviations(text, current, definitions, drops))
    if "repeated-names" in rules:
        current += repeated_names(text, current)
    if "repeated-sentences" in rules:
        current = repeated_sentences(text, current)
    return sorted(current, key=lambda mention: (mention.start, -mention.end, mention.type)), drops


def _with_marks(doc: Document, rules: dict[Key, str]) -> Document:
    """The document with an attribute for each mention that a rule added."""
    used = {attribute.id for attribute in doc.attributes}
    ids = (name for name in numbered_ids("A") if name not in used)
    marks = tuple(
        Attribute(next(ids), span.id, RULE_ATTRIBUTE, rule)
        for span in doc.spans
        if len(span.parts) == 1 and (rule := rules.get((span.start, span.end, span.type))) is not None
    )
    return replace(doc, attributes=(*doc.attributes, *marks))


def made_by_rule(doc: Document) -> Iterator[tuple[Span, str]]:
    """The mentions that a rule added, each with the rule."""
    rules = {mark.target: mark.value or "" for mark in doc.attributes if mark.name == RULE_ATTRIBUTE}
    return ((span, rules[span.id]) for span in doc.spans if span.id in rules)


class Layout:
    """The passages of a document as one text, with line breaks between them, however far apart they are."""

    def __init__(self, doc: Document) -> None:
        self.text = "\n".join(passage.text for passage in doc.passages)
        self._offsets = [passage.offset for passage in doc.passages]
        self._starts: list[int] = []
        start = 0
        for passage in doc.passages:
            self._starts.append(start)
            start += len(passage.text) + 1
        self._same = self._offsets == self._starts

    def to_text(self, start: int, end: int) -> tuple[int, int]:
        """A range of the document in the text."""
        if self._same:
            return start, end
        index = bisect_right(self._offsets, start) - 1
        shift = self._starts[index] - self._offsets[index]
        return start + shift, end + shift

    def to_document(self, start: int, end: int) -> tuple[int, int]:
        """A range of the text in the document."""
        if self._same:
            return start, end
        index = bisect_right(self._starts, start) - 1
        shift = self._offsets[index] - self._starts[index]
        return start + shift, end + shift
