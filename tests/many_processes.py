"""Runs of a few processes on one machine, and the tiny training that each of them does in the tests."""

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh

from lexome.models.encoder import EncoderConfig, Packing
from lexome.models.heads import MaskedLM, PairedLM
from lexome.recipe import ParallelTable
from lexome.training.loop import Batch, Loss, Position, Step, Updater, train
from lexome.training.losses import DistilledLM, DistillingLoss, LossWeights, PretrainingLoss, projection
from lexome.training.optim import LearningRateSchedule, Length, Optimizers, OptimizerSettings
from lexome.training.parallel import AXES, Parallel, Sizes, join_processes
from lexome.training.sampling import IGNORE_INDEX, BatchPosition
from lexome.training.trainer import gather_weights, restore_state, save_state

STEPS = 5
ALONE = Parallel(Sizes(), torch.device("cpu"))
# Wide weights, so that a wrong sum or a missing part is far above rounding; norms of gradients are above the limit.
POST = EncoderConfig(
    vocab=48,
    layers=2,
    hidden_size=16,
    heads=4,
    intermediate_size=24,
    max_tokens=16,
    dropout=0.0,
    attention_dropout=0.0,
    initial_std=0.2,
)
MODERN = replace(
    POST,
    vocab=49,
    norm="pre",
    positions="rotary",
    segments=0,
    gated=True,
    biases=False,
    norm_biases=False,
    head_biases=False,
    first_norm=False,
    final_norm=True,
    local_window=2,
    global_every=2,
)
# Wider and deeper than what learns from it.
TEACHER = replace(POST, layers=3, hidden_size=24, intermediate_size=32)


@dataclass(frozen=True)
class Case:
    """One way to train, and over how many processes."""

    name: str
    sizes: Sizes
    config: EncoderConfig = POST
    optimizer: str = "adamw"
    paired: bool = False
    half: bool = False
    taught: bool = False


def built(case: Case) -> nn.Module:
    """The model of a case, alike in every process."""
    torch.manual_seed(3)
    if case.taught:
        student = MaskedLM(case.config)
        return DistilledLM(student, projection(student, TEACHER.hidden_size))
    return (PairedLM if case.paired else MaskedLM)(case.config)


def loss_of(case: Case) -> Loss:
    """The loss of a case; a teacher is alike in every process too."""
    autocast = torch.bfloat16 if case.half else None
    if not case.taught:
        return PretrainingLoss(autocast=autocast)
    torch.manual_seed(4)
    return DistillingLoss(MaskedLM(TEACHER), LossWeights(), autocast=autocast)


def steps(case: Case, *, passes: int = 4, since: int = 0) -> Iterator[Step]:
    """Steps of random tokens. Each pass has another number of sequences, and of masks from 1 to 13."""
    for number in range(since, 1000):
        generator = torch.Generator().manual_seed(number)
        batches = [_batch(case, generator, sequences=3 + place, masks=1 + 4 * place) for place in range(passes)]
        counts = [sum(getattr(batch, name) for batch in batches) for name in ("masked", "sequences")]
        tokens = sum(batch.tokens for batch in batches)
        of_step = {"masked_of_step": counts[0], "sequences_of_step": counts[1], "tokens_of_step": tokens}
        whole = [replace(batch, **of_step) for batch in batches]
        yield Step(tuple(whole), tokens, BatchPosition(0, number + 1, 16), {"rate": 0.15})


def _batch(case: Case, generator: torch.Generator, *, sequences: int, masks: int) -> Batch:
    lengths = torch.randint(4, 12, (sequences,), generator=generator)
    tokens = int(lengths.sum())
    labels_M = torch.randint(0, case.config.vocab, (masks + 2,), generator=generator)
    labels_M[-2:] = IGNORE_INDEX
    return Batch(
        ids_T=torch.randint(0, case.config.vocab, (tokens,), generator=generator),
        segments_T=torch.randint(0, 2, (tokens,), generator=generator) if case.paired else None,
        packing=Packing.of(lengths.cumsum(0).tolist()),
        positions_M=torch.randint(0, tokens, (masks + 2,), generator=generator),
        labels_M=labels_M,
        pair_labels_S=torch.randint(0, 2, (sequences,), generator=generator) if case.paired else None,
        masked=masks,
        sequences=sequences,
        masked_of_step=0,
        sequences_of_step=0,
        tokens=tokens,
        tokens_of_step=0,
    )


class Running:
    """A case in training, by this process's part."""

    def __init__(self, case: Case, parallel: Parallel) -> None:
        self.case, self.parallel, self.position = case, parallel, Position()
        self.model = built(case)
        self.called = parallel.wrap(self.model, case.config, half=case.half)
        settings = OptimizerSettings(case.optimizer, max_grad_norm=0.5)  # type: ignore[arg-type]
        self.optimizers = Optimizers(self.model, case.config, settings)

    def train(self, until: int = STEPS) -> dict[str, list[float]]:
        """Losses, sums and norms of the steps up to a number."""
        own = (self.parallel.own_batches(step) for step in steps(self.case, since=self.position.step))
        loop = train(
            Updater(self.called, self.optimizers, self.parallel.scale_loss(loss_of(self.case))),
            own,
            length=Length(steps=until),
            schedule=LearningRateSchedule(3e-3, "constant", 0.0, 0.0, 0.0),
            position=self.position,
            clock=self.parallel.clock(time.monotonic),
        )
        seen: dict[str, list[float]] = {"loss": [], "norm": [], "masked": [], "sequences": []}
        for done in map(self.parallel.sum_over_replicas, loop):
            seen["loss"].append(float(done.loss))
            seen["norm"].append(float(done.norm))
            for name, count in done.counts.items():
                seen[name].append(count)
            for name, total in done.terms.items():
                seen.setdefault(name, []).append(float(total))
        return seen

    def save(self, folder: Path) -> Path:
        """A state of the run."""
        return save_state(
            folder,
            self.model,
            self.optimizers,
            self.position,
            parallel=self.parallel,
            identity="this",
            notes={"said": "so"},
            keep=1,
        )

    def restore(self, path: Path, *, identity: str = "this") -> dict[str, Any]:
        """Go on from a state."""
        return restore_state(
            path,
            self.model,
            self.optimizers,
            self.position,
            parallel=self.parallel,
            identities=[identity],
            seed=1,
        )

    def weights(self) -> dict[str, Tensor]:
        """The whole weights, in the first process."""
        return gather_weights(self.model, self.optimizers, parallel=self.parallel)


def meshed(sizes: Sizes) -> Parallel:
    """The place of this process, where processes have been joined before."""
    return Parallel(
        sizes,
        torch.device("cpu"),
        init_device_mesh("cpu", (sizes.data, sizes.shard, sizes.tensor), mesh_dim_names=AXES),
    )


def alone(case: Case, folder: Path) -> dict[str, Any]:
    """A case in one process: what it saw, its weights, and in `folder` a state after three steps."""
    running = Running(case, ALONE)
    seen = running.train(3)
    running.save(folder / "alone" / case.name)
    more = running.train()
    return {"seen": {name: seen[name] + more[name] for name in seen}, "weights": running.weights()}


def cases_work(parallel: Parallel, cases: list[Case], folder: Path) -> None:
    """Train each case, save after three steps, go on; and go on from the state of one process."""
    for case in cases:
        here = meshed(case.sizes)
        running = Running(case, here)
        seen = running.train(3)
        running.save(folder / "together" / case.name)
        more = running.train()
        weights = running.weights()
        again = Running(case, here)
        notes = again.restore(folder / "alone" / case.name / "step-00000003")
        again.train()
        resumed = again.weights()
        if parallel.first:
            whole = {name: seen[name] + more[name] for name in seen}
            torch.save(
                {
                    "seen": whole,
                    "weights": weights,
                    "resumed": resumed,
                    "notes": notes,
                    "shares": shares(running.model),
                },
                folder / f"{case.name}.pt",
            )
    torch.save(draws_and_time(parallel), folder / f"rank-{parallel.rank}.pt")


def draws_and_time(parallel: Parallel) -> dict[str, float]:
    """What dropout would draw in this process, by axis, and the time that it takes it to be."""
    world = dist.get_world_size()
    found: dict[str, float] = {}
    for name, sizes in (("data", Sizes(world)), ("tensor", Sizes(tensor=world))):
        meshed(sizes).seed(7)
        found[name] = float(torch.rand(()))
    found["clock"] = parallel.clock(lambda: 100.0 + parallel.rank)()
    return found | {"all_first": parallel.all_agree(parallel.first), "all_there": parallel.all_agree(True)}


def shares(model: nn.Module) -> dict[str, float]:
    """How much of each weight this process holds."""
    return {
        name: weight.to_local().numel() / weight.numel() if hasattr(weight, "to_local") else 1.0
        for name, weight in model.named_parameters()
    }


Work = Callable[..., None]


def together(count: int, work: Work, *given: Any, table: ParallelTable | None = None, timeout_s: float = 600) -> None:
    """Run `work(parallel, *given)` in so many processes, join_processes as torchrun joins them. None is left behind."""
    # The parent keeps the store, as torchrun does, so that the system chooses the port and nobody else can take it.
    store = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    # One server imports torch, which takes seconds, and is forked for each process. It ends with its parent.
    multiprocessing.set_forkserver_preload(["lexome.training.trainer"])
    context = torch.multiprocessing.start_processes(
        _begun,
        (count, store.port, table or ParallelTable(), work, given),
        nprocs=count,
        join=False,
        daemon=True,
        start_method="forkserver",
    )
    assert context is not None
    until = time.monotonic() + timeout_s
    try:
        while not context.join(timeout=1.0):
            if time.monotonic() > until:
                raise TimeoutError(f"{count} processes have not ended after {timeout_s:.0f} s")
    finally:
        for process in context.processes:
            if process.is_alive():
                process.kill()
            process.join()


def _begun(rank: int, count: int, port: int, table: ParallelTable, work: Work, given: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
    with join_processes(**table.model_dump(), device="cpu") as parallel:
        work(parallel, *given)
