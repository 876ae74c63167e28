"""Labels of documents, inference and similarity: one answer a document, however long."""

import json

import numpy as np
import pytest
from errors import raises
from task_rows import frame, perfect, tokenizer

from lexome.document import Document, Passage, lay_out
from lexome.errors import BadDocument, CheckpointError, UsageError
from lexome.tasks import Classes, Inference, Similarity, Task, task_of


def labeled(*labels: str, text: str = "the gene") -> Document:
    return Document("d", lay_out((("abstract", text),)), labels=labels)


def paired(label: str, first: str = "the gene", second: str = "the disease") -> Document:
    return Document("d", lay_out((("sentence", first), ("sentence", second))), labels=(label,))


def again(task: Task, doc: Document, size: int = 32) -> Document:
    rows = task.encode(doc, tokenizer(), frame(size), with_targets=True)
    return task.decode(doc, rows, perfect(task, rows))


@pytest.mark.parametrize("text", ["the gene", "the gene " * 100])
def test_one_label_comes_back_from_any_length(text: str) -> None:
    assert again(Classes(["a", "b", "c"]), labeled("b", text=text)).labels == ("b",)


@pytest.mark.parametrize("labels", [(), ("a",), ("c", "a")])
def test_several_labels_come_back_in_the_tasks_order(labels: tuple[str, ...]) -> None:
    found = again(Classes(["a", "b", "c"], several=True), labeled(*labels, text="the gene " * 100))
    assert found.labels == tuple(sorted(labels))


@pytest.mark.parametrize(("pool", "expected"), [("mean", ()), ("max", ("a",))])
def test_windows_vote_or_one_is_enough(pool: str, expected: tuple[str, ...]) -> None:
    task = task_of({"kind": "classes", "labels": ["a"], "several": True, "pool": pool})
    doc = labeled(text="the gene " * 20)
    rows = task.encode(doc, tokenizer(), frame(32), with_targets=False)
    assert task.decode(doc, rows, [np.array([2.0]), np.array([-9.0])]).labels == expected


def test_labels_have_their_probabilities() -> None:
    doc = labeled()
    for several, expected in ((False, {"b": 0.75}), (True, {"a": 0.5, "b": 0.75})):
        task = Classes(["a", "b"], several=several)
        rows = task.encode(doc, tokenizer(), frame(), with_targets=False)
        found = task.decode(doc, rows, [np.array([0.0, np.log(3)])])
        assert dict(zip(found.labels, found.label_scores, strict=True)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("settings", "code", "here"),
    [
        ({"kind": "token-classification"}, "unknown-task", "ner"),
        ({"kind": "clases"}, "unknown-task", "classes"),
        ({"kind": "classes", "labels": ["a"], "multi_label": True}, "unknown-key", "several"),
        ({"kind": "ner", "entity_types": ["A"]}, "unknown-key", "types"),
        ({"kind": "ner", "types": ["A"], "nestd": True}, "unknown-key", "nested"),
    ],
)
def test_names_of_other_libraries_and_misspelled_ones_are_answered(
    settings: dict[str, object], code: str, here: str
) -> None:
    with raises(UsageError, code=code, mentions=repr(here)):
        task_of(settings)


def test_a_threshold_is_a_probability() -> None:
    doc = labeled()
    for threshold, expected in ((0.2, ("a",)), (0.4, ())):
        task = Classes(["a"], several=True, threshold=threshold)
        rows = task.encode(doc, tokenizer(), frame(), with_targets=False)
        assert task.decode(doc, rows, [np.array([np.log(0.3 / 0.7)])]).labels == expected


@pytest.mark.parametrize(
    ("labels", "code"), [(("x",), "unknown_label"), ((), "no_label"), (("a", "b"), "several_labels")]
)
def test_a_label_that_is_not_in_the_scheme_is_refused(labels: tuple[str, ...], code: str) -> None:
    with raises(BadDocument, code=code):
        Classes(["a", "b"]).encode(labeled(*labels), tokenizer(), frame(), with_targets=True)


def test_no_label_may_mean_one() -> None:
    (row,) = Classes(["a", "b"], empty="b").encode(labeled(), tokenizer(), frame(), with_targets=True)
    assert row.targets is not None
    assert row.targets.tolist() == [1]


def test_a_document_without_text_is_still_answered() -> None:
    task = Classes(["a", "b"])
    doc = Document("d", labels=("b",))
    assert again(task, doc).labels == ("b",)
    assert task.notes["document without text"] == 1


def test_numbers_for_other_labels_are_refused() -> None:
    task = Classes(["a", "b"])
    rows = task.encode(labeled(), tokenizer(), frame(), with_targets=False)
    with raises(UsageError, code="shape-mismatch", value=(3,)):
        task.decode(labeled(), rows, [np.zeros(3)])
    with raises(CheckpointError, code="not-finite", value="d"):
        task.decode(labeled(), rows, [np.array([0, np.nan])])
    with raises(UsageError, code="length-mismatch", value=(1, 0)):
        task.decode(labeled(), rows, [])


def test_scores_count_the_labels_that_are_scored() -> None:
    task = Classes(["none", "a"], scored=["a"])
    gold = [labeled("a"), labeled("a"), labeled("none"), labeled("none")]
    found = [labeled("a"), labeled("none"), labeled("none"), labeled("none")]
    scores = task.score(gold, found)
    assert next(iter(scores)) == "f1"
    assert (scores["f1"], scores["recall"], scores["accuracy"]) == (pytest.approx(2 / 3), 0.5, 0.75)


def test_scores_of_several_labels_and_of_examples() -> None:
    task = Classes(["a", "b"], several=True, average="examples")
    scores = task.score([labeled("a", "b"), labeled("b")], [labeled("a"), labeled("b")])
    assert next(iter(scores)) == "example_f1"
    assert scores["example_f1"] == pytest.approx(2 * 1 * 0.75 / 1.75)
    assert scores["f1"] == pytest.approx(0.8)
    assert scores["accuracy"] == 0.5


@pytest.mark.parametrize("second", ["the disease", "the disease of cancer " * 40])
@pytest.mark.parametrize("first", ["the gene", "the gene and " * 40])
def test_inference_comes_back_from_pairs_of_any_length(first: str, second: str) -> None:
    assert again(Inference(), paired("neutral", first, second)).labels == ("neutral",)


def test_the_second_text_of_a_pair_is_its_second_segment() -> None:
    (row,) = Inference().encode(paired("neutral"), tokenizer(), frame(), with_targets=True)
    assert row.ids.tolist()[0] == 1
    assert row.segments.tolist() == [0, 0, 0, 0, 1, 1, 1]
    (row,) = Inference().encode(paired("neutral"), tokenizer(), frame(segments=False), with_targets=True)
    assert set(row.segments.tolist()) == {0}


def test_inference_needs_two_passages() -> None:
    with raises(BadDocument, code="not_a_pair"):
        Inference().encode(labeled("neutral"), tokenizer(), frame(), with_targets=True)


def test_inference_is_scored_by_accuracy() -> None:
    scores = Inference().score([paired("neutral"), paired("entailment")], [paired("neutral"), paired("neutral")])
    assert next(iter(scores)) == "accuracy"
    assert scores["accuracy"] == 0.5


@pytest.mark.parametrize("number", ["0", "3.4", "5"])
def test_similarity_comes_back(number: str) -> None:
    assert float(again(Similarity(), paired(number)).labels[0]) == pytest.approx(float(number))


def test_a_number_beyond_the_scale_is_refused_and_never_said() -> None:
    doc = paired("5.5")
    with raises(BadDocument, code="bad_number", mentions="5.5"):
        Similarity().encode(doc, tokenizer(), frame(), with_targets=True)
    rows = Similarity().encode(doc, tokenizer(), frame(), with_targets=False)
    assert Similarity().decode(doc, rows, [np.array([1.3])]).labels == ("5",)


@pytest.mark.parametrize("label", ["much", "nan"])
def test_a_label_that_is_no_number_is_refused(label: str) -> None:
    with raises(BadDocument, code="not_a_number", mentions=label):
        Similarity().encode(paired(label), tokenizer(), frame(), with_targets=True)


def test_similarity_is_scored_by_correlation() -> None:
    gold = [paired("1"), paired("2"), paired("3")]
    scores = Similarity().score(gold, [paired("1"), paired("3"), paired("5")])
    assert scores == {"pearson": pytest.approx(1), "spearman": pytest.approx(1)}


@pytest.mark.parametrize(
    "settings",
    [
        {"kind": "ner", "types": ["A", "B"], "nested": True, "annotated": {"x": ["A"]}, "labelling": "words"},
        {"kind": "relation", "labels": ["n", "a"], "none": "n", "pairs": [["A", "B"]], "masks": {"A": "@A$"}},
        {"kind": "classes", "labels": ["a", "b"], "several": True, "scored": ["a"]},
        {"kind": "inference", "labels": ["a", "b"]},
        {"kind": "similarity", "low": 1.0},
        {"kind": "questions", "form": "yesno", "says": ["yes", "no", "maybe"]},
    ],
)
def test_settings_make_the_same_task_again(settings: dict[str, object]) -> None:
    task = task_of(settings)
    held = json.loads(json.dumps(task.settings()))
    made = task_of(held)
    assert made.settings() == held == {**held, **settings}
    assert (made.head, made.loss, made.labels, made.groups) == (task.head, task.loss, task.labels, task.groups)


@pytest.mark.parametrize(
    ("settings", "code", "value"),
    [
        ({}, "unknown-task", None),
        ({"kind": "ne"}, "unknown-task", "ne"),
        ({"kind": "ner"}, "missing-key", "types"),
        ({"kind": "ner", "types": ["A"], "typos": 1}, "unknown-key", "typos"),
        ({"kind": "classes", "labels": ["a"], "threshold": 2}, "out-of-range", 2),
        ({"kind": "classes", "labels": ["a"], "scored": ["b"]}, "invalid-choice", "b"),
        ({"kind": "similarity", "low": 5, "high": 1}, "out-of-range", (5, 1)),
        ({"kind": "similarity", "overlap": -1}, "out-of-range", -1),
        ({"kind": "questions", "form": "why"}, "invalid-choice", "why"),
        ({"kind": "questions", "kept": 0}, "out-of-range", 0),
    ],
)
def test_settings_that_are_not_known_are_refused(settings: dict[str, object], code: str, value: object) -> None:
    with raises(UsageError, code=code, value=value):
        task_of(settings)


def test_rows_of_one_text_name_no_place_for_special_tokens() -> None:
    (row,) = Classes(["a"]).encode(Document("d", (Passage(7, "the gene"),)), tokenizer(), frame(), with_targets=False)
    assert row.starts.tolist() == [-1, 7, 11, -1]
    assert row.targets is None
