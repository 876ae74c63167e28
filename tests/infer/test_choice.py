"""Only what is asked for is found: types, least scores, and what leans on them."""

from pathlib import Path

import pytest
from dictionary_models import dictionary_model

from lexome.document import Argument, Attribute, Document, Passage, Relation, Span
from lexome.errors import UsageError
from lexome.infer.annotator import Annotator

TEXT = "brca1 and tp53 in breast cancer with aspirin"
DOC = Document("d", (Passage(0, TEXT),))


@pytest.fixture(scope="module")
def annotator(tmp_path_factory: pytest.TempPathFactory) -> Annotator:
    return Annotator.open(dictionary_model(tmp_path_factory.mktemp("choice") / "words"), threads=1)


def found(doc: Document) -> list[str]:
    return [span.text for span in doc.spans]


def test_all_types_are_found_at_once(annotator: Annotator) -> None:
    assert annotator.types == ("Gene", "Disease", "Chemical")
    assert found(annotator(TEXT)) == ["brca1", "tp53", "breast cancer", "aspirin"]


@pytest.mark.parametrize(
    ("types", "expected"),
    [(["Disease"], ["breast cancer"]), (("Chemical", "Gene"), ["brca1", "tp53", "aspirin"]), ([], [])],
)
def test_types_that_are_asked_for(annotator: Annotator, types: list[str], expected: list[str]) -> None:
    (doc,) = annotator.annotate([DOC], types=types)
    assert found(doc) == expected
    assert [span.id for span in doc.spans] == [f"T{number + 1}" for number in range(len(expected))]


def test_the_least_score_of_all_or_by_type(annotator: Annotator) -> None:
    # The words' logits are 6, 4, 5 and 2.5 among seven tags: 0.99, 0.90, 0.96 and 0.67.
    for least, expected in (
        (0.0, ["brca1", "tp53", "breast cancer", "aspirin"]),
        (0.8, ["brca1", "tp53", "breast cancer"]),
        (0.98, ["brca1"]),
        ({"Gene": 0.95}, ["brca1", "breast cancer", "aspirin"]),
        ({"Chemical": 0.99, "Disease": 0.99}, ["brca1", "tp53"]),
    ):
        (doc,) = annotator.annotate([DOC], min_score=least)
        assert found(doc) == expected


def test_mentions_that_were_there_go_where_their_type_is_asked_for(annotator: Annotator) -> None:
    spans = (Span("T1", "Gene", ((10, 14),), "tp53"), Span("T2", "Disease", ((18, 24),), "breast"))
    relation = Relation("R1", "causes", (Argument("Cause", "T1"), Argument("Effect", "T2")))
    given = Document("d", DOC.passages, spans, (relation,), (Attribute("A1", "T2", "Negation"),))
    (doc,) = annotator.annotate([given], types=["Gene"])
    assert [(span.type, span.text) for span in doc.spans] == [
        ("Disease", "breast"),
        ("Gene", "brca1"),
        ("Gene", "tp53"),
    ]
    assert doc.relations == ()
    assert [attribute.target for attribute in doc.attributes] == ["T2"]
    (doc,) = annotator.annotate([given])
    assert found(doc) == ["brca1", "tp53", "breast cancer", "aspirin"]
    assert doc.attributes == ()


def test_mentions_of_a_type_that_is_not_asked_for_stay_where_the_model_finds_none(annotator: Annotator) -> None:
    given = Document("d", (Passage(0, "brca1 in mice"),), (Span("T1", "Disease", ((9, 13),), "mice"),))
    (doc,) = annotator.annotate([given], types=["Gene"])
    assert [(span.type, span.text) for span in doc.spans] == [("Disease", "mice"), ("Gene", "brca1")]


@pytest.mark.parametrize(
    "asked", [{"types": ["Plant"]}, {"types": "Plant"}, {"min_score": {"Plant": 0.5}}, {"types": ["Gene", "Plant"]}]
)
def test_a_type_that_no_model_knows_is_refused_at_once(annotator: Annotator, asked: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="'Plant' is asked for; expected some of Gene, Disease, Chemical"):
        annotator.annotate([DOC], **asked)  # type: ignore[arg-type]


@pytest.mark.parametrize("least", [-0.1, 1.5, float("nan"), {"Gene": 2.0}])
def test_a_least_score_that_is_none_is_refused(annotator: Annotator, least: float | dict[str, float]) -> None:
    with pytest.raises(UsageError, match="expected a number from 0 to 1"):
        annotator.annotate([DOC], min_score=least)


def test_a_model_that_is_not_asked_is_not_run(annotator: Annotator, tmp_path: Path) -> None:
    other = dictionary_model(tmp_path / "plants", {"rose": ("B-Plant", 6.0)}, types=("Plant",))
    both = Annotator([*annotator.models, *Annotator.open(other, threads=1).models])
    choice = both.choice(types=["Plant"])
    assert [choice.wants(model) for model in both.models] == [False, True]
    (doc,) = both.annotate([Document("d", (Passage(0, "brca1 of a rose"),))], types=["Plant"])
    assert found(doc) == ["rose"]
