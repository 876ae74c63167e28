"""The model a run begins with, new or from a checkpoint, and the checkpoint it ends as."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lexome.corpus.vocab.tokenizers import TOKENIZER_FILE, load_tokenizer, tokenizer_sha256, unknown_id
from lexome.errors import CheckpointError, RecipeError, UsageError
from lexome.models import checkpoint
from lexome.models.backend import DROP_RELATIVE_POSITIONS, TransformersMaskedLM, copy_with_weights
from lexome.models.checkpoint import HUGGING_FACE, Card, layout_of
from lexome.models.encoder import Encoder, EncoderConfig
from lexome.models.heads import MaskedLM
from lexome.models.hf import ARCHITECTURES, matching_architecture, write_config
from lexome.models.hf_folder import read_settings, special_tokens, weights_sha256
from lexome.recipe import explain
from lexome.recipe.pretrain import TrainingRecipe
from lexome.training.trainer import Run, facts

# The roles of special tokens, whatever their names. Beginning and end are cls and sep where they are used.
ROLES = ("cls_token", "sep_token", "mask_token", "pad_token", "unk_token")

# Prefixes of tokens: after a space in byte-level BPE, a word in SentencePiece, inside a word in WordPiece.
SPACE, WORD, INSIDE = "Ġ", "▁", "##"


@dataclass(frozen=True, slots=True)
class Carried:
    """How many tokens kept their embedding, how many are new, and how many old ones are gone."""

    kept: int
    new: int
    gone: int


def same_tokenizer(checkpoint: Path, tokenizer: Path) -> bool:
    """True where a checkpoint's tokenizer is the one of this tokenizer.json.

    A folder with a vocab.txt alone is compared by its tokens and their ids.
    """
    if (checkpoint / TOKENIZER_FILE).is_file():
        return tokenizer_sha256(checkpoint) == tokenizer_sha256(tokenizer)
    return pieces_of(checkpoint) == pieces_of(tokenizer)


def refuse(checkpoint: Path, tokenizer: Path) -> CheckpointError:
    """The error for a tokenizer that is not the checkpoint's; models of transformers cannot transfer embeddings."""
    carried = 'say new_vocabulary = "transfer" to keep what both have.'
    model_type = read_settings(checkpoint).get("model_type", "bert")
    if model_type == "mpnet":
        carried = f"{DROP_RELATIVE_POSITIONS} and {carried}"
    elif model_type not in ARCHITECTURES:
        carried = "start from another model."
    return CheckpointError(
        f"the shards were made with the tokenizer {tokenizer}, and {checkpoint} was trained with another. Shard the "
        f"text with the checkpoint's own tokenizer, or {carried}"
    )


def pieces_of(tokenizer: Path) -> dict[str, int]:
    """The tokens of a tokenizer and their ids."""
    pieces: dict[str, int] = load_tokenizer(tokenizer).get_vocab(with_added_tokens=True)
    return pieces


def same_roles(old: Path, new: Path) -> dict[str, str]:
    """The old tokenizer's token for each special token of the new: {"[CLS]": "<s>", "[MASK]": "<mask>", ...}."""
    before, after = special_tokens(old), special_tokens(new)
    return {after[role]: before[role] for role in ROLES if role in before and role in after}


def parts_of_new(old: Path, new: Path) -> dict[str, list[int]]:
    """For each token that only the new tokenizer has, the old tokenizer's tokens of the same text.

    Tokens that the old one cannot encode in full, or that are not whole characters, are left out.
    """
    before, after = load_tokenizer(old), load_tokenizer(new)
    known = before.get_vocab(with_added_tokens=True)
    fresh = {piece: id_ for piece, id_ in pieces_of(new).items() if piece not in known}
    # Only byte pairs tell a word from the same letters inside one by the space before it.
    spaced = any(piece.startswith(SPACE) for piece in known)
    by_words = any(piece.startswith(INSIDE) for piece in pieces_of(new))
    parts: dict[str, list[int]] = {}
    for piece, id_ in fresh.items():
        text = after.decode([id_]).removeprefix(INSIDE).strip()
        begins = not piece.startswith(INSIDE) if by_words else piece.startswith((SPACE, WORD))
        ids = _ids(before, f" {text}" if spaced and begins else text)
        if text and ids and "\ufffd" not in text:
            parts[piece] = ids
    return parts


def _ids(tokenizer: Any, text: str) -> list[int]:
    """The token ids of a text; empty where a part of it is unknown."""
    try:
        found = tokenizer.encode(text, add_special_tokens=False)
    except Exception:  # the library's bare one, from a Unigram model that has no piece for what it does not know
        return []
    # What has no such piece in byte pairs is passed over without a word.
    seen = {place for begin, end in found.offsets for place in range(begin, end)}
    whole = all(letter.isspace() or place in seen for place, letter in enumerate(text))
    return found.ids if whole and unknown_id(tokenizer) not in found.ids else []


def carry(
    model: nn.Module,
    old: dict[str, int],
    new: dict[str, int],
    *,
    roles: Mapping[str, str],
    parts: Mapping[str, Sequence[int]],
    std: float,
) -> tuple[dict[str, Tensor], Carried]:
    """The model's weights with embeddings and output biases for the new vocabulary, and how many were transferred.

    A new token starts with the mean of the embeddings of its `parts`, the old tokens of the same text; one without
    such is initialized randomly. Its bias is the mean of the old ones. `roles` are the old tokens in the roles of the
    new special ones: [CLS] starts as <s>, even where the old vocabulary has a [CLS] that it never used.
    """
    source = {id_: old.get(roles.get(piece, piece)) for piece, id_ in new.items()}
    pairs = [(id_, was) for id_, was in source.items() if was is not None]
    targets = torch.tensor([id_ for id_, _ in pairs], dtype=torch.long)
    origins = torch.tensor([was for _, was in pairs], dtype=torch.long)
    size = max(new.values()) + 1
    weights = dict(model.state_dict())
    before_VD, bias_V = weights["encoder.embed.tokens.weight"], weights["head.bias"]
    after_VD = torch.empty(size, before_VD.shape[1], dtype=before_VD.dtype).normal_(std=std)
    for piece, ids in parts.items():
        after_VD[new[piece]] = before_VD[list(ids)].mean(dim=0)
    after_V = bias_V.mean().repeat(size)
    after_VD[targets], after_V[targets] = before_VD[origins], bias_V[origins]
    weights |= {"encoder.embed.tokens.weight": after_VD, "head.bias": after_V}
    gone = len(old) - len({was for _, was in pairs})
    return weights, Carried(kept=len(pairs), new=len(new) - len(pairs), gone=gone)


def refuse_foreign(start: Path) -> None:
    """CheckpointError for a checkpoint of another framework, whose tokenizer cannot be used to shard text.

    Also for a folder without config.json, before its tokenizer is looked for.
    """
    layout = layout_of(start)
    if layout != HUGGING_FACE:
        raise CheckpointError(
            f"{start}: a checkpoint in the layout of {layout}; expected a folder in Hugging Face's form. Run `lexome "
            "convert-model` on it, shard the text with the new folder's tokenizer, and start from that folder."
        )
    read_settings(start)


def check_borrowed(recipe: TrainingRecipe, *, same_tokenizer: bool, architecture: str) -> None:
    """RecipeError where a recipe uses what only Lexome's own encoder supports."""
    instead = f" or {DROP_RELATIVE_POSITIONS}," if architecture == "mpnet" else ""
    wrong = {
        'stage = "distill"': recipe.stage == "distill",
        "[model]": bool(recipe.model),
        'optimizer.kind = "muon"': recipe.optimizer.kind == "muon",
        "optimizer.weight_decay_embeddings = false": not recipe.optimizer.weight_decay_embeddings,
        "compile = true": recipe.compile is True,
        'new_vocabulary = "transfer"': not same_tokenizer,
    }
    for name, asked in wrong.items():
        if asked:
            raise RecipeError(
                f"{name} is for Lexome's own encoder, and the model to start from is computed by transformers. Leave "
                f"it out,{instead} or start from another model."
            )


def settings_of(model: nn.Module) -> dict[str, Any] | None:
    """The configuration of a model that transformers computes; None for Lexome's own encoder."""
    if not isinstance(model, TransformersMaskedLM):
        return None
    settings: dict[str, Any] = json.loads(model.model.config.to_json_string())
    return settings


@dataclass(frozen=True, slots=True)
class Teacher:
    """The teacher of a distillation: its folder, and the hash of its weights. Without `taught`, it only gave layers."""

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

    `kind` is one of key_mapping.KINDS; the class of a model that is distributed over processes does not determine it.
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
    """The model of a recipe: that of the checkpoint `start`, or a new one, initialized from torch's generator.

    A checkpoint with another tokenizer is refused, unless its embeddings are to be `carried` over.
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
    """The start, where it takes sequences of this length and can be saved; else UsageError."""
    if start.config.max_tokens < max_tokens:
        raise UsageError(
            f"text.max_tokens is {max_tokens}, but the model takes {start.config.max_tokens} at most. "
            "Lower it, or raise max_tokens in [model].",
            code="too-long",
            value=max_tokens,
        )
    if isinstance(start.model, TransformersMaskedLM):
        return start
    # Now, and not after days of training: a model that cannot be saved is not trained.
    write_config(start.config, start.architecture)
    if start.kind not in ARCHITECTURES[start.architecture].classes:
        raise UsageError(
            f"{start.architecture} has no pair head in Hugging Face's format. Use text.kind sentences or "
            "across_documents, or another model.",
            code="no-pair-head",
            value=start.architecture,
        )
    return start


def hash_of(checkpoint: Path | None) -> str:
    """The hash of the weights a run starts from: other weights in the same folder are another start.

    Empty where there are none. A damaged checkpoint is reported where it is loaded.
    """
    try:
        return "" if checkpoint is None else weights_sha256(checkpoint)
    except CheckpointError:
        return ""


def name_of(checkpoint: Path) -> str:
    """The name of a checkpoint: its folder's, or that of its run."""
    path = checkpoint.resolve()
    return path.parent.name if path.name == "model" else path.name


def write_checkpoint(
    folder: Path, start: Start, weights: Mapping[str, Tensor], recipe: TrainingRecipe, run: Run, *, text: str
) -> None:
    """Write the model with its gathered weights as a Hugging Face folder with its card, replacing an existing one."""
    model = _with_weights(start, weights)
    said = recipe.card
    scores = []
    if run.held_out is not None:
        how = f"masking rate {recipe.evaluation.masking_rate}, held-out text"
        scores = [(f"held-out {name}", f"{score:.4f}", how) for name, score in run.held_out.items()]
    card = Card(
        title=said.title or recipe.out.name,
        summary=model_summary(start, run),
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
        return copy_with_weights(start.model, weights)
    with torch.device("meta"):
        model = checkpoint.build(start.config, start.kind)
    model.load_state_dict(weights, assign=True)
    return model


def model_summary(start: Start, run: Run) -> str:
    """A sentence or two about the model."""
    said = f"A masked language model, trained on {run.tokens:,} tokens with Lexome."
    if start.teacher is None:
        return said
    return f"{said} {start.teacher.said()}"


def _new(recipe: TrainingRecipe, tokenizer: Path, pieces: int, kind: str) -> Start:
    if recipe.preset is not None:
        from lexome.models.encoder import preset

        config = changed(replace(preset(recipe.preset), vocab=pieces), recipe.model)
    else:
        config = changed(None, {"vocab": pieces, **recipe.model})
    if config.vocab < pieces:
        raise UsageError(f"model.vocab is {config.vocab}, but the tokenizer has {pieces} pieces. Leave it out.")
    return Start(checkpoint.build(config, kind), config, matching_architecture(config), tokenizer, kind)


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


def load_teacher_encoder(folder: Path, tokenizer: Path, *, transfer: bool, max_tokens: int) -> Encoder:
    """The encoder of a checkpoint, with embeddings for the tokens of another tokenizer where `transfer` allows it."""
    # Initializing the language-model head, which is not used, must not advance the run's own random state.
    with torch.random.fork_rng(devices=[]):
        start = checked(_loaded(folder, tokenizer, "masked", given={}, carried=transfer), max_tokens=max_tokens)
    if not isinstance(start.model, MaskedLM):
        raise UsageError(
            f"the teacher in {folder} is computed by transformers; expected one of {', '.join(ARCHITECTURES)}.",
            code="unsupported-architecture",
            value=start.architecture,
        )
    return start.model.encoder


def fitted(
    weights: Mapping[str, Tensor], config: EncoderConfig, given: dict[str, Any], *, kind: str, where: Path
) -> tuple[nn.Module, EncoderConfig]:
    """A model of these weights with the fields of [model] changed; RecipeError where they change its shape."""
    config = changed(config, given)
    with torch.device("meta"):
        model = checkpoint.build(config, kind)
    try:
        model.load_state_dict(weights, assign=True)
    except RuntimeError as error:
        message = f"[model] changes the shape of {where}, which its weights do not fit: {error}"
        raise RecipeError(message, code="shape-mismatch", value=where) from None
    return model.requires_grad_(True), config


def changed(config: EncoderConfig | None, given: dict[str, Any]) -> EncoderConfig:
    """A configuration with some fields changed, or made of them alone; RecipeError for an unknown field."""
    known = [field.name for field in fields(EncoderConfig)]
    if unknown := sorted(given.keys() - set(known)):
        message = f"[model] has the unknown key {unknown[0]}; expected some of {', '.join(known)}."
        raise RecipeError(message, code="unknown-key", value=f"model.{unknown[0]}")
    try:
        return EncoderConfig(**given) if config is None else replace(config, **given)
    except TypeError as error:
        message = f"[model]: {error}. Give every size of the model but the vocabulary."
        raise RecipeError(message, code="missing-key", value="model") from None
