"""What a run reads: the steps that a recipe makes of shards, and its held-out batches."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from lexome.corpus.masking import Masking, Schedule
from lexome.corpus.shards.store import Shards
from lexome.corpus.vocab.tokenizers import TOKENIZER_FILE
from lexome.errors import RecipeError, UsageError
from lexome.recipe.pretrain import TrainingRecipe
from lexome.train.batches import Plan, StepArrays, once, steps
from lexome.train.loader import Batch, Step, ahead, tensors
from lexome.train.loop import Position
from lexome.train.parallel import Parallel
from lexome.train.schedule import Length
from lexome.train.text import Pieces, Text


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
            duplicates=recipe.masking.duplicates,
            short=recipe.text.short,
            repeat=recipe.text.repeat,
        )
        self.held_out = self._held_out(shards)
        self.said = self._extent()

    def steps(
        self, length: Length, position: Position, *, parallel: Parallel
    ) -> AbstractContextManager[Iterator[Step]]:
        """Steps without end, from the position on, prepared ahead while the context is open."""
        count = self.recipe.batch.ahead
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
        made = once(text, plan, self.pieces.vocabulary, tokens=wanted.tokens, rate=wanted.rate)
        place_less = Position().place
        return [tensors(StepArrays([one], place_less, wanted.rate)).batches[0] for one in made]


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
