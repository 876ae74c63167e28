"""The stage: grids, seeds and folds, what is kept, what is not repeated, and what is refused."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from math import nan
from pathlib import Path
from typing import Any

import pytest
import torch
from errors import raises
from finetuning import (
    class_documents,
    done,
    ner_documents,
    question_documents,
    recipe_of,
    tiny_model,
    write_splits,
)
from patience import wait_until
from torch import Tensor
from typer.testing import CliRunner

import lexome
from lexome.cli import app
from lexome.errors import CheckpointError, DivergedError, LexomeError, UsageError
from lexome.models.checkpoint import load
from lexome.recipe import explain
from lexome.recipe.finetune import Cell
from lexome.tasks.evaluation.scoring import evaluate
from lexome.training.finetune.stage import Row, Spread, best_of
from lexome.training.finetune.task_model import TaskBatch
from lexome.training.loop import Terms, Updater

NER = {"kind": "ner", "types": ["Gene", "Drug"]}
CLASSES = {"kind": "classes", "labels": ["gene", "drug", "both"]}


def facts_of(out: Path) -> dict[str, Any]:
    return {path.parent.name: json.loads(path.read_text()) for path in sorted(out.glob("runs/*/run.json"))}


def test_a_grid_runs_every_cell_with_every_seed_and_sums_them_up(start: Path, data: Path, tmp_path: Path) -> None:
    grid = {"batch": [2, 5], "lr": [1e-9, 3e-3]}
    recipe = recipe_of(start, data, tmp_path, NER, grid=grid, seeds=[0, 1], epochs=12, batch={}, score_test="best")
    found = done(recipe).summary
    assert len(facts_of(tmp_path)) == 8
    assert [row.cell.name for row in found.rows] == [
        "batch2-lr1e-09",
        "batch2-lr0.003",
        "batch5-lr1e-09",
        "batch5-lr0.003",
    ]
    best = found.rows[found.best or 0]
    assert best.cell.lr == 3e-3
    assert [row.spreads["dev"]["f1"].runs for row in found.rows] == [2, 2, 2, 2]
    assert ["test" in row.spreads for row in found.rows].count(True) == 1
    assert "test" in best.spreads
    assert "batch5-lr0.003" in (tmp_path / "summary.txt").read_text()


def test_with_seeds_first_only_the_best_cell_is_run_again(start: Path, data: Path, tmp_path: Path) -> None:
    grid = {"lr": [1e-9, 3e-3], "seeds": "first"}
    found = done(recipe_of(start, data, tmp_path, NER, grid=grid, seeds=[4, 5, 6], epochs=15)).summary
    assert sorted(facts_of(tmp_path)) == ["lr0.003-seed4", "lr0.003-seed5", "lr0.003-seed6", "lr1e-09-seed4"]
    assert found.rows[found.best or 0].spreads["dev"]["f1"].runs == 3


def test_evaluate_gives_a_runs_scores_again(start: Path, data: Path, tmp_path: Path) -> None:
    folds = {"count": 3, "use": [1], "dev_fraction": 0.2}
    for name, keys in (("plain", {}), ("folds", {"folds": folds, "evaluation": {}})):
        out = tmp_path / name
        done(recipe_of(start, data, out, NER, epochs=6, score_test="every", **keys))
        (run,) = (out / "runs").iterdir()
        scores = json.loads((run / "run.json").read_text())["scores"]
        for split in ("dev", "test"):
            gold = out / "gold" / f"{'fold1-' if name == 'folds' else ''}{split}.jsonl"
            strict = evaluate(run / f"{split}.jsonl", gold).scores[0].result
            assert (strict.name, strict.value) == ("strict", scores[split]["f1"])


def test_a_score_that_is_not_defined_is_never_the_best() -> None:
    cells = [Row(Cell(lr=lr), (), {"dev": {"pearson": Spread.of([score])}}) for lr, score in ((1, nan), (2, -0.5))]
    assert best_of(cells, "pearson") == 1
    assert best_of(cells[:1] * 2, "pearson") is None


def test_the_same_seed_gives_the_same_weights(start: Path, data: Path, tmp_path: Path) -> None:
    models = [
        done(recipe_of(start, data, tmp_path / name, NER, epochs=3, seeds=[seed], dropout=0.1)).model
        for name, seed in (("one", 7), ("two", 7), ("three", 8))
    ]
    one, two, three = (load(model).model.head.out.weight for model in models)  # type: ignore[arg-type, union-attr]
    assert torch.equal(one, two)  # type: ignore[arg-type]
    assert not torch.equal(one, three)  # type: ignore[arg-type]


def test_a_step_in_several_passes_is_the_step_in_one(start: Path, data: Path, tmp_path: Path) -> None:
    """Sums are taken in another order, so the last digits differ."""
    models = [
        done(
            recipe_of(
                start, data, tmp_path / str(limit), NER, steps=4, batch={"sequences": 5, "micro_batch_tokens": limit}
            )
        )
        for limit in (8, 10_000)
    ]
    one, two = (load(found.model).model.state_dict() for found in models)  # type: ignore[arg-type]
    # Adam divides by gradients that are nearly 0 for some weights, so that there the last digits grow.
    assert all(torch.allclose(one[name], two[name], atol=2e-4) for name in one)
    lines = [(tmp_path / name / "runs" / "seed0" / "metrics.jsonl").read_text() for name in ("8", "10000")]
    losses = [json.loads(text.splitlines()[0])["loss"] for text in lines]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_a_finished_recipe_is_not_run_again(start: Path, data: Path, tmp_path: Path) -> None:
    recipe = recipe_of(start, data, tmp_path, NER, seeds=[0, 1], epochs=2)
    first = done(recipe)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/*/*")}
    assert done(recipe).summary == first.summary
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/*/*")} == before


def test_more_seeds_keep_the_runs_that_are_done(start: Path, data: Path, tmp_path: Path) -> None:
    done(recipe_of(start, data, tmp_path, NER, seeds=[0], epochs=2))
    before = (tmp_path / "runs" / "seed0" / "run.json").stat().st_mtime_ns
    done(recipe_of(start, data, tmp_path, NER, seeds=[0, 1], epochs=2))
    assert (tmp_path / "runs" / "seed0" / "run.json").stat().st_mtime_ns == before
    assert len(facts_of(tmp_path)) == 2


def test_a_folder_with_another_run_is_refused(start: Path, data: Path, tmp_path: Path) -> None:
    done(recipe_of(start, data, tmp_path, NER, epochs=2))
    with raises(UsageError, code="other-settings"):
        done(recipe_of(start, data, tmp_path, NER, epochs=3))


def test_a_folder_with_files_of_others_is_refused(start: Path, data: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with raises(UsageError, code="foreign-output", value=tmp_path, mentions="notes.txt"):
        done(recipe_of(start, data, tmp_path, NER, epochs=2))
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_grid_that_was_killed_goes_on_and_ends_as_one_that_was_not(start: Path, data: Path, tmp_path: Path) -> None:
    keys: dict[str, Any] = {"seeds": [0, 1, 2], "epochs": 30, "evaluation": {}}
    (tmp_path / "r.toml").write_text(explain(recipe_of(start, data, tmp_path / "killed", NER, **keys)))
    command = [sys.executable, "-m", "lexome", "finetune", str(tmp_path / "r.toml"), "--quiet"]
    child = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})
    _wait_for(tmp_path / "killed" / "runs" / "seed1" / "metrics.jsonl", child)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert not (tmp_path / "killed" / "runs" / "seed2" / "run.json").exists()
    kept = (tmp_path / "killed" / "runs" / "seed0" / "run.json").stat().st_mtime_ns
    found = done(recipe_of(start, data, tmp_path / "killed", NER, **keys)).summary
    assert (tmp_path / "killed" / "runs" / "seed0" / "run.json").stat().st_mtime_ns == kept
    assert found == done(recipe_of(start, data, tmp_path / "whole", NER, **keys)).summary


def _wait_for(path: Path, child: "subprocess.Popen[bytes]") -> None:
    wait_until(lambda: path.exists() or child.poll() is not None)
    assert child.poll() is None, "the run ended before it could be killed"


def test_runs_side_by_side_come_to_the_same(start: Path, data: Path, tmp_path: Path) -> None:
    keys: dict[str, Any] = {"seeds": [0, 1], "epochs": 2, "score_test": "every"}
    one = done(recipe_of(start, data, tmp_path / "one", NER, **keys))
    two = done(recipe_of(start, data, tmp_path / "two", NER, jobs=2, **keys))
    assert one.summary == two.summary


def test_a_cell_that_memory_is_short_for_fails_alone(
    start: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Updater.accumulate

    def short(self: Updater[TaskBatch], batches: Sequence[TaskBatch]) -> tuple[Tensor, Terms]:
        if sum(len(batch.packing.lengths) for batch in batches) > 5:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return whole(self, batches)

    monkeypatch.setattr(Updater, "accumulate", short)
    recipe = recipe_of(start, data, tmp_path / "out", NER, epochs=1, batch={}, grid={"batch": [10, 5]})
    found = done(recipe).summary
    assert [row.cell.batch for row in found.rows] == [5]
    assert "ran out of memory" in found.failed["batch10-seed0"]


def test_a_cell_that_diverges_fails_alone_and_the_exit_code_says_so(
    start: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # One step per epoch: the loss before the first update is finite, the logits on dev after it are not.
    keys: dict[str, Any] = {"steps": 2, "batch": {"sequences": 10}, "schedule": {"warmup_ratio": 0.0}}
    recipe = recipe_of(start, data, tmp_path / "out", NER, grid={"lr": [1e30, 1e-3]}, **keys)
    (tmp_path / "r.toml").write_text(explain(recipe))
    result = CliRunner().invoke(app, ["finetune", str(tmp_path / "r.toml"), "--quiet"])
    assert result.exit_code == 1
    assert "1 of 2 runs failed" in result.stderr
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert [row["cell"]["lr"] for row in summary["rows"]] == [1e-3]
    assert list(summary["failed"]) == ["lr1e+30-seed0"]


def test_a_run_that_diverges_alone_says_so(start: Path, data: Path, tmp_path: Path) -> None:
    keys: dict[str, Any] = {"steps": 1, "optimizer": {"lr": 1e30}, "schedule": {"warmup_ratio": 0.0}}
    with raises(DivergedError, code="not-finite"):
        done(recipe_of(start, data, tmp_path / "out", NER, **keys))
    assert not list(tmp_path.glob("out/runs/*/model"))


def test_folds_are_dealt_out_and_each_is_the_test_once(start: Path, tmp_path: Path) -> None:
    folder = write_splits(tmp_path / "data", train=class_documents(several=False, count=12))
    keys: dict[str, Any] = {"folds": {"count": 3, "dev_fraction": 0.3}, "score_test": "every", "epochs": 2}
    found = done(recipe_of(start, folder, tmp_path / "out", CLASSES, **keys)).summary
    assert [row.spreads["test"]["f1"].runs for row in found.rows] == [3]
    ids = [
        doc.id
        for fold in range(3)
        for doc in lexome.read(tmp_path / "out" / "runs" / f"seed0-fold{fold}" / "test.jsonl")
    ]
    assert sorted(ids) == sorted(doc.id for doc in class_documents(several=False, count=12))


def test_an_earlier_run_is_the_start_of_the_next(start: Path, tmp_path: Path) -> None:
    docs = question_documents(8)
    first = write_splits(tmp_path / "first", train=docs[:6], dev=docs[6:])
    second = write_splits(tmp_path / "second", train=docs[4:], dev=docs[:2])
    keys: dict[str, Any] = {"epochs": 2}
    done(recipe_of(start, first, tmp_path / "squad", {"kind": "questions"}, **keys))
    done(recipe_of(tmp_path / "squad", second, tmp_path / "bioasq", {"kind": "questions"}, **keys))
    record = facts_of(tmp_path / "bioasq")["seed0"]["start"]
    assert (record["new_head"], Path(record["checkpoint"]).parts[-3:]) == (False, ("runs", "seed0", "model"))


def test_a_run_is_not_given_up_in_its_first_steps(start: Path, data: Path, tmp_path: Path) -> None:
    done(recipe_of(start, data, tmp_path / "first", NER, epochs=15))
    # A rate of next to nothing: no score is ever better than the first.
    keys: dict[str, Any] = {"evaluation": {"patience": 1, "every": 5}, "optimizer": {"lr": 1e-12}}
    done(recipe_of(tmp_path / "first", data, tmp_path / "second", NER, steps=140, **keys))
    record = facts_of(tmp_path / "second")["seed0"]
    assert record["scores"]["dev"]["f1"] > 0
    assert (record["best_step"], record["steps"], record["stopped_early"]) == (5, 105, True)


def test_early_stopping_keeps_the_best_weights(start: Path, data: Path, tmp_path: Path) -> None:
    done(recipe_of(start, data, tmp_path, NER, epochs=60, evaluation={"patience": 2}))
    record = facts_of(tmp_path)["seed0"]
    lines = [json.loads(line) for line in (tmp_path / "runs" / "seed0" / "metrics.jsonl").read_text().splitlines()]
    scores = {line["step"]: line["dev"]["f1"] for line in lines if "dev" in line}
    assert record["stopped_early"]
    assert scores[record["best_step"]] == max(scores.values()) == record["scores"]["dev"]["f1"]
    assert record["steps"] == max(scores)


def test_without_a_dev_split_the_last_weights_are_kept(start: Path, data: Path, tmp_path: Path) -> None:
    keys: dict[str, Any] = {"data": {"folder": data, "dev": "none"}, "evaluation": {}, "score_test": "every"}
    found = done(recipe_of(start, data, tmp_path, NER, epochs=2, **keys))
    assert facts_of(tmp_path)["seed0"]["best_step"] == 4
    assert list(found.summary.rows[0].spreads) == ["test"]


def test_only_the_best_weights_are_kept_where_that_is_asked(start: Path, data: Path, tmp_path: Path) -> None:
    recipe = recipe_of(start, data, tmp_path, NER, seeds=[0, 1], epochs=2, keep_models="best")
    found = done(recipe)
    assert [path.parent for path in tmp_path.glob("runs/*/model")] == [found.model and found.model.parent]
    assert done(recipe).summary == found.summary


def test_all_weights_are_kept_where_nothing_says_which_are_the_best(start: Path, data: Path, tmp_path: Path) -> None:
    keys: dict[str, Any] = {"data": {"folder": data, "dev": "none"}, "evaluation": {}, "grid": {"lr": [1e-3, 1e-4]}}
    done(recipe_of(start, data, tmp_path / "out", NER, epochs=1, keep_models="best", **keys))
    assert [facts["kept"] for facts in facts_of(tmp_path / "out").values()] == [True, True]
    assert len(list(tmp_path.glob("out/runs/*/model/model.safetensors"))) == 2


def test_test_is_scored_later_with_the_weights_that_were_kept(start: Path, data: Path, tmp_path: Path) -> None:
    keys: dict[str, Any] = {"epochs": 3, "head": {"crf": True, "dropout": 0.0}}
    done(recipe_of(start, data, tmp_path / "later", NER, **keys))
    later = done(recipe_of(start, data, tmp_path / "later", NER, score_test="best", **keys)).summary
    at_once = done(recipe_of(start, data, tmp_path / "once", NER, score_test="best", **keys)).summary
    assert later == at_once


def test_the_record_counts_labels_and_what_splits_share(start: Path, tmp_path: Path) -> None:
    docs = ner_documents(10)
    folder = write_splits(tmp_path / "data", train=docs, dev=docs[:3])
    done(recipe_of(start, folder, tmp_path / "out", NER, epochs=1))
    record = facts_of(tmp_path / "out")["seed0"]
    assert (record["labels"]["B-Gene"], record["labels"]["I-Drug"]) == (10, 0)
    assert 0.2 < record["bias"] < 0.5
    assert "documents of dev that are in train too: 3 by id" in record["warnings"][0]


@pytest.mark.parametrize("layer_decay", [1.0, 0.5])
def test_lower_layers_learn_more_slowly_where_that_is_asked(
    layer_decay: float, start: Path, data: Path, tmp_path: Path
) -> None:
    keys: dict[str, Any] = {
        "optimizer": {"lr": 1e-4, "layerwise_lr_decay": layer_decay, "max_grad_norm": 0.0},
        "steps": 1,
    }
    found = done(recipe_of(start, data, tmp_path, NER, schedule={"warmup_ratio": 0.0}, **keys))
    assert found.model is not None
    before, after = (load(path, kind="encoder").model.state_dict() for path in (start, found.model))
    names = [f"layers.{number}.mlp.up.weight" for number in (0, 1)]
    moved = [float((after[name] - before[name]).abs().max()) for name in names]
    # Adam's first step is as long as the learning rate.
    assert moved[0] / moved[1] == pytest.approx(layer_decay, rel=0.02)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_the_first_layers_of_a_model_with_windows_are_saved_as_they_compute(
    layers: int, data: Path, tmp_path: Path
) -> None:
    shape: dict[str, Any] = {"positions": "rotary", "norm": "pre", "segments": 0, "gated": True, "norm_eps": 1e-5}
    shape |= dict.fromkeys(("biases", "norm_biases", "head_biases", "first_norm"), False) | {"final_norm": True}
    shape |= {"local_window": 8, "global_every": 3, "rotary_base": 160_000.0, "local_rotary_base": 10_000.0}
    shape |= {"dropout": 0.0, "attention_dropout": 0.0, "layers": 4}
    whole = tiny_model(tmp_path / "windows" / "tiny", architecture="modernbert", **shape)
    found = done(recipe_of(whole, data, tmp_path / "out", NER, epochs=1, layers=layers)).model
    assert found is not None
    config = load(found, kind="token").config
    assert [config.window(number) for number in range(layers)] == [None, 8, 8][:layers]


def test_a_head_of_other_layers_than_asked_for_is_refused_unless_it_is_to_be_new(
    start: Path, data: Path, tmp_path: Path
) -> None:
    head = {"layers": 1, "hidden_size": 16}
    first = done(recipe_of(start, data, tmp_path / "first", NER, epochs=1, head=head)).model
    assert first is not None
    done(recipe_of(first, data, tmp_path / "same", NER, epochs=1, head=head))
    other: dict[str, Any] = {"epochs": 1, "head": {"layers": 2, "hidden_size": 16}}
    with raises(CheckpointError, code="head-mismatch", value=2):
        done(recipe_of(first, data, tmp_path / "other", NER, **other))
    done(recipe_of(first, data, tmp_path / "other", NER, new_head=True, **other))


def test_a_model_with_other_labels_is_refused_unless_its_head_is_to_be_new(
    start: Path, data: Path, tmp_path: Path
) -> None:
    first = done(recipe_of(start, data, tmp_path / "first", {"kind": "ner", "types": ["Gene"]}, epochs=1))
    assert first.model is not None
    with raises(CheckpointError, code="label-mismatch", value=("O", "B-Gene", "I-Gene")):
        done(recipe_of(first.model, data, tmp_path / "second", NER, epochs=1))
    done(recipe_of(first.model, data, tmp_path / "third", NER, epochs=1, new_head=True))
    assert facts_of(tmp_path / "third")["seed0"]["start"]["new_head"]


def test_a_head_of_another_kind_is_left_out(start: Path, data: Path, tmp_path: Path) -> None:
    first = done(recipe_of(start, data, tmp_path / "first", {"kind": "ner", "types": ["Gene"]}, epochs=1))
    assert first.model is not None
    docs = class_documents(several=False, count=12)
    classes = write_splits(tmp_path / "data", train=docs, dev=docs)
    done(recipe_of(first.model, classes, tmp_path / "second", CLASSES, epochs=1))
    assert facts_of(tmp_path / "second")["seed0"]["start"]["new_head"]


@pytest.mark.parametrize(
    ("task", "keys", "code", "value"),
    [
        ({"kind": "ner", "types": ["Species"]}, {}, "unknown-type", "Species"),
        (NER, {"data_dev": "devel"}, "missing-split", "devel"),
        (NER, {"evaluation": {"metric": "accuracy"}}, "unknown-metric", "accuracy"),
        (NER, {"data_max_tokens": 500}, "too-long", 500),
        ({"kind": "questions"}, {}, "no-labels", "train"),
        (NER, {"head": {"crf": True}, "loss": {"kind": "dice"}}, "unsupported-loss", "loss.kind"),
    ],
)
def test_what_cannot_be_right_is_refused(
    task: dict[str, Any], keys: dict[str, Any], code: str, value: Any, start: Path, data: Path, tmp_path: Path
) -> None:
    own = {name.removeprefix("data_"): keys[name] for name in keys if name.startswith("data_")}
    rest = {name: held for name, held in keys.items() if not name.startswith("data_")}
    recipe = recipe_of(start, data, tmp_path / "out", task, data={"folder": data, **own}, epochs=1, **rest)
    with raises(LexomeError, code=code, value=value):
        done(recipe)
