"""TensorFlow 1 checkpoints of Google's BERT, written by the tests and read without TensorFlow."""

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
from errors import raises
from foreign_writers import (
    PIECES,
    SHAPE,
    assert_same_logits,
    google_folder,
    google_names,
    proto,
    slow_crc32c,
    table,
    tiny_bert,
    write_bundle,
)
from tokenizers import Tokenizer

from lexome.errors import CheckpointError
from lexome.models.foreign import detect, read_foreign

STEM = "model.ckpt-1000000"
DATA = f"{STEM}.data-00000-of-00001"


@pytest.mark.parametrize(("shards", "packed"), [(1, False), (1, True), (3, False)])
def test_a_release_gives_the_logits_of_its_model(tmp_path: Path, shards: int, packed: bool) -> None:
    model = tiny_bert()
    google_folder(tmp_path, model, shards=shards, packed=packed)
    assert detect(tmp_path) == "google"
    foreign = read_foreign(tmp_path)
    assert_same_logits(foreign, model)
    kernel = "bert/encoder/layer_0/output/dense/kernel"
    assert foreign.left_out == (f"{kernel}/adam_m", f"{kernel}/adam_v", "global_step")


@pytest.mark.parametrize("mode", ["w:gz", "w"])
def test_an_archive_of_a_release_is_read_as_its_folder(tmp_path: Path, mode: str) -> None:
    model = tiny_bert()
    google_folder(tmp_path / "biobert_v1.1_pubmed", model)
    archive = tmp_path / "biobert_v1.1_pubmed.tar.gz"
    with tarfile.open(archive, mode) as tar:
        tar.add(tmp_path / "biobert_v1.1_pubmed", "biobert_v1.1_pubmed")
    assert detect(archive) == "google"
    assert_same_logits(read_foreign(archive), model)


def test_a_checkpoint_is_named_by_its_prefix_or_by_any_of_its_files(tmp_path: Path) -> None:
    google_folder(tmp_path, tiny_bert())
    for name in (STEM, f"{STEM}.index", f"{STEM}.meta", DATA):
        assert detect(tmp_path / name) == "google"


def test_the_last_saved_of_several_checkpoints_is_read_if_known(tmp_path: Path) -> None:
    model = tiny_bert()
    google_folder(tmp_path, model)
    write_bundle(tmp_path / "model.ckpt-5", {"global_step": np.array(5, np.int64)})
    with raises(CheckpointError, code="ambiguous-checkpoint", value=["model.ckpt-1000000", "model.ckpt-5"]):
        read_foreign(tmp_path)
    (tmp_path / "checkpoint").write_text(
        f'model_checkpoint_path: "/home/them/{STEM}"\nall_model_checkpoint_paths: "x"\n'
    )
    assert_same_logits(read_foreign(tmp_path), model)


def test_the_tokenizer_keeps_the_case_of_a_cased_vocabulary(tmp_path: Path) -> None:
    google_folder(tmp_path, tiny_bert())
    tokenizer = Tokenizer.from_str(read_foreign(tmp_path).tokenizer_files["tokenizer.json"].decode())
    assert tokenizer.encode("BRCA1 bind the genes.").tokens == [
        "[CLS]", "BRCA", "##1", "bind", "the", "gene", "##s", ".", "[SEP]"
    ]  # fmt: skip
    assert tokenizer.encode("gene", "bind").type_ids == [0, 0, 0, 1, 1]
    (tmp_path / "vocab.txt").write_text("\n".join(PIECES).replace("BRCA", "brca"))
    tokenizer = Tokenizer.from_str(read_foreign(tmp_path).tokenizer_files["tokenizer.json"].decode())
    assert tokenizer.encode("Brca1 BIND", add_special_tokens=False).tokens == ["brca", "##1", "bind"]


def test_a_vocabulary_larger_than_the_model_is_refused(tmp_path: Path) -> None:
    google_folder(tmp_path, tiny_bert())
    (tmp_path / "vocab.txt").write_text("\n".join([*PIECES, *(f"piece{n}" for n in range(SHAPE["vocab_size"]))]))
    with raises(CheckpointError, code="vocabulary-mismatch", value=60, mentions="48"):
        read_foreign(tmp_path)


def test_a_configuration_of_another_model_is_refused(tmp_path: Path) -> None:
    google_folder(tmp_path, tiny_bert())
    config = tmp_path / "bert_config.json"
    config.write_text(config.read_text().replace('"hidden_size": 16', '"hidden_size": 32'))
    with raises(CheckpointError, code="shape-mismatch", value=(48, 32), mentions="(48, 16)"):
        read_foreign(tmp_path)


def test_a_changed_byte_is_detected_by_the_checksum(tmp_path: Path) -> None:
    google_folder(tmp_path, tiny_bert())
    content = bytearray((tmp_path / DATA).read_bytes())
    content[2000] ^= 1
    (tmp_path / DATA).write_bytes(content)
    with raises(CheckpointError, code="damaged-file", value=str(tmp_path / DATA)):
        read_foreign(tmp_path)


def test_a_truncated_data_file_is_refused(tmp_path: Path) -> None:
    google_folder(tmp_path, tiny_bert())
    content = (tmp_path / DATA).read_bytes()
    (tmp_path / DATA).write_bytes(content[: len(content) // 2])
    with raises(CheckpointError, code="damaged-file", value=str(tmp_path / DATA)):
        read_foreign(tmp_path)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    google_folder(tmp_path, tiny_bert(), shards=2)
    (tmp_path / f"{STEM}.data-00001-of-00002").unlink()
    with raises(CheckpointError, code="missing-file", value=f"{STEM}.data-00001-of-00002"):
        read_foreign(tmp_path)


def test_unknown_weights_raise_and_the_first_is_named(tmp_path: Path) -> None:
    google_folder(tmp_path, tiny_bert())
    extra = np.zeros(3, np.float32)
    write_bundle(tmp_path / STEM, google_names(tiny_bert()) | {"output_weights": extra, "output_bias": extra})
    with raises(CheckpointError, code="unknown-weights", value="output_bias"):
        read_foreign(tmp_path)


@pytest.mark.parametrize(
    ("shape", "size", "mentions"),
    [((1 << 38, 1 << 38), 16, "302,231,454,903,657,293,676,544"), ((4,), 1 << 50, "16 bytes")],
)
def test_a_claim_of_huge_size_is_refused_before_anything_is_allocated(
    tmp_path: Path, shape: tuple[int, ...], size: int, mentions: str
) -> None:
    google_folder(tmp_path, tiny_bert())
    dims = b"".join(proto(2, proto(1, n)) for n in shape)
    entry = proto(1, 1) + proto(2, dims) + proto(5, size)
    index = table({b"": proto(1, 1), b"bert/embeddings/word_embeddings": entry})
    (tmp_path / f"{STEM}.index").write_bytes(index)
    with raises(CheckpointError, code="damaged-file", mentions=mentions):
        read_foreign(tmp_path)


def test_any_change_to_an_index_is_detected(tmp_path: Path) -> None:
    google_folder(tmp_path, tiny_bert())
    whole = (tmp_path / f"{STEM}.index").read_bytes()
    rng = np.random.default_rng(2)
    for at in [*rng.integers(0, len(whole), 40), len(whole) - 1, len(whole) - 45]:
        broken = bytearray(whole)
        broken[at] ^= 0x55
        if bytes(broken[: -48 + 12]) == whole[: -48 + 12] and broken[-8:] == bytearray(whole[-8:]):
            continue  # the padding of the footer, which nobody reads
        (tmp_path / f"{STEM}.index").write_bytes(broken)
        with pytest.raises(CheckpointError):
            read_foreign(tmp_path)
    for length in (0, 10, 47, 48, len(whole) - 1):
        (tmp_path / f"{STEM}.index").write_bytes(whole[:length])
        with raises(CheckpointError, code="damaged-file", value=str(tmp_path / f"{STEM}.index")):
            read_foreign(tmp_path)


def test_a_truncated_archive_is_refused(tmp_path: Path) -> None:
    google_folder(tmp_path / "release", tiny_bert())
    for mode, name in (("w:gz", "cut.tar.gz"), ("w", "cut.tar")):
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode=mode) as tar:
            tar.add(tmp_path / "release", "release")
        (tmp_path / name).write_bytes(stream.getvalue()[: len(stream.getvalue()) // 2])
        with pytest.raises(CheckpointError):
            read_foreign(tmp_path / name)


def test_the_writer_of_these_tests_has_the_published_checksum() -> None:
    assert slow_crc32c(b"123456789") == 0xE3069283
