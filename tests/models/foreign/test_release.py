"""Releases: archives are read in place, and unsafe or damaged ones are refused."""

import gzip
import io
import tarfile
from pathlib import Path

import pytest
from errors import raises

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
def test_an_archive_with_members_outside_of_itself_is_refused(tmp_path: Path, name: str) -> None:
    path = archive(tmp_path / "a.nemo", ("model_config.yaml", b""), (name, b"x"))
    with raises(CheckpointError, code="unsafe-path", value=name):
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


def test_a_compression_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "SMALL", 1 << 20)
    path = archive(tmp_path / "bomb.tar.gz", ("model_weights.ckpt", bytes(16 << 20)))
    assert path.stat().st_size < 1 << 16
    with raises(CheckpointError, code="compression-bomb", value=path):
        detect(path)


def test_a_member_that_claims_more_than_the_archive_has_is_refused(tmp_path: Path) -> None:
    member = tarfile.TarInfo("model_weights.ckpt")
    member.size = 1 << 50
    (tmp_path / "a.nemo").write_bytes(member.tobuf() + bytes(1024))
    with pytest.raises(CheckpointError):
        read_foreign(tmp_path / "a.nemo")


def test_a_file_over_the_size_limit_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "vocab.txt").write_bytes(bytes(100))
    with Release(tmp_path) as opened, raises(CheckpointError, code="file-too-large", value="vocab.txt"):
        opened.read("vocab.txt", limit=10)


def test_a_release_among_others_is_not_found_by_accident(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
        (tmp_path / name / "pytorch_model.bin").write_bytes(b"")
    assert detect(tmp_path) is None
    with raises(CheckpointError, code="unknown-layout", value=tmp_path, mentions="one/config.json"):
        read_foreign(tmp_path)


def test_missing_empty_and_damaged_releases_are_refused(tmp_path: Path) -> None:
    with raises(CheckpointError, code="missing-file", value=tmp_path / "missing"):
        read_foreign(tmp_path / "missing")
    with raises(CheckpointError, code="unknown-layout", value=tmp_path):
        read_foreign(tmp_path)
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(b"no archive"))
    with pytest.raises(CheckpointError):
        read_foreign(tmp_path / "a.tar.gz")


def pax(size: bytes) -> bytes:
    """An archive whose extended header claims this size for its file."""
    record = b" size=" + size + b"\n"
    record = str(len(record) + 2).encode() + record
    header = tarfile.TarInfo("PaxHeader")
    header.type, header.size = tarfile.XHDTYPE, len(record)
    member = tarfile.TarInfo("model_weights.ckpt")
    return header.tobuf() + record.ljust(512, b"\0") + member.tobuf() + bytes(1024)


def base_256(size: int, *, kind: bytes = tarfile.REGTYPE) -> bytes:
    """An archive whose header has a size in binary, which may be negative."""
    member = tarfile.TarInfo("model_weights.ckpt")
    member.type = kind
    raw = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    raw[124:136] = (b"\x80" if size >= 0 else b"\xff") + (size % (1 << 88)).to_bytes(11, "big")
    raw[148:156] = b" " * 8
    raw[148:156] = f"{sum(raw[:512]):06o}\0 ".encode()
    return bytes(raw) + bytes(1024)


SIZES = {
    "pax": pax(b"1" + b"0" * 20),
    "negative pax": pax(b"-512"),
    "binary": base_256(10**20),
    "negative": base_256(-1024),
    "long name": base_256(10**20, kind=tarfile.GNUTYPE_LONGNAME),
    "extended header": base_256(10**15, kind=tarfile.XHDTYPE),
}


@pytest.mark.parametrize("size", SIZES)
def test_headers_with_impossible_sizes_are_refused_at_once(tmp_path: Path, size: str) -> None:
    (tmp_path / "a.nemo").write_bytes(SIZES[size])
    with raises(CheckpointError, code="damaged-file"):
        detect(tmp_path / "a.nemo")
