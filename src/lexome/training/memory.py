"""Analytic estimate of the GPU memory of a training step of a MaskedLM.

T tokens of a micro-batch in one process, M masked positions, D hidden size, I intermediate size, H heads, K head size,
V vocabulary, L layers
"""

from dataclasses import dataclass

from lexome.models.encoder import EncoderConfig
from lexome.training.parallel import Sizes


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes on one GPU, without kernel workspaces and fragmentation of the allocator.

    gathered     temporary weights and gradients: gathered shards, DDP's buckets, autocast's bfloat16 copies
    activations  saved by the forward pass for the backward pass
    logits       gradients of the logits, and their temporaries
    layer        activations of one layer; with checkpointing they are recomputed, in addition to `activations`
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
        """Peak memory: at the start of the backward pass, or at its end with all gradients allocated."""
        backward_start = self.gathered + self.activations + max(self.logits, self.layer if self.checkpointing else 0)
        return self.weights + self.optimizer + max(backward_start, self.gradients + self.layer)


@dataclass(frozen=True, slots=True)
class Load:
    """The micro-batch of one process, and its precision.

    half           bfloat16 matrix products, with weights, gradients and optimizer state in float32; else all float32
    checkpointing  a layer saves only its input, and is recomputed in the backward pass
    """

    tokens: int
    masked: int
    half: bool = True
    checkpointing: bool = False


@dataclass(frozen=True, slots=True)
class WeightCounts:
    """Parameter counts of a MaskedLM in one process of a tensor-parallel group: in total, per layer, in matrices.

    `matrices` counts one layer, `outer_matrices` the head with the token embedding.
    """

    total: int
    layer: int
    matrices: int
    outer_matrices: int

    def outside(self, layers: int) -> int:
        """Parameters outside the layers."""
        return self.total - layers * self.layer


def count_weights(config: EncoderConfig, *, tensor: int = 1) -> WeightCounts:
    """Count the parameters of a MaskedLM in each process of a tensor-parallel group, before sharding."""
    width, bias = config.hidden_size, int(config.biases)
    up = config.intermediate_size * (2 if config.gated else 1)
    norm = width * (2 if config.norm_biases else 1)
    matrices = width * (4 * width + up + config.intermediate_size) // tensor
    # Biases of row-split matrices are split too; those of column-split matrices and norms are replicated.
    layer = matrices + bias * (3 * width + up) // tensor + bias * 2 * width + 2 * norm
    rows = config.vocab // tensor if config.vocab % tensor == 0 else config.vocab
    learned = (config.max_tokens + config.position_offset) * (config.positions == "learned")
    norms = norm * (1 + config.embedding_norm + config.final_norm - (not config.first_norm))
    outside = rows * (width + 1) + width * (config.segments + learned + width + config.head_biases) + norms
    return WeightCounts(config.layers * layer + outside, layer, matrices, width * (rows + width))


def memory(config: EncoderConfig, load: Load, sizes: Sizes | None = None, *, optimizer: str = "adamw") -> Memory:
    """Bytes on each GPU for one training step.

    AdamW keeps two values per weight. Muon keeps one for the matrices of layers, and AdamW two for the rest.
    """
    sizes = sizes or Sizes()
    counts = count_weights(config, tensor=sizes.tensor)
    sharded = -(-counts.total // sizes.shard)
    states = 2 * sharded
    if optimizer == "muon":
        states -= config.layers * counts.matrices // sizes.shard
    return Memory(
        weights=sharded * 4,
        gathered=_gathered_bytes(config, counts, sizes, half=load.half),
        gradients=sharded * 4,
        optimizer=states * 4,
        activations=activations(config, load, tensor=sizes.tensor),
        # Log-probabilities and their gradients in float32, less what activations count; logits in half precision.
        logits=8 * load.masked * config.vocab,
        layer=layer_activations(config, load, tensor=sizes.tensor),
        checkpointing=load.checkpointing,
    )


def _gathered_bytes(config: EncoderConfig, counts: WeightCounts, sizes: Sizes, *, half: bool) -> int:
    """Peak bytes of temporary weights and gradients.

    FSDP2 gathers two layers, one in use and one prefetched, and everything outside the layers. It has the unsharded
    gradients of one layer, as computed and in float32 for the reduction, and of everything outside the layers.
    """
    size = 2 if half else 4
    if sizes.fsdp:
        outside = counts.outside(config.layers)
        return (2 * counts.layer + outside) * size + (counts.layer + outside) * size + counts.layer * 4
    copies = 2 * (config.layers * counts.matrices + counts.outer_matrices) if half else 0
    return copies + (counts.total * 4 if sizes.data > 1 else 0)


def activations(config: EncoderConfig, load: Load, *, tensor: int = 1) -> int:
    """Bytes that the forward pass saves for the backward pass, with the packed attention kernel.

    Norms read float32 even where matrix products are in bfloat16. Attention dropout rules out the packed kernel and
    adds the attention weights: H times the sum of squared lengths.
    """
    layer = layer_activations(config, load, tensor=tensor)
    no_norm = 0 if config.first_norm else load.tokens * (4 * config.hidden_size + 8)
    saved = config.layers * layer - no_norm
    if load.checkpointing:
        saved = config.layers * load.tokens * config.hidden_size * 4
    return saved + outer_activations(config, load)


def layer_activations(config: EncoderConfig, load: Load, *, tensor: int = 1) -> int:
    """Bytes that one layer saves."""
    size, width = (2 if load.half else 4), config.hidden_size
    # Inputs of both norms, their means and deviations; one mask byte per value with dropout.
    token = 2 * width * 4 + 16 + (2 * width if config.dropout else 0)
    # Inputs of the first matrix of both blocks are replicated; query, key, value and output are split by heads.
    token += 2 * width * size
    rotated = 2 if config.positions == "rotary" else 0
    token += (4 + rotated) * width * size // tensor + 4 * config.heads // tensor
    # Before and after the activation. Gated: both halves, the activation and the product, which are not split.
    token += 4 * config.intermediate_size * size if config.gated else 2 * config.intermediate_size * size // tensor
    return load.tokens * token


def outer_activations(config: EncoderConfig, load: Load) -> int:
    """Bytes saved outside the layers: embeddings, final norm, head and loss."""
    size, width = (2 if load.half else 4), config.hidden_size
    learned = config.positions == "learned"
    token = 8 + 8 * learned + (4 * width + 8) * (config.embedding_norm + config.final_norm)
    token += width if config.dropout else 0
    if not learned:
        bases = {config.rotary_base_of(number) for number in range(config.layers)}
        token += 2 * 4 * config.head_size * len(bases)
    # Inputs of the head's four modules, and all log-probabilities in float32.
    masked = 4 * width * size + 4 * config.vocab + 8 + 8 + 8
    return load.tokens * token + load.masked * masked
