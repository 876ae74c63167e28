"""Vectors of passages: written with their batch, then into a memory-mapped file that finds the nearest to a query.

The database has every vector, so that a batch is committed whole; the file is made from it when a run ends, under a new
name, and the database then names the new one. A reader never sees half of a file.
"""

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lexome.errors import MissingExtraError, SearchIndexError
from lexome.infer.embed import embed_texts
from lexome.infer.predictor import Predictor
from lexome.search import storage

Floats = NDArray[np.float32]

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
    generation = storage.read_meta(connection).get("generation", 0)
    previous = vector_path(folder, generation)
    if generation and previous.is_file():
        index.load(str(previous))
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
    with storage.transaction(connection):
        storage.write_meta(connection, {"generation": generation + 1})
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
        path = vector_path(folder, generation)
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
            matches = self._index.search(query, count)
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
