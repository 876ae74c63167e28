"""Sets of texts and their classes, of pairs of sentences, and of yes and no."""

from lexome.datasets.catalogue.settings import classes, inference, questions, similarity
from lexome.datasets.dataset import Card, Splits
from lexome.datasets.splits import Files, pubmedqa_parts
from lexome.document import Document
from lexome.tasks.metrics import CLASS_SETS

_HALLMARKS, _TOPICS = CLASS_SETS["hoc"], CLASS_SETS["litcovid"]
_NLI = ("contradiction", "entailment", "neutral")


def _pubmedqa(read: Splits, fold: str | None) -> Splits:
    """The fold's train and dev, and the test that all folds share, by PubMedQA's own draw."""
    docs = {doc.id: doc for doc in read["all"]}
    test, parts = pubmedqa_parts((doc.id, _decision(doc)) for doc in read["all"])
    dev = parts[int(fold or 0)]
    rest = [id for part in parts if part is not dev for id in part]
    return {name: [docs[id] for id in ids] for name, ids in (("train", rest), ("dev", dev), ("test", test))}


def _decision(doc: Document) -> str:
    return doc.questions[0].answers[0].text


CARDS = (
    Card(
        "HoC",
        "hallmarks of cancer in PubMed abstracts, several each",
        task=classes(_HALLMARKS, several=True),
        measure="F1 over abstracts: micro in Bioformer and BLURB, macro in Bio-LM",
        splits={split: (Files((f"{split}.tsv",), "tsv"),) for split in ("train", "dev", "test")},
        folders=("HoC", "hoc"),
        licence="GPL-3.0 (corpus)",
        citation="Baker et al. 2016, Automatic semantic classification of scientific literature",
        get="github.com/sb895/Hallmarks-of-Cancer; this split: github.com/BIDS-Xu-Lab/Biomedical-NLP-Benchmarks.",
        expected={"train": {"documents": 1108}, "dev": {"documents": 157}, "test": {"documents": 315}},
        papers=("lewis2020", "fang2023"),
        notes=("The text is tokenised: spaces stand around punctuation.", "One text of train holds U+0085."),
    ),
    Card(
        "HoC-original",
        "hallmarks of cancer, the corpus with a label for each sentence, without a split",
        task=classes(tuple(name.capitalize() for name in _HALLMARKS), several=True),
        measure="F1",
        splits={"train": (Files(("original-text-labels!text/*.txt", "original-text-labels!labels/*.txt"), "hoc"),)},
        folders=("HoC", "Hallmarks-of-Cancer"),
        licence="GPL-3.0",
        citation="Baker et al. 2016, Automatic semantic classification of scientific literature",
        get="github.com/sb895/Hallmarks-of-Cancer.",
        expected={"train": {"documents": 1852}},
        notes=("Some abstracts have no hallmark; the papers' splits leave them out.",),
    ),
    Card(
        "LitCovid",
        "topics of articles on COVID-19, several each (BioCreative VII track 5)",
        task=classes(_TOPICS, several=True),
        measure="micro F1",
        splits={
            split: (
                Files((f"{split}.tsv",), "tsv"),
                Files((f"BC7-LitCovid-{name}.csv",), "tsv", {"label": "label", "id": "pmid"}),
            )
            for split, name in (("train", "Train"), ("dev", "Dev"), ("test", "Test-GS"))
        },
        folders=("LitCovid", "BC7-LitCovid"),
        licence="not stated",
        citation="Chen et al. 2022, Multi-label classification for biomedical literature: the LitCovid track",
        get="NCBI, ftp.ncbi.nlm.nih.gov/pub/lu/LitCovid/biocreative.",
        expected={
            "train": {"documents": 24960},
            "dev": {"documents": 6239},
            "test": {
                "documents": 2500,
                "labels Treatment": 1035,
                "labels Prevention": 926,
                "labels Diagnosis": 722,
                "labels Mechanism": 567,
                "labels Case Report": 197,
                "labels Transmission": 128,
                "labels Epidemic Forecasting": 41,
            },
        },
        papers=("fang2023",),
    ),
    Card(
        "PubMedQA",
        "questions that the title of an article asks, and what its abstract says: yes, no or maybe",
        task=questions("yesno", says=["yes", "no", "maybe"]),
        measure="accuracy",
        splits={"all": (Files(("ori_pqal.json",), "pubmedqa"),)},
        folders=("PubMedQA", "pubmedqa/data"),
        licence="MIT",
        citation="Jin et al. 2019, PubMedQA: a dataset for biomedical research question answering",
        get="github.com/pubmedqa/pubmedqa, folder data.",
        expected={"all": {"documents": 1000}},
        notes=(
            "The 500 of test and ten folds of the other 500 are drawn as the project's own script does; the test is "
            "the one of its test_ground_truth.json.",
        ),
        folds=tuple(str(number) for number in range(10)),
        refine=_pubmedqa,
    ),
    Card(
        "MedNLI",
        "whether a sentence follows from one of a patient's history",
        task=inference(_NLI),
        measure="accuracy",
        splits={
            split: (Files((f"mli_{split}_v1.jsonl",), "jsonl"), Files((f"{split}.tsv",), "tsv"))
            for split in ("train", "dev", "test")
        },
        folders=("MedNLI", "mednli", "mednli-a-natural-language-inference-dataset-for-the-clinical-domain-1.0.0"),
        licence="PhysioNet Credentialed Health Data License 1.5.0",
        citation="Romanov and Shivade 2018, Lessons from natural language inference in the clinical domain",
        get=(
            "physionet.org/content/mednli: become a credentialed user (CITI training), sign the data use agreement, "
            "download mli_train_v1.jsonl, mli_dev_v1.jsonl and mli_test_v1.jsonl."
        ),
        expected={"train": {"documents": 11232}, "dev": {"documents": 1395}, "test": {"documents": 1422}},
        papers=("lewis2020",),
        licensed=True,
    ),
    Card(
        "BIOSSES",
        "how alike two sentences of biomedical articles are, 0 to 4",
        task=similarity(),
        measure="Pearson's correlation",
        splits={split: (Files((f"{split}.tsv",), "tsv"),) for split in ("train", "dev", "test")},
        folders=("BIOSSES", "biosses"),
        licence="GPL-3.0, as BigBIO says",
        citation="Soğancıoğlu et al. 2017, BIOSSES: a semantic sentence similarity estimation system",
        get="BLUE's bert_data (github.com/ncbi-nlp/BLUE_Benchmark, releases), folder BIOSSES.",
        expected={"train": {"documents": 64}, "dev": {"documents": 16}, "test": {"documents": 20}},
        notes=("100 pairs; the scores are means of five annotators.",),
    ),
)
