"""pretrain: token shards and an encoder, new or trained before, into a checkpoint folder."""

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from math import inf
from pathlib import Path

import torch

from lexome.corpus.masking import Masking, Schedule
from lexome.corpus.shards.store import MANIFEST, Shards, open_shards
from lexome.corpus.vocab.tokenizers import TOKENIZER_FILE
from lexome.errors import DivergedError, MissingExtraError, UsageError
from lexome.pipeline import fingerprint
from lexome.recipe.pretrain import PretrainRecipe
from lexome.train import state
from lexome.train.batches import Plan, StepArrays, once, steps
from lexome.train.exact import exact
from lexome.train.held_out import evaluate
from lexome.train.journal import METRICS, Journal, Line, Tally, Watch, training_progress
from lexome.train.loader import Batch, Step, ahead, tensors
from lexome.train.loop import Clock, Done, Position, Rules, rehearse, train
from lexome.train.losses import PretrainingLoss, compile_parts
from lexome.train.optim import Optimizers, OptimizerSettings
from lexome.train.picture import draw_loss
from lexome.train.record import Run, finished, write_run
from lexome.train.schedule import LearningRate, Length
from lexome.train.start import Start, begin, write_checkpoint
from lexome.train.text import Pieces, Text

MODEL = "model"
LAST_GOOD = "last-good"
STATES = "state"
PICTURE = "loss.png"


@dataclass(frozen=True, slots=True)
class Pretrained:
    """What a run came to. `new` is False where it was finished before and nothing was done."""

    folder: Path
    steps: int
    tokens: int
    seconds: float
    loss: float | None
    held_out: Line | None
    new: bool


def pretrain(recipe: PretrainRecipe, *, progress_shown: bool = True, clock: Clock = time.monotonic) -> Pretrained:
    """Train as the recipe says, or go on where an earlier run of it was stopped, and write the checkpoint folder.

    A run that is finished is not run again. One that was killed goes on from its last saved state, and on the same
    hardware ends with the same bits as one that never stopped, unless its length is a time.
    """
    shards = open_shards(recipe.shards)
    identity = identity_of(recipe, shards)
    if (run := finished(recipe.out, identity)) is not None:
        return Pretrained(recipe.out / MODEL, run.steps, run.tokens, run.seconds, run.loss, run.held_out, new=False)
    wanted = recipe.deterministic if recipe.deterministic is not None else recipe.budget is None
    with exact(wanted, device_of(recipe)):
        session = Session.opened(recipe, shards, identity, clock)
        write_run(recipe.out, session.run(done=False), recipe)
        try:
            with training_progress(shown=progress_shown) as show:
                for share, words in session.train():
                    show(share, words)
        except DivergedError as error:
            raise DivergedError(f"{error} {session.rescue()}") from None
        return session.finish()


def identity_of(recipe: PretrainRecipe, shards: Shards) -> str:
    """What a state must have in common with the run that goes on from it: all but paths and what is only logged."""
    settings = recipe.model_dump(mode="json", exclude={"log", "card", "out", "shards"})
    return fingerprint(settings, (shards.folder / MANIFEST).read_text(encoding="utf-8"))


class Session:
    """One process's part of a run: what is trained, on what, how far it is, and what is written down."""

    def __init__(self, recipe: PretrainRecipe, identity: str, clock: Clock, *, start: Start, feed: "Feed") -> None:
        self.recipe, self.identity, self.clock = recipe, identity, clock
        self.start, self.feed = start, feed
        self.device = next(start.model.parameters()).device
        self.position, self.tally, self.watch = Position(), Tally(), Watch(above=recipe.log.diverged)
        autocast = torch.bfloat16 if precision_of(recipe, self.device) == "autocast" else None
        compiled = recipe.compile if recipe.compile is not None else self.device.type == "cuda"
        self.compiled = compiled
        if compiled:
            compile_parts(start.model)
        self.loss = PretrainingLoss(compiled=compiled, autocast=autocast)
        self.optimizers = Optimizers(start.model, start.config, optimizer_settings(recipe))
        self.last: Line | None = None
        self.measured: Line | None = None

    @classmethod
    def opened(cls, recipe: PretrainRecipe, shards: Shards, identity: str, clock: Clock) -> "Session":
        """The session of a recipe, gone on from the last state where there is one."""
        pieces = Pieces.read(shards.folder / TOKENIZER_FILE, words=recipe.masking.unit != "token")
        feed = Feed(recipe, shards, pieces)
        device = device_of(recipe)
        torch.manual_seed(recipe.seed)
        start = begin(recipe, shards.folder / TOKENIZER_FILE, pieces.size, paired=feed.text.paired)
        start.model.to(device)
        if precision_of(recipe, device) == "bf16":
            start.model.to(torch.bfloat16)
        session = cls(recipe, identity, clock, start=start, feed=feed)
        folder = recipe.out / STATES
        state.sweep(folder)
        if found := state.saved(folder):
            session.restore(found[-1])
        return session

    def train(self) -> Iterator[tuple[float, str]]:
        """Train to the end, telling after each step the share that is done and a few words."""
        recipe, model = self.recipe, self.start.model
        rules = rules_of(recipe, self.feed)
        journal = Journal(recipe.out, step=self.position.step)
        pinned = self.device.type == "cuda"
        with ahead(self.feed.steps(rules.length, self.position, pinned=pinned), recipe.batch.ahead) as made:
            # What is done once, finding the sequences and compiling, is done before time counts.
            first = [] if self._over(rules.length) else [next(made)]
            if self.compiled and first:
                rehearse(model, self.optimizers, first[0], self.loss)
                evaluate(model, self.feed.held_out[:1], self.loss)
            given = chain(first, made)
            at, clock = self.position, self.clock
            for done in train(model, self.optimizers, given, self.loss, rules=rules, position=at, clock=clock):
                over = self._over(rules.length)
                self.tally.add(done)
                self._log(done, journal, over=over)
                yield self._share(rules.length), self._words()

    def finish(self) -> Pretrained:
        """Write the checkpoint folder, the picture, and last of all the mark that the run is done."""
        recipe, position = self.recipe, self.position
        self.optimizers.settle(self.start.model)
        run = self.run(done=True)
        write_checkpoint(recipe.out / MODEL, self.start, recipe, run, text=self.feed.said)
        try:
            draw_loss(recipe.out / METRICS, recipe.out / PICTURE)
        except MissingExtraError as error:
            print(f"no picture of the loss: {error}", file=sys.stderr)
        write_run(recipe.out, run, recipe)
        return Pretrained(
            recipe.out / MODEL, position.step, position.tokens, position.elapsed_s, run.loss, run.held_out, new=True
        )

    def rescue(self) -> str:
        """Write the last saved state as a checkpoint, and say where it is: another recipe can begin with it."""
        found = state.saved(self.recipe.out / STATES)
        if not found:
            return "No state was saved before."
        self.restore(found[-1])
        self.optimizers.settle(self.start.model)
        folder = self.recipe.out / LAST_GOOD
        write_checkpoint(folder, self.start, self.recipe, self.run(done=False), text=self.feed.said)
        return f"The last good state is {found[-1]}; as a checkpoint that `start` can name it is {folder}."

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
            device=str(self.device),
            precision=precision_of(self.recipe, self.device),
            compiled=self.compiled,
            start=self.start.facts(),
        )

    def restore(self, path: Path) -> None:
        """Go on from a saved state."""
        notes = state.restore(path, self.start.model, self.optimizers, self.position, identity=self.identity)
        self.tally.restore(notes["tally"], self.device)
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
            self.start.model,
            self.optimizers,
            self.position,
            identity=self.identity,
            notes=notes,
            keep=self.recipe.log.keep,
        )

    def _log(self, done: Done, journal: Journal, *, over: bool) -> None:
        """Write a line, measure and save, where it is time. Nothing is saved that was not seen to be finite."""
        log, step = self.recipe.log, self.position.step
        if over or step % log.every == 0:
            self.last = self.tally.line(done, self.position)
            journal.write(self.last)
            self.watch.look(self.last)
        every = self.recipe.evaluation.every
        if self.feed.held_out and (over or (every is not None and step % every == 0)):
            found = evaluate(self.start.model, self.feed.held_out, self.loss)
            self.measured = {"step": step, "tokens": self.position.tokens, "held_out": found}
            journal.write(self.measured)
        if over or step % log.save_every == 0:
            self._check(done)
            self.save()

    def _check(self, done: Done) -> None:
        """DivergedError where this step or the weights after it are no numbers."""
        Watch(above=inf).look({"step": self.position.step, "loss": float(done.loss), "norm": float(done.norm)})
        if not all(bool(weight.isfinite().all()) for weight in self.optimizers.masters):
            raise DivergedError(f"after step {self.position.step:,} not all weights are numbers. Lower optimizer.lr.")

    def _share(self, length: Length) -> float:
        at = self.position
        return length.share(steps=at.step, tokens=at.tokens, elapsed_s=at.elapsed_s)

    def _over(self, length: Length) -> bool:
        return self._share(length) >= 1

    def _words(self) -> str:
        if self.last is None:
            return f"step {self.position.step:,}"
        rate = self.last["tokens_per_s"] or 0
        return f"step {self.position.step:,}, loss {self.last['loss']:.3f}, {rate:,} tokens/s"


class Feed:
    """The steps of a run, and its held-out batches."""

    def __init__(self, recipe: PretrainRecipe, shards: Shards, pieces: Pieces) -> None:
        self.recipe, self.pieces, self.plan = recipe, pieces, plan_of(recipe)
        self.text = Text(
            shards.train,
            pieces.specials,
            kind=recipe.text.kind,
            seed=recipe.seed,
            duplicates=recipe.masking.duplicates,
            short=recipe.text.short,
        )
        self.held_out = self._held_out(shards)
        total = shards.manifest["totals"]["train"]
        self.said = f"{total['documents']:,} documents, {total['tokens']:,} tokens."

    def steps(self, length: Length, position: Position, *, pinned: bool) -> Iterator[Step]:
        """Steps without end, from the position on."""

        def share(steps_done: int, tokens_done: int) -> float:
            return length.share(steps=steps_done, tokens=tokens_done, elapsed_s=position.elapsed_s)

        begin_at = (position.place, position.step, position.tokens)
        for made in steps(self.text, self.plan, self.pieces.vocabulary, share, begin=begin_at):
            yield tensors(made, pinned=pinned)

    def epoch_tokens(self) -> int:
        """Tokens of one epoch, special ones included."""
        return int(self.text.epoch(0, self.plan.max_tokens).reached[-1])

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
        made = once(text, self.plan, self.pieces.vocabulary, tokens=wanted.tokens, rate=wanted.rate)
        place_less = Position().place
        return [tensors(StepArrays([one], place_less, wanted.rate)).batches[0] for one in made]


def plan_of(recipe: PretrainRecipe) -> Plan:
    """How the recipe's batches are made."""
    given = recipe.masking
    rate = Schedule(given.ramp, given.linear) if given.ramp else given.rate
    masking = Masking(
        given.unit,
        mask_share=given.mask_share,
        random_share=given.random_share,
        together=given.together,
        independent=given.independent,
    )
    return Plan(
        tokens=recipe.batch.tokens,
        max_tokens=recipe.text.max_tokens,
        passes=recipe.batch.passes,
        passes_ramp=recipe.batch.ramp,
        lengths_ramp=recipe.text.ramp,
        masking=masking,
        rate=rate,
        duplicates=given.duplicates,
        seed=recipe.seed,
    )


def rules_of(recipe: PretrainRecipe, feed: Feed) -> Rules:
    """The recipe's length, learning rate and clipping."""
    tokens = recipe.tokens
    if recipe.epochs is not None:
        tokens = round(recipe.epochs * feed.epoch_tokens())
    given = recipe.schedule
    warmup = given.warmup
    if given.warmup_steps is not None and recipe.steps is not None:
        warmup = min(1.0, given.warmup_steps / recipe.steps)
    rate = LearningRate(recipe.optimizer.lr, given.kind, warmup, given.decay, given.end)
    return Rules(Length(recipe.steps, tokens, recipe.budget), rate, recipe.optimizer.clip)


def optimizer_settings(recipe: PretrainRecipe) -> OptimizerSettings:
    """The recipe's optimizer."""
    given = recipe.optimizer
    return OptimizerSettings(given.kind, given.betas, given.eps, given.decay, given.decay_embeddings, given.momentum)


def device_of(recipe: PretrainRecipe) -> torch.device:
    """Where the recipe's model is trained."""
    if recipe.device == "cuda" and not torch.cuda.is_available():
        raise UsageError('device is "cuda", and torch sees no GPU here. Say device = "auto", or mend the driver.')
    return torch.device("cuda" if recipe.device != "cpu" and torch.cuda.is_available() else "cpu")


def precision_of(recipe: PretrainRecipe, device: torch.device) -> str:
    """The recipe's precision, where it is left open by the device."""
    if recipe.precision != "auto":
        return recipe.precision
    return "autocast" if device.type == "cuda" else "fp32"
