"""fill: the words a masked language model would put where a text has a mask."""

from dataclasses import dataclass

import numpy as np

from lexome.errors import UsageError
from lexome.infer.predictor import Predictor

# Understood whatever the model's own mask token is.
MASK = "[MASK]"


@dataclass(frozen=True, slots=True)
class Guess:
    """A word for a mask; ##ment is the inner part of a word. `probability` is over the whole vocabulary."""

    word: str
    id: int
    probability: float


def fill(predictor: Predictor, text: str, *, top: int = 5) -> list[list[Guess]]:
    """For each mask of the text, in order, the likeliest words first."""
    mask = predictor.settings.mask
    if mask is None:
        raise UsageError(f"{predictor.folder}: the model's tokenizer has no mask token. Use a masked language model.")
    names = [piece for piece, id_ in predictor.tokens.vocabulary.items() if id_ == mask]
    row = predictor.row(text if MASK in names else text.replace(MASK, names[0]))
    positions = [place for place, id_ in enumerate(row) if id_ == mask]
    if not positions:
        raise UsageError(f"the text has no mask. Write {MASK} where a word is to be guessed.")
    logits_MV = predictor.words(row, positions).astype(np.float64)
    # A vocabulary may be filled up to a round number; what the tokenizer does not know is no word.
    known = np.zeros(logits_MV.shape[1], dtype=bool)
    known[list(predictor.tokens.vocabulary.values())] = True
    logits_MV[:, ~known] = -np.inf
    exact_MV = np.exp(logits_MV - logits_MV.max(axis=-1, keepdims=True))
    shares_MV = exact_MV / exact_MV.sum(axis=-1, keepdims=True)
    return [_best(predictor, shares_V, top) for shares_V in shares_MV]


def _best(predictor: Predictor, shares_V: np.ndarray[tuple[int], np.dtype[np.float64]], top: int) -> list[Guess]:
    order = np.argsort(-shares_V, kind="stable")[:top].tolist()
    return [Guess(predictor.tokens.word(id_), id_, float(shares_V[id_])) for id_ in order]
