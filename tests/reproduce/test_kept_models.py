"""The models of one pre-training at several steps, as a curve of transfer needs them."""

from pathlib import Path

import torch
from errors import raises
from pretraining import TINY, make_shards, recipe
from typer.testing import CliRunner

from lexome.cli import app
from lexome.cli.scores import checkpoints_of_run
from lexome.errors import UsageError
from lexome.models.checkpoint import load
from lexome.training.pretrain import pretrain


def test_intermediate_checkpoints_do_not_change_training(tmp_path: Path) -> None:
    shards = make_shards(tmp_path / "made")
    ends = []
    for name, steps in (("with", (10, 2)), ("without", ())):
        made = recipe(
            shards.folder, tmp_path / name, steps=12, log={"checkpoint_steps": steps}, model=TINY | {"dropout": 0.1}
        )
        pretrain(made, progress_shown=False)
        ends.append(load(tmp_path / name / "model", kind="masked").model.state_dict())
    assert all(torch.equal(weight, ends[1][name]) for name, weight in ends[0].items())
    kept = checkpoints_of_run(tmp_path / "with")
    assert list(kept) == ["2", "10"]
    first, second = (load(path, kind="masked").model.state_dict() for path in kept.values())
    assert not torch.equal(first["encoder.embed.tokens.weight"], second["encoder.embed.tokens.weight"])


def test_a_run_without_checkpoints_is_refused(tmp_path: Path) -> None:
    with raises(UsageError, code="no-checkpoints", value=str(tmp_path)):
        checkpoints_of_run(tmp_path)


def test_a_study_without_a_model_is_refused() -> None:
    result = CliRunner().invoke(app, ["reproduce", "shin2020-transfer"])
    assert isinstance(result.exception, UsageError)
    assert result.exception.code == "no-models"
