"""A model folder in Hugging Face's own form: read, with nothing passed over in silence, and written."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import lexome
from lexome.errors import CheckpointError, UsageError
from lexome.files import atomic_folder
from lexome.models import backend as transformers_backend
from lexome.models import hf_config
from lexome.models.backend import TransformersEncoder, TransformersMaskedLM
from lexome.models.config import EncoderConfig
from lexome.models.encoder import Encoder, parameters_of
from lexome.models.foreign import read_foreign
from lexome.models.heads import HiddenLayers, Labeller, MaskedLM, PairedLM, SequenceHead, SpanHead, TokenHead
from lexome.models.hf_config import architecture_of, read_config, write_config
from lexome.models.names import ARCHITECTURES, KINDS, WORDS, Found, from_hf, to_hf
from lexome.models.source import HUGGING_FACE, layout_of, read_settings, read_without, stored_type
from lexome.models.weights import SAFE, read_weights, tokenizer_files, write_tokenizer, write_weights

PIPELINES = {
    "encoder": "feature-extraction",
    "masked": "fill-mask",
    "paired": "fill-mask",
    "token": "token-classification",
    "sequence": "text-classification",
    "span": "question-answering",
}


@dataclass(frozen=True, slots=True)
class Card:
    """The facts of a model, said by who made it. Nothing here is guessed.

    data      sentences about the text it was trained on, with the licences of that text
    recipe    the recipe it was made by, as TOML
    scores    rows of (what was measured, value, how)
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


def render(card: Card, *, kind: str, facts: Mapping[str, str]) -> str:
    """The text of README.md. `facts` are what the model itself tells: its size, its architecture."""
    front = {
        "license": card.license,
        "language": list(card.language),
        "base_model": card.base_model,
        "pipeline_tag": PIPELINES[kind],
        "tags": ["lexome", *(tag for tag in card.tags if tag != "lexome")],
        "library_name": "transformers",
        "datasets": list(card.datasets),
    }
    # JSON is YAML, and needs no rules about what must be quoted: the language code "no" stays a language.
    lines = [f"{key}: {json.dumps(held, ensure_ascii=False)}" for key, held in front.items() if held]
    parts = ["---", *lines, "---", "", f"# {card.title}", "", card.summary, ""]
    parts += ["## Model", "", *(f"- {name}: {said}" for name, said in facts.items()), ""]
    parts += ["## Data", "", card.data, ""]
    if card.recipe:
        parts += ["## Recipe", "", "```toml", card.recipe.strip(), "```", ""]
    parts += ["## Scores", "", *_scores(card), ""]
    if card.limits:
        parts += ["## Limits", "", card.limits, ""]
    return "\n".join(parts)


def _scores(card: Card) -> list[str]:
    if not card.scores:
        return ["None were measured."]
    rows = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in card.scores]
    return ["| measured | value | how |", "| --- | --- | --- |", *rows]


# Who computes the model: our own encoder, or transformers; auto is our own where it can.
BACKENDS = ("auto", "lexome", "transformers")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model from a folder or another checkpoint, in evaluation mode, and what was said there about it.

    kind             what the model is: one of names.KINDS
    labels           of a token or sequence head, in order
    settings         config.json as it is
    tokenizer        the tokenizer's files in the folder
    unused           weights of the folder that this kind of model has no place for, by their names there
    new              weights of the model that the folder lacks and that were drawn anew, by our names
    backend          who computes the model: "lexome" or "transformers"
    layout           "huggingface", or one of lexome.models.foreign
    tokenizer_files  of another layout than Hugging Face's: the tokenizer's files, by name
    left_out         of another layout: what the checkpoint has and no model has a use for
    dropped          what was asked to be left out, so that the model computes something else than the checkpoint's
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


def load(
    path: Path,
    *,
    kind: str | None = None,
    labels: Sequence[str] = (),
    hidden: HiddenLayers | None = None,
    new_head: bool = False,
    dtype: torch.dtype | None = torch.float32,
    backend: str = "auto",
    drop: str | None = None,
) -> Checkpoint:
    """The model in a folder, or in any other checkpoint that foreign reads, as `kind` or as what it was saved as.

    Weights of a head that the folder lacks are an error, unless `new_head` allows them to be drawn anew from torch's
    generator; `labels` and `hidden` then say what the new head is like. Weights of the encoder are never made up.
    A `dtype` of None is the one that the weights have. `drop` is one of mpnet.DROPS, for another model than the saved.
    """
    options: dict[str, Any] = {"kind": kind, "labels": labels, "hidden": hidden, "new_head": new_head}
    if drop is None and layout_of(path) == HUGGING_FACE:
        settings = read_settings(path)
        # A configuration that is not understood is refused before gigabytes are read.
        backend = _backend(backend, settings, kind, str(path / "config.json"))
        weights = read_weights(path)
        return assemble(settings, weights, folder=path, dtype=dtype or stored_type(weights), backend=backend, **options)
    foreign = read_foreign(path) if drop is None else read_without(path, drop)
    dtype = dtype or stored_type(foreign.weights)
    # Copies: some of the tensors are still mapped from the file.
    weights = {name: tensor.to(dtype, copy=True) for name, tensor in foreign.weights.items()}
    found = assemble(foreign.config, weights, folder=path, dtype=dtype, backend=backend, **options)
    return replace(
        found,
        layout=foreign.layout,
        tokenizer=(),
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
    """The model of a config.json and weights under Hugging Face's names, wherever they are from; else as `load`."""
    where = str(folder / "config.json" if folder.is_dir() else folder)
    if _backend(backend, settings, kind, where) == "transformers":
        options: dict[str, Any] = {"labels": labels, "hidden": hidden, "new_head": new_head, "dtype": dtype}
        made = transformers_backend.assemble(settings, weights, where=str(folder), kind=kind, **options)
        given = (made.kind, made.config, made.model, made.labels, dict(settings), tokenizer_files(folder))
        architecture = str(settings["model_type"])
        return Checkpoint(folder, architecture, *given, made.unused, made.new, backend="transformers")
    architecture = architecture_of(settings, where=where)
    config = read_config(settings, where=where)
    kind = _kind(kind, architecture, settings, where)
    labels = tuple(labels)
    if kind in ("token", "sequence", "span"):
        hidden = hidden or hf_config.hidden_of(settings, architecture, kind)
        # A new head with labels nobody named would have two of them, in silence.
        if not labels and (not new_head or "id2label" in settings):
            labels = hf_config.labels_of(settings)
    form: dict[str, Any] = {"hidden": hidden, "labels": len(labels), "pooling": hf_config.pooling_of(settings, kind)}
    with torch.device("meta"):
        model = build(config, kind, **form)
    found = _found(folder, model, weights, settings, kind=kind)
    _check_shapes(folder, found, model)
    if found.missing:
        _check_missing(folder, found, kind, allowed=new_head)
        model = build(config, kind, **form)
    model.load_state_dict(_as_ours(found.weights, model, dtype), strict=not found.missing, assign=True)
    model.to(dtype).eval()
    files = tokenizer_files(folder)
    return Checkpoint(
        folder, architecture, kind, config, model, labels, dict(settings), files, found.unused, found.missing
    )


def build(
    config: EncoderConfig,
    kind: str,
    *,
    labels: int = 2,
    hidden: HiddenLayers | None = None,
    pooling: str = "first",
) -> nn.Module:
    """A new model of a kind, its weights drawn from torch's generator."""
    if kind == "encoder":
        return Encoder(config)
    if kind == "masked":
        return MaskedLM(config)
    if kind == "paired":
        return PairedLM(config)
    head = hf_config.label_head(config, kind, labels=labels, hidden=hidden, pooling=pooling)
    return Labeller(Encoder(config), head)


def save(
    folder: Path,
    model: nn.Module,
    *,
    architecture: str,
    tokenizer: Path,
    card: Card,
    labels: Sequence[str] = (),
    run: Mapping[str, Any] | None = None,
    replace: bool = False,
) -> None:
    """Write a model as a folder that transformers and `load` read: weights, config, tokenizer, card, run.json.

    All is written under another name first. A folder that exists is an error unless `replace` is set.
    """
    if folder.exists() and any(folder.iterdir()) and not replace:
        raise CheckpointError(f"{folder}: exists and is not empty. Choose another folder, or remove it.")
    kind, config = kind_of(model), encoder_of(model).config
    write = _writer(model, architecture, kind, labels)
    with atomic_folder(folder) as temporary:
        special = write_tokenizer(tokenizer, temporary, max_tokens=config.max_tokens, vocab=config.vocab)
        write(temporary, {f"{name}_id": number for name, number in special.items() if name in _IDS})
        text = render(card, kind=kind, facts=_facts(model, config, architecture))
        (temporary / "README.md").write_text(text, encoding="utf-8")
        _write_json(temporary / "run.json", {"lexome": lexome.__version__, "torch": torch.__version__, **(run or {})})


# Which of the special tokens config.json tells the id of.
_IDS = ("pad_token", "bos_token", "eos_token", "cls_token", "sep_token")


def kind_of(model: nn.Module) -> str:
    """What a model is: one of names.KINDS."""
    heads = {TokenHead: "token", SequenceHead: "sequence", SpanHead: "span"}
    if isinstance(model, Labeller):
        return heads[type(model.head)]
    known: dict[type[nn.Module], str] = {Encoder: "encoder", MaskedLM: "masked", PairedLM: "paired"}
    known |= {TransformersEncoder: "encoder", TransformersMaskedLM: "masked"}
    if type(model) not in known:
        raise CheckpointError(
            f"{type(model).__name__} is no model that has a folder form; expected Encoder, MaskedLM, PairedLM or "
            "Labeller. Take what a wrapper wraps."
        )
    return known[type(model)]


def encoder_of(model: nn.Module) -> Encoder | TransformersEncoder:
    """The encoder in a model of any kind."""
    encoder = model if isinstance(model, Encoder | TransformersEncoder) else model.encoder
    assert isinstance(encoder, Encoder | TransformersEncoder)
    return encoder


def _writer(
    model: nn.Module, architecture: str, kind: str, labels: Sequence[str]
) -> Callable[[Path, Mapping[str, int]], None]:
    """What writes weights and config.json, given the ids of special tokens; CheckpointError where there is no form."""
    encoder = encoder_of(model)
    if isinstance(encoder, TransformersEncoder):
        # Their config.json has ids of its own, which their code goes by.
        return lambda folder, ids: transformers_backend.write(model, folder, kind=kind, labels=labels)
    settings = write_config(encoder.config, architecture)
    theirs, head = _theirs(model, architecture, kind, labels)

    def write(folder: Path, ids: Mapping[str, int]) -> None:
        write_weights(theirs, folder / SAFE)
        stored = str(next(iter(theirs.values())).dtype).removeprefix("torch.")
        # RoBERTa's pad id is where its positions begin: the model's, whatever the tokenizer says.
        _write_json(folder / "config.json", {**head, "torch_dtype": stored, **ids, **settings})

    return write


def _theirs(
    model: nn.Module, architecture: str, kind: str, labels: Sequence[str]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Weights under their names, and what config.json says about the head."""
    names = ARCHITECTURES[architecture]
    heads = encoder_of(model).config.heads
    ours = dict(model.state_dict())
    if kind == "encoder":
        ours = {f"encoder.{name}": tensor for name, tensor in ours.items()}
    if kind not in names.classes:
        raise CheckpointError(f"transformers has no {architecture} with a pair head. Save the MaskedLM or the encoder.")
    if not isinstance(model, Labeller):
        return to_hf(ours, names, kind=kind, heads=heads), {"architectures": [names.classes[kind]]}
    head = hf_config.settings_of(model.head, architecture, kind, labels)
    if hf_config.OWN not in head:
        return to_hf(ours, names, kind=kind, heads=heads), {"architectures": [names.classes[kind]], **head}
    encoder = {name: tensor for name, tensor in ours.items() if name.startswith("encoder.")}
    own = {f"{hf_config.OWN}.{name}": tensor for name, tensor in model.head.state_dict().items()}
    theirs = to_hf(encoder, names, kind="encoder", heads=heads)
    return {**theirs, **own}, {"architectures": [names.classes["encoder"]], **head}


def _found(
    folder: Path, model: nn.Module, weights: Mapping[str, Tensor], settings: Mapping[str, Any], *, kind: str
) -> Found:
    """The weights under our names, with what is missing and what is left over."""
    given = dict(weights)
    architecture, pooling = architecture_of(settings), hf_config.pooling_of(settings, kind)
    names = ARCHITECTURES[architecture]
    heads = encoder_of(model).config.heads
    ours = [name if kind != "encoder" else f"encoder.{name}" for name in model.state_dict()]
    prefix = f"{hf_config.OWN}."
    held = {f"head.{name.removeprefix(prefix)}": given.pop(name) for name in list(given) if name.startswith(prefix)}
    left = tuple(prefix + name.removeprefix("head.") for name in sorted(held))
    hidden = model.head.hidden if isinstance(model, Labeller) else None
    assert hidden is None or isinstance(hidden, HiddenLayers)
    try:
        if hidden is None or hf_config.is_theirs(hidden, settings, architecture, kind=kind, pooling=pooling):
            found = from_hf(given, names, kind=kind, heads=heads, ours=ours)
            return Found(found.weights, found.missing, (*found.unused, *left))
        encoder = [name for name in ours if name.startswith("encoder.")]
        found = from_hf(given, names, kind="encoder", heads=heads, ours=encoder)
    except CheckpointError as error:
        raise CheckpointError(f"{folder}: {error}") from None
    if not hf_config.is_own(hidden, settings, kind=kind, pooling=pooling):
        head = tuple(name for name in ours if not name.startswith("encoder."))
        return Found(found.weights, (*found.missing, *head), (*found.unused, *left))
    if held.keys() - set(ours):
        unknown = min(held.keys() - set(ours))
        raise CheckpointError(f"{folder}: unknown weight {unknown!r} of the head. config.json does not fit it.")
    missing = tuple(name for name in ours if name not in held and not name.startswith("encoder."))
    return Found({**found.weights, **held}, (*found.missing, *missing), found.unused)


def _check_missing(folder: Path, found: Found, kind: str, *, allowed: bool) -> None:
    gone = [name for name in found.missing if name.startswith("encoder.")]
    if gone:
        raise CheckpointError(f"{folder}: {len(gone)} weights of the encoder are missing, first {gone[0]!r}.")
    if not allowed:
        raise CheckpointError(
            f"{folder}: has no weights for a {kind} head (first {found.missing[0]!r}). Load it as another kind, or ask "
            "for a new head (new_head=True), which has to be trained."
        )


def _check_shapes(folder: Path, found: Found, model: nn.Module) -> None:
    prefix = "encoder." if isinstance(model, Encoder) else ""
    for name, tensor in model.state_dict().items():
        given = found.weights.get(prefix + name)
        if given is not None and given.shape != tensor.shape:
            raise CheckpointError(
                f"{folder}: {prefix}{name} is {tuple(given.shape)} in the file, "
                f"but config.json makes it {tuple(tensor.shape)}. They belong to different models."
            )


def _as_ours(weights: Mapping[str, Tensor], model: nn.Module, dtype: torch.dtype) -> dict[str, Tensor]:
    prefix = "encoder." if isinstance(model, Encoder) else ""
    return {name.removeprefix(prefix): tensor.to(dtype) for name, tensor in weights.items()}


def _backend(asked: str, settings: Mapping[str, Any], kind: str | None, where: str) -> str:
    """Who computes the model: as asked for, or our own encoder where it can; CheckpointError where neither does."""
    if asked not in BACKENDS:
        raise UsageError(f"backend {asked!r}; expected one of {', '.join(BACKENDS)}.")
    if asked == "auto":
        asked = "lexome"
        if settings.get("model_type", "bert") not in ARCHITECTURES:
            asked = "transformers"
        elif not settings.get("tie_word_embeddings", True):
            architecture = architecture_of(settings, where=where)
            asked = "transformers" if _asked_or_stated(kind, architecture, settings, where) in WORDS else "lexome"
    if asked == "transformers":
        transformers_backend.their_config(settings, where=where)
    else:
        read_config(settings, where=where)
    return asked


def _kind(asked: str | None, architecture: str, settings: Mapping[str, Any], where: str) -> str:
    """The kind to load: as asked for, or as the folder says."""
    kind = _asked_or_stated(asked, architecture, settings, where)
    if kind in WORDS and not settings.get("tie_word_embeddings", True):
        raise CheckpointError(
            f"{where}: tie_word_embeddings is false, but Lexome's models guess words with their embedding. "
            "Load it through the transformers backend, or as an encoder."
        )
    return kind


def _asked_or_stated(asked: str | None, architecture: str, settings: Mapping[str, Any], where: str) -> str:
    classes = ARCHITECTURES[architecture].classes
    if asked is not None:
        if asked not in KINDS:
            raise CheckpointError(f"kind {asked!r}; expected one of {', '.join(KINDS)}.")
        if asked not in classes:
            raise CheckpointError(f"{where}: transformers has no {architecture} of kind {asked!r}.")
        return asked
    if hf_config.OWN in settings:
        return str(settings[hf_config.OWN]["kind"])
    stated = settings.get("architectures") or []
    for kind, name in classes.items():
        if name in stated:
            return kind
    raise CheckpointError(
        f"{where}: architectures is {stated}; expected one of {', '.join(classes.values())}. Say which kind to load."
    )


def _facts(model: nn.Module, config: EncoderConfig, architecture: str) -> dict[str, str]:
    return {
        "Architecture": architecture,
        "Parameters": f"{parameters_of(model):,}, of which {parameters_of(encoder_of(model)):,} in the encoder",
        "Shape": f"{config.layers} layers of width {config.width}, {config.heads} heads, inner width {config.inner}",
        "Longest sequence": f"{config.max_tokens:,} tokens",
        "Vocabulary": f"{config.vocab:,} pieces",
    }


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
