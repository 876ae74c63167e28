"""`lexome export`, `fill` and `embed` from the command line."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from interrupts import hear_interrupts
from patience import PATIENCE_S, wait_until

LEXOME = [sys.executable, "-m", "lexome"]


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*LEXOME, *map(str, arguments)], capture_output=True, text=True)


def test_export_reports_parity_with_torch(checkpoint: Path, tmp_path: Path) -> None:
    result = run("export", checkpoint, tmp_path / "onnx", "--kind", "encoder")
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == "exported   bert, encoder, up to 40 tokens"
    assert lines[1].startswith("parity ")
    assert lines[2] == f"wrote      {tmp_path / 'onnx'}"


def test_fill_prints_words_with_their_probabilities(exported: Path) -> None:
    result = run("fill", exported, "w1 [MASK] w2 [MASK]", "--top", 2)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert (lines[0], lines[3], len(lines)) == ("mask 1", "mask 2", 6)
    share, word = lines[1].split()
    assert 0 < float(share) < 1
    assert word


def test_fill_json_is_for_programs(exported: Path) -> None:
    (guesses,) = json.loads(run("fill", exported, "w1 [MASK]", "--json").stdout)
    assert [sorted(guess) for guess in guesses] == [["id", "probability", "word"]] * 5


@pytest.mark.parametrize("text", ["w1", "[MASK] " * 50])
def test_fill_refuses_in_one_line(exported: Path, text: str) -> None:
    result = run("fill", exported, text)
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert result.stderr.startswith("error: the text has ")


def test_fill_refuses_a_checkpoint_that_is_not_exported(checkpoint: Path) -> None:
    result = run("fill", checkpoint, "[MASK]")
    assert result.returncode == 1
    assert f"lexome export {checkpoint} " in result.stderr


def test_embed_prints_counts(exported: Path, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("w1 w2\nw3\n" + "w4 " * 50 + "\n")
    result = run("embed", exported, tmp_path / "lines.txt", "--lines", "--out", tmp_path / "v.npy")
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [
        "read       3 documents, 53 tokens in 4 windows",
        f"wrote      3 vectors of width 32 to {tmp_path / 'v.npy'}",
    ]
    assert np.load(tmp_path / "v.npy").shape == (3, 32)


def test_embed_json_is_for_programs(exported: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("w1 w2")
    counts = json.loads(run("embed", exported, tmp_path / "a.txt", "--out", tmp_path / "v.parquet", "--json").stdout)
    assert (counts["documents"], counts["vectors"], counts["tokens"]) == (1, 1, 2)


def test_an_interrupted_embed_writes_nothing(exported: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "docs.jsonl"
    os.mkfifo(pipe)
    out = tmp_path / "v.npy"
    command = [*LEXOME, "embed", exported, pipe, "--out", out]
    started = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=hear_interrupts)
    with pipe.open("w") as stream:
        stream.write(json.dumps({"id": "1", "text": "w1"}) + "\n")
        stream.flush()
        wait_until(lambda: list(tmp_path.glob(".v.npy.*.part")) or started.poll() is not None)
        assert started.poll() is None
        started.send_signal(signal.SIGINT)
        _, message = started.communicate(timeout=PATIENCE_S)
    assert started.returncode == 130
    assert message.startswith("interrupted: ")
    assert str(out) in message
    assert sorted(path.name for path in tmp_path.iterdir()) == ["docs.jsonl"]
