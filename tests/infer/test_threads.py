"""Documents on several threads: the same results in the same order, and no thread left behind."""

import shutil
import threading
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

import pytest
from dictionary_models import TYPES, dictionary_model
from errors import raises

from lexome.document import Document, Passage
from lexome.errors import UsageError
from lexome.infer.annotator import GROUP, PREFETCH, Annotator

WORDS = ("brca1", "in", "breast", "cancer", "of", "w1", "melanoma", "tp53", "cancer", "aspirin")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return dictionary_model(tmp_path_factory.mktemp("threads") / "words", nested=True)


@pytest.fixture
def annotator(folder: Path) -> Annotator:
    return Annotator.open(folder, threads=2)


@pytest.fixture(params=[1, 2])
def any_annotator(folder: Path, request: pytest.FixtureRequest) -> Annotator:
    return Annotator.open(folder, threads=request.param)


def document(number: int) -> Document:
    """Documents of very different lengths, every fifth of them without a word."""
    words = [WORDS[(number * 7 + place * place) % len(WORDS)] for place in range(number % 5 * 90)]
    return Document(str(number), (Passage(0, " ".join(words)),))


def running() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("lexome-annotate")]


@pytest.mark.parametrize("threads", [2, 3, 8])
def test_any_number_of_threads_gives_the_same_documents(folder: Path, threads: int) -> None:
    docs = [document(number) for number in range(40)]
    one, several = (Annotator.open(folder, threads=number) for number in (1, threads))
    assert list(several.annotate(docs)) == list(one.annotate(docs)) == [one(doc) for doc in docs]
    assert any(doc.spans for doc in several.annotate(docs, types=TYPES[:1]))
    assert running() == []


def test_tokens_are_counted_by_all_threads_together(folder: Path) -> None:
    docs = [document(number) for number in range(40)]
    counted = []
    for threads in (1, 4):
        annotator = Annotator.open(folder, threads=threads)
        list(annotator.annotate(docs))
        annotator.explain(docs[1])
        counted.append(annotator.tokens_run)
    assert counted[0] == counted[1] > 0


def test_documents_are_taken_a_few_at_a_time(annotator: Annotator) -> None:
    taken = []

    def given() -> Iterator[Document]:
        for number in count():
            taken.append(number)
            yield document(number)

    found = annotator.annotate(given())
    for number, doc in enumerate(islice(found, 20)):
        assert doc.id == str(number)
        assert len(taken) <= number + PREFETCH * annotator.threads
    assert len(running()) == 2
    found.close()  # type: ignore[attr-defined]
    assert running() == []


def test_one_thread_takes_a_few_and_gives_them_before_it_takes_more(folder: Path) -> None:
    taken = []

    def given() -> Iterator[Document]:
        for number in count():
            taken.append(number)
            yield document(number)

    found = Annotator.open(folder, threads=1).annotate(given())
    for number, doc in enumerate(islice(found, 3 * GROUP)):
        assert doc.id == str(number)
        assert len(taken) == (number // GROUP + 1) * GROUP


def test_a_document_that_cannot_be_read_is_told_after_those_before_it(any_annotator: Annotator) -> None:
    def given(good: int) -> Iterator[Document]:
        yield from map(document, range(good))
        raise ValueError("a bad file")

    for good in (0, 1, 2, 9):
        found = any_annotator.annotate(given(good))
        assert [doc.id for doc in islice(found, good)] == [str(number) for number in range(good)]
        with pytest.raises(ValueError, match="a bad file"):
            next(found)
    assert running() == []


def test_what_a_model_cannot_work_on_is_told_at_its_place(any_annotator: Annotator) -> None:
    bad = Document("bad", ("no passage",))  # type: ignore[arg-type]
    found = any_annotator.annotate([document(1), document(2), bad, document(3)])
    assert [next(found).id, next(found).id] == ["1", "2"]
    with pytest.raises(AttributeError):
        next(found)
    assert list(found) == []
    assert running() == []


def test_one_document_alone_has_all_threads_and_takes_no_more_memory(annotator: Annotator) -> None:
    assert annotator.threads == annotator.models[0].predictor.threads == 2
    annotator("brca1 in breast cancer")
    assert "_single_threaded_models" not in vars(annotator)
    list(annotator.annotate([document(1), document(2)]))
    assert [model.predictor.threads for model in annotator._single_threaded_models] == [1]


@pytest.mark.parametrize("change", ["gone", "another"])
def test_a_model_whose_file_has_changed_since_stays_the_model_that_was_opened(
    folder: Path, tmp_path: Path, change: str
) -> None:
    copied = tmp_path / "model"
    shutil.copytree(folder, copied)
    opened = Annotator.open(copied, threads=2)
    if change == "gone":
        shutil.rmtree(copied)
    else:
        (copied / "model.onnx").write_bytes(b"something else")
    docs = [document(number) for number in range(6)]
    assert list(opened.annotate(docs)) == [opened(doc) for doc in docs]


def test_no_documents_together_is_refused(annotator: Annotator) -> None:
    with raises(UsageError, code="too-few", value=0):
        annotator.annotate([document(1)], batch_tokens=100, together=0)
