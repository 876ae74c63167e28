"""Several models in one annotator: each reads what those before it have found, and what cannot work is refused."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from dictionary_models import dictionary_model
from errors import raises
from tiny_models import hf_model, tokenizer_folder

from lexome.document import Argument, Document, Passage, Question, Relation, Span
from lexome.errors import UsageError
from lexome.export.export import export
from lexome.infer.annotator import Annotator, Model
from lexome.tasks import Classes, DocumentRelations, Questions, Relations, Task

TEXT = "brca1 and tp53 . w1 melanoma . aspirin w2"
BINDS = Relations(["none", "binds"], none="none", pairs=[("Gene", "Gene")], scope="document")
HEADS = {
    "sequence": "BertForSequenceClassification",
    "span": "BertForQuestionAnswering",
    "token": "BertForTokenClassification",
}

Made = Callable[[str, Task], Model]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> Made:
    """Models with random weights for any task."""
    root = tmp_path_factory.mktemp("together")

    def model(name: str, task: Task) -> Model:
        names = dict(enumerate(task.labels))
        checkpoint = root / f"{name}-checkpoint"
        hf_model(HEADS[task.head], "bert", num_labels=len(names), id2label=names).save_pretrained(checkpoint)
        (checkpoint / "task.json").write_text(json.dumps(dict(task.settings())))
        export(tokenizer_folder(checkpoint), root / name)
        return Model.open(root / name, threads=1)

    return model


@pytest.fixture(scope="module")
def finder(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return Model.open(dictionary_model(tmp_path_factory.mktemp("finder") / "words"), threads=1)


@pytest.fixture(scope="module")
def binds(made: Made) -> Model:
    return made("binds", BINDS)


def asked(text: str = TEXT) -> Document:
    return Document("d", (Passage(0, text),), questions=(Question("q", "w1 ?", "factoid"),))


def test_each_model_says_what_it_says_alone_of_what_was_found_before(finder: Model, binds: Model, made: Made) -> None:
    classes, answers = made("classes", Classes(["good", "bad"])), made("answers", Questions())
    (doc,) = Annotator([answers, classes, binds, finder]).annotate([asked()])
    alone = asked()
    for model in (finder, binds, classes, answers):
        (alone,) = Annotator([model]).annotate([alone])
    assert doc == alone
    assert [span.text for span in doc.spans] == ["brca1", "tp53", "melanoma", "aspirin"]
    assert len(doc.labels) == 1
    assert doc.questions[0].answers


def test_models_work_in_an_order_that_serves_them(finder: Model, binds: Model) -> None:
    annotator = Annotator([binds, finder])
    assert [model.kind for model in annotator.models] == ["ner", "relation"]
    assert annotator.types == ("Gene", "Disease", "Chemical")
    about = annotator.about()
    assert [(one["task"], one["types"], one["labels"]) for one in about["models"]] == [
        ("ner", ["Gene", "Disease", "Chemical"], []),
        ("relation", [], ["none", "binds"]),
    ]
    json.dumps(about)


def test_relations_are_between_mentions_that_were_kept(finder: Model, binds: Model) -> None:
    annotator = Annotator([finder, binds])
    (doc,) = annotator.annotate([asked()], types=["Disease"])
    assert doc.relations == ()
    (doc,) = annotator.annotate([asked()], min_score={"Gene": 0.95})
    assert [span.text for span in doc.spans if span.type == "Gene"] == ["brca1"]
    assert doc.relations == ()


def test_relations_below_the_least_score_go_with_what_leans_on_them(finder: Model, binds: Model) -> None:
    selection = Annotator([finder, binds]).select(min_score={"binds": 0.5})
    spans = (Span("T1", "Gene", ((0, 5),), "brca1"), Span("T2", "Gene", ((10, 14),), "tp53"))
    sides = (Argument("a", "T1"), Argument("b", "T2"))
    weak, strong = Relation("R1", "binds", sides, score=0.4), Relation("R2", "binds", sides, score=0.6)
    outer = Relation("R3", "causes", (Argument("a", "R1"), Argument("b", "T1")))
    doc = Document("d", asked().passages, spans, (weak, strong, outer))
    assert selection.apply(binds.types, doc, doc).relations == (strong,)


def test_a_relation_model_alone_takes_documents_that_have_mentions(binds: Model, finder: Model) -> None:
    annotator = Annotator([binds])
    (doc,) = Annotator([finder]).annotate([asked()])
    assert annotator(doc).spans == doc.spans
    with raises(UsageError, code="missing-mentions", value="Gene"):
        annotator("brca1 and tp53")


def test_pairs_in_a_sentence_are_found_in_texts_without_sentences(finder: Model, made: Made) -> None:
    near = Relations(["none", "near"], none="none", pairs=[("Gene", "Disease"), ("Gene", "Gene")])
    model = made("near", near)
    (doc,) = Annotator([finder]).annotate([Document("d", (Passage(0, "Brca1 and tp53 bind. Melanoma grew."),))])
    assert [span.text for span in doc.spans] == ["Brca1", "tp53", "Melanoma"]
    assert [row.key for row in model.encode(doc)] == [("T1", "T2")]
    assert Annotator([model])(doc).passages == doc.passages


def test_missing_types_are_named(finder: Model, made: Made) -> None:
    treats = made("treats", Relations(["none", "treats"], none="none", pairs=[("Chemical", "Plant")]))
    with raises(UsageError, code="missing-mentions", value="Plant", mentions="treats"):
        Annotator([finder, treats])


def test_two_models_for_one_type_are_refused(finder: Model, tmp_path: Path) -> None:
    other = Model.open(dictionary_model(tmp_path / "other", {"rose": ("B-Gene", 6.0)}, types=("Gene",)), threads=1)
    with raises(UsageError, code="duplicate-type", value="Gene", mentions="words and other"):
        Annotator([finder, other])


def test_no_model_at_all_is_refused() -> None:
    with raises(UsageError, code="no-model"):
        Annotator([])


def test_one_pass_relates_the_mentions_that_another_model_found(finder: Model, made: Made) -> None:
    schema = {"name": "all", "labels": ["binds", "blocks"], "pairs": [["Gene", "Gene"], ["Gene", "Chemical"]]}
    task = DocumentRelations([schema], width=4)
    model = made("one-pass", task)
    doc = Annotator([model, finder])(TEXT)
    examples = model.encode(doc)
    assert len(examples) == 1
    assert doc.relations == model.decode(doc, examples, model.run(examples)).relations
    assert {relation.type for relation in doc.relations} <= {"binds", "blocks"}
    # Random weights relate some of the three pairs; which ones is up to them.
    assert len(doc.relations) <= 3
    with raises(UsageError, code="missing-mentions", value="Gene"):
        Annotator([model])("brca1 and tp53")
