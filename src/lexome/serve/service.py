"""What the routes share: the annotator, the queue, the documents, and a bound on how long any answer takes."""

import asyncio
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, TypeVar

from starlette.requests import Request

from lexome.document import Document
from lexome.errors import FormatError
from lexome.formats import Tally, read
from lexome.formats.jsonl import from_json, to_json
from lexome.infer.annotator import Annotator, Model
from lexome.serve.limits import CLIENT_CLOSED, Limits, RequestError
from lexome.serve.metrics import Metrics
from lexome.serve.payloads import readable, writable
from lexome.serve.queue import Queue


class Library:
    """Documents by PubMed id, and by their own id.

    They stand in a temporary file that has no name, so memory holds a hundred bytes a document however long they are.
    """

    def __init__(self) -> None:
        self.documents = 0
        self._places: dict[str, tuple[int, int]] = {}
        self._file: IO[bytes] | None = None
        self._lock = threading.Lock()

    @classmethod
    def of(cls, docs: Iterable[Document]) -> "Library":
        """A library of these documents; of two with one id, the first."""
        library = cls()
        library._file = file = tempfile.TemporaryFile(prefix="lexome-")  # noqa: SIM115  # open as long as it is served
        end = 0
        for doc in docs:
            raw = to_json(doc)
            file.write(raw)
            for name in {doc.id, doc.meta.pmid or doc.id}:
                library._places.setdefault(name, (end, len(raw)))
            end += len(raw)
            library.documents += 1
        return library

    @classmethod
    def open(cls, path: Path, tally: Tally) -> "Library":
        """All documents of a folder or file, in any format."""
        library = cls.of(read(path, tally=tally))
        if not library.documents:
            library.close()
            raise FormatError(f"{path}: there are no documents in it; expected some to answer from.")
        return library

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def size(self, names: Iterable[str]) -> int:
        """How many bytes documents have as JSON."""
        return sum(self._places[name][1] for name in names)

    def __getitem__(self, name: str) -> Document:
        start, size = self._places[name]
        assert self._file is not None
        with self._lock:
            self._file.seek(start)
            raw = self._file.read(size)
        return from_json(raw)

    def close(self) -> None:
        """Give the file back."""
        if self._file is not None:
            self._file.close()


Made = TypeVar("Made")

# Below this a body is read, and an answer written, in less time than another thread is woken in.
SMALL = 1 << 16
# Threads that read large bodies and write large answers: so few that such clients wait for each other, not all others.
READERS = 2


class Service:
    """An annotator at work for many clients at once."""

    def __init__(
        self, annotator: Annotator, *, library: Library, limits: Limits, threads: int, batch_tokens: int = 0
    ) -> None:
        self.annotator, self.library, self.limits = annotator, library, limits
        self.metrics = Metrics()
        self.queue = Queue(limits, threads=threads, batch_tokens=batch_tokens)
        self.ready = False
        self._readers = ThreadPoolExecutor(READERS, "lexome-read")

    def start(self) -> None:
        """Begin to work."""
        self.queue.start()
        self.ready = True

    def close(self) -> None:
        """End the work, and give back what was held."""
        self.ready = False
        self.queue.close()
        self._readers.shutdown(cancel_futures=True)
        self.library.close()

    def about(self) -> dict[str, Any]:
        """The models' facts, and what may be asked of this service."""
        limits = self.limits
        bounds = {
            "body_bytes": limits.body_bytes,
            "documents": limits.documents,
            "characters": limits.characters,
            "seconds": limits.answer_s,
        }
        held = {"formats": writable(), "reads": readable(), "limits": bounds, "documents": self.library.documents}
        return {**self.annotator.about(), **held}

    def models(self, *kinds: str) -> Sequence[Model]:
        """The models of some kinds; of all, where none is named."""
        return [model for model in self.annotator.models if not kinds or model.kind in kinds]

    async def annotated(
        self,
        docs: Sequence[Document],
        models: Sequence[Model],
        *,
        types: Sequence[str] | None = None,
        min_score: float | None = None,
    ) -> list[Document]:
        """The documents with what models say of them."""
        return await self.queue.run(docs, models, self.annotator.select(types=types, min_score=min_score))

    async def apart(self, size: int, work: Callable[[], Made]) -> Made:
        """What `work` on so many bytes gives, from another thread where it may take long."""
        if size <= SMALL:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._readers, work)

    async def in_time(self, request: Request, work: Awaitable[Made]) -> Made:
        """The result of `work`; RequestError on a timeout or shutdown, cancelled if the client disconnects."""
        task = asyncio.ensure_future(work)
        watch = asyncio.ensure_future(_gone(request))
        try:
            await asyncio.wait({task, watch}, timeout=self.limits.answer_s, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
        except asyncio.CancelledError:
            # Nobody but the server cancels a request: when it was told to stop, and has waited long enough.
            raise RequestError(
                503, "the service is stopping, and has no more time for this. Try again elsewhere."
            ) from None
        finally:
            task.cancel()
            watch.cancel()
        if watch.done():
            raise RequestError(CLIENT_CLOSED, "the client has gone.")
        raise RequestError(
            503,
            f"no answer within {self.limits.answer_s:g} s. Send less text at a time, or try again when less is asked.",
            retry_after_s=5,
        )


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
