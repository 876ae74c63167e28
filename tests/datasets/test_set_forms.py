"""Sets that users fetch themselves, in the forms their owners give them out, from made files."""

import json
from pathlib import Path

from errors import raises
from made_sets import GENES, write

from lexome import datasets
from lexome.errors import DataSetError


def test_bc4chemd_in_columns(tmp_path: Path) -> None:
    root = write(tmp_path, {f"BC4CHEMD/{name}.tsv": GENES for name in ("train", "devel", "test")})
    assert {span.type for span in datasets.find("BC4CHEMD", data=root).split("test")[0].spans} == {"Chemical"}


def test_litcovid_as_biocreative_gives_it(tmp_path: Path) -> None:
    text = (
        "pmid,journal,title,abstract,keywords,pub_type,authors,doi,label\n"
        '32519164,J Thromb,"Antiviral, tested",It helps.,covid;drug,Article,"Zorb, A",10.1/x,Treatment;Mechanism\n'
    )
    root = write(tmp_path, {f"LitCovid/BC7-LitCovid-{name}.csv": text for name in ("Train", "Dev", "Test-GS")})
    (doc,) = datasets.find("LitCovid", data=root).splits()["dev"]
    assert (doc.id, doc.labels) == ("32519164", ("Treatment", "Mechanism"))
    assert [passage.text for passage in doc.passages] == ["Antiviral, tested", "It helps."]


def test_mednli_as_physionet_gives_it(tmp_path: Path) -> None:
    pair = {
        "pairID": "23eb94b8-66c7-11e7-a8dc-f45c89b91419",
        "gold_label": "entailment",
        "sentence1": "Labs were notable for Cr 1.7 .",
        "sentence2": "Patient has elevated Cr",
        "sentence1_parse": "(ROOT)",
        "sentence2_parse": "(ROOT)",
    }
    root = write(tmp_path, {f"MedNLI/mli_{name}_v1.jsonl": json.dumps(pair) for name in ("train", "dev", "test")})
    (doc,) = datasets.find("MedNLI", data=root).splits()["test"]
    assert (len(doc.passages), doc.labels) == (2, ("entailment",))


def test_biosses_as_blue_gives_it(tmp_path: Path) -> None:
    text = (
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n"
        "0\tTrainSet\tna\tna\t1\tna\tna\tIt has recently been shown.\tIt was shown.\t3.4\n"
    )
    root = write(tmp_path, {f"BIOSSES/{name}.tsv": text for name in ("train", "dev", "test")})
    (doc,) = datasets.find("BIOSSES", data=root).splits()["train"]
    assert ([passage.text for passage in doc.passages], doc.labels) == (
        ["It has recently been shown.", "It was shown."],
        ("3.4",),
    )


def squad(*asked: dict[str, object]) -> str:
    paragraphs = [{"context": "Zorblin was found in 1987.", "qas": [qa]} for qa in asked]
    return json.dumps({"version": "x", "data": [{"title": "BioASQ", "paragraphs": paragraphs}]})


def golden(*ids: str) -> str:
    question = {"body": "When?", "type": "factoid", "exact_answer": [["1987", "'87"]], "snippets": []}
    return json.dumps({"questions": [{**question, "id": id} for id in ids]})


def bioasq(root: Path, golden_file: str) -> Path:
    test = squad({"id": "a1_000", "question": "When?"}, {"id": "a1_001", "question": "When?"})
    train = squad({"id": "b2_000", "question": "Which year?", "answers": [{"text": "1987", "answer_start": 21}]})
    return write(
        root,
        {
            "BioASQ/BioASQ-train-factoid-7b.json": train,
            "BioASQ/BioASQ-train-factoid-7b.rebuilt.json": squad(),
            "BioASQ/BioASQ-test-factoid-7b.json": test,
            "BioASQ/golden/7B_golden.json": golden_file,
        },
    )


def test_bioasq_s_test_has_the_golden_answers(tmp_path: Path) -> None:
    splits = datasets.find("BioASQ-7b", data=bioasq(tmp_path, golden("a1"))).splits()
    asked = [doc.questions[0] for doc in splits["test"]]
    assert [(question.id, question.type) for question in asked] == [("a1_000", "factoid"), ("a1_001", "factoid")]
    assert {(answer.text, answer.synonyms) for question in asked for answer in question.answers} == {("1987", ("'87",))}
    assert {doc.meta.part_of for doc in splits["test"]} == {"a1"}
    assert splits["train"][0].questions[0].answers[0].start == 21


def test_a_test_question_without_a_golden_answer_is_refused(tmp_path: Path) -> None:
    found = datasets.find("BioASQ-7b", data=bioasq(tmp_path, golden("c3")))
    with raises(DataSetError, code="missing-answer", value="a1_000"):
        found.splits()


def test_squad_2_has_questions_without_answers(tmp_path: Path) -> None:
    text = squad({"id": "q1", "question": "Who?", "answers": [], "is_impossible": True})
    found = datasets.find(
        "SQuAD-2.0", data=write(tmp_path, {f"SQuAD/{name}-v2.0.json": text for name in ("train", "dev")})
    )
    assert found.splits()["dev"][0].questions[0].impossible
    assert found.settings["null"]
