"""Fits one model to a task: steps with CUDA graphs or fake quantization, evaluation on dev, early stopping."""

import math
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import AdamW

from lexome.document import Document
from lexome.errors import DivergedError, UsageError
from lexome.models.encoder import Attention, Encoder, Packing, varlen_kernel_available
from lexome.models.heads import SequenceHead, fold_standardization
from lexome.tasks.document_relation import FIRST, SECOND
from lexome.tasks.task import Example, Floats, Scores, Task, fill
from lexome.training.finetune.examples import Split
from lexome.training.finetune.task_model import (
    Distillation,
    LossSettings,
    TaskBatch,
    TaskLoss,
    TaskModel,
    TrainingPlan,
    label_count,
    pair_targets,
    to_batch,
)
from lexome.training.loop import Loss, Step, StepResult, StopSignal, Terms, Updater, prefetch
from lexome.training.optim import LearningRateSchedule, Optimizers
from lexome.training.trainer import Line, Trainer, reading_run_file

# Steps


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


# CUDA graphs

Result = tuple[Tensor, Tensor]
"""The loss and the gradient norm."""


def can_record(model: TaskModel, task: Task, settings: LossSettings, *, autocast: torch.dtype | None) -> bool:
    """Whether a step launches the same kernels for all batches of one size.

    Attention with dropout or in float32 depends on lengths, and models of transformers are not known to be static. Of
    the losses, a CRF's depends on lengths, the pair loss on the number of pairs, and focal and dice index with masks.
    """
    encoder = model.model.encoder
    return (
        isinstance(encoder, Encoder)
        and not encoder.gradient_checkpointing
        and varlen_kernel_available(autocast, windows=encoder.config.local_window is not None)
        and all(part.dropout == 0.0 for part in encoder.modules() if isinstance(part, Attention))
        and model.crf is None
        and task.loss != "pairs"
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
        """One step by a batch in pinned memory; later steps do not overwrite the result."""
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
        """Record the step for batches of this size, without computing anything; None where recording fails."""
        denominator = torch.tensor(float(batch.denominator), device=self._device)
        static = replace(self._to_device(batch), denominator=denominator)
        graph = torch.cuda.CUDAGraph()
        self._stream.synchronize()
        try:
            # The prefetching thread keeps pinning memory; only the recording thread must not.
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


# Quantization-aware training

# As export/int8.py has it for weights, and ONNX's DynamicQuantizeLinear for activations.
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
    """A weight as int8 export stores it: symmetric, with one scale per row, which is a column in ONNX."""
    step_R1 = (weight_RD.abs().amax(dim=1, keepdim=True) / WEIGHT_STEPS).clamp(min=1e-12)
    return (weight_RD / step_R1).round() * step_R1


def fake_quantize_input(input_TD: Tensor) -> Tensor:
    """Activations as an int8 matrix product takes them: rounded to 255 steps from minimum to maximum, 0 included."""
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
        """A context in which the layers can quantize; afterwards they are plain linear layers again."""
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
        """Switch quantization on once enough of the run is done; recorded steps read the switch from the GPU."""
        self.active = fraction >= self.begin
        self.enabled.fill_(float(self.active))


# Fitting a model

# Early stopping ignores evaluations before this step: epochs of a small dataset have only a few steps.
FIRST_STEPS = 100


@dataclass
class BestScores:
    """The best evaluation on dev so far, and the number of evaluations since then without an improvement."""

    scores: Scores | None = None
    step: int = 0
    misses: int = 0
    stopped_early: bool = False


@dataclass(frozen=True)
class EvaluationSettings:
    """When to evaluate on dev, and what to select by.

    every         steps between evaluations; None: once per epoch
    metric        for model selection; None: the task's first
    patience      evaluations without improvement after which training stops; None: never
    batch_tokens  maximum tokens per batch
    """

    every: int | None = None
    metric: str | None = None
    patience: int | None = None
    batch_tokens: int = 65_536

    def metric_of(self, scores: Scores) -> str:
        """The metric that selects models."""
        if self.metric is not None and self.metric not in scores:
            message = f"evaluation.metric is {self.metric!r}; the task has {', '.join(scores)}."
            raise UsageError(message, code="unknown-metric", value=self.metric)
        return self.metric or next(iter(scores))

    def value(self, scores: Scores) -> float:
        """The score that models are selected by. One that is not defined counts as the worst."""
        score = scores[self.metric_of(scores)]
        return -math.inf if math.isnan(score) else score


class Fit:
    """One model in training on one task."""

    def __init__(
        self,
        model: TaskModel,
        task: Task,
        plan: TrainingPlan,
        dev: Split | None,
        *,
        trainer: Trainer,
        updater: Updater[TaskBatch],
        evaluation: EvaluationSettings,
        qat: QuantizationAwareTraining | None = None,
        autocast: torch.dtype | None = None,
        log_every: int = 50,
        prefetch: int = 8,
    ) -> None:
        self.model, self.task, self.plan, self.dev = model, task, plan, dev
        self.trainer, self.updater, self.evaluation, self.qat = trainer, updater, evaluation, qat
        self.autocast, self.log_every, self.prefetch = autocast, log_every, prefetch
        self.best = BestScores()
        self.best_weights: dict[str, Tensor] = {}

    def run(self, stop: StopSignal | None = None) -> Iterator[tuple[Line, bool]]:
        """Train to the end, yielding each line of metrics and whether a training state may be saved after it.

        After a step in which `stop` was received an empty line is yielded, so that the state can be saved at once.
        Afterwards the model has the best weights.
        """
        trainer, position, parallel = self.trainer, self.trainer.position, self.trainer.parallel
        self.model.train()
        on_gpu = parallel.device.type == "cuda"
        steps = (step.pinned() if on_gpu else step for step in self.plan.steps(done=position.step))
        with self.qat.prepared() if self.qat is not None else nullcontext(), prefetch(steps, self.prefetch) as prepared:
            for result in trainer.steps(self._update, prepared):
                last = position.step == self.plan.count
                evaluating = self._evaluation_due(result, last=last)
                if not (evaluating or last or position.step % self.log_every == 0):
                    if stop is not None and not parallel.all_agree(not stop.received):
                        yield {}, True
                    continue
                yield trainer.log(result), not (evaluating or last)
                if last:
                    trainer.check_finite(result)
                if evaluating:
                    line = {"step": position.step, "epoch": position.place.epoch, "dev": self._evaluate()}
                    trainer.write(line)
                    stopping = self.evaluation.patience is not None and self.best.misses >= self.evaluation.patience
                    self.best.stopped_early = stopping and not last
                    yield line, not (last or stopping)
                    if stopping:
                        break
        if self.best_weights:
            load_weights(self.model, self.best_weights)

    def _update(self, step: Step, lr: float) -> tuple[Tensor, Tensor, Terms]:
        if self.qat is not None:
            self.qat.set_progress(self.trainer.position.step / self.plan.count)
        return self.updater(step, lr)

    def _evaluation_due(self, result: StepResult, *, last: bool) -> bool:
        if self.dev is None:
            return False
        every = self.evaluation.every
        return last or (result.ends_epoch if every is None else self.trainer.position.step % every == 0)

    def _evaluate(self) -> Scores:
        """Scores on dev; keeps a copy of the weights if they are the best so far."""
        trainer, began = self.trainer, time.monotonic()
        scores = trainer.parallel.from_first(self._dev_scores)
        trainer.position.elapsed_s += time.monotonic() - began
        # Throughput is that of training alone.
        trainer.sums.began_s = trainer.position.elapsed_s
        if self.qat is not None and not self.qat.active:
            # A run with quantization-aware training must not select weights from before quantization.
            return scores
        best, value = self.best, self.evaluation.value
        if best.scores is None or value(scores) > value(best.scores):
            self.best = BestScores(scores, trainer.position.step)
            self.best_weights = copy_weights(self.model)
        elif value(best.scores) > 0 and trainer.position.step > FIRST_STEPS:
            # A score of 0 is not a miss: the first epochs on rare labels may predict none of them.
            best.misses += 1
        return scores

    def _dev_scores(self) -> Scores:
        assert self.dev is not None
        task = self.serving_task()
        return score(task, self.dev, self.predict(self.dev))

    def predict(self, split: Split) -> list[Document]:
        """The documents of a split with the model's predictions in place of their gold annotations."""
        return predict(
            self.model,
            split,
            self.serving_task(),
            batch_tokens=self.evaluation.batch_tokens,
            segments=self.plan.segments,
            autocast=self.autocast,
        )

    def serving_task(self) -> Task:
        """The task as it is served: with the transitions that a CRF has learned."""
        if self.model.crf is None:
            return self.task
        return self.task.with_transitions(self.model.crf.transitions())

    def save(self, folder: Path, *, identity: str) -> None:
        """Save the training state."""
        weights = {name: weight.cpu() for name, weight in self.best_weights.items()}
        self.trainer.save(folder, identity=identity, notes={"selection": asdict(self.best), "weights": weights})

    def restore(self, path: Path, *, identities: Collection[str], seed: int) -> None:
        """Resume from a training state."""
        notes = self.trainer.restore(path, identities=identities, seed=seed)
        device = self.trainer.parallel.device
        with reading_run_file(path):
            self.best = BestScores(**notes["selection"])
            self.best_weights = {name: weight.to(device) for name, weight in notes["weights"].items()}


def copy_weights(model: TaskModel) -> dict[str, Tensor]:
    """Copies of the trained weights."""
    return {name: weight.detach().clone() for name, weight in model.named_parameters() if weight.requires_grad}


@torch.no_grad()
def load_weights(model: TaskModel, weights: dict[str, Tensor]) -> None:
    """Load copied weights."""
    for name, weight in model.named_parameters():
        if name in weights:
            weight.copy_(weights[name])


@torch.inference_mode()
def predict_logits(
    model: TaskModel,
    examples: Sequence[Example],
    task: Task,
    *,
    batch_tokens: int,
    segments: bool,
    autocast: torch.dtype | None,
) -> list[Floats]:
    """The logits of each example, (C,) or (its tokens, C), in batches of examples of similar length.

    DivergedError where they are not finite.
    """
    training = model.training
    model.eval()
    device = next(model.parameters()).device
    lengths = [len(example.ids) for example in examples]
    order = sorted(range(len(examples)), key=lambda index: -lengths[index])
    results: dict[int, Floats] = {}
    for part in fill(order, lengths, batch_tokens):
        batch = to_batch([examples[index] for index in part], task, segments=segments)
        batch = batch.map(lambda tensor: tensor.to(device, non_blocking=True))
        with torch.autocast(device.type, autocast, enabled=autocast is not None):
            logits = model(batch)
        values = logits.float().cpu().numpy()
        if not np.isfinite(values).all():
            message = (
                "training diverged: logits contain NaN or infinity. Lower optimizer.lr, or raise schedule.warmup_ratio."
            )
            raise DivergedError(message, code="not-finite")
        pieces = values if task.head == "sequence" else np.split(values, np.cumsum([lengths[n] for n in part])[:-1])
        results.update(zip(part, pieces, strict=True))
    model.train(training)
    return [results[index] for index in range(len(examples))]


def predict(
    model: TaskModel, split: Split, task: Task, *, batch_tokens: int, segments: bool, autocast: torch.dtype | None
) -> list[Document]:
    """The documents of a split with the model's predictions in place of their gold annotations."""
    logits = predict_logits(
        model, split.examples, task, batch_tokens=batch_tokens, segments=segments, autocast=autocast
    )
    remaining = iter(logits)
    return [
        task.decode(doc, examples, [next(remaining) for _ in examples])
        for doc, examples in zip(split.docs, split.encoded, strict=True)
    ]


def score(task: Task, split: Split, predictions: Sequence[Document]) -> Scores:
    """The task's metrics. With several sources each is scored by what it annotates, and their mean comes first.

    The mean is that of the task's first metric, every source counting the same.
    """
    sources = dict.fromkeys(split.sources)
    if len(sources) == 1:
        return task.for_source(next(iter(sources))).score(split.docs, predictions)
    parts: dict[str, Scores] = {}
    for name in sources:
        places = [place for place, source in enumerate(split.sources) if source == name]
        gold = [split.docs[place] for place in places]
        parts[name] = task.for_source(name).score(gold, [predictions[place] for place in places])
    first = next(iter(next(iter(parts.values()))))
    scores = {first: float(np.mean([part[first] for part in parts.values()]))}
    return scores | {f"{name} {metric}": value for name, part in parts.items() for metric, value in part.items()}


# Linear probing before fine-tuning: a new head is trained on the frozen encoder's vectors before all weights are
#
# A randomly initialized head distorts the encoder until it has learned something (Kumar et al. 2022), and where the
# vectors of all texts are nearly the same that takes epochs: over abstracts, the first-token vectors of a masked
# language model have a norm of 11 and a standard deviation of 0.06 per coordinate. The training set's vectors are
# computed once and standardized, the head is trained on them within seconds, and mean and deviation are folded into
# its weights.


Report = Callable[[str], None]
"""Reports the progress of probing."""

# Large datasets are probed in larger batches instead of more steps.
MAX_STEPS = 2_000
# Sequences per batch if the recipe sets batch.tokens instead.
BATCH = 32
# Makes the order of examples differ from that of fine-tuning, whose seed is (seed, epoch).
_ORDER = 1
# Coordinates that hardly vary are not scaled up to unit variance: the smallest deviation, relative to the median.
MIN_DEVIATION = 0.1


@dataclass(frozen=True, slots=True)
class ProbeSettings:
    """The optimizer of probing, and whether vectors are standardized for it."""

    lr: float
    weight_decay: float
    standardize: bool


def probe(
    fit: Fit,
    examples: Sequence[Example],
    loss: TaskLoss,
    settings: ProbeSettings,
    *,
    epochs: int,
    seed: int,
    report: Report = lambda message: None,
) -> list[float]:
    """Train the head of a run in place on the encoder's vectors of its examples; returns the loss of each epoch."""
    labeled = [example for example in examples if label_count(example)]
    device = fit.trainer.parallel.device
    # All processes compute the same head, and the random state of fine-tuning is the same with and without probing.
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        encode = encode_pairs if fit.task.loss == "pairs" else encode_examples
        vectors = encode(fit, labeled, report)
        mean_D, scale_D = vectors.standardize() if settings.standardize else (None, None)
        sequences = (fit.plan.size.sequences or BATCH) * fit.plan.size.accumulation
        batch_size = max(sequences * len(vectors) // len(labeled), -(-len(vectors) * epochs // MAX_STEPS))
        head = fit.model.model.head
        losses = train_head(head, vectors, loss, settings, batch_size=batch_size, epochs=epochs, seed=seed)
    if mean_D is not None and scale_D is not None:
        fold_standardization(head, mean_D, scale_D)
    return losses


class CachedVectors:
    """The frozen encoder's vector of each sequence or token, (N, D) in float32, and their targets."""

    def __init__(self, vectors_ND: Tensor, targets: Tensor) -> None:
        self.vectors_ND, self.targets = vectors_ND, targets

    def __len__(self) -> int:
        return len(self.vectors_ND)

    def standardize(self) -> tuple[Tensor, Tensor]:
        """Scale all coordinates to zero mean and unit variance in place; their mean and inverse deviation."""
        mean_D, scale_D = standardization(self.vectors_ND)
        self.vectors_ND = (self.vectors_ND - mean_D) * scale_D
        return mean_D, scale_D

    def select(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """The vectors of a batch, and its targets."""
        return self.vectors_ND[indices], self.targets[indices]


class CachedPairs(CachedVectors):
    """The vectors of the mentions of each example, and the rows of its pairs, which index those vectors."""

    def __init__(self, vectors_ND: Tensor, examples: Sequence[Example], mentions: Sequence[int]) -> None:
        super().__init__(vectors_ND, torch.zeros(0))
        self.examples, self.mentions = examples, mentions
        self.starts = np.cumsum([0, *mentions]).tolist()

    def __len__(self) -> int:
        return len(self.examples)

    def select(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """The vectors of all mentions of some examples, and the rows of their pairs."""
        own = indices.tolist()
        vectors = torch.cat([self.vectors_ND[self.starts[index] : self.starts[index + 1]] for index in own])
        targets = pair_targets([self.examples[index] for index in own], [self.mentions[index] for index in own])
        assert targets is not None
        return vectors, targets.to(vectors.device)


def encode_examples(fit: Fit, examples: Sequence[Example], report: Report) -> CachedVectors:
    """The encoder's vector of each sequence or token without dropout, and the targets."""
    vectors: list[Tensor] = []
    targets: list[Tensor] = []
    for _, batch, hidden_TD in _encode(fit, examples, report):
        head = fit.model.model.head
        pooled = head.pool(hidden_TD, batch.packing) if isinstance(head, SequenceHead) else hidden_TD
        assert batch.targets is not None
        vectors.append(pooled.float())
        targets.append(batch.targets)
    return CachedVectors(torch.cat(vectors), torch.cat(targets))


def encode_pairs(fit: Fit, examples: Sequence[Example], report: Report) -> CachedPairs:
    """The encoder's vector of each mention that is part of a pair, without dropout, and the rows of the pairs."""
    vectors: list[Tensor] = []
    rows: list[Example] = []
    mentions: list[int] = []
    for part, _, hidden_TD in _encode(fit, examples, report):
        for example, hidden in zip(part, torch.split(hidden_TD, [len(one.ids) for one in part]), strict=True):
            targets = np.array(example.targets)
            places, numbers = np.unique(targets[:, [FIRST, SECOND]], return_inverse=True)
            targets[:, [FIRST, SECOND]] = numbers.reshape(-1, 2)
            vectors.append(hidden[torch.from_numpy(places).to(hidden.device)].float())
            rows.append(replace(example, targets=targets))
            mentions.append(len(places))
    return CachedPairs(torch.cat(vectors), rows, mentions)


@torch.no_grad()
def _encode(fit: Fit, examples: Sequence[Example], report: Report) -> Iterator[tuple[list[Example], TaskBatch, Tensor]]:
    """The hidden states of all examples in batches of similar length, longest first."""
    encoder, device = fit.model.model.encoder, fit.trainer.parallel.device
    was_training = encoder.training
    encoder.eval()
    lengths = [len(example.ids) for example in examples]
    order = sorted(range(len(examples)), key=lambda index: -lengths[index])
    done = 0
    for indices in fill(order, lengths, fit.evaluation.batch_tokens):
        part = [examples[index] for index in indices]
        batch = to_batch(part, fit.task, segments=fit.plan.segments).map(lambda tensor: tensor.to(device))
        with torch.autocast(device.type, fit.autocast, enabled=fit.autocast is not None):
            hidden_TD = encoder(batch.ids_T, batch.packing, batch.segments_T)
        yield part, batch, hidden_TD
        done += len(part)
        report(f"{done:,} of {len(examples):,} sequences encoded")
    encoder.train(was_training)


def standardization(vectors_ND: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and inverse standard deviation of each coordinate, (D,) each."""
    deviation_D = vectors_ND.double().std(0, correction=0)
    smallest = (MIN_DEVIATION * deviation_D.median()).clamp(min=1e-6)
    return vectors_ND.double().mean(0).float(), (1 / deviation_D.clamp(min=smallest)).float()


def train_head(
    head: nn.Module,
    vectors: CachedVectors,
    loss: TaskLoss,
    settings: ProbeSettings,
    *,
    batch_size: int,
    epochs: int,
    seed: int,
) -> list[float]:
    """Train a head's layers on vectors with AdamW; returns the mean loss of each epoch."""
    matrices = [weight for weight in head.parameters() if weight.ndim > 1]
    biases = [weight for weight in head.parameters() if weight.ndim == 1]
    groups = [
        {"params": matrices, "weight_decay": settings.weight_decay},
        {"params": biases, "weight_decay": 0.0},
    ]
    optimizer = AdamW(groups, lr=settings.lr)
    schedule = LearningRateSchedule(settings.lr)
    examples = len(vectors)
    steps, step, losses = -(-examples // batch_size) * epochs, 0, []
    was_training = head.training
    head.train()
    for epoch in range(epochs):
        order = torch.from_numpy(np.random.default_rng([seed, epoch, _ORDER]).permutation(examples))
        total = vectors.vectors_ND.new_zeros(())
        for indices in torch.split(order.to(total.device), batch_size):
            for group in optimizer.param_groups:
                group["lr"] = schedule.at((step + 0.5) / steps)
            logits_NC, targets = vectors.select(indices)
            for layer in head.children():
                logits_NC = layer(logits_NC)
            batch_loss = loss(logits_NC, _targets_only(targets))
            batch_loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            total += batch_loss.detach() * len(indices) / examples
            step += 1
        losses.append(float(total))
    head.train(was_training)
    return losses


def _targets_only(targets: Tensor) -> TaskBatch:
    """A batch of targets alone, which is all that the losses of probed heads read."""
    return TaskBatch(torch.zeros(0, dtype=torch.int64), None, Packing.of([0]), targets, len(targets), 0)
