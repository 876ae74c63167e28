"""Each task learns a made set of ten documents by heart, on a CPU in seconds."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from errors import raises
from finetuning import (
    class_documents,
    ner_documents,
    pair_documents,
    question_documents,
    recipe_of,
    relation_documents,
    tiny_model,
    write_splits,
)
from foreign_writers import google_folder, tiny_bert

import lexome
from lexome.document import Document
from lexome.errors import UsageError
from lexome.models.checkpoint import load
from lexome.tasks import task_of
from lexome.training.finetune.stage import Finetuned, finetune

GENES_AND_DRUGS = {"kind": "ner", "types": ["Gene", "Drug"]}
TASKS: dict[str, tuple[list[Document], dict[str, Any]]] = {
    "ner": (ner_documents(), GENES_AND_DRUGS),
    "ner of pieces": (ner_documents(), GENES_AND_DRUGS | {"labelling": "pieces", "scheme": "iobes"}),
    "ner of nested types": (ner_documents(), GENES_AND_DRUGS | {"nested": True}),
    "relations, masked": (
        relation_documents(),
        {"kind": "relation", "labels": ["none", "blocks"], "none": "none", "pairs": [["Drug", "Gene"]]},
    ),
    "relations, marked": (
        relation_documents(),
        {
            "kind": "relation",
            "labels": ["none", "blocks"],
            "none": "none",
            "pairs": [["Drug", "Gene"]],
            "marking": "markers",
        },
    ),
    "relations of documents": (
        relation_documents(),
        {
            "kind": "document-relation",
            "schemas": [{"name": "all", "labels": ["blocks"], "pairs": [["Drug", "Gene"]], "level": "mention"}],
        },
    ),
    "one class": (class_documents(several=False), {"kind": "classes", "labels": ["gene", "drug", "both"]}),
    "classes": (class_documents(several=True), {"kind": "classes", "labels": ["gene", "drug"], "several": True}),
    "inference": (pair_documents(numbers=False), {"kind": "inference"}),
    "similarity": (pair_documents(numbers=True), {"kind": "similarity"}),
    "questions": (question_documents(), {"kind": "questions"}),
}


def learned(start: Path, folder: Path, docs: list[Document], task: dict[str, Any], **keys: Any) -> Finetuned:
    """Fine-tune on documents, and score on the same ones: this shows that they can be learned, and nothing else."""
    data = write_splits(folder / "data", train=docs, dev=docs)
    # At sixty times the usual learning rate a step moves the vectors further than probing scales them by.
    keys = {"probe": {"epochs": 0}, **keys}
    return finetune(recipe_of(start, data, folder / "out", task, **keys), progress_shown=False)


def first_score(done: Finetuned) -> float:
    assert done.summary.measure is not None
    return done.summary.rows[0].spreads["dev"][done.summary.measure].mean


@pytest.mark.parametrize("name", TASKS)
def test_a_task_is_learned_by_heart(name: str, start: Path, tmp_path: Path) -> None:
    docs, task = TASKS[name]
    assert first_score(learned(start, tmp_path, docs, task)) > 0.995


@pytest.mark.parametrize("kind", ["weighted", "focal", "dice"])
def test_losses_for_rare_labels_learn_as_well(kind: str, start: Path, tmp_path: Path) -> None:
    docs, task = TASKS["ner"]
    done = learned(start, tmp_path, docs, task, loss={"kind": kind, "oversample": 0.5}, epochs=80)
    assert first_score(done) == 1.0


@pytest.mark.parametrize("nested", [False, True])
def test_a_chain_over_tags_is_learned_and_served(nested: bool, start: Path, tmp_path: Path) -> None:
    docs, task = ner_documents(), GENES_AND_DRUGS | {"nested": nested}
    done = learned(start, tmp_path, docs, task, head={"crf": True, "dropout": 0.0})
    assert first_score(done) == 1.0
    assert done.model is not None
    settings = json.loads((done.model / "task.json").read_text())
    assert any(number != 0 for rows in settings["transitions"]["between"] for row in rows for number in row)


def test_the_model_folder_answers_as_the_run_did(start: Path, tmp_path: Path) -> None:
    """What serves later has only the folder: the checkpoint, its tokenizer and task.json."""
    from lexome.infer.tokenizer import open_tokenizer
    from lexome.models.heads import EncoderWithHead
    from lexome.training.finetune.examples import frame_of
    from lexome.training.finetune.fit import predict_logits
    from lexome.training.finetune.task_model import TaskModel

    docs = ner_documents()
    done = learned(start, tmp_path, docs, GENES_AND_DRUGS, epochs=8)
    assert done.model is not None
    task = task_of(json.loads((done.model / "task.json").read_text()))
    found = load(done.model)
    assert (found.kind, found.labels) == ("token", task.labels)
    assert isinstance(found.model, EncoderWithHead)
    tokens, frame = open_tokenizer(done.model / "tokenizer.json"), frame_of(found, done.model, max_tokens=None)
    answers = []
    for doc in docs:
        rows = task.encode(doc, tokens, frame, with_targets=False)
        learner = TaskModel(found.model)
        answers.append(
            task.decode(doc, rows, predict_logits(learner, rows, task, batch_tokens=64, segments=True, autocast=None))
        )
    written = list(lexome.read(tmp_path / "out" / "runs" / "seed0" / "dev.jsonl"))
    spans = [[(span.type, span.parts, round(span.score or 0, 4)) for span in doc.spans] for doc in answers]
    assert spans == [[(span.type, span.parts, round(span.score or 0, 4)) for span in doc.spans] for doc in written]


def test_transformers_loads_the_model_folder(start: Path, tmp_path: Path) -> None:
    done = learned(start, tmp_path, ner_documents(), GENES_AND_DRUGS, epochs=2)
    theirs = transformers.AutoModelForTokenClassification.from_pretrained(done.model)
    assert theirs.config.id2label[1] == "B-Gene"
    ours = load(done.model)  # type: ignore[arg-type]
    assert torch.equal(theirs.classifier.weight, ours.model.head.out.weight)  # type: ignore[union-attr]


def test_pipelines_of_transformers_know_that_labels_do_not_exclude_one_another(start: Path, tmp_path: Path) -> None:
    done = learned(start, tmp_path, *TASKS["classes"], epochs=30)
    pipeline = transformers.pipeline("text-classification", model=str(done.model), device="cpu", top_k=None)
    scores = {found["label"]: found["score"] for found in pipeline(["BRCA1 and aspirin ."])[0]}
    # Labels that exclude one another would share out 1 among them.
    assert scores["gene"] + scores["drug"] > 1.2


def test_an_encoder_that_is_frozen_stays_as_it_was(start: Path, tmp_path: Path) -> None:
    done = learned(start, tmp_path, ner_documents(), GENES_AND_DRUGS, method="frozen", epochs=3)
    assert done.model is not None
    before, after = (load(path, kind="encoder").model.state_dict() for path in (start, done.model))
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_adapters_learn_while_the_rest_stays(start: Path, tmp_path: Path) -> None:
    targets = ["query", "key", "value", "out", "up", "down"]
    lora = {"rank": 8, "targets": targets, "dropout": 0.0}
    done = learned(start, tmp_path, ner_documents(), GENES_AND_DRUGS, method="lora", lora=lora, epochs=80)
    assert first_score(done) == 1.0
    assert done.model is not None
    before, after = (load(path, kind="encoder").model.state_dict() for path in (start, done.model))
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {name for name in before if "layers" in name and name.endswith("weight") and "norm" not in name}


def test_peft_puts_the_adapters_on_the_checkpoint_and_computes_the_merged_model(start: Path, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft", reason="the peft library is not installed")
    done = learned(start, tmp_path, ner_documents(), GENES_AND_DRUGS, method="lora", epochs=3)
    assert done.model is not None
    base = transformers.AutoModelForTokenClassification.from_pretrained(start, num_labels=5)
    adapted = peft.PeftModel.from_pretrained(base, str(done.model.parent / "adapter")).eval()
    merged = transformers.AutoModelForTokenClassification.from_pretrained(done.model).eval()
    ids = torch.tensor([[2, 5, 6, 7, 8, 3]])
    with torch.no_grad():
        assert torch.allclose(adapted(input_ids=ids).logits, merged(input_ids=ids).logits, atol=1e-5)


def test_a_head_with_hidden_layers_is_kept_with_the_model(start: Path, tmp_path: Path) -> None:
    head = {"layers": 2, "hidden_size": 24, "dropout": 0.0}
    done = learned(start, tmp_path, class_documents(several=False), TASKS["one class"][1], head=head)
    assert first_score(done) == 1.0
    assert done.model is not None
    assert load(done.model).model.head.hidden.hidden_size == 24  # type: ignore[union-attr]
    assert "2 hidden layers, first-token pooling" in done.summary.warnings[-1]
    assert "2 hidden layers, first-token pooling" in (done.model / "README.md").read_text()


def test_a_label_is_told_from_the_mean_of_the_tokens_where_that_is_asked_for(start: Path, tmp_path: Path) -> None:
    done = learned(start, tmp_path, class_documents(several=False), TASKS["one class"][1], head={"pooling": "mean"})
    assert first_score(done) == 1.0
    assert done.model is not None
    model = load(done.model).model
    assert model.head.pooling == "mean"  # type: ignore[union-attr]
    again = learned(done.model, tmp_path / "again", class_documents(several=False), TASKS["one class"][1], epochs=1)
    assert again.model is not None
    assert load(again.model).model.head.pooling == "mean"  # type: ignore[union-attr]


def test_pooling_is_refused_where_tokens_are_labeled(start: Path, tmp_path: Path) -> None:
    with raises(UsageError, code="unsupported-task", value="head.pooling"):
        learned(start, tmp_path, ner_documents(), GENES_AND_DRUGS, head={"pooling": "mean"})


@pytest.mark.parametrize("architecture", ["roberta", "distilbert"])
def test_other_architectures_learn_too(architecture: str, tmp_path: Path) -> None:
    shape = {"roberta": {"position_offset": 1, "segments": 1}, "distilbert": {"segments": 0}}[architecture]
    model = tiny_model(tmp_path / "model", architecture=architecture, **shape)
    assert first_score(learned(model, tmp_path, pair_documents(numbers=False), {"kind": "inference"})) == 1.0


def test_a_model_that_transformers_computes_learns_too(start: Path, tmp_path: Path) -> None:
    config = transformers.ElectraConfig(
        vocab_size=load(start).config.vocab,
        embedding_size=16,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    torch.manual_seed(0)
    model = tmp_path / "electra"
    transformers.ElectraModel(config).save_pretrained(model)
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        (model / name).write_bytes((start / name).read_bytes())
    done = learned(model, tmp_path, ner_documents(), GENES_AND_DRUGS, epochs=80, attention_dropout="checkpoint")
    assert first_score(done) == 1.0
    assert done.model is not None
    assert load(done.model).backend == "transformers"


def test_several_sets_are_each_asked_for_what_they_annotate(start: Path, real_data: Path, tmp_path: Path) -> None:
    names = ["BC2GM", "NCBI-disease"]
    data = {"sets": names, "root": real_data / "benchmarks", "limit": 30, "max_tokens": 64}
    task = {"kind": "ner", "types": ["Gene", "Disease"], "nested": True}
    task["annotated"] = {"BC2GM": ["Gene"], "NCBI-disease": ["Disease"]}
    done = finetune(recipe_of(start, tmp_path, tmp_path / "out", task, data=data, steps=2), progress_shown=False)
    assert list(done.summary.rows[0].spreads["dev"])[:2] == ["f1", "BC2GM f1"]
    record = json.loads((tmp_path / "out" / "runs" / "seed0" / "run.json").read_text())
    assert record["labels"]["O-Gene"] != record["labels"]["O-Disease"]


def test_a_release_of_another_framework_is_a_start_too(tmp_path: Path) -> None:
    google = google_folder(tmp_path / "uncased_tiny", tiny_bert())
    docs = class_documents(several=False)
    data = {"folder": write_splits(tmp_path / "data", train=docs, dev=docs), "max_tokens": 24}
    recipe = recipe_of(google, tmp_path, tmp_path / "out", TASKS["one class"][1], data=data, steps=2)
    done = finetune(recipe, progress_shown=False)
    assert done.model is not None
    assert load(done.model).labels == ("gene", "drug", "both")


def test_a_set_of_folds_runs_on_its_own(start: Path, real_data: Path, tmp_path: Path) -> None:
    data = {"sets": ["GAD"], "root": real_data / "benchmarks", "limit": 20, "max_tokens": 64}
    folds = {"use": [0, 3], "dev_fraction": 0.3}
    recipe = recipe_of(start, tmp_path, tmp_path / "out", {}, data=data, folds=folds, steps=2, score_test="every")
    done = finetune(recipe, progress_shown=False)
    assert done.summary.rows[0].runs == ("seed0-fold0", "seed0-fold3")
    assert done.summary.rows[0].spreads["test"][done.summary.measure or ""].runs == 2
