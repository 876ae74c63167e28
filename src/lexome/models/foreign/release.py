"""The files of a release by name, whether it is a folder, an archive or one file among its neighbours.

Nothing is ever extracted under a name that an archive gives: members are read where they lie, and a compressed
archive is first unpacked, as one stream, into a file that has no name.
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

# Configurations and vocabularies: the largest public one, XLM-R's tokenizer.json, has 9 MB.
TEXT_LIMIT = 256 << 20

# Trained weights hardly compress (BERT in float32 to 0.9). A file that grows more than this is no release.
GROWTH_LIMIT = 50
SMALL = 256 << 20

T = TypeVar("T")

_CHUNK = 1 << 20
_DEPTH = 3


class Release:
    """Named files to look at, read, open or map; a context manager, as an archive is held open.

    Names are relative, with forward slashes; a folder in which everything lies is left off.
    `chosen` is the file that was named, where a file and not its folder was.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.chosen: str | None = None
        self._held = ExitStack()
        self._stream: IO[bytes] | None = None
        self._tar: tarfile.TarFile | None = None
        self._members: dict[str, tarfile.TarInfo] = {}
        self._paths: dict[str, Path] = {}
        if path.is_dir():
            self._paths = _without_top(_walk(path))
        elif path.is_file() and _is_archive(path):
            with self._held:
                self._open_archive(path)
                self._held = self._held.pop_all()
        else:
            self._beside(path)
        self.names = tuple(sorted(self._members or self._paths))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._held.close()

    def find(self, pattern: str) -> list[str]:
        """The names that match a shell pattern, in order; `*` does not cross into a folder."""
        depth = pattern.count("/")
        return [name for name in self.names if name.count("/") == depth and fnmatch(name, pattern)]

    def size(self, name: str) -> int:
        """The file's length in bytes."""
        return self._members[name].size if self._tar else self._paths[name].stat().st_size

    def on_disk(self, name: str) -> Path | None:
        """The file's own path; None inside an archive."""
        return self._paths.get(name)

    def open(self, name: str) -> IO[bytes]:
        """The file, open and seekable."""
        if self._tar is None:
            return self._paths[name].open("rb")
        member = self._tar.extractfile(self._members[name])
        assert member is not None  # only regular members are listed
        return member

    def read(self, name: str, *, limit: int = TEXT_LIMIT) -> bytes:
        """The whole of a small file; CheckpointError where it is larger than a text of a release ever is."""
        if self.size(name) > limit:
            raise CheckpointError(
                f"{self.where(name)} has {self.size(name):,} bytes; expected at most {limit:,}. Check the release."
            )
        try:
            with self.open(name) as stream:
                content = stream.read()
        except (OSError, tarfile.TarError) as error:
            raise CheckpointError(f"{self.where(name)} cannot be read ({error}). Fetch it again.") from None
        if len(content) != self.size(name):
            raise CheckpointError(
                f"{self.where(name)} ends after {len(content):,} of {self.size(name):,} bytes. Fetch the release again."
            )
        return content

    def map(self, name: str) -> npt.NDArray[np.uint8]:
        """The file's bytes, mapped and not read; writing to them changes a private copy."""
        size = self.size(name)
        if not size:
            return np.zeros(0, np.uint8)
        if self._stream is None:
            return np.memmap(self._paths[name], np.uint8, mode="c")
        offset = self._members[name].offset_data
        if offset + size > os.fstat(self._stream.fileno()).st_size:
            raise CheckpointError(f"{self.where(name)} goes beyond the end of the archive. Fetch the release again.")
        mapped: Any = np.memmap(self._stream, np.uint8, mode="c", offset=offset, shape=(size,))
        return mapped  # type: ignore[no-any-return]

    def where(self, name: str) -> str:
        """How to call the file in a message."""
        return f"{self.path}: {name}" if self._tar else str(self._paths[name])

    def _beside(self, path: Path) -> None:
        """Take the folder of a file; TensorFlow's checkpoints are called by a prefix that is no file."""
        for candidate in (path, path.with_name(path.name + ".index")):
            if candidate.is_file():
                files = {file.name: file for file in path.parent.iterdir() if file.is_file()}
                self._paths, self.chosen = files, candidate.name
                return
        raise CheckpointError(f"{path}: no such file or folder. Check the path.", code="missing-file", value=path)

    def _open_archive(self, path: Path) -> None:
        try:
            self._stream = self._held.enter_context(_plain(path))
            self._tar = self._held.enter_context(tarfile.TarFile(fileobj=self._stream))
            members = self._tar.getmembers()
        except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
            raise CheckpointError(f"{path}: a damaged archive ({error}). Fetch it again.") from None
        files = {}
        for member in members:
            name = PurePosixPath(member.name)
            if name.is_absolute() or ".." in name.parts:
                raise CheckpointError(
                    f"{path}: the archive names {member.name!r}, outside of itself. Nothing was read; don't unpack it."
                )
            if member.isreg() and not member.issparse() and not _is_noise(name):
                files[str(name)] = member
        self._members = _without_top(files)


def _is_archive(path: Path) -> bool:
    try:
        return tarfile.is_tarfile(path)
    except (OSError, EOFError, zlib.error):
        return path.name.endswith((".tar", ".tar.gz", ".tgz", ".nemo"))


def _is_noise(name: PurePosixPath) -> bool:
    """Whether a macOS archiver added it."""
    return name.name.startswith("._") or "__MACOSX" in name.parts


def _walk(folder: Path) -> dict[str, Path]:
    files = {}
    for root, folders, names in os.walk(folder):
        under = Path(root).relative_to(folder)
        if len(under.parts) >= _DEPTH:
            folders.clear()
        for name in names:
            if not _is_noise(PurePosixPath(name)):
                files[(under / name).as_posix()] = Path(root, name)
    return files


def _without_top(files: dict[str, T]) -> dict[str, T]:
    """The files with the folders left off that hold everything, but for Megatron's ranks."""
    while files:
        tops = {name.partition("/")[0] for name in files}
        top = next(iter(tops))
        if len(tops) > 1 or top in files or top.startswith("mp_rank_"):
            break
        files = {name[len(top) + 1 :]: file for name, file in files.items()}
    return files


def _plain(path: Path) -> IO[bytes]:
    """The archive as a file without compression; one that is compressed is unpacked into a nameless file."""
    with path.open("rb") as stream:
        compressed = stream.read(2) == b"\x1f\x8b"
    if not compressed:
        return path.open("rb")
    limit = max(SMALL, path.stat().st_size * GROWTH_LIMIT)
    with ExitStack() as held, gzip.open(path) as packed:
        unpacked = held.enter_context(tempfile.TemporaryFile())
        while chunk := packed.read(_CHUNK):
            if unpacked.tell() + len(chunk) > limit:
                raise CheckpointError(
                    f"{path} unpacks to more than {limit:,} bytes, {GROWTH_LIMIT} times its size. "
                    "Weights never compress so well; check where it comes from."
                )
            unpacked.write(chunk)
        unpacked.seek(0)
        held.pop_all()
    return unpacked


@dataclass(frozen=True, slots=True)
class ForeignCheckpoint:
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


def unknown_weights_error(where: str, names: Iterable[str], *, layout: str) -> CheckpointError:
    """The error for weights that have no place in a model of this layout, the first of them named."""
    listed = sorted(names)
    more = f" and {len(listed) - 1} more" if len(listed) > 1 else ""
    return CheckpointError(
        f"{where} has the weights {listed[0]!r}{more}, which {layout} does not have. "
        "Remove them if they belong to a task's head, or check the kind of model."
    )


def missing_weights_error(where: str, name: str, *, layout: str) -> CheckpointError:
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
