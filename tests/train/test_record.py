"""What a run says of the code that made it."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import lexome
from lexome.train.record import revision


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package in a repository of its own, in the place of Lexome."""
    file = tmp_path / "__init__.py"
    file.write_text("")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    commit(tmp_path)
    monkeypatch.setattr(lexome, "__file__", str(file))
    revision.cache_clear()
    yield file
    revision.cache_clear()


def git(folder: Path, *words: str) -> str:
    names = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    done = subprocess.run(["git", *names, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def commit(folder: Path) -> str:
    git(folder, "commit", "--quiet", "--allow-empty", "--message", "more")
    return git(folder, "rev-parse", "--short=12", "HEAD")


def test_a_run_names_the_code_that_it_began_with(package: Path) -> None:
    before = git(package.parent, "rev-parse", "--short=12", "HEAD")
    assert revision() == before
    assert commit(package.parent) != before
    assert revision() == before


def test_changes_that_are_not_committed_are_told(package: Path) -> None:
    package.write_text("changed = True\n")
    assert revision() == git(package.parent, "rev-parse", "--short=12", "HEAD") + "+changes"


def test_an_installed_package_has_no_revision(package: Path) -> None:
    git(package.parent, "rm", "--quiet", "--cached", "__init__.py")
    assert revision() is None
