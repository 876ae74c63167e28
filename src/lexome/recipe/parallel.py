"""The [parallel] table of a recipe: how many processes share a run, and what each of them holds."""

from typing import Literal

from pydantic import Field

from lexome.recipe import Table


class ParallelTable(Table):
    """data x shard x tensor processes, one for each GPU, started by torchrun."""

    data: int | None = Field(
        default=None, ge=1, description="Whole copies of the model, each with its own batches. None: as many as fit."
    )
    shard: int = Field(
        default=1, ge=1, description="Processes that share weights, gradients and optimizer state of one copy (FSDP2)."
    )
    tensor: int = Field(
        default=1, ge=1, description="Processes that cut each matrix among them and work on the same batch."
    )
    backend: Literal["auto", "nccl", "gloo"] = Field(
        default="auto", description="How processes talk; auto: nccl for GPUs, gloo for CPUs."
    )
