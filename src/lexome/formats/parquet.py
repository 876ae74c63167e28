"""Parquet: one document per row, with passages, spans and metadata as nested columns.

Any Parquet tool can query spans.type or meta.journal.title. Other tables are read by the same rules as plain JSON
Lines.
"""

import io
import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache, partial
from itertools import accumulate, pairwise
from types import UnionType
from typing import Any, BinaryIO, Union, cast, get_args, get_origin, get_type_hints

from lexome.document import Document, Range
from lexome.errors import BadDocument, FormatError, MissingExtraError
from lexome.formats.jsonl import RECORD_FIELDS, RECORD_TEXTS, from_record, line_id, record_field
from lexome.formats.streams import BLOCK_BYTES, DISK_BYTES, Source
from lexome.formats.tally import Tally

# In the file's metadata; incremented when older versions of Lexome cannot read the files.
FORM_VERSION = 1

# Limits of a row group, which is what writing and reading hold in memory, and the approximate size of a span in it.
GROUP_ROWS = 10_000
GROUP_CHARACTERS = 16 << 20
SPAN_CHARACTERS = 100
# Documents built at a time.
BATCH_ROWS = 256
# Size limit of a batch in memory: a dictionary repeats one long value in every row at no cost in the file.
MAX_BATCH_BYTES = 512 << 20
# Values of the columns of a null struct, which are never read.
_BLANK: dict[Any, Any] = {str: "", int: 0, float: 0.0, bool: False}
Make = Callable[[Any, int], list[Document]]


def read(source: Source, *, tally: Tally) -> Iterator[Document]:
    """One document per row: Lexome's own columns, or a table with a text (and id, title, abstract, label)."""
    with _table(source) as table:
        names = table.schema_arrow.names
        # Lexome's own columns, even if another tool rewrote the file without its metadata.
        is_lexome = b"lexome.form" in (table.schema_arrow.metadata or {}) or {"id", "passages"} <= set(names)
        if is_lexome:
            _require_lexome_schema(table.schema_arrow, source.name)
        elif not RECORD_TEXTS.intersection(map(record_field, names)):
            raise FormatError(
                f"{source.name}: the table has the columns {', '.join(names) or '(none)'}; expected Lexome's own, or "
                f"one of {', '.join(sorted(RECORD_TEXTS))}. Rename the text column.",
                code="unknown-columns",
                value=source.name,
            )
        known = [column.name for column in columns_of(Document)] if is_lexome else RECORD_FIELDS
        make: Make = (
            (lambda batch, first: documents_of(batch)) if is_lexome else partial(_from_records, source.stem, tally)
        )
        first = 1
        read_names = [name for name in names if (name if is_lexome else record_field(name)) in known]
        for batch in _batches(table, read_names, source, tally):
            for name in names:
                if name not in read_names:
                    tally.note(f"field {name!r} ignored", batch.num_rows)
            yield from _build(make, batch, first, source.name, tally)
            first += batch.num_rows


@contextmanager
def _table(source: Source) -> Iterator[Any]:
    pa, pq = import_pyarrow("reading Parquet")
    with _random_access(source) as file:
        try:
            table = pq.ParquetFile(file, pre_buffer=False, page_checksum_verification=True)
            table.schema_arrow  # noqa: B018  # raises for a schema that Arrow does not support
        except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
            raise FormatError(
                f"{source.name}: not a Parquet file, or a truncated one ({_first_line(error)}). Download or write it "
                "again.",
                code="truncated",
                value=source.name,
            ) from error
        with table:
            yield table


@contextmanager
def _random_access(source: Source) -> Iterator[BinaryIO]:
    """The file itself, or a temporary copy of a stream: Parquet needs random access."""
    if source.path is not None and source.path.is_file():
        with source.path.open("rb") as file:
            yield file
        return
    with tempfile.TemporaryFile() as copy:
        try:
            shutil.copyfileobj(source.stream, copy, BLOCK_BYTES)
        except OSError as error:
            raise FormatError(
                f"{source.name}: no space for a temporary copy in {tempfile.gettempdir()} ({error.strerror}), which "
                "Parquet in a stream or archive needs. Free some space, or unpack the file first.",
                code="no-space",
                value=source.name,
            ) from error
        copy.seek(0)
        yield cast(BinaryIO, copy)


def _batches(table: Any, names: list[str], source: Source, tally: Tally) -> Iterator[Any]:
    """Record batches of the named columns; the bytes of each row group are counted after it is read."""
    import pyarrow as pa

    # The first block was counted when the file was opened.
    left = max(0, source.path.stat().st_size - DISK_BYTES) if source.path is not None else 0
    for number in range(table.num_row_groups):
        rows = _rows_at_once(table.metadata.row_group(number), source.name, number)
        try:
            yield from table.iter_batches(rows, row_groups=[number], columns=names)
        except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
            raise FormatError(
                f"{source.name}, row group {number + 1} of {table.num_row_groups}: the data is damaged "
                f"({_first_line(error)}). Everything before was read; download or write the file again.",
                code="damaged",
                value=number + 1,
            ) from error
        group = table.metadata.row_group(number)
        done = min(left, sum(group.column(index).total_compressed_size for index in range(group.num_columns)))
        tally.bytes_read += done
        left -= done
    tally.bytes_read += left


def _rows_at_once(group: Any, name: str, number: int) -> int:
    """Rows per batch, so that a batch stays within its limit even if each row has the longest value of a dictionary."""
    columns = [group.column(index) for index in range(group.num_columns)]
    size = sum(column.total_uncompressed_size for column in columns)
    if size > MAX_BATCH_BYTES or size < 0:
        raise FormatError(
            f"{name}, row group {number + 1}: it has {size:,} bytes; at most {MAX_BATCH_BYTES:,} are read at once. "
            "Write it in smaller row groups.",
            code="too-large",
            value=number + 1,
        )
    repeated: int = sum(column.total_uncompressed_size for column in columns if column.has_dictionary_page)
    return max(1, min(BATCH_ROWS, MAX_BATCH_BYTES // max(1, repeated)))


def _require_lexome_schema(schema: Any, name: str) -> None:
    version = (schema.metadata or {}).get(b"lexome.version", str(FORM_VERSION).encode())
    if not version.isdigit() or int(version) > FORM_VERSION:
        raise FormatError(
            f"{name}: the file has schema version {version.decode(errors='replace')}; this version of Lexome reads up "
            f"to {FORM_VERSION}. Upgrade Lexome.",
            code="newer-version",
            value=version,
        )
    problem = schema_problem(Document, schema)
    if problem is not None:
        message = f"{name}: {problem}; expected the columns of Lexome documents. Write the file again."
        raise FormatError(message, code="bad-schema", value=problem)


def _from_records(stem: str, tally: Tally, batch: Any, first: int) -> list[Document]:
    import pyarrow as pa

    try:
        records = batch.to_pylist()
    except (ValueError, OverflowError, pa.ArrowException) as error:
        raise BadDocument("bad_field", f"{error}; expected strings and numbers") from None
    return [from_record(record, f"{stem}-{number}", tally) for number, record in enumerate(records, first)]


def _build(make: Make, batch: Any, first: int, name: str, tally: Tally) -> Iterator[Document]:
    """The documents of a batch; if one is bad, row by row, so that only that one is rejected."""
    try:
        docs = make(batch, first)
    except BadDocument:
        for row in range(batch.num_rows):
            one = batch.slice(row, 1)
            raw = _raw(one)
            known_id = partial(line_id, raw or b"", "utf-8")
            where = f"{name}, row {first + row}"
            yield from tally.attempt(partial(make, one, first + row), where=where, id=known_id, raw=raw) or ()
    else:
        yield from docs


def _raw(row: Any) -> bytes | None:
    import pyarrow as pa

    try:
        return json.dumps(row.to_pylist()[0], ensure_ascii=False, default=str).encode()
    except (ValueError, OverflowError, pa.ArrowException):
        return None


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]


def write(docs: Iterable[Document], stream: BinaryIO, *, tally: Tally) -> None:
    """One row per document, in row groups of bounded size, compressed with zstd and with checksums."""
    write_rows(docs, stream, tally=tally)


def write_rows(docs: Iterable[Document], stream: BinaryIO, *, tally: Tally) -> list[int]:
    """Like `write`, but returns the indices of documents that were rejected and have no row."""
    pa, pq = import_pyarrow("writing Parquet")
    metadata = {"lexome.form": "document", "lexome.version": str(FORM_VERSION)}
    schema = pa.schema(arrow_fields(Document), metadata=metadata)
    out = pa.PythonFile(_PositionStream(stream), "w")
    first, rejected = 0, []
    with pq.ParquetWriter(out, schema, compression="zstd", write_page_checksum=True) as writer:
        for group in _groups(docs):
            batch, indices = _batch(group, schema, tally)
            writer.write_batch(batch)
            tally.written += batch.num_rows
            rejected += [first + index for index in indices]
            first += len(group)
    return rejected


def import_pyarrow(purpose: str) -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtraError("pyarrow", extra="corpus", purpose=purpose) from None
    return pyarrow, pyarrow.parquet


class _PositionStream(io.RawIOBase):
    """A write stream that tracks its position, which standard output and compressors may not."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._position = 0

    def writable(self) -> bool:
        return True

    def write(self, block: Any) -> int:
        self._stream.write(block)
        self._position += len(block)
        return len(block)

    def tell(self) -> int:
        return self._position


def _groups(docs: Iterable[Document]) -> Iterator[list[Document]]:
    """The documents in row groups, whose boundaries depend on the documents only."""
    group: list[Document] = []
    size = 0
    for doc in docs:
        group.append(doc)
        size += sum(len(passage.text) for passage in doc.passages) + SPAN_CHARACTERS * len(doc.spans)
        if len(group) == GROUP_ROWS or size >= GROUP_CHARACTERS:
            yield group
            group, size = [], 0
    if group:
        yield group


def _batch(docs: list[Document], schema: Any, tally: Tally) -> tuple[Any, list[int]]:
    """The documents as a record batch, and the indices of rejected ones, which Arrow cannot represent."""
    try:
        return _arrow(docs, schema), []
    except BadDocument:
        rejected: set[int] = set()
        for index, doc in enumerate(docs):
            name = doc.id.encode(errors="backslashreplace").decode()
            make = partial(_arrow, [doc], schema)
            if tally.attempt(make, where=f"document {doc.id!r}", id=name) is None:
                rejected.add(index)
        kept = [doc for index, doc in enumerate(docs) if index not in rejected]
        return _arrow(kept, schema), sorted(rejected)


def _arrow(docs: list[Document], schema: Any) -> Any:
    import pyarrow as pa

    try:
        return pa.RecordBatch.from_arrays(to_arrays(Document, docs), schema=schema)
    except UnicodeEncodeError as error:
        raise BadDocument("not_unicode", f"{error}; expected valid Unicode") from None
    except (OverflowError, TypeError, pa.ArrowException) as error:
        raise BadDocument("not_storable", f"{error}; expected numbers of 64 bits and the model's own types") from None


@dataclass(frozen=True, slots=True)
class Column:
    """One field of a dataclass: its type without None, whether None is allowed, and its default."""

    name: str
    hint: Any
    optional: bool
    default: Any


@cache
def columns_of(cls: type) -> tuple[Column, ...]:
    """The fields of a dataclass as columns."""
    hints = get_type_hints(cls)
    columns = []
    for field in fields(cls):
        hint = hints[field.name]
        optional = get_origin(hint) in (Union, UnionType)
        if optional:
            (hint,) = (choice for choice in get_args(hint) if choice is not type(None))
        columns.append(Column(field.name, hint, optional, field.default))
    return tuple(columns)


def arrow_fields(cls: type) -> list[Any]:
    """The Arrow fields of a dataclass."""
    import pyarrow as pa

    return [pa.field(column.name, _arrow_type(column.hint), nullable=column.optional) for column in columns_of(cls)]


def _arrow_type(hint: Any) -> Any:
    import pyarrow as pa

    if is_dataclass(hint):
        return pa.struct(arrow_fields(hint))  # type: ignore[arg-type]  # a class, not an instance
    if hint == Range:
        return pa.struct([pa.field(name, pa.int64(), nullable=False) for name in ("start", "end")])
    if get_origin(hint) is tuple:
        return pa.list_(pa.field("element", _arrow_type(get_args(hint)[0]), nullable=False))
    return {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}[hint]


def to_arrays(cls: type, objects: Sequence[Any]) -> list[Any]:
    """Objects of a dataclass as Arrow columns; None gives blank values."""
    arrays = []
    for column in columns_of(cls):
        blank = None if column.optional else _BLANK.get(column.hint, ())
        name = column.name
        arrays.append(_array(column.hint, [getattr(item, name) if item is not None else blank for item in objects]))
    return arrays


def _array(hint: Any, values: list[Any]) -> Any:
    import pyarrow as pa

    if is_dataclass(hint):
        mask = pa.array([value is None for value in values], pa.bool_())
        kind = _arrow_type(hint)
        return pa.StructArray.from_arrays(to_arrays(hint, values), fields=list(kind), mask=mask)  # type: ignore[arg-type]
    if hint == Range:
        ends = [pa.array([value[side] for value in values], pa.int64()) for side in (0, 1)]
        return pa.StructArray.from_arrays(ends, fields=list(_arrow_type(hint)))
    if get_origin(hint) is tuple:
        offsets = pa.array(list(accumulate(map(len, values), initial=0)), pa.int32())
        flat = [item for value in values for item in value]
        return pa.ListArray.from_arrays(offsets, _array(get_args(hint)[0], flat), type=_arrow_type(hint))
    return pa.array(values, _arrow_type(hint))


def schema_problem(cls: type, kind: Any, path: str = "") -> str | None:
    """The first incompatibility of a schema or struct with the fields of a dataclass, or None.

    Strings and lists may have Arrow's large types, which other tools write, and columns with a default may be
    missing, which another version of Lexome may not have.
    """
    for column in columns_of(cls):
        name = f"{path}{column.name}"
        if kind.names.count(column.name) > 1:
            return f"there are two columns {name}"
        if column.name in kind.names:
            if (problem := _column_problem(column.hint, kind.field(column.name).type, name)) is not None:
                return problem
        elif column.default is MISSING:
            return f"there is no column {name}"
    return None


def _column_problem(hint: Any, kind: Any, name: str) -> str | None:
    import pyarrow as pa

    of = pa.types
    if of.is_null(kind):
        # Tools that infer types write a column without values like this.
        return None
    if is_dataclass(hint):
        return schema_problem(hint, kind, f"{name}.") if of.is_struct(kind) else f"{name} is {kind}, not a struct"  # type: ignore[arg-type]
    if hint == Range:
        fits = of.is_struct(kind) and kind.names == ["start", "end"] and all(of.is_integer(side.type) for side in kind)
        return None if fits else f"{name} is {kind}, not a struct of start and end"
    if get_origin(hint) is tuple:
        if not (of.is_list(kind) or of.is_large_list(kind)):
            return f"{name} is {kind}, not a list"
        return _column_problem(get_args(hint)[0], kind.value_type, f"{name}[]")
    check: dict[type, Callable[[Any], bool]] = {int: of.is_integer, float: of.is_floating, bool: of.is_boolean}
    fits = of.is_string(kind) or of.is_large_string(kind) if hint is str else check[hint](kind)
    return None if fits else f"{name} is {kind}, not {_arrow_type(hint)}"


def documents_of(batch: Any) -> list[Document]:
    """The documents of a record batch in Lexome's own columns."""
    import pyarrow as pa

    return from_struct(Document, pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema)))


def from_struct(cls: type, array: Any) -> list[Any]:
    """The objects of a struct array with a compatible schema; null is None.

    A null in a column with a default becomes the default; in one without, BadDocument, as for invalid UTF-8.
    """
    sides = []
    for column in columns_of(cls):
        index = array.type.get_field_index(column.name)
        if index < 0:
            sides.append([column.default] * len(array))
            continue
        values = _values(column.hint, array.field(index))
        if not column.optional and array.field(index).null_count:
            if column.default is MISSING and any(
                value is None and valid for value, valid in zip(values, array.is_valid().to_pylist(), strict=True)
            ):
                message = f"{column.name} is null; expected a value in every row"
                raise BadDocument("missing_field", message, value=column.name)
            values = [column.default if value is None else value for value in values]
        sides.append(values)
    # Documents have thousands of these, so the objects are built from columns and not from dicts.
    rows = zip(*sides, strict=True)
    if array.null_count == 0:
        return [cls(*row) for row in rows]
    return [cls(*row) if valid else None for row, valid in zip(rows, array.is_valid().to_pylist(), strict=True)]


def _values(hint: Any, array: Any) -> list[Any]:
    if array.null_count == len(array):
        return [None] * len(array)
    if is_dataclass(hint):
        return from_struct(hint, array)  # type: ignore[arg-type]
    if hint == Range:
        starts, ends = array.field("start").to_pylist(), array.field("end").to_pylist()
        if array.null_count or None in starts or None in ends:
            raise BadDocument("missing_field", "a range has no start or end")
        return list(zip(starts, ends, strict=True))
    if get_origin(hint) is tuple:
        return _tuples(get_args(hint)[0], array)
    try:
        values: list[Any] = array.to_pylist()
    except UnicodeDecodeError as error:
        raise BadDocument("wrong_encoding", f"{error}; expected UTF-8") from None
    return values


def _tuples(hint: Any, array: Any) -> list[Any]:
    bounds = array.offsets.to_pylist()
    # A slice of a list array still has all the values.
    flat = _values(hint, array.values.slice(bounds[0], bounds[-1] - bounds[0]))
    if None in flat:
        raise BadDocument("missing_field", "a list contains null")
    first = bounds[0]
    tuples = [tuple(flat[start - first : end - first]) for start, end in pairwise(bounds)]
    if array.null_count == 0:
        return tuples
    return [value if valid else None for value, valid in zip(tuples, array.is_valid().to_pylist(), strict=True)]
