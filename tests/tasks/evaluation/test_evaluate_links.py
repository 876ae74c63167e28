"""Predictions beside gold: relations, labels and questions."""

from dataclasses import replace

import pytest
import scipy.stats

from lexome import Document, Passage, Span
from lexome.document import Answer, Argument, Question, Relation
from lexome.tasks.evaluation.annotations import relation_metrics
from lexome.tasks.evaluation.comparison import DocumentPair, LoadedFile, Resampling
from lexome.tasks.evaluation.scoring import Evaluation, compare
from lexome.tasks.metrics import Counts
from lexome.tasks.qa import Questions
from lexome.tasks.relation import Relations

TEXT = "aspirin helps, ibuprofen harms"


def compared(found: list[Document], gold: list[Document], **options: object) -> Evaluation:
    sides = (LoadedFile(name, tuple(docs), None) for name, docs in (("PRED", found), ("GOLD", gold)))
    return compare(*sides, resampling=Resampling(samples=20), **options)


def values(result: Evaluation, section: str) -> dict[tuple[str, str], float]:
    own = [one.result for one in result.scores if one.result.section == section]
    return {(one.name, one.score): one.value for one in own}


def related(*relations: tuple[str, str, str], ids: tuple[str, str] = ("T1", "T2")) -> Document:
    spans = (
        Span(ids[0], "Drug", ((0, 7),), "aspirin"),
        Span(ids[1], "Drug", ((15, 24),), "ibuprofen"),
    )
    places = {"aspirin": ids[0], "ibuprofen": ids[1]}
    made = tuple(
        Relation(f"R{number}", type, (Argument("e1", places[first]), Argument("e2", places[second])))
        for number, (type, first, second) in enumerate(relations, 1)
    )
    return Document("1", (Passage(0, TEXT),), spans, made)


def test_relations_are_told_by_their_arguments_places_and_not_by_ids() -> None:
    gold = related(("effect", "aspirin", "ibuprofen"))
    found = related(("effect", "aspirin", "ibuprofen"), ids=("a", "b"))
    assert values(compared([found], [gold]), "relations")["type and arguments", "F1"] == 1


def test_roles_and_types_count() -> None:
    gold = related(("effect", "aspirin", "ibuprofen"))
    found = related(("advise", "aspirin", "ibuprofen"), ("effect", "ibuprofen", "aspirin"))
    result = compared([found], [gold])
    assert values(result, "relations") == {
        ("type and arguments", "F1"): 0,
        ("type and arguments", "macro F1"): 0,
        ("arguments alone", "F1"): pytest.approx(2 / 3),
        ("type and arguments, roles ignored", "F1"): pytest.approx(2 / 3),
        ("type and arguments, roles ignored", "macro F1"): 1 / 2,
    }
    assert [(one.kind, one.gold, one.predicted) for one in result.differences] == [
        (
            "wrong type",
            "effect: e1: 'aspirin' at 0-7; e2: 'ibuprofen' at 15-24",
            "advise: e1: 'aspirin' at 0-7; e2: 'ibuprofen' at 15-24",
        ),
        ("spurious", None, "effect: e1: 'ibuprofen' at 15-24; e2: 'aspirin' at 0-7"),
    ]


def test_pairs_are_scored_as_the_task_scores_them() -> None:
    gold = related(("effect", "ibuprofen", "aspirin"))
    task = Relations(["effect", "none"], none="none", pairs=[("Drug", "Drug")])
    sides = (Argument("Arg1", "T1"), Argument("Arg2", "T2"))
    found = replace(gold, relations=(Relation("R1", "effect", sides),))
    result = values(compared([found], [gold]), "relations")
    assert result["type and arguments", "F1"] == 0
    assert result["type and arguments, roles ignored", "F1"] == task.score([gold], [found])["f1"] == 1


def test_relations_that_say_there_is_none_do_not_count() -> None:
    gold = related(("DDI-effect", "aspirin", "ibuprofen"), ("DDI-false", "ibuprofen", "aspirin"))
    result = compared([related(("DDI-false", "ibuprofen", "aspirin"))], [gold])
    agreement = next(one.result.agreement for one in result.scores if one.result.section == "relations")
    assert agreement is not None
    assert agreement.total == Counts(0, 0, 1)
    assert result.notes == ("relations of DDI-false mean no relation, and are not scored",)


def test_relations_between_concepts_and_of_relations_count() -> None:
    spans = (Span("T1", "Gene", ((0, 7),), "aspirin"),)
    relations = (
        Relation("R1", "binds", (Argument("agent", "T1"), Argument("theme", concept="mesh:D001"))),
        Relation("R2", "causes", (Argument("cause", "R1"), Argument("theme", concept="mesh:D002"))),
    )
    doc = Document("1", (Passage(0, TEXT),), spans, relations)
    assert values(compared([doc], [doc]), "relations")["type and arguments", "F1"] == 1


def labeled(*labels: tuple[str, ...]) -> list[Document]:
    return [Document(str(number), (Passage(0, f"Text {number}"),), labels=own) for number, own in enumerate(labels)]


def test_one_label_each_is_scored_by_accuracy_and_by_class() -> None:
    gold = labeled(("CPR:3",), ("CPR:4",), ("false",), ("false",))
    found = labeled(("CPR:3",), ("false",), ("false",), ())
    scores = values(compared(found, gold), "labels")
    assert scores == {
        ("one label each", "accuracy"): 2 / 4,
        ("all classes", "F1"): pytest.approx(4 / 7),
        ("all classes", "macro F1"): pytest.approx((1 + 0 + 1 / 2) / 3),
        ("without false", "F1"): pytest.approx(2 / 3),
        ("without false", "macro F1"): pytest.approx(1 / 2),
    }


def test_classes_can_be_asked_for() -> None:
    gold, found = labeled(("1",), ("0",), ("1",)), labeled(("1",), ("1",), ("0",))
    assert values(compared(found, gold, only=["1"]), "labels")["asked classes", "F1"] == 1 / 2


def test_sets_of_labels_are_scored_by_label_and_by_document() -> None:
    gold, found = labeled(("a", "b"), ("c",), ()), labeled(("a",), ("c", "b"), ())
    result = compared(found, gold)
    assert values(result, "labels") == {
        ("any number of labels", "F1"): pytest.approx(4 / 6),
        ("any number of labels", "macro F1"): pytest.approx(2 / 3),
        ("example-based", "F1"): pytest.approx(2.5 / 3),
        ("all labels right", "accuracy"): 1 / 3,
    }
    assert [(one.kind, one.gold, one.predicted) for one in result.differences] == [
        ("wrong label", "a, b", "a"),
        ("wrong label", "c", "b, c"),
    ]


def test_numbers_are_correlated() -> None:
    gold, found = [0.0, 1.5, 2.0, 4.0], [0.5, 1.0, 3.0, 2.5]
    result = compared(labeled(*((str(one),) for one in found)), labeled(*((str(one),) for one in gold)))
    assert values(result, "labels") == {
        ("Pearson", "correlation"): pytest.approx(scipy.stats.pearsonr(gold, found).statistic),
        ("Spearman", "correlation"): pytest.approx(scipy.stats.spearmanr(gold, found).statistic),
    }


def test_whole_gold_numbers_are_similarities_if_predictions_are_not_whole() -> None:
    gold = labeled(("0",), ("3",), ("4",))
    assert values(compared(labeled(("0.5",), ("2",), ("4",)), gold), "labels").keys() == {
        ("Pearson", "correlation"),
        ("Spearman", "correlation"),
    }
    assert ("one label each", "accuracy") in values(compared(labeled(("0",), ("v1.2",), ("4",)), gold), "labels")


def test_documents_without_a_number_are_noted() -> None:
    result = compared(labeled(("1.0",), (), ("2.0",)), labeled(("1.0",), ("1.5",), ("2.0",)))
    assert result.notes == ("1 documents have no predicted number, and are in no correlation",)


def asked(*questions: Question) -> Document:
    return Document("1", questions=questions)


def question(id: str, type: str | None, *answers: str, impossible: bool = False) -> Question:
    return Question(id, f"Which {id}?", type, tuple(map(Answer, answers)), impossible)


def test_questions_are_scored_by_their_types() -> None:
    factoid = Question("f", "Which f?", "factoid", (Answer("BRCA1", synonyms=("breast cancer 1",)),))
    gold = asked(
        factoid,
        question("g", "factoid", "TP53"),
        question("l", "list", "p", "q"),
        question("y", "yesno", "yes"),
        question("n", "yesno", "no"),
        question("s", "summary", "long"),
    )
    found = asked(
        question("f", "factoid", "BRCA2", "Breast cancer 1"),
        question("l", "list", "p", "r", "s"),
        question("y", "yesno", "yes"),
        question("n", "yesno", "yes"),
    )
    result = compared([found], [gold])
    assert values(result, "questions") == {
        ("factoid, strict", "accuracy"): 0,
        ("factoid, lenient", "accuracy"): 1 / 2,
        ("factoid", "MRR"): 1 / 4,
        ("list", "mean F1"): pytest.approx(2 / 5),
        ("list", "mean precision"): pytest.approx(1 / 3),
        ("list", "mean recall"): 1 / 2,
        ("yes/no", "macro F1"): pytest.approx((2 / 3 + 0) / 2),
        ("yes/no", "accuracy"): 1 / 2,
    }
    assert result.notes == ("1 questions have no gold answer to compare with, and are not scored",)
    assert [(one.kind, one.gold, one.predicted) for one in result.differences] == [
        ("right, but not first", "BRCA1", "BRCA2; Breast cancer 1"),
        ("not answered", "TP53", None),
        ("wrong list", "p; q", "p; r; s"),
        ("wrong", "no", "yes"),
    ]


def test_questions_without_a_type_are_scored_as_squad_does() -> None:
    gold = asked(question("q", None, "the BRCA1 gene"), question("i", None, impossible=True))
    found = asked(question("q", None, "BRCA1"), question("i", None, "TP53"))
    assert values(compared([found], [gold]), "questions") == {
        ("SQuAD", "F1"): pytest.approx((2 / 3 + 0) / 2),
        ("SQuAD", "exact match"): 0,
        ("SQuAD, with an answer", "F1"): pytest.approx(2 / 3),
        ("SQuAD, without an answer", "F1"): 0,
    }


def test_maybe_is_a_class_of_its_own() -> None:
    gold = asked(*(question(str(number), "yesno", text) for number, text in enumerate(("yes", "no", "maybe"))))
    found = asked(*(question(str(number), "yesno", text) for number, text in enumerate(("yes", "maybe", "maybe"))))
    assert values(compared([found], [gold]), "questions") == {
        ("maybe/no/yes", "accuracy"): pytest.approx(2 / 3),
        ("maybe/no/yes", "macro F1"): pytest.approx((2 / 3 + 0 + 1) / 3),
    }


def test_a_question_of_several_documents_counts_once_as_the_task_scores_it() -> None:
    def of(name: str, text: str, *answers: Answer) -> Document:
        return Document(f"d{name}", questions=(Question(name, text, "factoid", answers),))

    gold = [of(name, "Which gene?", Answer("BRCA1")) for name in ("q_000", "q_001", "q_002")]
    gold.append(of("q_003", "Which drug?", Answer("aspirin")))
    found = [
        of("q_000", "Which gene?", Answer("TP53", score=3.0)),
        of("q_001", "Which gene?", Answer("brca1", score=2.0)),
        of("q_002", "Which gene?"),
        of("q_003", "Which drug?", Answer("aspirin", score=1.0)),
    ]
    result = compared(found, gold)
    scores = Questions().score(gold, found)
    assert scores == {"mrr": 3 / 4, "strict": 1 / 2, "lenient": 1}
    assert values(result, "questions") == {
        ("factoid, strict", "accuracy"): scores["strict"],
        ("factoid, lenient", "accuracy"): scores["lenient"],
        ("factoid", "MRR"): scores["mrr"],
    }
    assert [one.kind for one in result.differences] == ["right, but not first"]
    assert result.notes == ("2 times a question is asked of a further document; it counts once, with all answers",)


def test_relations_between_mentions_are_scored_as_concepts_where_gold_relates_those() -> None:
    text = "Lithium and salt gave tremor."
    spans = (
        Span("T1", "Chemical", ((0, 7),), "Lithium", ("mesh:D008094",)),
        Span("T2", "Chemical", ((12, 16),), "salt", ("mesh:D012965",)),
        Span("T3", "Disease", ((22, 28),), "tremor", ("mesh:D014202",)),
    )

    def doc(*relations: Relation) -> Document:
        return Document("d", (Passage(0, text),), spans, relations)

    def concepts(id: str, type: str, one: str, novel: bool) -> Relation:
        return Relation(id, type, (Argument("a", concept=one), Argument("b", concept="mesh:D014202")), novel)

    def mentions(id: str, type: str, one: str, novel: bool) -> Relation:
        return Relation(id, type, (Argument("x", one), Argument("y", "T3")), novel)

    gold = doc(concepts("R1", "Causes", "mesh:D008094", True), concepts("R2", "Causes", "mesh:D012965", False))
    found = doc(mentions("R1", "Causes", "T1", False), mentions("R2", "Treats", "T2", False))
    scores = {one.name: one.value for one in relation_metrics([DocumentPair(gold, found)])}
    assert scores["type and arguments"] == 0
    assert scores["concepts"] == 1
    assert scores["concepts and type"] == 0.5
    assert scores["concepts, type and novelty"] == 0
    assert "concepts" not in {one.name for one in relation_metrics([DocumentPair(found, found)])}
