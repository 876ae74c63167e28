"""What became of everything that was read: counts, notes, and documents set aside with their reason."""

import base64
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Self, TypeVar

from lexome.document import Document
from lexome.errors import BadDocument, FormatError

Made = TypeVar("Made")

# The reason that stands for a file which broke inside an archive.
BROKEN_FILE = "broken_file"

# A rejected document is kept whole up to this size; a larger one is named by its place alone.
KEPT_BYTES = 1 << 20


class Tally:
    """Counts of one reading or writing, and the place where rejected documents go.

    Without `rejects` the first bad document raises. With a path, bad documents are written there,
    one JSON object a line, and reading goes on.
    """

    def __init__(self, rejects: str | Path | None = None) -> None:
        self.rejects_path = Path(rejects) if rejects is not None else None
        self.documents = 0
        self.written = 0
        self.spans: Counter[str] = Counter()
        self.relations: Counter[str] = Counter()
        self.rejected: Counter[str] = Counter()
        self.notes: Counter[str] = Counter()
        self.files: Counter[str] = Counter()
        self.failures: list[str] = []
        self.member_failures: list[str] = []  # those of the failures that broke a file inside an archive and no more
        self.bytes_read = 0
        self._rejects: IO[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the rejects file, if one was begun."""
        if self._rejects is not None:
            self._rejects.close()
            self._rejects = None

    def count(self, doc: Document) -> None:
        """Add a document that was read."""
        self.documents += 1
        for span in doc.spans:
            self.spans[span.type] += 1
        for relation in doc.relations:
            self.relations[relation.type] += 1

    def note(self, what: str, times: int = 1) -> None:
        """Add something smaller than a document that was left out or changed, such as an unknown field."""
        self.notes[what] += times

    def attempt(
        self, make: Callable[[], Made], *, where: str, id: str | None = None, raw: bytes | None = None
    ) -> Made | None:
        """What `make` returns, or None where it raises BadDocument and the document was set aside.

        `where` names file and place; `raw` is the source's own bytes, kept with the reject.
        """
        try:
            return make()
        except BadDocument as error:
            self.reject(error, where=where, id=id, raw=raw)
            return None

    def reject(self, error: BadDocument, *, where: str, id: str | None = None, raw: bytes | None = None) -> None:
        """Set a bad document aside; raises it instead where there is no place for rejects."""
        if self.rejects_path is None:
            raise type(error)(error.reason, f"{where}: {error}") from error
        self.rejected[error.reason] += 1
        if self._rejects is None:
            begun = sum(self.rejected.values()) > 1
            # Half a surrogate pair, in an id or a file's name, becomes its own JSON escape.
            try:
                self.rejects_path.parent.mkdir(parents=True, exist_ok=True)
                self._rejects = self.rejects_path.open(
                    "a" if begun else "w", encoding="utf-8", errors="backslashreplace"
                )
            except OSError as problem:
                raise FormatError(
                    f"{self.rejects_path}: bad documents cannot go there ({problem.strerror}). Name another file."
                ) from problem
        line = {"where": where, "id": id, "reason": error.reason, "message": str(error), **_kept(raw)}
        self._rejects.write(json.dumps(line, ensure_ascii=False) + "\n")
        self._rejects.flush()

    def settle_failures(self, where: str) -> None:
        """FormatError where a file broke; one inside an archive, which ends no other, is set aside instead."""
        for failure in self.member_failures:
            self.reject(BadDocument(BROKEN_FILE, failure), where=where)
        if broken := [failure for failure in self.failures if failure not in self.member_failures]:
            raise FormatError(broken[0])

    def summary(self) -> dict[str, object]:
        """Everything counted, as plain values for JSON."""
        return {
            "documents": self.documents,
            "written": self.written,
            "spans": dict(self.spans.most_common()),
            "relations": dict(self.relations.most_common()),
            "rejected": dict(self.rejected.most_common()),
            "notes": dict(self.notes.most_common()),
            "files": dict(self.files.most_common()),
            "failures": list(self.failures),
        }


def _kept(raw: bytes | None) -> dict[str, object]:
    """The fields of a reject that hold the source's own bytes."""
    if raw is None:
        return {}
    if len(raw) > KEPT_BYTES:
        return {"raw_bytes": len(raw), "raw_start": _as_text(raw[:1000])["raw"]}
    return _as_text(raw)


def _as_text(raw: bytes) -> dict[str, object]:
    try:
        return {"raw": raw.decode()}
    except UnicodeDecodeError:
        return {"raw": raw.decode(errors="backslashreplace"), "raw_base64": base64.b64encode(raw).decode()}
