"""What the routes share: the annotator, the queue, the documents, and a bound on how long any answer takes."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from starlette.requests import Request

from lexome.document import Document
from lexome.infer.annotator import Annotator
from lexome.infer.model import Model
from lexome.serve.answers import writable
from lexome.serve.bodies import readable
from lexome.serve.library import Library
from lexome.serve.limits import GONE, Limits, Refused
from lexome.serve.metrics import Metrics
from lexome.serve.queue import Queue

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
        return await self.queue.run(docs, models, self.annotator.choice(types=types, min_score=min_score))

    async def apart(self, size: int, work: Callable[[], Made]) -> Made:
        """What `work` on so many bytes gives, from another thread where it may take long."""
        if size <= SMALL:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._readers, work)

    async def in_time(self, request: Request, work: Awaitable[Made]) -> Made:
        """What `work` gives; Refused where it takes too long or the service ends, stopped where the client has gone."""
        task = asyncio.ensure_future(work)
        watch = asyncio.ensure_future(_gone(request))
        try:
            await asyncio.wait({task, watch}, timeout=self.limits.answer_s, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
        except asyncio.CancelledError:
            # Nobody but the server cancels a request: when it was told to stop, and has waited long enough.
            raise Refused(503, "the service is stopping, and has no more time for this. Try again elsewhere.") from None
        finally:
            task.cancel()
            watch.cancel()
        if watch.done():
            raise Refused(GONE, "the client has gone.")
        raise Refused(
            503,
            f"no answer within {self.limits.answer_s:g} s. Send less text at a time, or try again when less is asked.",
            retry_after_s=5,
        )


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
