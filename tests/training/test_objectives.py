"""Sentence-level objectives: views of one text are adjacent, losses match their formulas, runs resume bit-exactly."""

import math
import random
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pretraining import GENES, ORGANS, VERBS, make_shards, recipe, ticking, tokenizer
from pydantic import ValidationError
from torch.nn import functional

from lexome.corpus.shards import Shards
from lexome.errors import CheckpointError
from lexome.models import checkpoint
from lexome.training.loop import to_tensors
from lexome.training.losses import contrastive_sums, embedding_distance, pool, unmask
from lexome.training.pretrain import pretrain
from lexome.training.sampling import BatchPosition, Pieces, Plan, Text, Views, steps
from lexome.training.session import batches_of
from lexome.training.trainer import read_metrics

PLAN = Plan(tokens=256, max_tokens=32, seed=3)


@pytest.fixture(scope="module")
def teacher(shards: Shards, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the same vocabulary, trained by masked words alone."""
    return pretrain(recipe(shards.folder, tmp_path_factory.mktemp("teacher") / "out", seed=7)).folder


def epoch_of(shards: Shards, **keys: Any) -> tuple[Text, Any]:
    pieces = Pieces.read(shards.folder / "tokenizer.json", words=True)
    text = Text(shards.train, pieces.specials, seed=3, **keys)
    return text, text.epoch(0, 32)


def test_views_cover_the_whole_sequence_and_are_adjacent(shards: Shards) -> None:
    _, whole = epoch_of(shards)
    _, split = epoch_of(shards, views=Views(1.0))
    ranges, units = split.ranges, split.ranges.wholes
    assert units is not None
    for number in range(whole.ranges.starts.size):
        parts = np.flatnonzero(units == number)
        assert ranges.starts[parts[0]] == whole.ranges.starts[number]
        assert ranges.ends[parts[-1]] == whole.ranges.ends[number]
        assert len(parts) == 1 or ranges.ends[parts[0]] == ranges.starts[parts[1]]
        assert (ranges.ends[parts] > ranges.starts[parts]).all()
    ordered = units[split.order]
    assert np.array_equal(ordered[np.r_[True, ordered[1:] != ordered[:-1]]], whole.order)
    assert np.array_equal(np.sort(split.order), np.arange(units.size))
    assert units.size > 1.5 * whole.order.size


def test_a_fraction_of_sequences_is_split_at_sentence_boundaries(shards: Shards) -> None:
    text, split = epoch_of(shards, views=Views(0.5))
    _, all_split = epoch_of(shards, views=Views(1.0))
    counts = np.bincount(split.ranges.wholes)
    assert 0.3 < (counts == 2).sum() / (np.bincount(all_split.ranges.wholes) == 2).sum() < 0.7
    ends = np.concatenate([one.sentence_ends + at for one, at in zip(text.shards, text.offsets, strict=False)])
    assert np.isin(split.ranges.ends, ends).all()


def test_a_fraction_of_splits_leaves_one_sentence_alone(shards: Shards) -> None:
    def alone(single: float) -> float:
        text, _ = epoch_of(shards, views=Views(1.0, single))
        ranges = text.epoch(0, 128).ranges
        counts = np.bincount(ranges.wholes)
        ends = np.concatenate([one.sentence_ends + at for one, at in zip(text.shards, text.offsets, strict=False)])
        sentences = np.searchsorted(ends, ranges.ends) - np.searchsorted(ends, ranges.starts, side="right") + 1
        several = [number for number in np.flatnonzero(counts == 2) if sentences[ranges.wholes == number].sum() > 3]
        assert len(several) > 30
        return float(np.mean([sentences[ranges.wholes == number].min() == 1 for number in several]))

    assert alone(1.0) == 1.0
    assert alone(0.0) < alone(0.5) < 1.0


def test_pairs_of_a_batch_are_views_of_one_text(shards: Shards) -> None:
    text, _ = epoch_of(shards, views=Views(1.0))
    pieces = Pieces.read(shards.folder / "tokenizer.json", words=True)
    made = steps(text, PLAN, pieces.vocabulary, lambda step, tokens: 0.0, begin=(BatchPosition(), 0, 0))
    for step in islice(made, 6):
        batch = to_tensors(step).batches[0]
        assert batch.views_P2 is not None
        assert len(batch.views_P2) == batch.views_of_step > 0
        assert (batch.views_P2[:, 1] == batch.views_P2[:, 0] + 1).all()
        assert int(batch.views_P2.max()) < batch.sequences


def test_the_teacher_reads_the_text_without_masks(shards: Shards, tmp_path: Path) -> None:
    feed = batches_of(recipe(shards.folder, tmp_path / "out"), shards)
    for batch in feed.held_out:
        ids = unmask(batch)
        asked = batch.labels_M >= 0
        assert torch.equal(ids[batch.positions_M[asked]], batch.labels_M[asked])
        untouched = torch.ones(len(ids), dtype=torch.bool)
        untouched[batch.positions_M[asked]] = False
        assert torch.equal(ids[untouched], batch.ids_T[untouched])


def test_losses_match_their_formulas(shards: Shards, tmp_path: Path) -> None:
    feed = batches_of(recipe(shards.folder, tmp_path / "out"), shards)
    batch = feed.held_out[0]
    generator = torch.Generator().manual_seed(0)
    own, aim = (torch.randn(len(batch.ids_T), 8, generator=generator) for _ in range(2))
    bounds = batch.packing.bounds_S1.tolist()
    rows = [slice(*bounds[number : number + 2]) for number in range(batch.sequences)]
    expected = sum(1 - float(functional.cosine_similarity(own[row].mean(0), aim[row].mean(0), dim=0)) for row in rows)
    assert float(embedding_distance(own, aim, batch)) == pytest.approx(expected, rel=1e-5)
    assert torch.equal(pool(own, batch, pooling="first"), torch.stack([own[row][0] for row in rows]))
    pairs = torch.tensor([[0, 1], [2, 3]])
    pooled = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [0.0, 3.0]])
    loss, right = contrastive_sums(pooled, pairs, temperature=0.5)
    assert float(loss) == pytest.approx(2 * math.log(1 + math.exp(-2)), rel=1e-5)
    assert int(right) == 2


def topics() -> list[str]:
    """Documents about one gene and one organ each, so that a part tells which other part belongs to it."""
    rng = random.Random(0)
    pairs = [(gene, organ) for gene in GENES for organ in ORGANS]
    return [" ".join(f"The gene {gene}1 {rng.choice(VERBS)} the {organ} ." for _ in range(4)) for gene, organ in pairs]


def objectives(teacher: Path) -> dict[str, Any]:
    return {
        "embedding_distillation": {"teacher": teacher, "weight": 2.0},
        "contrastive": {"fraction": 1.0, "weight": 0.5},
    }


def test_each_objective_is_learned_and_reported(teacher: Path, tmp_path: Path) -> None:
    shards = make_shards(tmp_path / "topics", texts=topics())
    pretrain(recipe(shards.folder, tmp_path / "out", steps=150, **objectives(teacher)), progress_shown=False)
    lines = [line for line in read_metrics(tmp_path / "out" / "metrics.jsonl") if "loss" in line]
    first, last = lines[0], lines[-1]
    for name in ("word_loss", "embedding_loss", "contrastive_loss"):
        assert last[name] < first[name]
    assert last["contrastive_accuracy"] > first["contrastive_accuracy"]
    total = last["word_loss"] + 2 * last["embedding_loss"] + 0.5 * last["contrastive_loss"]
    # The means are over counts that differ a little from step to step.
    assert last["loss"] == pytest.approx(total, rel=0.05)
    assert checkpoint.load(tmp_path / "out" / "model").kind == "masked"


@pytest.mark.parametrize("passes", [1, 3])
def test_a_stopped_run_resumes_bit_exactly(shards: Shards, teacher: Path, tmp_path: Path, passes: int) -> None:
    keys = {**objectives(teacher), "batch": {"tokens": 256, "gradient_accumulation": passes}}
    whole, parted = (recipe(shards.folder, tmp_path / name, **keys) for name in ("whole", "parted"))
    pretrain(whole, progress_shown=False)
    with pytest.raises(KeyboardInterrupt):
        pretrain(parted, progress_shown=False, clock=ticking(stop_after=25))
    pretrain(parted, progress_shown=False)
    models = [(tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("whole", "parted")]
    assert models[0] == models[1]


def test_a_narrower_student_is_projected_to_the_teachers_width(shards: Shards, teacher: Path, tmp_path: Path) -> None:
    model = {"layers": 1, "hidden_size": 16, "heads": 2, "intermediate_size": 32, "max_tokens": 64}
    given = recipe(shards.folder, tmp_path / "out", model=model, embedding_distillation={"teacher": teacher})
    done = pretrain(given, progress_shown=False)
    assert checkpoint.load(done.folder).config.hidden_size == 16


def test_a_teacher_of_another_vocabulary_is_transferred_or_refused(shards: Shards, tmp_path: Path) -> None:
    other = make_shards(tmp_path / "other", made=tokenizer(extra=("liverwort", "heartbeat")))
    foreign = pretrain(recipe(other.folder, tmp_path / "foreign", steps=2), progress_shown=False).folder
    keys = {"teacher": foreign}
    with pytest.raises(CheckpointError):
        pretrain(recipe(shards.folder, tmp_path / "out", embedding_distillation=keys), progress_shown=False)
    carried = {**keys, "new_vocabulary": "transfer"}
    assert (
        pretrain(recipe(shards.folder, tmp_path / "out", embedding_distillation=carried), progress_shown=False).steps
        == 40
    )


def test_sentence_pairs_do_not_combine_with_contrastive_learning(shards: Shards, tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="contrastive"):
        recipe(shards.folder, tmp_path / "out", text={"kind": "next_sentence", "max_tokens": 32}, contrastive={})


def test_pairs_of_micro_batches_add_up_to_the_step(shards: Shards) -> None:
    text, _ = epoch_of(shards, views=Views(1.0))
    pieces = Pieces.read(shards.folder / "tokenizer.json", words=True)
    plan = replace(PLAN, passes=3)
    made = to_tensors(
        next(steps(text, plan, pieces.vocabulary, lambda step, tokens: 0.0, begin=(BatchPosition(), 0, 0)))
    )
    assert sum(len(batch.views_P2) for batch in made.batches if batch.views_P2 is not None) == (
        made.batches[0].views_of_step
    )
