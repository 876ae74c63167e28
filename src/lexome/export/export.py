"""export: a checkpoint as an ONNX folder that runs without torch, once its numbers are proven equal."""

import hashlib
import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lexome.corpus.vocab.tokenizers import around, load_tokenizer, tokenizer_sha256
from lexome.errors import CheckpointError, UsageError
from lexome.export.acceptance import (
    CERTIFICATE,
    Bar,
    HeldOut,
    Tell,
    Trials,
    answers,
    held_out,
    renamed_types,
    require_apart,
    score_facts,
    scores,
    write_certificate,
)
from lexome.export.calibration import calibration
from lexome.export.onnx_graph import HEADS, OPSET, graph_of, has_segments, save_graph
from lexome.files import atomic_folder
from lexome.infer.model import Model
from lexome.infer.model_folder import MODEL, TOKENIZER, Settings, write_settings
from lexome.infer.predictor import Predictor
from lexome.models.checkpoint import Checkpoint, encoder_of, load
from lexome.models.encoder import Encoder
from lexome.models.packing import Packing
from lexome.models.weights import write_tokenizer
from lexome.tasks import task_of
from lexome.tasks.task import TASK

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


PRECISIONS = ("fp32", "int8")


@dataclass(frozen=True, slots=True)
class Judging:
    """What a model is judged by, and its scores made true with: documents it was not trained on.

    held_out  names of data sets, folders with splits, or files
    split     of those that have splits
    data      where data sets are looked for
    asked     what a model in eight bits must reach
    """

    held_out: tuple[str, ...]
    split: str = "dev"
    data: Path | None = None
    asked: Bar = field(default_factory=Bar)


def export(
    checkpoint: Path,
    folder: Path,
    *,
    kind: str | None = None,
    precision: str = "fp32",
    judging: Judging | None = None,
    name: str | None = None,
    tell: Tell = lambda line: None,
) -> Settings:
    """Write a masked LM, an encoder or a labeller as an ONNX folder; what its settings say.

    The folder gets its name only when onnxruntime's numbers are torch's, on sentences and on random ids of several
    lengths, alone and padded; in eight bits, only when the answers on held-out documents stay the same too. With
    `judging`, scores of mentions are calibrated, and a certificate says what was measured; `tell` hears of each step.
    A checkpoint of BERT's own pre-training is exported as a masked LM. `name` is what the model is called wherever its
    folder lies.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CheckpointError(f"{folder}: exists and is not empty. Choose another folder, or remove it.")
    if kind is not None and kind not in HEADS:
        raise CheckpointError(f"kind {kind!r}; expected one of {', '.join(HEADS)}.")
    found = load(checkpoint, kind=kind, backend="lexome")
    if found.kind == "paired":
        found = load(checkpoint, kind="masked", backend="lexome")
    held = _held_out(found, precision, judging)
    with atomic_folder(folder) as temporary:
        save_graph(graph_of(found.model, found.kind), temporary / MODEL)
        settings = _settings(temporary, found, name)
        write_settings(temporary, settings)
        settings = replace(settings, difference=proven(temporary, found))
        if judging is not None:
            settings = _judged(temporary, replace(settings, precision=precision), held, judging.asked, tell)
        write_settings(temporary, settings)
        (temporary / "README.md").write_text(_card(found, settings, name or folder.name), encoding="utf-8")
    return settings


def _held_out(found: Checkpoint, precision: str, judging: Judging | None) -> list[HeldOut]:
    """The documents that the model is judged by; UsageError where it needs some, or can do nothing with them."""
    if precision not in PRECISIONS:
        raise UsageError(f"precision {precision!r}; expected one of {', '.join(PRECISIONS)}.")
    if judging is None or not judging.held_out:
        if precision != "fp32" or judging is not None:
            raise UsageError(
                f"a model in {precision} is judged by documents that it was not trained on, and none are named. "
                "Name a data set, a folder or a file with --held-out."
            )
        return []
    settings = _task(found.folder)
    if settings is None or found.kind not in ("token", "sequence", "span"):
        raise UsageError(
            f"{found.folder}: a model of kind {found.kind!r} without a task cannot be judged by documents; expected a "
            "fine-tuned one. Export it without --held-out, as fp32."
        )
    task, rename = task_of(settings), renamed_types(found.folder)
    held = [
        held_out(name, split=judging.split, task=task, data=judging.data, rename=rename) for name in judging.held_out
    ]
    require_apart([part.source for part in held])
    return held


def _judged(folder: Path, settings: Settings, held: Sequence[HeldOut], asked: Bar, tell: Tell) -> Settings:
    """Put the model into eight bits where that is asked for, calibrate it, and write its certificate."""
    assert settings.task is not None
    task = task_of(settings.task)
    if settings.precision == "int8":
        trials = Trials(folder, task, held, asked, tell)
        chosen = trials.best()
        found, facts = chosen.found, trials.facts(chosen)
    else:
        found = answers(Model.open(folder), held)
        facts = {"score": score_facts(scores(task, held, found))}
    if task.types:
        curves = calibration(task, held, found)
        settings = replace(settings, calibration={type_: own.curve for type_, own in curves.items()} or None)
        facts["calibration"] = {type_: own.facts() for type_, own in curves.items()}
    facts |= {"source": settings.source, "difference_from_torch": settings.difference}
    write_certificate(folder, precision=settings.precision, held=held, facts=facts)
    return settings


def _settings(folder: Path, found: Checkpoint, name: str | None) -> Settings:
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
        source=({"name": name} if name else {})
        | {
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


def _card(found: Checkpoint, settings: Settings, name: str) -> str:
    """README.md: what this folder is, then what the checkpoint's own card says, licence first."""
    path = found.folder / "README.md"
    original = path.read_text(encoding="utf-8") if path.is_file() else ""
    front, body = "", original
    if original.startswith("---\n") and "\n---\n" in original:
        front, _, body = original.partition("\n---\n")
        front = re.sub(r"(?m)^library_name:.*$", "library_name: onnx", front) + "\n---\n\n"
    rows = len(random_lengths(settings.max_tokens))
    small = settings.precision == "int8"
    told = (
        f"{'Before its weights were rounded to eight bits, its' if small else 'Its'} numbers on {len(SENTENCES)} "
        f"sentences and {rows} rows of random ids, alone and padded, differed from torch's by "
        f"{settings.difference:.2g} at most."
    )
    if small or settings.calibration:
        told += f" What was measured on documents that it was not trained on is in {CERTIFICATE}."
    parts = [
        f"{front}# {name}",
        f"The {settings.source['architecture']} checkpoint {settings.source['checkpoint']} as ONNX (opset {OPSET}, "
        f"{settings.precision}, kind {settings.kind}), exported by Lexome. {told} It runs without torch: "
        f"`{_verb(settings)}`.",
    ]
    if body.strip():
        parts += ["What follows is the checkpoint's own card.", body.strip()]
    return "\n\n".join(parts) + "\n"


def _verb(settings: Settings) -> str:
    """What an exported model is for."""
    if settings.task is not None:
        return "lexome annotate"
    return "lexome fill" if settings.kind == "masked" else "lexome embed"
