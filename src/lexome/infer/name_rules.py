"""Names by their form: drugs by the stems of nonproprietary names, microbes by genus, species by initial and epithet.

A model finds what it has not seen in training less often than the rest, but new drugs and microbes are named by rule:
substances by the stems of the WHO, species by Latin binomials.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from functools import cache

from lexome.infer.rules import Drop, Mention, NameIndex, RareForm, find_names, with_names, words_of

RULE = "name-forms"
# Precision of what the rule added on the development sets (results/annotator_rules.json).
SCORE = 0.95

# Drugs

# Ends of nonproprietary names that hardly another word has; each was looked up in 110,000 abstracts. In order:
# antibodies, receptors, enzymes, nucleic acids and cells; tumors; metabolism, heart and blood; nerves; inflammation,
# stomach and lungs; infections.
_STEMS = """
mab tacept nercept kinra teplase galsidase glucerase elosulfase siran nersen leucel parvovec
tinib anib rafenib metinib rasib sidenib degib ciclib parib lisib clax zomib inostat metostat platin rubicin taxel
trexed citabine domide lutamide
gliflozin gliptin glutide natide paratide glitazone vaptan sartan vastatin renone ciguat sentan camten xaban gatran
grelor dipine olol pril dustat azosin dronate afil fenacin
gepant triptan setron rexant azepam azolam peridone piprazole oxetine racetam gabalin prepitant benazine curonium
coxib profen lukast prazole prazan sonide tropium umilast caftor
ciclovir cyclovir tecavir tegravir buvir asvir previr navir amivir oxavir trelvir sivir viroc floxacin cillin penem
bactam zolid conazole fungin vancin thromycin
"""
STEMS = tuple(_STEMS.split())
# As long as the shortest stem: one look-up rules out nearly all words.
END = min(map(len, STEMS))
STEM_ENDS = frozenset(end for stem in STEMS for end in (stem[-END:], stem[-END:].upper()))
NO_DRUGS = frozenset(("carbapenem", "glitazone", "gliptin", "triptan"))
MIN_DRUG = 7
# What an antibody carries, and the letters that tell biosimilars and cells apart: trastuzumab deruxtecan,
# bevacizumab-awwb, sipuleucel-T.
AFTER_ANTIBODY = re.compile(
    r"(?:-[a-z]{4}(?![\w-])|-T(?![\w-]))?(?: (?:vedotin|deruxtecan|emtansine"
    r"|govitecan|ozogamicin|mafodotin|tesirine|\w*ravtansine"
    r"|tiuxetan|pegol|alfa|autoleucel|ciloleucel|vicleucel|maraleucel|abeparvovec)(?:-[a-z]{4})?(?![\w-]))?"
)

# Gene therapies have a name of two words: onasemnogene abeparvovec, idecabtagene vicleucel.
GENE_THERAPY = RareForm(
    r"(?<!\w)", r"[A-Za-z][a-z]{4,}gene [a-z]{3,}(?:vec|cel)(?![\w-])", sign="gene [a-z]{3,}(?:vec|cel)"
)

# Microbes

# Genera of bacteria, fungi and parasites, without those that are words elsewhere.
_GENERA = """
Acanthamoeba Acinetobacter Actinobacillus Actinomyces Aeromonas Aggregatibacter Alistipes Anaplasma Ascaris Aspergillus
Babesia Bacillus Bartonella Blastomyces Blautia Bordetella Borrelia Borreliella Brugia Burkholderia Candida
Capnocytophaga Chlamydophila Citrobacter Clostridioides Coccidioides Corynebacterium Coxiella Cronobacter Cryptococcus
Cutibacterium Desulfovibrio Echinococcus Ehrlichia Eimeria Elizabethkingia Entamoeba Enterobacter Enterococcus
Escherichia Eubacterium Francisella Fusarium Fusobacterium Gardnerella Haemophilus Helicobacter Histoplasma Klebsiella
Lactococcus Leuconostoc Malassezia Microsporum Moraxella Morganella Mycobacterium Mycobacteroides Naegleria Neisseria
Nocardia Onchocerca Paracoccidioides Pasteurella Penicillium Peptostreptococcus Pneumocystis Porphyromonas
Propionibacterium Proteus Providencia Pseudomonas Ralstonia Rhizopus Rickettsia Roseburia Ruminococcus Saccharomyces
Sarcoptes Schistosoma Serratia Sporothrix Staphylococcus Stenotrophomonas Streptococcus Streptomyces Strongyloides
Taenia Toxocara Treponema Trichinella Trichomonas Trichophyton Trichuris Ureaplasma Veillonella Vibrio Wuchereria
Xanthomonas Yersinia
"""
# Those that texts name without a species. Of the others, SPECIES annotates no genus alone.
_KNOWN_BY_GENUS = """
Akkermansia Bacteroides Bifidobacterium Brucella Campylobacter Chlamydia Clostridium Cryptosporidium Faecalibacterium
Giardia Lactobacillus Legionella Leishmania Leptospira Listeria Mycoplasma Plasmodium Prevotella Salmonella Shigella
Toxoplasma Trypanosoma Wolbachia
"""
KNOWN_BY_GENUS = frozenset(_KNOWN_BY_GENUS.split())
GENERA = KNOWN_BY_GENUS.union(_GENERA.split())
GENERA_INDEX = NameIndex(GENERA)
EPITHET = re.compile(r" ([a-z]{4,})(?![\w-])")
_LATIN_ENDS = (
    "us is um ae i ans ens ax oides cola ica osa ata ale ile ana ina ella gena genes phila formis plex nax lis"
)
LATIN_ENDS = tuple(_LATIN_ENDS.split())
# English words with such ends, but for the names of diseases in -itis and -osis.
_NO_EPITHETS = """
analysis basis bacterial campus colonies consensus continues corpus culprits focus genus hypothesis locus means medium
momentum nucleus plus sepsis serum species spectrum status thesis thus this versus virus genes pathogens toxins antigens
titans clans scans resistance alumni taxi bacilli stimuli via larvae pupae hyphae antennae vertebrae testis embryonal
"""
NO_EPITHETS = frozenset(_NO_EPITHETS.split())
DISEASE_END = re.compile(r"(?:itis|osis|iasis|emia|aemia)\Z")
# Escherichia coli O157:H7, Salmonella Typhimurium
SEROTYPE = re.compile(
    r" O\d{1,3}(?::(?:H\d{1,3}|NM|H-|K\d{1,3}))?(?!\w)| (?:serovar )?(?:Typhi(?:murium)?|Enteritidis)(?!\w)"
)
COLI = RareForm(r"(?<!\w)", r"E\. coli(?= O\d)")
BINOMIAL = re.compile(r"([A-Z])[a-z]{2,} ([a-z]{3,})")

# Genes

# Locus tags and other systematic names: of yeasts, Arabidopsis, rice, Mycobacterium, Drosophila and frequent bacteria,
# of cDNA projects and of Ensembl. Of 463 in six corpora, annotators have 459.
LOCUS = RareForm(
    r"(?<![\w-])",
    r"(?:Y[A-P][LR]\d{3}[WC](?:-[A-Z])?|SP(?:AC|BC|CC)\d{1,4}\.\d{2}c?|A[Tt][1-5CM][Gg]\d{5}(?:\.\d)?"
    r"|LOC_Os\d\dg\d{5,7}|Os\d\dg\d{5,7}|Rv\d{4}[ABDc]?c?|rv\d{4}[ABDc]?c?|PA\d{4}(?=[^\w-]|\Z)|STM\d{4}|MSMEG_\d{4}"
    r"|MAB_\d{4}c?|BSU\d{5}|SCO\d{4}|lmo\d{4}|s[lr][lr]\d{4}|BAB[12]_\d{4}|FTT_?\d{4}c?|SAOUHSC_\d{5}|SPy_?\d{4}"
    r"|CG\d{4,5}|C[1-9XY]\d?orf\d{1,3}|KIAA\d{4}|DKFZ[pP]\d{3}\w\d{3,4}|LOC\d{5,9}|ENS(?:MUS|RNO|DAR|GAL)?[GTP]\d{11})"
    r"(?!\w)",
)
# Deletion mutants of bacteria, ΔphoP: BioNLP11ID has the sign in the name, 91 of 91 times, and the model mostly too.
DELETED_GENE = re.compile(r"(?:(?:(?<!\w)|(?<=[a-z\d]))[Δ∆]|(?<!\w)[Dd]elta-?)[a-z]{3}[A-Z]{1,4}\d{0,2}(?![a-z\d])")
DELTA = re.compile("Δ|∆|Delta|delta")
# Channels and receptors whose names begin with a chemical: Nav1.7, Ca(V)2.1, Kir6.2, K(ATP), 5-HT(1A).
_NUMBERED = r"(?:[vV]|ir|IR|\((?:[vV]|ir|IR)\))\d\.\d{1,2}"
CHANNEL = RareForm(
    r"(?<![\w-])",
    rf"(?:Na{_NUMBERED}|Ca{_NUMBERED}|K{_NUMBERED}|K\(ATP\)|5-HT(?:\([1-7][A-F]?\)|[1-7][A-F]?))(?!\w)",
)
# A symbol right before the notation of a variant: "GLA p.Asn215Ser". Of ten in three corpora, all are genes; sequences
# are excluded.
NOTED = RareForm(
    r"(?<![\w-])",
    r"(?!(?:[ACGTU]+|SN[PV]s?|WT|DNA|RNA|VUS|HGVS|AND|OR|THE|WITH|OF|IN|VARIANTS?|MUTATIONS?|ID)(?!\w))"
    r"[A-Z][A-Z0-9]{1,7}(?= \(?(?:c\.\d|p\.\(?[A-Z]))",
    sign=r"\.(?<=[ (][cp]\.)[\dA-Z(]",
)
# Constants of dissociation and of Michaelis, K(D) and K(m), whose letter the model takes for potassium.
CONSTANT = re.compile(r"K\((?:[DdIiMmAaBb]|app|cat)\)")

# The metal at the beginning of a sentence, which elsewhere is a verb: "Lead exposure", "Lead and cadmium".
LEAD = RareForm(
    r"(?<!\w)",
    r"Lead(?=(?:-induced|-exposed)\b| (?:exposures?|poisoning|levels?|concentrations?|toxicity|intoxication"
    r"|acetate|nitrate|chloride|ions?|contents?|contamination|burden|was (?:measured|determined|detected|found)"
    r"|(?:and|or) (?:cadmium|mercury|arsenic|zinc|copper|other metals)|is (?:a|an) (?:\w+ )?(?:metal|neurotoxi\w+)))",
)

# What is no mention, whatever the model says: parts of antibodies' names, signs of tests, kinds of RNA, the glomerular
# filtration rate, sweat, in which chloride is measured, and headings of tables.
NO_NAME = re.compile(
    r"[Hh]umani[sz]ed|[Aa]nti-?|[Gg]enes?|[Pp]roteins?|[+-]?ve|eGFR|[Ss]weat|p(?:Ser|Thr|Tyr|[STY])-?\d{2,4}"
    r"|(?:lnc|circ|mi|m|si|sh|t|r|nc|ds|ss|pi|sn)RNAs?"
)
# By type: strains of bacteria, their secretion systems and pathogenicity islands are no genes, a letter or an adjective
# is no chemical, and neither is a modified histone.
NO_NAME_OF = {
    "Gene": re.compile(
        r"H37R[av]|PAO1|SF370|MG1655|SL1344|SPI-[1-5](?: T3SS)?|T[1-9]SSs?|EPEC|EHEC|UPEC|NTHi|(?:V?L|H)DL-C|F[BC]S"
        r"|[Aa]ctivated"
    ),
    "Chemical": re.compile(
        r"[a-zα-ω]|K[DdIiMm]|pH|HFD|[Ee]lectricity|[Pp]rimers?|[Ff]atty|[Ff]ree|[Rr]eactive|[Bb]uccal"
        r"|[Pp]hotons?|[Cc]ationic|[Aa]nionic|[Tt]ri-?acylated|F[BC]S|DMEM|H[34]K\d{1,2}(?:me\d?|ac)?"
    ),
    "Disease": re.compile(
        r"IUC?Ds?|[Gg]ravid|(?:ST(?:[- ]segment)?|[Ll]ong-term(?: synaptic)?|[Ss]ynaptic) depression"
    ),
    "Variant": re.compile(r"H37R[av]|(?:(?:[A-Z][a-z]{2}|X)-){2,}(?:[A-Z][a-z]{2}|X)"),
}
# The model takes some for species, or for diseases that lack them.
VITAMIN = re.compile(r"[Vv]itamins? [A-K]\d{0,2}")
# The longest gene after a hyphen that is taken for the end of a word.
MAX_END = 4
# Overall survival, which the model takes for osteosarcoma.
SURVIVAL = re.compile(r"\b(?:PFS|DFS|RFS|TTP|ORR|[Ss]urvival|prolong(?:s|ed)?|median)\b")
SURVIVAL_WINDOW = 100
# CAR T cells
CHIMERIC = re.compile(r"CAR(?=[ -](?:T|NK))")


def apply_name_forms(
    text: str, mentions: Sequence[Mention], drops: list[Drop], *, types: Collection[str]
) -> list[Mention]:
    """The mentions with drugs and species added whose names tell what they are, and without what is no name."""
    kept = []
    for mention in mentions:
        start, end = mention.place
        if (
            _no_names(mention.type).fullmatch(text, start, end)
            or (text.startswith("CAR", start) and CHIMERIC.match(text, start, end + 3))
            or (end - start == 1 and CONSTANT.match(text, start))
            or (mention.type == "Disease" and _is_survival(text, mention))
            or (mention.type == "Gene" and _is_end_of_word(text, mention))
        ):
            drops.append(Drop(mention, "no name"))
        else:
            kept.append(mention)
    found: set[Mention] = set()
    if "Gene" in types:
        found.update(Mention(*place, "Gene", SCORE, RULE) for place in systematic_genes(text))
    if "Chemical" in types:
        found.update(Mention(*place, "Chemical", SCORE, RULE) for place in drugs(text))
        found.update(Mention(*match.span(), "Chemical", SCORE, RULE) for match in LEAD.finditer(text))
    if "Species" in types:
        found.update(Mention(*place, "Species", SCORE, RULE) for place in microbes(text))
        found.update(Mention(*place, "Species", SCORE, RULE) for place in short_binomials(text, kept))
    # By type too: the order of a set of strings differs between processes.
    ordered = sorted(found, key=lambda name: (name.place, name.type))
    return with_names(text, kept, ordered, drops) if found else kept


@cache
def _no_names(type: str) -> re.Pattern[str]:
    """What is no mention of a type, in one pattern: every mention is matched with it."""
    forms = [NO_NAME, NO_NAME_OF.get(type), VITAMIN if type != "Chemical" else None]
    return re.compile("|".join(form.pattern for form in forms if form is not None))


def _is_survival(text: str, mention: Mention) -> bool:
    """Whether the disease OS is overall survival: near other endpoints, and where no osteosarcoma is mentioned."""
    start, end = mention.place
    return (
        text[start:end] == "OS"
        and "osteosarcoma" not in text.lower()
        and SURVIVAL.search(text, max(0, start - SURVIVAL_WINDOW), end + SURVIVAL_WINDOW) is not None
    )


def _is_end_of_word(text: str, mention: Mention) -> bool:
    """Whether a gene is the last letters of a word with a hyphen: "cat" of the catalytic domain AmiC2-cat."""
    start, end = mention.place
    return end - start <= MAX_END and text[max(0, start - 1) : start] == "-" and text[start:end].islower()


def systematic_genes(text: str) -> Iterator[tuple[int, int]]:
    """The places of locus tags, channels, genes that a notation follows, and genes that are deleted."""
    for form in (LOCUS, CHANNEL, NOTED):
        yield from (match.span() for match in form.finditer(text))
    if DELTA.search(text):
        yield from (match.span() for match in DELETED_GENE.finditer(text))


def drugs(text: str) -> Iterator[tuple[int, int]]:
    """The places of drugs, by the stems of their names."""
    therapies = [match.span() for match in GENE_THERAPY.finditer(text)]
    yield from therapies
    ends = {end for _, end in therapies}
    names = {word for word in words_of(text) if word[-END:] in STEM_ENDS and is_drug(word)}
    for start, end in find_names(text, names):
        after = AFTER_ANTIBODY.match(text, end)
        if end not in ends:
            yield start, after.end() if after is not None else end


def is_drug(word: str) -> bool:
    """Whether a word has the stem of a nonproprietary name.

    >>> is_drug("Selpercatinib"), is_drug("concept")
    (True, False)
    """
    if len(word) < MIN_DRUG or not (word[1:].islower() or word.isupper()):
        return False
    lowered = word.lower()
    return lowered.endswith(STEMS) and lowered not in NO_DRUGS


def microbes(text: str) -> Iterator[tuple[int, int]]:
    """The places of microbes with their epithets and serotypes."""
    for start, end in GENERA_INDEX.find(text):
        epithet = EPITHET.match(text, end)
        if epithet is not None and is_epithet(epithet[1]):
            end = epithet.end()
        elif text[start:end] not in KNOWN_BY_GENUS:
            continue
        serotype = SEROTYPE.match(text, end)
        yield start, serotype.end() if serotype is not None else end
    for match in COLI.finditer(text):
        serotype = SEROTYPE.match(text, match.end())
        if serotype is not None:
            yield match.start(), serotype.end()


def is_epithet(word: str) -> bool:
    """Whether a word after a genus is the name of its species.

    >>> is_epithet("monocytogenes"), is_epithet("meningitis")
    (True, False)
    """
    return word.endswith(LATIN_ENDS) and word not in NO_EPITHETS and not DISEASE_END.search(word)


def short_binomials(text: str, mentions: Sequence[Mention]) -> Iterator[tuple[int, int]]:
    """The places of "L. monocytogenes", where the text has a species with this initial and epithet in full."""
    names = {
        f"{full[1]}. {full[2]}"
        for mention in mentions
        if mention.type == "Species" and (full := BINOMIAL.fullmatch(text, *mention.place))
    }
    return find_names(text, names)
