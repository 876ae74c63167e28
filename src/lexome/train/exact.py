"""The same bits each time on a GPU, where kernels may otherwise add up in any order."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.utils.deterministic

# Without it cuBLAS may give each stream another workspace, and another order of sums.
CUBLAS = ("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


@contextmanager
def exact(wanted: bool, device: torch.device) -> Iterator[None]:
    """Choose kernels that give the same bits each time, where this is wanted and the device is a GPU.

    Attention's backward pass is the one that is slower for it. A CPU needs nothing: one program adds up in one order.
    Enter it before the first product on the GPU, for cuBLAS reads its variable once.
    """
    if not (wanted and device.type == "cuda"):
        yield
        return
    import torch._inductor.config

    inductor: Any = torch._inductor.config
    memory: Any = torch.utils.deterministic
    before, filling = torch.are_deterministic_algorithms_enabled(), memory.fill_uninitialized_memory
    os.environ.setdefault(*CUBLAS)
    torch.use_deterministic_algorithms(True)
    # Meant to make reads of unset memory alike; nothing here reads it, and filling takes time.
    memory.fill_uninitialized_memory = False
    tuned = getattr(inductor, "deterministic", None)
    if tuned is not None:
        # Else kernels are chosen by how quick they were when they were tried, which differs from process to process.
        inductor.deterministic = True
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
        memory.fill_uninitialized_memory = filling
        if tuned is not None:
            inductor.deterministic = tuned
