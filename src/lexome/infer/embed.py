"""embed: a vector for each document, passage or sentence of files in any format; fill: words for masks."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from lexome.corpus.sentences import with_sentences
from lexome.document import Document, encode_utf8
from lexome.errors import FormatError, UsageError
from lexome.files import atomic_write
from lexome.formats import Paths, Tally, as_paths, expand, read
from lexome.formats.parquet import import_pyarrow
from lexome.infer.predictor import Predictor
from lexome.progress import progress

UNITS = ("document", "passage", "sentence")
POOLINGS = ("mean", "cls")

# Texts are buffered up to this many tokens, so that sequences of similar length can be batched. It bounds the memory.
BUFFER_TOKENS = 1 << 15

EncodedUnit = tuple[str, list[int]]
"""The id of a unit and its token ids."""


@dataclass(slots=True)
class EmbedResult:
    """Counts: documents read, vectors written, and texts without tokens, which have no vector.

    `windows` is the number of sequences the model ran: more than vectors if texts were too long for one.
    """

    tally: Tally
    vectors: int = 0
    windows: int = 0
    tokens: int = 0
    without_tokens: int = 0


def embed(
    predictor: Predictor,
    inputs: Paths,
    out: str | Path,
    *,
    unit: str = "document",
    pooling: str = "mean",
    batch: int = 1,
    normalize: bool = False,
    lines: bool = False,
    rejects: str | Path | None = None,
    progress_shown: bool = True,
) -> EmbedResult:
    """Write a vector and its id for each unit of the documents in `inputs`.

    A text too long for the model is split into windows of about equal length, whose vectors are averaged, weighted by
    tokens. With `lines`, each line of a plain text file is a document. Bad documents are written to `rejects`; without
    it, the first one raises.
    """
    inputs, out = as_paths(inputs), Path(out)
    for name, value, choices in (("unit", unit, UNITS), ("pooling", pooling, POOLINGS)):
        if value not in choices:
            message = f"{name} is {value!r}; expected one of {', '.join(choices)}."
            raise UsageError(message, code=f"unknown-{name}", value=value)
    for path in (out, ids_path(out)):
        if path.exists() and any(other.exists() and other.samefile(path) for other in inputs):
            raise UsageError(f"{path} is both input and output. Choose another path.", code="same-file", value=path)
    with Tally(rejects) as tally:
        result = EmbedResult(tally)
        files = expand(inputs, None, tally)
        docs = read(files, tally=tally, options_if_supported={"per": "line"} if lines else {})
        total = sum(path.stat().st_size for path in files if path.is_file())
        bar = progress("embedding", total=total, position=lambda: tally.bytes_read, shown=progress_shown)
        with bar as track, vector_file(out, predictor.settings.width) as write:
            for texts in _tokenize(predictor, _units(_with_unicode_ids(track(docs), tally), unit), result):
                vectors = _embed_texts(predictor, [ids for _, ids in texts], result, pooling=pooling, batch=batch)
                if normalize:
                    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
                    vectors /= np.maximum(lengths, np.finfo(np.float32).tiny)
                write([name for name, _ in texts], vectors)
                result.vectors += len(texts)
            if not tally.documents and tally.failures:
                raise FormatError(tally.failures[0], code="unreadable-file")
            if not tally.documents and tally.rejected:
                reasons = ", ".join(f"{count:,} {reason}" for reason, count in tally.rejected.most_common())
                message = f"every document was rejected ({reasons}); see {tally.rejects_path}. No vectors were written."
                raise FormatError(message, code="all-rejected", value=tally.rejects_path)
    return result


def _with_unicode_ids(docs: Iterable[Document], tally: Tally) -> Iterator[Document]:
    """The documents whose ids a file can hold; one with a lone surrogate, as JSON may have, is rejected."""

    def check(doc: Document) -> Document:
        encode_utf8(doc.id, "the id")
        return doc

    for doc in docs:
        yield from tally.accept(partial(check, doc), where=f"document {doc.id!r}", id=doc.id)


def _units(docs: Iterable[Document], unit: str) -> Iterator[tuple[str, str]]:
    """Id and text of each unit: 123 of a document, 123/2 of its passage, 123/2/1 of a sentence, counted from 1."""
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
            for sentence, (start, end) in enumerate(passage.sentences, 1):
                yield f"{name}/{sentence}", passage.text[start - passage.offset : end - passage.offset]


def _tokenize(
    predictor: Predictor, texts: Iterable[tuple[str, str]], result: EmbedResult
) -> Iterator[list[EncodedUnit]]:
    """Tokenized texts, many at a time; texts without tokens are counted and skipped."""
    buffer: list[EncodedUnit] = []
    size = 0
    for name, text in texts:
        ids = predictor.tokenizer.ids(text)
        if not ids:
            result.without_tokens += 1
            continue
        buffer.append((name, ids))
        size += len(ids)
        if size >= BUFFER_TOKENS:
            yield buffer
            buffer, size = [], 0
    if buffer:
        yield buffer


def _embed_texts(
    predictor: Predictor, texts: Sequence[list[int]], result: EmbedResult, *, pooling: str, batch: int
) -> NDArray[np.float32]:
    """A vector for each text, (texts, D): that of its window, or the mean over several, weighted by tokens."""
    split = [windows(ids, predictor.room) for ids in texts]
    pieces = [piece for part in split for piece in part]
    rows = [predictor.with_special_tokens(piece) for piece in pieces]
    piece_vectors = predictor.pooled(rows, pooling=pooling, batch=batch)
    owners = np.repeat(np.arange(len(texts)), [len(part) for part in split])
    weights = np.array([len(piece) for piece in pieces], dtype=np.float64)
    sums = np.zeros((len(texts), predictor.settings.width))
    np.add.at(sums, owners, piece_vectors * weights[:, None])
    result.windows += len(pieces)
    result.tokens += int(weights.sum())
    vectors: NDArray[np.float32] = (sums / np.bincount(owners, weights)[:, None]).astype(np.float32)
    return vectors


def embed_texts(predictor: Predictor, texts: Sequence[str], *, pooling: str = "mean") -> NDArray[np.float32]:
    """A vector for each text, (texts, D), in windows as in `embed`; zeros for one without tokens."""
    encoded = [predictor.tokenizer.ids(text) for text in texts]
    places = [place for place, ids in enumerate(encoded) if ids]
    vectors = np.zeros((len(texts), predictor.settings.width), np.float32)
    if places:
        counts = EmbedResult(Tally())
        rows = [encoded[place] for place in places]
        vectors[places] = _embed_texts(predictor, rows, counts, pooling=pooling, batch=1)
    return vectors


def windows(ids: Sequence[int], size: int) -> list[list[int]]:
    """The ids in as few windows as possible, none longer than `size`, all of about equal length.

    >>> windows([1, 2, 3, 4, 5, 6, 7], 3)
    [[1, 2, 3], [4, 5], [6, 7]]
    """
    count = max(1, -(-len(ids) // size))
    length, longer = divmod(len(ids), count)
    bounds = [number * length + min(number, longer) for number in range(count + 1)]
    return [list(ids[start:end]) for start, end in pairwise(bounds)]


# Files of vectors

WriteVectors = Callable[[Sequence[str], NDArray[np.float32]], None]


def ids_path(out: Path) -> Path:
    """The file of ids for an .npy: one JSON string per line, in the order of the rows."""
    return out.with_name(f"{out.stem}.ids.jsonl")


@contextmanager
def vector_file(out: Path, width: int) -> Iterator[WriteVectors]:
    """A function that appends vectors; the file appears under its name only on success."""
    if out.suffix == ".npy":
        with atomic_write(out) as stream, atomic_write(ids_path(out)) as ids:
            yield from _write_npy(stream, ids, width)
    elif out.suffix == ".parquet":
        # Before the file is opened, so that a missing package is reported at once.
        pyarrow, parquet = import_pyarrow("writing Parquet")
        with atomic_write(out) as stream:
            yield from _write_parquet(stream, width, pyarrow, parquet)
    else:
        message = f"{out}: extension {out.suffix or '(none)'}; expected .npy or .parquet."
        raise UsageError(message, code="unsupported-format", value=out)


def _write_npy(stream: BinaryIO, ids: BinaryIO, width: int) -> Iterator[WriteVectors]:
    rows = 0

    def write_header() -> None:
        npy.write_array_header_1_0(stream, {"descr": "<f4", "fortran_order": False, "shape": (rows, width)})

    def write(names: Sequence[str], vectors: NDArray[np.float32]) -> None:
        nonlocal rows
        stream.write(np.ascontiguousarray(vectors, dtype="<f4").tobytes())
        ids.writelines(json.dumps(name, ensure_ascii=False).encode() + b"\n" for name in names)
        rows += len(names)

    write_header()
    header_bytes = stream.tell()
    yield write
    stream.seek(0)
    write_header()
    # numpy reserves space in the header for more rows; if it did not, the first vector would be overwritten.
    assert stream.tell() == header_bytes


def _write_parquet(stream: BinaryIO, width: int, pyarrow: Any, parquet: Any) -> Iterator[WriteVectors]:
    schema = pyarrow.schema([("id", pyarrow.string()), ("vector", pyarrow.list_(pyarrow.float32(), width))])
    with parquet.ParquetWriter(pyarrow.PythonFile(stream, "w"), schema, compression="zstd") as writer:

        def write(names: Sequence[str], vectors: NDArray[np.float32]) -> None:
            flat = pyarrow.array(np.ascontiguousarray(vectors).ravel())
            columns = [pyarrow.array(names, pyarrow.string()), pyarrow.FixedSizeListArray.from_arrays(flat, width)]
            writer.write_batch(pyarrow.RecordBatch.from_arrays(columns, schema=schema))

        yield write


# fill: the most probable words for each mask of a text


# Accepted whatever the model's own mask token is.
MASK = "[MASK]"


@dataclass(frozen=True, slots=True)
class WordPrediction:
    """A word for a mask; ##ment is the inner part of a word. `probability` is over the whole vocabulary."""

    word: str
    id: int
    probability: float


def fill(predictor: Predictor, text: str, *, top: int = 5) -> list[list[WordPrediction]]:
    """The most probable words for each mask of the text, in order."""
    mask = predictor.settings.mask
    if mask is None:
        message = f"{predictor.folder}: the tokenizer has no mask token. Use a masked language model."
        raise UsageError(message, code="no-mask-token", value=predictor.folder)
    names = [piece for piece, id_ in predictor.tokenizer.vocabulary.items() if id_ == mask]
    row = predictor.row(text if MASK in names else text.replace(MASK, names[0]))
    positions = [position for position, id_ in enumerate(row) if id_ == mask]
    if not positions:
        raise UsageError(f"the text has no mask. Write {MASK} where a word is to be predicted.", code="no-mask")
    logits_MV = predictor.words(row, positions).astype(np.float64)
    # The vocabulary may be padded to a round number; ids that the tokenizer does not know are not words.
    known = np.zeros(logits_MV.shape[1], dtype=bool)
    known[list(predictor.tokenizer.vocabulary.values())] = True
    logits_MV[:, ~known] = -np.inf
    exponentials_MV = np.exp(logits_MV - logits_MV.max(axis=-1, keepdims=True))
    probabilities_MV = exponentials_MV / exponentials_MV.sum(axis=-1, keepdims=True)
    return [
        [
            WordPrediction(predictor.tokenizer.word(id_), id_, float(probabilities_V[id_]))
            for id_ in np.argsort(-probabilities_V, kind="stable")[:top].tolist()
        ]
        for probabilities_V in probabilities_MV
    ]
