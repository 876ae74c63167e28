"""What an encoder is made of: one configuration for BERT, RoBERTa, Megatron-BERT, DistilBERT and ModernBERT."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from lexome.errors import UsageError

# tanh is for poolers. gelu_tanh is the approximation Google's and NVIDIA's first BERTs were trained with.
ACTIVATIONS = ("gelu", "gelu_tanh", "relu", "silu", "tanh")


@dataclass(frozen=True, slots=True)
class EncoderConfig:
    """The shape and the rules of one encoder; BERT's rules where nothing is said.

    inner              width of the feed-forward layer; with `gated`, of each of its two halves
    max_tokens         longest sequence; learned positions have as many rows, and position_offset more
    norm               "post": after the residual sum, as BERT; "pre": before each block, as Megatron
    position_offset    rows of the position table that come before position 0: 2 in RoBERTa
    segments           kinds of segment (sentence A, sentence B); 0 for none
    first_norm         False: the first layer has no attention norm, for the embedding norm is just before it
    local_window       how many tokens a local layer sees to each side; None: every layer sees all
    global_every       layers 0, n, 2n, ... see all, the others only their window
    local_rotary_base  base of the angles in local layers; rotary_base where None
    attention_dropout  dropout of attention weights in training. torch's packed kernel for CUDA has none, so any value
                       above 0 takes the slower path there; pre-training is meant to run with 0
    scaled_init        outputs of both blocks start smaller by sqrt(2 * layers), as in Megatron
    """

    vocab: int
    layers: int
    width: int
    heads: int
    inner: int
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
        for name in ("vocab", "layers", "width", "heads", "inner", "max_tokens", "global_every"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}; expected 1 or more.")
        if self.width % self.heads:
            raise UsageError(f"width {self.width} is not a multiple of {self.heads} heads. Change one of them.")
        _one_of("norm", self.norm, ("post", "pre"))
        _one_of("positions", self.positions, ("learned", "rotary"))
        _one_of("activation", self.activation, ACTIVATIONS)
        _one_of("head_activation", self.head_activation, ACTIVATIONS)
        if self.positions == "rotary" and self.head_width % 2:
            raise UsageError(f"rotary positions turn pairs, but a head is {self.head_width} wide. Use an even width.")

    @property
    def head_width(self) -> int:
        """Width of one attention head."""
        return self.width // self.heads

    def window(self, layer: int) -> int | None:
        """How many tokens a layer sees to each side; None for all."""
        return self.local_window if layer % self.global_every else None

    def angle_base(self, layer: int) -> float:
        """The base of a layer's rotary angles."""
        local = self.window(layer) is not None and self.local_rotary_base is not None
        return self.local_rotary_base if local and self.local_rotary_base else self.rotary_base


def _one_of(name: str, seen: str, known: tuple[str, ...]) -> None:
    if seen not in known:
        raise UsageError(f"{name} is {seen!r}; expected one of {', '.join(known)}.")


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
