"""The loss with a teacher, against plain torch; students made of a teacher's layers."""

from dataclasses import replace

import pytest
import torch
from errors import raises
from torch import Tensor, nn
from torch.nn import functional

from lexome.errors import UsageError
from lexome.models.encoder import EncoderConfig, Packing, preset
from lexome.models.heads import MaskedLM
from lexome.training.loop import Batch
from lexome.training.losses import DistilledLM, DistillingLoss, LossWeights, PretrainingLoss, projection
from lexome.training.pretrain import every_nth, select_layers
from lexome.training.sampling import IGNORE_INDEX

TEACHER = EncoderConfig(
    vocab=40, layers=4, hidden_size=32, heads=4, intermediate_size=48, max_tokens=16, initial_std=0.2
)
STUDENT = replace(TEACHER, layers=2, hidden_size=24, heads=2, intermediate_size=32, dropout=0.0, attention_dropout=0.0)
REAL, MASKS = 19, 5


def batch(*, vocab: int = 40) -> Batch:
    """Three sequences and one of filling; five masks and two of filling; half of a step."""
    generator = torch.Generator().manual_seed(5)
    labels_M = torch.randint(0, vocab, (MASKS + 2,), generator=generator)
    labels_M[MASKS:] = IGNORE_INDEX
    ids_T = torch.randint(1, vocab, (24,), generator=generator)
    ids_T[REAL:] = 0
    return Batch(
        ids_T=ids_T,
        segments_T=None,
        packing=Packing.of([7, 15, REAL, 24]),
        positions_M=torch.tensor([1, 3, 8, 11, 17, 0, 0]),
        labels_M=labels_M,
        pair_labels_S=None,
        masked=MASKS,
        sequences=3,
        masked_of_step=2 * MASKS,
        sequences_of_step=6,
        tokens=REAL,
        tokens_of_step=2 * REAL,
    )


def models(student: EncoderConfig = STUDENT) -> tuple[MaskedLM, DistilledLM]:
    torch.manual_seed(7)
    teacher, small = MaskedLM(TEACHER), MaskedLM(student)
    return teacher, DistilledLM(small, projection(small, TEACHER.hidden_size)).train()


def student_of(model: DistilledLM) -> MaskedLM:
    """The student without the projection."""
    alone = MaskedLM(STUDENT)
    left = alone.load_state_dict(model.state_dict(), strict=False)
    assert (left.missing_keys, left.unexpected_keys) == ([], ["projection.weight", "projection.bias"])
    return alone


def everywhere(model: MaskedLM | DistilledLM, given: Batch) -> tuple[Tensor, Tensor]:
    """Hidden states and logits at every token, sequence by sequence."""
    hidden = []
    for start, end in zip((0, 7, 15), (7, 15, REAL), strict=True):
        hidden.append(model.encoder(given.ids_T[start:end], Packing.of([end - start])))
    hidden_TD = torch.cat(hidden)
    return hidden_TD, model.head(hidden_TD, model.encoder.embed.tokens.weight)


def reference(teacher: MaskedLM, model: DistilledLM, given: Batch, *, over: str, temperature: float) -> Tensor:
    """Lewis's loss in torch's own words, of a whole step that is this batch alone."""
    hidden_TD, logits_TV = everywhere(model, given)
    with torch.no_grad():
        aim_TE, taught_TV = everywhere(teacher.eval(), given)
    masked_M = given.positions_M[:MASKS]
    mlm = nn.CrossEntropyLoss()(logits_TV[masked_M], given.labels_M[:MASKS])
    chosen = masked_M if over == "masked" else torch.arange(REAL)
    kl = nn.KLDivLoss(reduction="batchmean")(
        functional.log_softmax(logits_TV[chosen] / temperature, dim=-1),
        functional.softmax(taught_TV[chosen] / temperature, dim=-1),
    )
    assert model.projection is not None
    cosine = nn.CosineEmbeddingLoss()(model.projection(hidden_TD), aim_TE, torch.ones(REAL))
    return 5.0 * mlm + 2.0 * kl * temperature**2 + 1.0 * cosine


@pytest.mark.parametrize("over", ["masked", "all"])
@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_the_loss_and_its_gradients_are_the_recipes(over: str, temperature: float) -> None:
    teacher, model = models()
    given = batch()
    weights = LossWeights(temperature=temperature, over=over)  # type: ignore[arg-type]
    total, terms = DistillingLoss(teacher, weights)(model, given)
    # The batch is half of its step, so twice its part is the loss of a step that is this batch alone.
    (2 * total).backward()
    found = [weight.grad for weight in model.parameters()]
    model.zero_grad()
    expected = reference(teacher, model, given, over=over, temperature=temperature)
    expected.backward()
    torch.testing.assert_close(2 * total, expected)
    for gradient, weight in zip(found, model.parameters(), strict=True):
        torch.testing.assert_close(gradient, weight.grad, atol=1e-5, rtol=1e-4)
    kl = terms["kl_loss"] / MASKS if over == "masked" else terms["kl_loss_all"] / REAL
    parts = 5 * terms["word_loss"] / MASKS + 2 * kl + terms["cosine_loss"] / REAL
    torch.testing.assert_close(parts, expected.detach())


def test_without_the_square_the_divergence_is_smaller_by_it() -> None:
    teacher, model = models()
    squared, plain = (
        DistillingLoss(teacher, LossWeights(squared=squared))(model, batch())[1]["kl_loss"] for squared in (True, False)
    )
    torch.testing.assert_close(squared, 4 * plain)


def test_terms_of_no_weight_are_left_out() -> None:
    teacher, model = models()
    total, terms = DistillingLoss(teacher, LossWeights(mlm=1.0, kl=0.0, cosine=0.0))(model, batch())
    assert set(terms) == {"word_loss", "word_right"}
    torch.testing.assert_close(total, PretrainingLoss()(student_of(model), batch())[0])


def test_the_teacher_is_not_changed_and_does_not_drop() -> None:
    teacher, model = models()
    before = {name: weight.clone() for name, weight in teacher.state_dict().items()}
    loss = DistillingLoss(teacher.train(), LossWeights())
    first, second = (loss(model, batch())[0] for _ in range(2))
    (first + second).backward()
    assert torch.equal(first, second)
    assert all(weight.grad is None for weight in teacher.parameters())
    assert all(torch.equal(weight, before[name]) for name, weight in teacher.state_dict().items())


def test_rows_that_only_one_vocabulary_has_are_not_compared() -> None:
    teacher, model = models()
    wider = MaskedLM(replace(STUDENT, vocab=48))
    weights = {
        name: functional.pad(weight, (0, 0) * (weight.ndim - 1) + (0, 8)) if weight.shape[:1] == (40,) else weight
        for name, weight in student_of(model).state_dict().items()
    }
    wider.load_state_dict(weights)
    loss = DistillingLoss(teacher, LossWeights(mlm=0.0, cosine=0.0))
    torch.testing.assert_close(loss(DistilledLM(wider), batch())[0], loss(model, batch())[0])


def test_a_student_of_layers_has_exactly_the_teachers_weights() -> None:
    torch.manual_seed(3)
    teacher = MaskedLM(TEACHER)
    student = select_layers(teacher, [0, 3])
    assert student.encoder.config == replace(TEACHER, layers=2)
    assert all(weight.requires_grad for weight in student.parameters())
    held = teacher.state_dict()
    for name, weight in student.state_dict().items():
        original = held[name.replace("layers.1.", "layers.3.")]
        assert torch.equal(weight, original), name
        assert weight.data_ptr() != original.data_ptr(), name


def test_a_student_of_all_layers_is_the_teacher() -> None:
    torch.manual_seed(3)
    teacher = MaskedLM(TEACHER).eval()
    student = select_layers(teacher, range(4)).eval()
    given = batch()
    logits = [model(given.ids_T, given.packing, given.positions_M) for model in (teacher, student)]
    assert torch.equal(*logits)


def test_every_second_layer() -> None:
    assert every_nth(12, 2) == (0, 2, 4, 6, 8, 10)


@pytest.mark.parametrize("layers", [[], [0, 4], [-1, 0]])
def test_layers_the_teacher_lacks_are_refused(layers: list[int]) -> None:
    with raises(UsageError, code="missing-layer", value=layers):
        select_layers(MaskedLM(TEACHER), layers)


def test_layers_that_would_see_something_else_are_refused() -> None:
    modern = replace(preset("modernbert-base", vocab=40), layers=6, hidden_size=16, heads=2, intermediate_size=16)
    teacher = MaskedLM(modern)
    with raises(UsageError, code="layer-mismatch", value=(3, 2)):
        select_layers(teacher, [0, 2, 3])
    with raises(UsageError, code="layer-mismatch", value=(3, 0)):
        select_layers(teacher, [3, 4, 5])
    assert len(select_layers(teacher, [0, 4, 5]).encoder.layers) == 3
