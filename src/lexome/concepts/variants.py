"""Normal forms of sequence variants: as tmVar writes them, and as HGVS does.

    variant = parse_variant("Val600Glu")
    variant.tmvar, variant.hgvs           "p|SUB|V|600|E", "p.V600E"
    variant_concepts("rs113488022")       ("dbsnp:rs113488022",)

Substitutions, deletions, insertions, duplications, frameshifts and alleles are parsed, in HGVS-like notation and in
words ("valine to glutamic acid at position 600"). A text that is none of these has no normal form.
"""

import re
from collections.abc import Callable
from dataclasses import replace

from lexome.frozen import fast_dataclass

_AMINO_ACIDS = {
    "A": "ala alanine",
    "R": "arg arginine",
    "N": "asn asparagine",
    "D": "asp aspartic-acid aspartate",
    "C": "cys cysteine",
    "Q": "gln glutamine",
    "E": "glu glutamic-acid glutamate",
    "G": "gly glycine",
    "H": "his histidine",
    "I": "ile isoleucine",
    "L": "leu leucine",
    "K": "lys lysine",
    "M": "met methionine",
    "F": "phe phenylalanine",
    "P": "pro proline",
    "S": "ser serine",
    "T": "thr threonine",
    "W": "trp tryptophan",
    "Y": "tyr tyrosine",
    "V": "val valine",
    "X": "ter stop stop-codon termination-codon *",
}
_BASES = {"A": "adenine adenosine", "C": "cytosine cytidine", "G": "guanine guanosine", "T": "thymine thymidine"}
_RESIDUES = {name.replace("-", " "): letter for letter, names in _AMINO_ACIDS.items() for name in names.split()}
_NUCLEOTIDES = {name: letter for letter, names in _BASES.items() for name in names.split()}
_NUMBERS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
_WORD_NUMBERS = {word: str(number) for number, word in enumerate(_NUMBERS, 1)} | {"single": "1"}

_RESIDUE = "|".join(sorted((re.escape(name) for name in _RESIDUES), key=len, reverse=True))
_BASE = "|".join(sorted(_NUCLEOTIDES, key=len, reverse=True))
_ONE = r"[ACDEFGHIKLMNPQRSTVWYX*]"
_THREE = "(?:" + "|".join(name for name in _RESIDUES if len(name) == 3 and name.isalpha()) + r"|\*)"
_PLACE = r"(?:IVS ?[\dIVX]+ ?[+-] ?\d+|[*-]?\d+(?:[+-]\d+)?|\+\d+)"
_RANGE = rf"({_PLACE}(?:(?: ?[_-] ?| to | and |[–−]){_PLACE})?)"
_ARROW = r"\s*(?:-*>|=>|→|/)\s*"
_INTO = rf"(?:{_ARROW}|\s*-?\s*(?:to|for|by|with|into)\s*-?\s*)"
# Where a substitution in words is: "at position 600", "in codon 12".
_WHERE = (
    r"[\s,(]*(?:(?:substitution|transition|transversion|mutation|change|polymorphism|residue|variant|replacement|"
    r"missense|exchange)s?\s*)?(?:at|in|of)?\s*(?:the\s+)?(?:position|codon|residue|amino[ -]acid|nucleotide|base|"
    r"cdna|nt|bp|c\.|site)*[\s,]*(?:position|number|residue|nucleotide)?[\s,]*"
)
# Below this, two letters that could be bases are amino acids: "A174T" is of a protein, "A1762T" of DNA.
_LONG_PROTEIN = 1000
_LONG_GENE = 100_000


@fast_dataclass
class Variant:
    """A variant in normal form.

    level     p for a protein, c for coding DNA, g for genomic DNA, m, n or r
    kind      SUB, DEL, INS, DUP, INDEL, FS or Allele
    place     the position or range: 600, 76_78, IVS3+1; may be empty
    before    residue or bases of the reference
    after     residue or bases of the variant, or how many were deleted, inserted or repeated
    stop      distance to, or position of, the new stop codon of a frameshift
    """

    level: str
    kind: str
    place: str
    before: str = ""
    after: str = ""
    stop: str = ""

    @property
    def tmvar(self) -> str:
        """The form of tmVar: p|SUB|V|600|E."""
        if self.kind == "SUB":
            return f"{self.level}|SUB|{self.before}|{self.place}|{self.after}"
        if self.kind == "FS":
            return f"{self.level}|FS|{self.before}|{self.place}|{self.after}|{self.stop}"
        if self.kind == "Allele":
            return f"{self.level}|Allele|{self.after}|{self.place}"
        return f"{self.level}|{self.kind}|{self.place}|{self.after}" + ("|" if self.kind == "DUP" else "")

    @property
    def hgvs(self) -> str | None:
        """The form of HGVS, or None if the position is not known: p.V600E, c.76_78delACT."""
        if not self.place or self.kind == "Allele":
            return None
        start = f"{self.level}."
        if self.kind == "SUB":
            joint = "" if self.level == "p" else ">"
            left = self.before + self.place if self.level == "p" else self.place + self.before
            return f"{start}{left}{joint}{'*' if self.after == 'X' else self.after}"
        if self.kind == "FS":
            return f"{start}{self.before}{self.place}{self.after}fs" + (f"*{self.stop}" if self.stop else "")
        residue = self.before if self.level == "p" else ""
        changed = "" if self.after.isdigit() else self.after
        return f"{start}{residue}{self.place}{'delins' if self.kind == 'INDEL' else self.kind.lower()}{changed}"


def variant_concepts(text: str) -> tuple[str, ...]:
    """The concepts of a mention: its dbSNP ids if it has any, else its normal form in tmVar's notation; or none."""
    ids = re.findall(r"\brs\s?#?:?\s?(\d+)", text, re.IGNORECASE)
    if ids:
        return tuple(f"dbsnp:rs{number}" for number in dict.fromkeys(ids))
    variant = parse_variant(text)
    return (f"tmvar:{variant.tmvar}",) if variant is not None else ()


# "V600E (rs113488022)", "-1021T allele (rs1611115", "rs4539 (A2718G)", "rs9932581:A>G"; not "V600E, rs113488022".
_DBSNP_AFTER = re.compile(r"\s?(?:(?!and\b|or\b|with\b)[\w/]+\s){0,2}[(\[]\s?(rs\d+)\b", re.IGNORECASE)
_DBSNP_BEFORE = re.compile(r"\b(rs\d+)(?::|\s?[(\[])\s?$", re.IGNORECASE)
_BEFORE = 20


def dbsnp_beside(text: str, start: int, end: int) -> str | None:
    """The dbSNP id of a variant that is in brackets after it, or has the variant in brackets; None if there is none."""
    match = _DBSNP_AFTER.match(text, end) or _DBSNP_BEFORE.search(text[max(0, start - _BEFORE) : start])
    return f"dbsnp:{match[1].lower()}" if match is not None else None


def parse_variant(text: str) -> Variant | None:
    """The variant that a mention writes, or None."""
    plain = re.sub(r"[–−‐‑]", "-", text.strip().strip("()[]").strip())
    plain = re.sub(r"\s+", " ", plain)
    for pattern, make in _PATTERNS:
        match = pattern.fullmatch(plain)
        if match is not None:
            return make(match)
    return None


# By the first three letters of the word.
_KINDS = {"del": "DEL", "ins": "INS", "dup": "DUP", "rep": "DUP", "tan": "DUP", "ind": "INDEL"}


def _letter(residue: str) -> str:
    """The one-letter code of an amino acid."""
    name = residue.lower().replace("-", " ")
    return _RESIDUES.get(name) or ("X" if residue == "*" else residue.upper())


def _base(base: str) -> str:
    return _NUCLEOTIDES.get(base.lower()) or base.upper()


def _place_of(place: str | None) -> str:
    """The position without spaces, a range with an underscore."""
    if not place:
        return ""
    plain = re.sub(r" ?(?:_|to|and) ?", "_", place).replace(" ", "")
    plain = re.sub(r"^(\d+)-(\d{2,})$", lambda match: _range_or_offset(match[1], match[2]), plain)
    return plain.lstrip("+")


def _range_or_offset(first: str, second: str) -> str:
    """ "899-1142" is a range, "444-62" a position before an exon."""
    return f"{first}_{second}" if int(second) > int(first) else f"{first}-{second}"


def _protein(match: re.Match[str]) -> Variant:
    before, place, after = match.group("before", "place", "after")
    return Variant("p", "SUB", place, _letter(before), _letter(after))


def _short(match: re.Match[str]) -> Variant:
    """Two letters around a number: of a protein, unless both are bases and the number is large or negative."""
    level, before, place, after = match.group("level", "before", "place", "after")
    bases = before in "ACGT" and after in "ACGT"
    if level is None:
        dna = bases and (not place.isdigit() or int(place) >= _LONG_PROTEIN)
        level = ("g" if place.isdigit() and int(place) >= _LONG_GENE else "c") if dna else "p"
    return Variant(level, "SUB", _place_of(place), _letter(before), _letter(after))


def _substitution(match: re.Match[str]) -> Variant:
    level = match.group("level") or "c"
    before, after = _base(match.group("before")), _base(match.group("after"))
    return Variant(level, "SUB", _place_of(match.group("place")), before, after)


def _in_words(match: re.Match[str]) -> Variant:
    before, after = _letter(match.group("before")), _letter(match.group("after"))
    return Variant("p", "SUB", match.group("place") or "", before, after)


def _changed(match: re.Match[str]) -> Variant:
    groups = match.groupdict()
    kind = _KINDS[groups["kind"].lower()[:3]]
    if groups.get("kind2"):
        kind = "INDEL"
    level = groups.get("level") or ("p" if groups.get("residue") else "c")
    after = _base(groups.get("bases") or groups.get("count") or "").replace(" ", "")
    after = re.sub(r"\((\w+)\)\((\d+)\)", r"\1\2", after)
    return Variant(level, kind, _place_of(groups.get("place")), _letter(groups.get("residue") or ""), after.upper())


def _counted(match: re.Match[str]) -> Variant:
    """ "A 4-bp deletion", "insertion of 13 nucleotides"."""
    groups = match.groupdict()
    kind = _KINDS[groups.get("kind", "indel").lower()[:3]]
    count = groups["count"].lower()
    unit = (groups.get("unit") or "").lower()
    size = _WORD_NUMBERS.get(count, count.replace(",", "")) + (
        "K" if unit[:1] == "k" else "M" if unit[:1] == "m" else ""
    )
    return Variant("c", kind, _place_of(groups.get("place")), "", size)


def _delta(match: re.Match[str]) -> Variant:
    return Variant("c", "DEL", "", "", match["count"])


def _indel(match: re.Match[str]) -> Variant:
    return replace(_counted(match), kind="INDEL")


def _residues(match: re.Match[str]) -> Variant:
    return replace(_counted(match), level="p")


def _numbered(match: re.Match[str]) -> Variant:
    after = _letter(match["after"])
    return Variant("c" if match["after"] in "ACGT" else "p", "Allele", match["place"], "", after)


def _frameshift(match: re.Match[str]) -> Variant:
    before, place, after, stop = match.group("before", "place", "after", "stop")
    return Variant("p", "FS", place, _letter(before), _letter(after or ""), stop or "")


def _allele(match: re.Match[str]) -> Variant:
    place, base = match.group("place", "after")
    return Variant("c", "Allele", _place_of(place), "", _base(base))


def _compile(pattern: str, *, ignore_case: bool = True) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE if ignore_case else 0)


_AT = rf"(?P<place>{_PLACE})"
_DEL = r"(?P<kind>del(?:etion)?|ins(?:ertion)?|dup(?:lication)?)"
_LEVELS = r"(?:(?P<level>[cgpmnr])\.\s*)?"
_BASES_RUN = r"(?P<bases>[ACGTU]+(?:\(\d+\))?|\([ACGT]+\)\(?\d+\)?)"
_COUNT = rf"(?P<count>\d[\d,]*(?:\.\d+)?|{'|'.join(_WORD_NUMBERS)})"
_UNIT = r"(?P<unit>[kKmM]?\s*-?(?:bp|b|base[ -]?pairs?|bases?|nucleotides?|nt|kb|Mb|Mbp))"
_PATTERNS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Variant]], ...] = (
    # p.Val600GlufsX13, p.S173fsX174, p.Arg58fs
    (
        _compile(
            rf"(?:p\.)?\s*\(?(?P<before>{_THREE}|{_ONE})\s?(?P<place>\d+)\s?(?P<after>{_THREE}|{_ONE})??\s?"
            rf"fs\s?(?:\(?(?:X|\*|Ter|ter|stop)?\s?(?P<stop>\d+)?X?\)?)?\)?"
        ),
        _frameshift,
    ),
    # p.Val600Glu, Val-600-Glu, p.(Val600Glu), Val600*
    (
        _compile(
            rf"(?:p\.)?\s*\(?(?P<before>{_THREE})[\s-]?\(?(?P<place>\d+)\)?[\s-]*(?:{_ARROW})?(?P<after>{_THREE}|X)\)?"
        ),
        _protein,
    ),
    # V600E, p.V600E, A1762T, G-1739A
    (
        _compile(rf"{_LEVELS}\(?(?P<before>{_ONE})(?P<place>-?\d+)(?P<after>{_ONE})\)?", ignore_case=False),
        _short,
    ),
    # c.76A>T, -455G>A, IVS3+1G/A, 1123T-->G, g.1755 G > A, G>A substitution at nucleotide 893
    (
        _compile(rf"{_LEVELS}\(?{_AT}[\s,(]*(?P<before>[ACGTU]+){_INTO}(?P<after>[ACGTU]+)\)?"),
        _substitution,
    ),
    (
        _compile(rf"{_LEVELS}\(?(?P<before>[ACGT]|{_BASE}){_INTO}(?P<after>[ACGT]|{_BASE})\)?{_WHERE}(?:{_AT})\)?"),
        _substitution,
    ),
    (_compile(rf"{_LEVELS}(?P<before>[ACGT])(?:{_ARROW}|[ -]to[ -])(?P<after>[ACGT])(?P<place>)"), _substitution),
    # valine to glutamic acid at position 600, Val-->Glu
    (
        _compile(
            rf"(?P<before>{_RESIDUE})(?:{_ARROW}|[\s-]+to[\s-]+(?:an?\s+)?)(?P<after>{_RESIDUE})"
            rf"(?:{_WHERE}(?P<place>\d+))?\)?"
        ),
        _in_words,
    ),
    # arginine for proline at position 158: the new residue comes first
    (
        _compile(
            rf"(?P<after>{_RESIDUE})(?: residue)? (?:for|instead of|replac(?:es|ing))(?: the| an?)? "
            rf"(?P<before>{_RESIDUE})(?:{_WHERE}(?P<place>\d+))?"
        ),
        _in_words,
    ),
    # proline 158 by arginine; lysine by glutamic acid
    (
        _compile(
            rf"(?P<before>{_RESIDUE})[\s-]?(?P<place>\d+)?(?: is| was)?(?: replaced| substituted)?[\s-](?:by|with|to)"
            rf"[\s-](?:an? )?(?P<after>{_RESIDUE})"
        ),
        _in_words,
    ),
    # c.76_78delinsACT, c.76_78del3insACT
    (
        _compile(
            rf"{_LEVELS}{_AT.replace(_PLACE, _RANGE[1:-1])}\s?(?P<kind>del)[ACGT\d]*(?P<kind2>ins)\s?{_BASES_RUN}?"
        ),
        _changed,
    ),
    # c.76_78delACT, 279delGAG, 888delC, p.F508del, 1308_1316 dup9
    (
        _compile(
            rf"{_LEVELS}(?P<residue>{_THREE}|{_ONE})?(?P<place>{_RANGE[1:-1]})\s?{_DEL}\s?"
            rf"(?:{_BASES_RUN}|(?P<count>\d+)(?:bp)?)?"
        ),
        _changed,
    ),
    # delta F508 is left to dictionaries; "deletion of C at nucleotide 888", "C deletion at nucleotide position 4548"
    (
        _compile(rf"{_DEL} of (?:an? |the )?{_BASES_RUN}(?:{_WHERE}(?P<place>{_RANGE[1:-1]}))?"),
        _changed,
    ),
    (_compile(rf"\(?{_BASES_RUN}\)?[\s-]{_DEL}(?:{_WHERE}(?P<place>{_RANGE[1:-1]}))?"), _changed),
    # 4-bp deletion, deletion of 4 kb, dup33bp
    (
        _compile(
            rf"(?:an? )?{_COUNT}[\s-]?{_UNIT}[\s-]*(?P<kind>deletion|insertion|duplication|tandem repeat|repeat)s?"
        ),
        _counted,
    ),
    (_compile(rf"(?P<kind>deletion|insertion|duplication)s? of (?:the |an? )?{_COUNT}[\s-]?{_UNIT}"), _counted),
    (_compile(rf"(?P<kind>del|ins|dup){_COUNT}\s?(?P<unit>bp)?"), _counted),
    # Delta32, delTTCA, 14-bp insertion/deletion
    (_compile(r"(?:delta|Δ)\s?-?(?P<count>\d+)(?P<kind>)"), _delta),
    (_compile(rf"{_DEL}\s?\(?{_BASES_RUN}\)?"), _changed),
    (_compile(rf"(?:an? )?{_COUNT}[\s-]?{_UNIT}[\s-]*insertion/deletion.*"), _indel),
    (_compile(rf"(?:ins/del|in/del|indel|insertion/deletion)[\s(of]*{_COUNT}[\s-]?{_UNIT}\)?"), _indel),
    # codon 358, tyrosine to histidine; arginine 150 proline
    (
        _compile(
            rf"(?:codon|residue|position) (?P<place>\d+)[\s,(]+(?P<before>{_RESIDUE}){_INTO}(?P<after>{_RESIDUE})\)?"
        ),
        _in_words,
    ),
    (_compile(rf"(?P<before>{_RESIDUE})[\s-](?P<place>\d+)[\s-](?P<after>{_RESIDUE})"), _in_words),
    (_compile(rf"(?P<before>{_RESIDUE}) by (?P<after>{_RESIDUE}){_WHERE}(?P<place>\d+)"), _in_words),
    # 202 adenine deletion, adenine deletion at nucleotide 202, deletion of 18 amino acids
    (_compile(rf"(?:(?P<place>\d+) )?(?P<bases>{_BASE})[\s-]{_DEL}"), _changed),
    (_compile(rf"(?P<bases>{_BASE})[\s-]{_DEL}{_WHERE}(?P<place>{_RANGE[1:-1]})"), _changed),
    (_compile(rf"(?P<kind>deletion|insertion|duplication) of {_COUNT} amino acids"), _residues),
    # -189T, IVS9+459 GG, A allele of -588, 573X, 111G, Arg70
    (_compile(r"(?P<place>\d+)(?P<after>[ACGTX])", ignore_case=False), _numbered),
    (_compile(rf"(?:p\.)?(?P<after>{_THREE}|{_RESIDUE})[\s-]?(?P<place>\d+)"), _numbered),
    (_compile(rf"(?P<place>[*+-]\d+|IVS ?[\dIVX]+ ?[+-] ?\d+)\s?(?P<after>[ACGT]+|{_BASE})(?: allele)?"), _allele),
    (_compile(rf"(?P<after>[ACGT])[ -]allele (?:of|at) (?P<place>{_PLACE})"), _allele),
)
