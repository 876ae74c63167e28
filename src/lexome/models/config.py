"""What an encoder is made of: one configuration for BERT, RoBERTa, Megatron-BERT, DistilBERT and ModernBERT."""

from lexome.errors import UsageError
from lexome.values import value

# tanh is for poolers. gelu_tanh is the approximation Google's and NVIDIA's first BERTs were trained with.
ACTIVATIONS = ("gelu", "gelu_tanh", "relu", "silu", "tanh")


@value
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
