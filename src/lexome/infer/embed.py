"""embed: a vector for each document, passage or sentence of files in any format."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from lexome.corpus.sentences import with_sentences
from lexome.document import Document
from lexome.errors import FormatError, MissingExtraError, UsageError
from lexome.files import atomic_write
from lexome.formats import Tally, expand, read
from lexome.infer.predictor import Predictor
from lexome.infer.tokenizer import windows
from lexome.progress import progress

Write = Callable[[Sequence[str], NDArray[np.float32]], None]


def ids_beside(out: Path) -> Path:
    """The file of ids that belongs to an .npy: a JSON string a line, in the order of the rows."""
    return out.with_name(f"{out.stem}.ids.jsonl")


@contextmanager
def vector_file(out: Path, width: int) -> Iterator[Write]:
    """A function that adds rows; the file has its name only when the block has ended well."""
    if out.suffix == ".npy":
        with atomic_write(out) as stream, atomic_write(ids_beside(out)) as ids:
            yield from _npy(stream, ids, width)
    elif out.suffix == ".parquet":
        # Before a file is begun: a missing package is said at once.
        pyarrow, parquet = _pyarrow()
        with atomic_write(out) as stream:
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


UNITS = ("document", "passage", "sentence")
POOLINGS = ("mean", "cls")

# Texts are gathered up to so many tokens, so that rows of like length can go together. This bounds the memory.
GATHERED_TOKENS = 1 << 15

Text = tuple[str, list[int]]


@dataclass(slots=True)
class Embedded:
    """What was done: the documents read, the vectors written, and what had no tokens and so has no vector.

    `windows` is the number of rows the model saw: more than the vectors where texts were too long for one.
    """

    tally: Tally
    vectors: int = 0
    windows: int = 0
    tokens: int = 0
    without_tokens: int = 0


def embed(
    predictor: Predictor,
    inputs: Sequence[Path],
    out: Path,
    *,
    unit: str = "document",
    pooling: str = "mean",
    batch: int = 1,
    normalise: bool = False,
    lines: bool = False,
    rejects: Path | None = None,
    progress_shown: bool = True,
) -> Embedded:
    """Write a vector for each unit of the documents in `inputs`, and its id.

    A text too long for the model is cut into windows of about one length, whose vectors are averaged by their tokens.
    With `lines`, each line of a plain text file is a document. Bad documents are set aside in `rejects`, or raise
    where there is none.
    """
    for name, seen, known in (("unit", unit, UNITS), ("pooling", pooling, POOLINGS)):
        if seen not in known:
            raise UsageError(f"{name} is {seen!r}; expected one of {', '.join(known)}.")
    _check_apart(inputs, out)
    with Tally(rejects) as tally:
        done = Embedded(tally)
        files = expand(inputs, None, tally)
        docs = read(files, tally=tally, options_if_supported={"per": "line"} if lines else {})
        total = sum(path.stat().st_size for path in files if path.is_file())
        bar = progress("embedding", total=total, position=lambda: tally.bytes_read, shown=progress_shown)
        with bar as watched, vector_file(out, predictor.settings.width) as write:
            for texts in _gathered(predictor, _texts(watched(docs), unit), done):
                vectors = _vectors(predictor, [ids for _, ids in texts], done, pooling=pooling, batch=batch)
                write([name for name, _ in texts], _unit_length(vectors) if normalise else vectors)
                done.vectors += len(texts)
            if not tally.documents and tally.failures:
                raise FormatError(tally.failures[0])
            if not tally.documents and tally.rejected:
                raise FormatError(_all_bad(tally))
    return done


def _all_bad(tally: Tally) -> str:
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in tally.rejected.most_common())
    return f"every document is bad ({reasons}): {tally.rejects_path} has them. No vectors were written."


def _check_apart(inputs: Sequence[Path], out: Path) -> None:
    for written in (out, ids_beside(out)):
        if written.exists() and any(path.exists() and path.samefile(written) for path in inputs):
            raise UsageError(f"{written} is both input and output. Write to another file.")


def _texts(docs: Iterable[Document], unit: str) -> Iterator[tuple[str, str]]:
    """The id and the text of each unit: 123 of a document, 123/2 of its passage, 123/2/1 of a sentence, from 1."""
    for doc in docs:
        if unit == "document":
            yield doc.id, "\n".join(passage.text for passage in doc.passages)
            continue
        doc = with_sentences(doc) if unit == "sentence" else doc
        for number, passage in enumerate(doc.passages, 1):
            name = f"{doc.id}/{number}"
            if unit == "passage":
                yield name, passage.text
                continue
            for place, (start, end) in enumerate(passage.sentences, 1):
                yield f"{name}/{place}", passage.text[start - passage.offset : end - passage.offset]


def _gathered(predictor: Predictor, texts: Iterable[tuple[str, str]], done: Embedded) -> Iterator[list[Text]]:
    """Texts as ids, many at a time; what has no token is counted."""
    gathered: list[Text] = []
    size = 0
    for name, text in texts:
        ids = predictor.tokens.ids(text)
        if not ids:
            done.without_tokens += 1
            continue
        gathered.append((name, ids))
        size += len(ids)
        if size >= GATHERED_TOKENS:
            yield gathered
            gathered, size = [], 0
    if gathered:
        yield gathered


def _vectors(
    predictor: Predictor, texts: Sequence[list[int]], done: Embedded, *, pooling: str, batch: int
) -> NDArray[np.float32]:
    """A vector a text, (texts, D): of its one window, or the mean of several by their tokens."""
    cut = [windows(ids, predictor.room) for ids in texts]
    pieces = [piece for part in cut for piece in part]
    found = predictor.pooled([predictor.between(piece) for piece in pieces], pooling=pooling, batch=batch)
    owners = np.repeat(np.arange(len(texts)), [len(part) for part in cut])
    weights = np.array([len(piece) for piece in pieces], dtype=np.float64)
    sums = np.zeros((len(texts), predictor.settings.width))
    np.add.at(sums, owners, found * weights[:, None])
    done.windows += len(pieces)
    done.tokens += int(weights.sum())
    vectors: NDArray[np.float32] = (sums / np.bincount(owners, weights)[:, None]).astype(np.float32)
    return vectors


def _unit_length(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: NDArray[np.float32] = vectors / np.maximum(lengths, np.finfo(np.float32).tiny)
    return scaled
