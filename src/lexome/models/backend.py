"""Other architectures, run by the transformers library: wrapped for packed batches, loaded, and saved.

Nothing is downloaded and no code in a model folder is executed: only classes of the installed library are used.
"""

import copy
import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from lexome.errors import CheckpointError, MissingExtraError, UsageError
from lexome.models import hf
from lexome.models.encoder import EncoderConfig, Packing
from lexome.models.heads import EncoderWithHead, HiddenLayers
from lexome.models.hf import IGNORED_BUFFERS, KINDS
from lexome.models.hf_folder import SAFETENSORS, read_settings, write_json, write_weights

# Sequences are padded together if the longest exceeds the shortest by at most a quarter and a few tokens.
MAX_STRETCH = 1.25
SPARE_TOKENS = 8


class TransformersEncoder(nn.Module):
    """Token ids of packed sequences to hidden states, (T,) to (T, D), by a base model of transformers.

    `config` has the sizes that the rest of Lexome needs; the layers are implemented by transformers.
    """

    def __init__(self, model: nn.Module, config: EncoderConfig) -> None:
        super().__init__()
        self.model: Any = model
        self.config = config
        self.accepts = frozenset(inspect.signature(model.forward).parameters)

    def forward(self, ids_T: Tensor, packing: Packing, segments_T: Tensor | None = None) -> Tensor:
        longest = max(packing.lengths)
        if longest > self.config.max_tokens:
            message = f"a sequence has {longest} tokens; the model's limit is {self.config.max_tokens}. Truncate it."
            raise UsageError(message, code="sequence-too-long", value=longest)
        groups = length_groups(packing.lengths)
        # Decoders may have no padding id, or -1; any will do, because padding is masked.
        padding = max(0, getattr(self.model.config, "pad_token_id", None) or 0)
        hidden = []
        for group in groups:
            index_NL, real_NL, kept = (torch.from_numpy(array).to(ids_T.device) for array in group.arrays)
            ids_NL = ids_T[index_NL].masked_fill(~real_NL, padding)
            inputs = {"input_ids": ids_NL, "attention_mask": real_NL.long(), "return_dict": True}
            if segments_T is not None and self._has_segments():
                inputs["token_type_ids"] = segments_T[index_NL]
            if "use_cache" in self.accepts:
                inputs["use_cache"] = False
            hidden.append(self.model(**inputs).last_hidden_state.flatten(0, 1)[kept])
        undo = np.argsort(np.concatenate([group.tokens for group in groups]), kind="stable")
        return torch.cat(hidden)[torch.from_numpy(undo).to(ids_T.device)]

    @property
    def gradient_checkpointing(self) -> bool:
        """Whether layers are recomputed in the backward pass instead of keeping their activations."""
        return bool(self.model.is_gradient_checkpointing)

    @gradient_checkpointing.setter
    def gradient_checkpointing(self, enabled: bool) -> None:
        if enabled:
            self.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        elif self.model.is_gradient_checkpointing:
            self.model.gradient_checkpointing_disable()

    def _has_segments(self) -> bool:
        """Whether the model has segment embeddings. GPT-2 accepts segments but looks them up among its tokens."""
        types = getattr(self.model.config, "type_vocab_size", None) or 0
        return "token_type_ids" in self.accepts and types > 1


class TransformersMaskedLM(nn.Module):
    """A masked language model of transformers: logits over the vocabulary at the masked positions only, (M, V)."""

    def __init__(self, model: nn.Module, config: EncoderConfig) -> None:
        super().__init__()
        self.model: Any = model
        self.config = config

    @property
    def encoder(self) -> TransformersEncoder:
        """The model without its head, sharing its weights."""
        return TransformersEncoder(self.model.base_model, self.config)

    def forward(self, ids_T: Tensor, packing: Packing, positions_M: Tensor, segments_T: Tensor | None = None) -> Tensor:
        hidden_TD = self.encoder(ids_T, packing, segments_T)
        return self.predict(hidden_TD[positions_M], ids_T[positions_M])

    def predict(self, hidden_MD: Tensor, ids_M: Tensor) -> Tensor:
        """The head alone, which every architecture implements in its own way.

        Calls the whole model with a base that returns the given hidden states.
        """
        from transformers.modeling_outputs import BaseModelOutput

        base = self.model.base_model
        base.forward = lambda *_, **__: BaseModelOutput(last_hidden_state=hidden_MD[None])
        try:
            logits_MV: Tensor = self.model(input_ids=ids_M[None], return_dict=True).logits[0]
        finally:
            del base.forward
        return logits_MV


@dataclass(frozen=True, slots=True)
class LengthGroup:
    """Sequences of similar length, padded together.

    arrays  the token at each place (N, L), which places are not padding (N, L), and the flat indices of those
    tokens  the token indices in output order
    """

    arrays: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]
    tokens: np.ndarray[Any, Any]


def length_groups(lengths: Sequence[int]) -> list[LengthGroup]:
    """Sequences grouped by length so that little padding is needed; empty ones are left out."""
    sizes = np.asarray(lengths)
    starts = np.cumsum(sizes) - sizes
    groups: list[list[int]] = []
    for number in sorted(np.flatnonzero(sizes).tolist(), key=lambda number: (-sizes[number], number)):
        if groups and sizes[groups[-1][0]] <= MAX_STRETCH * sizes[number] + SPARE_TOKENS:
            groups[-1].append(number)
        else:
            groups.append([number])
    padded = []
    for members in groups:
        steps_L, sizes_N1 = np.arange(sizes[members].max()), sizes[members, None]
        real_NL = steps_L < sizes_N1
        # Padding repeats the last token of its sequence; its id is replaced later.
        index_NL = starts[members, None] + np.minimum(steps_L, sizes_N1 - 1)
        padded.append(LengthGroup((index_NL, real_NL, np.flatnonzero(real_NL)), index_NL[real_NL]))
    return padded


# Length limit of models without one, such as those with relative positions.
NO_LIMIT = 1_000_000

# What to do with an MPNet where only Lexome's encoder is supported.
DROP_RELATIVE_POSITIONS = "convert it to a different model with `lexome convert-model --drop relative-positions`"

# Prefix of a custom head's keys.
_CUSTOM = f"{hf.CUSTOM_HEAD}."

# The tables of transformers with the classes of each kind.
_CLASS_TABLES = {
    "encoder": "MODEL_MAPPING",
    "masked": "MODEL_FOR_MASKED_LM_MAPPING",
    "token": "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING",
    "sequence": "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING",
    "span": "MODEL_FOR_QUESTION_ANSWERING_MAPPING",
}


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model and what is known about it; the fields are those of checkpoint.Checkpoint."""

    kind: str
    config: EncoderConfig
    model: nn.Module
    labels: tuple[str, ...]
    unused: tuple[str, ...]
    new: tuple[str, ...]


def hf_config_of(settings: Mapping[str, Any], *, where: str) -> Any:
    """transformers' configuration for a config.json; CheckpointError for what this backend does not support."""
    library = _library()
    known = library.models.auto.configuration_auto.CONFIG_MAPPING
    model_type = settings.get("model_type")
    if model_type not in known:
        remedy = "Update it if the model is newer; code in a model folder is never executed."
        message = f"{where}: transformers {library.__version__} does not know the model_type {model_type!r}. {remedy}"
        raise CheckpointError(message, code="unknown-architecture", value=model_type)
    if "quantization_config" in settings:
        message = f"{where}: the weights are quantized. Use unquantized ones."
        raise CheckpointError(message, code="quantized-weights", value=model_type)
    try:
        config = known[model_type].from_dict({key: value for key, value in settings.items() if key != "auto_map"})
    except Exception as error:  # each configuration class validates in its own way
        message = f"{where}: transformers rejects it: {error}"
        raise CheckpointError(message, code="unsupported-setting", value=model_type) from None
    if getattr(config, "is_encoder_decoder", False):
        message = f"{where}: {model_type} is an encoder-decoder; expected an encoder."
        raise CheckpointError(message, code="unsupported-model", value=model_type)
    return config


def assemble(
    settings: Mapping[str, Any],
    weights: Mapping[str, Tensor],
    *,
    where: str,
    kind: str | None = None,
    labels: Sequence[str] = (),
    hidden: HiddenLayers | None = None,
    new_head: bool = False,
    dtype: torch.dtype = torch.float32,
) -> LoadedModel:
    """The model of a config.json and a state dict, as checkpoint.assemble for Lexome's own encoder."""
    config = hf_config_of(settings, where=where)
    kind = _kind(kind, config, settings, where)
    custom = {name: tensor for name, tensor in weights.items() if name.startswith(_CUSTOM)}
    hf_weights = {name: tensor for name, tensor in weights.items() if name not in custom}
    class_ = _class_of(config, "masked" if kind == "masked" else "encoder")
    model, unexpected, missing = _from_pretrained(class_, config, hf_weights, where, dtype)
    shape = shape_of(model, where=where)
    unused = unexpected | custom.keys()
    if kind in ("encoder", "masked"):
        if missing and not new_head:
            raise _missing_head(where, kind, missing[0], model_type=str(settings["model_type"]))
        wrapped: Any = (TransformersMaskedLM if kind == "masked" else TransformersEncoder)(model, shape)
        _try_forward(wrapped.eval(), where)
        return LoadedModel(kind, shape, wrapped, (), tuple(sorted(unused)), missing)
    labels = tuple(labels)
    if not labels and (not new_head or "id2label" in settings):
        labels = hf.read_labels(settings)
    hidden = hidden or hf.read_hidden_layers(settings, str(settings["model_type"]), kind)
    pooling = hf.read_pooling(settings, kind)
    if settings.get(hf.CUSTOM_HEAD, {}).get("kind") != kind and _is_causal(config):
        # In a causal model the first token attends to nothing but itself.
        pooling = "mean"
    head = hf.build_head(shape, kind, labels=len(labels), hidden=hidden, pooling=pooling)
    if hf.is_custom_head(hidden, settings, kind=kind, pooling=pooling):
        keys = {name: name.removeprefix(_CUSTOM) for name in custom}
    else:
        keys = {} if hidden.count else _linear_head_keys(config, hf_weights, kind)
    if keys:
        try:
            head.load_state_dict({key: weights[name] for name, key in keys.items()})
        except RuntimeError as error:
            message = f"{where}: the weights of the head do not match config.json: {error}"
            raise CheckpointError(message, code="shape-mismatch", value="head") from None
    elif not new_head:
        raise _missing_head(where, kind, f"head.{next(iter(head.state_dict()))}")
    new = () if keys else tuple(f"head.{name}" for name in head.state_dict())
    encoder = TransformersEncoder(model, shape)
    _try_forward(encoder, where)
    with_head = EncoderWithHead(encoder, head).to(dtype).eval()  # type: ignore[arg-type]
    return LoadedModel(kind, shape, with_head, labels, tuple(sorted(unused - keys.keys())), new)


def write(model: nn.Module, folder: Path, *, kind: str, labels: Sequence[str]) -> None:
    """Write weights and config.json as transformers does; a head that it has no class for is a custom head."""
    wrapper: Any = model.encoder if isinstance(model, EncoderWithHead) else model
    with _quiet():
        # One file, whatever its size: a head is added to it below.
        wrapper.model.save_pretrained(folder, max_shard_size="100TB")
    settings = read_settings(folder)
    settings.pop("auto_map", None)
    if isinstance(model, EncoderWithHead):
        encoder, head = load_file(folder / SAFETENSORS), model.head.state_dict()
        settings |= hf.head_settings(model.head, settings["model_type"], kind, labels)
        settings.pop(hf.CUSTOM_HEAD, None)
        if has_linear_class(model, kind):
            class_ = _class_of(wrapper.model.config, kind)
            keys = {key: name for name, key in _linear_head(wrapper.model.config, kind).items()}
            prefix = f"{wrapper.model.base_model_prefix}."
            weights = {prefix + name: tensor for name, tensor in encoder.items()}
            weights |= {keys[key]: tensor for key, tensor in head.items()}
            settings["architectures"] = [class_.__name__]
        else:
            weights = {**encoder, **{_CUSTOM + name: tensor for name, tensor in head.items()}}
            settings[hf.CUSTOM_HEAD] = hf.custom_head_settings(model.head, kind)
        write_weights(weights, folder / SAFETENSORS)
    write_json(folder / "config.json", settings)


def has_linear_class(model: EncoderWithHead, kind: str) -> bool:
    """Whether a class of transformers has the head of such a model: one matrix for labels of tokens or answer spans."""
    assert isinstance(model.head.hidden, HiddenLayers)
    encoder: Any = model.encoder
    return not model.head.hidden.count and bool(_linear_head(encoder.model.config, kind))


def copy_with_weights(model: TransformersMaskedLM, weights: Mapping[str, Tensor]) -> TransformersMaskedLM:
    """A copy of a model with other weights, to be saved."""
    with torch.device("meta"):
        empty = type(model.model)(copy.deepcopy(model.model.config))
    filled = TransformersMaskedLM(empty, model.config)
    filled.load_state_dict(weights, assign=True)
    empty.tie_weights()
    return filled


def shape_of(model: Any, *, where: str) -> EncoderConfig:
    """The sizes of a model of transformers, as an EncoderConfig.

    Its other options (norms, positions, activations) stay at their defaults and do not describe the model.
    """
    config = model.config
    keys = {"vocab": "vocab_size", "layers": "num_hidden_layers", "heads": "num_attention_heads"}
    sizes: dict[str, Any] = {}
    for field, key in {**keys, "hidden_size": "hidden_size"}.items():
        sizes[field] = getattr(config, key, None)
        if not isinstance(sizes[field], int):
            message = f"{where}: {config.model_type} has no {key}; expected a text model."
            raise CheckpointError(message, code="unsupported-model", value=config.model_type)
    inner = getattr(config, "intermediate_size", None) or getattr(config, "n_inner", None)
    norms = (getattr(config, name, None) for name in ("layer_norm_eps", "layer_norm_epsilon", "rms_norm_eps"))
    try:
        return EncoderConfig(
            **sizes,
            intermediate_size=inner or 4 * sizes["hidden_size"],
            max_tokens=_max_tokens(model),
            norm_eps=next((eps for eps in norms if eps is not None), 1e-12),
            initial_std=getattr(config, "initializer_range", None) or 0.02,
        )
    except UsageError as error:
        raise CheckpointError(f"{where}: {error}", code=error.code, value=error.value) from None


def _max_tokens(model: Any) -> int:
    """The maximum sequence length. Positions may start after the padding id, which leaves the rows before unused."""
    rows = getattr(model.config, "max_position_embeddings", None)
    if not isinstance(rows, int) or rows < 1:
        return NO_LIMIT
    for name, part in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(part, nn.Embedding) and part.padding_idx is not None:
            return part.num_embeddings - part.padding_idx - 1
    return rows


def _library() -> Any:
    try:
        import transformers
        import transformers.models.auto.configuration_auto
        import transformers.models.auto.modeling_auto
    except ModuleNotFoundError as error:
        purpose = "a model that Lexome's own encoder does not support"
        raise MissingExtraError(error.name or "transformers", extra="transformers", purpose=purpose) from None
    return transformers


def _class_table(name: str) -> Any:
    return getattr(_library().models.auto.modeling_auto, name)


def _class_of(config: Any, kind: str) -> Any:
    """transformers' class of a kind for this configuration, or None."""
    table = _class_table(_CLASS_TABLES[kind])
    if type(config) not in table:
        return None
    classes = table[type(config)]
    return classes[0] if isinstance(classes, tuple) else classes


def _kind(kind: str | None, config: Any, settings: Mapping[str, Any], where: str) -> str:
    """The kind to load: the requested one, or the one that config.json declares."""
    if kind is not None and kind not in KINDS:
        raise CheckpointError(f"kind {kind!r}; expected one of {', '.join(KINDS)}.", code="unknown-kind", value=kind)
    kind = kind or _declared_kind(config, settings)
    if kind == "masked" and _class_of(config, kind) is None:
        causal = ", a causal language model," if _is_causal(config) else ""
        message = f'{where}: {config.model_type}{causal} has no masked-LM head. Load it with kind="encoder".'
        raise CheckpointError(message, code="unsupported-kind", value=kind)
    if kind == "paired":
        message = f"{where}: the transformers backend has no pair head. Load it as masked."
        raise CheckpointError(message, code="unsupported-kind", value=kind)
    if kind is not None and _class_of(config, "encoder") is not None:
        return kind
    declared = settings.get("architectures") or []
    message = f"{where}: no kind of {config.model_type} has the architectures {declared}. Name the kind to load."
    raise CheckpointError(message, code="unknown-kind", value=declared)


def _is_causal(config: Any) -> bool:
    """Whether the architecture is a decoder. BERT and its relatives have a causal class too."""
    return type(config) in _class_table("MODEL_FOR_CAUSAL_LM_MAPPING") and _class_of(config, "masked") is None


def _declared_kind(config: Any, settings: Mapping[str, Any]) -> str | None:
    if hf.CUSTOM_HEAD in settings:
        return str(settings[hf.CUSTOM_HEAD]["kind"])
    declared = settings.get("architectures") or []
    for kind in _CLASS_TABLES:
        class_ = _class_of(config, kind)
        if class_ is not None and class_.__name__ in declared:
            return kind
    return None


def _from_pretrained(
    class_: Any, config: Any, weights: Mapping[str, Tensor], where: str, dtype: torch.dtype
) -> tuple[Any, set[str], tuple[str, ...]]:
    """A model with its weights, the unused weights and the initialized ones; encoder weights must match exactly."""
    options = {"add_pooling_layer": False} if "add_pooling_layer" in inspect.signature(class_).parameters else {}
    try:
        with _quiet():
            model, info = class_.from_pretrained(
                None,
                config=copy.deepcopy(config),
                state_dict=_with_tied_biases(class_, config, weights),
                dtype=dtype,
                output_loading_info=True,
                **options,
            )
    except (RuntimeError, ValueError, TypeError) as error:
        message = f"{where}: the weights do not match config.json: {error}"
        raise CheckpointError(message, code="shape-mismatch", value=class_.__name__) from None
    prefix = f"{model.base_model_prefix}."
    bare = not any(name.startswith(prefix) for name in weights)
    alone = model.base_model is model
    missing = sorted(name for name in info["missing_keys"] if alone or name.startswith(prefix))
    if missing:
        message = f"{where}: {len(missing)} encoder weights missing, first {missing[0]!r}."
        raise CheckpointError(message, code="missing-weights", value=missing[0])
    unused = {name for name in info["unexpected_keys"] if not name.endswith(IGNORED_BUFFERS)}
    encoder_keys = sorted(name for name in unused if bare or name.startswith(prefix))
    unknown = [name for name in encoder_keys if not name.removeprefix(prefix).startswith("pool")]
    if unknown:
        message = f"{where}: {len(unknown)} unknown weights, first {unknown[0]!r}; expected those of {class_.__name__}."
        raise CheckpointError(message, code="unknown-weights", value=unknown[0])
    return model, unused, tuple(sorted(info["missing_keys"]))


def _with_tied_biases(class_: Any, config: Any, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights, and for untied embeddings the output bias under its second key as well.

    transformers then expects two biases, although checkpoints have only one.
    """
    tied = getattr(class_, "_tied_weights_keys", None)
    if getattr(config, "tie_word_embeddings", True) or not isinstance(tied, dict):
        return dict(weights)
    biases = {second: weights[first] for second, first in tied.items() if second.endswith(".bias") and first in weights}
    return {**biases, **weights}


def _linear_head_keys(config: Any, weights: Mapping[str, Tensor], kind: str) -> dict[str, str]:
    """Keys of transformers' linear token or span head, mapped to those of ours.

    Empty if the checkpoint has none, and for sequences, which every architecture pools in its own way.
    """
    keys = _linear_head(config, kind)
    return keys if keys.keys() <= weights.keys() else {}


def _linear_head(config: Any, kind: str) -> dict[str, str]:
    """Keys of the linear token or span head in transformers' class, mapped to those of ours; empty if it has none."""
    class_ = _class_of(config, kind) if kind in ("token", "span") else None
    if class_ is None:
        return {}
    with torch.device("meta"):
        model = class_(copy.deepcopy(config))
    names = [name for name in model.state_dict() if not name.startswith(f"{model.base_model_prefix}.")]
    if sorted(name.rpartition(".")[2] for name in names) != ["bias", "weight"]:
        return {}
    return {name: f"out.{name.rpartition('.')[2]}" for name in names}


def _missing_head(where: str, kind: str, first: str, *, model_type: str = "") -> CheckpointError:
    # Sentence encoders often declare a head in config.json that was not saved.
    mpnet = f" To train it with Lexome's own encoder, {DROP_RELATIVE_POSITIONS}." if model_type == "mpnet" else ""
    remedy = "Load it as another kind (--kind encoder needs no head), or initialize a new head (new_head=True)"
    message = f"{where}: no usable weights for a {kind} head, first {first!r}. {remedy}.{mpnet}"
    return CheckpointError(message, code="missing-head", value=kind)


@torch.no_grad()
def _try_forward(model: nn.Module, where: str) -> None:
    """Run two tokens: hidden states must have the right shape, and the head alone the logits of the whole model."""
    wrapper: Any = model
    ids_T, packing = torch.tensor([0, 1]), Packing.of([2])
    encoder = wrapper.encoder if isinstance(model, TransformersMaskedLM) else wrapper
    hidden_TD = encoder(ids_T, packing)
    usable = hidden_TD.shape == (2, encoder.config.hidden_size)
    if usable and isinstance(model, TransformersMaskedLM):
        mask = torch.ones(1, 2, dtype=torch.long)
        logits_TV = wrapper.model(input_ids=ids_T[None], attention_mask=mask, return_dict=True).logits[0].float()
        usable = torch.allclose(wrapper.predict(hidden_TD, ids_T).float(), logits_TV, atol=1e-2, rtol=1e-2)
    if not usable:
        name = type(wrapper.model).__name__
        message = f"{where}: {name} is not an encoder with a separate head."
        raise CheckpointError(message, code="unsupported-model", value=name)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence transformers' progress bars and reports: unused weights are in the checkpoint, or an error."""
    logging = _library().utils.logging
    level, progress = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if progress:
            logging.enable_progress_bar()
