"""Search by vectors: synonyms are found, indexes are updated, and another encoder is refused."""

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from errors import raises
from table_encoders import table_encoder

from lexome.document import Document, lay_out
from lexome.errors import MissingExtraError, SearchIndexError, UsageError
from lexome.formats import write
from lexome.metadata import Metadata
from lexome.search.build import index
from lexome.search.engine import Index
from lexome.search.storage import vector_path

GROUPS = {"heart": "h", "cardiac": "h", "kidney": "k", "renal": "k", "failure": "f", "aspirin": "a", "lung": "l"}
TEXTS = {"a": "cardiac failure", "b": "renal failure", "c": "aspirin", "d": "lung"}


def put(folder: Path, **texts: str) -> None:
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        write(folder / f"{name}.jsonl", [Document(name, lay_out([("abstract", text)]))])


@pytest.fixture
def made(tmp_path: Path) -> Path:
    put(tmp_path / "docs", **TEXTS)
    encoder = table_encoder(tmp_path / "encoder", GROUPS)
    index([tmp_path / "docs"], tmp_path / "index", embed=encoder, progress_shown=False)
    return tmp_path / "index"


def found(folder: Path, query: str, **options: Any) -> list[str]:
    with Index.open(folder) as opened:
        return [hit.document for hit in opened.search(query, **options).hits]


def test_synonyms_are_found_by_vectors_and_not_by_words(made: Path) -> None:
    assert found(made, "heart", method="bm25") == []
    assert found(made, "heart", method="vectors")[0] == "a"
    assert found(made, "heart failure")[0] == "a"
    with Index.open(made) as opened:
        assert opened.search("heart failure").ranking == "both"
        best = opened.search("cardiac failure", method="vectors").hits[0]
    assert best.score == pytest.approx(1, abs=0.01)


def test_filters_hold_for_vectors(tmp_path: Path) -> None:
    text = lay_out([("abstract", "heart")])
    docs = [Document(f"y{n}", text, meta=Metadata(published=f"200{n}")) for n in (1, 2)]
    write(tmp_path / "docs.jsonl", docs)
    encoder = table_encoder(tmp_path / "encoder", GROUPS)
    index([tmp_path / "docs.jsonl"], tmp_path / "index", embed=encoder, progress_shown=False)
    assert found(tmp_path / "index", "cardiac", method="vectors", years=(2002, 2002)) == ["y2"]
    assert found(tmp_path / "index", "cardiac", method="vectors", years=(1900, 1901)) == []


def test_an_update_adds_and_removes_vectors(made: Path, tmp_path: Path) -> None:
    (tmp_path / "docs" / "a.jsonl").unlink()
    put(tmp_path / "docs", e="heart lung")
    result = index([tmp_path / "docs"], made, embed=tmp_path / "encoder", progress_shown=False)
    assert result.vectors == 4
    assert found(made, "cardiac", method="vectors")[0] == "e"
    assert "a" not in found(made, "cardiac failure", method="vectors")
    assert len(list(made.glob("vectors-*"))) == 1


def test_another_encoder_is_refused_by_search_and_by_index(made: Path, tmp_path: Path) -> None:
    other = table_encoder(tmp_path / "other", GROUPS, seed=1)
    with raises(SearchIndexError, code="other-model", value=other):
        Index.open(made, encoder=other)
    with raises(UsageError, code="other-settings"):
        index([tmp_path / "docs"], made, embed=other, progress_shown=False)
    with raises(UsageError, code="other-settings"):
        index([tmp_path / "docs"], made, progress_shown=False)


def test_an_encoder_that_has_moved_is_named(made: Path, tmp_path: Path) -> None:
    shutil.move(tmp_path / "encoder", tmp_path / "moved")
    with Index.open(made) as opened, raises(SearchIndexError, code="missing-encoder"):
        opened.search("heart")
    with Index.open(made, encoder=tmp_path / "moved") as opened:
        assert opened.search("heart").hits[0].document == "a"


def test_a_damaged_or_missing_vector_file_is_reported(made: Path) -> None:
    path = vector_path(made, 1)
    path.write_bytes(path.read_bytes()[:40])
    with raises(SearchIndexError, code="damaged-index"):
        found(made, "heart")
    path.unlink()
    with raises(SearchIndexError, code="damaged-index"):
        found(made, "heart")
    assert found(made, "aspirin", method="bm25") == ["c"]


def test_an_update_makes_a_damaged_vector_file_anew(made: Path, tmp_path: Path) -> None:
    path = vector_path(made, 1)
    path.write_bytes(path.read_bytes()[:40])
    put(tmp_path / "docs", e="renal")
    index([tmp_path / "docs"], made, embed=tmp_path / "encoder", progress_shown=False)
    assert set(found(made, "kidney", method="vectors")[:2]) == {"b", "e"}


def test_without_the_extra_words_are_found_and_vectors_name_it(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "usearch.index", None)
    assert found(made, "aspirin", method="bm25") == ["c"]
    with raises(MissingExtraError, code="missing-extra", value="usearch"):
        found(made, "aspirin")
