"""The model a run begins with, new or from a checkpoint, and the checkpoint it ends as."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lexome.errors import CheckpointError, RecipeError, UsageError
from lexome.models import checkpoint
from lexome.models.architectures import ARCHITECTURES
from lexome.models.backend import with_weights
from lexome.models.card import Card
from lexome.models.config import EncoderConfig
from lexome.models.hf_config import natural_architecture, write_config
from lexome.models.padded import TransformersMaskedLM
from lexome.models.weights import weights_sha256
from lexome.recipe import explain
from lexome.recipe.pretrain import TrainingRecipe
from lexome.train.borrowed import check_borrowed, refuse_foreign, settings_of
from lexome.train.record import Run, facts
from lexome.train.vocabulary import Carried, carry, parts_of_new, pieces_of, refuse, same_roles, same_tokenizer
from lexome.values import value


@value
class Teacher:
    """A model that another learns from: its folder, and the hash of its weights. Not `taught`: it only gave layers."""

    folder: Path
    sha256: str
    taught: bool = True

    def facts(self) -> dict[str, Any]:
        """What run.json says about it."""
        return asdict(self) | {"folder": str(self.folder)}

    def said(self) -> str:
        """A sentence for the model card."""
        name = f"{self.folder.name} of {self.folder.parent.name}" if self.folder.name == "model" else self.folder.name
        how = "It was distilled from" if self.taught else "It began with layers of"
        return f"{how} {name}, whose weights have the SHA-256 {self.sha256}."


@dataclass(frozen=True, slots=True)
class Start:
    """A model to train: its shape, what Hugging Face calls it, where its tokenizer lies, and where it came from.

    `kind` is one of names.KINDS: a model that is spread over processes is of another class, and no longer tells it.
    `drawn` are weights that the checkpoint lacked, `unused` those that the model has no place for.
    """

    model: nn.Module
    config: EncoderConfig
    architecture: str
    tokenizer: Path
    kind: str = "masked"
    checkpoint: Path | None = None
    carried: Carried | None = None
    drawn: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    teacher: Teacher | None = None

    def facts(self) -> dict[str, Any]:
        """What run.json says about it."""
        return {
            "architecture": self.architecture,
            "config": settings_of(self.model) or asdict(self.config),
            "checkpoint": None if self.checkpoint is None else str(self.checkpoint),
            "vocabulary": None if self.carried is None else asdict(self.carried),
            "drawn": list(self.drawn),
            "unused": list(self.unused),
            "teacher": None if self.teacher is None else self.teacher.facts(),
        }


def begin(
    recipe: TrainingRecipe,
    tokenizer: Path,
    pieces: int,
    *,
    start: Path | None = None,
    carried: bool = False,
    paired: bool = False,
) -> Start:
    """The model of a recipe: that of the checkpoint `start`, or a new one. Weights are drawn from torch's generator.

    A checkpoint with another tokenizer is refused, unless its pieces are to be `carried` over.
    """
    kind = "paired" if paired else "masked"
    if start is None:
        made = _new(recipe, tokenizer, pieces, kind)
    else:
        made = _loaded(start, tokenizer, kind, given=recipe.model, carried=carried)
        if isinstance(made.model, TransformersMaskedLM):
            check_borrowed(recipe, same_tokenizer=made.tokenizer == start, architecture=made.architecture)
    return checked(made, max_tokens=recipe.text.max_tokens)


def checked(start: Start, *, max_tokens: int) -> Start:
    """The start, where it takes sequences so long and can be saved; else UsageError."""
    if start.config.max_tokens < max_tokens:
        raise UsageError(
            f"text.max_tokens is {max_tokens}, but the model takes {start.config.max_tokens} at most. "
            "Lower it, or raise max_tokens in [model]."
        )
    if isinstance(start.model, TransformersMaskedLM):
        return start
    # Now, and not after days of training: what cannot be saved is not trained.
    write_config(start.config, start.architecture)
    if start.kind not in ARCHITECTURES[start.architecture].classes:
        raise UsageError(
            f"{start.architecture} has no head for pairs in Hugging Face's form. Use text.kind sentences or "
            "across_documents, or another model."
        )
    return start


def hash_of(checkpoint: Path | None) -> str:
    """The hash of the weights a run begins with: other weights in the same folder are another start.

    Empty where there are none. What cannot be read is told where it is read.
    """
    try:
        return "" if checkpoint is None else weights_sha256(checkpoint)
    except CheckpointError:
        return ""


def name_of(checkpoint: Path) -> str:
    """What to call a checkpoint: its folder's name, or that of the run it lies in."""
    path = checkpoint.resolve()
    return path.parent.name if path.name == "model" else path.name


def write_checkpoint(
    folder: Path, start: Start, weights: Mapping[str, Tensor], recipe: TrainingRecipe, run: Run, *, text: str
) -> None:
    """Write the model, with its whole weights, as a Hugging Face folder with its card, in place of one there."""
    model = _with_weights(start, weights)
    said = recipe.card
    scores = []
    if run.held_out is not None:
        how = f"masking rate {recipe.evaluation.rate}, held-out text"
        scores = [(f"held-out {name}", f"{score:.4f}", how) for name, score in run.held_out.items()]
    card = Card(
        title=said.title or recipe.out.name,
        summary=summary_of(start, run),
        license=said.license,
        data=said.data or text,
        base_model=None if start.checkpoint is None else name_of(start.checkpoint),
        recipe=explain(recipe),
        scores=tuple(scores),
    )
    checkpoint.save(
        folder,
        model,
        architecture=start.architecture,
        tokenizer=start.tokenizer,
        card=card,
        run=facts(run, recipe),
        replace=True,
    )


def _with_weights(start: Start, weights: Mapping[str, Tensor]) -> nn.Module:
    if isinstance(start.model, TransformersMaskedLM):
        return with_weights(start.model, weights)
    with torch.device("meta"):
        model = checkpoint.build(start.config, start.kind)
    model.load_state_dict(weights, assign=True)
    return model


def summary_of(start: Start, run: Run) -> str:
    """What the model is, in a sentence or two."""
    said = f"A masked language model, trained on {run.tokens:,} tokens with Lexome."
    if start.teacher is None:
        return said
    return f"{said} {start.teacher.said()}"


def _new(recipe: TrainingRecipe, tokenizer: Path, pieces: int, kind: str) -> Start:
    if recipe.preset is not None:
        from lexome.models.presets import preset

        config = changed(replace(preset(recipe.preset), vocab=pieces), recipe.model)
    else:
        config = changed(None, {"vocab": pieces, **recipe.model})
    if config.vocab < pieces:
        raise UsageError(f"model.vocab is {config.vocab}, but the tokenizer has {pieces} pieces. Leave it out.")
    return Start(checkpoint.build(config, kind), config, natural_architecture(config), tokenizer, kind)


def _loaded(start: Path, tokenizer: Path, kind: str, *, given: dict[str, Any], carried: bool) -> Start:
    refuse_foreign(start)
    same = same_tokenizer(start, tokenizer)
    if not same and not carried:
        raise refuse(start, tokenizer)
    found = checkpoint.load(start, kind=kind, new_head=True)
    if isinstance(found.model, TransformersMaskedLM):
        return Start(
            found.model,
            found.config,
            found.architecture,
            start if same else tokenizer,
            kind,
            checkpoint=start,
            drawn=found.new,
            unused=found.unused,
        )
    config, weights, kept = found.config, found.model.state_dict(), None
    if not same:
        new = pieces_of(tokenizer)
        known: dict[str, Any] = {"roles": same_roles(start, tokenizer), "parts": parts_of_new(start, tokenizer)}
        weights, kept = carry(found.model, pieces_of(start), new, **known, std=config.initial_std)
        config = replace(config, vocab=max(new.values()) + 1)
    model, config = fitted(weights, config, given, kind=kind, where=start)
    return Start(
        model,
        config,
        found.architecture,
        start if same else tokenizer,
        kind,
        checkpoint=start,
        carried=kept,
        drawn=found.new,
        unused=found.unused,
    )


def fitted(
    weights: Mapping[str, Tensor], config: EncoderConfig, given: dict[str, Any], *, kind: str, where: Path
) -> tuple[nn.Module, EncoderConfig]:
    """A model of these weights with what [model] gives changed; RecipeError where that is their shape."""
    config = changed(config, given)
    with torch.device("meta"):
        model = checkpoint.build(config, kind)
    try:
        model.load_state_dict(weights, assign=True)
    except RuntimeError as error:
        raise RecipeError(f"[model] changes the shape of {where}, which its weights do not fit: {error}") from None
    return model.requires_grad_(True), config


def changed(config: EncoderConfig | None, given: dict[str, Any]) -> EncoderConfig:
    """A configuration with some fields changed, or made of them alone; RecipeError for a field there is none of."""
    known = [field.name for field in fields(EncoderConfig)]
    if unknown := sorted(given.keys() - set(known)):
        raise RecipeError(f"[model] has the unknown key {unknown[0]}; expected some of {', '.join(known)}.")
    try:
        return EncoderConfig(**given) if config is None else replace(config, **given)
    except TypeError as error:
        raise RecipeError(f"[model]: {error}. Say vocabulary apart, every size of the model.") from None
