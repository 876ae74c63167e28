"""Any other architecture, computed by the transformers library: loaded, and written back as it would be there.

Nothing is fetched, and no program that lies in a model folder is run: only classes of the installed library are used.
"""

import copy
import inspect
import json
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
from lexome.models import hf_config
from lexome.models.config import EncoderConfig
from lexome.models.heads import HiddenLayers, Labeller
from lexome.models.names import KINDS, MEANINGLESS
from lexome.models.packing import Packing
from lexome.models.weights import SAFE, write_weights

# Sequences are padded together while a quarter more, and a few tokens, makes the shortest as long as the longest.
STRETCH = 1.25
SPARE_TOKENS = 8


class TransformersEncoder(nn.Module):
    """Token ids of packed sequences to hidden states, (T,) to (T, D), by a base model of transformers.

    `config` has the sizes that other parts read; what the layers are like, the model alone knows.
    """

    def __init__(self, model: nn.Module, config: EncoderConfig) -> None:
        super().__init__()
        self.model: Any = model
        self.config = config
        self.accepts = frozenset(inspect.signature(model.forward).parameters)

    def forward(self, ids_T: Tensor, packing: Packing, segments_T: Tensor | None = None) -> Tensor:
        longest = max(packing.lengths)
        if longest > self.config.max_tokens:
            raise UsageError(f"a sequence has {longest} tokens; the model takes {self.config.max_tokens}. Cut it.")
        groups = padded_groups(packing.lengths)
        hidden = []
        for group in groups:
            place_NL, real_NL, kept = (torch.from_numpy(array).to(ids_T.device) for array in group.arrays)
            ids_NL = ids_T[place_NL].masked_fill(~real_NL, self._padding())
            given = {"input_ids": ids_NL, "attention_mask": real_NL.long(), "return_dict": True}
            if segments_T is not None and self._tells_segments():
                given["token_type_ids"] = segments_T[place_NL]
            if "use_cache" in self.accepts:
                given["use_cache"] = False
            hidden.append(self.model(**given).last_hidden_state.flatten(0, 1)[kept])
        undo = np.argsort(np.concatenate([group.tokens for group in groups]), kind="stable")
        return torch.cat(hidden)[torch.from_numpy(undo).to(ids_T.device)]

    @property
    def checkpointing(self) -> bool:
        """Whether each layer is computed again in the backward pass, instead of keeping what is inside it."""
        return bool(self.model.is_gradient_checkpointing)

    @checkpointing.setter
    def checkpointing(self, wanted: bool) -> None:
        if wanted:
            self.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        elif self.model.is_gradient_checkpointing:
            self.model.gradient_checkpointing_disable()

    def _padding(self) -> int:
        """The number that fills up. Decoders may have none, or -1: any does, for nothing looks at it."""
        return max(0, getattr(self.model.config, "pad_token_id", None) or 0)

    def _tells_segments(self) -> bool:
        """Whether the model has embeddings of segments. GPT-2 takes segments, and looks them up among its words."""
        kinds = getattr(self.model.config, "type_vocab_size", None) or 0
        return "token_type_ids" in self.accepts and kinds > 1


class TransformersMaskedLM(nn.Module):
    """A masked language model of transformers: logits over the vocabulary at the masked positions only, (M, V)."""

    def __init__(self, model: nn.Module, config: EncoderConfig) -> None:
        super().__init__()
        self.model: Any = model
        self.config = config

    @property
    def encoder(self) -> TransformersEncoder:
        """The model without its head; the weights are the same ones."""
        return TransformersEncoder(self.model.base_model, self.config)

    def forward(self, ids_T: Tensor, packing: Packing, positions_M: Tensor, segments_T: Tensor | None = None) -> Tensor:
        hidden_TD = self.encoder(ids_T, packing, segments_T)
        return self.words(hidden_TD[positions_M], ids_T[positions_M])

    def words(self, hidden_MD: Tensor, ids_M: Tensor) -> Tensor:
        """The head alone, which every architecture writes in its own way.

        The whole model is called, and its base answers with the states that were computed before.
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
class Group:
    """Sequences of about one length: the token at each place, which places are real, and those that are, flat.

    `tokens` are the numbers of the real ones in the order they come out.
    """

    arrays: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]
    tokens: np.ndarray[Any, Any]


def padded_groups(lengths: Sequence[int]) -> list[Group]:
    """Sequences sorted by length and cut where padding them together would waste much; empty ones are left out."""
    sizes = np.asarray(lengths)
    starts = np.cumsum(sizes) - sizes
    groups: list[list[int]] = []
    for number in sorted(np.flatnonzero(sizes).tolist(), key=lambda number: (-sizes[number], number)):
        if groups and sizes[groups[-1][0]] <= STRETCH * sizes[number] + SPARE_TOKENS:
            groups[-1].append(number)
        else:
            groups.append([number])
    return [_group(starts[chosen, None], sizes[chosen, None]) for chosen in groups]


def _group(starts_N1: np.ndarray[Any, Any], sizes_N1: np.ndarray[Any, Any]) -> Group:
    steps_L = np.arange(sizes_N1.max())
    real_NL = steps_L < sizes_N1
    # Padding repeats the last token of its sequence, and is written over.
    place_NL = starts_N1 + np.minimum(steps_L, sizes_N1 - 1)
    return Group((place_NL, real_NL, np.flatnonzero(real_NL)), place_NL[real_NL])


# Where no limit is said, as for models whose positions are distances.
NO_LIMIT = 1_000_000

# The way of an MPNet to what is made for our own encoder alone; said where it is asked for without it.
WITHOUT_POSITIONS = "make another model of it with `lexome convert-model --drop relative-positions`"

# What weights of a head of ours begin with.
_OWN = f"{hf_config.OWN}."

# The table in transformers with the classes of each kind.
_TABLES = {
    "encoder": "MODEL_MAPPING",
    "masked": "MODEL_FOR_MASKED_LM_MAPPING",
    "token": "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING",
    "sequence": "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING",
    "span": "MODEL_FOR_QUESTION_ANSWERING_MAPPING",
}


@dataclass(frozen=True, slots=True)
class Assembled:
    """A model and what is known about it; the fields are those of checkpoint.Checkpoint."""

    kind: str
    config: EncoderConfig
    model: nn.Module
    labels: tuple[str, ...]
    unused: tuple[str, ...]
    new: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A model of transformers, the weights that it has no place for, and those that were drawn anew."""

    model: Any
    unexpected: frozenset[str]
    missing: tuple[str, ...]


def their_config(settings: Mapping[str, Any], *, where: str) -> Any:
    """transformers' configuration for a config.json; CheckpointError for what this backend does not do."""
    library = _library()
    known = library.models.auto.configuration_auto.CONFIG_MAPPING
    model_type = settings.get("model_type")
    if model_type not in known:
        raise CheckpointError(
            f"{where}: model_type is {model_type!r}, which transformers {library.__version__} does not know. Update "
            "it if it is older than the model. A model with a program of its own is not loaded: no code is run."
        )
    if "quantization_config" in settings:
        raise CheckpointError(f"{where}: the weights are quantised. Take the release with whole weights.")
    try:
        config = known[model_type].from_dict({key: held for key, held in settings.items() if key != "auto_map"})
    except Exception as error:  # each configuration checks itself in its own way
        raise CheckpointError(f"{where}: transformers refuses it: {error}") from None
    if getattr(config, "is_encoder_decoder", False):
        raise CheckpointError(f"{where}: {model_type} reads and writes text; expected an encoder or a decoder alone.")
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
) -> Assembled:
    """The model of a config.json and weights, as checkpoint.assemble gives our own ones."""
    config = their_config(settings, where=where)
    kind = _kind(kind, config, settings, where)
    theirs = {name: tensor for name, tensor in weights.items() if not name.startswith(_OWN)}
    class_ = _class_of(config, "masked" if kind == "masked" else "encoder")
    loaded = _from_weights(class_, config, theirs, where, dtype)
    shape = shape_of(loaded.model, where=where)
    left = {*loaded.unexpected, *(weights.keys() - theirs.keys())}
    if kind in ("encoder", "masked"):
        if loaded.missing and not new_head:
            raise _headless(where, kind, loaded.missing[0], model_type=str(settings["model_type"]))
        model: Any = (TransformersMaskedLM if kind == "masked" else TransformersEncoder)(loaded.model, shape)
        _try(model.eval(), where)
        return Assembled(kind, shape, model, (), tuple(sorted(left)), loaded.missing)
    labels = tuple(labels)
    if not labels and (not new_head or "id2label" in settings):
        labels = hf_config.labels_of(settings)
    hidden = hidden or hf_config.hidden_of(settings, str(settings["model_type"]), kind)
    pooling = hf_config.pooling_of(settings, kind)
    if settings.get(hf_config.OWN, {}).get("kind") != kind and _only_next_word(config):
        # The first token of a text has seen nothing but itself.
        pooling = "mean"
    head = hf_config.label_head(shape, kind, labels=len(labels), hidden=hidden, pooling=pooling)
    if hf_config.is_own(hidden, settings, kind=kind, pooling=pooling):
        names = {name: name.removeprefix(_OWN) for name in weights.keys() - theirs.keys()}
    else:
        names = {} if hidden.count else _their_head(config, theirs, kind)
    new = _fill(head, {ours: weights[name] for name, ours in names.items()}, where, kind, allowed=new_head)
    model = Labeller(TransformersEncoder(loaded.model, shape), head).to(dtype).eval()  # type: ignore[arg-type]
    _try(model.encoder, where)
    return Assembled(kind, shape, model, labels, tuple(sorted(left - names.keys())), new)


def write(model: nn.Module, folder: Path, *, kind: str, labels: Sequence[str]) -> None:
    """Write weights and config.json into a folder, in the form that transformers reads; a head in ours."""
    labelled = isinstance(model, Labeller)
    inner: Any = model.encoder if labelled else model
    with _quiet():
        # One file, whatever its size: a head is added to it below.
        inner.model.save_pretrained(folder, max_shard_size="100TB")
    path = folder / "config.json"
    settings = json.loads(path.read_bytes())
    settings.pop("auto_map", None)
    if labelled:
        assert isinstance(model.head, nn.Module)
        own = {_OWN + name: tensor for name, tensor in model.head.state_dict().items()}
        write_weights({**load_file(folder / SAFE), **own}, folder / SAFE)
        settings |= hf_config.settings_of(model.head, settings["model_type"], kind, labels)
        settings[hf_config.OWN] = hf_config.own_of(model.head, kind)
    path.write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def with_weights(model: TransformersMaskedLM, weights: Mapping[str, Tensor]) -> TransformersMaskedLM:
    """A model like this one with other weights, to be saved."""
    with torch.device("meta"):
        empty = type(model.model)(copy.deepcopy(model.model.config))
    made = TransformersMaskedLM(empty, model.config)
    made.load_state_dict(weights, assign=True)
    empty.tie_weights()
    return made


def shape_of(model: Any, *, where: str) -> EncoderConfig:
    """The sizes of a model of transformers, under the names that other parts read.

    How its layers work (norms, positions, activations) stays at our defaults, and says nothing about it.
    """
    config = model.config
    sizes: dict[str, Any] = {}
    for ours, theirs in _SIZES.items():
        sizes[ours] = getattr(config, theirs, None)
        if not isinstance(sizes[ours], int):
            raise CheckpointError(f"{where}: there is no {theirs} for {config.model_type}; expected a model of text.")
    inner = getattr(config, "intermediate_size", None) or getattr(config, "n_inner", None) or 4 * sizes["width"]
    norms = (getattr(config, name, None) for name in ("layer_norm_eps", "layer_norm_epsilon", "rms_norm_eps"))
    try:
        return EncoderConfig(
            **sizes,
            inner=inner,
            max_tokens=_longest(model),
            norm_eps=next((eps for eps in norms if eps is not None), 1e-12),
            initial_std=getattr(config, "initializer_range", None) or 0.02,
        )
    except UsageError as error:
        raise CheckpointError(f"{where}: {error}") from None


_SIZES = {
    "vocab": "vocab_size",
    "layers": "num_hidden_layers",
    "width": "hidden_size",
    "heads": "num_attention_heads",
}


def _longest(model: Any) -> int:
    """The longest sequence. Where positions are counted from the padding's number on, the rows before are not used."""
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
        purpose = "a model that Lexome's own encoder does not compute"
        raise MissingExtraError(error.name or "transformers", extra="transformers", purpose=purpose) from None
    return transformers


def _table(name: str) -> Any:
    return getattr(_library().models.auto.modeling_auto, name)


def _class_of(config: Any, kind: str) -> Any:
    """The class of a kind for this configuration; None where transformers has none."""
    table = _table(_TABLES[kind])
    if type(config) not in table:
        return None
    found = table[type(config)]
    return found[0] if isinstance(found, tuple) else found


def _kind(asked: str | None, config: Any, settings: Mapping[str, Any], where: str) -> str:
    """The kind to load: as asked for, or as the folder says."""
    if asked is not None and asked not in KINDS:
        raise CheckpointError(f"kind {asked!r}; expected one of {', '.join(KINDS)}.")
    kind = asked or _stated(config, settings)
    if kind == "masked" and _class_of(config, kind) is None:
        next_word = _only_next_word(config)
        why = f"{'predicts the next word and ' * next_word}has no masked-LM head"
        raise CheckpointError(f"{where}: {config.model_type} {why}. Load it as an encoder (kind encoder).")
    if kind == "paired":
        raise CheckpointError(f"{where}: the transformers backend has no pair head. Load it as masked or encoder.")
    if kind is not None and _class_of(config, "encoder") is not None:
        return kind
    raise CheckpointError(
        f"{where}: architectures is {settings.get('architectures') or []}, of which no kind can be told for "
        f"{config.model_type}. Say which kind to load; encoder goes without a head."
    )


def _only_next_word(config: Any) -> bool:
    """Whether the architecture is a decoder. BERT's kin are among the models of the next word too."""
    return type(config) in _table("MODEL_FOR_CAUSAL_LM_MAPPING") and _class_of(config, "masked") is None


def _stated(config: Any, settings: Mapping[str, Any]) -> str | None:
    if hf_config.OWN in settings:
        return str(settings[hf_config.OWN]["kind"])
    stated = settings.get("architectures") or []
    for kind in _TABLES:
        found = _class_of(config, kind)
        if found is not None and found.__name__ in stated:
            return kind
    return None


def _from_weights(kind: Any, config: Any, weights: Mapping[str, Tensor], where: str, dtype: torch.dtype) -> _Loaded:
    """A class filled with weights; CheckpointError where one of the encoder lacks, or has no place."""
    options = {"add_pooling_layer": False} if "add_pooling_layer" in inspect.signature(kind).parameters else {}
    try:
        with _quiet():
            model, found = kind.from_pretrained(
                None,
                config=copy.deepcopy(config),
                state_dict=_with_second_names(kind, config, weights),
                dtype=dtype,
                output_loading_info=True,
                **options,
            )
    except (RuntimeError, ValueError, TypeError) as error:
        raise CheckpointError(f"{where}: the weights are not those of this config.json: {error}") from None
    prefix = f"{model.base_model_prefix}."
    bare = not any(name.startswith(prefix) for name in weights)
    alone = model.base_model is model
    gone = sorted(name for name in found["missing_keys"] if alone or name.startswith(prefix))
    if gone:
        raise CheckpointError(f"{where}: {len(gone)} weights of the encoder are missing, first {gone[0]!r}.")
    left = {name for name in found["unexpected_keys"] if not name.endswith(MEANINGLESS)}
    unknown = sorted(
        name for name in left if (bare or name.startswith(prefix)) and not name.removeprefix(prefix).startswith("pool")
    )
    if unknown:
        raise CheckpointError(
            f"{where}: {len(unknown)} unknown weights, first {unknown[0]!r}; expected those of {kind.__name__}."
        )
    return _Loaded(model, frozenset(left), tuple(sorted(found["missing_keys"])))


def _with_second_names(kind: Any, config: Any, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights, and where output and embedding are apart, the output's bias under its second name as well.

    transformers then takes the two names of the bias for two weights, though they are one in every checkpoint.
    """
    tied = getattr(kind, "_tied_weights_keys", None)
    if getattr(config, "tie_word_embeddings", True) or not isinstance(tied, dict):
        return dict(weights)
    second = {copy_: weights[first] for copy_, first in tied.items() if copy_.endswith(".bias") and first in weights}
    return {**second, **weights}


def _their_head(config: Any, weights: Mapping[str, Tensor], kind: str) -> dict[str, str]:
    """Their names, and ours, of the one matrix that a token or span head of transformers is.

    Empty where the folder has none, and for sequences, of which every architecture makes a vector in its own way.
    """
    theirs = _class_of(config, kind) if kind in ("token", "span") else None
    if theirs is None:
        return {}
    with torch.device("meta"):
        model = theirs(copy.deepcopy(config))
    names = [name for name in model.state_dict() if not name.startswith(f"{model.base_model_prefix}.")]
    if sorted(name.rpartition(".")[2] for name in names) != ["bias", "weight"] or not set(names) <= weights.keys():
        return {}
    return {name: f"out.{name.rpartition('.')[2]}" for name in names}


def _fill(head: nn.Module, held: Mapping[str, Tensor], where: str, kind: str, *, allowed: bool) -> tuple[str, ...]:
    """Put weights into a head; the names of those that are new."""
    if not held:
        names = tuple(f"head.{name}" for name in head.state_dict())
        if not allowed:
            raise _headless(where, kind, names[0])
        return names
    try:
        head.load_state_dict(held)
    except RuntimeError as error:
        raise CheckpointError(f"{where}: the weights of the head are not those of this config.json: {error}") from None
    return ()


def _headless(where: str, kind: str, first: str, *, model_type: str = "") -> CheckpointError:
    # What is said of an mpnet in a sentence encoder's folder, whose config.json names a head that was not saved.
    own = f" For Lexome's own encoder to train on, {WITHOUT_POSITIONS}." if model_type == "mpnet" else ""
    return CheckpointError(
        f"{where}: has no weights for a {kind} head that can be used (first {first!r}). Load it as another kind "
        "(convert-model --kind encoder goes without a head), or ask for a new head (new_head=True), which has to be "
        f"trained.{own}"
    )


@torch.no_grad()
def _try(model: nn.Module, where: str) -> None:
    """Run two tokens: the base gives what we take it for, and the head called by itself gives what the model gives."""
    inner: Any = model
    ids_T, packing = torch.tensor([0, 1]), Packing.of([2])
    encoder = inner.encoder if isinstance(model, TransformersMaskedLM) else inner
    hidden_TD = encoder(ids_T, packing)
    given = {"input_ids": ids_T[None], "attention_mask": torch.ones(1, 2, dtype=torch.long), "return_dict": True}
    right = hidden_TD.shape == (2, encoder.config.width)
    if isinstance(model, TransformersMaskedLM):
        whole_TV = inner.model(**given).logits[0]
        right = right and torch.allclose(inner.words(hidden_TD, ids_T).float(), whole_TV.float(), atol=1e-2, rtol=1e-2)
    if not right:
        raise CheckpointError(
            f"{where}: {type(inner.model).__name__} is not an encoder with a head, and cannot be used."
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """transformers without its progress bars and reports: what was left over is in the checkpoint, or an error."""
    logging = _library().utils.logging
    level, shown = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()
