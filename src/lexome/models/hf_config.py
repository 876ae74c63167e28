"""config.json and EncoderConfig, both ways."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from torch import nn

from lexome.errors import CheckpointError, UsageError
from lexome.models.config import EncoderConfig
from lexome.models.heads import HiddenLayers, SequenceHead, SpanHead, TokenHead
from lexome.models.names import ARCHITECTURES

# A head that no class of transformers has is kept under this name, in config.json and before its weights.
# transformers then loads the encoder and says which weights it did not use.
OWN = "lexome_head"
_FIELDS = ("count", "width", "activation", "dropout", "norm", "biases")


def labels_of(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """The labels in order. A folder without names for them has LABEL_0, LABEL_1, ..., as transformers gives them."""
    named = settings.get("id2label")
    if named is None:
        return tuple(f"LABEL_{number}" for number in range(int(settings.get("num_labels", 2))))
    by_number = {int(number): str(label) for number, label in named.items()}
    if sorted(by_number) != list(range(len(by_number))):
        raise CheckpointError(f"config.json: id2label numbers {sorted(by_number)}; expected 0, 1, 2, ...")
    return tuple(by_number[number] for number in range(len(by_number)))


def hidden_of(settings: Mapping[str, Any], architecture: str, kind: str) -> HiddenLayers:
    """The layers between the encoder and the last matrix: as saved, or as transformers has them for this kind."""
    if _own(settings, kind):
        return HiddenLayers(**{name: settings[OWN][name] for name in _FIELDS})
    return _theirs(settings, architecture, kind)


def pooling_of(settings: Mapping[str, Any], kind: str) -> str:
    """How a sequence head makes one vector of a sequence."""
    if _own(settings, kind):
        return str(settings[OWN]["pooling"])
    return "mean" if settings.get("classifier_pooling") == "mean" else "first"


def is_theirs(hidden: HiddenLayers, settings: Mapping[str, Any], architecture: str, *, kind: str, pooling: str) -> bool:
    """Whether transformers has a class for such a head, and the folder's head is not one of ours."""
    pooled_alike = kind != "sequence" or pooling == "first" or architecture == "modernbert"
    return pooled_alike and not _own(settings, kind) and _like(hidden, _theirs(settings, architecture, kind))


def is_own(hidden: HiddenLayers, settings: Mapping[str, Any], *, kind: str, pooling: str) -> bool:
    """Whether the folder holds just such a head, of the kind that transformers does not have."""
    return _own(settings, kind) and _like(hidden, hidden_of(settings, "", kind)) and pooling == settings[OWN]["pooling"]


def label_head(
    config: EncoderConfig, kind: str, *, labels: int, hidden: HiddenLayers | None = None, pooling: str = "first"
) -> nn.Module:
    """A new token, sequence or span head, its weights drawn from torch's generator."""
    if kind == "span":
        return SpanHead(config, hidden=hidden)
    if not labels:
        raise CheckpointError(f"a {kind} head needs its labels; none were given, and config.json has no id2label.")
    if kind == "token":
        return TokenHead(config, labels, hidden=hidden)
    return SequenceHead(config, labels, hidden=hidden, pooling=pooling)


def _own(settings: Mapping[str, Any], kind: str) -> bool:
    return OWN in settings and settings[OWN].get("kind") == kind


def settings_of(head: nn.Module, architecture: str, kind: str, labels: Sequence[str]) -> dict[str, Any]:
    """What config.json says about this head."""
    hidden = head.hidden
    assert isinstance(hidden, HiddenLayers)
    out = head.out
    assert isinstance(out, nn.Linear)
    names = tuple(labels) or tuple(f"LABEL_{number}" for number in range(out.out_features))
    if len(names) != out.out_features:
        raise CheckpointError(f"{len(names)} labels given for a head with {out.out_features}. Give one for each.")
    said: dict[str, Any] = {
        "id2label": {str(number): label for number, label in enumerate(names)},
        "label2id": {label: number for number, label in enumerate(names)},
    }
    pooling = _pooling(head)
    if architecture == "modernbert":
        said |= {"classifier_pooling": "mean" if pooling == "mean" else "cls", "classifier_bias": hidden.biases}
    dropout = {"distilbert": "seq_classif_dropout" if kind == "sequence" else "dropout"}
    if architecture != "distilbert" or kind == "sequence":
        said[dropout.get(architecture, "classifier_dropout")] = hidden.dropout
    if not is_theirs(hidden, said, architecture, kind=kind, pooling=pooling):
        said[OWN] = own_of(head, kind)
    return said


def own_of(head: nn.Module, kind: str) -> dict[str, Any]:
    """What config.json says under OWN about a head."""
    return {"kind": kind, "pooling": _pooling(head), **{name: getattr(head.hidden, name) for name in _FIELDS}}


def _pooling(head: nn.Module) -> str:
    return head.pooling if isinstance(head, SequenceHead) else "first"


def _theirs(settings: Mapping[str, Any], architecture: str, kind: str) -> HiddenLayers:
    """The layers of the class in transformers for this kind of head."""
    if architecture == "modernbert":
        shape = {"gelu_new": "gelu_tanh"}.get(settings.get("classifier_activation", "gelu"), "gelu")
        biases = bool(settings.get("classifier_bias", False))
        dropout = settings.get("classifier_dropout", 0.0)
        return HiddenLayers(1, activation=shape, dropout=dropout, norm=True, biases=biases)
    if architecture == "distilbert":
        if kind == "sequence":
            return HiddenLayers(1, activation="relu", dropout=settings.get("seq_classif_dropout", 0.2))
        return HiddenLayers(0, dropout=settings.get("dropout", 0.1))
    dropout = settings.get("classifier_dropout")
    if dropout is None:
        dropout = settings.get("hidden_dropout_prob", 0.1)
    return HiddenLayers(1 if kind == "sequence" else 0, activation="tanh", dropout=dropout)


def _like(one: HiddenLayers, other: HiddenLayers) -> bool:
    """Whether two heads have the same matrices and functions. How much they drop is not part of that."""
    if not one.count and not other.count:
        return True
    return (one.count, one.width, one.activation, one.norm, one.biases) == (
        other.count,
        other.width,
        other.activation,
        other.norm,
        other.biases,
    )


Settings = dict[str, Any]

# Theirs to ours. Three of their names are one function: the tanh approximation.
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
_THEIRS = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu", "silu": "silu", "tanh": "tanh"}

# How new weights are drawn is no part of Hugging Face's form.
_NOT_WRITTEN = ("scaled_init",)


def architecture_of(settings: Mapping[str, Any], *, where: str = "config.json") -> str:
    """The architecture a config.json names: its model_type, or where that is missing, the one its class belongs to."""
    known = ", ".join(ARCHITECTURES)
    model_type = settings.get("model_type")
    if model_type is None:
        for name in settings.get("architectures") or ():
            for architecture, names in ARCHITECTURES.items():
                if name in names.classes.values():
                    return architecture
        raise CheckpointError(
            f'{where}: no "model_type", and "architectures" ({settings.get("architectures")}) does not tell it. '
            f"Add one of: {known}."
        )
    if model_type == "mpnet":
        raise CheckpointError(
            f"{where}: model_type is 'mpnet', whose attention has relative positions; Lexome's own encoder has none. "
            "Load it through the transformers backend, or make another model of it that goes without them: `lexome "
            "convert-model --drop relative-positions`."
        )
    if model_type not in ARCHITECTURES:
        raise CheckpointError(
            f"{where}: model_type is {model_type!r}; Lexome's own encoder knows {known}. "
            "Others can be loaded through the transformers backend."
        )
    return str(model_type)


def read_config(settings: Mapping[str, Any], *, where: str = "config.json") -> EncoderConfig:
    """The encoder a config.json describes; CheckpointError where it asks for what our encoder does not do."""
    architecture = architecture_of(settings, where=where)
    _refuse_what_we_lack(settings, where)
    reader = {"distilbert": _read_distilbert, "modernbert": _read_modernbert}.get(architecture)
    try:
        return reader(settings) if reader else _read_bert(settings, architecture)
    except KeyError as error:
        raise CheckpointError(f"{where}: {error.args[0]!r} is missing; it is needed for {architecture}.") from None
    except (TypeError, ValueError, UsageError) as error:
        raise CheckpointError(f"{where}: {error}") from None


def write_config(config: EncoderConfig, architecture: str) -> Settings:
    """What config.json says about an encoder; CheckpointError where the architecture cannot be what config says."""
    if architecture not in ARCHITECTURES:
        raise CheckpointError(f"architecture {architecture!r}; expected one of {', '.join(ARCHITECTURES)}.")
    writer = {"distilbert": _write_distilbert, "modernbert": _write_modernbert}.get(architecture, _write_bert)
    settings = {"model_type": architecture, "tie_word_embeddings": True, **writer(config, architecture)}
    lost = _differences(config, read_config(settings))
    if lost:
        raise CheckpointError(
            f"a {architecture} folder cannot say: {'; '.join(lost)}. Change the model, or choose another architecture."
        )
    return settings


def natural_architecture(config: EncoderConfig) -> str:
    """The first architecture whose folder can hold this encoder."""
    for architecture in ARCHITECTURES:
        try:
            write_config(config, architecture)
        except CheckpointError:
            continue
        return architecture
    raise CheckpointError(f"no architecture ({', '.join(ARCHITECTURES)}) is like this: {config}")


def _differences(config: EncoderConfig, again: EncoderConfig) -> list[str]:
    config = _plain(config)
    return [
        f"{field.name} = {getattr(config, field.name)} (it would be {getattr(again, field.name)})"
        for field in fields(_plain(config))
        if getattr(config, field.name) != getattr(_plain(again), field.name)
    ]


def _plain(config: EncoderConfig) -> EncoderConfig:
    """The same encoder with what has no effect at its default."""
    default = {field.name: field.default for field in fields(config)}
    calm: dict[str, Any] = {name: default[name] for name in _NOT_WRITTEN}
    if config.positions != "rotary":
        calm |= {name: default[name] for name in ("rotary_base", "local_rotary_base")}
    elif config.local_rotary_base is None:
        calm["local_rotary_base"] = config.rotary_base
    if config.local_window is None or config.layers == 1:
        calm |= {"global_every": 1, "local_window": None}
    elif config.global_every > config.layers:
        # The first layer alone sees all, as it does where every last one is reached.
        calm["global_every"] = config.layers
    return replace(config, **calm)


def _refuse_what_we_lack(settings: Mapping[str, Any], where: str) -> None:
    wrong = {
        "position_embedding_type": settings.get("position_embedding_type", "absolute") != "absolute",
        "is_decoder": bool(settings.get("is_decoder", False)),
        "decoder_bias": not settings.get("decoder_bias", True),
    }
    for name, refused in wrong.items():
        if refused:
            raise CheckpointError(
                f"{where}: {name} is {settings[name]!r}, which Lexome's encoder does not do. "
                "Load it through the transformers backend."
            )


def _activation(name: Any) -> str:
    if name not in _ACTIVATIONS:
        raise ValueError(f"activation {name!r}; known are {', '.join(_ACTIVATIONS)}.")
    return _ACTIVATIONS[name]


def _read_bert(settings: Mapping[str, Any], architecture: str) -> EncoderConfig:
    offset = int(settings.get("pad_token_id", 1)) + 1 if architecture == "roberta" else 0
    pre = architecture == "megatron-bert"
    shape = _activation(settings.get("hidden_act", "gelu"))
    return EncoderConfig(
        vocab=settings["vocab_size"],
        layers=settings["num_hidden_layers"],
        width=settings["hidden_size"],
        heads=settings["num_attention_heads"],
        inner=settings["intermediate_size"],
        max_tokens=settings["max_position_embeddings"] - offset,
        position_offset=offset,
        norm="pre" if pre else "post",
        embedding_norm=not pre,
        final_norm=pre,
        segments=settings.get("type_vocab_size", 2),
        activation=shape,
        # RoBERTa's head has gelu whatever its layers have.
        head_activation="gelu" if architecture == "roberta" else shape,
        norm_eps=settings.get("layer_norm_eps", 1e-12),
        dropout=settings.get("hidden_dropout_prob", 0.1),
        attention_dropout=settings.get("attention_probs_dropout_prob", 0.1),
        initial_std=settings.get("initializer_range", 0.02),
    )


def _write_bert(config: EncoderConfig, architecture: str) -> Settings:
    roberta = architecture == "roberta"
    if not config.segments:
        raise CheckpointError(f"a {architecture} folder needs one kind of segment or more, and the model has none.")
    if roberta and not config.position_offset:
        raise CheckpointError("a roberta folder needs position_offset = 1 + the id of the padding token; seen 0.")
    pad = {"pad_token_id": config.position_offset - 1} if roberta else {}
    return {
        "vocab_size": config.vocab,
        "num_hidden_layers": config.layers,
        "hidden_size": config.width,
        "num_attention_heads": config.heads,
        "intermediate_size": config.inner,
        "max_position_embeddings": config.max_tokens + config.position_offset,
        "type_vocab_size": config.segments,
        "hidden_act": _THEIRS[config.activation],
        "layer_norm_eps": config.norm_eps,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "initializer_range": config.initial_std,
        "position_embedding_type": "absolute",
        **pad,
    }


def _read_distilbert(settings: Mapping[str, Any]) -> EncoderConfig:
    shape = _activation(settings.get("activation", "gelu"))
    return EncoderConfig(
        vocab=settings["vocab_size"],
        layers=settings["n_layers"],
        width=settings["dim"],
        heads=settings["n_heads"],
        inner=settings["hidden_dim"],
        max_tokens=settings["max_position_embeddings"],
        segments=0,
        activation=shape,
        head_activation=shape,
        dropout=settings.get("dropout", 0.1),
        attention_dropout=settings.get("attention_dropout", 0.1),
        initial_std=settings.get("initializer_range", 0.02),
    )


def _write_distilbert(config: EncoderConfig, architecture: str) -> Settings:
    return {
        "vocab_size": config.vocab,
        "n_layers": config.layers,
        "dim": config.width,
        "n_heads": config.heads,
        "hidden_dim": config.inner,
        "max_position_embeddings": config.max_tokens,
        "sinusoidal_pos_embds": False,
        "activation": _THEIRS[config.activation],
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "initializer_range": config.initial_std,
    }


def _read_modernbert(settings: Mapping[str, Any]) -> EncoderConfig:
    layers = settings["num_hidden_layers"]
    biases = settings.get("attention_bias", False)
    if biases != settings.get("mlp_bias", False):
        raise ValueError("attention_bias and mlp_bias differ; expected both or neither.")
    dropout = settings.get("mlp_dropout", 0.0)
    if dropout != settings.get("embedding_dropout", 0.0):
        raise ValueError("mlp_dropout and embedding_dropout differ; expected one value for both.")
    every = _global_every(settings, layers)
    global_base, local_base = _rotary_bases(settings)
    return EncoderConfig(
        vocab=settings["vocab_size"],
        layers=layers,
        width=settings["hidden_size"],
        heads=settings["num_attention_heads"],
        inner=settings["intermediate_size"],
        max_tokens=settings.get("max_position_embeddings", 8192),
        norm="pre",
        positions="rotary",
        segments=0,
        activation=_activation(settings.get("hidden_activation", "gelu")),
        head_activation=_activation(settings.get("classifier_activation", "gelu")),
        gated=True,
        biases=biases,
        norm_biases=settings.get("norm_bias", False),
        head_biases=settings.get("classifier_bias", False),
        norm_eps=settings.get("norm_eps", 1e-5),
        first_norm=False,
        final_norm=True,
        # Their window is both sides together.
        local_window=None if every == 1 else settings.get("local_attention", 128) // 2,
        global_every=every,
        rotary_base=global_base,
        local_rotary_base=local_base,
        dropout=dropout,
        attention_dropout=settings.get("attention_dropout", 0.0),
        initial_std=settings.get("initializer_range", 0.02),
    )


def _rotary_bases(settings: Mapping[str, Any]) -> tuple[float, float]:
    """The bases of global and of local layers, under the newer names or the older ones."""
    rope = settings.get("rope_parameters") or {}
    global_rope, local_rope = rope.get("full_attention") or {}, rope.get("sliding_attention") or {}
    if any(turn.get("rope_type", "default") != "default" for turn in (global_rope, local_rope)):
        raise ValueError("rope_type other than default is not known.")
    old_global, old_local = settings.get("global_rope_theta", 160_000.0), settings.get("local_rope_theta")
    # Where the older form says null, local layers have the base of the global ones.
    old_local = old_global if "local_rope_theta" in settings and old_local is None else old_local or 10_000.0
    return global_rope.get("rope_theta", old_global), local_rope.get("rope_theta", old_local)


def _global_every(settings: Mapping[str, Any], layers: int) -> int:
    """How often a layer sees all; from the list of layer types, which newer versions write, or from the number."""
    types = settings.get("layer_types")
    if types is None:
        return int(settings.get("global_attn_every_n_layers", 3))
    for every in range(1, layers + 1):
        if types == _layer_types(layers, every):
            return every
    raise ValueError(f"layer_types {types} are not full_attention for every n-th layer from the first on.")


def _layer_types(layers: int, every: int) -> list[str]:
    return ["sliding_attention" if number % every else "full_attention" for number in range(layers)]


def _write_modernbert(config: EncoderConfig, architecture: str) -> Settings:
    every = config.global_every if config.local_window is not None else 1
    local_base = config.local_rotary_base if config.local_rotary_base is not None else config.rotary_base
    return {
        "vocab_size": config.vocab,
        "num_hidden_layers": config.layers,
        "hidden_size": config.width,
        "num_attention_heads": config.heads,
        "intermediate_size": config.inner,
        "max_position_embeddings": config.max_tokens,
        "hidden_activation": _THEIRS[config.activation],
        "classifier_activation": _THEIRS[config.head_activation],
        "attention_bias": config.biases,
        "mlp_bias": config.biases,
        "norm_bias": config.norm_biases,
        "classifier_bias": config.head_biases,
        "decoder_bias": True,
        "norm_eps": config.norm_eps,
        "local_attention": 2 * (config.local_window or 64),
        # The older names and the newer ones, for either kind of transformers.
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
        "attention_dropout": config.attention_dropout,
        "initializer_range": config.initial_std,
    }
