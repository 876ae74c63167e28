"""MPNet without its relative positions: a BERT with the same weights, as a starting point for further training."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lexome.errors import CheckpointError, UsageError
from lexome.models.foreign.release import ForeignCheckpoint
from lexome.models.hf_folder import read_settings, read_weights, tokenizer_files, without_truncation

# Parts of a model that can be dropped on request.
DROPS = ("relative-positions",)

# MPNet's positions start at 2: the rows before are reserved for padding, whatever its token id.
_FIRST_POSITION = 2

# BERT has two segment types, MPNet none: added as zeros, they change nothing.
_SEGMENTS = 2

_POSITIONS = "bert.embeddings.position_embeddings.weight"
_RELATIVE_BIAS = "encoder.relative_attention_bias.weight"
_BUFFER = "embeddings.position_ids"

# Substrings of keys, MPNet's to BERT's.
_RENAMED = {
    ".attention.attn.q.": ".attention.self.query.",
    ".attention.attn.k.": ".attention.self.key.",
    ".attention.attn.v.": ".attention.self.value.",
    ".attention.attn.o.": ".attention.output.dense.",
    ".attention.LayerNorm.": ".attention.output.LayerNorm.",
    "lm_head.dense.": "cls.predictions.transform.dense.",
    "lm_head.layer_norm.": "cls.predictions.transform.LayerNorm.",
    "lm_head.": "cls.predictions.",
}


def check_drop(drop: str) -> None:
    """Raise for a part that no model can be loaded without."""
    if drop not in DROPS:
        message = f"drop {drop!r}; expected {' or '.join(DROPS)}. Omit it to keep the model."
        raise UsageError(message, code="unknown-option", value=drop)


def read_without_positions(folder: Path) -> ForeignCheckpoint:
    """The MPNet in a Hugging Face folder as a BERT without relative positions. It computes something else."""
    settings, weights = read_settings(folder), read_weights(folder)
    _check(settings, weights, folder)
    dropped = tuple(sorted(name for name in weights if name.endswith((_RELATIVE_BIAS, _BUFFER))))
    bert = {_bert_key(name): tensor for name, tensor in weights.items() if name not in dropped}
    if _POSITIONS not in bert:
        raise _incomplete(folder, "embeddings.position_embeddings")
    bert[_POSITIONS] = bert[_POSITIONS][_FIRST_POSITION:]
    segments_SD = torch.zeros(_SEGMENTS, bert[_POSITIONS].shape[1], dtype=bert[_POSITIONS].dtype)
    bert["bert.embeddings.token_type_embeddings.weight"] = segments_SD
    return ForeignCheckpoint("huggingface", _config(settings, bert), bert, _tokenizer(folder), dropped)


def _check(settings: Mapping[str, Any], weights: Mapping[str, Tensor], folder: Path) -> None:
    model_type = settings.get("model_type")
    if model_type != "mpnet":
        message = f"{folder}: model_type is {model_type!r}; expected mpnet. Omit --drop to convert the model as it is."
        raise CheckpointError(message, code="unsupported-model", value=model_type)
    if settings.get("hidden_act", "gelu") != "gelu":
        # MPNet's masked-LM head uses gelu whatever the layers use; BERT's uses the layers' activation.
        message = f"{folder}: hidden_act is {settings['hidden_act']!r}; expected gelu, as in every MPNet."
        raise CheckpointError(message, code="unsupported-model", value=settings["hidden_act"])
    if not any(name.endswith(_RELATIVE_BIAS) for name in weights):
        raise _incomplete(folder, _RELATIVE_BIAS)


def _incomplete(folder: Path, name: str) -> CheckpointError:
    message = f"{folder}: no {name}; expected a complete MPNet. Download it again."
    return CheckpointError(message, code="missing-weights", value=name)


def _bert_key(name: str) -> str:
    name = name.removeprefix("mpnet.")
    for mpnet, bert in _RENAMED.items():
        name = name.replace(mpnet, bert)
    return f"bert.{name}" if name.startswith(("embeddings.", "encoder.", "pooler.")) else name


def _config(settings: Mapping[str, Any], weights: Mapping[str, Tensor]) -> dict[str, Any]:
    """BERT's config.json; sentence encoders come without the masked-LM head."""
    kept = {name: value for name, value in settings.items() if name != "relative_attention_num_buckets"}
    masked = any(name.startswith("cls.predictions.") for name in weights)
    return {
        **kept,
        "model_type": "bert",
        "architectures": ["BertForMaskedLM" if masked else "BertModel"],
        "max_position_embeddings": weights[_POSITIONS].shape[0],
        "type_vocab_size": _SEGMENTS,
    }


def _tokenizer(folder: Path) -> dict[str, bytes]:
    files = {file.name: file.read_bytes() for file in tokenizer_files(folder)}
    if files and "tokenizer.json" not in files:
        # Read as a plain vocab.txt, it would start texts with BERT's [CLS], which MPNet has but never used.
        message = f"{folder}: {', '.join(files)}, but no tokenizer.json. Save it with transformers and add it."
        raise CheckpointError(message, code="missing-file", value="tokenizer.json")
    return without_truncation(files)
