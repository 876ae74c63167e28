"""Adapters: merged as unmerged, read and written as the peft library does, for every architecture.

T tokens of the packed batch
"""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from errors import raises
from tiny_models import HF_CONFIGS, LENGTHS, batch, hf_model, hf_outputs
from torch import Tensor

from lexome.errors import UsageError
from lexome.models.checkpoint import assemble
from lexome.models.heads import EncoderWithHead, HiddenLayers
from lexome.training.finetune.lora import (
    Adapter,
    LoraLinear,
    LoraSettings,
    add_adapters,
    merge_adapters,
    read_adapters,
    write_adapters,
)

CLASSES = {
    "bert": "BertForTokenClassification",
    "roberta": "RobertaForTokenClassification",
    "megatron-bert": "MegatronBertForTokenClassification",
    "distilbert": "DistilBertForTokenClassification",
    "modernbert": "ModernBertForTokenClassification",
}
LORA = LoraSettings(rank=4, alpha=8.0, dropout=0.0, targets=("query", "value", "up", "down"))


def models(architecture: str, tmp_path: Path) -> tuple[Any, EncoderWithHead]:
    """The same weights in transformers' class and in ours."""
    theirs = hf_model(CLASSES[architecture], architecture)
    found = assemble(theirs.config.to_dict(), theirs.state_dict(), folder=tmp_path, kind="token")
    assert isinstance(found.model, EncoderWithHead)
    return theirs, found.model


def stir(model: EncoderWithHead) -> None:
    """Give the adapters weights that matter."""
    torch.manual_seed(7)
    for part in model.modules():
        if isinstance(part, Adapter):
            torch.nn.init.normal_(part.up_NR, std=0.3)


def run(model: EncoderWithHead) -> Tensor:
    with torch.no_grad():
        return torch.as_tensor(model(*batch()))


def test_new_adapters_change_nothing(tmp_path: Path) -> None:
    _, model = models("bert", tmp_path)
    before = run(model)
    add_adapters(model, "bert", LORA)
    assert torch.equal(run(model), before)


@pytest.mark.parametrize("architecture", CLASSES)
def test_merged_weights_compute_what_adapters_compute(architecture: str, tmp_path: Path) -> None:
    _, model = models(architecture, tmp_path)
    plain = run(model)
    add_adapters(model, architecture, LORA)
    stir(model)
    beside = run(model)
    inside = run(merge_adapters(model))
    assert not torch.allclose(beside, plain, atol=0.01)
    assert torch.allclose(inside, beside, atol=1e-4)


def test_merging_leaves_no_trace_of_adapters(tmp_path: Path) -> None:
    _, model = models("bert", tmp_path)
    names = set(model.state_dict())
    add_adapters(model, "bert", LORA)
    assert set(merge_adapters(model).state_dict()) == names


@pytest.mark.parametrize("architecture", CLASSES)
def test_peft_computes_the_same_with_what_is_written(architecture: str, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft", reason="the peft library is not installed")
    theirs, model = models(architecture, tmp_path)
    add_adapters(model, architecture, LORA)
    stir(model)
    torch.nn.init.normal_(model.head.out.weight)  # type: ignore[union-attr, arg-type]
    write_adapters(
        tmp_path / "adapter", model, architecture=architecture, kind="token", base=tmp_path / "base", settings=LORA
    )
    adapted = peft.PeftModel.from_pretrained(theirs, str(tmp_path / "adapter")).eval()
    ids_T, _ = batch()
    with torch.no_grad():
        output, real = hf_outputs(adapted, ids_T, LENGTHS)
    assert torch.allclose(output.logits[real], run(model), atol=1e-4)


def test_what_peft_writes_is_read(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft", reason="the peft library is not installed")
    theirs, model = models("bert", tmp_path)
    settings = peft.LoraConfig(r=4, lora_alpha=8, target_modules=["query", "value"], task_type="TOKEN_CLS")
    adapted = peft.get_peft_model(copy.deepcopy(theirs), settings).eval()
    for name, weight in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.3)
    adapted.save_pretrained(tmp_path / "adapter")
    read_adapters(tmp_path / "adapter", model, "bert")
    ids_T, _ = batch()
    with torch.no_grad():
        output, real = hf_outputs(adapted, ids_T, LENGTHS)
    assert torch.allclose(output.logits[real], run(model), atol=1e-4)


def test_only_adapters_and_the_head_learn(tmp_path: Path) -> None:
    _, model = models("bert", tmp_path)
    add_adapters(model, "bert", LORA)
    learning = {name for name, weight in model.named_parameters() if weight.requires_grad}
    assert all(".adapters." in name or name.startswith("head.") for name in learning)
    assert sum(isinstance(part, LoraLinear) for part in model.modules()) == 3 * 4


def test_a_head_that_transformers_has_not_is_left_out(tmp_path: Path) -> None:
    theirs = hf_model("BertModel", "bert")
    found = assemble(
        theirs.config.to_dict(),
        theirs.state_dict(),
        folder=tmp_path,
        kind="token",
        labels=("O", "B"),
        hidden=HiddenLayers(2, hidden_size=16),
        new_head=True,
    )
    assert isinstance(found.model, EncoderWithHead)
    add_adapters(found.model, "bert", LORA)
    write_adapters(tmp_path / "adapter", found.model, architecture="bert", kind="token", base=tmp_path, settings=LORA)
    assert '"FEATURE_EXTRACTION"' in (tmp_path / "adapter" / "adapter_config.json").read_text()


def test_a_model_that_transformers_computes_takes_adapters_too(tmp_path: Path) -> None:
    theirs = transformers.ElectraModel(
        transformers.ElectraConfig(**{**HF_CONFIGS["bert"]().to_dict(), "embedding_size": 32, "model_type": "electra"})
    ).eval()
    found = assemble(
        theirs.config.to_dict(),
        theirs.state_dict(),
        folder=tmp_path,
        kind="token",
        labels=("O", "B"),
        new_head=True,
        backend="transformers",
    )
    assert isinstance(found.model, EncoderWithHead)
    add_adapters(found.model, "electra", LoraSettings(4, 8.0, 0.0, ("query", "value")))
    stir(found.model)
    assert torch.allclose(run(merge_adapters(found.model)), run(found.model), atol=1e-4)


def test_targets_that_name_nothing_are_refused(tmp_path: Path) -> None:
    _, model = models("bert", tmp_path)
    with raises(UsageError, code="unknown-target", value=("q_proj",)):
        add_adapters(model, "bert", LoraSettings(targets=("q_proj",)))
