"""The encoders of the papers, by name.

The papers print rounded sizes and do not say what they count: the encoder alone, with a pooler, or with all the heads
of pre-training. The test of their sizes says which it takes for each.
"""

import difflib
from collections.abc import Mapping
from dataclasses import replace

from lexome.errors import UsageError
from lexome.models.config import EncoderConfig

_BERT_BASE = EncoderConfig(vocab=30_522, layers=12, width=768, heads=12, inner=3072)
_BERT_LARGE = replace(_BERT_BASE, layers=24, width=1024, heads=16, inner=4096)

# Learned positions begin behind two rows, there is one kind of segment, and norms have another epsilon.
_ROBERTA_BASE = replace(_BERT_BASE, vocab=50_265, position_offset=2, segments=1, norm_eps=1e-5)
_ROBERTA_LARGE = replace(_ROBERTA_BASE, layers=24, width=1024, heads=16, inner=4096)

# Inner width is not printed in Bioformer's paper; four times the width gives the two sizes it prints.
_BIOFORMER_8L = replace(_BERT_BASE, vocab=32_768, layers=8, width=512, heads=8, inner=2048)
_BIOFORMER_16L = replace(_BIOFORMER_8L, layers=16, width=384, heads=6, inner=1536, max_tokens=1024)

# Norms come first, gelu is the tanh approximation, and the vocabulary is filled up to a multiple of 128: so says the
# configuration published with BioMegatron-345m. Megatron shrinks the outputs of its blocks at the start.
_BIOMEGATRON_345M = replace(
    _BERT_LARGE,
    vocab=30_592,
    norm="pre",
    embedding_norm=False,
    final_norm=True,
    activation="gelu_tanh",
    head_activation="gelu_tanh",
    scaled_init=True,
)
# The paper names the larger two by their size and prints no shape. These come to their sizes; whether the authors' had
# the same depth and width is not known.
_BIOMEGATRON_800M = replace(_BIOMEGATRON_345M, layers=36, width=1280, heads=20, inner=5120)
_BIOMEGATRON_1200M = replace(_BIOMEGATRON_345M, layers=24, width=2048, heads=16, inner=8192)

_MODERN_BASE = EncoderConfig(
    vocab=50_368,
    layers=22,
    width=768,
    heads=12,
    inner=1152,
    max_tokens=8192,
    norm="pre",
    positions="rotary",
    segments=0,
    gated=True,
    biases=False,
    norm_biases=False,
    head_biases=False,
    norm_eps=1e-5,
    first_norm=False,
    final_norm=True,
    local_window=64,
    global_every=3,
    rotary_base=160_000.0,
    local_rotary_base=10_000.0,
    dropout=0.0,
    attention_dropout=0.0,
)

PRESETS: Mapping[str, EncoderConfig] = {
    "tiny": EncoderConfig(vocab=1024, layers=2, width=64, heads=4, inner=128, max_tokens=128),
    "bert-base": _BERT_BASE,
    "bert-large": _BERT_LARGE,
    "roberta-base": _ROBERTA_BASE,
    "roberta-large": _ROBERTA_LARGE,
    "distilbert": replace(_BERT_BASE, layers=6, segments=0),
    "modernbert-base": _MODERN_BASE,
    "modernbert-large": replace(_MODERN_BASE, layers=28, width=1024, heads=16, inner=2624),
    "bioformer-8l": _BIOFORMER_8L,
    "bioformer-16l": _BIOFORMER_16L,
    "biomegatron-345m": _BIOMEGATRON_345M,
    "biomegatron-800m": _BIOMEGATRON_800M,
    "biomegatron-1.2b": _BIOMEGATRON_1200M,
}


def preset(name: str, *, vocab: int | None = None) -> EncoderConfig:
    """The configuration of a named encoder, with the number of embeddings your tokenizer needs."""
    if name not in PRESETS:
        near = difflib.get_close_matches(name, PRESETS, 1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise UsageError(f"no encoder is called {name!r}; known are {', '.join(PRESETS)}.{hint}")
    return PRESETS[name] if vocab is None else replace(PRESETS[name], vocab=vocab)
