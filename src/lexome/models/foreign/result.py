"""What every reader of this package gives, and what it says of weights it does not know."""

import json
from collections.abc import Iterable
from typing import Any

import torch

from lexome.errors import CheckpointError
from lexome.models.foreign.release import Release
from lexome.values import value


@value
class Foreign:
    """A checkpoint of another framework in Hugging Face's form.

    config           a config.json with its model_type
    weights          under Hugging Face's names, in the type they were saved in. Some are still mapped from the file,
                     privately: copy them into a model, which the file must outlive otherwise
    tokenizer_files  by file name; a tokenizer.json is among them where there was anything to make it of
    left_out         what the checkpoint has and a model has no use for: optimizer states, step counts, tied copies
    """

    layout: str
    config: dict[str, Any]
    weights: dict[str, torch.Tensor]
    tokenizer_files: dict[str, bytes]
    left_out: tuple[str, ...] = ()


def unknown(where: str, names: Iterable[str], *, layout: str) -> CheckpointError:
    """The error for weights that have no place in a model of this layout, the first of them named."""
    listed = sorted(names)
    more = f" and {len(listed) - 1} more" if len(listed) > 1 else ""
    return CheckpointError(
        f"{where} has the weights {listed[0]!r}{more}, which {layout} does not have. "
        "Remove them if they belong to a task's head, or check the kind of model."
    )


def missing(where: str, name: str, *, layout: str) -> CheckpointError:
    """The error for weights a model of this layout cannot be without."""
    return CheckpointError(f"{where}: the weights {name!r} are missing, so this is no whole {layout}. Fetch it again.")


def read_json(release: Release, name: str) -> dict[str, Any]:
    """The object in a JSON file of a release."""
    try:
        content: Any = json.loads(release.read(name))
    except ValueError as error:
        raise CheckpointError(f"{release.where(name)}: not JSON ({error}). Fetch it again.") from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{release.where(name)}: a {type(content).__name__}; expected an object of settings.")
    return content
