"""Many processes on one run: who this process is, what it reads, and what it adds up with the others.

A run has data x shard x tensor processes. The first two make replicas, each with its own batches; the processes of
one tensor group work on the same batch. All of it is torch's own: torchrun, a device mesh, DDP, FSDP2, DTensor.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from lexome.errors import UsageError
from lexome.models.config import EncoderConfig
from lexome.recipe.parallel import ParallelTable
from lexome.train.cutting import check_fits, cut, replicate, shard
from lexome.train.loader import Batch, Step
from lexome.train.loop import Clock, Done
from lexome.train.losses import Loss, Terms
from lexome.values import value

AXES = ("data", "shard", "tensor")


@value
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
                "Set batch.passes and each number in batch.ramp to one."
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
