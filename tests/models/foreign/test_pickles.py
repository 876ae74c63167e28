"""Malicious or damaged pickles: nothing in them is executed."""

import io
import pickle
import shutil
import tarfile
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
from errors import raises
from foreign_writers import state_of, tiny_bert

from lexome.errors import CheckpointError
from lexome.models.foreign import read_foreign
from lexome.models.foreign.legacy_hf import load_pickle
from lexome.models.foreign.release import Release


class Malicious:
    """Creates a file when it is unpickled, by a function of a module that torch itself does not forbid."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return shutil.copyfile, (__file__, str(self.path))


@pytest.mark.parametrize("how", ["zip", "legacy", "bare"])
@pytest.mark.parametrize("archived", [False, True])
def test_a_malicious_pickle_is_refused_and_not_executed(tmp_path: Path, how: str, archived: bool) -> None:
    mark, folder = tmp_path / "executed", tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "bert"}')
    content = {"bert.pooler.dense.bias": torch.zeros(2), "more": Malicious(mark)}
    if how == "bare":
        (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Malicious(mark)))
    else:
        torch.save(content, folder / "pytorch_model.bin", _use_new_zipfile_serialization=how == "zip")
    path = folder
    if archived:
        path = tmp_path / "model.tar.gz"
        with tarfile.open(path, "w:gz") as tar:
            tar.add(folder, "model")
    code = "damaged-file" if how == "bare" else "unsafe-pickle"
    with raises(CheckpointError, code=code, mentions="pytorch_model.bin" if how == "bare" else "shutil.copyfile"):
        read_foreign(path)
    assert not mark.exists()
    if how != "bare":
        torch.load(folder / "pytorch_model.bin", weights_only=False)
        assert mark.exists()  # so the file would have done it


def test_only_a_namespace_is_allowed_and_only_while_a_file_is_read(tmp_path: Path) -> None:
    torch.save({"args": Namespace(a=1), "w": torch.ones(2)}, tmp_path / "a.pt")
    with Release(tmp_path) as release:
        assert load_pickle(release, "a.pt")["args"] == Namespace(a=1)
    with pytest.raises(pickle.UnpicklingError):
        torch.load(tmp_path / "a.pt", weights_only=True)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux lists what is mapped")
def test_tensors_of_a_zip_on_disk_are_mapped(tmp_path: Path) -> None:
    torch.save({"w": torch.arange(9.0)}, tmp_path / "a.pt")
    with Release(tmp_path) as release:
        tensor = load_pickle(release, "a.pt")["w"]
    assert str(tmp_path / "a.pt") in Path("/proc/self/maps").read_text()
    tensor += 1  # a private copy: the file stays as it is
    assert torch.load(tmp_path / "a.pt")["w"].tolist() == list(range(9))


def test_a_few_bytes_that_claim_a_terabyte_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    wide = torch.zeros(1).expand(1 << 20, 1 << 18)
    torch.save({"bert.embeddings.word_embeddings.weight": wide}, tmp_path / "pytorch_model.bin")
    with raises(CheckpointError, code="unsafe-pickle", value="bert.embeddings.word_embeddings.weight"):
        read_foreign(tmp_path)


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    for new in (True, False):
        stream = io.BytesIO()
        torch.save(state_of(tiny_bert()), stream, _use_new_zipfile_serialization=new)
        whole = stream.getvalue()
        for fraction in (0, 0.01, 0.5, 0.99):
            (tmp_path / "pytorch_model.bin").write_bytes(whole[: int(len(whole) * fraction)])
            with raises(CheckpointError, code="damaged-file", value=str(tmp_path / "pytorch_model.bin")):
                read_foreign(tmp_path)


def test_other_content_than_weights_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    for content, value in (([1, 2], "list"), ({"bert.epoch": 3}, "bert.epoch")):
        torch.save(content, tmp_path / "pytorch_model.bin")
        with raises(CheckpointError, code="not-weights", value=value):
            read_foreign(tmp_path)
