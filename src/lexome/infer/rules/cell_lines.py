"""Cell lines by the convention of BioRED: the name of a line, without "cells", and no cell types."""

import re
from collections.abc import Iterator, Sequence

from lexome.infer.rules.mention import Drop, Mention

TYPE = "CellLine"

# Words after the name that are not part of it.
TRAILING = re.compile(
    r"(?:[\s-]+|(?<=\)))(?:(?:cancer|carcinoma|tumou?r|leuk(?:a)?emia|lymphoma|melanoma|glioma|myeloma|adenocarcinoma"
    r"|neuroblastoma|hepatoma|stem|host|packaging|feeder|suspension|epithelial|fibroblast|hybridoma|parental|producer)s?[\s-]+)*"
    r"(?:sub)?(?:cells?|cell[\s-]?lines?|lines?|cultures?|clones?|subclones?|monolayers?|xenografts?|spheroids?|transfectants?"
    r"|macrophages?|monocytes?|myoblasts?|myotubes?|(?:pre)?adipocytes?|keratinocytes?|hepatocytes?|neurons?"
    r"|fibroblasts?|hybridomas?|populations?|lysates?)(?:[\s-]+(?:lines?|clones?|cultures?|monolayers?|xenografts?|lysates?))*\Z",
    re.IGNORECASE,
)
# Organs and diseases after the name: "A549 lung", "U87 glioma".
ORIGIN = re.compile(r"(?:\s+[a-z]{3,20})+\Z")
# A word before the name that describes it: all lower-case letters, or a species, organ or "wild-type".
LEADING = re.compile(
    r"(?:(?:(?:[a-z]+(?:-[a-z]+)*|\w+-(?:deficient|expressing|transfected|treated|infected|stimulated|negative|positive|resistant"
    r"|sensitive|dependent|independent|derived|null|producing|overexpressing|transformed|transduced)|Human|Murine|Mouse|Rat|Chinese|Burkitt's|EBV)"
    r",?)[\s]+)+",
)
NAME = re.compile(r"[A-Z0-9]")
# Characters at either end of a mention that are searched: patterns that repeat words must not see a whole page.
EDGE = 80

# A description that ends before the name: "HA-HuR expressing Huh7", "HSC cell line LX-2", "WT HEK", "KO U2OS".
DESCRIPTION = re.compile(
    r".*\b(?:expressing|transfected|depleted|treated|infected|transduced|derived|deficient|resistant|knockout|knockdown|cell"
    r" lines?|cells|line|WT|KO|KD|wt|ko|Confluent|control)[\s:]+(?=\S*[A-Z0-9])"
)
# Two lines with a comma between them.
LIST = re.compile(r",\s+(?:and\s+)?")
# Names of species, and words at the beginning of a sentence.
NOT_NAMES = re.compile(
    r"[A-Z](?:[a-z]+|\.)\s[a-z]+(?:\s.*)?|[A-Za-z]|Dermal|Primary|Normal|Human|Mouse|Western blot|Both|These|Stable"
    r"|Adherent|Cultured|Clonal|Tumou?r|Cancer|CRISPR|pcDNA3(?:\.1)?|GFP|EGFP|Cells?"
)

# What is left of a cell type once "cells" is cut. Lines have names; these are classes (Cell Ontology's abbreviations).
CELL_TYPES = re.compile(
    r"(?:\w+\s)*(?:CD\d+\w?(?:[+-]|\(\W\)|bright|high|low|hi|lo|dim)*[\s/]*)*(?:T|B|NK|NKT|Th\d{0,2}|Tregs?|Treg|Tfh|Tc\d?|ILC\dS?|DCs?|mDCs?|pDCs?|BMDCs?|MoDCs?"
    r"|BMDMs?|MDMs?|PBMCs?|PBLs?|PMNs?|TILs?|CTLs?|LAK|APCs?|HSCs?|HSPCs?|MSCs?|BMSCs?|BM-MSCs?|hMSCs?|ADSCs?|ASCs?|NSCs?|ESCs?|hESCs?|mESCs?|ES|iPSCs?|iPS"
    r"|hiPSCs?|PSCs?|EPCs?|ECs?|SMCs?|VSMCs?|RBCs?|WBCs?|CSCs?|CICs?|GSCs?|TAMs?|MDSCs?|OPCs?|ICCs?|ECFCs?|RPE|ESC|PGCs?|SSCs?|GCs?|MEFs?|NHEKs?|HUVECs?|HPCs?|KCs?"
    r"|LCs?|MCs?|AMs?|ICs?|NPCs?|Schwann|Sertoli|Leydig|Kupffer|Purkinje|Langerhans|Paneth|Merkel|Müller|Muller|Clara|Hodgkin|CD\d+\w?(?:[+-]|\(\W\))*|GFP|WT|KO|Fig)",
)
# Cell types that BioRED does annotate where they serve as a line.
SERVE_AS_LINES = frozenset(("MEF", "MEFs"))
# Continues a name that the word boundary cut: COS in "COS-7".
CONTINUATION = re.compile(r"[-/.]?\d{1,5}[A-Za-z]{0,3}(?!\w)|-[A-Z]{1,2}\d{0,4}(?![\w-])")


def apply_cell_lines(text: str, mentions: Sequence[Mention], drops: list[Drop]) -> Iterator[Mention]:
    """The mentions with cell lines cut to their names, and without those that are cell types."""
    seen: set[tuple[int, int]] = set()
    for mention in mentions:
        if mention.type != TYPE:
            yield mention
            continue
        for start, end in _split(text, *line_name(text, *mention.place)):
            name = text[start:end]
            if is_cell_type(name):
                drops.append(Drop(mention, "a cell type, not a cell line"))
            elif (start, end) in seen:
                drops.append(Drop(mention, f"the same cell line as {name!r}"))
            else:
                if (start, end) != mention.place:
                    drops.append(Drop(mention, f"cut to the name of the line, {name!r}"))
                seen.add((start, end))
                yield mention.moved(start, end)


def is_cell_type(name: str) -> bool:
    """Whether a name is that of a class of cells, or none at all, rather than that of a line."""
    if not NAME.search(name) or name in SERVE_AS_LINES:
        return name not in SERVE_AS_LINES
    return len(name) <= EDGE and bool(CELL_TYPES.fullmatch(name) or NOT_NAMES.fullmatch(name))


def _split(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The place, or those of the lines that a comma separates."""
    for comma in LIST.finditer(text, start, end):
        yield start, comma.start()
        start = comma.end()
    yield start, end


def line_name(text: str, start: int, end: int) -> tuple[int, int]:
    """The place of the name in a mention such as "human HEK293 cells"."""
    tail = max(start, end - EDGE)
    if trailing := TRAILING.search(text[tail:end]):
        end = tail + trailing.start()
    else:
        more = CONTINUATION.match(text, end) if text[end - 1].isalnum() else None
        if more:
            end = more.end()
    if origin := ORIGIN.search(text[max(start, end - EDGE) : end]):
        rest = end - len(origin.group())
        end = rest if NAME.search(text, start, rest) else end
    if description := DESCRIPTION.match(text, start, min(end, start + EDGE)):
        start = description.end()
    if leading := LEADING.match(text, start, min(end, start + EDGE)):
        start = leading.end()
    while end > start and text[end - 1] in " ,;:/([-":
        end -= 1
    while start < end and text[start] in " ,;:/)]-.":
        start += 1
    # "(MCF-7)"
    if start < end and text[start] == "(" and text[end - 1] == ")" and ")" not in text[start : end - 1]:
        start, end = start + 1, end - 1
    return start, end
