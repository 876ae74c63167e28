"""Hallmarks of Cancer: two files a document, labels a sentence, hallmarks a document."""

import lzma
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_files import sources_of

import lexome
from lexome import Document, Metadata, Passage, Span, Tally
from lexome.formats import hoc

TEXT = ("d/text/123.txt", "Zorin acts .\nCells die\u0085 and mutate .\nSo .\n")
LABELS = (
    "d/labels/123.txt",
    "< <Resisting cell death--Apoptosis ANDGenomic instability and mutation-- AND Resisting cell death--< NULL",
)


def read(*files: tuple[str, str | bytes], tally: Tally | None = None) -> list[Document]:
    return list(hoc.read(iter(sources_of(*files)), tally=tally or Tally()))


@pytest.mark.parametrize("files", [(TEXT, LABELS), (LABELS, TEXT)])
def test_labels_are_spans_over_their_sentences_and_hallmarks_of_the_document(
    files: tuple[tuple[str, str], ...],
) -> None:
    tally = Tally()
    second = "Cells die\u0085 and mutate ."
    paths = ("Resisting cell death--Apoptosis", "Genomic instability and mutation", "Resisting cell death")
    assert read(*files, tally=tally) == [
        Document(
            "123",
            (Passage(0, f"Zorin acts .\n{second}\nSo .", "abstract", sentences=((0, 12), (13, 36), (37, 41))),),
            tuple(Span(f"T{number}", path, ((13, 36),), second) for number, path in enumerate(paths, 1)),
            labels=("Resisting cell death", "Genomic instability and mutation"),
            meta=Metadata(pmid="123"),
        )
    ]
    assert tally.notes == {"duplicate or NULL label ignored": 1}


def test_a_text_alone_is_a_document_and_labels_alone_are_rejected(tmp_path: Path) -> None:
    with Tally(tmp_path / "rejects.jsonl") as tally:
        docs = read(("d/text/a.txt", "One .\n"), ("d/labels/b.txt", "< "), ("d/README.txt", ""), tally=tally)
    assert docs == [Document("a", (Passage(0, "One .", "abstract", sentences=((0, 5),)),))]
    assert tally.rejected == {"no_text": 1}
    assert tally.notes == {"file that is neither text nor labels skipped": 1}


@pytest.mark.parametrize(
    ("labels", "reason"), [("< < ", "labels_mismatch"), ("x< < < ", "bad_labels"), (b"\xff", "wrong_encoding")]
)
def test_labels_that_do_not_fit_cost_their_document(tmp_path: Path, labels: str, reason: str) -> None:
    with Tally(tmp_path / "rejects.jsonl") as tally:
        assert read(TEXT, (LABELS[0], labels), tally=tally) == []
    assert tally.rejected == {reason: 1}


def test_two_texts_of_one_name_are_told(tmp_path: Path) -> None:
    with Tally(tmp_path / "rejects.jsonl") as tally:
        assert len(read(TEXT, TEXT, LABELS, tally=tally)) == 1
    assert tally.rejected == {"duplicate_file": 1}


def test_a_folder_is_read_where_the_format_is_named(tmp_path: Path) -> None:
    for name, text in (TEXT, LABELS):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_bytes(text.encode())
    assert list(lexome.read(tmp_path, "hoc")) == read(TEXT, LABELS)


@given(st.binary(max_size=80), st.binary(max_size=80))
def test_no_bytes_break_the_reader(tmp_path_factory: pytest.TempPathFactory, text: bytes, labels: bytes) -> None:
    with Tally(tmp_path_factory.mktemp("hoc") / "rejects.jsonl") as tally:
        read((TEXT[0], text), (LABELS[0], labels), tally=tally)


def test_the_corpus_reads_whole_and_agrees_with_the_benchmark(real_data: Path) -> None:
    tally = Tally()
    docs = {
        doc.id: doc
        for doc in lexome.read(real_data / "benchmarks" / "HoC" / "original-text-labels.tar.xz", "hoc", tally=tally)
    }
    assert (len(docs), tally.files) == (1852, {"hoc": 3704})
    assert sum(len(doc.passages[0].sentences) for doc in docs.values()) == 17464
    assert tally.spans["Resisting cell death--Apoptosis"] == 610
    assert len({doc_label for doc in docs.values() for doc_label in doc.labels}) == 10
    assert Counter(len(doc.labels) for doc in docs.values()) == {1: 920, 2: 478, 0: 272, 3: 145, 4: 30, 5: 7}
    differing = []
    for part in ("train", "dev", "test"):
        rows = lzma.decompress((real_data / "benchmarks" / "HoC" / f"{part}.tsv.xz").read_bytes()).decode().split("\n")
        for pmid, _, labels in (row.split("\t") for row in rows[1:] if row):
            if {label.lower() for label in docs[pmid].labels} != set(labels.split(";")):
                differing.append(pmid)
    # The benchmark gives these two hallmarks that no sentence of theirs has.
    assert differing == ["20525204", "20720310"]
