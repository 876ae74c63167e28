"""Megatron-LM's BERT, as it saves itself: mp_rank_00/model_optim_rng.pt, one such file for each tensor-parallel rank.

Shapes: D width, H heads, K width of a head; the packed projection has 3HK rows.
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
from lexome.models.tokenizer_files import wordpiece_files

LAYOUT = "megatron"

Weights = dict[str, torch.Tensor]

_LAYER = r"language_model\.(?:transformer|encoder)\.layers\.(\d+)\."
_TOP = r"language_model\.(?:transformer|encoder)\."
# Name, Hugging Face's name, and the dimension along which ranks hold parts of it (None: each has the whole).
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
_PACKED = re.compile(_LAYER + r"(?:self_)?attention\.query_key_value\.(weight|bias)")

_EMBEDDINGS = "bert.embeddings.word_embeddings.weight"
_NEEDED = (
    _EMBEDDINGS,
    "bert.embeddings.position_embeddings.weight",
    "bert.encoder.layer.0.intermediate.dense.weight",
    "bert.encoder.layer.0.attention.self.query.weight",
)


def find_ranks(release: Release) -> list[str]:
    """The files of weights in order of their ranks; empty where there are none."""
    if release.chosen is not None:
        return [release.chosen] if _is_megatron(release, release.chosen) else []
    folder = ""
    if "latest_checkpointed_iteration.txt" in release.names:
        last = release.read("latest_checkpointed_iteration.txt").decode(errors="replace").strip()
        folder = f"iter_{int(last):07d}/" if last.isdecimal() else f"{last}/"
    staged = release.find(f"{folder}mp_rank_??_*/*.pt")
    if staged:
        raise CheckpointError(
            f"{release.path}: {staged[0]} is a stage of pipeline parallelism; only tensor-parallel ranks are joined. "
            "Save it with Megatron's own tool for one pipeline stage."
        )
    ranks = release.find(f"{folder}mp_rank_??/*.pt")
    for rank, name in enumerate(ranks):
        if f"mp_rank_{rank:02d}/" not in name:
            raise CheckpointError(f"{release.path}: mp_rank_{rank:02d} is missing among {len(ranks)} ranks. Add it.")
    return ranks or [name for name in release.find("*.pt") if _is_megatron(release, name)][:1]


def _is_megatron(release: Release, name: str) -> bool:
    """Whether a single .pt is Megatron's: by its name, or by a configuration in Megatron's words beside it."""
    if not name.endswith(".pt"):
        return False
    if name.startswith(("model_optim_rng", "MegatronBERT")):
        return True
    return any("num_layers" in read_json(release, config) for config in release.find("*config*.json"))


def read(release: Release) -> ForeignCheckpoint:
    """The checkpoint, its ranks joined."""
    names = find_ranks(release)
    saved = [load_pickle(release, name) for name in names]
    where = release.where(names[0])
    for rank in saved:
        if not isinstance(rank, dict) or not isinstance(rank.get("model"), dict):
            raise CheckpointError(f"{where}: no 'model' in it; expected a checkpoint of Megatron. Check the file.")
    args = saved[0].get("args")
    settings = config_files(release) | (vars(args) if isinstance(args, Namespace) else {})
    settings["checkpoint_version"] = saved[0].get("checkpoint_version") or 0
    left_out = [key for key in saved[0] if key not in ("model", "args", "checkpoint_version")]
    return convert(release, [rank.pop("model") for rank in saved], settings, where=where, left_out=left_out)


def config_files(release: Release) -> dict[str, Any]:
    """The settings in a release's JSON files."""
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
    """A MegatronBert in Hugging Face's form, of the weights of each rank and what is known of the training.

    `ranks` is emptied.
    """
    _refuse_other_orders(settings, where)
    heads = settings.get("num_attention_heads")
    if not isinstance(heads, int) or heads < 1:
        raise CheckpointError(
            f"{where}: its number of attention heads is not known. "
            'Put a config.json with {"num_attention_heads": ..., "num_layers": ...} beside it.'
        )
    flat = [_unwrapped(flat_tensors(rank, where=where)) for rank in ranks]
    # Joining frees the parts one by one, so that there are never two copies of a large model.
    ranks.clear()
    weights = _joined(flat, heads, _version(settings, where), where)
    for name in _NEEDED:
        if name not in weights:
            raise missing_weights_error(where, name, layout="BERT of Megatron")
    rows, width = weights["bert.encoder.layer.0.attention.self.query.weight"].shape
    if rows != width:
        raise CheckpointError(
            f"{where}: {rows} of {width} rows of each projection are there, so this is one rank of {width // rows}. "
            "Name the folder that has all mp_rank_XX."
        )
    config = _config(settings, weights, heads)
    return ForeignCheckpoint(layout, config, weights, _tokenizer(release, config), tuple(sorted(left_out)))


def split_qkv(packed: torch.Tensor, heads: int, version: float) -> tuple[torch.Tensor, ...]:
    """Query, key and value of a packed projection, in the order of rows that the checkpoint's version has.

    0: [3, H, K]    1: [H, K, 3]    2 and later: [H, 3, K]
    """
    rows, *rest = packed.shape
    if rows % (3 * heads):
        raise CheckpointError(f"a packed projection of {rows} rows is not three times {heads} heads. Check the heads.")
    width = rows // (3 * heads)
    if version >= 2:
        parts = packed.reshape(heads, 3, width, *rest).unbind(1)
    elif version == 1:
        parts = packed.reshape(heads, width, 3, *rest).unbind(2)
    elif version == 0:
        parts = packed.reshape(3, heads, width, *rest).unbind(0)
    else:
        raise CheckpointError(f"checkpoint version {version} is not known; expected 0, 1, or 2 and later.")
    return tuple(part.reshape(heads * width, *rest) for part in parts)


def _version(settings: dict[str, Any], where: str) -> float:
    version = settings.get("checkpoint_version", 0)
    if not isinstance(version, int | float):
        raise CheckpointError(f"{where}: checkpoint version {version!r} is no number. Check the file.")
    return float(version)


def _refuse_other_orders(settings: dict[str, Any], where: str) -> None:
    """Raise where norms are not before the blocks: the names are the same, and every result would be wrong."""
    block = settings.get("transformer_block_type", "pre_ln")
    if block != "pre_ln" or settings.get("apply_residual_connection_post_layernorm"):
        raise CheckpointError(
            f"{where}: trained with norms in another order than MegatronBert's (transformer_block_type {block!r}, "
            "apply_residual_connection_post_layernorm). No model here has that order."
        )


def _unwrapped(weights: Weights) -> Weights:
    """The weights without what wrappers put before their names."""
    return {re.sub(r"^(?:module\.|model\.|bert_model\.)+", "", name): tensor for name, tensor in weights.items()}


def _joined(ranks: list[Weights], heads: int, version: float, where: str) -> Weights:
    names = list(ranks[0])
    if heads % len(ranks):
        raise CheckpointError(f"{where}: {heads} heads cannot lie on {len(ranks)} ranks. Check the configuration.")
    for rank in ranks[1:]:
        if set(rank) != set(names):
            odd = sorted(set(rank) ^ set(names))[0]
            raise CheckpointError(f"{where}: not every rank has the weights {odd!r}. Use the files of one checkpoint.")
    weights: Weights = {}
    strange = []
    for name in names:
        tensors = [rank.pop(name) for rank in ranks]
        packed = _PACKED.fullmatch(name)
        place = _place(name)
        if packed:
            parts = [split_qkv(tensor, heads // len(ranks), version) for tensor in tensors]
            for part, pieces in zip(("query", "key", "value"), zip(*parts, strict=True), strict=True):
                weights[f"bert.encoder.layer.{packed[1]}.attention.self.{part}.{packed[2]}"] = _cat(pieces, 0)
        elif place is not None:
            weights[place[0]] = _cat(tensors, place[1]) if place[1] is not None else _same(tensors, name, where)
        else:
            strange.append(name)
    if strange:
        raise unknown_weights_error(where, strange, layout="Megatron's BERT")
    return weights


def _place(name: str) -> tuple[str, int | None] | None:
    for pattern, renamed, dimension in _RENAMED:
        match = re.fullmatch(pattern, name)
        if match:
            return match.expand(renamed), dimension
    return None


def _cat(tensors: Iterable[torch.Tensor], dimension: int) -> torch.Tensor:
    parts = list(tensors)
    return parts[0] if len(parts) == 1 else torch.cat(parts, dimension)


def _same(tensors: list[torch.Tensor], name: str, where: str) -> torch.Tensor:
    for other in tensors[1:]:
        if not torch.equal(tensors[0], other):
            raise CheckpointError(
                f"{where}: ranks differ in {name!r}, of which each has the whole. Use the files of one checkpoint."
            )
    return tensors[0]


def _config(settings: dict[str, Any], weights: Weights, heads: int) -> dict[str, Any]:
    rows, width = weights[_EMBEDDINGS].shape
    segments = weights.get("bert.embeddings.token_type_embeddings.weight")
    layers = {name.split(".")[3] for name in weights if name.startswith("bert.encoder.layer.")}
    # The fused kernels use the approximation by tanh in every layer.
    fused = ("openai_gelu", "bias_gelu_fusion", "bias_activation_fusion")
    masked, pairs = "cls.predictions.bias" in weights, "cls.seq_relationship.weight" in weights
    architecture = {(True, True): "ForPreTraining", (True, False): "ForMaskedLM"}.get((masked, pairs), "Model")
    return {
        "model_type": "megatron-bert",
        "architectures": [f"MegatronBert{architecture}"],
        # With the rows that fill the table up to a multiple of 128: they were trained, and ids stay as they are.
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
        # Megatron's own default, and not the 1e-12 of Hugging Face's class.
        "layer_norm_eps": settings.get("layernorm_epsilon", 1e-5),
        "pad_token_id": 0,
    }


def _tokenizer(release: Release, config: dict[str, Any]) -> dict[str, bytes]:
    """BERT's files of a vocab.txt; NeMo puts a hash, or the setting's name, before or instead of the file's."""
    found = [*release.find("vocab.txt"), *release.find("*vocab*.txt"), *release.find("tokenizer.vocab_file")]
    if not found:
        return {}
    vocab = release.read(found[0])
    return wordpiece_files(vocab, rows=config["vocab_size"], max_tokens=config["max_position_embeddings"])


NEMO_LAYOUT = "nemo"

Scalar = str | int | float | bool | None

_LINE = re.compile(r"(?P<indent> *)(?P<key>[\w.\-/]+|'[^']*'|\"[^\"]*\"):(?: +(?P<value>.*))?")
_VERSION = "megatron_checkpoint_version.json"


def find_weights(release: Release) -> list[str]:
    """The files of weights in order of their ranks; empty where this is not NeMo's."""
    if release.chosen is not None:
        return []
    return release.find("model_weights.ckpt") or release.find("mp_rank_??/model_weights.ckpt")


def read_nemo(release: Release) -> ForeignCheckpoint:
    """The encoder that the archive holds: Megatron's BERT, or Hugging Face's under NeMo's prefix."""
    names = find_weights(release)
    where = release.where(names[0])
    ranks = [_state(release, name) for name in names]
    if any(".embeddings.word_embeddings" in name for name in ranks[0]):
        return legacy_hf.from_state(release, ranks[0], config_files(release), where=where, layout=NEMO_LAYOUT)
    settings = _settings(release)
    settings["checkpoint_version"] = _nemo_version(release, settings, ranks[0])
    return convert(release, ranks, settings, where=where, layout=NEMO_LAYOUT)


def _state(release: Release, name: str) -> dict[str, Any]:
    saved = load_pickle(release, name)
    state = saved.get("state_dict", saved) if isinstance(saved, dict) else None
    if not isinstance(state, dict):
        raise CheckpointError(f"{release.where(name)}: no dictionary of weights. Fetch the archive again.")
    return {str(key): item for key, item in state.items()}


def _settings(release: Release) -> dict[str, Any]:
    """All settings by their last name: of model_config.yaml, and over it those of the encoder's own file."""
    settings: dict[str, Any] = {}
    for name in release.find("model_config.yaml"):
        text = release.read(name).decode("utf-8", errors="replace")
        # The shallowest of a name counts: that of the model, and not of a data loader.
        for key, setting in sorted(yaml_scalars(text).items(), key=lambda item: -item[0].count(".")):
            settings[key.rpartition(".")[2]] = setting
    return settings | config_files(release)


def _nemo_version(release: Release, settings: dict[str, Any], weights: dict[str, Any]) -> float:
    """The order of rows in packed projections.

    NeMo before 1.5 used Megatron's own classes and took 0 where nothing was said. Later it had classes of its own
    (`self_attention`), in the order of version 2 unless megatron_legacy says that the weights came from Megatron.
    """
    if _VERSION in release.names:
        return float(read_json(release, _VERSION).get("checkpoint_version") or 0)
    if "megatron_legacy" in settings:
        return 0.0 if settings["megatron_legacy"] is True else 2.0
    return 2.0 if any(".self_attention." in name for name in weights) else 0.0


def yaml_scalars(text: str) -> dict[str, Scalar]:
    """The scalars of nested block mappings, under names joined by dots; lists and long texts are passed over.

    This is all that is needed of a model_config.yaml, and no more of YAML than that: anchors, tags and flow
    mappings, in which its dangers lie, are read as the text they are.
    """
    scalars: dict[str, Scalar] = {}
    path: list[tuple[int, str]] = []
    for line in text.splitlines():
        match = _LINE.fullmatch(line.rstrip())
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
