"""The command line as a user meets it, in its own process."""

import json
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import lexome
from lexome import Document, Passage, Span

DOCS = [
    Document(str(n), (Passage(0, "Mutations in BRCA1."),), (Span("T1", "Gene", ((13, 18),), "BRCA1"),))
    for n in range(3)
]


def run(
    *arguments: str | Path, stdin: bytes | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "lexome", *map(str, arguments)]
    return subprocess.run(command, input=stdin, capture_output=True, cwd=cwd, timeout=60)


@pytest.fixture
def jsonl(tmp_path: Path) -> Path:
    lexome.write(tmp_path / "in.jsonl", DOCS)
    return tmp_path / "in.jsonl"


def test_convert_writes_and_says_what_it_did(jsonl: Path, tmp_path: Path) -> None:
    result = run("convert", jsonl, tmp_path / "out.pubtator")
    assert result.returncode == 0, result.stderr
    assert result.stdout.decode().splitlines() == [
        "read       3 documents (1 jsonl files)",
        "spans      3 Gene",
        "noted      3 passages: kinds, gaps, sections, sentences and the like not written",
        f"wrote      3 documents to {tmp_path / 'out.pubtator'}",
    ]
    assert next(lexome.read(tmp_path / "out.pubtator")).spans[0].text == "BRCA1"


def test_convert_json_is_for_programs(jsonl: Path, tmp_path: Path) -> None:
    counts = json.loads(run("convert", "--json", jsonl, tmp_path / "out.bioc.xml").stdout)
    assert (counts["documents"], counts["written"], counts["spans"]) == (3, 3, {"Gene": 3})


def test_standard_input_and_output(jsonl: Path) -> None:
    result = run("convert", "-", "-", "--to", "text", stdin=jsonl.read_bytes())
    assert result.stdout == b"Mutations in BRCA1.\n\n" * 2 + b"Mutations in BRCA1.\n"
    assert b"read       3 documents" in result.stderr


def test_bad_documents_are_set_aside_beside_the_output(jsonl: Path, tmp_path: Path) -> None:
    jsonl.write_bytes(jsonl.read_bytes() + b"{broken\n")
    result = run("convert", jsonl, tmp_path / "out.jsonl")
    assert result.returncode == 0
    assert b"set aside  1 malformed_json, in " in result.stdout
    assert json.loads((tmp_path / "out.jsonl.rejects.jsonl").read_text())["raw"] == "{broken"


def test_strict_stops_at_the_first_bad_document(jsonl: Path, tmp_path: Path) -> None:
    jsonl.write_bytes(jsonl.read_bytes() + b"{broken\n")
    result = run("convert", "--strict", jsonl, tmp_path / "out.jsonl")
    assert result.returncode == 1
    assert result.stderr.startswith(b"error: ")
    assert not (tmp_path / "out.jsonl").exists()


def test_a_broken_file_ends_with_code_1_and_keeps_what_was_read(tmp_path: Path) -> None:
    lexome.write(tmp_path / "in.jsonl.gz", [Document(str(n), (Passage(0, str(n**9)),)) for n in range(9000)])
    path = tmp_path / "in.jsonl.gz"
    path.write_bytes(path.read_bytes()[:-2000])
    result = run("convert", path, tmp_path / "out.jsonl")
    assert result.returncode == 1
    assert b"breaks off" in result.stderr
    assert len(list(lexome.read(tmp_path / "out.jsonl"))) > 1000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["in.jsonl"], "at least one input and then the output"),
        (["in.jsonl", "in.jsonl"], "both input and output"),
        (["in.jsonl", "out.docx"], "no format is written to files that end so"),
        (["in.jsonl", "out.jsonl", "--from", "pubmde"], "Did you mean 'pubmed'"),
        (["in.jsonl", "out.jsonl", "--set", "scheme"], "expected KEY=VALUE"),
        (["in.jsonl", "out.jsonl", "--set", "read.scheme=iob1"], "'jsonl' has no option 'scheme'"),
        (["in.jsonl", "out.jsonl", "--from", "jsonl", "--bogus"], "--bogus"),
    ],
)
def test_wrong_usage_ends_with_code_2_and_says_why(jsonl: Path, arguments: list[str], message: str) -> None:
    result = run("convert", *arguments, cwd=jsonl.parent)
    assert (result.returncode, result.stdout) == (2, b"")
    assert message in result.stderr.decode()
    assert b"Traceback" not in result.stderr


def test_a_missing_file_ends_with_code_1(tmp_path: Path) -> None:
    result = run("convert", tmp_path / "absent.xml", tmp_path / "out.jsonl")
    assert result.returncode == 1
    assert b"there is no such file" in result.stderr


def test_an_option_both_formats_have_must_say_whose(tmp_path: Path) -> None:
    (tmp_path / "in.conll").write_text("BRCA1\tB-Gene\n")
    result = run("convert", "in.conll", "out.conll", "--from", "conll", "--set", "scheme=iobes", cwd=tmp_path)
    assert (result.returncode, b"Say read.scheme= or write.scheme=" in result.stderr) == (2, True)


def test_an_interrupted_conversion_writes_nothing_and_ends_with_code_130(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lexome", "convert", "-", str(tmp_path / "out.jsonl"), "--from", "jsonl"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(b'{"id":"1","text":"x"}\n' * 20_000)
    process.stdin.flush()
    deadline = time.monotonic() + 20
    while not list(tmp_path.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert (process.returncode, b"interrupted" in errors) == (130, True)
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_goes_away_ends_the_work_quietly(jsonl: Path) -> None:
    lexome.write(jsonl, [Document(str(n), (Passage(0, "x" * 1000),)) for n in range(2000)])
    command = f"{sys.executable} -m lexome convert -q {jsonl} - --to jsonl | head -1"
    result = subprocess.run(["bash", "-c", command], capture_output=True, timeout=60)
    assert (result.stdout.count(b"\n"), result.stderr) == (1, b"")


def test_help_lists_every_format() -> None:
    page = run("convert", "--help").stdout.decode()
    from lexome.formats.registry import FORMATS

    assert [format.name for format in FORMATS if f"\n    {format.name} " not in page] == []


def test_version() -> None:
    assert run("--version").stdout.decode() == f"lexome {lexome.__version__}\n"


def test_help_starts_in_under_half_a_second() -> None:
    """Counted in processor time, so that a busy machine does not decide."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for _ in range(5):
        subprocess.run([Path(sys.executable).with_name("lexome"), "--help"], capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / 5 < 0.5
