"""Documents that the service was given at its start, by id: in a file of its own, with only their places in memory."""

import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from lexome.document import Document
from lexome.errors import FormatError
from lexome.formats import Tally, read
from lexome.formats.records.jsonl import from_json, to_json


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
