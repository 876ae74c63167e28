"""The configuration of an encoder (BERT, RoBERTa, Megatron-BERT, DistilBERT, ModernBERT) and the named presets."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from lexome.errors import UsageError

# tanh is used by poolers. gelu_tanh is the approximation that Google's and NVIDIA's first BERTs were trained with.
ACTIVATIONS = ("gelu", "gelu_tanh", "relu", "silu", "tanh")


@dataclass(frozen=True, slots=True)
class EncoderConfig:
    """Sizes and options of an encoder; the defaults are BERT's.

    intermediate_size  size of the feed-forward layer; with `gated`, of each of its two halves
    max_tokens         maximum sequence length; learned positions have as many rows, plus position_offset
    norm               "post": after the residual sum, as in BERT; "pre": before each block, as in Megatron
    position_offset    rows of the position table before position 0: 2 in RoBERTa
    segments           number of segment types (sentence A, sentence B); 0 for no segment embeddings
    first_norm         False: the first layer has no attention norm, because the embedding norm directly precedes it
    local_window       tokens that a local-attention layer attends to on each side; None: all layers are global
    global_every       layers 0, n, 2n, ... use global attention, the others local attention
    local_rotary_base  rotary base of local layers; rotary_base if None
    attention_dropout  dropout of attention weights. torch's packed CUDA kernel does not support it, so any value
                       above 0 takes a slower path there; 0 is recommended for pre-training
    scaled_init        output projections of both blocks are initialized with std / sqrt(2 * layers), as in Megatron
    """

    vocab: int
    layers: int
    hidden_size: int
    heads: int
    intermediate_size: int
    max_tokens: int = 512
    norm: str = "post"
    positions: str = "learned"
    position_offset: int = 0
    segments: int = 2
    activation: str = "gelu"
    gated: bool = False
    biases: bool = True
    norm_biases: bool = True
    norm_eps: float = 1e-12
    embedding_norm: bool = True
    final_norm: bool = False
    first_norm: bool = True
    local_window: int | None = None
    global_every: int = 1
    rotary_base: float = 10_000.0
    local_rotary_base: float | None = None
    dropout: float = 0.1
    attention_dropout: float = 0.1
    initial_std: float = 0.02
    scaled_init: bool = False
    head_activation: str = "gelu"
    head_biases: bool = True

    def __post_init__(self) -> None:
        for name in ("vocab", "layers", "hidden_size", "heads", "intermediate_size", "max_tokens", "global_every"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}; expected at least 1.", code="bad-size", value=name)
        if self.hidden_size % self.heads:
            raise UsageError(
                f"hidden_size {self.hidden_size} is not a multiple of {self.heads} heads. Change one of them.",
                code="heads-mismatch",
                value=self.heads,
            )
        choices = {"norm": ("post", "pre"), "positions": ("learned", "rotary")}
        for name, known in (choices | {"activation": ACTIVATIONS, "head_activation": ACTIVATIONS}).items():
            value = getattr(self, name)
            if value not in known:
                raise UsageError(
                    f"{name} is {value!r}; expected one of {', '.join(known)}.", code="unknown-option", value=value
                )
        if self.positions == "rotary" and self.head_size % 2:
            raise UsageError(
                f"rotary positions rotate pairs of dimensions, but the head size is {self.head_size}; expected an even "
                "one. Change hidden_size or heads.",
                code="odd-head-size",
                value=self.head_size,
            )

    @property
    def head_size(self) -> int:
        """Dimensions per attention head."""
        return self.hidden_size // self.heads

    def window(self, layer: int) -> int | None:
        """Tokens that a layer attends to on each side; None for all."""
        return self.local_window if layer % self.global_every else None

    def rotary_base_of(self, layer: int) -> float:
        """The base of a layer's rotary frequencies."""
        local = self.window(layer) is not None and self.local_rotary_base is not None
        return self.local_rotary_base if local and self.local_rotary_base else self.rotary_base


_BERT_BASE = EncoderConfig(vocab=30_522, layers=12, hidden_size=768, heads=12, intermediate_size=3072)
_BERT_LARGE = replace(_BERT_BASE, layers=24, hidden_size=1024, heads=16, intermediate_size=4096)

_ROBERTA_BASE = replace(_BERT_BASE, vocab=50_265, position_offset=2, segments=1, norm_eps=1e-5)
_ROBERTA_LARGE = replace(_ROBERTA_BASE, layers=24, hidden_size=1024, heads=16, intermediate_size=4096)

# Bioformer's paper does not print the intermediate size; four times the hidden size gives its two parameter counts.
_BIOFORMER_8L = replace(_BERT_BASE, vocab=32_768, layers=8, hidden_size=512, heads=8, intermediate_size=2048)
_BIOFORMER_16L = replace(_BIOFORMER_8L, layers=16, hidden_size=384, heads=6, intermediate_size=1536, max_tokens=1024)

# From the configuration published with BioMegatron-345m: pre-norm, gelu's tanh approximation, and a vocabulary padded
# to a multiple of 128. Scaled initialization is Megatron's.
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
# The paper names the larger two by parameter count only. These shapes match the counts; whether the authors used the
# same depth and hidden size is not known.
_BIOMEGATRON_800M = replace(_BIOMEGATRON_345M, layers=36, hidden_size=1280, heads=20, intermediate_size=5120)
_BIOMEGATRON_1200M = replace(_BIOMEGATRON_345M, layers=24, hidden_size=2048, heads=16, intermediate_size=8192)

_MODERN_BASE = EncoderConfig(
    vocab=50_368,
    layers=22,
    hidden_size=768,
    heads=12,
    intermediate_size=1152,
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
    "tiny": EncoderConfig(vocab=1024, layers=2, hidden_size=64, heads=4, intermediate_size=128, max_tokens=128),
    "bert-base": _BERT_BASE,
    "bert-large": _BERT_LARGE,
    "roberta-base": _ROBERTA_BASE,
    "roberta-large": _ROBERTA_LARGE,
    "distilbert": replace(_BERT_BASE, layers=6, segments=0),
    "modernbert-base": _MODERN_BASE,
    "modernbert-large": replace(_MODERN_BASE, layers=28, hidden_size=1024, heads=16, intermediate_size=2624),
    "bioformer-8l": _BIOFORMER_8L,
    "bioformer-16l": _BIOFORMER_16L,
    "biomegatron-345m": _BIOMEGATRON_345M,
    "biomegatron-800m": _BIOMEGATRON_800M,
    "biomegatron-1.2b": _BIOMEGATRON_1200M,
}


def preset(name: str, *, vocab: int | None = None) -> EncoderConfig:
    """The configuration of a named encoder, with the vocabulary size of your tokenizer."""
    if name not in PRESETS:
        near = difflib.get_close_matches(name, PRESETS, 1)
        hint = f" Did you mean {near[0]}?" if near else ""
        known = ", ".join(PRESETS)
        raise UsageError(f"unknown encoder {name!r}; expected one of {known}.{hint}", code="unknown-preset", value=name)
    return PRESETS[name] if vocab is None else replace(PRESETS[name], vocab=vocab)
