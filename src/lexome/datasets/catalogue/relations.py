"""Sets of relations between two entities of a sentence or an abstract."""

from dataclasses import replace
from itertools import combinations_with_replacement

from lexome.datasets.catalogue import ner
from lexome.datasets.catalogue.settings import masked_relations, paired_relations
from lexome.datasets.dataset import Card, Splits
from lexome.datasets.splits import Files
from lexome.datasets.transforms import in_one_part, labels_called, sentences, typed_relations
from lexome.tasks.metrics import CLASS_SETS

_CPR, _DDI = CLASS_SETS["chemprot"], CLASS_SETS["ddi"]
_DRUGS = ("brand", "drug", "drug_n", "group")
_CHEMPROT = "Krallinger et al. 2017, Overview of the BioCreative VI chemical-protein interaction track"
_DDI_CITATION = "Herrero-Zazo et al. 2013, The DDI corpus"
_FOLDS = tuple(str(number) for number in range(1, 11))
_SCIBERT = (
    "ACTIVATOR",
    "AGONIST",
    "AGONIST-ACTIVATOR",
    "AGONIST-INHIBITOR",
    "ANTAGONIST",
    "DOWNREGULATOR",
    "INDIRECT-DOWNREGULATOR",
    "INDIRECT-UPREGULATOR",
    "INHIBITOR",
    "PRODUCT-OF",
    "SUBSTRATE",
    "SUBSTRATE_PRODUCT-OF",
    "UPREGULATOR",
)
_CONCEPTS = {"level": "concept", "scope": "document"}
_MICRO = "F1, micro-averaged over the classes that are relations"


def _ten_folds(name: str, about: str, rows: int, positive: int, licence: str, citation: str, *notes: str) -> Card:
    """A set of sentences with two masked entities and 1 or 0, in BioBERT's ten folds."""
    return Card(
        name,
        about,
        task=masked_relations(("0", "1"), scored=("1",)),
        measure="F1 of the class 1",
        splits={split: (Files((f"folds!{{fold}}/{split}.tsv",), "tsv"),) for split in ("train", "test")},
        folders=(name, f"REdata/{name}", *(("REdata/euadr", "euadr") if name == "EU-ADR" else ())),
        licence=licence,
        citation=citation,
        get="REdata of BioBERT's authors (github.com/dmis-lab/biobert, section Datasets).",
        expected={"test": {"documents": rows, "labels 1": positive, "labels 0": rows - positive}},
        positive=("1",),
        papers=("lee2020", "lewis2020", "fang2023"),
        notes=(
            "The ten folds are files, so all users have the same; none has a dev split.",
            "Bio-LM chooses when to stop on one fold and reports the median of the other nine.",
            *notes,
        ),
        folds=_FOLDS,
    )


def _ddi_sentences(read: Splits, fold: str | None) -> Splits:
    """Train without the sentences that BLUE holds for development; without its file, train as it is."""
    held = {doc.id.rpartition(".")[0] for doc in read.pop("blue_dev", [])}
    if not held or "train" not in read:
        return read
    both = read["train"]
    read["dev"] = [doc for doc in both if doc.id in held]
    read["train"] = [doc for doc in both if doc.id not in held]
    return read


_ABSTRACTS = {card.name: card for card in ner.CARDS}
_BIORED = (
    "Association",
    "Bind",
    "Comparison",
    "Conversion",
    "Cotreatment",
    "Drug_Interaction",
    "Negative_Correlation",
    "Positive_Correlation",
)
_BIORED_PAIRS = (
    ("Gene", "Gene"),
    ("Gene", "Disease"),
    ("Gene", "Chemical"),
    ("Gene", "Variant"),
    ("Disease", "Chemical"),
    ("Disease", "Variant"),
    ("Chemical", "Chemical"),
    ("Chemical", "Variant"),
    ("Variant", "Variant"),
)

CARDS = (
    replace(
        _ABSTRACTS["BC5CDR"],
        name="BC5CDR-CID",
        about="which chemical induces which disease, in an abstract as a whole",
        task=paired_relations(("CID",), none="false", pairs=(("Chemical", "Disease"),), **_CONCEPTS),
        measure="F1 of concept pairs",
        positive=("CID",),
    ),
    replace(
        _ABSTRACTS["BioRED"],
        name="BioRED-RE",
        about="eight relations between genes, diseases, chemicals and variants, in an abstract as a whole",
        task=paired_relations(_BIORED, none="false", pairs=_BIORED_PAIRS, **_CONCEPTS),
        measure="F1 of concept pairs, micro-averaged",
        positive=_BIORED,
    ),
    Card(
        "ChemProt",
        "what a chemical does to a gene, BLUE's sentences with masked entities",
        task=masked_relations((*_CPR, "false"), scored=_CPR),
        measure=_MICRO,
        splits={
            split: (
                Files((f"blue_{split}.tsv",), "tsv"),
                Files((f"{split}.tsv",), "tsv", folders=("ChemProt", "CHEMPROT", "ChemProt-blue")),
            )
            for split in ("train", "dev", "test")
        },
        folders=("ChemProt", "REdata/CHEMPROT", "ChemProt-blue", "ChemProt-pairs"),
        licence="public domain, as BigBIO says",
        citation=_CHEMPROT,
        get="BLUE's bert_data (github.com/ncbi-nlp/BLUE_Benchmark, releases), folder ChemProt.",
        expected={
            "train": {f"labels {name}": count for name, count in zip(_CPR, (768, 2251, 173, 235, 727), strict=True)},
            "dev": {
                "documents": 11820,
                **{f"labels {name}": count for name, count in zip(_CPR, (550, 1094, 116, 199, 457), strict=True)},
            },
            "test": {f"labels {name}": count for name, count in zip(_CPR, (665, 1661, 195, 293, 644), strict=True)},
        },
        positive=_CPR,
        papers=("lee2020", "lewis2020", "fang2023", "shin2020"),
        notes=(
            "All papers score micro over the five CPR classes; Bio-LM's table says macro, its code is micro.",
            "BLUE counts 4,154, 2,416 and 3,458 relations.",
        ),
    ),
    Card(
        "ChemProt-pairs",
        "what a chemical does to a gene, all entities masked, doubles removed",
        task=masked_relations((*_CPR, "false"), scored=_CPR),
        measure=_MICRO,
        splits={
            split: (Files((f"{name}.tsv",), "tsv", changes=(labels_called({"NA": "false"}),)),)
            for split, name in (("train", "training"), ("dev", "development"), ("test", "test"))
        },
        folders=("ChemProt-pairs",),
        licence="none found",
        citation=_CHEMPROT,
        get="github.com/manjrekarom/biomedval, folder chemprot/att-chemprot/data.",
        expected={
            split: {"documents": rows, "labels false": none, "labels CPR:4": inhibitors}
            for split, rows, none, inhibitors in (
                ("train", 15492, 11704, 2041),
                ("dev", 9530, 7341, 989),
                ("test", 13084, 9981, 1510),
            )
        },
        positive=_CPR,
        notes=(
            "Every entity of a sentence is masked as `chemical` or `gene`, so a sentence with several pairs does not "
            "say which is meant: scores stay below those of BLUE's form, and are not comparable.",
            "3,788, 2,189 and 3,103 relations, where BLUE has 4,154, 2,416 and 3,458.",
        ),
    ),
    Card(
        "ChemProt-scibert",
        "the kind of a chemical's action on a gene, relations alone, in SciBERT's form",
        task=masked_relations(_SCIBERT, scored=_SCIBERT),
        measure="micro F1 over 13 classes",
        splits={
            split: (Files((f"{split}.jsonl",), "jsonl"), Files((f"{split}.txt",), "jsonl"))
            for split in ("train", "dev", "test")
        },
        folders=("ChemProt-scibert", "text_classification/chemprot"),
        licence="Apache-2.0 (repository)",
        citation="Beltagy et al. 2019, SciBERT; " + _CHEMPROT,
        get="github.com/allenai/scibert, folder data/text_classification/chemprot.",
        expected={"train": {"documents": 4169}, "dev": {"documents": 2427}, "test": {"documents": 3469}},
        notes=(
            "The gene is marked by << >>, the chemical by [[ ]]. There are no sentences without a relation, so the "
            "numbers are not those of the other papers.",
            "dev and test have 12 of the 13 classes.",
        ),
    ),
    Card(
        "DDI-2013",
        "interactions of drugs, every pair of a sentence, from the corpus's XML",
        task=paired_relations(
            _DDI,
            none="DDI-false",
            pairs=tuple(combinations_with_replacement(_DRUGS, 2)),
            masks=dict.fromkeys(_DRUGS, "@DRUG$"),
        ),
        measure=_MICRO,
        splits={
            "train": (
                Files(
                    ("DDICorpus-2013-xml!Train/*.xml",),
                    "ddi",
                    {"offsets": "repair"},
                    (sentences, in_one_part, typed_relations({"DDI-true": None})),
                ),
            ),
            "blue_dev": (Files(("blue_dev.tsv",), "tsv"),),
            "test": (
                Files(
                    ("DDICorpus-2013-xml!Test for DDI Extraction task/*.xml",),
                    "ddi",
                    {"offsets": "repair"},
                    (sentences, in_one_part),
                ),
            ),
        },
        folders=("DDI-2013", "DDICorpus"),
        licence="CC BY-NC 4.0",
        citation=_DDI_CITATION,
        get="github.com/isegura/DDICorpus; blue_dev.tsv is BLUE's dev.tsv (github.com/ncbi-nlp/BLUE_Benchmark).",
        expected={
            "train": {"relations": 20545},
            "dev": {"documents": 942, "relations": 7246},
            "test": {
                "relations": 5716,
                "relations DDI-effect": 360,
                "relations DDI-mechanism": 302,
                "relations DDI-advise": 221,
                "relations DDI-int": 96,
            },
        },
        positive=_DDI,
        papers=("lewis2020", "fang2023"),
        notes=(
            "A sentence is a document. The corpus has no dev split: dev are the 942 sentences of BLUE's, which its dev "
            "file names; they have 7,246 pairs, BLUE's file 7,244. BLUE's test file has 45 pairs more that are not in "
            "the corpus, none a relation. Without BLUE's file, a tenth of the training documents is drawn.",
            "One pair of train interacts without a type, and is left out. A drug in parts is taken from its first to "
            "its last character, so that the masked sentences are BLUE's.",
        ),
        refine=_ddi_sentences,
        optional=("blue_dev",),
        dev_share=0.1,
    ),
    Card(
        "DDI-2013-blue",
        "interactions of drugs, BLUE's sentences with masked drugs",
        task=masked_relations((*_DDI, "DDI-false"), scored=_DDI),
        measure=_MICRO,
        splits={
            split: (
                Files((f"blue_{split}.tsv",), "tsv"),
                Files((f"{split}.tsv",), "tsv", folders=("DDI-2013-blue", "ddi2013-type")),
            )
            for split in ("train", "dev", "test")
        },
        folders=("DDI-2013-blue", "DDI-2013", "ddi2013-type"),
        licence="CC BY-NC 4.0",
        citation=_DDI_CITATION,
        get="BLUE's bert_data (github.com/ncbi-nlp/BLUE_Benchmark, releases), folder ddi2013-type.",
        expected={
            "dev": {"documents": 7244, "labels DDI-false": 6240},
            "test": {"documents": 5761, "labels DDI-false": 4782},
        },
        positive=_DDI,
        papers=("lewis2020", "fang2023"),
        notes=("BLUE counts 2,937, 1,004 and 979 interactions.",),
    ),
    _ten_folds(
        "GAD",
        "whether a gene and a disease are associated",
        5330,
        2801,
        "CC BY 4.0, as BigBIO says",
        "Bravo et al. 2015, Extraction of relations between genes and diseases",
        "208 of the 5,330 rows are doubles; up to 28 of a fold's test rows are in its train.",
        "Bioformer's table 2 has the sizes of GAD and EU-ADR swapped.",
    ),
    _ten_folds(
        "EU-ADR",
        "whether a gene and a disease are associated",
        355,
        262,
        "not stated",
        "van Mulligen et al. 2012, The EU-ADR corpus",
        "Three of four rows are positive: a model that says yes to all has an F1 of 85.",
    ),
)
