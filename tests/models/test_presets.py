"""The presets have the sizes their papers print."""

import pytest
import torch
from errors import raises

from lexome.errors import UsageError
from lexome.models.checkpoint import build
from lexome.models.encoder import PRESETS, count_parameters, preset
from lexome.models.hf import matching_architecture

# What the paper prints, in millions, what is counted here, and how far off the two may be. "paired" is all that is
# pre-trained with next-sentence prediction, "masked" without.
PRINTED = {
    "bert-base": (110, "paired", 0.005),
    # 336 million; Google's paper rounds up to 340.
    "bert-large": (340, "paired", 0.012),
    "roberta-base": (125, "masked", 0.005),
    "roberta-large": (355, "masked", 0.005),
    "distilbert": (66, "encoder", 0.01),
    "modernbert-base": (149, "encoder", 0.005),
    "modernbert-large": (395, "encoder", 0.005),
    "bioformer-8l": (43, "paired", 0.01),
    "bioformer-16l": (42, "paired", 0.01),
    # The name is Megatron's. The released file has 637.65 MiB in half precision, which is the 334 million of the
    # encoder (below).
    "biomegatron-345m": (345, "paired", 0.03),
    "biomegatron-800m": (800, "paired", 0.07),
    "biomegatron-1.2b": (1200, "encoder", 0.07),
}


def size(name: str, kind: str) -> int:
    with torch.device("meta"):
        return count_parameters(build(PRESETS[name], kind))


def test_every_preset_but_the_tiny_one_is_compared() -> None:
    assert PRINTED.keys() == PRESETS.keys() - {"tiny"}


@pytest.mark.parametrize("name", PRINTED)
def test_size(name: str) -> None:
    millions, kind, tolerance = PRINTED[name]
    assert size(name, kind) / 1e6 == pytest.approx(millions, rel=tolerance)


def test_exact_sizes_that_are_known() -> None:
    # transformers' own count of bert-base-uncased with its heads, and Bioformer's encoders as derived from the paper.
    assert size("bert-base", "paired") == 110_106_428
    assert round(size("bioformer-8l", "encoder") / 1e6, 1) == 42.3
    assert round(size("bioformer-16l", "encoder") / 1e6, 1) == 41.4
    assert round(size("biomegatron-345m", "encoder") * 2 / 2**20) == 637


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_has_a_folder_form(name: str) -> None:
    family = name.partition("-")[0]
    expected = {"biomegatron": "megatron-bert", "roberta": "roberta", "distilbert": "distilbert"}
    assert matching_architecture(preset(name)) == {**expected, "modernbert": "modernbert"}.get(family, "bert")


def test_an_unknown_preset_is_refused_with_a_suggestion() -> None:
    with raises(UsageError, code="unknown-preset", value="bioformer-8", mentions="bioformer-8l"):
        preset("bioformer-8")


def test_the_vocabulary_is_that_of_the_tokenizer() -> None:
    assert preset("bert-base", vocab=28_996).vocab == 28_996
