"""Knowledge distillation: soft labels of teachers on unlabeled text, and what teacher and student must share."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from errors import raises
from finetuning import context_of, ner_documents, recipe_of, tiny_model, write_splits
from torch import Tensor

import lexome
from lexome.corpus.shards import shard
from lexome.document import Document
from lexome.errors import CheckpointError, LexomeError, UsageError
from lexome.models.checkpoint import load
from lexome.pipeline import Engine
from lexome.recipe.corpus_stages import ShardRecipe
from lexome.recipe.finetune import Cell, FinetuneRecipe, Run, recipe_of_run
from lexome.tasks import task_of
from lexome.tasks.task import IGNORE_INDEX, Example
from lexome.training.finetune.examples import unlabeled_examples
from lexome.training.finetune.run import RUNS, identities_of, start_of
from lexome.training.finetune.stage import finetune
from lexome.training.finetune.task_model import Distillation, Padding, StepSize, load_teacher, micro_batches, to_batch

NER = {"kind": "ner", "types": ["Gene", "Drug"], "nested": True}


@pytest.fixture(scope="module")
def teacher(start: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fine-tuning that knows genes and drugs by heart."""
    folder, docs = tmp_path_factory.mktemp("teacher"), ner_documents()
    recipe = recipe_of(start, write_splits(folder / "data", train=docs, dev=docs), folder / "out", NER)
    assert finetune(recipe, progress_shown=False).summary.rows[0].spreads["dev"]["f1"].mean == 1.0
    return recipe.out


@pytest.fixture(scope="module")
def shards(start: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Text of the same kind without a label in it."""
    folder = tmp_path_factory.mktemp("text")
    lexome.write(folder / "text.jsonl", [Document(doc.id, doc.passages) for doc in ner_documents(25)])
    out = folder / "shards"
    recipe = ShardRecipe(stage="shard", inputs=(folder / "text.jsonl",), tokenizer=start, out=out, held_out=0.0)
    shard(recipe, engine=Engine(workers=0), progress_shown=False)
    return out


def taught(start: Path, tmp_path: Path, **table: object) -> FinetuneRecipe:
    """A student whose only set is one sentence, in which a gene is marked and drugs are not asked for."""
    (doc,) = ner_documents(1)
    gene = Document(doc.id, doc.passages, tuple(span for span in doc.spans if span.type == "Gene"))
    data = write_splits(tmp_path / "data", train=[gene], dev=ner_documents())
    task = NER | {"annotated": {"data": ["Gene"]}}
    return recipe_of(start, data, tmp_path / "out", task, teacher=table, epochs=100, evaluation={})


def test_a_student_learns_types_that_only_its_teacher_knows(
    start: Path, teacher: Path, shards: Path, tmp_path: Path
) -> None:
    recipe = taught(start, tmp_path, models=[teacher], shards=shards)
    done = finetune(recipe, progress_shown=False)
    assert done.model is not None
    annotated = load(done.model, kind="token").model
    drugs = _share_of(annotated, start, recipe, "Drug")
    assert drugs >= 0.7


def _share_of(model: torch.nn.Module, start: Path, recipe: FinetuneRecipe, type_: str) -> float:
    """The share of mentions of a type in all documents that a model finds."""
    with context_of(recipe) as context:
        task, tokens, frame = task_of(NER), context.data.tokens, context.data.frame
    found = wanted = 0
    for doc in ner_documents():
        rows = task.encode(doc, tokens, frame, with_targets=False)
        batch = to_batch(rows, task, segments=frame.segments)
        with torch.no_grad():
            logits = model(batch.ids_T, batch.packing, batch.segments_T).numpy()
        said = {(span.start, span.end) for span in task.decode(doc, rows, [logits]).spans if span.type == type_}
        own = {(span.start, span.end) for span in doc.spans if span.type == type_}
        found, wanted = found + len(said & own), wanted + len(own)
    return found / wanted


def test_text_becomes_rows_that_ask_nothing(start: Path, shards: Path, teacher: Path, tmp_path: Path) -> None:
    recipe = taught(start, tmp_path, models=[teacher], shards=shards)
    with context_of(recipe) as context:
        rows = unlabeled_examples(
            shards, context.data.tokenizer, context.data.task, max_tokens=context.data.frame.max_tokens
        )
        plain = [
            row.ids.tolist()
            for doc in ner_documents(25)
            for row in context.data.task.encode(doc, context.data.tokens, context.data.frame, with_targets=False)
        ]
    assert [row.ids.tolist() for row in rows] == plain
    for row in rows:
        assert row.targets is not None
        assert row.targets.shape == (len(row.ids), 2)
        assert (row.targets == IGNORE_INDEX).all()


def logits_and_shares(tokens: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(tokens, 6), torch.randn(tokens, 2, 3).softmax(-1)


def made_rows(*lengths: int) -> list[Example]:
    zeros = [np.zeros(length, np.int64) for length in lengths]
    return [Example(np.full(len(z), 7), z, z, z, np.full((len(z), 2), IGNORE_INDEX)) for z in zeros]


def test_the_loss_is_the_mean_divergence_however_a_step_is_cut_or_filled_up() -> None:
    task, rows = task_of(NER), made_rows(5, 9, 3)
    teaching = Distillation([], task, weight=2.0, temperature=1.0)
    logits_TC, shares_TGK = logits_and_shares(17)
    apart = shares_TGK * (shares_TGK.log() - logits_TC.view(17, 2, 3).log_softmax(-1))
    expected = 2.0 * apart.sum((1, 2)).mean()
    (whole,) = micro_batches(rows, task, StepSize(limit=100), segments=False, soft=True)
    torch.testing.assert_close(teaching.loss(logits_TC, shares_TGK, whole), expected)
    parts = micro_batches(rows, task, StepSize(limit=9), segments=False, soft=True)
    assert len(parts) == 3
    at, total = 0, torch.zeros(())
    for batch in parts:
        here = slice(at, at + batch.tokens)
        total, at = total + teaching.loss(logits_TC[here], shares_TGK[here], batch), here.stop
    torch.testing.assert_close(total, expected)
    (filled,) = micro_batches(rows, task, StepSize(limit=100), segments=False, soft=True, padding=Padding(32, 3, 16))
    more_TC, more_TGK = logits_and_shares(32)
    more_TC[:17], more_TGK[:17] = logits_TC, shares_TGK
    torch.testing.assert_close(teaching.loss(more_TC, more_TGK, filled), expected)


def test_a_share_of_nothing_is_no_trouble() -> None:
    teaching = Distillation([], task_of(NER), weight=1.0, temperature=2.0)
    (batch,) = micro_batches(made_rows(4), task_of(NER), StepSize(limit=9), segments=False, soft=True)
    sure_TGK = torch.tensor([1.0, 0.0, 0.0]).expand(4, 2, 3)
    logits_TC = torch.zeros(4, 6, requires_grad=True)
    loss = teaching.loss(logits_TC, sure_TGK, batch)
    (gradient,) = torch.autograd.grad(loss, logits_TC)
    assert loss.item() == pytest.approx(2 * np.log(3) * 4, rel=1e-5)
    assert gradient.isfinite().all()


def test_several_teachers_give_the_mean_of_their_shares(start: Path, teacher: Path, tmp_path: Path) -> None:
    recipe = taught(start, tmp_path, models=[teacher])
    other = finetune(taught(start, tmp_path / "other", models=[teacher]), progress_shown=False)
    assert other.model is not None
    with context_of(recipe) as context:
        task, tokenizer = context.data.task, context.data.tokenizer
        batch = to_batch(context.data.splits(None).train.examples, task, segments=True)
        given = ((teacher,), (other.model,), (teacher, other.model))
        first, second, both = (
            Distillation(
                [load_teacher(start_of(path), task, tokenizer, max_tokens=64) for path in models],
                task,
                weight=1.0,
                temperature=1.0,
            ).soft_labels(batch)
            for models in given
        )
    assert not torch.allclose(first, second, atol=1e-3)
    torch.testing.assert_close(both, (first + second) / 2)


def test_another_weight_is_another_run(start: Path, teacher: Path, tmp_path: Path) -> None:
    recipes = [
        taught(start, tmp_path, models=[teacher], weight=weight).model_copy(update={"epochs": 2.0})
        for weight in (1.0, 3.0)
    ]
    finetune(recipes[0], progress_shown=False)
    with raises(UsageError, code="other-settings"):
        finetune(recipes[1], progress_shown=False)


def test_a_teacher_and_its_text_may_be_moved(start: Path, teacher: Path, shards: Path, tmp_path: Path) -> None:
    there = taught(start, tmp_path, models=[teacher], shards=shards).model_copy(update={"epochs": 1.0})
    finetune(there, progress_shown=False)
    shutil.copytree(teacher, tmp_path / "teacher")
    shutil.copytree(shards, tmp_path / "text")
    assert there.teacher is not None
    elsewhere = there.teacher.model_copy(update={"models": (tmp_path / "teacher",), "shards": tmp_path / "text"})
    path = there.out / RUNS / "seed0" / "run.json"
    done = path.stat().st_mtime_ns
    finetune(there.model_copy(update={"teacher": elsewhere}), progress_shown=False)
    assert path.stat().st_mtime_ns == done


@pytest.mark.parametrize("place", [1, 2])
def test_a_run_by_the_paths_of_data_or_teacher_is_still_found(
    place: int, start: Path, teacher: Path, tmp_path: Path
) -> None:
    recipe = taught(start, tmp_path, models=[teacher]).model_copy(update={"epochs": 1.0})
    finetune(recipe, progress_shown=False)
    path = recipe.out / RUNS / "seed0" / "run.json"
    with context_of(recipe) as context:
        identities = identities_of(recipe_of_run(recipe, Run(Cell(), 0)), Run(Cell(), 0), context)
    now, before = identities[0], identities[place]
    path.write_text(path.read_text().replace(now, before))
    finetune(recipe, progress_shown=False)
    assert json.loads(path.read_text())["identity"] == before


def test_a_teacher_must_have_a_head_for_the_task(start: Path, tmp_path: Path) -> None:
    recipe = taught(start, tmp_path, models=[start])
    with raises(CheckpointError, code="no-head"):
        finetune(recipe, progress_shown=False)


def test_a_teacher_with_a_chain_is_refused(start: Path, tmp_path: Path) -> None:
    data = write_splits(tmp_path / "chained", train=ner_documents(), dev=ner_documents())
    chained = recipe_of(start, data, tmp_path / "teacher", NER, head={"crf": True}, epochs=1)
    finetune(chained, progress_shown=False)
    with raises(CheckpointError, code="crf-teacher"):
        finetune(taught(start, tmp_path, models=[chained.out]), progress_shown=False)


def test_what_does_not_fit_is_said(start: Path, teacher: Path, shards: Path, tmp_path: Path) -> None:
    renamed = NER | {"types": ["Gene", "Chemical"]}
    data = write_splits(tmp_path / "data", train=ner_documents(), dev=ner_documents())
    recipe = recipe_of(start, data, tmp_path / "out", renamed, teacher={"models": [teacher]})
    with raises(CheckpointError, code="label-mismatch"):
        finetune(recipe, progress_shown=False)
    classes = task_of({"kind": "classes", "labels": ["a", "b"]})
    with raises(UsageError, code="unsupported-task", value="teacher"):
        Distillation([], classes, weight=1.0, temperature=1.0)
    short = tiny_model(tmp_path / "short", max_tokens=16)
    taught_short = finetune(recipe_of(short, data, tmp_path / "brief", NER, epochs=1), progress_shown=False)
    reading = recipe_of(start, data, tmp_path / "long", NER, teacher={"models": [taught_short.model]})
    with raises(CheckpointError, code="too-long"):
        finetune(reading, progress_shown=False)
    missing = recipe_of(start, data, tmp_path / "none", NER, teacher={"models": [teacher], "shards": tmp_path / "no"})
    with raises(LexomeError, code="missing-manifest", value=tmp_path / "no"):
        finetune(missing, progress_shown=False)
