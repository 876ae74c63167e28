"""index: writes documents of any format to an index, in batches that are committed as a whole.

The index mirrors its inputs: a second run reads new and changed files, drops removed ones, and leaves the others. A
killed run resumes after its last batch, even in the middle of a file, and ends with the same index.
"""

import json
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any

import numpy as np

from lexome.corpus.sentences import split_sentences
from lexome.document import Document, Passage, Range, Span, encode_utf8
from lexome.errors import FormatError, SearchIndexError, UsageError
from lexome.files import fingerprint, refuse_other_settings
from lexome.formats import Paths, Tally, as_paths, read
from lexome.infer.bulk import inputs_by_name, merge_rejects
from lexome.infer.embed import POOLINGS
from lexome.infer.predictor import Predictor, identity_of
from lexome.progress import progress
from lexome.search import storage
from lexome.search.storage import embed_passages, update_vector_file
from lexome.search.terms import terms

# Documents per transaction. A commit costs a few milliseconds, and a term's postings a row per batch.
BATCH = 1000
# Batches are merged when a query would read this many rows per term.
MERGED_BATCHES = 64

# Longer passages, such as a plain text file, are cut at sentence ends, into passages that can be shown and read.
PASSAGE_CHARACTERS = 3000

# Passages of these kinds are found by concept only: headings are in `section`, and references have others' words.
WORDLESS_KINDS = frozenset({"title", "heading", "reference", "formula", "code"})

NO_YEAR = 0

# In the folder of the index: the rejects of each file, merged at the end of each run.
REJECTS = "rejects"


@dataclass(slots=True)
class IndexResult:
    """Counts of a run, and of the whole index after it."""

    tally: Tally
    new_files: int = 0
    changed_files: int = 0
    removed_files: int = 0
    unchanged_files: int = 0
    new_documents: int = 0
    documents: int = 0
    passages: int = 0
    mentions: int = 0
    vectors: int = 0

    def as_dict(self) -> dict[str, Any]:
        """All counts for JSON."""
        names = [name for name in self.__slots__ if name != "tally"]
        counts = {name: getattr(self, name) for name in names}
        return {
            **counts,
            "rejected": dict(self.tally.rejected),
            "notes": dict(self.tally.notes),
            "failures": self.tally.failures,
        }


@dataclass(frozen=True, slots=True)
class _Input:
    name: str
    files: tuple[Path, ...]
    identity: str
    done: int = 0


def index(
    inputs: Paths,
    out: str | Path,
    *,
    embed: str | Path | None = None,
    pooling: str = "mean",
    from_: str | None = None,
    lines: bool = False,
    rejects: str | Path | None = None,
    redo: bool = False,
    batch: int = BATCH,
    threads: int | None = None,
    progress_shown: bool = True,
) -> IndexResult:
    """Make or update the index in the folder `out`; with `embed`, an exported encoder, also the passages' vectors.

    An index made with other settings or another encoder is refused, or rebuilt with `redo`. Bad documents of all files,
    including those read by earlier runs, are written to `rejects`; without it, the first one raises.
    """
    inputs, out = as_paths(inputs), Path(out)
    embed, rejects = (None if path is None else Path(path) for path in (embed, rejects))
    if pooling not in POOLINGS:
        message = f"pooling is {pooling!r}; expected one of {', '.join(POOLINGS)}."
        raise UsageError(message, code="unknown-pooling", value=pooling)
    if batch < 1:
        raise UsageError(f"batch is {batch}; expected at least 1.", code="out-of-range", value=batch)
    predictor = None if embed is None else Predictor.open(embed, threads=threads)
    encoder = None if embed is None else {**identity_of(embed), "pooling": pooling}
    settings = {"from": from_, "lines": lines, "encoder": encoder}
    with Tally(rejects) as tally, ExitStack() as stack:
        files = inputs_by_name(inputs, out, from_, rejects=rejects, tally=tally)
        _make_folder(out)
        stack.enter_context(storage.database_errors(out))
        stack.enter_context(storage.only_writer(out))
        result = IndexResult(tally)
        with storage.unexpected_values(out):
            connection = _open(out, settings, redo=redo)
            stack.callback(connection.close)
            todo = _plan(connection, files, result)
        folder = None if embed is None else str(embed.absolute())
        if todo or not storage.read_meta(connection)["complete"]:
            with storage.transaction(connection):
                storage.write_meta(connection, {"complete": False, "encoder_folder": folder})
            kept = None if rejects is None else out / REJECTS
            _index_files(
                connection,
                todo,
                result,
                predictor,
                pooling,
                batch=batch,
                lines=lines,
                from_=from_,
                rejects=kept,
                show=progress_shown,
            )
            with storage.unexpected_values(out):
                _merge_postings(connection)
            generation = update_vector_file(connection, out, width=predictor.settings.width) if predictor else 0
            with storage.transaction(connection):
                storage.write_meta(connection, {"complete": True, "generation": generation})
        _count(connection, result)
        if rejects is not None:
            tally.close()
            tally.rejects_path = rejects
            merge_rejects([_rejects_of(name, out / REJECTS) for name in files], rejects)
        if not result.documents:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in tally.rejected.most_common())
            found = f"every document was rejected ({reasons})" if reasons else "the inputs have no documents"
            raise FormatError(f"{out}: {found}, so the index is empty.", code="no-documents", value=out)
    return result


def _make_folder(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out}: a file; expected the path of a folder.", code="not-a-folder", value=out)
    if out.is_dir() and not storage.is_index(out) and any(path.name != storage.LOCK for path in out.iterdir()):
        message = f"{out}: a folder with other files; expected an index, or a new folder. Choose another path."
        raise UsageError(message, code="not-an-index", value=out)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"{out}: cannot be made ({error.strerror}); expected a writable disk."
        raise SearchIndexError(message, code="not-writable", value=out) from error


def _open(out: Path, settings: Mapping[str, Any], *, redo: bool) -> sqlite3.Connection:
    """The index for writing, of these settings: an existing one, or a new one."""
    if redo:
        for path in (out / storage.DATABASE, *out.glob("vectors-*"), *out.glob(f"{storage.DATABASE}-*")):
            path.unlink(missing_ok=True)
        shutil.rmtree(out / REJECTS, ignore_errors=True)
    # A run that was killed before its first commit leaves an empty database.
    if not storage.is_index(out) or not (out / storage.DATABASE).stat().st_size:
        return storage.create(out, dict(settings))
    connection = storage.connect(out, writable=True)
    recorded = storage.read_meta(connection)["settings"]
    remedy = "Choose another folder, or add --redo to index everything again."
    try:
        refuse_other_settings(out, recorded, settings, holds="an index made with other settings", remedy=remedy)
    except UsageError:
        connection.close()
        raise
    return connection


def _plan(connection: sqlite3.Connection, files: Mapping[str, tuple[Path, ...]], result: IndexResult) -> list[_Input]:
    """Remove deleted and changed files from the index; returns the files to read."""
    known = {
        name: (id_, identity, documents, bool(complete))
        for id_, name, identity, documents, complete in connection.execute(
            "SELECT id, name, identity, documents, complete FROM files"
        )
    }
    todo: list[_Input] = []
    gone = [known[name][0] for name in known.keys() - files.keys()]
    result.removed_files = len(gone)
    for name, paths in files.items():
        identity = _identity(paths)
        id_, recorded, documents, complete = known.get(name, (None, None, 0, False))
        if recorded == identity and complete:
            result.unchanged_files += 1
        elif recorded == identity:
            todo.append(_Input(name, paths, identity, documents))
        else:
            todo.append(_Input(name, paths, identity))
            result.new_files += id_ is None
            if id_ is not None:
                gone.append(id_)
                result.changed_files += 1
    if gone:
        with storage.transaction(connection):
            storage.write_meta(connection, {"complete": False})
            for id_ in gone:
                _remove_file(connection, id_)
    return todo


def _identity(paths: Sequence[Path]) -> str:
    stats = [(path.name, path.stat()) for path in paths if path.exists()]
    return json.dumps([[name, found.st_size, found.st_mtime_ns] for name, found in stats])


def _rejects_of(name: str, folder: Path) -> Path:
    """The rejects of an input: a hash, because names of inputs may have folders."""
    return folder / f"{fingerprint(name)[:32]}.jsonl"


def _remove_file(connection: sqlite3.Connection, file: int) -> None:
    ours = "SELECT p.id FROM passages p JOIN documents d ON d.id = p.document WHERE d.file = ?"
    for table in ("sizes", "mentions", "vectors"):
        connection.execute(f"DELETE FROM {table} WHERE passage IN ({ours})", (file,))
    connection.execute("DELETE FROM passages WHERE document IN (SELECT id FROM documents WHERE file = ?)", (file,))
    connection.execute("DELETE FROM documents WHERE file = ?", (file,))
    connection.execute("DELETE FROM files WHERE id = ?", (file,))


def _index_files(
    connection: sqlite3.Connection,
    todo: Sequence[_Input],
    result: IndexResult,
    predictor: Predictor | None,
    pooling: str,
    *,
    batch: int,
    lines: bool,
    from_: str | None,
    rejects: Path | None,
    show: bool,
) -> None:
    """Read the files and write their documents, `batch` at a time; bad ones of each file go to a file in `rejects`."""
    tally = result.tally
    total = sum(path.stat().st_size for one in todo for path in one.files if path.is_file())
    options: dict[str, object] = {"per": "line"} if lines else {}
    waiting: list[tuple[_Input, Document | None]] = []

    def flush() -> None:
        with storage.transaction(connection):
            number = connection.execute("SELECT coalesce(max(batch), 0) + 1 FROM postings").fetchone()[0]
            _write_batch(connection, waiting, number, predictor, pooling)
        result.new_documents += sum(doc is not None for _, doc in waiting)
        waiting.clear()

    def documents() -> Iterator[tuple[_Input, Document | None]]:
        failures = 0
        for one in todo:
            if rejects is not None:
                # A file that is resumed is read from its beginning.
                tally.redirect(_rejects_of(one.name, rejects))
            try:
                docs = _storable(read(one.files, from_, tally=tally, options_if_supported=options), tally)
                yield from ((one, doc) for doc in islice(docs, one.done, None))
            except FormatError as error:
                tally.failures.append(str(error))
            # The end of the file, which marks it complete; a damaged one is read again by the next run.
            if len(tally.failures) == failures:
                yield one, None
            failures = len(tally.failures)

    with progress("indexing", total=total, position=lambda: tally.bytes_read, shown=show) as track:
        for item in track(documents()):
            waiting.append(item)
            if len(waiting) >= batch:
                flush()
        if waiting:
            flush()


def _storable(docs: Iterable[Document], tally: Tally) -> Iterator[Document]:
    """The documents that a database can hold; one with a lone surrogate in a name, as JSON may have, is rejected."""
    for doc in docs:
        yield from tally.accept(partial(_require_unicode, doc), where=f"document {doc.id!r}", id=doc.id)


def _require_unicode(doc: Document) -> Document:
    journal = doc.meta.journal
    names = [doc.id, *(passage.kind for passage in doc.passages), (journal and journal.title) or ""]
    names += [(journal and journal.abbreviation) or "", *(span.type for span in doc.spans)]
    encode_utf8("\n".join(chain(names, *(span.concepts for span in doc.spans))))
    return doc


def _write_batch(
    connection: sqlite3.Connection,
    items: Sequence[tuple[_Input, Document | None]],
    number: int,
    predictor: Predictor | None,
    pooling: str,
) -> None:
    postings: dict[str, tuple[list[int], list[int]]] = {}
    embedded: list[tuple[int, str]] = []
    for one, doc in items:
        connection.execute(
            "INSERT INTO files (name, identity, documents, complete) VALUES (?, ?, 0, 0) ON CONFLICT (name) DO NOTHING",
            (one.name, one.identity),
        )
        if doc is None:
            connection.execute("UPDATE files SET complete = 1 WHERE name = ?", (one.name,))
            continue
        connection.execute("UPDATE files SET documents = documents + 1 WHERE name = ?", (one.name,))
        embedded += _write_document(connection, doc, one.name, postings)
    connection.executemany(
        "INSERT INTO postings VALUES (?, ?, ?, ?)",
        (
            (term, number, np.array(passages, "<u4").tobytes(), np.minimum(counts, 255).astype("u1").tobytes())
            for term, (passages, counts) in sorted(postings.items())
        ),
    )
    if predictor is not None:
        embed_passages(connection, predictor, embedded, pooling=pooling)


def _write_document(
    connection: sqlite3.Connection, doc: Document, file: str, postings: dict[str, tuple[list[int], list[int]]]
) -> list[tuple[int, str]]:
    """Write a document and add its terms to the postings; id and text of the passages that are found by their words."""
    journal = doc.meta.journal
    published = doc.meta.published or ""
    year = int(published[:4]) if published[:4].isdecimal() else NO_YEAR
    document = connection.execute(
        "INSERT INTO documents (file, name, title, year, journal, abbreviation) "
        "VALUES ((SELECT id FROM files WHERE name = ?), ?, ?, ?, ?, ?)",
        (file, doc.id, doc.title, year or None, journal and journal.title, journal and journal.abbreviation),
    ).lastrowid
    only_titles = all(passage.kind in WORDLESS_KINDS for passage in doc.passages)
    title = "" if only_titles else doc.title or ""
    title_terms = [term for term, _, _ in terms(title)]
    found: list[tuple[int, str]] = []
    rows: list[tuple[int, int, int]] = []
    for number, passage in enumerate(doc.passages, 1):
        for start, end in cut_passage(passage):
            text = passage.text[start:end]
            row = (document, number, passage.kind, json.dumps(passage.section), passage.offset + start, text)
            id_ = connection.execute(
                "INSERT INTO passages (document, number, kind, section, start, text) VALUES (?, ?, ?, ?, ?, ?)", row
            ).lastrowid
            assert id_ is not None
            rows.append((passage.offset + start, passage.offset + end, id_))
            if passage.kind in WORDLESS_KINDS and not only_titles:
                connection.execute("INSERT INTO sizes VALUES (?, 0, ?)", (id_, year))
                continue
            counts = Counter(title_terms)
            counts.update(term for term, _, _ in terms(text))
            for term, count in counts.items():
                ids, numbers = postings.setdefault(term, ([], []))
                ids.append(id_)
                numbers.append(count)
            connection.execute("INSERT INTO sizes VALUES (?, ?, ?)", (id_, counts.total(), year))
            found.append((id_, f"{title}\n{text}" if title else text))
    connection.executemany("INSERT INTO mentions VALUES (?, ?, ?, ?, ?)", _mention_rows(doc.spans, rows))
    return found


def cut_passage(passage: Passage) -> Iterator[Range]:
    """The ranges of a passage's text that are indexed: all of it, or, if it is long, parts that end with a sentence."""
    text = passage.text
    if not text.strip():
        return
    if len(text) <= PASSAGE_CHARACTERS:
        yield 0, len(text)
        return
    pieces = (
        (start, min(start + PASSAGE_CHARACTERS, end))
        for sentence_start, end in split_sentences(text)
        # A sentence without an end, such as a genome, is cut anywhere.
        for start in range(sentence_start, end, PASSAGE_CHARACTERS)
    )
    first, last = next(pieces)
    for start, end in pieces:
        if end - first > PASSAGE_CHARACTERS:
            yield first, last
            first = start
        last = end
    yield first, last


def _mention_rows(
    spans: Iterable[Span], rows: Sequence[tuple[int, int, int]]
) -> Iterator[tuple[int, int, int, str, str]]:
    """A row for each mention and concept; a mention across a cut is in the passage of its first letter."""
    ordered = sorted(spans, key=lambda span: span.start)
    place = 0
    for span in ordered:
        while place < len(rows) and rows[place][1] <= span.start:
            place += 1
        if place == len(rows):
            return
        # A mention that begins with the white space between two sentences.
        start = max(span.start, rows[place][0])
        if start < span.end:
            for concept in span.concepts or ("",):
                yield rows[place][2], start, span.end, span.type, concept


def _merge_postings(connection: sqlite3.Connection) -> None:
    """Join the batches of each term where there are many, or where much of them is about removed passages."""
    batches = connection.execute("SELECT count(DISTINCT batch) FROM postings").fetchone()[0]
    alive, last = connection.execute(f"SELECT count(*), ({storage.LAST_PASSAGE}) FROM passages").fetchone()
    merged = storage.read_meta(connection).get("merged", {"last": 0, "alive": 0})
    dead = merged["alive"] + last - merged["last"] - alive
    if batches <= MERGED_BATCHES and dead <= alive + MERGED_BATCHES:
        return
    live = np.zeros(last + 1, bool)
    live[[id_ for (id_,) in connection.execute("SELECT passage FROM sizes")]] = True
    with storage.transaction(connection):
        storage.write_meta(connection, {"merged": {"last": last, "alive": alive}})
        connection.execute("CREATE TABLE merged AS SELECT * FROM postings WHERE 0")
        rows = connection.execute("SELECT term, passages, counts FROM postings ORDER BY term, batch")
        connection.cursor().executemany("INSERT INTO merged VALUES (?, 1, ?, ?)", _merge_rows(rows, live))
        connection.execute("DELETE FROM postings")
        connection.execute("INSERT INTO postings SELECT * FROM merged")
        connection.execute("DROP TABLE merged")


def _merge_rows(rows: Iterable[tuple[str, bytes, bytes]], live: Any) -> Iterator[tuple[str, bytes, bytes]]:
    for term, group in groupby(rows, key=lambda row: row[0]):
        parts = list(group)
        passages = np.frombuffer(b"".join(part[1] for part in parts), "<u4")
        counts = np.frombuffer(b"".join(part[2] for part in parts), "u1")
        kept = live[passages]
        if kept.any():
            yield term, passages[kept].tobytes(), counts[kept].tobytes()


def _count(connection: sqlite3.Connection, result: IndexResult) -> None:
    for name in ("documents", "passages", "mentions", "vectors"):
        setattr(result, name, connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0])
