"""MPNet as a BERT without its relative positions: another model, for Lexome's own encoder to train on.

V vocabulary, T positions, D width, S segments
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lexome.errors import CheckpointError, UsageError
from lexome.models.foreign.result import Foreign
from lexome.models.foreign.tokens import without_lengths
from lexome.models.source import HUGGING_FACE, layout_of, read_settings
from lexome.models.tokenizer_files import tokenizer_files
from lexome.models.weights import read_weights

# What can be left out of a model, where the user asks for it by name.
DROPS = ("relative-positions",)

# Its positions count from 2 on: the rows before are for padding, whatever number that has in the vocabulary.
FIRST_POSITION = 2

# BERT has two kinds of segments, MPNet has none: added as zeros, they change nothing.
SEGMENTS = 2

_POSITIONS = "bert.embeddings.position_embeddings.weight"
_RELATIVE = "encoder.relative_attention_bias.weight"
_BUFFER = "embeddings.position_ids"

# Parts of names, theirs to BERT's.
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


def read_without(folder: Path, drop: str) -> Foreign:
    """A folder's model without what `drop` names. It does not compute what the folder's model does."""
    if drop not in DROPS:
        raise UsageError(f"drop {drop!r}; expected {' or '.join(DROPS)}. Leave it out to keep the model as it is.")
    if not folder.is_dir() or layout_of(folder) != HUGGING_FACE:
        raise CheckpointError(
            f"{folder}: expected a folder of an MPNet in Hugging Face's form to leave {drop} out of. Unpack an archive "
            "first, and convert any other model without --drop."
        )
    settings, weights = read_settings(folder), read_weights(folder)
    config, kept, left_out = as_bert(settings, weights, where=str(folder))
    return Foreign(HUGGING_FACE, config, kept, _tokenizer(folder), left_out)


def as_bert(
    settings: Mapping[str, Any], weights: Mapping[str, Tensor], *, where: str
) -> tuple[dict[str, Any], dict[str, Tensor], tuple[str, ...]]:
    """An MPNet's config.json and weights as BERT's, and the names of those that were left out."""
    _check(settings, weights, where)
    left_out = tuple(sorted(name for name in weights if name.endswith((_RELATIVE, _BUFFER))))
    kept = {_bert_name(name): tensor for name, tensor in weights.items() if name not in left_out}
    if _POSITIONS not in kept:
        raise CheckpointError(f"{where}: no embeddings.position_embeddings; expected a whole MPNet. Fetch it again.")
    kept[_POSITIONS] = kept[_POSITIONS][FIRST_POSITION:]
    segments_SD = torch.zeros(SEGMENTS, kept[_POSITIONS].shape[1], dtype=kept[_POSITIONS].dtype)
    kept["bert.embeddings.token_type_embeddings.weight"] = segments_SD
    return _config(settings, kept), kept, left_out


def _tokenizer(folder: Path) -> dict[str, bytes]:
    files = {file.name: file.read_bytes() for file in tokenizer_files(folder)}
    if files and "tokenizer.json" not in files:
        # Read as any vocab.txt, it would begin texts with BERT's [CLS], which MPNet has and never used.
        raise CheckpointError(
            f"{folder}: {', '.join(files)}, but no tokenizer.json, which says how MPNet begins and ends a text. "
            "Save the tokenizer with transformers, and put it there."
        )
    return without_lengths(files)


def _check(settings: Mapping[str, Any], weights: Mapping[str, Tensor], where: str) -> None:
    if settings.get("model_type") != "mpnet":
        raise CheckpointError(
            f"{where}: model_type is {settings.get('model_type')!r}; relative positions can be left out of an mpnet. "
            "Leave out --drop to convert it as it is."
        )
    if settings.get("hidden_act", "gelu") != "gelu":
        # The head for words has gelu whatever the layers have, and BERT's has what the layers have.
        raise CheckpointError(f"{where}: hidden_act is {settings['hidden_act']!r}; expected gelu, as in every MPNet.")
    if not any(name.endswith(_RELATIVE) for name in weights):
        raise CheckpointError(f"{where}: no {_RELATIVE}; expected a whole MPNet. Fetch it again.")


def _bert_name(name: str) -> str:
    name = name.removeprefix("mpnet.")
    for theirs, bert in _RENAMED.items():
        name = name.replace(theirs, bert)
    return f"bert.{name}" if name.startswith(("embeddings.", "encoder.", "pooler.")) else name


def _config(settings: Mapping[str, Any], weights: Mapping[str, Tensor]) -> dict[str, Any]:
    """BERT's config.json; it names a head for words only where there is one, which sentence encoders' do not."""
    kept = {name: held for name, held in settings.items() if name != "relative_attention_num_buckets"}
    words = any(name.startswith("cls.predictions.") for name in weights)
    return {
        **kept,
        "model_type": "bert",
        "architectures": ["BertForMaskedLM" if words else "BertModel"],
        "max_position_embeddings": weights[_POSITIONS].shape[0],
        "type_vocab_size": SEGMENTS,
    }
