"""The annotator says what the model says: torch's numbers through the task's own decoding, however long the text."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from errors import raises
from tiny_models import hf_model, tokenizer_folder

from lexome.document import Document, Passage
from lexome.errors import CheckpointError, UsageError
from lexome.export.export import export
from lexome.infer.annotator import Annotator
from lexome.models.checkpoint import load
from lexome.models.encoder import Packing
from lexome.tasks import Ner, Task

WORDS = [f"w{number}" for number in range(59)]
TASK = Ner(["Gene", "Disease"], overlap=8)


@pytest.fixture(scope="module")
def labeled(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> Path:
    """A token classifier with random weights, for rows of 40 tokens, and what its numbers mean."""
    folder = tmp_path_factory.mktemp("labeled") / "checkpoint"
    names = dict(enumerate(TASK.labels))
    model = hf_model("BertForTokenClassification", "bert", num_labels=len(names), id2label=names)
    model.save_pretrained(folder)
    (folder / "task.json").write_text(json.dumps(dict(TASK.settings())))
    return tokenizer_folder(folder)


@pytest.fixture(scope="module")
def annotator(labeled: Path) -> Annotator:
    export(labeled, labeled.with_name("onnx"))
    return Annotator.open(labeled.with_name("onnx"), threads=1)


def text_of(count: int, *, seed: int = 0) -> str:
    return " ".join(np.random.default_rng(seed).choice(WORDS, count))


def by_torch(folder: Path, annotator: Annotator) -> Callable[[Document], Document]:
    own = annotator.models[0]
    model, task = load(folder).model, own.task

    def annotated(doc: Document) -> Document:
        rows = task.encode(doc, own.predictor.tokenizer, own.frame, with_targets=False)
        with torch.inference_mode():
            logits = [model(torch.from_numpy(row.ids), Packing.of([len(row.ids)])).numpy() for row in rows]
        return task.decode(doc, rows, logits)

    return annotated


@pytest.mark.parametrize("count", [1, 12, 38, 39, 200])
def test_it_says_what_torch_says_at_any_length(annotator: Annotator, labeled: Path, count: int) -> None:
    doc = annotator(text_of(count))
    expected = by_torch(labeled, annotator)(Document("text", (Passage(0, text_of(count)),)))
    assert [(span.parts, span.type) for span in doc.spans] == [(span.parts, span.type) for span in expected.spans]
    assert [span.score for span in doc.spans] == pytest.approx([span.score for span in expected.spans], abs=1e-4)
    assert all(doc.text[span.start : span.end] == span.text for span in doc.spans)


def test_random_weights_find_something(annotator: Annotator) -> None:
    assert annotator(text_of(200)).spans


@pytest.mark.parametrize(("batch_tokens", "together"), [(0, 2), (100, 3), (10_000, 64)])
def test_documents_together_are_as_documents_alone(annotator: Annotator, batch_tokens: int, together: int) -> None:
    docs = [Document(str(seed), (Passage(0, text_of(5 + 9 * seed, seed=seed)),)) for seed in range(7)]
    alone = [annotator(doc) for doc in docs]
    found = list(annotator.annotate(docs, batch_tokens=batch_tokens, together=together))
    assert [doc.id for doc in found] == [doc.id for doc in docs]
    for one, other in zip(alone, found, strict=True):
        assert [(span.parts, span.type) for span in one.spans] == [(span.parts, span.type) for span in other.spans]


def test_an_empty_text_has_nothing(annotator: Annotator) -> None:
    assert annotator("").spans == ()
    assert annotator(Document("d", (Passage(0, "  "),))).spans == ()


@pytest.mark.parametrize(
    ("argument", "hint"),
    [
        ("w1 w2", "annotator(it)"),
        (Document("d"), "annotator(it)"),
        (b"w1 w2", ".decode("),
        (7, "lexome.read"),
        (None, "lexome.read"),
        (Path("a.xml"), "a.xml"),
    ],
)
def test_an_argument_that_is_not_an_iterable_of_documents_is_refused_at_once(
    annotator: Annotator, argument: Any, hint: str
) -> None:
    with raises(UsageError, code="not-documents", value=argument, mentions=hint):
        annotator.annotate(argument)


@pytest.mark.parametrize(
    ("item", "hint"), [(None, "lexome.read"), (Path("a.xml"), "lexome.read"), (b"w1 w2", ".decode(")]
)
@pytest.mark.parametrize("threads", [1, 2])
def test_what_is_no_document_among_others_is_refused_in_its_place(
    labeled: Path, annotator: Annotator, item: Any, hint: str, threads: int
) -> None:
    several = Annotator.open(labeled.with_name("onnx"), threads=threads)
    found = several.annotate([Document("a"), Document("b"), item, Document("c")])
    assert [next(found).id, next(found).id] == ["a", "b"]
    with raises(UsageError, code="not-a-document", value=item, mentions=hint) as caught:
        next(found)
    assert "3" in str(caught.value)


@pytest.mark.parametrize("given", [b"w1 w2", None, 7, Path("a.xml"), {"text": "w1 w2"}])
def test_what_is_no_text_and_no_document_is_refused(annotator: Annotator, given: Any) -> None:
    for call in (annotator, annotator.explain, annotator.document):
        with raises(UsageError, code="not-a-document", value=given):
            call(given)


def test_only_annotated_documents_are_explained(annotator: Annotator) -> None:
    for call in (annotator.explain_concepts, annotator.explain_relations):
        with raises(UsageError, code="not-a-document", value="w1 w2"):
            call("w1 w2")  # type: ignore[operator]  # which is what is tested


def test_a_missing_value_of_pandas_is_named(annotator: Annotator) -> None:
    with pytest.raises(UsageError, match="NaN") as error:
        list(annotator.annotate(["w1 w2", float("nan")]))
    assert "dropna" in str(error.value)


def test_a_model_without_a_task_is_refused(exported: Path) -> None:
    with raises(CheckpointError, code="missing-task", value="masked"):
        Annotator.open(exported)


def test_a_task_that_is_none_is_refused_at_export(labeled: Path, tmp_path: Path) -> None:
    task: Task = TASK
    (labeled / "task.json").write_text('{"kind": "poetry"}')
    try:
        with raises(CheckpointError, code="not-a-task", value=labeled / "task.json"):
            export(labeled, tmp_path / "onnx")
    finally:
        (labeled / "task.json").write_text(json.dumps(dict(task.settings())))
    assert not (tmp_path / "onnx").exists()
