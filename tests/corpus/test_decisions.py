"""Which documents stay, decided on their keys alone."""

from pathlib import Path
from typing import Any

import numpy as np

from lexome.corpus.dedup import (
    SIGNATURE,
    Verdict,
    candidate_pairs,
    drop_near_duplicates,
    drop_old_versions,
    sampling_ranks,
    signature_path,
    subsample,
)


def keys(path: Path, *rows: dict[str, Any]) -> Path:
    """A file of keys; what a row does not say is that of an ordinary document."""

    def column(name: str, otherwise: Any, kind: Any) -> Any:
        return np.array([row.get(name, otherwise) for row in rows], dtype=kind)

    texts = column("text", 0, np.uint64)
    signature = np.array([row.get("signature", [number] * 4) for number, row in enumerate(rows)], np.uint32)
    keys = path.with_name(f"{path.stem}.keys.npz")
    signature_path(keys).write_bytes(signature.astype(SIGNATURE).tobytes())
    np.savez(
        keys,
        ids=np.stack([column("id", 0, np.uint64)] * 2, axis=1),
        version=column("version", 0, np.int64),
        deleted=column("deleted", False, np.bool_),
        row=column("row", 0, np.int64),
        exact=np.stack([texts, texts], axis=1),
        permutations=np.array(4),
        band_0=signature[:, 0].astype(np.uint64),
        band_1=signature[:, 2].astype(np.uint64),
    )
    return keys


def names(verdicts: Any) -> list[str]:
    return [Verdict(verdict).name for verdict in verdicts]


def test_of_one_version_the_last_file_has_the_newest(tmp_path: Path) -> None:
    old = keys(tmp_path / "1.npz", {"id": 7, "version": 1, "text": 1}, {"id": 8, "text": 2})
    new = keys(tmp_path / "2.npz", {"id": 7, "version": 1, "text": 3})
    assert names(drop_old_versions([old, new], [0, 0], exact=True)) == ["OLDER_VERSION", "KEPT", "KEPT"]


def test_the_highest_version_is_the_newest_whatever_the_file(tmp_path: Path) -> None:
    old = keys(tmp_path / "1.npz", {"id": 7, "version": 2, "text": 1})
    revised = keys(tmp_path / "2.npz", {"id": 7, "version": 1, "text": 3})
    assert names(drop_old_versions([old, revised], [0, 0], exact=True)) == ["KEPT", "OLDER_VERSION"]


def test_a_deletion_of_one_version_leaves_a_higher_one(tmp_path: Path) -> None:
    both = keys(tmp_path / "1.npz", {"id": 7, "version": 1, "text": 1}, {"id": 7, "version": 2, "text": 2})
    gone = keys(tmp_path / "2.npz", {"id": 7, "version": 1, "deleted": True, "row": -1})
    assert names(drop_old_versions([both, gone], [0, 0], exact=True)) == ["OLDER_VERSION", "KEPT", "DROPPED_BEFORE"]


def test_each_document_is_compared_with_the_first_of_its_band_too(tmp_path: Path) -> None:
    rows = [
        {"id": 1, "text": 1, "signature": [1, 2, 3, 4]},
        {"id": 2, "text": 2, "signature": [1, 9, 8, 7]},  # stands between two that are alike
        {"id": 3, "text": 3, "signature": [1, 2, 3, 4]},
    ]
    file = keys(tmp_path / "1.npz", *rows)
    verdicts = drop_old_versions([file], [0], exact=True)
    drop_near_duplicates(verdicts, candidate_pairs([file], 0, verdicts), [file], similarity=0.9)
    assert names(verdicts) == ["KEPT", "KEPT", "NEAR_DUPLICATE"]


def test_inside_a_file_the_highest_version_is_the_newest(tmp_path: Path) -> None:
    both = keys(tmp_path / "1.npz", {"id": 7, "version": 2, "text": 1}, {"id": 7, "version": 1, "text": 2})
    assert names(drop_old_versions([both], [0], exact=True)) == ["KEPT", "OLDER_VERSION"]


def test_the_same_id_in_another_source_is_another_document(tmp_path: Path) -> None:
    one, other = keys(tmp_path / "1.npz", {"id": 7, "text": 1}), keys(tmp_path / "2.npz", {"id": 7, "text": 2})
    assert names(drop_old_versions([one, other], [0, 1], exact=True)) == ["KEPT", "KEPT"]


def test_a_newer_version_that_was_dropped_still_outdates_the_older(tmp_path: Path) -> None:
    old, new = keys(tmp_path / "1.npz", {"id": 7}), keys(tmp_path / "2.npz", {"id": 7, "row": -1})
    assert names(drop_old_versions([old, new], [0, 0], exact=True)) == ["OLDER_VERSION", "DROPPED_BEFORE"]


def test_a_deletion_takes_what_came_before_it_and_nothing_after(tmp_path: Path) -> None:
    old = keys(tmp_path / "1.npz", {"id": 7, "text": 1}, {"id": 8, "text": 2})
    gone = keys(tmp_path / "2.npz", {"id": 7, "deleted": True, "row": -1}, {"id": 8, "deleted": True, "row": -1})
    back = keys(tmp_path / "3.npz", {"id": 8, "text": 3})
    found = names(drop_old_versions([old, gone, back], [0, 0, 0], exact=True))
    assert found == ["DELETED", "OLDER_VERSION", "DROPPED_BEFORE", "DROPPED_BEFORE", "KEPT"]


def test_of_exact_duplicates_the_first_that_stands_stays(tmp_path: Path) -> None:
    # The first of the three is outdated, so it cannot be the one that stays.
    rows = [{"id": 1, "text": 5}, {"id": 2, "text": 5}, {"id": 3, "text": 5}, {"id": 1, "version": 1, "text": 6}]
    file = keys(tmp_path / "1.npz", *rows)
    assert names(drop_old_versions([file], [0], exact=True)) == ["OLDER_VERSION", "KEPT", "EXACT_DUPLICATE", "KEPT"]
    assert names(drop_old_versions([file], [0], exact=False)) == ["OLDER_VERSION", "KEPT", "KEPT", "KEPT"]


def test_near_duplicates_are_grouped_over_links_and_the_first_stays(tmp_path: Path) -> None:
    rows = [
        {"id": 1, "text": 1, "signature": [1, 2, 3, 4]},
        {"id": 2, "text": 2, "signature": [9, 9, 9, 9]},
        {"id": 3, "text": 3, "signature": [1, 2, 3, 5]},  # three of four places like the first
        {"id": 4, "text": 4, "signature": [8, 2, 3, 5]},  # three of four like the third, two like the first
        {"id": 5, "text": 5, "signature": [1, 7, 7, 7]},  # shares a band with the first, and little else
    ]
    files = [keys(tmp_path / "1.npz", *rows[:2]), keys(tmp_path / "2.npz", *rows[2:])]
    verdicts = drop_old_versions(files, [0, 0], exact=True)
    pairs = np.concatenate([candidate_pairs(files, band, verdicts) for band in (0, 1)])
    drop_near_duplicates(verdicts, pairs, files, similarity=0.75)
    assert names(verdicts) == ["KEPT", "KEPT", "NEAR_DUPLICATE", "NEAR_DUPLICATE", "KEPT"]


def test_documents_that_no_longer_stand_link_nothing(tmp_path: Path) -> None:
    rows = [{"id": 1, "row": -1, "signature": [1, 2, 3, 4]}, {"id": 2, "signature": [1, 2, 3, 4]}]
    file = keys(tmp_path / "1.npz", *rows)
    verdicts = drop_old_versions([file], [0], exact=False)
    assert candidate_pairs([file], 0, verdicts).shape == (0, 2)


def test_no_links_drop_nothing(tmp_path: Path) -> None:
    file = keys(tmp_path / "1.npz", {"id": 1}, {"id": 2})
    verdicts = drop_old_versions([file], [0], exact=False)
    assert drop_near_duplicates(verdicts, np.zeros((0, 2), np.int64), [file], similarity=0.8) == 0
    assert names(verdicts) == ["KEPT", "KEPT"]


def test_a_source_is_cut_to_its_size_in_the_order_of_ranks() -> None:
    verdicts = np.zeros(5, np.uint8)
    mine = np.array([True, True, True, False, True])
    subsample(verdicts, mine, np.array([10, 10, 10, 10, 10]), np.array([3, 1, 2, 0, 4], np.uint64), 20)
    assert names(verdicts) == ["NOT_SAMPLED", "KEPT", "KEPT", "KEPT", "NOT_SAMPLED"]


def test_ranks_depend_on_id_and_seed_alone() -> None:
    ids = np.arange(20, dtype=np.uint64).reshape(10, 2)
    assert (sampling_ranks(ids[::-1], 1) == sampling_ranks(ids, 1)[::-1]).all()
    assert (sampling_ranks(ids, 1) != sampling_ranks(ids, 2)).all()
    assert len(set(sampling_ranks(ids, 1).tolist())) == 10
