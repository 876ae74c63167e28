"""Training steps recorded as CUDA graphs: a small model on short rows spends its time on launching kernels otherwise.

Batches are filled up to a few sizes (batches.Padding). The first step of a size is computed as usual, the second is
recorded, and from then on a step of that size is one launch.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lexome.models.attention import packed_kernel_here
from lexome.models.encoder import Attention, Encoder
from lexome.train.finetune.batches import Batch
from lexome.train.finetune.losses import Rules
from lexome.train.finetune.model import Learner

Result = tuple[Tensor, Tensor]
"""The loss and the norm of the gradients."""


def can_record(learner: Learner, rules: Rules, *, autocast: torch.dtype | None) -> bool:
    """Whether a step of this model launches the same kernels whatever a batch of one size holds.

    Attention with dropout or in float32 goes by lengths, and a model of transformers may do anything; of the losses,
    that of chains goes by lengths too, and the focal and dice loss pick out what is asked.
    """
    encoder = learner.model.encoder
    return (
        isinstance(encoder, Encoder)
        and not encoder.checkpointing
        and packed_kernel_here(autocast, windows=encoder.config.local_window is not None)
        and all(part.dropout == 0.0 for part in encoder.modules() if isinstance(part, Attention))
        and learner.crf is None
        and rules.kind in ("plain", "weighted")
    )


@dataclass(frozen=True, slots=True)
class Recorded:
    """A step of one size: what it reads, what it is, what it leaves."""

    batch: Batch
    graph: torch.cuda.CUDAGraph
    result: Result


class StepGraphs:
    """Steps on one GPU. `step` changes the weights by a batch there, reading the learning rate from the GPU."""

    def __init__(self, step: Callable[[Batch], Result], device: torch.device) -> None:
        self._step, self._device = step, device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()
        self._seen: set[int] = set()
        self._recorded: dict[int, Recorded] = {}
        self._given_up = False

    def __call__(self, batch: Batch) -> Result:
        """One step by a batch in pinned memory; what it gives may be kept."""
        outer = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(outer)
        with torch.cuda.stream(self._stream):
            result = self._on_stream(batch)
        outer.wait_stream(self._stream)
        return result

    def _on_stream(self, batch: Batch) -> Result:
        size = batch.ids_T.shape[0]
        recorded = self._recorded.get(size)
        if recorded is None and size in self._seen and not self._given_up:
            recorded = self._record(batch)
        self._seen.add(size)
        if recorded is None:
            return self._step(batch.to(self._device))
        recorded.batch.take(batch)
        recorded.graph.replay()
        loss, norm = recorded.result
        return loss.clone(), norm.clone()

    def _record(self, batch: Batch) -> Recorded | None:
        """Record the step for batches of this size. Nothing is computed meanwhile; None where it cannot be done."""
        asked = torch.tensor(float(batch.asked), device=self._device)
        held = replace(batch.to(self._device), asked=asked)
        graph = torch.cuda.CUDAGraph()
        self._stream.synchronize()
        try:
            # The thread that makes batches goes on pinning memory, which is forbidden to the recording thread alone.
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                result = self._step(held)
            finally:
                graph.capture_end()
        except RuntimeError as error:
            self._given_up = True
            why = str(error).partition("\n")[0]
            print(f"steps are not recorded as CUDA graphs ({why}); they are slower without.", file=sys.stderr)
            return None
        self._recorded[batch.ids_T.shape[0]] = made = Recorded(held, graph, result)
        return made
