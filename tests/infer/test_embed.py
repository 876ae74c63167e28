"""Vectors are torch's mean of hidden states; long texts are never cut short; files appear whole or not at all."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
import torch
from errors import raises

import lexome
from lexome.document import Document, Passage, lay_out
from lexome.errors import BadDocument, FormatError, MissingExtraError, UsageError
from lexome.infer import embed as stage
from lexome.infer.embed import embed
from lexome.infer.predictor import Predictor
from lexome.models.checkpoint import load
from lexome.models.encoder import Packing
from lexome.models.heads import mean_pool

TEXTS = ["w1 w2 w3", "w4", "w5 w6 w7 w8 w9 w10 w11", "w12 w13"]


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    path = tmp_path / "docs.jsonl"
    lexome.write(path, [Document(f"d{n}", lay_out([("abstract", text)])) for n, text in enumerate(TEXTS)])
    return path


def run(predictor: Predictor, source: Path, out: Path, **options: Any) -> tuple[np.ndarray[Any, Any], list[str]]:
    embed(predictor, [source], out, progress_shown=False, **options)
    ids = [json.loads(line) for line in out.with_name(f"{out.stem}.ids.jsonl").read_text().splitlines()]
    return np.load(out), ids


def torch_means(checkpoint: Path, rows: list[list[int]]) -> np.ndarray[Any, Any]:
    model = load(checkpoint, kind="encoder").model
    packing = Packing.of(np.cumsum([len(row) for row in rows]).tolist())
    with torch.no_grad():
        return mean_pool(model(torch.tensor([id_ for row in rows for id_ in row]), packing), packing).numpy()


@pytest.mark.parametrize("batch", [1, 4])
def test_vectors_are_torchs_means(
    predictor: Predictor, checkpoint: Path, docs: Path, tmp_path: Path, batch: int
) -> None:
    vectors, ids = run(predictor, docs, tmp_path / "v.npy", batch=batch)
    expected = torch_means(checkpoint, [predictor.row(text) for text in TEXTS])
    assert ids == ["d0", "d1", "d2", "d3"]
    assert vectors.dtype == np.float32
    assert np.abs(vectors - expected).max() < 1e-4


def test_a_long_document_is_the_mean_of_its_windows_by_tokens(
    predictor: Predictor, checkpoint: Path, tmp_path: Path
) -> None:
    ids = [5 + number % 50 for number in range(77)]  # 38 fit between [CLS] and [SEP]: windows of 26, 26 and 25
    path = tmp_path / "long.jsonl"
    lexome.write(path, [Document("long", (Passage(0, " ".join(f"w{id_ - 5}" for id_ in ids)),))])
    vectors, _ = run(predictor, path, tmp_path / "v.npy")
    parts = [ids[:26], ids[26:52], ids[52:]]
    means = torch_means(checkpoint, [[2, *part, 3] for part in parts])
    assert np.abs(vectors[0] - np.average(means, axis=0, weights=[26, 26, 25])).max() < 1e-4


def test_little_is_gathered_at_a_time_and_the_result_is_the_same(
    predictor: Predictor, docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, _ = run(predictor, docs, tmp_path / "whole.npy")
    monkeypatch.setattr(stage, "BUFFER_TOKENS", 2)
    parts, ids = run(predictor, docs, tmp_path / "parts.npy")
    assert ids == ["d0", "d1", "d2", "d3"]
    assert np.allclose(whole, parts, atol=1e-6)


def test_passages_and_sentences_have_their_own_vectors(predictor: Predictor, tmp_path: Path) -> None:
    path = tmp_path / "two.jsonl"
    lexome.write(path, [Document("a", lay_out([("title", "W1 w2."), ("abstract", "W3 w4. W5 w6.")]))])
    by_passage, passages = run(predictor, path, tmp_path / "p.npy", unit="passage")
    by_sentence, sentences = run(predictor, path, tmp_path / "s.npy", unit="sentence")
    assert (passages, sentences) == (["a/1", "a/2"], ["a/1/1", "a/2/1", "a/2/2"])
    assert np.allclose(by_passage[0], by_sentence[0], atol=1e-6)


def test_lines_of_a_text_file(predictor: Predictor, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("w1 w2\n\nw3\n")
    _, ids = run(predictor, tmp_path / "lines.txt", tmp_path / "v.npy", lines=True)
    assert ids == ["lines-1", "lines-3"]


def test_cls_and_length_one(predictor: Predictor, docs: Path, tmp_path: Path) -> None:
    vectors, _ = run(predictor, docs, tmp_path / "v.npy", pooling="cls", normalize=True)
    first = predictor.hidden([predictor.row(TEXTS[0])])[0][0]
    assert np.allclose(vectors[0], first / np.linalg.norm(first), atol=1e-5)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1)


def test_parquet_has_ids_and_vectors(predictor: Predictor, docs: Path, tmp_path: Path) -> None:
    vectors, ids = run(predictor, docs, tmp_path / "v.npy")
    embed(predictor, [docs], tmp_path / "v.parquet", progress_shown=False)
    table = pyarrow.parquet.read_table(tmp_path / "v.parquet")
    assert table["id"].to_pylist() == ids
    assert np.array_equal(np.array(table["vector"].to_pylist(), dtype=np.float32), vectors)


def test_parquet_without_pyarrow_says_what_to_install(
    predictor: Predictor, docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with raises(MissingExtraError, code="missing-extra", value="pyarrow", mentions="lexome[corpus]"):
        embed(predictor, [docs], tmp_path / "v.parquet", progress_shown=False)


def test_what_has_no_tokens_is_counted(predictor: Predictor, tmp_path: Path) -> None:
    lexome.write(tmp_path / "d.jsonl", [Document("a", (Passage(0, "\u200b"),)), Document("b", (Passage(0, "w1"),))])
    done = embed(predictor, [tmp_path / "d.jsonl"], tmp_path / "v.npy", progress_shown=False)
    assert (done.vectors, done.without_tokens) == (1, 1)
    assert np.load(tmp_path / "v.npy").shape == (1, 32)


def test_nothing_appears_where_a_document_is_bad(predictor: Predictor, docs: Path, tmp_path: Path) -> None:
    docs.write_bytes(docs.read_bytes() + b"{broken\n")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(BadDocument):
        embed(predictor, [docs], tmp_path / "v.npy", progress_shown=False)
    assert sorted(tmp_path.iterdir()) == before


def test_bad_documents_are_set_aside(predictor: Predictor, docs: Path, tmp_path: Path) -> None:
    docs.write_bytes(docs.read_bytes() + b"{broken\n")
    done = embed(predictor, [docs], tmp_path / "v.npy", rejects=tmp_path / "bad.jsonl", progress_shown=False)
    assert (done.vectors, done.tally.rejected) == (4, {"malformed_json": 1})


@pytest.mark.parametrize("name", ["v.npy", "v.parquet"])
def test_an_id_that_is_not_unicode_rejects_its_document_alone(predictor: Predictor, tmp_path: Path, name: str) -> None:
    lines = [json.dumps({"id": id_, "text": "BRCA1 is lost."}) for id_ in ("\ud800", "good")]
    (tmp_path / "docs.jsonl").write_text("\n".join(lines))
    result = embed(predictor, [tmp_path / "docs.jsonl"], tmp_path / name, rejects=tmp_path / "r", progress_shown=False)
    assert (result.vectors, dict(result.tally.rejected)) == (1, {"not_unicode": 1})


@pytest.mark.parametrize(
    ("options", "code", "value"),
    [({"unit": "word"}, "unknown-unit", "word"), ({"pooling": "max"}, "unknown-pooling", "max")],
)
def test_unknown_options_are_refused(
    predictor: Predictor, docs: Path, tmp_path: Path, options: dict[str, str], code: str, value: str
) -> None:
    with raises(UsageError, code=code, value=value):
        embed(predictor, [docs], tmp_path / "v.npy", **options)  # type: ignore[arg-type]


def test_an_unknown_ending_and_one_file_for_both_are_refused(predictor: Predictor, docs: Path, tmp_path: Path) -> None:
    with raises(UsageError, code="unsupported-format", value=tmp_path / "v.csv"):
        embed(predictor, [docs], tmp_path / "v.csv", progress_shown=False)
    with raises(UsageError, code="same-file", value=docs):
        embed(predictor, [docs], docs)


def test_many_rows_are_counted_in_the_head_of_the_file(tmp_path: Path) -> None:
    with stage.vector_file(tmp_path / "v.npy", 3) as write:
        for _ in range(12):
            write(["x"] * 1000, np.ones((1000, 3), dtype=np.float32))
    assert np.load(tmp_path / "v.npy").shape == (12_000, 3)


def test_where_every_document_is_bad_no_file_is_written(predictor: Predictor, tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes(b"caf\x81")
    rejects, out = tmp_path / "bad.jsonl", tmp_path / "v.npy"
    with raises(FormatError, code="all-rejected", value=rejects, mentions="1 wrong_encoding"):
        embed(predictor, [tmp_path / "latin.txt"], out, rejects=rejects, progress_shown=False)
    assert (rejects.is_file(), out.exists()) == (True, False)
