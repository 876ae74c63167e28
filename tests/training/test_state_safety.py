"""A training state runs no code and does not resume where a bit of it changed, whatever in it was changed."""

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from errors import raises
from pretraining import recipe, ticking
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, Metadata

from lexome.corpus.shards import Shards
from lexome.errors import CheckpointError
from lexome.files import CHECKSUMS, write_checksums
from lexome.training.pretrain import pretrain
from lexome.training.trainer import FORM, RUN_FILE


class Malicious:
    """Creates a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


@pytest.fixture(scope="module")
def interrupted(shards: Shards, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of a run that was interrupted after its first state."""
    out = tmp_path_factory.mktemp("interrupted") / "out"
    with pytest.raises(KeyboardInterrupt):
        pretrain(recipe(shards.folder, out, steps=12, log={"every": 5, "save_every": 5}), clock=ticking(stop_after=8))
    return out


@pytest.fixture
def state(interrupted: Path, tmp_path: Path) -> Path:
    """A copy of its state."""
    shutil.copytree(interrupted, tmp_path / "out")
    [path] = (tmp_path / "out" / "state").iterdir()
    return path


def resume(shards: Shards, state: Path) -> None:
    out = state.parents[1]
    pretrain(recipe(shards.folder, out, steps=12, log={"every": 5, "save_every": 5}), progress_shown=False)


def in_metadata(state: Path, malicious: Malicious) -> None:
    (state / ".metadata").write_bytes(pickle.dumps(malicious))


def among_the_metadata(state: Path, malicious: Malicious) -> None:
    metadata = pickle.loads((state / ".metadata").read_bytes())
    metadata.planner_data = malicious
    (state / ".metadata").write_bytes(pickle.dumps(metadata))


def as_an_entry_of_bytes(state: Path, malicious: Malicious) -> None:
    # torch unpickles entries that are not tensors without any restriction.
    metadata: Metadata = pickle.loads((state / ".metadata").read_bytes())
    metadata.state_dict_metadata = dict.fromkeys(metadata.state_dict_metadata, BytesStorageMetadata())
    place = next(iter(metadata.storage_data.values()))
    raw = pickle.dumps({"form": malicious})
    place.offset, place.length = 0, len(raw)
    (state / place.relative_path).write_bytes(raw)
    metadata.storage_data = dict.fromkeys(metadata.storage_data, place)
    (state / ".metadata").write_bytes(pickle.dumps(metadata))


def as_a_tensor(state: Path, malicious: Malicious) -> None:
    for path in state.glob("*.distcp"):
        torch.save(malicious, path)
        metadata = pickle.loads((state / ".metadata").read_bytes())
        for place in metadata.storage_data.values():
            place.offset, place.length = 0, path.stat().st_size
        (state / ".metadata").write_bytes(pickle.dumps(metadata))


def in_the_run_file(state: Path, malicious: Malicious) -> None:
    torch.save({"form": FORM, "notes": malicious}, state / RUN_FILE)


PLACES = (in_metadata, among_the_metadata, as_an_entry_of_bytes, as_a_tensor, in_the_run_file)


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_a_malicious_state_is_refused_and_not_run(
    shards: Shards, state: Path, tmp_path: Path, place: Callable[[Path, Malicious], None]
) -> None:
    place(state, Malicious(tmp_path / "executed"))
    write_checksums(state)
    with raises(CheckpointError, code="damaged-state", value=state):
        resume(shards, state)
    assert not (tmp_path / "executed").exists()


def test_the_malicious_pickle_would_run(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Malicious(tmp_path / "executed")))
    assert (tmp_path / "executed").exists()


def test_files_outside_the_folder_are_not_read(shards: Shards, state: Path) -> None:
    metadata = pickle.loads((state / ".metadata").read_bytes())
    for place in metadata.storage_data.values():
        place.relative_path = f"../{state.name}/{place.relative_path}"
    (state / ".metadata").write_bytes(pickle.dumps(metadata))
    write_checksums(state)
    with raises(CheckpointError, code="damaged-state", value=state):
        resume(shards, state)


@pytest.mark.parametrize("name", [".metadata", "__0_0.distcp", RUN_FILE, CHECKSUMS])
@pytest.mark.parametrize("place", [0.001, 0.5, 0.999])
def test_a_flipped_bit_is_found(shards: Shards, state: Path, name: str, place: float) -> None:
    raw = bytearray((state / name).read_bytes())
    raw[int(place * len(raw))] ^= 4
    (state / name).write_bytes(raw)
    with raises(CheckpointError, code="damaged-state"):
        resume(shards, state)


@pytest.mark.parametrize("name", [".metadata", "__0_0.distcp", RUN_FILE, CHECKSUMS])
def test_a_missing_file_is_found(shards: Shards, state: Path, name: str) -> None:
    (state / name).unlink()
    with raises(CheckpointError, code="damaged-state", mentions=name):
        resume(shards, state)


@pytest.mark.parametrize(
    ("key", "value"), [("position", {"step": 5}), ("position", 7), ("random", [1]), ("notes", {}), ("notes", None)]
)
def test_values_of_other_types_are_a_damaged_state(shards: Shards, state: Path, key: str, value: object) -> None:
    content = torch.load(state / RUN_FILE, weights_only=True)
    torch.save(content | {key: value}, state / RUN_FILE)
    write_checksums(state)
    with raises(CheckpointError, code="damaged-state", value=state):
        resume(shards, state)


def test_a_state_of_the_version_before_checksums_resumes(shards: Shards, state: Path) -> None:
    content = torch.load(state / RUN_FILE, weights_only=True)
    torch.save(content | {"form": 2}, state / RUN_FILE)
    (state / CHECKSUMS).unlink()
    resume(shards, state)
    assert (state.parents[1] / "model" / "model.safetensors").is_file()
