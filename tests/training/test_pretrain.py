"""lexome pretrain: learns, goes on to the bit where it was stopped, and refuses what does not fit."""

import json
import math
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from errors import raises
from patience import PATIENCE_S, wait_until
from pretraining import TINY, make_shards, recipe, ticking, tokenizer

from lexome.cli.train import _print_run
from lexome.corpus.shards import PARTS, Shards
from lexome.errors import CheckpointError, DivergedError, RecipeError, UsageError
from lexome.files import fingerprint
from lexome.models import checkpoint
from lexome.recipe import downgrade, explain, load
from lexome.recipe.pretrain import PretrainRecipe
from lexome.training import pretrain as stage
from lexome.training.loop import INTERRUPT_MESSAGE, Interrupted, StopSignal
from lexome.training.losses import PretrainingLoss
from lexome.training.pretrain import Pretrained, pretrain
from lexome.training.session import ADDED_TABLES, FREE, identity_of
from lexome.training.trainer import read_metrics

# What differs between two runs of the same bits.
TIMES = ("elapsed_s", "tokens_per_s")


def metrics(out: Path) -> list[dict[str, Any]]:
    return [
        {key: held for key, held in line.items() if key not in TIMES} for line in read_metrics(out / "metrics.jsonl")
    ]


def weights(out: Path) -> bytes:
    return (out / "model" / "model.safetensors").read_bytes()


# Made by this very test on torch 2.13, CPU: the mean loss of steps 1-5, 6-10, ... 46-50.
GOLDEN = [3.31578, 3.064473, 2.753447, 2.525971, 2.343615, 2.175956, 2.067694, 1.953285, 1.843145, 1.963078]


def test_fifty_steps_have_the_stored_losses(shards: Shards, tmp_path: Path) -> None:
    pretrain(recipe(shards.folder, tmp_path / "out", steps=50), progress_shown=False)
    losses = [line["loss"] for line in metrics(tmp_path / "out") if "loss" in line]
    assert losses == pytest.approx(GOLDEN, abs=1e-4)


def test_what_can_be_learned_is_learned(shards: Shards, tmp_path: Path) -> None:
    run = recipe(
        shards.folder,
        tmp_path / "out",
        steps=300,
        optimizer={"lr": 1e-2, "kind": "muon"},
        evaluation={"every": 100, "seed": 1},
        log={"every": 50},
    )
    done = pretrain(run, progress_shown=False)
    held_out = [line["held_out"] for line in metrics(tmp_path / "out") if "held_out" in line]
    # How often words come gives 2.87 nats, the frame of the sentences 0.79; the rest is which gene is in which organ.
    assert held_out[0]["loss"] > held_out[-1]["loss"] < 0.75
    assert held_out[-1] == done.held_out
    assert held_out[-1]["perplexity"] == pytest.approx(math.exp(held_out[-1]["loss"]))
    assert held_out[-1]["accuracy"] > 0.6


SETTINGS: dict[str, dict[str, Any]] = {
    "dropout": {"model": TINY | {"dropout": 0.1, "attention_dropout": 0.1}, "evaluation": {"every": 8}},
    "muon": {"optimizer": {"kind": "muon", "lr": 3e-3}, "log": {"every": 7, "save_every": 20}},
    "pairs": {"text": {"kind": "sentence_order", "max_tokens": 48}, "masking": {"dupe_factor": 2}},
    "ramps": {
        "text": {"max_tokens": 32, "ramp": [[0, 16], [0.6, 32]]},
        "batch": {"tokens": 128, "gradient_accumulation": 3, "ramp": [[0, 1], [0.3, 3]]},
        "masking": {"ramp": [[0, 0.3], [0.9, 0.1]], "linear": True},
        "steps": None,
        "tokens": 9_000,
    },
    "bf16": {"precision": "bf16", "optimizer": {"kind": "muon", "lr": 3e-3}},
    "repeated": {"text": {"max_tokens": 32, "repeat": {"0": 0, "1": 3}}, "steps": None, "epochs": 2},
    "repeated pairs": {
        "text": {"kind": "next_sentence", "max_tokens": 32, "ramp": [[0, 16], [0.4, 32]], "repeat": {"0": 4, "1": 9}},
        "steps": None,
        "epochs": 0.5,
    },
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_stopped_run_goes_on_to_the_bit(shards: Shards, tmp_path: Path, name: str) -> None:
    whole = recipe(shards.folder, tmp_path / "whole", **SETTINGS[name])
    parted = recipe(shards.folder, tmp_path / "parted", **SETTINGS[name])
    done = pretrain(whole, progress_shown=False)
    with pytest.raises(KeyboardInterrupt):
        pretrain(parted, progress_shown=False, clock=ticking(stop_after=25))
    assert [path.name for path in (tmp_path / "parted" / "state").iterdir()] == ["step-00000020"]
    again = pretrain(parted, progress_shown=False)
    assert done.steps == again.steps > 25
    assert weights(tmp_path / "whole") == weights(tmp_path / "parted")
    assert metrics(tmp_path / "whole") == metrics(tmp_path / "parted")


def test_a_killed_run_goes_on_to_the_bit(shards: Shards, tmp_path: Path) -> None:
    whole, killed = (recipe(shards.folder, tmp_path / name, steps=100) for name in ("whole", "killed"))
    (tmp_path / "killed.toml").write_text(explain(killed))
    program = (
        "import sys, torch; from pathlib import Path; from lexome.recipe import load; torch.set_num_threads(1)\n"
        "from lexome.recipe.pretrain import PretrainRecipe; from lexome.training.pretrain import pretrain\n"
        "import itertools, os, signal; looks = itertools.count()\n"
        "def clock():\n"
        "    if (look := next(looks)) >= 30 and (Path(sys.argv[2]) / 'state' / 'step-00000020').exists():\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return float(look)\n"
        "pretrain(load(Path(sys.argv[1]), PretrainRecipe), clock=clock)"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "killed.toml"), str(tmp_path / "killed")]
    assert subprocess.run(command).returncode == -signal.SIGKILL
    assert not (tmp_path / "killed" / "model").exists()
    pretrain(whole, progress_shown=False)
    pretrain(killed, progress_shown=False)
    assert weights(tmp_path / "whole") == weights(tmp_path / "killed")
    assert metrics(tmp_path / "whole") == metrics(tmp_path / "killed")


def signalled(number: int, *, at: int) -> Callable[[], float]:
    """A clock at whose look of this number the process gets a signal."""
    looks = 0

    def clock() -> float:
        nonlocal looks
        looks += 1
        if looks == at:
            signal.raise_signal(number)
        return float(looks)

    return clock


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_saves_its_step_and_goes_on_to_the_bit(shards: Shards, tmp_path: Path, number: int) -> None:
    whole, parted = (recipe(shards.folder, tmp_path / name) for name in ("whole", "parted"))
    before = signal.getsignal(number)
    # The first look is the one before the first step.
    with pytest.raises(Interrupted, match=r"step 13 is saved in .*state"):
        pretrain(parted, progress_shown=False, clock=signalled(number, at=14))
    assert signal.getsignal(number) == before
    assert [path.name for path in (tmp_path / "parted" / "state").iterdir()] == ["step-00000013"]
    pretrain(parted, progress_shown=False)
    pretrain(whole, progress_shown=False)
    assert weights(tmp_path / "whole") == weights(tmp_path / "parted")
    assert metrics(tmp_path / "whole") == metrics(tmp_path / "parted")


def test_who_asks_again_need_not_wait() -> None:
    stop = StopSignal()
    stop.handle(signal.SIGINT, None)
    stop.handle(signal.SIGINT, None)
    assert stop.received_s is not None
    stop.received_s -= 10
    with pytest.raises(KeyboardInterrupt):
        stop.handle(signal.SIGINT, None)


def test_an_interrupted_command_says_so_and_ends_with_code_130(shards: Shards, tmp_path: Path) -> None:
    run = recipe(shards.folder, tmp_path / "out", steps=100_000, log={"every": 1, "save_every": 100_000})
    (tmp_path / "run.toml").write_text(explain(run))
    command = [sys.executable, "-m", "lexome", "pretrain", str(tmp_path / "run.toml")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: read_metrics(tmp_path / "out" / "metrics.jsonl"))
    process.send_signal(signal.SIGTERM)
    out, errors = process.communicate(timeout=PATIENCE_S)
    (saved,) = (tmp_path / "out" / "state").iterdir()
    step = int(saved.name.removeprefix("step-"))
    assert (process.returncode, out) == (130, "")
    assert INTERRUPT_MESSAGE.decode() + "interrupted: " in errors
    assert f"step {step:,} is saved in {saved.parent}" in errors


def test_a_run_broken_off_before_any_state_leaves_the_folder_to_a_mended_recipe(shards: Shards, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        pretrain(recipe(shards.folder, tmp_path / "out", steps=9), progress_shown=False, clock=ticking(stop_after=3))
    assert pretrain(recipe(shards.folder, tmp_path / "out", steps=5), progress_shown=False).steps == 5


def test_what_was_broken_off_is_not_said_to_be_saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit):
        _print_run(broken_off, tmp_path / "out", as_json=False, quiet=False)
    assert "nothing was saved" in capsys.readouterr().err


def broken_off() -> Pretrained:
    raise KeyboardInterrupt


def test_a_run_says_where_it_computes_what_it_trains_and_where_it_goes_on(
    shards: Shards, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = pretrain(recipe(shards.folder, tmp_path / "first", steps=1), progress_shown=False).folder
    other = make_shards(tmp_path / "other", made=tokenizer(extra=("weighs",)))
    run = recipe(other.folder, tmp_path / "out", start=first, new_vocabulary="transfer", device="cpu")
    with pytest.raises(KeyboardInterrupt):
        pretrain(run, progress_shown=False, clock=ticking(stop_after=25))
    pretrain(run)
    weights = sum(weight.numel() for weight in checkpoint.load(tmp_path / "out" / "model").model.parameters())
    pieces = len(json.loads((other.folder / "tokenizer.json").read_text())["model"]["vocab"])
    assert capsys.readouterr().err.splitlines()[:5] == [
        "device    cpu, fp32",
        f"model     bert, {weights:,} parameters, from {first}",
        f"new       1 of {pieces} tokens",
        f"text      {other_text(other)}",
        "resumes   after step 20",
    ]


def other_text(shards: Shards) -> str:
    documents = sum(shard.document_ends.size for shard in shards.train)
    return f"{documents:,} documents, {sum(shard.tokens.size for shard in shards.train):,} tokens."


def test_a_finished_run_is_not_run_again(shards: Shards, tmp_path: Path) -> None:
    run = recipe(shards.folder, tmp_path / "out", steps=5)
    first = pretrain(run, progress_shown=False)
    before = (tmp_path / "out" / "run.json").stat().st_mtime_ns
    second = pretrain(run, progress_shown=False)
    assert (first.new, second.new) == (True, False)
    assert (second.steps, second.loss, second.held_out) == (first.steps, first.loss, first.held_out)
    assert (tmp_path / "out" / "run.json").stat().st_mtime_ns == before


def test_another_recipe_does_not_take_over_the_folder(shards: Shards, tmp_path: Path) -> None:
    pretrain(recipe(shards.folder, tmp_path / "out", steps=5), progress_shown=False)
    with raises(UsageError, code="other-settings", value="steps"):
        pretrain(recipe(shards.folder, tmp_path / "out", steps=6), progress_shown=False)
    optimizer, length = {"lr": 1e-3, "kind": "muon"}, {"steps": 5, "log": {"every": 1}}
    with raises(UsageError, code="other-settings", value="optimizer.kind"):
        pretrain(recipe(shards.folder, tmp_path / "out", optimizer=optimizer, **length), progress_shown=False)


def test_a_folder_with_a_model_of_somebody_else_is_refused(shards: Shards, tmp_path: Path) -> None:
    (tmp_path / "out" / "model").mkdir(parents=True)
    (tmp_path / "out" / "model" / "config.json").write_text("{}")
    with raises(UsageError, code="foreign-output", value=tmp_path / "out"):
        pretrain(recipe(shards.folder, tmp_path / "out", steps=1), progress_shown=False)
    assert (tmp_path / "out" / "model" / "config.json").read_text() == "{}"


def test_other_weights_in_the_folder_it_began_with_are_another_run(shards: Shards, tmp_path: Path) -> None:
    folders = [
        pretrain(recipe(shards.folder, tmp_path / name, steps=1, seed=seed), progress_shown=False).folder
        for name, seed in (("a", 1), ("b", 2))
    ]
    start = tmp_path / "start"
    folders[0].rename(start)
    pretrain(recipe(shards.folder, tmp_path / "out", steps=1, start=start), progress_shown=False)
    (folders[1] / "model.safetensors").replace(start / "model.safetensors")
    with raises(UsageError, code="other-settings", value="shards"):
        pretrain(recipe(shards.folder, tmp_path / "out", steps=1, start=start), progress_shown=False)


def test_a_run_that_failed_before_any_state_leaves_the_folder_to_a_mended_recipe(
    shards: Shards, tmp_path: Path
) -> None:
    with raises(DivergedError, code="not-finite"):
        pretrain(recipe(shards.folder, tmp_path / "out", steps=5, optimizer={"lr": 1e30}), progress_shown=False)
    assert pretrain(recipe(shards.folder, tmp_path / "out", steps=5), progress_shown=False).steps == 5


def test_a_run_without_memory_leaves_the_folder_to_a_smaller_batch(shards: Shards, tmp_path: Path) -> None:
    looks = ticking()

    def short() -> float:
        if looks() > 3:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return 0.0

    with pytest.raises(torch.OutOfMemoryError):
        pretrain(recipe(shards.folder, tmp_path / "out", steps=5), progress_shown=False, clock=short)
    smaller = recipe(shards.folder, tmp_path / "out", steps=5, batch={"tokens": 128})
    assert pretrain(smaller, progress_shown=False).steps == 5


def test_how_often_is_logged_may_change_on_the_way(shards: Shards, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        pretrain(recipe(shards.folder, tmp_path / "out"), progress_shown=False, clock=ticking(stop_after=25))
    done = pretrain(recipe(shards.folder, tmp_path / "out", log={"every": 10, "save_every": 10}), progress_shown=False)
    assert done.steps == 40
    assert [line["step"] for line in metrics(tmp_path / "out") if "loss" in line] == [5, 10, 15, 20, 30, 40]


def test_the_run_is_written_down(shards: Shards, tmp_path: Path) -> None:
    pretrain(recipe(shards.folder, tmp_path / "out", steps=5), progress_shown=False)
    found = json.loads((tmp_path / "out" / "run.json").read_text())
    assert (found["done"], found["steps"], found["recipe"]["seed"]) == (True, 5, 1)
    assert found["versions"]["torch"] == torch.__version__
    assert found["start"]["config"]["hidden_size"] == 32
    assert (tmp_path / "out" / "loss.png").read_bytes().startswith(b"\x89PNG")
    # No drafts are left. The one hidden file is torch's, in a state.
    assert {path.name for path in (tmp_path / "out").rglob(".*")} == {".metadata"}


def test_a_budget_of_time_is_spent_and_the_rate_fitted_to_it(shards: Shards, tmp_path: Path) -> None:
    run = recipe(
        shards.folder,
        tmp_path / "out",
        time_budget="40s",
        log={"every": 1},
        schedule={"warmup_ratio": 0.25},
        optimizer={"lr": 1e-3},
    )
    done = pretrain(run, progress_shown=False, clock=ticking())
    assert (done.steps, done.seconds) == (40, 40.0)
    rates = [line["lr"] for line in metrics(tmp_path / "out") if "lr" in line]
    assert [rates[step] for step in (0, 5, 10, 25, 39)] == pytest.approx([0.0, 5e-4, 1e-3, 5e-4, 1e-3 / 30])


def test_a_resumed_budget_counts_the_time_before(shards: Shards, tmp_path: Path) -> None:
    run = recipe(shards.folder, tmp_path / "out", time_budget="40s")
    with pytest.raises(KeyboardInterrupt):
        pretrain(run, progress_shown=False, clock=ticking(stop_after=25))
    assert pretrain(run, progress_shown=False, clock=ticking()).steps == 40


def test_epochs_are_told_in_tokens_of_the_text(shards: Shards, tmp_path: Path) -> None:
    done = pretrain(recipe(shards.folder, tmp_path / "out", epochs=2), progress_shown=False)
    assert 1.9 < done.tokens / (shards.manifest["totals"]["train"]["tokens"]) / (1 + 2 / 24) < 2.4


def test_less_than_a_token_of_an_epoch_is_one_step(shards: Shards, tmp_path: Path) -> None:
    assert pretrain(recipe(shards.folder, tmp_path / "out", epochs=1e-9), progress_shown=False).steps == 1


def test_an_epoch_is_as_long_as_the_text_repeated(shards: Shards, tmp_path: Path) -> None:
    text = {"max_tokens": 32, "repeat": {"0": 0, "1": 3}}
    done = pretrain(recipe(shards.folder, tmp_path / "out", epochs=1, text=text), progress_shown=False)
    (entry,) = (one for one in shards.manifest["shards"]["train"] if one["name"] == "1")
    assert 2.85 < done.tokens / entry["tokens"] / (1 + 2 / 24) < 3.6
    card = (done.folder / "README.md").read_text()
    assert f"{entry['documents']:,} documents, {entry['tokens']:,} tokens; in each epoch 1 3 times." in card


@pytest.mark.parametrize(
    ("times", "code"),
    [
        ({"abstracts": 2}, "unknown-source"),
        ({"0": 0, "1": 0}, "no-text"),
    ],
)
def test_sources_that_are_not_there_are_refused_before_anything_is_loaded(
    shards: Shards, tmp_path: Path, times: dict[str, int], code: str
) -> None:
    run = recipe(shards.folder, tmp_path / "out", start=tmp_path / "nothing", text={"max_tokens": 32, "repeat": times})
    with raises(RecipeError, code=code):
        pretrain(run, progress_shown=False)
    assert not (tmp_path / "out").exists()


def test_a_source_that_is_all_held_out_cannot_be_repeated(tmp_path: Path) -> None:
    made = make_shards(tmp_path, documents=2, held_out=0.5)
    train, out = ([one["name"] for one in made.manifest["shards"][part] if one["tokens"]] for part in PARTS)
    assert (len(train), len(out)) == (1, 1)
    assert made.sources == tuple(train)
    run = recipe(made.folder, tmp_path / "out", text={"max_tokens": 32, "repeat": {out[0]: 2}})
    with raises(RecipeError, code="unknown-source", value=out[0], mentions=train[0]):
        pretrain(run, progress_shown=False)
    run = recipe(made.folder, tmp_path / "out", text={"max_tokens": 32, "repeat": {train[0]: 0}})
    with raises(RecipeError, code="no-text", value="text.repeat"):
        pretrain(run, progress_shown=False)


def test_without_repeated_text_a_run_is_the_one_it_was(shards: Shards, tmp_path: Path) -> None:
    plain, repeated = (
        recipe(shards.folder, tmp_path, text={"max_tokens": 32, "repeat": times}) for times in ({}, {"1": 2})
    )
    settings = downgrade(plain.model_dump(mode="json", exclude=FREE), "pretrain")
    del settings["text"]["repeat"]
    # The first edition had no sentence-level objectives.
    for table in ADDED_TABLES:
        del settings[table]
    before = fingerprint(settings, (shards.folder / "manifest.json").read_text())
    assert identity_of(plain, shards) == before != identity_of(repeated, shards)


def test_weights_in_bfloat16_are_written_as_they_were_trained(shards: Shards, tmp_path: Path) -> None:
    pretrain(recipe(shards.folder, tmp_path / "out", steps=20, precision="bf16"), progress_shown=False)
    weight = checkpoint.load(tmp_path / "out" / "model").model.encoder.layers[0].mlp.up.weight  # type: ignore[union-attr,index]
    assert not torch.equal(weight, weight.bfloat16().float())


class Poisoned(PretrainingLoss):
    """A loss that is no number from its thirtieth pass on."""

    passes = 0

    def __call__(self, *given: Any) -> Any:
        self.passes += 1
        loss, terms = super().__call__(*given)
        return (loss * math.nan if self.passes >= 30 else loss), terms


def test_a_loss_that_is_no_number_names_the_last_good_state(
    shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "PretrainingLoss", Poisoned)
    run = recipe(shards.folder, tmp_path / "out", log={"every": 7, "save_every": 4, "keep_states": 9})
    with raises(DivergedError, code="not-finite", mentions="step-00000028"):
        pretrain(run, progress_shown=False)
    good = checkpoint.load(tmp_path / "out" / "last-good").model
    assert all(weight.isfinite().all() for weight in good.parameters())
    assert json.loads((tmp_path / "out" / "last-good" / "run.json").read_text())["steps"] == 28
    begun = recipe(shards.folder, tmp_path / "again", start=tmp_path / "out" / "last-good", steps=1)
    monkeypatch.undo()
    assert (pretrain(begun, progress_shown=False).loss or math.inf) < 3.0


def test_training_goes_on_from_a_checkpoint(shards: Shards, tmp_path: Path) -> None:
    first = pretrain(recipe(shards.folder, tmp_path / "first", steps=100), progress_shown=False)
    second = pretrain(
        recipe(shards.folder, tmp_path / "second", steps=1, start=first.folder, optimizer={"lr": 1e-9}),
        progress_shown=False,
    )
    assert first.held_out is not None
    assert second.held_out is not None
    assert second.held_out["loss"] == pytest.approx(first.held_out["loss"], abs=1e-4)
    assert json.loads((tmp_path / "second" / "run.json").read_text())["start"]["drawn"] == []


def test_another_tokenizer_is_refused(shards: Shards, tmp_path: Path) -> None:
    first = pretrain(recipe(shards.folder, tmp_path / "first", steps=1), progress_shown=False)
    other = make_shards(tmp_path / "other", made=tokenizer(extra=("weighs", "grows")))
    with raises(CheckpointError, code="tokenizer-mismatch", value=first.folder, mentions="new_vocabulary"):
        pretrain(recipe(other.folder, tmp_path / "second", start=first.folder), progress_shown=False)


def carried(shards: Shards, folder: Path, *extra: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The embeddings of a model, and of the same one with more pieces after a step too small to change them."""
    first = pretrain(recipe(shards.folder, folder / "first", steps=20), progress_shown=False)
    other = make_shards(folder / "other", made=tokenizer(extra=extra))
    keys = {"start": first.folder, "new_vocabulary": "transfer", "steps": 1, "optimizer": {"lr": 1e-9}}
    second = pretrain(recipe(other.folder, folder / "second", **keys), progress_shown=False)
    old, new = (checkpoint.load(one.folder).model.encoder.embed.tokens.weight for one in (first, second))  # type: ignore[union-attr]
    return old, new


def test_what_two_tokenizers_share_is_carried_over(shards: Shards, tmp_path: Path) -> None:
    extra = ("weighs", "grows")
    old, new = carried(shards, tmp_path, *extra)
    facts = json.loads((tmp_path / "second" / "run.json").read_text())["start"]["vocabulary"]
    assert facts == {"kept": 31, "new": 2, "gone": 0}
    for piece, id_ in tokenizer(extra=extra).get_vocab().items():
        if piece not in extra:
            assert torch.allclose(new[id_], old[tokenizer().get_vocab()[piece]], atol=1e-6), piece


def test_a_new_piece_begins_as_the_mean_of_what_its_text_was_before(shards: Shards, tmp_path: Path) -> None:
    extra = ("BRCA1", "ribosome")
    old, new = carried(shards, tmp_path, *extra)
    before, after = tokenizer().get_vocab(), tokenizer(extra=extra).get_vocab()
    mean = (old[before["BRCA"]] + old[before["##1"]]) / 2
    assert torch.allclose(new[after["BRCA1"]], mean, atol=1e-6)
    # Of a word that the old tokenizer does not know nothing is known.
    assert not torch.allclose(new[after["ribosome"]], old[before["[UNK]"]], atol=1e-3)


def test_a_word_that_takes_over_an_old_id_begins_as_its_parts_too(tmp_path: Path) -> None:
    pieces = tokenizer(extra=("[unused0]", "weighs")), tokenizer(extra=("BRCA1", "weighs"))
    old, new = (make_shards(tmp_path / name, made=made) for name, made in zip("ab", pieces, strict=True))
    first = pretrain(recipe(old.folder, tmp_path / "first", steps=20), progress_shown=False)
    keys = {"start": first.folder, "new_vocabulary": "transfer", "steps": 1, "optimizer": {"lr": 1e-9}}
    second = pretrain(recipe(new.folder, tmp_path / "second", **keys), progress_shown=False)
    before, after = (checkpoint.load(one.folder).model.encoder.embed.tokens.weight for one in (first, second))  # type: ignore[union-attr]
    ids, slot = pieces[0].get_vocab(), pieces[1].token_to_id("BRCA1")
    assert slot == ids["[unused0]"]
    expected = before.detach().clone()
    expected[slot] = (before[ids["BRCA"]] + before[ids["##1"]]) / 2
    assert torch.allclose(after, expected, atol=1e-6)
    assert not torch.allclose(after[slot], before[slot], atol=1e-3)


def test_a_checkpoint_of_another_shape_is_refused(shards: Shards, tmp_path: Path) -> None:
    first = pretrain(recipe(shards.folder, tmp_path / "first", steps=1), progress_shown=False)
    with raises(RecipeError, code="shape-mismatch"):
        pretrain(
            recipe(shards.folder, tmp_path / "b", start=first.folder, model={"intermediate_size": 128}),
            progress_shown=False,
        )


def test_a_model_too_short_for_its_text_is_refused(shards: Shards, tmp_path: Path) -> None:
    run = recipe(shards.folder, tmp_path / "out", model=TINY | {"max_tokens": 16})
    with raises(UsageError, code="too-long", value=32):
        pretrain(run, progress_shown=False)


def test_pairs_without_a_form_to_save_them_in_are_refused_before_training(shards: Shards, tmp_path: Path) -> None:
    model = TINY | {"position_offset": 2, "segments": 1, "norm_eps": 1e-5}
    run = recipe(shards.folder, tmp_path / "out", model=model, text={"kind": "next_sentence", "max_tokens": 32})
    with raises(UsageError, code="no-pair-head"):
        pretrain(run, progress_shown=False)


def test_measuring_without_held_out_text_is_refused(tmp_path: Path) -> None:
    shards = make_shards(tmp_path, held_out=0.0)
    with raises(UsageError, code="no-held-out-text"):
        pretrain(recipe(shards.folder, tmp_path / "out", evaluation={"every": 5}), progress_shown=False)


@pytest.mark.parametrize("part", ["run.pt", "__0_0.distcp", ".metadata"])
def test_a_damaged_state_is_named(shards: Shards, tmp_path: Path, part: str) -> None:
    run = recipe(shards.folder, tmp_path / "out")
    with pytest.raises(KeyboardInterrupt):
        pretrain(run, progress_shown=False, clock=ticking(stop_after=25))
    state = tmp_path / "out" / "state" / "step-00000020"
    (state / part).write_bytes(b"cut")
    with raises(CheckpointError, code="damaged-state", mentions=str(state)):
        pretrain(run, progress_shown=False)


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """As on a full disk: what would make a file larger than this fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_costs_no_state_that_was_saved(shards: Shards, tmp_path: Path) -> None:
    run, states = recipe(shards.folder, tmp_path / "out"), tmp_path / "out" / "state"
    with pytest.raises(KeyboardInterrupt):
        pretrain(run, progress_shown=False, clock=ticking(stop_after=25))
    written = states / "step-00000040"
    with files_up_to(8192), raises(CheckpointError, code="state-not-written", value=written, mentions="step-00000020"):
        pretrain(run, progress_shown=False)
    assert [path.name for path in states.iterdir()] == ["step-00000020"]
    assert pretrain(run, progress_shown=False).steps == 40


def test_the_folder_of_a_training_is_not_its_model(shards: Shards, tmp_path: Path) -> None:
    model = pretrain(recipe(shards.folder, tmp_path / "out", steps=1), progress_shown=False).folder
    with raises(CheckpointError, code="missing-file", mentions=str(model)):
        pretrain(recipe(shards.folder, tmp_path / "more", steps=1, start=tmp_path / "out"), progress_shown=False)


def test_a_length_told_twice_is_refused_with_a_way_out(shards: Shards, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(explain(recipe(shards.folder, tmp_path / "out", time_budget="20m")))
    with raises(RecipeError, code="invalid-value", value="time_budget", mentions="--set time_budget="):
        load(tmp_path / "run.toml", PretrainRecipe, overrides=["steps=5"])
    assert load(tmp_path / "run.toml", PretrainRecipe, overrides=["steps=5", "time_budget="]).steps == 5


def test_only_the_newest_states_are_kept(shards: Shards, tmp_path: Path) -> None:
    run = recipe(shards.folder, tmp_path / "out", steps=10, log={"save_every": 3, "keep_states": 2})
    (tmp_path / "out" / "state" / ".step-00000099.part").mkdir(parents=True)
    pretrain(run, progress_shown=False)
    assert sorted(path.name for path in (tmp_path / "out" / "state").iterdir()) == ["step-00000009", "step-00000010"]


def test_computing_layers_again_changes_no_bit(shards: Shards, tmp_path: Path) -> None:
    model = TINY | {"dropout": 0.1, "attention_dropout": 0.1}
    for again in (False, True):
        run = recipe(shards.folder, tmp_path / str(again), steps=10, model=model, gradient_checkpointing=again)
        pretrain(run, progress_shown=False)
    assert weights(tmp_path / "True") == weights(tmp_path / "False")
