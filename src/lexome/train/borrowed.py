"""Training a masked language model that transformers computes: what of a recipe it can follow."""

import json
from pathlib import Path
from typing import Any

from torch import nn

from lexome.errors import CheckpointError, RecipeError
from lexome.models.backend import WITHOUT_POSITIONS
from lexome.models.padded import TransformersMaskedLM
from lexome.models.source import HUGGING_FACE, layout_of, read_settings
from lexome.recipe.pretrain import TrainingRecipe


def refuse_foreign(start: Path) -> None:
    """CheckpointError for a release of another framework, whose tokenizer is in no folder to shard text with.

    Also for a folder without settings, before anyone looks for its tokenizer.
    """
    layout = layout_of(start)
    if layout != HUGGING_FACE:
        raise CheckpointError(
            f"{start}: a checkpoint in the layout of {layout}; expected a folder in Hugging Face's form. Run `lexome "
            "convert-model` on it, shard the text with the new folder's tokenizer, and start from that folder."
        )
    read_settings(start)


def check_borrowed(recipe: TrainingRecipe, *, same_tokenizer: bool, architecture: str) -> None:
    """RecipeError where a recipe asks for what is made for Lexome's own encoder."""
    instead = f" or {WITHOUT_POSITIONS}," if architecture == "mpnet" else ""
    wrong = {
        'stage = "distill"': recipe.stage == "distill",
        "[model]": bool(recipe.model),
        'optimizer.kind = "muon"': recipe.optimizer.kind == "muon",
        "optimizer.decay_embeddings = false": not recipe.optimizer.decay_embeddings,
        "compile = true": recipe.compile is True,
        'new_vocabulary = "carry"': not same_tokenizer,
    }
    for name, asked in wrong.items():
        if asked:
            raise RecipeError(
                f"{name} is for Lexome's own encoder, and the model to start from is computed by transformers. Leave "
                f"it out,{instead} or start from another model."
            )


def settings_of(model: nn.Module) -> dict[str, Any] | None:
    """The configuration of a model that transformers computes; None for one of our own."""
    if not isinstance(model, TransformersMaskedLM):
        return None
    settings: dict[str, Any] = json.loads(model.model.config.to_json_string())
    return settings
