"""Deterministic kernels are chosen for a GPU, and the settings are restored afterwards."""

import os

import pytest
import torch

from lexome.training.loop import CUBLAS, deterministic_kernels


def test_a_gpu_is_told_to_add_up_in_one_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(*CUBLAS)
    with deterministic_kernels(True, torch.device("cuda")):
        assert torch.are_deterministic_algorithms_enabled()
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize(("wanted", "device"), [(False, "cuda"), (True, "cpu")])
def test_nothing_is_changed_where_it_is_not_needed(wanted: bool, device: str) -> None:
    before = dict(os.environ)
    with deterministic_kernels(wanted, torch.device(device)):
        assert not torch.are_deterministic_algorithms_enabled()
    assert dict(os.environ) == before
