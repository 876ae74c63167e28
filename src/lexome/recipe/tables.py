"""Recipe tables that all training stages share; a stage's own table may add keys and change defaults."""

from typing import Annotated, Literal

from pydantic import Field

from lexome.recipe import Table

Beta = Annotated[float, Field(ge=0, lt=1)]
"""The decay rate of a running mean, as AdamW takes it."""

Device = Literal["auto", "cpu", "cuda"]


class OptimizerTable(Table):
    """AdamW, or Muon for the matrices of the layers and AdamW for everything else."""

    kind: Literal["adamw", "muon"] = Field(default="adamw", description="muon: for the layers' matrices; adamw else.")
    lr: float = Field(
        default=5e-4,
        gt=0,
        allow_inf_nan=False,
        description="Peak learning rate; Muon's updates are scaled to the size of AdamW's.",
    )
    betas: tuple[Beta, Beta] = Field(default=(0.9, 0.98), description="AdamW's betas.")
    eps: float = Field(default=1e-6, gt=0, description="AdamW's epsilon.")
    weight_decay: float = Field(default=0.01, ge=0, description="Weight decay of matrices; vectors have none.")
    weight_decay_embeddings: bool = Field(default=True, description="Whether weight decay applies to embeddings.")
    momentum: float = Field(default=0.95, ge=0, lt=1, description="Muon's momentum.")
    max_grad_norm: float | None = Field(
        default=1.0, ge=0, description="Clip gradients to this norm; 0 turns clipping off."
    )


class ScheduleTable(Table):
    """The learning-rate schedule."""

    kind: Literal["linear", "cosine", "constant"] = Field(
        default="linear", description="How the learning rate falls after the warm-up; constant may fall at its end."
    )
    warmup_ratio: float = Field(default=0.02, ge=0, lt=1, description="Fraction of the run used for linear warm-up.")
    warmup_steps: int | None = Field(
        default=None, ge=0, description="Warm-up steps, instead of warmup_ratio; needs a length in steps."
    )
    decay_ratio: float = Field(
        default=0.2, ge=0, le=1, description="With constant: fraction of the run, at its end, of linear decay."
    )
    min_lr_ratio: float = Field(default=0.0, ge=0, le=1, description="Final learning rate, as a fraction of lr.")


class BatchTable(Table):
    """The size of a step: micro-batches whose gradients are accumulated."""

    gradient_accumulation: int = Field(
        default=1, ge=1, description="Micro-batches per step; their gradients are accumulated."
    )
    prefetch: int = Field(
        default=8, ge=0, description="Steps prepared in the background; 0 prepares them in the training thread."
    )


class EvaluationTable(Table):
    """Evaluation during training."""

    every: int | None = Field(default=None, ge=1, description="Steps between evaluations; by default only at the end.")


class LogTable(Table):
    """Logging and divergence checks; these keys may change between interrupting and resuming a run."""

    every: int = Field(default=20, ge=1, description="Steps between lines of metrics.jsonl.")
    divergence_threshold: float | None = Field(
        default=2.0, gt=0, description="Stop where three lines in a row have a loss this far above the lowest."
    )


class CardTable(Table):
    """What the model card says that cannot be derived from the run."""

    title: str | None = Field(default=None, description="By default the name of `out`.")
    license: str = Field(default="unknown", description="The model's license.")
    data: str | None = Field(default=None, description="The training data and its licenses; by default derived.")


class DataParallelTable(Table):
    """Processes started by torchrun, one per GPU, each with a copy of the model (DDP)."""

    data: int | None = Field(
        default=None, ge=1, description="Copies of the model, each with its own micro-batches. Default: all processes."
    )
    backend: Literal["auto", "nccl", "gloo"] = Field(
        default="auto", description="Communication backend; auto: nccl for GPUs, gloo for CPUs."
    )


class ParallelTable(DataParallelTable):
    """data x shard x tensor processes, started by torchrun, one per GPU."""

    shard: int = Field(
        default=1, ge=1, description="Processes that shard weights, gradients and optimizer state of one copy (FSDP2)."
    )
    tensor: int = Field(default=1, ge=1, description="Processes that split each matrix (tensor parallelism).")
