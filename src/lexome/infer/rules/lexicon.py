"""A small lexicon of brands, clinical abbreviations, viruses, cell lines and genes, for texts with little context.

Ambiguous abbreviations (CAD is a disease, and a computer's help in design) count only in clinical text.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from lexome.infer.rules.mention import Drop, Mention, NameIndex
from lexome.infer.rules.overlaps import overlapping

RULE = "lexicon"

# Precision on the development sets of what the lexicon added there (results/annotator_rules.json).
SCORE = 0.95

# Below this score, what the model found is replaced by the lexicon's name.
UNSURE = 0.5

# Words and forms of clinical notes and case reports; two different ones make a text clinical.
CLINICAL = re.compile(
    r"\b(?:(pts?|patients?)|(h/o|history of|hx|PMHx?)|(s/p|status post)|(dx|diagnos(?:is|ed))|(rx|prescribed)"
    r"|(\d+ ?(?:y/?o|yo|yr|years?[- ]old))|(admitted|admission|discharged?)"
    r"|(\d+ ?mg|mcg|bid|b\.i\.d\.|tid|qd|q\d+h|prn|p\.?o\.?)|(present(?:s|ed|ing)?|c/o|complain\w+)"
    r"|(denies|denied|endorses)|(started on|continue[ds]?|discontinue[ds]?)|(BP|HR|SpO2|ECG|EKG|CT|MRI|CXR|labs)"
    r"|(ED visit|ICU|ER|clinic))\b",
    re.IGNORECASE,
)
MIN_CUES = 2

# A protein right after the name of its virus, whose names are words elsewhere.
VIRAL_PROTEIN = re.compile(
    r"[ -]((?:nsp|NSP)\d{1,2}|ORF ?\d{1,2}[a-z]?|Tat|Rev|Nef|Vpr|Vpu|Vif|Vpx|Gag|Env|Pol|gp(?:41|120|160)|p24"
    r"|[Ss]pike|nucleocapsid|Mpro|PLpro|3CLpro|RdRp|NS\d[AB]?|HBx|HBsAg|HBeAg|core protein|E[1-7]|L[12]|LMP[12]A?"
    r"|EBNA-?\d[A-C]?|BZLF1|LANA|ICP\d{1,2}|US\d{1,2}|UL\d{1,3}|Tax|HBZ)(?!\w)"
)


@dataclass(frozen=True, slots=True)
class Entry:
    """The type of a name, and whether it counts in clinical text only."""

    type: str
    clinical: bool


@cache
def lexicon() -> tuple[NameIndex, dict[str, Entry]]:
    """The names with their entries, and the index that finds them."""
    entries: dict[str, Entry] = {}
    text = resources.files("lexome.infer.rules").joinpath("lexicon.tsv").read_text(encoding="utf-8")
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, type_, case, context = line.split("\t")
            for form in (name, name.lower(), name.upper()) if case == "any" else (name,):
                entries.setdefault(form, Entry(type_, context == "clinical"))
    return NameIndex(entries), entries


def is_clinical(text: str) -> bool:
    """Whether a text reads like a clinical note: it has cues of at least two kinds."""
    kinds: set[int] = set()
    for cue in CLINICAL.finditer(text):
        kinds.add(cue.lastindex or 0)
        if len(kinds) >= MIN_CUES:
            return True
    return False


def apply_lexicon(
    text: str, mentions: Sequence[Mention], drops: list[Drop], *, types: Collection[str]
) -> list[Mention]:
    """The mentions with names of the lexicon added where the model has none, or has only a part of the name."""
    index, entries = lexicon()
    found: list[tuple[int, int, str]] = []
    clinical: bool | None = None
    defined: dict[str, bool] = {}
    for start, end in index.find(text):
        name = text[start:end]
        entry = entries[name]
        if entry.type not in types:
            continue
        if entry.clinical:
            if clinical is None:
                clinical = is_clinical(text)
            # Where a text defines an abbreviation, it has a meaning of its own.
            if not clinical or _defines(text, name, defined):
                continue
        found.append((start, end, entry.type))
        if entry.type == "Species" and "Gene" in types and (protein := VIRAL_PROTEIN.match(text, end)):
            found.append((*protein.span(1), "Gene"))
    if not found:
        return list(mentions)
    viruses = {(start, end) for start, end, type_ in found if type_ == "Species"}
    current = _cut_at_viruses(text, mentions, viruses, drops)
    return _with_names(text, current, found, drops)


def _cut_at_viruses(
    text: str, mentions: Sequence[Mention], viruses: Collection[tuple[int, int]], drops: list[Drop]
) -> list[Mention]:
    """Genes that begin with the name of a virus, without it: nsp12 in "SARS-CoV-2 nsp12"."""
    end_of = dict(viruses)
    cut: list[Mention] = []
    for mention in mentions:
        end = end_of.get(mention.start, mention.end)
        if mention.type == "Gene" and end < mention.end - 1 and text[end] in " -":
            drops.append(Drop(mention, f"cut after {text[mention.start : end]!r}"))
            mention = mention.moved(end + 1, mention.end)
        cut.append(mention)
    return cut


def _with_names(
    text: str, mentions: Sequence[Mention], found: Sequence[tuple[int, int, str]], drops: list[Drop]
) -> list[Mention]:
    """The mentions, with each name that the model has not found, or only a part of, or with another type."""
    ordered = sorted(
        (*mentions, *(Mention(start, end, type_, SCORE, RULE) for start, end, type_ in found)),
        key=lambda mention: (mention.start, -mention.end),
    )
    rivals = overlapping(ordered)
    removed: set[int] = set()
    for number, name in enumerate(ordered):
        if name.rule != RULE:
            continue
        others = [other for other in rivals[number] if ordered[other].rule != RULE]
        inside = all(name.start <= ordered[other].start and ordered[other].end <= name.end for other in others)
        same = (ordered[other] for other in others if ordered[other].place == name.place)
        # What the model found itself stays, but for a score that the name alone deserves.
        if not inside or any(mention.type == name.type and mention.score >= UNSURE for mention in same):
            removed.add(number)
            continue
        for other in set(others) - removed:
            drops.append(Drop(ordered[other], f"{text[slice(*name.place)]!r} is a {name.type} in the lexicon"))
        removed.update(others)
    return [mention for number, mention in enumerate(ordered) if number not in removed]


def _defines(text: str, name: str, known: dict[str, bool]) -> bool:
    """Whether the text has the name in parentheses; each name is searched for once."""
    if name not in known:
        known[name] = f"({name})" in text
    return known[name]
