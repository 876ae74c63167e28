"""Releases: archives are read where they lie, and what is no release is refused."""

import gzip
import io
import tarfile
from pathlib import Path

import pytest

from lexome.errors import CheckpointError
from lexome.models.foreign import detect, read_foreign, release
from lexome.models.foreign.release import Release


def archive(path: Path, *members: tuple[str, bytes], kind: bytes = tarfile.REGTYPE) -> Path:
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as tar:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.type, member.size, member.linkname = kind, len(content), "/etc/passwd"
            tar.addfile(member, io.BytesIO(content))
    return path


@pytest.mark.parametrize("name", ["../../escaped", "/tmp/escaped", "a/../../escaped"])
def test_an_archive_that_names_a_file_outside_of_itself_is_refused(tmp_path: Path, name: str) -> None:
    path = archive(tmp_path / "a.nemo", ("model_config.yaml", b""), (name, b"x"))
    with pytest.raises(CheckpointError, match="outside of itself"):
        detect(path)
    assert [file.name for file in tmp_path.iterdir()] == ["a.nemo"]


def test_reading_an_archive_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    with Release(archive(tmp_path / "a.tar.gz", ("top/x.txt", b"x"), ("top/sub/y.bin", b"yy"))) as opened:
        assert opened.names == ("sub/y.bin", "x.txt")
        assert opened.read("x.txt") == b"x"
        mapped = opened.map("sub/y.bin")
        assert not list((tmp_path / "temporary").iterdir())
    assert bytes(mapped) == b"yy"  # still there when the archive is closed


def test_links_in_an_archive_are_never_followed(tmp_path: Path) -> None:
    with Release(archive(tmp_path / "a.tar", ("vocab.txt", b""), kind=tarfile.SYMTYPE)) as opened:
        assert opened.names == ()


def test_an_archive_that_grows_beyond_belief_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "SMALL", 1 << 20)
    path = archive(tmp_path / "bomb.tar.gz", ("model_weights.ckpt", bytes(16 << 20)))
    assert path.stat().st_size < 1 << 16
    with pytest.raises(CheckpointError, match="50 times its size"):
        detect(path)


def test_a_member_that_claims_more_than_the_archive_has_is_refused(tmp_path: Path) -> None:
    member = tarfile.TarInfo("model_weights.ckpt")
    member.size = 1 << 50
    (tmp_path / "a.nemo").write_bytes(member.tobuf() + bytes(1024))
    with pytest.raises(CheckpointError):
        read_foreign(tmp_path / "a.nemo")


def test_a_text_larger_than_any_text_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "vocab.txt").write_bytes(bytes(100))
    with Release(tmp_path) as opened, pytest.raises(CheckpointError, match="100 bytes; expected at most 10"):
        opened.read("vocab.txt", limit=10)


def test_a_release_among_others_is_not_found_by_accident(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
        (tmp_path / name / "pytorch_model.bin").write_bytes(b"")
    assert detect(tmp_path) is None
    with pytest.raises(CheckpointError, match=r"it has one/config.json"):
        read_foreign(tmp_path)


def test_what_is_not_there_or_nothing_is_said(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such file or folder"):
        read_foreign(tmp_path / "missing")
    with pytest.raises(CheckpointError, match="it has nothing"):
        read_foreign(tmp_path)
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(b"no archive"))
    with pytest.raises(CheckpointError):
        read_foreign(tmp_path / "a.tar.gz")
