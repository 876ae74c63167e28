"""One queue for all: each request in its turn, rows of several together, and a failure that stays with its own."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise

import pytest
from errors import raises
from patience import PATIENCE_S
from services import BlockingModel, awaited

from lexome.document import Document
from lexome.infer.annotator import Annotator
from lexome.serve.limits import Limits, RequestError
from lexome.serve.queue import Queue

LIMITS = Limits()


@asynccontextmanager
async def working(threads: int, batch_tokens: int = 0) -> AsyncIterator[Queue]:
    queue = Queue(LIMITS, threads=threads, batch_tokens=batch_tokens)
    queue.start()
    try:
        yield queue
    finally:
        queue.close()


@asynccontextmanager
async def admitted_before_work(
    docs: list[Document], model: BlockingModel, annotator: Annotator, queue: Queue
) -> AsyncIterator[list[asyncio.Future[list[Document]]]]:
    """Requests, one of each document, that are all in the queue before its threads start."""
    queue._open = True
    waiting = [asyncio.ensure_future(queue.run([doc], [model], annotator.select())) for doc in docs]
    await asyncio.sleep(0)
    assert queue.documents == len(docs)
    queue.start()
    try:
        yield waiting
    finally:
        queue.close()


def documents(annotator: Annotator, count: int, words: int = 30) -> list[Document]:
    texts = (f"TP53 {'w1 w2 melanoma ' * (words // 3 + number)}" for number in range(count))
    return [replace(annotator.document(text), id=str(number)) for number, text in enumerate(texts)]


@pytest.mark.parametrize(("threads", "batch_tokens"), [(1, 0), (3, 0), (2, 300)])
def test_the_result_is_the_annotators_however_it_is_shared_out(
    annotator: Annotator, threads: int, batch_tokens: int
) -> None:
    docs = documents(annotator, 12, 200)

    async def run() -> list[list[Document]]:
        async with working(threads, batch_tokens) as queue:
            selection = annotator.select()
            return await asyncio.gather(*(queue.run(docs[n::4], annotator.models, selection) for n in range(4)))

    found = awaited(run())
    expected = list(annotator.annotate(docs))
    assert [doc for part in found for doc in part] == [doc for n in range(4) for doc in expected[n::4]]


async def happens(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, PATIENCE_S)


def test_a_short_request_waits_for_one_window_of_each_other(annotator: Annotator) -> None:
    model = BlockingModel(annotator.models[0])
    [long] = documents(annotator, 1, 6000)
    [short] = documents(annotator, 1, 3)

    async def run() -> None:
        async with working(1) as queue:
            first = asyncio.ensure_future(queue.run([long, long], [model], annotator.select()))
            await happens(model.started)
            second = asyncio.ensure_future(queue.run([short], [model], annotator.select()))
            await asyncio.sleep(0)  # it is in the queue now
            model.release.set()
            await second
            assert not first.done()
            await first

    awaited(run())
    lengths = [length for run in model.runs for length in run]
    assert len(lengths) > 150
    assert lengths.index(min(lengths)) <= 2


def test_requests_take_turns(annotator: Annotator, monkeypatch: pytest.MonkeyPatch) -> None:
    # Encoded by the worker itself, so that no other thread decides when a document has its windows.
    monkeypatch.setattr("lexome.serve.queue.LONG_CHARACTERS", 1 << 30)
    model = BlockingModel(annotator.models[0])
    model.release.set()
    docs = [annotator.document(f"w{number} " * 5000) for number in range(3)]

    async def run() -> None:
        async with admitted_before_work(docs, model, annotator, Queue(LIMITS, threads=1)) as waiting:
            await asyncio.gather(*waiting)

    awaited(run())
    turns = model.first_ids[len(model.first_ids) // 3 : -len(docs)]
    assert len(turns) > 100
    assert all(one != other for one, other in pairwise(turns))


def test_rows_of_several_clients_are_run_together(annotator: Annotator) -> None:
    model = BlockingModel(annotator.models[0])
    model.release.set()
    docs = documents(annotator, 8)

    async def run() -> None:
        queue = Queue(LIMITS, threads=1, batch_tokens=500)
        async with admitted_before_work(docs, model, annotator, queue) as waiting:
            await asyncio.gather(*waiting)

    awaited(run())
    assert max(map(len, model.runs)) > 1
    assert all(sum(run) <= 500 for run in model.runs if len(run) > 1)
    assert sum(map(len, model.runs)) == 8


def test_a_failure_is_an_answer_to_its_own_client(annotator: Annotator) -> None:
    docs = documents(annotator, 3)
    length = len(annotator.models[0].encode(docs[1])[0].ids)
    model = BlockingModel(annotator.models[0], fails=length)
    model.release.set()

    async def run() -> list[object]:
        async with working(2) as queue:
            requests = (queue.run([doc], [model], annotator.select()) for doc in docs)
            found = await asyncio.gather(*requests, return_exceptions=True)
            assert (queue.documents, queue.characters) == (0, 0)
            return found

    first, second, third = awaited(run())
    assert isinstance(first, list)
    assert isinstance(third, list)
    assert isinstance(second, RuntimeError)


def test_what_is_no_longer_awaited_is_not_done(annotator: Annotator) -> None:
    model = BlockingModel(annotator.models[0])
    [long] = documents(annotator, 1, 30_000)
    [short] = documents(annotator, 1, 3)
    assert len(model.encode(long)) > 100

    async def run() -> None:
        async with working(1) as queue:
            task = asyncio.ensure_future(queue.run([long], [model], annotator.select()))
            await happens(model.started)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (queue.documents, queue.characters) == (0, 0)
            model.release.set()
            await queue.run([short], [model], annotator.select())

    awaited(run())
    assert len(model.runs) == 2


def test_a_closed_queue_takes_nothing(annotator: Annotator) -> None:
    async def run() -> None:
        async with working(1) as queue:
            pass
        with raises(RequestError, code="http-503"):
            await queue.run(documents(annotator, 1), annotator.models, annotator.select())

    awaited(run())


def test_a_model_that_is_not_wanted_is_not_run(everything: Annotator) -> None:
    model = BlockingModel(everything.models[0])

    async def run() -> list[Document]:
        async with working(1) as queue:
            selection = everything.select(types=[])
            return await queue.run(documents(everything, 1), [model, *everything.models[2:]], selection)

    [doc] = awaited(run())
    assert model.runs == []
    assert doc.labels
