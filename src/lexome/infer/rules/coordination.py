"""Members of a gene family written as one word: Mcm4/6/7, ERK1/2, SMAD1/5/8.

NLM-Gene and BioRED annotate such a word as one mention: 106 of 114 in their training splits, none member by member.
Ellipsis in other types ("breast and ovarian cancer") is one mention in the datasets as well, and in the model's output.
"""

import re
from collections.abc import Sequence

from lexome.infer.rules.mention import Drop, Mention
from lexome.infer.rules.overlaps import overlapping

RULE = "coordination"
# Precision in the training splits.
SCORE = 0.9

FAMILY = re.compile(r"(?<![\w/.-])(?=[A-Za-z]*[A-Z])[A-Za-z]{2,6}\d{1,2}[a-z]?(?:/\d{1,2}[a-z]?){1,4}(?![\w/-])")
# Words that are numbered but no genes: helper T cells, figures, trial phases, viruses, half-lives.
NOT_FAMILIES = re.compile(
    r"(?:Th|Fig|Figs|Tab|Table|Type|Day|Days|Week|Phase|Stage|Grade|Step|Level|Group|Class|Exp|No|Ref|Eq|Chr|PM|CIN|VAIN"
    r"|COVID|HSV|HIV|HTLV|HPV|FIGO|Child|Log|Lane|Ex|Exon|Case|Part|Vol|Sect|Model|Site|Zone|Line|Arm|BP|GCS|ECOG|WHO)\d",
    re.IGNORECASE,
)


def apply_coordination(text: str, mentions: Sequence[Mention], drops: list[Drop]) -> list[Mention]:
    """The mentions with families added as genes, in place of genes that are only a part of one."""
    families = [match.span() for match in FAMILY.finditer(text) if not NOT_FAMILIES.match(match.group())]
    if not families:
        return list(mentions)
    made = [Mention(start, end, "Gene", SCORE, RULE) for start, end in families]
    ordered = sorted((*mentions, *made), key=lambda mention: (mention.start, -mention.end))
    rivals = overlapping(ordered)
    removed: set[int] = set()
    for number, family in enumerate(ordered):
        if family.rule != RULE:
            continue
        low, high = family.place
        parts = [
            other
            for other in rivals[number]
            if ordered[other].type == "Gene" and low <= ordered[other].start and ordered[other].end <= high
        ]
        if len(parts) < len(rivals[number]) or any(ordered[part].place == family.place for part in parts):
            removed.add(number)
            continue
        drops += [Drop(ordered[part], f"a part of {text[slice(*family.place)]!r}") for part in parts]
        removed.update(parts)
    return [mention for number, mention in enumerate(ordered) if number not in removed]
