"""The real sets, where they are beside the project: counts as their documentation has them, and the traps in them."""

from functools import cache
from pathlib import Path

import pytest

from lexome import Tally, datasets
from lexome.datasets.audit import find_overlaps
from lexome.formats import read
from lexome.tasks import Relations
from lexome.tasks.qa import base_question_id
from lexome.tasks.relation import mark_pair, relation_key

SMALL = (
    "NCBI-disease",
    "NCBI-disease-pubtator",
    "s800-standoff",
    "BC5CDR",
    "BioRED",
    "NLM-Gene",
    "GNormPlus",
    "NLM-Chem",
    "EBM-NLP",
    "PICO-AD",
    "Ex-PTM",
    "BioNLP13PC",
    "ChemProt",
    "ChemProt-scibert",
    "DDI-2013",
    "DDI-2013-blue",
    "GAD",
    "EU-ADR",
    "HoC",
    "LitCovid",
    "PubMedQA",
    "BioASQ-4b",
    "BioASQ-7b",
    "BioASQ-list",
    "BioASQ-yesno",
    "SQuAD-2.0",
)


@pytest.fixture(scope="module")
def data(real_data: Path) -> Path:
    folder = real_data / "benchmarks"
    if not folder.is_dir():
        pytest.skip("the benchmark sets are not beside the project")
    return folder


@cache
def checked(data: Path, name: str) -> datasets.AuditReport:
    found = datasets.find(name, data=data)
    if not found.files:
        pytest.skip(f"{name} is not among the benchmark sets")
    return found.check()


def overlap(report: datasets.AuditReport, first: str, second: str) -> int:
    return sum(overlap.texts for overlap in report.overlaps if overlap.splits == (first, second))


@pytest.mark.parametrize("name", SMALL)
def test_counts_are_those_of_the_documentation(data: Path, name: str) -> None:
    report = checked(data, name)
    assert report.errors == ()
    assert [warning for warning in report.warnings if "expected" in warning] == []


@pytest.mark.nightly
@pytest.mark.parametrize("name", [name for name in datasets.names() if name not in SMALL])
def test_counts_of_the_larger_sets(data: Path, name: str) -> None:
    report = checked(data, name)
    assert report.errors == ()
    assert [warning for warning in report.warnings if "expected" in warning] == []


def test_the_article_that_ncbi_has_twice_is_taken_once(data: Path) -> None:
    tally = Tally()
    train = datasets.find("NCBI-disease-pubtator", data=data).split("train", tally=tally)
    assert tally.notes["duplicate document skipped"] == 1
    assert len([doc for doc in train if doc.id == "8528200"]) == 1


def test_one_sentence_of_ncbi_s_test_is_in_train(data: Path) -> None:
    assert overlap(checked(data, "NCBI-disease"), "test", "train") == 1


def test_gad_s_folds_overlap_as_documented(data: Path) -> None:
    assert max(overlap.texts for overlap in checked(data, "GAD").overlaps) == 28


def test_pubmedqa_s_test_is_the_project_s(data: Path) -> None:
    truth = {doc.id for doc in read(data / "PubMedQA" / "test_ground_truth.json", "pubmedqa")}
    first, *others = (fold.splits() for fold in datasets.find("PubMedQA", data=data).folds[:3])
    assert {doc.id for doc in first["test"]} == truth
    assert {name: len(docs) for name, docs in first.items()} == {"train": 450, "dev": 50, "test": 500}
    assert all(fold["test"] == first["test"] for fold in others)
    assert not {doc.id for doc in first["dev"]} & {doc.id for doc in others[0]["dev"]}


def test_bioasq_s_test_questions(data: Path) -> None:
    for edition, questions in ((4, 161), (5, 150), (6, 161), (7, 162)):
        docs = datasets.find(f"BioASQ-{edition}b", data=data).split("test")
        asked = [question for doc in docs for question in doc.questions]
        assert len({base_question_id(question.id) for question in asked}) == questions
        assert all(question.answers for question in asked)


@pytest.mark.parametrize("split", ["dev", "test"])
def test_masked_sentences_of_drug_interactions_are_blue_s(data: Path, split: str) -> None:
    found = datasets.find("DDI-2013", data=data)
    task = found.task
    assert isinstance(task, Relations)
    blue = {row.id: row.text.split() for row in read(data / "DDI-2013" / f"blue_{split}.tsv.xz", "tsv")}
    masked = {}
    for doc in found.splits()[split]:
        names = {relation_key(relation): relation.id for relation in doc.relations}
        for pair in task.candidates(doc):
            text = mark_pair(doc, pair, marking=task.marking, masks=task.masks).text
            masked[names[frozenset((pair.first.name, pair.second.name))]] = text.split()
    both = masked.keys() & blue.keys()
    assert len(both) == {"dev": 7244, "test": 5716}[split]
    assert {id: masked[id] for id in both} == {id: blue[id] for id in both}


def test_articles_that_two_sets_share_are_found(data: Path) -> None:
    biored = datasets.find("BioRED", data=data)
    train = [*biored.split("train"), *biored.split("dev")]
    (shared,) = find_overlaps({"train": train, "test": datasets.find("BC5CDR", data=data).split("test")})
    assert shared.ids == 69
