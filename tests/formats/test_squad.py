"""SQuAD: paragraphs with questions, answers in place, there and back; BioASQ made into SQuAD."""

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
from strategies import texts

import lexome
from lexome import Answer, Document, LexomeError, Passage, Question, Span, Tally
from lexome.errors import BadDocument, FormatError
from lexome.formats import squad
from lexome.formats.streams import open_stream

CONTEXT = "Zorblin was found in 1987 in naïve mice 🧬. Mice that lack Zorblin sleep for 14 hours."


def answer(text: str, start: int | None, **more: Any) -> dict[str, Any]:
    return {"text": text, **({"answer_start": start} if start is not None else {}), **more}


def paper(*answers: dict[str, Any], **more: Any) -> dict[str, Any]:
    question = {"id": "q1", "question": "When was Zorblin found?", "answers": list(answers), **more}
    return {"version": "1.1", "data": [{"title": "Zorblin", "paragraphs": [{"context": CONTEXT, "qas": [question]}]}]}


def read_raw(raw: bytes, tally: Tally | None = None, **options: Any) -> list[Document]:
    tally = tally or Tally()
    return list(squad.read(open_stream(io.BytesIO(raw), "made/zorblin.json", tally), tally=tally, **options))


def read_json(value: object, tally: Tally | None = None, **options: Any) -> list[Document]:
    return read_raw(json.dumps(value).encode(), tally, **options)


def written(docs: list[Document], tally: Tally | None = None, **options: Any) -> bytes:
    stream = io.BytesIO()
    squad.write(docs, stream, tally=tally or Tally(), **options)
    return stream.getvalue()


def test_a_paragraph_is_a_document_with_its_questions() -> None:
    assert read_json(paper(answer("1987", 21), answer("in 1987", 18))) == [
        Document(
            "Zorblin-1",
            (Passage(0, CONTEXT, section=("Zorblin",)),),
            questions=(Question("q1", "When was Zorblin found?", answers=(Answer("1987", 21), Answer("in 1987", 18))),),
        )
    ]


def test_offsets_count_characters_behind_an_emoji() -> None:
    (doc,) = read_json(paper(answer("14", CONTEXT.index("14"))))
    (found,) = doc.questions[0].answers
    assert found.start is not None
    assert doc.text[found.start : found.start + 2] == "14"


def test_ids_stay_apart_where_two_articles_share_a_title() -> None:
    twice = paper()
    twice["data"] *= 2
    assert [doc.id for doc in read_json(twice)] == ["Zorblin-1", "Zorblin-2"]


def test_an_article_without_a_title_is_called_by_its_file() -> None:
    bare = paper()
    del bare["data"][0]["title"]
    (doc,) = read_json(bare)
    assert (doc.id, doc.passages[0].section) == ("zorblin-1", ())


def test_unanswerable_questions_are_marked_and_plausible_answers_counted() -> None:
    tally = Tally()
    (doc,) = read_json(paper(is_impossible=True, plausible_answers=[answer("14", 75)]), tally)
    assert (doc.questions[0].impossible, doc.questions[0].answers) == (True, ())
    assert tally.notes == {"field 'plausible_answers' ignored": 1}


def test_a_question_may_have_no_answers_field() -> None:
    test_file = paper()
    del test_file["data"][0]["paragraphs"][0]["qas"][0]["answers"]
    assert read_json(test_file)[0].questions[0].answers == ()


@pytest.mark.parametrize("start", [22, 0, -1, 10_000])
def test_an_answer_that_is_not_at_its_start_refuses_the_document(start: int) -> None:
    with raises(BadDocument, code="offset_mismatch", value="1987", mentions="offsets=repair"):
        read_json(paper(answer("1987", start)))


def test_one_bad_paragraph_leaves_the_others(tmp_path: Path) -> None:
    two = paper(answer("1987", 3))
    two["data"][0]["paragraphs"].append({"context": "All is well here.", "qas": []})
    tally = Tally(tmp_path / "rejects.jsonl")
    with tally:
        assert [doc.id for doc in read_json(two, tally)] == ["Zorblin-2"]
    assert tally.rejected == {"offset_mismatch": 1}
    kept = json.loads((tmp_path / "rejects.jsonl").read_text())
    assert json.loads(kept["raw"]) == two["data"][0]["paragraphs"][0]


def test_repair_moves_an_answer_to_where_it_stands() -> None:
    tally = Tally()
    (doc,) = read_json(paper(answer("1987", 30), answer("Zorblin", 55)), tally, offsets="repair")
    assert doc.questions[0].answers == (Answer("1987", 21), Answer("Zorblin", 58))
    assert tally.notes == {"answer moved to its text": 2}


def test_repair_drops_a_start_that_nothing_stands_near() -> None:
    tally = Tally()
    (doc,) = read_json(paper(answer("1988", 21)), tally, offsets="repair")
    assert doc.questions[0].answers == (Answer("1988"),)
    assert tally.notes == {"answer_start dropped: the answer is not near it": 1}


def test_an_empty_answer_is_left_out_and_counted() -> None:
    tally = Tally()
    assert read_json(paper(answer("", 0)), tally)[0].questions[0].answers == ()
    assert tally.notes == {"answer without text ignored": 1}


def test_fields_that_are_not_read_are_counted() -> None:
    tally = Tally()
    read_json({**paper(answer("1987", 21, occurrences=2), is_checked=True), "licence": "CC0"}, tally)
    assert tally.notes == {f"field '{name}' ignored": 1 for name in ("licence", "is_checked", "occurrences")}


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"", "malformed-json"),
        (b'{"data": [', "malformed-json"),
        (b'{"data": "\xff"}', "wrong-encoding"),
        (b"[1, 2]", "missing-key"),
        (b'{"questions": []}', "missing-key"),
        (b'{"data":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "malformed-json"),
    ],
)
def test_a_file_that_is_not_squad_is_an_error(raw: bytes, code: str) -> None:
    with raises(FormatError, code=code):
        read_raw(raw)


def test_half_a_surrogate_pair_refuses_the_document() -> None:
    with raises(BadDocument, code="not_unicode", mentions="'question'"):
        read_raw(json.dumps(paper()).replace("When was", "\\ud83e").encode())


def test_a_byte_order_mark_is_no_part_of_the_file() -> None:
    assert len(read_raw(b"\xef\xbb\xbf" + json.dumps(paper()).encode())) == 1


@st.composite
def squad_documents(draw: st.DrawFn) -> Document:
    context = draw(texts())
    questions = []
    for number in range(draw(st.integers(1, 3))):
        answers = []
        for _ in range(draw(st.integers(0, 2)) if context else 0):
            start = draw(st.integers(0, len(context) - 1))
            answers.append(Answer(context[start : draw(st.integers(start + 1, len(context)))], start))
        questions.append(Question(f"q{number}", draw(texts()), answers=tuple(answers), impossible=draw(st.booleans())))
    title = draw(st.one_of(st.sampled_from(["A", "B", ""]), texts()))
    passage = Passage(0, context, section=(title,) if title else ())
    return Document(
        draw(st.one_of(st.sampled_from(["A-1", "A-2", "B-1"]), texts())), (passage,), questions=tuple(questions)
    )


@given(docs=st.lists(squad_documents(), max_size=4))
def test_documents_over_all_of_unicode_come_back(docs: list[Document]) -> None:
    tally = Tally()
    raw = written(docs, tally)
    assert read_raw(raw) == docs
    assert (tally.written, tally.notes) == (len(docs), {})


def test_version_1_1_comes_back_too_and_says_its_version() -> None:
    docs = read_json(paper(answer("1987", 21)))
    raw = written(docs, version="1.1")
    assert read_raw(raw) == docs
    assert json.loads(raw)["version"] == "1.1"
    assert "is_impossible" not in raw.decode()


def test_version_1_1_leaves_unanswerable_questions_out() -> None:
    tally = Tally()
    raw = written(read_json(paper(is_impossible=True)), tally, version="1.1")
    assert json.loads(raw) == {"version": "1.1", "data": []}
    assert tally.notes["unanswerable question skipped: version 1.1 has none"] == 1
    assert tally.written == 0


def test_paragraphs_in_a_row_are_grouped_by_title() -> None:
    asked = (Question("q", "Why?"),)
    docs = [Document(name, (Passage(0, name, section=(name[0],)),), questions=asked) for name in ("A-1", "A-2", "B-1")]
    articles = json.loads(written(docs))["data"]
    assert [(article["title"], len(article["paragraphs"])) for article in articles] == [("A", 2), ("B", 1)]
    assert [list(paragraph) for article in articles for paragraph in article["paragraphs"]] == [["context", "qas"]] * 3


def test_a_document_of_several_passages_keeps_its_offsets() -> None:
    passages = (Passage(2, "Zorblin", "title"), Passage(12, "It was found in 1987.", "abstract"))
    found = Question("q", "When?", "factoid", (Answer("1987", 28), Answer("the eighties")))
    doc = Document("7", passages, (Span("T1", "Gene", ((2, 9),), "Zorblin"),), questions=(found,))
    tally = Tally()
    (back,) = read_raw(written([doc], tally))
    assert back.questions[0].answers == (Answer("1987", 28),)
    assert (back.id, back.text, back.passages[0].section) == ("7", doc.text, ("Zorblin",))
    assert tally.notes == {
        "answer skipped: it has no offset": 1,
        "passage offsets not written": 1,
        "passage kinds and sections not written": 1,
        "question details not written": 1,
        "spans not written": 1,
    }


def test_what_has_no_question_or_no_text_is_left_out_and_counted() -> None:
    tally = Tally()
    docs = [
        Document("no question", (Passage(0, "Text."),)),
        Document("no text", questions=(Question("q", "Why?"),)),
        Document("yes or no", (Passage(0, "Text."),), questions=(Question("q", "Is it?", "yesno", (Answer("yes"),)),)),
    ]
    assert json.loads(written(docs, tally))["data"] == []
    assert tally.notes == {
        "document without questions skipped": 2,
        "document without text skipped": 1,
        "answer skipped: it has no offset": 1,
        "question skipped: its answer has no offset": 1,
    }


def test_a_document_that_cannot_be_written_is_set_aside_whole(tmp_path: Path) -> None:
    good, bad = (
        Document(id, (Passage(0, "Text."),), questions=(Question("q", "Why?"),)) for id in ("good", "bad \ud800")
    )
    with Tally(tmp_path / "rejects.jsonl") as tally:
        assert [doc.id for doc in read_raw(written([bad, good, bad], tally))] == ["good"]
    assert tally.rejected == {"not_unicode": 2}
    assert json.loads((tmp_path / "rejects.jsonl").read_text().splitlines()[0])["id"] == "bad \ud800"


SNIPPETS = (
    Passage(0, "Wobbles are caused by ZORB1, and ZORB1 alone.", "snippet", ("abstract",), source="pubmed/1"),
    Passage(50, "The ZORB10 gene is another one.", "snippet", ("title",), source="pubmed/2"),
    Passage(90, "It is the zorblin gene that wobbles.", "snippet", ("abstract",), source="pubmed/3"),
)


def asked(type: str, *answers: Answer) -> Document:
    question = Question("5a", "What causes wobbles?", type, answers, ideal=("ZORB1 does.",))
    return Document("5a", SNIPPETS, questions=(question,))


def test_bioasq_becomes_squad_with_a_paragraph_for_each_snippet_that_answers() -> None:
    tally = Tally()
    docs = read_raw(written([asked("factoid", Answer("zorb1.", synonyms=("Zorblin gene",)))], tally))
    assert [(doc.id, doc.text, doc.questions[0].id, doc.questions[0].answers) for doc in docs] == [
        ("5a-1", SNIPPETS[0].text, "5a_000", (Answer("ZORB1", 22),)),
        ("5a-2", SNIPPETS[2].text, "5a_001", (Answer("zorblin gene", 10),)),
    ]
    assert tally.notes["snippet skipped: it does not contain the answer"] == 1
    assert tally.written == 1


def test_each_answer_of_a_list_question_is_pointed_at() -> None:
    (doc,) = read_raw(written([asked("list", Answer("ZORB1"), Answer("wobbles are"), Answer("nothing"))]))[:1]
    assert doc.questions[0].answers == (Answer("ZORB1", 22), Answer("Wobbles are", 0))


def test_bioasq_without_answers_becomes_a_test_file_of_all_snippets() -> None:
    docs = read_raw(written([asked("factoid")]))
    assert [(doc.questions[0].id, doc.questions[0].answers) for doc in docs] == [
        ("5a_000", ()),
        ("5a_001", ()),
        ("5a_002", ()),
    ]


@pytest.mark.parametrize("type", ["yesno", "summary"])
def test_bioasq_questions_that_no_text_answers_are_left_out(type: str) -> None:
    tally = Tally()
    assert read_raw(written([asked(type, Answer("yes"))], tally)) == []
    assert tally.notes == {f"{type} question skipped: its answer is not a span of text": 1}


SAMPLE = paper(answer("1987", 21), is_impossible=False, plausible_answers=[])


@given(raw=st.one_of(damaged(json.dumps(SAMPLE).encode()), mistyped(SAMPLE)), repair=st.booleans())
def test_damaged_files_raise_only_errors_of_ours(
    raw: bytes, repair: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    for tally in (Tally(), Tally(tmp_path_factory.getbasetemp() / "squad-rejects.jsonl")):
        with suppress(FormatError if tally.rejects_path else LexomeError), tally:
            read_raw(raw, tally, offsets="repair" if repair else "strict")


@pytest.mark.parametrize(
    ("name", "articles", "paragraphs", "questions", "answers", "impossible"),
    [
        pytest.param("train-v1.1", 442, 18896, 87599, 87599, 0, marks=pytest.mark.nightly),
        ("dev-v1.1", 48, 2067, 10570, 34726, 0),
        pytest.param("dev-v2.0", 35, 1204, 11873, 20302, 5945, marks=pytest.mark.nightly),
    ],
)
def test_squad_is_read_whole_and_comes_back(
    real_data: Path,
    tmp_path: Path,
    name: str,
    articles: int,
    paragraphs: int,
    questions: int,
    answers: int,
    impossible: int,
) -> None:
    docs = list(lexome.read(real_data / f"benchmarks/SQuAD/{name}.rebuilt.json.xz"))
    asked = [question for doc in docs for question in doc.questions]
    assert len({doc.passages[0].section for doc in docs}) == articles
    assert len({doc.id for doc in docs}) == len(docs) == paragraphs
    assert len(asked) == questions
    assert sum(len(question.answers) for question in asked) == answers
    assert sum(question.impossible for question in asked) == impossible
    tally = Tally()
    lexome.write(tmp_path / "back.squad.json", docs, tally=tally)
    assert list(lexome.read(tmp_path / "back.squad.json")) == docs
    assert tally.notes == {}


@pytest.mark.parametrize(
    ("name", "pairs", "questions", "answers"),
    [
        ("test-factoid-4b", 652, 161, 0),
        ("test-factoid-5b", 495, 150, 0),
        ("test-factoid-6b", 525, 161, 0),
        ("test-factoid-7b", 407, 162, 0),
        ("train-factoid-4b.rebuilt", 1723, 199, 1723),
        ("train-factoid-5b.rebuilt", 2015, 310, 2015),
        ("train-factoid-6b.rebuilt", 2339, 424, 2339),
        ("train-factoid-7b.rebuilt", 2979, 543, 2979),
    ],
)
def test_bioasq_in_squad_form_is_read(real_data: Path, name: str, pairs: int, questions: int, answers: int) -> None:
    docs = list(lexome.read(real_data / f"benchmarks/BioASQ/BioASQ-{name}.json.xz"))
    asked = [question for doc in docs for question in doc.questions]
    assert len(docs) == len(asked) == pairs
    assert len({question.id.rpartition("_")[0] for question in asked}) == questions
    assert sum(len(question.answers) for question in asked) == answers
