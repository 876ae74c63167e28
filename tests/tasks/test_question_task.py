"""Questions: answers come back from windows, snippets and documents, or it is said that there are none."""

from dataclasses import replace

import numpy as np
import pytest
from errors import raises
from task_rows import SURE, frame, perfect, tokenizer

from lexome.document import Answer, Document, Passage, Question, lay_out
from lexome.errors import BadDocument, UsageError
from lexome.tasks import Questions, task_of
from lexome.tasks.qa import Form, ask_elsewhere, is_right, join_texts, merge_questions
from lexome.tasks.task import IGNORE_INDEX

CONTEXT = "The gene BRCA1 is on 17q21, near NBR1."


def asked(text: str = CONTEXT, *answers: str, type_: str | None = "factoid", impossible: bool = False) -> Document:
    found = tuple(Answer(answer, text.index(answer)) for answer in answers)
    question = Question("q", "Where is BRCA1?", type_, found, impossible)
    return Document("d", (Passage(0, text),), questions=(question,))


def snippets(*texts: str, type_: str = "factoid", answers: tuple[Answer, ...] = ()) -> Document:
    passages = lay_out(("snippet", text) for text in texts)
    return Document("d", passages, questions=(Question("q", "Which gene?", type_, answers),))


def again(task: Questions, doc: Document, size: int = 48) -> Question:
    rows = task.encode(doc, tokenizer(), frame(size), with_targets=True)
    return task.decode(doc, rows, perfect(task, rows)).questions[0]


def test_an_answer_comes_back_with_its_place_and_others_after_it() -> None:
    found = again(Questions(), asked(CONTEXT, "17q21"))
    assert (found.answers[0].text, found.answers[0].start) == ("17q21", CONTEXT.index("17q21"))
    assert len(found.answers) == 5
    scores = [answer.score or 0 for answer in found.answers]
    assert scores == sorted(scores, reverse=True)


def test_an_answer_comes_back_from_a_long_text() -> None:
    text = "the disease of cancer " * 50 + CONTEXT + " the breast" * 50
    for size in (40, 64):
        found = again(Questions(overlap=10), asked(text, "17q21"), size)
        assert (found.answers[0].text, found.answers[0].start) == ("17q21", text.index("17q21"))


def test_the_question_is_in_every_row_and_has_no_place() -> None:
    doc = asked("the gene " * 40)
    question = [piece[0] for piece in tokenizer().encode("Where is BRCA1?")]
    rows = Questions().encode(doc, tokenizer(), frame(40), with_targets=False)
    assert len(rows) > 3
    for row in rows:
        assert row.ids[1 : 1 + len(question)].tolist() == question
        assert set(row.starts[: 2 + len(question)].tolist()) == {-1}
        assert row.key == ("q",)


def test_windows_without_the_answer_say_that_there_is_none() -> None:
    doc = asked("the gene " * 40 + "17q21", "17q21")
    rows = Questions(overlap=0).encode(doc, tokenizer(), frame(48), with_targets=True)
    targets = [row.targets.tolist() for row in rows if row.targets is not None]
    assert targets[0] == [0, 0]
    assert targets[-1] != [0, 0]


def test_a_question_without_an_answer_has_none() -> None:
    task = Questions(null=True, measure="squad")
    doc = asked(CONTEXT, impossible=True)
    found = again(task, doc)
    assert (found.answers, found.impossible) == ((), True)
    assert task.score([doc], [replace(doc, questions=(found,))])["f1"] == 1


def test_no_answer_has_to_be_said_more_firmly_than_the_threshold() -> None:
    doc = asked()
    for threshold, impossible in ((0.0, True), (5.0, False)):
        task = Questions(null=True, null_threshold=threshold)
        rows = task.encode(doc, tokenizer(), frame(), with_targets=False)
        numbers = np.zeros((len(rows[0].ids), 2))
        numbers[0] = 2.0
        assert task.decode(doc, rows, [numbers]).questions[0].impossible == impossible


def test_answers_of_a_list_come_back_from_one_text_and_from_several() -> None:
    doc = snippets("The gene BRCA1 and NBR1.", "Also TP53.", "And brca1.", type_="list",
                   answers=(Answer("BRCA1"), Answer("NBR1", synonyms=("nbr",)), Answer("TP53")))  # fmt: skip
    found = again(Questions("list"), doc)
    assert sorted({answer.text.upper() for answer in found.answers}) == ["BRCA1", "NBR1", "TP53"]
    assert len(found.answers) == 3


def test_an_answer_is_searched_in_snippets_as_whole_words_and_by_its_synonyms() -> None:
    doc = snippets(
        "ABRCA1 is another.", "Breast-cancer gene.", answers=(Answer("BRCA1", synonyms=("breast-cancer gene",)),)
    )
    rows = Questions().encode(doc, tokenizer(), frame(), with_targets=True)
    assert [row.targets is not None and IGNORE_INDEX in row.targets for row in rows] == [True, False]
    rows = Questions(absent="null").encode(doc, tokenizer(), frame(), with_targets=True)
    assert rows[0].targets is not None
    assert rows[0].targets.tolist() == [0, 0]
    assert again(Questions(), doc).answers[0].text == "Breast-cancer gene"


def test_questions_of_other_forms_are_left_as_they_are() -> None:
    doc = asked(CONTEXT, "17q21", type_="summary")
    assert Questions().encode(doc, tokenizer(), frame(), with_targets=True) == []
    assert Questions().decode(doc, [], []) == doc


def test_an_answer_never_reaches_over_two_passages() -> None:
    passages = lay_out((("title", "breast"), ("abstract", "cancer")))
    doc = Document("d", passages, questions=(Question("q", "?"),))
    task = Questions()
    rows = task.encode(doc, tokenizer(), frame(), with_targets=False)
    numbers = np.zeros((len(rows[0].ids), 2))
    numbers[3, 0] = numbers[4, 1] = SURE
    assert "breast" in [answer.text for answer in task.decode(doc, rows, [numbers]).questions[0].answers][:2]


@pytest.mark.parametrize("said", ["yes", "No.", "maybe"])
def test_yes_or_no_comes_back_from_all_snippets_together(said: str) -> None:
    doc = snippets("the gene " * 60, "the disease", type_="yesno", answers=(Answer(said),))
    found = again(Questions("yesno", says=("yes", "no", "maybe")), doc)
    assert [answer.text for answer in found.answers] == [said.lower().removesuffix(".")]


def test_snippets_vote_on_yes_or_no() -> None:
    doc = snippets("the gene", "the disease", "the cancer", type_="yesno")
    task = Questions("yesno")
    rows = task.encode(doc, tokenizer(), frame(), with_targets=False)
    numbers = [np.array([1.0, 0]), np.array([0, 3.0]), np.array([1.0, 0])]
    (answer,) = task.decode(doc, rows, numbers).questions[0].answers
    assert (answer.text, answer.start) == ("no", None)
    assert 0.5 < (answer.score or 0) < 1


@pytest.mark.parametrize("form", ["factoid", "list", "yesno"])
def test_a_best_answer_of_too_little_probability_is_no_answer(form: Form) -> None:
    doc = snippets("the gene", "the disease", type_=form)
    for least, known in ((0.0, True), (0.99, False)):
        task = Questions(form, min_probability=least)
        rows = task.encode(doc, tokenizer(), frame(), with_targets=False)
        flat = [np.zeros(2) if form == "yesno" else np.zeros((len(row.ids), 2)) for row in rows]
        question = task.decode(doc, rows, flat).questions[0]
        assert (bool(question.answers), question.impossible) == (known, not known)
    with raises(UsageError, code="out-of-range", value=1.0):
        Questions(form, min_probability=1.0)


def test_scores_are_probabilities_of_all_answers_together() -> None:
    doc = snippets("the gene", "the disease", "the cancer")
    for null, total in ((False, 1.0), (True, 0.95)):
        task = Questions(null=null, null_threshold=9.0, kept=20)
        rows = task.encode(doc, tokenizer(), frame(), with_targets=False)
        answers = task.decode(doc, rows, [np.zeros((len(row.ids), 2)) for row in rows]).questions[0].answers
        assert sum(answer.score or 0 for answer in answers) <= total + 1e-9
        assert all(0 < (answer.score or 0) < 1 for answer in answers)


def test_another_answer_than_yes_or_no_is_refused() -> None:
    doc = snippets("the gene", type_="yesno", answers=(Answer("perhaps"),))
    with raises(BadDocument, code="unknown_label", mentions="perhaps"):
        Questions("yesno").encode(doc, tokenizer(), frame(), with_targets=True)


def test_a_question_without_text_is_asked_alone() -> None:
    doc = Document("d", questions=(Question("q", "?", "yesno", (Answer("yes"),)),))
    assert [answer.text for answer in again(Questions("yesno"), doc).answers] == ["yes"]


def test_a_question_longer_than_half_a_row_is_cut_and_counted() -> None:
    doc = Document(
        "d", (Passage(0, "the gene"),), questions=(Question("q", "the gene " * 20, answers=(Answer("gene", 4),)),)
    )
    task = Questions()
    found = again(task, doc, 24)
    assert found.answers[0].text == "gene"
    assert task.notes == {"question truncated: longer than half an example": 1}


def test_an_answer_inside_a_token_is_moved_and_counted() -> None:
    task = Questions()
    assert again(task, asked("the disease", "ease")).answers[0].text == "disease"
    assert task.notes == {"answer moved to token boundaries": 1}


def test_answers_of_one_question_in_many_documents_are_weighed_together() -> None:
    gold = Answer("BRCA1", synonyms=("brca-1",))
    scored = [("q_000", (("NBR1", 3.0), ("TP53", 2.0))), ("q_001", (("brca1", 4.0), ("nbr1", 1.0)))]
    docs = [Document(f"d{name}", questions=(Question(name, "?", "factoid", (gold,)),)) for name, _ in scored]
    found = [
        Document(f"d{name}", questions=(Question(name, "?", "factoid",
                 tuple(Answer(text, score=score) for text, score in answers)),))
        for name, answers in scored
    ]  # fmt: skip
    ((_, merged),) = merge_questions(
        (own.questions[0], said.questions[0]) for own, said in zip(docs, found, strict=True)
    )
    assert merged is not None
    assert [answer.text for answer in merged.answers] == ["brca1", "NBR1", "TP53"]
    assert Questions().score(docs, found) == {"mrr": 1, "strict": 1, "lenient": 1}


@pytest.mark.parametrize("names", [("q_001", "q_002"), ("q1", "q1")])
def test_other_words_are_another_question_whatever_its_id_is(names: tuple[str, str]) -> None:
    gold, found = (
        [
            Document(f"d{number}", questions=(Question(name, f"which {number}?", "factoid", (Answer(said[number]),)),))
            for number, name in enumerate(names)
        ]
        for said in (("BRCA1", "TP53"), ("BRCA1", "EGFR"))
    )
    assert Questions().score(gold, found) == {"mrr": 0.5, "strict": 0.5, "lenient": 0.5}
    assert Questions(measure="squad").score(gold, found) == {"f1": 0.5, "exact": 0.5}


def test_a_list_over_documents_keeps_what_is_near_to_the_best() -> None:
    answers = (Answer("a"), Answer("b"))
    gold = [Document("d", questions=(Question(f"q_00{number}", "?", "list", answers),)) for number in range(3)]
    found = [
        Document("d", questions=(Question(name, "?", "list", (Answer(text, score=score),)),))
        for name, text, score in (("q_000", "a", 9.0), ("q_001", "b", 8.9), ("q_002", "c", 1.0))
    ]
    assert Questions("list").score(gold, found)["f1"] == 1


def test_yes_and_no_are_scored_as_bioasq_does() -> None:
    gold = [snippets("x", type_="yesno", answers=(Answer("yes"),))]
    found = [snippets("x", type_="yesno", answers=(Answer("no"),))]
    assert Questions("yesno").score(gold, found)["macro_f1"] == 0
    three = Questions("yesno", says=("yes", "no", "maybe"))
    assert three.score(gold, gold) == {"accuracy": 1, "macro_f1": pytest.approx(1 / 3)}
    assert three.score(gold, found) == {"accuracy": 0, "macro_f1": 0}


def test_exact_match_and_f1_are_squads() -> None:
    task = task_of({"kind": "questions", "measure": "squad"})
    gold, found = asked(CONTEXT, "17q21"), asked(CONTEXT, "17q21, near")
    assert task.score([gold], [found]) == {"f1": pytest.approx(2 / 3), "exact": 0}


def test_a_question_without_rows_is_an_error() -> None:
    with raises(UsageError, code="missing-example", value="q"):
        Questions().decode(asked(), [], [])


# Questions asked of several texts together


def test_a_question_of_many_documents_is_asked_of_all_their_texts_at_once() -> None:
    def of_text(number: int, text: str, answer: str, question: str = "Which gene?") -> Document:
        found = (Answer(answer, text.index(answer)),)
        questions = (Question(f"q{question[-2]}_{number:03}", question, "factoid", found),)
        return Document(f"d{number}", (Passage(0, text),), questions=questions)

    first, same, again = (
        of_text(0, "NBR1 is on 17q21.", "NBR1"),
        of_text(1, "Nbr1.", "Nbr1"),
        of_text(2, "NBR1.", "NBR1"),
    )
    other = of_text(3, "It is aspirin.", "aspirin", "Which drug?")
    joined = join_texts([first, same, other, again, replace(first, id="d9")])
    assert [[passage.text for passage in doc.passages] for doc in joined] == [
        ["NBR1 is on 17q21.", "Nbr1.", "NBR1."],
        ["It is aspirin."],
    ]
    assert {passage.kind for passage in joined[0].passages} == {"snippet"}
    assert [(answer.text, answer.start) for answer in joined[0].questions[0].answers] == [("NBR1", None)]
    assert is_right(joined[0].questions[0], Answer("the nbr1."))
    assert not is_right(joined[0].questions[0], Answer("17q21"))


def test_a_question_asked_of_texts_without_its_answer_is_unanswerable() -> None:
    def of(name: str, text: str, answer: str) -> Document:
        return Document(
            name, lay_out([("snippet", text)]), questions=(Question(name, "Which?", "factoid", (Answer(answer),)),)
        )

    docs = [of("a", "MYC and TP53.", "TP53"), of("b", "TP53 again.", "tp53"), of("c", "EGFR and MYC.", "EGFR")]
    elsewhere = ask_elsewhere(docs)
    assert [(doc.id, doc.text) for doc in elsewhere] == [
        ("a", "EGFR and MYC."),
        ("b", "EGFR and MYC."),
        ("c", "MYC and TP53."),
    ]
    assert all(doc.questions[0].impossible and not doc.questions[0].answers for doc in elsewhere)
    assert ask_elsewhere(docs[:2]) == []  # both have both answers


def test_without_thresholds_a_question_keeps_improbable_answers() -> None:
    doc = asked(CONTEXT, "17q21")
    strict = Questions(null=True, null_threshold=-100.0, min_probability=0.99)
    rows = strict.encode(doc, tokenizer(), frame(48), with_targets=True)
    logits = [np.zeros((len(row.ids), 2), np.float32) for row in rows]
    assert strict.decode(doc, rows, logits).questions[0].answers == ()
    found = strict.with_all_candidates().decode(doc, rows, logits)
    assert found.questions[0].answers
    assert strict.answerable(found.questions[0]) < 1
    assert Questions().answerable(found.questions[0]) == found.questions[0].answers[0].score
    halved = strict.rescale_scores(found, lambda score, _: score / 2).questions[0].answers
    assert [answer.score for answer in halved] == [(answer.score or 0) / 2 for answer in found.questions[0].answers]
    assert Questions("yesno").rescale_scores(found, lambda *_: 0.0) == found
