"""Fine-tuning under torchrun: two processes train what one does, resume it, and write one result."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from errors import raises
from finetuning import done, ner_documents, recipe_of, write_splits

from lexome.errors import UsageError
from lexome.models.checkpoint import load
from lexome.recipe import explain
from lexome.recipe.finetune import FinetuneRecipe
from lexome.training.trainer import read_metrics

NER = {"kind": "ner", "types": ["Gene", "Drug"]}
# Seven examples: the last step of an epoch has fewer than the others, and one process none of them.
CASES: dict[str, dict[str, Any]] = {
    "plain": {"batch": {"sequences": 3}},
    "muon, crf": {
        "batch": {"sequences": 1, "gradient_accumulation": 3},
        "optimizer": {"kind": "muon", "lr": 1e-3},
        "head": {"crf": True},
    },
}
KEYS: dict[str, Any] = {"epochs": 3, "dropout": 0.0, "score_test": "every", "evaluation": {}, "log": {"every": 1}}


def torchrun(recipe: FinetuneRecipe) -> str:
    """What `lexome finetune` prints in two processes of torchrun."""
    path = recipe.out.with_suffix(".toml")
    path.write_text(explain(recipe))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "lexome", "finetune", str(path), "--json"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("case", ["plain", pytest.param("muon, crf", marks=pytest.mark.nightly)])
def test_two_processes_train_what_one_does(case: str, start: Path, tmp_path: Path) -> None:
    docs = ner_documents(12)
    data = write_splits(tmp_path / "data", train=docs[:7], dev=docs[7:9], test=docs[9:])
    keys: dict[str, Any] = {**KEYS, "head": {"dropout": 0.0}}
    keys |= {key: {**keys.get(key, {}), **table} for key, table in CASES[case].items()}
    one, two = (recipe_of(start, data, tmp_path / name, NER, **keys) for name in ("one", "two"))
    done(one)
    # Read as one JSON object: the second process prints nothing.
    summary = json.loads(torchrun(two))
    alone, together = (recipe.out / "runs" / "seed0" for recipe in (one, two))
    expected, lines = (read_metrics(folder / "metrics.jsonl") for folder in (alone, together))
    assert [line["step"] for line in lines] == [line["step"] for line in expected]
    for line, other in zip(lines, expected, strict=True):
        if "loss" in other:
            assert (line["tokens"], line["epoch"], line["lr"]) == (other["tokens"], other["epoch"], other["lr"])
            assert line["loss"] == pytest.approx(other["loss"], abs=1e-4)
            assert line["norm"] == pytest.approx(other["norm"], rel=1e-3)
        else:
            assert line["dev"] == pytest.approx(other["dev"], abs=1e-6)
    weights, others = (load(folder / "model", kind="token").model.state_dict() for folder in (together, alone))
    for name in weights:
        assert torch.allclose(weights[name], others[name], atol=1e-4), name
    assert summary["best_run"] == "seed0"
    facts = [json.loads((folder / "run.json").read_text()) for folder in (alone, together)]
    assert facts[0]["scores"] == facts[1]["scores"]
    assert not (together / "state").exists()


def test_a_table_that_does_not_fit_the_processes_is_refused(start: Path, tmp_path: Path) -> None:
    docs = ner_documents(6)
    data = write_splits(tmp_path / "data", train=docs, dev=docs)
    with raises(UsageError, code="wrong-world-size", value=1):
        done(recipe_of(start, data, tmp_path / "out", NER, parallel={"data": 2}))
