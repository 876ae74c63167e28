"""The output folder of bulk annotation: what its files are called, and the settings that all of them share."""

import glob
import json
import shutil
from collections.abc import Container, Mapping, Sequence, Set
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from lexome.errors import FormatError, UsageError
from lexome.formats import Tally, expand, units
from lexome.formats.files import is_archive, plain_name, replacing, shown_name
from lexome.formats.registry import FORMATS, named

SETTINGS = "settings.json"


def work_of(out: Path) -> Path:
    """Where marks, settings and rejects are: hidden, so that reading the folder passes over them."""
    return out / ".lexome"


def inputs_by_name(
    paths: Sequence[Path], out: Path, format: str | None, *, rejects: Path | None = None, tally: Tally | None = None
) -> dict[str, tuple[Path, ...]]:
    """The files of each job by its name: their path below the folder that was given, without endings.

    What lies in `out` is not read, and it is a UsageError to name it; nor is `rejects`, which an earlier run left. Two
    inputs of one name are told apart by their folder. Files of other kinds are counted in `tally`.
    """
    written = {out.resolve(), *(() if rejects is None else (rejects.resolve(),))}
    for path in paths:
        if path.resolve() == out.resolve() or (path.is_file() and _is_in(path, {out.resolve()})):
            raise UsageError(f"{path} is both input and output. Write to another folder.")
    tally = tally or Tally()
    # Before they are grouped: an output among them would part files that belong together.
    inputs = [file for file in expand(paths, named(format) if format else None, tally) if not _is_in(file, written)]
    jobs: dict[str, tuple[Path, ...]] = {}
    for files in units(inputs, format, tally):
        name = _told_apart(_name(files[0], paths), files[0], jobs)
        if name in jobs:
            raise UsageError(f"{files[0]} and {jobs[name][0]} would have outputs of the same name. Rename one.")
        jobs[name] = files
    if not jobs:
        raise FormatError(f"{paths[0]}: all that can be read there lies in the output, {out}. Write to another folder.")
    return jobs


def agree(out: Path, said: Mapping[str, Any], *, redo: bool) -> None:
    """Note the settings in a new folder; refuse one that was made with others, or with `redo` empty it."""
    path = work_of(out) / SETTINGS
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out}: this is a file; expected the name of a folder to write to.")
    asked = json.loads(json.dumps(said))
    try:
        before = json.loads(path.read_bytes())
    except FileNotFoundError:
        before = None
    except ValueError as error:
        raise FormatError(f"{path}: cannot be read ({error}). Remove the folder {out} and run again.") from None
    if before == asked:
        return
    if before is not None:
        if not redo:
            raise UsageError(
                f"{out} holds files that were annotated otherwise: {_difference(before, asked)}. "
                "Name another folder, or add --redo to annotate everything again."
            )
        _emptied(out)
    with replacing(path) as stream:
        stream.write(json.dumps(asked, indent=1, ensure_ascii=False).encode() + b"\n")


def sweep(out: Path, rejects: Path | None) -> None:
    """Remove halves of the settings and the rejects that a killed run left; the runner does the rest."""
    for path in (work_of(out) / SETTINGS, rejects):
        if path is not None and path.parent.is_dir():
            for half in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
                half.unlink(missing_ok=True)


def _is_in(file: Path, written: Set[Path]) -> bool:
    """Whether a file is one of these places, or lies below one."""
    place = file.resolve()
    return place in written or not written.isdisjoint(place.parents)


def _name(file: Path, given: Sequence[Path]) -> str:
    above = [folder for folder in given if folder.is_dir() and file.is_relative_to(folder)]
    inner = file.relative_to(above[0]) if above else Path(file.name)
    place = PurePosixPath(shown_name(inner.as_posix()))
    return str(place.with_name(_stem(place.name)))


def _told_apart(name: str, file: Path, taken: Container[str]) -> str:
    """The name, with that of the file's folder where it is taken, and with the file's ending where that is too."""
    if name in taken:
        name = str(PurePosixPath(name).with_name(f"{shown_name(file.parent.name)}-{PurePosixPath(name).name}"))
    if name in taken:
        # Such as a.xml and a.json in one folder.
        name = f"{name}-{PurePosixPath(plain_name(file.name)).suffix.removeprefix('.')}"
    return name


def _stem(name: str) -> str:
    """A file's name without the endings of compression, archive and format."""
    plain = plain_name(name)
    if is_archive(name):
        plain = plain.removesuffix(".tar").removesuffix(".tgz").removesuffix(".zip")
    endings = [ending for format in FORMATS for ending in format.endings if plain.lower().endswith(ending)]
    cut = plain[: -len(max(endings, key=len))] if endings else PurePosixPath(plain).stem
    # A name that is nothing but an ending, or a hidden one, which no reader would find again.
    return cut.lstrip(".") or plain.lstrip(".") or "file"


def _difference(before: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
    changed = [key for key in asked if before.get(key) != asked[key]]
    return "; ".join(f"{key} was {_told(before.get(key))} and is {_told(asked[key])}" for key in changed)


def _told(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return ", ".join(f"{model['name']} ({model['sha256'][:8]})" for model in value)
    return "not set" if value is None else json.dumps(value, ensure_ascii=False)


def _emptied(out: Path) -> None:
    """Remove what earlier runs wrote, as their marks tell it, and last the marks and settings themselves."""
    marks = work_of(out) / "marks"
    for mark in sorted(marks.rglob("*.json")):
        with suppress(ValueError, LookupError, TypeError):
            output = json.loads(mark.read_bytes())["outputs"][0]["name"]
            (out / mark.parent.relative_to(marks) / output).unlink(missing_ok=True)
    shutil.rmtree(work_of(out))
