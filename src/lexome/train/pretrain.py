"""pretrain: token shards and an encoder, new or trained before, into a checkpoint folder."""

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lexome.recipe.pretrain import PretrainRecipe
from lexome.train.feed import Feed
from lexome.train.journal import Line
from lexome.train.loop import Clock
from lexome.train.losses import PretrainingLoss
from lexome.train.session import MODEL, Setting, Subject, carry_out
from lexome.train.start import begin, hash_of


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
    hardware ends with the same bits as one that never stopped, unless its length is a time. Ctrl-C and SIGTERM save
    the state when the step is done, and raise a KeyboardInterrupt that says so. Where torchrun started this process,
    it is one of many on the run.
    """
    making, hashed = partial(masked_words, recipe), hash_of(recipe.start)
    run, new = carry_out(recipe, making, hashed=hashed, progress_shown=progress_shown, clock=clock)
    return Pretrained(recipe.out / MODEL, run.steps, run.tokens, run.seconds, run.loss, run.held_out, new=new)


def masked_words(recipe: PretrainRecipe, feed: Feed, setting: Setting) -> Subject:
    """The recipe's model, to guess masked words, and where the text is of pairs to judge them."""
    start = begin(
        recipe,
        feed.tokenizer,
        feed.pieces.size,
        start=recipe.start,
        carried=recipe.new_vocabulary == "carry",
        paired=feed.text.paired,
    )
    loss = PretrainingLoss(compiled=setting.compiled, autocast=setting.autocast)
    return Subject(start, start.model, loss, loss)
