"""What an exported model folder says about itself: model.json, beside model.onnx and tokenizer.json."""

import hashlib
import json
from dataclasses import asdict, dataclass, fields
from math import isfinite, nan
from pathlib import Path
from typing import Any

from lexome.errors import CheckpointError

# The graph with its weights, settings, tokenizer. The certificate and the card change nothing that is found.
PARTS = ("*.onnx*", "onnx/*.onnx*", "*.json", "*.txt", "*.model")
WITHOUT = ("certificate.json",)


def identity_of(folder: Path) -> dict[str, str]:
    """The folder's name and the SHA-256 of its files, the same wherever the folder is."""
    digest = hashlib.sha256()
    files = {path for part in PARTS for path in folder.glob(part) if path.is_file() and path.name not in WITHOUT}
    for path in sorted(files, key=lambda path: path.relative_to(folder).as_posix()):
        with path.open("rb") as stream:
            own = hashlib.file_digest(stream, "sha256").hexdigest()
        digest.update(f"{path.relative_to(folder).as_posix()} {own}\n".encode())
    return {"name": folder.resolve().name, "sha256": digest.hexdigest()}


MODEL, SETTINGS, TOKENIZER = "model.onnx", "model.json", "tokenizer.json"

# Raised when older versions of Lexome could not read what is written.
FORM_VERSION = 1


@dataclass(frozen=True, slots=True)
class Settings:
    """The facts that a model is run by.

    kind              encoder, masked, token, sequence or span
    max_tokens        the longest row the model takes, special tokens included
    width             of a hidden state
    before, after     ids that stand around a text: [CLS] and [SEP], or <s> and </s>
    between           ids that stand between two texts of one row
    pad, mask         ids of the padding and mask tokens; mask is None where the tokenizer has none
    segments          whether the graph asks for segments
    labels            of a token or sequence head, in order
    tokenizer_sha256  of tokenizer.json
    difference        the largest seen between onnxruntime's numbers and torch's in double precision, at export
    source            where it came from: the folder's name, the architecture, the hash of its weights
    task              of a fine-tuned model, what its numbers mean: tasks.task_of reads it; None where it is not said
    calibration       of mentions, by type, the slope and the offset that make log-odds of scores true ones: see
                      calibrate.py; None where scores are as the model gives them
    """

    kind: str
    max_tokens: int
    width: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    between: tuple[int, ...]
    pad: int
    mask: int | None
    segments: bool
    labels: tuple[str, ...]
    tokenizer_sha256: str
    opset: int
    precision: str
    difference: float
    source: dict[str, str]
    task: dict[str, Any] | None = None
    calibration: dict[str, tuple[float, float]] | None = None
    version: int = FORM_VERSION


def read_settings(folder: Path) -> Settings:
    """The settings of an exported folder; CheckpointError for what is no such folder."""
    path = folder / SETTINGS
    try:
        held = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise _no_export(folder) from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read ({error}). Export the model again.") from None
    if not isinstance(held, dict) or held.get("version") != FORM_VERSION:
        seen = held.get("version") if isinstance(held, dict) else None
        raise CheckpointError(
            f"{path}: its version is {seen}; expected {FORM_VERSION}. Export the model again with this Lexome."
        )
    return _checked(path, held)


def write_settings(folder: Path, settings: Settings) -> None:
    """Write model.json."""
    text = json.dumps(asdict(settings), indent=2, ensure_ascii=False)
    (folder / SETTINGS).write_text(text + "\n", encoding="utf-8")


def _checked(path: Path, held: dict[str, Any]) -> Settings:
    names = {field.name for field in fields(Settings)}
    # Folders of before it was there are as those without it.
    held = {"calibration": None, **held}
    if wrong := sorted(names ^ held.keys()):
        what = "lacks" if wrong[0] in names else "has the unknown"
        raise CheckpointError(f"{path}: {what} {wrong[0]!r}. Export the model again.")
    given: dict[str, Any] = {
        name: tuple(content) if isinstance(content, list) else content for name, content in held.items()
    }
    return Settings(**{**given, "calibration": _curves(path, held["calibration"])})


def _curves(path: Path, held: Any) -> dict[str, tuple[float, float]] | None:
    if held is None:
        return None
    try:
        curves = {str(type_): (float(slope), float(offset)) for type_, (slope, offset) in held.items()}
    except (AttributeError, TypeError, ValueError):
        curves = {"": (nan, nan)}
    if not all(isfinite(number) for curve in curves.values() for number in curve):
        raise CheckpointError(
            f"{path}: calibration is {held!r}; expected a slope and an offset for each type. Export the model again."
        )
    return curves


def _no_export(folder: Path) -> CheckpointError:
    if not folder.exists():
        return CheckpointError(f"{folder}: there is no such folder; expected an exported model. Check the path.")
    if not folder.is_dir():
        return CheckpointError(f"{folder}: this is a file; expected a folder that `lexome export` made. Name that.")
    if (folder / "config.json").is_file():
        return CheckpointError(
            f"{folder}: this is a checkpoint, and an exported model was expected. "
            f"Export it first: lexome export {folder} {folder}-onnx"
        )
    return CheckpointError(
        f"{folder}: no {SETTINGS} is there; expected a folder that `lexome export` made. Check the path."
    )
