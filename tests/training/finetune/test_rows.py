"""Rows of tasks in steps and passes, and what is made of how labels are spread."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from finetuning import class_documents, ner_documents

from lexome.tasks.classify import Classes
from lexome.tasks.ner import Ner
from lexome.tasks.task import IGNORE_INDEX, Example, Frame, fill
from lexome.training.finetune.examples import label_bias, label_counts, label_weights, oversampling
from lexome.training.finetune.task_model import StepSize, epoch_order, micro_batches, split_epoch

FRAME = Frame((1,), (2,), (2,), 32)


class Letters:
    """A tokenizer of words, each numbered by its first letter."""

    def encode(self, text: str) -> list[tuple[int, int, int]]:
        """Words by their places."""
        pieces, start = [], 0
        for word in text.split(" "):
            pieces.append((3 + ord(word[0]) % 30, start, start + len(word)))
            start += len(word) + 1
        return pieces


def rows_of(task: Ner | Classes, count: int = 10) -> list[Example]:
    docs = (
        ner_documents(count) if isinstance(task, Ner) else class_documents(several=task.loss == "binary", count=count)
    )
    return [row for doc in docs for row in task.encode(doc, Letters(), FRAME, with_targets=True)]


def test_every_row_comes_once_an_epoch_and_epochs_differ() -> None:
    first, second = (epoch_order(epoch, np.ones(50), seed=3) for epoch in (0, 1))
    assert sorted(first) == sorted(second) == list(range(50))
    assert first != second


def test_a_row_with_the_factor_two_and_a_half_comes_two_or_three_times() -> None:
    counts = Counter(number for epoch in range(200) for number in epoch_order(epoch, np.array([2.5, 1.0]), seed=0))
    assert counts[1] == 200
    assert 450 < counts[0] < 550


def test_steps_are_of_so_many_sequences_or_tokens() -> None:
    lengths = [5, 9, 3, 3, 20]
    assert split_epoch(range(5), lengths, StepSize(sequences=2)) == [[0, 1], [2, 3], [4]]
    assert split_epoch(range(5), lengths, StepSize(tokens=12)) == [[0], [1, 2], [3], [4]]


def test_a_row_longer_than_the_limit_goes_alone() -> None:
    assert fill([0, 1, 2], [2, 50, 2], 10) == [[0], [1], [2]]


def test_passes_hold_the_rows_of_their_step_and_share_one_denominator() -> None:
    task = Ner(["Gene", "Drug"])
    rows = rows_of(task)
    made = micro_batches(rows[:6], task, StepSize(limit=20), segments=True)
    assert len(made) > 1
    assert torch.equal(torch.cat([batch.ids_T for batch in made]), torch.tensor([i for r in rows[:6] for i in r.ids]))
    assert {batch.denominator for batch in made} == {sum(int((row.targets != IGNORE_INDEX).sum()) for row in rows[:6])}


def test_gradient_accumulation_makes_larger_steps_of_the_same_micro_batches() -> None:
    lengths = [5, 5, 6, 7, 12]
    assert split_epoch(range(5), lengths, StepSize(sequences=2, accumulation=2)) == [[0, 1, 2, 3], [4]]
    assert split_epoch(range(5), lengths, StepSize(tokens=12, accumulation=2)) == [[0, 1, 2], [3, 4]]
    task = Ner(["Gene", "Drug"])
    rows = rows_of(task)[:5]
    batches = micro_batches(rows, task, StepSize(sequences=2, accumulation=3), segments=True)
    assert [len(batch.packing.lengths) for batch in batches] == [2, 2, 1]


@pytest.mark.parametrize("examples", [1, 5, 6])
def test_replicas_share_a_step_and_have_as_many_micro_batches(examples: int) -> None:
    task = Ner(["Gene", "Drug"])
    rows = rows_of(task)[:examples]
    size = StepSize(sequences=2, accumulation=3)
    (whole,) = micro_batches(rows, task, StepSize(), segments=True)
    parts = [micro_batches(rows, task, size, segments=True, replica=replica, replicas=2) for replica in range(2)]
    assert len(parts[0]) == len(parts[1])
    batches = [batch for part in parts for batch in part]
    assert {batch.denominator for batch in batches} == {whole.denominator}
    labels = [batch.targets[batch.targets != IGNORE_INDEX] for batch in batches if batch.targets is not None]
    assert whole.targets is not None
    expected = whole.targets[whole.targets != IGNORE_INDEX]
    assert torch.equal(torch.cat(labels).sort().values, expected.sort().values)


def test_labels_are_counted_within_their_groups() -> None:
    counts = label_counts(rows_of(Ner(["Gene", "Drug"], nested=True)), Ner(["Gene", "Drug"], nested=True))
    assert (counts["B-Gene"], counts["B-Drug"], counts["I-Gene"]) == (10, 10, 0)
    assert counts["O-Gene"] == counts["O-Drug"]


def test_the_bias_is_the_share_of_tokens_in_mentions() -> None:
    task = Ner(["Gene", "Drug"])
    rows = rows_of(task)
    asked = sum(int((row.targets != IGNORE_INDEX).sum()) for row in rows)
    assert label_bias(rows, task) == pytest.approx(20 / asked)


def test_weights_of_all_that_is_asked_are_one_in_the_mean() -> None:
    task = Classes(["gene", "drug", "both"])
    rows = rows_of(task)
    weights = label_weights(rows, task, power=1.0)
    assert np.mean([weights[int(row.targets[0])] for row in rows]) == pytest.approx(1.0)


def test_a_label_that_is_always_true_is_learned_too() -> None:
    task = Classes(["gene", "drug", "seen"], several=True)
    docs = [replace(doc, labels=(*doc.labels, "seen")) for doc in class_documents(several=True)]
    rows = [row for doc in docs for row in task.encode(doc, Letters(), FRAME, with_targets=True)]
    assert label_weights(rows, task, power=1.0)[2] == 1.0


def test_full_oversampling_makes_classes_alike() -> None:
    task = Classes(["gene", "drug", "both"])
    rows = rows_of(task, count=10)[:4] + rows_of(task, count=9)[2:9:3] * 4
    factors = oversampling(rows, task, power=1.0)
    totals: Counter[int] = Counter()
    for row, factor in zip(rows, factors, strict=True):
        totals[int(row.targets[0])] += factor
    assert len({round(total, 6) for total in totals.values()}) == 1


def test_rows_with_a_rare_label_among_several_come_more_often() -> None:
    task = Classes(["gene", "drug"], several=True)
    rows = rows_of(task)
    factors = oversampling([*rows, *rows[::3]], task, power=0.5)
    assert factors.max() > 1.0
    assert factors.min() == 1.0
