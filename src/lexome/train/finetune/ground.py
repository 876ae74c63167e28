"""What all runs of a recipe stand on: the checkpoint they begin with, its hash, and the rows made for it."""

import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lexome.models.source import HUGGING_FACE, layout_of
from lexome.models.weights import weights_sha256
from lexome.recipe.finetune import FinetuneRecipe
from lexome.train.finetune.frame import put_tokenizer
from lexome.train.finetune.material import Material
from lexome.train.finetune.summary import start_of


@dataclass(frozen=True)
class Ground:
    """The checkpoint, the hash of its weights, and the material."""

    start: Path
    sha256: str
    material: Material


@contextmanager
def grounded(recipe: FinetuneRecipe) -> Iterator[Ground]:
    """What all runs stand on; the tokenizer lies in a folder of its own meanwhile."""
    scratch = Path(tempfile.mkdtemp(prefix="lexome-finetune-"))
    try:
        put_tokenizer(start_of(recipe.start), scratch)
        yield ground_of(recipe, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def ground_of(recipe: FinetuneRecipe, tokenizer: Path) -> Ground:
    """The same where the tokenizer has been put in its folder before."""
    start = start_of(recipe.start)
    return Ground(start, checkpoint_sha256(start), Material.opened(recipe, start, tokenizer))


def checkpoint_sha256(start: Path) -> str:
    """The hash of a checkpoint's weights, or of all files of another layout."""
    if layout_of(start) == HUGGING_FACE:
        return weights_sha256(start)
    total = hashlib.sha256()
    for path in sorted(start.rglob("*")) if start.is_dir() else [start]:
        if path.is_file():
            with path.open("rb") as stream:
                while block := stream.read(1 << 20):
                    total.update(block)
    return total.hexdigest()
