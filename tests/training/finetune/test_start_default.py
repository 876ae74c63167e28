"""`start = "default"` or an exported folder: fine-tuning goes on from the float weights of an int8 model."""

import json
from dataclasses import replace
from pathlib import Path

import torch
from finetuning import done, recipe_of, write_splits

from lexome.document import Document, Span, lay_out
from lexome.infer.annotator import Model, default_model
from lexome.models.checkpoint import load
from lexome.models.hf_folder import weights_sha256
from lexome.tasks.metrics import mentions, spans_strict
from lexome.training.finetune.run import start_of

SENTENCES = (
    ("Mutations in BRCA1 raise the risk of breast cancer.", ("BRCA1", "Gene"), ("breast cancer", "Disease")),
    ("Aspirin lowers the risk of stroke in mice.", ("Aspirin", "Chemical"), ("stroke", "Disease"), ("mice", "Species")),
    ("TP53 and EGFR are mutated in lung cancer.", ("TP53", "Gene"), ("EGFR", "Gene"), ("lung cancer", "Disease")),
    ("Metformin treats diabetes.", ("Metformin", "Chemical"), ("diabetes", "Disease")),
)

# What rounding weights and activations to int8 may change in F1 of a few sentences.
TOLERANCE = 0.05


def documents() -> list[Document]:
    docs = []
    for number, (text, *names) in enumerate(SENTENCES):
        spans = [
            Span(f"T{place}", type_, ((text.index(name), text.index(name) + len(name)),), name)
            for place, (name, type_) in enumerate(names, 1)
        ]
        docs.append(Document(f"d{number}", lay_out([("sentence", text)]), tuple(spans)))
    return docs


def test_a_run_starts_from_the_default_model(tmp_path: Path) -> None:
    docs = documents()
    folder = write_splits(tmp_path / "data", train=docs, dev=docs)
    model = Model.open(default_model(), threads=1)
    task = {name: value for name, value in (model.settings.task or {}).items() if name != "annotated"}
    recipe = recipe_of(
        Path("default"), folder, tmp_path / "out", task, steps=1, optimizer={"lr": 1e-9}, evaluation={}, dropout=None
    )
    done(recipe)
    (start,) = (tmp_path / "out" / "start").iterdir()
    assert start.name.startswith("lexome-default-")
    assert json.loads((start / "task.json").read_text()) == json.loads(json.dumps(model.settings.task))
    facts = json.loads((tmp_path / "out" / "runs" / "seed0" / "run.json").read_text())
    assert facts["start"]["new_head"] is False
    # After a step that changes nothing, the score is that of the int8 model.
    bare = [replace(doc, spans=()) for doc in docs]
    types = ("Gene", "Disease", "Chemical", "Species")
    rounded = spans_strict(*([mentions(doc, types) for doc in part] for part in (docs, model.annotate(bare))))
    assert rounded.f1 > 0.9
    trained = load(tmp_path / "out" / "runs" / "seed0" / "model")
    before = load(start)
    assert trained.labels == before.labels == model.settings.labels
    weights, others = trained.model.state_dict(), before.model.state_dict()
    assert all(torch.allclose(weights[name], others[name], atol=1e-6) for name in weights)
    assert any(not torch.equal(weights[name], others[name]) for name in weights)
    assert abs(facts["scores"]["dev"]["f1"] - _f1_of_all_types(docs, model, bare)) <= TOLERANCE


def test_an_exported_model_by_its_folder_is_the_same_checkpoint(tmp_path: Path) -> None:
    by_name = start_of(Path("default"), tmp_path / "a")
    by_folder = start_of(default_model(), tmp_path / "b")
    files = sorted(path.name for path in by_name.iterdir())
    assert files == sorted(path.name for path in by_folder.iterdir())
    assert weights_sha256(by_name) == weights_sha256(by_folder)


def _f1_of_all_types(docs: list[Document], model: Model, bare: list[Document]) -> float:
    """F1 over all types as the run's development score counts them, those without gold included."""
    predicted = model.annotate(bare)
    return spans_strict(*([mentions(doc, model.types) for doc in part] for part in (docs, predicted))).f1
