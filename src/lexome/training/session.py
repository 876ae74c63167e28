"""A training on token shards from its first step, or the one it was stopped at, to its checkpoint folder.

What is trained, and by which loss, is given: `pretrain` and others differ in nothing else.
"""

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from math import inf
from pathlib import Path

import torch
from torch import Tensor, nn

from lexome.corpus.masking import Masking, Schedule
from lexome.corpus.shards import MANIFEST, Shards, open_shards
from lexome.corpus.vocab.tokenizers import TOKENIZER_FILE
from lexome.errors import DivergedError, MissingExtraError, RecipeError, UsageError
from lexome.files import fingerprint
from lexome.models.checkpoint import encoder_of
from lexome.recipe.pretrain import TrainingRecipe
from lexome.recipe.renamed import downgrade
from lexome.training import state
from lexome.training.journal import METRICS, Journal, Line, Tally, Watch, draw_loss, means, opening, training_progress
from lexome.training.loader import Batch, Step, ahead, tensors
from lexome.training.loop import Clock, Done, Position, Rules, Stop, Stopped, exact, listening, moved, rehearse, train
from lexome.training.losses import Loss, compile_parts, even_logits
from lexome.training.optim import LearningRate, Length, OptimizerSettings, local, optimizers_of
from lexome.training.parallel import Parallel, joined
from lexome.training.run_record import RUN, Run, finished, write_run
from lexome.training.sampling import Pieces, Plan, StepArrays, Text, once, steps
from lexome.training.start import Start, write_checkpoint


class Feed:
    """The steps of a run, of which each process gets its passes, and its held-out batches."""

    def __init__(self, recipe: TrainingRecipe, shards: Shards) -> None:
        check_repeat(recipe, shards)
        self.recipe, self.plan = recipe, plan_of(recipe)
        self.tokenizer: Path = shards.folder / TOKENIZER_FILE
        self.pieces = Pieces.read(self.tokenizer, words=recipe.masking.unit != "token")
        self.text = Text(
            shards.train,
            self.pieces.specials,
            kind=recipe.text.kind,
            seed=recipe.seed,
            dupe_factor=recipe.masking.dupe_factor,
            short=recipe.text.short_seq_prob,
            repeat=recipe.text.repeat,
        )
        self.held_out = self._held_out(shards)
        self.said = self._extent()

    def steps(
        self, length: Length, position: Position, *, parallel: Parallel
    ) -> AbstractContextManager[Iterator[Step]]:
        """Steps without end, from the position on, prepared ahead while the context is open."""
        count = self.recipe.batch.prefetch
        if parallel.mesh is not None and length.seconds is not None and self._ramps():
            # A thread that works ahead reads the time when it gets there, and in each process that is another one.
            count = 0
        return ahead(self._steps(length, position, parallel.own, pinned=parallel.device.type == "cuda"), count)

    def epoch_tokens(self) -> int:
        """Tokens of one epoch, special ones included."""
        return int(self.text.epoch(0, self.plan.max_tokens).reached[-1])

    def _extent(self) -> str:
        """How much text there is, each document counted once, and what an epoch takes more often."""
        documents = sum(shard.document_ends.size for shard in self.text.shards)
        tokens = sum(shard.tokens.size for shard in self.text.shards)
        often = ", ".join(f"{name} {times} times" for name, times in self.recipe.text.repeat.items() if times > 1)
        return f"{documents:,} documents, {tokens:,} tokens{f'; in each epoch {often}' if often else ''}."

    def _steps(
        self, length: Length, position: Position, own: Callable[[Step], Step], *, pinned: bool
    ) -> Iterator[Step]:
        def share(steps_done: int, tokens_done: int) -> float:
            return length.share(steps=steps_done, tokens=tokens_done, elapsed_s=position.elapsed_s)

        begin_at = (position.place, position.step, position.tokens)
        for made in steps(self.text, self.plan, self.pieces.vocabulary, share, begin=begin_at):
            step = own(tensors(made))
            if pinned:
                step = replace(step, batches=tuple(batch.mapped(Tensor.pin_memory) for batch in step.batches))
            yield step

    def _ramps(self) -> bool:
        """True where steps depend on how far the run is."""
        given = self.recipe
        return bool(given.batch.ramp or given.text.ramp or given.masking.ramp)

    def _held_out(self, shards: Shards) -> list[Batch]:
        wanted = self.recipe.evaluation
        if not any(shard.tokens.size for shard in shards.held_out):
            if wanted.every is not None:
                raise UsageError(
                    f"evaluation.every is {wanted.every}, but {shards.folder} holds nothing out. Shard with "
                    "held_out = 0.01, say, or leave evaluation.every out."
                )
            return []
        text = Text(shards.held_out, self.pieces.specials, kind=self.recipe.text.kind, seed=wanted.seed, short=0.0)
        # Its own seed, so that runs of several seeds are measured at the same masks.
        plan = replace(self.plan, seed=wanted.seed)
        made = once(text, plan, self.pieces.vocabulary, tokens=wanted.tokens, rate=wanted.masking_rate)
        place_less = Position().place
        return [tensors(StepArrays([one], place_less, wanted.masking_rate)).batches[0] for one in made]


def check_repeat(recipe: TrainingRecipe, shards: Shards) -> None:
    """RecipeError where text.repeat names a source that the shards have no text of, or leaves all of them out."""
    times, known = recipe.text.repeat, shards.sources
    if unknown := sorted(times.keys() - set(known)):
        raise RecipeError(
            f"text.repeat has the source {unknown[0]}, of which the shards in {shards.folder} have no text to train "
            f"on; they have text of {', '.join(known) or 'no source'}. Name some of these."
        )
    if known and all(times.get(name) == 0 for name in known):
        raise RecipeError(f"text.repeat is 0 for each of {', '.join(known)}, which leaves no text. Leave some at 1.")


def plan_of(recipe: TrainingRecipe) -> Plan:
    """How the recipe's batches are made."""
    given = recipe.masking
    rate = Schedule(given.ramp, given.linear) if given.ramp else given.rate
    masking = Masking(
        given.unit,
        mask_ratio=given.mask_ratio,
        random_ratio=given.random_ratio,
        replace_whole_unit=given.replace_whole_unit,
        independent=given.independent,
    )
    return Plan(
        tokens=recipe.batch.tokens,
        max_tokens=recipe.text.max_tokens,
        passes=recipe.batch.gradient_accumulation,
        passes_ramp=recipe.batch.ramp,
        lengths_ramp=recipe.text.ramp,
        masking=masking,
        rate=rate,
        dupe_factor=given.dupe_factor,
        seed=recipe.seed,
    )


def evaluate(model: nn.Module, batches: Sequence[Batch], loss: Loss) -> Line:
    """Loss, perplexity and share of right guesses at the masks of these batches; also what else the loss has.

    Nothing for no batches.
    """
    if not batches:
        return {}
    device = next(model.parameters()).device
    sums: dict[str, float] = {}
    model.eval()
    with torch.no_grad():
        for batch in batches:
            _, terms = loss(model, moved(batch, device))
            for name, new in terms.items():
                sums[name] = sums.get(name, 0.0) + float(new)
    counts = {name: sum(getattr(batch, name) for batch in batches) for name in ("masked", "sequences", "tokens")}
    line = means(sums, counts)
    # Above this no float holds the exponential, and no reader cares.
    return {
        "loss": line.pop("word_loss"),
        "perplexity": math.exp(min(700.0, sums["word_loss"] / max(1, counts["masked"]))),
    } | line


MODEL = "model"
LAST_GOOD = "last-good"
# Models of steps that the recipe names, each a checkpoint folder.
KEPT = "models"
STATES = "state"
PICTURE = "loss.png"
# What may change between stopping and going on: paths, what is only logged, and what changes no outcome.
FREE = {"log", "card", "out", "shards", "parallel", "gradient_checkpointing"}


@dataclass(frozen=True, slots=True)
class Setting:
    """Where and how a run computes, with all that its recipe leaves open decided."""

    device: torch.device
    precision: str
    compiled: bool

    @property
    def autocast(self) -> torch.dtype | None:
        """What products are computed in where it is not what the weights are in."""
        return torch.bfloat16 if self.precision == "autocast" else None


@dataclass(frozen=True, slots=True)
class Subject:
    """What a session trains, and by what.

    start    the model that becomes the checkpoint folder
    module   what is trained, optimized and kept in states: start.model, or a module around it with more weights
    loss     what is minimised; it calls the module it is given, which may be spread over processes
    measure  the loss on held-out text, of the same module in evaluation
    scale    how much larger the loss is than one of masked words, by its weights
    """

    start: Start
    module: nn.Module
    loss: Loss
    measure: Loss
    scale: float = 1.0


Making = Callable[[Feed, Setting], Subject]
"""Makes the subject of a run on the CPU. torch's generator is seeded before, alike in every process."""


def carry_out(
    recipe: TrainingRecipe,
    making: Making,
    *,
    hashed: str = "",
    progress_shown: bool = True,
    clock: Clock = time.monotonic,
) -> tuple[Run, bool]:
    """Train as the recipe says, or go on where an earlier run of it was stopped, and write the checkpoint folder.

    The facts of the run, and whether it is new: one that is finished is not run again. `hashed` stands for what else
    its outcome depends on, such as a teacher's weights.
    """
    shards = open_shards(recipe.shards)
    identity = identity_of(recipe, shards, hashed)
    if (run := finished(recipe.out, identity, recipe, free=FREE)) is not None:
        return run, False
    wanted = recipe.deterministic if recipe.deterministic is not None else recipe.time_budget is None
    with joined(recipe.parallel, device=recipe.device) as parallel, exact(wanted, parallel.device):
        session = Session.opened(recipe, shards, identity, making, parallel=parallel, clock=clock)
        shown = progress_shown and parallel.first
        if shown:
            run = session.run(done=False)
            said = opening(session.start, run, device_asked=recipe.device, text=session.feed.said)
            print(said, file=sys.stderr, flush=True)
        try:
            with (
                _claimed(session),
                listening(told=shown) as stop,
                training_progress(recipe.stage, shown=shown) as show,
            ):
                for share, words in session.train(stop):
                    show(share, words)
        except DivergedError as error:
            raise DivergedError(f"{error} {session.rescue()}") from None
        return session.finish(), True


@contextmanager
def _claimed(session: "Session") -> Iterator[None]:
    """The folder is this run's, from before the first step on.

    Where the run fails, most often for want of memory, or is broken off and has saved nothing it gives the folder up,
    so that the mended recipe may have it.
    """
    out = session.recipe.out
    if session.parallel.first:
        write_run(out, session.run(done=False), session.recipe)
    try:
        yield
    except BaseException:
        if session.parallel.first and not state.saved(out / STATES):
            (out / RUN).unlink(missing_ok=True)
        raise


def identity_of(recipe: TrainingRecipe, shards: Shards, hashed: str = "") -> str:
    """What a state must have in common with the run that goes on from it."""
    settings = downgrade(recipe.model_dump(mode="json", exclude=FREE), recipe.stage)
    # Runs from before there was such a key go on.
    if not recipe.text.repeat:
        del settings["text"]["repeat"]
    manifest = (shards.folder / MANIFEST).read_text(encoding="utf-8")
    return fingerprint(settings, manifest, hashed) if hashed else fingerprint(settings, manifest)


class Session:
    """One process's part of a run: what is trained, on what, how far it is, and what is written down.

    All processes go through the same steps and know the same numbers. Only the first writes what is for people.
    """

    def __init__(
        self,
        recipe: TrainingRecipe,
        identity: str,
        *,
        subject: Subject,
        feed: Feed,
        setting: Setting,
        parallel: Parallel,
        clock: Clock,
    ) -> None:
        self.recipe, self.identity, self.feed = recipe, identity, feed
        self.setting, self.parallel, self.clock = setting, parallel, parallel.clock(clock)
        self.start, self.module, self.measure = subject.start, subject.module, subject.measure
        self.loss = parallel.loss(subject.loss)
        threshold = recipe.log.divergence_threshold
        self.position, self.tally = Position(), Tally()
        self.watch = Watch(above=inf if threshold is None else threshold * subject.scale)
        self.called = self._prepared()
        self.optimizers = optimizers_of(self.module, self.start.config, optimizer_settings(recipe))
        self.last: Line | None = None
        self.measured: Line | None = None

    @classmethod
    def opened(
        cls,
        recipe: TrainingRecipe,
        shards: Shards,
        identity: str,
        making: Making,
        *,
        parallel: Parallel,
        clock: Clock,
    ) -> "Session":
        """The session of a recipe, gone on from the last state where there is one."""
        feed, setting = Feed(recipe, shards), setting_of(recipe, parallel.device)
        torch.manual_seed(recipe.seed)
        subject = making(feed, setting)
        session = cls(recipe, identity, subject=subject, feed=feed, setting=setting, parallel=parallel, clock=clock)
        folder = recipe.out / STATES
        if parallel.first:
            state.sweep(folder)
        parallel.wait()
        if found := state.saved(folder):
            session.restore(found[-1])
        return session

    def _prepared(self) -> nn.Module:
        """What to call in place of the module, which is moved, compiled and spread over processes."""
        self.module.to(self.setting.device)
        # FSDP2 keeps weights in float32 and computes in bfloat16 by itself.
        half = self.setting.precision != "fp32" and self.parallel.sizes.fsdp
        if self.setting.precision == "bf16" and not half:
            self.module.to(torch.bfloat16)
        if self.recipe.gradient_checkpointing:
            encoder_of(self.start.model).gradient_checkpointing = True
        sizes = self.parallel.sizes
        if self.setting.device.type == "cuda" and sizes.tensor == 1 and not sizes.fsdp:
            even_logits(self.start.model)
        if self.setting.compiled:
            compile_parts(self.start.model)
        called = self.parallel.wrapped(self.module, self.start.config, half=half)
        self.parallel.seed(self.recipe.seed)
        return called

    def train(self, stop: Stop) -> Iterator[tuple[float, str]]:
        """Train to the end, telling after each step the share that is done and a few words; Stopped where asked to."""
        rules, position, parallel = rules_of(self.recipe, self.feed), self.position, self.parallel
        journal = Journal(self.recipe.out, step=position.step) if parallel.first else None
        with self.feed.steps(rules.length, position, parallel=parallel) as made:
            # What is done once, finding the sequences and compiling, is done before time counts.
            first = [] if self._share(rules.length) >= 1 else [next(made)]
            if self.setting.compiled and first:
                rehearse(self.called, self.optimizers, first[0], self.loss)
                evaluate(self.called, self.feed.held_out[:1], self.measure)
            given = chain(first, made)
            yield self._share(rules.length), self._words()
            loop = train(
                self.called, self.optimizers, given, self.loss, rules=rules, position=position, clock=self.clock
            )
            for done in map(parallel.summed, loop):
                over = self._share(rules.length) >= 1
                stopping = not (parallel.agreed(not stop.asked) or over)
                self.tally.add(done)
                if over and self.feed.held_out:
                    yield 1.0, f"step {position.step:,}, measuring on held-out text"
                self._log(done, journal, over=over, save=over or stopping)
                if stopping:
                    raise Stopped(f"the state of step {position.step:,} is saved in {self.recipe.out / STATES}.")
                yield self._share(rules.length), self._words()

    def finish(self) -> Run:
        """Write the checkpoint folder, the picture, and last of all the mark that the run is done."""
        recipe, run = self.recipe, self.run(done=True)
        self._write_model(MODEL, run)
        if self.parallel.first:
            try:
                draw_loss(recipe.out / METRICS, recipe.out / PICTURE)
            except MissingExtraError as error:
                print(f"no picture of the loss: {error}", file=sys.stderr)
            write_run(recipe.out, run, recipe)
        self.parallel.wait()
        return run

    def rescue(self) -> str:
        """Write the last saved state as a checkpoint, and say where it is: another recipe can begin with it."""
        found = state.saved(self.recipe.out / STATES)
        if not found:
            return "No state was saved before."
        self.restore(found[-1])
        folder = self._write_model(LAST_GOOD, self.run(done=False))
        return f"The last good state is {found[-1]}; as a checkpoint to begin another run with it is {folder}."

    def run(self, *, done: bool) -> Run:
        """The facts of this run for run.json."""
        held_out = None if self.measured is None else self.measured["held_out"]
        return Run(
            identity=self.identity,
            done=done,
            steps=self.position.step,
            tokens=self.position.tokens,
            seconds=self.position.elapsed_s,
            loss=None if self.last is None else self.last["word_loss"],
            held_out=held_out,
            device=str(self.setting.device),
            precision=self.setting.precision,
            compiled=self.setting.compiled,
            processes=self.parallel.sizes.world,
            start=self.start.facts(),
        )

    def restore(self, path: Path) -> None:
        """Go on from a saved state."""
        notes = state.restore(
            path,
            self.module,
            self.optimizers,
            self.position,
            parallel=self.parallel,
            identity=self.identity,
            seed=self.recipe.seed,
        )
        self.tally.restore(notes["tally"], self.setting.device)
        self.watch.best, self.watch.worse = notes["best"], notes["worse"]
        self.last, self.measured = notes["last"], notes["measured"]

    def save(self) -> None:
        """Save the state of the run."""
        notes = {
            "tally": self.tally.state(),
            "best": self.watch.best,
            "worse": self.watch.worse,
            "last": self.last,
            "measured": self.measured,
        }
        state.save(
            self.recipe.out / STATES,
            self.module,
            self.optimizers,
            self.position,
            parallel=self.parallel,
            identity=self.identity,
            notes=notes,
            keep=self.recipe.log.keep_states,
        )

    def _write_model(self, name: str, run: Run) -> Path:
        """Write the model as a checkpoint folder inside `out`."""
        folder = self.recipe.out / name
        weights = state.gathered(self.start.model, self.optimizers, parallel=self.parallel)
        if self.parallel.first:
            write_checkpoint(folder, self.start, weights, self.recipe, run, text=self.feed.said)
        return folder

    def _log(self, done: Done, journal: Journal | None, *, over: bool, save: bool) -> None:
        """Write a line, measure and save, where it is time. Nothing is saved that was not seen to be finite."""
        log, step = self.recipe.log, self.position.step
        if over or step % log.every == 0:
            self.last = self.tally.line(done, self.position)
            if journal is not None:
                journal.write(self.last)
            self.watch.look(self.last)
        every = self.recipe.evaluation.every
        if self.feed.held_out and (over or (every is not None and step % every == 0)):
            found = evaluate(self.called, self.feed.held_out, self.measure)
            self.measured = {"step": step, "tokens": self.position.tokens, "held_out": found}
            if journal is not None:
                journal.write(self.measured)
        if save or step % log.save_every == 0:
            self._check(done)
            self.save()
        if step in log.checkpoint_steps:
            self._write_model(f"{KEPT}/step-{step}", self.run(done=False))

    def _check(self, done: Done) -> None:
        """DivergedError where this step or the weights after it are no numbers."""
        Watch(above=inf).look({"step": self.position.step, "loss": float(done.loss), "norm": float(done.norm)})
        finite = all(bool(local(weight).isfinite().all()) for weight in self.optimizers.masters)
        if not self.parallel.agreed(finite):
            raise DivergedError(f"after step {self.position.step:,} not all weights are numbers. Lower optimizer.lr.")

    def _share(self, length: Length) -> float:
        at = self.position
        return length.share(steps=at.step, tokens=at.tokens, elapsed_s=at.elapsed_s)

    def _words(self) -> str:
        if self.last is None:
            return f"step {self.position.step:,}"
        rate = self.last["tokens_per_s"] or 0
        named = (("words", "word_loss"), ("kl", "kl_loss"), ("cosine", "cosine_loss"))
        parts = [f"{said} {self.last[name]:.3f}" for said, name in named if name in self.last]
        terms = f" ({', '.join(parts)})" if len(parts) > 1 else ""
        return f"step {self.position.step:,}, loss {self.last['loss']:.3f}{terms}, {rate:,} tokens/s"


def rules_of(recipe: TrainingRecipe, feed: Feed) -> Rules:
    """The recipe's length, learning rate and clipping."""
    tokens = recipe.tokens
    if recipe.epochs is not None:
        tokens = max(1, round(recipe.epochs * feed.epoch_tokens()))
    given = recipe.schedule
    warmup = given.warmup_ratio
    if given.warmup_steps is not None and recipe.steps is not None:
        warmup = min(1.0, given.warmup_steps / recipe.steps)
    rate = LearningRate(recipe.optimizer.lr, given.kind, warmup, given.decay_ratio, given.min_lr_ratio)
    return Rules(Length(recipe.steps, tokens, recipe.time_budget), rate, recipe.optimizer.max_grad_norm)


def optimizer_settings(recipe: TrainingRecipe) -> OptimizerSettings:
    """The recipe's optimizer."""
    given = recipe.optimizer
    return OptimizerSettings(
        given.kind, given.betas, given.eps, given.weight_decay, given.weight_decay_embeddings, given.momentum
    )


def setting_of(recipe: TrainingRecipe, device: torch.device) -> Setting:
    """The recipe's setting; what it leaves open, the device decides."""
    on_gpu = device.type == "cuda"
    precision = recipe.precision if recipe.precision != "auto" else "autocast" if on_gpu else "fp32"
    return Setting(device, precision, recipe.compile if recipe.compile is not None else on_gpu)
