"""Low-rank adapters (LoRA), saved and loaded in the format of the peft library.

peft adapts whole linear layers, but the encoder fuses query, key and value into one. So an adapter has the indices of
its rows of that matrix, and the matrix has three adapters under the three names that peft expects.

T tokens of the packed batch, D input features, R rank, N output rows
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
from lexome.files import write_json
from lexome.models.backend import TransformersEncoder
from lexome.models.encoder import Encoder
from lexome.models.heads import EncoderWithHead
from lexome.models.hf import ARCHITECTURES, CUSTOM_HEAD, head_settings, split_qkv, to_hf
from lexome.models.hf_folder import write_weights

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
# The prefix that peft adds to the names of the wrapped model.
PREFIX = "base_model.model."
TASKS = {"token": "TOKEN_CLS", "sequence": "SEQ_CLS", "span": "QUESTION_ANS"}
# Target names for the modules of a layer; query, key and value are rows of one fused matrix.
PARTS = {"query": "attention.qkv", "key": "attention.qkv", "value": "attention.qkv"}
PARTS |= {"out": "attention.out", "up": "mlp.up", "down": "mlp.down"}
THIRDS = ("query", "key", "value")


@dataclass(frozen=True, slots=True)
class LoraSettings:
    """LoRA hyperparameters; `targets` are keys of PARTS, or suffixes of module names in transformers."""

    rank: int = 8
    alpha: float = 16.0
    dropout: float = 0.1
    targets: tuple[str, ...] = ("query", "value")


class Adapter(nn.Module):
    """Two low-rank matrices whose product is added to some rows of a weight; `name` is the module's in transformers."""

    def __init__(self, name: str, rows_N: Tensor, width: int, rank: int) -> None:
        super().__init__()
        self.name = name
        self.register_buffer("rows_N", rows_N, persistent=False)
        self.down_RD = nn.Parameter(torch.empty(rank, width))
        self.up_NR = nn.Parameter(torch.zeros(len(rows_N), rank))
        # As in peft and nn.Linear. The other matrix is zero, so the initial output is unchanged.
        nn.init.kaiming_uniform_(self.down_RD, a=math.sqrt(5))

    def forward(self, input_TD: Tensor) -> Tensor:
        return functional.linear(functional.linear(input_TD, self.down_RD), self.up_NR)


class LoraLinear(nn.Module):
    """A frozen linear layer with trainable adapters."""

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

    def merge(self) -> nn.Linear:
        """An equivalent plain linear layer."""
        linear = copy.deepcopy(self.base)
        with torch.no_grad():
            for adapter in self.adapters:
                assert isinstance(adapter, Adapter)
                linear.weight.index_add_(0, adapter.rows_N, self.scale * adapter.up_NR @ adapter.down_RD)  # type: ignore[arg-type]
        return linear


def add_adapters(model: EncoderWithHead, architecture: str, settings: LoraSettings) -> None:
    """Add adapters to the encoder in place and freeze its weights; the head stays trainable."""
    sites = list(_sites(model, architecture, settings.targets))
    if not sites:
        expected = f"{', '.join(PARTS)}, or suffixes of module names in transformers: {', '.join(_suffixes(model))}"
        message = f"lora.targets {', '.join(settings.targets)} match no layer of {architecture}; expected {expected}."
        raise UsageError(message, code="unknown-target", value=settings.targets)
    model.encoder.requires_grad_(False)
    for path, linear, named in sites:
        adapters = [Adapter(name, rows, linear.in_features, settings.rank) for name, rows in named]
        scale = settings.alpha / settings.rank
        adapted = LoraLinear(linear, adapters, scale=scale, dropout=settings.dropout).to(linear.weight.device)
        model.set_submodule(path, adapted)


def merge_adapters(model: EncoderWithHead) -> EncoderWithHead:
    """A copy of a model with its adapters merged into the weights."""
    plain = copy.deepcopy(model)
    for path, layer in list(plain.named_modules()):
        if isinstance(layer, LoraLinear):
            plain.set_submodule(path, layer.merge())
    return plain


def write_adapters(
    folder: Path, model: EncoderWithHead, *, architecture: str, kind: str, base: Path, settings: LoraSettings
) -> None:
    """Write the adapters in peft's format, with the head if transformers has a class for it."""
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
    write_json(folder / CONFIG, config, indent=2)


def read_adapters(folder: Path, model: EncoderWithHead, architecture: str) -> None:
    """Load the adapters of a folder, written by Lexome or peft, into a model in place; a saved head is ignored."""
    try:
        config: dict[str, Any] = json.loads((folder / CONFIG).read_bytes())
        settings = LoraSettings(config["r"], config["lora_alpha"], config["lora_dropout"], ())
        names = config["target_modules"]
        weights = load_file(folder / WEIGHTS)
    except (OSError, ValueError, KeyError) as error:
        message = f"{folder}: cannot read the adapters ({error!r}); expected {CONFIG} and {WEIGHTS}."
        raise CheckpointError(message, code="invalid-adapters", value=folder) from None
    targets = (names,) if isinstance(names, str) else tuple(names)
    add_adapters(model, architecture, LoraSettings(settings.rank, settings.alpha, settings.dropout, targets))
    for adapter in _adapters(model):
        for suffix, weight in (("lora_A", adapter.down_RD), ("lora_B", adapter.up_NR)):
            name = f"{PREFIX}{adapter.name}.{suffix}.weight"
            if name not in weights or weights[name].shape != weight.shape:
                message = f"{folder}: {name} is missing or has another shape. Use the base model of the adapters."
                raise CheckpointError(message, code="shape-mismatch", value=name)
            weight.data.copy_(weights[name])


def _adapters(model: nn.Module) -> Iterator[Adapter]:
    return (part for part in model.modules() if isinstance(part, Adapter))


Named = list[tuple[str, Tensor]]
"""The module names in transformers that share one matrix, each with its rows."""


def _sites(model: EncoderWithHead, architecture: str, targets: Sequence[str]) -> Iterator[tuple[str, nn.Linear, Named]]:
    """The targeted linear layers of the encoder: path, layer, and the targeted names with their rows."""
    naming = _backend_names if isinstance(model.encoder, TransformersEncoder) else _own_names
    names_of = naming(model, architecture)
    for path, layer in model.named_modules():
        if isinstance(layer, nn.Linear) and path.startswith("encoder."):
            targeted = [pair for pair in names_of(path, layer) if _is_target(path, pair[0], targets)]
            if targeted:
                yield path, layer, targeted


def _own_names(model: EncoderWithHead, architecture: str) -> Callable[[str, nn.Linear], Named]:
    """The names for Lexome's own encoder, from the key mapping of the architecture."""
    encoder, table = model.encoder, ARCHITECTURES[architecture].encoder
    assert isinstance(encoder, Encoder)

    def names_of(path: str, layer: nn.Linear) -> Named:
        number = next((part for part in path.split(".") if part.isdigit()), "")
        names = [name.format(n=number) for name in table[path.replace(f".{number}.", ".{n}.", 1)]]
        rows_N = torch.arange(layer.out_features)
        if not path.endswith("attention.qkv"):
            return [(names[0], rows_N)]
        parts = split_qkv(rows_N, heads=encoder.config.heads)
        return list(zip(names, parts if len(names) == len(parts) else [torch.cat(parts)], strict=True))

    return names_of


def _backend_names(model: EncoderWithHead, architecture: str) -> Callable[[str, nn.Linear], Named]:
    """The names for an encoder on the transformers backend: its own module names."""
    return lambda path, layer: [(path.removeprefix("encoder.model."), torch.arange(layer.out_features))]


def _is_target(path: str, name: str, targets: Sequence[str]) -> bool:
    for target in targets:
        if name == target or name.endswith(f".{target}"):
            return True
        # If transformers fuses the three too, they have one adapter.
        own_rows = target not in THIRDS or name.endswith("qkv") or name.rpartition(".")[2].startswith(target[0])
        if target in PARTS and path.endswith(PARTS[target]) and own_rows:
            return True
    return False


def _suffixes(model: EncoderWithHead) -> list[str]:
    """The last components of the names of the encoder's linear layers."""
    return sorted(
        {path.rpartition(".")[2] for path, layer in model.encoder.named_modules() if isinstance(layer, nn.Linear)}
    )


def _head_weights(model: EncoderWithHead, architecture: str, kind: str) -> dict[str, Tensor]:
    """The head's weights under their names in transformers; empty if it has no class for it."""
    labels = [f"{number}" for number in range(model.head.out.out_features)]  # type: ignore[union-attr, arg-type]
    if isinstance(model.encoder, TransformersEncoder) or CUSTOM_HEAD in head_settings(
        model.head, architecture, kind, labels
    ):
        return {}
    ours = {f"head.{name}": tensor for name, tensor in model.head.state_dict().items()}
    return to_hf(ours, ARCHITECTURES[architecture], kind=kind, heads=1)
