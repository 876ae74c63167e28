"""A finished run is lengthened as a new one: bit for bit as if it had been that long, where the schedules agree."""

import json
from pathlib import Path
from typing import Any

import pytest
from errors import raises
from pretraining import TINY, make_shards, recipe, ticking

from lexome.corpus.shards import Shards
from lexome.errors import UsageError
from lexome.recipe.pretrain import DistillRecipe, PretrainRecipe
from lexome.training.pretrain import distill, pretrain
from lexome.training.trainer import read_metrics

# A schedule that does not depend on the length of the run.
CONSTANT = {"kind": "constant", "warmup_ratio": 0.0, "decay_ratio": 0.0}
LOG = {"every": 4, "save_every": 100}
TIMES = ("elapsed_s", "tokens_per_s")


@pytest.fixture(scope="module")
def finished(shards: Shards, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("finished") / "out"
    pretrain(run(shards, out, 8), progress_shown=False)
    return out


def run(shards: Shards, out: Path, steps: int, **keys: Any) -> PretrainRecipe:
    return recipe(shards.folder, out, **{"steps": steps, "schedule": CONSTANT, "log": LOG, **keys})


def weights(out: Path) -> bytes:
    return (out / "model" / "model.safetensors").read_bytes()


def metrics(out: Path) -> list[dict[str, Any]]:
    lines = read_metrics(out / "metrics.jsonl")
    return [{key: value for key, value in line.items() if key not in TIMES} for line in lines if "loss" in line]


def test_a_lengthened_run_equals_a_long_one_to_the_bit(shards: Shards, finished: Path, tmp_path: Path) -> None:
    before = weights(finished)
    pretrain(run(shards, tmp_path / "whole", 16), progress_shown=False)
    done = pretrain(run(shards, tmp_path / "more", 16, resume_from=finished), progress_shown=False)
    assert (done.steps, done.new) == (16, True)
    assert weights(tmp_path / "more") == weights(tmp_path / "whole")
    assert metrics(tmp_path / "more") == metrics(tmp_path / "whole")
    assert weights(finished) == before


def test_a_lengthened_run_that_was_interrupted_resumes_to_the_bit(
    shards: Shards, finished: Path, tmp_path: Path
) -> None:
    longer = run(shards, tmp_path / "more", 16, resume_from=finished, log={**LOG, "save_every": 3})
    with pytest.raises(KeyboardInterrupt):
        pretrain(longer, progress_shown=False, clock=ticking(stop_after=5))
    pretrain(longer, progress_shown=False)
    pretrain(run(shards, tmp_path / "whole", 16), progress_shown=False)
    assert weights(tmp_path / "more") == weights(tmp_path / "whole")
    assert not pretrain(longer, progress_shown=False).new


def test_a_run_is_lengthened_twice(shards: Shards, finished: Path, tmp_path: Path) -> None:
    pretrain(run(shards, tmp_path / "twelve", 12, resume_from=finished), progress_shown=False)
    pretrain(run(shards, tmp_path / "more", 16, resume_from=tmp_path / "twelve"), progress_shown=False)
    pretrain(run(shards, tmp_path / "whole", 16), progress_shown=False)
    assert weights(tmp_path / "more") == weights(tmp_path / "whole")


def test_distillation_is_lengthened_too(shards: Shards, finished: Path, tmp_path: Path) -> None:
    def student(out: str, steps: int, **keys: Any) -> DistillRecipe:
        given = run(shards, tmp_path / out, steps).model_dump(exclude={"start", "new_vocabulary", "model"}, mode="json")
        given = {key: value for key, value in given.items() if value is not None}
        given |= {"stage": "distill", "teacher": finished / "model", "model": TINY, **keys}
        return DistillRecipe.model_validate(given)

    distill(student("short", 4), progress_shown=False)
    distill(student("more", 8, resume_from=tmp_path / "short"), progress_shown=False)
    distill(student("whole", 8), progress_shown=False)
    assert weights(tmp_path / "more") == weights(tmp_path / "whole")


def test_a_run_that_is_not_longer_is_refused(shards: Shards, finished: Path, tmp_path: Path) -> None:
    with raises(UsageError, code="not-longer", value=8):
        pretrain(run(shards, tmp_path / "more", 8, resume_from=finished), progress_shown=False)


def test_other_settings_are_refused(shards: Shards, finished: Path, tmp_path: Path) -> None:
    longer = run(shards, tmp_path / "more", 16, resume_from=finished, optimizer={"lr": 1e-5})
    with raises(UsageError, code="other-settings", value="optimizer.lr"):
        pretrain(longer, progress_shown=False)


def test_other_text_is_refused(finished: Path, tmp_path: Path) -> None:
    other = make_shards(tmp_path, documents=30)
    with raises(UsageError, code="other-settings", value="shards"):
        pretrain(run(other, tmp_path / "more", 16, resume_from=finished), progress_shown=False)


def test_an_unfinished_run_is_refused(shards: Shards, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        pretrain(run(shards, tmp_path / "cut", 8), progress_shown=False, clock=ticking(stop_after=3))
    record = tmp_path / "cut" / "run.json"
    code = "unfinished-run" if record.is_file() else "missing-run"
    with raises(UsageError, code=code, value=tmp_path / "cut"):
        pretrain(run(shards, tmp_path / "more", 16, resume_from=tmp_path / "cut"), progress_shown=False)


@pytest.mark.parametrize("content", [None, "", "{}", '{"recipe": 7}', json.dumps({"recipe": {"stage": "pretrain"}})])
def test_a_folder_without_a_run_is_refused(shards: Shards, tmp_path: Path, content: str | None) -> None:
    folder = tmp_path / "nothing"
    if content is not None:
        folder.mkdir()
        (folder / "run.json").write_text(content)
    with raises(UsageError, code="missing-run", value=folder):
        pretrain(run(shards, tmp_path / "more", 16, resume_from=folder), progress_shown=False)
