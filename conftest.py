"""Runs the code blocks of README and docs, each page in a scratch folder with samples/, recipes/ and models/.

| block     | what happens                                                                                    |
| --------- | ----------------------------------------------------------------------------------------------- |
| `python`  | is executed; blocks of a page share one namespace                                               |
| `text`    | must equal what the Python block above printed                                                  |
| `console` | each line after "$ " must exit with 0; lines below it, if any, must equal its standard output    |
| `toml`    | must parse; a whole recipe (it has `stage`) must pass `lexome check`; `# NAME.toml` saves it     |
| `shell`   | is never run                                                                                    |

`<!-- not run: REASON -->` on the line above a block skips it; a `shell` block must have one (tests/test_house.py).
"""

import io
import os
import re
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any

from sybil import Document, Example, Region, Sybil
from sybil.parsers.markdown import CodeBlockParser

ROOT = Path(__file__).parent
NOT_RUN = re.compile(r"<!-- not run: [^\n]+ -->\n\Z")
FILE_NAME = re.compile(r"# (\w[\w.-]*\.toml)\n")


def enter_scratch(namespace: dict[str, Any]) -> None:
    namespace["_scratch"] = scratch = tempfile.TemporaryDirectory()
    namespace["_before"] = Path.cwd()
    for name in ("samples", "recipes", "models"):
        (Path(scratch.name) / name).symlink_to(ROOT / name)
    os.chdir(scratch.name)


def leave_scratch(namespace: dict[str, Any]) -> None:
    # A page that starts a server in the background leaves its process id in a .pid file.
    for path in Path(namespace["_scratch"].name).glob("*.pid"):
        with suppress(ProcessLookupError, ValueError):
            os.kill(int(path.read_text()), signal.SIGTERM)
    os.chdir(namespace["_before"])
    namespace["_scratch"].cleanup()


def run_python(example: Example) -> None:
    line = example.line + example.parsed.line_offset
    code = compile("\n" * line + str(example.parsed), example.path, "exec", dont_inherit=True)
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(code, example.namespace)
    example.namespace["_printed"] = printed.getvalue()


def compare_text(example: Example) -> None:
    expected, printed = str(example.parsed).strip(), example.namespace.pop("_printed", "").strip()
    assert printed == expected, f"line {example.line}: the block above printed\n{printed}\nand not\n{expected}"


def run_console(example: Example) -> None:
    for command, expected in console_steps(str(example.parsed)):
        result = run(command)
        assert result.returncode == 0, f"{command}\n{result.stdout}{result.stderr}"
        assert not expected or result.stdout.strip() == expected, f"{command} printed\n{result.stdout}"


def console_steps(block: str) -> list[tuple[str, str]]:
    """Each command with what must be printed below it."""
    steps: list[tuple[str, list[str]]] = []
    for line in block.strip().split("\n"):
        if line.startswith("$ "):
            steps.append((line[2:], []))
        else:
            steps[-1][1].append(line)
    return [(command, "\n".join(lines).strip()) for command, lines in steps]


def check_toml(example: Example) -> None:
    block = str(example.parsed)
    named = FILE_NAME.match(block)
    path = Path(named[1] if named else "block.toml")
    path.write_text(block)
    if "stage" in tomllib.loads(block):
        result = run(f"lexome check {path}")
        assert result.returncode == 0, f"line {example.line}: {result.stderr}"


def run(command: str) -> subprocess.CompletedProcess[str]:
    """The command in bash, 100 columns wide, on one thread: several are slower on tiny models."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "COLUMNS": "100"}
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=environment, timeout=900)


def unless_marked(parser: CodeBlockParser) -> Callable[[Document], Iterable[Region]]:
    """The parser without the blocks that are marked as not run."""

    def parse(document: Document) -> Iterable[Region]:
        return (region for region in parser(document) if not NOT_RUN.search(document.text, 0, region.start))

    return parse


# A source distribution leaves models/ out: pages that need a model run where it is.
NEEDED = {
    "docs/tutorials/ner.md": ["lexome-12x384/config.json"],
    "docs/tutorials/search.md": ["relations/model.json", "reader/model.json"],
    "docs/how-to/relations.md": ["relations/model.json"],
    "docs/how-to/ask.md": ["reader/model.json"],
}
MISSING = [page for page, names in NEEDED.items() if not all((ROOT / "models" / name).is_file() for name in names)]

RUN = {"python": run_python, "text": compare_text, "console": run_console, "toml": check_toml}

pytest_collect_file = Sybil(
    parsers=[unless_marked(CodeBlockParser(kind, evaluate)) for kind, evaluate in RUN.items()],
    patterns=["*.md"],
    excludes=MISSING,
    setup=enter_scratch,
    teardown=leave_scratch,
).pytest()
