"""Low-rank adapters (LoRA) on our own layers, written and read in the form of the peft library.

peft replaces whole linear layers, and our query, key and value share one. So an adapter here knows which rows of that
matrix it speaks for, and three adapters lie on it under the three names that peft knows.

T tokens of the packed batch, D width of the input, R rank, N rows of the output
"""

import copy
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from lexome.errors import CheckpointError, UsageError
from lexome.models.backend import TransformersEncoder
from lexome.models.encoder import Encoder
from lexome.models.heads import EncoderWithHead
from lexome.models.hf import ARCHITECTURES, CUSTOM_HEAD, head_settings, split_qkv, to_hf
from lexome.models.hf_folder import write_weights

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
# What peft puts before the names of the model that it wraps.
PREFIX = "base_model.model."
TASKS = {"token": "TOKEN_CLS", "sequence": "SEQ_CLS", "span": "QUESTION_ANS"}
# Our words for the parts of a layer; query, key and value are one matrix, of which each has its rows.
PARTS = {"query": "attention.qkv", "key": "attention.qkv", "value": "attention.qkv"}
PARTS |= {"out": "attention.out", "up": "mlp.up", "down": "mlp.down"}
THIRDS = ("query", "key", "value")


@dataclass(frozen=True, slots=True)
class LoraSettings:
    """How large adapters are, and where: `targets` are words of PARTS, or ends of the names that transformers gives."""

    rank: int = 8
    alpha: float = 16.0
    dropout: float = 0.1
    targets: tuple[str, ...] = ("query", "value")


class Adapter(nn.Module):
    """Two thin matrices whose product is added to some rows of a weight; `name` is the layer's in transformers."""

    def __init__(self, name: str, rows_N: Tensor, width: int, rank: int) -> None:
        super().__init__()
        self.name = name
        self.register_buffer("rows_N", rows_N, persistent=False)
        self.down_RD = nn.Parameter(torch.empty(rank, width))
        self.up_NR = nn.Parameter(torch.zeros(len(rows_N), rank))
        # As peft and nn.Linear do. With zeros on the other side, the model begins as it was.
        nn.init.kaiming_uniform_(self.down_RD, a=math.sqrt(5))

    def forward(self, input_TD: Tensor) -> Tensor:
        return functional.linear(functional.linear(input_TD, self.down_RD), self.up_NR)


class LoraLinear(nn.Module):
    """A linear layer that stays as it is, and adapters that learn what to add to it."""

    def __init__(self, base: nn.Linear, adapters: Sequence[Adapter], *, scale: float, dropout: float) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.adapters = nn.ModuleList(adapters)
        self.scale = scale
        self.dropout = nn.Dropout(dropout)

    def forward(self, input_TD: Tensor) -> Tensor:
        output_TN: Tensor = self.base(input_TD)
        dropped_TD = self.dropout(input_TD)
        for adapter in self.adapters:
            added = self.scale * adapter(dropped_TD)
            output_TN = output_TN.index_add(-1, adapter.rows_N, added.to(output_TN.dtype))  # type: ignore[arg-type]
        return output_TN

    def merged(self) -> nn.Linear:
        """A plain layer that computes the same."""
        made = copy.deepcopy(self.base)
        with torch.no_grad():
            for adapter in self.adapters:
                assert isinstance(adapter, Adapter)
                made.weight.index_add_(0, adapter.rows_N, self.scale * adapter.up_NR @ adapter.down_RD)  # type: ignore[arg-type]
        return made


def add_adapters(model: EncoderWithHead, architecture: str, settings: LoraSettings) -> None:
    """Put adapters on the encoder, in place. All of its own weights are frozen; the head learns as before."""
    sites = list(_sites(model, architecture, settings.targets))
    if not sites:
        raise UsageError(
            f"lora.targets {', '.join(settings.targets)} name no layer of this {architecture}; expected some of "
            f"{', '.join(PARTS)}, or ends of transformers' names: {', '.join(_endings(model))}."
        )
    model.encoder.requires_grad_(False)
    for path, linear, named in sites:
        adapters = [Adapter(name, rows, linear.in_features, settings.rank) for name, rows in named]
        scale = settings.alpha / settings.rank
        made = LoraLinear(linear, adapters, scale=scale, dropout=settings.dropout).to(linear.weight.device)
        model.set_submodule(path, made)


def merge_adapters(model: EncoderWithHead) -> EncoderWithHead:
    """A copy of a model whose adapters have become part of its weights."""
    made = copy.deepcopy(model)
    for path, layer in list(made.named_modules()):
        if isinstance(layer, LoraLinear):
            made.set_submodule(path, layer.merged())
    return made


def write_adapters(
    folder: Path, model: EncoderWithHead, *, architecture: str, kind: str, base: Path, settings: LoraSettings
) -> None:
    """Write the adapters, and the head where transformers has a class for it, as peft writes them."""
    adapters = list(_adapters(model))
    weights: dict[str, Tensor] = {}
    for adapter in adapters:
        weights[f"{PREFIX}{adapter.name}.lora_A.weight"] = adapter.down_RD
        weights[f"{PREFIX}{adapter.name}.lora_B.weight"] = adapter.up_NR
    head = _head_weights(model, architecture, kind)
    weights |= {f"{PREFIX}{name}": tensor for name, tensor in head.items()}
    config = {
        "peft_type": "LORA",
        "task_type": TASKS[kind] if head else "FEATURE_EXTRACTION",
        "base_model_name_or_path": str(base),
        "r": settings.rank,
        "lora_alpha": settings.alpha,
        "lora_dropout": settings.dropout,
        "target_modules": sorted(adapter.name for adapter in adapters),
        "modules_to_save": sorted({name.rpartition(".")[0] for name in head}) or None,
        "bias": "none",
        "inference_mode": True,
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_weights(weights, folder / WEIGHTS)
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def read_adapters(folder: Path, model: EncoderWithHead, architecture: str) -> None:
    """Put the adapters of a folder, ours or peft's, on a model, in place; without the head that may lie with them."""
    try:
        config: dict[str, Any] = json.loads((folder / CONFIG).read_bytes())
        settings = LoraSettings(config["r"], config["lora_alpha"], config["lora_dropout"], ())
        names = config["target_modules"]
        weights = load_file(folder / WEIGHTS)
    except (OSError, ValueError, KeyError) as error:
        raise CheckpointError(
            f"{folder}: no adapters that can be read ({error!r}); expected peft's two files."
        ) from None
    targets = (names,) if isinstance(names, str) else tuple(names)
    add_adapters(model, architecture, LoraSettings(settings.rank, settings.alpha, settings.dropout, targets))
    for adapter in _adapters(model):
        for ending, place in (("lora_A", adapter.down_RD), ("lora_B", adapter.up_NR)):
            name = f"{PREFIX}{adapter.name}.{ending}.weight"
            if name not in weights or weights[name].shape != place.shape:
                raise CheckpointError(f"{folder}: {name} is missing or of another shape; the base model is another.")
            place.data.copy_(weights[name])


def _adapters(model: nn.Module) -> Iterator[Adapter]:
    return (part for part in model.modules() if isinstance(part, Adapter))


Named = list[tuple[str, Tensor]]
"""Names in transformers of what lies in one matrix of ours, each with its rows there."""


def _sites(model: EncoderWithHead, architecture: str, targets: Sequence[str]) -> Iterator[tuple[str, nn.Linear, Named]]:
    """Each linear layer of the encoder that is meant: where it is, and which of its rows have which names."""
    names = _theirs if isinstance(model.encoder, TransformersEncoder) else _ours
    of = names(model, architecture)
    for path, layer in model.named_modules():
        if isinstance(layer, nn.Linear) and path.startswith("encoder."):
            meant = [pair for pair in of(path, layer) if _is_meant(path, pair[0], targets)]
            if meant:
                yield path, layer, meant


def _ours(model: EncoderWithHead, architecture: str) -> Callable[[str, nn.Linear], Named]:
    """For our own encoder: names by the table of the architecture."""
    encoder, table = model.encoder, ARCHITECTURES[architecture].encoder
    assert isinstance(encoder, Encoder)

    def of(path: str, layer: nn.Linear) -> Named:
        number = next((part for part in path.split(".") if part.isdigit()), "")
        names = [name.format(n=number) for name in table[path.replace(f".{number}.", ".{n}.", 1)]]
        rows_N = torch.arange(layer.out_features)
        if not path.endswith("attention.qkv"):
            return [(names[0], rows_N)]
        parts = split_qkv(rows_N, heads=encoder.config.heads)
        return list(zip(names, parts if len(names) == len(parts) else [torch.cat(parts)], strict=True))

    return of


def _theirs(model: EncoderWithHead, architecture: str) -> Callable[[str, nn.Linear], Named]:
    """For an encoder that transformers computes: the name that it has there already."""
    return lambda path, layer: [(path.removeprefix("encoder.model."), torch.arange(layer.out_features))]


def _is_meant(path: str, name: str, targets: Sequence[str]) -> bool:
    for target in targets:
        if name == target or name.endswith(f".{target}"):
            return True
        if target in PARTS and path.endswith(PARTS[target]):
            # Where the three lie stacked under one name, there is only one adapter for them.
            wanted = THIRDS.index(target) if target in THIRDS else None
            if wanted is None or name.endswith("qkv") or name.rpartition(".")[2].startswith(target[0]):
                return True
    return False


def _endings(model: EncoderWithHead) -> list[str]:
    """The last words of the names of the encoder's linear layers."""
    return sorted(
        {path.rpartition(".")[2] for path, layer in model.encoder.named_modules() if isinstance(layer, nn.Linear)}
    )


def _head_weights(model: EncoderWithHead, architecture: str, kind: str) -> dict[str, Tensor]:
    """The head under transformers' names; nothing where it has no class for it."""
    labels = [f"{number}" for number in range(model.head.out.out_features)]  # type: ignore[union-attr, arg-type]
    if isinstance(model.encoder, TransformersEncoder) or CUSTOM_HEAD in head_settings(
        model.head, architecture, kind, labels
    ):
        return {}
    ours = {f"head.{name}": tensor for name, tensor in model.head.state_dict().items()}
    return to_hf(ours, ARCHITECTURES[architecture], kind=kind, heads=1)
