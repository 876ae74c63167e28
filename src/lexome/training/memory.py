"""How much memory a training step of a MaskedLM takes on each GPU, by formula.

T tokens of a pass in one process, M masked positions of it, D width, I inner width, H heads, K width a head,
V vocabulary, L layers
"""

from dataclasses import dataclass

from lexome.models.encoder import EncoderConfig
from lexome.training.parallel import Sizes


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes on one GPU. What kernels need while they run, and gaps of the allocator, come on top.

    gathered     weights and gradients for a while: other processes' parts, DDP's buckets, autocast's bfloat16 copies
    activations  what the forward pass keeps for the backward pass
    logits       the gradients of the words' logits, and what they are made from
    layer        what one layer keeps; with checkpointing it is made again, beside the activations
    """

    weights: int
    gathered: int
    gradients: int
    optimizer: int
    activations: int
    logits: int
    layer: int
    checkpointing: bool = False

    @property
    def total(self) -> int:
        """The most at any moment: when the backward pass begins, or when it ends, with all gradients there."""
        begins = self.gathered + self.activations + max(self.logits, self.layer if self.checkpointing else 0)
        return self.weights + self.optimizer + max(begins, self.gradients + self.layer)


@dataclass(frozen=True, slots=True)
class Load:
    """What one process works on in a pass.

    half           bfloat16 in matrix products, with weights, gradients and optimizer state in float32; else all float32
    checkpointing  a layer keeps only its input, and is computed again in the backward pass
    """

    tokens: int
    masked: int
    half: bool = True
    checkpointing: bool = False


@dataclass(frozen=True, slots=True)
class WeightCounts:
    """Numbers of a MaskedLM that one process of a tensor group holds: all, those of one layer, and those in matrices.

    `matrices` are of one layer, `outer_matrices` those of the head, the token embedding among them.
    """

    total: int
    layer: int
    matrices: int
    outer_matrices: int

    def outside(self, layers: int) -> int:
        """Numbers that are in no layer."""
        return self.total - layers * self.layer


def count_weights(config: EncoderConfig, *, tensor: int = 1) -> WeightCounts:
    """How the weights of a MaskedLM lie in a tensor group, before any sharding."""
    width, bias = config.hidden_size, int(config.biases)
    up = config.intermediate_size * (2 if config.gated else 1)
    norm = width * (2 if config.norm_biases else 1)
    matrices = width * (4 * width + up + config.intermediate_size) // tensor
    # Biases of what is cut by rows are cut too; those of what is cut by columns are whole, as norms are.
    layer = matrices + bias * (3 * width + up) // tensor + bias * 2 * width + 2 * norm
    rows = config.vocab // tensor if config.vocab % tensor == 0 else config.vocab
    learned = (config.max_tokens + config.position_offset) * (config.positions == "learned")
    norms = norm * (1 + config.embedding_norm + config.final_norm - (not config.first_norm))
    outside = rows * (width + 1) + width * (config.segments + learned + width + config.head_biases) + norms
    return WeightCounts(config.layers * layer + outside, layer, matrices, width * (rows + width))


def memory(config: EncoderConfig, load: Load, sizes: Sizes | None = None, *, optimizer: str = "adamw") -> Memory:
    """Bytes on each GPU for one training step.

    AdamW keeps two numbers for each weight. Muon keeps one for each matrix of a layer, and AdamW two for the rest.
    """
    sizes = sizes or Sizes()
    found = count_weights(config, tensor=sizes.tensor)
    own = -(-found.total // sizes.shard)
    states = 2 * own
    if optimizer == "muon":
        states -= config.layers * found.matrices // sizes.shard
    return Memory(
        weights=own * 4,
        gathered=_gathered(config, found, sizes, half=load.half),
        gradients=own * 4,
        optimizer=states * 4,
        activations=activations(config, load, tensor=sizes.tensor),
        # In float32 the logarithms and their gradients, less what is kept of them; the logits' own in half precision.
        logits=8 * load.masked * config.vocab,
        layer=layer_activations(config, load, tensor=sizes.tensor),
        checkpointing=load.checkpointing,
    )


def _gathered(config: EncoderConfig, found: WeightCounts, sizes: Sizes, *, half: bool) -> int:
    """Bytes of weights and gradients that are there for a while, at most.

    FSDP2 has two layers whole, one in use and one on its way, and all that is outside the layers; of gradients one
    layer, once as it was made and once in float32 to be sent, and those outside.
    """
    size = 2 if half else 4
    if sizes.fsdp:
        outside = found.outside(config.layers)
        return (2 * found.layer + outside) * size + (found.layer + outside) * size + found.layer * 4
    copies = 2 * (config.layers * found.matrices + found.outer_matrices) if half else 0
    return copies + (found.total * 4 if sizes.data > 1 else 0)


def activations(config: EncoderConfig, load: Load, *, tensor: int = 1) -> int:
    """Bytes that the forward pass keeps for the backward pass, with the packed kernel for attention.

    Norms read float32 also where matrix products are in bfloat16. With dropout of attention weights there is no packed
    kernel, and the weights come on top: H times the squares of all lengths.
    """
    inside = layer_activations(config, load, tensor=tensor)
    no_norm = 0 if config.first_norm else load.tokens * (4 * config.hidden_size + 8)
    kept = config.layers * inside - no_norm
    if load.checkpointing:
        kept = config.layers * load.tokens * config.hidden_size * 4
    return kept + outer_activations(config, load)


def layer_activations(config: EncoderConfig, load: Load, *, tensor: int = 1) -> int:
    """Bytes that one layer keeps."""
    size, width = (2 if load.half else 4), config.hidden_size
    # Inputs of both norms, their means and deviations; a byte for each number that dropout may drop.
    token = 2 * width * 4 + 16 + (2 * width if config.dropout else 0)
    # Inputs of the first matrix of both blocks are whole; query, key, value and their mix are of some of the heads.
    token += 2 * width * size
    turned = 2 if config.positions == "rotary" else 0
    token += (4 + turned) * width * size // tensor + 4 * config.heads // tensor
    # Before and after the activation. Gated: both halves, the activation, the product; these are not cut.
    token += 4 * config.intermediate_size * size if config.gated else 2 * config.intermediate_size * size // tensor
    return load.tokens * token


def outer_activations(config: EncoderConfig, load: Load) -> int:
    """Bytes that are kept outside the layers: of embeddings, the last norm, the head and the loss."""
    size, width = (2 if load.half else 4), config.hidden_size
    learned = config.positions == "learned"
    token = 8 + 8 * learned + (4 * width + 8) * (config.embedding_norm + config.final_norm)
    token += width if config.dropout else 0
    if not learned:
        bases = {config.rotary_base_of(number) for number in range(config.layers)}
        token += 2 * 4 * config.head_size * len(bases)
    # Four inputs of the head's parts, and the logarithms of all probabilities in float32.
    masked = 4 * width * size + 4 * config.vocab + 8 + 8 + 8
    return load.tokens * token + load.masked * masked
