"""What config.json says about a head: its labels, and the layers before its last matrix."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from lexome.errors import CheckpointError
from lexome.models.config import EncoderConfig
from lexome.models.heads import HiddenLayers, SequenceHead, SpanHead, TokenHead

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
