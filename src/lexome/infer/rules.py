"""Rules after the model: corrections of its mentions that are cheaper to state than to learn.

Each rule is linear in the text and its mentions, can be switched off, and was measured on development sets
(benchmarks/annotator_rules.py). A model has rules only if its model.json names them; `lexome.infer.selection` applies
them. Those for boundaries, variants and the forms of names are in modules of their own.
"""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources

from lexome.frozen import fast_dataclass

RULES = (
    "boundaries",
    "cell-lines",
    "variants",
    "coordination",
    "name-forms",
    "lexicon",
    "abbreviations",
    "repeated-names",
    "repeated-sentences",
)


@fast_dataclass
class Mention:
    """A mention in the text of a document; `rule` is the rule that made it, None if the model predicted it."""

    start: int
    end: int
    type: str
    score: float
    rule: str | None = None

    @property
    def place(self) -> tuple[int, int]:
        """Start and end."""
        return self.start, self.end

    def moved(self, start: int, end: int) -> "Mention":
        """The same mention with other boundaries."""
        return Mention(start, end, self.type, self.score, self.rule)


@fast_dataclass
class Drop:
    """A mention that a rule removed or moved, with the reason."""

    mention: Mention
    reason: str


class RareForm:
    """A regular expression that begins with a lookbehind, such as `(?<!\\w)`, and that few texts match.

    `re` skips to characters that a match may begin with, but not if the expression begins with a lookbehind. So a text
    is first searched without it, or for a `sign` that all matches contain. For `re` to skip, what is searched has to
    begin with a character or a set of characters, and of several alternatives, each with a character.
    """

    def __init__(self, lookbehind: str, form: str, *, sign: str | None = None) -> None:
        self.pattern = re.compile(f"{lookbehind}(?:{form})")
        self._sign = re.compile(form if sign is None else sign)

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        """The matches in a text."""
        return self.pattern.finditer(text) if self._sign.search(text) is not None else iter(())


WORD = re.compile(r"[^\W_]+")

# Longer names are sentences; the bound keeps look-ups per word constant.
MAX_NAME = 80

# Up to this many names are searched one by one.
FEW_NAMES = 64


class NameIndex:
    """Finds the occurrences of many names, whole words only, in time linear in the text.

    >>> list(NameIndex({"type 2 diabetes", "diabetes"}).find("In type 2 diabetes, diabetesx and diabetes."))
    [(3, 18), (34, 42)]
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names: set[str] = set()
        # By first word, the lengths of its names, longest first: there are at most MAX_NAME.
        lengths: dict[str, set[int]] = {}
        for name in names:
            first = WORD.match(name)
            if first is not None and _can_be_found(name):
                self._names.add(name)
                lengths.setdefault(first.group(), set()).add(len(name))
        self._lengths = {word: sorted(of_word, reverse=True) for word, of_word in lengths.items()}

    def __bool__(self) -> bool:
        return bool(self._names)

    def find(self, text: str) -> Iterator[tuple[int, int]]:
        """The longest name at each place, from left to right, without overlaps."""
        end_of_last = 0
        known = self._lengths.keys() & words_of(text)
        for start, first in sorted((place, word) for word in known for place in _places(text, word)):
            if start < end_of_last:
                continue
            for length in self._lengths[first]:
                end = start + length
                if text[start:end] in self._names and _ends_word(text, end):
                    yield start, end
                    end_of_last = end
                    break


def find_names(text: str, names: Collection[str]) -> Iterator[tuple[int, int]]:
    """The longest name at each place, as NameIndex finds them; for a few names, searching is faster than an index."""
    if len(names) > FEW_NAMES:
        yield from NameIndex(names).find(text)
        return
    places: list[tuple[int, int]] = []
    for name in names:
        length = len(name)
        start = text.find(name) if _can_be_found(name) else -1
        while start >= 0:
            if not text[max(0, start - 1) : start].isalnum() and _ends_word(text, start + length):
                places.append((start, -length))
            start = text.find(name, start + 1)
    end_of_last = 0
    for start, length in sorted(places):
        if start >= end_of_last:
            end_of_last = start - length
            yield start, end_of_last


def _can_be_found(name: str) -> bool:
    """Whether a name begins with a word and is no sentence."""
    return name[:1].isalnum() and len(name) <= MAX_NAME and not name[-1].isspace()


# All of ASCII but letters and digits.
_SPACES = dict.fromkeys((code for code in range(128) if not chr(code).isalnum()), " ")


# Several rules look for names in the same text, one after the other.
@lru_cache(maxsize=1)
def words_of(text: str) -> frozenset[str]:
    """The words of a text."""
    # The same words, in half the time.
    return frozenset(text.translate(_SPACES).split() if text.isascii() else WORD.findall(text))


def _places(text: str, word: str) -> Iterator[int]:
    """Where a word begins, as a whole word."""
    start = text.find(word)
    while start >= 0:
        end = start + len(word)
        if not (text[end : end + 1].isalnum() or text[max(0, start - 1) : start].isalnum()):
            yield start
        start = text.find(word, end)


def _ends_word(text: str, end: int) -> bool:
    """Whether a name that ends here is not continued by a letter or digit."""
    return end <= len(text) and not (text[end - 1].isalnum() and text[end : end + 1].isalnum())


class Occupied:
    """The places of mentions, to ask whether a range overlaps one of them."""

    def __init__(self, text: str, mentions: Iterable[Mention]) -> None:
        self._covered = bytearray(len(text))
        for mention in mentions:
            self.add(*mention.place)

    def add(self, start: int, end: int) -> None:
        """Cover a range."""
        self._covered[start:end] = b"\1" * (end - start)

    def overlaps(self, start: int, end: int) -> bool:
        """Whether any character of the range is covered."""
        return self._covered.find(1, start, end) >= 0


# One type per place: which of several overlapping mentions of different types stay


# A mention inside one of another type, such as the virus in "HIV infection", stays from this score on.
NESTED_MIN_SCORE = 0.4
# By (inner, outer) where the model is wrong more often below: "Tumor" in "Tumor necrosis factor".
NESTED_MIN_SCORES = {("Disease", "Gene"): 0.6, ("Species", "Disease"): 0.48, ("Species", "Gene"): 0.75}

# Added to the scores that are compared; chosen on development sets. A protein is often a chemical to the model as well,
# and a disease named after its gene a gene.
BONUS = {"Chemical": -0.1, "Disease": 0.1}

# Types that may be part of a name of another type: (inner, outer).
NESTED = frozenset(
    (
        ("Species", "Disease"),
        ("Species", "Gene"),
        ("Species", "Chemical"),
        ("Species", "CellLine"),
        ("Gene", "Disease"),
        ("Gene", "Chemical"),
        ("Gene", "Variant"),
        ("Gene", "Gene"),
        ("Chemical", "Disease"),
        ("Chemical", "Gene"),
        ("Disease", "Gene"),
        ("Disease", "Chemical"),
        ("Disease", "CellLine"),
    )
)


def resolve_overlaps(mentions: Sequence[Mention], drops: list[Drop]) -> list[Mention]:
    """The mentions without those that a better one excludes, best scores first.

    Of mentions at the same place, and of those that cross, the one with the highest score stays. A mention inside
    another one stays if such nesting occurs in annotated text and it is likely enough to be right.
    """
    ordered = sorted(mentions, key=lambda one: (one.start, -one.end, -one.score, one.type))
    rivals = overlapping(ordered)
    kept = [False] * len(ordered)
    for number in sorted(range(len(ordered)), key=lambda place: (-_rank(ordered[place]), place)):
        mention = ordered[number]
        better = next((other for other in rivals[number] if kept[other] and _excludes(ordered[other], mention)), None)
        if better is None:
            kept[number] = True
        elif (mention.type, mention.place) != (ordered[better].type, ordered[better].place):
            reason = f"overlaps {ordered[better].type} {ordered[better].score:.2f}, which is more probable"
            drops.append(Drop(mention, reason))
    return [mention for mention, keep in zip(ordered, kept, strict=True) if keep]


def _rank(mention: Mention) -> float:
    """The score by which overlapping mentions are compared."""
    return mention.score + BONUS.get(mention.type, 0.0)


def overlapping(ordered: Sequence[Mention]) -> list[list[int]]:
    """For each of ordered mentions, the numbers of those that overlap it.

    Mentions of one type do not overlap, so that at each place there are at most as many as types: the time is linear.
    """
    rivals: list[list[int]] = [[] for _ in ordered]
    active: list[int] = []
    for number, mention in enumerate(ordered):
        active = [other for other in active if ordered[other].end > mention.start]
        for other in active:
            rivals[other].append(number)
        rivals[number] += active
        active.append(number)
    return rivals


def _excludes(better: Mention, mention: Mention) -> bool:
    """Whether a better mention excludes one that overlaps it."""
    if mention.place == better.place:
        return True
    if mention.start >= better.start and mention.end <= better.end:
        inner, outer = mention, better
    elif better.start >= mention.start and better.end <= mention.end:
        inner, outer = better, mention
    else:
        return True
    types = inner.type, outer.type
    return types not in NESTED or inner.score < NESTED_MIN_SCORES.get(types, NESTED_MIN_SCORE)


# Cell lines by the convention of BioRED: the name of a line, without "cells", and no cell types


CELL_LINE = "CellLine"

# Words after the name that are not part of it.
LINE_TRAILING = re.compile(
    r"(?:[\s-]+|(?<=\)))(?:(?:cancer|carcinoma|tumou?r|leuk(?:a)?emia|lymphoma|melanoma|glioma|myeloma|adenocarcinoma"
    r"|neuroblastoma|hepatoma|stem|host|packaging|feeder|suspension|epithelial|fibroblast|hybridoma|parental|producer)s?[\s-]+)*"
    r"(?:sub)?(?:cells?|cell[\s-]?lines?|lines?|cultures?|clones?|subclones?|monolayers?|xenografts?|spheroids?|transfectants?"
    r"|macrophages?|monocytes?|myoblasts?|myotubes?|(?:pre)?adipocytes?|keratinocytes?|hepatocytes?|neurons?"
    r"|fibroblasts?|hybridomas?|populations?|lysates?)(?:[\s-]+(?:lines?|clones?|cultures?|monolayers?|xenografts?|lysates?))*\Z",
    re.IGNORECASE,
)
# Genotypes after the name: "Huh7 EMC1 KO".
LINE_GENOTYPE = re.compile(r"\s\S{2,10}\s(?:KO|KD|WT|DKO|knock-?outs?|knock-?downs?)\Z")
# Organs and diseases after the name: "A549 lung", "U87 glioma".
LINE_ORIGIN = re.compile(r"(?:\s+[a-z]{3,20})+\Z")
# A word before the name that describes it: all lower-case letters, or a species, organ or "wild-type".
LINE_LEADING = re.compile(
    r"(?:(?:(?:[a-z]+(?:-[a-z]+)*|\w+-(?:deficient|expressing|transfected|treated|infected|stimulated|negative|positive|resistant"
    r"|sensitive|dependent|independent|derived|null|producing|overexpressing|transformed|transduced)|Human|Murine|Mouse|Rat|Chinese|Burkitt's|EBV)"
    r",?)[\s]+)+",
)
LINE_NAME = re.compile(r"[A-Z0-9]")
# Characters at either end of a mention that are searched: patterns that repeat words must not see a whole page.
EDGE = 80

# A description that ends before the name: "HA-HuR expressing Huh7", "HSC cell line LX-2", "WT HEK", "KO U2OS".
DESCRIPTION = re.compile(
    r".*\b(?:expressing|transfected|depleted|treated|infected|transduced|derived|deficient|resistant|knockout|knockdown|cell"
    r" lines?|cells|line|WT|KO|KD|wt|ko|Confluent|control)[\s:]+(?=\S*[A-Z0-9])"
)
# Two lines with a comma between them.
LINE_LIST = re.compile(r",\s+(?:and\s+)?")
# Names of species, and words at the beginning of a sentence.
NOT_NAMES = re.compile(
    r"[A-Z](?:[a-z]+|\.)\s[a-z]+(?:\s.*)?|[A-Za-z]|\S+-(?:like|expressing|inducible|deficient|positive|negative|null)"
    r"|Immortal(?:ized)?|Continuous|Established|Dermal|Primary|Normal|Human|Mouse|Western blot|Both|These|Stable"
    # Strains of mice, rats and bacteria.
    r"|C57B[lL][/ -]?\d\d?\w*|BALB/?c\w*|Balb/c|C3H/He\w*|DBA/\d\w?|FVB(?:/N\w*)?|129\w?\d?/\w+"
    r"|WKY|SHR|SHRSP|H37R[av]|PAO1|SF370|MG1655|SL1344|Adherent|Cultured|Clonal|Tumou?r|Cancer|CRISPR|pcDNA3(?:\.1)?|GFP|EGFP|Cells?"
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
        if mention.type != CELL_LINE:
            yield mention
            continue
        for start, end in _split_lines(text, *line_name(text, *mention.place)):
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
    if not LINE_NAME.search(name) or name in SERVE_AS_LINES:
        return name not in SERVE_AS_LINES
    return len(name) <= EDGE and bool(CELL_TYPES.fullmatch(name) or NOT_NAMES.fullmatch(name))


def _split_lines(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The place, or those of the lines that a comma separates."""
    for comma in LINE_LIST.finditer(text, start, end):
        yield start, comma.start()
        start = comma.end()
    yield start, end


def line_name(text: str, start: int, end: int) -> tuple[int, int]:
    """The place of the name in a mention such as "human HEK293 cells"."""
    tail = max(start, end - EDGE)
    if trailing := LINE_TRAILING.search(text[tail:end]):
        end = tail + trailing.start()
    else:
        more = CONTINUATION.match(text, end) if text[end - 1].isalnum() else None
        if more:
            end = more.end()
    if genotype := LINE_GENOTYPE.search(text[max(start, end - EDGE) : end]):
        rest = end - len(genotype.group())
        end = rest if LINE_NAME.search(text, start, rest) else end
    if origin := LINE_ORIGIN.search(text[max(start, end - EDGE) : end]):
        rest = end - len(origin.group())
        end = rest if LINE_NAME.search(text, start, rest) else end
    if description := DESCRIPTION.match(text, start, min(end, start + EDGE)):
        start = description.end()
    if leading := LINE_LEADING.match(text, start, min(end, start + EDGE)):
        start = leading.end()
    while end > start and text[end - 1] in " ,;:/([-":
        end -= 1
    while start < end and text[start] in " ,;:/)]-.":
        start += 1
    # "(MCF-7)"
    if start < end and text[start] == "(" and text[end - 1] == ")" and ")" not in text[start : end - 1]:
        start, end = start + 1, end - 1
    return start, end


# Members of a gene family written as one word: Mcm4/6/7, ERK1/2, SMAD1/5/8
#
# NLM-Gene and BioRED annotate such a word as one mention: 106 of 114 in their training splits, none member by member.
# Ellipsis in other types ("breast and ovarian cancer") is one mention in the datasets and in the model's output too.


COORDINATION = "coordination"
# Precision in the training splits.
FAMILY_SCORE = 0.9

FAMILY = re.compile(r"(?<![\w/.-])(?=[A-Za-z]*[A-Z])[A-Za-z]{2,6}\d{1,2}[a-z]?(?:/\d{1,2}[a-z]?){1,4}(?![\w/-])")
# What any family has.
NUMBERS = re.compile(r"\d[a-z]?/\d")
# Words that are numbered but no genes: helper T cells, figures, trial phases, viruses, half-lives.
NOT_FAMILIES = re.compile(
    r"(?:Th|Fig|Figs|Tab|Table|Type|Day|Days|Week|Phase|Stage|Grade|Step|Level|Group|Class|Exp|No|Ref|Eq|Chr|PM|CIN|VAIN"
    r"|COVID|HSV|HIV|HTLV|HPV|FIGO|Child|Log|Lane|Ex|Exon|Case|Part|Vol|Sect|Model|Site|Zone|Line|Arm|BP|GCS|ECOG|WHO)\d",
    re.IGNORECASE,
)


def apply_coordination(text: str, mentions: Sequence[Mention], drops: list[Drop]) -> list[Mention]:
    """The mentions with families added as genes, in place of genes that are only a part of one."""
    if "/" not in text or not NUMBERS.search(text):
        return list(mentions)
    families = [match.span() for match in FAMILY.finditer(text) if not NOT_FAMILIES.match(match.group())]
    if not families:
        return list(mentions)
    made = [Mention(start, end, "Gene", FAMILY_SCORE, COORDINATION) for start, end in families]
    ordered = sorted((*mentions, *made), key=lambda mention: (mention.start, -mention.end))
    rivals = overlapping(ordered)
    removed: set[int] = set()
    for number, family in enumerate(ordered):
        if family.rule != COORDINATION:
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


# A small lexicon of brands, clinical abbreviations, viruses, cell lines and genes, for texts with little context
#
# Ambiguous abbreviations (CAD is a disease, and a computer's help in design) count only in clinical text.


LEXICON = "lexicon"

# Precision on the development sets of what the lexicon added there (results/annotator_rules.json).
LEXICON_SCORE = 0.95

# Below this score, what the model found is replaced by the lexicon's name.
UNSURE = 0.5

# Below this score, a longer mention does not hide the lexicon's name: that of the minimum scores of most types.
DOUBTED = 0.4

# An ambiguous abbreviation in a clinical text. Of 45,066 abstracts, five have one, and it was right in each; no dataset
# has clinical notes, where there are more.
AMBIGUOUS_SCORE = 0.8

# What only clinical notes have: one of these makes a text clinical.
NOTE = re.compile(
    r"(?<![\w/])(?:[hscr]/[op]|[pd]/[cw]|PMHx?|[HDRhdr]x|NKDA|\d+ ?y/?o|(?:HPI|A/P|ROS|Labs|Meds|Allergies):"
    r"|[Pp]ts? (?:with|w/|is|was|has|had|on|admitted|presents|denies|reports|states|[hsc]/[op]))(?![\w/])"
)
# Forms of case reports as well; two different ones make a text clinical, but not where it speaks of research.
CASE = re.compile(
    r"\b(?:(\d+[- ]years?[- ]old)|(history of)|(admitted|discharged)|(denies|denied|endorses)"
    r"|(present(?:s|ed|ing) (?:to|with))|(complain(?:s|ed|ing) of)|(started|switched to)|(diagnosed with)"
    r"|(Assessment:|Impression:|\bw/(?! ?o\b)|f/u)"
    r"|(\d+ ?mg (?:daily|nightly|bid|tid|qid|qd|qhs|po|prn|once|twice)|b\.?i\.?d\.?|t\.i\.d\.|prn|qhs))(?!\w)",
    re.IGNORECASE,
)
RESEARCH = re.compile(
    r"\b(?i:we|our|enrolled|recruited|randomi[sz]ed|cohorts?|mice|rats|in vitro|software|meta-analysis|placebo)\b"
    r"|\b(?:METHODS|RESULTS|CONCLUSIONS?)\b"
)
MIN_CUES = 2
# So many unambiguous names of the lexicon are as good as two cues: "HTN, T2DM, CAD on Lipitor".
MANY_NAMES = 3
# English words in capitals, which a line of capitals has in their own meaning.
WORDS = frozenset(("AS", "ALL", "CAP"))
# How far around such a word lowercase letters are looked for.
CAPITALS = 40
# Room air in "98% on RA", the classes of the American Society of Anesthesiologists, and headings: "PE:" is the
# physical examination.
OTHER_MEANING = re.compile(
    r"(?:\bon|%) ?RA\b|\bASA (?:physical|class|score|status|grade|I{1,3}V?|IV|[1-6])\b|\b(?:PE|AS|CP):"
)
MEANING_BEFORE, MEANING_AFTER = 4, 10

# A protein right after the name of its virus, whose names are words elsewhere.
VIRAL_PROTEIN = re.compile(
    r"(?: (?:sero|geno)?type \d\w?)?[ -]"
    r"((?:nsp|NSP)\d{1,2}|ORF ?\d{1,2}[a-z]?|Tat|Rev|Nef|Vpr|Vpu|Vif|Vpx|Gag|Env|Pol|gp(?:41|120|160)|p24"
    r"|[Ss]pike|nucleocapsid|Mpro|PLpro|3CLpro|RdRp|NS\d[AB]?|HBx|HBsAg|HBeAg|core protein|E[1-7]|L[12]|LMP[12]A?"
    r"|EBNA-?\d[A-C]?|BZLF1|LANA|ICP\d{1,2}|US\d{1,2}|UL\d{1,3}|Tax|HBZ)(?!\w)"
)


@dataclass(frozen=True, slots=True)
class LexiconEntry:
    """The type of a name, and whether it counts in clinical text only."""

    type: str
    clinical: bool


@cache
def lexicon() -> tuple[NameIndex, dict[str, LexiconEntry]]:
    """The names with their entries, and the index that finds them."""
    entries: dict[str, LexiconEntry] = {}
    text = resources.files("lexome.infer").joinpath("lexicon.tsv").read_text(encoding="utf-8")
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, type_, case, context = line.split("\t")
            for form in (name, name.lower(), name.upper()) if case == "any" else (name,):
                entries.setdefault(form, LexiconEntry(type_, context == "clinical"))
    return NameIndex(entries), entries


def is_clinical(text: str, names: int = 0) -> bool:
    """Whether a text reads like a clinical note or case report; `names` of the lexicon's unambiguous ones are in it."""
    if NOTE.search(text):
        return True
    kinds: set[int] = set()
    needed = MIN_CUES - (MIN_CUES if names >= MANY_NAMES else min(names, 1))
    for cue in CASE.finditer(text) if needed > 0 else ():
        kinds.add(cue.lastindex or 0)
        if len(kinds) >= needed:
            break
    return len(kinds) >= needed and not RESEARCH.search(text)


def apply_lexicon(
    text: str, mentions: Sequence[Mention], drops: list[Drop], *, types: Collection[str]
) -> list[Mention]:
    """The mentions with names of the lexicon added where the model has none, or has only a part of the name."""
    index, entries = lexicon()
    found: list[Mention] = []
    ambiguous: list[Mention] = []
    for start, end in index.find(text):
        entry = entries[text[start:end]]
        if entry.type not in types:
            continue
        if entry.clinical:
            ambiguous.append(Mention(start, end, entry.type, AMBIGUOUS_SCORE, LEXICON))
            continue
        found.append(Mention(start, end, entry.type, LEXICON_SCORE, LEXICON))
        if entry.type == "Species" and "Gene" in types and (protein := VIRAL_PROTEIN.match(text, end)):
            found.append(Mention(*protein.span(1), "Gene", LEXICON_SCORE, LEXICON))
    if ambiguous:
        names = {text[slice(*name.place)] for name in found if name.type in ("Disease", "Chemical")}
        if is_clinical(text, len(names)):
            defined: dict[str, bool] = {}
            found += [name for name in ambiguous if _is_meant(text, name, defined)]
    if not found:
        return list(mentions)
    viruses = {name.place for name in found if name.type == "Species"}
    current = _cut_at_viruses(text, mentions, viruses, drops)
    return with_names(text, current, found, drops)


def _is_meant(text: str, name: Mention, defined: dict[str, bool]) -> bool:
    """Whether an ambiguous abbreviation in a clinical text has the meaning of the lexicon."""
    start, end = name.place
    abbreviation = text[start:end]
    # Where a text defines an abbreviation, it has a meaning of its own.
    if abbreviation not in defined:
        defined[abbreviation] = f"({abbreviation})" in text
    around = text[max(0, start - MEANING_BEFORE) : end + MEANING_AFTER]
    # The end of a word: GC-MS, 5-ASA.
    if defined[abbreviation] or OTHER_MEANING.search(around) or text[max(0, start - 1) : start] == "-":
        return False
    if abbreviation in WORDS:
        return any(map(str.islower, text[max(0, start - CAPITALS) : end + CAPITALS]))
    return True


def _cut_at_viruses(
    text: str, mentions: Sequence[Mention], viruses: Collection[tuple[int, int]], drops: list[Drop]
) -> list[Mention]:
    """Genes that begin with the name of a virus, without it: nsp12 in "SARS-CoV-2 nsp12"."""
    places = sorted(viruses)
    cut: list[Mention] = []
    for mention in mentions:
        index = bisect_right(places, (mention.start, len(text))) - 1
        start, end = places[index] if index >= 0 else (0, 0)
        if mention.type == "Gene" and start <= mention.start < end < mention.end - 1 and text[end] in " -":
            drops.append(Drop(mention, f"cut after {text[start:end]!r}"))
            mention = mention.moved(end + 1, mention.end)
        cut.append(mention)
    return cut


def with_names(text: str, mentions: Sequence[Mention], found: Sequence[Mention], drops: list[Drop]) -> list[Mention]:
    """The mentions, with each name that the model has not found, or only a part of, or with another type.

    The names are those of one rule.
    """
    rule = found[0].rule if found else None
    ordered = sorted((*mentions, *found), key=lambda mention: (mention.start, -mention.end))
    rivals = overlapping(ordered)
    removed: set[int] = set()
    for number, name in enumerate(ordered):
        if name.rule != rule:
            continue
        others = [other for other in rivals[number] if ordered[other].rule != rule]
        # A longer mention that minimum scores drop later is no reason against a name.
        sure = [other for other in others if ordered[other].score >= DOUBTED or ordered[other].place == name.place]
        inside = all(name.start <= ordered[other].start and ordered[other].end <= name.end for other in sure)
        same = [other for other in others if ordered[other].place == name.place]
        # What the model found itself stays, but for a score that the name alone deserves.
        known = [other for other in same if ordered[other].type == name.type and ordered[other].score >= UNSURE]
        if not inside or known:
            removed.add(number)
            others = [other for other in same if other not in known] if known else []
        for other in set(others) - removed:
            drops.append(Drop(ordered[other], f"{text[slice(*name.place)]!r} is a {name.type} by the rule {rule}"))
        removed.update(others)
    return [mention for number, mention in enumerate(ordered) if number not in removed]


# Agreement inside a document: names found elsewhere, abbreviations with their long forms, repeated sentences


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
# A name of at least six characters is repeated after a single mention with this score.
LONG_NAME, SURE_OF_LONG = 6, 0.9
# A chemical of at least six characters that was found so often is repeated whatever its scores: 37 of 44 on DrugProt,
# the DDI corpus and development sets are right. Plurals of names found in the singular, and the reverse, are right in
# half of all places and are not added.
OFTEN = 3
# Mentions of a repeated name that score between this and UNSURE are raised to the score of the others.
MIN_RAISED = 0.25
# The fraction of a name's mentions that score UNSURE or more; where it is smaller, the name is not repeated.
MIN_AGREEMENT = 0.75
# Shorter names may be others with another case: "Rett", "AIDS".
MIN_CASE_FORM = 5
# Types whose abbreviations agree with their long forms. That of a gene's is another gene's or a disease's too often.
DEFINED_TYPES = frozenset(("Disease", "Chemical", "Species"))
CONFUSED = frozenset(("Disease", "Gene"))
# Types that an abbreviation has only if its long form has it: "basal cell carcinoma (BCC)" is no cell line, and
# "multiple endocrine neoplasia (MEN)" no men.
DEFINED_ELSEWHERE = frozenset(("CellLine", "Species"))
# From this score on, a long form says what its abbreviation is.
MIN_DEFINED_SCORE = 0.6
# Below this score, a mention takes the type of the long form that it abbreviates.
RETYPE_BELOW = 0.6
# What an occurrence found by its name alone is worth, relative to those it was found from.
DISCOUNT = 0.85

# Sentences are told apart well enough to notice that one is repeated.
# "C. auris" and "ssp. parviglumis" go on: before a lowercase letter, a sentence ends with a word of four letters.
# White space first, which `re` can skip to.
SENTENCE_END = re.compile(r"\s(?:(?<=[.!?]\s)\s*(?![a-z\s])|(?<=\w{4}[.!?]\s)\s*|(?<=\n))")
MIN_SENTENCE = 10


def repeated_names(text: str, mentions: Sequence[Mention]) -> list[Mention]:
    """The mentions, with occurrences of names that were found elsewhere and missed here, or found with a low score."""
    scores: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for mention in mentions:
        if mention.end - mention.start >= MIN_NAME:
            for form in _case_forms(text[mention.start : mention.end]):
                scores[form][mention.type].append(mention.score)
    types: dict[str, tuple[str, float]] = {}
    for name, by_type in scores.items():
        if len(by_type) > 1:
            continue
        type_, found = next(iter(by_type.items()))
        if type_ in REPEATED_TYPES:
            sure = [score for score in found if score >= UNSURE]
            times, mean = REPEATED_TYPES[type_]
            average = sum(sure) / max(1, len(sure))
            is_known = len(sure) >= times and average >= mean
            if len(sure) >= MIN_AGREEMENT * len(found) and (
                is_known or (len(name) >= LONG_NAME and average >= SURE_OF_LONG)
            ):
                types[name] = (type_, average * DISCOUNT)
            elif type_ == "Chemical" and len(found) >= OFTEN and len(name) >= LONG_NAME:
                types[name] = (type_, sum(found) / len(found))
    repeated: list[Mention] = []
    for mention in mentions:
        if MIN_RAISED <= mention.score < UNSURE and not _is_hyphenated(text, *mention.place):
            type_, score = types.get(text[mention.start : mention.end], ("", 0.0))
            if type_ == mention.type and mention.score < score:
                mention = Mention(*mention.place, type_, score, REPEATED)
        repeated.append(mention)
    taken = Occupied(text, mentions)
    for start, end in find_names(text, types):
        if not taken.overlaps(start, end):
            type_, score = types[text[start:end]]
            repeated.append(Mention(start, end, type_, score, REPEATED))
    return repeated


def _is_hyphenated(text: str, start: int, end: int) -> bool:
    """Whether a name is a part of a word with hyphens: "eosinophilia-myalgia"."""
    return text[max(0, start - 1) : start] == "-" or text[end : end + 1] == "-"


def _case_forms(name: str) -> tuple[str, ...]:
    """The name, and with another first letter if it is no code: "Metastases" and "metastases"."""
    if len(name) < MIN_CASE_FORM or not name[1:].islower():
        return (name,)
    return name, name[0].swapcase() + name[1:]


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
            rules = {mention.start - low: mention.rule for mention in same}
            # One score for all: minimum scores apply after the rules, and would keep some of the copies.
            score = sum(mention.score for mention in same) / len(same)
            agreed += [
                Mention(start + low, start + high, type_, score, rules.get(start, SENTENCES)) for start in starts
            ]
    return agreed


def _copies(text: str) -> dict[str, list[int]]:
    """Sentences that occur more than once, and where."""
    sentences = SENTENCE_END.split(text)
    if len(set(sentences)) == len(sentences):
        return {}
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
    """The mentions, with abbreviations that the model missed or is unsure of as the type of their long form.

    Where a gene or disease is defined, it has the type of its long form in any case: elsewhere "MEN1" may be the gene.
    """
    at = {mention.place: mention for mention in mentions if mention.score >= MIN_DEFINED_SCORE}
    meaning: dict[str, Mention] = {}
    defined: dict[tuple[int, int], Mention] = {}
    for long_form, short_form in definitions:
        if (long_mention := at.get(long_form)) is not None:
            defined[short_form] = long_mention
            if long_mention.type in DEFINED_TYPES:
                meaning.setdefault(text[slice(*short_form)], long_mention)
    for mention in mentions:
        name = text[slice(*mention.place)]
        long_mention = defined.get(mention.place, mention)
        if {long_mention.type, mention.type} != CONFUSED:
            long_mention = mention
        # The lexicon does not know what a text means by an abbreviation: RSV is resveratrol, where it is defined so.
        if long_mention.type == mention.type and (
            mention.score < RETYPE_BELOW or mention.rule == LEXICON or mention.type in DEFINED_ELSEWHERE
        ):
            long_mention = meaning.get(name, mention)
        if long_mention.type != mention.type:
            drops.append(Drop(mention, f"abbreviates {text[slice(*long_mention.place)]!r}, {long_mention.type}"))
            yield Mention(*mention.place, long_mention.type, long_mention.score * DISCOUNT, ABBREVIATIONS)
        else:
            yield mention
    if not meaning:
        return
    taken = Occupied(text, mentions)
    for start, end in find_names(text, meaning):
        if not taken.overlaps(start, end):
            long_mention = meaning[text[start:end]]
            yield Mention(start, end, long_mention.type, long_mention.score * DISCOUNT, ABBREVIATIONS)
