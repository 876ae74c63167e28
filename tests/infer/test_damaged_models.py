"""Model folders with a flipped bit, or with values of other types: one clear error, never a wrong model."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from errors import raises

from lexome.errors import CheckpointError, LexomeError
from lexome.files import CHECKSUMS, verify_checksums
from lexome.infer.annotator import _task_of as task_of_settings
from lexome.infer.annotator import default_model
from lexome.infer.predictor import Predictor, identity_of, read_settings
from lexome.models.checkpoint import read_checkpoint


@pytest.fixture
def exported_copy(exported: Path, tmp_path: Path) -> Path:
    return shutil.copytree(exported, tmp_path / "onnx")


def flip(path: Path, place: float) -> None:
    raw = bytearray(path.read_bytes())
    raw[int(place * len(raw))] ^= 1
    path.write_bytes(raw)


@pytest.mark.parametrize("name", ["model.onnx", "model.json", "tokenizer.json", CHECKSUMS])
@pytest.mark.parametrize("place", [0.0, 0.37, 0.99])
def test_a_flipped_bit_of_an_exported_model_is_found(exported_copy: Path, name: str, place: float) -> None:
    flip(exported_copy / name, place)
    with raises(CheckpointError, code="checksum-mismatch"):
        verify_checksums(exported_copy, remedy="")
    with pytest.raises(CheckpointError):
        Predictor.open(exported_copy)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_flipped_bit_of_a_checkpoint_is_found(encoder: Path, tmp_path: Path, name: str) -> None:
    folder = shutil.copytree(encoder, tmp_path / "copy")
    assert read_checkpoint(folder).weights
    flip(folder / name, 0.9)
    with raises(CheckpointError, code="checksum-mismatch", value=folder / name):
        verify_checksums(folder, remedy="")
    with pytest.raises(CheckpointError):
        read_checkpoint(folder)


@pytest.fixture
def encoder(checkpoint: Path, tmp_path: Path) -> Path:
    """A checkpoint that Lexome wrote."""
    from lexome.models.convert_model import convert_model

    convert_model(checkpoint, tmp_path / "converted")
    return tmp_path / "converted"


def test_notes_in_the_card_change_no_checksum(exported_copy: Path) -> None:
    (exported_copy / "README.md").write_text("ours\n")
    assert Predictor.open(exported_copy).settings.kind == "masked"


def test_the_default_model_has_checksums() -> None:
    assert verify_checksums(default_model(), remedy="")


def test_checksums_are_no_part_of_a_models_identity(exported_copy: Path) -> None:
    before = identity_of(exported_copy)
    (exported_copy / CHECKSUMS).unlink()
    assert identity_of(exported_copy) == before


WRONG: tuple[Any, ...] = (7, -1, 10**40, "x", None, True, 1.5, [], [[]], ["x"], {}, {"a": 1})


def without_checksums(folder: Path, name: str, content: Any) -> None:
    (folder / CHECKSUMS).unlink(missing_ok=True)
    (folder / name).write_text(json.dumps(content))


@pytest.fixture(scope="module")
def ner_settings() -> dict[str, Any]:
    settings: dict[str, Any] = json.loads((default_model() / "model.json").read_bytes())
    return settings


@pytest.fixture(scope="module")
def graph(exported: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shutil.copytree(exported, tmp_path_factory.mktemp("types") / "onnx")


def test_values_of_other_types_in_model_json_are_errors(graph: Path, ner_settings: dict[str, Any]) -> None:
    changed = [{**ner_settings, key: value} for key in ner_settings for value in WRONG]
    task = ner_settings["task"]
    changed += [{**ner_settings, "task": {**task, key: value}} for key in task for value in WRONG]
    for content in changed:
        without_checksums(graph, "model.json", content)
        try:
            task_of_settings(graph, read_settings(graph))
        except LexomeError:
            continue
        except Exception as error:
            raise AssertionError(content) from error


def test_values_of_other_types_in_tokenizer_json_are_errors(graph: Path, ner_settings: dict[str, Any]) -> None:
    from lexome.infer.tokenizer import open_tokenizer

    config = json.loads((default_model() / "tokenizer.json").read_bytes())
    config["model"]["vocab"] = {token: id_ for token, id_ in config["model"]["vocab"].items() if id_ < 300}
    places = [(key,) for key in config] + [("model", key) for key in config["model"]]
    places += [
        ("model", "vocab", "[UNK]"),
        ("added_tokens", 0),
        ("added_tokens", 0, "id"),
        ("added_tokens", 0, "content"),
    ]
    for place in places:
        for value in WRONG:
            changed = json.loads(json.dumps(config))
            table = changed
            for step in place[:-1]:
                table = table[step]
            table[place[-1]] = value
            without_checksums(graph, "tokenizer.json", changed)
            try:
                open_tokenizer(graph / "tokenizer.json").encode("Loss of BRCA1 [SEP] x")
            except CheckpointError:
                continue
            except Exception as error:
                raise AssertionError(f"{place} = {value!r}") from error
