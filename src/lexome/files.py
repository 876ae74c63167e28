"""Output files and folders: atomic writes, fingerprints of settings, and refusing another recipe's output."""

import errno
import gzip
import hashlib
import io
import json
import lzma
import os
import shutil
import socket
import sys
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path, PurePath
from typing import Any, BinaryIO, cast

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

from lexome.errors import CheckpointError, FormatError, LexomeError, MissingExtraError, UsageError

__all__ = [
    "CHECKSUMS",
    "atomic_folder",
    "atomic_plot",
    "atomic_write",
    "digest",
    "exclusive_use",
    "file_sha256",
    "fill_folder",
    "fingerprint",
    "first_difference",
    "is_full",
    "read_json",
    "refuse_foreign",
    "refuse_other_settings",
    "usable_cores",
    "verify_checksums",
    "write_checksums",
    "write_json",
    "zstd",
]


@contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """A binary stream to a temporary file, which is renamed on success; its suffix selects the compression.

    Symbolic links are followed. A path that is not a regular file, such as a pipe, is written to directly.
    """
    path = path.resolve()
    if path.is_dir():
        raise FormatError(
            f"{path}: is a directory; expected the name of a file to write.", code="is-a-directory", value=path
        )
    if path.exists() and not path.is_file():
        with _name_full_disk(path), path.open("wb") as pipe, _compress(pipe, path.name) as stream:
            yield stream
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # With the host name: processes in two containers on a shared disk often have the same PID.
        temporary = path.with_name(f".{path.name}.{socket.gethostname()}-{os.getpid()}.part")
        raw = temporary.open("wb")
    except OSError as error:
        raise FormatError(
            f"{path}: cannot be written ({error.strerror}); expected a writable directory.",
            code="not-writable",
            value=path,
        ) from error
    try:
        with _name_full_disk(path), raw, _compress(raw, path.name) as stream:
            yield stream
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def is_full(error: BaseException) -> bool:
    """Whether the device has no space left, or the user's quota is exceeded."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def _name_full_disk(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if not is_full(error):
            raise
        message = f"{path}: no space left on the device; nothing was written. Free some space and rerun."
        raise FormatError(message, code="disk-full", value=path) from error


class _ForwardGzipFile(gzip.GzipFile):
    """A gzip file that cannot seek. Python's claims that it can, so that zipfile goes back in it, which fails."""

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        raise io.UnsupportedOperation("seek")


@contextmanager
def _compress(raw: BinaryIO, name: str) -> Iterator[BinaryIO]:
    lower = name.lower()
    if lower.endswith(".gz"):
        # No name and no time in the header, so that the same documents give the same bytes.
        with _ForwardGzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as stream:
            yield cast(BinaryIO, stream)
    elif lower.endswith(".xz"):
        with lzma.LZMAFile(raw, "wb") as stream:
            yield cast(BinaryIO, stream)
    elif lower.endswith(".zst"):
        with zstd.ZstdFile(raw, "wb", level=10) as stream:
            yield cast(BinaryIO, stream)
    else:
        yield raw


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder to fill, which replaces `folder` only on success; left-overs of killed runs are removed."""
    temporary, old = (folder.with_name(f".{folder.name}.{suffix}") for suffix in ("part", "old"))
    for left_over in (temporary, old):
        shutil.rmtree(left_over, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        if folder.exists():
            folder.rename(old)
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


@contextmanager
def fill_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder to fill; on success its files are moved into `folder`, next to those already there."""
    folder = folder.resolve()
    existed = folder.exists()
    suffix = f"{socket.gethostname()}-{os.getpid()}.part"
    temporary = folder / f".{suffix}" if existed else folder.with_name(f".{folder.name}.{suffix}")
    try:
        temporary.mkdir(parents=True)
    except OSError as error:
        message = f"{folder}: the folder cannot be written ({error.strerror}). Name another one."
        raise FormatError(message, code="not-writable", value=folder) from error
    try:
        with _name_full_disk(folder):
            yield temporary
        if existed:
            for path in sorted(temporary.iterdir()):
                path.replace(folder / path.name)
        else:
            temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def exclusive_use(folder: Path, *, part: str | None = None) -> Iterator[None]:
    """Refuse a second process that writes to `folder`; the lock ends with the process, however it ends.

    Processes with different `part` names may write at the same time, but not beside one without a part.
    """
    try:
        import fcntl
    except ModuleNotFoundError:  # Windows
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("ab") as whole, (folder / f"lock.{part or 'all'}").open("ab") as own:
        try:
            fcntl.flock(whole, (fcntl.LOCK_EX if part is None else fcntl.LOCK_SH) | fcntl.LOCK_NB)
            fcntl.flock(own, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = f"{folder}: another process is writing there. Wait for it to end, or choose another folder."
            raise UsageError(message, code="folder-in-use", value=folder) from None
        except OSError as error:
            # A network file system without locks: the user has to avoid concurrent runs.
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
                raise
        yield


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def digest(path: Path) -> str | None:
    """SHA-256 of a file, or of the files of a folder and their names; None for anything else, such as a pipe."""
    if path.is_file():
        return file_sha256(path)
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file())
        return fingerprint([(file.relative_to(path).as_posix(), digest(file)) for file in files])
    return None


@contextmanager
def atomic_plot(path: Path, *, size: tuple[float, float]) -> Iterator[Any]:
    """A matplotlib figure, written on success as PNG, SVG or PDF, by the path's suffix."""
    try:
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("matplotlib", extra="corpus", purpose="plotting") from None
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    yield figure
    suffix = path.suffix.lower()[1:]
    # Without dates and random ids, equal plots have equal bytes.
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(suffix)
    with matplotlib.rc_context({"svg.hashsalt": "lexome", "svg.fonttype": "none"}), atomic_write(path) as stream:
        figure.savefig(stream, format=suffix, dpi=150, metadata=metadata)


CHECKSUMS = "checksums.json"
# Files of a model folder that people edit; no prediction depends on them.
_EDITED = frozenset(("README.md", "run.json"))


def write_checksums(folder: Path) -> None:
    """Write the size and CRC-32 of each file in a complete folder, for `verify_checksums`.

    A CRC detects damage: every flipped bit, and all but one in four billion other changes. It does not prove origin.
    """
    paths = sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".py" and path.name not in (CHECKSUMS, *_EDITED)
    )
    sums = {path.relative_to(folder).as_posix(): list(_size_and_crc(path)) for path in paths}
    with (folder / CHECKSUMS).open("wb") as stream:
        stream.write(json.dumps(sums, indent=1, ensure_ascii=False).encode() + b"\n")
        stream.flush()
        os.fsync(stream.fileno())


def verify_checksums(folder: Path, *, remedy: str, code: str = "checksum-mismatch") -> bool:
    """Whether a folder has checksums; CheckpointError if a file has changed since they were written.

    Folders that other tools wrote have none.
    """
    try:
        sums = json.loads((folder / CHECKSUMS).read_bytes())
        wanted = {str(name): (int(size), int(crc)) for name, (size, crc) in sums.items()}
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError, TypeError, AttributeError) as error:
        message = f"{folder / CHECKSUMS}: damaged ({error}). {remedy}"
        raise CheckpointError(message, code=code, value=folder / CHECKSUMS) from None
    for name, expected in wanted.items():
        path = folder / name
        try:
            actual = _size_and_crc(path, size=expected[0])
        except OSError as error:
            message = f"{path}: cannot be read ({error.strerror}), and {CHECKSUMS} lists it. {remedy}"
            raise CheckpointError(message, code=code, value=path) from None
        if actual != expected:
            seen = f"{actual[0]:,} bytes" if actual[0] != expected[0] else f"CRC-32 {actual[1]:08x}"
            was = f"{expected[0]:,}" if actual[0] != expected[0] else f"{expected[1]:08x}"
            message = f"{path}: damaged or changed since it was written: {seen}, expected {was}. {remedy}"
            raise CheckpointError(message, code=code, value=path)
    return True


def _size_and_crc(path: Path, *, size: int | None = None) -> tuple[int, int]:
    """The size and CRC-32 of a file; a file of unexpected size is not read, and its CRC is 0."""
    actual, crc = path.stat().st_size, 0
    if size is None or size == actual:
        with path.open("rb") as stream:
            while block := stream.read(1 << 20):
                crc = zlib.crc32(block, crc)
    return actual, crc


def write_json(path: Path, content: object, *, indent: int = 1, sort_keys: bool = False) -> None:
    """Write JSON atomically, one line per key."""
    with atomic_write(path) as stream:
        stream.write(json.dumps(content, indent=indent, ensure_ascii=False, sort_keys=sort_keys).encode() + b"\n")


def read_json(path: Path, *, error: type[LexomeError] = CheckpointError, remedy: str = "Write it again.") -> Any:
    """The JSON object in a file; raises `error` if the file is missing or holds anything else."""
    try:
        content: Any = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise error(f"{path}: no such file. {remedy}", code="missing-file", value=path) from None
    except (OSError, ValueError) as problem:
        raise error(f"{path}: cannot be read as JSON ({problem}). {remedy}", code="not-json", value=path) from None
    if not isinstance(content, dict):
        message = f"{path}: a JSON {type(content).__name__}; expected an object. {remedy}"
        raise error(message, code="not-json", value=path)
    return content


def fingerprint(*parts: object) -> str:
    """The SHA-256 of settings in hexadecimal, independent of the order of keys.

    Accepts JSON values, paths, sets, dataclasses and pydantic models.
    """
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), allow_nan=False, default=_as_json)
    return hashlib.sha256(text.encode()).hexdigest()


def _as_json(value: object) -> object:
    if isinstance(value, PurePath):
        return value.as_posix()
    if isinstance(value, set | frozenset):
        return sorted(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise TypeError(f"cannot fingerprint a {type(value).__name__}: {value!r}")


def first_difference(recorded: Mapping[str, Any], requested: Mapping[str, Any]) -> tuple[str, str] | None:
    """The first key that differs, and a phrase with both values; None if all are equal.

    Nested keys are dotted, with indexes into lists of tables, as for `--set`.

    >>> first_difference({"seed": 0}, {"seed": 1})
    ('seed', 'seed was 0 and is now 1')
    """
    old, new = _flatten(recorded), _flatten(requested)
    for key in sorted(old.keys() | new.keys()):
        if old.get(key) != new.get(key):
            was, now = (
                "not set" if table.get(key) is None else json.dumps(table[key], ensure_ascii=False)
                for table in (old, new)
            )
            return key, f"{key} was {was} and is now {now}"
    return None


def _flatten(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
            value = {str(index): item for index, item in enumerate(value)}
        flat |= _flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return flat


def refuse_other_settings(
    folder: Path, recorded: Mapping[str, Any], requested: Mapping[str, Any], *, holds: str, remedy: str
) -> None:
    """Raise UsageError if a folder's output was made with other settings; the error names the first that differs.

    holds    what the folder holds, such as "a corpus of another recipe"
    remedy   what the user can do
    """
    if (difference := first_difference(recorded, requested)) is not None:
        key, both = difference
        raise UsageError(f"{folder}: holds {holds}: {both}. {remedy}", code="other-settings", value=key)


def refuse_foreign(folder: Path, *, marks: Collection[str], command: str) -> None:
    """Raise UsageError if a folder has files, but none of the `marks` that identify an output folder of the command."""
    names = {path.name for path in folder.iterdir() if path.name[0] != "."} if folder.is_dir() else set()
    if names and names.isdisjoint(marks):
        raise UsageError(
            f"{folder}: is not empty, and was not written by `lexome {command}`: it holds {sorted(names)[0]}. Choose "
            "another out, or an empty folder.",
            code="foreign-output",
            value=folder,
        )


def usable_cores() -> int:
    """The number of cores this process may use, which batch systems and containers restrict."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
