"""Every code block in README and docs is run, in order, in a scratch folder that holds samples/ and recipes/.

A python block followed by a text block must print that text. In a console block each line after "$" is a
command that must succeed, and the lines below it, if there are any, are what it must print.
"""

import io
import os
import subprocess
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from sybil import Example, Sybil
from sybil.parsers.markdown import CodeBlockParser

ROOT = Path(__file__).parent

# What needs the network or installs things is shown to readers but not run here; CI does both itself.
NOT_RUN = ("pip install", "git clone", "cd ", "make ")


def enter_scratch(namespace: dict[str, Any]) -> None:
    namespace["_scratch"] = scratch = tempfile.TemporaryDirectory()
    namespace["_before"] = Path.cwd()
    for name in ("samples", "recipes"):
        (Path(scratch.name) / name).symlink_to(ROOT / name)
    os.chdir(scratch.name)


def leave_scratch(namespace: dict[str, Any]) -> None:
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
        if command.startswith(NOT_RUN):
            continue
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        result = subprocess.run(
            ["bash", "-c", command], capture_output=True, text=True, env={**os.environ, "PATH": path}, timeout=120
        )
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


pytest_collect_file = Sybil(
    parsers=[
        CodeBlockParser("python", run_python),
        CodeBlockParser("text", compare_text),
        CodeBlockParser("console", run_console),
    ],
    patterns=["*.md"],
    setup=enter_scratch,
    teardown=leave_scratch,
).pytest()
