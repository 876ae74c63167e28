"""fill: the most probable words for each mask of a text."""

from dataclasses import dataclass

import numpy as np

from lexome.errors import UsageError
from lexome.infer.predictor import Predictor

# Accepted whatever the model's own mask token is.
MASK = "[MASK]"


@dataclass(frozen=True, slots=True)
class WordPrediction:
    """A word for a mask; ##ment is the inner part of a word. `probability` is over the whole vocabulary."""

    word: str
    id: int
    probability: float


def fill(predictor: Predictor, text: str, *, top: int = 5) -> list[list[WordPrediction]]:
    """For each mask of the text, in order, the most probable words."""
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
