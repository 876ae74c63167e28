"""Batches filled up to a few sizes: the loss and its gradients are those of the batch without filling."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from finetuning import (
    class_documents,
    context_of,
    ner_documents,
    pair_documents,
    question_documents,
    recipe_of,
    write_splits,
)

from lexome.document import Document
from lexome.recipe.finetune import Cell, Run
from lexome.training.finetune.fit import can_record
from lexome.training.finetune.run import build_model, plan_of
from lexome.training.finetune.task_model import LossSettings, Padding, TaskBatch, TaskLoss, to_batch

TASKS = pytest.mark.parametrize(
    ("docs", "task"),
    [
        (ner_documents(), {"kind": "ner", "types": ["Gene", "Drug"], "nested": True}),
        (class_documents(several=False), {"kind": "classes", "labels": ["gene", "drug", "both"]}),
        (class_documents(several=True), {"kind": "classes", "labels": ["gene", "drug"], "several": True}),
        (pair_documents(numbers=True), {"kind": "similarity"}),
        (question_documents(), {"kind": "questions"}),
    ],
    ids=["tokens", "choice", "binary", "value", "span"],
)


@TASKS
def test_filling_changes_neither_loss_nor_gradients(
    docs: list[Document], task: dict[str, Any], start: Path, tmp_path: Path
) -> None:
    data = write_splits(tmp_path / "data", train=docs, dev=docs)
    recipe = recipe_of(start, data, tmp_path / "out", task)
    with context_of(recipe) as context:
        rows = context.data.splits(None).train.examples
        learner = build_model(recipe, context)[0].eval()
        loss_of = TaskLoss(context.data.task, LossSettings())
        padding = Padding(grain=64, sequences=len(rows) + 3, longest=24)
        found = []
        for given in (None, padding):
            learner.zero_grad()
            batch = to_batch(
                rows, context.data.task, segments=context.data.frame.segments, denominator=7, padding=given
            )
            loss = loss_of(learner(batch), batch)
            loss.backward()
            gradients = [weight.grad.flatten() for weight in learner.parameters() if weight.grad is not None]
            found.append((batch, loss, torch.cat(gradients)))
    (plain, *expected), (filled, *seen) = found
    assert filled.ids_T.shape[0] % 64 == 0
    assert filled.ids_T.shape[0] > plain.ids_T.shape[0]
    assert filled.tokens == plain.tokens == plain.ids_T.shape[0]
    for one, other in zip(seen, expected, strict=True):
        assert torch.allclose(one, other, rtol=1e-5, atol=1e-7)


def test_a_batch_takes_the_content_of_another(start: Path, tmp_path: Path) -> None:
    docs = ner_documents()
    data = write_splits(tmp_path / "data", train=docs, dev=docs)
    recipe = recipe_of(start, data, tmp_path / "out", {"kind": "ner", "types": ["Gene", "Drug"]})
    with context_of(recipe) as context:
        rows, task = context.data.splits(None).train.examples, context.data.task
        padding = Padding(grain=128, sequences=5, longest=64)
        first, second = (
            to_batch(part, task, segments=True, denominator=number, padding=padding)
            for number, part in enumerate((rows[:5], rows[5:9]), 1)
        )
        held = replace(first, denominator=torch.tensor(1.0))
        held.copy_from(second)
    assert _arrays(held) == _arrays(second)


def test_all_steps_of_a_plan_fit_into_its_few_sizes(start: Path, tmp_path: Path) -> None:
    docs = ner_documents(40)
    data = write_splits(tmp_path / "data", train=docs, dev=docs)
    for size in ({"sequences": 7}, {"tokens": 60}):
        recipe = recipe_of(start, data, tmp_path / "out", {"kind": "ner", "types": ["Gene", "Drug"]}, batch=size)
        with context_of(recipe) as context:
            plan = plan_of(recipe, Run(Cell(), 1), context)
            plan.choose_padding()
            batches = [batch for step in plan.steps() for batch in step.batches]
            assert plan.padding is not None
        assert {batch.packing.bounds_S1.shape[0] for batch in batches} == {plan.padding.slots + 1}
        assert {batch.packing.longest for batch in batches} == {plan.padding.longest}
        assert len({batch.ids_T.shape[0] for batch in batches}) <= 3


def test_what_cannot_be_recorded_is_not(start: Path, tmp_path: Path) -> None:
    docs = ner_documents()
    data = write_splits(tmp_path / "data", train=docs, dev=docs)
    task = {"kind": "ner", "types": ["Gene", "Drug"]}
    for keys, kind, autocast in (
        ({"attention_dropout": 0.1}, "plain", torch.bfloat16),
        ({"gradient_checkpointing": True}, "plain", torch.bfloat16),
        ({"head": {"crf": True}}, "plain", torch.bfloat16),
        ({}, "dice", torch.bfloat16),
        ({}, "plain", None),
    ):
        recipe = recipe_of(start, data, tmp_path / "out", task, **keys)
        with context_of(recipe) as context:
            learner = build_model(recipe, context)[0]
            assert not can_record(learner, context.data.task, LossSettings(kind), autocast=autocast)


def _arrays(batch: TaskBatch) -> list[Any]:
    packing = batch.packing
    held = (batch.ids_T, batch.segments_T, batch.targets, packing.bounds_S1, packing.positions_T)
    return [np.asarray(tensor).tolist() for tensor in held] + [float(batch.denominator)]
