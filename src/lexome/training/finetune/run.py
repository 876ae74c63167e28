"""One fine-tuning run, from its checkpoint to its folder: model/, metrics.jsonl, dev.jsonl, test.jsonl, run.json."""

import hashlib
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lexome.corpus.shards import open_shards
from lexome.corpus.vocab.tokenizers import tokenizer_sha256
from lexome.errors import BadDocument, CheckpointError, DivergedError, UsageError, WorkerError
from lexome.files import fingerprint, read_json, write_checksums, write_json
from lexome.formats import write
from lexome.infer.annotator import default_model
from lexome.infer.named_models import DEFAULT
from lexome.infer.predictor import MODEL as ONNX
from lexome.infer.predictor import SETTINGS, read_settings
from lexome.models.checkpoint import (
    HUGGING_FACE,
    Card,
    Checkpoint,
    StoredCheckpoint,
    custom_head,
    encoder_of,
    layout_of,
    load,
    read_checkpoint,
    save,
)
from lexome.models.encoder import Encoder
from lexome.models.exported import write_exported
from lexome.models.heads import EncoderWithHead, add_input_bias
from lexome.models.hf_folder import find_checkpoint, hub_name, weights_sha256
from lexome.recipe import downgrade, explain
from lexome.recipe.finetune import FinetuneRecipe, LossTable, OptimizerTable, Run, TeacherTable, cells_of
from lexome.tasks import task_of
from lexome.tasks.task import TASK, Example, Scores, Task
from lexome.training.finetune.examples import (
    DEV,
    TEST,
    DataSettings,
    FoldSettings,
    Split,
    Splits,
    TaskData,
    export_tokenizer,
    label_bias,
    label_counts,
    label_weights,
    oversampling,
    warn_collapsed,
)
from lexome.training.finetune.fit import (
    EvaluationSettings,
    FinetuneLoss,
    Fit,
    GraphedUpdater,
    ProbeSettings,
    QuantizationAwareTraining,
    can_record,
    predict,
    probe,
    score,
)
from lexome.training.finetune.lora import LoraSettings, merge_adapters, write_adapters
from lexome.training.finetune.task_model import (
    USUAL_BATCH,
    Distillation,
    HeadSettings,
    LossSettings,
    StepSize,
    TaskBatch,
    TaskLoss,
    TaskModel,
    TrainingPlan,
    build_task_model,
    head_labels,
    load_teacher,
)
from lexome.training.loop import Interrupted, StopSignal, Updater, deterministic_kernels, stop_on_signal
from lexome.training.losses import compile_encoder
from lexome.training.optim import LearningRateSchedule, Length, Optimizers, OptimizerSettings
from lexome.training.parallel import Parallel
from lexome.training.record import FinetuneRecord, read_record, revision, write_record
from lexome.training.trainer import BOARD, METRICS, STATES, Setting, Trainer, list_states, remove_drafts

Show = Callable[[float, str], None]
"""Reports the completed fraction of a run and a message."""

# The folder of all runs in `out`, and that of the model in a run.
RUNS, MODEL = "runs", "model"
# The folder of the gold documents in `out`, as read from their source; and that of an exported model's float weights.
GOLD, START = "gold", "start"
SUMMARY = "summary.json"

# Inputs shared by all runs


@dataclass(frozen=True)
class RunContext:
    """Inputs shared by all runs of a recipe: the checkpoint, read once, and the data; and this process's place."""

    start: Path
    sha256: str
    stored: StoredCheckpoint
    data: TaskData
    parallel: Parallel


@contextmanager
def open_context(recipe: FinetuneRecipe, parallel: Parallel) -> Iterator[RunContext]:
    """The inputs of a recipe, with the tokenizer in a temporary folder that is removed afterwards."""
    scratch = Path(tempfile.mkdtemp(prefix="lexome-finetune-"))
    try:
        yield load_context(recipe, parallel, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def load_context(recipe: FinetuneRecipe, parallel: Parallel, tokenizer: Path) -> RunContext:
    """The inputs of a recipe, with the tokenizer in this folder; it is exported there if the folder is empty."""
    start = start_of(recipe.start, recipe.out)
    stored = read_checkpoint(start)
    encoder = stored.build(kind="encoder", share_memory=True)
    if not any(tokenizer.iterdir()):
        export_tokenizer(encoder, tokenizer)
    best_cell = recipe.score_test == "best" and len(cells_of(recipe.grid)) > 1
    data = TaskData.open(
        encoder,
        tokenizer,
        DataSettings(**recipe.data.model_dump()),
        recipe.task,
        folds=None if recipe.folds is None else FoldSettings(**recipe.folds.model_dump()),
        selecting=recipe.evaluation.patience is not None or recipe.grid.seeds == "first" or best_cell,
        scored=recipe.score_test != "never",
        unlabeled=None if recipe.teacher is None else recipe.teacher.shards,
    )
    if recipe.teacher is not None or (not recipe.new_head and head_labels(start, data.task.head) == data.task.labels):
        # A head or a teacher that knows a type needs no document that has it.
        data.explicit_types = ()
    return RunContext(start, checkpoint_sha256(start), stored, data, parallel)


def start_of(path: Path, out: Path | None = None) -> Path:
    """The checkpoint at a path: the path itself, or the best model of an earlier fine-tuning there.

    For an exported model, and for "default", the default model, the float weights are written below `out`.
    """
    if out is not None:
        if str(path) == DEFAULT and not path.exists():
            return _exported_checkpoint(default_model(), out / START)
        if all((path / name).is_file() for name in (ONNX, SETTINGS)):
            return _exported_checkpoint(path, out / START)
    summary = path / SUMMARY
    best = read_json(summary, remedy="Run the fine-tuning again.").get("best_run") if summary.is_file() else None
    if not isinstance(best, str):
        return find_checkpoint(path)
    model = path / RUNS / best / MODEL
    if not model.is_dir():
        message = f"{path}: the weights of its best run, {best}, were not saved. Rerun it with keep_models set to best."
        raise UsageError(message, code="missing-weights", value=best)
    return model


def _exported_checkpoint(exported: Path, folder: Path) -> Path:
    """An exported model as a checkpoint in this folder, written once; its task is beside the weights."""
    settings = read_settings(exported)
    # Named by the hash of the weights, so that another version of the model gets a folder of its own.
    checkpoint = folder / f"{settings.source['name']}-{settings.source['weights_sha256'][:8]}"
    if not (checkpoint / TASK).is_file():
        write_exported(
            exported / ONNX,
            checkpoint,
            kind=settings.kind,
            labels=settings.labels,
            tokenizer=exported,
            name=settings.source["name"],
        )
        write_json(checkpoint / TASK, settings.task)
    return checkpoint


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


# Identity

# Keys that do not change a run's result, or whose files are identified by their hashes: the checkpoint, for example.
FREE = {"out", "start", "jobs", "card", "keep_models", "grid", "score_test", "seeds", "save_every", "parallel", "log"}
# Keys that the first edition lacked, with the values it used; these are not hashed, so that its runs are recognized.
ADDED: dict[str, dict[str, Any]] = {
    "batch": {"gradient_accumulation": 1, "prefetch": 8},
    "optimizer": {"kind": "adamw", "weight_decay_embeddings": True, "momentum": 0.95},
    "schedule": {"warmup_steps": None, "decay_ratio": 0.0},
}


def identities_of(recipe: FinetuneRecipe, run: Run, context: RunContext) -> tuple[str, ...]:
    """The hash of everything that a run's result depends on, followed by the hashes that earlier versions computed.

    Earlier hashes include the paths of the data, of the teachers and of their text, so that moving these made a
    finished run look like a new one.
    """
    settings = recipe.model_dump(mode="json", exclude=FREE)
    for table, defaults in ADDED.items():
        for key, default in defaults.items():
            if settings[table][key] == default:
                del settings[table][key]
    data = context.data
    if data.task.head != "sequence" and not recipe.probe.epochs:
        del settings["probe"]
    settings = downgrade(settings, recipe.stage)
    inputs = (dict(data.task.settings()), data.frame, tokenizer_sha256(data.tokenizer))
    known: tuple[object, ...] = (run, inputs, data.splits(run.fold).identity, context.sha256)
    forms = [settings]
    if recipe.teacher is not None:
        forms.insert(0, settings | {"teacher": _without(settings["teacher"], "models", "shards")})
        known += (teachers_sha256(recipe.teacher.models, recipe.teacher.shards),)
    forms.insert(0, forms[0] | {"data": _without(settings["data"], "root", "folder")})
    return tuple(fingerprint(form, *known) for form in forms)


def teachers_sha256(models: Sequence[Path], shards: Path | None) -> str:
    """The hash of the teachers' weights and of their unlabeled text."""
    text = None if shards is None else open_shards(shards).manifest
    return fingerprint([weights_sha256(start_of(path)) for path in models], text)


def _without(table: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in table.items() if key not in keys}


# One run

ADAPTER = "adapter"
# Epochs of probing for new heads of sequences and of mention pairs, where the recipe sets none.
PROBE_EPOCHS = 8
PROBLEM_TYPES = {"choice": "single_label_classification", "binary": "multi_label_classification", "value": "regression"}
OUT_OF_MEMORY = "the GPU ran out of memory. Lower jobs, batch.micro_batch_tokens or data.max_tokens."


def run_once(
    recipe: FinetuneRecipe,
    run: Run,
    context: RunContext,
    folder: Path,
    *,
    test: bool,
    show: Show = lambda fraction, message: None,
    announce: bool = False,
) -> FinetuneRecord:
    """Train one run, unless it is finished, and write its folder; with `test`, score the test split as well.

    Ctrl-C and SIGTERM save the training state after the current step and raise Interrupted; with `announce`, they are
    acknowledged on standard error at once.
    """
    identities = identities_of(recipe, run, context)
    facts = context.parallel.from_first(lambda: _finished(folder, identities))
    if facts is None:
        try:
            facts = _train(recipe, run, context, folder, identities=identities, test=test, show=show, announce=announce)
        except torch.OutOfMemoryError:
            raise WorkerError(OUT_OF_MEMORY, code="out-of-memory", value=run.name) from None
    if test and TEST not in facts.scores:
        facts = score_test_later(recipe, facts, context, folder)
    return facts


def _finished(folder: Path, identities: Collection[str]) -> FinetuneRecord | None:
    """The record of this run, by any of its identities, if finished; UsageError for a different run."""
    facts = read_record(folder, FinetuneRecord)
    if facts is not None and facts.identity not in identities:
        raise UsageError(
            f"{folder}: holds a run with other settings, on other data or from another checkpoint. Choose another "
            "`out`, or remove that folder.",
            code="other-settings",
            value=folder,
        )
    return facts


def _train(
    recipe: FinetuneRecipe,
    run: Run,
    context: RunContext,
    folder: Path,
    *,
    identities: tuple[str, ...],
    test: bool,
    show: Show,
    announce: bool,
) -> FinetuneRecord:
    data, parallel = context.data, context.parallel
    splits = data.splits(run.fold)
    _require_scorable(recipe, data.task, splits)
    revision()
    if parallel.first:
        _clear(folder)
    parallel.wait()
    setting = setting_of(recipe, parallel)
    with deterministic_kernels(recipe.deterministic, setting.device):
        fit, checkpoint = _prepare_or_resume(recipe, run, context, setting, folder=folder, identities=identities)
        probed = [] if fit.trainer.position.step else _probe(recipe, run, context, fit, checkpoint, show=show)
        identity = _state_identity(identities[0], setting)
        with stop_on_signal(announce=announce) as stop:
            _fit(fit, folder, show, stop, save_every=recipe.save_every, identity=identity, probed=probed)
        scores = {}
        for name, split in ((DEV, splits.dev), (TEST, _test_split(splits, recipe.data.test) if test else None)):
            if split is not None:
                path = folder / f"{name}.jsonl"
                scores[name] = parallel.from_first(lambda: _score(recipe, split, path, fit.serving_task(), fit.predict))  # noqa: B023
    facts = _record(
        recipe, run, context, fit=fit, checkpoint=checkpoint, setting=setting, scores=scores, identity=identities[0]
    )
    if parallel.first and splits.dev is not None:
        collapsed = warn_collapsed(folder / f"{DEV}.jsonl", splits.dev, scores[DEV], facts.measure)
        if collapsed is not None:
            remedy = _what_to_try(recipe)
            facts = replace(facts, warnings=(*facts.warnings, f"{run.name}: {collapsed}. {remedy}"))
    if recipe.keep_models == "none":
        # Written and removed at the end, the weights of a large grid would fill the disk meanwhile.
        facts = replace(facts, kept=False)
    if parallel.first:
        if facts.kept:
            _write_model(recipe, context, fit, checkpoint, folder=folder, facts=facts)
        write_record(folder, facts, recipe)
        shutil.rmtree(folder / STATES, ignore_errors=True)
    parallel.wait()
    if not parallel.all_agree(not stop.received):
        raise Interrupted(f"{run.name} was in its last step and is finished.")
    return facts


def setting_of(recipe: FinetuneRecipe, parallel: Parallel) -> Setting:
    """The device and precision of a run; keys that are not set depend on the device."""
    on_gpu = parallel.device.type == "cuda"
    half = recipe.precision == "autocast" or (recipe.precision == "auto" and on_gpu)
    # Gradients are averaged over processes in the backward pass, which is not recorded.
    graphs = on_gpu and recipe.cuda_graphs and not recipe.compile and parallel.mesh is None
    return Setting(parallel.device, "autocast" if half else "fp32", recipe.compile, graphs)


def _prepare_or_resume(
    recipe: FinetuneRecipe,
    run: Run,
    context: RunContext,
    setting: Setting,
    *,
    folder: Path,
    identities: tuple[str, ...],
) -> tuple[Fit, Checkpoint]:
    """A run at its beginning, or where it was interrupted; a training state that does not fit it is discarded."""
    states, parallel = folder / STATES, context.parallel
    if parallel.first:
        remove_drafts(states)
    fit, checkpoint = _prepare(recipe, run, context, setting)
    if saved := parallel.from_first(lambda: list_states(states)):
        try:
            known = [_state_identity(identity, setting) for identity in identities]
            fit.restore(saved[-1], identities=known, seed=run.seed)
        except (CheckpointError, UsageError) as error:
            if parallel.first:
                print(f"warning: {error} The run starts again.", file=sys.stderr)
                shutil.rmtree(states)
            parallel.wait()
            fit, checkpoint = _prepare(recipe, run, context, setting)
    return fit, checkpoint


def _state_identity(identity: str, setting: Setting) -> str:
    """The identity of a training state: a run that was begun on a GPU cannot be resumed on a CPU."""
    return f"{identity} {setting.device.type}"


def _prepare(recipe: FinetuneRecipe, run: Run, context: RunContext, setting: Setting) -> tuple[Fit, Checkpoint]:
    """A run at its beginning: model, optimizers, data and loss."""
    data, parallel = context.data, context.parallel
    task, splits = data.task, data.splits(run.fold)
    plan = plan_of(recipe, run, context)
    torch.manual_seed(run.seed)
    model, checkpoint = build_model(recipe, context)
    if _probe_epochs(recipe.probe.epochs, checkpoint, task, model) and recipe.probe.standardize:
        add_input_bias(model.model.head)
    model.to(setting.device)
    if setting.compiled and isinstance(model.model.encoder, Encoder):
        compile_encoder(model.model.encoder, dynamic=True)
    loss_settings = _loss_settings(recipe.loss, splits.train.examples, task, crf=recipe.head.crf)
    distillation = None if recipe.teacher is None else _distillation(recipe.teacher, data, setting.device)
    loss = FinetuneLoss(TaskLoss(task, loss_settings, model.crf), distillation, autocast=setting.autocast)
    graphs = setting.cuda_graphs and recipe.optimizer.kind == "adamw"
    graphs = graphs and can_record(model, data.task, loss_settings, autocast=setting.autocast)
    if graphs:
        plan.choose_padding()
    encoder = model.model.encoder
    settings = _optimizer_settings(recipe.optimizer)
    if settings.kind == "muon" and not isinstance(encoder_of(model.model), Encoder):
        message = 'optimizer.kind = "muon" is not supported for models that transformers computes. Leave it out.'
        raise UsageError(message, code="unsupported-model", value="muon")
    optimizers = Optimizers(model, encoder.config, settings, capturable=setting.device.type == "cuda")
    called = parallel.wrap(model, encoder.config)
    parallel.seed(run.seed)
    schedule = LearningRateSchedule.of(recipe.optimizer.lr, **recipe.schedule.model_dump(), steps=plan.count)
    trainer = Trainer(
        model,
        optimizers,
        length=Length(steps=plan.count),
        schedule=schedule,
        parallel=parallel,
        clock=time.monotonic,
        divergence_threshold=recipe.log.divergence_threshold,
    )
    updater: Updater[TaskBatch] = (GraphedUpdater if graphs else Updater)(called, optimizers, parallel.scale_loss(loss))
    fit = Fit(
        model,
        task,
        plan,
        splits.dev,
        trainer=trainer,
        updater=updater,
        evaluation=EvaluationSettings(**recipe.evaluation.model_dump()),
        qat=QuantizationAwareTraining(model, begin=1 - recipe.qat_ratio) if recipe.qat_ratio else None,
        autocast=setting.autocast,
        log_every=recipe.log.every,
        prefetch=recipe.batch.prefetch,
    )
    return fit, checkpoint


def _probe_epochs(epochs: int | None, checkpoint: Checkpoint, task: Task, model: TaskModel) -> int:
    """The number of epochs to probe a head for: 0 where it is not new, or its task is not probed."""
    new = any(name.startswith("head.out") for name in checkpoint.new)
    if not new or task.loss == "span" or model.crf is not None:
        return 0
    default = PROBE_EPOCHS if task.head == "sequence" or task.loss == "pairs" else 0
    return default if epochs is None else epochs


def _probe(
    recipe: FinetuneRecipe, run: Run, context: RunContext, fit: Fit, checkpoint: Checkpoint, *, show: Show
) -> list[float]:
    """Train a new head on the frozen encoder if the recipe asks for it; returns the loss of each epoch."""
    epochs = _probe_epochs(recipe.probe.epochs, checkpoint, fit.task, fit.model)
    if not epochs:
        return []
    examples = context.data.splits(run.fold).train.examples
    loss = TaskLoss(fit.task, _loss_settings(recipe.loss, examples, fit.task, crf=recipe.head.crf))
    settings = ProbeSettings(**recipe.probe.model_dump(exclude={"epochs"}))

    def report(message: str) -> None:
        show(0.0, f"probing the new head: {message}")

    return probe(fit, examples, loss, settings, epochs=epochs, seed=run.seed, report=report)


def build_model(recipe: FinetuneRecipe, context: RunContext) -> tuple[TaskModel, Checkpoint]:
    """The recipe's model, and the checkpoint it was built from."""
    return build_task_model(
        context.stored,
        context.data.task,
        head=HeadSettings(**recipe.head.model_dump()),
        new_head=recipe.new_head,
        layers=recipe.layers,
        method=recipe.method,
        lora=LoraSettings(**recipe.lora.model_dump()),
        dropout=recipe.dropout,
        attention_dropout=recipe.attention_dropout,
        gradient_checkpointing=recipe.gradient_checkpointing,
    )


def plan_of(recipe: FinetuneRecipe, run: Run, context: RunContext) -> TrainingPlan:
    """The steps of a run."""
    data, parallel = context.data, context.parallel
    splits, batch, teacher = data.splits(run.fold), recipe.batch, recipe.teacher
    repeats = oversampling(splits.train.examples, data.task, power=recipe.loss.oversample)
    if teacher is not None:
        repeats = np.append(repeats, np.full(len(splits.unlabeled), teacher.text_ratio))
    sequences = batch.sequences or (None if batch.tokens else USUAL_BATCH)
    return TrainingPlan(
        [*splits.train.examples, *splits.unlabeled],
        data.task,
        StepSize(sequences, batch.tokens, batch.gradient_accumulation, batch.micro_batch_tokens),
        repeats=repeats,
        seed=run.seed,
        segments=data.frame.segments,
        epochs=recipe.epochs,
        steps=recipe.steps,
        soft=teacher is not None,
        replica=parallel.replica,
        replicas=parallel.replicas,
    )


def _optimizer_settings(table: OptimizerTable) -> OptimizerSettings:
    """The recipe's optimizer."""
    scale = 1.0 if table.head_lr is None else table.head_lr / table.lr
    return OptimizerSettings(**table.model_dump(exclude={"lr", "head_lr"}), head_lr_scale=scale)


def _loss_settings(table: LossTable, examples: Sequence[Example], task: Task, *, crf: bool) -> LossSettings:
    """The recipe's loss; label weights are computed from the training examples."""
    if table.kind != "plain" and task.loss in ("value", "span", "pairs"):
        message = f"loss.kind {table.kind!r} is for labels, and this task has none to choose from. Leave it out."
        raise UsageError(message, code="unsupported-task", value="loss.kind")
    if table.kind != "plain" and crf:
        message = f"loss.kind {table.kind!r} and head.crf exclude each other: a CRF has a loss of its own."
        raise UsageError(message, code="unsupported-loss", value="loss.kind")
    weights = label_weights(examples, task, power=table.power) if table.kind == "weighted" else ()
    return LossSettings(table.kind, table.gamma, table.alpha, table.smooth, weights)


def _distillation(table: TeacherTable, data: TaskData, device: torch.device) -> Distillation:
    """The recipe's teachers."""
    teachers = [
        load_teacher(start_of(path), data.task, data.tokenizer, max_tokens=data.frame.max_tokens).to(device)
        for path in table.models
    ]
    return Distillation(teachers, data.task, weight=table.weight, temperature=table.temperature)


def _clear(folder: Path) -> None:
    """Remove the files of an interrupted run, except those that it resumes from."""
    for path in folder.iterdir() if folder.exists() else ():
        if path.name in (STATES, METRICS, BOARD):
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    folder.mkdir(parents=True, exist_ok=True)


def _fit(
    fit: Fit,
    folder: Path,
    show: Show,
    stop: StopSignal,
    *,
    save_every: float,
    identity: str,
    probed: Sequence[float] = (),
) -> None:
    """Train, reporting progress and saving a training state every `save_every` seconds.

    After a signal to stop, the state is saved and Interrupted is raised, unless the run is about to end.
    """
    trainer, saved_s, dev = fit.trainer, time.monotonic(), ""
    trainer.open_journal(folder)
    for epoch, probe_loss in enumerate(probed):
        trainer.write({"step": 0, "probe_epoch": epoch, "probe_loss": probe_loss})
    try:
        for line, may_save in fit.run(stop):
            if "dev" in line:
                name = fit.evaluation.metric_of(line["dev"])
                dev = f", dev {name} {line['dev'][name]:.4f}"
                if fit.best.scores is not None:
                    dev += f", best {fit.best.scores[name]:.4f} at step {fit.best.step:,}"
            loss = f", loss {line['loss']:.3f}" if "loss" in line else ""
            show(trainer.fraction, f"step {trainer.position.step:,}{loss}{dev}")
            if not may_save:
                continue
            stopping = not trainer.parallel.all_agree(not stop.received)
            due = trainer.parallel.from_first(lambda: time.monotonic() - saved_s >= save_every)  # noqa: B023
            if stopping or due:
                try:
                    fit.save(folder / STATES, identity=identity)
                except CheckpointError as error:
                    if stopping:
                        raise
                    # A full disk, for example, must not end the run.
                    print(f"warning: {error} The run continues.", file=sys.stderr)
                saved_s = time.monotonic()
            if stopping:
                step = trainer.position.step
                raise Interrupted(f"the training state of step {step:,} is saved in {folder / STATES}.")
    except DivergedError:
        # It would diverge again from that state, and training states of a large grid would fill the disk.
        shutil.rmtree(folder / STATES, ignore_errors=True)
        raise


# Scores


def _require_scorable(recipe: FinetuneRecipe, task: Task, splits: Splits) -> None:
    """UsageError where a split cannot be scored, before training and not after it.

    Gold documents are scored against themselves: that computes every metric, and fails where an annotation is invalid.
    """
    test = _test_split(splits, recipe.data.test) if recipe.score_test != "never" else None
    selecting = splits.dev if splits.dev is not None else test
    for name, split in ((DEV, splits.dev), (TEST, test)):
        if split is None:
            continue
        try:
            scores = score(task, split, split.docs)
        except BadDocument as error:
            message = f"{name} cannot be scored: {error} Fix the split, or go without its scores."
            raise UsageError(message, code="not-scorable", value=name) from None
        if split is selecting:
            EvaluationSettings(metric=recipe.evaluation.metric).metric_of(scores)


def _test_split(splits: Splits, name: str) -> Split:
    if splits.test is None or not splits.test.examples:
        message = f"the split {name!r} has nothing to score. Remove score_test."
        raise UsageError(message, code="empty-split", value=name)
    return splits.test


def _score(
    recipe: FinetuneRecipe, split: Split, path: Path, task: Task, predict: Callable[[Split], list[Any]]
) -> Scores:
    """Predict a split, write predictions and gold documents, and score them."""
    predictions = predict(split)
    write(path, predictions, "jsonl")
    # The same for all runs of a fold: what `lexome evaluate` compares predictions with.
    fold = None if recipe.folds is None else recipe.folds.use[0]
    write(gold_path(recipe.out, path.stem, fold), split.docs, "jsonl")
    return score(task, split, predictions)


def gold_path(out: Path, split: str, fold: int | None) -> Path:
    """The file of the gold documents, shared by all runs of a fold."""
    return out / GOLD / f"{'' if fold is None else f'fold{fold}-'}{split}.jsonl"


def _what_to_try(recipe: FinetuneRecipe) -> str:
    """Advice for a model that has learned nothing, with the recipe's own values."""
    length = f"epochs ({recipe.epochs:g})" if recipe.epochs is not None else f"steps ({recipe.steps})"
    head = "" if recipe.optimizer.head_lr is not None else ", with optimizer.head_lr ten times as high"
    return (
        f"Try another optimizer.lr (it is {recipe.optimizer.lr:g}){head}; raise {length}; try other seeds; and check "
        "that the model overfits with data.limit = 50: if it does not, check the labels"
    )


def score_test_later(
    recipe: FinetuneRecipe, facts: FinetuneRecord, context: RunContext, folder: Path
) -> FinetuneRecord:
    """Score the test split with the model of a finished run, and add the scores to its record."""

    def compute() -> FinetuneRecord:
        if not facts.kept:
            message = f"{folder}: its weights were not kept, so test cannot be scored now. Remove it and run again."
            raise UsageError(message, code="missing-weights", value=folder)
        setting, data = setting_of(recipe, context.parallel), context.data
        task = task_of(read_json(folder / MODEL / TASK))
        model = load(folder / MODEL, kind=task.head).model.to(setting.device)
        assert isinstance(model, EncoderWithHead)

        def predictions(split: Split) -> list[Any]:
            return predict(
                TaskModel(model),
                split,
                task,
                batch_tokens=recipe.evaluation.batch_tokens,
                segments=data.frame.segments,
                autocast=setting.autocast,
            )

        split = _test_split(data.splits(facts.fold), recipe.data.test)
        scores = _score(recipe, split, folder / f"{TEST}.jsonl", task, predictions)
        scored = replace(facts, scores={**facts.scores, TEST: scores})
        write_record(folder, scored, recipe)
        return scored

    return context.parallel.from_first(compute)


# Records and model folders


def _record(
    recipe: FinetuneRecipe,
    run: Run,
    context: RunContext,
    *,
    fit: Fit,
    checkpoint: Checkpoint,
    setting: Setting,
    scores: dict[str, Scores],
    identity: str,
) -> FinetuneRecord:
    """The facts of a finished run, for its run.json."""
    position, splits = fit.trainer.position, context.data.splits(run.fold)
    first = next(iter(scores.values()), None)
    warnings = splits.warnings
    if recipe.keep_models != "none" and (head := custom_head(fit.model.model, checkpoint.architecture)) is not None:
        warnings += (
            f"transformers has no class for this head ({head}) and would initialize another one with random weights; "
            "load the model with Lexome, as its README.md says",
        )
    return FinetuneRecord(
        name=run.name,
        identity=identity,
        seed=run.seed,
        fold=run.fold,
        batch=run.cell.batch,
        lr=run.cell.lr,
        epochs=run.cell.epochs,
        scores=scores,
        measure=None if first is None else fit.evaluation.metric_of(first),
        steps=position.step,
        best_step=fit.best.step or position.step,
        stopped_early=fit.best.stopped_early,
        tokens=position.tokens,
        seconds=round(position.elapsed_s, 3),
        device=str(setting.device),
        precision=setting.precision,
        compiled=setting.compiled,
        labels=label_counts(splits.train.examples, fit.task),
        bias=label_bias(splits.train.examples, fit.task),
        notes=splits.notes,
        warnings=warnings,
        start={
            "checkpoint": str(context.start),
            "sha256": context.sha256,
            "architecture": checkpoint.architecture,
            "backend": checkpoint.backend,
            "new_head": any(name.startswith("head.out") for name in checkpoint.new),
            "unused": list(checkpoint.unused),
        },
        processes=context.parallel.sizes.world,
    )


def _write_model(
    recipe: FinetuneRecipe,
    context: RunContext,
    fit: Fit,
    checkpoint: Checkpoint,
    *,
    folder: Path,
    facts: FinetuneRecord,
) -> None:
    """Write the model as a checkpoint folder with its task, and LoRA adapters to a folder beside it."""
    task = fit.serving_task()
    model = fit.model.model.eval().cpu()
    if recipe.method == "lora":
        write_adapters(
            folder / ADAPTER,
            model,
            architecture=checkpoint.architecture,
            kind=fit.task.head,
            base=context.start,
            settings=LoraSettings(**recipe.lora.model_dump()),
        )
        model = merge_adapters(model)
    run: dict[str, Any] = {"stage": recipe.stage, "run": facts.name, "scores": facts.scores}
    # An export needs these to score the model by source, on the documents that were held out.
    run["recipe"] = {"data": {"rename": recipe.data.rename, "dev_fraction": recipe.data.dev_fraction}}
    save(
        folder / MODEL,
        model,
        architecture=checkpoint.architecture,
        tokenizer=context.data.tokenizer,
        card=_card(recipe, context, facts, decoding=_decoding(task)),
        labels=() if task.head == "span" else task.labels,
        run={**run, "start": facts.start},
        replace=True,
    )
    write_json(folder / MODEL / TASK, task.settings(), indent=2)
    if task.head == "sequence":
        # Tells pipelines of transformers whether labels exclude one another.
        path = folder / MODEL / "config.json"
        write_json(path, {**read_json(path), "problem_type": PROBLEM_TYPES[task.loss]}, indent=2)
    write_checksums(folder / MODEL)


def _decoding(task: Task) -> str | None:
    """What this task's decoding does beyond a pipeline of transformers, for the model card; None if nothing."""
    if task.loss == "pairs":
        return "it scores relations between pairs of mentions, from the outputs at both"
    if task.transitions is not None:
        return "a CRF, whose transition scores are in task.json, chooses the tags"
    if len(task.groups) > 1:
        return f"each token has a tag in each of {len(task.groups)} groups, and not one tag"
    return None


def _card(recipe: FinetuneRecipe, context: RunContext, facts: FinetuneRecord, *, decoding: str | None = None) -> Card:
    cards = [source.card for source in context.data.sources]
    base = hub_name(context.start) or context.start.name
    data = recipe.card.data or " ".join(f"{card.name}: {card.description} License: {card.license}." for card in cards)
    rows = [
        (f"{split} {name}", f"{value:.4f}", f"seed {facts.seed}")
        for split, scores in facts.scores.items()
        for name, value in scores.items()
    ]
    return Card(
        title=recipe.card.title or recipe.out.name,
        summary=f"{base}, fine-tuned with Lexome on {', '.join(card.name for card in cards)}.",
        license=recipe.card.license,
        data=data,
        base_model=base,
        datasets=tuple(card.name for card in cards),
        recipe=explain(recipe),
        scores=tuple(rows),
        decoding=decoding,
    )


def drop_model(folder: Path, facts: FinetuneRecord, recipe: FinetuneRecipe) -> None:
    """Remove the weights of a finished run; its record stays."""
    if not facts.kept:
        return
    write_record(folder, replace(facts, kept=False), recipe)
    for name in (MODEL, ADAPTER):
        shutil.rmtree(folder / name, ignore_errors=True)
