"""config.json and EncoderConfig, converted both ways: first the encoder's settings, then the head's."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor, nn

from lexome.errors import CheckpointError, UsageError
from lexome.models.encoder import EncoderConfig
from lexome.models.heads import HiddenLayers, SequenceHead, SpanHead, TokenHead

# The kinds of model that a folder can hold: an encoder alone, or with one head.
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


Settings = dict[str, Any]


def architecture_of(settings: Mapping[str, Any], *, where: str = "config.json") -> str:
    """The architecture of a config.json: its model_type, or if that is missing, the one that its class belongs to."""
    known = ", ".join(ARCHITECTURES)
    model_type = settings.get("model_type")
    if model_type is None:
        classes = settings.get("architectures")
        for name in classes or ():
            for architecture, mapping in ARCHITECTURES.items():
                if name in mapping.classes.values():
                    return architecture
        raise CheckpointError(
            f'{where}: no "model_type", and no known class in "architectures" ({classes}). Add a "model_type", one of '
            f"{known}.",
            code="unknown-architecture",
            value=classes,
        )
    if model_type not in ARCHITECTURES:
        hint = 'Load it with backend="transformers".'
        if model_type == "mpnet":
            hint = (
                'Its attention has relative position biases. Load it with backend="transformers", or convert it to a '
                "model without them: `lexome convert-model CHECKPOINT FOLDER --drop relative-positions`."
            )
        raise CheckpointError(
            f"{where}: model_type is {model_type!r}; Lexome's encoder supports {known}. {hint}",
            code="unknown-architecture",
            value=model_type,
        )
    return str(model_type)


def read_config(settings: Mapping[str, Any], *, where: str = "config.json") -> EncoderConfig:
    """The encoder that a config.json describes; CheckpointError for settings that Lexome's encoder lacks."""
    architecture = architecture_of(settings, where=where)
    unsupported = {
        "position_embedding_type": settings.get("position_embedding_type", "absolute") != "absolute",
        "is_decoder": bool(settings.get("is_decoder", False)),
        "decoder_bias": not settings.get("decoder_bias", True),
    }
    for name, refused in unsupported.items():
        if refused:
            raise CheckpointError(
                f"{where}: {name} is {settings[name]!r}, which Lexome's encoder does not support. "
                'Load it with backend="transformers".',
                code="unsupported-setting",
                value=name,
            )
    try:
        if architecture == "modernbert":
            return _read_modernbert(settings)
        return _read_distilbert(settings) if architecture == "distilbert" else _read_bert(settings, architecture)
    except KeyError as error:
        key = error.args[0]
        raise CheckpointError(
            f"{where}: {key!r} is missing; {architecture} requires it.", code="missing-key", value=key
        ) from None
    except (UsageError, CheckpointError) as error:
        raise CheckpointError(f"{where}: {error}", code=error.code, value=error.value) from None
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{where}: {error}", code="unsupported-setting") from None


def write_config(config: EncoderConfig, architecture: str) -> Settings:
    """The encoder's part of config.json; CheckpointError if the architecture cannot represent the encoder."""
    if architecture not in ARCHITECTURES:
        raise CheckpointError(
            f"architecture {architecture!r}; expected one of {', '.join(ARCHITECTURES)}.",
            code="unknown-architecture",
            value=architecture,
        )
    if architecture == "modernbert":
        written = _write_modernbert(config)
    else:
        written = _write_distilbert(config) if architecture == "distilbert" else _write_bert(config, architecture)
    settings = {"model_type": architecture, "tie_word_embeddings": True, **written}
    before, after = _canonical(config), _canonical(read_config(settings))
    differing = [field.name for field in fields(config) if getattr(before, field.name) != getattr(after, field.name)]
    if differing:
        listed = "; ".join(f"{n} = {getattr(before, n)} (it would be {getattr(after, n)})" for n in differing)
        raise CheckpointError(
            f"a {architecture} folder cannot represent {listed}. Change the model, or choose another architecture.",
            code="not-representable",
            value=differing[0],
        )
    return settings


def matching_architecture(config: EncoderConfig) -> str:
    """The first architecture that can represent an encoder."""
    for architecture in ARCHITECTURES:
        try:
            write_config(config, architecture)
        except CheckpointError:
            continue
        return architecture
    raise CheckpointError(f"no architecture ({', '.join(ARCHITECTURES)}) matches {config}", code="not-representable")


def _canonical(config: EncoderConfig) -> EncoderConfig:
    """The configuration with options at their defaults that have no effect or that config.json does not store."""
    default = {field.name: field.default for field in fields(config)}
    neutral: dict[str, Any] = {"scaled_init": default["scaled_init"]}
    if config.positions != "rotary":
        neutral |= {name: default[name] for name in ("rotary_base", "local_rotary_base")}
    elif config.local_rotary_base is None:
        neutral["local_rotary_base"] = config.rotary_base
    if config.local_window is None or config.layers == 1:
        neutral |= {"global_every": 1, "local_window": None}
    elif config.global_every > config.layers:
        # Only the first layer is global, whatever the interval.
        neutral["global_every"] = config.layers
    return replace(config, **neutral)


# Activations: Hugging Face's names to Lexome's. Three of them are the same tanh approximation.
_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}
_HF_ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu", "silu": "silu", "tanh": "tanh"}

# Fields of EncoderConfig with the same meaning in config.json: their key there, and its default unless required.
_REQUIRED = object()
_SIZES: dict[str, tuple[str, Any]] = {
    "vocab": ("vocab_size", _REQUIRED),
    "layers": ("num_hidden_layers", _REQUIRED),
    "hidden_size": ("hidden_size", _REQUIRED),
    "heads": ("num_attention_heads", _REQUIRED),
    "intermediate_size": ("intermediate_size", _REQUIRED),
}
_BERT_KEYS = {
    **_SIZES,
    "segments": ("type_vocab_size", 2),
    "norm_eps": ("layer_norm_eps", 1e-12),
    "dropout": ("hidden_dropout_prob", 0.1),
    "attention_dropout": ("attention_probs_dropout_prob", 0.1),
    "initial_std": ("initializer_range", 0.02),
}
_DISTILBERT_KEYS = {
    "vocab": ("vocab_size", _REQUIRED),
    "layers": ("n_layers", _REQUIRED),
    "hidden_size": ("dim", _REQUIRED),
    "heads": ("n_heads", _REQUIRED),
    "intermediate_size": ("hidden_dim", _REQUIRED),
    "max_tokens": ("max_position_embeddings", _REQUIRED),
    "dropout": ("dropout", 0.1),
    "attention_dropout": ("attention_dropout", 0.1),
    "initial_std": ("initializer_range", 0.02),
}
_MODERNBERT_KEYS = {
    **_SIZES,
    "max_tokens": ("max_position_embeddings", 8192),
    "norm_biases": ("norm_bias", False),
    "head_biases": ("classifier_bias", False),
    "norm_eps": ("norm_eps", 1e-5),
    "attention_dropout": ("attention_dropout", 0.0),
    "initial_std": ("initializer_range", 0.02),
}


def _read_keys(settings: Mapping[str, Any], keys: Mapping[str, tuple[str, Any]]) -> Settings:
    return {
        field: settings[key] if default is _REQUIRED else settings.get(key, default)
        for field, (key, default) in keys.items()
    }


def _write_keys(config: EncoderConfig, keys: Mapping[str, tuple[str, Any]]) -> Settings:
    return {key: getattr(config, field) for field, (key, _) in keys.items()}


def _activation(name: Any) -> str:
    if name not in _ACTIVATIONS:
        raise CheckpointError(
            f"activation {name!r}; expected one of {', '.join(_ACTIVATIONS)}.", code="unknown-activation", value=name
        )
    return _ACTIVATIONS[name]


def _read_bert(settings: Mapping[str, Any], architecture: str) -> EncoderConfig:
    """Also RoBERTa's and Megatron-BERT's."""
    offset = int(settings.get("pad_token_id", 1)) + 1 if architecture == "roberta" else 0
    pre_norm = architecture == "megatron-bert"
    activation = _activation(settings.get("hidden_act", "gelu"))
    return EncoderConfig(
        **_read_keys(settings, _BERT_KEYS),
        max_tokens=settings["max_position_embeddings"] - offset,
        position_offset=offset,
        norm="pre" if pre_norm else "post",
        embedding_norm=not pre_norm,
        final_norm=pre_norm,
        activation=activation,
        # RoBERTa's head uses gelu whatever its layers use.
        head_activation="gelu" if architecture == "roberta" else activation,
    )


def _write_bert(config: EncoderConfig, architecture: str) -> Settings:
    roberta = architecture == "roberta"
    if not config.segments:
        raise CheckpointError(
            f"a {architecture} folder needs segment embeddings; the model has none.",
            code="not-representable",
            value="segments",
        )
    if roberta and not config.position_offset:
        raise CheckpointError(
            "a roberta folder needs position_offset = 1 + the id of the padding token; got 0.",
            code="not-representable",
            value="position_offset",
        )
    return {
        **_write_keys(config, _BERT_KEYS),
        "max_position_embeddings": config.max_tokens + config.position_offset,
        "hidden_act": _HF_ACTIVATIONS[config.activation],
        "position_embedding_type": "absolute",
        **({"pad_token_id": config.position_offset - 1} if roberta else {}),
    }


def _read_distilbert(settings: Mapping[str, Any]) -> EncoderConfig:
    activation = _activation(settings.get("activation", "gelu"))
    return EncoderConfig(
        **_read_keys(settings, _DISTILBERT_KEYS), segments=0, activation=activation, head_activation=activation
    )


def _write_distilbert(config: EncoderConfig) -> Settings:
    return {
        **_write_keys(config, _DISTILBERT_KEYS),
        "sinusoidal_pos_embds": False,
        "activation": _HF_ACTIVATIONS[config.activation],
    }


def _read_modernbert(settings: Mapping[str, Any]) -> EncoderConfig:
    biases, dropout = settings.get("attention_bias", False), settings.get("mlp_dropout", 0.0)
    for one, other, default in (("attention_bias", "mlp_bias", False), ("mlp_dropout", "embedding_dropout", 0.0)):
        if settings.get(one, default) != settings.get(other, default):
            raise CheckpointError(
                f"{one} and {other} differ; expected the same value.", code="unsupported-setting", value=one
            )
    every = _global_every(settings)
    global_base, local_base = _rotary_bases(settings)
    return EncoderConfig(
        **_read_keys(settings, _MODERNBERT_KEYS),
        norm="pre",
        positions="rotary",
        segments=0,
        activation=_activation(settings.get("hidden_activation", "gelu")),
        head_activation=_activation(settings.get("classifier_activation", "gelu")),
        gated=True,
        biases=biases,
        first_norm=False,
        final_norm=True,
        # transformers counts both sides together.
        local_window=None if every == 1 else settings.get("local_attention", 128) // 2,
        global_every=every,
        rotary_base=global_base,
        local_rotary_base=local_base,
        dropout=dropout,
    )


def _rotary_bases(settings: Mapping[str, Any]) -> tuple[float, float]:
    """The rotary bases of global and local layers, from the newer keys or the older ones."""
    rope = settings.get("rope_parameters") or {}
    global_rope, local_rope = rope.get("full_attention") or {}, rope.get("sliding_attention") or {}
    if any(part.get("rope_type", "default") != "default" for part in (global_rope, local_rope)):
        raise CheckpointError(
            "rope_type is not supported; expected default.", code="unsupported-setting", value="rope_type"
        )
    old_global, old_local = settings.get("global_rope_theta", 160_000.0), settings.get("local_rope_theta")
    # An explicit null among the older keys means the base of the global layers.
    old_local = old_global if "local_rope_theta" in settings and old_local is None else old_local or 10_000.0
    return global_rope.get("rope_theta", old_global), local_rope.get("rope_theta", old_local)


def _global_every(settings: Mapping[str, Any]) -> int:
    """The interval of global layers, from the list of layer types that newer versions write, or from the number."""
    types, layers = settings.get("layer_types"), settings["num_hidden_layers"]
    if types is None:
        return int(settings.get("global_attn_every_n_layers", 3))
    for every in range(1, layers + 1):
        if types == _layer_types(layers, every):
            return every
    raise CheckpointError(
        f"layer_types {types}; expected full_attention in every n-th layer, starting with the first.",
        code="unsupported-setting",
        value="layer_types",
    )


def _layer_types(layers: int, every: int) -> list[str]:
    return ["sliding_attention" if layer % every else "full_attention" for layer in range(layers)]


def _write_modernbert(config: EncoderConfig) -> Settings:
    every = config.global_every if config.local_window is not None else 1
    local_base = config.local_rotary_base if config.local_rotary_base is not None else config.rotary_base
    return {
        **_write_keys(config, _MODERNBERT_KEYS),
        "hidden_activation": _HF_ACTIVATIONS[config.activation],
        "classifier_activation": _HF_ACTIVATIONS[config.head_activation],
        "attention_bias": config.biases,
        "mlp_bias": config.biases,
        "decoder_bias": True,
        "local_attention": 2 * (config.local_window or 64),
        # The older keys and the newer ones, for all versions of transformers.
        "global_attn_every_n_layers": every,
        "layer_types": _layer_types(config.layers, every),
        "global_rope_theta": config.rotary_base,
        "local_rope_theta": local_base,
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": config.rotary_base},
            "sliding_attention": {"rope_type": "default", "rope_theta": local_base},
        },
        "mlp_dropout": config.dropout,
        "embedding_dropout": config.dropout,
    }


# A head that no class of transformers implements is stored under this name, in config.json and as a prefix of its keys.
# transformers then loads the encoder and reports the head's weights as unused.
CUSTOM_HEAD = "lexome_head"

# Fields of HiddenLayers, and their keys in config.json.
_HEAD_KEYS = {
    "count": "count",
    "hidden_size": "width",
    "activation": "activation",
    "dropout": "dropout",
    "norm": "norm",
    "biases": "biases",
    "input_dropout": "input_dropout",
}


def read_labels(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """The labels in order; LABEL_0, LABEL_1, ... if config.json has no names for them, as in transformers."""
    id2label = settings.get("id2label")
    if id2label is None:
        return tuple(f"LABEL_{number}" for number in range(int(settings.get("num_labels", 2))))
    labels = {int(number): str(label) for number, label in id2label.items()}
    if sorted(labels) != list(range(len(labels))):
        raise CheckpointError(
            f"config.json: id2label has keys {sorted(labels)}; expected 0, 1, ...",
            code="bad-labels",
            value=sorted(labels),
        )
    return tuple(labels[number] for number in range(len(labels)))


def read_hidden_layers(settings: Mapping[str, Any], architecture: str, kind: str) -> HiddenLayers:
    """The hidden layers of the head: as saved, or those of transformers' class for this kind."""
    if _has_custom_head(settings, kind):
        saved = settings[CUSTOM_HEAD]
        return HiddenLayers(**{field: saved[key] for field, key in _HEAD_KEYS.items() if key in saved})
    return _hf_hidden_layers(settings, architecture, kind)


def read_pooling(settings: Mapping[str, Any], kind: str) -> str:
    """The pooling of a sequence head."""
    if _has_custom_head(settings, kind):
        return str(settings[CUSTOM_HEAD]["pooling"])
    return "mean" if settings.get("classifier_pooling") == "mean" else "first"


def is_hf_head(
    hidden: HiddenLayers, settings: Mapping[str, Any], architecture: str, *, kind: str, pooling: str
) -> bool:
    """Whether transformers has a class for such a head, and the folder has no custom head."""
    same_pooling = kind != "sequence" or pooling == "first" or architecture == "modernbert"
    same_layers = _same_layers(hidden, _hf_hidden_layers(settings, architecture, kind))
    return same_pooling and not _has_custom_head(settings, kind) and same_layers


def is_custom_head(hidden: HiddenLayers, settings: Mapping[str, Any], *, kind: str, pooling: str) -> bool:
    """Whether the folder has exactly this custom head."""
    return (
        _has_custom_head(settings, kind)
        and _same_layers(hidden, read_hidden_layers(settings, "", kind))
        and pooling == read_pooling(settings, kind)
    )


def build_head(
    config: EncoderConfig, kind: str, *, labels: int, hidden: HiddenLayers | None = None, pooling: str = "first"
) -> nn.Module:
    """A new token, sequence or span head, initialized from torch's generator."""
    if kind == "span":
        return SpanHead(config, hidden=hidden)
    if not labels:
        raise CheckpointError(
            f"a {kind} head needs labels; pass them, or a config.json with id2label.", code="missing-labels", value=kind
        )
    if kind == "token":
        return TokenHead(config, labels, hidden=hidden)
    return SequenceHead(config, labels, hidden=hidden, pooling=pooling)


def head_settings(head: nn.Module, architecture: str, kind: str, labels: Sequence[str]) -> Settings:
    """The head's part of config.json."""
    hidden, out = head.hidden, head.out
    assert isinstance(hidden, HiddenLayers)
    assert isinstance(out, nn.Linear)
    names = tuple(labels) or tuple(f"LABEL_{number}" for number in range(out.out_features))
    if len(names) != out.out_features:
        raise CheckpointError(
            f"{len(names)} labels for a head with {out.out_features} outputs.", code="label-mismatch", value=len(names)
        )
    settings: Settings = {
        "id2label": {str(number): label for number, label in enumerate(names)},
        "label2id": {label: number for number, label in enumerate(names)},
    }
    pooling = _pooling(head)
    if architecture == "modernbert":
        settings |= {"classifier_pooling": "mean" if pooling == "mean" else "cls", "classifier_bias": hidden.biases}
    if architecture != "distilbert":
        settings["classifier_dropout"] = hidden.dropout
    elif kind == "sequence":
        settings["seq_classif_dropout"] = hidden.dropout
    if not is_hf_head(hidden, settings, architecture, kind=kind, pooling=pooling):
        settings[CUSTOM_HEAD] = custom_head_settings(head, kind)
    return settings


def custom_head_settings(head: nn.Module, kind: str) -> Settings:
    """The value of CUSTOM_HEAD in config.json."""
    layers = {key: getattr(head.hidden, field) for field, key in _HEAD_KEYS.items()}
    return {"kind": kind, "pooling": _pooling(head), **layers}


def describe_head(head: nn.Module) -> str:
    """The layers and the pooling of a head, such as "2 hidden layers, mean pooling"."""
    assert isinstance(head.hidden, HiddenLayers)
    count = head.hidden.count
    parts = [f"{count} hidden layer{'s' if count != 1 else ''}" if count else "no hidden layers"]
    if isinstance(head, SequenceHead):
        parts.append("mean pooling" if head.pooling == "mean" else "first-token pooling")
    return ", ".join(parts)


def _has_custom_head(settings: Mapping[str, Any], kind: str) -> bool:
    return CUSTOM_HEAD in settings and settings[CUSTOM_HEAD].get("kind") == kind


def _pooling(head: nn.Module) -> str:
    return head.pooling if isinstance(head, SequenceHead) else "first"


def _hf_hidden_layers(settings: Mapping[str, Any], architecture: str, kind: str) -> HiddenLayers:
    """The hidden layers of transformers' class for this kind of head."""
    if architecture == "modernbert":
        activation = {"gelu_new": "gelu_tanh"}.get(settings.get("classifier_activation", "gelu"), "gelu")
        biases = bool(settings.get("classifier_bias", False))
        dropout = settings.get("classifier_dropout", 0.0)
        return HiddenLayers(1, activation=activation, dropout=dropout, norm=True, biases=biases, input_dropout=0.0)
    if architecture == "distilbert":
        if kind == "sequence":
            dropout = settings.get("seq_classif_dropout", 0.2)
            return HiddenLayers(1, activation="relu", dropout=dropout, input_dropout=0.0)
        return HiddenLayers(0, dropout=settings.get("dropout", 0.1))
    dropout = settings.get("classifier_dropout")
    if dropout is None:
        dropout = settings.get("hidden_dropout_prob", 0.1)
    # BERT's pooler has no dropout before it, RoBERTa's classification head has.
    input_dropout = None if architecture == "roberta" else 0.0
    layers = 1 if kind == "sequence" else 0
    return HiddenLayers(layers, activation="tanh", dropout=dropout, input_dropout=input_dropout)


def _same_layers(one: HiddenLayers, other: HiddenLayers) -> bool:
    """Whether two heads have the same layers, dropout aside."""
    without_dropout = [replace(layers, dropout=0.0, input_dropout=None) for layers in (one, other)]
    return (not one.count and not other.count) or without_dropout[0] == without_dropout[1]
