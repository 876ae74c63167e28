"""Megatron-LM's BERT (mp_rank_00/model_optim_rng.pt, one file per tensor-parallel rank) and NVIDIA's .nemo archives.

H heads, K head size; the fused query, key and value projection has 3HK rows.
"""

import re
from argparse import Namespace
from collections.abc import Iterable
from typing import Any

import torch

from lexome.errors import CheckpointError
from lexome.models.foreign import legacy_hf
from lexome.models.foreign.legacy_hf import flat_tensors, load_pickle
from lexome.models.foreign.release import (
    ForeignCheckpoint,
    Release,
    missing_weights_error,
    read_json,
    unknown_weights_error,
)
from lexome.models.hf_folder import wordpiece_files

LAYOUT = "megatron"

Weights = dict[str, torch.Tensor]

_LAYER = r"language_model\.(?:transformer|encoder)\.layers\.(\d+)\."
_TOP = r"language_model\.(?:transformer|encoder)\."
# Key, Hugging Face's key, and the dimension along which it is sharded over ranks (None: replicated).
_RENAMED: tuple[tuple[str, str, int | None], ...] = (
    (r"language_model\.embedding\.word_embeddings\.weight", "bert.embeddings.word_embeddings.weight", 0),
    (r"language_model\.embedding\.position_embeddings\.weight", "bert.embeddings.position_embeddings.weight", None),
    (r"language_model\.embedding\.tokentype_embeddings\.weight", "bert.embeddings.token_type_embeddings.weight", None),
    (_LAYER + r"input_layernorm\.(weight|bias)", r"bert.encoder.layer.\1.attention.ln.\2", None),
    (_LAYER + r"(?:self_)?attention\.dense\.weight", r"bert.encoder.layer.\1.attention.output.dense.weight", 1),
    (_LAYER + r"(?:self_)?attention\.dense\.bias", r"bert.encoder.layer.\1.attention.output.dense.bias", None),
    (_LAYER + r"post_attention_layernorm\.(weight|bias)", r"bert.encoder.layer.\1.ln.\2", None),
    (_LAYER + r"mlp\.dense_h_to_4h\.(weight|bias)", r"bert.encoder.layer.\1.intermediate.dense.\2", 0),
    (_LAYER + r"mlp\.dense_4h_to_h\.weight", r"bert.encoder.layer.\1.output.dense.weight", 1),
    (_LAYER + r"mlp\.dense_4h_to_h\.bias", r"bert.encoder.layer.\1.output.dense.bias", None),
    (_TOP + r"final_layernorm\.(weight|bias)", r"bert.encoder.ln.\1", None),
    (r"language_model\.pooler\.dense\.(weight|bias)", r"bert.pooler.dense.\1", None),
    (r"lm_head\.dense\.(weight|bias)", r"cls.predictions.transform.dense.\1", None),
    (r"lm_head\.layernorm\.(weight|bias)", r"cls.predictions.transform.LayerNorm.\1", None),
    (r"lm_head\.bias", "cls.predictions.bias", 0),
    (r"binary_head\.(weight|bias)", r"cls.seq_relationship.\1", None),
)
_FUSED_QKV = re.compile(_LAYER + r"(?:self_)?attention\.query_key_value\.(weight|bias)")

_EMBEDDINGS = "bert.embeddings.word_embeddings.weight"
_REQUIRED = (
    _EMBEDDINGS,
    "bert.embeddings.position_embeddings.weight",
    "bert.encoder.layer.0.intermediate.dense.weight",
    "bert.encoder.layer.0.attention.self.query.weight",
)


def find_ranks(release: Release) -> list[str]:
    """The files with the weights, in the order of their ranks; empty if there are none."""
    if release.selected is not None:
        return [release.selected] if _is_megatron(release, release.selected) else []
    folder = ""
    if "latest_checkpointed_iteration.txt" in release.names:
        last = release.read("latest_checkpointed_iteration.txt").decode(errors="replace").strip()
        folder = f"iter_{int(last):07d}/" if last.isdecimal() else f"{last}/"
    stages = release.find(f"{folder}mp_rank_??_*/*.pt")
    if stages:
        message = f"{release.path}: {stages[0]} is a pipeline stage. Convert it to one stage with Megatron's own tool."
        raise CheckpointError(message, code="unsupported-format", value=stages[0])
    ranks = release.find(f"{folder}mp_rank_??/*.pt")
    for rank, name in enumerate(ranks):
        if f"mp_rank_{rank:02d}/" not in name:
            message = f"{release.path}: mp_rank_{rank:02d} is missing; there are {len(ranks)} other ranks. Add it."
            raise CheckpointError(message, code="missing-file", value=f"mp_rank_{rank:02d}")
    return ranks or [name for name in release.find("*.pt") if _is_megatron(release, name)][:1]


def _is_megatron(release: Release, name: str) -> bool:
    """Whether a single .pt is Megatron's: by its name, or by a configuration with Megatron's keys beside it."""
    if not name.endswith(".pt"):
        return False
    if name.startswith(("model_optim_rng", "MegatronBERT")):
        return True
    return any("num_layers" in read_json(release, config) for config in release.find("*config*.json"))


def read(release: Release) -> ForeignCheckpoint:
    """The checkpoint with its ranks merged."""
    names = find_ranks(release)
    saved = [load_pickle(release, name) for name in names]
    where = release.where(names[0])
    for rank in saved:
        if not isinstance(rank, dict) or not isinstance(rank.get("model"), dict):
            message = f"{where}: no 'model' in it; expected a Megatron checkpoint."
            raise CheckpointError(message, code="not-weights", value=where)
    args = saved[0].get("args")
    settings = config_files(release) | (vars(args) if isinstance(args, Namespace) else {})
    settings["checkpoint_version"] = saved[0].get("checkpoint_version") or 0
    left_out = [key for key in saved[0] if key not in ("model", "args", "checkpoint_version")]
    return convert(release, [rank.pop("model") for rank in saved], settings, where=where, left_out=left_out)


def config_files(release: Release) -> dict[str, Any]:
    """The merged settings of a release's JSON files."""
    settings: dict[str, Any] = {}
    for name in release.find("*config*.json"):
        if name != "tokenizer_config.json":
            settings |= read_json(release, name)
    return settings


def convert(
    release: Release,
    ranks: list[dict[str, Any]],
    settings: dict[str, Any],
    *,
    where: str,
    left_out: Iterable[str] = (),
    layout: str = LAYOUT,
) -> ForeignCheckpoint:
    """A MegatronBert in Hugging Face's format, from the weights of each rank and the training settings.

    Empties `ranks` to save memory.
    """
    _check_norm_order(settings, where)
    heads = settings.get("num_attention_heads")
    if not isinstance(heads, int) or heads < 1:
        message = f"{where}: unknown number of attention heads. Add a config.json with num_attention_heads."
        raise CheckpointError(message, code="missing-key", value="num_attention_heads")
    version = settings.get("checkpoint_version", 0)
    if not isinstance(version, int | float):
        message = f"{where}: checkpoint version {version!r}; expected a number."
        raise CheckpointError(message, code="unknown-version", value=version)
    wrappers = re.compile(r"^(?:module\.|model\.|bert_model\.)+")
    flat = [{wrappers.sub("", key): t for key, t in flat_tensors(rank, where=where).items()} for rank in ranks]
    # Merging frees the shards one by one, so that there are never two copies of a large model.
    ranks.clear()
    weights = _merge_ranks(flat, heads, float(version), where)
    for name in _REQUIRED:
        if name not in weights:
            raise missing_weights_error(where, name, layout="BERT")
    rows, width = weights["bert.encoder.layer.0.attention.self.query.weight"].shape
    if rows != width:
        message = f"{where}: projections have {rows} of {width} rows. Pass the folder with all mp_rank_XX."
        raise CheckpointError(message, code="missing-rank", value=width // rows)
    config = _config(settings, weights, heads)
    return ForeignCheckpoint(layout, config, weights, _tokenizer(release, config), tuple(sorted(left_out)))


def split_versioned_qkv(fused: torch.Tensor, heads: int, version: float) -> tuple[torch.Tensor, ...]:
    """Query, key and value of a fused projection, whose row order depends on the checkpoint's version.

    0: [3, H, K]    1: [H, K, 3]    2 and later: [H, 3, K]
    """
    rows, *rest = fused.shape
    if rows % (3 * heads):
        message = f"a fused projection has {rows} rows; expected a multiple of 3 x {heads} heads. Check the heads."
        raise CheckpointError(message, code="heads-mismatch", value=heads)
    head_size = rows // (3 * heads)
    if version >= 2:
        parts = fused.reshape(heads, 3, head_size, *rest).unbind(1)
    elif version == 1:
        parts = fused.reshape(heads, head_size, 3, *rest).unbind(2)
    elif version == 0:
        parts = fused.reshape(3, heads, head_size, *rest).unbind(0)
    else:
        message = f"checkpoint version {version}; expected 0, 1, or at least 2."
        raise CheckpointError(message, code="unknown-version", value=version)
    return tuple(part.reshape(heads * head_size, *rest) for part in parts)


def _check_norm_order(settings: dict[str, Any], where: str) -> None:
    """Raise unless the model is pre-norm: the keys would be the same, and every output wrong."""
    block, post_norm = settings.get("transformer_block_type", "pre_ln"), "apply_residual_connection_post_layernorm"
    if block != "pre_ln" or settings.get(post_norm):
        message = f"{where}: transformer_block_type {block!r}, {post_norm}; only pre-norm blocks are supported."
        raise CheckpointError(message, code="unsupported-setting", value=block)


def _merge_ranks(ranks: list[Weights], heads: int, version: float, where: str) -> Weights:
    names = list(ranks[0])
    if heads % len(ranks):
        message = f"{where}: {heads} heads cannot be sharded over {len(ranks)} ranks."
        raise CheckpointError(message, code="heads-mismatch", value=heads)
    for rank in ranks[1:]:
        if set(rank) != set(names):
            odd = sorted(set(rank) ^ set(names))[0]
            message = f"{where}: not every rank has {odd!r}. Use files of one checkpoint."
            raise CheckpointError(message, code="rank-mismatch", value=odd)
    weights: Weights = {}
    unknown = []
    for name in names:
        tensors = [rank.pop(name) for rank in ranks]
        fused = _FUSED_QKV.fullmatch(name)
        matches = ((match.expand(key), dim) for old, key, dim in _RENAMED if (match := re.fullmatch(old, name)))
        renamed = next(matches, None)
        if fused:
            parts = [split_versioned_qkv(tensor, heads // len(ranks), version) for tensor in tensors]
            for part, shards in zip(("query", "key", "value"), zip(*parts, strict=True), strict=True):
                weights[f"bert.encoder.layer.{fused[1]}.attention.self.{part}.{fused[2]}"] = _cat(shards, 0)
        elif renamed is not None:
            key, dimension = renamed
            weights[key] = _replicated_tensor(tensors, name, where) if dimension is None else _cat(tensors, dimension)
        else:
            unknown.append(name)
    if unknown:
        raise unknown_weights_error(where, unknown, layout="Megatron's BERT")
    return weights


def _cat(tensors: Iterable[torch.Tensor], dimension: int) -> torch.Tensor:
    parts = list(tensors)
    return parts[0] if len(parts) == 1 else torch.cat(parts, dimension)


def _replicated_tensor(tensors: list[torch.Tensor], name: str, where: str) -> torch.Tensor:
    for other in tensors[1:]:
        if not torch.equal(tensors[0], other):
            message = f"{where}: ranks differ in {name!r}. Use files of one checkpoint."
            raise CheckpointError(message, code="rank-mismatch", value=name)
    return tensors[0]


def _config(settings: dict[str, Any], weights: Weights, heads: int) -> dict[str, Any]:
    rows, width = weights[_EMBEDDINGS].shape
    segments = weights.get("bert.embeddings.token_type_embeddings.weight")
    layers = {name.split(".")[3] for name in weights if name.startswith("bert.encoder.layer.")}
    # The fused kernels use gelu's tanh approximation.
    fused = ("openai_gelu", "bias_gelu_fusion", "bias_activation_fusion")
    masked, pairs = "cls.predictions.bias" in weights, "cls.seq_relationship.weight" in weights
    architecture = {(True, True): "ForPreTraining", (True, False): "ForMaskedLM"}.get((masked, pairs), "Model")
    return {
        "model_type": "megatron-bert",
        "architectures": [f"MegatronBert{architecture}"],
        # Including the rows that pad the table to a multiple of 128: they were trained, and ids stay the same.
        "vocab_size": rows,
        "hidden_size": width,
        "num_hidden_layers": len(layers),
        "num_attention_heads": heads,
        "intermediate_size": weights["bert.encoder.layer.0.intermediate.dense.weight"].shape[0],
        "max_position_embeddings": weights["bert.embeddings.position_embeddings.weight"].shape[0],
        "type_vocab_size": 0 if segments is None else segments.shape[0],
        "hidden_act": "gelu_new" if any(settings.get(name) is True for name in fused) else "gelu",
        "hidden_dropout_prob": settings.get("hidden_dropout", 0.1),
        "attention_probs_dropout_prob": settings.get("attention_dropout", 0.1),
        # Megatron's default, not the 1e-12 of Hugging Face's class.
        "layer_norm_eps": settings.get("layernorm_epsilon", 1e-5),
        "pad_token_id": 0,
    }


def _tokenizer(release: Release, config: dict[str, Any]) -> dict[str, bytes]:
    """Tokenizer files from a vocab.txt, whose name NeMo prefixes with a hash or replaces by the setting's name."""
    names = [*release.find("vocab.txt"), *release.find("*vocab*.txt"), *release.find("tokenizer.vocab_file")]
    if not names:
        return {}
    return wordpiece_files(
        release.read(names[0]), rows=config["vocab_size"], max_tokens=config["max_position_embeddings"]
    )


# NeMo archives

NEMO_LAYOUT = "nemo"

Scalar = str | int | float | bool | None

_YAML_LINE = re.compile(r"(?P<indent> *)(?P<key>[\w.\-/]+|'[^']*'|\"[^\"]*\"):(?: +(?P<value>.*))?")
_VERSION_FILE = "megatron_checkpoint_version.json"


def find_nemo_weights(release: Release) -> list[str]:
    """The files with the weights, in the order of their ranks; empty if this is not NeMo's."""
    if release.selected is not None:
        return []
    return release.find("model_weights.ckpt") or release.find("mp_rank_??/model_weights.ckpt")


def read_nemo(release: Release) -> ForeignCheckpoint:
    """The encoder in the archive: Megatron's BERT, or Hugging Face's with NeMo's prefix."""
    names = find_nemo_weights(release)
    where = release.where(names[0])
    ranks = [_state_dict(release, name) for name in names]
    if any(".embeddings.word_embeddings" in name for name in ranks[0]):
        return legacy_hf.from_state(release, ranks[0], config_files(release), where=where, layout=NEMO_LAYOUT)
    settings = _nemo_settings(release)
    settings["checkpoint_version"] = _nemo_version(release, settings, ranks[0])
    return convert(release, ranks, settings, where=where, layout=NEMO_LAYOUT)


def _state_dict(release: Release, name: str) -> dict[str, Any]:
    saved = load_pickle(release, name)
    state = saved.get("state_dict", saved) if isinstance(saved, dict) else None
    if not isinstance(state, dict):
        message = f"{release.where(name)}: expected a state dict. Download the archive again."
        raise CheckpointError(message, code="not-weights", value=name)
    return {str(key): item for key, item in state.items()}


def _nemo_settings(release: Release) -> dict[str, Any]:
    """All settings by the last part of their key: of model_config.yaml, updated by the encoder's own file."""
    settings: dict[str, Any] = {}
    for name in release.find("model_config.yaml"):
        text = release.read(name).decode("utf-8", errors="replace")
        # The shallowest key wins: the model's, not a data loader's.
        for key, setting in sorted(yaml_scalars(text).items(), key=lambda item: -item[0].count(".")):
            settings[key.rpartition(".")[2]] = setting
    return settings | config_files(release)


def _nemo_version(release: Release, settings: dict[str, Any], weights: dict[str, Any]) -> float:
    """The checkpoint version, which determines the row order of fused projections.

    NeMo before 1.5 used Megatron's own classes and defaulted to 0. Later versions have their own (`self_attention`),
    with version 2 unless megatron_legacy is set because the weights came from Megatron.
    """
    if _VERSION_FILE in release.names:
        return float(read_json(release, _VERSION_FILE).get("checkpoint_version") or 0)
    if "megatron_legacy" in settings:
        return 0.0 if settings["megatron_legacy"] is True else 2.0
    return 2.0 if any(".self_attention." in name for name in weights) else 0.0


def yaml_scalars(text: str) -> dict[str, Scalar]:
    """The scalars of nested block mappings under dotted keys; lists and block strings are ignored.

    A model_config.yaml needs no more of YAML: anchors, tags and flow mappings, which can be unsafe, are read as plain
    strings.
    """
    scalars: dict[str, Scalar] = {}
    path: list[tuple[int, str]] = []
    for line in text.splitlines():
        match = _YAML_LINE.fullmatch(line.rstrip())
        if match is None:
            continue
        indent = len(match["indent"])
        while path and path[-1][0] >= indent:
            path.pop()
        key = match["key"].strip("'\"")
        name = ".".join([*(part for _, part in path), key])
        if match["value"] is None:
            path.append((indent, key))
        else:
            scalars[name] = _scalar(match["value"])
    return scalars


def _scalar(text: str) -> Scalar:
    if text[:1] in ("'", '"'):
        return text[1:].partition(text[0])[0]
    text = text.partition(" #")[0].strip()
    constants: dict[str, Scalar] = {"true": True, "false": False, "null": None, "~": None, "": None}
    if text.lower() in constants:
        return constants[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
