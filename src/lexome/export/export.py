"""export: a checkpoint as an ONNX folder that runs without torch, written only if both compute the same."""

import hashlib
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lexome.corpus.vocab.tokenizers import load_tokenizer, special_token_template, tokenizer_sha256
from lexome.errors import CheckpointError, UsageError
from lexome.export.calibration import calibrate, calibrate_reader
from lexome.export.int8 import (
    CERTIFICATE,
    HeldOutEvaluation,
    HeldOutSource,
    Int8Search,
    Log,
    predict,
    score,
    write_certificate,
)
from lexome.export.onnx_graph import HEADS, OPSET, build_graph, has_segments, save_graph
from lexome.files import atomic_folder, read_json, write_checksums
from lexome.infer.annotator import Model, answerable_key
from lexome.infer.predictor import MODEL, TOKENIZER, ModelSettings, Predictor, write_settings
from lexome.models.checkpoint import Checkpoint, encoder_of, load
from lexome.models.encoder import Encoder, Packing
from lexome.models.hf_folder import write_tokenizer
from lexome.tasks import task_of
from lexome.tasks.task import TASK

PRECISIONS = ("fp32", "int8")


def export(
    checkpoint: str | Path,
    folder: str | Path,
    *,
    kind: str | None = None,
    precision: str = "fp32",
    evaluation: HeldOutEvaluation | None = None,
    name: str | None = None,
    log: Log = lambda line: None,
) -> ModelSettings:
    """Write a masked LM, an encoder or a fine-tuned model as an ONNX folder, and return its settings.

    The folder is written only if onnxruntime's outputs equal torch's, and for int8 only if predictions on held-out
    documents agree with fp32. With `evaluation`, mention scores are calibrated, and a certificate records what was
    measured; `log` receives a line for each step. A checkpoint with BERT's next-sentence head is exported as a masked
    LM. `name` is the model's name, whatever its folder is called.
    """
    checkpoint, folder = Path(checkpoint), Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        message = f"{folder}: exists and is not empty. Choose another folder, or remove it."
        raise CheckpointError(message, code="folder-exists", value=folder)
    for option, value, known in (("kind", kind, tuple(HEADS)), ("precision", precision, PRECISIONS)):
        if value is not None and value not in known:
            message = f"{option} is {value!r}; expected one of {', '.join(known)}."
            raise UsageError(message, code=f"unknown-{option}", value=value)
    model = load(checkpoint, kind=kind, backend="lexome")
    if model.kind == "paired":
        model = load(checkpoint, kind="masked", backend="lexome")
    sources = _held_out_sources(model, precision, evaluation)
    with atomic_folder(folder) as temporary:
        save_graph(build_graph(model.model, model.kind), temporary / MODEL)
        settings = _settings(temporary, model, name)
        write_settings(temporary, settings)
        settings = replace(settings, difference=require_parity(temporary, model), precision=precision)
        if evaluation is not None:
            settings = _evaluate(temporary, settings, sources, evaluation, log)
        write_settings(temporary, settings)
        card = _card(model, settings, name or folder.name, _calibration_of(temporary))
        (temporary / "README.md").write_text(card, encoding="utf-8")
        write_checksums(temporary)
    return settings


def _held_out_sources(model: Checkpoint, precision: str, evaluation: HeldOutEvaluation | None) -> list[HeldOutSource]:
    """The held-out documents; UsageError if they are needed and missing, or the model cannot be evaluated."""
    if evaluation is None or not evaluation.held_out:
        if precision != "fp32" or evaluation is not None:
            raise UsageError(
                f"{precision} needs held-out documents to evaluate the model on. Name a dataset, a folder or a file "
                "with --held-out.",
                code="no-held-out",
                value=precision,
            )
        return []
    settings = _task_settings(model.folder)
    if settings is None or model.kind not in ("token", "sequence", "span"):
        raise UsageError(
            f"{model.folder}: a model of kind {model.kind!r} without a task cannot be evaluated on documents; expected "
            "a fine-tuned model. Export it as fp32, without --held-out.",
            code="no-task",
            value=model.kind,
        )
    return evaluation.load(task_of(settings), model.folder)


def _evaluate(
    folder: Path, settings: ModelSettings, sources: Sequence[HeldOutSource], evaluation: HeldOutEvaluation, log: Log
) -> ModelSettings:
    """Quantize the model if requested, calibrate it, and write its certificate."""
    assert settings.task is not None
    task = task_of(settings.task)
    every = sources
    # A reader of factoid questions is also calibrated for lists, but accepted by its own form.
    sources = [source for source in sources if task.answers_any(source.docs)] or sources
    if settings.precision == "int8":
        search = Int8Search(folder, task, sources, evaluation.thresholds, log)
        accepted = search.run()
        predictions, facts = accepted.predictions, search.as_json(accepted)
    else:
        predictions = predict(Model.open(folder), sources)
        facts = {"score": score(task, sources, predictions).as_json()}
    if task.calibrated_types:
        calibrations = calibrate(task, sources, predictions)
        settings = replace(settings, calibration={type_: own.curve for type_, own in calibrations.items()} or None)
        facts["calibration"] = {type_: own.as_json() for type_, own in calibrations.items()}
    elif task.forms:
        settings, facts["calibration"] = _with_reader_calibration(folder, settings, every)
    facts |= {"source": settings.source, "difference_from_torch": settings.difference}
    write_certificate(folder, precision=settings.precision, sources=every, facts=facts)
    return settings


def _with_reader_calibration(
    folder: Path, settings: ModelSettings, sources: Sequence[HeldOutSource]
) -> tuple[ModelSettings, dict[str, Any]]:
    """The settings of a reader with its curves and thresholds, by form of question; and the certificate's entry."""
    fitted = calibrate_reader(Model.open(folder), sources)
    task = dict(settings.task or {})
    for own in fitted:
        task |= {} if own.list_threshold is None else {"list_threshold": own.list_threshold}
    settings = replace(
        settings,
        task=task,
        calibration={
            key: curve.curve
            for own in fitted
            for key, curve in ((own.form, own.answers), (answerable_key(own.form), own.answerable))
        }
        or None,
        min_scores={own.form: own.min_probability for own in fitted} or None,
    )
    return settings, {own.form: own.as_json() for own in fitted}


# Parity with torch

# The largest accepted difference between outputs of torch and onnxruntime. torch computes in double precision: its own
# rounding error in single precision is as large as onnxruntime's, and says nothing about the graph
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


def require_parity(folder: Path, model: Checkpoint) -> float:
    """The largest difference between outputs of torch and onnxruntime; CheckpointError above the tolerance.

    Inputs are sentences and random ids of several lengths, one by one, as a padded batch, and on one thread.
    """
    predictor = Predictor.open(folder)
    rng = np.random.default_rng(20261115)
    sequences = [predictor.with_special_tokens(predictor.tokenizer.ids(text)[: predictor.room]) for text in SENTENCES]
    lengths = _random_lengths(predictor.settings.max_tokens)
    sequences += [rng.integers(0, model.config.vocab, length).tolist() for length in lengths]
    model.model.double()
    modes = [(predictor, 1), (predictor, len(sequences)), (predictor.single_threaded(), 1)]
    difference = max(_largest_difference(mode, model, sequences, batch=batch) for mode, batch in modes)
    if not difference <= TOLERANCE:
        raise CheckpointError(
            f"{model.folder}: outputs of torch and onnxruntime differ by {difference:.2g}; expected at most "
            f"{TOLERANCE:g}. Nothing was written. Weights in half precision, or very large ones, can be the cause.",
            code="no-parity",
            value=difference,
        )
    return difference


def _random_lengths(max_tokens: int) -> list[int]:
    return sorted({min(length, max_tokens) for length in RANDOM_LENGTHS})


def _largest_difference(
    predictor: Predictor, model: Checkpoint, sequences: Sequence[list[int]], *, batch: int
) -> float:
    def difference(seen: NDArray[np.float32], of_torch: Checkpoint, ids: list[int]) -> float:
        return float(np.abs(seen - _torch_output(of_torch, ids).numpy()).max())

    if model.kind == "masked":
        # One sequence at a time in any mode: logits over a vocabulary for many do not fit into every memory.
        words = (difference(predictor.words(ids, range(len(ids))), model, ids) for ids in sequences)
        encoder = replace(model, kind="encoder", model=encoder_of(model.model))
        return max(*words, _largest_difference(predictor, encoder, sequences, batch=batch))
    run = predictor.hidden if model.kind == "encoder" else predictor.logits
    return max(difference(seen, model, ids) for seen, ids in zip(run(sequences, batch=batch), sequences, strict=True))


def _torch_output(model: Checkpoint, ids: list[int]) -> Tensor:
    positions: tuple[Any, ...] = (torch.arange(len(ids)),) if model.kind == "masked" else ()
    with torch.inference_mode():
        output: Tensor = model.model(torch.tensor(ids), Packing.of([len(ids)]), *positions)
    return output.squeeze(0) if model.kind == "sequence" else output


# The folder


def _settings(folder: Path, model: Checkpoint, name: str | None) -> ModelSettings:
    """Write the tokenizer, and collect the settings to run the model with."""
    config, encoder = model.config, encoder_of(model.model)
    assert isinstance(encoder, Encoder)
    special = _write_tokenizer(folder, model)
    template = special_token_template(load_tokenizer(folder / TOKENIZER))
    if template is None:
        # The tokenizer has no template of its own: CLS before, SEP between and after.
        cls, sep = (() if special.get(token) is None else (special[token],) for token in ("cls_token", "sep_token"))
        template = cls, sep, sep
    before, between, after = template
    return ModelSettings(
        kind=model.kind,
        max_tokens=config.max_tokens,
        width=config.hidden_size,
        before=before,
        after=after,
        between=between,
        pad=special.get("pad_token", 0),
        mask=special.get("mask_token"),
        segments=has_segments(encoder, model.kind),
        labels=model.labels,
        tokenizer_sha256=tokenizer_sha256(folder / TOKENIZER),
        opset=OPSET,
        precision="fp32",
        difference=0.0,
        source=({"name": name} if name else {})
        | {
            "checkpoint": model.folder.resolve().name,
            "architecture": model.architecture,
            "weights_sha256": _weights_sha256(model.model),
        },
        task=_task_settings(model.folder),
    )


def _write_tokenizer(folder: Path, model: Checkpoint) -> dict[str, int]:
    """Write tokenizer.json, converted if the checkpoint has other files; returns the ids of special tokens."""
    source, converted = folder / "given", folder / "made"
    source.mkdir()
    converted.mkdir()
    for name, content in model.tokenizer_files.items():
        (source / name).write_bytes(content)
    files = source if model.tokenizer_files else model.folder
    special = write_tokenizer(files, converted, max_tokens=model.config.max_tokens, vocab=model.config.vocab)
    (converted / TOKENIZER).rename(folder / TOKENIZER)
    for scratch in (source, converted):
        shutil.rmtree(scratch)
    return special


def _task_settings(folder: Path) -> dict[str, Any] | None:
    """The task of a fine-tuned checkpoint, if it has one."""
    path = folder / TASK
    if not path.is_file():
        return None
    try:
        settings: dict[str, Any] = read_json(path)
        task_of(settings)
    except (CheckpointError, UsageError) as error:
        message = f"{path}: not a task ({error}). Fine-tune the model again, or remove the file."
        raise CheckpointError(message, code="not-a-task", value=path) from None
    return settings


def _weights_sha256(model: torch.nn.Module) -> str:
    digest = hashlib.sha256()
    for name, weight in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(weight.contiguous().numpy().tobytes())
    return digest.hexdigest()


def _calibration_of(folder: Path) -> dict[str, Any]:
    """The calibration facts in the certificate, by type."""
    path = folder / CERTIFICATE
    facts: dict[str, Any] = read_json(path).get("calibration", {}) if path.is_file() else {}
    return facts


def _calibration_table(calibration: Mapping[str, Any]) -> list[str]:
    """The section of the model card on calibrated scores; empty without calibration."""
    if not calibration:
        return []
    rows = [
        f"| {name} | {one['mentions']:,}{' of ' + one['pooled'] if 'pooled' in one else ''} | "
        f"{one['right'] / max(1, one['mentions']):.2f} | {one['ece_before']:.3f} | {one['ece_after']:.3f} |"
        for name, one in calibration.items()
    ]
    head = [
        "| scores of | held-out predictions | right | ECE raw | ECE calibrated |",
        "| --- | --- | --- | --- | --- |",
    ]
    return [
        "## Calibration",
        "Scores are calibrated by Platt scaling; the expected calibration error (ECE, ten bins) is cross-validated.",
        "\n".join(head + rows),
    ]


def _card(model: Checkpoint, settings: ModelSettings, name: str, calibration: Mapping[str, Any]) -> str:
    """README.md: what the folder is, then the checkpoint's own card, with its front matter first."""
    path = model.folder / "README.md"
    original = path.read_text(encoding="utf-8") if path.is_file() else ""
    front, body = "", original
    if original.startswith("---\n") and "\n---\n" in original:
        front, _, body = original.partition("\n---\n")
        front = re.sub(r"(?m)^library_name:.*$", "library_name: onnx", front) + "\n---\n\n"
    int8 = settings.precision == "int8"
    random = len(_random_lengths(settings.max_tokens))
    parity = (
        f"{'Before quantization, its' if int8 else 'Its'} outputs for {len(SENTENCES)} sentences and {random} "
        f"sequences of random ids, one by one and padded, differed from torch's by at most {settings.difference:.2g}."
    )
    if int8 or settings.calibration:
        parity += f" {CERTIFICATE} records its evaluation on held-out documents."
    command = "annotate" if settings.task is not None else "fill" if settings.kind == "masked" else "embed"
    parts = [
        f"{front}# {name}",
        f"The {settings.source['architecture']} checkpoint {settings.source['checkpoint']} as ONNX (opset {OPSET}, "
        f"{settings.precision}, kind {settings.kind}), exported by Lexome. {parity} It runs without torch: "
        f"`lexome {command}`.",
        *_calibration_table(calibration),
    ]
    if body.strip():
        parts += ["The checkpoint's own card follows.", body.strip()]
    return "\n\n".join(parts) + "\n"
