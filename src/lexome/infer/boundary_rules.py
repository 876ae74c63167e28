"""Where names begin and end: brackets, species and kinds of molecules around genes, strains after species, lists."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from lexome.infer.name_rules import EPITHET, GENERA, is_epithet
from lexome.infer.rules import CELL_LINE, MAX_NAME, Drop, Mention, Occupied, RareForm

RULE = "boundaries"

# Marks of an allele that superscripts leave glued to a gene when markup is lost: SirT1ko, Atg5flox.
ALLELE_MARK = re.compile(
    r"(?<=[A-Za-z0-9)])(?:[-/]?(?:cKO|KO|ko|flox(?:ed|/flox)?|fl/fl|fl|lox[pP]?(?:/lox[pP]?)?|null|TTD|Min(?:/\+)?)|[\s(]*[-+]/[-+]\)?|\([-+]/[-+]\)?)\Z"
)
ALLELE_ENDS = frozenset("OoxdlpPDn+-)")
# The same before mice and their cells, where the model may find no gene: XpdTTD mice.
GLUED_ALLELE = RareForm(
    r"(?<![\w/-])",
    r"(?!WT|Wild|Non|Homo|Het)([A-Z][A-Za-z]{1,7}?(?:\d{1,3}[a-z]?\d?)?)"
    r"(?:cKO|KO|ko|flox(?:ed)?|fl|lox[pP]?|null|TTD|Min)(?:/[\w+-]{1,6})?"
    r"(?= (?:mice|mouse|MEFs?|embryos|littermates|animals|fibroblasts|BMDMs?)(?!\w))",
    sign=r" (?:mice|mouse|MEFs?|embryos|littermates|animals|fibroblasts|BMDMs?)(?!\w)",
)
GLUED_SCORE = 0.9
# Genes whose mutant is behind a stop cassette: KrasLSL-G12D.
CASSETTE = RareForm(r"(?<![\w/-])", r"([A-Z][a-z]{2,5}\d{0,2}[a-z]?\d?)(?=LSL-[A-Z\d])", sign="LSL-")
# Cells by what is on them: of CD4+ and CD11b(+) the genes are CD4 and CD11b, in BioRED and NLM-Gene 173 of 174 times.
ON_CELLS = re.compile(r"(?:(?<=\w\w\d)|(?<=\w\d[a-z]))(?<!Ca2)(?:\(\+\)|\+)\Z")
# Star alleles: datasets annotate SLCO1B1 of SLCO1B1*5, never both; the allele is a part of the names of HLA types.
STAR = re.compile(r"(?<=\w)\*\d{1,3}\w?(?:/\*\d{1,3}\w?)?\Z")
# Of ApoE e3, too, datasets have the gene without its allele, ten of ten times.
APOE = re.compile(r"(?:(?<=[Aa][Pp][Oo]E)|(?<=lipoprotein E))[\s-]?(?:ε|ɛ|e|epsilon[ -]?)[234](?:/(?:ε|ɛ|e)?[234])?\Z")
APOE_ENDS = frozenset("234")
# Charges: "Ca2" of Ca2+ or Ca(2 of Ca(2+) is neither the element nor the ion.
CUT_CHARGE = re.compile(r"(?:Ca|Mg|Zn|Fe|Cu|Mn|Co|Ni|Cd|Pb|Hg|Sr|Ba|Al|Cr)\(?[23]")
# Ions of one element: of Na+ and Cl-, DrugProt has the charge 68 of 70 times and the BioNLP shared tasks 7 of 7; BC5CDR
# alone leaves it out, 18 of 18 times. With the Na(+) of older abstracts, it loses 0.13 on development data (LOG.md).
CATION, POSITIVE = re.compile(r"Na|K|H|Li|Rb|Cs|Ag|NADP?"), re.compile(r"\+(?![\w+])")
ANION, NEGATIVE = re.compile(r"Cl|Br|F|I|HCO3|NO3"), re.compile(r"-(?![\w-])")
# Names of two words of which the first is no chemical by itself, and salts: abscisic acid, nitric oxide, heparan
# sulfate, labetalol HCl. Datasets have them whole in more than 400 of 420 places.
SECOND_WORD = re.compile(
    r"(?: acid|(?<=ic) acids|(?<=fatty|amino) acids|(?<=[a-z]{3}) (?:di|tri)?oxides?"
    r"|(?<=paran|oitin|matan|ratan|xtran) sul(?:f|ph)ates?"
    r"|(?<=phorbol) esters?|(?<=[a-z]{4}) (?:HCl|hydrochloride|hydrobromide|mesylate|maleate|tartrate))(?!\w)",
    re.IGNORECASE,
)
# The state of oxidation: Copper(II), As(V).
OXIDATION = re.compile(r"(?<=[a-z])\((?:I{1,3}|IV|VI?)\)(?![\w-])")
# The rest of a formula or the last number of a vitamin, where subscripts became brackets: TiO(2), As(2)O(3), H(2)S.
SUBSCRIPT = re.compile(
    r"(?:(?<=[A-Z])|(?<=[A-Z][a-z]))(?:\(\d\)[A-Z][a-z]?){0,3}(?:\(\d\)|(?<=\)[A-Z])|(?<=\)[A-Z][a-z]))(?![\w(-]| ?\+)"
)
# Of "reactive oxygen species", BC5CDR has oxygen and the other datasets the whole, but none "oxygen species".
SPECIES_OF, REACTIVE = re.compile(r"(?:oxygen|nitrogen) species"), re.compile(r"[Rr]eactive \Z")
# The number of the peptide: angiotensin II, of which no dataset has the first word alone.
PEPTIDE, NUMBER = re.compile(r"[Aa]ngiotensin"), re.compile(r" (?:I{1,3}|IV|1-7|\(1-7\))(?![\w-])")
# What the model cuts off at the beginning: (Z)-endoxifen, (18)F-florbetapir.
OPENED = re.compile(r"[^\s()]{1,12}\)-")
LABELED = re.compile(r"[A-Z][a-z]?-")
ISOTOPE = re.compile(r"\(\d{1,3}\)\Z")
# Polymers, of which the model finds the parts: poly(ethylene glycol).
POLYMER = re.compile(r"(?<![\w-])[Pp]oly\([^\s()](?:[^()\n]|\(\w{1,3}\)){2,40}\)")
# Of two chemicals without a space between them, the first is a part of the second if it is a prefix: R-modafinil,
# [14C]pyruvate, cyclic-di-GMP.
PREFIX = re.compile(r"(?:[-\]]|(?<!\w)(?:di|cyclic))\Z")
# Words that datasets leave out wherever they stand after a gene ("TP53 mutations", "Il10 mRNA", "PTEN exon 5"), and
# those that they leave out after a symbol: "FOXP3 protein", but "prion protein" and "LPS-binding protein".
AFTER_GENE = re.compile(
    r"\s+(?:(?i:mutations?|mutants?|variants?|polymorphisms?|alleles?|m?RNAs?|cDNAs?|transcripts?|locus|promoter|enhancer"
    r"|exons?(?: \d{1,3})?|antibod(?:y|ies)|Leiden)|(?<!ed )(?<!ible )(?<!ive )gene|(?<!ED )(?<!IBLE )(?<!IVE )GENE"
    r"|(?:proto-)?oncogenes?)\Z"
)
AFTER_SYMBOL = re.compile(r"(?<=[A-Z0-9])\s+(?:proteins?|genes|isoforms?)\Z|(?<=\d)\s+channels?\Z")
SYMBOL = re.compile(r"(?=\S*[A-Z])(?:[^\s-]|-(?![a-z]{3})){2,}")
# Species before a gene, but where they are a part of its name; antibodies are named by what they bind.
BEFORE_GENE = re.compile(
    r"(?:(?:[Rr]ecombinant|[Ee]ndogenous|[Tt]ransgenic)\s+)?"
    r"(?:(?:[Hh]uman|[Mm]ouse|[Mm]urine|[Rr]at|[Bb]ovine|[Pp]orcine|[Oo]vine|[Ee]quine|[Cc]anine|[Ff]eline|[Rr]abbit"
    r"|[Hh]amster|[Cc]hicken|[Cc]hick|[Mm]onkey|[Zz]ebrafish|[Yy]east|Xenopus|Drosophila|Arabidopsis)\s+|[Aa]nti-)"
    r"(?!(?:leu[ck]ocyte antigen|chorionic|growth hormone|epidermal growth factor receptor [234]|telomerase|herpes"
    r"|immunodeficiency|papilloma|endogenous|double minute|T[ -](?:cell|lymphotropic)|cytomegalo|neutrophil)\b)(?=\S)"
)
# What is said of a protein or its gene, before a symbol: of 258 in six corpora, annotators have one.
STATE = re.compile(
    r"(?:[Ww]ild[- ][Tt]ype|WT|[Mm]utant|[Ff]ull-length|[Pp]hosphorylated|[Tt]otal|[Ee]ndogenous|[Rr]ecombinant)\s+"
    r"(?=(?:(?:human|mouse|murine|rat)\s+)?\w*[A-Z\d])"
)
# "gene tb1": no gene in the training splits begins so.
GENE_BEFORE = re.compile(r"[Gg]enes? (?=\S*[A-Z\d]\S*\Z)")
# A binomial and what is no part of it: strains ("Thiomonas intermedia DSM 18155") and authors ("Delphacodes kuscheli
# Fennah"). Serotypes and the marks of new species stay.
NAMED_SPECIES = re.compile(
    r"(?:[A-Z][a-z]+ |[A-Z]\. ?)(?!virus)[a-z]{3,}(?= (?!O\d)[A-Z\d])(?!.*(?:serovar|subsp|type|virus))"
)
# The model takes "lumpy skin disease virus" for a disease.
VIRUS = re.compile(r"(?!.*(?:infection| with | by | of | from )).*virus(?:es)?")
# Genera that the model finds without their epithet, besides microbes.
_GENERA_OF_MODELS = """
Aedes Anopheles Apis Arabidopsis Bombyx Brassica Caenorhabditis Culex Danio Dictyostelium Drosophila Neurospora
Nicotiana Oryza Schizosaccharomyces Solanum Trichoderma Triticum Xenopus Zea
"""
GENERA_TO_COMPLETE = GENERA.union(_GENERA_OF_MODELS.split())
AFTER_SPECIES = re.compile(r"\s+(?:plants?|seedlings?|cells|embryos?|larvae|strains?|isolates?|mutants?)\Z")
# What separates the names of a list, and by type a word that is a name by itself: "MLH1, MSH2 and EPCAM", but not
# "caspase-3 and -9" and "breast, colorectal and lung cancer".
SEPARATOR = re.compile(r"(?:,? (?:and|or)|,) (?!(?:and|or) )")
LIST_PART = {
    "Gene": re.compile(r"(?=\S*[A-Za-z])(?=\S*\d|\S*[A-Z]\S*[A-Z])\w[^\s,]{2,}"),
    "Chemical": re.compile(r"[A-Za-z][A-Za-z-]{4,}"),
    "CellLine": re.compile(r"(?=\S*\d)[A-Z][^\s,]{2,}"),
    "Disease": re.compile(
        r"[A-Za-z]{2,}(?:ia|is|ea|ing|oma|ache|ever|ure|ures|thy|ness|tion|ions|sy|ma|rash|pain|cough)"
    ),
    "Species": re.compile(r"[A-Z]?[a-z]{2,}s"),
}
MAX_LIST = 200
# The end of a sentence in a mention, after an abbreviation: "HAT. Amiodarone".
SENTENCE_END = re.compile(r"(?<=[A-Z]{2})\. (?=[A-Z][a-z]{3})")
# A species of this score or more is cut from the gene that begins with it: "Arabidopsis thaliana FLC".
SURE = 0.5
# The longest prefix of a chemical, with its hyphen.
MAX_PREFIX = 12
# What is no name without its species: "Bacteroides fragilis toxin".
GENERIC = re.compile(r"(?:entero|cyto|exo)?toxins?|proteins?|antigens?|allergens?")
# The least length of what is left.
MIN_GENE = 3
# The end of the first word of a compound.
HYPHENATED = re.compile(r"[^\W\d_]{3}-\Z")
# Characters that are removed at either end at most, so that a page of brackets costs no more than a line.
MAX_TRIM = 8
OPENING, CLOSING = "([{", ")]}"
# Soft hyphens, zero-width and bidirectional marks and byte order marks, which pages and PDFs have beside words.
INVISIBLE = "\u00ad\u200b\u200c\u200d\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069\ufeff"
AT_START, AT_END = frozenset(" ,;:/.)]}" + INVISIBLE), frozenset(" ,;:/" + INVISIBLE)
PAIRS = dict(zip(CLOSING, OPENING, strict=True))


def apply_boundaries(text: str, mentions: Sequence[Mention], drops: list[Drop]) -> Iterator[Mention]:
    """The mentions, each with its brackets balanced; genes without species and what is no part of their names."""
    species = {
        mention.start: mention.end for mention in mentions if mention.type == "Species" and mention.score >= SURE
    }
    for mention in mentions:
        start, end = balanced(text, *mention.place)
        if (sentence := SENTENCE_END.search(text, start, end)) is not None:
            start = sentence.end()
        if mention.type == "Gene":
            after = species.get(start, end) + 1
            if after < end and text[after - 1] == " " and not GENERIC.fullmatch(text, after, end):
                start = after
            start, end = gene_name(text, start, end)
        elif mention.type == "Species":
            end = species_end(text, start, end)
        elif mention.type == "Disease" and end - start < MAX_NAME and VIRUS.fullmatch(text, start, end):
            drops.append(Drop(mention, "a virus, not its disease"))
            mention = Mention(*mention.place, "Species", mention.score, RULE)
        elif mention.type == "Chemical":
            start, end = chemical_name(text, start, end)
        if (
            not text[start : start + 1].isalpha()
            and mention.type != CELL_LINE
            and not any(map(str.isalpha, text[start : min(end, start + MAX_NAME)]))
        ):
            start = end
        if start >= end:
            drops.append(Drop(mention, "punctuation"))
            continue
        parts = split_list(text, start, end, mention.type)
        if parts == [mention.place]:
            yield mention
            continue
        for part in parts:
            drops.append(Drop(mention, f"boundaries moved: {text[slice(*part)]!r}"))
            yield mention.moved(*part)


def chemical_name(text: str, start: int, end: int) -> tuple[int, int]:
    """The chemical with its charge, second word and subscript, and with what opens the bracket or names the isotope."""
    if text[start - 1 : start] == "(" and OPENED.match(text, start, end):
        start -= 1
    elif SPECIES_OF.fullmatch(text, start, end) and (before := REACTIVE.search(text, max(0, start - 9), start)):
        start = before.start()
    elif LABELED.match(text, start, end) and (isotope := ISOTOPE.search(text, max(0, start - 5), start)):
        start = isotope.start()
    if text[end : end + 1] == "+" and CUT_CHARGE.fullmatch(text, start, end):
        return start, end + (2 if text[end : end + 2] == "+)" and "(" in text[start:end] else 1)
    # The next character says which of the forms there can be.
    following = text[end : end + 1]
    rest = None
    if following == "(" or ")" in text[max(0, end - 3) : end]:
        rest = SUBSCRIPT.match(text, end)
    if rest is not None:
        return start, rest.end()
    if following == " ":
        rest = SECOND_WORD.match(text, end)
        if rest is None and PEPTIDE.fullmatch(text, start, end):
            rest = NUMBER.match(text, end)
    elif following == "(":
        rest = OXIDATION.match(text, end)
    elif following == "+" and CATION.fullmatch(text, start, end):
        rest = POSITIVE.match(text, end)
    elif following == "-" and ANION.fullmatch(text, start, end):
        rest = NEGATIVE.match(text, end)
    return start, rest.end() if rest is not None else end


def join_chemicals(text: str, mentions: Sequence[Mention], drops: list[Drop]) -> list[Mention]:
    """The mentions, with chemicals joined that are parts of one name: "R-" and "modafinil", the parts of a polymer."""
    chemicals = sorted((one for one in mentions if one.type == "Chemical"), key=lambda one: one.place)
    polymers = [match.span() for match in POLYMER.finditer(text)] if chemicals and "oly(" in text else []
    starts = [start for start, _ in polymers]
    joined: list[Mention] = []
    for mention in chemicals:
        index = bisect_right(starts, mention.start) - 1
        place = polymers[index] if index >= 0 and mention.end <= polymers[index][1] else mention.place
        last = joined[-1] if joined else None
        if last is not None and (place[0] < last.end or _is_prefix(text, last, place[0])):
            whole = Mention(last.start, max(last.end, place[1]), "Chemical", max(last.score, mention.score), last.rule)
            drops.append(Drop(mention, f"a part of {text[slice(*whole.place)]!r}"))
            joined[-1] = whole
        else:
            joined.append(mention.moved(*place))
    return [*(one for one in mentions if one.type != "Chemical"), *joined]


def _is_prefix(text: str, mention: Mention, start: int) -> bool:
    """Whether a chemical is the first part of the one that starts there."""
    gap = text[mention.end : start]
    return (gap == "" or (gap == "-" and start - mention.start < MAX_PREFIX)) and bool(
        PREFIX.search(text, max(mention.start, mention.end - MAX_PREFIX), mention.end)
    )


def apply_glued_alleles(text: str, mentions: Sequence[Mention], drops: list[Drop]) -> list[Mention]:
    """The mentions with genes before the mark of an allele where the model is not sure of one: Xpd in "XpdTTD mice"."""
    words = [match.span(1) for form in (GLUED_ALLELE, CASSETTE) for match in form.finditer(text)]
    if not words:
        return list(mentions)
    known = Occupied(text, (mention for mention in mentions if mention.score >= SURE))
    genes = [Mention(start, end, "Gene", GLUED_SCORE, RULE) for start, end in words if not known.overlaps(start, end)]
    added = Occupied(text, genes)
    kept = []
    for mention in mentions:
        if mention.type == "Gene" and added.overlaps(*mention.place):
            drops.append(Drop(mention, "the gene is the word without the mark of its allele"))
        else:
            kept.append(mention)
    return [*kept, *genes]


def balanced(text: str, start: int, end: int) -> tuple[int, int]:
    """The place without punctuation at its ends and without a bracket there that is closed or opened elsewhere."""
    first, last_end = start, end
    while start < min(end, first + MAX_TRIM) and (
        text[start] in AT_START or (text[start] in OPENING and _unclosed(text, start, end))
    ):
        start += 1
    while max(start, last_end - MAX_TRIM) < end:
        last = text[end - 1]
        if last in AT_END or last in OPENING or (last in CLOSING and PAIRS[last] not in text[start:end]):
            end -= 1
        else:
            break
    # "budesonide-" of "budesonide-formoterol", but "Cl-" and "NO3-".
    if text[end : end + 1].isalpha() and HYPHENATED.match(text, max(start, end - 4), end):
        end -= 1
    # "15 nucleotide (nt": the bracket closes right behind it.
    if (
        end < len(text)
        and text[end] in CLOSING
        and text.count(PAIRS[text[end]], start, end) > text.count(text[end], start, end)
    ):
        end += 1
    return start, end


def _unclosed(text: str, start: int, end: int) -> bool:
    closing = CLOSING[OPENING.index(text[start])]
    return closing not in text[start:end]


def gene_name(text: str, start: int, end: int) -> tuple[int, int]:
    """The gene without its species, words that are no part of its name and the mark of an allele."""
    # Most genes are one word of letters and digits.
    if not text[start:end].isalnum():
        start, end = _without_words(text, start, end)
    star = STAR.search(text, max(start, end - 12), end) if "*" in text[start:end] else None
    if star is None and text[end - 1 : end] in APOE_ENDS:
        star = APOE.search(text, max(start, end - 16), end)
    if star is not None and not text.startswith("HLA", start):
        end = star.start()
    name = text[start:end]
    if name == "Lp" and text.startswith("(a)", end):
        return start, end + 3
    if name[-1:] in ALLELE_ENDS and (mark := ALLELE_MARK.search(name)) and mark.start() >= MIN_GENE:
        return start, start + mark.start()
    return start, end


def _without_words(text: str, start: int, end: int) -> tuple[int, int]:
    """The gene without its species, words that are no part of its name and the sign of a cell."""
    for words in (STATE, BEFORE_GENE, BEFORE_GENE, GENE_BEFORE):
        if (before := words.match(text, start, end)) is not None:
            start = before.end()
    if (after := AFTER_GENE.search(text, max(start, end - 20), end)) or (
        (after := AFTER_SYMBOL.search(text, max(start, end - 20), end)) and SYMBOL.fullmatch(text, start, after.start())
    ):
        end = after.start()
    if (sign := ON_CELLS.search(text, max(start, end - 3), end)) is not None:
        end = sign.start()
    return start, end


def split_list(text: str, start: int, end: int, type: str) -> list[tuple[int, int]]:
    """The places of the names in a list that became one mention, if each is a name by itself; else the place."""
    whole = LIST_PART.get(type)
    if whole is None or " " not in text[start:end] or not SEPARATOR.search(text, start, end):
        return [(start, end)]
    parts, begin = [], start
    for separator in SEPARATOR.finditer(text, start, min(end, start + MAX_LIST)):
        parts.append((begin, separator.start()))
        begin = separator.end()
    parts.append((begin, end))
    return parts if all(whole.fullmatch(text, *part) for part in parts) else [(start, end)]


def species_end(text: str, start: int, end: int) -> int:
    """Where the name of a species ends, without its strain, author or individuals."""
    if (binomial := NAMED_SPECIES.match(text, start, end)) is not None:
        return binomial.end()
    epithet = EPITHET.match(text, end) if text[start:end] in GENERA_TO_COMPLETE else None
    if epithet is not None and is_epithet(epithet[1]):
        return epithet.end()
    after = AFTER_SPECIES.search(text, max(start, end - 20), end)
    return after.start() if after is not None else end
