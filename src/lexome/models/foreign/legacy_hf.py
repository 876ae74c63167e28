"""Hugging Face folders that need a translation: from before safetensors, and MPNet as a BERT.

Old folders have pickled weights, legacy keys and no model_type in config.json.
"""

import pickle
import re
import zipfile
from argparse import Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lexome.errors import CheckpointError, UsageError
from lexome.models.foreign.release import (
    ForeignCheckpoint,
    Release,
    damaged_error,
    missing_weights_error,
    parse_json,
    read_json,
)
from lexome.models.hf import ARCHITECTURES
from lexome.models.hf_folder import (
    FILES,
    byte_bpe_files,
    read_merges,
    read_settings,
    read_weights,
    tokenizer_files,
    without_truncation,
    wordpiece_files,
)

LAYOUT = "pickle"

Weights = dict[str, torch.Tensor]

# The prefix of the encoder's keys, by model_type.
_PREFIXES = {**{name: mapping.prefix for name, mapping in ARCHITECTURES.items()}, "electra": "electra."}
_BODY = ("embeddings.", "encoder.layer.", "encoder.ln.", "transformer.layer.", "pooler.dense.", "embeddings_project.")

# Second keys of tied weights.
_TIED = {second: first for mapping in ARCHITECTURES.values() for second, first in mapping.tied.items()}
_BUFFERS = re.compile(r".*embeddings\.(position_ids|token_type_ids)")
_INDEX = "pytorch_model.bin.index.json"


def find_weights(release: Release) -> list[str]:
    """The pickles of the model: the selected one, the shards that an index lists, or pytorch_model.bin."""
    if not _configs(release):
        return []
    if release.selected is not None:
        return [release.selected] if release.selected.endswith((".bin", ".pt", ".pth", ".ckpt")) else []
    if release.find("*.safetensors"):
        return []
    if _INDEX in release.names:
        table = read_json(release, _INDEX).get("weight_map")
        return sorted({str(name) for name in table.values()}) if isinstance(table, dict) else []
    return release.find("pytorch_model.bin") or (release.find("*.bin") + release.find("*.pt"))[:1]


def read(release: Release) -> ForeignCheckpoint:
    """The folder as current versions of transformers would write it."""
    state: dict[str, Any] = {}
    names = find_weights(release)
    for name in names:
        if name not in release.names:
            message = f"{release.path}: {name} is missing, which {_INDEX} lists. Add it."
            raise CheckpointError(message, code="missing-file", value=name)
        saved = load_pickle(release, name)
        if not isinstance(saved, Mapping):
            message = f"{release.where(name)}: a {type(saved).__name__}; expected a state dict."
            raise CheckpointError(message, code="not-weights", value=type(saved).__name__)
        state |= saved.get("state_dict", saved)
    return from_state(release, state, read_json(release, _configs(release)[0]), where=release.where(names[0]))


def _configs(release: Release) -> list[str]:
    """The files that may be the configuration, in order of preference."""
    return release.find("config.json") + release.find("bert_config.json")


def from_state(
    release: Release, state: Mapping[str, Any], config: dict[str, Any], *, where: str, layout: str = LAYOUT
) -> ForeignCheckpoint:
    """The model of a state dict and its configuration, under current keys."""
    weights = {_current_key(name): tensor for name, tensor in flat_tensors(state, where=where).items()}
    kind = _model_type(config, weights, where)
    prefix = _PREFIXES.get(kind, "")
    weights = {prefix + name if name.startswith(_BODY) else name: tensor for name, tensor in weights.items()}
    left_out = [name for name in weights if _BUFFERS.fullmatch(name)]
    for name in left_out:
        del weights[name]
    left_out += _untie(weights)
    config = config | {"model_type": kind}
    if any(name.endswith(".weight") and name in _TIED for name in weights):
        config["tie_word_embeddings"] = False
    return ForeignCheckpoint(
        layout, config, weights, _tokenizer(release, kind, weights, config), tuple(sorted(left_out))
    )


def _current_key(name: str) -> str:
    """A key without wrappers' prefixes and TensorFlow's names for layer norms."""
    name = re.sub(r"^(?:module\.|bert_model\.)+", "", name)
    name = re.sub(r"(LayerNorm)\.gamma$", r"\1.weight", name)
    return re.sub(r"(LayerNorm)\.beta$", r"\1.bias", name)


def _model_type(config: dict[str, Any], weights: Weights, where: str) -> str:
    """The model_type: declared, or else inferred from the class that saved the folder, or from the keys."""
    if isinstance(config.get("model_type"), str):
        return str(config["model_type"])
    classes = config.get("architectures")
    class_ = str(classes[0]) if isinstance(classes, list) and classes else ""
    for kind, mapping in ARCHITECTURES.items():
        if class_.startswith(mapping.classes["encoder"].removesuffix("Model")):
            return kind
    for kind in ("roberta", "distilbert", "electra", "bert"):
        if any(name.startswith(f"{kind}.") for name in weights):
            pre_norm = any(name.endswith(".attention.ln.weight") for name in weights)
            return "megatron-bert" if kind == "bert" and pre_norm else kind
    if any(name.startswith("encoder.layer.0.attention.output.LayerNorm") for name in weights):
        return "bert"
    message = f"{where}: neither config.json nor the weights determine the kind of model. Add its model_type."
    raise CheckpointError(message, code="unknown-architecture", value=class_)


def _untie(weights: Weights) -> list[str]:
    """Remove second keys of tied weights, or rename them to the first if that is missing; the keys removed."""
    removed = []
    for second, first in _TIED.items():
        if second not in weights:
            continue
        if first not in weights and second.endswith(".bias"):
            weights[first] = weights.pop(second)
        elif first in weights and torch.equal(weights[second], weights[first]):
            del weights[second]
            removed.append(second)
    return removed


def _tokenizer(release: Release, kind: str, weights: Weights, config: dict[str, Any]) -> dict[str, bytes]:
    files = {name: release.read(name) for name in FILES if name in release.names}
    if "tokenizer.json" in files:
        return files
    table = next((name for name in weights if name.endswith("embeddings.word_embeddings.weight")), None)
    rows = weights[table].shape[0] if table else int(config.get("vocab_size", 0))
    max_tokens = int(config.get("max_position_embeddings", 512))
    if "vocab.txt" in files and kind in ("bert", "megatron-bert", "distilbert", "electra"):
        settings = parse_json(files.get("tokenizer_config.json", b"{}"), where="tokenizer_config.json")
        lower = settings.get("do_lower_case")
        built = wordpiece_files(files["vocab.txt"], rows=rows, max_tokens=max_tokens, lower=lower)
    elif {"vocab.json", "merges.txt"} <= set(files) and kind == "roberta":
        merges = read_merges(files["merges.txt"], name="merges.txt")
        vocab = parse_json(files["vocab.json"], where="vocab.json")
        built = byte_bpe_files(vocab, merges, max_tokens=max_tokens - 2)
    else:
        return files
    return built | files


def load_pickle(release: Release, name: str) -> Any:
    """Unpickle tensors, containers, plain values and argparse's Namespace; anything else raises.

    A zip on disk is memory-mapped, so that its tensors use no memory until they are read.
    """
    path = release.on_disk(name)
    try:
        with torch.serialization.safe_globals([Namespace]):
            if path is not None:
                return torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
            with release.open(name) as stream:
                return torch.load(stream, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise _unpickling_error(release.where(name), str(error)) from None
    # A damaged file may fail anywhere inside torch, even with a MemoryError.
    except Exception as error:
        first = str(error).partition("\n")[0]
        raise damaged_error(release.where(name), f"{type(error).__name__}: {first}") from None


def flat_tensors(tree: Mapping[Any, Any], *, where: str) -> dict[str, torch.Tensor]:
    """The tensors of nested dictionaries under dotted names; anything else inside raises."""
    return dict(_walk(tree, "", where))


def _walk(tree: Mapping[Any, Any], prefix: str, where: str) -> Iterator[tuple[str, torch.Tensor]]:
    for key, item in tree.items():
        name = f"{prefix}{key}"
        if isinstance(item, Mapping):
            yield from _walk(item, f"{name}.", where)
        elif isinstance(item, torch.Tensor):
            # With strides of zero a few bytes can claim a terabyte, which the next copy would allocate.
            stored = item.untyped_storage().nbytes()
            if item.layout is not torch.strided or item.numel() * item.element_size() > stored:
                message = f"{where}: {name} of shape {tuple(item.shape)} has {stored:,} bytes. Do not use the file."
                raise CheckpointError(message, code="unsafe-pickle", value=name)
            yield name, item
        elif item is not None:
            message = f"{where}: {name} is a {type(item).__name__}; expected a tensor."
            raise CheckpointError(message, code="not-weights", value=name)


def _unpickling_error(where: str, message: str) -> CheckpointError:
    function = re.search(r"GLOBAL ([\w.]+)", message)
    if function is None:
        return damaged_error(where, message.partition("\n")[0])
    remedy = "Load it in the program that wrote it, and save only the weights with torch.save."
    message = f"{where} calls {function[1]}, which weights do not need; nothing was executed. {remedy}"
    return CheckpointError(message, code="unsafe-pickle", value=function[1])


# MPNet without its relative positions: a BERT with the same weights, as a starting point for further training

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
    _check_mpnet(settings, weights, folder)
    dropped = tuple(sorted(name for name in weights if name.endswith((_RELATIVE_BIAS, _BUFFER))))
    bert = {_bert_key(name): tensor for name, tensor in weights.items() if name not in dropped}
    if _POSITIONS not in bert:
        raise missing_weights_error(str(folder), "embeddings.position_embeddings", layout="MPNet")
    bert[_POSITIONS] = bert[_POSITIONS][_FIRST_POSITION:]
    segments_SD = torch.zeros(_SEGMENTS, bert[_POSITIONS].shape[1], dtype=bert[_POSITIONS].dtype)
    bert["bert.embeddings.token_type_embeddings.weight"] = segments_SD
    return ForeignCheckpoint("huggingface", _bert_config(settings, bert), bert, _mpnet_tokenizer(folder), dropped)


def _check_mpnet(settings: Mapping[str, Any], weights: Mapping[str, Tensor], folder: Path) -> None:
    model_type = settings.get("model_type")
    if model_type != "mpnet":
        message = f"{folder}: model_type is {model_type!r}; expected mpnet. Omit --drop to convert the model as it is."
        raise CheckpointError(message, code="unsupported-model", value=model_type)
    if settings.get("hidden_act", "gelu") != "gelu":
        # MPNet's masked-LM head uses gelu whatever the layers use; BERT's uses the layers' activation.
        message = f"{folder}: hidden_act is {settings['hidden_act']!r}; expected gelu, as in every MPNet."
        raise CheckpointError(message, code="unsupported-model", value=settings["hidden_act"])
    if not any(name.endswith(_RELATIVE_BIAS) for name in weights):
        raise missing_weights_error(str(folder), _RELATIVE_BIAS, layout="MPNet")


def _bert_key(name: str) -> str:
    name = name.removeprefix("mpnet.")
    for mpnet, bert in _RENAMED.items():
        name = name.replace(mpnet, bert)
    return f"bert.{name}" if name.startswith(("embeddings.", "encoder.", "pooler.")) else name


def _bert_config(settings: Mapping[str, Any], weights: Mapping[str, Tensor]) -> dict[str, Any]:
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


def _mpnet_tokenizer(folder: Path) -> dict[str, bytes]:
    files = {file.name: file.read_bytes() for file in tokenizer_files(folder)}
    if files and "tokenizer.json" not in files:
        # Read as a plain vocab.txt, it would start texts with BERT's [CLS], which MPNet has but never used.
        message = f"{folder}: {', '.join(files)}, but no tokenizer.json. Save it with transformers and add it."
        raise CheckpointError(message, code="missing-file", value="tokenizer.json")
    return without_truncation(files)
