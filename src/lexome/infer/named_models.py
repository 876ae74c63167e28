"""Models by name: that of the package, and those in folders of models.

A name is looked up in the package ("default"), then in each folder of the search path, where a model is a folder of its
own: by default `models` here, then `models` of the source tree that Lexome runs from. A path to a folder is used as it
is. Nothing is read from the environment.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from lexome.document import shorten
from lexome.errors import CheckpointError, LexomeError, UsageError
from lexome.formats import Paths, as_paths
from lexome.infer.annotator import default_model
from lexome.infer.predictor import SETTINGS, read_settings

DEFAULT = "default"
RELATIONS, READER, YES_NO_READER = "relations", "reader", "reader-yesno"
# Too large for the package: they are in the repository.
OPTIONAL = {
    RELATIONS: "relates chemicals, genes, diseases and variants",
    READER: "answers questions from passages",
    YES_NO_READER: "answers yes/no questions from passages",
}
MODELS = "models"
CARD, CONFIG, CERTIFICATE = "README.md", "config.json", "certificate.json"


@dataclass(frozen=True, slots=True)
class NamedModel:
    """A model that can be used by its name.

    task       ner, relation, classes, questions, ...; None for a model without a task
    runnable   whether it runs as it is; a checkpoint has to be exported first
    megabytes  size of all its files
    scores     from its certificate, by metric and held-out source; empty without one
    """

    name: str
    folder: Path
    card: Path | None
    task: str | None
    runnable: bool
    megabytes: float
    license: str | None
    scores: dict[str, float]
    problem: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """All of it for JSON."""
        return {**asdict(self), "folder": str(self.folder), "card": None if self.card is None else str(self.card)}


def resolve_model(name: str | Path, *, search_path: Paths | None = None) -> Path:
    """The folder of a model, given by its name or by its path; UsageError lists the available names."""
    given: object = name
    if not isinstance(given, str | PathLike):
        message = (
            f"a model is {shorten(repr(name), 60)}; expected a name or folder. Pass several as arguments of their own: "
            'lexome.load("default", "relations").'
        )
        raise UsageError(message, code="not-a-path", value=name)
    path = Path(name)
    if _is_model(path) or len(path.parts) != 1:
        return path
    if str(name) == DEFAULT:
        return default_model()
    folders = _search_path() if search_path is None else _existing(search_path)
    for folder in folders:
        if _is_model(folder / path):
            return folder / path
    if (purpose := OPTIONAL.get(str(name))) is not None:
        searched = " and ".join(str(folder) for folder in folders) or "no folder"
        message = (
            f"no model {str(name)!r}, which {purpose}: it is not part of the package, but of Lexome's repository, in "
            f"{MODELS}/{name}. Searched: {searched}. Copy it to {MODELS}/{name}, pass --models-path FOLDER, or use "
            "another model with --model FOLDER."
        )
        raise UsageError(message, code="missing-model", value=str(name))
    if path.exists():
        return path
    names = ", ".join(model.name for model in list_models(search_path=search_path))
    message = f"no model {str(name)!r}: neither a folder nor one of {names}. Check the name, or add --models-path."
    raise UsageError(message, code="unknown-model", value=str(name))


def find_readers(*, search_path: Paths | None = None) -> list[Path]:
    """The readers that answer questions unless others are given: exported models named reader and reader-yesno."""
    folders = _search_path() if search_path is None else _existing(search_path)
    names = (READER, YES_NO_READER)
    places = ([folder / name for folder in folders if (folder / name / SETTINGS).is_file()] for name in names)
    return [matches[0] for matches in places if matches]


def list_models(*, search_path: Paths | None = None) -> list[NamedModel]:
    """The models that can be used by name: the package's, then those of the search path, in order of their names."""
    return list(_models(_search_path() if search_path is None else _existing(search_path)))


def with_relations(folders: Sequence[Path], *, search_path: Paths | None = None) -> tuple[Path, ...]:
    """The models together with the one named relations; UsageError if that does not exist."""
    folder = resolve_model(RELATIONS, search_path=search_path)
    present = {path.resolve() for path in folders}
    return tuple(folders) if folder.resolve() in present else (*folders, folder)


def _existing(search_path: Paths) -> Sequence[Path]:
    """The folders of a search path; UsageError if one does not exist."""
    folders = as_paths(search_path)
    for folder in folders:
        if not folder.is_dir():
            message = f"{folder}: no such folder; expected one with models. Check the path of --models-path."
            raise UsageError(message, code="missing-folder", value=folder)
    return folders


def _search_path() -> tuple[Path, ...]:
    """The folder `models` here, and that of the source tree, if Lexome runs from one and it is another."""
    here, own = Path(MODELS), Path(__file__).parents[3]
    in_source_tree = (own / "pyproject.toml").is_file() and (own / MODELS).is_dir()
    return (here, own / MODELS) if in_source_tree and (own / MODELS).resolve() != here.resolve() else (here,)


def _models(folders: Sequence[Path]) -> Iterator[NamedModel]:
    # A source tree may lack the package's model.
    with suppress(CheckpointError):
        yield describe_model(default_model(), name=DEFAULT)
    names = {DEFAULT}
    for folder in folders:
        if folder.is_dir():
            models = [path for path in sorted(folder.iterdir()) if _is_model(path) and path.name not in names]
            yield from map(describe_model, models)
            names |= {path.name for path in models}


def _is_model(folder: Path) -> bool:
    return (folder / SETTINGS).is_file() or (folder / CONFIG).is_file()


def describe_model(folder: Path, *, name: str | None = None) -> NamedModel:
    """Name, task, size, license and scores of a model folder."""
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
        license=facts.get("license"),
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
