"""Linear probing before fine-tuning: a new head is trained on the frozen encoder's vectors before all weights are.

A randomly initialized head distorts the encoder until it has learned something (Kumar et al. 2022), and where the
vectors of all texts are nearly the same that takes epochs: over abstracts, the first-token vectors of a masked language
model have a norm of 11 and a standard deviation of 0.06 per coordinate. The training set's vectors are computed once
and standardized, the head is trained on them within seconds, and mean and deviation are folded into its weights.

N training examples (sequences, or tokens), D hidden size, C labels
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import AdamW

from lexome.models.encoder import Packing
from lexome.models.heads import SequenceHead, fold_standardization
from lexome.recipe.finetune import ProbeTable
from lexome.tasks.task import Example
from lexome.training.finetune.fit import Fit
from lexome.training.finetune.task_model import StepSize, TaskBatch, TaskLoss, fill, label_count, to_batch
from lexome.training.optim import LearningRateSchedule

# Large datasets are probed in larger batches instead of more steps.
MAX_STEPS = 2_000
# Sequences of a batch if the recipe sets tokens instead.
BATCH = 32
# Separates the order of examples here from the order in fine-tuning, which has the seed (seed, epoch).
_ORDER = 1
# Coordinates that hardly vary are not scaled up to unit variance: the smallest deviation, relative to the median.
MIN_DEVIATION = 0.1


def probe(
    fit: Fit, examples: Sequence[Example], loss: TaskLoss, settings: ProbeTable, *, epochs: int, seed: int
) -> list[float]:
    """Train the head of a run in place on the encoder's vectors of its training examples; the loss of each epoch."""
    labeled = [example for example in examples if label_count(example)]
    device = fit.trainer.parallel.device
    # All processes compute the same head, and the random state of fine-tuning is the same with and without probing.
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        vectors_ND, targets = encode_examples(fit, labeled)
        mean_D, scale_D = torch.zeros_like(vectors_ND[0]), torch.ones_like(vectors_ND[0])
        if settings.standardize:
            mean_D, scale_D = standardization(vectors_ND)
        vectors_ND = (vectors_ND - mean_D) * scale_D
        sequences = _sequences_of_step(fit.plan.size)
        batch_size = max(sequences * len(vectors_ND) // len(labeled), -(-len(vectors_ND) * epochs // MAX_STEPS))
        head = fit.model.model.head
        losses = train_head(head, vectors_ND, targets, loss, settings, batch_size=batch_size, epochs=epochs, seed=seed)
    if settings.standardize:
        fold_standardization(head, mean_D, scale_D)
    return losses


def _sequences_of_step(size: StepSize) -> int:
    return (size.sequences or BATCH) * size.accumulation


@torch.no_grad()
def encode_examples(fit: Fit, examples: Sequence[Example]) -> tuple[Tensor, Tensor]:
    """The encoder's vector of each sequence or token without dropout, (N, D) in float32, and the targets."""
    head, encoder = fit.model.model.head, fit.model.model.encoder
    device = fit.trainer.parallel.device
    was_training = encoder.training
    encoder.eval()
    vectors: list[Tensor] = []
    targets: list[Tensor] = []
    lengths = [len(example.ids) for example in examples]
    order = sorted(range(len(examples)), key=lambda index: -lengths[index])
    for part in fill(order, lengths, fit.evaluation.batch_tokens):
        batch = to_batch([examples[index] for index in part], fit.task, segments=fit.plan.segments)
        batch = batch.map(lambda tensor: tensor.to(device))
        with torch.autocast(device.type, fit.autocast, enabled=fit.autocast is not None):
            hidden_TD = encoder(batch.ids_T, batch.packing, batch.segments_T)
            pooled = head.pool(hidden_TD, batch.packing) if isinstance(head, SequenceHead) else hidden_TD
        assert batch.targets is not None
        vectors.append(pooled.float())
        targets.append(batch.targets)
    encoder.train(was_training)
    return torch.cat(vectors), torch.cat(targets)


def standardization(vectors_ND: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and inverse standard deviation of each coordinate, (D,) each."""
    deviation_D = vectors_ND.double().std(0, correction=0)
    smallest = (MIN_DEVIATION * deviation_D.median()).clamp(min=1e-6)
    return vectors_ND.double().mean(0).float(), (1 / deviation_D.clamp(min=smallest)).float()


def train_head(
    head: nn.Module,
    vectors_ND: Tensor,
    targets: Tensor,
    loss: TaskLoss,
    settings: ProbeTable,
    *,
    batch_size: int,
    epochs: int,
    seed: int,
) -> list[float]:
    """Train a head's layers on vectors with AdamW; the mean loss of each epoch."""
    matrices = [weight for weight in head.parameters() if weight.ndim > 1]
    biases = [weight for weight in head.parameters() if weight.ndim == 1]
    groups = [
        {"params": matrices, "weight_decay": settings.weight_decay},
        {"params": biases, "weight_decay": 0.0},
    ]
    optimizer = AdamW(groups, lr=settings.lr)
    schedule = LearningRateSchedule(settings.lr)
    examples = len(vectors_ND)
    steps, step, losses = -(-examples // batch_size) * epochs, 0, []
    was_training = head.training
    head.train()
    for epoch in range(epochs):
        order = torch.from_numpy(np.random.default_rng([seed, epoch, _ORDER]).permutation(examples))
        total = vectors_ND.new_zeros(())
        for indices in torch.split(order.to(vectors_ND.device), batch_size):
            for group in optimizer.param_groups:
                group["lr"] = schedule.at((step + 0.5) / steps)
            logits_NC = vectors_ND[indices]
            for layer in head.children():
                logits_NC = layer(logits_NC)
            batch_loss = loss(logits_NC, _targets_only(targets[indices]))
            batch_loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            total += batch_loss.detach() * len(indices) / examples
            step += 1
        losses.append(float(total))
    head.train(was_training)
    return losses


def _targets_only(targets: Tensor) -> TaskBatch:
    """A batch with only targets, all that the loss of label heads reads."""
    return TaskBatch(torch.zeros(0, dtype=torch.int64), None, Packing.of([0]), targets, len(targets), 0)
