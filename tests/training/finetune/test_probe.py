"""Linear probing: standardization folds into the head, probing trains the head alone, runs resume bit-exactly."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from finetuning import (
    class_documents,
    context_of,
    ner_documents,
    recipe_of,
    relation_documents,
    tiny_model,
    write_splits,
)

from lexome.models.checkpoint import load
from lexome.models.encoder import EncoderConfig, Packing
from lexome.models.heads import (
    EncoderWithHead,
    HiddenLayers,
    SequenceHead,
    TokenHead,
    add_input_bias,
    fold_standardization,
)
from lexome.recipe.finetune import Cell, Run
from lexome.training.finetune.fit import encode_pairs, standardization
from lexome.training.finetune.run import PROBE_EPOCHS, _prepare, identities_of, run_once, setting_of
from lexome.training.finetune.stage import finetune
from lexome.training.finetune.task_model import pair_loss, to_batch
from lexome.training.trainer import STATES, list_states

CLASSES = {"kind": "classes", "labels": ["gene", "drug", "both"]}
SEVERAL = {"kind": "classes", "labels": ["gene", "drug"], "several": True}
NER = {"kind": "ner", "types": ["Gene", "Drug"]}
PAIRS = {
    "kind": "document-relation",
    "schemas": [{"name": "all", "labels": ["blocks"], "pairs": [["Drug", "Gene"]], "level": "mention"}],
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    docs = class_documents(several=False, count=30)
    return write_splits(tmp_path_factory.mktemp("data") / "made", train=docs[:20], dev=docs[20:], test=docs[20:])


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    "hidden",
    [HiddenLayers(), HiddenLayers(1, activation="tanh"), HiddenLayers(1, activation="gelu", norm=True, biases=False)],
)
def test_folding_keeps_the_logits(hidden: HiddenLayers) -> None:
    config = EncoderConfig(vocab=10, layers=1, hidden_size=16, heads=2, intermediate_size=32, max_tokens=16)
    torch.manual_seed(0)
    head = SequenceHead(config, 3, hidden=hidden).eval()
    add_input_bias(head)
    vectors = 5 + 0.01 * torch.randn(8, 16)
    mean, scale = standardization(vectors)
    packing = Packing.of(list(range(1, 9)))
    before = head((vectors - mean) * scale, packing)
    fold_standardization(head, mean, scale)
    torch.testing.assert_close(head(vectors, packing), before, rtol=1e-3, atol=1e-4)
    assert isinstance(head.hidden, HiddenLayers)
    assert head.hidden.biases


def test_standardized_vectors_have_zero_mean_and_unit_variance() -> None:
    vectors = 5 + torch.randn(500, 6) * torch.tensor([0.01, 0.02, 0.03, 0.04, 0.05, 0.0])
    mean, scale = standardization(vectors)
    standardized = (vectors - mean) * scale
    assert float(standardized.mean(0).abs().max()) < 1e-3
    np.testing.assert_allclose(standardized[:, :5].std(0), np.ones(5), rtol=1e-2)
    # A constant coordinate is not scaled up to noise.
    assert torch.isfinite(standardized).all()


@pytest.mark.parametrize("task", [CLASSES, SEVERAL], ids=["one label", "several labels"])
def test_sequence_heads_are_probed_by_default(start: Path, data: Path, tmp_path: Path, task: dict[str, Any]) -> None:
    if task is SEVERAL:
        docs = class_documents(several=True, count=30)
        data = write_splits(tmp_path / "several", train=docs[:20], dev=docs[20:])
    recipe = recipe_of(start, data, tmp_path / "out", task, epochs=1, optimizer={"lr": 1e-6})
    finetune(recipe, progress_shown=False)
    losses = [line["probe_loss"] for line in metrics(tmp_path / "out" / "runs" / "seed0") if "probe_loss" in line]
    assert len(losses) == PROBE_EPOCHS
    assert losses[-1] < losses[0]


def test_probing_learns_what_fine_tuning_at_a_small_learning_rate_does_not(
    start: Path, data: Path, tmp_path: Path
) -> None:
    keys: dict[str, Any] = {"epochs": 1, "optimizer": {"lr": 1e-7}}
    scores = {}
    for name, probe in (("probed", {"epochs": 100}), ("plain", {"epochs": 0})):
        recipe = recipe_of(start, data, tmp_path / name, CLASSES, probe=probe, **keys)
        scores[name] = finetune(recipe, progress_shown=False).summary.rows[0].spreads["dev"]["f1"].mean
    assert scores["probed"] > 0.9 > scores["plain"]


def test_heads_of_mention_pairs_are_probed_by_default(start: Path, tmp_path: Path) -> None:
    docs = relation_documents(30)
    data = write_splits(tmp_path / "data", train=docs[:20], dev=docs[20:])
    keys: dict[str, Any] = {"epochs": 1, "optimizer": {"lr": 1e-7}, "head": {"layers": 1, "activation": "gelu"}}
    scores = {}
    for name, table in (("default", {}), ("probed", {"epochs": 100}), ("plain", {"epochs": 0})):
        done = finetune(recipe_of(start, data, tmp_path / name, PAIRS, probe=table, **keys), progress_shown=False)
        scores[name] = done.summary.rows[0].spreads["dev"]["f1"].mean
        assert done.model is not None
        head = load(done.model, kind="token").model.head
        assert isinstance(head, TokenHead)
        assert head.hidden.input_dropout == 0.0
    losses = [line["probe_loss"] for line in metrics(tmp_path / "default" / "runs" / "seed0") if "probe_loss" in line]
    assert len(losses) == PROBE_EPOCHS
    assert losses[-1] < losses[0]
    assert scores["probed"] > 0.9 > scores["plain"]


def test_cached_pairs_have_the_loss_of_the_whole_model(start: Path, tmp_path: Path) -> None:
    docs = relation_documents(12)
    data = write_splits(tmp_path / "data", train=docs[:10], dev=docs[10:])
    recipe = recipe_of(start, data, tmp_path / "out", PAIRS, head={"dropout": 0.0}, dropout=0.0)
    with context_of(recipe) as context:
        fit, _ = _prepare(recipe, Run(Cell(), 0), context, setting_of(recipe, context.parallel))
        examples = context.data.splits(None).train.examples
        fit.model.model.eval()
        reports: list[str] = []
        cached = encode_pairs(fit, examples, reports.append)
        assert reports[-1].startswith("10 of 10")
        # Cached examples are in another order.
        vectors, targets = cached.select(torch.arange(10).flip(0))
        batch = to_batch(examples, fit.task, segments=fit.plan.segments)
        assert batch.targets is not None
        outputs = fit.task.pair_outputs
        whole = pair_loss(fit.model(batch), batch.targets, outputs)
        assert len(vectors) < batch.tokens
        torch.testing.assert_close(pair_loss(fit.model.model.head(vectors, batch.packing), targets, outputs), whole)


def test_probing_leaves_the_encoder_as_it_was(start: Path, data: Path, tmp_path: Path) -> None:
    recipe = recipe_of(start, data, tmp_path / "out", CLASSES, method="frozen", epochs=1, probe={"epochs": 3})
    done = finetune(recipe, progress_shown=False)
    assert done.model is not None
    before, after = load(start, kind="encoder").model, load(done.model, kind="sequence").model
    assert isinstance(after, EncoderWithHead)
    for name, weight in before.state_dict().items():
        assert torch.equal(weight, after.encoder.state_dict()[name])


def test_token_heads_are_probed_where_the_recipe_says_so(start: Path, tmp_path: Path) -> None:
    docs = ner_documents(12)
    data = write_splits(tmp_path / "data", train=docs[:10], dev=docs[10:])
    for epochs, expected in ((None, 0), (4, 4)):
        out = tmp_path / f"out{epochs}"
        finetune(recipe_of(start, data, out, NER, epochs=1, probe={"epochs": epochs}), progress_shown=False)
        assert sum("probe_loss" in line for line in metrics(out / "runs" / "seed0")) == expected


def test_a_head_that_was_trained_before_is_not_probed(start: Path, data: Path, tmp_path: Path) -> None:
    first = finetune(recipe_of(start, data, tmp_path / "first", CLASSES, epochs=1), progress_shown=False)
    assert first.model is not None
    finetune(recipe_of(first.model, data, tmp_path / "second", CLASSES, epochs=1), progress_shown=False)
    assert not any("probe_loss" in line for line in metrics(tmp_path / "second" / "runs" / "seed0"))


class Killed(Exception):
    """Ends a run in the middle."""


def test_a_killed_run_resumes_bit_exactly_without_probing_again(start: Path, data: Path, tmp_path: Path) -> None:
    recipe = recipe_of(start, data, tmp_path / "out", CLASSES, epochs=6, dropout=0.1, save_every=0, head={})

    def train(folder: Path, until: float = 1.0) -> None:
        def show(done: float, message: str) -> None:
            if done > until:
                raise Killed

        with context_of(recipe) as context:
            run_once(recipe, Run(Cell(), 0), context, folder, test=False, show=show)

    train(tmp_path / "whole")
    with pytest.raises(Killed):
        train(tmp_path / "parted", until=0.5)
    assert list_states(tmp_path / "parted" / STATES)
    train(tmp_path / "parted")
    whole, parted = (
        load(tmp_path / name / "model", kind="sequence").model.state_dict() for name in ("whole", "parted")
    )
    assert all(torch.equal(whole[name], parted[name]) for name in whole)
    lines = [[line.get("probe_loss", line.get("loss")) for line in metrics(tmp_path / n)] for n in ("whole", "parted")]
    assert lines[0] == lines[1]


def test_probing_is_part_of_a_runs_identity_where_it_changes_the_run(start: Path, data: Path, tmp_path: Path) -> None:
    def identity(task: dict[str, Any], folder: Path, **keys: Any) -> str:
        recipe = recipe_of(start, folder, tmp_path / "out", task, **keys)
        with context_of(recipe) as context:
            return identities_of(recipe, Run(Cell(), 0), context)[0]

    docs = ner_documents(12)
    entities = write_splits(tmp_path / "entities", train=docs[:10], dev=docs[10:])
    assert identity(CLASSES, data) != identity(CLASSES, data, probe={"lr": 1e-2})
    assert identity(NER, entities) == identity(NER, entities, probe={"lr": 1e-2})
    assert identity(NER, entities) != identity(NER, entities, probe={"epochs": 2})


@pytest.mark.parametrize(("architecture", "changes"), [("bert", {}), ("distilbert", {"segments": 0})])
def test_probed_models_are_read_by_transformers(
    architecture: str, changes: dict[str, int], tmp_path: Path, data: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    start = tiny_model(tmp_path / "start", architecture=architecture, **changes)
    done = finetune(recipe_of(start, data, tmp_path / "out", CLASSES, epochs=1), progress_shown=False)
    assert done.model is not None
    ours = load(done.model, kind="sequence").model.eval()
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(str(done.model)).eval()
    ids = torch.tensor([2, 7, 9, 11, 3])
    with torch.no_grad():
        expected = theirs(ids[None]).logits[0]
        logits = ours(ids, Packing.of([5]))[0]
    torch.testing.assert_close(logits, expected, rtol=1e-3, atol=1e-4)
