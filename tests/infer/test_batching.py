"""Batches hold no more tokens than they should, padding counted; the fastest size is one that was measured."""

from pathlib import Path

import numpy as np
import pytest
from dictionary_models import dictionary_model
from hypothesis import given
from hypothesis import strategies as st

from lexome.infer.predictor import BUDGETS, Predictor, fastest, throughput, token_batches


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    folder: Path = dictionary_model(tmp_path_factory.mktemp("batching") / "words")
    return Predictor.open(folder, threads=1)


@given(st.lists(st.integers(1, 64), max_size=40), st.integers(1, 300))
def test_batches_hold_each_row_once_and_no_more_tokens_than_asked(lengths: list[int], tokens: int) -> None:
    rows = [[0] * length for length in lengths]
    batches = token_batches(rows, tokens)
    assert sorted(place for batch in batches for place in batch) == list(range(len(rows)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[place] for place in batch) <= tokens


def test_rows_in_batches_have_the_numbers_they_have_alone(words: Predictor) -> None:
    rng = np.random.default_rng(0)
    rows = [rng.integers(0, 60, size) for size in (3, 50, 7, 1, 64, 20)]
    for alone, other in zip(words.logits(rows), words.logits(rows, batch_tokens=100), strict=True):
        assert (alone == other).all()


def test_each_size_is_measured_and_one_of_them_is_fastest(words: Predictor) -> None:
    found = throughput(words, budgets=(0, 128), sequences=4, rounds=1)
    assert list(found) == [0, 128]
    assert min(found.values()) > 0
    assert fastest(words) in BUDGETS
