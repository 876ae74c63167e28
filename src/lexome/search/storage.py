"""The folder of an index: an SQLite database, and a memory-mapped file of vectors where there are any.

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

Passage ids are never used twice, so postings of removed passages are recognised by their ids.
"""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lexome.errors import SearchIndexError

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
    with database_errors(folder):
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
    """Set some of them, in the current transaction."""
    rows = [(key, json.dumps(value)) for key, value in values.items()]
    connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", rows)


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All changes inside are made, or none."""
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
    """Hold the index for writing; SearchIndexError if another process does. A killed writer lets go of it."""
    lock = sqlite3.connect(folder / LOCK, isolation_level=None, timeout=0)
    try:
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        lock.close()
        if error.sqlite_errorcode not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise
        message = f"{folder}: another process is writing this index. Wait until it has finished, then run this again."
        raise SearchIndexError(message, code="index-in-use", value=folder) from None
    try:
        yield
    finally:
        lock.execute("ROLLBACK")
        lock.close()


@contextmanager
def database_errors(folder: Path) -> Iterator[None]:
    """SQLite's errors as SearchIndexError: damaged, not writable, full."""
    try:
        yield
    except sqlite3.OperationalError as error:
        code = error.sqlite_errorcode & 0xFF
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
        kind, problem = problems.get(code, ("damaged-index", f"{error}. Index the documents again, with --redo"))
        raise SearchIndexError(f"{folder}: {problem}.", code=kind, value=folder) from error
    except sqlite3.DatabaseError as error:
        message = f"{folder}: the index is damaged ({error}). Index the documents again, with --redo."
        raise SearchIndexError(message, code="damaged-index", value=folder) from error
