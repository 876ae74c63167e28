"""config.json and EncoderConfig, converted both ways: first the encoder's settings, then the head's."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from torch import nn

from lexome.errors import CheckpointError, UsageError
from lexome.models.config import EncoderConfig
from lexome.models.heads import HiddenLayers, SequenceHead, SpanHead, TokenHead
from lexome.models.key_mapping import ARCHITECTURES

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
            f'{where}: no "model_type", and "architectures" ({classes}) is not known. Add one of: {known}.',
            code="unknown-architecture",
            value=classes,
        )
    if model_type not in ARCHITECTURES:
        hint = "Load it with the transformers backend."
        if model_type == "mpnet":
            hint = (
                "Its attention has relative positions. Load it with the transformers backend, or convert it to a "
                "different model without them: `lexome convert-model --drop relative-positions`."
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
                "Load it with the transformers backend.",
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
    """The same encoder, with options that have no effect or that config.json does not store at their defaults."""
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
        return HiddenLayers(**{field: settings[CUSTOM_HEAD][key] for field, key in _HEAD_KEYS.items()})
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
        return HiddenLayers(1, activation=activation, dropout=dropout, norm=True, biases=biases)
    if architecture == "distilbert":
        if kind == "sequence":
            return HiddenLayers(1, activation="relu", dropout=settings.get("seq_classif_dropout", 0.2))
        return HiddenLayers(0, dropout=settings.get("dropout", 0.1))
    dropout = settings.get("classifier_dropout")
    if dropout is None:
        dropout = settings.get("hidden_dropout_prob", 0.1)
    return HiddenLayers(1 if kind == "sequence" else 0, activation="tanh", dropout=dropout)


def _same_layers(one: HiddenLayers, other: HiddenLayers) -> bool:
    """Whether two heads have the same layers, dropout aside."""
    return (not one.count and not other.count) or replace(one, dropout=0.0) == replace(other, dropout=0.0)
