"""The loss with a teacher on a GPU, in bfloat16 and compiled, against float32 on the CPU. Needs torch alone."""

from dataclasses import replace
from typing import Literal

import pytest
import torch

from lexome.models.encoder import EncoderConfig, Packing
from lexome.models.heads import MaskedLM
from lexome.training.loop import Batch, to_device
from lexome.training.losses import DistilledLM, DistillingLoss, LossWeights, compile_layers, projection
from lexome.training.sampling import IGNORE_INDEX

if not torch.cuda.is_available():
    pytest.skip("there is no GPU here", allow_module_level=True)

TEACHER = EncoderConfig(
    vocab=512, layers=4, hidden_size=256, heads=4, intermediate_size=512, dropout=0.0, attention_dropout=0.0
)
STUDENT = replace(TEACHER, layers=2, hidden_size=128, heads=2, intermediate_size=256)


def batch(masks: int) -> Batch:
    generator = torch.Generator().manual_seed(1)
    labels_M = torch.randint(0, 512, (64,), generator=generator)
    labels_M[masks:] = IGNORE_INDEX
    return Batch(
        ids_T=torch.randint(0, 512, (512,), generator=generator),
        segments_T=None,
        packing=Packing.of([100, 300, 480, 512], longest=256),
        positions_M=torch.randint(0, 480, (64,), generator=generator),
        labels_M=labels_M,
        pair_labels_S=None,
        masked=masks,
        sequences=3,
        masked_of_step=masks,
        sequences_of_step=3,
        tokens=480,
        tokens_of_step=480,
    )


@pytest.mark.parametrize("over", ["masked", "all"])
@pytest.mark.parametrize("precision", ["autocast", "bf16"])
def test_compiled_in_bfloat16_it_is_nearly_that_of_the_cpu(over: Literal["masked", "all"], precision: str) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    teacher, student = MaskedLM(TEACHER), MaskedLM(STUDENT)
    model = DistilledLM(student, projection(student, TEACHER.hidden_size)).train()
    weights = LossWeights(over=over)
    exact, _ = DistillingLoss(teacher, weights)(model, batch(50))
    exact.backward()
    expected = torch.cat([weight.grad.flatten() for weight in model.parameters() if weight.grad is not None])
    model.zero_grad()
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    for part in (teacher, model):
        part.to("cuda", dtype)
        compile_layers(part)
    loss = DistillingLoss(teacher, weights, compiled=True, autocast=torch.bfloat16 if precision == "autocast" else None)
    rough, _ = loss(model, to_device(batch(50), torch.device("cuda")))
    rough.backward()
    found = torch.cat([weight.grad.flatten() for weight in model.parameters() if weight.grad is not None])
    assert abs(float(rough.detach()) - float(exact.detach())) < 0.02 * float(exact.detach())
    assert (found.float().cpu() - expected).norm() < 0.1 * expected.norm()
