"""Killed anywhere and started again, bulk work ends with the same bytes; nobody is left behind."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import bulk
import pytest
from interrupts import hear_interrupts
from patience import NIGHTLY, wait_until

FILES = 30
WORKERS = 2
KILLS = 10 if NIGHTLY else 4


def program(folder: Path) -> "subprocess.Popen[bytes]":
    """A run of the stage in a process group of its own."""
    return subprocess.Popen([sys.executable, bulk.__file__, str(folder), str(WORKERS)], start_new_session=True)


def files_in(folder: Path) -> int:
    return sum(len(names) for _, _, names in os.walk(folder))


def many(folder: Path) -> Path:
    """Thirty inputs, of 1 to 30 blocks."""
    return bulk.texts(folder, {f"abstract{n:02}": f"p53 and MDM2, {n}. " * 4 * n for n in range(1, FILES + 1)})


def copy(folder: Path, to: Path) -> Path:
    """Another place for outputs and marks of the same inputs."""
    to.mkdir()
    (to / "in").symlink_to(folder / "in")
    return to


def test_killed_at_moments_of_the_run_and_run_again_the_bytes_are_the_same(tmp_path: Path) -> None:
    source = many(tmp_path / "undisturbed")
    assert program(source).wait() == 0
    whole = bulk.made(source)
    rng = random.Random(20261115)
    cut_short = 0
    for number in range(KILLS):
        folder = copy(source, tmp_path / f"killed{number}")
        process = program(folder)
        # When so many files lie there: drafts, outputs and marks.
        enough = rng.randrange(number * FILES * 3 // KILLS, (number + 1) * FILES * 3 // KILLS)
        while process.poll() is None and files_in(folder) <= enough:
            time.sleep(0.005)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        left = bulk.made(folder)
        cut_short += left != whole
        assert {name: content for name, content in left.items() if name in whole}.items() <= whole.items()
        assert program(folder).wait() == 0
        assert bulk.made(folder) == whole
    # Nearly all: a run goes on between the moment and the kill, and one that is near its end may get there.
    assert cut_short


def test_a_killed_parent_leaves_no_workers(tmp_path: Path) -> None:
    folder = slow(tmp_path)
    process = slow_program(folder)
    wait_until(lambda: len(workers_of(folder)) == WORKERS)
    process.kill()
    process.wait()
    wait_until(lambda: not any(map(alive, workers_of(folder))))


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_ends_its_workers_and_leaves_nothing(tmp_path: Path, sent: signal.Signals) -> None:
    folder = slow(tmp_path)
    process = slow_program(folder, stderr=subprocess.PIPE)
    wait_until(lambda: len(workers_of(folder)) == WORKERS)
    # To the whole group, as a terminal does it.
    os.killpg(process.pid, sent)
    told = process.communicate()[1].decode()
    assert (process.returncode, told.count("Traceback")) == (130, 0)
    assert not any(map(alive, workers_of(folder)))
    assert [name for name, content in bulk.made(folder).items() if content != b"folder" or "part" in name] == []


def slow(tmp_path: Path) -> Path:
    (tmp_path / "pids").mkdir()
    return bulk.texts(tmp_path, {"a": "a", "b": "b", "c": "c"})


def slow_program(folder: Path, stderr: int | None = None) -> "subprocess.Popen[bytes]":
    command = [sys.executable, bulk.__file__, str(folder), "slow"]
    return subprocess.Popen(command, start_new_session=True, stderr=stderr, preexec_fn=hear_interrupts)


def workers_of(folder: Path) -> list[int]:
    return [int(path.name) for path in (folder / "pids").iterdir()]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A zombie that nobody has waited for has ended too.
    return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
