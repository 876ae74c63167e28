"""The names of weights: Lexome's and Hugging Face's, both ways, one table for each architecture.

H heads, K width a head, D width
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from lexome.errors import CheckpointError

# What a folder can hold: an encoder alone, or with the head of one use.
KINDS = ("encoder", "masked", "paired", "token", "sequence", "span")

# Those that guess words, with the embedding as their last matrix.
WORDS = ("masked", "paired")

# Buffers that older versions of transformers wrote among the weights. They hold 0, 1, 2, ... or zeros.
MEANINGLESS = ("embeddings.position_ids", "embeddings.token_type_ids", "rotary_emb.inv_freq")

# Ported from TensorFlow, a norm's two weights went by other names.
OLD_ENDINGS = {".gamma": ".weight", ".beta": ".bias"}


@dataclass(frozen=True, slots=True)
class Names:
    """How one architecture names its modules. {n} is the number of a layer.

    encoder   ours to theirs; query, key and value are three names, or one where they lie stacked
    heads     the same for each kind of head
    copies    names that repeat another's weights, and may be left out
    classes   the class in transformers for each kind
    spare     modules that belong to the architecture and to no kind here
    """

    prefix: str
    encoder: Mapping[str, tuple[str, ...]]
    heads: Mapping[str, Mapping[str, tuple[str, ...]]]
    copies: Mapping[str, str]
    classes: Mapping[str, str]
    spare: tuple[str, ...] = ()


def table(names: Names, kind: str, ours: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Their names for each of our weights, in a model of this kind; CheckpointError for a weight with no row."""
    rows = {**names.encoder, **names.heads.get(kind, {})}
    found = {}
    for weight in ours:
        module, _, ending = weight.rpartition(".")
        number = next((part for part in module.split(".") if part.isdigit()), "")
        row = rows.get(module.replace(f".{number}.", ".{n}.", 1) if number else module)
        if row is None:
            raise CheckpointError(f"there is no name in Hugging Face's form for our weight {weight!r} ({kind}).")
        found[weight] = tuple(f"{their.format(n=number)}.{ending}" for their in row)
    return found


def to_hf(weights: Mapping[str, Tensor], names: Names, *, kind: str, heads: int) -> dict[str, Tensor]:
    """Our weights under their names, query, key and value apart. An encoder alone goes without the prefix."""
    theirs: dict[str, Tensor] = {}
    for ours, row in table(names, kind, weights).items():
        theirs.update(zip(row, _cut(ours, weights[ours], len(row), heads), strict=True))
    if kind == "encoder":
        return {name.removeprefix(names.prefix): tensor for name, tensor in theirs.items()}
    return theirs


@dataclass(frozen=True, slots=True)
class Found:
    """Weights under our names; those of ours the folder lacks; and those of theirs this kind of model does not use."""

    weights: dict[str, Tensor]
    missing: tuple[str, ...]
    unused: tuple[str, ...]


def from_hf(given: Mapping[str, Tensor], names: Names, *, kind: str, heads: int, ours: Iterable[str]) -> Found:
    """Their weights under our names. CheckpointError for one that the architecture does not know.

    Missing weights are named and left to the caller. Buffers that mean nothing are passed over.
    """
    wanted = table(names, kind, ours)
    theirs = _in_full(given, names)
    copies = names.copies if kind in WORDS else {}
    _settle_copies(theirs, copies)
    used = {name for row in wanted.values() for name in row}
    unused = sorted(theirs.keys() - used - copies.keys())
    # Heads of other uses may lie in the folder. An encoder's weight without a place is a layer or a bias too many.
    unknown = [name for name in unused if not _of_a_head(name, names)]
    if unknown:
        raise CheckpointError(
            f"{len(unknown)} unknown weights, first {unknown[0]!r}; expected those of {names.classes[kind]} as "
            "config.json describes it, and of its other heads."
        )
    weights, missing = {}, []
    for name, row in wanted.items():
        if all(their in theirs for their in row):
            weights[name] = _join(name, [theirs[their] for their in row], heads)
        elif any(their in theirs for their in row):
            lacking = next(their for their in row if their not in theirs)
            raise CheckpointError(f"{lacking!r} is missing, while its fellows are there. The file is damaged.")
        else:
            missing.append(name)
    return Found(weights, tuple(missing), tuple(unused))


def join_qkv(query: Tensor, key: Tensor, value: Tensor, *, heads: int) -> Tensor:
    """One matrix (or bias) from three, (D, ...) each, its rows head by head as Attention wants them."""
    parts_HK = [part.unflatten(0, (heads, -1)) for part in (query, key, value)]  # type: ignore[no-untyped-call]
    return torch.stack(parts_HK, dim=1).flatten(0, 2)


def cut_qkv(qkv: Tensor, *, heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value from the one matrix: what join_qkv joined."""
    parts_H3K = qkv.unflatten(0, (heads, 3, -1))  # type: ignore[no-untyped-call]
    query, key, value = (part.flatten(0, 1).contiguous() for part in parts_H3K.unbind(1))
    return query, key, value


def _cut(name: str, weight: Tensor, rows: int, heads: int) -> list[Tensor]:
    if ".attention.qkv." not in name:
        return [weight.contiguous()]
    parts = cut_qkv(weight, heads=heads)
    return list(parts) if rows == len(parts) else [torch.cat(parts)]


def _join(name: str, parts: list[Tensor], heads: int) -> Tensor:
    if ".attention.qkv." not in name:
        return parts[0]
    query, key, value = parts if len(parts) == 3 else parts[0].chunk(3)
    return join_qkv(query, key, value, heads=heads)


def _in_full(given: Mapping[str, Tensor], names: Names) -> dict[str, Tensor]:
    """Their weights with the prefix, with today's endings, without the buffers that mean nothing."""
    full = {}
    for name, tensor in given.items():
        for old, new in OLD_ENDINGS.items():
            if name.endswith(old):
                name = name.removesuffix(old) + new
        if name.endswith(MEANINGLESS):
            continue
        bare = not _known(name, names) and _known(names.prefix + name, names)
        full[names.prefix + name if bare else name] = tensor
    return full


def _known(name: str, names: Names) -> bool:
    """Whether a weight belongs to the architecture, in any kind of model."""
    module = ".".join("{n}" if part.isdigit() else part for part in name.split(".")[:-1])
    return _of_a_head(name, names) or any(module in row for row in names.encoder.values())


def _of_a_head(name: str, names: Names) -> bool:
    module = name.rpartition(".")[0]
    if name in names.copies or module in names.spare:
        return True
    return any(module in row for head in names.heads.values() for row in head.values())


def _settle_copies(theirs: dict[str, Tensor], copies: Mapping[str, str]) -> None:
    """Where only the copy was saved it is the weight; where both were, they have to be equal."""
    for copy, source in copies.items():
        if copy in theirs and not torch.equal(theirs[copy], theirs.setdefault(source, theirs[copy])):
            raise CheckpointError(
                f"{copy!r} differs from {source!r}; expected the same weights, for Lexome's models share them. "
                "A model with an output matrix of its own has to go through the transformers backend."
            )


Rows = dict[str, tuple[str, ...]]


def _heads(masked: Rows, pair: Rows, sequence: Rows, *, token: Rows, span: Rows) -> Mapping[str, Rows]:
    paired = {"paired": {**masked, **pair}} if pair else {}
    return {"masked": masked, **paired, "sequence": sequence, "token": token, "span": span}


def _classes(stem: str, *, paired: bool) -> dict[str, str]:
    """transformers names its classes alike for all of them."""
    classes = {
        "encoder": f"{stem}Model",
        "masked": f"{stem}ForMaskedLM",
        "token": f"{stem}ForTokenClassification",
        "sequence": f"{stem}ForSequenceClassification",
        "span": f"{stem}ForQuestionAnswering",
    }
    return {**classes, "paired": f"{stem}ForPreTraining"} if paired else classes


def _bert_layers(prefix: str, *, norms: tuple[str, str]) -> Rows:
    """What BERT, RoBERTa and Megatron-BERT share; they name their norms differently."""
    layer = f"{prefix}encoder.layer.{{n}}"
    ours = "encoder.layers.{n}"
    return {
        "encoder.embed.tokens": (f"{prefix}embeddings.word_embeddings",),
        "encoder.embed.positions": (f"{prefix}embeddings.position_embeddings",),
        "encoder.embed.segments": (f"{prefix}embeddings.token_type_embeddings",),
        f"{ours}.attention.qkv": tuple(f"{layer}.attention.self.{part}" for part in ("query", "key", "value")),
        f"{ours}.attention.out": (f"{layer}.attention.output.dense",),
        f"{ours}.attention_norm": (f"{layer}.{norms[0]}",),
        f"{ours}.mlp.up": (f"{layer}.intermediate.dense",),
        f"{ours}.mlp.down": (f"{layer}.output.dense",),
        f"{ours}.mlp_norm": (f"{layer}.{norms[1]}",),
    }


_AFTER = ("attention.output.LayerNorm", "output.LayerNorm")
_BEFORE = ("attention.ln", "ln")
_LABELS: Rows = {"head.out": ("classifier",)}
_SPANS: Rows = {"head.out": ("qa_outputs",)}
_POOLED: Rows = {"head.dense0": ("bert.pooler.dense",), "head.out": ("classifier",)}
_PAIR: Rows = {"pair.pool": ("bert.pooler.dense",), "pair.out": ("cls.seq_relationship",)}
_BERT_WORDS: Rows = {
    "head": ("cls.predictions",),
    "head.dense": ("cls.predictions.transform.dense",),
    "head.norm": ("cls.predictions.transform.LayerNorm",),
}
_BERT_COPIES = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}

BERT = Names(
    prefix="bert.",
    encoder={**_bert_layers("bert.", norms=_AFTER), "encoder.embed.norm": ("bert.embeddings.LayerNorm",)},
    heads=_heads(_BERT_WORDS, _PAIR, _POOLED, token=_LABELS, span=_SPANS),
    copies=_BERT_COPIES,
    classes=_classes("Bert", paired=True),
    spare=("bert.pooler.dense",),
)

MEGATRON_BERT = Names(
    prefix="bert.",
    encoder={**_bert_layers("bert.", norms=_BEFORE), "encoder.final_norm": ("bert.encoder.ln",)},
    heads=_heads(_BERT_WORDS, _PAIR, _POOLED, token=_LABELS, span=_SPANS),
    copies=_BERT_COPIES,
    classes=_classes("MegatronBert", paired=True),
    spare=("bert.pooler.dense",),
)

ROBERTA = Names(
    prefix="roberta.",
    encoder={**_bert_layers("roberta.", norms=_AFTER), "encoder.embed.norm": ("roberta.embeddings.LayerNorm",)},
    heads=_heads(
        {"head": ("lm_head",), "head.dense": ("lm_head.dense",), "head.norm": ("lm_head.layer_norm",)},
        {},
        {"head.dense0": ("classifier.dense",), "head.out": ("classifier.out_proj",)},
        token=_LABELS,
        span=_SPANS,
    ),
    copies={
        "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    },
    classes=_classes("Roberta", paired=False),
    spare=("roberta.pooler.dense",),
)

_DISTIL = "distilbert.transformer.layer.{n}"
DISTILBERT = Names(
    prefix="distilbert.",
    encoder={
        "encoder.embed.tokens": ("distilbert.embeddings.word_embeddings",),
        "encoder.embed.positions": ("distilbert.embeddings.position_embeddings",),
        "encoder.embed.norm": ("distilbert.embeddings.LayerNorm",),
        "encoder.layers.{n}.attention.qkv": tuple(f"{_DISTIL}.attention.{part}_lin" for part in "qkv"),
        "encoder.layers.{n}.attention.out": (f"{_DISTIL}.attention.out_lin",),
        "encoder.layers.{n}.attention_norm": (f"{_DISTIL}.sa_layer_norm",),
        "encoder.layers.{n}.mlp.up": (f"{_DISTIL}.ffn.lin1",),
        "encoder.layers.{n}.mlp.down": (f"{_DISTIL}.ffn.lin2",),
        "encoder.layers.{n}.mlp_norm": (f"{_DISTIL}.output_layer_norm",),
    },
    heads=_heads(
        {"head": ("vocab_projector",), "head.dense": ("vocab_transform",), "head.norm": ("vocab_layer_norm",)},
        {},
        {"head.dense0": ("pre_classifier",), "head.out": ("classifier",)},
        token=_LABELS,
        span=_SPANS,
    ),
    copies={"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"},
    classes=_classes("DistilBert", paired=False),
)

_MODERN = "model.layers.{n}"
_MODERN_LABELS: Rows = {"head.dense0": ("head.dense",), "head.norm0": ("head.norm",), "head.out": ("classifier",)}
MODERNBERT = Names(
    prefix="model.",
    encoder={
        "encoder.embed.tokens": ("model.embeddings.tok_embeddings",),
        "encoder.embed.norm": ("model.embeddings.norm",),
        "encoder.layers.{n}.attention.qkv": (f"{_MODERN}.attn.Wqkv",),
        "encoder.layers.{n}.attention.out": (f"{_MODERN}.attn.Wo",),
        "encoder.layers.{n}.attention_norm": (f"{_MODERN}.attn_norm",),
        "encoder.layers.{n}.mlp.up": (f"{_MODERN}.mlp.Wi",),
        "encoder.layers.{n}.mlp.down": (f"{_MODERN}.mlp.Wo",),
        "encoder.layers.{n}.mlp_norm": (f"{_MODERN}.mlp_norm",),
        "encoder.final_norm": ("model.final_norm",),
    },
    heads=_heads(
        {"head": ("decoder",), "head.dense": ("head.dense",), "head.norm": ("head.norm",)},
        {},
        _MODERN_LABELS,
        token=_MODERN_LABELS,
        span=_MODERN_LABELS,
    ),
    copies={"decoder.weight": "model.embeddings.tok_embeddings.weight"},
    classes=_classes("ModernBert", paired=False),
)

ARCHITECTURES: Mapping[str, Names] = {
    "bert": BERT,
    "roberta": ROBERTA,
    "megatron-bert": MEGATRON_BERT,
    "distilbert": DISTILBERT,
    "modernbert": MODERNBERT,
}
