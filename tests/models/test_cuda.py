"""The packed kernel on a GPU against the general path. Needs torch alone, so that a bare machine can run it."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from lexome.models import encoder
from lexome.models.encoder import EncoderConfig, Packing
from lexome.models.heads import MaskedLM

if not torch.cuda.is_available():
    pytest.skip("there is no GPU here", allow_module_level=True)

LENGTHS = (7, 131, 1, 64, 200)
BERT = EncoderConfig(
    vocab=512, layers=3, hidden_size=256, heads=4, intermediate_size=512, attention_dropout=0.0, dropout=0.0
)
MODERN = replace(
    BERT,
    norm="pre",
    positions="rotary",
    segments=0,
    gated=True,
    biases=False,
    norm_biases=False,
    final_norm=True,
    first_norm=False,
    local_window=16,
    global_every=3,
    rotary_base=160_000.0,
    local_rotary_base=10_000.0,
)
FORMS = pytest.mark.parametrize("config", [BERT, MODERN], ids=["bert", "modern"])


def packed(device: str = "cuda") -> tuple[Tensor, Packing]:
    ids_T = torch.randint(0, 512, (sum(LENGTHS),), generator=torch.Generator().manual_seed(1))
    return ids_T.to(device), Packing.of(torch.tensor(LENGTHS).cumsum(0).tolist(), device)


@pytest.mark.parametrize("window", [None, 16])
def test_the_kernel_gives_what_the_general_path_gives(window: int | None) -> None:
    _, packing = packed()
    torch.manual_seed(0)
    # Cut out of one tensor, as the encoder does it, so that they are not contiguous.
    qkv_TH3K = torch.randn(sum(LENGTHS), 4, 3, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    query_THK, key_THK, value_THK = qkv_TH3K.unbind(-2)
    assert encoder._varlen_kernel_supports(query_THK, window=window, dropout=0.0)
    weight_THK = torch.randn_like(query_THK)
    results = []
    for attend in (encoder.attend, encoder._attend_by_length):
        mixed_THK = attend(query_THK, key_THK, value_THK, packing, window=window, dropout=0.0)
        (gradient,) = torch.autograd.grad((mixed_THK * weight_THK).sum(), qkv_TH3K, retain_graph=True)
        results.append((mixed_THK.float(), gradient.float()))
    for kernel, general in zip(*results, strict=True):
        assert (kernel - general).abs().max() < 0.05
        assert (kernel - general).abs().mean() < 0.002


@pytest.mark.parametrize("width", [32, 64, 128])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_kernels_of_our_own_give_what_the_general_path_gives(width: int, dtype: torch.dtype) -> None:
    ends = torch.tensor(LENGTHS).cumsum(0).tolist()
    packing = Packing.of(ends, "cuda", longest=256, sequences=len(LENGTHS) + 3)
    torch.manual_seed(0)
    qkv_TH3K = torch.randn(sum(LENGTHS), 4, 3, width, device="cuda", dtype=dtype, requires_grad=True)
    assert encoder.tile_kernel_supports(qkv_TH3K)
    weight_THK = torch.randn_like(qkv_TH3K[:, :, 0])

    def joint() -> tuple[Tensor, Tensor]:
        mixed_THK = encoder.attend_fused(qkv_TH3K, packing, window=None, dropout=0.0)
        return mixed_THK, torch.autograd.grad((mixed_THK * weight_THK).sum(), qkv_TH3K)[0]

    exact_TH3K = qkv_TH3K.detach().float().requires_grad_()
    general_THK = encoder._attend_by_length(*exact_TH3K.unbind(-2), packing, window=None, dropout=0.0)
    (gradient,) = torch.autograd.grad((general_THK * weight_THK.float()).sum(), exact_TH3K)
    for kernel, general in zip(joint(), (general_THK, gradient), strict=True):
        assert (kernel.float() - general).norm() < 0.01 * general.norm()
    assert all(torch.equal(one, other) for one, other in zip(joint(), joint(), strict=True))


def test_dropout_and_float32_take_the_general_path() -> None:
    assert not encoder.tile_kernel_supports(torch.zeros(4, 2, 3, 64, device="cuda"))
    query_THK = torch.zeros(4, 2, 64, device="cuda")
    assert not encoder._varlen_kernel_supports(query_THK, window=None, dropout=0.0)
    assert not encoder._varlen_kernel_supports(query_THK.bfloat16(), window=None, dropout=0.1)


@FORMS
@pytest.mark.parametrize("form", ["autocast", "weights"])
def test_half_precision_on_a_gpu_is_near_float32_on_a_cpu(config: EncoderConfig, form: str) -> None:
    torch.manual_seed(0)
    model = MaskedLM(config).eval()
    ids_T, packing = packed("cpu")
    positions_M = torch.arange(0, len(ids_T), 5)
    with torch.no_grad():
        exact_MV = model(ids_T, packing, positions_M)
        model = model.cuda() if form == "autocast" else model.to("cuda", torch.bfloat16)
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=form == "autocast"):
            rough_MV = model(ids_T.cuda(), packing.to("cuda"), positions_M.cuda())
    assert (exact_MV - rough_MV.cpu().float()).abs().mean() < 0.01 * exact_MV.abs().mean() + 0.005


@FORMS
@pytest.mark.parametrize("checkpointing", [False, True])
def test_compiled_in_one_graph_with_the_same_gradients(config: EncoderConfig, checkpointing: bool) -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()
    model = MaskedLM(config).cuda().train()
    model.encoder.gradient_checkpointing = checkpointing
    ids_T, packing = packed()
    positions_M = torch.arange(0, len(ids_T), 5, device="cuda")
    gradients = []
    for run in (model, torch.compile(model, fullgraph=True)):
        model.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits_MV = run(ids_T, packing, positions_M)
        torch.nn.functional.cross_entropy(logits_MV.float(), ids_T[positions_M]).backward()
        gradients.append(torch.cat([weight.grad.flatten() for weight in model.parameters() if weight.grad is not None]))
    eager, compiled = gradients
    assert (eager - compiled).norm() < 0.05 * eager.norm()


def test_fixed_sizes_make_empty_sequences_the_kernel_can_take() -> None:
    model = MaskedLM(BERT).to("cuda", torch.bfloat16).eval()
    ids_T, packing = packed()
    fixed = Packing.of(torch.tensor(LENGTHS).cumsum(0).tolist(), "cuda", longest=256, sequences=16)
    with torch.no_grad():
        positions_M = torch.arange(len(ids_T), device="cuda")
        same = model(ids_T, packing, positions_M) == model(ids_T, fixed, positions_M)
    assert same.float().mean() > 0.99
