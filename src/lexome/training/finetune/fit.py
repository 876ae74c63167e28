"""Fits one model to a task: steps, evaluation on dev, the best weights, early stopping."""

import math
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from lexome.document import Document
from lexome.errors import UsageError
from lexome.tasks.task import Example, Floats, Scores, Task
from lexome.training.finetune.batching import TaskBatch, TrainingPlan, fill, to_batch
from lexome.training.finetune.examples import Split
from lexome.training.finetune.task_model import TaskModel
from lexome.training.finetune.update import QuantizationAwareTraining
from lexome.training.journal import Line
from lexome.training.loader import Step, prefetch
from lexome.training.loop import StepResult, Terms, Updater
from lexome.training.trainer import Trainer

# Early stopping does not count evaluations before this step: epochs of a small dataset have but a few steps.
FIRST_STEPS = 100


@dataclass
class BestScores:
    """The best evaluation on dev so far, and how many after it were not better."""

    scores: Scores | None = None
    step: int = 0
    misses: int = 0
    stopped_early: bool = False


@dataclass(frozen=True)
class EvaluationSettings:
    """When to evaluate on dev, and what to select by.

    every         steps between evaluations; None: once an epoch
    metric        for model selection; None: the task's first
    patience      evaluations without a better one after which to stop; None: never
    batch_tokens  tokens of a batch
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

    def run(self) -> Iterator[tuple[Line, bool]]:
        """Train to the end, yielding each line of metrics and whether a training state may be saved after it.

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
                    continue
                yield trainer.log(result), not (evaluating or last)
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
        """Scores on dev; the weights are kept where they are the best so far."""
        trainer, began = self.trainer, time.monotonic()
        scores = trainer.parallel.from_first(self._dev_scores)
        trainer.position.elapsed_s += time.monotonic() - began
        # Throughput is that of training alone.
        trainer.sums.began_s = trainer.position.elapsed_s
        if self.qat is not None and not self.qat.active:
            # Weights that were not trained with quantization are not what the run is for.
            return scores
        best, value = self.best, self.evaluation.value
        if best.scores is None or value(scores) > value(best.scores):
            self.best = BestScores(scores, trainer.position.step)
            self.best_weights = copy_weights(self.model)
        elif value(best.scores) > 0 and trainer.position.step > FIRST_STEPS:
            # A model that has got nothing right so far has not begun to learn: rare labels take some epochs.
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
    """The logits of each example, (C,) or (its tokens, C), in batches of examples of similar length."""
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
