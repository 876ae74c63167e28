"""Selection by type and minimum score, and what depends on the mentions that are left out."""

from copy import copy
from dataclasses import replace
from pathlib import Path

import pytest
from dictionary_models import WORDS, dictionary_model
from errors import raises

from lexome.document import Argument, Attribute, Document, Passage, Relation, Span
from lexome.errors import UsageError
from lexome.infer.annotator import Annotator, Model

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
    with raises(UsageError, code="unknown-type", value="Plant", mentions="Gene, Disease, Chemical"):
        annotator.annotate([DOC], **asked)  # type: ignore[arg-type]


def test_a_type_under_another_name_is_told_by_ours(annotator: Annotator) -> None:
    with raises(UsageError, code="unknown-type", value="Proteins", mentions="Use 'Gene'"):
        annotator.annotate([DOC], types=["Proteins"])


@pytest.mark.parametrize("least", [-0.1, 1.5, float("nan"), {"Gene": 2.0}])
def test_a_least_score_that_is_none_is_refused(annotator: Annotator, least: float | dict[str, float]) -> None:
    with raises(UsageError, code="invalid-score"):
        annotator.annotate([DOC], min_score=least)


def test_a_model_that_is_not_asked_is_not_run(annotator: Annotator, tmp_path: Path) -> None:
    other = dictionary_model(tmp_path / "plants", {"rose": ("B-Plant", 6.0)}, types=("Plant",))
    both = Annotator([*annotator.models, *Annotator.open(other, threads=1).models])
    selection = both.select(types=["Plant"])
    assert [selection.needs(model.types) for model in both.models] == [False, True]
    (doc,) = both.annotate([Document("d", (Passage(0, "brca1 of a rose"),))], types=["Plant"])
    assert found(doc) == ["rose"]


# Types that are found only by name


EXTRA = {**WORDS, "mice": ("B-Species", 5.0), "liver": ("B-Tissue", 5.0)}
EXTRA_TEXT = "brca1 in the liver of mice with breast cancer"


@pytest.fixture(scope="module", params=[False, True], ids=["one group", "nested"])
def more(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Annotator:
    """A model that finds two types only where they are asked for."""
    folder = tmp_path_factory.mktemp("extra") / "words"
    types = ("Gene", "Species", "Disease", "Chemical", "Tissue")
    made = dictionary_model(folder, EXTRA, types=types, extra=("Species", "Tissue"), nested=request.param)
    return Annotator.open(made, threads=1)


def test_extra_types_are_found_only_by_name(more: Annotator) -> None:
    assert more.types == ("Gene", "Disease", "Chemical")
    assert more.extra_types == ("Species", "Tissue")
    assert found(more(EXTRA_TEXT)) == ["brca1", "breast cancer"]
    for types, expected in (
        (["Species"], ["mice"]),
        (["Tissue", "Gene"], ["brca1", "liver"]),
        ([*more.types, *more.extra_types], ["brca1", "liver", "mice", "breast cancer"]),
    ):
        (doc,) = more.annotate([Document("d", (Passage(0, EXTRA_TEXT),))], types=types)
        assert found(doc) == expected


def test_the_models_facts_tell_extra_types_apart(more: Annotator) -> None:
    about = more.about()
    for facts in (about, about["models"][0]):
        assert facts["types"] == ["Gene", "Disease", "Chemical"]
        assert facts["extra_types"] == ["Species", "Tissue"]


def test_mentions_of_an_extra_type_stay_where_it_is_not_asked_for(more: Annotator) -> None:
    there = Span("T1", "Species", ((6, 8),), "in", score=0.5)
    given = Document("d", (Passage(0, EXTRA_TEXT),), (there,))
    (doc,) = more.annotate([given])
    assert found(doc) == ["in", "brca1", "breast cancer"]
    assert there in doc.spans
    (doc,) = more.annotate([given], types=["Species"])
    assert found(doc) == ["mice"]


def test_a_least_score_may_be_one_of_an_extra_type(more: Annotator) -> None:
    (doc,) = more.annotate([Document("d", (Passage(0, EXTRA_TEXT),))], types=["Species"], min_score={"Species": 0.999})
    assert found(doc) == []
    (doc,) = more.annotate([Document("d", (Passage(0, EXTRA_TEXT),))], min_score={"Species": 0.1})
    assert found(doc) == ["brca1", "breast cancer"]


def test_an_unknown_type_is_refused_with_both_kinds_of_types(more: Annotator) -> None:
    with raises(UsageError, code="unknown-type", value="Plant", mentions="Species, Tissue"):
        more.select(types=["Plant"])


def test_nothing_is_explained_of_extra_types_that_nobody_asked_for(more: Annotator) -> None:
    assert more.explain(EXTRA_TEXT) == []
    why = [(one.text, one.why) for one in more.explain(EXTRA_TEXT, types=["Species"], min_score=0.999)]
    assert [text for text, _ in why] == ["brca1", "mice", "breast cancer"]
    assert "is below 0.999" in why[1][1]


def test_scores_of_mentions_that_were_there_are_not_calibrated(more: Annotator) -> None:
    (model,) = more.models
    settings = replace(model.settings, calibration={"Species": (0.0, -1.0)})
    predictor = copy(model.predictor)
    predictor.settings = settings
    there = Span("T1", "Species", ((6, 8),), "in", score=0.5)
    given = Document("d", (Passage(0, EXTRA_TEXT),), (there,))
    annotator = Annotator([Model(predictor, model.task)])
    (doc,) = annotator.annotate([given])
    assert there in doc.spans
    (doc,) = annotator.annotate([given], types=["Species"])
    assert [span.score for span in doc.spans] == [pytest.approx(0.2689, abs=1e-4)]
