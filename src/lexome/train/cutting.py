"""A plain model spread over processes: copies (DDP), shards (FSDP2), cut matrices (tensor parallel).

T tokens of the packed batch, D width, H heads, V vocabulary, I inner width, M masked positions
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from lexome.errors import UsageError
from lexome.models.config import EncoderConfig
from lexome.models.encoder import Embeddings, Encoder
from lexome.models.heads import WordHead


def check_fits(config: EncoderConfig, *, tensor: int) -> None:
    """UsageError where the matrices of an encoder cannot be cut among so many processes."""
    for name in ("heads", "inner"):
        count = getattr(config, name)
        if count % tensor:
            raise UsageError(
                f"the encoder has {name} = {count}, which {tensor} processes cannot share evenly. Set parallel.tensor "
                f"to a number that divides heads ({config.heads}) and inner ({config.inner})."
            )


def replicate(model: nn.Module, group: dist.ProcessGroup) -> nn.Module:
    """The model with the mean of gradients over its copies."""
    device = next(model.parameters()).device
    return DistributedDataParallel(model, device_ids=[device] if device.type == "cuda" else None, process_group=group)


def shard(model: nn.Module, mesh: DeviceMesh, *, half: bool) -> None:
    """Spread weights, gradients and optimizer state in place; each layer is gathered when it is needed.

    What is outside the layers is one more group: the token embedding is used at both ends of the model.
    """
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if half else None
    kept: dict[str, Any] = {"mesh": mesh} if policy is None else {"mesh": mesh, "mp_policy": policy}
    for layer in encoder_of(model).layers:
        fully_shard(layer, **kept)
    fully_shard(model, **kept)


def cut(model: nn.Module, config: EncoderConfig, mesh: DeviceMesh) -> None:
    """Cut the matrices of a model among the processes of a tensor group, in place.

    Every weight is a DTensor then, also those that all have whole: norms, positions, heads. So all are on one mesh,
    and torch's clipping and fused optimizers take them together. Between two modules activations are plain tensors,
    alike in the whole group.
    """
    vocabulary = token_layout(config, mesh.size())
    styles: dict[str, ParallelStyle] = {}
    for name, part in model.named_modules():
        if isinstance(part, WordHead):
            styles[name] = WordHeadParallel(vocabulary)
        elif isinstance(part, Embeddings):
            part.register_forward_pre_hook(_with_segments)
        elif any(True for _ in part.parameters(recurse=False)):
            styles[name] = _style(name, config, vocabulary)
    inside = [f"{name}." for name, style in styles.items() if isinstance(style, WordHeadParallel)]
    parallelize_module(
        model, mesh, {name: style for name, style in styles.items() if not name.startswith(tuple(inside))}
    )


def token_layout(config: EncoderConfig, tensor: int) -> Placement:
    """How token embeddings lie in a tensor group: by rows where the vocabulary divides, else whole in each.

    FSDP2 does not shard what is cut unevenly. Models in training should have a vocabulary that divides, filled up as
    Megatron does it; checkpoints that have none still run.
    """
    return Replicate() if config.vocab % tensor else Shard(0)


def _style(name: str, config: EncoderConfig, vocabulary: Placement) -> ParallelStyle:
    if name.endswith("attention.qkv"):
        # Rows go head by head, so each process gets whole heads.
        return ColwiseParallel()
    if name.endswith("mlp.up"):
        # The two halves of a gated matrix lie one after the other, so a process has rows of one half only: the product
        # is cut and its result gathered. That costs T x 2I numbers sent, and no change to any checkpoint.
        return ColwiseParallel(output_layouts=Replicate()) if config.gated else ColwiseParallel()
    if name.endswith("mlp.down") and config.gated:
        return RowwiseParallel(input_layouts=Replicate())
    if name.endswith(("attention.out", "mlp.down")):
        return RowwiseParallel()
    if name.endswith("embed.tokens") and vocabulary == Shard(0):
        return RowwiseParallel(input_layouts=Replicate())
    return Whole()


class Whole(ParallelStyle):
    """A module that every process of the group has whole and runs on the same input."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        return _distributed(module, device_mesh, None)


class WordHeadParallel(ParallelStyle):
    """The head of masked words: dense and norm whole, the (M, V) product cut along V, its logits gathered.

    Gathered, so that any loss can read them. They are only of masked positions: for 16,384 tokens and 30,592 pieces
    150 MB in bfloat16.
    """

    def __init__(self, vocabulary: Placement) -> None:
        super().__init__()
        self.vocabulary = vocabulary

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        def parts(name: str, part: nn.Module, mesh: DeviceMesh) -> None:
            if part is module:
                bias = distribute_tensor(part.bias, mesh, [self.vocabulary])  # type: ignore[arg-type]
                part.register_parameter("bias", nn.Parameter(bias))

        return _distributed(module, device_mesh, parts)


def _distributed(
    module: nn.Module, mesh: DeviceMesh, parts: Callable[[str, nn.Module, DeviceMesh], None] | None
) -> nn.Module:
    """The module with DTensors for weights, all whole but what `parts` cuts, between plain tensors."""
    entering: Any = _entering  # torch's types say that these return nothing, its documentation that they do
    leaving: Any = _leaving
    return distribute_module(module, mesh, parts, entering, leaving)


def _entering(module: nn.Module, inputs: tuple[Any, ...], mesh: DeviceMesh) -> tuple[Any, ...]:
    """Inputs as DTensors that are alike in the group."""
    return tuple(
        DTensor.from_local(one, mesh, [Replicate()], run_check=False)
        if isinstance(one, Tensor) and not isinstance(one, DTensor)
        else one
        for one in inputs
    )


def _leaving(module: nn.Module, output: DTensor, mesh: DeviceMesh) -> Tensor:
    """The output as a plain tensor that is whole in each process."""
    return output.redistribute(placements=[Replicate()]).to_local()


def _with_segments(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Segments written out where none are given: the encoder's short cut mixes a weight with a plain tensor."""
    ids_T, packing, segments_T = inputs
    return ids_T, packing, torch.zeros_like(ids_T) if segments_T is None else segments_T


def encoder_of(model: nn.Module) -> Encoder:
    """The encoder in a model with a head, or the model where it is one."""
    found = model if isinstance(model, Encoder) else getattr(model, "encoder", None)
    if not isinstance(found, Encoder):
        raise UsageError(
            f"{type(model).__name__} has no encoder of Lexome's own, so it cannot be spread over processes. Models of "
            "the transformers backend run in one process."
        )
    return found
