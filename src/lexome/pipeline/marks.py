"""Finish, then mark finished: drafts, renames and completion marks of one job."""

import errno
import json
import os
import re
import shutil
import socket
import traceback
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from lexome.errors import FormatError, LexomeError, WorkerError
from lexome.pipeline.stage import Advance, Finished, Job, Stage

# A folder of its own keeps the output's ending, by which writers choose format and compression, and yet no
# `*.parquet` finds a draft. A host's name has no hyphen here, so the output's name can be read back.
DRAFT = re.compile(r"\.[A-Za-z0-9]+-[0-9]+-(?P<name>.+)\.part", re.DOTALL)
HOST_LETTERS = 40
# Of the disk, or of what a user may have of it.
FULL = (errno.ENOSPC, errno.EDQUOT)


def perform(stage: Stage, job: Job, advance: Advance) -> Finished:
    """The job's end: outputs in place, then the mark; or why it failed, with everything as it was before."""
    try:
        return Finished(job.name, report=_make(stage, job, advance))
    except LexomeError as error:
        return Finished(job.name, failure=str(error))
    except (Exception, SystemExit) as error:
        if isinstance(error, OSError) and error.errno in FULL:
            return Finished(job.name, failure=f"the disk has no room for {job.outputs[0]}. Make some.")
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(last.filename).name}, line {last.lineno}, in {last.name}: {last.line}"
        return Finished(job.name, failure=f"{type(error).__name__}: {error} ({place})")


def stored(stage: Stage, job: Job) -> dict[str, Any] | None:
    """The report in a job's mark, or None where the job has to be done: no mark, or one that does not fit."""
    try:
        mark = json.loads(stage.mark_of(job).read_bytes())
        if mark["fingerprint"] != stage.fingerprint or mark["inputs"] != _identities(job.inputs):
            return None
        if mark["outputs"] != _sizes(job.outputs):
            return None
        report: dict[str, Any] = mark["report"]
    except (OSError, ValueError, KeyError, TypeError, FormatError):
        return None
    return report


def size_of(job: Job) -> int:
    """The bytes a job reads; what is missing counts nothing, and fails when its job comes."""
    total = 0
    for path in job.inputs:
        with suppress(OSError):
            total += path.stat().st_size
    return total


def sweep(stage: Stage, jobs: Iterable[Job]) -> None:
    """Removes the drafts that killed runs left of these jobs, and of no others: someone may be writing those."""
    names: defaultdict[Path, set[str]] = defaultdict(set)
    for job in jobs:
        for path in (*job.outputs, stage.mark_of(job)):
            names[path.parent].add(path.name)
    for folder, ours in names.items():
        # One listing a folder: one a job would be quadratic.
        with suppress(FileNotFoundError), os.scandir(folder) as entries:
            for entry in entries:
                if (draft := DRAFT.fullmatch(entry.name)) and draft["name"] in ours:
                    _remove(Path(entry.path))


def _make(stage: Stage, job: Job, advance: Advance) -> dict[str, Any]:
    before = _identities(job.inputs)
    mark = stage.mark_of(job)
    places = [_place_of(path) for path in job.outputs]
    mark_draft = _place_of(mark)
    drafts = tuple(place / path.name for place, path in zip(places, job.outputs, strict=True))
    try:
        for place in places:
            place.mkdir(parents=True, exist_ok=True)
        report = stage.work(job, drafts, advance)
        if not isinstance(report, dict):
            raise TypeError(f"the work of {stage.name} returned a {type(report).__name__}; expected a dict to report")
        if _identities(job.inputs) != before:
            raise FormatError(f"{job.name}: its input changed while it was read. Run again when it is complete.")
        content = {"fingerprint": stage.fingerprint, "inputs": before, "outputs": _flushed(drafts), "report": report}
        text = json.dumps(content, allow_nan=False) + "\n"
        mark_draft.parent.mkdir(parents=True, exist_ok=True)
        mark_draft.write_text(text, encoding="ascii")
        _flushed((mark_draft,))
        # A mark of earlier outputs goes before they do. Else a kill between here and the end would leave, for a run
        # with the earlier settings, a mark that fits and outputs that do not.
        if mark.exists():
            mark.unlink(missing_ok=True)
            _flush(mark.parent)
        _rename(drafts, job.outputs)
        for place in places:
            _remove(place)
        # After this nothing is left to do, so that a job with a mark has no traces of work.
        _rename((mark_draft,), (mark,))
    finally:
        for place in (*places, mark_draft):
            _remove(place)
    made: dict[str, Any] = json.loads(text)["report"]
    return made


def _place_of(path: Path) -> Path:
    """A hidden name beside the path that no other process has: a folder for an output's draft, a mark's own draft."""
    host = re.sub(r"[^A-Za-z0-9]", "", socket.gethostname())[:HOST_LETTERS] or "host"
    return path.parent / f".{host}-{os.getpid()}-{path.name}.part"


def _remove(place: Path) -> None:
    if place.is_dir():
        shutil.rmtree(place, ignore_errors=True)
    else:
        place.unlink(missing_ok=True)


def _identities(paths: tuple[Path, ...]) -> list[dict[str, Any]]:
    identities = []
    for path in paths:
        try:
            found = path.stat()
        except OSError as error:
            raise FormatError(f"{path}: cannot be read ({error.strerror}); expected a file to work on.") from error
        # The name alone: a tree that was moved is still done.
        identities.append({"name": path.name, "size": found.st_size, "mtime_ns": found.st_mtime_ns})
    return identities


def _sizes(paths: tuple[Path, ...]) -> list[dict[str, Any]]:
    return [{"name": path.name, "size": path.stat().st_size} for path in paths]


def _flushed(drafts: tuple[Path, ...]) -> list[dict[str, Any]]:
    """The sizes of drafts, once they are safe on disk."""
    for draft in drafts:
        try:
            _flush(draft)
        except FileNotFoundError:
            raise WorkerError(
                f"{draft.name}: its draft is not there; expected the work to write it. "
                "If another run does the same jobs at the same time, let that one finish."
            ) from None
    return _sizes(drafts)


def _rename(drafts: tuple[Path, ...], outputs: tuple[Path, ...]) -> None:
    for draft, output in zip(drafts, outputs, strict=True):
        draft.replace(output)
    # After a power cut a mark must not be there without its outputs.
    for folder in {output.parent for output in outputs}:
        _flush(folder)


def _flush(path: Path) -> None:
    if path.is_dir() and os.name == "nt":
        return  # Windows opens no folders
    handle = os.open(path, os.O_RDWR if path.is_file() else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
