"""BioASQ: questions with snippets, and answers in every shape its editions give them."""

import io
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from errors import raises
from hypothesis import given
from hypothesis import strategies as st
from mutations import damaged, mistyped

import lexome
from lexome import Answer, Document, LexomeError, Passage, Question, Tally
from lexome.errors import BadDocument, FormatError
from lexome.formats import bioasq
from lexome.formats.streams import open_stream

SNIPPET = {
    "text": "ZORB1 wobbles — naïvely.",
    "document": "http://example.org/pubmed/1",
    "beginSection": "abstract",
    "endSection": "abstract",
    "offsetInBeginSection": 12,
    "offsetInEndSection": 36,
}
QUESTION = {
    "id": "5a",
    "body": "What wobbles?",
    "type": "factoid",
    "exact_answer": [["ZORB1", "Zorblin"]],
    "ideal_answer": ["It is ZORB1 that wobbles."],
    "documents": ["http://example.org/pubmed/1"],
    "concepts": ["http://example.org/mesh/D1"],
    "snippets": [SNIPPET, {"text": "Others do not."}],
    "triples": [{"s": "a", "p": "b", "o": "c"}],
}


def read_raw(raw: bytes, tally: Tally | None = None) -> list[Document]:
    tally = tally or Tally()
    return list(bioasq.read(open_stream(io.BytesIO(raw), "7B.json", tally), tally=tally))


def read_one(tally: Tally | None = None, **changed: Any) -> Document:
    question = {key: value for key, value in {**QUESTION, **changed}.items() if value is not None}
    (doc,) = read_raw(json.dumps({"questions": [question]}).encode(), tally)
    return doc


def test_a_question_is_a_document_of_its_snippets() -> None:
    assert read_one() == Document(
        "5a",
        (
            Passage(0, SNIPPET["text"], "snippet", ("abstract",), source="http://example.org/pubmed/1"),
            Passage(25, "Others do not.", "snippet"),
        ),
        questions=(
            Question(
                "5a",
                "What wobbles?",
                "factoid",
                (Answer("ZORB1", synonyms=("Zorblin",)),),
                ideal=("It is ZORB1 that wobbles.",),
                documents=("http://example.org/pubmed/1",),
                concepts=("http://example.org/mesh/D1",),
            ),
        ),
    )


def test_what_has_no_place_in_a_document_is_counted() -> None:
    tally = Tally()
    read_one(tally, snippets=[SNIPPET, {**SNIPPET, "endSection": "title"}])
    assert tally.notes == {
        "field 'triples' ignored": 1,
        "field 'offsetInBeginSection' ignored": 2,
        "field 'offsetInEndSection' ignored": 2,
        "field 'endSection' ignored": 1,
    }


@pytest.mark.parametrize(
    ("type", "exact", "answers"),
    [
        ("factoid", [["a", "b"], ["c"]], (Answer("a", synonyms=("b",)), Answer("c"))),
        ("factoid", ["a", "b"], (Answer("a", synonyms=("b",)),)),
        ("factoid", "a", (Answer("a"),)),
        ("factoid", [[42]], (Answer("42"),)),
        ("list", [["a", "b"], ["c"]], (Answer("a", synonyms=("b",)), Answer("c"))),
        ("list", ["a", "b"], (Answer("a"), Answer("b"))),
        ("list", [["a"], []], (Answer("a"),)),
        ("yesno", "yes", (Answer("yes"),)),
        ("yesno", ["no"], (Answer("no"),)),
        ("summary", None, ()),
        ("factoid", [], ()),
        (None, None, ()),
    ],
)
def test_exact_answers_in_every_shape(type: str | None, exact: object, answers: tuple[Answer, ...]) -> None:
    (question,) = read_one(type=type, exact_answer=exact).questions
    assert (question.type, question.answers) == (type, answers)


@pytest.mark.parametrize(("ideal", "read"), [("One.", ("One.",)), (["One.", "Two."], ("One.", "Two.")), (None, ())])
def test_ideal_answers_are_one_or_many(ideal: object, read: tuple[str, ...]) -> None:
    assert read_one(ideal_answer=ideal).questions[0].ideal == read


def test_a_test_question_has_no_snippets_and_no_documents() -> None:
    doc = read_one(snippets=None, documents=None, concepts=None, exact_answer=None, ideal_answer=None)
    assert (doc.passages, doc.questions[0].documents) == ((), ())


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"body": None}, "bad_field"),
        ({"id": None}, "bad_field"),
        ({"exact_answer": {"a": 1}}, "bad_field"),
        ({"exact_answer": [["a"], "b"]}, "bad_field"),
        ({"snippets": [{"document": "x"}]}, "bad_field"),
        ({"snippets": "text"}, "bad_field"),
        ({"body": "\ud800"}, "not_unicode"),
    ],
)
def test_a_bad_question_is_refused_alone(changed: dict[str, Any], reason: str, tmp_path: Path) -> None:
    bad = {key: value for key, value in {**QUESTION, **changed}.items() if value is not None}
    with Tally(tmp_path / "rejects.jsonl") as tally:
        docs = read_raw(json.dumps({"questions": [bad, QUESTION]}).encode(), tally)
    assert [doc.id for doc in docs] == ["5a"]
    assert tally.rejected == {reason: 1}


def test_a_message_names_the_question() -> None:
    with raises(BadDocument, code="bad_field", value="body", mentions="7B.json, question 1"):
        read_raw(b'{"questions": [{"id": "5a"}]}')


@pytest.mark.parametrize("raw", [b'{"data": []}', b"[]", b"null", b'{"questions": {}}'])
def test_a_file_that_is_no_bioasq_says_so(raw: bytes) -> None:
    with raises(FormatError, code="missing-key", value="questions"):
        read_raw(raw)


def test_snippets_are_spread_with_everything_the_question_has() -> None:
    doc = read_one()
    (part,) = bioasq.spread_snippets(doc, Tally())
    assert part == Document(
        "5a-1",
        (Passage(0, SNIPPET["text"], "snippet", ("5a",), source="http://example.org/pubmed/1"),),
        questions=(
            Question(
                "5a_000",
                "What wobbles?",
                "factoid",
                (Answer("ZORB1", 0),),
                ideal=doc.questions[0].ideal,
                documents=doc.questions[0].documents,
                concepts=doc.questions[0].concepts,
            ),
        ),
    )


@pytest.mark.parametrize(
    ("text", "forms", "found"),
    [
        ("AF, not after", ("af",), Answer("AF", 0)),
        ("after AFs", ("AF",), None),
        ("in (p53) cells", ("P53 ",), Answer("p53", 4)),
        ("TNF-alpha and TNF", ("TNF", "TNF-alpha"), Answer("TNF-alpha", 0)),
        ("a.c abc", ("a.c",), Answer("a.c", 0)),
        ("100% of it", ("100%",), Answer("100%", 0)),
        ("nothing", ("",), None),
    ],
)
def test_answers_are_found_as_whole_words_in_any_case(text: str, forms: tuple[str, ...], found: Answer | None) -> None:
    question = Question("q", "?", "factoid", (Answer(forms[0], synonyms=forms[1:]),))
    doc = Document("q", (Passage(0, text, "snippet"),), questions=(question,))
    parts = list(bioasq.spread_snippets(doc, Tally()))
    assert [part.questions[0].answers for part in parts] == ([(found,)] if found else [])


SAMPLE = {"questions": [QUESTION]}


@given(raw=st.one_of(damaged(json.dumps(SAMPLE).encode()), mistyped(SAMPLE)))
def test_damaged_files_raise_only_errors_of_ours(raw: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    for tally in (Tally(), Tally(tmp_path_factory.getbasetemp() / "bioasq-rejects.jsonl")):
        with suppress(FormatError if tally.rejects_path else LexomeError), tally:
            read_raw(raw, tally)


@pytest.mark.parametrize(
    ("name", "questions", "factoids", "snippets", "pairs"),
    [
        ("4B", 497, 161, 3302, 707),
        ("5B", 500, 150, 2616, 774),
        ("6B", 500, 161, 5061, 1269),
        ("7B", 500, 162, 3758, 987),
    ],
)
def test_the_golden_files_are_read_and_become_squad(
    real_data: Path, tmp_path: Path, name: str, questions: int, factoids: int, snippets: int, pairs: int
) -> None:
    docs = list(lexome.read(real_data / f"benchmarks/BioASQ/golden/{name}_golden.json.xz"))
    assert len(docs) == questions
    assert sum(doc.questions[0].type == "factoid" for doc in docs) == factoids
    assert sum(len(doc.passages) for doc in docs) == snippets
    assert all(question.answers for doc in docs for question in doc.questions if question.type != "summary")
    tally = Tally()
    lexome.write(tmp_path / "bioasq.squad.json", docs, tally=tally)
    skipped = sum(count for note, count in tally.notes.items() if "question skipped" in note)
    assert tally.written + skipped == questions
    back = list(lexome.read(tmp_path / "bioasq.squad.json"))
    assert len(back) == pairs
    assert all(doc.questions[0].answers for doc in back)
