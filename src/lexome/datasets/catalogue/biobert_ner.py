"""The eight sets of mentions that every paper reports, in the columns that BioBERT's authors published."""

from collections.abc import Mapping

from lexome.datasets.catalogue.settings import mentions
from lexome.datasets.dataset import Card
from lexome.datasets.splits import Files

_ALL = ("lee2020", "lewis2020", "fang2023")
_ALL_FOUR = (*_ALL, "shin2020")
_GET = (
    "NERdata of BioBERT's authors (github.com/dmis-lab/biobert, section Datasets, or biobert-pytorch's download.sh); "
    "the same columns are in github.com/cambridgeltl/MTL-Bioinformatics-2016."
)
_FORM = "BioBERT's columns carry B, I and O without a type; a sentence is a document."
_LEE = "BioBERT trains on train and dev together for its test numbers; Bio-LM and Bioformer choose on dev."


def _card(
    name: str,
    type: str,
    about: str,
    counts: Mapping[str, tuple[int, int]],
    *,
    licence: str,
    citation: str,
    papers: tuple[str, ...] = _ALL,
    folders: tuple[str, ...] = (),
    notes: tuple[str, ...] = (),
    get: str = _GET,
) -> Card:
    """A card of a set in these columns; `counts` are sentences and mentions, sentences 0 where they are not known."""
    return Card(
        name,
        about,
        task=mentions(type),
        measure="entity F1",
        splits={
            split: tuple(Files((f"{stem}.tsv",), "conll", {"type": type}) for stem in stems)
            for split, stems in (("train", ("train",)), ("dev", ("devel", "dev")), ("test", ("test",)))
        },
        folders=(name, f"NERdata/{name}", *folders),
        licence=licence,
        citation=citation,
        get=get,
        expected={
            split: {**({"documents": sentences} if sentences else {}), "mentions": found}
            for split, (sentences, found) in counts.items()
        },
        papers=papers,
        notes=(_FORM, *notes, _LEE),
    )


CARDS = (
    _card(
        "BC2GM",
        "Gene",
        "genes and proteins in sentences of PubMed abstracts",
        {"train": (12574, 15197), "dev": (2519, 3061), "test": (5038, 6325)},
        licence="not stated for the data; the repository spyysalo/bc2gm-corpus is MIT",
        citation="Smith et al. 2008, Overview of BioCreative II gene mention recognition",
        notes=(
            "The official corpus has 18,265 and 6,331 mentions, and its scoring accepts alternatives: BC2GM-official.",
            "12 sentences of test are in train, 5 in dev.",
        ),
    ),
    _card(
        "BC4CHEMD",
        "Chemical",
        "chemicals and drugs in PubMed abstracts",
        {"train": (0, 29478), "dev": (0, 29486), "test": (0, 25346)},
        licence="redistribution unclear: get it from BioCreative",
        citation="Krallinger et al. 2015, The CHEMDNER corpus of chemicals and drugs",
        get="BioCreative IV, biocreative.bioinformatics.udel.edu/resources/biocreative-iv/chemdner-corpus, or " + _GET,
    ),
    _card(
        "BC5CDR-chem",
        "Chemical",
        "chemicals in PubMed abstracts",
        {"train": (4560, 5203), "dev": (4581, 5347), "test": (4797, 5385)},
        licence="public domain",
        citation="Li et al. 2016, BioCreative V CDR task corpus",
        papers=_ALL_FOUR,
        notes=(
            "10 mentions of dev and 5 of test end inside a token, so the columns are wider than the true offsets: "
            "BC5CDR has those.",
            "3 sentences of test are in dev.",
        ),
    ),
    _card(
        "BC5CDR-disease",
        "Disease",
        "diseases in PubMed abstracts",
        {"train": (4560, 4182), "dev": (4581, 4246), "test": (4797, 4424)},
        licence="public domain",
        citation="Li et al. 2016, BioCreative V CDR task corpus",
        papers=_ALL_FOUR,
        notes=(
            'dev has 4,246 mentions where the papers print 4,244: "St. Anthony\'s fire" is cut after "St.", twice.',
            "3 sentences of test are in dev.",
        ),
    ),
    _card(
        "JNLPBA",
        "Entity",
        "proteins, DNA and RNA, as one type, in MEDLINE abstracts",
        {"train": (14690, 32178), "dev": (3856, 8575), "test": (3856, 6241)},
        licence="GENIA Project licence",
        citation="Kim et al. 2004, Introduction to the bio-entity recognition task at JNLPBA",
        notes=(
            "The five types are one; cell lines and cell types are left out: JNLPBA-typed has all five.",
            "90 sentences of test are in train (89 different ones), 18 in dev (16).",
        ),
    ),
    _card(
        "linnaeus",
        "Species",
        "species in full texts of PMC",
        {"train": (11935, 2119), "dev": (4078, 711), "test": (7142, 1433)},
        licence="CC BY 4.0, as BigBIO says",
        citation="Gerner et al. 2010, LINNAEUS: a species name identification system",
        notes=(
            "576, 162 and 394 sentences are a single token; the longest has 324.",
            "21 sentences of test are in train (8 different ones), 16 in dev (4).",
        ),
    ),
    _card(
        "NCBI-disease",
        "Disease",
        "diseases in PubMed abstracts",
        {"train": (5424, 5134), "dev": (923, 787), "test": (940, 960)},
        licence="US government work, public domain",
        citation="Doğan et al. 2014, NCBI disease corpus",
        papers=_ALL_FOUR,
        notes=("One sentence of test is in train.",),
    ),
    _card(
        "s800",
        "Species",
        "species in PubMed abstracts of eight kinds of journals",
        {"train": (5733, 2557), "dev": (830, 384), "test": (1630, 767)},
        licence="none found",
        citation="Pafilis et al. 2013, The SPECIES and ORGANISMS resources",
    ),
)
