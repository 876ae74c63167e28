"""State-dict keys of each architecture: Lexome's and Hugging Face's, mapped both ways as a bijection.

H heads, K head size, D hidden size
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from lexome.errors import CheckpointError

# The kinds of model that a folder can hold: an encoder alone, or with the head of one use.
KINDS = ("encoder", "masked", "paired", "token", "sequence", "span")

# Those with a masked-language-modeling head, whose output matrix is the token embedding.
LM_KINDS = ("masked", "paired")

# Constant buffers (0, 1, 2, ... or zeros) that older versions of transformers saved among the weights.
IGNORED_BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids", "rotary_emb.inv_freq")

# Layer norms in checkpoints that were ported from TensorFlow.
LEGACY_SUFFIXES = {".gamma": ".weight", ".beta": ".bias"}


@dataclass(frozen=True, slots=True)
class KeyMapping:
    """The modules of one architecture, Lexome's names to Hugging Face's. {n} is the index of a layer.

    encoder   query, key and value map to three modules, or to one if the architecture stacks them
    heads     the modules of each kind of head
    tied      keys that repeat another key's weights and may be absent
    classes   the class in transformers for each kind
    optional  modules that belong to the architecture but to no kind
    """

    prefix: str
    encoder: Mapping[str, tuple[str, ...]]
    heads: Mapping[str, Mapping[str, tuple[str, ...]]]
    tied: Mapping[str, str]
    classes: Mapping[str, str]
    optional: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MappedWeights:
    """Weights under Lexome's keys, those of its keys that are missing, and the Hugging Face keys that are not used."""

    weights: dict[str, Tensor]
    missing: tuple[str, ...]
    unused: tuple[str, ...]


def hf_names(mapping: KeyMapping, kind: str, keys: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Hugging Face's keys for each of Lexome's, in a model of this kind; CheckpointError for an unmapped key."""
    modules = {**mapping.encoder, **mapping.heads.get(kind, {})}
    names = {}
    for key in keys:
        module, _, suffix = key.rpartition(".")
        layer = next((part for part in module.split(".") if part.isdigit()), "")
        hf_modules = modules.get(module.replace(f".{layer}.", ".{n}.", 1) if layer else module)
        if hf_modules is None:
            raise CheckpointError(
                f"the weight {key!r} ({kind}) has no name in Hugging Face's format.", code="unmapped-weight", value=key
            )
        names[key] = tuple(f"{hf_module.format(n=layer)}.{suffix}" for hf_module in hf_modules)
    return names


def to_hf(weights: Mapping[str, Tensor], mapping: KeyMapping, *, kind: str, heads: int) -> dict[str, Tensor]:
    """A state dict under Hugging Face's keys, query, key and value split. An encoder alone has no prefix."""
    hf_weights: dict[str, Tensor] = {}
    for key, names in hf_names(mapping, kind, weights).items():
        tensors = [weights[key].contiguous()]
        if ".attention.qkv." in key:
            parts = split_qkv(weights[key], heads=heads)
            tensors = list(parts) if len(names) == len(parts) else [torch.cat(parts)]
        hf_weights.update(zip(names, tensors, strict=True))
    if kind == "encoder":
        return {name.removeprefix(mapping.prefix): tensor for name, tensor in hf_weights.items()}
    return hf_weights


def from_hf(
    weights: Mapping[str, Tensor], mapping: KeyMapping, *, kind: str, heads: int, keys: Iterable[str]
) -> MappedWeights:
    """A Hugging Face state dict under Lexome's `keys`; CheckpointError for a key unknown to the architecture.

    Missing weights are reported and left to the caller. Constant buffers are ignored.
    """
    expected = hf_names(mapping, kind, keys)
    hf_weights = _normalize_keys(weights, mapping)
    tied = mapping.tied if kind in LM_KINDS else {}
    _resolve_tied(hf_weights, tied)
    used = {name for names in expected.values() for name in names}
    unused = sorted(hf_weights.keys() - used - tied.keys())
    # The folder may contain heads of other kinds. An unused encoder weight is a surplus layer or bias.
    unknown = [name for name in unused if not _is_head(name, mapping)]
    if unknown:
        raise CheckpointError(
            f"{len(unknown)} unknown weights, first {unknown[0]!r}; expected those of {mapping.classes[kind]} as "
            "config.json describes it, and of its other heads.",
            code="unknown-weights",
            value=unknown[0],
        )
    mapped, missing = {}, []
    for key, names in expected.items():
        lacking = [name for name in names if name not in hf_weights]
        if not lacking:
            tensors = [hf_weights[name] for name in names]
            mapped[key] = _fuse(tensors, heads) if ".attention.qkv." in key else tensors[0]
        elif len(lacking) < len(names):
            raise CheckpointError(
                f"{lacking[0]!r} is missing, but not the rest of query, key and value. The file is damaged.",
                code="missing-weights",
                value=lacking[0],
            )
        else:
            missing.append(key)
    return MappedWeights(mapped, tuple(missing), tuple(unused))


def fuse_qkv(query: Tensor, key: Tensor, value: Tensor, *, heads: int) -> Tensor:
    """One matrix (or bias) from three, (D, ...) each, with rows ordered head by head as Attention expects."""
    parts_HK = [part.unflatten(0, (heads, -1)) for part in (query, key, value)]  # type: ignore[no-untyped-call]
    return torch.stack(parts_HK, dim=1).flatten(0, 2)


def split_qkv(qkv: Tensor, *, heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value of a fused matrix; the inverse of fuse_qkv."""
    parts_H3K = qkv.unflatten(0, (heads, 3, -1))  # type: ignore[no-untyped-call]
    query, key, value = (part.flatten(0, 1).contiguous() for part in parts_H3K.unbind(1))
    return query, key, value


def _fuse(parts: list[Tensor], heads: int) -> Tensor:
    query, key, value = parts if len(parts) == 3 else parts[0].chunk(3)
    return fuse_qkv(query, key, value, heads=heads)


def _normalize_keys(weights: Mapping[str, Tensor], mapping: KeyMapping) -> dict[str, Tensor]:
    """The weights with the prefix and today's suffixes, without constant buffers."""
    normalized = {}
    for name, tensor in weights.items():
        for old, new in LEGACY_SUFFIXES.items():
            if name.endswith(old):
                name = name.removesuffix(old) + new
        if name.endswith(IGNORED_BUFFERS):
            continue
        bare = not _is_known(name, mapping) and _is_known(mapping.prefix + name, mapping)
        normalized[mapping.prefix + name if bare else name] = tensor
    return normalized


def _is_known(name: str, mapping: KeyMapping) -> bool:
    """Whether a Hugging Face key belongs to the architecture, in any kind of model."""
    module = ".".join("{n}" if part.isdigit() else part for part in name.split(".")[:-1])
    return _is_head(name, mapping) or any(module in names for names in mapping.encoder.values())


def _is_head(name: str, mapping: KeyMapping) -> bool:
    module = name.rpartition(".")[0]
    if name in mapping.tied or module in mapping.optional:
        return True
    return any(module in names for head in mapping.heads.values() for names in head.values())


def _resolve_tied(weights: dict[str, Tensor], tied: Mapping[str, str]) -> None:
    """Move a tied weight that was saved under its second key only; raise if both were saved and differ."""
    for second, first in tied.items():
        if second in weights and not torch.equal(weights[second], weights.setdefault(first, weights[second])):
            raise CheckpointError(
                f"{second!r} differs from {first!r}; expected tied weights, as in all of Lexome's models. "
                "Load a model with an untied output matrix with the transformers backend.",
                code="untied-embeddings",
                value=second,
            )


# The tables

Modules = dict[str, tuple[str, ...]]


def _heads(
    masked: Modules, pair: Modules, sequence: Modules, *, token: Modules, span: Modules
) -> Mapping[str, Modules]:
    paired = {"paired": {**masked, **pair}} if pair else {}
    return {"masked": masked, **paired, "sequence": sequence, "token": token, "span": span}


def _classes(stem: str, *, paired: bool) -> dict[str, str]:
    """The classes of transformers, which are named alike for all architectures."""
    classes = {
        "encoder": f"{stem}Model",
        "masked": f"{stem}ForMaskedLM",
        "token": f"{stem}ForTokenClassification",
        "sequence": f"{stem}ForSequenceClassification",
        "span": f"{stem}ForQuestionAnswering",
    }
    return {**classes, "paired": f"{stem}ForPreTraining"} if paired else classes


def _bert_layers(prefix: str, *, norms: tuple[str, str]) -> Modules:
    """The modules that BERT, RoBERTa and Megatron-BERT share; their norms are named differently."""
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


_POST_NORMS = ("attention.output.LayerNorm", "output.LayerNorm")
_PRE_NORMS = ("attention.ln", "ln")
_CLASSIFIER: Modules = {"head.out": ("classifier",)}
_QA: Modules = {"head.out": ("qa_outputs",)}
_POOLED_CLASSIFIER: Modules = {"head.dense0": ("bert.pooler.dense",), "head.out": ("classifier",)}
_PAIR: Modules = {"pair.pool": ("bert.pooler.dense",), "pair.out": ("cls.seq_relationship",)}
_BERT_MLM: Modules = {
    "head": ("cls.predictions",),
    "head.dense": ("cls.predictions.transform.dense",),
    "head.norm": ("cls.predictions.transform.LayerNorm",),
}
_BERT_TIED = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}

BERT = KeyMapping(
    prefix="bert.",
    encoder={**_bert_layers("bert.", norms=_POST_NORMS), "encoder.embed.norm": ("bert.embeddings.LayerNorm",)},
    heads=_heads(_BERT_MLM, _PAIR, _POOLED_CLASSIFIER, token=_CLASSIFIER, span=_QA),
    tied=_BERT_TIED,
    classes=_classes("Bert", paired=True),
    optional=("bert.pooler.dense",),
)

MEGATRON_BERT = KeyMapping(
    prefix="bert.",
    encoder={**_bert_layers("bert.", norms=_PRE_NORMS), "encoder.final_norm": ("bert.encoder.ln",)},
    heads=_heads(_BERT_MLM, _PAIR, _POOLED_CLASSIFIER, token=_CLASSIFIER, span=_QA),
    tied=_BERT_TIED,
    classes=_classes("MegatronBert", paired=True),
    optional=("bert.pooler.dense",),
)

ROBERTA = KeyMapping(
    prefix="roberta.",
    encoder={**_bert_layers("roberta.", norms=_POST_NORMS), "encoder.embed.norm": ("roberta.embeddings.LayerNorm",)},
    heads=_heads(
        {"head": ("lm_head",), "head.dense": ("lm_head.dense",), "head.norm": ("lm_head.layer_norm",)},
        {},
        {"head.dense0": ("classifier.dense",), "head.out": ("classifier.out_proj",)},
        token=_CLASSIFIER,
        span=_QA,
    ),
    tied={
        "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    },
    classes=_classes("Roberta", paired=False),
    optional=("roberta.pooler.dense",),
)

_DISTIL = "distilbert.transformer.layer.{n}"
DISTILBERT = KeyMapping(
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
        token=_CLASSIFIER,
        span=_QA,
    ),
    tied={"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"},
    classes=_classes("DistilBert", paired=False),
)

_MODERN = "model.layers.{n}"
_MODERN_HEAD: Modules = {"head.dense0": ("head.dense",), "head.norm0": ("head.norm",), "head.out": ("classifier",)}
MODERNBERT = KeyMapping(
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
        _MODERN_HEAD,
        token=_MODERN_HEAD,
        span=_MODERN_HEAD,
    ),
    tied={"decoder.weight": "model.embeddings.tok_embeddings.weight"},
    classes=_classes("ModernBert", paired=False),
)

ARCHITECTURES: Mapping[str, KeyMapping] = {
    "bert": BERT,
    "roberta": ROBERTA,
    "megatron-bert": MEGATRON_BERT,
    "distilbert": DISTILBERT,
    "modernbert": MODERNBERT,
}
