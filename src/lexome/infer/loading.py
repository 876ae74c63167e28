"""load: model folders opened as one annotator, or the model that comes with Lexome."""

from importlib import resources
from pathlib import Path

from lexome.errors import CheckpointError
from lexome.infer.annotator import Annotator
from lexome.infer.settings import SETTINGS

DEFAULT = "default_model"


def load(*folders: str | Path, threads: int | None = None) -> Annotator:
    """The models in these folders as one annotator; without any, the model that comes with Lexome."""
    paths = [Path(folder) for folder in folders] or [default_model()]
    return Annotator.open(*paths, threads=threads)


def default_model() -> Path:
    """The folder of the model that comes with Lexome."""
    folder = Path(str(resources.files("lexome") / DEFAULT))
    if not (folder / SETTINGS).is_file():
        raise CheckpointError(
            f"{folder}: the model that comes with Lexome is not there. Install Lexome again, or name a folder that "
            "`lexome export` made."
        )
    return folder
