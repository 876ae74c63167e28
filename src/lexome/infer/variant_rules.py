"""Variants by rule: notations that are more reliable than any model, and the genes that they are cut from.

What the patterns were written from: tmVar3's training abstracts that are neither in BioRED's test nor in its
development split, BioRED's training split, and the nomenclature of HGVS (docs/decisions).
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from lexome.infer.rules import Drop, Mention, Occupied

RULE = "variants"
TYPE = "Variant"

# Precision on development sets of mentions that are a notation, whoever found them: 297 of 302; of lengths that were
# deleted, 58 of 67. No dataset annotates exon-level events; readers of clinical reports look for them.
SCORE, LENGTH_SCORE, EXON_SCORE = 0.98, 0.85, 0.5

AMINO_3 = "Ala|Arg|Asn|Asp|Cys|Gln|Glu|Gly|His|Ile|Leu|Lys|Met|Phe|Pro|Ser|Thr|Trp|Tyr|Val"
AMINO_1 = "ACDEFGHIKLMNPQRSTVWY"
ARROW = r"(?:-{1,2}>|→|>|&gt;)"
# A number in a coding or genomic sequence: 76, -14, *37, 88+2, 89-1.
PLACE = r"[-*+]?\d{1,9}(?:[+-]\d{1,6})?"
CHANGE = (
    rf"(?:[ACGTUNacgtun]{{0,12}} ?{ARROW} ?[ACGTUacgtu]{{1,12}}"
    r"|(?:delins|del|ins|dup|inv)[ACGTUN]{0,40}(?:\d{1,4}\b)?(?:ins[ACGTUN]{1,40})?)"
)

# 30-bp deletion, 3.5-kb gene deletion
_LENGTH = (
    r"(?:(?<!\w)[-+]|(?<![\w.,]))\d[\d.,]{0,8}[- ]?(?:bp|kbp|kb|Mb|nt|nucleotide|base[- ]pair|base)"
    r"[- ](?:gene |in-frame )?(?:deletion|insertion|duplication)(?!\w)"
)
LENGTH = re.compile(_LENGTH)
# Notations that are variants wherever they stand.
CERTAIN = re.compile(
    # What any of them begins with: the alternatives are tried at few characters only.
    r"(?=[\d+\-A-ZΔ∆]|[cgmnrp][.s]|del)(?:"
    + "|".join(
        (
            # dbSNP
            r"\b[Rr]s ?\d{3,11}(?!\w)",
            # HGVS, with its reference type
            rf"\b[cgmnr]\.\(?{PLACE}(?:_{PLACE})?\)? ?{CHANGE}\)?(?!\w)",
            rf"\bp\.\(?(?:{AMINO_3}|[{AMINO_1}])\d{{1,5}}(?:_(?:{AMINO_3}|[{AMINO_1}])\d{{1,5}})?"
            rf"(?:(?:{AMINO_3}|Ter|[{AMINO_1}X*])(?:fs(?:\*|Ter|X)?\d{{0,4}})?|fs(?:\*|Ter|X)?\d{{0,4}}"
            r"|delins\w{1,20}|del|dup|ins\w{1,20}|=)"
            r"\)?(?!\w)",
            # Val600Glu, Pro75 Ala, Gly(388)Arg, Ser-326-Cys
            rf"\b(?:{AMINO_3})[- ]?\(?\d{{1,4}}\)?[- ]?(?:{ARROW})? ?(?:{AMINO_3}|Ter|Stop|stop|X)(?![a-z])",
            # 1138G>A, -308G>A, G1138>A; 657del5, 185delAG, 5382insC; IVS10+1G>A
            rf"(?<![\w.])[-+]?\d{{1,7}} ?[ACGT] ?{ARROW} ?[ACGT](?!\w)",
            r"(?<![\w.])\d{1,6}(?:_\d{1,6})?(?:del|ins|dup)(?:[ACGT]{1,12}|\d{1,3})(?!\w)",
            rf"\bIVS ?\d{{1,3}} ?[+-] ?\d{{1,4}},? ?(?:[ACGTacgt] ?{ARROW} ?[ACGTacgt]|del[ACGT]{{1,8}})(?!\w)",
            # -31T/C, 1858C/T; C-344T
            r"(?:(?<![\d.])[-+]|(?<![\w.]))\d{2,6} ?[ACGT]/[ACGT](?![\w/])",
            r"\b[ACGT]-\d{2,5} ?[ACGT](?!\w)",
            _LENGTH,
            # CCR5-Delta32
            r"(?:(?<!\w)[Dd]elta|[Δ∆])[ -]?32(?!\w)",
            # F508del, Delta F508
            rf"(?<!\w)[{AMINO_1}]\d{{2,4}}del(?!\w)",
            r"(?:(?<!\w)(?:[Dd]elta|[Dd]el) ?-?|[Δ∆] ?)F508(?!\w)",
        )
    )
    + ")"
)

# One-letter substitutions, which names of cell lines, strains and genes resemble: these need a gene or a word such as
# mutation nearby. H1047R, R97*, Q61X and, of nucleotides, G20210A; two digits at least, as S6K and E2F are genes.
SUBSTITUTION = re.compile(
    rf"(?<![A-Za-z0-9.])(?:[ACGT][1-9]\d{{4}}[ACGT]|[{AMINO_1}][1-9]\d{{1,3}}(?:[{AMINO_1}X]|\*|fs(?:\*?\d{{1,3}})?))(?![\w*])"
)
# Several residues of one position, V600E/K, and further ones after a slash.
ALTERNATIVES = re.compile(rf"(?:/[{AMINO_1}])+(?![\w])")
CUES = re.compile(
    r"mutat|mutant|variant|substitut|polymorphi|allele|missense|nonsense|genotyp|hotspot|harbou?r|resistan|-positive"
    r"|codon|carrier|homozyg|heterozyg|knock-?in|SNP"
    # Proteins of viruses and what else resistance is written about.
    r"|\bspike\b(?!-in)|Omicron|\bRBD\b|receptor[- ]binding domain|nucleocapsid|\bNS\d|\bnsp\d|reverse transcriptase"
    r"|protease|integrase|neuraminidase|ha?emagglutinin|SARS-CoV-2|HIV-1|influenza",
    re.IGNORECASE,
)
# From this score on, a mention that the model found keeps its score, and a gene its boundaries.
UNSURE = 0.5
# How far from a substitution a cue may stand.
CUE_WINDOW = 100
# Names of cell lines, genes and strains that read as substitutions.
NOT_SUBSTITUTIONS = frozenset(
    (
        "T47D",
        "T98G",
        "H295R",
        "C127I",
        "S100A",
        "S100B",
        "S100P",
        "S100G",
        "S100Z",
        "C57B",
        "L929S",
        "N18TG",
        "W303A",
        "A549T",
    )
)

# Substitutions that are variants without a cue, and that superscripts leave glued to the gene: KrasG12D, BRAFV600E.
HOTSPOTS = frozenset(
    (
        "G12A",
        "G12C",
        "G12D",
        "G12R",
        "G12S",
        "G12V",
        "G13C",
        "G13D",
        "G13R",
        "Q61H",
        "Q61K",
        "Q61L",
        "Q61R",
        "V600E",
        "V600K",
        "V600D",
        "T790M",
        "L858R",
        "C797S",
        "H1047R",
        "H1047L",
        "E545K",
        "E542K",
        "R132H",
        "R132C",
        "R132S",
        "R140Q",
        "R172K",
        "R172H",
        "R175H",
        "R248Q",
        "R248W",
        "R249S",
        "R273H",
        "R273C",
        "R270H",
        "R282W",
        "Y220C",
        "V617F",
        "D816V",
        "D816H",
        "T315I",
        "K27M",
        "K28M",
        "G34R",
        "G34V",
        "L265P",
        "S249C",
        "K650E",
        "Q209L",
        "Q209P",
        "S310F",
        "L755S",
        "Y537S",
        "D538G",
        "R882H",
        "P102L",
        "E200K",
        "A53T",
        "G2019S",
        "H63D",
        "C282Y",
        "F508C",
        "G551D",
        "A30P",
        "P301L",
        "G93A",
        "R1441G",
        "C228T",
        "C250T",
    )
)
GLUED = re.compile(rf"\b(?=\w{{5,14}}(?!\w))([A-Za-z][A-Za-z0-9]{{1,7}}?)([{AMINO_1}][1-9]\d{{1,3}}[{AMINO_1}])(?!\w)")
# What any substitution of one letter has, glued to a gene or not: most texts have none.
SUBSTITUTED = re.compile(rf"[{AMINO_1}][1-9]\d{{1,4}}[{AMINO_1}X*f]")

# Exon-level events that clinical reports use as names of variants: "exon 19 deletion", and of MET "exon 14 skipping";
# of other genes, skipping is what happens to RNA.
EXON = re.compile(
    r"\b(?:[Ee]xons? ?\d{1,2}(?:-\d{1,2})? (?:in-frame )?(?:deletions?|insertions?|duplications?)|[Ee]xon ?14 skipping"
    r"|[Ee]x(?:on)?\d{1,2}del|[Dd]el(?:etion)? ?19\b)(?!\w)"
)

# What every text with one of these notations contains: a digit, period or x, which `re` can skip to, and the least that
# is around it. Only 7% of abstracts have it (LOG.md, 2026-11-20), and only these are searched for the notations.
SIGN = re.compile(
    r"[\d.x](?:"
    + "|".join(
        (
            rf" ?[ACGT] ?(?:{ARROW}|/)",
            "(?:del|ins|dup)",
            "[.,]*[- ]?(?:bp|kbp|kb|Mb|nt|nucleotide|base)",
            rf"\)?[- ]?(?:{ARROW})? ?(?:{AMINO_3}|Ter|Stop|stop|X)(?![a-z])",
            r"(?<=[Rr]s\d)|(?<=[Rr]s \d)|(?<=IVS\d)|(?<=IVS \d)|(?<=[ACGT]-\d)",
            r"(?<=F5)08|(?<=[aΔ∆]3)2|(?<=[aΔ∆][ -]3)2",
            r"(?<=[cgmnrp]\.)[\d(*+\-A-Z]",
            # exon 19 deletion, del 19
            r"(?<=x)on|(?<=1)9\b(?:(?<=[ln]19)|(?<=[ln] 19))",
        )
    )
    + ")"
)

# What the model takes for variants and annotators do not: markers (D13S263), translocations, t(9;22), probes of
# methylation, strains (14028s) and peptides; and residues without a change, where a protein is phosphorylated or
# active there.
NOT_VARIANTS = re.compile(
    r"D\d{1,2}S\d{1,5}|\d{3,6}[a-z]?|t ?\(\d.*|mutations?|substitutions?|variants?|polymorphisms?|[Cc]odon \d{1,4}"
    r"|cg\d{8}|[A-Z]{7,}|(?:m\d|t6|i6)[ACGU]\d{0,3}|N\d-methyl\w+",
    re.DOTALL,
)
_WORDS = "(?:ser|threon|tyros|lys)ine"
_RESIDUE = (
    rf"(?:p(?:hospho)?-?)?(?:(?:{AMINO_3})[- ]?\(?\d{{1,4}}\)?|[STY]\d{{1,4}}"
    rf"|(?:{_WORDS})s?(?: residues?)?(?: at)?(?: position)?[ -]?\d{{1,4}})"
)
RESIDUES = re.compile(rf"{_RESIDUE}(?:(?:, | and |, and |/){_RESIDUE})*")
RESIDUE_CUES = re.compile(
    r"phospho|residue|catalytic|disul(?:f|ph)id|active[- ]site|acetylat|methylat|ubiquit|interface", re.IGNORECASE
)
# What a model's mention may have beyond the notation itself.
EXTRA_WORDS = re.compile(
    r"[\s,;:/-]*(?:amino acids?|transitions?|transversions?|mutations?|alleles?|genotypes?|variants?"
    r"|[ACGT](?:/[ACGT])?)?[\s,;:/()-]*"
)
# After the gene in a mention that goes too far: "KRAS G12D mutation".
AFTER_VARIANT = re.compile(r"[\s-]*(?:mutations?|mutants?|variants?|alleles?|proteins?|gene)?\Z", re.IGNORECASE)


def apply_variants(text: str, mentions: Sequence[Mention], drops: list[Drop]) -> list[Mention]:
    """The mentions with variants added, corrected and removed, and genes cut where a variant begins."""
    predicted = sorted((mention for mention in mentions if mention.type == TYPE), key=lambda mention: mention.start)
    if not (predicted or SIGN.search(text) or SUBSTITUTED.search(text)):
        return list(mentions)
    genes = [mention for mention in mentions if mention.type == "Gene"]
    lines = Occupied(text, (mention for mention in mentions if mention.type == "CellLine" and mention.score >= 0.5))
    found = list(notations(text, genes, lines))
    kept = [mention for mention in mentions if mention.type != TYPE]
    if not (found or predicted or SUBSTITUTED.search(text)):
        return list(mentions)
    corrected = list(_corrected(text, predicted, found, drops))
    taken = Occupied(text, corrected)
    added = [
        Mention(start, end, TYPE, notation_score(text[start:end]), RULE)
        for start, end in found
        if not taken.overlaps(start, end)
    ]
    others = list(cut_genes(text, kept, found, drops))
    glued = {gene.place: gene for gene in _glued_genes(text, others)}
    others = [mention for mention in others if mention.type != "Gene" or mention.place not in glued]
    return [*others, *glued.values(), *corrected, *added]


def _glued_genes(text: str, mentions: Sequence[Mention]) -> Iterator[Mention]:
    """Genes that a hotspot is glued to, where the model is not sure of one: Kras in KrasG12D."""
    taken: Occupied | None = None
    for match in GLUED.finditer(text) if SUBSTITUTED.search(text) else ():
        if match[2] in HOTSPOTS:
            taken = taken or Occupied(text, (mention for mention in mentions if mention.score >= UNSURE))
            if not taken.overlaps(*match.span(1)):
                yield Mention(*match.span(1), "Gene", SCORE, RULE)


def notations(text: str, genes: Sequence[Mention], lines: Occupied) -> Iterator[tuple[int, int]]:
    """The places of variants by notation, in order, without overlaps."""
    forms = (CERTAIN, EXON) if SIGN.search(text) else ()
    places = [match.span() for form in forms for match in form.finditer(text)]
    substituted = SUBSTITUTED.search(text)
    if not (places or substituted):
        return
    certain = Occupied(text, ())
    for place in places:
        certain.add(*place)
    known = [gene for gene in genes if gene.score >= 0.3]
    begins = {gene.start for gene in known}
    cues = [cue.start() for cue in CUES.finditer(text)] if substituted else []
    for match in GLUED.finditer(text) if substituted else ():
        # A letter and a number may be the end of a name (TMEM16A), but not after a number: tp53M214K.
        is_cut = match[1][-1].islower() or (match[1][-1].isdigit() and _near(cues, *match.span()))
        if not certain.overlaps(*match.span()) and (match[2] in HOTSPOTS or (match.start() in begins and is_cut)):
            places.append(match.span(2))
    ends = sorted({gene.end for gene in known})
    # Characters of genes but the first: a substitution there follows the name of the gene.
    of_genes = Occupied(text, (gene.moved(gene.start + 1, gene.end) for gene in known if gene.end > gene.start + 1))
    for match in SUBSTITUTION.finditer(text) if substituted else ():
        start, end = match.span()
        if certain.overlaps(start, end) or lines.overlaps(start, end) or match.group() in NOT_SUBSTITUTIONS:
            continue
        if (
            match.group() in HOTSPOTS
            or _near(cues, start, end)
            or _follows_gene(text, ends, start)
            or of_genes.overlaps(start, start + 1)
        ):
            more = ALTERNATIVES.match(text, end)
            places.append((start, more.end() if more else end))
    last = -1
    for start, end in sorted(places):
        # A closing bracket belongs to the notation only if it opens in it: p.(Val600Glu).
        while text[end - 1] == ")" and text.count("(", start, end) < text.count(")", start, end):
            end -= 1
        if start >= last:
            yield start, end
            last = end


def notation_score(name: str) -> float:
    """What a notation is worth: the precision of its kind."""
    if EXON.fullmatch(name):
        return EXON_SCORE
    return LENGTH_SCORE if LENGTH.fullmatch(name) else SCORE


def is_notation(name: str) -> bool:
    """Whether a name is a notation, whose score is not the model's.

    >>> is_notation("V600E"), is_notation("A to G transition")
    (True, False)
    """
    return any(form.fullmatch(name) for form in (CERTAIN, SUBSTITUTION, EXON))


def _near(cues: Sequence[int], start: int, end: int) -> bool:
    """Whether a cue begins within the window around a place."""
    index = bisect_right(cues, start - CUE_WINDOW)
    return index < len(cues) and cues[index] < end + CUE_WINDOW


def _follows_gene(text: str, ends: Sequence[int], start: int) -> bool:
    """Whether a gene ends right before a place, but for a space, hyphen or opening bracket."""
    index = bisect_right(ends, start) - 1
    return index >= 0 and start - ends[index] <= 2 and not text[ends[index] : start].strip(" -([")


def _corrected(
    text: str, predicted: Sequence[Mention], found: Sequence[tuple[int, int]], drops: list[Drop]
) -> Iterator[Mention]:
    """The model's variants: with the boundaries of a notation where they differ by no word, without what is none."""
    starts = [start for start, _ in found]
    used: set[tuple[int, int]] = set()
    for mention in predicted:
        start, end = mention.place
        index = bisect_right(starts, start) - 1
        # The notation that begins in the mention or before it and reaches into it.
        if index < 0 or found[index][1] <= start:
            index += 1
        place = found[index] if index < len(found) and found[index][0] < end else None
        if place is not None:
            outside = place[0] <= start and end <= place[1]
            only = index + 1 >= len(found) or found[index + 1][0] >= end
            before, after = text[start : max(start, place[0])], text[min(end, place[1]) : end]
            if outside or (only and EXTRA_WORDS.fullmatch(before) and EXTRA_WORDS.fullmatch(after)):
                if place != mention.place:
                    drops.append(Drop(mention, f"moved to the notation {text[place[0] : place[1]]!r}"))
                if place not in used:
                    used.add(place)
                    score = notation_score(text[slice(*place)])
                    rule = RULE if mention.score < UNSURE else mention.rule
                    yield Mention(*place, TYPE, max(score, mention.score), rule)
                continue
        while end > start and text[end - 1] in " ,;:/([":
            end -= 1
        name = text[start:end]
        if not name or (place is None and NOT_VARIANTS.fullmatch(name)):
            drops.append(Drop(mention, "not the notation of a variant"))
        elif (
            place is None
            and RESIDUES.fullmatch(name)
            and RESIDUE_CUES.search(text, max(0, start - CUE_WINDOW), end + CUE_WINDOW)
        ):
            drops.append(Drop(mention, "a residue, not its change"))
        elif (start, end) not in used:
            used.add((start, end))
            yield mention.moved(start, end)


def cut_genes(
    text: str, mentions: Sequence[Mention], found: Sequence[tuple[int, int]], drops: list[Drop]
) -> Iterator[Mention]:
    """The other mentions, genes ended where a variant begins: KRAS in "KRAS G12D mutation"."""
    starts = [start for start, _ in found]
    for mention in mentions:
        index = bisect_right(starts, mention.start - 1)
        place = found[index] if index < len(found) and found[index][0] < mention.end else None
        if mention.type == "Gene" and place is not None:
            cut = _before_variant(text, mention.start, place[0])
            # The variant reaches to the end of the gene, or further.
            at_end = place[1] > mention.end or AFTER_VARIANT.match(text, place[1], mention.end)
            if place[0] == mention.start and at_end:
                drops.append(Drop(mention, f"is the variant {text[place[0] : place[1]]!r}"))
                continue
            if cut > mention.start and at_end:
                drops.append(Drop(mention, f"ended before the variant {text[place[0] : place[1]]!r}"))
                yield mention.moved(mention.start, cut)
                continue
        yield mention


def _before_variant(text: str, start: int, end: int) -> int:
    """The end of the gene before a variant, without the space, hyphen or bracket between them."""
    while end > start and text[end - 1] in " \t\u00a0-([":
        end -= 1
    return end
