"""Hugging Face's own folders of before safetensors: pickled weights, old names, no model_type in config.json."""

import json
import pickle
import re
import zipfile
from argparse import Namespace
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from lexome.errors import CheckpointError
from lexome.models.foreign.release import ForeignCheckpoint, Release, read_json
from lexome.models.tokenizer_files import FILES, byte_bpe_files, read_merges, wordpiece_files


def load_pickle(release: Release, name: str) -> Any:
    """What was saved: tensors, containers, plain values and argparse's Namespace; anything else is refused.

    A zip on disk is mapped, so its tensors take no memory until they are used.
    """
    path = release.on_disk(name)
    try:
        with torch.serialization.safe_globals([Namespace]):
            if path is not None:
                return torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
            with release.open(name) as stream:
                return torch.load(stream, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise _refused(release.where(name), str(error)) from None
    # A damaged file fails anywhere inside torch; MemoryError is a length that it only claims.
    except Exception as error:
        first = str(error).partition("\n")[0]
        raise CheckpointError(
            f"{release.where(name)} is damaged or no pickle of torch ({type(error).__name__}: {first}). Fetch it again."
        ) from None


def flat_tensors(tree: Mapping[Any, Any], *, where: str) -> dict[str, torch.Tensor]:
    """The tensors of nested dictionaries under names joined by dots; anything else inside raises."""
    return dict(_walk(tree, "", where))


def _walk(tree: Mapping[Any, Any], prefix: str, where: str) -> Iterator[tuple[str, torch.Tensor]]:
    for key, item in tree.items():
        name = f"{prefix}{key}"
        if isinstance(item, Mapping):
            yield from _walk(item, f"{name}.", where)
        elif isinstance(item, torch.Tensor):
            # Strides of zero let a few bytes claim to be a terabyte, which the next copy would ask for.
            held = item.untyped_storage().nbytes()
            if item.layout is not torch.strided or item.numel() * item.element_size() > held:
                raise CheckpointError(
                    f"{where}: {name} claims the shape {tuple(item.shape)} but holds {held:,} bytes. "
                    "Don't use the file."
                )
            yield name, item
        elif item is not None:
            raise CheckpointError(f"{where}: {name} is a {type(item).__name__}; expected a tensor. Check the file.")


def _refused(where: str, message: str) -> CheckpointError:
    named = re.search(r"GLOBAL ([\w.]+)", message)
    if named is None:
        first = message.partition("\n")[0]
        return CheckpointError(f"{where} is damaged or no pickle of weights ({first}). Fetch it again.")
    return CheckpointError(
        f"{where} asks for {named[1]}, which a file of weights has no need of; nothing was run. If you trust where it "
        "comes from, load it in the program that wrote it and save its weights alone with torch.save."
    )


LAYOUT = "pickle"

Weights = dict[str, torch.Tensor]

# The prefix of the encoder's weights, by model_type.
_PREFIXES = {
    "bert": "bert.",
    "roberta": "roberta.",
    "megatron-bert": "bert.",
    "distilbert": "distilbert.",
    "electra": "electra.",
}
_BODY = ("embeddings.", "encoder.layer.", "encoder.ln.", "transformer.layer.", "pooler.dense.", "embeddings_project.")
_CLASSES = {"MegatronBert": "megatron-bert", "DistilBert": "distilbert", "Roberta": "roberta", "Bert": "bert"}

# Second names of weights that are saved under their first one too.
_TIED = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
    "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
    "lm_head.decoder.bias": "lm_head.bias",
    "vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight",
}
_BUFFERS = re.compile(r".*embeddings\.(position_ids|token_type_ids)")
_INDEX = "pytorch_model.bin.index.json"


def find_weights(release: Release) -> list[str]:
    """The pickles of the model: the one named, the shards that an index lists, or pytorch_model.bin."""
    if not _configs(release):
        return []
    if release.chosen is not None:
        return [release.chosen] if release.chosen.endswith((".bin", ".pt", ".pth", ".ckpt")) else []
    if release.find("*.safetensors"):
        return []
    if _INDEX in release.names:
        table = read_json(release, _INDEX).get("weight_map")
        return sorted({str(name) for name in table.values()}) if isinstance(table, dict) else []
    return release.find("pytorch_model.bin") or (release.find("*.bin") + release.find("*.pt"))[:1]


def read(release: Release) -> ForeignCheckpoint:
    """The folder as transformers would write it today."""
    state: dict[str, Any] = {}
    names = find_weights(release)
    for name in names:
        if name not in release.names:
            raise CheckpointError(f"{release.path}: {name} is missing, which {_INDEX} lists. Put all shards together.")
        saved = load_pickle(release, name)
        if not isinstance(saved, Mapping):
            raise CheckpointError(f"{release.where(name)}: a {type(saved).__name__}; expected a dictionary of weights.")
        state |= saved.get("state_dict", saved)
    return from_state(release, state, read_json(release, _configs(release)[0]), where=release.where(names[0]))


def _configs(release: Release) -> list[str]:
    """The files that may describe the model, the likeliest first."""
    return release.find("config.json") + release.find("bert_config.json")


def from_state(
    release: Release, state: Mapping[str, Any], config: dict[str, Any], *, where: str, layout: str = LAYOUT
) -> ForeignCheckpoint:
    """The model of a state dict and its configuration, under today's names."""
    weights = {_today(name): tensor for name, tensor in flat_tensors(state, where=where).items()}
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


def _today(name: str) -> str:
    """A weight's name of today: TensorFlow's words for a norm, and wrappers' prefixes, are gone from it."""
    name = re.sub(r"^(?:module\.|bert_model\.)+", "", name)
    name = re.sub(r"(LayerNorm)\.gamma$", r"\1.weight", name)
    return re.sub(r"(LayerNorm)\.beta$", r"\1.bias", name)


def _model_type(config: dict[str, Any], weights: Weights, where: str) -> str:
    """The model_type: as it is said, or else by the class that saved the folder, or by the weights' names."""
    if isinstance(config.get("model_type"), str):
        return str(config["model_type"])
    classes = config.get("architectures")
    named = str(classes[0]) if isinstance(classes, list) and classes else ""
    for start, kind in _CLASSES.items():
        if named.startswith(start):
            return kind
    for kind in ("roberta", "distilbert", "electra", "bert"):
        if any(name.startswith(f"{kind}.") for name in weights):
            norms = any(name.endswith(".attention.ln.weight") for name in weights)
            return "megatron-bert" if kind == "bert" and norms else kind
    if any(name.startswith("encoder.layer.0.attention.output.LayerNorm") for name in weights):
        return "bert"
    raise CheckpointError(
        f"{where}: neither its config.json nor its weights say what kind of model this is. "
        'Add its "model_type" to config.json.'
    )


def _untie(weights: Weights) -> list[str]:
    """Take second names away, or give them the first where that is missing; the names taken away."""
    gone = []
    for second, first in _TIED.items():
        if second not in weights:
            continue
        if first not in weights and second.endswith(".bias"):
            weights[first] = weights.pop(second)
        elif first in weights and torch.equal(weights[second], weights[first]):
            del weights[second]
            gone.append(second)
    return gone


def _tokenizer(release: Release, kind: str, weights: Weights, config: dict[str, Any]) -> dict[str, bytes]:
    files = {name: release.read(name) for name in FILES if name in release.names}
    if "tokenizer.json" in files:
        return files
    table = next((name for name in weights if name.endswith("embeddings.word_embeddings.weight")), None)
    rows = weights[table].shape[0] if table else int(config.get("vocab_size", 0))
    longest = int(config.get("max_position_embeddings", 512))
    if "vocab.txt" in files and kind in ("bert", "megatron-bert", "distilbert", "electra"):
        lower = _json(files.get("tokenizer_config.json", b"{}")).get("do_lower_case")
        made = wordpiece_files(files["vocab.txt"], rows=rows, max_tokens=longest, lower=lower)
    elif {"vocab.json", "merges.txt"} <= set(files) and kind == "roberta":
        merges = read_merges(files["merges.txt"], name="merges.txt")
        made = byte_bpe_files(_json(files["vocab.json"]), merges, max_tokens=longest - 2)
    else:
        return files
    return made | files


def _json(content: bytes) -> dict[str, Any]:
    try:
        read: Any = json.loads(content)
    except ValueError as error:
        raise CheckpointError(f"a file of the tokenizer is not JSON ({error}). Fetch the release again.") from None
    return read if isinstance(read, dict) else {}
