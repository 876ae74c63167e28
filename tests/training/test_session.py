"""A session trains what it is given: a module with weights beside the model, and another loss."""

from functools import partial
from pathlib import Path

import pytest
from pretraining import recipe, ticking
from torch import Tensor, nn
from torch.distributed.checkpoint import FileSystemReader

from lexome.corpus.shards import Shards
from lexome.models import checkpoint
from lexome.models.encoder import Encoder, Packing
from lexome.models.heads import MaskedLM
from lexome.recipe.pretrain import PretrainRecipe
from lexome.training.loop import Batch, Terms
from lexome.training.losses import PretrainingLoss
from lexome.training.session import MODEL, Objective, ShardBatches, initial_model, run_training
from lexome.training.trainer import STATES, Setting


class Beside(nn.Module):
    """A masked language model and one more matrix, whose answer is given in training alone."""

    def __init__(self, model: MaskedLM, width: int) -> None:
        super().__init__()
        self.model, self.projection = model, nn.Linear(width, 3, bias=False)

    @property
    def encoder(self) -> Encoder:
        return self.model.encoder

    def forward(
        self, ids_T: Tensor, packing: Packing, positions_M: Tensor, segments_T: Tensor | None = None
    ) -> Tensor | tuple[Tensor, Tensor]:
        hidden_TD = self.encoder(ids_T, packing, segments_T)
        hidden_MD = hidden_TD[positions_M]
        logits_MV: Tensor = self.model.head(hidden_MD, self.encoder.embed.tokens.weight)
        return (logits_MV, self.projection(hidden_MD)) if self.training else logits_MV


def drawn_to_one(module: nn.Module, batch: Batch) -> tuple[Tensor, Terms]:
    """Masked words, and a projection that is to be 1."""
    given = []

    def words(*inputs: Tensor) -> Tensor:
        logits_MV, projected = module(*inputs)
        given.append(projected)
        return logits_MV

    loss, terms = PretrainingLoss()(words, batch)  # type: ignore[arg-type]
    return loss + (given[0] - 1).square().sum() / batch.masked_of_step, terms


def beside(run: PretrainRecipe, data: ShardBatches, setting: Setting) -> Objective:
    start = initial_model(run, data)
    assert isinstance(start.model, MaskedLM)
    return Objective(start, Beside(start.model, start.config.hidden_size), drawn_to_one, PretrainingLoss())


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_weights_beside_the_model_are_in_its_states_and_not_in_its_folder(
    shards: Shards, tmp_path: Path, precision: str
) -> None:
    runs = {
        name: recipe(shards.folder, tmp_path / name, steps=20, precision=precision, log={"save_every": 10})
        for name in ("whole", "parted")
    }
    whole, parted = (partial(run_training, run, partial(beside, run), progress_shown=False) for run in runs.values())
    whole()
    with pytest.raises(KeyboardInterrupt):
        parted(clock=ticking(stop_after=15))
    parted()
    first, second = ((run.out / MODEL / "model.safetensors").read_bytes() for run in runs.values())
    assert first == second
    state = FileSystemReader(tmp_path / "whole" / STATES / "step-00000020")
    names = set(state.read_metadata().state_dict_metadata)
    assert {"model.projection.weight", "optimizer.exp_avg.projection.weight"} <= names
    assert checkpoint.load(tmp_path / "whole" / MODEL).unused == ()
