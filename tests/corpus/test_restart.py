"""A corpus that is built and sharded by the command line, killed on the way and run again, or run on Ray."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from patience import NIGHTLY
from tokenizers import Tokenizer, models, pre_tokenizers

import lexome
from lexome.document import Document, lay_out

FILES, DOCUMENTS, KILLS = 10, 60, 10 if NIGHTLY else 4
SYLLABLES = ["ka", "lo", "mi", "ru", "te", "so", "na", "vi"]


@pytest.fixture(scope="module")
def literature(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of made-up articles, some of them twice, some nearly so, and a tokenizer of bytes."""
    folder = tmp_path_factory.mktemp("literature")
    rng = random.Random(1)
    texts = [
        " ".join(f"The {''.join(rng.choices(SYLLABLES, k=3))} of it was seen." for _ in range(40))
        for _ in range(FILES * DOCUMENTS // 2)
    ]
    for file in range(FILES):
        docs = [
            Document(f"{file}-{number}", lay_out([("abstract", rng.choice(texts) + rng.choice(["", " Thanks."]))]))
            for number in range(DOCUMENTS)
        ]
        lexome.write(folder / "in" / f"{file}.jsonl.gz", docs)
    alphabet = {letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(alphabet, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def recipes(literature: Path, folder: Path) -> tuple[Path, Path]:
    """The recipes of a build and its shards under a folder."""
    folder.mkdir()
    build, shard = folder / "build.toml", folder / "shard.toml"
    build.write_text(
        f'stage = "build"\nout = "{folder}/corpus"\n[[sources]]\nname = "made"\npaths = ["{literature}/in"]\n'
        f"max_words = 20000\n"
    )
    shard.write_text(
        f'stage = "shard"\ninputs = ["{folder}/corpus/records"]\ntokenizer = "{literature}"\nout = "{folder}/shards"\n'
        "held_out = 0.1\n"
    )
    return build, shard


def command(literature: Path, folder: Path, *options: str) -> "subprocess.Popen[bytes]":
    """Both verbs one after the other, in a process group of their own."""
    build, shard = folder / "build.toml", folder / "shard.toml"
    python = f"{sys.executable} -m lexome"
    words = " ".join(options)
    line = f"{python} build {build} --quiet {words} && {python} shard {shard} --quiet {words}"
    return subprocess.Popen(["bash", "-c", line], start_new_session=True)


def files_in(folder: Path) -> int:
    return sum(len(names) for _, _, names in os.walk(folder))


def made(folder: Path) -> dict[str, bytes]:
    """Records, table and shards; what they say of their own place is the same for all."""
    files = [
        path
        for part in ("corpus", "shards")
        for path in sorted((folder / part).rglob("*"))
        if path.is_file() and ".lexome" not in path.parts
    ]
    return {
        str(path.relative_to(folder)): path.read_bytes().replace(str(folder).encode(), b"HERE")
        for path in files
        if path.name != "corpus.json"  # holds the identity of the recipe, and so its place
    }


@pytest.fixture(scope="module")
def undisturbed(literature: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("runs") / "undisturbed"
    recipes(literature, folder)
    assert command(literature, folder).wait() == 0
    return made(folder)


def test_killed_at_moments_of_the_run_and_run_again_the_corpus_is_the_same(
    literature: Path, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    rng = random.Random(20261115)
    folder = tmp_path / "killed"
    recipes(literature, folder)
    cut_short = 0
    for _ in range(KILLS):
        process = command(literature, folder)
        # When it has made some more files: drafts, outputs and marks, of the first verb or of the second.
        enough = files_in(folder) + rng.randint(1, 2 * FILES)
        while process.poll() is None and files_in(folder) < enough:
            time.sleep(0.005)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        cut_short += made(folder) != undisturbed
    assert cut_short
    assert command(literature, folder).wait() == 0
    assert made(folder) == undisturbed


@pytest.mark.nightly
def test_ray_makes_the_same_corpus(literature: Path, undisturbed: dict[str, bytes], tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="the cluster extra is not installed")
    folder = tmp_path / "ray"
    recipes(literature, folder)
    assert command(literature, folder, "--engine", "ray").wait() == 0
    assert made(folder) == undisturbed
