"""The command line as a user meets it, in its own process."""

import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from interrupts import hear_interrupts
from patience import PATIENCE_S, wait_until
from typer.testing import CliRunner

import lexome
from lexome import Document, Passage, Span
from lexome.cli import app
from lexome.errors import UsageError

DOCS = [
    Document(str(n), (Passage(0, "Mutations in BRCA1."),), (Span("T1", "Gene", ((13, 18),), "BRCA1"),))
    for n in range(3)
]


def run(
    *arguments: str | Path, stdin: bytes | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "lexome", *map(str, arguments)]
    return subprocess.run(command, input=stdin, capture_output=True, cwd=cwd, timeout=PATIENCE_S)


@pytest.fixture
def jsonl(tmp_path: Path) -> Path:
    lexome.write(tmp_path / "in.jsonl", DOCS)
    return tmp_path / "in.jsonl"


def test_convert_writes_and_prints_a_summary(jsonl: Path, tmp_path: Path) -> None:
    result = run("convert", jsonl, tmp_path / "out.pubtator")
    assert result.returncode == 0, result.stderr
    assert result.stdout.decode().splitlines() == [
        "read       3 documents (1 jsonl files)",
        "spans      3 Gene",
        "noted      3 passage kinds, gaps, sections and sentences not written",
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


def test_malformed_documents_go_to_the_rejects_file(jsonl: Path, tmp_path: Path) -> None:
    jsonl.write_bytes(jsonl.read_bytes() + b"{broken\n")
    result = run("convert", jsonl, tmp_path / "out.jsonl")
    assert result.returncode == 0
    assert b"rejected   1 malformed_json, see " in result.stdout
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
    assert b"in.jsonl.gz" in result.stderr
    assert len(list(lexome.read(tmp_path / "out.jsonl"))) > 1000


def test_quiet_still_reports_broken_files_and_rejects(jsonl: Path, tmp_path: Path) -> None:
    jsonl.write_bytes(jsonl.read_bytes() + b"{broken\n")
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(jsonl.read_bytes() * 100)[:-30])
    result = run("convert", "--quiet", "in.jsonl", "cut.jsonl.gz", "out.jsonl", cwd=tmp_path)
    said = result.stderr.decode().splitlines()
    assert (result.returncode, result.stdout, len(said)) == (1, b"", 2)
    assert said[0].endswith(" malformed_json, see out.jsonl.rejects.jsonl")
    assert said[1].startswith("broken     cut.jsonl.gz: ")


def test_nothing_but_bad_documents_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_bytes(b"{broken\n")
    result = run("convert", "--quiet", "in.jsonl", "out.jsonl", cwd=tmp_path)
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].startswith(b"error: ")
    assert b"out.jsonl.rejects.jsonl" in result.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        (["in.jsonl"], "IN... OUT"),
        (["in.jsonl", "in.jsonl"], "in.jsonl"),
        (["in.jsonl", "out.docx"], "out.docx"),
        (["in.jsonl", "out.jsonl", "--from", "pubmde"], "'pubmed'"),
        (["in.jsonl", "out.jsonl", "--set", "scheme"], "KEY=VALUE"),
        (["in.jsonl", "out.jsonl", "--set", "read.scheme=iob1"], "'scheme'"),
        (["in.jsonl", "out.jsonl", "--from", "jsonl", "--bogus"], "--bogus"),
    ],
)
def test_wrong_usage_ends_with_code_2_and_names_the_value(jsonl: Path, arguments: list[str], value: str) -> None:
    result = run("convert", *arguments, cwd=jsonl.parent)
    assert (result.returncode, result.stdout) == (2, b"")
    assert value in result.stderr.decode()
    assert b"Traceback" not in result.stderr


@pytest.mark.parametrize(
    "words", [["convert", "", "out.jsonl"], ["index", "in", ""], ["search", "", "x"], ["link", ""]]
)
def test_an_empty_path_is_not_the_current_folder(words: list[str]) -> None:
    error = CliRunner().invoke(app, words).exception
    assert isinstance(error, UsageError)
    assert error.code == "empty-path"


def test_a_missing_file_ends_with_code_1(tmp_path: Path) -> None:
    result = run("convert", tmp_path / "absent.xml", tmp_path / "out.jsonl")
    assert result.returncode == 1
    assert b"absent.xml" in result.stderr
    assert b"Traceback" not in result.stderr


def test_a_link_is_followed_and_stays(jsonl: Path, tmp_path: Path) -> None:
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "target.jsonl")
    assert run("convert", jsonl, tmp_path / "link.jsonl").returncode == 0
    assert (tmp_path / "link.jsonl").is_symlink()
    assert list(lexome.read(tmp_path / "target.jsonl")) == DOCS


def test_a_pipe_is_written_to_and_stays(jsonl: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["cat", tmp_path / "pipe"], stdout=subprocess.PIPE) as reader:
        assert run("convert", jsonl, tmp_path / "pipe", "--to", "jsonl").returncode == 0
        assert reader.communicate(timeout=PATIENCE_S)[0] == jsonl.read_bytes()
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.parametrize("rejects", ["in.jsonl", "out.jsonl"])
def test_rejects_never_replace_input_or_output(jsonl: Path, rejects: str) -> None:
    before = jsonl.read_bytes()
    result = run("convert", "in.jsonl", "out.jsonl", "--rejects", rejects, cwd=jsonl.parent)
    assert (result.returncode, jsonl.read_bytes()) == (2, before)
    assert rejects in result.stderr.decode()


def test_an_older_output_stays_where_nothing_could_be_read(jsonl: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.jsonl.gz").write_bytes(b"\x1f\x8b")
    before = jsonl.read_bytes()
    result = run("convert", tmp_path / "broken.jsonl.gz", jsonl)
    assert (result.returncode, jsonl.read_bytes()) == (1, before)


def test_a_folder_is_read_without_what_the_run_writes_into_it(jsonl: Path, tmp_path: Path) -> None:
    for _ in range(2):
        counts = json.loads(run("convert", "--json", tmp_path, tmp_path / "all.jsonl").stdout)
        assert counts["documents"] == 3


@pytest.mark.parametrize(
    "arguments",
    [["folder", "--to", "jsonl"], ["out.jsonl", "--rejects", "folder"]],
)
def test_a_folder_where_a_file_belongs_is_named(jsonl: Path, arguments: list[str]) -> None:
    (jsonl.parent / "folder").mkdir()
    jsonl.write_bytes(jsonl.read_bytes() + b"{broken\n")
    result = run("convert", "in.jsonl", *arguments, cwd=jsonl.parent)
    assert (result.returncode, b"Traceback" in result.stderr) == (1, False)
    assert b"folder: " in result.stderr


@pytest.mark.parametrize(("out", "to"), [("-", "brat"), ("out.tar", "jsonl"), ("out.zip", "jsonl")])
def test_places_that_a_format_cannot_go_are_refused(jsonl: Path, out: str, to: str) -> None:
    assert run("convert", jsonl, out, "--to", to, cwd=jsonl.parent).returncode == 2


def test_compressed_standard_input_is_unpacked(jsonl: Path) -> None:
    result = run("convert", "-", "-", "--to", "jsonl", stdin=gzip.compress(jsonl.read_bytes()))
    assert result.stdout == jsonl.read_bytes()


@pytest.mark.parametrize("format", ["jsonl", "xlsx"])
def test_a_full_disk_is_an_error_and_no_traceback(jsonl: Path, format: str) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full on this system")
    result = run("convert", jsonl, "/dev/full", "--to", format)
    assert (result.returncode, b"Traceback" in result.stderr) == (1, False)


def test_an_ambiguous_format_option_needs_a_prefix(tmp_path: Path) -> None:
    (tmp_path / "in.conll").write_text("BRCA1\tB-Gene\n")
    result = run("convert", "in.conll", "out.conll", "--from", "conll", "--set", "scheme=iobes", cwd=tmp_path)
    assert (result.returncode, b"write.scheme=" in result.stderr) == (2, True)


@pytest.mark.parametrize("interruption", ["SIGINT", "SIGHUP"])
def test_an_interrupted_conversion_writes_nothing_and_ends_with_code_130(tmp_path: Path, interruption: str) -> None:
    command = [sys.executable, "-m", "lexome", "convert", "-", str(tmp_path / "out.jsonl"), "--from", "jsonl"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=hear_interrupts)
    assert process.stdin is not None
    process.stdin.write(b'{"id":"1","text":"x"}\n' * 20_000)
    process.stdin.flush()
    wait_until(lambda: list(tmp_path.iterdir()))
    process.send_signal(getattr(signal, interruption))
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, b"interrupted" in errors) == (130, True)
    assert list(tmp_path.iterdir()) == []


def test_a_closed_pipe_is_not_an_error(jsonl: Path) -> None:
    lexome.write(jsonl, [Document(str(n), (Passage(0, "x" * 1000),)) for n in range(2000)])
    command = f"{sys.executable} -m lexome convert -q {jsonl} - --to jsonl | head -1"
    result = subprocess.run(["bash", "-c", command], capture_output=True, timeout=PATIENCE_S)
    assert (result.stdout.count(b"\n"), result.stderr) == (1, b"")


@pytest.mark.skipif(os.name == "nt", reason="needs a shell of POSIX")
def test_closed_streams_are_no_error(jsonl: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    command = f"{sys.executable} -m lexome convert {jsonl} {out} <&- >&- 2>&-"
    assert subprocess.run(["bash", "-c", command], timeout=PATIENCE_S).returncode == 0
    assert out.read_bytes() == jsonl.read_bytes()


def test_a_stream_that_is_not_utf8_gets_escapes_that_json_has_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    lexome.write(tmp_path / "in.jsonl", [Document("α𝐁", (Passage(0, "x"),), (Span("T1", "β", ((0, 1),), "x"),))])
    assert b"spans      1 \\u03b2" in run("convert", "in.jsonl", "out.jsonl", cwd=tmp_path).stdout
    shown = run("convert", "in.jsonl", "out.jsonl", "--json", cwd=tmp_path).stdout
    assert json.loads(shown)["spans"] == {"β": 1}


def test_control_characters_of_a_file_do_not_reach_the_terminal(jsonl: Path, tmp_path: Path) -> None:
    lexome.write(jsonl, [Document("1", (Passage(0, "x"),), (Span("T1", "Ge\x1b[31mne", ((0, 1),), "x"),))])
    result = run("convert", jsonl, tmp_path / "out.jsonl")
    assert "Ge␛[31mne".encode() in result.stdout
    missing = run("convert", "no\x1b[31mfile", tmp_path / "out.jsonl")
    assert (b"\x1b" in missing.stderr, "no␛[31mfile".encode() in missing.stderr) == (False, True)


def test_help_lists_every_format() -> None:
    page = run("convert", "--help").stdout.decode()
    from lexome.formats import FORMATS

    assert [format.name for format in FORMATS if f"\n    {format.name} " not in page] == []


def test_help_of_each_command_fits_on_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    _, _, commands = run("--help").stdout.decode().partition("Commands:\n")
    assert len(commands.splitlines()) >= 20
    assert [line for line in commands.splitlines() if line.endswith("...")] == []


def test_version() -> None:
    assert run("--version").stdout.decode() == f"lexome {lexome.__version__}\n"
