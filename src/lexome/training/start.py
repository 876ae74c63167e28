"""The initial model of a run, new or from a checkpoint, and the checkpoint it is saved as."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import torch
from torch import Tensor, nn

from lexome.corpus.vocab.tokenizers import TOKENIZER_FILE, load_tokenizer, tokenizer_sha256, unknown_id
from lexome.errors import CheckpointError, RecipeError, UsageError
from lexome.models import checkpoint
from lexome.models.backend import DROP_RELATIVE_POSITIONS, TransformersMaskedLM, copy_with_weights
from lexome.models.checkpoint import HUGGING_FACE, Card, layout_of
from lexome.models.encoder import Encoder, EncoderConfig, preset
from lexome.models.heads import MaskedLM
from lexome.models.hf import ARCHITECTURES, matching_architecture, write_config
from lexome.models.hf_folder import hub_name, read_settings, special_tokens, weights_sha256

# The roles of special tokens, whatever their names; bos and eos count as cls and sep.
ROLES = ("cls_token", "sep_token", "mask_token", "pad_token", "unk_token")

# Token prefixes: a preceding space in byte-level BPE, a word start in SentencePiece, a continuation in WordPiece.
SPACE, WORD, CONTINUATION = "Ġ", "▁", "##"


@dataclass(frozen=True, slots=True)
class TransferCounts:
    """The numbers of tokens that kept their embedding, that are new, and that were dropped."""

    kept: int
    new: int
    gone: int


def same_tokenizer(checkpoint: Path, tokenizer: Path) -> bool:
    """Whether a checkpoint has the same tokenizer as this tokenizer.json.

    A folder with only a vocab.txt is compared by tokens and ids.
    """
    if (checkpoint / TOKENIZER_FILE).is_file():
        return tokenizer_sha256(checkpoint) == tokenizer_sha256(tokenizer)
    return token_ids(checkpoint) == token_ids(tokenizer)


def tokenizer_mismatch(checkpoint: Path, tokenizer: Path) -> CheckpointError:
    """The error for a tokenizer other than the checkpoint's; the transformers backend cannot transfer embeddings."""
    remedy = 'set new_vocabulary = "transfer" to transfer the embeddings.'
    model_type = read_settings(checkpoint).get("model_type", "bert")
    if model_type == "mpnet":
        remedy = f"{DROP_RELATIVE_POSITIONS} and {remedy}"
    elif model_type not in ARCHITECTURES:
        remedy = "start from another model."
    message = (
        f"the shards use the tokenizer {tokenizer}, but {checkpoint} was trained with a different one. Shard the text "
        f"with the checkpoint's tokenizer, or {remedy}"
    )
    return CheckpointError(message, code="tokenizer-mismatch", value=checkpoint)


def token_ids(tokenizer: Path) -> dict[str, int]:
    """The tokens of a tokenizer and their ids."""
    ids: dict[str, int] = load_tokenizer(tokenizer).get_vocab(with_added_tokens=True)
    return ids


def map_special_tokens(old: Path, new: Path) -> dict[str, str]:
    """The old tokenizer's special token in the role of each new one: {"[CLS]": "<s>", "[MASK]": "<mask>", ...}."""
    before, after = special_tokens(old), special_tokens(new)
    return {after[role]: before[role] for role in ROLES if role in before and role in after}


def split_new_tokens(old: Path, new: Path) -> dict[str, list[int]]:
    """Map each token that only the new tokenizer has to the old tokenizer's ids of the same text.

    Tokens that the old tokenizer cannot fully encode, or that are partial UTF-8 characters, are omitted.
    """
    before, after = load_tokenizer(old), load_tokenizer(new)
    known = before.get_vocab(with_added_tokens=True)
    added = {token: id_ for token, id_ in token_ids(new).items() if token not in known}
    # Only byte-level BPE marks the start of a word by the space before it.
    spaced = any(token.startswith(SPACE) for token in known)
    wordpiece = any(token.startswith(CONTINUATION) for token in token_ids(new))
    parts: dict[str, list[int]] = {}
    for token, id_ in added.items():
        text = after.decode([id_]).removeprefix(CONTINUATION).strip()
        word_start = not token.startswith(CONTINUATION) if wordpiece else token.startswith((SPACE, WORD))
        ids = _encode_fully(before, f" {text}" if spaced and word_start else text)
        if text and ids and "\ufffd" not in text:
            parts[token] = ids
    return parts


def _encode_fully(tokenizer: Any, text: str) -> list[int]:
    """The token ids of a text; empty if any part of it is unknown."""
    try:
        encoding = tokenizer.encode(text, add_special_tokens=False)
    except Exception:  # a bare Exception from tokenizers, for a Unigram model without an unknown token
        return []
    # BPE without an unknown token silently drops characters that it lacks.
    covered = {index for start, end in encoding.offsets for index in range(start, end)}
    complete = all(character.isspace() or index in covered for index, character in enumerate(text))
    return encoding.ids if complete and unknown_id(tokenizer) not in encoding.ids else []


def transfer_embeddings(
    model: nn.Module,
    old: dict[str, int],
    new: dict[str, int],
    *,
    roles: Mapping[str, str],
    parts: Mapping[str, Sequence[int]],
    std: float,
) -> tuple[dict[str, Tensor], TransferCounts]:
    """Transfer embeddings and output biases to a new vocabulary; the model's new weights and the token counts.

    A new token's embedding is the mean over its `parts`, the old tokens of the same text, or random if it has none. Its
    bias is the mean of the old biases. `roles` maps new special tokens to old ones: [CLS] is initialized from <s>, even
    if the old vocabulary has an unused [CLS].
    """
    sources = {id_: old.get(roles.get(token, token)) for token, id_ in new.items()}
    pairs = [(id_, old_id) for id_, old_id in sources.items() if old_id is not None]
    targets = torch.tensor([id_ for id_, _ in pairs], dtype=torch.long)
    origins = torch.tensor([old_id for _, old_id in pairs], dtype=torch.long)
    size = max(new.values()) + 1
    weights = dict(model.state_dict())
    before_VD, bias_V = weights["encoder.embed.tokens.weight"], weights["head.bias"]
    after_VD = torch.empty(size, before_VD.shape[1], dtype=before_VD.dtype).normal_(std=std)
    for token, ids in parts.items():
        after_VD[new[token]] = before_VD[list(ids)].mean(dim=0)
    after_V = bias_V.mean().repeat(size)
    after_VD[targets], after_V[targets] = before_VD[origins], bias_V[origins]
    weights |= {"encoder.embed.tokens.weight": after_VD, "head.bias": after_V}
    gone = len(old) - len({old_id for _, old_id in pairs})
    return weights, TransferCounts(kept=len(pairs), new=len(new) - len(pairs), gone=gone)


def check_layout(start: Path) -> None:
    """Raise CheckpointError unless a folder has a config.json in the Hugging Face layout.

    Text cannot be sharded with the tokenizers of other frameworks' checkpoints.
    """
    layout = layout_of(start)
    if layout != HUGGING_FACE:
        remedy = (
            "Run `lexome convert-model` on it, shard the text with the converted tokenizer, and start from that folder"
        )
        message = f"{start}: a checkpoint in the {layout} layout; expected a Hugging Face folder. {remedy}."
        raise CheckpointError(message, code="unsupported-format", value=layout)
    read_settings(start)


def settings_of(model: nn.Module) -> dict[str, Any] | None:
    """The configuration of a model on the transformers backend; None for Lexome's own encoder."""
    if not isinstance(model, TransformersMaskedLM):
        return None
    settings: dict[str, Any] = json.loads(model.model.config.to_json_string())
    return settings


@dataclass(frozen=True, slots=True)
class Teacher:
    """A teacher: its folder and the hash of its weights. If not `taught`, the student only took layers from it."""

    folder: Path
    sha256: str
    taught: bool = True

    def facts(self) -> dict[str, Any]:
        """The record for run.json."""
        return asdict(self) | {"folder": str(self.folder)}

    def describe(self) -> str:
        """A sentence for the model card."""
        name = f"{self.folder.name} of {self.folder.parent.name}" if self.folder.name == "model" else self.folder.name
        origin = "It was distilled from" if self.taught else "It was initialized with layers of"
        return f"{origin} {name}, whose weights have the SHA-256 {self.sha256}."


@dataclass(frozen=True, slots=True)
class Start:
    """A model to train: its configuration, Hugging Face architecture, tokenizer and origin.

    `kind` is one of hf.KINDS; the class of a distributed model does not determine it. `drawn` are randomly
    initialized weights that the checkpoint lacks, `unused` are weights of the checkpoint that the model lacks.
    """

    model: nn.Module
    config: EncoderConfig
    architecture: str
    tokenizer: Path
    kind: str = "masked"
    checkpoint: Path | None = None
    transferred: TransferCounts | None = None
    drawn: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    teacher: Teacher | None = None

    def facts(self) -> dict[str, Any]:
        """The record for run.json."""
        return {
            "architecture": self.architecture,
            "config": settings_of(self.model) or asdict(self.config),
            "checkpoint": None if self.checkpoint is None else str(self.checkpoint),
            "vocabulary": None if self.transferred is None else asdict(self.transferred),
            "drawn": list(self.drawn),
            "unused": list(self.unused),
            "teacher": None if self.teacher is None else self.teacher.facts(),
        }


def initialize(
    tokenizer: Path,
    pieces: int,
    *,
    max_tokens: int,
    start: Path | None = None,
    transfer: bool = False,
    paired: bool = False,
    preset_name: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    own_encoder: Sequence[str] = (),
) -> Start:
    """The initial model: from the checkpoint `start`, or new and initialized with torch's generator.

    A new model has the configuration of a preset, a checkpoint its own, with fields overridden. A checkpoint with a
    different tokenizer is an error, unless `transfer` allows its embeddings to be transferred. `own_encoder` are
    settings of the run, as recipes have them, that only Lexome's own encoder supports.
    """
    kind, overrides = "paired" if paired else "masked", overrides or {}
    if start is None:
        initial = _new_model(tokenizer, pieces, kind, preset_name=preset_name, overrides=overrides)
    else:
        initial = _load(start, tokenizer, kind, overrides=overrides, transfer=transfer)
        if isinstance(initial.model, TransformersMaskedLM):
            transferred = [] if initial.tokenizer == start else ['new_vocabulary = "transfer"']
            for setting in (*own_encoder, *transferred):
                convert = f" or {DROP_RELATIVE_POSITIONS}," if initial.architecture == "mpnet" else ""
                backend = "Lexome's own encoder, but the initial model runs on the transformers backend"
                message = f"{setting} needs {backend}. Remove it,{convert} or start from another model."
                raise RecipeError(message, code="unsupported-backend", value=setting)
    return check_start(initial, max_tokens=max_tokens)


def check_start(start: Start, *, max_tokens: int) -> Start:
    """The start itself; UsageError if it cannot be saved or does not support sequences of this length."""
    if start.config.max_tokens < max_tokens:
        limit = f"the model supports at most {start.config.max_tokens}"
        # The positions of a checkpoint are weights.
        other = "raise model.max_tokens" if start.checkpoint is None else "start from a model with more positions"
        message = f"text.max_tokens is {max_tokens}, but {limit}. Lower it, or {other}."
        raise UsageError(message, code="too-long", value=max_tokens)
    if isinstance(start.model, TransformersMaskedLM):
        return start
    # Fail now, not after days of training, if the model cannot be saved.
    write_config(start.config, start.architecture)
    if start.kind not in ARCHITECTURES[start.architecture].classes:
        remedy = "Set text.kind to sentences or across_documents, or use another model"
        message = f"{start.architecture} has no pair head in the Hugging Face format. {remedy}."
        raise UsageError(message, code="no-pair-head", value=start.architecture)
    return start


def start_sha256(checkpoint: Path | None) -> str:
    """The hash of the initial weights, so that changed weights in the same folder are detected.

    Empty without a checkpoint. A damaged checkpoint is reported when it is loaded.
    """
    try:
        return "" if checkpoint is None else weights_sha256(checkpoint)
    except CheckpointError:
        return ""


def checkpoint_name(checkpoint: Path) -> str:
    """The name of a checkpoint: that of its folder, or of its run if the folder is `model`."""
    if (name := hub_name(checkpoint)) is not None:
        return name
    path = checkpoint.resolve()
    return path.parent.name if path.name == "model" else path.name


def write_checkpoint(
    folder: Path, start: Start, weights: Mapping[str, Tensor], *, card: Card, run: dict[str, Any]
) -> None:
    """Save the model with its gathered weights as a Hugging Face folder, replacing an existing one."""
    checkpoint.save(
        folder,
        _with_weights(start, weights),
        architecture=start.architecture,
        tokenizer=start.tokenizer,
        card=card,
        run=run,
        replace=True,
    )


def _with_weights(start: Start, weights: Mapping[str, Tensor]) -> nn.Module:
    if isinstance(start.model, TransformersMaskedLM):
        return copy_with_weights(start.model, weights)
    with torch.device("meta"):
        model = checkpoint.build(start.config, start.kind)
    model.load_state_dict(weights, assign=True)
    return model


def _new_model(
    tokenizer: Path, pieces: int, kind: str, *, preset_name: str | None, overrides: Mapping[str, Any]
) -> Start:
    if preset_name is not None:
        config = override_config(replace(preset(preset_name), vocab=pieces), overrides)
    else:
        config = override_config(None, {"vocab": pieces, **overrides})
    if config.vocab < pieces:
        message = f"model.vocab is {config.vocab}, but the tokenizer has {pieces} tokens. Remove it."
        raise UsageError(message, code="vocab-too-small", value=config.vocab)
    return Start(checkpoint.build(config, kind), config, matching_architecture(config), tokenizer, kind)


def _load(start: Path, tokenizer: Path, kind: str, *, overrides: Mapping[str, Any], transfer: bool) -> Start:
    check_layout(start)
    same = same_tokenizer(start, tokenizer)
    if not same and not transfer:
        raise tokenizer_mismatch(start, tokenizer)
    loaded = checkpoint.load(start, kind=kind, new_head=True)
    if isinstance(loaded.model, TransformersMaskedLM):
        return Start(
            loaded.model,
            loaded.config,
            loaded.architecture,
            start if same else tokenizer,
            kind,
            checkpoint=start,
            drawn=loaded.new,
            unused=loaded.unused,
        )
    config, weights, counts = loaded.config, loaded.model.state_dict(), None
    if not same:
        new = token_ids(tokenizer)
        roles, parts = map_special_tokens(start, tokenizer), split_new_tokens(start, tokenizer)
        std, old = config.initial_std, token_ids(start)
        weights, counts = transfer_embeddings(loaded.model, old, new, roles=roles, parts=parts, std=std)
        config = replace(config, vocab=max(new.values()) + 1)
    model, config = build_model(weights, config, overrides, kind=kind, where=start)
    return Start(
        model,
        config,
        loaded.architecture,
        start if same else tokenizer,
        kind,
        checkpoint=start,
        transferred=counts,
        drawn=loaded.new,
        unused=loaded.unused,
    )


def load_teacher_encoder(folder: Path, tokenizer: Path, *, transfer: bool, max_tokens: int) -> Encoder:
    """The encoder of a checkpoint, with embeddings transferred to another tokenizer if `transfer` allows it."""
    # Initializing the unused language-model head must not advance the random state of the run.
    with torch.random.fork_rng(devices=[]):
        start = check_start(_load(folder, tokenizer, "masked", overrides={}, transfer=transfer), max_tokens=max_tokens)
    if not isinstance(start.model, MaskedLM):
        expected = ", ".join(ARCHITECTURES)
        message = f"the teacher in {folder} runs on the transformers backend; expected one of {expected}."
        raise UsageError(message, code="unsupported-architecture", value=start.architecture)
    return start.model.encoder


def build_model(
    weights: Mapping[str, Tensor], config: EncoderConfig, overrides: Mapping[str, Any], *, kind: str, where: Path
) -> tuple[nn.Module, EncoderConfig]:
    """A model with these weights and the overrides of [model]; RecipeError if they change its shape."""
    config = override_config(config, overrides)
    with torch.device("meta"):
        model = checkpoint.build(config, kind)
    try:
        model.load_state_dict(weights, assign=True)
    except RuntimeError as error:
        message = f"[model] does not match the shape of the weights in {where}: {error}"
        raise RecipeError(message, code="shape-mismatch", value=where) from None
    return model.requires_grad_(True), config


def override_config(config: EncoderConfig | None, overrides: Mapping[str, Any]) -> EncoderConfig:
    """A configuration with some fields overridden, or built from them alone; RecipeError for an unknown field."""
    _check_fields(overrides)
    if config is not None:
        return replace(config, **overrides)
    missing = [
        field.name for field in fields(EncoderConfig) if field.default is MISSING and field.name not in overrides
    ]
    if missing:
        message = f"[model] lacks {', '.join(missing)}. Set every size of the model, or a preset that has them."
        raise RecipeError(message, code="missing-key", value=f"model.{missing[0]}")
    return EncoderConfig(**overrides)


def _check_fields(overrides: Mapping[str, Any]) -> None:
    """RecipeError for a key that EncoderConfig does not have, or a value of another type."""
    hints = get_type_hints(EncoderConfig)
    if unknown := sorted(overrides.keys() - hints.keys()):
        message = f"[model] has the unknown key {unknown[0]}; expected some of {', '.join(hints)}."
        raise RecipeError(message, code="unknown-key", value=f"model.{unknown[0]}")
    for name, value in overrides.items():
        types = get_args(hints[name]) or (hints[name],)
        if type(value) not in types and not (float in types and type(value) is int):
            expected = " or ".join(one.__name__ for one in types if one is not type(None))
            message = f"[model] has {name} = {value!r}; expected a value of type {expected}."
            raise RecipeError(message, code="invalid-value", value=f"model.{name}")


def check_model_table(preset_name: str | None, overrides: Mapping[str, Any], *, new: bool) -> None:
    """RecipeError or UsageError where a preset and the [model] table over it describe no encoder.

    With `new` they describe all of it but the vocabulary, which is the tokenizer's; else the rest is a checkpoint's.
    """
    if preset_name is not None:
        override_config(preset(preset_name), overrides)
    elif new:
        override_config(None, {"vocab": 1, **overrides})
    else:
        _check_fields(overrides)
