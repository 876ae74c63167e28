"""The model a run begins with, new or from a checkpoint, and the checkpoint it ends as."""

from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lexome.errors import RecipeError, UsageError
from lexome.models import checkpoint
from lexome.models.architectures import ARCHITECTURES
from lexome.models.card import Card
from lexome.models.config import EncoderConfig
from lexome.models.hf_config import natural_architecture, write_config
from lexome.recipe import explain
from lexome.recipe.pretrain import PretrainRecipe
from lexome.train.record import Run, facts
from lexome.train.vocabulary import Carried, carry, pieces_of, refuse, same_tokenizer


@dataclass(frozen=True, slots=True)
class Start:
    """A model to train: its shape, what Hugging Face calls it, where its tokenizer lies, and where it came from.

    `drawn` are weights that the checkpoint lacked, `unused` those that the model has no place for.
    """

    model: nn.Module
    config: EncoderConfig
    architecture: str
    tokenizer: Path
    checkpoint: Path | None = None
    carried: Carried | None = None
    drawn: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()

    def facts(self) -> dict[str, Any]:
        """What run.json says about it."""
        return {
            "architecture": self.architecture,
            "config": asdict(self.config),
            "checkpoint": None if self.checkpoint is None else str(self.checkpoint),
            "vocabulary": None if self.carried is None else asdict(self.carried),
            "drawn": list(self.drawn),
            "unused": list(self.unused),
        }


def begin(recipe: PretrainRecipe, tokenizer: Path, pieces: int, *, paired: bool) -> Start:
    """The model of a recipe. New weights are drawn from torch's generator: seed it first."""
    kind = "paired" if paired else "masked"
    start = _new(recipe, tokenizer, pieces, kind) if recipe.start is None else _loaded(recipe, tokenizer, kind)
    if start.config.max_tokens < recipe.text.max_tokens:
        raise UsageError(
            f"text.max_tokens is {recipe.text.max_tokens}, but the model takes {start.config.max_tokens} at most. "
            "Lower it, or raise max_tokens in [model]."
        )
    # Now, and not after days of training: what cannot be saved is not trained.
    write_config(start.config, start.architecture)
    if kind not in ARCHITECTURES[start.architecture].classes:
        raise UsageError(
            f"{start.architecture} has no head for pairs in Hugging Face's form. Use text.kind sentences or "
            "across_documents, or another model."
        )
    return start


def write_checkpoint(folder: Path, start: Start, recipe: PretrainRecipe, run: Run, *, text: str) -> None:
    """Write the model as a Hugging Face folder with its card; one that is there already is replaced."""
    said = recipe.card
    scores = []
    if run.held_out is not None:
        how = f"masking rate {recipe.evaluation.rate}, held-out text"
        scores = [(f"held-out {name}", f"{score:.4f}", how) for name, score in run.held_out.items()]
    card = Card(
        title=said.title or recipe.out.name,
        summary=f"A masked language model, trained on {run.tokens:,} tokens with Lexome.",
        license=said.license,
        data=said.data or text,
        base_model=None if start.checkpoint is None else start.checkpoint.name,
        recipe=explain(recipe),
        scores=tuple(scores),
    )
    checkpoint.save(
        folder,
        start.model,
        architecture=start.architecture,
        tokenizer=start.tokenizer,
        card=card,
        run=facts(run, recipe),
        replace=True,
    )


def _new(recipe: PretrainRecipe, tokenizer: Path, pieces: int, kind: str) -> Start:
    if recipe.preset is not None:
        from lexome.models.presets import preset

        config = changed(replace(preset(recipe.preset), vocab=pieces), recipe.model)
    else:
        config = changed(None, {"vocab": pieces, **recipe.model})
    if config.vocab < pieces:
        raise UsageError(f"model.vocab is {config.vocab}, but the tokenizer has {pieces} pieces. Leave it out.")
    return Start(checkpoint.build(config, kind), config, natural_architecture(config), tokenizer)


def _loaded(recipe: PretrainRecipe, tokenizer: Path, kind: str) -> Start:
    assert recipe.start is not None
    same = same_tokenizer(recipe.start, tokenizer)
    if not same and recipe.new_vocabulary == "refuse":
        raise refuse(recipe.start, tokenizer)
    found = checkpoint.load(recipe.start, kind=kind, new_head=True)
    config, weights, carried = found.config, found.model.state_dict(), None
    if not same:
        new = pieces_of(tokenizer)
        weights, carried = carry(found.model, pieces_of(recipe.start), new, std=config.initial_std)
        config = replace(config, vocab=max(new.values()) + 1)
    config = changed(config, recipe.model)
    with torch.device("meta"):
        model = checkpoint.build(config, kind)
    try:
        model.load_state_dict(weights, assign=True)
    except RuntimeError as error:
        raise RecipeError(
            f"[model] changes the shape of {recipe.start}, which its weights do not fit: {error}"
        ) from None
    for weight in model.parameters():
        weight.requires_grad_(True)
    return Start(
        model,
        config,
        found.architecture,
        recipe.start if same else tokenizer,
        checkpoint=recipe.start,
        carried=carried,
        drawn=found.new,
        unused=found.unused,
    )


def changed(config: EncoderConfig | None, given: dict[str, Any]) -> EncoderConfig:
    """A configuration with some fields changed, or made of them alone; RecipeError for a field there is none of."""
    known = [field.name for field in fields(EncoderConfig)]
    if unknown := sorted(given.keys() - set(known)):
        raise RecipeError(f"[model] has the unknown key {unknown[0]}; expected some of {', '.join(known)}.")
    try:
        return EncoderConfig(**given) if config is None else replace(config, **given)
    except TypeError as error:
        raise RecipeError(f"[model]: {error}. Say vocabulary apart, every size of the model.") from None
