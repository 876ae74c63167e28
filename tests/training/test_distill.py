"""lexome distill: a student learns from its teacher; the control is plain pre-training; misfits are refused."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from errors import raises, rejects
from pretraining import TINY, make_shards, recipe, tokenizer
from torch.nn import functional

from lexome.corpus.shards import Shards
from lexome.errors import CheckpointError, UsageError
from lexome.models import checkpoint
from lexome.models.heads import MaskedLM
from lexome.models.hf_folder import weights_sha256
from lexome.recipe import explain, load
from lexome.recipe.pretrain import DistillRecipe
from lexome.training.pretrain import distill, pretrain
from lexome.training.session import batches_of
from lexome.training.trainer import read_metrics

SMALL = TINY | {"layers": 1, "hidden_size": 16, "intermediate_size": 32}


@pytest.fixture(scope="module")
def teacher(shards: Shards, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has learned which gene is in which organ."""
    out = tmp_path_factory.mktemp("teacher")
    run = recipe(shards.folder, out, steps=250, optimizer={"lr": 1e-2, "kind": "muon"})
    return pretrain(run, progress_shown=False).folder


def distillation(shards: Shards, teacher: Path, out: Path, **keys: Any) -> DistillRecipe:
    """The recipe of a small student, forty steps long unless `keys` say otherwise."""
    plain = recipe(shards.folder, out, preset="tiny").model_dump(exclude_none=True)
    given = {name: held for name, held in plain.items() if name in DistillRecipe.model_fields and name != "preset"}
    given |= {"stage": "distill", "teacher": teacher, **keys}
    if not {"student", "preset", "model"} & keys.keys():
        given["model"] = SMALL
    return DistillRecipe.model_validate(given)


def metrics(out: Path) -> list[dict[str, Any]]:
    times = ("elapsed_s", "tokens_per_s")
    return [{k: v for k, v in line.items() if k not in times} for line in read_metrics(out / "metrics.jsonl")]


def weights(out: Path) -> bytes:
    return (out / "model" / "model.safetensors").read_bytes()


def divergence(teacher: Path, student: Path, made: DistillRecipe, shards: Shards) -> float:
    """Mean KL(teacher || student) at the masks of the held-out text, at a temperature of 1."""
    logits = []
    for folder in (teacher, student):
        model = checkpoint.load(folder).model
        with torch.no_grad():
            rows = [
                model(one.ids_T, one.packing, one.positions_M)[: one.masked]
                for one in batches_of(made, shards).held_out
            ]
        logits.append(functional.log_softmax(torch.cat(rows), dim=-1))
    return float(functional.kl_div(logits[1], logits[0], reduction="batchmean", log_target=True))


def test_a_taught_student_is_closer_to_its_teacher_than_one_that_trained_as_long(
    shards: Shards, teacher: Path, tmp_path: Path
) -> None:
    before = weights(teacher.parent)
    keys: dict[str, Any] = {"steps": 100, "optimizer": {"lr": 1e-2}}
    runs = {
        "taught": distillation(shards, teacher, tmp_path / "taught", **keys),
        "longer": distillation(shards, teacher, tmp_path / "longer", control=True, **keys),
    }
    done = {name: distill(run, progress_shown=False) for name, run in runs.items()}
    far = {name: divergence(teacher, one.folder, runs[name], shards) for name, one in done.items()}
    assert far["taught"] < 0.6 * far["longer"]
    losses = {name: (one.held_out or {})["loss"] for name, one in done.items()}
    assert losses["taught"] < losses["longer"]
    assert weights(teacher.parent) == before


def test_each_term_is_in_the_metrics(shards: Shards, teacher: Path, tmp_path: Path) -> None:
    distill(distillation(shards, teacher, tmp_path / "out"), progress_shown=False)
    lines = [line for line in metrics(tmp_path / "out") if "loss" in line]
    for line in lines:
        # Each is a mean over all masks or tokens of the line's steps, the loss one over steps: nearly the same.
        parts = 5 * line["word_loss"] + 2 * line["kl_loss"] + line["cosine_loss"]
        assert line["loss"] == pytest.approx(parts, rel=0.02)
    assert lines[-1]["kl_loss"] < lines[0]["kl_loss"]
    assert lines[-1]["cosine_loss"] < lines[0]["cosine_loss"]
    held_out = metrics(tmp_path / "out")[-1]["held_out"]
    assert {"loss", "perplexity", "accuracy", "kl_loss", "cosine_loss"} == set(held_out)


@pytest.mark.parametrize("kind", ["new", "checkpoint", "layers"])
def test_the_control_is_plain_pre_training_to_the_bit(shards: Shards, teacher: Path, tmp_path: Path, kind: str) -> None:
    dropped = {"dropout": 0.1, "attention_dropout": 0.1}
    keys: dict[str, Any] = {"model": SMALL | dropped}
    plain: dict[str, Any] = keys
    if kind == "checkpoint":
        keys, plain = {"student": teacher, "model": dropped}, {"start": teacher, "model": dropped}
    elif kind == "layers":
        keys, plain = {"student": "layers", "layers": [0, 1]}, {"start": teacher}
    distill(distillation(shards, teacher, tmp_path / "control", control=True, **keys), progress_shown=False)
    pretrain(recipe(shards.folder, tmp_path / "plain", **plain), progress_shown=False)
    assert weights(tmp_path / "control") == weights(tmp_path / "plain")
    assert metrics(tmp_path / "control") == metrics(tmp_path / "plain")


SETTINGS: dict[str, dict[str, Any]] = {
    "dropout": {"model": SMALL | {"dropout": 0.1, "attention_dropout": 0.1}, "evaluation": {"every": 8}},
    "passes": {"batch": {"tokens": 128, "gradient_accumulation": 2}, "loss": {"positions": "all"}},
    "bf16": {"precision": "bf16", "optimizer": {"kind": "muon", "lr": 3e-3}},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_stopped_distillation_goes_on_to_the_bit(shards: Shards, teacher: Path, tmp_path: Path, name: str) -> None:
    whole, parted = (distillation(shards, teacher, tmp_path / part, **SETTINGS[name]) for part in ("whole", "parted"))
    distill(whole, progress_shown=False)
    looks = 0

    def clock() -> float:
        nonlocal looks
        looks += 1
        if looks == 27:
            raise KeyboardInterrupt
        return float(looks)

    with pytest.raises(KeyboardInterrupt):
        distill(parted, progress_shown=False, clock=clock)
    assert not (tmp_path / "parted" / "model").exists()
    distill(parted, progress_shown=False)
    assert weights(tmp_path / "whole") == weights(tmp_path / "parted")
    assert metrics(tmp_path / "whole") == metrics(tmp_path / "parted")


def test_a_student_begins_with_the_layers_it_was_promised(shards: Shards, teacher: Path, tmp_path: Path) -> None:
    made = distillation(
        shards, teacher, tmp_path / "out", student="layers", layer_stride=2, steps=1, optimizer={"lr": 1e-12}
    )
    done = distill(made, progress_shown=False)
    student, taught = (checkpoint.load(folder) for folder in (done.folder, teacher))
    assert student.config.layers == 1
    held = taught.model.state_dict()
    for name, weight in student.model.state_dict().items():
        assert torch.allclose(weight, held[name], atol=1e-6), name


def test_a_new_student_begins_alike_with_a_teacher_and_without(shards: Shards, teacher: Path, tmp_path: Path) -> None:
    keys: dict[str, Any] = {"steps": 1, "optimizer": {"lr": 1e-12}}
    folders = [
        distill(distillation(shards, teacher, tmp_path / str(control), control=control, **keys), progress_shown=False)
        for control in (False, True)
    ]
    taught, alone = (checkpoint.load(done.folder).model.state_dict() for done in folders)
    assert all(torch.allclose(weight, alone[name], atol=1e-6) for name, weight in taught.items())


def test_what_learned_is_written_down(shards: Shards, teacher: Path, tmp_path: Path) -> None:
    distill(distillation(shards, teacher, tmp_path / "out", steps=2), progress_shown=False)
    facts = json.loads((tmp_path / "out" / "run.json").read_text())
    sha256 = hashlib.sha256((teacher / "model.safetensors").read_bytes()).hexdigest()
    assert facts["stage"] == "distill"
    assert facts["start"]["teacher"] == {"folder": str(teacher), "sha256": sha256, "taught": True}
    assert sha256 in (tmp_path / "out" / "model" / "README.md").read_text()
    model = checkpoint.load(tmp_path / "out" / "model").model
    assert isinstance(model, MaskedLM)


def test_weights_in_pieces_are_hashed_one_after_the_other(tmp_path: Path) -> None:
    for number, held in enumerate((b"one", b"two"), start=1):
        (tmp_path / f"model-0000{number}-of-00002.safetensors").write_bytes(held)
    places = {"b": "model-00002-of-00002.safetensors", "a": "model-00001-of-00002.safetensors"}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    assert weights_sha256(tmp_path) == hashlib.sha256(b"onetwo").hexdigest()


def test_a_teacher_that_is_not_there_is_said_to_be_missing(shards: Shards, tmp_path: Path) -> None:
    with raises(CheckpointError, code="missing-file", mentions="nowhere"):
        distill(distillation(shards, tmp_path / "nowhere", tmp_path / "out"), progress_shown=False)


def test_another_teacher_does_not_go_on_with_the_run(shards: Shards, teacher: Path, tmp_path: Path) -> None:
    made = distillation(shards, teacher, tmp_path / "out", steps=2)
    assert distill(made, progress_shown=False).new
    assert not distill(made, progress_shown=False).new
    other = pretrain(recipe(shards.folder, tmp_path / "other", steps=1), progress_shown=False).folder
    (tmp_path / "moved").symlink_to(teacher)
    named = made.model_copy(update={"teacher": tmp_path / "moved", "out": tmp_path / "again"})
    assert distill(named, progress_shown=False).new
    (tmp_path / "moved").unlink()
    (tmp_path / "moved").symlink_to(other)
    with raises(UsageError, code="other-settings", value="shards"):
        distill(named, progress_shown=False)


def test_models_of_another_tokenizer_are_refused(shards: Shards, teacher: Path, tmp_path: Path) -> None:
    other = make_shards(tmp_path / "other", made=tokenizer(extra=("weighs",)))
    student = pretrain(recipe(other.folder, tmp_path / "student", steps=1), progress_shown=False).folder
    with raises(CheckpointError, code="tokenizer-mismatch", value=teacher):
        distill(distillation(other, teacher, tmp_path / "a"), progress_shown=False)
    with raises(CheckpointError, code="tokenizer-mismatch", value=student):
        distill(distillation(shards, teacher, tmp_path / "b", student=student), progress_shown=False)


def test_a_teacher_too_short_for_the_text_is_refused(shards: Shards, tmp_path: Path) -> None:
    short = recipe(shards.folder, tmp_path / "short", steps=1, model=TINY | {"max_tokens": 16}, text={"max_tokens": 16})
    folder = pretrain(short, progress_shown=False).folder
    with raises(UsageError, code="too-long", value=32, mentions="16"):
        distill(distillation(shards, folder, tmp_path / "out"), progress_shown=False)


def test_widths_that_differ_need_a_projection(shards: Shards, teacher: Path, tmp_path: Path) -> None:
    made = distillation(shards, teacher, tmp_path / "out", loss={"projection": False})
    with raises(UsageError, code="hidden-size-mismatch", value=(16, 32)):
        distill(made, progress_shown=False)
    without = distillation(shards, teacher, tmp_path / "none", loss={"projection": False, "cosine": 0.0}, steps=2)
    assert distill(without, progress_shown=False).new


def test_a_model_that_transformers_computes_can_teach_but_not_learn(shards: Shards, tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"vocab_size": 31, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
    torch.manual_seed(0)
    config = transformers.ElectraConfig(**sizes, intermediate_size=32, embedding_size=16, max_position_embeddings=64)
    theirs = tmp_path / "electra"
    transformers.ElectraForMaskedLM(config).save_pretrained(theirs)
    (theirs / "tokenizer.json").write_bytes((shards.folder / "tokenizer.json").read_bytes())
    done = distill(distillation(shards, theirs, tmp_path / "out"), progress_shown=False)
    lines = [line for line in metrics(done.folder.parent) if "loss" in line]
    assert lines[-1]["cosine_loss"] < 0.5 * lines[0]["cosine_loss"]
    for value, keys in (
        ('stage = "distill"', {"student": theirs}),
        ("teacher", {"student": "layers", "layer_stride": 2}),
    ):
        with raises(UsageError, code="unsupported-backend", value=value):
            distill(distillation(shards, theirs, tmp_path / "not", **keys), progress_shown=False)


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ({"model": {}}, "student"),
        ({"student": "somewhere", "preset": "tiny"}, "preset"),
        ({"student": "layers"}, "layer_stride"),
        ({"student": "layers", "layers": [0], "layer_stride": 2}, "layer_stride"),
        ({"student": "somewhere", "layer_stride": 2}, "layer_stride"),
        ({"student": "layers", "layers": [2, 0]}, "layers"),
        ({"loss": {"kl": 0.0, "cosine": 0.0}}, "loss.kl"),
        ({"loss": {"kl": 0.0, "mlm": 0.0}}, "loss.mlm"),
        ({"text": {"kind": "next_sentence", "max_tokens": 32}}, "text.kind"),
    ],
)
def test_contradictory_recipes_are_rejected(shards: Shards, tmp_path: Path, keys: dict[str, Any], key: str) -> None:
    with rejects(key):
        distillation(shards, tmp_path, tmp_path / "out", **keys)


ROOT = Path(__file__).resolve().parents[2]
SHIPPED = [*sorted((ROOT / "recipes" / "distill").glob("*.toml")), ROOT / "recipes" / "tiny" / "distill.toml"]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_recipe_says_all_it_means(path: Path, tmp_path: Path) -> None:
    made = load(path, DistillRecipe)
    (tmp_path / "again.toml").write_text(explain(made))
    assert load(tmp_path / "again.toml", DistillRecipe) == made


def test_the_shipped_recipe_of_lewis_has_the_papers_numbers() -> None:
    made = load(ROOT / "recipes" / "distill" / "lewis.toml", DistillRecipe)
    loss = made.loss
    assert (loss.mlm, loss.kl, loss.cosine, loss.temperature) == (5.0, 2.0, 1.0, 2.0)
    assert (made.steps, made.batch.tokens * made.batch.gradient_accumulation) == (50_000, 8_192 * 512)
    assert (made.optimizer.lr, made.schedule.warmup_ratio, made.schedule.kind) == (5e-4, 0.05, "linear")
    assert made.student is not None
