"""Questions to documents: answers stand where they are said to stand, and without a reader there are none."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from errors import raises
from services import table_model
from typer.testing import CliRunner

from lexome.cli import app
from lexome.corpus.languages import other_language
from lexome.document import Document, Passage, Question, lay_out
from lexome.errors import FormatError, UsageError
from lexome.formats import write
from lexome.infer.annotator import Annotator, Model
from lexome.infer.predictor import read_settings, write_settings
from lexome.search.ask import ask, coverage, form_of, min_coverage, open_readers, open_source
from lexome.tasks import Classes, Questions

ABSTRACT = "BRCA1 is good. Which cancer? Olaparib cancer. Melanoma is bad."
DOCS = (
    Document("a", lay_out([("title", "Good news"), ("abstract", ABSTRACT)])),
    Document("b", lay_out([("title", "Other"), ("abstract", "Nothing here about melanoma.")])),
)


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    write(tmp_path / "docs.jsonl", DOCS)
    return tmp_path / "docs.jsonl"


@pytest.fixture
def reader(tmp_path: Path) -> Model:
    """It answers from "olaparib" to "cancer"."""
    folder = table_model(tmp_path / "reader", Questions("factoid"), {"olaparib": 0, "cancer": 1})
    return open_readers([folder])[0]


@pytest.mark.parametrize(
    ("question", "form"),
    [
        ("Is RB1 lost?", "yesno"),
        ("Does aspirin help", "yesno"),
        ("List signs of measles.", "list"),
        ("Which genes are mutated in cancer?", "list"),
        ("What are the symptoms of measles?", "list"),
        ("Can you list the genes of cancer?", "list"),
        ("Can aspirin help?", "yesno"),
        ("Doesn't aspirin help?", "yesno"),
        ("Which virus causes measles?", "factoid"),
        ("Which has more effect?", "factoid"),
        ("Which was found first?", "factoid"),
        ("Which analysis shows it?", "factoid"),
        ("Which gene is mutated?", "factoid"),
        ("Where is BRCA1?", "factoid"),
        ("What genes cause it?", "list"),
        ("Which human tumor suppressor genes are lost?", "list"),
        ("Which mouse strains are used?", "list"),
        ("Which gas is it?", "factoid"),
        ("Which gene causes measles?", "factoid"),
        ("What type of cells is it?", "factoid"),
    ],
)
def test_forms_are_told_by_the_first_words(question: str, form: str) -> None:
    assert form_of(question) == form


@pytest.mark.parametrize(
    ("question", "language"),
    [
        ("Which drugs cause de novo resistance?", None),
        ("BRCA1 TP53", None),
        ("Is α-synuclein a marker?", None),
        ("E. coli in vitro", None),
        ("Die rates of the disease", None),
        ("Welche Mutationen gibt es bei der Resistenz?", "German"),
        ("Quels sont les effets de la metformine ?", "French"),
        ("¿Cuál es la causa del cáncer?", "Spanish"),
        ("Quali sono le cause del diabete?", "Italian"),
        ("Welche Gene verursachen Krebs?", "German"),
        ("¿Qué genes causan cáncer?", "Spanish"),
        ("Wat is de oorzaak van kanker?", "Dutch"),
        ("Hva forårsaker kreft?", "Norwegian or Danish"),
        ("Jakie są przyczyny raka piersi?", "Polish"),
        ("HuR targets", None),
        ("palbociclibに対する耐性の原因は?", "a language with another script"),
        ("WAT browning", None),
        ("Was BRCA1 lost?", None),
        ("乳癌の原因は何ですか", "a language with another script"),
        ("Что вызывает рак?", "a language with another script"),
    ],
)
def test_questions_in_other_languages_are_recognized(question: str, language: str | None) -> None:
    assert other_language(question) == language


def test_an_answer_has_its_document_sentence_and_offsets(docs: Path, reader: Model) -> None:
    with open_source(docs) as index:
        result = ask(index, "Where is BRCA1 in melanoma?", readers=[reader])
    best = result.answers[0]
    assert (best.text, best.document, result.reader) == ("Olaparib cancer", "a", "reader")
    assert best.start is not None
    assert best.end is not None
    assert DOCS[0].slice(best.start, best.end) == "Olaparib cancer"
    assert best.sentence is not None
    assert best.sentence.text == "Olaparib cancer."
    assert DOCS[0].slice(best.sentence.start, best.sentence.end) == best.sentence.text
    assert best.sentence.highlights == ((best.start, best.end),)
    assert 0.5 < best.probability <= 1
    assert sum(answer.probability for answer in result.answers) <= 1 + 1e-6


def test_of_answers_that_overlap_the_most_probable_is_shown(docs: Path, reader: Model) -> None:
    with open_source(docs) as index:
        answers = ask(index, "Where is BRCA1 in melanoma?", readers=[reader], limit=20).answers
    assert len(answers) > 1
    places = sorted((answer.document, answer.start, (answer.start or 0) + len(answer.text)) for answer in answers)
    for (document, _, end), (next_document, start, _) in pairwise(places):
        assert document != next_document or (start or 0) >= end
    assert [answer.probability for answer in answers] == sorted((one.probability for one in answers), reverse=True)


def test_a_best_answer_below_the_threshold_is_not_known(docs: Path, reader: Model) -> None:
    with open_source(docs) as index:
        result = ask(index, "Where is BRCA1?", readers=[reader], min_probability=0.9999)
        assert (result.answers, result.reader, result.min_probability) == ((), "reader", 0.9999)
        assert result.best is not None
        assert result.best < 0.9999
        assert result.evidence
        assert ask(index, "Where is BRCA1?", readers=[reader], min_probability=0).answers


def test_passages_with_little_of_the_question_are_not_read(docs: Path, reader: Model) -> None:
    question = "Where is the mutation of CFTR in cystic fibrosis good?"
    with open_source(docs) as index:
        result = ask(index, question, readers=[reader])
        assert (result.answers, result.best, result.reader) == ((), None, "reader")
        assert result.coverage is not None
        assert result.min_coverage is not None
        assert 0 < result.coverage < result.min_coverage == 0.2
        assert result.is_uncovered
        assert result.evidence
        # A stated minimum of the probability replaces what is required by default.
        read = ask(index, question, readers=[reader], min_probability=0)
        assert read.answers
        assert (read.coverage, read.min_coverage) == (result.coverage, None)


def test_coverage_weighs_terms_by_how_rare_they_are(docs: Path) -> None:
    with open_source(docs) as index:
        assert coverage(index, "BRCA1 melanoma", ["BRCA1 in melanoma"]) == 1.0
        # Both documents mention melanoma.
        common, rare = (coverage(index, "BRCA1 melanoma", [text]) for text in ("melanoma", "BRCA1"))
        assert 0 < common < 0.5 < rare < 1
        assert common + rare == pytest.approx(1.0)
        # A word that no passage has weighs no more than one that a single one has.
        assert coverage(index, "BRCA1 volcano", ["BRCA1"]) == pytest.approx(0.5)
        assert coverage(index, "BRCA1", []) == 0.0


def test_the_least_coverage_grows_with_the_index_between_its_bounds() -> None:
    assert [round(min_coverage(passages), 2) for passages in (1, 30, 300, 10**4, 10**7)] == [0.2, 0.2, 0.3, 0.4, 0.4]


def test_limits_and_probabilities_are_checked(docs: Path, reader: Model) -> None:
    with open_source(docs) as index:
        for options in ({"limit": 0}, {"limit": -1}, {"min_probability": 1.5}, {"min_probability": float("nan")}):
            with raises(UsageError, code="out-of-range"):
                ask(index, "Where is BRCA1?", readers=[reader], **options)  # type: ignore[arg-type]


def test_annotation_abstains_below_the_threshold_of_the_reader(reader: Model) -> None:
    folder = reader.predictor.folder
    write_settings(folder, replace(read_settings(folder), min_scores={"factoid": 0.9999, "list": 0.0}))
    annotator = Annotator([Model.open(folder)])
    asked = (Question("1", "where?", "factoid"), Question("2", "which?", "list"), Question("3", "is it?", "yesno"))
    doc = Document("d", (Passage(0, "Olaparib cancer"),), questions=asked)
    factoid, listed, yesno = annotator(doc).questions
    assert (factoid.answers, factoid.impossible) == ((), True)
    assert [answer.text for answer in listed.answers] == ["Olaparib cancer"]
    assert yesno == asked[2]
    [lenient] = annotator.annotate([doc], min_score=0)
    assert lenient.questions[0].answers[0].text == "Olaparib cancer"
    [named] = annotator.annotate([doc], min_score={"factoid": 0.1})
    assert named.questions == lenient.questions


def test_of_two_readers_each_answers_its_own_form(reader: Model, tmp_path: Path) -> None:
    lists = table_model(tmp_path / "lists", Questions("list"), {"melanoma": 0, "good": 1})
    annotator = Annotator([reader, Model.open(lists)])
    doc = Document("d", (Passage(0, "Olaparib cancer"),), questions=(Question("1", "which?", "list"),))
    [question] = annotator(doc).questions
    assert "Olaparib cancer" not in [answer.text for answer in question.answers]


def test_a_list_question_is_read_by_a_reader_of_factoids_and_yes_or_no_is_not(docs: Path, reader: Model) -> None:
    with open_source(docs) as index:
        listed = ask(index, "Which genes are in melanoma?", readers=[reader])
        assert (listed.form, listed.answers[0].text) == ("list", "Olaparib cancer")
        unread = ask(index, "Is BRCA1 in melanoma?", readers=[reader])
    assert (unread.form, unread.reader, unread.answers) == ("yesno", None, ())
    assert unread.evidence


def test_yes_or_no_has_a_probability_and_no_place(docs: Path, tmp_path: Path) -> None:
    folder = table_model(tmp_path / "yesno", Questions("yesno"), {"good": 0, "bad": 1, "melanoma": 0})
    with open_source(docs) as index:
        result = ask(index, "Is melanoma bad?", readers=open_readers([folder]), min_probability=0.5)
        assert (result.answers[0].text, result.answers[0].start) == ("yes", None)
        assert 0.5 < result.answers[0].probability < 1
        unknown = ask(index, "Is melanoma bad?", readers=open_readers([folder]), min_probability=0.99)
    assert unknown.answers == ()


def test_without_a_reader_there_is_evidence_and_no_answer(docs: Path) -> None:
    with open_source(docs) as index:
        result = ask(index, "Is olaparib good in melanoma?")
    assert (result.reader, result.answers, result.best) == (None, (), None)
    for sentence in result.evidence:
        doc = next(doc for doc in DOCS if doc.id == sentence.document)
        assert doc.slice(sentence.start, sentence.end) == sentence.text
        assert sentence.highlights


def test_a_question_about_something_else_finds_nothing(docs: Path, reader: Model) -> None:
    with open_source(docs) as index:
        result = ask(index, "Where are volcanoes?", readers=[reader])
    assert (result.passages, result.answers, result.evidence) == (0, (), ())


def test_questions_that_cannot_be_asked_are_refused(docs: Path, tmp_path: Path) -> None:
    with open_source(docs) as index:
        with raises(UsageError, code="other-language", value="German"):
            ask(index, "Was ist die Ursache von Krebs und wie wird er geheilt?")
        with raises(UsageError, code="empty-query"):
            ask(index, " ")
        with raises(UsageError, code="too-long", value=100_000):
            ask(index, "x" * 100_000)
        with raises(UsageError, code="out-of-range", value=0):
            ask(index, "x", passages=0)
        with raises(UsageError, code="invalid-choice", value="essay"):
            ask(index, "x", form="essay")  # type: ignore[arg-type]
    with raises(FormatError, code="missing-file"), open_source(tmp_path / "nowhere"):
        pass
    folder = table_model(tmp_path / "classes", Classes(["good", "bad"]), {"good": 0})
    with raises(UsageError, code="not-a-reader", value="classes"):
        open_readers([folder])


def test_documents_that_are_all_rejected_are_named_by_their_path(tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('{"no": "text"}\n')
    with raises(FormatError, code="no-documents", value=tmp_path / "bad.jsonl", mentions=str(tmp_path / "bad.jsonl")):
        open_source(tmp_path / "bad.jsonl").__enter__()


def test_the_command_says_which_documents_it_could_not_read(docs: Path) -> None:
    with docs.open("a") as stream:
        stream.write('{"id": 5, "passages": [\n')
    result = CliRunner().invoke(app, ["ask", "Where is BRCA1?", str(docs), "--evidence-only"], catch_exceptions=False)
    assert result.exit_code == 0
    assert "malformed_json" in result.stderr
    assert "malformed_json" not in result.stdout


def test_the_command_says_that_a_reader_is_not_sure(docs: Path, tmp_path: Path) -> None:
    words = {"olaparib": 0, "brca1": 0, "melanoma": 0, "cancer": 1, "good": 1, "bad": 1}
    unsure = table_model(tmp_path / "unsure", Questions("factoid"), words)
    command = ["ask", "Where is BRCA1?", str(docs), "--no-color", "--model", str(unsure), "--min-score", "0"]
    shown = CliRunner().invoke(app, [*command, "--limit", "20"], catch_exceptions=False).stdout.splitlines()
    scores = [float(line.partition("probability ")[2].split(",")[0]) for line in shown if "probability 0." in line]
    assert "not sure" in shown[0]
    assert 0.05 <= min(scores) <= max(scores) < 0.5


def test_the_command_prints_answers_evidence_and_json(docs: Path, reader: Model) -> None:
    def run(*arguments: str) -> str:
        result = CliRunner().invoke(app, ["ask", *arguments, str(docs), "--no-color"], catch_exceptions=False)
        assert result.exit_code == 0
        return result.stdout

    folder = str(reader.predictor.folder)
    lines = run("Where is BRCA1?", "--model", folder).splitlines()
    start = DOCS[0].text.index("Olaparib")
    assert lines[0].startswith("1. Olaparib cancer  probability 0.")
    assert lines[0].endswith(f"a {start}-{start + 15}")
    assert lines[1].strip() == "*Olaparib cancer*."
    assert "evidence, not an answer" in run("Where is BRCA1?", "--evidence-only")
    assert "does not know" in run("Where is BRCA1?", "--model", folder, "--min-score", "0.9999")
    question = "Where is BRCA1 in melanoma?"
    answers = json.loads(run(question, "--model", folder, "--json"))["answers"]
    assert answers[0]["document"] == "a"
    # Answers that are next to impossible are in JSON only.
    assert len(answers) > 1
    assert run(question, "--model", folder).count("probability 0.") == 1


def test_a_model_of_another_form_and_swapped_arguments_are_named(docs: Path, reader: Model) -> None:
    model = ["--model", str(reader.predictor.folder)]
    unread = CliRunner().invoke(app, ["ask", "Is BRCA1 good?", str(docs), *model], catch_exceptions=False)
    assert unread.stdout.startswith("no reader for yes/no questions: these sentences are evidence, not an answer.")
    swapped = CliRunner().invoke(app, ["ask", str(docs), "Where is BRCA1?"]).exception
    assert isinstance(swapped, UsageError)
    assert (swapped.code, swapped.value) == ("swapped-arguments", str(docs))
