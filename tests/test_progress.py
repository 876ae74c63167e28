"""Progress: a bar on a terminal, a line a minute in a log, and nothing where nobody looks."""

import os
import pty
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from lexome import progress
from lexome.progress import jobs_progress, status_line, training_progress


def test_a_line_says_how_much_is_done_and_left() -> None:
    line = status_line((500_000_000, 2_000_000_000), (3, 1200), elapsed_s=60)
    assert line == "3 of 1,200 jobs, 500 of 2,000 MB, 8.3 MB/s, 3 min left"


def test_documents_a_second_are_told_where_they_are_counted() -> None:
    line = status_line((500_000_000, 2_000_000_000), (3, 1200), elapsed_s=60, documents=90)
    assert line == "3 of 1,200 jobs, 500 of 2,000 MB, 8.3 MB/s, 1.5 documents/s, 3 min left"


def test_before_anything_is_done_the_time_left_is_not_known() -> None:
    assert status_line((0, 10), (0, 1), elapsed_s=60).endswith("time left unknown")


def test_a_short_run_without_a_terminal_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with jobs_progress("sharding", total=10, jobs=2) as show:
        show(5, 1)
    assert capsys.readouterr().err == ""


def test_a_long_run_without_a_terminal_says_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LINE_S", 0.0)
    with jobs_progress("sharding", total=10, jobs=2) as show:
        show(5, 1)
    assert capsys.readouterr().err.startswith("sharding: 1 of 2 jobs, ")


def test_lines_come_early_and_then_every_minute() -> None:
    timer = progress.LineTimer(100.0)
    times = [now for now in range(100, 400, 5) if timer.due(now)]
    assert times == [110, 130, 170, 230, 290, 350]


def test_a_line_of_training_says_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "LINE_S", 0.0)
    with training_progress() as show:
        show(0.25, "step 1")
        show(0.5, "step 2, loss 3.100")
    assert "pretrain: 50.0%, step 2, loss 3.100, 0 s left" in capsys.readouterr().err


def test_the_time_left_is_by_what_was_done_since_the_first_call(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Ten minutes are spent before the run goes on at a half, and ten more on the next quarter.
    now = iter([0.0, 600.0, 1200.0, 1210.0])
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(now)))
    with training_progress() as show:
        show(0.5, "step 2")
        show(0.75, "step 3")
        show(1.0, "step 4, measuring on held-out text")
    assert capsys.readouterr().err.splitlines() == [
        "pretrain: 50.0%, step 2, time left unknown",
        "pretrain: 75.0%, step 3, 10 min left",
        "pretrain: 100.0%, step 4, measuring on held-out text",
    ]


def test_training_says_nothing_where_it_is_not_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    with training_progress(shown=False) as show:
        show(0.5, "step 2")
    assert capsys.readouterr().err == ""


def test_a_line_is_printed_while_the_first_document_is_worked_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LINE_S", 0.0)
    monkeypatch.setattr(progress, "REFRESH_S", 0.001)
    reported = threading.Event()

    def position() -> int:
        # Asked a second time, it has printed the first line.
        reported.set() if asked else asked.append(True)
        return 500_000

    def documents() -> Iterator[str]:
        assert reported.wait(60)
        yield "first"

    asked: list[bool] = []
    with progress.progress("annotating", total=2_000_000, position=position, detail=lambda: "7 tokens") as track:
        assert list(track(documents())) == ["first"]
    assert capsys.readouterr().err.startswith("annotating: 0 documents, 0.0/s, 7 tokens, 0.5 of 2.0 MB\n")


def test_hidden_progress_is_silent(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINE_S", 0.0)
    with jobs_progress("sharding", total=10, jobs=2, shown=False) as show:
        show(5, 1)
    assert capsys.readouterr().err == ""


def test_on_a_terminal_there_is_a_bar_of_bytes_and_jobs() -> None:
    code = (
        "from lexome.progress import jobs_progress\n"
        "with jobs_progress('sharding', total=4_000_000, jobs=1200) as show: show(2_000_000, 7)"
    )
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": "120", "TERM": "xterm"}
    subprocess.run([sys.executable, "-c", code], stderr=theirs, check=True, env=environment)
    os.close(theirs)
    shown = b""
    while block := read(ours):
        shown += block
    os.close(ours)
    assert b"2.0/4.0 MB" in shown
    assert b"7 of 1,200 jobs" in shown


def read(handle: int) -> bytes:
    try:
        return os.read(handle, 4096)
    except OSError:  # how Linux says that the other end is closed
        return b""
