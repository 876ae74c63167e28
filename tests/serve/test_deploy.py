"""The files in deploy/: their options exist, what they copy exists, and the image runs where there is an engine."""

import re
import shlex
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from patience import PATIENCE_S
from typer.main import get_command

from lexome.cli import app

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"


def options_of_serve() -> set[str]:
    command = get_command(app).commands["serve"]  # type: ignore[attr-defined]
    return {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}


def options_in(words: list[str]) -> set[str]:
    assert words[0] == "serve"
    return {word for word in words if word.startswith("--")}


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile, with their lines joined."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    lines = (line.partition(" ") for line in text.splitlines() if line.strip())
    return [(word, rest.strip()) for word, _, rest in lines]


def test_the_image_copies_what_is_there_and_leaves_the_rest() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for word, rest in instructions():
        if word == "COPY" and not rest.startswith("--from"):
            *sources, _ = rest.split()
            assert all((ROOT / source).exists() for source in sources)
            assert all(f"!{source}" in ignored for source in sources)
    # What the build of the wheel reads.
    project = (ROOT / "pyproject.toml").read_text()
    assert '"studies" = "lexome/studies"' in project
    assert 'readme = "README.md"' in project


def test_the_image_has_no_rights_and_says_how_it_is() -> None:
    found = instructions()
    last = found[[number for number, (word, _) in enumerate(found) if word == "FROM"][-1] :]
    assert [rest for word, rest in last if word == "USER"] == ["10001"]
    [health] = [rest for word, rest in last if word == "HEALTHCHECK"]
    assert "/readyz" in health
    [command] = [yaml.safe_load(rest) for word, rest in last if word == "CMD"]
    assert options_in(command) <= options_of_serve()
    assert all(re.search(r":\d+\.\d+-slim", rest) for word, rest in found if word == "FROM")


def test_compose_and_unit_have_options_that_exist() -> None:
    service = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["lexome"]
    assert options_in(service["command"]) <= options_of_serve()
    assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    unit = (DEPLOY / "lexome.service").read_text()
    [line] = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    assert options_in(shlex.split(line)[1:]) <= options_of_serve()


def test_the_proxy_passes_what_the_service_takes() -> None:
    text = (DEPLOY / "nginx.conf").read_text()
    assert text.count("{") == text.count("}")
    assert "X-Request-ID $request_id" in text
    named = set(re.findall(r"--[a-z-]+", text))
    assert named <= options_of_serve()


@pytest.fixture
def engine() -> str:
    """docker or podman, if one has an engine that runs."""
    for name in ("docker", "podman"):
        if shutil.which(name) and subprocess.run([name, "info"], capture_output=True).returncode == 0:
            return name
    pytest.skip("neither docker nor podman has an engine here")


@pytest.fixture
def container(engine: str) -> Iterator[tuple[str, str]]:
    """The image, built and started with a token; the engine and the container's id."""
    subprocess.run([engine, "build", "--file", "deploy/Dockerfile", "--tag", "lexome-test", "."], cwd=ROOT, check=True)
    command = [engine, "run", "--detach", "--publish", "127.0.0.1::8000", "--env", "LEXOME_TOKEN=sesame", "lexome-test"]
    number = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    yield engine, number
    subprocess.run([engine, "rm", "--force", number], check=True, capture_output=True)


@pytest.mark.nightly
def test_the_image_serves(container: tuple[str, str]) -> None:
    engine, number = container
    port = subprocess.run([engine, "port", number, "8000"], check=True, capture_output=True, text=True).stdout.split()[
        0
    ]
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            answer = urllib.request.urlopen(f"http://{port}/readyz", timeout=10).read()
            break
        except OSError:
            assert time.monotonic() < end
            time.sleep(0.2)
    assert b"ready" in answer
    who = subprocess.run([engine, "exec", number, "id", "-u"], check=True, capture_output=True, text=True).stdout
    assert who.strip() == "10001"
    refused = subprocess.run([engine, "run", "--rm", "lexome-test"], capture_output=True, text=True)
    assert refused.returncode == 2
    assert "--insecure" in refused.stderr
