"""Scores of concepts: by document, by mention, on gold mentions, and of ranked candidates."""

from dataclasses import replace

import pytest

from lexome.document import Document, Span, lay_out
from lexome.tasks.evaluation.annotations import CONCEPTS, linking_accuracy
from lexome.tasks.evaluation.comparison import LoadedFile
from lexome.tasks.evaluation.scoring import compare


def _doc(*spans: tuple[str, int, tuple[str, ...]], id: str = "1") -> Document:
    text = "aaa bbb ccc ddd eee"
    own = (
        Span(f"T{number}", type, ((start, start + 3),), text[start : start + 3], concepts)
        for number, (type, start, concepts) in enumerate(spans, 1)
    )
    return Document(id, lay_out([("paragraph", text)]), tuple(own))


def _scores(predicted: Document, gold: Document) -> dict[tuple[str, str], float]:
    evaluation = compare(LoadedFile("p", (predicted,), None), LoadedFile("g", (gold,), None))
    return {
        (score.result.name, score.result.score): score.result.value
        for score in evaluation.scores
        if score.result.section == CONCEPTS
    }


GOLD = _doc(("Disease", 0, ("m:1",)), ("Disease", 4, ("m:1",)), ("Disease", 8, ("m:2", "m:3")), ("Gene", 12, ("g:1",)))


def test_equal_documents_have_all_concepts_right() -> None:
    assert set(_scores(GOLD, GOLD).values()) == {1.0}


def test_by_document_by_mention_and_accuracy() -> None:
    predicted = _doc(
        ("Disease", 0, ("m:1",)),  # right
        ("Disease", 8, ("m:3",)),  # right, m:2 missed
        ("Gene", 12, ("g:2",)),  # wrong
        ("Gene", 16, ("g:1",)),  # right for the document, at a wrong place
    )
    scores = _scores(predicted, GOLD)
    # Gold: m:1, m:2, m:3, g:1; predicted: m:1, m:3, g:1, g:2; three are right.
    assert scores["by document", "F1"] == pytest.approx(3 / 4)
    # Gold: five mentions with concepts; predicted: four; two are right.
    assert scores["by mention", "F1"] == pytest.approx(2 * 2 / (5 + 4))
    assert scores["gold mentions that are found", "accuracy@1"] == pytest.approx(2 / 3)


def test_no_scores_without_concepts() -> None:
    bare = replace(GOLD, spans=tuple(replace(span, concepts=()) for span in GOLD.spans))
    assert _scores(bare, GOLD) == {}
    assert _scores(GOLD, bare) == {}


def test_differences_name_both_concepts() -> None:
    predicted = _doc(("Disease", 0, ("m:9",)), ("Disease", 4, ()), ("Gene", 12, ("g:1",)))
    evaluation = compare(LoadedFile("p", (predicted,), None), LoadedFile("g", (GOLD,), None))
    own = [(one.kind, one.gold, one.predicted) for one in evaluation.differences if one.section == CONCEPTS]
    assert own == [("wrong concept", "m:1", "m:9"), ("not linked", "m:1", None)]


def test_accuracy_of_candidates() -> None:
    ranked = {"T1": ["m:9", "m:1"], "T2": ["m:1"], "T3": ["m:3"]}
    accuracy = linking_accuracy([GOLD], lambda doc: ranked, at=(1, 2))
    assert accuracy == {1: 2 / 4, 2: 3 / 4}
    assert linking_accuracy([GOLD], lambda doc: ranked, type="Disease", at=(2,)) == {2: 1.0}
    assert linking_accuracy([GOLD], lambda doc: ranked, at=(1,), same=lambda ids: {id[:1] for id in ids}) == {1: 3 / 4}
    assert linking_accuracy([], lambda doc: ranked) == {1: 0.0, 5: 0.0}
