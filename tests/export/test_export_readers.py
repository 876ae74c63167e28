"""Readers from fine-tuning to `lexome ask`: int8, calibrated on held-out questions, with thresholds for not knowing."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from finetuning import done, question_documents, recipe_of, tiny_model, write_splits
from typer.testing import CliRunner

from lexome.cli import app
from lexome.datasets import find
from lexome.document import Answer, Document, Question, lay_out
from lexome.export.export import export
from lexome.export.int8 import HeldOutEvaluation
from lexome.formats import write
from lexome.infer.annotator import Model
from lexome.search.ask import ask, open_readers, open_source
from lexome.tasks import Questions

HELD_OUT = 30


def yes_or_no_documents(count: int = 10) -> list[Document]:
    docs = []
    for number in range(count):
        says = "yes" if number % 2 else "no"
        text = "the gene is seen in tumour ." if number % 2 else "the gene is not seen in tumour ."
        question = Question(f"y{number}", "is the gene seen in tumour ?", "yesno", (Answer(says),))
        docs.append(Document(f"y{number}", lay_out([("snippet", text)]), questions=(question,)))
    return docs


def repeated(docs: Sequence[Document]) -> list[Document]:
    """As many as a calibration needs, each with a question of its own."""
    chosen = [(number, docs[number % len(docs)]) for number in range(HELD_OUT)]
    return [
        replace(doc, id=f"h{number}", questions=(replace(doc.questions[0], id=f"h{number}"),)) for number, doc in chosen
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("readers")


@pytest.fixture(scope="module")
def spans(folder: Path) -> Path:
    """A reader of factoid questions, held out on these and on list questions."""
    docs = question_documents()
    lists = [replace(doc, questions=(replace(doc.questions[0], type="list"),)) for doc in repeated(docs)]
    for name in ("factoids", "lists"):
        (folder / name).mkdir()
    data = write_splits(folder / "factoids", train=docs, dev=repeated(docs))
    write_splits(folder / "lists", train=lists, dev=lists)
    task = {"kind": "questions", "null": True, "absent": "null"}
    run = done(recipe_of(tiny_model(folder / "tiny"), data, folder / "run", task))
    assert run.model is not None
    held_out = HeldOutEvaluation((str(data), str(folder / "lists")))
    export(run.model, folder / "reader", precision="int8", evaluation=held_out)
    return folder / "reader"


@pytest.fixture(scope="module")
def yesno(folder: Path) -> Path:
    docs = yes_or_no_documents()
    (folder / "yesno").mkdir()
    data = write_splits(folder / "yesno", train=docs, dev=repeated(docs))
    task = {"kind": "questions", "form": "yesno"}
    run = done(recipe_of(tiny_model(folder / "tiny-yesno"), data, folder / "run-yesno", task))
    assert run.model is not None
    export(run.model, folder / "reader-yesno", precision="int8", evaluation=HeldOutEvaluation((str(data),)))
    return folder / "reader-yesno"


@pytest.fixture(scope="module")
def docs(folder: Path) -> Path:
    write(folder / "docs.jsonl", [*question_documents(2), yes_or_no_documents(1)[0]])
    return folder / "docs.jsonl"


def test_a_reader_of_spans_is_calibrated_for_factoid_and_list_questions(spans: Path) -> None:
    model = Model.open(spans)
    assert model.settings.precision == "int8"
    assert model.settings.calibration is not None
    assert model.settings.min_scores is not None
    assert model.settings.min_scores.keys() == {"factoid", "list"}
    assert model.settings.calibration.keys() == {"factoid", "factoid answerable", "list", "list answerable"}
    certificate = json.loads((spans / "certificate.json").read_bytes())
    assert [source["documents"] for source in certificate["held_out"]] == [HELD_OUT, HELD_OUT]
    # The list questions neither accept nor reject int8.
    assert list(certificate["score"]["sources"]) == ["factoids"]
    factoid, listed = (certificate["calibration"][form] for form in ("factoid", "list"))
    assert factoid["questions"] == listed["questions"] == HELD_OUT
    assert factoid["unknown"].keys() == {"unanswerable", "answerable"}
    assert factoid["list_threshold"] is None
    assert isinstance(model.task, Questions)
    assert model.task.list_threshold == listed["list_threshold"]


def test_all_forms_are_answered_by_the_reader_of_the_form(spans: Path, yesno: Path, docs: Path) -> None:
    readers = open_readers([spans, yesno])
    with open_source(docs) as index:
        factoid = ask(index, "What drug is seen with BRCA1?", readers=readers, min_probability=0)
        listed = ask(index, "What drug is seen with BRCA1?", form="list", readers=readers, min_probability=0)
        asked = ask(index, "Is the gene seen in tumour?", readers=readers, min_probability=0, passages=1)
    assert (factoid.form, factoid.reader) == ("factoid", "reader")
    assert (listed.form, listed.reader) == ("list", "reader")
    assert (asked.form, asked.reader, asked.answers[0].text) == ("yesno", "reader-yesno", "no")
    for result in (factoid, listed):
        best = result.answers[0]
        assert best.sentence is not None
        assert best.text in best.sentence.text
        assert 0 < best.probability < 1
        assert result.best == best.probability


def test_thresholds_come_from_the_model(spans: Path, docs: Path) -> None:
    (reader,) = open_readers([spans])
    assert reader.settings.min_scores is not None
    asked = "What drug is seen with BRCA1?"
    with open_source(docs) as index:
        result = ask(index, asked, readers=[reader])
        reader.settings = replace(reader.settings, min_scores={"factoid": 1.0})
        unknown = ask(index, asked, readers=[reader])
        by_best = ask(index, asked, readers=[reader], min_probability=0)
    assert result.min_probability == Model.open(spans).settings.min_scores["factoid"]  # type: ignore[index]
    assert (unknown.min_probability, unknown.answers) == (1.0, ())
    # Of any answer, which is likelier than the best one; a threshold that is given is of the best one.
    assert unknown.best is not None
    assert unknown.answerable is not None
    assert 0 < unknown.best < unknown.answerable < 1
    assert (by_best.answerable, by_best.best) == (None, unknown.best)
    assert by_best.answers


def test_readers_are_found_by_their_names(spans: Path, yesno: Path, docs: Path, tmp_path: Path) -> None:
    assert spans.parent == yesno.parent

    def run(question: str, *arguments: str) -> dict[str, object]:
        command = ["ask", question, str(docs), "--json", *arguments]
        result = CliRunner().invoke(app, command, catch_exceptions=False)
        assert result.exit_code == 0
        return json.loads(result.stdout)  # type: ignore[no-any-return]

    by_name = ("--models-path", str(spans.parent))
    assert run("What drug is seen with BRCA1?", *by_name)["reader"] == "reader"
    assert run("Is the gene seen in tumour?", *by_name)["reader"] == "reader-yesno"
    assert run("Is the gene seen in tumour?", *by_name, "--model", "reader")["reader"] is None
    assert run("Is the gene seen in tumour?", *by_name, "--evidence-only")["reader"] is None
    assert run("Is the gene seen in tumour?", "--models-path", str(tmp_path))["reader"] is None


def test_the_dev_part_that_training_has_split_off_is_held_out(tmp_path: Path) -> None:
    """As the model's record says, or, for older models, that of their run."""
    paragraphs = [
        {
            "context": f"Gene {number} is MYC.",
            "qas": [{"id": f"q{number}_000", "question": "Which?", "answers": [{"text": "MYC", "answer_start": 10}]}],
        }
        for number in range(10)
    ]
    (tmp_path / "BioASQ").mkdir()
    content = {"version": "7b", "data": [{"title": "", "paragraphs": paragraphs}]}
    (tmp_path / "BioASQ" / "BioASQ-train-factoid-7b.json").write_text(json.dumps(content))
    dev = find("BioASQ-7b", data=tmp_path).splits(partial=True, dev_fraction=0.3)["dev"]
    assert len(dev) == 3
    evaluation = HeldOutEvaluation(("BioASQ-7b",), data=tmp_path)
    for number, folder in enumerate((tmp_path / "run" / "model", tmp_path / "run")):
        folder.mkdir(parents=True, exist_ok=True)
        for path in (tmp_path / "run").rglob("run.json"):
            path.unlink()
        (folder / "run.json").write_text(json.dumps({"recipe": {"data": {"rename": {}, "dev_fraction": 0.3}}}))
        (source,) = evaluation.load(Questions(), tmp_path / "run" / "model")
        assert (number, source.docs) == (number, dev)
