"""Token classifiers of Hugging Face that were exported to ONNX: their folders opened as Lexome's own are."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lexome.errors import CheckpointError
from lexome.infer.predictor import Predictor, open_session
from lexome.infer.settings import MODEL, SETTINGS, TOKENIZER, Settings
from lexome.infer.tokens import open_tokens
from lexome.tasks import Ner, task_of

CONFIG = "config.json"
# Where `optimum-cli export onnx` and the Hub's own exports put the graph.
GRAPHS = (MODEL, f"onnx/{MODEL}")

# Their first positions are those of padding.
PADDED_POSITIONS = ("roberta", "xlm-roberta", "camembert", "xlm-roberta-xl", "longformer", "mpnet")

# BILOU's letters in IOBES.
LETTERS = {"L": "E", "U": "S"}


def is_hugging_face(folder: Path) -> bool:
    """Whether a folder holds an ONNX graph beside Hugging Face's configuration, and is none of Lexome's own."""
    return not (folder / SETTINGS).exists() and (folder / CONFIG).is_file() and _graph(folder) is not None


def open_hugging_face(folder: Path, *, threads: int | None = None) -> tuple[Predictor, list[int | None]]:
    """The model, and for each label of its task the column of the model's that says it."""
    graph = _graph(folder)
    assert graph is not None
    config, held = _json(folder / CONFIG), _json(folder / TOKENIZER)
    names = _labels(folder, config)
    task, columns = _task(folder, names)
    before, after = around(held)
    settings = Settings(
        kind="token",
        max_tokens=_max_tokens(folder, config),
        width=int(config.get("hidden_size") or config.get("dim") or 0),
        before=before,
        after=after,
        between=after,
        pad=int(config.get("pad_token_id") or 0),
        mask=None,
        segments=False,
        labels=tuple(names),
        tokenizer_sha256=hashlib.sha256((folder / TOKENIZER).read_bytes()).hexdigest(),
        opset=0,
        precision="fp32",
        difference=0.0,
        source={"name": folder.resolve().name, "architecture": str(config.get("model_type", "unknown"))},
        task=dict(task.settings()),
    )
    session = open_session(graph, threads)
    _check_output(folder, session, len(names))
    return Predictor(folder, settings, open_tokens(folder / TOKENIZER), session, graph=graph), columns


def _check_output(folder: Path, session: Any, labels: int) -> None:
    """CheckpointError where a graph gives something else than a number for each label of each token."""
    found = {output.name: output.shape for output in session.get_outputs()}
    if "logits" not in found:
        raise CheckpointError(
            f"{folder}: the graph gives {', '.join(found)}; expected logits. Export it as a token classifier."
        )
    shape = found["logits"]
    # What a graph leaves open has a name in place of a number.
    other = isinstance(shape[-1], int) and shape[-1] != labels if shape else False
    if other or (shape and len(shape) != len(("texts", "tokens", "labels"))):
        raise CheckpointError(
            f"{folder}: the graph's logits have the shape {shape}; expected texts, tokens and the {labels} labels of "
            f"{CONFIG}. Export model and {CONFIG} together."
        )


def around(held: Mapping[str, Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids that a tokenizer.json puts before and after a text."""
    step = held.get("post_processor") or {}
    for one in step["processors"] if step.get("type") == "Sequence" else (step,):
        if one.get("type") == "TemplateProcessing":
            text = next(place for place, part in enumerate(one["single"]) if "Sequence" in part)
            return _special(one, one["single"][:text]), _special(one, one["single"][text + 1 :])
        if one.get("type") in ("BertProcessing", "RobertaProcessing"):
            return (int(one["cls"][1]),), (int(one["sep"][1]),)
    return (), ()


def _special(step: Mapping[str, Any], parts: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
    return tuple(id_ for part in parts for id_ in step["special_tokens"][part["SpecialToken"]["id"]]["ids"])


def _graph(folder: Path) -> Path | None:
    return next((folder / name for name in GRAPHS if (folder / name).is_file()), None)


def _json(path: Path) -> dict[str, Any]:
    try:
        held = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise CheckpointError(
            f"{path.parent}: {path.name} is missing; expected a Hugging Face folder that has it. "
            "Save the model's fast tokenizer there."
        ) from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read ({error}). Get the file again.") from None
    if not isinstance(held, dict):
        raise CheckpointError(f"{path}: holds a {type(held).__name__}; expected a JSON object. Get the file again.")
    return held


def _max_tokens(folder: Path, config: Mapping[str, Any]) -> int:
    most = int(config.get("max_position_embeddings") or 512)
    if config.get("model_type") in PADDED_POSITIONS:
        most -= int(config.get("pad_token_id") or 0) + 1
    path = folder / "tokenizer_config.json"
    said = _json(path).get("model_max_length") if path.is_file() else None
    return min(most, int(said)) if said else most


def _labels(folder: Path, config: Mapping[str, Any]) -> list[str]:
    held = config.get("id2label") or {}
    try:
        names = [str(held[str(number)]) for number in range(len(held))]
    except KeyError as error:
        raise CheckpointError(f"{folder / CONFIG}: id2label has no {error}; expected 0 and on. Correct it.") from None
    if "O" not in names or not any(name[1:2] == "-" for name in names):
        seen = ", ".join(names[:4]) or "none"
        raise CheckpointError(
            f"{folder}: its labels are {seen}; expected tags of mentions such as O, B-Gene, I-Gene. "
            "Use a token classifier, or write the tags into id2label of its config.json."
        )
    return names


def _task(folder: Path, names: Sequence[str]) -> tuple[Ner, list[int | None]]:
    """The task that tags describe, and the columns of its labels."""
    places: dict[str, int] = {}
    for place, name in enumerate(names):
        letter, dash, type_ = name.partition("-")
        places[f"{LETTERS.get(letter, letter)}-{type_}" if dash else name] = place
    odd = sorted(name for name in places if name != "O" and name[:2] not in ("B-", "I-", "E-", "S-"))
    if odd:
        raise CheckpointError(
            f"{folder}: one of its labels is {odd[0]!r}; expected O and tags that begin with B-, I-, E-, S-, L- or "
            f"U-. Write such tags into id2label of its {CONFIG}."
        )
    types = list(dict.fromkeys(name[2:] for name in places if name != "O"))
    iobes = any(name[:2] in ("E-", "S-") for name in places)
    # Tags of IOB1 and of types without a beginning are read as conlleval reads them.
    strict = all(f"B-{type_}" in places for type_ in types)
    task = task_of(
        {
            "kind": "ner",
            "types": types,
            "scheme": "iobes" if iobes else "iob2",
            "decoding": "viterbi" if strict else "repair",
        }
    )
    assert isinstance(task, Ner)
    return task, [places.get(label) for label in task.labels]
