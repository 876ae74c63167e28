"""Heads: what they look at, how deep they are, what they give."""

import pytest
import torch
from tiny_models import LENGTHS, VOCAB, batch

from lexome.models.encoder import Encoder, EncoderConfig, Packing
from lexome.models.heads import (
    EncoderWithHead,
    HiddenLayers,
    MaskedLM,
    MaskedLMHead,
    PairHead,
    SequenceHead,
    SpanHead,
    TokenHead,
    _GatherPositions,
    mean_pool,
)
from lexome.training.losses import sums
from lexome.training.sampling import IGNORE_INDEX

CONFIG = EncoderConfig(vocab=VOCAB, layers=1, hidden_size=32, heads=4, intermediate_size=48, max_tokens=40)


def test_logits_only_at_the_masked_positions() -> None:
    model = MaskedLM(CONFIG).eval()
    ids_T, packing = batch()
    positions_M = torch.tensor([60, 2, 2])
    with torch.no_grad():
        every = model(ids_T, packing, torch.arange(len(ids_T)))
        some = model(ids_T, packing, positions_M)
    assert some.shape == (3, VOCAB)
    assert torch.allclose(some, every[positions_M], atol=1e-6)


def test_the_output_matrix_is_the_embedding() -> None:
    model = MaskedLM(CONFIG).eval()
    ids_T, packing = batch()
    assert sum(weight.shape == (VOCAB, 32) for weight in model.parameters()) == 1
    with torch.no_grad():
        before = model(ids_T, packing, torch.tensor([3]))
        # Piece 63 does not occur in the text, so only its logit can move.
        assert 63 not in ids_T
        model.encoder.embed.tokens.weight[63] += 1.0
        moved_MV = (model(ids_T, packing, torch.tensor([3])) - before) != 0
    assert moved_MV.nonzero().tolist() == [[0, 63]]


@pytest.mark.parametrize("count", [0, 1, 2])
def test_hidden_layers_have_the_width_asked_for(count: int) -> None:
    head = TokenHead(CONFIG, 5, hidden=HiddenLayers(count, hidden_size=100, dropout=0.5))
    shapes = [tuple(weight.shape) for name, weight in head.named_parameters() if name.endswith("weight")]
    assert shapes == [[(5, 32)], [(100, 32), (5, 100)], [(100, 32), (100, 100), (5, 100)]][count]
    drops = [module.p for module in head.modules() if isinstance(module, torch.nn.Dropout)]
    assert drops == [0.5] * (count + 1)


def test_two_hidden_layers_compute_what_they_say() -> None:
    head = TokenHead(CONFIG, 3, hidden=HiddenLayers(2, hidden_size=8, dropout=0.9)).eval()
    hidden_TD = torch.randn(4, 32)
    with torch.no_grad():
        first = (hidden_TD @ head.dense0.weight.T + head.dense0.bias).relu()
        second = (first @ head.dense1.weight.T + head.dense1.bias).relu()
        expected = second @ head.out.weight.T + head.out.bias
        assert torch.allclose(head(hidden_TD, Packing.of([4])), expected, atol=1e-6)


def test_shapes_of_each_head() -> None:
    ids_T, packing = batch()
    tokens, sequences = len(ids_T), len(LENGTHS)
    shapes = {
        TokenHead(CONFIG, 5): (tokens, 5),
        SequenceHead(CONFIG, 3): (sequences, 3),
        SpanHead(CONFIG): (tokens, 2),
        PairHead(CONFIG): (sequences, 2),
    }
    for head, shape in shapes.items():
        assert EncoderWithHead(Encoder(CONFIG), head)(ids_T, packing).shape == shape


def test_a_sequence_is_its_first_token_or_its_mean() -> None:
    _, packing = batch((3, 2))
    hidden_TD = torch.arange(5.0)[:, None].expand(5, 32)
    assert mean_pool(hidden_TD, packing)[:, 0].tolist() == [1.0, 3.5]
    first, mean = (SequenceHead(CONFIG, 2, pooling=pooling).eval() for pooling in ("first", "mean"))
    mean.load_state_dict(first.state_dict())
    with torch.no_grad():
        assert torch.allclose(first(hidden_TD[[1, 1, 1, 3, 4]] + 0.0, packing)[0], mean(hidden_TD, packing)[0])


def test_logits_filled_up_change_neither_the_loss_nor_its_gradients() -> None:
    torch.manual_seed(0)
    head, hidden_MD = MaskedLMHead(CONFIG), torch.randn(5, CONFIG.hidden_size)
    tokens_VD = torch.randn(CONFIG.vocab, CONFIG.hidden_size, requires_grad=True)
    labels_M = torch.tensor([0, 3, IGNORE_INDEX, CONFIG.vocab - 1, 2])
    found = []
    for grain in (1, 60):
        head.pad_to_multiple_of = grain
        logits_MV = head(hidden_MD, tokens_VD)
        assert logits_MV.shape[1] % grain == 0
        loss, right = sums(logits_MV, labels_M)
        found.append((loss, right, *torch.autograd.grad(loss, [tokens_VD, head.bias, head.dense.weight])))
    assert CONFIG.vocab % 60
    for plain, filled in zip(*found, strict=True):
        torch.testing.assert_close(filled, plain)


def test_the_gradient_of_picked_rows_is_that_of_index_select() -> None:
    torch.manual_seed(0)
    hidden_TD = torch.randn(9, 4, requires_grad=True)
    positions_M, weight_MD = torch.tensor([3, 0, 8, 0]), torch.randn(4, 4)
    own, plain = _GatherPositions.apply(hidden_TD, positions_M), hidden_TD.index_select(0, positions_M)
    assert torch.equal(own, plain)
    gradients = [torch.autograd.grad((rows_MD * weight_MD).sum(), hidden_TD)[0] for rows_MD in (own, plain)]
    torch.testing.assert_close(*gradients)
