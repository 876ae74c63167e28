"""The proof of an export: onnxruntime's numbers beside torch's, on sentences and on random ids.

T tokens of a packed batch
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lexome.errors import CheckpointError
from lexome.infer.predictor import Predictor
from lexome.models.checkpoint import Checkpoint, encoder_of
from lexome.models.packing import Packing

# The largest difference between torch's and onnxruntime's numbers that is let through. torch computes in double
# precision: its own rounding in single precision is as large as onnxruntime's, and says nothing about the graph
# (docs/decisions/0010-inference.md has both).
TOLERANCE = 1e-4

SENTENCES = (
    "Fever.",
    "Mutations in BRCA1 raise the risk of breast cancer.",
    "The CFTR gene causes cystic fibrosis, a recessive disease of the lungs and pancreas (OMIM 219700).",
    "In 1,204 patients with type 2 diabetes, metformin 500 mg b.i.d. lowered HbA1c by 0.9% (95% CI 0.7–1.1; P < 0.001) "
    "without weight gain; IL-6, TNF-α and C-reactive protein did not change.",
)
RANDOM_LENGTHS = (1, 2, 17, 64, 200, 300)


def proven(folder: Path, found: Checkpoint) -> float:
    """The largest difference between torch and onnxruntime; CheckpointError where it is too large."""
    predictor = Predictor.open(folder)
    rows = _rows(predictor, found.config.vocab)
    found.model.double()
    ways = [(predictor, 1), (predictor, len(rows)), (predictor.of_one_thread(), 1)]
    difference = max(_difference(way, found, rows, batch=batch) for way, batch in ways)
    if not difference <= TOLERANCE:
        raise CheckpointError(
            f"{found.folder}: torch and onnxruntime differ by {difference:.2g}; expected {TOLERANCE:g} or less. "
            "Nothing was written. Weights in half precision, or very large ones, can be the cause."
        )
    return difference


def _rows(predictor: Predictor, vocab: int) -> list[list[int]]:
    """Sentences as the tokenizer cuts them, and random ids: the numbers must agree on any."""
    rng = np.random.default_rng(20261115)
    most = predictor.settings.max_tokens
    sentences = [predictor.between(predictor.tokens.ids(text)[: predictor.room]) for text in SENTENCES]
    return [*sentences, *(rng.integers(0, vocab, length).tolist() for length in random_lengths(most))]


def random_lengths(most: int) -> list[int]:
    return sorted({min(length, most) for length in RANDOM_LENGTHS})


def _difference(predictor: Predictor, found: Checkpoint, rows: Sequence[list[int]], *, batch: int) -> float:
    if found.kind == "masked":
        # One row at a time in both cases: many rows of logits over a vocabulary do not fit everywhere.
        words = (_apart(predictor.words(row, range(len(row))), _torch(found, row)) for row in rows)
        encoder = replace(found, kind="encoder", model=encoder_of(found.model))
        return max(*words, _difference(predictor, encoder, rows, batch=batch))
    seen = predictor.hidden(rows, batch=batch) if found.kind == "encoder" else predictor.logits(rows, batch=batch)
    return max(_apart(numbers, _torch(found, row)) for numbers, row in zip(seen, rows, strict=True))


def _torch(found: Checkpoint, row: list[int]) -> Tensor:
    ids_T = torch.tensor(row)
    positions: tuple[Any, ...] = (torch.arange(len(row)),) if found.kind == "masked" else ()
    with torch.inference_mode():
        result: Tensor = found.model(ids_T, Packing.of([len(row)]), *positions)
    return result.squeeze(0) if found.kind == "sequence" else result


def _apart(seen: NDArray[np.float32], expected: Tensor) -> float:
    return float(np.abs(seen - expected.numpy()).max())
