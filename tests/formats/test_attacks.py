"""Readers under attack: they read, or refuse with a reason; they neither lose documents nor fail otherwise.

Small samples; `make nightly` runs more, and benchmarks/reliability.py thousands under limits of memory.
"""

import gzip
import random
import tarfile
import tracemalloc
from pathlib import Path

import pytest
from attacks import (
    Attack,
    archive_attacks,
    bombs,
    file_attacks,
    header_attacks,
    outcome,
    sound_files,
    tar_archive,
    zip_archive,
)
from memory_files import source_of

import lexome
from lexome import Tally
from lexome.errors import FormatError
from lexome.formats import FORMATS, conll

MIB = 1 << 20
# The process of office documents starts in a fifth of a second: a few are attacked here, all by the benchmark.
SLOW = ("pdf", "docx", "xlsx")


def require_no_fault(attacks: list[Attack], folder: Path) -> None:
    problems = [(attack, *found) for attack in attacks if (found := outcome(attack, folder))[0] in ("lost", "fault")]
    assert not problems, [(attack.name, attack.content[:200], *rest) for attack, *rest in problems[:3]]


def test_sound_archives_are_read_whole(tmp_path: Path) -> None:
    for name, content in (("a.tar", tar_archive()), ("b.zip", zip_archive())):
        (tmp_path / name).write_bytes(content)
        assert len(list(lexome.read(tmp_path / name))) == 12


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.nightly)])
def test_a_damaged_archive_loses_nothing_without_a_word(tmp_path: Path, seed: int) -> None:
    count = 80 if seed == 1 else 10_000
    rng = random.Random(seed)
    require_no_fault(archive_attacks(rng, count) + header_attacks(rng, count), tmp_path)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.nightly)])
def test_a_damaged_file_is_read_or_refused(tmp_path: Path, seed: int) -> None:
    attacks = file_attacks(random.Random(seed), 120 if seed == 1 else 10_000)
    require_no_fault([attack for format, attack in attacks if seed == 2 or format not in SLOW], tmp_path)


def test_every_format_of_one_file_is_attacked() -> None:
    elsewhere = {"squad", "ddi", "pubmedqa", "europepmc", "pubmed-csv"} | set(SLOW)
    single = {format.name for format in FORMATS if format.reads and not format.grouped}
    assert single - set(sound_files()) <= elsewhere


@pytest.mark.parametrize("name", sorted(bombs(3)))
def test_a_small_file_does_not_take_much_memory(tmp_path: Path, name: str) -> None:
    attack = bombs(MIB // 8)[name]
    tracemalloc.start()
    try:
        found, reason = outcome(attack, tmp_path, rejects=False)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found in ("read", "refused"), reason
    assert peak < 100 * MIB


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("sparse tar", "truncated"),
        ("pax size", "truncated"),
        ("pax header", "truncated"),
        ("zip name", "bad-archive"),
        ("nothing readable", "empty-archive"),
        ("punycode", "unknown-encoding"),
        ("bzip2", "not-text"),
    ],
)
def test_the_reason_is_said(tmp_path: Path, name: str, code: str) -> None:
    attack = bombs(2 * MIB)[name]
    (tmp_path / attack.name).write_bytes(attack.content)
    with pytest.raises(FormatError) as caught:
        list(lexome.read(tmp_path / attack.name))
    assert caught.value.code == code


def test_a_declared_utf16_that_the_bytes_refute_is_read(tmp_path: Path) -> None:
    attack = bombs(3)["utf-16 that is not"]
    (tmp_path / "a.xml").write_bytes(attack.content)
    assert len(list(lexome.read(tmp_path / "a.xml"))) == len(list(lexome.read("samples/pubmed.xml")))


def test_an_archive_with_content_after_its_end_mark_is_broken(tmp_path: Path) -> None:
    raw = bytearray(tar_archive(tarfile.USTAR_FORMAT))
    raw[1024 * 5 : 1024 * 5 + 512] = bytes(512)  # the header of the sixth member
    (tmp_path / "a.tar").write_bytes(raw)
    tally = Tally(tmp_path / "rejects.jsonl")
    assert len(list(lexome.read(tmp_path / "a.tar", tally=tally))) == 5
    assert len(tally.failures) == 1


def test_an_archive_without_its_end_mark_is_broken(tmp_path: Path) -> None:
    raw = tar_archive(tarfile.USTAR_FORMAT)
    (tmp_path / "a.tar").write_bytes(raw[: len(raw.rstrip(b"\0")) // 512 * 512 + 512])
    tally = Tally(tmp_path / "rejects.jsonl")
    assert len(list(lexome.read(tmp_path / "a.tar", tally=tally))) == 12
    assert len(tally.failures) == 1


@pytest.mark.parametrize("hidden", ["<!-- %s -->", "<!-- a --><!-- %s -->", "<?note %s ?>"])
def test_a_citation_in_a_comment_is_none(tmp_path: Path, hidden: str) -> None:
    raw = Path("samples/pubmed.xml").read_text(encoding="utf-8")
    begin, end = raw.index("<PubmedArticle>"), raw.index("</PubmedArticle>") + len("</PubmedArticle>")
    article = raw[begin:end]
    (tmp_path / "a.xml").write_text(raw[:begin] + hidden % article.replace("--", "") + raw[begin:], encoding="utf-8")
    ids = [doc.id for doc in lexome.read(tmp_path / "a.xml")]
    assert ids == [doc.id for doc in lexome.read("samples/pubmed.xml")]


def test_one_long_value_in_many_rows_is_read_a_few_at_a_time(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    value, rows = "x" * (4 * MIB), 2000
    column = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([value]))
    pq.write_table(pa.table({"text": column.cast(pa.large_string()) if rows < 3 else column}), tmp_path / "a.parquet")
    docs = lexome.read(tmp_path / "a.parquet")
    before = pa.total_allocated_bytes()
    assert len(next(docs).text) == len(value)
    assert pa.total_allocated_bytes() - before < 1 << 30


def test_a_document_of_lines_is_bounded_while_it_is_read() -> None:
    with pytest.raises(FormatError) as caught:
        list(conll.read(source_of("a.conll", b"a\tO\n" * 20_000, record_bytes=MIB), tally=Tally()))
    assert caught.value.code == "too-large"


def test_text_of_many_gigabytes_is_refused_before_it_is_held(tmp_path: Path) -> None:
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"a" * (65 * MIB), 1))
    with pytest.raises(FormatError) as caught:
        list(lexome.read(tmp_path / "a.txt.gz"))
    assert caught.value.code == "too-large"
