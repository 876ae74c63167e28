"""Files of vectors with their ids, written row by row: .npy with an .ids.jsonl beside it, or .parquet."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from lexome.errors import MissingExtraError, UsageError
from lexome.formats.files import replacing

Write = Callable[[Sequence[str], NDArray[np.float32]], None]


def ids_beside(out: Path) -> Path:
    """The file of ids that belongs to an .npy: a JSON string a line, in the order of the rows."""
    return out.with_name(f"{out.stem}.ids.jsonl")


@contextmanager
def vector_file(out: Path, width: int) -> Iterator[Write]:
    """A function that adds rows; the file has its name only when the block has ended well."""
    if out.suffix == ".npy":
        with replacing(out) as stream, replacing(ids_beside(out)) as ids:
            yield from _npy(stream, ids, width)
    elif out.suffix == ".parquet":
        # Before a file is begun: a missing package is said at once.
        pyarrow, parquet = _pyarrow()
        with replacing(out) as stream:
            yield from _parquet(stream, width, pyarrow, parquet)
    else:
        raise UsageError(
            f"{out}: ends with {out.suffix or 'nothing'}; expected a name that ends with .npy or .parquet."
        )


def _npy(stream: BinaryIO, ids: BinaryIO, width: int) -> Iterator[Write]:
    rows = 0
    _head(stream, rows, width)
    begins = stream.tell()

    def write(names: Sequence[str], vectors: NDArray[np.float32]) -> None:
        nonlocal rows
        stream.write(np.ascontiguousarray(vectors, dtype="<f4").tobytes())
        ids.writelines(json.dumps(name, ensure_ascii=False).encode() + b"\n" for name in names)
        rows += len(names)

    yield write
    stream.seek(0)
    _head(stream, rows, width)
    # numpy leaves room in the head for more rows; if it no longer did, the first vector would be overwritten.
    assert stream.tell() == begins


def _head(stream: BinaryIO, rows: int, width: int) -> None:
    npy.write_array_header_1_0(stream, {"descr": "<f4", "fortran_order": False, "shape": (rows, width)})


def _parquet(stream: BinaryIO, width: int, pyarrow: Any, parquet: Any) -> Iterator[Write]:
    schema = pyarrow.schema([("id", pyarrow.string()), ("vector", pyarrow.list_(pyarrow.float32(), width))])
    with parquet.ParquetWriter(pyarrow.PythonFile(stream, "w"), schema, compression="zstd") as writer:

        def write(names: Sequence[str], vectors: NDArray[np.float32]) -> None:
            flat = pyarrow.array(np.ascontiguousarray(vectors).ravel())
            columns = [pyarrow.array(names, pyarrow.string()), pyarrow.FixedSizeListArray.from_arrays(flat, width)]
            writer.write_batch(pyarrow.RecordBatch.from_arrays(columns, schema=schema))

        yield write


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtraError("pyarrow", extra="corpus", purpose="writing Parquet") from None
    return pyarrow, pyarrow.parquet
