"""Files, folders, archives and compression, whole and broken."""

import errno
import gzip
import importlib
import io
import lzma
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from errors import raises
from rights import without_rights

import lexome
from lexome import Document, Passage, Tally
from lexome.errors import CheckpointError, FormatError, LexomeError, UsageError
from lexome.files import atomic_write, fill_folder, read_json, write_json
from lexome.formats import FORMATS, work_units
from lexome.formats.streams import zstd

DOCS = [Document(str(number), (Passage(0, f"Text {number} on κ-opioid receptors."),)) for number in range(300)]


def written(path: Path) -> Path:
    lexome.write(path, DOCS)
    return path


@pytest.mark.parametrize("ending", ["", ".gz", ".xz", ".zst"])
def test_compression_is_transparent_both_ways(tmp_path: Path, ending: str) -> None:
    assert list(lexome.read(written(tmp_path / f"docs.jsonl{ending}"))) == DOCS


@pytest.mark.parametrize("ending", [".gz", ".xz", ".zst"])
def test_compressed_bytes_do_not_depend_on_time_or_name(tmp_path: Path, ending: str) -> None:
    first = written(tmp_path / f"a.jsonl{ending}").read_bytes()
    assert written(tmp_path / f"b.jsonl{ending}").read_bytes() == first


@pytest.mark.parametrize("ending", [".gz", ".xz", ".zst"])
def test_a_truncated_file_gives_what_came_before_and_then_says_where(tmp_path: Path, ending: str) -> None:
    many = [Document(str(number), (Passage(0, f"{number * 7919 % 10007} " * 50),)) for number in range(5000)]
    path = tmp_path / f"docs.jsonl{ending}"
    lexome.write(path, many)
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    seen: list[Document] = []
    with raises(FormatError, code="truncated", mentions=f"docs.jsonl{ending}"):
        seen.extend(lexome.read(path))
    assert seen == many[: len(seen)]
    assert len(seen) > 1000


def test_bytes_that_are_not_gzip_are_named(tmp_path: Path) -> None:
    path = tmp_path / "docs.jsonl.gz"
    path.write_bytes(b"not compressed at all")
    with raises(FormatError, code="truncated", value=0):
        list(lexome.read(path))


def test_a_damaged_checksum_is_reported(tmp_path: Path) -> None:
    path = written(tmp_path / "docs.jsonl.gz")
    raw = bytearray(path.read_bytes())
    raw[-6] ^= 0xFF
    path.write_bytes(raw)
    with raises(FormatError, code="truncated"):
        list(lexome.read(path))


def test_with_rejects_a_broken_file_does_not_stop_the_next_one(tmp_path: Path) -> None:
    broken = written(tmp_path / "a.jsonl.gz")
    broken.write_bytes(broken.read_bytes()[:200])
    good = written(tmp_path / "b.jsonl")
    with Tally(tmp_path / "rejects.jsonl") as tally:
        docs = list(lexome.read([broken, good], tally=tally))
    assert docs[-len(DOCS) :] == DOCS
    assert len(tally.failures) == 1
    assert "a.jsonl.gz" in tally.failures[0]


@pytest.mark.parametrize("ending", [".tar", ".tar.gz", ".tar.xz", ".tgz"])
def test_archives_are_read_member_by_member(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"docs{ending}"
    mode = {".tar": "w", ".tar.gz": "w:gz", ".tgz": "w:gz", ".tar.xz": "w:xz"}[ending]
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name in ("b/two.jsonl", "one.jsonl.gz"):
            content = b"".join(b'{"id":"%s","passages":[{"offset":0,"text":"x"}]}\n' % name.encode() for _ in range(2))
            content = gzip.compress(content) if name.endswith(".gz") else content
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    assert [doc.id for doc in lexome.read(path)] == ["b/two.jsonl"] * 2 + ["one.jsonl.gz"] * 2


def test_links_inside_an_archive_are_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("do not read")
    path = tmp_path / "docs.tar"
    with tarfile.open(path, "w") as archive:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
            member = tarfile.TarInfo("innocent.txt")
            member.type, member.linkname = kind, str(secret)
            archive.addfile(member)
        archive.addfile(tarfile.TarInfo("empty.txt"))
    tally = Tally()
    assert list(lexome.read(path, "text", tally=tally)) == []
    assert tally.notes["archive member that is not a regular file skipped"] == 2


def archive_of(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name.replace("_", "."), content)
    return path


def test_one_broken_member_does_not_end_the_archive(tmp_path: Path) -> None:
    line = b'{"id":"1","text":"x"}\n'
    path = archive_of(tmp_path / "a.zip", a_jsonl=line, b_jsonl_gz=b"no gzip", c_jsonl=line, d_jsonl=b"")
    with Tally(tmp_path / "rejects.jsonl") as tally:
        assert len(list(lexome.read(path, tally=tally))) == 2
    assert ["b.jsonl.gz" in failure for failure in tally.failures] == [True]
    assert tally.notes == {"empty file in an archive skipped": 1}


@pytest.mark.parametrize("format", [None, "jsonl"])
def test_strangers_in_an_archive_are_noted(tmp_path: Path, format: str | None) -> None:
    path = archive_of(tmp_path / "a.zip", figure_jpg=b"\xff\xd8", a_jsonl=b'{"id":"1","text":"x"}\n')
    tally = Tally()
    assert len(list(lexome.read(path, format, tally=tally))) == 1
    assert tally.notes == {"file with unsupported extension skipped: .jpg": 1}


def test_an_encrypted_member_is_an_error_of_the_archive(tmp_path: Path) -> None:
    path = archive_of(tmp_path / "a.zip", a_jsonl=b"{}")
    raw = bytearray(path.read_bytes())
    for mark, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        raw[raw.index(mark) + flags] |= 1
    path.write_bytes(raw)
    with raises(FormatError, code="bad-archive", value=path):
        list(lexome.read(path))


def test_a_file_that_is_compressed_without_saying_so_is_unpacked(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(gzip.compress(b'{"id":"1","text":"x"}\n'))
    assert [doc.id for doc in lexome.read(tmp_path / "a.jsonl")] == ["1"]


def test_an_exclamation_mark_is_part_of_a_name(tmp_path: Path) -> None:
    (tmp_path / "wow!.txt").write_text("BRCA1")
    (tmp_path / "wow!.ann").write_text("T1\tGene 0 5\tBRCA1\n")
    assert [doc.id for doc in lexome.read(tmp_path / "wow!.ann")] == ["wow!"]


def test_a_truncated_archive_is_named(tmp_path: Path) -> None:
    path = tmp_path / "docs.tar"
    with tarfile.open(path, "w") as archive:
        archive.add(written(tmp_path / "docs.jsonl"), "docs.jsonl")
    path.write_bytes(path.read_bytes()[:2000])
    with raises(FormatError, code="truncated", mentions="docs.tar"):
        list(lexome.read(path))


def test_zip_names_in_utf_8_without_its_flag_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("M\u00fcller.txt", "BRCA1")
    content = bytearray(path.read_bytes())
    for header, flags in ((b"PK\x03\x04", 7), (b"PK\x01\x02", 9)):
        content[content.index(header) + flags] &= ~0x08
    path.write_bytes(content)
    assert [doc.id for doc in lexome.read(path)] == ["M\u00fcller"]


def test_zip_members_are_read(tmp_path: Path) -> None:
    path = tmp_path / "docs.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(written(tmp_path / "docs.jsonl"), "inner/docs.jsonl")
    assert list(lexome.read(path)) == DOCS


def test_a_file_that_is_no_zip_is_named(tmp_path: Path) -> None:
    path = tmp_path / "docs.zip"
    path.write_bytes(b"PK but no more")
    with raises(FormatError, code="bad-archive", value=path):
        list(lexome.read(path))


def test_a_folder_is_read_in_name_order_and_hidden_files_and_strangers_are_noted(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a/c.jsonl", "LICENSE", ".hidden.jsonl", "a/._c.jsonl", ".store/d.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f'{{"id":"{name}","text":"x"}}\n')
    tally = Tally()
    assert [doc.id for doc in lexome.read(tmp_path, tally=tally)] == ["a/c.jsonl", "b.jsonl"]
    assert tally.notes == {"file with unsupported extension skipped: none": 1, "hidden file or folder skipped": 3}


def test_a_folder_that_may_not_be_opened_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        for name in ("a", "closed", "z"):
            (Path(made) / name).mkdir()
            (Path(made) / name / "note.txt").write_text("Aspirin.")
        (Path(made) / "closed").chmod(0)
        tally = Tally(tmp_path / "rejects.jsonl")
        with without_rights():
            docs = list(lexome.read(made, tally=tally))
        (Path(made) / "closed").chmod(0o755)
    assert len(docs) == 2
    assert [failure.partition(":")[0] for failure in tally.failures] == [f"{made}/closed"]


def test_a_link_to_a_folder_and_one_to_nothing_are_noted(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    written(tmp_path / "notes" / "a.jsonl")
    (tmp_path / "notes" / "more").symlink_to(tmp_path / "store")
    (tmp_path / "notes" / "b.jsonl").symlink_to(tmp_path / "gone.jsonl")
    tally = Tally()
    assert list(lexome.read(tmp_path / "notes", tally=tally)) == DOCS
    assert tally.notes == {"symbolic link to a folder not followed": 1, "broken symbolic link skipped": 1}


def test_an_empty_folder_is_an_error(tmp_path: Path) -> None:
    with raises(FormatError, code="empty-folder", value=tmp_path):
        lexome.read(tmp_path)


def test_a_folder_of_nothing_but_hidden_files_is_an_error_that_says_so(tmp_path: Path) -> None:
    hidden = [written(tmp_path / name) for name in (".a.jsonl", ".b.jsonl")]
    with raises(FormatError, code="empty-folder", value=tmp_path, mentions="2 hidden"):
        lexome.read(tmp_path)
    assert list(lexome.read(hidden[0])) == DOCS


@pytest.mark.parametrize("ending", ["tar", "zip"])
def test_what_a_mac_packs_beside_each_file_of_an_archive_is_skipped_and_counted(tmp_path: Path, ending: str) -> None:
    folder = tmp_path / "docs"
    for name in ("docs/a.jsonl", "docs/.b.jsonl", ".store/d.jsonl"):
        written(folder / name)
    for name in ("docs/._a.jsonl", "__MACOSX/docs/._a.jsonl"):
        written(folder / name).write_bytes(b"\x00\x05\x16\x07")
    tally = Tally()
    assert list(lexome.read(shutil.make_archive(str(folder), ending, folder), tally=tally)) == DOCS
    assert (tally.notes, tally.failures) == ({"hidden file or folder skipped": 4}, [])


def test_a_missing_file_is_an_error_before_anything_is_read(tmp_path: Path) -> None:
    with raises(FormatError, code="missing-file", value=tmp_path / "absent.jsonl"):
        lexome.read([written(tmp_path / "a.jsonl"), tmp_path / "absent.jsonl"])


def test_brat_among_other_formats_is_read_as_pairs(tmp_path: Path) -> None:
    written(tmp_path / "docs.jsonl")
    (tmp_path / "note.txt").write_text("A note.")
    (tmp_path / "in").mkdir()
    for name in "ab":
        (tmp_path / "in" / f"{name}.txt").write_text("TP53 acts.")
        (tmp_path / "in" / f"{name}.ann").write_text("T1\tGene 0 4\tTP53\n")
    docs = list(lexome.read(tmp_path))
    assert [(doc.id, len(doc.spans)) for doc in docs if doc.id in ("a", "b", "note")] == [
        ("a", 1), ("b", 1), ("note", 0),
    ]  # fmt: skip
    units = work_units([tmp_path], None, Tally())
    assert [sorted(file.name for file in unit) for unit in units] == [
        ["docs.jsonl"], ["a.ann", "a.txt", "b.ann", "b.txt"], ["note.txt"],
    ]  # fmt: skip


def test_an_unknown_ending_says_what_is_known(tmp_path: Path) -> None:
    path = tmp_path / "paper.odt"
    path.write_bytes(b"x")
    with raises(UsageError, code="unknown-extension", value=str(path)):
        list(lexome.read(path))


def test_an_unknown_ending_says_what_the_file_is(tmp_path: Path) -> None:
    path = tmp_path / "paper.doc"
    path.write_bytes(bytes.fromhex("d0cf11e0a1b11ae1"))
    with raises(UsageError, code="unknown-extension", value=str(path), mentions="old Office document"):
        list(lexome.read(path))


@pytest.mark.parametrize("name", ["a.xml", "a.json", "a.txt", "a.tsv"])
def test_an_empty_file_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b" \n")
    with raises(FormatError, code="empty-file", value=str(tmp_path / name)):
        list(lexome.read(tmp_path / name))


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = written(tmp_path / "docs.jsonl")
    before = path.read_bytes()
    with pytest.raises(ZeroDivisionError), atomic_write(path) as stream:
        stream.write(b"%d" % (1 / 0))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_names_the_file(tmp_path: Path) -> None:
    with raises(FormatError, code="disk-full", value=Path("/dev/full")):
        lexome.write("/dev/full", [Document("a", (Passage(0, "x"),))], "jsonl")
    path = tmp_path / "a.jsonl"
    with raises(FormatError, code="disk-full", value=path), atomic_write(path) as stream:
        stream.write(b"half")
        raise OSError(errno.EDQUOT, "quota exceeded")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("exists", [False, True])
def test_a_folder_that_is_not_filled_is_left_as_it_was(tmp_path: Path, exists: bool) -> None:
    folder = tmp_path / "brat"
    if exists:
        folder.mkdir()
        (folder / "mine.txt").write_text("mine")
    with raises(FormatError, code="disk-full", value=folder), fill_folder(folder) as draft:
        (draft / "a.txt").write_text("half")
        raise OSError(errno.ENOSPC, "no space left")
    assert [path.name for path in tmp_path.rglob("*")] == (["brat", "mine.txt"] if exists else [])
    with fill_folder(folder) as draft:
        (draft / "a.txt").write_text("whole")
    assert sorted(path.name for path in folder.iterdir()) == (["a.txt", "mine.txt"] if exists else ["a.txt"])


def test_a_brat_folder_whose_documents_fail_does_not_stay(tmp_path: Path) -> None:
    def docs() -> Iterator[Document]:
        yield Document("a", (Passage(0, "x"),))
        raise FormatError("no more")

    with pytest.raises(FormatError):
        lexome.write(tmp_path / "out", docs(), "brat")
    assert list(tmp_path.iterdir()) == []


def test_processes_of_one_number_on_two_hosts_do_not_write_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "docs.jsonl"
    with atomic_write(path) as one:
        monkeypatch.setattr("socket.gethostname", lambda: "another-host")
        with atomic_write(path) as other:
            one.write(b"one")
            other.write(b"other")
        assert path.read_bytes() == b"other"
    assert path.read_bytes() == b"one"
    assert list(tmp_path.iterdir()) == [path]


def test_lines_are_cut_at_line_feeds_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("one\u0085still one\u2028and\x0cone\r\ntwo".encode())
    assert [doc.text for doc in lexome.read(path, "text", per="line")] == ["one\u0085still one\u2028and\x0cone", "two"]


@pytest.fixture
def short_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of 100 bytes at most; every reader is imported before, for one imported now would keep that limit."""
    for format in FORMATS:
        importlib.import_module(f"lexome.formats.{format.module}")
    monkeypatch.setattr("lexome.formats.streams.MAX_RECORD_BYTES", 100)


@pytest.mark.usefixtures("short_records")
def test_a_line_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.pubtator"
    path.write_bytes(b"x" * 1000)
    with raises(FormatError, code="too-large", value=1):
        list(lexome.read(path))


def test_several_frames_and_streams_in_one_file_are_read(tmp_path: Path) -> None:
    line = b'{"id":"1","text":"x"}\n'
    for name, compress in (
        ("a.jsonl.gz", gzip.compress),
        ("a.jsonl.xz", lzma.compress),
        ("a.jsonl.zst", zstd.compress),
    ):
        (tmp_path / name).write_bytes(compress(line) + compress(line))
        assert len(list(lexome.read(tmp_path / name))) == 2


def test_every_error_is_a_lexome_error() -> None:
    assert issubclass(FormatError, LexomeError)


@pytest.mark.usefixtures("short_records")
@pytest.mark.parametrize(("name", "options"), [("docs.jsonl", {}), ("docs.txt", {"per": "line"})])
def test_a_document_of_one_line_that_is_too_long_is_set_aside_and_the_rest_is_read(
    tmp_path: Path, name: str, options: dict[str, str]
) -> None:
    (tmp_path / name).write_text("\n".join(f'{{"id": "{times}", "text": "{"x" * times}"}}' for times in (1, 300, 2)))
    tally = Tally(tmp_path / "rejects.jsonl")
    assert len(list(lexome.read(tmp_path / name, tally=tally, **options))) == 2
    assert (dict(tally.rejected), tally.failures) == ({"too_large": 1}, [])


@pytest.mark.parametrize(
    ("content", "code"), [(None, "missing-file"), (b"{", "not-json"), (b"[1]", "not-json"), (b"\xff", "not-json")]
)
def test_json_that_is_no_object_is_an_error_that_names_the_file(
    content: bytes | None, code: str, tmp_path: Path
) -> None:
    path = tmp_path / "run.json"
    if content is not None:
        path.write_bytes(content)
    with raises(CheckpointError, code=code, value=path, mentions=str(path)):
        read_json(path)


def test_json_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_json(tmp_path / "run.json", {"b": "µ", "a": [1, None]})
    assert read_json(tmp_path / "run.json") == {"b": "µ", "a": [1, None]}
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


@pytest.mark.parametrize("path", [None, 3, [3], io.BytesIO(b"x"), {"a": 1}.values()])
def test_what_is_no_path_is_refused(path: object) -> None:
    with raises(UsageError, code="not-a-path"):
        lexome.read(path)  # type: ignore[arg-type]


def test_documents_and_path_in_the_wrong_order_are_refused(tmp_path: Path) -> None:
    with raises(UsageError, code="not-a-path"):
        lexome.write(DOCS[0], tmp_path / "a.jsonl")  # type: ignore[arg-type]


def test_binary_formats_are_not_written_to_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    with raises(UsageError, code="binary-to-terminal", value="xlsx"):
        lexome.write("-", DOCS, "xlsx")
