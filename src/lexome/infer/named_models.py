"""Models by name: that of the package, and those in folders of models.

A name is looked up in the package ("default"), then in each folder of the search path, by default `models`, where a
model is a folder of its own. A path to a folder is taken as it is. Nothing is read from the environment.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lexome.errors import CheckpointError, LexomeError, UsageError
from lexome.infer.annotator import default_model
from lexome.infer.predictor import SETTINGS, read_settings

DEFAULT = "default"
SEARCH_PATH = (Path("models"),)
CARD, CONFIG, CERTIFICATE = "README.md", "config.json", "certificate.json"


@dataclass(frozen=True, slots=True)
class NamedModel:
    """A model that can be used by its name.

    task      ner, relation, classes, questions, ...; None of a model without a task
    runnable  whether it runs as it is; a checkpoint has to be exported first
    megabytes of all its files
    scores    of its certificate, by metric and held-out source; empty where it has none
    """

    name: str
    folder: Path
    card: Path | None
    task: str | None
    runnable: bool
    megabytes: float
    licence: str | None
    scores: dict[str, float]
    problem: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """All of it for JSON."""
        return {**asdict(self), "folder": str(self.folder), "card": None if self.card is None else str(self.card)}


def resolve_model(name: str | Path, *, search_path: Sequence[Path] | None = None) -> Path:
    """The folder of a model, given by its name or by its path; UsageError lists the names there are."""
    path = Path(name)
    if _is_model(path) or len(path.parts) != 1:
        return path
    if str(name) == DEFAULT:
        return default_model()
    for folder in SEARCH_PATH if search_path is None else search_path:
        if _is_model(folder / path):
            return folder / path
    if path.exists():
        return path
    names = ", ".join(model.name for model in list_models(search_path=search_path))
    message = f"no model {str(name)!r}: neither a folder nor one of {names}. Check the name, or add --models-path."
    raise UsageError(message, code="unknown-model", value=str(name))


def list_models(*, search_path: Sequence[Path] | None = None) -> list[NamedModel]:
    """The models that can be used by name: the package's, then those of the search path, in order of their names."""
    return list(_models(SEARCH_PATH if search_path is None else search_path))


def _models(folders: Sequence[Path]) -> Iterator[NamedModel]:
    # A source tree may lack the package's model.
    with suppress(CheckpointError):
        yield describe_model(default_model(), name=DEFAULT)
    for folder in folders:
        if folder.is_dir():
            yield from (describe_model(path) for path in sorted(folder.iterdir()) if _is_model(path))


def _is_model(folder: Path) -> bool:
    return (folder / SETTINGS).is_file() or (folder / CONFIG).is_file()


def describe_model(folder: Path, *, name: str | None = None) -> NamedModel:
    """What a model folder says about itself."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    card = folder / CARD if (folder / CARD).is_file() else None
    facts = _card_facts(card)
    task, problem = None, None
    runnable = (folder / SETTINGS).is_file()
    if runnable:
        try:
            settings = read_settings(folder)
            task = str(settings.task["kind"]) if settings.task else settings.kind
        except LexomeError as error:
            runnable, problem = False, str(error)
    return NamedModel(
        name=name or folder.name,
        folder=folder,
        card=card,
        task=task,
        runnable=runnable,
        megabytes=round(sum(path.stat().st_size for path in files) / 1e6, 1),
        licence=facts.get("license"),
        scores=_scores(folder),
        problem=problem,
    )


def _card_facts(card: Path | None) -> dict[str, str]:
    """The plain fields in the front matter of a model card."""
    lines = card.read_text(encoding="utf-8", errors="replace").splitlines() if card is not None else []
    if not lines or lines[0] != "---" or "---" not in lines[1:]:
        return {}
    pairs = (line.partition(":") for line in lines[1 : lines.index("---", 1)] if not line.startswith((" ", "-")))
    return {key.strip(): value.strip().strip("\"'") for key, _, value in pairs if value.strip()}


def _scores(folder: Path) -> dict[str, float]:
    """The scores in an int8 model's certificate: of the model as it is, on held-out data."""
    try:
        score = json.loads((folder / CERTIFICATE).read_bytes())["score"]
        return {f"{score['measure']} on {source}": float(value) for source, value in score["sources"].items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return {}
