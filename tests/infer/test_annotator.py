"""The annotator says what the model says: torch's numbers through the task's own decoding, however long the text."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import hf_model, tokenizer_folder

from lexome.document import Document, Passage
from lexome.errors import CheckpointError, UsageError
from lexome.export.export import export
from lexome.infer.annotator import Annotator
from lexome.models.checkpoint import load
from lexome.models.packing import Packing
from lexome.tasks import Ner, Task

WORDS = [f"w{number}" for number in range(59)]
TASK = Ner(["Gene", "Disease"], overlap=8)


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> Path:
    """A token classifier with random weights, for rows of 40 tokens, and what its numbers mean."""
    folder = tmp_path_factory.mktemp("labelled") / "checkpoint"
    names = dict(enumerate(TASK.labels))
    model = hf_model("BertForTokenClassification", "bert", num_labels=len(names), id2label=names)
    model.save_pretrained(folder)
    (folder / "task.json").write_text(json.dumps(dict(TASK.settings())))
    return tokenizer_folder(folder)


@pytest.fixture(scope="module")
def annotator(labelled: Path) -> Annotator:
    export(labelled, labelled.with_name("onnx"))
    return Annotator.open(labelled.with_name("onnx"), threads=1)


def text_of(count: int, *, seed: int = 0) -> str:
    return " ".join(np.random.default_rng(seed).choice(WORDS, count))


def by_torch(folder: Path, annotator: Annotator) -> Callable[[Document], Document]:
    own = annotator.models[0]
    model, task = load(folder).model, own.task

    def annotated(doc: Document) -> Document:
        rows = task.encode(doc, own.predictor.tokens, own.frame, with_targets=False)
        with torch.inference_mode():
            logits = [model(torch.from_numpy(row.ids), Packing.of([len(row.ids)])).numpy() for row in rows]
        return task.decode(doc, rows, logits)

    return annotated


@pytest.mark.parametrize("count", [1, 12, 38, 39, 200])
def test_it_says_what_torch_says_at_any_length(annotator: Annotator, labelled: Path, count: int) -> None:
    doc = annotator(text_of(count))
    expected = by_torch(labelled, annotator)(Document("text", (Passage(0, text_of(count)),)))
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
    ("given", "said"),
    [
        ("w1 w2", r"a text; expected documents one after another. Call annotator\(it\)"),
        (Document("d"), r"one document; expected documents one after another. Call annotator\(it\)"),
        (b"w1 w2", r"a text in bytes; expected documents one after another. Decode it first"),
        (7, "a value of type int; expected documents one after another. Give a text to"),
        (None, "None; expected documents one after another. Give a text to"),
        (Path("a.xml"), "the path a.xml; expected documents one after another. Read it first: lexome.read"),
    ],
)
def test_what_is_not_several_documents_is_refused_at_once(annotator: Annotator, given: Any, said: str) -> None:
    with pytest.raises(UsageError, match=f"annotate was given {said}"):
        annotator.annotate(given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "None in place 3; expected documents one after another. Give"),
        ("w1 w2", r"a text in place 3; expected documents one after another. Make it one: annotator.document\(it\)"),
        (b"w1 w2", "a text in bytes in place 3; expected documents one after another. Decode it first"),
    ],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_what_is_no_document_among_others_is_refused_in_its_place(
    labelled: Path, annotator: Annotator, given: Any, said: str, threads: int
) -> None:
    several = Annotator.open(labelled.with_name("onnx"), threads=threads)
    found = several.annotate([Document("a"), Document("b"), given, Document("c")])
    assert [next(found).id, next(found).id] == ["a", "b"]
    with pytest.raises(UsageError, match=f"annotate was given {said}"):
        next(found)


@pytest.mark.parametrize("given", [b"w1 w2", None, 7, Path("a.xml"), ["w1 w2"]])
def test_what_is_no_text_and_no_document_is_refused(annotator: Annotator, given: Any) -> None:
    for call in (annotator, annotator.explain, annotator.document):
        with pytest.raises(UsageError, match="expected a text or a document"):
            call(given)


def test_a_model_without_a_task_is_refused(exported: Path) -> None:
    with pytest.raises(CheckpointError, match="that says no task"):
        Annotator.open(exported)


def test_a_task_that_is_none_is_refused_at_export(labelled: Path, tmp_path: Path) -> None:
    task: Task = TASK
    (labelled / "task.json").write_text('{"kind": "poetry"}')
    try:
        with pytest.raises(CheckpointError, match="describes no task"):
            export(labelled, tmp_path / "onnx")
    finally:
        (labelled / "task.json").write_text(json.dumps(dict(task.settings())))
    assert not (tmp_path / "onnx").exists()
