"""export: a checkpoint as an ONNX folder that runs without torch, once its numbers are proven equal.

T tokens of a packed batch, M asked positions, V vocabulary
"""

import hashlib
import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from torch import Tensor

from lexome.corpus.vocab.tokenizers import around, load_tokenizer, tokenizer_sha256
from lexome.errors import CheckpointError, UsageError
from lexome.infer.predictor import Predictor
from lexome.infer.settings import MODEL, TOKENIZER, Settings, write_settings
from lexome.models.checkpoint import Checkpoint, encoder_of, load
from lexome.models.encoder import Encoder
from lexome.models.packing import Packing
from lexome.models.tokenizer_files import write_tokenizer
from lexome.tasks import task_of
from lexome.tasks.task import TASK
from lexome.train.onnx_graph import HEADS, OPSET, graph_of, has_segments

# The largest difference between torch's and onnxruntime's numbers that is let through. torch computes in double
# precision: its own rounding in single precision is as large as onnxruntime's, and says nothing about the graph
# (docs/decisions/0010-inference.md has both).
TOLERANCE = 1e-4

# protobuf holds less than 2 GiB. Larger weights lie in a file beside the graph.
INLINE_BYTES = 2_000_000_000

SENTENCES = (
    "Fever.",
    "Mutations in BRCA1 raise the risk of breast cancer.",
    "The CFTR gene causes cystic fibrosis, a recessive disease of the lungs and pancreas (OMIM 219700).",
    "In 1,204 patients with type 2 diabetes, metformin 500 mg b.i.d. lowered HbA1c by 0.9% (95% CI 0.7–1.1; P < 0.001) "
    "without weight gain; IL-6, TNF-α and C-reactive protein did not change.",
)
RANDOM_LENGTHS = (1, 2, 17, 64, 200, 300)


def export(checkpoint: Path, folder: Path, *, kind: str | None = None) -> Settings:
    """Write a masked LM, an encoder or a labeller as an ONNX folder; what its settings say.

    The folder gets its name only when onnxruntime's numbers are torch's, on sentences and on random ids of several
    lengths, alone and padded. A checkpoint of BERT's own pre-training is exported as a masked LM.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CheckpointError(f"{folder}: exists and is not empty. Choose another folder, or remove it.")
    if kind is not None and kind not in HEADS:
        raise CheckpointError(f"kind {kind!r}; expected one of {', '.join(HEADS)}.")
    found = load(checkpoint, kind=kind, backend="lexome")
    if found.kind == "paired":
        found = load(checkpoint, kind="masked", backend="lexome")
    temporary = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        _write_model(temporary / MODEL, found)
        settings = _settings(temporary, found)
        write_settings(temporary, settings)
        settings = replace(settings, difference=_proven(temporary, found))
        write_settings(temporary, settings)
        (temporary / "README.md").write_text(_card(found, settings, folder.name), encoding="utf-8")
        if folder.exists():
            folder.rmdir()
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return settings


def _write_model(path: Path, found: Checkpoint) -> None:
    model = graph_of(found.model, found.kind)
    size = sum(len(weight.raw_data) for weight in model.graph.initializer)
    onnx.save_model(model, str(path), save_as_external_data=size > INLINE_BYTES, location=f"{MODEL}.data")


def _settings(folder: Path, found: Checkpoint) -> Settings:
    """Put the tokenizer in place and say what the model is run by."""
    config = found.config
    special = _put_tokenizer(folder, found)
    before, between, after = _around(folder, special)
    return Settings(
        kind=found.kind,
        max_tokens=config.max_tokens,
        width=config.width,
        before=before,
        after=after,
        between=between,
        pad=special.get("pad_token", 0),
        mask=special.get("mask_token"),
        segments=has_segments(_encoder(found), found.kind),
        labels=found.labels,
        tokenizer_sha256=tokenizer_sha256(folder / TOKENIZER),
        opset=OPSET,
        precision="fp32",
        difference=0.0,
        source={
            "checkpoint": found.folder.resolve().name,
            "architecture": found.architecture,
            "weights_sha256": _weights_sha256(found.model),
        },
        task=_task(found.folder),
    )


def _put_tokenizer(folder: Path, found: Checkpoint) -> dict[str, int]:
    """Write tokenizer.json, made from other files where the checkpoint has only those; the ids of special tokens."""
    given, made = folder / "given", folder / "made"
    given.mkdir()
    made.mkdir()
    for name, content in found.tokenizer_files.items():
        (given / name).write_bytes(content)
    source = given if found.tokenizer_files else found.folder
    special = write_tokenizer(source, made, max_tokens=found.config.max_tokens, vocab=found.config.vocab)
    (made / TOKENIZER).rename(folder / TOKENIZER)
    for scratch in (given, made):
        shutil.rmtree(scratch)
    return special


def _encoder(found: Checkpoint) -> Encoder:
    encoder = encoder_of(found.model)
    assert isinstance(encoder, Encoder)
    return encoder


def _task(folder: Path) -> dict[str, Any] | None:
    """What the numbers of a fine-tuned checkpoint mean, where it says so."""
    path = folder / TASK
    if not path.is_file():
        return None
    try:
        held: dict[str, Any] = json.loads(path.read_bytes())
        task_of(held)
    except (ValueError, UsageError) as error:
        raise CheckpointError(f"{path}: describes no task ({error}). Fine-tune it again, or remove the file.") from None
    return held


def _around(folder: Path, special: dict[str, int]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """The ids before, between and after texts: as the tokenizer puts them, or where it puts none, its CLS and SEP."""
    found = around(load_tokenizer(folder / TOKENIZER))
    if found is not None:
        return found
    first, last = (() if special.get(name) is None else (special[name],) for name in ("cls_token", "sep_token"))
    return first, last, last


def _weights_sha256(model: torch.nn.Module) -> str:
    total = hashlib.sha256()
    for name, weight in sorted(model.state_dict().items()):
        total.update(name.encode())
        total.update(weight.contiguous().numpy().tobytes())
    return total.hexdigest()


def _proven(folder: Path, found: Checkpoint) -> float:
    """The largest difference between torch and onnxruntime; CheckpointError where it is too large."""
    predictor = Predictor.open(folder)
    rows = _rows(predictor, found.config.vocab)
    found.model.double()
    difference = max(_difference(predictor, found, rows, batch=batch) for batch in (1, len(rows)))
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
    return [*sentences, *(rng.integers(0, vocab, length).tolist() for length in _random_lengths(most))]


def _random_lengths(most: int) -> list[int]:
    return sorted({min(length, most) for length in RANDOM_LENGTHS})


def _difference(predictor: Predictor, found: Checkpoint, rows: Sequence[list[int]], *, batch: int) -> float:
    if found.kind == "masked":
        # One row at a time in both cases: many rows of logits over a vocabulary do not fit everywhere.
        words = (_apart(predictor.words(row, range(len(row))), _torch(found, row)) for row in rows)
        encoder = replace(found, kind="encoder", model=_encoder(found))
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


def _card(found: Checkpoint, settings: Settings, name: str) -> str:
    """README.md: what this folder is, then what the checkpoint's own card says, licence first."""
    path = found.folder / "README.md"
    original = path.read_text(encoding="utf-8") if path.is_file() else ""
    front, body = "", original
    if original.startswith("---\n") and "\n---\n" in original:
        front, _, body = original.partition("\n---\n")
        front = re.sub(r"(?m)^library_name:.*$", "library_name: onnx", front) + "\n---\n\n"
    verb = "lexome fill" if settings.kind == "masked" else "lexome embed"
    rows = len(_random_lengths(settings.max_tokens))
    parts = [
        f"{front}# {name}",
        f"The {settings.source['architecture']} checkpoint {settings.source['checkpoint']} as ONNX (opset {OPSET}, "
        f"{settings.precision}, kind {settings.kind}), exported by Lexome. On {len(SENTENCES)} sentences and {rows} "
        f"rows of random ids, alone and padded, its numbers differ from torch's by "
        f"{settings.difference:.2g} at most. It runs without torch: `{verb}`.",
    ]
    if body.strip():
        parts += ["What follows is the checkpoint's own card.", body.strip()]
    return "\n\n".join(parts) + "\n"
