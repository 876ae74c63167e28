"""Fine-tuning on a GPU: every task learns there too, the same bits each time, compiled as well. Needs torch alone."""

from pathlib import Path
from typing import Any

import pytest
import torch
from finetuning import ner_documents, pair_documents, question_documents, recipe_of, write_splits

from lexome.document import Document
from lexome.models.checkpoint import load
from lexome.training.finetune.stage import Finetuned, finetune

if not torch.cuda.is_available():
    pytest.skip("there is no GPU here", allow_module_level=True)

NER = {"kind": "ner", "types": ["Gene", "Drug"]}


def learned(start: Path, folder: Path, docs: list[Document], task: dict[str, Any], **keys: Any) -> Finetuned:
    data = write_splits(folder / "data", train=docs, dev=docs)
    return finetune(recipe_of(start, data, folder / "out", task, device="cuda", **keys), progress_shown=False)


def first_score(done: Finetuned) -> float:
    assert done.summary.measure is not None
    return done.summary.rows[0].spreads["dev"][done.summary.measure].mean


@pytest.mark.parametrize(
    ("docs", "task", "keys"),
    [
        (ner_documents(), NER, {}),
        (ner_documents(), NER, {"cuda_graphs": False}),
        (ner_documents(), NER, {"compile": True}),
        (ner_documents(), NER, {"head": {"crf": True, "dropout": 0.0}}),
        (ner_documents(), NER, {"loss": {"kind": "dice"}, "epochs": 80}),
        (ner_documents(), NER, {"method": "lora", "epochs": 80, "lora": {"targets": ["query", "value", "up", "down"]}}),
        (pair_documents(numbers=False), {"kind": "inference"}, {}),
        (pair_documents(numbers=True), {"kind": "similarity"}, {}),
        (question_documents(), {"kind": "questions"}, {}),
    ],
    ids=["ner", "not recorded", "compiled", "crf", "dice", "lora", "inference", "similarity", "questions"],
)
def test_a_task_is_learned_by_heart_in_bfloat16(
    docs: list[Document], task: dict[str, Any], keys: dict[str, Any], start: Path, tmp_path: Path
) -> None:
    assert first_score(learned(start, tmp_path, docs, task, **keys)) > 0.99


def test_the_same_seed_gives_the_same_bits(start: Path, tmp_path: Path) -> None:
    models = [learned(start, tmp_path / name, ner_documents(), NER, epochs=5, dropout=0.1).model for name in ("a", "b")]
    one, two = (load(model).model.state_dict() for model in models if model is not None)
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_recorded_steps_end_where_steps_that_are_not_do(start: Path, tmp_path: Path) -> None:
    docs = ner_documents(40)
    models = [
        learned(start, tmp_path / str(graphs), docs, NER, epochs=3, cuda_graphs=graphs).model
        for graphs in (True, False)
    ]
    one, two = (load(model).model.state_dict() for model in models if model is not None)
    # Not weight by weight: a key's bias has no gradient but rounding, and AdamW makes steps of it all the same.
    one, two = (torch.cat([weight.float().flatten() for weight in held.values()]) for held in (one, two))
    assert (one - two).norm() < 0.02 * one.norm()


def test_recorded_steps_drop_something_else_each_time() -> None:
    from lexome.models.encoder import Packing
    from lexome.training.finetune.fit import StepGraphs
    from lexome.training.finetune.task_model import TaskBatch

    def step(batch: TaskBatch) -> tuple[torch.Tensor, torch.Tensor]:
        dropped = torch.nn.functional.dropout(batch.ids_T.float(), 0.5)
        return dropped.sum(), batch.denominator * dropped.new_ones(())

    graphs = StepGraphs(step, torch.device("cuda"))
    batch = TaskBatch(torch.ones(4096, dtype=torch.int64), None, Packing.of([4096]), None, 3, 4096)
    batch = batch.map(torch.Tensor.pin_memory)
    found = [graphs(batch) for _ in range(6)]
    torch.cuda.synchronize()
    assert len({float(loss) for loss, _ in found[2:]}) > 2
    assert {float(asked) for _, asked in found} == {3.0}
