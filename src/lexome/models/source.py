"""Where a model comes from: which layout a path has, and the settings and weights as they lie there."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lexome.errors import CheckpointError, UsageError
from lexome.models.foreign import detect
from lexome.models.foreign.release import Foreign
from lexome.models.foreign.vocab_files import without_lengths
from lexome.models.weights import PICKLED, SAFE, read_weights, tokenizer_files

# The layout of Hugging Face's folders; others have the names that lexome.models.foreign gives them.
HUGGING_FACE = "huggingface"


def layout_of(path: Path) -> str:
    """What a checkpoint's files are like: "huggingface", or a layout that foreign reads, by their names alone.

    A folder of no known layout counts as Hugging Face's, whose reader says what it lacks.
    """
    weights = [path / f"{name}{end}" for name in (SAFE, PICKLED) for end in ("", ".index.json")]
    if (path / "config.json").is_file() and any(file.is_file() for file in weights):
        return HUGGING_FACE
    found = detect(path)
    if found is None and not path.is_dir():
        raise CheckpointError(
            f"{path}: not a checkpoint that is known here. Expected a model folder, or a release of Google's BERT, "
            "fairseq's RoBERTa, Megatron, NeMo or ONNX. Of a folder in Hugging Face's form, name the folder."
        )
    return found or HUGGING_FACE


def read_settings(folder: Path) -> dict[str, Any]:
    """The config.json of a folder."""
    path = folder / "config.json"
    try:
        settings = json.loads(path.read_bytes())
    except FileNotFoundError:
        # A training's folder holds the model beside states and metrics.
        inner = folder / "model"
        do = f"Name {inner}, the model in it." if (inner / "config.json").is_file() else "Check the path."
        raise CheckpointError(f"{path}: there is no such file; expected a model folder. {do}") from None
    except ValueError as error:
        raise CheckpointError(f"{path}: not JSON: {error}") from None
    if not isinstance(settings, dict):
        raise CheckpointError(f"{path}: expected an object with the model's settings.")
    return settings


def stored_type(weights: Mapping[str, Tensor]) -> torch.dtype:
    """The type that all weights have, or float32 where they differ."""
    found = {tensor.dtype for tensor in weights.values() if tensor.is_floating_point()}
    return found.pop() if len(found) == 1 else torch.float32


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
