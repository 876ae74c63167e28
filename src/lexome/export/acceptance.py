"""Acceptance of int8 models: agreement with fp32 on held-out documents, and a certificate of what was measured."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

from lexome.datasets import find, folder, names
from lexome.document import Document
from lexome.errors import CheckpointError, UsageError
from lexome.export.onnx_graph import save_graph
from lexome.export.quantize import linear_weights, quantize, smooth
from lexome.formats import read
from lexome.formats.jsonl import to_json
from lexome.infer.annotator import Model
from lexome.infer.predictor import MODEL
from lexome.recipe.finetune import Names
from lexome.tasks import Task
from lexome.tasks.metrics.spans import Counts
from lexome.training.finetune.examples import rename_types
from lexome.training.trainer import RUN, surroundings

CERTIFICATE = "certificate.json"

# Default acceptance thresholds: with larger differences int8 is another model.
AGREEMENT = 0.995
DIFFERENCE = 0.001

Log = Callable[[str], None]
Predictions = Sequence[Sequence[Document]]
"""Predicted documents by source."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What an int8 model must reach: agreement with fp32, and the largest difference between the two scores.

    lowered  whether they are below Lexome's defaults
    """

    agreement: float = AGREEMENT
    difference: float = DIFFERENCE
    lowered: bool = False

    @classmethod
    def checked(
        cls, *, agreement: float | None = None, difference: float | None = None, accept_lower: bool = False
    ) -> "Thresholds":
        """Thresholds in place of the defaults; UsageError for lower ones without `accept_lower`."""
        agreement = AGREEMENT if agreement is None else agreement
        difference = DIFFERENCE if difference is None else difference
        for name, value in (("agreement", agreement), ("difference", difference)):
            if not 0 <= value <= 1:
                message = f"{name} is {value:g}; expected a fraction from 0 to 1."
                raise UsageError(message, code="not-a-fraction", value=value)
        lowered = agreement < AGREEMENT or difference > DIFFERENCE
        if lowered and not accept_lower:
            raise UsageError(
                f"agreement {agreement:g} and difference {difference:g} are below the defaults, {AGREEMENT:g} and "
                f"{DIFFERENCE:g}. Raise them, or add --accept-less, which the certificate records.",
                code="lowered-thresholds",
                value=(agreement, difference),
            )
        return cls(agreement, difference, lowered)


@dataclass(frozen=True, slots=True)
class HeldOutEvaluation:
    """Held-out documents to calibrate a model on, and to accept or reject its int8 form.

    held_out  names of datasets, folders with splits, or files
    split     the split to use of datasets and folders
    data      folder with the datasets; by default LEXOME_DATA, else ./data
    """

    held_out: tuple[str, ...]
    split: str = "dev"
    data: Path | None = None
    thresholds: Thresholds = field(default_factory=Thresholds)

    def load(self, task: Task, checkpoint: Path) -> list["HeldOutSource"]:
        """The documents of each source; types are renamed as in the checkpoint's fine-tuning."""
        trained = _training_data(checkpoint)
        renames: dict[str, dict[str, Names]] = trained.get("rename") or {}
        sources: list[HeldOutSource] = []
        for name in self.held_out:
            source = load_held_out(
                name, split=self.split, task=task, data=self.data, dev_fraction=trained.get("dev_fraction")
            )
            if any(source.name == other.name for other in sources):
                message = (
                    f"two held-out sources have the name {source.name!r}; expected different names. Rename one file."
                )
                raise UsageError(message, code="duplicate-source", value=source.name)
            if types := renames.get(source.name):
                source = replace(source, docs=[rename_types(doc, types) for doc in source.docs])
            sources.append(source)
        return sources


def _training_data(checkpoint: Path) -> dict[str, Any]:
    """The table `data` of the recipe that the checkpoint was fine-tuned by, from its record and that of its run."""
    data: dict[str, Any] = {}
    for path in (checkpoint.parent / RUN, checkpoint / RUN):
        # The record of another stage has no such key.
        with suppress(OSError, ValueError, LookupError, TypeError):
            data |= json.loads(path.read_bytes())["recipe"]["data"]
    return data


@dataclass(frozen=True)
class HeldOutSource:
    """Held-out documents of one source; `name` is the one that the task knows the source by."""

    name: str
    split: str | None
    docs: list[Document]

    def as_json(self) -> dict[str, Any]:
        """The entry in the certificate: name, size, and a hash of the documents."""
        digest = hashlib.sha256()
        for doc in self.docs:
            digest.update(to_json(doc) + b"\n")
        return {"source": self.name, "split": self.split, "documents": len(self.docs), "sha256": digest.hexdigest()}


def load_held_out(
    name: str, *, split: str, task: Task, data: Path | None = None, dev_fraction: float | None = None
) -> HeldOutSource:
    """All documents of a file, or one split of a folder or of a dataset, which is looked for in `data`.

    `dev_fraction` is what training has split off as dev from a dataset without a dev split.
    """
    path = Path(name)
    if path.is_file():
        source = HeldOutSource(path.name.partition(".")[0], None, list(read(path)))
    elif path.is_dir():
        source = HeldOutSource(path.resolve().name, split, folder(path, task=task.settings()).split(split))
    elif name.lower() in map(str.lower, names()):
        dataset = find(name, data=data)
        splits = dataset.splits(partial=True, dev_fraction=dev_fraction)
        if split not in splits:
            raise UsageError(
                f"{dataset.name} has no split {split!r}; expected one of {', '.join(splits)}. Choose it with --split.",
                code="unknown-split",
                value=split,
            )
        source = HeldOutSource(dataset.card.name, split, splits[split])
    else:
        message = f"{name!r} is not a file, a folder or a dataset. `lexome datasets` lists the datasets."
        raise UsageError(message, code="unknown-dataset", value=name)
    if not source.docs:
        raise UsageError(f"{name} has no documents to evaluate on.", code="no-documents", value=name)
    return source


# --- Scores and agreement


@dataclass(frozen=True, slots=True)
class SourceScores:
    """The task's first metric, for each source and as their mean."""

    metric: str
    mean: float
    sources: dict[str, float]

    def as_json(self) -> dict[str, Any]:
        """The entry in the certificate."""
        return {"measure": self.metric, "value": self.mean, "sources": self.sources}


def predict(model: Model, sources: Sequence[HeldOutSource]) -> list[list[Document]]:
    """The model's predictions for the documents of each source."""
    return [model.annotate(source.docs) for source in sources]


def score(task: Task, sources: Sequence[HeldOutSource], predictions: Predictions) -> SourceScores:
    """Each source scored on what it annotates; sources have equal weight."""
    metric, scores = "", {}
    for source, predicted in zip(sources, predictions, strict=True):
        metric, scores[source.name] = next(iter(task.for_source(source.name).score(source.docs, predicted).items()))
    return SourceScores(metric, sum(scores.values()) / len(scores), scores)


def agreement(task: Task, reference: Predictions, predictions: Predictions) -> Counts:
    """Predictions that two models share, and those of one alone; their F1 is the agreement."""
    shared = extra = missing = 0
    for expected_docs, docs in zip(reference, predictions, strict=True):
        for expected_doc, doc in zip(expected_docs, docs, strict=True):
            expected, predicted = task.predictions(expected_doc), task.predictions(doc)
            shared += len(expected & predicted)
            extra += len(predicted - expected)
            missing += len(expected - predicted)
    return Counts(shared, extra, missing)


# --- The search for an accepted int8 form

# Examples to calibrate activations on, and to measure each weight's sensitivity.
CALIBRATION_EXAMPLES = 32
# With more than this fraction of the weights in fp32, int8 has no advantage.
MAX_KEPT = 0.5


@dataclass(frozen=True)
class Trial:
    """One int8 form: the weights left in fp32, and how its predictions compare with those of fp32."""

    kept: tuple[str, ...]
    agreed: Counts
    scores: SourceScores
    predictions: Predictions
    size: int

    def accepted(self, thresholds: Thresholds, reference: SourceScores) -> bool:
        """Whether agreement and score are within the thresholds."""
        difference = abs(self.scores.mean - reference.mean)
        return self.agreed.f1 >= thresholds.agreement and difference <= thresholds.difference


class Int8Search:
    """int8 forms of one model, evaluated on held-out documents until one is accepted.

    The folder holds the fp32 model at the start, and the model of the last trial afterwards.
    """

    def __init__(
        self, folder: Path, task: Task, sources: Sequence[HeldOutSource], thresholds: Thresholds, log: Log
    ) -> None:
        self.path, self.task, self.sources = folder / MODEL, task, sources
        self.thresholds, self.log = thresholds, log
        self.fp32 = onnx.load(str(self.path))
        self.fp32_size, self.fp32_sha256 = self.path.stat().st_size, file_sha256(self.path)
        model = Model.open(folder)
        self.reference = predict(model, sources)
        self.reference_scores = score(task, sources, self.reference)
        examples = [example for source in sources for doc in source.docs for example in model.encode(doc)]
        # Evenly spaced, because sources follow one another.
        self.examples = examples[:: max(1, len(examples) // CALIBRATION_EXAMPLES)][:CALIBRATION_EXAMPLES]
        self.smoothed = smooth(self.fp32, self.examples)
        self.trials: list[Trial] = []

    def run(self) -> Trial:
        """The first accepted form, with as few weights in fp32 as possible; CheckpointError if none is accepted."""
        weights = linear_weights(self.fp32)
        kept: tuple[str, ...] = ()
        order: list[str] = []
        while len(kept) <= int(len(weights) * MAX_KEPT):
            trial = self._try(kept)
            if trial.accepted(self.thresholds, self.reference_scores):
                return trial
            order = order or self._most_sensitive_first(weights)
            worst = order[: len(kept) + 1]
            kept = tuple(name for name in weights if name in worst)
        closest = max(self.trials, key=lambda trial: trial.agreed.f1)
        difference = 100 * abs(closest.scores.mean - self.reference_scores.mean)
        raise CheckpointError(
            f"int8 rejected: in the best of {len(self.trials)} trials it agrees with fp32 on "
            f"{100 * closest.agreed.f1:.2f}%, and its {closest.scores.metric} differs by {difference:.2f} points; "
            f"expected at least {100 * self.thresholds.agreement:g}% and at most {100 * self.thresholds.difference:g}. "
            "Nothing was written. Export as fp32, or evaluate on more documents: of few mentions, single ones decide.",
            code="int8-rejected",
            value=closest.agreed.f1,
        )

    def _try(self, kept: tuple[str, ...]) -> Trial:
        model = self._open(quantize(self.smoothed.model, keep=kept, by_token=self.smoothed.by_token))
        predictions = predict(model, self.sources)
        agreed = agreement(self.task, self.reference, predictions)
        scores = score(self.task, self.sources, predictions)
        trial = Trial(kept, agreed, scores, predictions, self.path.stat().st_size)
        self.trials.append(trial)
        self.log(
            f"int8, {len(kept)} weights in fp32: agreement {100 * agreed.f1:.2f}%, {scores.metric} "
            f"{100 * scores.mean:.2f} (fp32: {100 * self.reference_scores.mean:.2f})"
        )
        return trial

    def _most_sensitive_first(self, weights: Sequence[str]) -> list[str]:
        """The weights by the squared error of the logits when one of them alone is quantized."""
        expected = self._open(self.fp32).run(self.examples)
        errors: dict[str, float] = {}
        for name in weights:
            alone = quantize(self.smoothed.model, only=[name], by_token=self.smoothed.by_token)
            logits = self._open(alone).run(self.examples)
            errors[name] = sum(float(np.square(one - other).sum()) for one, other in zip(logits, expected, strict=True))
        order = sorted(errors, key=lambda name: -errors[name])
        self.log(f"most sensitive to quantization: {order[0]}")
        return order

    def _open(self, graph: onnx.ModelProto) -> Model:
        save_graph(graph, self.path)
        return Model.open(self.path.parent)

    def as_json(self, accepted: Trial) -> dict[str, Any]:
        """The entries in the certificate."""
        agreed, reference = accepted.agreed, self.reference_scores
        return {
            "agreement": {
                "value": agreed.f1,
                "at_least": self.thresholds.agreement,
                "both": agreed.true_positives,
                "only_fp32": agreed.false_negatives,
                "only_int8": agreed.false_positives,
            },
            "score": {
                **accepted.scores.as_json(),
                "fp32": reference.as_json(),
                "difference": abs(accepted.scores.mean - reference.mean),
                "at_most": self.thresholds.difference,
            },
            "bar_lowered": self.thresholds.lowered,
            "left_in_fp32": list(accepted.kept),
            "equalised": list(self.smoothed.channels),
            "by_token": list(self.smoothed.by_token),
            "tried": [
                {"left_in_fp32": len(one.kept), "agreement": one.agreed.f1, one.scores.metric: one.scores.mean}
                for one in self.trials
            ],
            "bytes": {"fp32": self.fp32_size, "int8": accepted.size},
            "fp32_sha256": self.fp32_sha256,
        }


# --- The certificate


def write_certificate(
    folder: Path, *, precision: str, sources: Sequence[HeldOutSource], facts: Mapping[str, Any]
) -> None:
    """Write certificate.json beside the model: what was measured, on which documents, files, versions and hardware."""
    environment = surroundings()
    environment["versions"] |= {"onnx": onnx.__version__, "onnxruntime": onnxruntime.__version__}
    certificate = {
        "precision": precision,
        "model_sha256": file_sha256(folder / MODEL),
        "held_out": [source.as_json() for source in sources],
        **facts,
        **environment,
    }
    text = json.dumps(certificate, indent=1, ensure_ascii=False)
    (folder / CERTIFICATE).write_text(text + "\n", encoding="utf-8")


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
