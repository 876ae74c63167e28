"""How a fine-tuning step is computed: its loss, CUDA graphs, and quantization-aware training."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from lexome.errors import UsageError
from lexome.models.attention import varlen_kernel_available
from lexome.models.encoder import Attention, Encoder
from lexome.training.finetune.batching import TaskBatch
from lexome.training.finetune.objective import Distillation, LossSettings, TaskLoss
from lexome.training.finetune.task_model import TaskModel
from lexome.training.loader import Step
from lexome.training.loop import Loss, Terms, Updater
from lexome.training.optim import Optimizers


class FinetuneLoss:
    """The task's loss of a micro-batch, plus the distillation loss where there are teachers."""

    def __init__(
        self, task_loss: TaskLoss, distillation: Distillation | None = None, *, autocast: torch.dtype | None = None
    ) -> None:
        self.task_loss, self.distillation, self.autocast = task_loss, distillation, autocast

    def __call__(self, model: nn.Module, batch: TaskBatch) -> tuple[Tensor, Terms]:
        device, enabled = batch.ids_T.device.type, self.autocast is not None
        # Each weight is cast once per micro-batch: there is nothing to cache, and a recorded step must not.
        with torch.autocast(device, self.autocast, enabled=enabled, cache_enabled=False):
            logits = model(batch)
            soft_labels = None if self.distillation is None else self.distillation.soft_labels(batch)
        loss = self.task_loss(logits, batch)
        if self.distillation is not None and soft_labels is not None:
            loss = loss + self.distillation.loss(logits, soft_labels, batch)
        return loss, {}


# --- CUDA graphs

Result = tuple[Tensor, Tensor]
"""The loss and the gradient norm."""


def can_record(model: TaskModel, settings: LossSettings, *, autocast: torch.dtype | None) -> bool:
    """Whether a step launches the same kernels for all batches of one size.

    Attention with dropout or in float32 depends on lengths, and a model of transformers may do anything; of the losses,
    a CRF's depends on lengths too, and the focal and dice loss index with masks.
    """
    encoder = model.model.encoder
    return (
        isinstance(encoder, Encoder)
        and not encoder.gradient_checkpointing
        and varlen_kernel_available(autocast, windows=encoder.config.local_window is not None)
        and all(part.dropout == 0.0 for part in encoder.modules() if isinstance(part, Attention))
        and model.crf is None
        and settings.kind in ("plain", "weighted")
    )


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """The CUDA graph of a step for batches of one size, with its input and its result."""

    batch: TaskBatch
    graph: torch.cuda.CUDAGraph
    result: Result


class StepGraphs:
    """Steps on one GPU, recorded as CUDA graphs, one for each size of a batch.

    `step` updates the weights by a batch on the GPU, reading the learning rate from there.
    """

    def __init__(self, step: Callable[[TaskBatch], Result], device: torch.device) -> None:
        self._step, self._device = step, device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()
        self._seen: set[int] = set()
        self._recorded: dict[int, RecordedStep] = {}
        self._failed = False

    def __call__(self, batch: TaskBatch) -> Result:
        """One step by a batch in pinned memory; the result may be kept."""
        outer = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(outer)
        with torch.cuda.stream(self._stream):
            result = self._on_stream(batch)
        outer.wait_stream(self._stream)
        return result

    def _on_stream(self, batch: TaskBatch) -> Result:
        size = batch.ids_T.shape[0]
        recorded = self._recorded.get(size)
        if recorded is None and size in self._seen and not self._failed:
            recorded = self._record(batch)
        self._seen.add(size)
        if recorded is None:
            return self._step(self._to_device(batch))
        recorded.batch.copy_from(batch)
        recorded.graph.replay()
        loss, norm = recorded.result
        return loss.clone(), norm.clone()

    def _record(self, batch: TaskBatch) -> RecordedStep | None:
        """Record the step for batches of this size. Nothing is computed meanwhile; None where it cannot be done."""
        denominator = torch.tensor(float(batch.denominator), device=self._device)
        static = replace(self._to_device(batch), denominator=denominator)
        graph = torch.cuda.CUDAGraph()
        self._stream.synchronize()
        try:
            # The prefetching thread goes on pinning memory, which is forbidden to the recording thread alone.
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                result = self._step(static)
            finally:
                graph.capture_end()
        except RuntimeError as error:
            self._failed = True
            why = str(error).partition("\n")[0]
            print(f"warning: steps cannot be recorded as CUDA graphs ({why}); training is slower.", file=sys.stderr)
            return None
        self._recorded[batch.ids_T.shape[0]] = recorded = RecordedStep(static, graph, result)
        return recorded

    def _to_device(self, batch: TaskBatch) -> TaskBatch:
        return batch.map(lambda tensor: tensor.to(self._device, non_blocking=True))


class GraphedUpdater(Updater[TaskBatch]):
    """Makes steps of one micro-batch by CUDA graphs, and others as usual."""

    def __init__(self, model: nn.Module, optimizers: Optimizers, loss: Loss) -> None:
        super().__init__(model, optimizers, loss)
        self._graphs = StepGraphs(self._update, self.device)

    def __call__(self, step: Step, lr: float) -> tuple[Tensor, Tensor, Terms]:
        if len(step.batches) > 1:
            return super().__call__(step, lr)
        self.optimizers.set_lr(lr)
        return *self._graphs(step.batches[0]), {}

    def _update(self, batch: TaskBatch) -> Result:
        loss, _ = self.accumulate([batch])
        return loss, self.optimizers.step()


# --- Quantization-aware training

# As export/quantize.py has it for weights, and ONNX's DynamicQuantizeLinear for activations.
WEIGHT_STEPS, INPUT_STEPS = 127, 255


class FakeQuantLinear(nn.Linear):
    """A linear layer with fake int8 quantization of input and weight in training, where `enabled` is 1."""

    enabled: Tensor

    def forward(self, input_TD: Tensor) -> Tensor:
        if not self.training:
            return super().forward(input_TD)
        # Straight-through estimator: gradients pass as if nothing were rounded.
        seen_TD = input_TD + self.enabled * (fake_quantize_input(input_TD) - input_TD).detach()
        weight = self.weight + self.enabled * (fake_quantize_weight(self.weight) - self.weight).detach()
        return functional.linear(seen_TD, weight, self.bias)


def fake_quantize_weight(weight_RD: Tensor) -> Tensor:
    """A weight as int8 export stores it: symmetric, each row, a column there, with a scale of its own."""
    step_R1 = (weight_RD.abs().amax(dim=1, keepdim=True) / WEIGHT_STEPS).clamp(min=1e-12)
    return (weight_RD / step_R1).round() * step_R1


def fake_quantize_input(input_TD: Tensor) -> Tensor:
    """Activations as they go into an int8 product: in 255 steps from minimum to maximum, 0 being one of them."""
    exact_TD = input_TD.float()
    least, most = exact_TD.amin().clamp(max=0.0), exact_TD.amax().clamp(min=0.0)
    step = ((most - least) / INPUT_STEPS).clamp(min=1e-12)
    zero = (-least / step).round()
    whole_TD = ((exact_TD / step).round() + zero).clamp(0, INPUT_STEPS)
    return ((whole_TD - zero) * step).to(input_TD.dtype)


class QuantizationAwareTraining:
    """Fake quantization of all matrices in the layers of an encoder, switched on for the last part of a run."""

    def __init__(self, model: TaskModel, *, begin: float) -> None:
        encoder = model.model.encoder
        if not isinstance(encoder, Encoder):
            raise UsageError(
                "qat_ratio is not supported for models that transformers computes. Leave it out.",
                code="unsupported-model",
                value="qat_ratio",
            )
        self.begin, self.active = begin, False
        self.layers = [part for part in encoder.layers.modules() if type(part) is nn.Linear]
        self.enabled = torch.zeros((), device=next(encoder.parameters()).device)

    @contextmanager
    def prepared(self) -> Iterator[None]:
        """Within it the layers can quantize; afterwards they are as they were."""
        for layer in self.layers:
            layer.__class__ = FakeQuantLinear
            layer.enabled = self.enabled
        try:
            yield
        finally:
            for layer in self.layers:
                layer.__class__ = nn.Linear
                del layer.enabled

    def set_progress(self, fraction: float) -> None:
        """Switch quantization on where this much of the run is done; a recorded step reads it from the GPU."""
        self.active = fraction >= self.begin
        self.enabled.fill_(float(self.active))
