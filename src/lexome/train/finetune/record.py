"""run.json of one fine-tuning run: what it was, what it came to, and the mark that it is done."""

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from lexome.errors import CheckpointError
from lexome.formats.files import replacing
from lexome.recipe.finetune import FinetuneRecipe
from lexome.tasks.task import Scores
from lexome.train.record import RUN, surroundings


@dataclass(frozen=True, slots=True)
class Facts:
    """What one run came to. `identity` is the hash of all that its outcome depends on.

    scores        by split, each measure by its name
    measure       what the weights were chosen by
    steps         that were made, of which `best_step` gave the weights that are kept
    labels, bias  how often each label is right in training, and the share of those that are not the usual one
    notes         what of the documents could not be said to the model, counted
    kept          whether the weights are still there
    """

    name: str
    identity: str
    seed: int
    fold: int | None
    batch: int | None
    lr: float | None
    epochs: float | None
    scores: dict[str, Scores]
    measure: str | None
    steps: int
    best_step: int
    stopped_early: bool
    tokens: int
    seconds: float
    device: str
    precision: str
    compiled: bool
    labels: dict[str, int]
    bias: float | None
    notes: dict[str, int]
    warnings: tuple[str, ...]
    start: dict[str, Any]
    kept: bool = True


def write_facts(folder: Path, facts: Facts, recipe: FinetuneRecipe) -> None:
    """Write run.json, the mark that a run is done; all else of the run is there before it."""
    content = {
        "stage": recipe.stage,
        "done": True,
        **asdict(facts),
        **surroundings(),
        "recipe": recipe.model_dump(mode="json", exclude_none=True),
    }
    with replacing(folder / RUN) as stream:
        stream.write(json.dumps(content, indent=1, ensure_ascii=False).encode() + b"\n")


def read_facts(folder: Path) -> Facts | None:
    """What a finished run came to; None where it is not finished."""
    path = folder / RUN
    if not path.is_file():
        return None
    try:
        held = json.loads(path.read_bytes())
        given = {field.name: held[field.name] for field in fields(Facts)}
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path}: is no record of a fine-tuning ({error!r}). Choose another `out`.") from None
    return Facts(**given | {"warnings": tuple(given["warnings"])})


def finished(folder: Path, identities: Collection[str]) -> Facts | None:
    """The facts of this very run, by any of its identities, where it is done; CheckpointError for another run."""
    facts = read_facts(folder)
    if facts is not None and facts.identity not in identities:
        raise CheckpointError(
            f"{folder}: holds a run with other settings, other data or another checkpoint. Choose another `out`, or "
            "remove that folder."
        )
    return facts
