"""Checkpoints: models loaded from a folder or another framework's release, and saved as a Hugging Face folder."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import lexome
from lexome.errors import CheckpointError, UsageError
from lexome.files import CHECKSUMS, atomic_folder, verify_checksums, write_checksums
from lexome.models import backend as transformers_backend
from lexome.models import hf
from lexome.models.backend import TransformersEncoder, TransformersMaskedLM
from lexome.models.encoder import Encoder, EncoderConfig, count_parameters
from lexome.models.foreign import detect, read_foreign
from lexome.models.foreign.legacy_hf import check_drop, read_without_positions
from lexome.models.heads import EncoderWithHead, HiddenLayers, MaskedLM, PairedLM, SequenceHead, SpanHead, TokenHead
from lexome.models.hf import (
    ARCHITECTURES,
    KINDS,
    LM_KINDS,
    MappedWeights,
    architecture_of,
    from_hf,
    read_config,
    to_hf,
    write_config,
)
from lexome.models.hf_folder import (
    SAFETENSORS,
    common_dtype,
    has_weights,
    read_settings,
    read_weights,
    tokenizer_files,
    write_json,
    write_tokenizer,
    write_weights,
)

# The implementation that runs the model: Lexome's encoder or transformers; auto prefers Lexome's.
BACKENDS = ("auto", "lexome", "transformers")

# The layout of Hugging Face folders; lexome.models.foreign names the others.
HUGGING_FACE = "huggingface"


@dataclass(frozen=True, slots=True)
class Card:
    """The author's statements about a model, for its README.md.

    data      sentences about the training text and its licenses
    recipe    the recipe that trained it, as TOML
    scores    rows of (metric, value, method)
    decoding  what Lexome does with the head's outputs that a pipeline of transformers does not; None for nothing
    """

    title: str
    summary: str
    license: str
    data: str
    language: tuple[str, ...] = ("en",)
    base_model: str | None = None
    datasets: tuple[str, ...] = ()
    tags: tuple[str, ...] = ("biomedical",)
    recipe: str | None = None
    scores: tuple[tuple[str, str, str], ...] = ()
    limits: str | None = None
    decoding: str | None = None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model in evaluation mode, and what its folder or release states about it.

    kind             one of hf.KINDS
    labels           of a token or sequence head, in order
    settings         config.json
    tokenizer        paths of the folder's tokenizer files
    unused           weights that this kind of model does not use, by their keys in the checkpoint
    new              weights that the checkpoint lacks and that were initialized, by Lexome's keys
    backend          "lexome" or "transformers"
    layout           "huggingface", or one of lexome.models.foreign
    tokenizer_files  contents of the tokenizer files, for a layout other than Hugging Face's
    left_out         content that is not part of a model, for a layout other than Hugging Face's
    dropped          what was dropped on request: the model computes something else than the checkpoint's
    """

    folder: Path
    architecture: str
    kind: str
    config: EncoderConfig
    model: nn.Module
    labels: tuple[str, ...]
    settings: dict[str, Any]
    tokenizer: tuple[Path, ...]
    unused: tuple[str, ...]
    new: tuple[str, ...]
    backend: str = "lexome"
    layout: str = HUGGING_FACE
    tokenizer_files: Mapping[str, bytes] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    dropped: str | None = None


def layout_of(path: Path) -> str:
    """The layout of a checkpoint by its file names: "huggingface", or one of lexome.models.foreign.

    A folder of unknown layout counts as Hugging Face's, whose reader reports what is missing.
    """
    if (path / "config.json").is_file() and has_weights(path):
        return HUGGING_FACE
    layout = detect(path)
    if layout is None and not path.is_dir():
        message = f"{path}: not a known checkpoint. Pass a model folder, or a release in another supported format."
        raise CheckpointError(message, code="unknown-layout", value=path)
    return layout or HUGGING_FACE


def load(
    path: str | Path,
    *,
    kind: str | None = None,
    labels: Sequence[str] = (),
    hidden: HiddenLayers | None = None,
    new_head: bool = False,
    dtype: torch.dtype | None = torch.float32,
    backend: str = "auto",
    drop: str | None = None,
) -> Checkpoint:
    """Load a model from a folder, or from a release that lexome.models.foreign reads, as `kind` or as it was saved.

    A head whose weights are missing is an error, unless `new_head` permits initializing one from torch's generator;
    `labels` and `hidden` then define it. Missing encoder weights are always an error. A `dtype` of None keeps that of
    the weights. `drop` is one of foreign.legacy_hf.DROPS and gives a model that differs from the saved one.
    """
    path = Path(path)
    if drop is None and layout_of(path) == HUGGING_FACE:
        # Refuse an unsupported configuration before reading gigabytes.
        backend = _select_backend(backend, read_settings(path), kind, str(path / "config.json"))
    stored = read_checkpoint(path, drop=drop)
    return stored.build(
        kind=kind, labels=labels, hidden=hidden, new_head=new_head, dtype=dtype, backend=backend, share_memory=True
    )


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A checkpoint read into memory, from which any number of models can be built.

    settings  config.json
    weights   a state dict with Hugging Face's keys
    """

    folder: Path
    settings: Mapping[str, Any]
    weights: Mapping[str, Tensor]
    layout: str = HUGGING_FACE
    tokenizer_files: Mapping[str, bytes] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    dropped: str | None = None

    def build(
        self,
        *,
        kind: str | None = None,
        labels: Sequence[str] = (),
        hidden: HiddenLayers | None = None,
        new_head: bool = False,
        dtype: torch.dtype | None = torch.float32,
        backend: str = "auto",
        share_memory: bool = False,
    ) -> Checkpoint:
        """A model as `load` returns it. With `share_memory`, it may use these tensors, and training changes them."""
        dtype = dtype or common_dtype(self.weights)
        foreign = self.layout != HUGGING_FACE or self.dropped is not None
        weights = dict(self.weights)
        if foreign:
            # Copies: some of the tensors are memory-mapped.
            weights = {name: tensor.to(dtype, copy=True) for name, tensor in weights.items()}
        elif not share_memory:
            weights = {name: tensor.clone() for name, tensor in weights.items()}
        options: dict[str, Any] = {"kind": kind, "labels": labels, "hidden": hidden, "new_head": new_head}
        checkpoint = assemble(self.settings, weights, folder=self.folder, dtype=dtype, backend=backend, **options)
        if not foreign:
            return checkpoint
        return replace(
            checkpoint,
            layout=self.layout,
            tokenizer=(),
            tokenizer_files=self.tokenizer_files,
            left_out=self.left_out,
            dropped=self.dropped,
        )


def read_checkpoint(path: Path, *, drop: str | None = None) -> StoredCheckpoint:
    """The settings and weights of a checkpoint in any layout that Lexome reads; `drop` as in `load`."""
    if drop is None and layout_of(path) == HUGGING_FACE:
        settings = read_settings(path)
        verify_checksums(path, remedy=f"Copy or make it again; if it was changed on purpose, remove {CHECKSUMS}.")
        return StoredCheckpoint(path, settings, read_weights(path))
    foreign = read_foreign(path) if drop is None else _read_without(path, drop)
    return StoredCheckpoint(
        path,
        foreign.config,
        foreign.weights,
        layout=foreign.layout,
        tokenizer_files=foreign.tokenizer_files,
        left_out=foreign.left_out,
        dropped=drop,
    )


def assemble(
    settings: Mapping[str, Any],
    weights: Mapping[str, Tensor],
    *,
    folder: Path,
    kind: str | None = None,
    labels: Sequence[str] = (),
    hidden: HiddenLayers | None = None,
    new_head: bool = False,
    dtype: torch.dtype = torch.float32,
    backend: str = "auto",
) -> Checkpoint:
    """The model of a config.json and a Hugging Face state dict already in memory; otherwise as `load`."""
    where = str(folder / "config.json" if folder.is_dir() else folder)
    if _select_backend(backend, settings, kind, where) == "transformers":
        options: dict[str, Any] = {"labels": labels, "hidden": hidden, "new_head": new_head, "dtype": dtype}
        loaded = transformers_backend.assemble(settings, weights, where=str(folder), kind=kind, **options)
        return Checkpoint(
            folder,
            str(settings["model_type"]),
            loaded.kind,
            loaded.config,
            loaded.model,
            loaded.labels,
            dict(settings),
            tokenizer_files(folder),
            loaded.unused,
            loaded.new,
            backend="transformers",
        )
    architecture = architecture_of(settings, where=where)
    config = read_config(settings, where=where)
    kind = _kind(kind, architecture, settings, where)
    if kind in LM_KINDS and not settings.get("tie_word_embeddings", True):
        message = f"{where}: tie_word_embeddings is false. Load it with the transformers backend, or as an encoder."
        raise CheckpointError(message, code="untied-embeddings", value="tie_word_embeddings")
    labels = tuple(labels)
    if kind in ("token", "sequence", "span"):
        hidden = hidden or hf.read_hidden_layers(settings, architecture, kind)
        # Without this condition a new head without labels would silently get transformers' default of two.
        if not labels and (not new_head or "id2label" in settings):
            labels = hf.read_labels(settings)
    head: dict[str, Any] = {"hidden": hidden, "labels": len(labels), "pooling": hf.read_pooling(settings, kind)}
    with torch.device("meta"):
        model = build(config, kind, **head)
    mapped = _map_weights(folder, model, weights, settings, kind=kind)
    prefix = "encoder." if isinstance(model, Encoder) else ""
    _check_shapes(folder, mapped.weights, {prefix + name: tensor for name, tensor in model.state_dict().items()})
    if mapped.missing:
        _check_missing(folder, mapped.missing, kind, new_head=new_head)
        model = build(config, kind, **head)
    state = {name.removeprefix(prefix): tensor.to(dtype) for name, tensor in mapped.weights.items()}
    model.load_state_dict(state, strict=not mapped.missing, assign=True)
    model.to(dtype).eval()
    files = tokenizer_files(folder)
    return Checkpoint(
        folder, architecture, kind, config, model, labels, dict(settings), files, mapped.unused, mapped.missing
    )


def build(
    config: EncoderConfig, kind: str, *, labels: int = 2, hidden: HiddenLayers | None = None, pooling: str = "first"
) -> nn.Module:
    """A new model of a kind, initialized from torch's generator."""
    without_labels = {"encoder": Encoder, "masked": MaskedLM, "paired": PairedLM}
    if kind in without_labels:
        return without_labels[kind](config)
    head = hf.build_head(config, kind, labels=labels, hidden=hidden, pooling=pooling)
    return EncoderWithHead(Encoder(config), head)


def kind_of(model: nn.Module) -> str:
    """The kind of a model: one of hf.KINDS."""
    heads = {TokenHead: "token", SequenceHead: "sequence", SpanHead: "span"}
    if isinstance(model, EncoderWithHead):
        return heads[type(model.head)]
    kinds: dict[type[nn.Module], str] = {Encoder: "encoder", MaskedLM: "masked", PairedLM: "paired"}
    kinds |= {TransformersEncoder: "encoder", TransformersMaskedLM: "masked"}
    if type(model) not in kinds:
        message = f"{type(model).__name__} cannot be saved as a model folder. Unwrap the model first."
        raise CheckpointError(message, code="unsupported-model", value=type(model).__name__)
    return kinds[type(model)]


def encoder_of(model: nn.Module) -> Encoder | TransformersEncoder:
    """The encoder of a model of any kind."""
    encoder = model if isinstance(model, Encoder | TransformersEncoder) else model.encoder
    assert isinstance(encoder, Encoder | TransformersEncoder)
    return encoder


def save(
    folder: str | Path,
    model: nn.Module,
    *,
    architecture: str,
    tokenizer: str | Path,
    card: Card,
    labels: Sequence[str] = (),
    run: Mapping[str, Any] | None = None,
    replace: bool = False,
) -> None:
    """Write a model as a folder that transformers and `load` read: weights, config, tokenizer, card, run.json.

    The folder appears only when complete. An existing folder is an error unless `replace` is set.
    """
    folder, tokenizer = Path(folder), Path(tokenizer)
    if folder.exists() and any(folder.iterdir()) and not replace:
        message = f"{folder}: exists and is not empty. Choose another folder, or remove it."
        raise CheckpointError(message, code="not-empty", value=folder)
    kind, config = kind_of(model), encoder_of(model).config
    write_model = _model_writer(model, architecture, kind, labels)
    with atomic_folder(folder) as temporary:
        special = write_tokenizer(tokenizer, temporary, max_tokens=config.max_tokens, vocab=config.vocab)
        roles = ("pad_token", "bos_token", "eos_token", "cls_token", "sep_token")
        write_model(temporary, {f"{role}_id": special[role] for role in special if role in roles})
        facts = {
            "Architecture": architecture,
            "Parameters": f"{count_parameters(model):,} ({count_parameters(encoder_of(model)):,} in the encoder)",
            "Shape": f"{config.layers} layers, hidden size {config.hidden_size}, {config.heads} heads, "
            f"intermediate size {config.intermediate_size}",
            "Maximum sequence length": f"{config.max_tokens:,} tokens",
            "Vocabulary": f"{config.vocab:,} tokens",
        }
        head = custom_head(model, architecture)
        (temporary / "README.md").write_text(render_card(card, kind=kind, facts=facts, head=head), encoding="utf-8")
        write_json(temporary / "run.json", {"lexome": lexome.__version__, "torch": torch.__version__, **(run or {})})
        write_checksums(temporary)


def custom_head(model: nn.Module, architecture: str) -> str | None:
    """A head that no class of transformers has, in words, such as "mean pooling"; None if transformers loads it."""
    if not isinstance(model, EncoderWithHead):
        return None
    kind, head = kind_of(model), model.head
    if isinstance(model.encoder, TransformersEncoder):
        custom = not transformers_backend.has_linear_class(model, kind)
    else:
        custom = hf.CUSTOM_HEAD in hf.head_settings(head, architecture, kind, ())
    return hf.describe_head(head) if custom else None


def render_card(card: Card, *, kind: str, facts: Mapping[str, str], head: str | None = None) -> str:
    """The text of README.md; `facts` are derived from the model, and `head` is one that transformers has no class for.

    Metadata claims a pipeline of transformers only for models whose results are the same there.
    """
    front = {
        "license": card.license,
        "language": list(card.language),
        "base_model": card.base_model,
        "pipeline_tag": _PIPELINE_TAGS[kind] if head is None and card.decoding is None else None,
        "tags": ["lexome", *(tag for tag in card.tags if tag != "lexome")],
        "library_name": "transformers" if head is None else "lexome",
        "datasets": list(card.datasets),
    }
    # JSON is valid YAML and always quotes strings: the language code "no" stays a string.
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in front.items() if value]
    parts = ["---", *lines, "---", "", f"# {card.title}", "", card.summary, ""]
    parts += ["## Model", "", *(f"- {name}: {fact}" for name, fact in facts.items()), ""]
    parts += _usage(kind, head, card.decoding)
    parts += ["## Data", "", card.data, ""]
    if card.recipe:
        parts += ["## Recipe", "", "```toml", card.recipe.strip(), "```", ""]
    scores = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in card.scores]
    table = ["| metric | value | method |", "| --- | --- | --- |", *scores] if scores else ["Not measured."]
    parts += ["## Scores", "", *table, ""]
    if card.limits:
        parts += ["## Limits", "", card.limits, ""]
    return "\n".join(parts)


def _usage(kind: str, head: str | None, decoding: str | None) -> list[str]:
    """How to run a model that transformers does not run as Lexome does; nothing for others."""
    if head is None and decoding is None:
        return []
    if head is not None:
        problem = (
            f"transformers has no class for this model's head ({head}). `AutoModel` loads the encoder; "
            f"`{_AUTO_CLASSES[kind]}` and pipelines would initialize a new head with random weights."
        )
    else:
        problem = f"Pipelines of transformers do not decode this model: {decoding}. `{_AUTO_CLASSES[kind]}` loads it."
    return [
        "## Usage",
        "",
        f"{problem} Run it with Lexome, which loads all of it: with `lexome.models.checkpoint.load` in torch or, for "
        "the architectures that Lexome implements, exported to ONNX:",
        "",
        "```shell",
        "lexome export FOLDER model-onnx",
        'lexome annotate --model model-onnx "TEXT"',
        "```",
        "",
    ]


_AUTO_CLASSES = {
    "token": "AutoModelForTokenClassification",
    "sequence": "AutoModelForSequenceClassification",
    "span": "AutoModelForQuestionAnswering",
}

_PIPELINE_TAGS = {
    "encoder": "feature-extraction",
    "masked": "fill-mask",
    "paired": "fill-mask",
    "token": "token-classification",
    "sequence": "text-classification",
    "span": "question-answering",
}


def _read_without(path: Path, drop: str) -> Any:
    check_drop(drop)
    if not path.is_dir() or layout_of(path) != HUGGING_FACE:
        message = f"{path}: expected a Hugging Face folder of an MPNet to drop {drop} from. Unpack an archive first."
        raise CheckpointError(message, code="unknown-layout", value=path)
    return read_without_positions(path)


def _select_backend(backend: str, settings: Mapping[str, Any], kind: str | None, where: str) -> str:
    """The backend to use: the requested one, or Lexome's if it can; CheckpointError if it cannot run the model."""
    if backend not in BACKENDS:
        message = f"backend {backend!r}; expected one of {', '.join(BACKENDS)}."
        raise UsageError(message, code="unknown-option", value=backend)
    if backend == "auto":
        backend = "lexome"
        if settings.get("model_type", "bert") not in ARCHITECTURES:
            backend = "transformers"
        elif not settings.get("tie_word_embeddings", True):
            kind = _kind(kind, architecture_of(settings, where=where), settings, where)
            backend = "transformers" if kind in LM_KINDS else "lexome"
    if backend == "transformers":
        transformers_backend.hf_config_of(settings, where=where)
    else:
        read_config(settings, where=where)
    return backend


def _kind(kind: str | None, architecture: str, settings: Mapping[str, Any], where: str) -> str:
    """The kind to load: the requested one, or the one that config.json declares."""
    classes = ARCHITECTURES[architecture].classes
    if kind is not None:
        if kind not in KINDS:
            message = f"kind {kind!r}; expected one of {', '.join(KINDS)}."
            raise CheckpointError(message, code="unknown-kind", value=kind)
        if kind not in classes:
            message = f"{where}: transformers has no {architecture} of kind {kind!r}."
            raise CheckpointError(message, code="unsupported-kind", value=kind)
        return kind
    if hf.CUSTOM_HEAD in settings:
        return str(settings[hf.CUSTOM_HEAD]["kind"])
    declared = settings.get("architectures") or []
    for kind, name in classes.items():
        if name in declared:
            return kind
    message = f"{where}: architectures {declared}; expected one of {', '.join(classes.values())}. Specify the kind."
    raise CheckpointError(message, code="unknown-kind", value=declared)


def _map_weights(
    folder: Path, model: nn.Module, weights: Mapping[str, Tensor], settings: Mapping[str, Any], *, kind: str
) -> MappedWeights:
    """The weights under Lexome's keys, with those that are missing and unused; a custom head has its own prefix."""
    architecture, pooling = architecture_of(settings), hf.read_pooling(settings, kind)
    mapping = ARCHITECTURES[architecture]
    heads = encoder_of(model).config.heads
    keys = [name if kind != "encoder" else f"encoder.{name}" for name in model.state_dict()]
    prefix = f"{hf.CUSTOM_HEAD}."
    custom = {f"head.{name.removeprefix(prefix)}": t for name, t in weights.items() if name.startswith(prefix)}
    unused_custom = tuple(prefix + name.removeprefix("head.") for name in sorted(custom))
    hf_weights = {name: tensor for name, tensor in weights.items() if not name.startswith(prefix)}
    hidden = model.head.hidden if isinstance(model, EncoderWithHead) else None
    assert hidden is None or isinstance(hidden, HiddenLayers)
    try:
        if hidden is None or hf.is_hf_head(hidden, settings, architecture, kind=kind, pooling=pooling):
            mapped = from_hf(hf_weights, mapping, kind=kind, heads=heads, keys=keys)
            return replace(mapped, unused=(*mapped.unused, *unused_custom))
        encoder_keys = [name for name in keys if name.startswith("encoder.")]
        mapped = from_hf(hf_weights, mapping, kind="encoder", heads=heads, keys=encoder_keys)
    except CheckpointError as error:
        raise CheckpointError(f"{folder}: {error}", code=error.code, value=error.value) from None
    head_keys = [name for name in keys if not name.startswith("encoder.")]
    if not hf.is_custom_head(hidden, settings, kind=kind, pooling=pooling):
        return replace(mapped, missing=(*mapped.missing, *head_keys), unused=(*mapped.unused, *unused_custom))
    unknown = sorted(custom.keys() - set(head_keys))
    if unknown:
        message = f"{folder}: unexpected weight {unknown[0]!r}: the head in config.json has none of this name."
        raise CheckpointError(message, code="unknown-weights", value=unknown[0])
    missing = tuple(name for name in head_keys if name not in custom)
    return MappedWeights({**mapped.weights, **custom}, (*mapped.missing, *missing), mapped.unused)


def _check_shapes(folder: Path, weights: Mapping[str, Tensor], model: Mapping[str, Tensor]) -> None:
    for name, tensor in weights.items():
        if tensor.shape != model[name].shape:
            seen, expected = tuple(tensor.shape), tuple(model[name].shape)
            message = f"{folder}: {name} has shape {seen}; expected {expected}, by the sizes in config.json."
            raise CheckpointError(message, code="shape-mismatch", value=name)


def _check_missing(folder: Path, missing: Sequence[str], kind: str, *, new_head: bool) -> None:
    encoder = [name for name in missing if name.startswith("encoder.")]
    if encoder:
        message = f"{folder}: {len(encoder)} weights of the encoder are missing, first {encoder[0]!r}."
        raise CheckpointError(message, code="missing-weights", value=encoder[0])
    if not new_head:
        remedy = "Load it as another kind, or initialize a new head (new_head=True; in a recipe, new_head = true)."
        message = f"{folder}: no weights for a {kind} head, first {missing[0]!r}. {remedy}"
        raise CheckpointError(message, code="missing-head", value=kind)


def _model_writer(
    model: nn.Module, architecture: str, kind: str, labels: Sequence[str]
) -> Callable[[Path, Mapping[str, int]], None]:
    """A function that writes weights and config.json, given the ids of special tokens."""
    encoder = encoder_of(model)
    if isinstance(encoder, TransformersEncoder):
        # transformers' config.json has token ids of its own, which its code uses.
        return lambda folder, ids: transformers_backend.write(model, folder, kind=kind, labels=labels)
    settings = write_config(encoder.config, architecture)
    weights, head = _to_hf(model, architecture, kind, labels)

    def write(folder: Path, ids: Mapping[str, int]) -> None:
        write_weights(weights, folder / SAFETENSORS)
        dtype = str(next(iter(weights.values())).dtype).removeprefix("torch.")
        # `settings` last: RoBERTa's pad id is where its positions start, so the model's overrides the tokenizer's.
        write_json(folder / "config.json", {**head, "torch_dtype": dtype, **ids, **settings})

    return write


def _to_hf(
    model: nn.Module, architecture: str, kind: str, labels: Sequence[str]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Weights under Hugging Face's keys, and the head's part of config.json."""
    mapping = ARCHITECTURES[architecture]
    heads = encoder_of(model).config.heads
    if kind not in mapping.classes:
        message = f"transformers has no {architecture} with a pair head. Save a MaskedLM."
        raise CheckpointError(message, code="unsupported-kind", value=kind)
    state = {f"encoder.{name}" if kind == "encoder" else name: t for name, t in model.state_dict().items()}
    head = {}
    if isinstance(model, EncoderWithHead):
        head = hf.head_settings(model.head, architecture, kind, labels)
    if hf.CUSTOM_HEAD not in head:
        return to_hf(state, mapping, kind=kind, heads=heads), {"architectures": [mapping.classes[kind]], **head}
    encoder = {name: tensor for name, tensor in state.items() if name.startswith("encoder.")}
    custom = {
        f"{hf.CUSTOM_HEAD}.{name.removeprefix('head.')}": tensor
        for name, tensor in state.items()
        if name.startswith("head.")
    }
    hf_encoder = to_hf(encoder, mapping, kind="encoder", heads=heads)
    return {**hf_encoder, **custom}, {"architectures": [mapping.classes["encoder"]], **head}
