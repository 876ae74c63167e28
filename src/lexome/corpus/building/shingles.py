"""A text as hashes: of its words, of runs of words, of all of it, and its MinHash signature.

Words are runs of letters and digits in lower case, so that a text and its tokenised copy in a benchmark agree.
The signatures are rensa's, fixed by `SEED`: the same text has the same one on every machine.
"""

import hashlib
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lexome.errors import MissingExtraError

Hashes = npt.NDArray[np.uint64]

SEED = 1
_WORD = re.compile(r"[^\W_]+")
# An odd number with well-mixed bits: each word of a run weighs differently, whatever the order.
_STEP = np.uint64(0x9E3779B97F4A7C15)


def words_of(text: str) -> list[str]:
    """The words of a text, in lower case, without punctuation."""
    return _WORD.findall(text.lower())


def exact_key(words: Sequence[str]) -> bytes:
    """Sixteen bytes that two texts share only if their words do."""
    return hashlib.blake2b(" ".join(words).encode(), digest_size=16).digest()


def word_hashes(texts: Sequence[Sequence[str]]) -> list[Hashes]:
    """The hash of each word of each text."""
    return [np.array(hashes, dtype=np.uint64) for hashes in _rensa().hash_token_sets(texts)]


def run_hashes(hashes: Hashes, run_words: int) -> Hashes:
    """The hash of each run of so many words; of all words together where there are fewer."""
    size = min(run_words, len(hashes))
    if size == 0:
        return hashes
    count = len(hashes) - size + 1
    runs = hashes[:count].copy()
    with np.errstate(over="ignore"):
        for place in range(1, size):
            runs *= _STEP
            runs += hashes[place : place + count]
    return runs


def signatures(runs: Sequence[Hashes], *, permutations: int) -> npt.NDArray[np.uint32]:
    """The MinHash signatures of texts, a row each: two rows agree in as many places as the texts share runs."""
    offsets = np.zeros(len(runs) + 1, dtype=np.uint64)
    np.cumsum([len(text) for text in runs], out=offsets[1:])
    flat = np.concatenate(runs) if runs else np.zeros(0, dtype=np.uint64)
    matrix = _rensa().digest_matrix_from_flat_token_hashes(flat, offsets, permutations, SEED)
    return np.array(matrix.to_rows(), dtype=np.uint32).reshape(len(runs), permutations)


def band_hashes(rows: npt.NDArray[np.uint32], bands: int) -> Hashes:
    """A hash of each of the bands that the signatures are cut into."""
    cut = rows.reshape(len(rows), bands, rows.shape[1] // bands)
    mixed = np.zeros(cut.shape[:2], dtype=np.uint64)
    with np.errstate(over="ignore"):
        for place in range(cut.shape[2]):
            mixed = (mixed ^ cut[:, :, place]) * _STEP
            mixed ^= mixed >> np.uint64(29)
    return mixed


def _rensa() -> Any:
    try:
        import rensa
    except ImportError:
        raise MissingExtraError("rensa", extra="corpus", purpose="finding duplicates") from None
    return rensa.RMinHash
