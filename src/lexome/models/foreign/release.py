"""The files of a release by name, whether it is a folder, an archive, or one file in a folder.

Archives are never extracted under their members' names: members are read in place, and a compressed archive is first
decompressed, as one stream, into an anonymous file.
"""

import gzip
import json
import os
import tarfile
import tempfile
import zlib
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import IO, Any, Self, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from lexome.errors import CheckpointError
from lexome.recipe import made_by

# For configurations and vocabularies: the largest public one, XLM-R's tokenizer.json, has 9 MB.
TEXT_LIMIT = 256 << 20

# Trained weights hardly compress (BERT in float32 to 0.9). An archive with a higher ratio is not a release.
MAX_RATIO = 50
SMALL = 256 << 20

T = TypeVar("T")

_CHUNK = 1 << 20
_MAX_DEPTH = 3


@dataclass(frozen=True, slots=True)
class ForeignCheckpoint:
    """A checkpoint of another framework in Hugging Face's format.

    config           config.json, including model_type
    weights          a state dict with Hugging Face's keys and the saved dtypes. Some tensors are memory-mapped,
                     copy-on-write: copy them into a model, or keep the file
    tokenizer_files  by file name; includes a tokenizer.json if it could be built
    left_out         content that is not part of a model: optimizer states, step counts, tied copies
    """

    layout: str
    config: dict[str, Any]
    weights: dict[str, torch.Tensor]
    tokenizer_files: dict[str, bytes]
    left_out: tuple[str, ...] = ()


class Release:
    """Named files to find, read, open or map; a context manager, because an archive stays open.

    Names are relative, with forward slashes, and without a top folder that contains everything.
    `selected` is the file that was passed, if a file and not its folder was.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.selected: str | None = None
        self._stack = ExitStack()
        self._stream: IO[bytes] | None = None
        self._tar: tarfile.TarFile | None = None
        self._members: dict[str, tarfile.TarInfo] = {}
        self._paths: dict[str, Path] = {}
        if path.is_dir():
            self._paths = _without_top(_walk(path))
        elif path.is_file() and _is_archive(path):
            with self._stack:
                self._open_archive(path)
                self._stack = self._stack.pop_all()
        else:
            self._open_folder_of(path)
        self.names = tuple(sorted(self._members or self._paths))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()

    def find(self, pattern: str) -> list[str]:
        """The names that match a shell pattern, sorted; `*` does not match a slash."""
        depth = pattern.count("/")
        return [name for name in self.names if name.count("/") == depth and fnmatch(name, pattern)]

    def size(self, name: str) -> int:
        """The file's length in bytes."""
        return self._members[name].size if self._tar else self._paths[name].stat().st_size

    def on_disk(self, name: str) -> Path | None:
        """The file's path; None inside an archive."""
        return self._paths.get(name)

    def open(self, name: str) -> IO[bytes]:
        """A seekable stream of the file."""
        if self._tar is None:
            return self._paths[name].open("rb")
        member = self._tar.extractfile(self._members[name])
        assert member is not None  # only regular members are listed
        return member

    def read(self, name: str, *, limit: int = TEXT_LIMIT) -> bytes:
        """The content of a file; CheckpointError if it is larger than `limit`."""
        size = self.size(name)
        if size > limit:
            message = f"{self.where(name)} has {size:,} bytes; expected at most {limit:,}."
            raise CheckpointError(message, code="file-too-large", value=name)
        try:
            with self.open(name) as stream:
                content = stream.read()
        except (OSError, tarfile.TarError) as error:
            raise damaged_error(self.where(name), str(error)) from None
        if len(content) != size:
            raise damaged_error(self.where(name), f"truncated after {len(content):,} of {size:,} bytes")
        return content

    def map(self, name: str) -> npt.NDArray[np.uint8]:
        """The file's bytes, memory-mapped copy-on-write."""
        size = self.size(name)
        if not size:
            return np.zeros(0, np.uint8)
        if self._stream is None:
            return np.memmap(self._paths[name], np.uint8, mode="c")
        offset = self._members[name].offset_data
        if offset + size > os.fstat(self._stream.fileno()).st_size:
            raise damaged_error(self.where(name), "it exceeds the archive")
        mapped: Any = np.memmap(self._stream, np.uint8, mode="c", offset=offset, shape=(size,))
        return mapped  # type: ignore[no-any-return]

    def where(self, name: str) -> str:
        """The file as named in messages."""
        return f"{self.path}: {name}" if self._tar else str(self._paths[name])

    def _open_folder_of(self, path: Path) -> None:
        """List the folder of a file; a TensorFlow checkpoint may be named by the prefix of its files."""
        for candidate in (path, path.with_name(path.name + ".index")):
            if candidate.is_file():
                self._paths = {file.name: file for file in path.parent.iterdir() if file.is_file()}
                self.selected = candidate.name
                return
        message = f"{path}: no such file or folder. Check the path.{made_by(path)}"
        raise CheckpointError(message, code="missing-file", value=path)

    def _open_archive(self, path: Path) -> None:
        try:
            self._stream = self._stack.enter_context(_decompress(path))
            self._tar = self._stack.enter_context(tarfile.TarFile(fileobj=self._stream))
            end = os.fstat(self._stream.fileno()).st_size
            members = []
            for member in self._tar:
                # Checked before the next header is read: tarfile follows any size, even backwards and forever.
                if member.size < 0 or (member.isreg() and not 0 <= member.offset_data <= end - member.size):
                    raise damaged_error(str(path), f"a member of {member.size:,} bytes in an archive of {end:,}")
                members.append(member)
        except _TAR_ERRORS as error:
            raise damaged_error(str(path), f"invalid archive: {error!r}") from None
        files = {}
        for member in members:
            name = PurePosixPath(member.name)
            if name.is_absolute() or ".." in name.parts:
                message = f"{path}: the archive has a member outside of itself, {member.name!r}. Do not unpack it."
                raise CheckpointError(message, code="unsafe-path", value=member.name)
            if member.isreg() and not member.issparse() and not _is_macos_metadata(name):
                files[str(name)] = member
        self._members = _without_top(files)


# What tarfile and decompression raise for damaged archives, whose headers may claim any size.
_TAR_ERRORS = (
    OSError, EOFError, zlib.error, tarfile.TarError, ValueError, OverflowError, MemoryError, IndexError, KeyError,
)  # fmt: skip


def read_json(release: Release, name: str) -> dict[str, Any]:
    """The object in a JSON file of a release."""
    return parse_json(release.read(name), where=release.where(name))


def parse_json(content: bytes, *, where: str) -> dict[str, Any]:
    """The object in the content of a JSON file."""
    try:
        parsed: Any = json.loads(content)
    except ValueError as error:
        message = f"{where}: invalid JSON ({error}). Download it again."
        raise CheckpointError(message, code="not-json", value=where) from None
    if not isinstance(parsed, dict):
        message = f"{where}: a {type(parsed).__name__}; expected a JSON object."
        raise CheckpointError(message, code="not-json", value=where)
    return parsed


def damaged_error(where: str, reason: str) -> CheckpointError:
    """The error for a file that is truncated or corrupt."""
    return CheckpointError(f"{where}: damaged ({reason}). Download it again.", code="damaged-file", value=where)


def unknown_weights_error(where: str, names: Iterable[str], *, layout: str) -> CheckpointError:
    """The error for weights that a model of this layout does not have."""
    unknown = sorted(names)
    more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
    message = f"{where}: {unknown[0]!r}{more}: not part of {layout}. Remove the weights of a task head, if any."
    return CheckpointError(message, code="unknown-weights", value=unknown[0])


def missing_weights_error(where: str, name: str, *, layout: str) -> CheckpointError:
    """The error for weights that every model of this layout has."""
    message = f"{where}: {name!r} is missing; expected a complete {layout}. Download it again."
    return CheckpointError(message, code="missing-weights", value=name)


def _is_archive(path: Path) -> bool:
    try:
        return tarfile.is_tarfile(path)
    except _TAR_ERRORS:
        return path.name.endswith((".tar", ".tar.gz", ".tgz", ".nemo"))


def _is_macos_metadata(name: PurePosixPath) -> bool:
    return name.name.startswith("._") or "__MACOSX" in name.parts


def _walk(folder: Path) -> dict[str, Path]:
    files = {}
    for root, folders, names in os.walk(folder):
        relative = Path(root).relative_to(folder)
        if len(relative.parts) >= _MAX_DEPTH:
            folders.clear()
        for name in names:
            if not _is_macos_metadata(PurePosixPath(name)):
                files[(relative / name).as_posix()] = Path(root, name)
    return files


def _without_top(files: dict[str, T]) -> dict[str, T]:
    """The files without the folders that contain everything, except for Megatron's ranks."""
    while files:
        tops = {name.partition("/")[0] for name in files}
        top = next(iter(tops))
        if len(tops) > 1 or top in files or top.startswith("mp_rank_"):
            break
        files = {name[len(top) + 1 :]: file for name, file in files.items()}
    return files


def _decompress(path: Path) -> IO[bytes]:
    """The archive without compression; a compressed one is decompressed into an anonymous file."""
    with path.open("rb") as stream:
        compressed = stream.read(2) == b"\x1f\x8b"
    if not compressed:
        return path.open("rb")
    limit = max(SMALL, path.stat().st_size * MAX_RATIO)
    with ExitStack() as stack, gzip.open(path) as packed:
        unpacked = stack.enter_context(tempfile.TemporaryFile())
        while chunk := packed.read(_CHUNK):
            if unpacked.tell() + len(chunk) > limit:
                message = f"{path} decompresses to {MAX_RATIO} times its size, as no weights do. Check its origin."
                raise CheckpointError(message, code="compression-bomb", value=path)
            unpacked.write(chunk)
        unpacked.seek(0)
        stack.pop_all()
    return unpacked
