"""Distributed training: DDP, FSDP2 and tensor parallelism, all torch's own, over processes that torchrun starts.

A run has data x shard x tensor processes. The first two make replicas, each with its own micro-batches; the processes
of one tensor group work on the same one.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from lexome.errors import LexomeError, UsageError
from lexome.models.backend import TransformersEncoder
from lexome.models.encoder import Embeddings, Encoder, EncoderConfig
from lexome.models.heads import MaskedLMHead
from lexome.training.loop import Clock, Loss, Step, StepResult, Terms


def check_fits(config: EncoderConfig, *, tensor: int) -> None:
    """UsageError where the matrices of an encoder cannot be split among this many processes."""
    for name in ("heads", "intermediate_size"):
        count = getattr(config, name)
        if count % tensor:
            raise UsageError(
                f"the encoder has {name} = {count}, which {tensor} processes cannot split evenly. Set parallel.tensor "
                f"to a number that divides heads ({config.heads}) and intermediate_size ({config.intermediate_size}).",
                code="uneven-split",
                value=name,
            )


def replicate(model: nn.Module, group: dist.ProcessGroup) -> nn.Module:
    """DDP: gradients are averaged over the copies of the model."""
    device = next(model.parameters()).device
    # A model of transformers may have weights that its output does not depend on, such as a pooler's.
    foreign = any(isinstance(part, TransformersEncoder) for part in model.modules())
    return DistributedDataParallel(
        model,
        device_ids=[device] if device.type == "cuda" else None,
        process_group=group,
        find_unused_parameters=foreign,
    )


def shard(model: nn.Module, mesh: DeviceMesh, *, half: bool) -> None:
    """FSDP2: shard weights, gradients and optimizer state in place; each layer is gathered when it is needed.

    What is outside the layers is one more group: the token embedding is used at both ends of the model.
    """
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if half else None
    kept: dict[str, Any] = {"mesh": mesh} if policy is None else {"mesh": mesh, "mp_policy": policy}
    for layer in encoder_of(model).layers:
        fully_shard(layer, **kept)
    fully_shard(model, **kept)


def split_matrices(model: nn.Module, config: EncoderConfig, mesh: DeviceMesh) -> None:
    """Tensor parallelism: split the matrices of a model among the processes of a tensor group, in place.

    Every weight becomes a DTensor, also the replicated ones: norms, positions, heads. So all are on one mesh, and
    torch's clipping and fused optimizers take them together. Between two modules activations are plain tensors, the
    same in the whole group.
    """
    vocabulary = token_layout(config, mesh.size())
    styles: dict[str, ParallelStyle] = {}
    for name, part in model.named_modules():
        if isinstance(part, MaskedLMHead):
            styles[name] = WordHeadParallel(vocabulary)
        elif isinstance(part, Embeddings):
            part.register_forward_pre_hook(_add_segments)
        elif any(True for _ in part.parameters(recurse=False)):
            styles[name] = _style(name, config, vocabulary)
    inside = [f"{name}." for name, style in styles.items() if isinstance(style, WordHeadParallel)]
    parallelize_module(
        model, mesh, {name: style for name, style in styles.items() if not name.startswith(tuple(inside))}
    )


def token_layout(config: EncoderConfig, tensor: int) -> Placement:
    """The placement of token embeddings in a tensor group: by rows where the vocabulary divides, else replicated.

    FSDP2 does not shard what is split unevenly. Models in training should have a vocabulary that divides, padded as in
    Megatron; checkpoints that have none still run.
    """
    return Replicate() if config.vocab % tensor else Shard(0)


def _style(name: str, config: EncoderConfig, vocabulary: Placement) -> ParallelStyle:
    if name.endswith("attention.qkv"):
        # Rows go head by head, so each process gets whole heads.
        return ColwiseParallel()
    if name.endswith("mlp.up"):
        # The two halves of a gated matrix lie one after the other, so a process has rows of one half only: the product
        # is split and its result gathered. That sends T x 2I values, and changes no checkpoint.
        return ColwiseParallel(output_layouts=Replicate()) if config.gated else ColwiseParallel()
    if name.endswith("mlp.down") and config.gated:
        return RowwiseParallel(input_layouts=Replicate())
    if name.endswith(("attention.out", "mlp.down")):
        return RowwiseParallel()
    if name.endswith("embed.tokens") and vocabulary == Shard(0):
        return RowwiseParallel(input_layouts=Replicate())
    return Replicated()


class Replicated(ParallelStyle):
    """A module that every process of the group has a copy of and runs on the same input."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        return _distributed(module, device_mesh, None)


class WordHeadParallel(ParallelStyle):
    """The masked-language-modeling head: dense and norm replicated, the (M, V) product split along V, logits gathered.

    Gathered, so that any loss can read them. They are only of masked positions: for 16,384 tokens and a vocabulary of
    30,592 they take 150 MB in bfloat16.
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
    """The module with DTensors for weights, all replicated but what `parts` splits, between plain tensors."""
    to_dtensors: Any = _to_dtensors  # torch's types say that these return nothing, its documentation that they do
    to_plain: Any = _to_plain
    return distribute_module(module, mesh, parts, to_dtensors, to_plain)


def _to_dtensors(module: nn.Module, inputs: tuple[Any, ...], mesh: DeviceMesh) -> tuple[Any, ...]:
    """Inputs as replicated DTensors."""
    return tuple(
        DTensor.from_local(one, mesh, [Replicate()], run_check=False)
        if isinstance(one, Tensor) and not isinstance(one, DTensor)
        else one
        for one in inputs
    )


def _to_plain(module: nn.Module, output: DTensor, mesh: DeviceMesh) -> Tensor:
    """The output as a plain tensor, whole in each process."""
    return output.redistribute(placements=[Replicate()]).to_local()


def _add_segments(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Explicit segments where there are none: the encoder's short cut mixes a weight with a plain tensor."""
    ids_T, packing, segments_T = inputs
    return ids_T, packing, torch.zeros_like(ids_T) if segments_T is None else segments_T


def encoder_of(model: nn.Module) -> Encoder:
    """The encoder in a model with a head, or the model where it is one."""
    found = model if isinstance(model, Encoder) else getattr(model, "encoder", None)
    if not isinstance(found, Encoder):
        raise UsageError(
            f"{type(model).__name__} has no encoder of Lexome's own, so it cannot be sharded. Models of the "
            "transformers backend support data parallelism only.",
            code="unsupported-parallelism",
            value=type(model).__name__,
        )
    return found


Result = TypeVar("Result")
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
    """This process's place among those of the run. With one process, all its methods return what they are given.

    `replica` of `replicas` selects its micro-batches; `first` is True for the one process that writes files.
    """

    def __init__(self, sizes: Sizes, device: torch.device, mesh: DeviceMesh | None = None) -> None:
        self.sizes, self.device, self.mesh = sizes, device, mesh
        self.rank = 0 if mesh is None else dist.get_rank()
        # Ranks count along the tensor axis first: neighbors, which have the fastest link, are one tensor group.
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

    def wrap(self, model: nn.Module, config: EncoderConfig, *, half: bool = False) -> nn.Module:
        """The module to call in place of a model, which was initialized identically in every process.

        The model itself is changed and keeps the names of its weights: optimizers and checkpoints still use it.
        `half` is for FSDP2, which then computes and sends weights in bfloat16 while each process keeps its part in
        float32: give it a model in float32, also where the precision is to be bf16.
        """
        if self.mesh is None:
            return model
        check_fits(config, tensor=self.sizes.tensor)
        if not self.sharded:
            return replicate(model, self.mesh["data"].get_group())
        if self.sizes.tensor > 1:
            split_matrices(model, config, self.mesh["tensor"])
        if self.sizes.fsdp:
            mesh = self.mesh["shard"] if self.sizes.data == 1 else self.mesh["data", "shard"]
            shard(model, mesh, half=half)
        return model

    def own_batches(self, step: Step) -> Step:
        """A step with the micro-batches of this replica alone. Counts of the step stay those of all replicas.

        So a recipe says how large a step is, and not how many processes compute it: 2 replicas with 1 micro-batch each
        train on what one process with 2 does, and are at the same place in the text.
        """
        if len(step.batches) % self.replicas:
            raise UsageError(
                f"a step has {len(step.batches)} micro-batches for {self.replicas} replicas; expected a multiple. "
                "Set batch.gradient_accumulation and each number in batch.ramp to one.",
                code="uneven-batches",
                value=len(step.batches),
            )
        return replace(step, batches=step.batches[self.replica :: self.replicas])

    def scale_loss(self, loss: Loss) -> Loss:
        """The loss for this replica's micro-batches, so that the mean over replicas is the loss of the whole step.

        A loss is a sum over a micro-batch, divided by a count of the whole step; DDP and FSDP2 average the gradients.
        So each is multiplied by the number of replicas, and a replica with few masks counts little.
        """
        if self.replicas == 1:
            return loss

        def scaled(model: nn.Module, batch: Any) -> tuple[Tensor, Terms]:
            part, terms = loss(model, batch)
            return part * self.replicas, terms

        return scaled

    def sum_over_replicas(self, result: StepResult) -> StepResult:
        """A step with the loss, the terms and the counts of all replicas, without synchronizing with the GPU."""
        if self.replicas == 1:
            return result
        names = sorted(result.terms)
        values = torch.stack([result.loss.double(), *(result.terms[name].double() for name in names)])
        # Each member of a tensor group has the same sums, so that the sum over all counts them that many times.
        dist.all_reduce(values)
        values = values / self.sizes.tensor
        loss, terms = values[0] / self.replicas, dict(zip(names, values[1:], strict=True))
        if not result.counts:
            return replace(result, loss=loss, terms=terms)
        # These are numbers of the host, and are added up there.
        counts = torch.tensor(list(result.counts.values()))
        dist.all_reduce(counts)
        summed = dict(zip(result.counts, (counts // self.sizes.tensor).tolist(), strict=True))
        return replace(result, counts=summed, loss=loss, terms=terms)

    def all_agree(self, condition: bool) -> bool:
        """True where it is True in every process, so that all of them stop or none."""
        if self.mesh is None:
            return condition
        every = torch.tensor(int(condition))
        dist.all_reduce(every, op=dist.ReduceOp.MIN)
        return bool(every)

    def from_first(self, compute: Callable[[], Result]) -> Result:
        """The result of a function that only the first process calls, in every process; the others wait for it.

        Its LexomeError is raised in all of them.
        """
        if self.mesh is None:
            return compute()
        answer: list[Any] = [None, None]
        if self.first:
            try:
                answer[0] = compute()
            except LexomeError as error:
                answer[1] = error
        dist.broadcast_object_list(answer, src=0, device=torch.device("cpu"))
        if answer[1] is not None:
            raise answer[1]
        return cast(Result, answer[0])

    def clock(self, clock: Clock) -> Clock:
        """The first process's clock for all, so that a time budget ends everywhere at the same step."""
        if self.mesh is None:
            return clock

        def shared() -> float:
            # On the CPU, where no GPU has to be waited for.
            now = torch.tensor(clock(), dtype=torch.float64)
            dist.broadcast(now, src=0)
            return float(now)

        return shared

    def seed(self, seed: int, *, step: int = 0) -> None:
        """Seed dropout: differently for each replica, equally in a tensor group, whose activations stay the same.

        Call it when the model is built, for its weights are initialized identically in every process.
        """
        if self.mesh is not None:
            state = np.random.SeedSequence(seed, spawn_key=(step, self.replica)).generate_state(1, np.uint64)
            torch.manual_seed(int(state[0] >> np.uint64(1)))

    def wait(self) -> None:
        """Return when every process has called it."""
        if self.mesh is not None:
            # A sum on the CPU, which waits for no GPU, as dist.barrier would.
            dist.all_reduce(torch.zeros(1))


@contextmanager
def join_processes(
    *,
    data: int | None = None,
    shard: int = 1,
    tensor: int = 1,
    backend: str = "auto",
    device: str = "auto",
    environment: Mapping[str, str] = os.environ,
) -> Iterator[Parallel]:
    """This process's place among those that torchrun started; without torchrun, it is alone."""
    sizes = sizes_of(environment, data=data, shard=shard, tensor=tensor)
    here, backend = device_of(device, environment, backend=backend)
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


def sizes_of(environment: Mapping[str, str], *, data: int | None = None, shard: int = 1, tensor: int = 1) -> Sizes:
    """The processes along each axis; UsageError where their product is not the number that was started.

    Without `data`, as many copies of the model as the processes allow.
    """
    world = int(environment.get("WORLD_SIZE", "1"))
    sizes = Sizes(max(1, world // (shard * tensor)) if data is None else data, shard, tensor)
    if sizes.world != world:
        raise UsageError(
            f"[parallel] asks for {sizes.data} data x {sizes.shard} shard x {sizes.tensor} tensor = {sizes.world} "
            f"processes, and {world} {'was' if world == 1 else 'were'} started. Start as many: "
            f"torchrun --nproc-per-node {sizes.world} -m lexome ..., or change the table.",
            code="wrong-world-size",
            value=world,
        )
    return sizes


def device_of(device: str, environment: Mapping[str, str], *, backend: str = "auto") -> tuple[torch.device, str]:
    """The device of this process, and the communication backend."""
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device == "cuda" and not gpus:
        raise UsageError(
            'device is "cuda", but torch sees no GPU. Use device = "auto" or "cpu", or check driver and torch build.',
            code="no-gpu",
            value=device,
        )
    on_gpu = device != "cpu" and gpus > 0
    if backend == "nccl" and not on_gpu:
        raise UsageError(
            'parallel.backend is "nccl", which is for GPUs, and this run is on CPUs. Use "auto" or "gloo".',
            code="no-gpu",
            value="nccl",
        )
    if not on_gpu:
        return torch.device("cpu"), "gloo"
    local = int(environment.get("LOCAL_RANK", "0"))
    if local >= gpus:
        raise UsageError(
            f"this is process {local} of its machine, counted from 0, and torch sees {gpus} GPUs; expected one for "
            f"each. Start with --nproc-per-node {gpus}.",
            code="too-many-processes",
            value=local,
        )
    return torch.device("cuda", local), "nccl" if backend == "auto" else backend
