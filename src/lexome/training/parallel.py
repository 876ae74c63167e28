"""Many processes on one run: who this process is, what it reads, and what it adds up with the others.

A run has data x shard x tensor processes. The first two make replicas, each with its own batches; the processes of
one tensor group work on the same batch. All of it is torch's own: torchrun, a device mesh, DDP, FSDP2, DTensor.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from lexome.errors import UsageError
from lexome.models.config import EncoderConfig
from lexome.models.encoder import Embeddings, Encoder
from lexome.models.heads import MaskedLMHead
from lexome.recipe.tables import ParallelTable
from lexome.training.loader import Batch, Step
from lexome.training.loop import Clock, Done
from lexome.training.losses import Loss, Terms


def check_fits(config: EncoderConfig, *, tensor: int) -> None:
    """UsageError where the matrices of an encoder cannot be cut among so many processes."""
    for name in ("heads", "intermediate_size"):
        count = getattr(config, name)
        if count % tensor:
            raise UsageError(
                f"the encoder has {name} = {count}, which {tensor} processes cannot share evenly. Set parallel.tensor "
                f"to a number that divides heads ({config.heads}) and intermediate_size ({config.intermediate_size})."
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
        if isinstance(part, MaskedLMHead):
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


AXES = ("data", "shard", "tensor")


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many processes there are along each axis."""

    data: int = 1
    shard: int = 1
    tensor: int = 1

    @property
    def world(self) -> int:
        """All processes."""
        return self.data * self.shard * self.tensor

    @property
    def fsdp(self) -> bool:
        """True where weights go through FSDP2: for shards, and for copies of a cut model, which DDP does not take."""
        return self.shard > 1 or (self.data > 1 and self.tensor > 1)


class Parallel:
    """This process's place among those of the run. Alone, all its methods give back what they are given.

    `replica` of `replicas` tells its batches; `first` is True for the one process that writes what is for people.
    """

    def __init__(self, sizes: Sizes, device: torch.device, mesh: DeviceMesh | None = None) -> None:
        self.sizes, self.device, self.mesh = sizes, device, mesh
        self.rank = 0 if mesh is None else dist.get_rank()
        # Ranks count along the tensor axis first: neighbours, which have the quickest link, are one tensor group.
        self.replica = self.rank // sizes.tensor
        self.replicas = sizes.data * sizes.shard

    @property
    def first(self) -> bool:
        """True for the process that writes logs, cards and checkpoints."""
        return self.rank == 0

    @property
    def sharded(self) -> bool:
        """True where a process holds only parts of the weights, which are DTensors then."""
        return self.sizes.shard > 1 or self.sizes.tensor > 1

    def wrapped(self, model: nn.Module, config: EncoderConfig, *, half: bool = False) -> nn.Module:
        """What to call in place of a model that was made alike in every process.

        The model itself is changed and keeps the names of its weights: optimizers and checkpoints go on using it.
        `half` is for FSDP2, which then computes and sends weights in bfloat16 while each process keeps its part in
        float32: give it a model in float32, also where the precision is to be bf16.
        """
        if self.mesh is None:
            return model
        check_fits(config, tensor=self.sizes.tensor)
        if not self.sharded:
            return replicate(model, self.mesh["data"].get_group())
        if self.sizes.tensor > 1:
            cut(model, config, self.mesh["tensor"])
        if self.sizes.fsdp:
            mesh = self.mesh["shard"] if self.sizes.data == 1 else self.mesh["data", "shard"]
            shard(model, mesh, half=half)
        return model

    def own(self, step: Step) -> Step:
        """The passes of a step that this replica makes. Counts of the step stay those of all replicas.

        So a recipe says how large a step is, and not how many processes make it: 2 replicas with 1 pass each train on
        what one process with 2 passes does, and are at the same place in the text.
        """
        if len(step.batches) % self.replicas:
            raise UsageError(
                f"a step has {len(step.batches)} passes for {self.replicas} replicas; expected a multiple. "
                "Set batch.gradient_accumulation and each number in batch.ramp to one."
            )
        return replace(step, batches=step.batches[self.replica :: self.replicas])

    def loss(self, loss: Loss) -> Loss:
        """The loss for this replica's passes, so that the mean over replicas is the loss of the whole step.

        A loss is a sum over a pass, divided by the masks of all passes of all replicas; torch takes the mean of their
        gradients. So each is made larger by the number of replicas, and a replica with few masks counts little.
        """
        if self.replicas == 1:
            return loss

        def larger(model: nn.Module, batch: Batch) -> tuple[Tensor, Terms]:
            part, terms = loss(model, batch)
            return part * self.replicas, terms

        return larger

    def summed(self, done: Done) -> Done:
        """A step with the loss and the sums of all replicas. Nothing waits for the GPU."""
        if self.replicas == 1:
            return done
        names = sorted(done.terms)
        values = torch.stack([done.loss.double(), *(done.terms[name].double() for name in names)])
        # Each member of a tensor group has the same sums, so that adding up over all counts them so many times.
        dist.all_reduce(values)
        values = values / self.sizes.tensor
        # These are numbers of the host, and are added up there.
        counts = torch.tensor([done.masked, done.sequences])
        dist.all_reduce(counts)
        masked, sequences = (counts // self.sizes.tensor).tolist()
        loss, terms = values[0] / self.replicas, dict(zip(names, values[1:], strict=True))
        return replace(done, masked=masked, sequences=sequences, loss=loss, terms=terms)

    def agreed(self, good: bool) -> bool:
        """True where it is True in every process, so that all of them stop or none."""
        if self.mesh is None:
            return good
        every = torch.tensor(int(good))
        dist.all_reduce(every, op=dist.ReduceOp.MIN)
        return bool(every)

    def clock(self, clock: Clock) -> Clock:
        """The first process's clock for all, so that a run told in minutes ends everywhere at the same step."""
        if self.mesh is None:
            return clock

        def agreed() -> float:
            # On the CPU, for there no GPU has to be waited for.
            now = torch.tensor(clock(), dtype=torch.float64)
            dist.broadcast(now, src=0)
            return float(now)

        return agreed

    def seed(self, seed: int, *, step: int = 0) -> None:
        """Seed dropout: apart for each replica, and alike in a tensor group, whose activations have to stay alike.

        Call it when the model is made, for its weights are drawn alike in every process.
        """
        if self.mesh is not None:
            drawn = np.random.SeedSequence(seed, spawn_key=(step, self.replica)).generate_state(1, np.uint64)
            torch.manual_seed(int(drawn[0] >> np.uint64(1)))

    def wait(self) -> None:
        """Go on when every process has come here."""
        if self.mesh is not None:
            # A sum on the CPU, for which no GPU has to be waited for, as dist.barrier would.
            dist.all_reduce(torch.zeros(1))


@contextmanager
def joined(
    table: ParallelTable, *, device: str = "auto", environment: Mapping[str, str] = os.environ
) -> Iterator[Parallel]:
    """This process's place in the run that torchrun started; alone where it did not start this process."""
    sizes = sizes_of(table, environment)
    here, backend = place_of(table, device, environment)
    if sizes.world == 1:
        yield Parallel(sizes, here)
        return
    if here.type == "cuda":
        torch.cuda.set_device(here)
    # gloo beside nccl: clocks and waiting are tensors on the CPU.
    dist.init_process_group("cpu:gloo,cuda:nccl" if backend == "nccl" else backend)
    try:
        mesh = init_device_mesh(here.type, (sizes.data, sizes.shard, sizes.tensor), mesh_dim_names=AXES)
        yield Parallel(sizes, here, mesh)
    finally:
        dist.destroy_process_group()


def sizes_of(table: ParallelTable, environment: Mapping[str, str]) -> Sizes:
    """The processes along each axis; UsageError where they are not as many as were started."""
    world = int(environment.get("WORLD_SIZE", "1"))
    rest = table.shard * table.tensor
    sizes = Sizes(table.data if table.data is not None else max(1, world // rest), table.shard, table.tensor)
    if sizes.world != world:
        raise UsageError(
            f"[parallel] asks for {sizes.data} data x {sizes.shard} shard x {sizes.tensor} tensor = {sizes.world} "
            f"processes, and {world} {'was' if world == 1 else 'were'} started. Start as many: "
            f"torchrun --nproc-per-node {sizes.world} -m lexome ..., or change the table."
        )
    return sizes


def place_of(table: ParallelTable, device: str, environment: Mapping[str, str]) -> tuple[torch.device, str]:
    """The device of this process, and the backend it talks through."""
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device == "cuda" and not gpus:
        raise UsageError('device is "cuda", and torch sees no GPU here. Say device = "auto", or mend the driver.')
    on_gpu = device != "cpu" and gpus > 0
    if table.backend == "nccl" and not on_gpu:
        raise UsageError(
            'parallel.backend is "nccl", which is for GPUs, and this run is on CPUs. Say "auto" or "gloo".'
        )
    if not on_gpu:
        return torch.device("cpu"), "gloo"
    local = int(environment.get("LOCAL_RANK", "0"))
    if local >= gpus:
        raise UsageError(
            f"this is process {local} of its machine, counted from 0, and torch sees {gpus} GPUs; expected one for "
            f"each. Start with --nproc-per-node {gpus}."
        )
    return torch.device("cuda", local), "nccl" if table.backend == "auto" else table.backend
