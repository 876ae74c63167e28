"""Losses of fine-tuning against torch's own on padded tensors, and the rules for rare labels.

T tokens, S sequences, N rows, C labels
"""

from itertools import pairwise, product

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from lexome.models.encoder import Packing
from lexome.tasks.task import IGNORE_INDEX
from lexome.training.finetune.task_model import (
    Chain,
    Crf,
    LossSettings,
    binary_loss,
    choice_loss,
    dice,
    span_loss,
    value_loss,
)

LENGTHS = (4, 1, 6)
PACKING = Packing.of([4, 5, 11])


def logits(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), requires_grad=True)


def test_groups_are_asked_apart_and_what_is_not_asked_counts_nothing() -> None:
    given = logits(3, 5)
    targets = torch.tensor([[1, 2], [IGNORE_INDEX, 0], [0, IGNORE_INDEX]])
    first = functional.cross_entropy(given[[0, 2], :2], torch.tensor([1, 0]), reduction="sum")
    second = functional.cross_entropy(given[[0, 1], 2:], torch.tensor([2, 0]), reduction="sum")
    assert torch.allclose(choice_loss(given, targets, (2, 3), LossSettings()), first + second)


def test_weights_multiply_the_loss_of_their_label() -> None:
    given, targets = logits(2, 2), torch.tensor([[0], [1]])
    plain = functional.cross_entropy(given, targets[:, 0], reduction="none")
    weighted = choice_loss(given, targets, (2,), LossSettings("weighted", weights=(1.0, 3.0)))
    assert torch.allclose(weighted, plain[0] + 3 * plain[1])


def test_focal_loss_without_gamma_is_cross_entropy() -> None:
    given, targets = logits(6, 4), torch.tensor([[0], [3], [IGNORE_INDEX], [1], [1], [2]])
    plain = choice_loss(given, targets, (4,), LossSettings())
    assert torch.allclose(choice_loss(given, targets, (4,), LossSettings("focal", gamma=0.0)), plain)


def test_focal_loss_of_easy_answers_is_smaller() -> None:
    easy, targets = torch.tensor([[8.0, 0.0]]), torch.tensor([[0]])
    plain = choice_loss(easy, targets, (2,), LossSettings())
    assert choice_loss(easy, targets, (2,), LossSettings("focal")) < plain / 100


def test_dice_loss_falls_all_the_way_to_a_sure_right_answer() -> None:
    for share in torch.linspace(0.01, 0.99, 20, dtype=torch.float64):
        said = share.reshape(1, 1).requires_grad_()
        dice(said, torch.ones(1, 1), torch.ones(1, 1), LossSettings("dice")).backward()
        assert said.grad is not None
        assert said.grad.item() < 0


def test_dice_loss_of_a_rare_label_weighs_as_much_as_that_of_a_common_one() -> None:
    yes = torch.tensor([[1.0, 0.0]] * 9 + [[0.0, 1.0]])
    all_common = torch.tensor([[1.0, 0.0]]).expand(10, 2)
    assert dice(all_common, yes, torch.ones(10, 1), LossSettings("dice", alpha=0.0, smooth=1e-6)) > 0.5


@pytest.mark.parametrize("kind", ["plain", "weighted", "focal", "dice"])
def test_every_rule_learns_two_labels_by_descent(kind: str) -> None:
    given, targets = logits(8, 2), torch.tensor([[0], [1]] * 4)
    free = given.detach().clone().requires_grad_()
    optimizer = torch.optim.SGD([free], lr=1.0)
    for _ in range(200):
        optimizer.zero_grad()
        choice_loss(free, targets, (2,), LossSettings(kind, weights=(1.0, 1.0))).backward()
        optimizer.step()
    assert (free.argmax(-1) == targets[:, 0]).all()


def test_labels_that_are_true_or_not_are_asked_apart() -> None:
    given = logits(2, 3)
    targets = torch.tensor([[1.0, 0.0, IGNORE_INDEX], [0.0, 0.0, 1.0]])
    first = functional.binary_cross_entropy_with_logits(given[0, :2], targets[0, :2])
    second = functional.binary_cross_entropy_with_logits(given[1], targets[1])
    assert torch.allclose(binary_loss(given, targets, LossSettings()), first + second)


def test_numbers_that_are_not_known_count_nothing() -> None:
    targets = torch.tensor([[2.0], [torch.nan]])
    given = torch.tensor([[1.0], [5.0]], requires_grad=True)
    value_loss(given, targets).backward()
    assert given.grad is not None
    assert given.grad.tolist() == [[-2.0], [0.0]]


def test_spans_are_chosen_among_the_tokens_of_their_own_sequence() -> None:
    given_T2 = logits(11, 2)
    targets_S2 = torch.tensor([[1, 3], [0, 0], [IGNORE_INDEX, IGNORE_INDEX]])
    expected = torch.zeros(())
    for part_L2, target in zip(given_T2.split(LENGTHS)[:2], targets_S2[:2], strict=True):
        expected = expected + functional.cross_entropy(part_L2.T, target, reduction="mean")
    assert torch.allclose(span_loss(given_T2, targets_S2, PACKING), expected)


def test_a_chain_gives_the_likelihood_that_counting_all_sequences_gives() -> None:
    chain = Chain(3)
    for weight, seed in zip(chain.parameters(), range(3), strict=True):
        weight.data.copy_(logits(*weight.shape, seed=seed))
    given, target = logits(4, 3, seed=9), torch.tensor([2, 0, 1, 1])

    def score(tags: tuple[int, ...]) -> Tensor:
        total = (
            chain.first_C[tags[0]] + chain.last_C[tags[-1]] + sum(given[place, tag] for place, tag in enumerate(tags))
        )
        return total + sum(chain.moves_CC[one, other] for one, other in pairwise(tags))

    every = torch.stack([score(tags) for tags in product(range(3), repeat=4)])
    expected = torch.logsumexp(every, 0) - score(tuple(target.tolist()))
    assert torch.allclose(chain.loss([given], [target]), expected, atol=1e-5)


def test_a_chain_goes_over_asked_tokens_alone_sequence_by_sequence() -> None:
    crf = Crf((3,))
    crf.chains[0].moves_CC.data.copy_(logits(3, 3, seed=4))  # type: ignore[union-attr, operator]
    given_TC = logits(11, 3)
    target_T = torch.tensor(
        [IGNORE_INDEX, 1, 2, IGNORE_INDEX, IGNORE_INDEX, IGNORE_INDEX, 0, IGNORE_INDEX, 1, 0, IGNORE_INDEX]
    )
    chain = crf.chains[0]
    assert isinstance(chain, Chain)
    apart = chain.loss([given_TC[1:3]], [target_T[1:3]])
    apart = apart + chain.loss([given_TC[[6, 8, 9]]], [target_T[[6, 8, 9]]])
    assert torch.allclose(crf.loss(given_TC, target_T[:, None], PACKING), apart, atol=1e-5)
