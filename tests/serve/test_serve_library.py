"""Documents given at the start: found by both their ids, whole, from many threads."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from errors import raises

import lexome
from lexome.document import Document, Passage
from lexome.errors import FormatError
from lexome.formats import Tally
from lexome.metadata import Metadata
from lexome.serve.service import Library


def document(number: int) -> Document:
    return Document(f"d{number}", (Passage(0, f"é{number} " * (number + 1)),), meta=Metadata(pmid=str(number)))


def test_documents_are_found_whole_from_many_threads() -> None:
    docs = [document(number) for number in range(200)]
    library = Library.of(iter(docs))
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda doc: library[doc.id], docs * 5)) == docs * 5
        assert list(pool.map(lambda doc: library[doc.meta.pmid or ""], docs)) == docs
    assert (library.documents, "d3" in library, "d200" in library) == (200, True, False)
    library.close()


def test_of_two_with_one_id_the_first_is_kept() -> None:
    one, other = Document("1", (Passage(0, "a"),)), Document("1", (Passage(0, "b"),))
    library = Library.of([one, other])
    assert library["1"] == one
    library.close()


@pytest.mark.parametrize("name", ["docs.jsonl", "docs.parquet"])
def test_a_file_or_a_folder_is_read(tmp_path: Path, name: str) -> None:
    lexome.write(tmp_path / name, [document(1), document(2)])
    for path in (tmp_path / name, tmp_path):
        library = Library.open(path, Tally())
        assert library["2"] == document(2)
        library.close()


def test_nothing_to_answer_from_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("\n")
    with raises(FormatError, code="no-documents", value=tmp_path / "a.jsonl"):
        Library.open(tmp_path / "a.jsonl", Tally())
