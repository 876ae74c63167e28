"""Training on token shards, from the first step or the last saved training state, to the checkpoint folder.

The model and the loss come from the caller: pre-training and distillation differ in nothing else.
"""

import json
import math
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import torch
from torch import nn

from lexome.corpus.masking import Masking, Schedule
from lexome.corpus.shards import MANIFEST, Shards, open_shards
from lexome.corpus.vocab.tokenizers import TOKENIZER_FILE
from lexome.errors import DivergedError, MissingExtraError, RecipeError, UsageError
from lexome.files import fingerprint, refuse_foreign, refuse_other_settings
from lexome.models.checkpoint import Card, encoder_of
from lexome.progress import training_progress
from lexome.recipe import downgrade, explain, made_by, upgrade
from lexome.recipe.pretrain import PretrainRecipe, TrainingRecipe
from lexome.training.loop import (
    Batch,
    Clock,
    Interrupted,
    Loss,
    Position,
    Step,
    StepResult,
    StopSignal,
    Updater,
    deterministic_kernels,
    prefetch,
    stop_on_signal,
    to_device,
    to_tensors,
)
from lexome.training.losses import compile_layers, pad_logits
from lexome.training.optim import LearningRateSchedule, Length, Optimizers, OptimizerSettings
from lexome.training.parallel import Parallel, join_processes
from lexome.training.record import RUN, RunRecord, finished, run_record, write_record
from lexome.training.sampling import Pieces, Plan, StepArrays, Text, TextKind, Views, evaluation_batches, steps
from lexome.training.start import Start, checkpoint_name, initialize, write_checkpoint
from lexome.training.trainer import (
    METRICS,
    STATES,
    Line,
    Setting,
    Trainer,
    gather_weights,
    list_states,
    means,
    plot_loss,
    remove_drafts,
)

# Data


@dataclass(frozen=True, slots=True)
class HeldOutSettings:
    """How much held-out text is evaluated, with which masks, and whether it is required."""

    tokens: int
    masking_rate: float
    seed: int
    required: bool


class ShardBatches:
    """The steps of a run, with the micro-batches of this process, and the held-out batches.

    kind      of sequences: packed sentences, or pairs
    short     probability of a short sequence
    repeat    how often the text of a source occurs in an epoch
    views     how contrastive learning splits sequences in two
    prefetch  number of steps prepared ahead
    """

    def __init__(
        self,
        shards: Shards,
        plan: Plan,
        *,
        kind: TextKind,
        held_out: HeldOutSettings,
        short: float = 0.0,
        repeat: Mapping[str, int] | None = None,
        views: Views | None = None,
        prefetch: int = 0,
    ) -> None:
        self.plan, self.repeat, self.prefetch = plan, repeat or {}, prefetch
        check_repeat(self.repeat, shards)
        self.tokenizer: Path = shards.folder / TOKENIZER_FILE
        self.pieces = Pieces.read(self.tokenizer, words=plan.masking.unit != "token")
        self.text = Text(
            shards.train,
            self.pieces.specials,
            kind=kind,
            seed=plan.seed,
            dupe_factor=plan.dupe_factor,
            short=short,
            repeat=self.repeat,
            views=views,
        )
        self.held_out = self._held_out(shards, kind, held_out)

    def steps(
        self, length: Length, position: Position, *, parallel: Parallel
    ) -> AbstractContextManager[Iterator[Step]]:
        """Endless steps from a position, prefetched while the context is open."""
        count, plan = self.prefetch, self.plan
        ramps = plan.passes_ramp or plan.lengths_ramp or isinstance(plan.rate, Schedule)
        if parallel.mesh is not None and length.seconds is not None and ramps:
            # A prefetching thread would read the clock at a different time in each process.
            count = 0
        return prefetch(self._steps(length, position, parallel), count)

    def _steps(self, length: Length, position: Position, parallel: Parallel) -> Iterator[Step]:
        def fraction(steps_done: int, tokens_done: int) -> float:
            return length.fraction(steps=steps_done, tokens=tokens_done, elapsed_s=position.elapsed_s)

        begin_at = (position.place, position.step, position.tokens)
        for arrays in steps(self.text, self.plan, self.pieces.vocabulary, fraction, begin=begin_at):
            step = parallel.own_batches(to_tensors(arrays))
            yield step.pinned() if parallel.device.type == "cuda" else step

    def epoch_tokens(self) -> int:
        """Tokens of one epoch, special ones included."""
        return int(self.text.epoch(0, self.plan.max_tokens).reached[-1])

    def size(self) -> str:
        """How much text there is, each document counted once, and what an epoch repeats."""
        documents = sum(shard.document_ends.size for shard in self.text.shards)
        tokens = sum(shard.tokens.size for shard in self.text.shards)
        repeated = ", ".join(f"{name} {times} times" for name, times in self.repeat.items() if times > 1)
        return f"{documents:,} documents, {tokens:,} tokens{f'; in each epoch {repeated}' if repeated else ''}."

    def _held_out(self, shards: Shards, kind: TextKind, settings: HeldOutSettings) -> list[Batch]:
        if not any(shard.tokens.size for shard in shards.held_out):
            if settings.required:
                raise UsageError(
                    f"evaluation.every is set, but {shards.folder} has no held-out text. Shard with held_out = 0.01, "
                    "say, or remove evaluation.every.",
                    code="no-held-out-text",
                    value=shards.folder,
                )
            return []
        text = Text(shards.held_out, self.pieces.specials, kind=kind, seed=settings.seed, short=0.0)
        # A seed of its own, so that runs of several seeds are evaluated on the same masks.
        plan = replace(self.plan, seed=settings.seed)
        arrays = evaluation_batches(
            text, plan, self.pieces.vocabulary, tokens=settings.tokens, rate=settings.masking_rate
        )
        nowhere = Position().place
        return [to_tensors(StepArrays([one], nowhere, settings.masking_rate)).batches[0] for one in arrays]


def check_repeat(times: Mapping[str, int], shards: Shards) -> None:
    """RecipeError where text.repeat names an unknown source, or leaves out all of them."""
    known = shards.sources
    if unknown := sorted(times.keys() - set(known)):
        raise RecipeError(
            f"text.repeat has the source {unknown[0]}, of which the shards in {shards.folder} have no training text; "
            f"expected some of {', '.join(known) or 'no source'}.",
            code="unknown-source",
            value=unknown[0],
        )
    if known and all(times.get(name) == 0 for name in known):
        message = f"text.repeat is 0 for each of {', '.join(known)}, which leaves no text. Leave some at 1."
        raise RecipeError(message, code="no-text", value="text.repeat")


def evaluate(model: nn.Module, batches: Sequence[Batch], loss: Loss) -> Line:
    """Loss, perplexity and accuracy on held-out batches, and the other terms of the loss; empty without batches."""
    if not batches:
        return {}
    device = next(model.parameters()).device
    sums: dict[str, float] = {}
    model.eval()
    with torch.no_grad():
        for batch in batches:
            _, terms = loss(model, to_device(batch, device))
            for name, value in terms.items():
                sums[name] = sums.get(name, 0.0) + float(value)
    counts = {name: sum(getattr(batch, name) for batch in batches) for name in ("masked", "sequences", "tokens")}
    line = means(sums, counts)
    # A float overflows above this.
    perplexity = math.exp(min(700.0, sums["word_loss"] / max(1, counts["masked"])))
    return {"loss": line.pop("word_loss"), "perplexity": perplexity} | line


# One run

MODEL = "model"
LAST_GOOD = "last-good"
# Checkpoint folders of the steps that the recipe names.
CHECKPOINTS = "models"
PLOT = "loss.png"
# Keys that may change when a run is resumed: paths, logging, and others that do not affect the result.
FREE = {"log", "card", "out", "shards", "parallel", "gradient_checkpointing"}
# Tables and keys that the first edition lacked; they are not hashed while unset, so that its runs are recognized.
ADDED_TABLES = {"embedding_distillation", "contrastive", "resume_from"}
# Keys that may differ between a finished run and the run that lengthens it.
LENGTHS = {"steps", "tokens", "epochs", "time_budget", "schedule", "resume_from"}


@dataclass(frozen=True, slots=True)
class Objective:
    """The model and losses of a session.

    start       the model that becomes the checkpoint folder
    module      what is trained and saved in states: start.model, or a module around it with more weights
    loss        the training loss; it calls the module that it is given, which may be distributed over processes
    evaluation  the loss on held-out text, of the same module in evaluation mode
    scale       how much larger the loss is than masked language modeling alone, by its weights
    """

    start: Start
    module: nn.Module
    loss: Loss
    evaluation: Loss
    scale: float = 1.0


BuildObjective = Callable[[ShardBatches, Setting], Objective]
"""Builds the objective of a run on the CPU. torch's generator is seeded before, identically in every process."""


def run_training(
    recipe: TrainingRecipe,
    build: BuildObjective,
    *,
    inputs_sha256: str = "",
    progress_shown: bool = True,
    clock: Clock = time.monotonic,
) -> tuple[RunRecord, bool]:
    """Train, or resume an interrupted run, and write the checkpoint folder.

    Returns the facts of the run, and whether it is new: a finished run is not repeated. `inputs_sha256` identifies
    what else its result depends on, such as a teacher's weights.
    """
    shards = open_shards(recipe.shards)
    # The run that this one continues is one of its inputs.
    origin = None if recipe.resume_from is None else origin_of(recipe, shards, inputs_sha256)
    identity = identity_of(recipe, shards, inputs_sha256 if origin is None else inputs_sha256 + origin.identity)
    if (run := finished(recipe.out, identity, recipe, free=FREE)) is not None:
        return run, False
    refuse_foreign(recipe.out, marks=(RUN, METRICS, STATES), command=recipe.stage)
    deterministic = recipe.deterministic if recipe.deterministic is not None else recipe.time_budget is None
    with (
        join_processes(**recipe.parallel.model_dump(), device=recipe.device) as parallel,
        deterministic_kernels(deterministic, parallel.device),
    ):
        session = Session.open(recipe, shards, identity, build, parallel=parallel, clock=clock, origin=origin)
        shown = progress_shown and parallel.first
        if shown:
            print(session.header(), file=sys.stderr, flush=True)
        try:
            with (
                _claim_folder(session),
                stop_on_signal(announce=shown) as stop,
                training_progress(recipe.stage, shown=shown) as show,
            ):
                for fraction, message in session.train(stop):
                    show(fraction, message)
        except DivergedError as error:
            raise DivergedError(f"{error} {session.rescue()}", code=error.code, value=error.value) from None
        return session.finish(), True


@contextmanager
def _claim_folder(session: "Session") -> Iterator[None]:
    """Claim the output folder for this run before its first step.

    If the run fails before a state is saved, usually for lack of memory, a corrected recipe may use the folder.
    """
    out = session.recipe.out
    if session.parallel.first:
        write_record(out, session.run(done=False), session.recipe)
    try:
        yield
    except BaseException:
        if session.parallel.first and not list_states(out / STATES):
            (out / RUN).unlink(missing_ok=True)
        raise


def identity_of(recipe: TrainingRecipe, shards: Shards, inputs_sha256: str = "") -> str:
    """A hash that a training state must share with the run that resumes it."""
    settings = downgrade(recipe.model_dump(mode="json", exclude=FREE), recipe.stage)
    # Runs from before there was such a key resume.
    if not recipe.text.repeat:
        del settings["text"]["repeat"]
    settings = {name: value for name, value in settings.items() if value is not None or name not in ADDED_TABLES}
    manifest = (shards.folder / MANIFEST).read_text(encoding="utf-8")
    return fingerprint(settings, manifest, *([inputs_sha256] if inputs_sha256 else []))


@dataclass(frozen=True, slots=True)
class Origin:
    """The end of a run that another run continues: its last training state, and its identity."""

    state: Path
    identity: str


def origin_of(recipe: TrainingRecipe, shards: Shards, inputs_sha256: str) -> Origin:
    """The run in `resume_from`; UsageError unless it is finished and differs in nothing but its length and schedule."""
    folder = recipe.resume_from
    assert folder is not None
    try:
        recorded = json.loads((folder / RUN).read_bytes())
        before = type(recipe).model_validate(upgrade(recorded["recipe"], recipe.stage))
        done, identity = bool(recorded["done"]), str(recorded["identity"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        problem = "no such folder" if not folder.is_dir() else f"has no record of a {recipe.stage} run ({error!r})"
        message = f"resume_from: {folder}: {problem}. Name `out` of a finished run.{made_by(folder)}"
        raise UsageError(message, code="missing-run", value=folder) from None
    old, new = (one.model_dump(mode="json", exclude_none=True, exclude=FREE | LENGTHS) for one in (before, recipe))
    refuse_other_settings(folder, old, new, holds="a run with other settings", remedy="Only the length may differ.")
    states, inputs = list_states(folder / STATES), inputs_sha256
    if before.resume_from is not None:
        inputs += origin_of(before, shards, inputs_sha256).identity
    if identity_of(before, shards, inputs) != identity:
        message = f"resume_from: {folder}: that run used other shards or other initial weights. Name another run."
        raise UsageError(message, code="other-settings", value="shards")
    if not (done and states):
        message = f"resume_from: {folder}: that run is not finished, or its training states are gone. Finish it first."
        raise UsageError(message, code="unfinished-run", value=folder)
    return Origin(states[-1], identity)


class Session:
    """One process's part of a run on token shards."""

    def __init__(
        self,
        recipe: TrainingRecipe,
        identity: str,
        *,
        objective: Objective,
        data: ShardBatches,
        setting: Setting,
        parallel: Parallel,
        clock: Clock,
    ) -> None:
        self.recipe, self.identity, self.data, self.setting, self.parallel = recipe, identity, data, setting, parallel
        self.start, self.evaluation_loss = objective.start, objective.evaluation
        self.model = self._prepare(objective.module)
        settings = OptimizerSettings(**recipe.optimizer.model_dump(exclude={"lr"}))
        optimizers = Optimizers(objective.module, self.start.config, settings)
        length, schedule = length_and_schedule(recipe, data)
        threshold = recipe.log.divergence_threshold
        self.trainer = Trainer(
            objective.module,
            optimizers,
            length=length,
            schedule=schedule,
            parallel=parallel,
            clock=clock,
            divergence_threshold=None if threshold is None else threshold * objective.scale,
        )
        self.updater: Updater[Batch] = Updater(self.model, optimizers, parallel.scale_loss(objective.loss))
        self.evaluated: Line | None = None

    @classmethod
    def open(
        cls,
        recipe: TrainingRecipe,
        shards: Shards,
        identity: str,
        build: BuildObjective,
        *,
        parallel: Parallel,
        clock: Clock,
        origin: "Origin | None" = None,
    ) -> "Session":
        """The session of a recipe, resumed from the last training state where there is one, or else from the origin."""
        data, setting = batches_of(recipe, shards), setting_of(recipe, parallel.device)
        torch.manual_seed(recipe.seed)
        objective = build(data, setting)
        session = cls(recipe, identity, objective=objective, data=data, setting=setting, parallel=parallel, clock=clock)
        folder = recipe.out / STATES
        if parallel.first:
            remove_drafts(folder)
        parallel.wait()
        if states := list_states(folder):
            session.restore(states[-1])
        elif origin is not None:
            session.continue_from(origin)
        return session

    def continue_from(self, origin: "Origin") -> None:
        """Start where another run ended, with its metrics; UsageError where this run is not longer."""
        notes = self.trainer.restore(origin.state, identities=[origin.identity], seed=self.recipe.seed)
        self.evaluated = notes.get("measured")
        if self.trainer.fraction >= 1:
            ended = f"{origin.state.parents[1]} ended after step {self.trainer.position.step:,}"
            message = f"{ended}, and this run is not longer. Raise its length, such as steps."
            raise UsageError(message, code="not-longer", value=self.trainer.position.step)
        metrics = origin.state.parents[1] / METRICS
        if self.parallel.first and metrics.is_file():
            self.recipe.out.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(metrics, self.recipe.out / METRICS)
        self.parallel.wait()

    def _prepare(self, module: nn.Module) -> nn.Module:
        """Move, compile and distribute the module over processes; returns the module to call in its place."""
        module.to(self.setting.device)
        sizes = self.parallel.sizes
        # FSDP2 keeps weights in float32 and computes in bfloat16 by itself.
        half = self.setting.precision != "fp32" and sizes.fsdp
        if self.setting.precision == "bf16" and not half:
            module.to(torch.bfloat16)
        if self.recipe.gradient_checkpointing:
            encoder_of(self.start.model).gradient_checkpointing = True
        if self.setting.device.type == "cuda" and sizes.tensor == 1 and not sizes.fsdp:
            pad_logits(self.start.model)
        if self.setting.compiled:
            compile_layers(self.start.model)
        model = self.parallel.wrap(module, self.start.config, half=half)
        self.parallel.seed(self.recipe.seed)
        return model

    def train(self, stop: StopSignal) -> Iterator[tuple[float, str]]:
        """Train to the end, yielding the completed fraction and a message after each step.

        A signal to stop saves the training state and raises Interrupted.
        """
        trainer, parallel = self.trainer, self.parallel
        trainer.open_journal(self.recipe.out)
        with self.data.steps(trainer.length, trainer.position, parallel=parallel) as prepared:
            # One-time work, indexing the sequences and compiling, is done before the clock starts.
            first = [] if trainer.fraction >= 1 else [next(prepared)]
            if self.setting.compiled and first:
                self.updater.warm_up(first[0])
                evaluate(self.model, self.data.held_out[:1], self.evaluation_loss)
            yield trainer.fraction, self._message()
            for result in trainer.steps(self.updater, chain(first, prepared)):
                last = trainer.fraction >= 1
                stopping = not (parallel.all_agree(not stop.received) or last)
                if last and self.data.held_out:
                    yield 1.0, f"step {trainer.position.step:,}, evaluating on held-out text"
                self._after_step(result, last=last, save=last or stopping)
                if stopping:
                    where = self.recipe.out / STATES
                    raise Interrupted(f"the training state of step {trainer.position.step:,} is saved in {where}.")
                yield trainer.fraction, self._message()

    def _after_step(self, result: StepResult, *, last: bool, save: bool) -> None:
        """Log, evaluate and save if due. A state is saved only if its weights are finite."""
        trainer, log, every = self.trainer, self.recipe.log, self.recipe.evaluation.every
        step = trainer.position.step
        if last or step % log.every == 0:
            trainer.log(result)
        if self.data.held_out and (last or (every is not None and step % every == 0)):
            line = evaluate(self.model, self.data.held_out, self.evaluation_loss)
            self.evaluated = {"step": step, "tokens": trainer.position.tokens, "held_out": line}
            trainer.write(self.evaluated)
        if save or step % log.save_every == 0:
            trainer.check_finite(result)
            notes = {"measured": self.evaluated}
            trainer.save(self.recipe.out / STATES, identity=self.identity, notes=notes, keep=log.keep_states)
        if step in log.checkpoint_steps:
            self._write_model(f"{CHECKPOINTS}/step-{step}", self.run(done=False))

    def restore(self, path: Path) -> None:
        """Resume from a training state."""
        notes = self.trainer.restore(path, identities=[self.identity], seed=self.recipe.seed)
        self.evaluated = notes.get("measured")

    def finish(self) -> RunRecord:
        """Write the checkpoint folder, the plot, and last the mark that the run is finished."""
        recipe, run = self.recipe, self.run(done=True)
        self._write_model(MODEL, run)
        if self.parallel.first:
            try:
                plot_loss(recipe.out / METRICS, recipe.out / PLOT)
            except MissingExtraError as error:
                print(f"no plot of the loss: {error}", file=sys.stderr)
            write_record(recipe.out, run, recipe)
        self.parallel.wait()
        return run

    def rescue(self) -> str:
        """Write the last saved training state as a checkpoint to start another run from, and say where it is."""
        states = list_states(self.recipe.out / STATES)
        if not states:
            return "No training state was saved before."
        self.restore(states[-1])
        folder = self._write_model(LAST_GOOD, self.run(done=False))
        return f"The last good training state is {states[-1]}; as a checkpoint to start from it is {folder}."

    def _write_model(self, name: str, run: RunRecord) -> Path:
        """Write the model as a checkpoint folder inside `out`."""
        folder = self.recipe.out / name
        weights = gather_weights(self.start.model, self.trainer.optimizers, parallel=self.parallel)
        if self.parallel.first:
            card = card_of(self.recipe, self.start, run, text=self.data.size())
            write_checkpoint(folder, self.start, weights, card=card, run=run_record(run, self.recipe))
        return folder

    def run(self, *, done: bool) -> RunRecord:
        """The facts of this run for run.json."""
        position, last = self.trainer.position, self.trainer.last
        return RunRecord(
            identity=self.identity,
            done=done,
            steps=position.step,
            tokens=position.tokens,
            seconds=position.elapsed_s,
            loss=None if last is None else last["word_loss"],
            held_out=None if self.evaluated is None else self.evaluated["held_out"],
            device=str(self.setting.device),
            precision=self.setting.precision,
            compiled=self.setting.compiled,
            processes=self.parallel.sizes.world,
            start=self.start.facts(),
        )

    def header(self) -> str:
        """A summary to print before the first step, such as

        device    cpu, fp32; no GPU was found
        model     bert, 33,391,290 parameters, from checkpoints/gte-small
        new       head.bias and 4 more; 4,000 of 30,522 tokens
        text      15,179 documents, 20,746,826 tokens.
        """
        start, setting, processes = self.start, self.setting, self.parallel.sizes.world
        many = f", {processes} processes" if processes > 1 else ""
        # A recipe for a GPU takes days without one, and torch without CUDA is easily installed by mistake.
        missing = "; no GPU was found" if self.recipe.device == "auto" and setting.device.type == "cpu" else ""
        parameters = sum(weight.numel() for weight in start.model.parameters())
        source = "randomly initialized" if start.checkpoint is None else f"from {start.checkpoint}"
        new = [_some(start.drawn)] if start.drawn else []
        if start.transferred is not None:
            new.append(f"{start.transferred.new:,} of {start.transferred.new + start.transferred.kept:,} tokens")
        lines = {
            "device": f"{setting.device}, {setting.precision}{many}{missing}",
            "model": f"{start.architecture}, {parameters:,} parameters, {source}",
            "new": "; ".join(new),
            "unused": _some(start.unused) if start.unused else "",
            "teacher": str(start.teacher.folder) if start.teacher is not None else "",
            "text": self.data.size(),
            "resumes": f"after step {self.trainer.position.step:,}" if self.trainer.position.step else "",
        }
        return "\n".join(f"{name:<9} {text}" for name, text in lines.items() if text)

    def _message(self) -> str:
        step, last = self.trainer.position.step, self.trainer.last
        if last is None:
            return f"step {step:,}"
        named = (
            ("mlm", "word_loss"),
            ("kl", "kl_loss"),
            ("cosine", "cosine_loss"),
            ("embedding", "embedding_loss"),
            ("contrastive", "contrastive_loss"),
        )
        parts = [f"{short} {last[name]:.3f}" for short, name in named if name in last]
        terms = f" ({', '.join(parts)})" if len(parts) > 1 else ""
        return f"step {step:,}, loss {last['loss']:.3f}{terms}, {last['tokens_per_s'] or 0:,} tokens/s"


def _some(names: Sequence[str]) -> str:
    """The first name, and how many more there are."""
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


# From a recipe to the parts of a run


def batches_of(recipe: TrainingRecipe, shards: Shards) -> ShardBatches:
    """The recipe's batches."""
    text, evaluation = recipe.text, recipe.evaluation
    contrastive = recipe.contrastive if isinstance(recipe, PretrainRecipe) else None
    return ShardBatches(
        shards,
        plan_of(recipe),
        kind=text.kind,
        short=text.short_seq_prob,
        repeat=text.repeat,
        views=None if contrastive is None else Views(contrastive.fraction, contrastive.single_sentence),
        prefetch=recipe.batch.prefetch,
        held_out=HeldOutSettings(
            evaluation.tokens, evaluation.masking_rate, evaluation.seed, required=evaluation.every is not None
        ),
    )


def plan_of(recipe: TrainingRecipe) -> Plan:
    """How the recipe's micro-batches are made."""
    table = recipe.masking
    masking = Masking(
        table.unit,
        mask_ratio=table.mask_ratio,
        random_ratio=table.random_ratio,
        replace_whole_unit=table.replace_whole_unit,
        independent=table.independent,
    )
    return Plan(
        tokens=recipe.batch.tokens,
        max_tokens=recipe.text.max_tokens,
        passes=recipe.batch.gradient_accumulation,
        passes_ramp=recipe.batch.ramp,
        lengths_ramp=recipe.text.ramp,
        masking=masking,
        rate=Schedule(table.ramp, table.linear) if table.ramp else table.rate,
        dupe_factor=table.dupe_factor,
        seed=recipe.seed,
    )


def initial_model(
    recipe: TrainingRecipe,
    data: ShardBatches,
    *,
    start: Path | None = None,
    transfer: bool = False,
    paired: bool = False,
) -> Start:
    """The recipe's initial model: from a checkpoint, or new."""
    own_encoder = {
        'stage = "distill"': recipe.stage == "distill",
        "[model]": bool(recipe.model),
        'optimizer.kind = "muon"': recipe.optimizer.kind == "muon",
        "optimizer.weight_decay_embeddings = false": not recipe.optimizer.weight_decay_embeddings,
        "compile = true": recipe.compile is True,
    }
    return initialize(
        data.tokenizer,
        data.pieces.size,
        max_tokens=recipe.text.max_tokens,
        start=start,
        transfer=transfer,
        paired=paired,
        preset_name=recipe.preset,
        overrides=recipe.model,
        own_encoder=[setting for setting, is_set in own_encoder.items() if is_set],
    )


def card_of(recipe: TrainingRecipe, start: Start, run: RunRecord, *, text: str) -> Card:
    """The model card of a run; `text` says what it was trained on, unless the recipe does."""
    settings, scores = recipe.card, []
    if run.held_out is not None:
        protocol = f"masking rate {recipe.evaluation.masking_rate}, held-out text"
        scores = [(f"held-out {name}", f"{score:.4f}", protocol) for name, score in run.held_out.items()]
    summary = f"A masked language model, trained on {run.tokens:,} tokens with Lexome."
    return Card(
        title=settings.title or recipe.out.name,
        summary=summary if start.teacher is None else f"{summary} {start.teacher.describe()}",
        license=settings.license,
        data=settings.data or text,
        base_model=None if start.checkpoint is None else checkpoint_name(start.checkpoint),
        recipe=explain(recipe),
        scores=tuple(scores),
    )


def length_and_schedule(recipe: TrainingRecipe, data: ShardBatches) -> tuple[Length, LearningRateSchedule]:
    """The recipe's length and learning-rate schedule."""
    tokens = recipe.tokens
    if recipe.epochs is not None:
        tokens = max(1, round(recipe.epochs * data.epoch_tokens()))
    schedule = LearningRateSchedule.of(recipe.optimizer.lr, **recipe.schedule.model_dump(), steps=recipe.steps)
    return Length(recipe.steps, tokens, recipe.time_budget), schedule


def setting_of(recipe: TrainingRecipe, device: torch.device) -> Setting:
    """The device and precision of a run; keys that are not set depend on the device."""
    on_gpu = device.type == "cuda"
    precision = recipe.precision if recipe.precision != "auto" else "autocast" if on_gpu else "fp32"
    return Setting(device, precision, recipe.compile if recipe.compile is not None else on_gpu)
