"""Sets of questions on texts."""

from lexome.datasets.bioasq_squad import answered_from_golden
from lexome.datasets.catalogue.settings import questions
from lexome.datasets.dataset import Card
from lexome.datasets.splits import Files
from lexome.datasets.transforms import of_one_question, questions_of

_BIOASQ = (
    "Tsatsaronis et al. 2015, An overview of the BIOASQ large-scale biomedical semantic indexing and QA competition"
)
_SQUAD = "CC BY-SA 4.0"
_REGISTER = "Register at participants-area.bioasq.org; the files may not be passed on."
_BIOBERT = "BioBERT's authors give theirs, train and test, at github.com/dmis-lab/biobert, section Datasets (QA)."


def _factoid(edition: int, test: tuple[int, int], rebuilt: tuple[int, int]) -> Card:
    """BioASQ's factoid questions of one edition; counts are of questions and of pairs of a question and a text."""
    name = f"BioASQ-{edition}b"
    asked, pairs = test
    return Card(
        name,
        f"factoid questions of BioASQ {edition}b: a short answer from the abstracts that experts chose",
        task=questions("factoid"),
        measure="strict accuracy, lenient accuracy and MRR of five answers",
        splits={
            "train": tuple(
                Files((f"BioASQ-train-factoid-{edition}b{form}.json",), "squad", changes=(of_one_question,))
                for form in ("", ".rebuilt")
            ),
            "test": (
                Files((f"BioASQ-test-factoid-{edition}b.json", f"golden/{edition}B_golden.json"), answered_from_golden),
                Files((f"BioASQ-test-factoid-{edition}b.json", f"{edition}B_golden.json"), answered_from_golden),
            ),
        },
        folders=("BioASQ", "QA/BioASQ", f"QA/BioASQ/{edition}B", f"BioASQ-{edition}b"),
        licence="BioASQ's terms; registration needed",
        citation=_BIOASQ,
        get=f"{_REGISTER} {_BIOBERT} The golden files of the edition, joined, are {edition}B_golden.json.",
        expected={"test": {"questions": pairs}},
        papers=(
            *(("lee2020",) if edition <= 6 else ()),
            *(("fang2023", "shin2020") if edition == 7 else ()),
        ),
        notes=(
            f"The test has {asked} questions on {pairs} abstracts, a document each. A question's answers are weighed "
            "over all its abstracts and compared with the golden file's, synonyms included.",
            "BioBERT's training file has whole abstracts. One named .rebuilt is made from snippets instead: "
            f"{rebuilt[0]} questions on {rebuilt[1]} snippets that hold the answer.",
            "About 30% of the questions have no answer that stands in a text; they count as wrong.",
        ),
        licensed=True,
    )


def _golden(type: str, about: str, measure: str) -> Card:
    """Questions of another type, train and test from the golden files of four editions."""
    counts = {"list": (88, 88), "yesno": (133, 140)}
    return Card(
        f"BioASQ-{type}",
        about,
        task=questions(type),
        measure=measure,
        splits={
            split: tuple(
                Files(
                    tuple(f"{folder}{edition}B_golden.json" for edition in editions),
                    "bioasq",
                    {},
                    (questions_of((type,)),),
                )
                for folder in ("golden/", "")
            )
            for split, editions in (("train", (4, 5)), ("dev", (6,)), ("test", (7,)))
        },
        folders=("BioASQ", "QA/BioASQ"),
        licence="BioASQ's terms; registration needed",
        citation=_BIOASQ,
        get=_REGISTER,
        expected={"test": {"questions": counts[type][1]}},
        notes=("Train are the golden files of 4b and 5b, dev of 6b, test of 7b. No paper has this cut.",),
        licensed=True,
    )


CARDS = (
    _factoid(4, (161, 652), (199, 1723)),
    _factoid(5, (150, 495), (310, 2015)),
    _factoid(6, (161, 525), (424, 2339)),
    _factoid(7, (162, 407), (543, 2979)),
    _golden("list", "list questions of BioASQ: all of several short answers", "mean F of the lists"),
    _golden("yesno", "yes or no questions of BioASQ", "accuracy, and F1 of yes and of no"),
    Card(
        "SQuAD-1.1",
        "questions on paragraphs of Wikipedia, for training before BioASQ",
        task=questions("factoid", measure="squad"),
        measure="exact match and F1",
        splits={
            split: tuple(Files((f"{split}-v1.1{form}.json",), "squad") for form in ("", ".rebuilt"))
            for split in ("train", "dev")
        },
        folders=("SQuAD", "squad", "SQuAD-1.1"),
        licence=_SQUAD,
        citation="Rajpurkar et al. 2016, SQuAD: 100,000+ questions for machine comprehension of text",
        get="rajpurkar.github.io/SQuAD-explorer: train-v1.1.json and dev-v1.1.json.",
        expected={
            "train": {"documents": 18896, "questions": 87599},
            "dev": {"documents": 2067, "questions": 10570},
        },
        papers=("lee2020", "fang2023", "shin2020"),
        notes=(
            "The test is not public: numbers are of dev.",
            "A file named .rebuilt was made from the site's pages: where an answer occurs several times in its "
            "paragraph (9,438 in train), its place is a guess.",
        ),
    ),
    Card(
        "SQuAD-2.0",
        "questions on paragraphs of Wikipedia, half of which have no answer there",
        task=questions("factoid", null=True, measure="squad"),
        measure="exact match and F1",
        splits={
            split: tuple(Files((f"{split}-v2.0{form}.json",), "squad") for form in ("", ".rebuilt"))
            for split in ("train", "dev")
        },
        folders=("SQuAD", "squad", "SQuAD-2.0"),
        licence=_SQUAD,
        citation="Rajpurkar et al. 2018, Know what you don't know: unanswerable questions for SQuAD",
        get="rajpurkar.github.io/SQuAD-explorer: train-v2.0.json and dev-v2.0.json.",
        expected={
            "train": {"questions": 130319},
            "dev": {"documents": 1204, "questions": 11873, "answered questions": 5928},
        },
        papers=("shin2020",),
        notes=("The test is not public: numbers are of dev.",),
    ),
)
