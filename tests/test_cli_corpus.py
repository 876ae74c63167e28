"""The commands from literature to shards, as a user types them."""

import gzip
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[1]


def run(*words: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "lexome", *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=PATIENCE_S)


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """A folder with the shipped samples and recipes."""
    for name in ("samples", "recipes"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


def test_the_sample_goes_from_literature_to_shards(desk: Path) -> None:
    built = run("build", "recipes/tiny/build.toml", cwd=desk)
    assert (built.returncode, "| pubmed | 15 | 12 |" in built.stdout) == (0, True), built.stderr
    learned = run("learn-vocab", "recipes/tiny/vocab.toml", cwd=desk)
    assert (learned.returncode, "wrote     tiny/vocab" in learned.stdout) == (0, True), learned.stderr
    sharded = run("shard", "recipes/tiny/shard.toml", cwd=desk)
    assert (sharded.returncode, "wrote     tiny/shards" in sharded.stdout) == (0, True), sharded.stderr
    again = run("learn-vocab", "recipes/tiny/vocab.toml", cwd=desk)
    assert "kept      tiny/vocab" in again.stdout
    report = run("vocab-report", "ours=tiny/vocab", "--ner", "sample=samples/mentions.pubtator", cwd=desk)
    assert (report.returncode, "sample" in report.stdout.split("\n")[0]) == (0, True), report.stderr


def test_json_is_for_programs(desk: Path) -> None:
    built = json.loads(run("build", "recipes/tiny/build.toml", "--json", cwd=desk).stdout)
    assert built["sources"][0]["documents"] == 12
    learned = json.loads(run("learn-vocab", "recipes/tiny/vocab.toml", "--json", cwd=desk).stdout)
    assert learned["folder"] == "tiny/vocab"
    manifest = json.loads(run("shard", "recipes/tiny/shard.toml", "--json", cwd=desk).stdout)
    assert manifest["tokenizer"]["sha256"] == learned["sha256"]


def test_quiet_says_nothing(desk: Path) -> None:
    built = run("build", "recipes/tiny/build.toml", "--quiet", cwd=desk)
    assert (built.returncode, built.stdout, built.stderr) == (0, "", "")


def test_a_broken_file_is_named_and_ends_with_code_1(desk: Path) -> None:
    (desk / "in").mkdir()
    whole = gzip.compress((ROOT / "samples" / "pubmed.xml").read_bytes())
    (desk / "in" / "whole.xml.gz").write_bytes(whole)
    (desk / "in" / "cut.xml.gz").write_bytes(whole[:-30])
    done = run("build", "recipes/tiny/build.toml", "--set", 'sources.0.paths=["in"]', cwd=desk)
    assert done.returncode == 1
    assert "pubmed/cut: in/cut.xml.gz" in done.stderr
    assert (desk / "tiny/corpus/records/pubmed/whole.parquet").exists()


def test_a_broken_file_inside_an_archive_ends_with_code_1_and_the_corpus_is_built(desk: Path) -> None:
    whole = (ROOT / "samples" / "pubmed.xml").read_bytes()
    with zipfile.ZipFile(desk / "all.zip", "w") as archive:
        archive.writestr("whole.xml", whole)
        archive.writestr("cut.xml.gz", gzip.compress(whole)[:-30])
    done = run("build", "recipes/tiny/build.toml", "--set", 'sources.0.paths=["all.zip"]', "--quiet", cwd=desk)
    assert done.returncode == 1
    rejected, error = done.stderr.splitlines()
    assert rejected == "rejected   1 broken_file, see tiny/corpus/rejects.jsonl"
    assert ("error: 1 " in error, "tiny/corpus/rejects.jsonl" in error) == (True, True)
    assert (desk / "tiny/corpus/corpus.json").exists()


def test_waiting_parts_are_reported(desk: Path) -> None:
    done = run("build", "recipes/tiny/build.toml", "--part", "2/2", cwd=desk)
    assert (done.returncode, "waiting    1 files of other parts" in done.stdout) == (0, True)


@pytest.mark.parametrize(
    ("words", "code", "value"),
    [
        (("build", "recipes/tiny/shard.toml"), 2, "shard"),
        (("build", "missing.toml"), 2, "missing.toml"),
        (("build", "recipes/tiny/build.toml", "--set", "min_word=3"), 2, "min_words"),
        (("build", "recipes/tiny/build.toml", "--engine", "dask"), 2, "dask"),
        (("build", "recipes/tiny/build.toml", "--part", "3/2"), 2, "3/2"),
        (("build", "recipes/tiny/build.toml", "--part", "third"), 2, "third"),
        (("check", "samples/bioasq.json"), 2, "samples/bioasq.json"),
        (("vocab-report", "x=missing"), 1, "missing"),
    ],
)
def test_wrong_usage_names_the_value(desk: Path, words: tuple[str, ...], code: int, value: str) -> None:
    done = run(*words, cwd=desk)
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith("error: ")
    assert value in done.stderr


@pytest.mark.parametrize("name", ["tiny/build", "tiny/vocab", "tiny/shard", "corpus/shared"])
def test_check_prints_a_recipe_that_checks(desk: Path, name: str) -> None:
    filled = run("check", f"recipes/{name}.toml", "--set", "seed=7", cwd=desk)
    assert filled.returncode == 0
    (desk / "filled.toml").write_text(filled.stdout)
    assert run("check", "filled.toml", cwd=desk).stdout == filled.stdout
    assert "seed = 7" in filled.stdout


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (("build", "recipes/tiny/build.toml"), "corpus"),
        (("learn-vocab", "recipes/tiny/vocab.toml"), "corpus"),
        (("vocab-report", "x=samples"), "corpus"),
        (("shard", "recipes/tiny/shard.toml"), "corpus"),
        (("pretrain", "recipes/tiny/pretrain.toml"), "train"),
    ],
)
def test_a_missing_package_names_the_extra_to_install(desk: Path, words: tuple[str, ...], extra: str) -> None:
    (desk / "numpy.py").write_text("raise ModuleNotFoundError(\"No module named 'numpy'\", name='numpy')\n")
    (desk / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n")
    done = run(*words, cwd=desk)  # python -m looks for modules here first
    assert (done.returncode, f"pip install 'lexome[{extra}]'" in done.stderr) == (1, True), done.stderr
