"""A run that was stopped goes on: its weights, its optimizer, where it was and what it had found, in one file."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from lexome.errors import FormatError
from lexome.formats.files import replacing
from lexome.train.finetune.optim import kept, put_back
from lexome.train.finetune.training import Progress, Training

STATE = "state.pt"
# Raised whenever what is saved changes: the state of another version is not taken up.
VERSION = 1


class Saver:
    """Saves the state of a run into its folder when so many seconds have gone by since the last time.

    The state is marked with the first of the run's identities, and taken up with any of them.
    """

    def __init__(self, folder: Path, *, identities: Sequence[str], every_s: float) -> None:
        self.path, self.identities, self.every_s = folder / STATE, identities, every_s
        self.saved_s = time.monotonic()

    def __call__(self, training: Training) -> None:
        """Save, where it is time. A run that cannot be saved, as on a full disk, goes on without."""
        if time.monotonic() - self.saved_s < self.every_s:
            return
        try:
            with replacing(self.path) as stream:
                torch.save({"mark": _mark(self.identities[0], training), **state_of(training)}, stream)
        except (OSError, RuntimeError, FormatError) as error:  # torch says a full disk as RuntimeError
            print(f"{self.path} cannot be written ({error}); the run goes on without.", file=sys.stderr)
        self.saved_s = time.monotonic()

    def restore(self, training: Training) -> None:
        """Go on from what was saved, where that was this run on this kind of device; else from the beginning."""
        try:
            held = torch.load(self.path, map_location=training.setting.device, weights_only=True)
        except FileNotFoundError:
            return
        except Exception as error:  # torch has no one kind for a file that is none of its own
            print(f"{self.path} cannot be read ({type(error).__name__}); the run begins again.", file=sys.stderr)
            return
        known = [_mark(identity, training) for identity in self.identities]
        if not isinstance(held, dict) or held.get("mark") not in known:
            print(f"{self.path} is of another run or device; the run begins again.", file=sys.stderr)
            return
        take_up(training, held)

    def remove(self) -> None:
        """The run is done, and nothing will go on from here."""
        self.path.unlink(missing_ok=True)


def _mark(identity: str, training: Training) -> list[Any]:
    """What a state must have in common with a run: half a run on a GPU and half on a CPU would be neither."""
    return [VERSION, identity, training.setting.device.type]


def state_of(training: Training) -> dict[str, Any]:
    """All that the rest of a run depends on."""
    device = training.setting.device
    return {
        "weights": kept(training.learner),
        "moments": training.stepper.moments(),
        "progress": dict(vars(training.progress)),
        "generator": torch.get_rng_state(),
        "gpu_generator": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
    }


def take_up(training: Training, held: dict[str, Any]) -> None:
    """Put a run where another one was when its state was taken."""
    put_back(training.learner, held["weights"])
    training.stepper.take_moments(held["moments"])
    training.progress = Progress(**held["progress"])
    torch.set_rng_state(held["generator"].cpu())
    if held["gpu_generator"] is not None:
        torch.cuda.set_rng_state(held["gpu_generator"].cpu(), training.setting.device)
