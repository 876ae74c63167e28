"""The loop: passes add up to one large batch, and held-out loss is the mean over all masks."""

import math
from dataclasses import replace
from itertools import islice, pairwise

import pytest
import torch
from errors import raises
from pretraining import TINY, make_shards
from torch import Tensor

from lexome.errors import DivergedError
from lexome.models.encoder import EncoderConfig
from lexome.models.heads import MaskedLM, PairedLM
from lexome.training.loop import Position, Updater, to_tensors, train
from lexome.training.losses import PretrainingLoss, sums
from lexome.training.optim import LearningRateSchedule, Length, Optimizers, OptimizerSettings
from lexome.training.sampling import IGNORE_INDEX, BatchPosition, Pieces, Plan, StepArrays, Text, batch, take
from lexome.training.session import evaluate
from lexome.training.trainer import DivergenceWatch


@pytest.fixture(scope="module", params=["sentences", "sentence_order"])
def text(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Text:
    shards = make_shards(tmp_path_factory.mktemp("made"))
    pieces = Pieces.read(shards.folder / "tokenizer.json", words=True)
    made = Text(shards.train, pieces.specials, kind=request.param)
    made.pieces = pieces  # type: ignore[attr-defined]
    return made


def arrays(text: Text, sizes: list[int]) -> StepArrays:
    """One pass of each size, all of the same text."""
    parts, after = take(text, BatchPosition(0, 0, 32), 1024)
    (epoch, numbers) = parts[0]
    cuts = [round(len(numbers) * sum(sizes[:place]) / sum(sizes)) for place in range(len(sizes) + 1)]
    made = [
        batch(
            text,
            [(epoch, numbers[start:end])],
            Plan(tokens=1536, max_tokens=32),
            text.pieces.vocabulary,  # type: ignore[attr-defined]
            rate=0.2,
            max_tokens=32,
        )
        for start, end in pairwise(cuts)
    ]
    return StepArrays(made, after, 0.2)


def model_of(text: Text) -> tuple[MaskedLM | PairedLM, EncoderConfig]:
    torch.manual_seed(0)
    config = EncoderConfig(vocab=text.pieces.size, **TINY)  # type: ignore[attr-defined]
    return (PairedLM(config) if text.paired else MaskedLM(config)), config


def gradients_of(text: Text, sizes: list[int]) -> tuple[float, dict[str, Tensor]]:
    model, config = model_of(text)
    optimizers = Optimizers(model, config, OptimizerSettings())
    loss, _ = Updater(model, optimizers, PretrainingLoss()).accumulate(to_tensors(arrays(text, sizes)).batches)
    return loss.item(), {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}


def test_passes_add_up_to_the_large_batch(text: Text) -> None:
    whole_loss, whole = gradients_of(text, [1])
    parts_loss, parts = gradients_of(text, [1, 4, 2, 1])
    assert parts_loss == pytest.approx(whole_loss, rel=1e-6)
    assert whole.keys() == parts.keys()
    for name in whole:
        assert torch.allclose(whole[name], parts[name], rtol=1e-4, atol=1e-6), name


def test_filling_changes_nothing(text: Text) -> None:
    model, _ = model_of(text)
    step = arrays(text, [1])
    full = step.passes[0]
    bare = replace(
        full,
        ids_T=full.ids_T[: full.tokens],
        segments_T=full.segments_T[: full.tokens],
        ends_S=full.ends_S[: full.sequences],
        positions_M=full.positions_M[: full.masked],
        labels_M=full.labels_M[: full.masked],
        pair_labels_S=None if full.pair_labels_S is None else full.pair_labels_S[: full.sequences],
    )
    losses = [
        PretrainingLoss()(model, to_tensors(replace(step, passes=[one])).batches[0])[0].item() for one in (full, bare)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_an_untrained_model_knows_nothing(text: Text) -> None:
    model, config = model_of(text)
    found = evaluate(model, to_tensors(arrays(text, [1, 2])).batches, PretrainingLoss())
    assert found["loss"] == pytest.approx(math.log(config.vocab), abs=0.1)
    assert found["perplexity"] == pytest.approx(math.exp(found["loss"]))
    assert ("pair_loss" in found) == text.paired


def test_fillings_are_neither_asked_nor_right() -> None:
    logits = torch.tensor([[5.0, 0.0], [5.0, 0.0], [0.0, 5.0]])
    loss, right = sums(logits, torch.tensor([0, 1, IGNORE_INDEX]))
    assert right.item() == 1
    assert loss.item() == pytest.approx(math.log(1 + math.exp(-5)) + math.log(1 + math.exp(5)), rel=1e-5)


def test_a_rehearsal_leaves_no_trace(text: Text) -> None:
    model, config = model_of(text)
    optimizers = Optimizers(model, config, OptimizerSettings())
    before, random = {name: weight.clone() for name, weight in model.state_dict().items()}, torch.get_rng_state()
    Updater(model, optimizers, PretrainingLoss()).warm_up(to_tensors(arrays(text, [1])))
    assert all(torch.equal(before[name], weight) for name, weight in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)
    assert all(weight.grad is None for weight in model.parameters())


def test_the_loop_stops_at_its_length_and_tells_where_it_is(text: Text) -> None:
    model, config = model_of(text)
    optimizers = Optimizers(model, config, OptimizerSettings())
    step = to_tensors(arrays(text, [1]))
    position = Position()
    ticks = iter(range(100))
    done = train(
        Updater(model, optimizers, PretrainingLoss()),
        iter([step] * 9),
        length=Length(tokens=step.tokens * 3 - 1),
        schedule=LearningRateSchedule(1.0, "linear"),
        position=position,
        clock=lambda: float(next(ticks)),
    )
    assert [one.lr for one in islice(done, 9)] == pytest.approx([5 / 6, 3 / 6, 1 / 6], abs=0.01)
    assert (position.step, position.tokens, position.elapsed_s) == (3, step.tokens * 3, 3.0)
    assert position.place == step.after


def line(step: int, loss: float, norm: float = 1.0) -> dict[str, float]:
    return {"step": step, "loss": loss, "norm": norm}


def test_a_loss_that_is_no_number_stops_the_run() -> None:
    for loss, norm in ((math.nan, 1.0), (2.0, math.inf)):
        with raises(DivergedError, code="not-finite", value=7):
            DivergenceWatch(threshold=2.0).check(line(7, loss, norm))


def test_one_bad_line_is_forgiven_and_three_are_not() -> None:
    watch = DivergenceWatch(threshold=1.0)
    for step, loss in enumerate([5.0, 3.0, 4.5, 3.1, 4.5, 4.6]):
        watch.check(line(step, loss))
    with raises(DivergedError, code="diverged"):
        watch.check(line(6, 4.7))
