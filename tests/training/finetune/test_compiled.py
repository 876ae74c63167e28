"""Fine-tuning with compiled layers learns what it learns without: on a CPU here, where a compiler for it is at hand."""

import json
import shutil
from functools import partial
from pathlib import Path

import pytest
import torch
from finetuning import ner_documents, recipe_of, write_splits

from lexome.models.checkpoint import load
from lexome.training.finetune.stage import finetune

NER = {"kind": "ner", "types": ["Gene", "Drug"]}
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs g++ on a CPU")


# aot_eager traces as inductor does, without minutes of a C++ compiler.
@pytest.mark.parametrize(
    "backend", ["aot_eager", pytest.param("inductor", marks=[pytest.mark.nightly, needs_compiler])]
)
def test_compiled_steps_end_where_steps_that_are_not_do(
    start: Path, tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    docs = ner_documents(12)
    data = write_splits(tmp_path / "data", train=docs, dev=docs)
    torch._dynamo.reset()
    models = [
        finetune(
            recipe_of(start, data, tmp_path / str(compiled), NER, compile=compiled, epochs=2), progress_shown=False
        ).model
        for compiled in (True, False)
    ]
    for model, compiled in zip(models, (True, False), strict=True):
        assert model is not None
        assert json.loads((model.parent / "run.json").read_text())["compiled"] is compiled
    one, two = (load(model).model.state_dict() for model in models if model is not None)
    begun = load(start, kind="encoder").model.state_dict()
    # Not weight by weight: a key's bias has no gradient but rounding, and AdamW makes steps of it all the same.
    moved, apart = (
        torch.cat([(two[f"encoder.{name}"] - other[name]).flatten() for name in begun])
        for other in (begun, {name: one[f"encoder.{name}"] for name in begun})
    )
    assert moved.norm() > 0.01
    assert apart.norm() < 0.1 * moved.norm()
