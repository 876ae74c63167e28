"""Sets of mentions beyond BioBERT's eight: original forms with offsets and types, and other corpora."""

from collections.abc import Mapping

from lexome.datasets.catalogue.settings import mentions
from lexome.datasets.dataset import Card
from lexome.datasets.splits import Change, Files
from lexome.datasets.transforms import each_once, only_types, types_called

_MTL = "github.com/cambridgeltl/MTL-Bioinformatics-2016, folder data."
_AIONER = "github.com/ncbi/AIONER, folder data/pubtator."
_REPAIRED = {"offsets": "repair"}
_BIORED_TYPES = {
    "GeneOrGeneProduct": "Gene",
    "DiseaseOrPhenotypicFeature": "Disease",
    "ChemicalEntity": "Chemical",
    "OrganismTaxon": "Species",
    "SequenceVariant": "Variant",
    "CellLine": "CellLine",
}


def _pubtator(*names: str, changes: tuple[Change, ...] = (), suffix: str = "") -> tuple[Files, ...]:
    return tuple(Files((f"{name}{suffix}",), "pubtator", _REPAIRED, changes) for name in names)


def _columns(
    name: str, types: Mapping[str, tuple[int, int, int]], about: str, citation: str, licence: str, folder: str
) -> Card:
    """A set of the multi-task corpora of Crichton et al.: typed IOB2 columns; counts are mentions of each type."""
    return Card(
        name,
        about,
        task=mentions(*types),
        measure="entity F1",
        splits={
            split: (Files((f"{stem}.tsv",), "conll"),)
            for split, stem in (("train", "train"), ("dev", "devel"), ("test", "test"))
        },
        folders=(f"MTL-{folder}", f"{folder}-IOB", folder),
        licence=licence,
        citation=citation,
        get=_MTL,
        expected={
            split: {f"mentions {type}": counts[place] for type, counts in types.items()}
            for place, split in enumerate(("train", "dev", "test"))
        },
    )


def _aioner(
    name: str, stem: str, types: tuple[str, ...], about: str, counts: Mapping[str, Mapping[str, int]], **more: object
) -> Card:
    """A corpus as AIONER's authors give it: PubTator files of train and test."""
    changes = (only_types(types),)
    return Card(
        name,
        about,
        task=mentions(*types),
        measure="entity F1",
        splits={
            split: _pubtator(f"{stem}_{split.title()}", suffix=".PubTator", changes=changes)
            for split in ("train", "test")
        },
        folders=("AIONER-pubtator", "AIONER/data/pubtator"),
        licence="MIT (NLM), as AIONER's repository says",
        get=_AIONER,
        expected=counts,
        dev_share=0.1,
        **more,  # type: ignore[arg-type]  # the card's own fields
    )


CARDS = (
    Card(
        "BC2GM-official",
        "genes and proteins with the alternatives that official scoring accepts",
        task={**mentions("GENE"), "measure": "bc2gm"},
        measure="BC2GM F1 with alternatives",
        splits={
            split: (Files((f"{split}/{split}.in", f"{split}/GENE.eval", f"{split}/ALTGENE.eval"), "bc2gm", _REPAIRED),)
            for split in ("train", "test")
        },
        folders=("BC2GM/official", "BC2GM-official", "bc2gm-corpus/original-data"),
        licence="MIT (repository spyysalo/bc2gm-corpus)",
        citation="Smith et al. 2008, Overview of BioCreative II gene mention recognition",
        get="github.com/spyysalo/bc2gm-corpus, folder original-data.",
        expected={
            "train": {"documents": 15000, "mentions GENE": 18265, "mentions ALTGENE": 14499},
            "test": {"documents": 5000, "mentions GENE": 6331, "mentions ALTGENE": 5068},
        },
        notes=("Mentions of the type ALTGENE are alternatives for scoring, not to be learnt.",),
        dev_share=0.1,
    ),
    Card(
        "BC5CDR",
        "chemicals and diseases with their true offsets and MeSH ids, and which chemical induces which disease",
        task=mentions("Chemical", "Disease"),
        measure="entity F1",
        splits={
            split: _pubtator(f"CDR_{name}Set.PubTator.txt", f"CDR_{name}Set.PubTator")
            for split, name in (("train", "Training"), ("dev", "Development"), ("test", "Test"))
        },
        folders=("BC5CDR-pubtator", "CDR_Data/CDR.Corpus.v010516", "CDR.Corpus.v010516", "BC5CDR"),
        licence="public domain",
        citation="Li et al. 2016, BioCreative V CDR task corpus",
        get="BioCreative V, biocreative.bioinformatics.udel.edu/resources/corpora/biocreative-v-cdr-corpus.",
        expected={
            split: {"documents": 500, "mentions Chemical": chemicals, "mentions Disease": diseases, "relations": found}
            for split, chemicals, diseases, found in (
                ("train", 5203, 4182, 1038),
                ("dev", 5347, 4244, 1012),
                ("test", 5385, 4424, 1066),
            )
        },
        notes=("Test and BioRED's train and dev share 69 articles: do not train on both.",),
    ),
    Card(
        "NCBI-disease-pubtator",
        "diseases in PubMed abstracts, with their true offsets and concepts",
        task=mentions("Disease"),
        measure="entity F1",
        splits={
            split: _pubtator(
                f"NCBI{name}set_corpus.txt",
                changes=(
                    each_once,
                    types_called(
                        dict.fromkeys(("SpecificDisease", "DiseaseClass", "Modifier", "CompositeMention"), "Disease")
                    ),
                ),
            )
            for split, name in (("train", "train"), ("dev", "develop"), ("test", "test"))
        },
        folders=("NCBI-disease-pubtator", "NCBI-disease/original-data", "NCBI-disease"),
        licence="US government work, public domain",
        citation="Doğan et al. 2014, NCBI disease corpus",
        get="NCBI, ncbi.nlm.nih.gov/CBBresearch/Dogan/DISEASE.",
        expected={
            "train": {"documents": 592, "mentions": 5134},
            "dev": {"documents": 100, "mentions": 787},
            "test": {"documents": 100, "mentions": 960},
        },
        notes=("The corpus's four types are one. Article 8528200 is in train twice; it is taken once.",),
    ),
    Card(
        "JNLPBA-typed",
        "proteins, DNA, RNA, cell lines and cell types in MEDLINE abstracts",
        task=mentions("protein", "DNA", "RNA", "cell_line", "cell_type"),
        measure="entity F1",
        splits={
            split: (
                Files(
                    (f"{stem}.tsv",),
                    "conll",
                    changes=(
                        types_called(
                            {
                                "PRGE": "protein",
                                "CLLN": "cell_line",
                                "CLTP": "cell_type",
                                **{name: name for name in ("DNA", "RNA", "protein", "cell_line", "cell_type")},
                            }
                        ),
                    ),
                ),
            )
            for split, stem in (("train", "train"), ("dev", "devel"), ("test", "test"))
        },
        folders=("JNLPBA/typed-5class", "JNLPBA_BIO", "JNLPBA-typed"),
        licence="GENIA Project licence",
        citation="Kim et al. 2004, Introduction to the bio-entity recognition task at JNLPBA",
        get="github.com/BaderLab/Biomedical-Corpora, folder corpora/NER/CoNLL/BIO/JNLPBA_BIO.",
        expected={
            split: {"documents": docs, "sentences": sentences, "mentions": all_types, "mentions protein": proteins}
            for split, docs, sentences, all_types, proteins in (
                ("train", 1800, 16807, 46750, 27803),
                ("dev", 200, 1739, 4551, 2466),
                ("test", 404, 3856, 8662, 5067),
            )
        },
    ),
    Card(
        "s800-standoff",
        "species in PubMed abstracts, the original annotations",
        task=mentions("Species"),
        measure="entity F1",
        splits={"train": (Files(("original-standoff!*.*",), "brat"),)},
        folders=("s800", "s800-standoff", "S800"),
        licence="none found",
        citation="Pafilis et al. 2013, The SPECIES and ORGANISMS resources",
        get="github.com/spyysalo/s800-revision-data, folder original-standoff.",
        expected={"train": {"documents": 800, "mentions": 3708}},
        notes=("The original has no splits; all is train.",),
    ),
    _columns(
        "AnatEM",
        {"Anatomy": (6946, 2139, 4616)},
        "anatomical entities in abstracts and full texts, types merged",
        "Pyysalo and Ananiadou 2014, Anatomical entity mention recognition at literature scale",
        "CC BY-SA 3.0, as BigBIO says",
        "AnatEM",
    ),
    _columns(
        "BC5CDR-typed",
        {"Chemical": (5203, 5347, 5385), "Disease": (4182, 4246, 4424)},
        "chemicals and diseases together, in columns",
        "Li et al. 2016, BioCreative V CDR task corpus",
        "CC BY 4.0, as the repository says",
        "BC5CDR",
    ),
    *(
        _columns(
            name,
            {"Protein": counts},
            f"proteins, BioNLP shared task {task}",
            "Crichton et al. 2017, A neural network multi-task learning approach to biomedical NER",
            "GENIA Project licence, as BigBIO says",
            name,
        )
        for name, task, counts in (
            ("BioNLP09", "2009", (9296, 2078, 3589)),
            ("BioNLP11EPI", "2011, epigenetics", (7586, 2495, 5730)),
            ("BioNLP13GE", "2013, Genia events", (3566, 4132, 4359)),
            ("Ex-PTM", "2011, exhaustive post-translational modifications", (1787, 603, 2308)),
        )
    ),
    _columns(
        "BioNLP11ID",
        {
            "Protein": (3197, 1055, 2299),
            "Organism": (1873, 385, 1213),
            "Chemical": (594, 131, 248),
            "Regulon-operon": (10, 27, 50),
        },
        "infectious diseases, BioNLP shared task 2011",
        "Crichton et al. 2017, A neural network multi-task learning approach to biomedical NER",
        "GENIA Project licence, as BigBIO says",
        "BioNLP11ID",
    ),
    _columns(
        "BioNLP13PC",
        {
            "Gene_or_gene_product": (5468, 1836, 3587),
            "Simple_chemical": (1178, 451, 858),
            "Complex": (729, 244, 529),
            "Cellular_component": (478, 203, 332),
        },
        "pathway curation, BioNLP shared task 2013",
        "Crichton et al. 2017, A neural network multi-task learning approach to biomedical NER",
        "GENIA Project licence, as BigBIO says",
        "BioNLP13PC",
    ),
    Card(
        "BioRED",
        "six types of mentions in PubMed abstracts, and eight types of relations between their concepts",
        task=mentions(*_BIORED_TYPES.values()),
        measure="entity F1",
        splits={
            split: _pubtator(f"{split.title()}.PubTator", changes=(types_called(_BIORED_TYPES),))
            for split in ("train", "dev", "test")
        },
        folders=("BioRED",),
        licence="not stated",
        citation="Luo et al. 2022, BioRED: a rich biomedical relation extraction dataset",
        get="NCBI, ftp.ncbi.nlm.nih.gov/pub/lu/BioRED.",
        expected={
            "train": {"documents": 400, "mentions": 13351, "relations": 4178},
            "dev": {"documents": 100, "mentions": 3533, "relations": 1162},
            "test": {"documents": 100, "mentions": 3535, "relations": 1163},
        },
        notes=("Train and dev share 69 articles with BC5CDR's test and 22 with NLM-Gene's.",),
    ),
    _aioner(
        "NLM-Gene",
        "NLMgene",
        ("Gene", "FamilyName", "DomainMotif", "Cell", "ChromosomeLocation"),
        "genes in PubMed abstracts of many species",
        {"train": {"documents": 450, "mentions": 13796}, "test": {"documents": 100, "mentions": 3053}},
        citation="Islamaj et al. 2021, NLM-Gene, a richly annotated gold standard dataset for gene entities",
        notes=("11 offsets of train do not match the text: 10 mentions are moved, one is dropped.",),
    ),
    _aioner(
        "GNormPlus",
        "GNormPlus",
        ("Gene", "FamilyName", "DomainMotif"),
        "genes, gene families and domains in PubMed abstracts",
        {"train": {"documents": 432, "mentions": 5792}, "test": {"documents": 262, "mentions": 4847}},
        citation="Wei et al. 2015, GNormPlus: an integrative approach for tagging genes, gene families and domains",
        notes=("A few offsets do not match the text: those mentions are moved, three are dropped.",),
    ),
    _aioner(
        "SPECIES-pubtator",
        "SPECIES",
        ("Species",),
        "species in PubMed abstracts, with offsets; another cut of Species-800",
        {"train": {"documents": 639, "mentions": 3053}, "test": {"documents": 160, "mentions": 739}},
        citation="Pafilis et al. 2013, The SPECIES and ORGANISMS resources",
    ),
    _aioner(
        "linnaeus-pubtator",
        "Linnaeus",
        ("Species",),
        "species in full texts of PMC, with offsets",
        {"train": {"documents": 80, "mentions": 2321}, "test": {"documents": 20, "mentions": 576}},
        citation="Gerner et al. 2010, LINNAEUS: a species name identification system",
    ),
    Card(
        "BioRED-NER",
        "BioRED's mentions as AIONER trains on them: train and dev as one",
        task=mentions("Gene", "Disease", "Chemical", "Species", "Variant", "CellLine"),
        measure="entity F1",
        splits={
            split: _pubtator(f"BioRED_{name}.PubTator") for split, name in (("train", "TrainDev"), ("test", "Test"))
        },
        folders=("AIONER-pubtator", "AIONER/data/pubtator"),
        licence="MIT (NLM), as AIONER's repository says",
        citation="Luo et al. 2023, AIONER: all-in-one scheme-based biomedical named entity recognition",
        get=_AIONER,
        expected={"train": {"documents": 500, "mentions": 16884}, "test": {"documents": 100, "mentions": 3535}},
        dev_share=0.1,
    ),
    Card(
        "NLM-Chem",
        "chemicals in full texts of PMC",
        task=mentions("Chemical"),
        measure="entity F1",
        splits={
            "train": _pubtator("NLMchem_Train.PubTator", changes=(only_types(("Chemical",)),)),
            "test": _pubtator("NLMchem_Test.PubTator", changes=(only_types(("Chemical",)),)),
        },
        folders=("AIONER-pubtator", "AIONER/data/pubtator", "NLM-Chem"),
        licence="MIT (NLM), as AIONER's repository says",
        citation="Islamaj et al. 2021, NLM-Chem, a new resource for chemical entity recognition in PubMed full text",
        get=_AIONER,
        expected={"test": {"documents": 3428, "mentions": 11772}},
        notes=(
            "The files repeat an article's id for each of its passages; each is a document, part of the article.",
            "570 mentions of the type OTHER and 69 of NonStandardRef are left out.",
        ),
        dev_share=0.1,
    ),
    Card(
        "DrugProt-test",
        "chemicals and genes in the test abstracts of DrugProt",
        task=mentions("Chemical", "Gene"),
        measure="entity F1",
        splits={"test": _pubtator("DrugProt_Test.PubTator")},
        folders=("AIONER-pubtator", "AIONER/data/pubtator"),
        licence="MIT (NLM), as AIONER's repository says",
        citation="Miranda et al. 2021, Overview of DrugProt BioCreative VII track",
        get=_AIONER,
        expected={"test": {"documents": 750, "mentions": 18339}},
        notes=("For testing alone: AIONER's authors give no training part.",),
    ),
    Card(
        "EBM-NLP",
        "participants, interventions and outcomes in abstracts of clinical trials",
        task=mentions("PAR", "INT", "OUT"),
        measure="token F1, macro-averaged",
        splits={split: (Files((f"{split}.txt",), "conll", {"scheme": "io"}),) for split in ("train", "dev", "test")},
        folders=("EBM-NLP", "ebmnlp", "pico/ebmnlp"),
        licence="not stated",
        citation="Nye et al. 2018, A corpus with multi-level annotations of patients, interventions and outcomes",
        get="github.com/allenai/scibert, folder data/pico/ebmnlp.",
        expected={
            "dev": {"documents": 960, "mentions INT": 6332, "mentions OUT": 6577, "mentions PAR": 3652},
            "test": {"documents": 191, "mentions INT": 1521, "mentions OUT": 1403, "mentions PAR": 621},
        },
        notes=("Tags are I without B: two mentions side by side are one.",),
    ),
    *(
        Card(
            f"PICO-{name}",
            f"participants, interventions, controls and outcomes, sections of {about}",
            task=mentions("P", "I", "C", "O"),
            measure="entity F1",
            splits={
                split: (Files((f"PICO-section-specific-5fold!data/{name}/fold{{fold}}/{split}.txt",), "conll"),)
                for split in ("train", "dev", "test")
            },
            folders=("EBM-NLP", "section_specific_annotation_of_PICO"),
            licence="none found",
            citation="Hu et al. 2023, Towards precise PICO extraction using a section-specific annotation",
            get="github.com/BIDS-Xu-Lab/section_specific_annotation_of_PICO.",
            expected={"test": {"documents": docs}},
            folds=("1", "2", "3", "4", "5"),
        )
        for name, about, docs in (
            ("EBM-NLPmod", "EBM-NLP's abstracts", 250),
            ("AD", "trials on Alzheimer's disease", 75),
            ("COVID-19", "trials on COVID-19", 75),
        )
    ),
)
