"""Four new users from end to end, offline: a curator, a data scientist, an ML engineer and an operator.

As a program, `python tests/four_users.py [NAME ...]`, it plays each in a folder of its own and prints what they got;
tests/test_four_users.py runs them in CI. Each part is a function that takes the folder and returns lines to print.
"""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import docx
import openpyxl
import user_walks

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ROOT / "samples"
PATIENCE_S = 180.0

Part = Callable[[Path], list[str]]
PARTS: dict[str, Part] = {}


def part(play: Part) -> Part:
    """Register a user's part under its name."""
    PARTS[play.__name__] = play
    return play


def lexome(*words: object, cwd: Path, code: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    """A run of the command line, which must end with this exit code."""
    command = [sys.executable, "-m", "lexome", *map(str, words)]
    env = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=PATIENCE_S, env=env)
    assert done.returncode == code, f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done


# The curator


@part
def curator(folder: Path) -> list[str]:
    """Opens a spreadsheet and a Word file, gets tables and a page, meets odd files, and uses an own word list."""
    sheet = openpyxl.Workbook()
    assert sheet.active is not None
    for row in (("PMID", "Title"), (1, "Olaparib in BRCA1 breast cancer"), (2, "Aspirin in children with asthma")):
        sheet.active.append(row)
    sheet.save(folder / "list.xlsx")
    note = docx.Document()
    note.add_heading("Case")
    note.add_paragraph("Pt with HTN and T2DM on Lipitor; EGFR T790M was found.")
    note.save(str(folder / "note.docx"))
    lexome("annotate", "list.xlsx", "note.docx", "--out", "mentions.csv", "--quiet", cwd=folder)
    with (folder / "mentions.csv").open(encoding="utf-8-sig", newline="") as stream:
        rows = list(csv.DictReader(stream))
    named = [f"{row['text']} = {row['name']} ({row['concept']})" for row in rows if row["name"]]
    got = [f"a table of {len(rows)} mentions from Excel and Word, such as {', '.join(named[:3])}"]
    lexome("annotate", "list.xlsx", "--types", "disease", "--counts", "--out", "counts.xlsx", "--quiet", cwd=folder)
    counts = openpyxl.load_workbook(folder / "counts.xlsx", read_only=True).worksheets[0]
    got.append(f"counts in Excel: {[row[0] for row in counts.iter_rows(min_row=2, values_only=True)]}")
    lexome("annotate", "note.docx", "--out", "note.html", "--quiet", cwd=folder)
    assert "Lipitor" in (folder / "note.html").read_text(encoding="utf-8")
    got.append("a page of the Word file")
    (folder / "paper.txt").write_bytes(b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n")
    refused = lexome("annotate", "paper.txt", "--quiet", cwd=folder, code=1)
    got.append(f"a PDF called .txt: {refused.stderr.strip().splitlines()[0]}")
    (folder / "old.txt").write_bytes("na\xefve patients got aspirin".encode("windows-1252"))
    read = lexome("annotate", "old.txt", "--json", cwd=folder)
    assert "na\xefve" in json.loads(read.stdout)["passages"][0]["text"]
    got.append("a file in Windows-1252, read as it was written")
    (folder / "own.tsv").write_text("id\tname\ttype\nLAB:1\tred reagent\tReagent\n")
    found = lexome("annotate", "The red reagent was added.", "--terms", "own.tsv", "--find", "--quiet", cwd=folder)
    assert "[red reagent|Reagent LAB:1" in found.stdout
    got.append(f"a word list of one's own: {found.stdout.strip()}")
    return got


# The data scientist and the ML engineer, in a module of their own


@part
def data_scientist(folder: Path) -> list[str]:
    """Annotates lists, makes tables, looks at a notebook, uses spaCy and processes, and brings a foreign recipe."""
    return list(user_walks.data_scientist(folder))


@part
def ml_engineer(folder: Path) -> list[str]:
    """Pre-trains on the shipped text, lengthens the run, meets a damaged state, fine-tunes, exports, and annotates."""
    return list(user_walks.ml_engineer(folder))


# The operator


@contextmanager
def service(cwd: Path, *options: object, token: str) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """A running service on a free port: its address and process. What it logs is in the file `log`."""
    command = [sys.executable, "-m", "lexome", "serve", "--port", "0", *map(str, options)]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "LEXOME_TOKEN": token}
    process = subprocess.Popen(command, cwd=cwd, env=env, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if found := re.search(r"http://\S+:\d+", line):
                yield found[0], process
                break
        else:
            raise AssertionError("the service did not start")
    finally:
        process.kill()
        process.communicate()


def ask(address: str, path: str, body: dict[str, Any] | None = None, **headers: str) -> tuple[Any, dict[str, str]]:
    """The JSON and headers of an answer."""
    data = None if body is None else json.dumps(body).encode()
    with urlopen(Request(address + path, data, headers), timeout=PATIENCE_S) as answer:
        return json.loads(answer.read()), dict(answer.headers)


@part
def operator(folder: Path) -> list[str]:
    """Checks a machine, is kept from an open port, serves with a token, reads the log, reloads, and stops."""
    report = json.loads(lexome("doctor", "--json", cwd=folder).stdout)
    got = [f"doctor: lexome {report['lexome']}, {report['usable_cores']} cores, model {report['model']['name']}"]
    refused = lexome("serve", "--host", "0.0.0.0", "--port", "0", cwd=folder, code=2, LEXOME_TOKEN="")
    got.append(f"open port: {refused.stderr.strip()}")
    with service(folder, "--threads", 1, token="sesame") as (address, process):
        assert process.stderr is not None
        state, _ = ask(address, "/readyz")
        text = {"text": "Olaparib in BRCA1 breast cancer."}
        authorization = {"authorization": "Bearer sesame", "x-request-id": "ticket-7"}
        answer, headers = ask(address, "/annotate", text, **authorization)
        spans = [f"{span['text']} ({span['type']})" for span in answer["documents"][0]["spans"]]
        got.append(f"service: {state['status']}; request {headers['x-request-id']} found {', '.join(spans)}")
        logged = json.loads(process.stderr.readline())
        got.append(f"log: {logged['method']} {logged['path']} {logged['status']}, id {logged['id']}, no text")
        assert "Olaparib" not in json.dumps(logged)
        process.send_signal(signal.SIGHUP)
        reloaded = process.stderr.readline().strip()
        assert reloaded.startswith("reloaded"), reloaded
        got.append(f"SIGHUP: {reloaded}")
        process.send_signal(signal.SIGTERM)
        got.append(f"SIGTERM: exit {process.wait(PATIENCE_S)}")
    bulk = ("annotate", SAMPLES / "abstracts.jsonl", "--out", f"{folder / 'annotated'}/", "--jobs", 0)
    lexome(*bulk, "--quiet", cwd=folder)
    again = json.loads(lexome(*bulk, "--verify", "--json", cwd=folder).stdout)
    got.append(f"bulk: {again['documents']} documents; run again with --verify: {again['files_now']} files redone")
    return got


def main(names: list[str]) -> None:
    """Play the parts of these users, or of all."""
    for name in names or PARTS:
        with tempfile.TemporaryDirectory() as folder:
            print(f"{name.replace('_', ' ')}")
            for line in PARTS[name](Path(folder)):
                print(f"  {line}")


if __name__ == "__main__":
    main(sys.argv[1:])
