"""BioASQ in SQuAD's form: answers in their places, where each context is from, and all that is left out counted."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from errors import raises

from lexome import Document, Tally
from lexome.datasets.bioasq_squad import convert_bioasq, pmid_of, write_squad
from lexome.document import lay_out
from lexome.errors import BadDocument, FormatError, UsageError
from lexome.formats import squad
from lexome.formats.streams import open_stream
from lexome.metadata import Metadata

URL = "http://www.ncbi.nlm.nih.gov/pubmed/90000001"


def snippet(text: str, start: int = 10, document: str = URL) -> dict[str, Any]:
    return {
        "text": text,
        "document": document,
        "beginSection": "abstract",
        "endSection": "abstract",
        "offsetInBeginSection": start,
        "offsetInEndSection": start + len(text),
    }


def question(type: str = "factoid", exact: object = None, *snippets: dict[str, Any], id: str = "q1") -> dict[str, Any]:
    return {
        "id": id,
        "body": "Which gene?",
        "type": type,
        "snippets": list(snippets) or [snippet("The gene BRCA1 is it."), snippet("Another text.", 40)],
        "exact_answer": exact if exact is not None else [["brca1", "breast cancer 1"]],
    }


def written(tmp_path: Path, *questions: object) -> Path:
    path = tmp_path / "golden.json"
    path.write_text(json.dumps({"questions": list(questions)}))
    return path


def test_an_answer_stands_in_its_snippet_and_the_snippet_in_its_article(tmp_path: Path) -> None:
    made = convert_bioasq([written(tmp_path, question())])
    assert made.squad["data"] == [
        {
            "title": "q1",
            "paragraphs": [
                {
                    "context": "The gene BRCA1 is it.",
                    "qas": [
                        {
                            "id": "q1_000",
                            "question": "Which gene?",
                            "type": "factoid",
                            "answers": [{"text": "BRCA1", "answer_start": 9, "exact_answer": 0}],
                        }
                    ],
                    "document": URL,
                    "pmid": "90000001",
                    "snippet": {
                        "beginSection": "abstract",
                        "offsetInBeginSection": 10,
                        "endSection": "abstract",
                        "offsetInEndSection": 31,
                    },
                }
            ],
        }
    ]
    assert made.counts == {
        "factoid question read": 1,
        "context skipped: no answer in it": 1,
        "factoid question written": 1,
    }


def test_a_synonym_is_found_too(tmp_path: Path) -> None:
    made = convert_bioasq([written(tmp_path, question("factoid", None, snippet("Breast cancer 1 it is.")))])
    assert made.squad["data"][0]["paragraphs"][0]["qas"][0]["answers"][0]["text"] == "Breast cancer 1"


def test_contexts_without_an_answer_are_kept_where_asked(tmp_path: Path) -> None:
    made = convert_bioasq([written(tmp_path, question())], unanswerable="keep")
    asked = [paragraph["qas"][0] for paragraph in made.squad["data"][0]["paragraphs"]]
    assert [(qa["id"], qa["is_impossible"]) for qa in asked] == [("q1_000", False), ("q1_001", True)]
    assert made.counts["context kept as unanswerable: no answer in it"] == 1


def test_a_question_without_a_place_for_its_answer_is_counted(tmp_path: Path) -> None:
    made = convert_bioasq([written(tmp_path, question("factoid", [["TP53"]]))])
    assert made.squad["data"] == []
    assert made.counts["factoid question without an answer in any context"] == 1


def test_a_list_has_all_its_answers_that_stand_in_the_text(tmp_path: Path) -> None:
    asked = question("list", [["alpha"], ["beta", "b"], ["gamma"]], snippet("Beta and alpha."))
    answers = convert_bioasq([written(tmp_path, asked)]).squad["data"][0]["paragraphs"][0]["qas"][0]["answers"]
    assert [(answer["text"], answer["answer_start"], answer["exact_answer"]) for answer in answers] == [
        ("alpha", 9, 0),
        ("Beta", 0, 1),
    ]


def test_yes_or_no_goes_apart_and_summaries_are_left_out(tmp_path: Path) -> None:
    path = written(
        tmp_path, question("yesno", "Yes", id="y"), question("summary", id="s"), question("yesno", "often", id="o")
    )
    made = convert_bioasq([path])
    assert made.squad["data"] == []
    assert [article["title"] for article in made.yesno["data"]] == ["y"]
    assert [paragraph["qas"][0]["answers"] for paragraph in made.yesno["data"][0]["paragraphs"]] == ["yes", "yes"]
    assert made.counts["summary question skipped"] == 1
    assert made.counts["yesno question skipped: its answer is neither"] == 1


def test_test_questions_keep_all_contexts(tmp_path: Path) -> None:
    asked = {**question(), "exact_answer": []}
    made = convert_bioasq([written(tmp_path, asked)])
    assert [paragraph["qas"][0]["answers"] for paragraph in made.squad["data"][0]["paragraphs"]] == [[], []]


def test_whole_abstracts_as_contexts_with_the_answer_of_the_snippet(tmp_path: Path) -> None:
    title, abstract = "BRCA1 in mice.", "It was known. The gene BRCA1 is it."
    article = Document("90000001", lay_out([("title", title), ("abstract", abstract)]), meta=Metadata(pmid="90000001"))
    asked = question("factoid", None, snippet("The gene BRCA1 is it."), snippet("Not here.", document="pubmed/1"))
    made = convert_bioasq([written(tmp_path, asked)], abstracts=[article])
    (paragraph,) = made.squad["data"][0]["paragraphs"]
    assert paragraph["context"] == f"{title} {abstract}"
    # BRCA1 is in the title as well, but the experts pointed at the snippet.
    assert paragraph["qas"][0]["answers"][0]["answer_start"] == paragraph["context"].rindex("BRCA1")
    assert made.counts["snippet skipped: its abstract is missing"] == 1


def test_the_file_is_squad_s(tmp_path: Path) -> None:
    made = convert_bioasq([written(tmp_path, question())], unanswerable="keep")
    write_squad(tmp_path / "out.json", made.squad)
    source = open_stream(io.BytesIO((tmp_path / "out.json").read_bytes()), "out.json", Tally())
    docs = list(squad.read(source, tally=Tally()))
    assert [doc.questions[0].impossible for doc in docs] == [False, True]


def test_a_snippet_given_twice_is_taken_once(tmp_path: Path) -> None:
    twice = question("factoid", None, snippet("BRCA1."), snippet("BRCA1.", 99))
    made = convert_bioasq([written(tmp_path, twice)])
    assert len(made.squad["data"][0]["paragraphs"]) == 1
    assert made.counts["duplicate snippet skipped"] == 1


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    with raises(FormatError, code="missing-key", value="questions"):
        convert_bioasq([tmp_path / "x.json"])


def test_a_bad_question_is_named_or_set_aside(tmp_path: Path) -> None:
    path = written(tmp_path, {"body": "no id", "type": "factoid", "snippets": [snippet("a")]}, question())
    with raises(BadDocument, code="bad_field", mentions="question 1"):
        convert_bioasq([path])
    with Tally(tmp_path / "rejects.jsonl") as tally:
        assert len(convert_bioasq([path], tally=tally).squad["data"]) == 1
    assert tally.rejected == {"bad_field": 1}


def test_forms_that_have_no_answer_in_the_text(tmp_path: Path) -> None:
    with raises(UsageError, code="invalid-choice", value="summary"):
        convert_bioasq([], forms=["summary"])


@pytest.mark.parametrize(
    ("url", "pmid"),
    [
        (URL, "90000001"),
        ("https://pubmed.ncbi.nlm.nih.gov/123/", "123"),
        ("http://www.ncbi.nlm.nih.gov/pmc/articles/PMC12", None),
        ("", None),
    ],
)
def test_the_pmid_of_an_address(url: str, pmid: str | None) -> None:
    assert pmid_of(url) == pmid
