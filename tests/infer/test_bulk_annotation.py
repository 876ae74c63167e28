"""Bulk annotation: a file for each input, done once, the same bytes whatever is killed on the way."""

import gzip
import json
import os
import random
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from dictionary_models import WORDS, dictionary_model
from errors import raises
from interrupts import hear_interrupts
from patience import NIGHTLY, PATIENCE_S, wait_until

import lexome
from lexome import Document, Passage
from lexome.document import Argument, Attribute, Relation, Span
from lexome.errors import FormatError, LexomeError, UsageError
from lexome.files import usable_cores
from lexome.infer.bulk import BulkResult, BulkSettings, annotate_files, share_cores
from lexome.infer.concepts import ConceptOptions
from lexome.infer.selection import SelectionRequest
from lexome.pipeline import Engine, Part

HERE = Engine(workers=0)
KILLS = 5 if NIGHTLY else 2


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return dictionary_model(tmp_path_factory.mktemp("models") / "dictionary")


def documents(count: int, *, seed: int = 0, words: int = 12) -> Iterator[Document]:
    rng = random.Random(seed)
    known = [*WORDS, "in", "of", "patients", "cells"]
    for number in range(count):
        yield Document(f"{seed}-{number}", (Passage(0, " ".join(rng.choices(known, k=words))),))


@pytest.fixture
def given(tmp_path: Path) -> Path:
    """Four files of documents in three formats, one of them compressed and one in a folder below."""
    folder = tmp_path / "in"
    (folder / "deep").mkdir(parents=True)
    lexome.write(folder / "a.jsonl", documents(3, seed=1))
    lexome.write(folder / "b.bioc.xml.gz", documents(3, seed=2))
    lexome.write(folder / "deep" / "a.bioc.json", documents(3, seed=3))
    (folder / "note.txt").write_text("BRCA1 in melanoma")
    return folder


def run(given: Path, model: Path, *, out: str = "out", format: str = "jsonl", **options: Any) -> BulkResult:
    settings = BulkSettings((model,), format, **options.pop("settings", {}))
    options.setdefault("engine", HERE)
    return annotate_files([given], given.parent / out, settings, progress_shown=False, **options)


def made(folder: Path) -> dict[str, bytes]:
    """Every file below, hidden ones too, but for the locks."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("lock")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def visible(folder: Path) -> set[str]:
    return {name for name in made(folder) if not name.startswith(".lexome/")}


def test_each_file_has_one_of_its_own(given: Path, model: Path) -> None:
    bulk = run(given, model)
    out = given.parent / "out"
    assert visible(out) == {"a.jsonl", "b.jsonl", "deep/a.jsonl", "note.jsonl"}
    assert (bulk.files, bulk.new_files, bulk.counts.documents) == (4, 4, 10)
    annotator = lexome.load(model, threads=1)
    for path in ("a.jsonl", "b.bioc.xml.gz", "deep/a.bioc.json"):
        expected = list(annotator.annotate(lexome.read(given / path)))
        assert list(lexome.read(out / f"{path.partition('.')[0]}.jsonl")) == expected


def test_what_dictionaries_lose_is_counted_once(given: Path, model: Path, tmp_path: Path) -> None:
    (tmp_path / "terms.tsv").write_text("id\tname\ttype\nA:1\tblue dye\tDye\nA:2\t\tDye\n")
    concepts = ConceptOptions(terms=(str(tmp_path / "terms.tsv"),), only_terms=True, find=True)
    for _ in range(2):  # the second time, all files are finished
        bulk = run(given, model, settings={"concepts": concepts})
        assert (bulk.files, sum(count for note, count in bulk.notes.items() if "terms.tsv" in note)) == (4, 1)


def test_what_goes_with_mentions_that_are_replaced_is_counted(tmp_path: Path, model: Path) -> None:
    text = "brca1 in melanoma"
    spans = (Span("T1", "Gene", ((0, 5),), "brca1"), Span("T2", "Organ", ((9, 17),), "melanoma"))
    relation = Relation("R1", "in", (Argument("What", "T1"), Argument("Where", "T2")))
    leaning = Attribute("A1", "T1", "Negation"), Attribute("A2", "T2", "Negation")
    (tmp_path / "in").mkdir()
    lexome.write(tmp_path / "in" / "a.jsonl", [Document("d", (Passage(0, text),), spans, (relation,), leaning)] * 2)
    assert run(tmp_path / "in", model).notes == {
        "relation dropped with a replaced mention": 2,
        "attribute dropped with a replaced mention": 2,
    }
    # Where no type of theirs is asked for, all of it stays.
    assert (
        run(tmp_path / "in", model, out="other", settings={"request": SelectionRequest(types=("Chemical",))}).notes
        == {}
    )


@pytest.mark.parametrize("format", ["bioc-xml", "bioc-json", "pubtator", "conll", "jsonl", "parquet", "html"])
def test_every_format_can_be_written(given: Path, model: Path, format: str) -> None:
    run(given, model, format=format)
    out = given.parent / "out" / f"a.{format.replace('-', '.')}"
    if format != "html":
        found = sum(len(doc.spans) for doc in lexome.read(out, format))
        assert found == sum(len(doc.spans) for doc in lexome.load(model).annotate(lexome.read(given / "a.jsonl")))
    else:
        assert "<mark" in out.read_text()


def test_what_is_done_is_not_done_again(given: Path, model: Path) -> None:
    first = run(given, model)
    before = {path: path.stat().st_mtime_ns for path in (given.parent / "out").rglob("*.jsonl")}
    again = run(given, model)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert (again.new_files, again.counts) == (0, first.counts)
    lexome.write(given / "new.jsonl", documents(2, seed=9))
    more = run(given, model)
    assert (more.files, more.new_files, more.new_counts.documents) == (5, 1, 2)


def flip_bit(path: Path) -> None:
    """One bit, at the same size and time."""
    before, content = path.stat(), bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_verify_redoes_what_changed_at_the_same_size_and_time(given: Path, model: Path) -> None:
    first = run(given, model)
    whole = made(given.parent / "out")
    flip_bit(given.parent / "out" / "note.jsonl")
    assert run(given, model).new_files == 0
    again = run(given, model, verify=True)
    assert (again.new_files, again.counts, made(given.parent / "out")) == (1, first.counts, whole)
    before = (given / "note.txt").stat()
    (given / "note.txt").write_text("TP53x in melanoma")
    os.utime(given / "note.txt", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert run(given, model, verify=True).new_files == 1
    assert b"TP53x" in made(given.parent / "out")["note.jsonl"]
    assert run(given, model, verify=True).new_files == 0


def test_outputs_of_inputs_that_are_gone_are_told(given: Path, model: Path) -> None:
    run(given, model)
    (given / "note.txt").unlink()
    result = run(given, model)
    assert (result.orphans, result.as_dict()["orphans"], result.files) == (("note",), ["note"], 3)
    assert (given.parent / "out" / "note.jsonl").exists()


def damages(content: bytes) -> list[bytes]:
    """A mark or settings, damaged: cut, of another type, of other values, not UTF-8, deep."""
    rng = random.Random(7)
    flipped = []
    for _ in range(40):
        raw = bytearray(content)
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
        flipped.append(bytes(raw))
    other_report = content.replace(b'"report": {', b'"report": {"x": 1, ')
    others = [b"", content[:50], b"[]", b"null", b"3", b"{}", b"\xff", b"[" * 100_000, other_report]
    return [*flipped, *others]


def test_a_damaged_mark_costs_one_file_and_nothing_else(given: Path, model: Path) -> None:
    first = run(given, model)
    whole = made(given.parent / "out")
    mark = given.parent / "out" / ".lexome" / "marks" / "note.json"
    content = mark.read_bytes()
    for damaged in damages(content):
        mark.write_bytes(damaged)
        again = run(given, model)
        assert again.counts == first.counts
        assert made(given.parent / "out") == whole, damaged


def test_damaged_settings_say_so(given: Path, model: Path) -> None:
    run(given, model)
    settings = given.parent / "out" / ".lexome" / "settings.json"
    content, seen = settings.read_bytes(), set()
    for damaged in damages(content):
        settings.write_bytes(damaged)
        try:
            run(given, model)
        except LexomeError as error:
            seen.add(error.code)
    # Settings that are still JSON are those of another run.
    assert seen == {"unreadable-file", "other-settings"}


def test_a_second_process_is_refused_and_a_dead_one_is_not_waited_for(given: Path, model: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")  # nobody writes to it: the first run does not end
    first = program(given, model, tmp_path / "out", tmp_path / "pipe.jsonl")
    wait_until(lambda: marks(tmp_path / "out") or first.poll() is not None)
    for part in (None, Part(1, 2)):
        with raises(UsageError, code="folder-in-use", value=tmp_path / "out" / ".lexome"):
            run(given, model, part=part)
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    assert run(given, model).files == 4


@pytest.mark.parametrize("workers", [1, 2])
def test_processes_make_the_bytes_of_one(given: Path, model: Path, workers: int) -> None:
    run(given, model)
    run(given, model, out="other", engine=Engine(workers=workers))
    assert made(given.parent / "other") == made(given.parent / "out")


def test_parts_together_make_the_whole(given: Path, model: Path) -> None:
    run(given, model)
    first = run(given, model, out="parts", part=Part(1, 2))
    assert (first.files, len(first.waiting)) == (2, 2)
    assert run(given, model, out="parts", part=Part(2, 2)).files == 4
    assert made(given.parent / "parts") == made(given.parent / "out")


def test_bad_documents_of_all_parts_come_together(given: Path, model: Path) -> None:
    for name in ("a", "note"):
        (given / f"{name}.jsonl").write_text(f'{{"id": "1", "text": "BRCA1"}}\nnonsense {name}\n')
    rejects = given.parent / "aside.jsonl"
    first = run(given, model, part=Part(1, 2), rejects=rejects)
    assert (first.waiting != (), rejects.exists()) == (True, False)
    run(given, model, part=Part(2, 2), rejects=rejects)
    assert [json.loads(line)["raw"] for line in rejects.read_text().splitlines()] == ["nonsense a", "nonsense note"]


def test_halves_that_a_killed_run_left_are_cleared_away(given: Path, model: Path) -> None:
    halves = (given.parent / "out/.lexome/.settings.json.host-7.part", given.parent / ".aside.jsonl.host-7.part")
    halves[0].parent.mkdir(parents=True)
    for half in halves:
        half.touch()
    run(given, model, rejects=given.parent / "aside.jsonl")
    assert not any(half.exists() for half in halves)


def test_a_folder_in_the_place_of_an_output_is_named(given: Path, model: Path) -> None:
    (given.parent / "out" / "a.jsonl").mkdir(parents=True)
    with raises(UsageError, code="foreign-output", value=given.parent / "out" / "a.jsonl"):
        run(given, model)
    bulk = run(given, model, redo=True)
    assert bulk.failures == {"a": f"{given.parent / 'out' / 'a.jsonl'}: Is a directory."}
    assert bulk.new_files == 3


def test_other_options_are_refused_and_named(given: Path, model: Path, tmp_path: Path) -> None:
    run(given, model)
    whole = made(given.parent / "out")
    with raises(UsageError, code="other-settings", value="min-score", mentions="0.7"):
        run(given, model, settings={"request": SelectionRequest(min_score=0.7)})
    with raises(UsageError, code="other-settings", value="to", mentions="html"):
        run(given, model, format="html")
    other = dictionary_model(tmp_path / "dictionary", {**WORDS, "cells": ("B-Disease", 6.0)})
    with raises(UsageError, code="other-settings", value="model.0.sha256"):
        run(given, other)
    assert made(given.parent / "out") == whole


def test_a_model_that_was_moved_is_the_same(given: Path, model: Path, tmp_path: Path) -> None:
    run(given, model)
    moved = dictionary_model(tmp_path / "elsewhere" / "dictionary")
    (moved / "README.md").write_text("Another card.")
    assert run(given, moved).new_files == 0


def test_redo_replaces_what_was_made_otherwise(given: Path, model: Path) -> None:
    run(given, model, format="html")
    (given.parent / "out" / "mine.md").write_text("my own")
    run(given, model, redo=True)
    assert visible(given.parent / "out") == {"a.jsonl", "b.jsonl", "deep/a.jsonl", "note.jsonl", "mine.md"}
    assert run(given, model).new_files == 0


def test_a_mark_that_names_another_folder_removes_nothing_there(given: Path, model: Path) -> None:
    run(given, model)
    mark = given.parent / "out" / ".lexome" / "marks" / "a.json"
    mark.write_text(mark.read_text().replace('"a.jsonl"', '"../in/a.jsonl"'))
    run(given, model, redo=True, settings={"request": SelectionRequest(min_score=0.5)})
    assert (given / "a.jsonl").exists()


def test_outputs_below_the_inputs_are_not_read(given: Path, model: Path) -> None:
    run(given, model, out="in/out")
    assert run(given, model, out="in/out").files == 4


def test_bad_documents_of_an_earlier_run_are_not_read(given: Path, model: Path) -> None:
    (given / "mixed.jsonl").write_text('{"id": "1", "text": "BRCA1"}\nnonsense\n')
    rejects = given / "out.rejects.jsonl"
    first = run(given, model, rejects=rejects)
    kept = rejects.read_bytes()
    again = run(given, model, rejects=rejects)
    assert (again.files, again.new_files, again.rejected) == (first.files, 0, first.rejected)
    assert rejects.read_bytes() == kept


def test_outputs_below_the_inputs_do_not_part_files_that_belong_together(tmp_path: Path, model: Path) -> None:
    docs = [Document(name, (Passage(0, "BRCA1 in melanoma"),)) for name in ("a", "b")]
    lexome.write(tmp_path / "in", docs, "brat")
    for _ in range(2):
        bulk = run(tmp_path / "in", model, out="in/out")
        assert (bulk.files, bulk.counts.documents, bulk.failures) == (1, 2, {})


def test_files_of_another_kind_are_told(given: Path, model: Path) -> None:
    (given / "paper.odt").write_bytes(b"PK")
    assert run(given, model).notes == {"file with unsupported extension skipped: .odt": 1}


def test_inputs_of_one_name_are_told_apart(tmp_path: Path, model: Path) -> None:
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        lexome.write(tmp_path / folder / "a.jsonl", documents(1))
        lexome.write(tmp_path / folder / "a.bioc.xml", documents(1))
    paths = [tmp_path / "x" / "a.jsonl", tmp_path / "y" / "a.jsonl", tmp_path / "y" / "a.bioc.xml"]
    annotate_files(paths, tmp_path / "out", BulkSettings((model,), "jsonl"), engine=HERE, progress_shown=False)
    assert visible(tmp_path / "out") == {"a.jsonl", "y-a.jsonl", "y-a-xml.jsonl"}


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such names")
def test_names_that_only_linux_has_are_names(tmp_path: Path, model: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    names = [b"a\\b.txt", b"\\.txt", b"\xff\xfe.txt", b"two\nlines.txt", b"caf\xc3\xa9.txt", b"x" * 250 + b".txt"]
    for name in names:
        Path(os.fsdecode(bytes(folder) + b"/" + name)).write_text("BRCA1 in melanoma")
    bulk = run(folder, model)
    assert (bulk.failures, bulk.counts.documents, dict(bulk.rejected)) == ({}, len(names), {})
    outputs = visible(tmp_path / "out")
    assert {"a\\b.jsonl", "\\.jsonl", "\\xff\\xfe.jsonl", "two\nlines.jsonl", "café.jsonl"} < outputs
    assert len(next(name for name in outputs if name.startswith("xxx"))) == len(".jsonl") + 180
    assert {doc.id for doc in lexome.read(folder)} >= {"a\\b", "\\", "\\xff\\xfe", "two\nlines", "café"}


def test_an_archive_is_one_job(tmp_path: Path, model: Path) -> None:
    lexome.write(tmp_path / "a.jsonl", documents(2))
    with tarfile.open(tmp_path / "all.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "a.jsonl", "a.jsonl")
    settings = BulkSettings((model,), "jsonl")
    bulk = annotate_files([tmp_path / "all.tar.gz"], tmp_path / "out", settings, engine=HERE, progress_shown=False)
    assert (visible(tmp_path / "out"), bulk.counts.documents) == ({"all.jsonl"}, 2)


def test_bad_documents_are_set_aside_and_broken_files_fail_alone(given: Path, model: Path) -> None:
    (given / "mixed.jsonl").write_text('{"id": "1", "text": "BRCA1"}\nnonsense\n')
    (given / "cut.jsonl.gz").write_bytes(gzip.compress(b'{"id": "1", "text": "w1"}\n' * 500)[:-30])
    rejects = given.parent / "aside.jsonl"
    bulk = run(given, model, rejects=rejects)
    assert (list(bulk.failures), bulk.files) == (["cut"], 5)
    assert "cut.jsonl.gz" in bulk.failures["cut"]
    assert [json.loads(line)["raw"] for line in rejects.read_text().splitlines()] == ["nonsense"]
    assert sum(bulk.rejected.values()) == 1
    assert "cut.jsonl" not in visible(given.parent / "out")
    (given / "mixed.jsonl").write_text('{"id": "1", "text": "BRCA1"}\n')
    run(given, model, rejects=rejects)
    assert not rejects.exists()


def test_a_file_that_breaks_inside_an_archive_is_among_what_is_set_aside(tmp_path: Path, model: Path) -> None:
    lexome.write(tmp_path / "a.jsonl", documents(2))
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(b'{"id": "1", "text": "w1"}\n' * 500)[:-30])
    with tarfile.open(tmp_path / "all.tar", "w") as archive:
        for name in ("cut.jsonl.gz", "a.jsonl"):
            archive.add(tmp_path / name, name)
    bulk = annotate_files(
        [tmp_path / "all.tar"],
        tmp_path / "out",
        BulkSettings((model,), "jsonl"),
        engine=HERE,
        rejects=tmp_path / "aside.jsonl",
        progress_shown=False,
    )
    assert bulk.rejected == {"broken_file": 1}
    [reject] = [json.loads(line) for line in (tmp_path / "aside.jsonl").read_text().splitlines()]
    assert (reject["reason"], "all.tar!cut.jsonl.gz: the compressed data" in reject["message"]) == ("broken_file", True)


def test_strict_fails_a_file_with_a_bad_document(given: Path, model: Path) -> None:
    (given / "mixed.jsonl").write_text('{"id": "1", "text": "BRCA1"}\nnonsense\n')
    assert list(run(given, model, settings={"strict": True}).failures) == ["mixed"]


def test_nothing_to_do_is_said(tmp_path: Path, model: Path) -> None:
    (tmp_path / "in").mkdir()
    with raises(FormatError, code="empty-folder", value=tmp_path / "in"):
        run(tmp_path / "in", model)


@pytest.mark.parametrize(
    ("engine", "threads", "files", "expected"),
    [
        (Engine(), None, 100, ("cores", 1)),
        (Engine(), None, 1, (1, "cores")),
        (Engine(workers=1), None, 100, (1, "cores")),
        (Engine(workers=2), 3, 100, (2, 3)),
        (Engine(workers=0), None, 100, (0, "cores")),
        (Engine("ray"), None, 1, (None, 1)),
        (Engine("ray", workers=5), 2, 1, (5, 2)),
    ],
)
def test_processes_times_threads_are_the_cores(
    engine: Engine, threads: int | None, files: int, expected: tuple[object, object]
) -> None:
    shared, each = share_cores(engine, threads, files=files)
    wanted = tuple(usable_cores() if held == "cores" else held for held in expected)
    assert (shared.workers, each) == wanted


# Killed


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixteen files of documents, a bad line in each fourth."""
    folder = tmp_path_factory.mktemp("many") / "in"
    for number in range(16):
        path = folder / f"part{number:02}.jsonl"
        lexome.write(path, documents(15 + 3 * number, seed=number, words=40))
        if number % 4 == 0:
            with path.open("a") as stream:
                stream.write(f"nonsense {number}\n")
    return folder


def program(given: Path, model: Path, out: Path, *more: object) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "lexome", "annotate", given, "--model", model, "--out", out, "--jobs", "2", *more]
    return subprocess.Popen(
        list(map(str, command)),
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hear_interrupts,
    )


def finished(process: "subprocess.Popen[str]") -> bool:
    """Whether the program ended well; its pipes are closed."""
    process.communicate(timeout=PATIENCE_S)
    return process.returncode == 0


def test_killed_at_any_moment_and_run_again_the_bytes_are_the_same(many: Path, model: Path, tmp_path: Path) -> None:
    assert finished(program(many, model, tmp_path / "whole" / "out"))
    whole = made(tmp_path / "whole")
    assert len(visible(tmp_path / "whole" / "out")) == 16
    assert whole["out.rejects.jsonl"].count(b"\n") == 4
    rng = random.Random(20261115)
    cut_short = 0
    for number in range(KILLS):
        folder = tmp_path / f"killed{number}"
        process = program(many, model, folder / "out")
        # When so many of its sixteen files have a mark.
        enough = rng.randrange(number * 15 // KILLS, (number + 1) * 15 // KILLS)
        while process.poll() is None and marks(folder / "out") < enough:
            time.sleep(0.005)
        with suppress(ProcessLookupError):  # it ended by itself
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        left = made(folder)
        cut_short += left != whole
        assert {name: content for name, content in left.items() if name in whole}.items() <= whole.items()
        assert finished(program(many, model, folder / "out"))
        assert made(folder) == whole
    assert cut_short


def marks(out: Path) -> int:
    return len(list(out.glob(".lexome/marks/*.json")))


def test_interrupted_it_says_that_nothing_is_lost(many: Path, model: Path, tmp_path: Path) -> None:
    # A pipe that nobody writes to: the run does not end by itself.
    os.mkfifo(tmp_path / "pipe.jsonl")
    process = program(many, model, tmp_path / "out", tmp_path / "pipe.jsonl")
    wait_until(lambda: marks(tmp_path / "out"))
    os.killpg(process.pid, signal.SIGINT)
    _, told = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert (told.startswith("interrupted: "), str(tmp_path / "out") in told, told.count("\n")) == (True, True, 1)
    assert not list(tmp_path.rglob("*.part"))
    again = program(many, model, tmp_path / "out", "--json")
    counts = json.loads(again.communicate(timeout=PATIENCE_S)[0])
    assert (counts["files"], counts["files_now"] < 16) == (16, True)


# A cluster


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning")
def test_a_node_that_dies_costs_nothing(many: Path, model: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed (the extra 'cluster')")
    from ray.cluster_utils import Cluster

    settings = BulkSettings((model,), "jsonl")
    annotate_files([many], tmp_path / "local", settings, engine=HERE, progress_shown=False)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        node = cluster.add_node(num_cpus=1)
        ended: list[BulkResult] = []
        engine = Engine("ray", address=cluster.address)
        out = tmp_path / "ray"
        work = Thread(
            target=lambda: ended.append(annotate_files([many], out, settings, engine=engine, progress_shown=False))
        )
        work.start()
        wait_until(lambda: marks(out) or not work.is_alive())
        cluster.remove_node(node, allow_graceful=False)
        done = marks(out)
        cluster.add_node(num_cpus=2)
        work.join()
    finally:
        cluster.shutdown()
    assert 0 < done < 16, "the node did not die in the middle"
    assert (ended[0].failures, ended[0].files) == ({}, 16)
    assert made(out) == made(tmp_path / "local")
