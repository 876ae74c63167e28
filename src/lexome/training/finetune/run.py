"""One run from its checkpoint to its folder: model/, metrics.jsonl, dev.jsonl, test.jsonl, and run.json last."""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch._dynamo

from lexome.corpus.vocab.tokenizers import tokenizer_sha256
from lexome.document import Document
from lexome.errors import BadDocument, DivergedError, UsageError, WorkerError
from lexome.files import atomic_write, fingerprint
from lexome.formats import write
from lexome.models.checkpoint import HUGGING_FACE, Card, layout_of, load, save
from lexome.models.encoder import Encoder
from lexome.models.heads import EncoderWithHead
from lexome.models.hf_folder import weights_sha256
from lexome.recipe import explain
from lexome.recipe.finetune import FinetuneRecipe
from lexome.recipe.renamed import downgrade
from lexome.tasks import task_of
from lexome.tasks.task import TASK, Scores, Task
from lexome.training.finetune.examples import DEV, TEST, Material, Parts, Split, label_bias, label_counts, put_tokenizer
from lexome.training.finetune.grid import MODEL, Facts, Run, finished, gold_path, start_of, write_facts
from lexome.training.finetune.lora import merged, write_adapters
from lexome.training.finetune.objective import Teaching, taught_by
from lexome.training.finetune.task_model import Begun, Learner, begin, lora_settings
from lexome.training.finetune.trainer import STATE, Plan, Saver, Setting, Training, answered, measure_of, scored
from lexome.training.journal import BOARD, METRICS, Journal
from lexome.training.loop import exact
from lexome.training.losses import RECOMPILATIONS
from lexome.training.run_record import revision


@dataclass(frozen=True)
class Ground:
    """The checkpoint, the hash of its weights, and the material."""

    start: Path
    sha256: str
    material: Material


@contextmanager
def grounded(recipe: FinetuneRecipe) -> Iterator[Ground]:
    """What all runs stand on; the tokenizer lies in a folder of its own meanwhile."""
    scratch = Path(tempfile.mkdtemp(prefix="lexome-finetune-"))
    try:
        put_tokenizer(start_of(recipe.start), scratch)
        yield ground_of(recipe, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def ground_of(recipe: FinetuneRecipe, tokenizer: Path) -> Ground:
    """The same where the tokenizer has been put in its folder before."""
    start = start_of(recipe.start)
    return Ground(start, checkpoint_sha256(start), Material.opened(recipe, start, tokenizer))


def checkpoint_sha256(start: Path) -> str:
    """The hash of a checkpoint's weights, or of all files of another layout."""
    if layout_of(start) == HUGGING_FACE:
        return weights_sha256(start)
    total = hashlib.sha256()
    for path in sorted(start.rglob("*")) if start.is_dir() else [start]:
        if path.is_file():
            with path.open("rb") as stream:
                while block := stream.read(1 << 20):
                    total.update(block)
    return total.hexdigest()


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
    with atomic_write(path) as stream:
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
    data = recipe.card.data or " ".join(f"{card.name}: {card.description} License: {card.license}." for card in cards)
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


# What a run's outcome does not depend on; the checkpoint, the teachers and the data are told by their hashes.
FREE = {"out", "start", "jobs", "card", "keep_models", "grid", "score_test", "seeds", "save_every", "parallel", "log"}
# Keys that the first edition did not have, with the values it computed by; left out, its runs are still recognized.
ADDED = {
    "batch": {"gradient_accumulation": 1, "prefetch": 8},
    "optimizer": {"kind": "adamw", "weight_decay_embeddings": True, "momentum": 0.95},
    "schedule": {"warmup_steps": None, "decay_ratio": 0.0},
}

SHORT = "the GPU's memory was short. Lower jobs, batch.micro_batch_tokens or data.max_tokens."

Show = Callable[[float, str], None]


def identities_of(recipe: FinetuneRecipe, run: Run, ground: Ground) -> tuple[str, ...]:
    """The hash of all that a run's outcome depends on; behind it those that the same run had before.

    Those have the paths of the data, of the teacher and of its text in them, so that a run was another one where these
    had been moved.
    """
    settings = recipe.model_dump(mode="json", exclude=FREE)
    for table, defaults in ADDED.items():
        for key, default in defaults.items():
            if settings[table][key] == default:
                del settings[table][key]
    settings = downgrade(settings, recipe.stage)
    material = ground.material
    given = (dict(material.task.settings()), material.frame, tokenizer_sha256(material.tokenizer))
    known: tuple[object, ...] = (run, given, material.parts(run.fold).identity, ground.sha256)
    forms = [settings]
    if recipe.teacher is not None:
        forms.insert(0, settings | {"teacher": _without(settings["teacher"], "models", "shards")})
        known += (taught_by(recipe.teacher),)
    forms.insert(0, forms[0] | {"data": _without(settings["data"], "root", "folder")})
    return tuple(fingerprint(form, *known) for form in forms)


def _without(table: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in table.items() if key not in keys}


def carry_out(
    recipe: FinetuneRecipe,
    run: Run,
    ground: Ground,
    folder: Path,
    *,
    test: bool,
    show: Show = lambda share, words: None,
) -> Facts:
    """Train one run, or find that it is done, and write its folder; with `test`, the test split is scored as well."""
    identities = identities_of(recipe, run, ground)
    found = finished(folder, identities)
    if found is None:
        try:
            found = _trained(recipe, run, ground, folder, identities=identities, test=test, show=show)
        except torch.OutOfMemoryError:
            raise WorkerError(SHORT) from None
    if test and TEST not in found.scores:
        found = score_later(recipe, found, ground, folder)
    return found


def score_later(recipe: FinetuneRecipe, facts: Facts, ground: Ground, folder: Path) -> Facts:
    """Score the test split with the model that a finished run has kept, and add that to its record."""
    if not facts.kept:
        raise UsageError(f"{folder}: its weights were not kept, so test cannot be scored now. Remove it and run again.")
    task = task_of(json.loads((folder / MODEL / TASK).read_bytes()))
    setting = setting_of(recipe)
    model = load(folder / MODEL, kind=task.head).model.to(setting.device)
    assert isinstance(model, EncoderWithHead)
    split = _wanted(ground.material.parts(facts.fold).test, recipe)
    path = folder / f"{TEST}.jsonl"
    scores = _scored(recipe, Learner(model, None), split, task, path=path, ground=ground, setting=setting)
    made = replace(facts, scores={**facts.scores, TEST: scores})
    write_facts(folder, made, recipe)
    return made


def drop_model(folder: Path, facts: Facts, recipe: FinetuneRecipe) -> Facts:
    """Remove the weights of a finished run; what it came to stays."""
    if not facts.kept:
        return facts
    made = replace(facts, kept=False)
    write_facts(folder, made, recipe)
    for name in (MODEL, ADAPTER):
        shutil.rmtree(folder / name, ignore_errors=True)
    return made


def setting_of(recipe: FinetuneRecipe) -> Setting:
    """Where and how to compute; what the recipe leaves open, the device decides."""
    there = torch.cuda.is_available()
    if recipe.device == "cuda" and not there:
        raise UsageError('device is "cuda", but torch sees no GPU. Use device = "cpu", or a torch build for CUDA.')
    device = torch.device("cuda" if there and recipe.device != "cpu" else "cpu")
    on_gpu = device.type == "cuda"
    half = recipe.precision == "autocast" or (recipe.precision == "auto" and on_gpu)
    graphs = on_gpu and recipe.cuda_graphs and not recipe.compile
    return Setting(device, torch.bfloat16 if half else None, recipe.compile, graphs)


def _trained(
    recipe: FinetuneRecipe,
    run: Run,
    ground: Ground,
    folder: Path,
    *,
    identities: tuple[str, ...],
    test: bool,
    show: Show,
) -> Facts:
    material = ground.material
    task, parts = material.task, material.parts(run.fold)
    _require_scorable(recipe, task, parts)
    revision()
    saver = Saver(folder, identities=identities, every_s=recipe.save_every)
    _clear(folder)
    plan = Plan(recipe, parts, task, seed=run.seed, segments=material.frame.segments)
    setting = setting_of(recipe)
    with exact(recipe.deterministic, setting.device):
        torch.manual_seed(run.seed)
        begun = begin(recipe, ground.start, task)
        begun.learner.to(setting.device)
        if setting.compiled:
            _compile(begun.learner)
        teaching = None
        if recipe.teacher is not None:
            longest = material.frame.max_tokens
            teaching = Teaching.of(recipe.teacher, task, material.tokenizer, max_tokens=longest, device=setting.device)
        training = Training(recipe, begun.learner, parts, task, plan, setting=setting, teaching=teaching)
        saver.restore(training)
        _follow(training, Journal(folder, step=training.progress.step), show, saver)
        serving = training.serving()
        scores = {}
        for name, split in ((DEV, parts.dev), (TEST, _wanted(parts.test, recipe) if test else None)):
            if split is not None:
                path = folder / f"{name}.jsonl"
                scores[name] = _scored(recipe, begun.learner, split, serving, path=path, ground=ground, setting=setting)
    course = Course(recipe, run, ground, begun, training)
    facts = facts_of(course, scores, identity=identities[0])
    if recipe.keep_models == "none":
        # Written and removed at the end, the weights of a large grid would fill the disk meanwhile.
        facts = replace(facts, kept=False)
    else:
        write_model(course, folder, facts)
    write_facts(folder, facts, recipe)
    saver.remove()
    return facts


def _require_scorable(recipe: FinetuneRecipe, task: Task, parts: Parts) -> None:
    """UsageError where what is to be scored cannot be: now, and not when all is learnt and the weights are lost.

    Scored against itself, gold has every measure and meets every fault of its own.
    """
    test = _wanted(parts.test, recipe) if recipe.score_test != "never" else None
    judged = parts.dev if parts.dev is not None else test
    for name, split in ((DEV, parts.dev), (TEST, test)):
        if split is None:
            continue
        try:
            scores = scored(task, split, split.docs)
        except BadDocument as error:
            raise UsageError(f"{name} cannot be scored: {error} Mend the split, or go without its scores.") from None
        if split is judged:
            measure_of(recipe, scores)


def _clear(folder: Path) -> None:
    """Leave of a run that was cut short what it goes on from."""
    for path in folder.iterdir() if folder.exists() else ():
        if path.name in (STATE, METRICS, BOARD):
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    folder.mkdir(parents=True, exist_ok=True)


def _follow(training: Training, journal: Journal, show: Show, saver: Saver) -> None:
    """Train, writing each line of metrics and telling how far it is."""
    said = ""
    try:
        for line in training.lines(save=saver):
            journal.write(line)
            if "dev" in line:
                name, held = next(iter(line["dev"].items()))
                said = f", dev {name} {held:.4f}"
            progress = training.progress
            loss = f", loss {line['loss']:.3f}" if "loss" in line else ""
            show(progress.step / progress.steps, f"step {progress.step:,}{loss}{said}")
    except DivergedError:
        # It would diverge again from there, and states of a large grid would fill the disk.
        saver.remove()
        raise


def _scored(
    recipe: FinetuneRecipe, learner: Learner, split: Split, task: Task, *, path: Path, ground: Ground, setting: Setting
) -> Scores:
    """Answer a split, write the answers down with the gold documents beside all runs, and score them."""
    segments = ground.material.frame.segments
    limit = recipe.evaluation.batch_tokens
    found: list[Document] = answered(learner, split, task, limit=limit, segments=segments, autocast=setting.autocast)
    write(path, found, "jsonl")
    # Every run of the same fold writes the same: what `lexome evaluate` is to compare answers with.
    fold = None if recipe.folds is None else recipe.folds.use[0]
    write(gold_path(recipe.out, path.stem, fold), split.docs, "jsonl")
    return scored(task, split, found)


def _wanted(split: Split | None, recipe: FinetuneRecipe) -> Split:
    if split is None or not split.flat:
        raise UsageError(f"the split {recipe.data.test!r} has nothing to score. Leave score_test out.")
    return split


def _compile(learner: Learner) -> None:
    """Compile each layer in place for sizes that change from batch to batch. What transformers computes stays."""
    encoder = learner.model.encoder
    if isinstance(encoder, Encoder):
        torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, RECOMPILATIONS)
        for part in (encoder.embed, *encoder.layers):
            part.compile(dynamic=True)
