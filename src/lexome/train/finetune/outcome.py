"""What a run leaves behind: the facts for run.json, and its model as a checkpoint folder with its task."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lexome.formats.files import replacing
from lexome.models.card import Card
from lexome.models.checkpoint import save
from lexome.recipe import explain
from lexome.recipe.finetune import FinetuneRecipe
from lexome.tasks.task import TASK, Scores
from lexome.train.finetune.adapters import merged, write_adapters
from lexome.train.finetune.ground import Ground
from lexome.train.finetune.labels import label_bias, label_counts
from lexome.train.finetune.model import Begun, lora_settings
from lexome.train.finetune.record import Facts
from lexome.train.finetune.runs import MODEL, Run
from lexome.train.finetune.training import Training, measure_of

ADAPTER = "adapter"
PROBLEMS = {"choice": "single_label_classification", "binary": "multi_label_classification", "value": "regression"}


@dataclass(frozen=True)
class Course:
    """One run as it went: what it was to be, what it stood on, what it began with, and its training."""

    recipe: FinetuneRecipe
    run: Run
    ground: Ground
    begun: Begun
    training: Training


def facts_of(course: Course, scores: dict[str, Scores], *, identity: str) -> Facts:
    """What run.json says about a run that has ended."""
    training, run = course.training, course.run
    progress, parts, setting = training.progress, training.parts, training.setting
    first = next(iter(scores.values()), None)
    return Facts(
        name=run.name,
        identity=identity,
        seed=run.seed,
        fold=run.fold,
        batch=run.cell.batch,
        lr=run.cell.lr,
        epochs=run.cell.epochs,
        scores=scores,
        measure=None if first is None else measure_of(course.recipe, first),
        steps=progress.step,
        best_step=progress.best_step or progress.step,
        stopped_early=progress.stopped_early,
        tokens=progress.tokens,
        seconds=round(progress.elapsed_s, 3),
        device=str(setting.device),
        precision="fp32" if setting.autocast is None else "autocast",
        compiled=setting.compiled,
        labels=label_counts(parts.train.flat, training.task),
        bias=label_bias(parts.train.flat, training.task),
        notes=parts.notes,
        warnings=parts.warnings,
        start=_start(course),
    )


def write_model(course: Course, folder: Path, facts: Facts) -> None:
    """Write the model as a checkpoint folder with its task, and its adapters beside it where it has some."""
    begun, serving = course.begun, course.training.serving()
    model = begun.learner.model.eval().cpu()
    if course.recipe.method == "lora":
        _write_adapters(course, folder / ADAPTER)
        model = merged(model)
    run: dict[str, Any] = {"stage": course.recipe.stage, "run": facts.name, "scores": facts.scores}
    # What an export has to know to judge the model by its sources.
    run["recipe"] = {"data": {"rename": course.recipe.data.rename}}
    save(
        folder / MODEL,
        model,
        architecture=begun.checkpoint.architecture,
        tokenizer=course.ground.material.tokenizer,
        card=_card(course, facts),
        labels=() if serving.head == "span" else serving.labels,
        run={**run, "start": facts.start},
        replace=True,
    )
    _write_json(folder / MODEL / TASK, serving.settings())
    if serving.head == "sequence":
        # By this transformers' pipelines know whether labels exclude one another.
        path = folder / MODEL / "config.json"
        _write_json(path, {**json.loads(path.read_bytes()), "problem_type": PROBLEMS[serving.loss]})


def _write_adapters(course: Course, folder: Path) -> None:
    write_adapters(
        folder,
        course.begun.learner.model,
        architecture=course.begun.checkpoint.architecture,
        kind=course.training.task.head,
        base=course.ground.start,
        settings=lora_settings(course.recipe),
    )


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    with replacing(path) as stream:
        stream.write(json.dumps(content, indent=2, ensure_ascii=False).encode() + b"\n")


def _start(course: Course) -> dict[str, Any]:
    """Where the model came from."""
    found = course.begun.checkpoint
    return {
        "checkpoint": str(course.ground.start),
        "sha256": course.ground.sha256,
        "architecture": found.architecture,
        "backend": found.backend,
        "new_head": course.begun.new_head,
        "unused": list(found.unused),
    }


def _card(course: Course, facts: Facts) -> Card:
    recipe, start = course.recipe, course.ground.start
    cards = [source.card for source in course.ground.material.sources]
    data = recipe.card.data or " ".join(f"{card.name}: {card.about} Licence: {card.licence}." for card in cards)
    rows = [
        (f"{split} {name}", f"{held:.4f}", f"seed {facts.seed}")
        for split, scores in facts.scores.items()
        for name, held in scores.items()
    ]
    return Card(
        title=recipe.card.title or recipe.out.name,
        summary=f"{start.name}, fine-tuned with Lexome on {', '.join(card.name for card in cards)}.",
        license=recipe.card.license,
        data=data,
        base_model=start.name,
        datasets=tuple(card.name for card in cards),
        recipe=explain(recipe),
        scores=tuple(rows),
    )
