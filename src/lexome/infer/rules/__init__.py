"""Rules after the model: corrections of its mentions that are cheaper to state than to learn.

Each rule is linear in the text and its mentions, can be switched off, and was measured on development sets
(benchmarks/annotator_rules.py). A model has rules only if its model.json names them.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from lexome.infer.rules.boundaries import apply_boundaries
from lexome.infer.rules.cell_lines import apply_cell_lines
from lexome.infer.rules.consistency import Definition, abbreviations, repeated_names, repeated_sentences
from lexome.infer.rules.coordination import apply_coordination
from lexome.infer.rules.lexicon import apply_lexicon
from lexome.infer.rules.mention import Drop, Mention
from lexome.infer.rules.overlaps import resolve_overlaps
from lexome.infer.rules.variants import apply_variants

RULES = (
    "boundaries",
    "cell-lines",
    "variants",
    "coordination",
    "lexicon",
    "abbreviations",
    "repeated-names",
    "repeated-sentences",
)


@dataclass(slots=True)
class Refined:
    """The mentions after all rules, and what the rules removed or moved, for `explain`."""

    mentions: list[Mention]
    drops: list[Drop] = field(default_factory=list)


def refine(
    text: str,
    mentions: Sequence[Mention],
    *,
    types: Collection[str],
    rules: Collection[str],
    resolve: bool = True,
    definitions: Sequence[Definition] = (),
) -> Refined:
    """Apply rules to the mentions that a model of these types predicted; with `resolve`, keep one type per place.

    `definitions` are the abbreviations that the text defines.
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
    return Refined(sorted(current, key=lambda mention: (mention.start, -mention.end, mention.type)), drops)
