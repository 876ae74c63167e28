"""The folder of an index: an SQLite database, and a memory-mapped file that finds the vectors nearest to a query.

| table | has |
| --- | --- |
| meta | version, settings, whether the index is complete |
| files | identity of each input file, and how many of its documents are indexed |
| documents | id, title, year, journal |
| passages | text and offset of each passage; long ones are cut into several at sentence ends |
| sizes | of each passage: the number of its words, 0 if it is not found by them, and the year |
| mentions | offsets, type and concept of each mention, by passage |
| postings | of each term, by batch: the passages that have it, and how often |
| vectors | the vector of each passage |

Passage ids are never used twice, so postings of removed passages are recognized by their ids.
"""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lexome.errors import LexomeError, MissingExtraError, SearchIndexError
from lexome.infer.embed import embed_texts
from lexome.infer.predictor import Predictor

Floats = NDArray[np.float32]

DATABASE, LOCK = "index.sqlite", "writer.sqlite"

# Incremented when an older Lexome could no longer read an index, or would find other things in it.
VERSION = 1

# How long a reader waits for a writer to commit a batch.
BUSY_S = 10.0

# The highest id that a passage ever had. Postings may have removed passages, also ones after the last that is left.
LAST_PASSAGE = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'passages'"

NOT_COMPLETE = "the index is not complete. Run the same `lexome index` command again to finish it."

_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE files (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT UNIQUE NOT NULL, identity TEXT NOT NULL,
    documents INTEGER NOT NULL, complete INTEGER NOT NULL
);
CREATE TABLE documents (
    id INTEGER PRIMARY KEY AUTOINCREMENT, file INTEGER NOT NULL, name TEXT NOT NULL, title TEXT, year INTEGER,
    journal TEXT, abbreviation TEXT
);
CREATE INDEX documents_file ON documents (file);
CREATE INDEX documents_journal ON documents (journal COLLATE NOCASE);
CREATE INDEX documents_abbreviation ON documents (abbreviation COLLATE NOCASE);
CREATE TABLE passages (
    id INTEGER PRIMARY KEY AUTOINCREMENT, document INTEGER NOT NULL, number INTEGER NOT NULL, kind TEXT NOT NULL,
    section TEXT NOT NULL, start INTEGER NOT NULL, text TEXT NOT NULL
);
CREATE INDEX passages_document ON passages (document);
CREATE TABLE sizes (passage INTEGER PRIMARY KEY, words INTEGER NOT NULL, year INTEGER NOT NULL);
CREATE TABLE mentions (
    passage INTEGER NOT NULL, start INTEGER NOT NULL, end INTEGER NOT NULL, type TEXT NOT NULL,
    concept TEXT NOT NULL COLLATE NOCASE
);
CREATE INDEX mentions_passage ON mentions (passage);
CREATE INDEX mentions_concept ON mentions (concept, passage);
CREATE INDEX mentions_type ON mentions (type COLLATE NOCASE, passage);
CREATE TABLE postings (
    term TEXT NOT NULL, batch INTEGER NOT NULL, passages BLOB NOT NULL, counts BLOB NOT NULL,
    PRIMARY KEY (term, batch)
) WITHOUT ROWID;
CREATE TABLE vectors (passage INTEGER PRIMARY KEY, vector BLOB NOT NULL);
"""


def is_index(folder: Path) -> bool:
    """Whether a folder holds an index."""
    return (folder / DATABASE).is_file()


def create(folder: Path, settings: dict[str, Any]) -> sqlite3.Connection:
    """A new, empty index, open for writing."""
    connection = sqlite3.connect(folder / DATABASE, isolation_level=None, timeout=BUSY_S)
    connection.executescript(f"BEGIN IMMEDIATE;{_SCHEMA}")
    write_meta(connection, {"version": VERSION, "settings": settings, "complete": False})
    connection.execute("COMMIT")
    return connection


def connect(folder: Path, *, writable: bool = False) -> sqlite3.Connection:
    """The database of an index, of this version; it may be used by several threads one at a time."""
    path = folder / DATABASE
    if not path.is_file():
        found = "no such folder" if not folder.exists() else "no index there"
        message = f"{folder}: {found}; expected a folder written by `lexome index`. Check the path, or index documents."
        raise SearchIndexError(message, code="no-index", value=folder)
    if not path.stat().st_size:
        message = f"{folder}: {NOT_COMPLETE}"
        raise SearchIndexError(message, code="incomplete-index", value=folder)
    with database_errors(folder), unexpected_values(folder):
        # A path may have any characters; as_uri escapes those that mean something in a URI.
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={'rw' if writable else 'ro'}",
            uri=True,
            isolation_level=None,
            timeout=BUSY_S,
            check_same_thread=False,
        )
        version = read_meta(connection).get("version")
    if version != VERSION:
        connection.close()
        message = (
            f"{folder}: an index of version {version}; expected {VERSION}. Index the documents again, with --redo."
        )
        raise SearchIndexError(message, code="unsupported-version", value=version)
    return connection


def read_meta(connection: sqlite3.Connection) -> dict[str, Any]:
    """The settings and states of an index."""
    return {key: json.loads(value) for key, value in connection.execute("SELECT key, value FROM meta")}


def write_meta(connection: sqlite3.Connection, values: dict[str, Any]) -> None:
    """Set some settings or states, in the current transaction."""
    rows = [(key, json.dumps(value)) for key, value in values.items()]
    connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", rows)


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """A transaction: all changes inside are made, or none."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Lock the index for writing; SearchIndexError if another process has. The lock of a killed process is released."""
    lock = sqlite3.connect(folder / LOCK, isolation_level=None, timeout=0)
    try:
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        lock.close()
        if error_code(error) not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise
        message = f"{folder}: another process is writing this index. Wait until it has finished, then run this again."
        raise SearchIndexError(message, code="index-in-use", value=folder) from None
    try:
        yield
    finally:
        lock.execute("ROLLBACK")
        lock.close()


def error_code(error: sqlite3.Error) -> int:
    """The primary code of an error; 0 of errors of Python's own, such as text that is not UTF-8."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def damaged(folder: Path, problem: object = None) -> SearchIndexError:
    """The error for an index whose contents Lexome did not write."""
    found = "the index is damaged" if problem is None else f"the index is damaged ({problem})"
    message = f"{folder}: {found}. Index the documents again, with --redo."
    return SearchIndexError(message, code="damaged-index", value=folder)


@contextmanager
def unexpected_values(folder: Path) -> Iterator[None]:
    """SearchIndexError where a valid database has values of other kinds than Lexome writes.

    Wrap only code that computes with these values: any other error would be reported as damage, too.
    """
    try:
        yield
    except LexomeError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, MemoryError, RecursionError) as error:
        raise damaged(folder, f"{type(error).__name__}: {error}") from error


@contextmanager
def database_errors(folder: Path) -> Iterator[None]:
    """SQLite's errors as SearchIndexError: damaged, not writable, full, or closed before."""
    try:
        yield
    except sqlite3.OperationalError as error:
        code = error_code(error)
        problems = {
            sqlite3.SQLITE_READONLY: ("not-writable", "is read-only. Choose a folder on a writable disk"),
            sqlite3.SQLITE_CANTOPEN: (
                "not-writable",
                "cannot be opened or written. Check its permissions and its disk",
            ),
            sqlite3.SQLITE_FULL: (
                "disk-full",
                "the disk is full. Free some space and run again: finished batches stay",
            ),
            sqlite3.SQLITE_BUSY: ("index-in-use", "another process is writing. Try again when it has finished"),
            sqlite3.SQLITE_INTERRUPT: ("interrupted", "the search took too long. Ask for fewer words or results"),
        }
        if code not in problems:
            raise damaged(folder, error) from error
        kind, problem = problems[code]
        raise SearchIndexError(f"{folder}: {problem}.", code=kind, value=folder) from error
    except sqlite3.ProgrammingError as error:
        if "closed" not in str(error):
            raise
        message = f"{folder}: the index was closed. Open it again, or search inside its `with` block."
        raise SearchIndexError(message, code="closed-index", value=folder) from error
    except sqlite3.DatabaseError as error:
        raise damaged(folder, error) from error


# Vectors of passages
#
# The database has every vector, so that a batch is committed whole; the file is made from it when a run ends, under a
# new name, and the database then names the new one. A reader never sees half of a file.

# Read from the database at a time.
CHUNK = 10_000


def embed_passages(
    connection: sqlite3.Connection, predictor: Predictor, passages: Sequence[tuple[int, str]], *, pooling: str
) -> None:
    """Write the unit vector of each passage, given by id and text."""
    vectors = embed_texts(predictor, [text for _, text in passages], pooling=pooling)
    lengths = np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(np.float32).tiny)
    rows = zip((id_ for id_, _ in passages), (vectors / lengths).astype("<f2"), strict=True)
    connection.executemany("INSERT INTO vectors VALUES (?, ?)", ((id_, vector.tobytes()) for id_, vector in rows))


def vector_path(folder: Path, generation: int) -> Path:
    """The file of vectors of a generation of the index."""
    return folder / f"vectors-{generation}.usearch"


def update_vector_file(connection: sqlite3.Connection, folder: Path, *, width: int) -> int:
    """Write the next generation of the file: that of the last with the vectors that are new, without removed ones."""
    index = _import_usearch()(ndim=width, metric="ip", dtype="f16")
    generation = read_meta(connection).get("generation", 0)
    previous = vector_path(folder, generation)
    if generation and previous.is_file():
        try:
            index.load(str(previous))
        except Exception:  # usearch raises bare RuntimeErrors; the database has the vectors of a damaged file
            index = _import_usearch()(ndim=width, metric="ip", dtype="f16")
    present = set(np.asarray(index.keys).tolist()) if len(index) else set()
    stored = {id_ for (id_,) in connection.execute("SELECT passage FROM vectors")}
    if removed := sorted(present - stored):
        index.remove(np.array(removed, np.uint64))
    new = sorted(stored - present)
    for at in range(0, len(new), CHUNK):
        ids = new[at : at + CHUNK]
        index.add(np.array(ids, np.uint64), stored_vectors(connection, ids, width=width), threads=1)
    temporary = folder / f"vectors-{generation + 1}.part"
    index.save(str(temporary))
    temporary.replace(vector_path(folder, generation + 1))
    with transaction(connection):
        write_meta(connection, {"generation": generation + 1})
    previous.unlink(missing_ok=True)
    return int(generation + 1)


def stored_vectors(connection: sqlite3.Connection, ids: Sequence[int], *, width: int) -> Floats:
    """The vectors of these passages, (passages, D)."""
    rows = dict(
        row
        for at in range(0, len(ids), 500)
        for row in connection.execute(
            f"SELECT passage, vector FROM vectors WHERE passage IN ({','.join('?' * len(ids[at : at + 500]))})",
            ids[at : at + 500],
        )
    )
    blob = b"".join(rows[id_] for id_ in ids)
    return np.frombuffer(blob, "<f2").reshape(len(ids), width).astype(np.float32)


class VectorFile:
    """The memory-mapped vectors of an index, with the encoder that made them."""

    def __init__(self, folder: Path, generation: int, predictor: Predictor, pooling: str) -> None:
        self.predictor, self.pooling = predictor, pooling
        self._folder, path = folder, vector_path(folder, generation)
        index_class = _import_usearch()
        problem: Exception | None = None
        try:
            self._index = index_class.restore(str(path), view=True)
        except Exception as error:  # usearch raises bare RuntimeErrors
            self._index, problem = None, error
        if self._index is None or self._index.ndim != predictor.settings.width:
            found = "missing" if not path.is_file() else "damaged"
            message = f"{path}: {found}. Index the documents again, with --redo."
            raise SearchIndexError(message, code="damaged-index", value=path) from problem

    def embed(self, text: str) -> Floats:
        """The unit vector of a query."""
        vector: Floats = embed_texts(self.predictor, [text], pooling=self.pooling)[0]
        return vector / max(float(np.linalg.norm(vector)), float(np.finfo(np.float32).tiny))

    def nearest(self, query: Floats, count: int, allowed: NDArray[np.int64] | None) -> list[tuple[int, float]]:
        """Ids and cosines of the nearest passages, best first; with `allowed`, of these only, by exact search."""
        if allowed is None:
            try:
                matches = self._index.search(query, count)
            except RuntimeError as error:  # such as "Out of memory!", of a damaged graph
                raise damaged(self._folder, error) from error
            return [
                (int(key), 1.0 - float(distance)) for key, distance in zip(matches.keys, matches.distances, strict=True)
            ]
        kept = allowed[np.asarray(self._index.contains(allowed.astype(np.uint64)))]
        if not len(kept):
            return []
        cosines = np.asarray(self._index.get(kept.astype(np.uint64)), np.float32) @ query
        best = np.argsort(-cosines, kind="stable")[:count]
        return [(int(kept[place]), float(cosines[place])) for place in best]


def _import_usearch() -> Any:
    try:
        from usearch.index import Index
    except ImportError:
        raise MissingExtraError("usearch", extra="search", purpose="searching by vectors") from None
    return Index
