"""NVIDIA NeMo's archives (.nemo): BioMegatron as NGC gives it.

A tar, compressed or not: model_config.yaml, model_weights.ckpt (or mp_rank_XX/model_weights.ckpt), a vocabulary,
NAME_encoder_config.json, megatron_checkpoint_version.json; not every one has all.
"""

import re
from typing import Any

from lexome.errors import CheckpointError
from lexome.models.foreign import hugging, megatron
from lexome.models.foreign.pickles import load_pickle
from lexome.models.foreign.release import Release
from lexome.models.foreign.result import Foreign, read_json

LAYOUT = "nemo"

Scalar = str | int | float | bool | None

_LINE = re.compile(r"(?P<indent> *)(?P<key>[\w.\-/]+|'[^']*'|\"[^\"]*\"):(?: +(?P<value>.*))?")
_VERSION = "megatron_checkpoint_version.json"


def find_weights(release: Release) -> list[str]:
    """The files of weights in order of their ranks; empty where this is not NeMo's."""
    if release.chosen is not None:
        return []
    return release.find("model_weights.ckpt") or release.find("mp_rank_??/model_weights.ckpt")


def read(release: Release) -> Foreign:
    """The encoder that the archive holds: Megatron's BERT, or Hugging Face's under NeMo's prefix."""
    names = find_weights(release)
    where = release.where(names[0])
    ranks = [_state(release, name) for name in names]
    if any(".embeddings.word_embeddings" in name for name in ranks[0]):
        return hugging.from_state(release, ranks[0], megatron.config_files(release), where=where, layout=LAYOUT)
    settings = _settings(release)
    settings["checkpoint_version"] = _version(release, settings, ranks[0])
    return megatron.convert(release, ranks, settings, where=where, layout=LAYOUT)


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
    return settings | megatron.config_files(release)


def _version(release: Release, settings: dict[str, Any], weights: dict[str, Any]) -> float:
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
