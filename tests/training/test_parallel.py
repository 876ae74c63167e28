"""Two or four processes train as one does: the same losses, norms and weights, and states that any number reads."""

from pathlib import Path
from typing import Any

import pytest
import torch
from errors import raises
from many_processes import ALONE, MODERN, STEPS, Case, Running, alone, cases_work, steps, together
from patience import NIGHTLY

from lexome.errors import CheckpointError, UsageError
from lexome.training.memory import Load, memory
from lexome.training.parallel import Parallel, Sizes, check_fits, device_of, encoder_of, join_processes, sizes_of
from lexome.training.trainer import list_states, remove_drafts

# Each has a feature of its own: pairs of sentences, gated layers without biases and a vocabulary that two do not
# divide, Muon, a teacher.
TWO = [
    Case("data", Sizes(data=2)),
    Case("shard", Sizes(shard=2), paired=True),
    Case("tensor", Sizes(tensor=2), paired=True),
    Case("shard_muon", Sizes(shard=2), config=MODERN, optimizer="muon"),
    Case("tensor_muon", Sizes(tensor=2), config=MODERN, optimizer="muon"),
    Case("data_taught", Sizes(data=2), taught=True),
    Case("shard_taught", Sizes(shard=2), taught=True),
    Case("tensor_taught", Sizes(tensor=2), taught=True),
]
# Products in bfloat16, which no two orders of adding up agree on to five places.
HALF = Case("shard_half", Sizes(shard=2), half=True)
FOUR = [Case("shard_tensor", Sizes(shard=2, tensor=2)), Case("data_tensor", Sizes(data=2, tensor=2), config=MODERN)]
CASES = [*TWO, *FOUR]

Made = dict[str, dict[str, Any]]


def compared(cases: list[Case], count: int, folder: Path) -> Made:
    """What each case gives in one process and in many, and the folder of their states."""
    singles = {case.name: alone(case, folder) for case in cases}
    together(count, cases_work, cases, folder)
    ranks = [torch.load(folder / f"rank-{rank}.pt") for rank in range(count)]
    return {
        name: {"alone": one, "many": torch.load(folder / f"{name}.pt"), "folder": folder, "ranks": ranks}
        for name, one in singles.items()
    }


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return compared([*TWO, HALF], 2, tmp_path_factory.mktemp("two"))


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Made:
    if not NIGHTLY:
        pytest.skip("four processes on two cores take half a minute: only by make nightly")
    return compared(FOUR, 4, tmp_path_factory.mktemp("four"))


@pytest.fixture
def made(request: pytest.FixtureRequest, case: Case) -> dict[str, Any]:
    return request.getfixturevalue("two" if case in TWO else "four")[case.name]


each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def assert_same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> None:
    assert left.keys() == right.keys()
    for name, weight in left.items():
        assert torch.allclose(weight, right[name], rtol=1e-5, atol=1e-5), name


@each_case
def test_losses_and_norms_are_those_of_one_process(case: Case, made: dict[str, Any]) -> None:
    expected, seen = made["alone"]["seen"], made["many"]["seen"]
    assert seen.keys() == expected.keys() >= {"loss", "norm", "word_loss", "word_right"}
    for name, values in expected.items():
        assert len(values) == STEPS
        assert seen[name] == pytest.approx(values, rel=1e-5, abs=1e-5), name
    # Clipping is at work in every step, so that a wrong norm would show in the weights.
    assert min(seen["norm"]) > 0.5


@each_case
def test_weights_are_those_of_one_process(case: Case, made: dict[str, Any]) -> None:
    assert_same(made["alone"]["weights"], made["many"]["weights"])


@each_case
def test_many_processes_go_on_from_the_state_of_one(case: Case, made: dict[str, Any]) -> None:
    assert made["many"]["notes"] == {"said": "so"}
    assert_same(made["alone"]["weights"], made["many"]["resumed"])


@each_case
def test_one_process_goes_on_from_the_state_of_many(case: Case, made: dict[str, Any]) -> None:
    running = Running(case, ALONE)
    running.restore(made["folder"] / "together" / case.name / "step-00000003")
    assert running.position.place.at == 3
    running.train()
    assert_same(made["alone"]["weights"], running.weights())


def test_bfloat16_is_for_computing_and_weights_are_kept_in_float32(two: Made) -> None:
    alone, many = two[HALF.name]["alone"], two[HALF.name]["many"]
    assert many["seen"]["loss"] == pytest.approx(alone["seen"]["loss"], rel=0.02)
    assert {weight.dtype for weight in many["weights"].values()} == {torch.float32}
    # Weights that a step changed by less than bfloat16 can tell.
    changed = many["weights"]["head.norm.weight"]
    assert not torch.equal(changed, changed.bfloat16().float())


def test_copies_are_whole_shards_are_halves_and_cut_models_keep_their_norms(two: Made) -> None:
    shares = {name: made["many"]["shares"] for name, made in two.items()}
    assert set(shares["data"].values()) == {1.0}
    assert set(shares["shard"].values()) == {0.5}
    halves = {name for name, share in shares["tensor"].items() if share == 0.5}
    layer = {"attention.qkv.weight", "attention.qkv.bias", "attention.out.weight"}
    layer |= {"mlp.up.weight", "mlp.up.bias", "mlp.down.weight"}
    assert halves == {f"encoder.layers.{number}.{name}" for number in (0, 1) for name in layer} | {
        "encoder.embed.tokens.weight",
        "head.bias",
    }
    # 49 pieces are not cut in two.
    assert shares["tensor_muon"]["encoder.embed.tokens.weight"] == 1.0


def test_four_processes_hold_a_quarter_each(four: Made) -> None:
    shares = four["shard_tensor"]["many"]["shares"]
    assert shares["encoder.layers.0.mlp.up.weight"] == 0.25
    assert shares["encoder.layers.0.mlp_norm.weight"] == 0.5


@pytest.mark.parametrize("case", FOUR, ids=lambda case: case.name)
def test_a_process_holds_what_the_formula_says(case: Case, four: Made) -> None:
    shares = four[case.name]["many"]["shares"]
    weights = four[case.name]["alone"]["weights"]
    numbers = sum(shares[name] * weight.numel() for name, weight in weights.items())
    assert memory(case.config, Load(1, 1), case.sizes).weights == 4 * numbers


def test_dropout_differs_between_replicas_and_not_in_a_tensor_group(two: Made) -> None:
    first, second = two["data"]["ranks"]
    assert first["data"] != second["data"]
    assert first["tensor"] == second["tensor"]


def test_all_processes_have_the_first_ones_time(two: Made) -> None:
    assert [rank["clock"] for rank in two["data"]["ranks"]] == [100.0, 100.0]


def test_processes_agree_only_where_all_do(two: Made) -> None:
    for rank in two["data"]["ranks"]:
        assert (rank["all_first"], rank["all_there"]) == (False, True)


def test_replicas_share_the_passes_of_a_step() -> None:
    step = next(steps(CASES[0], passes=4))
    parallel = Parallel(Sizes(data=2), torch.device("cpu"))
    own = parallel.own_batches(step)
    assert [batch.masked for batch in own.batches] == [1, 9]
    assert {batch.masked_of_step for batch in own.batches} == {28}
    assert (own.tokens, own.after) == (step.tokens, step.after)
    with raises(UsageError, code="uneven-batches", value=3):
        parallel.own_batches(next(steps(CASES[0], passes=3)))


def test_alone_nothing_changes() -> None:
    with join_processes(device="cpu", environment={}) as parallel:
        model = torch.nn.Linear(2, 2)
        step = next(steps(CASES[0]))
        random = torch.get_rng_state()
        parallel.seed(5)
        assert torch.equal(torch.get_rng_state(), random)
        assert parallel.first
        assert parallel.wrap(model, MODERN) is model
        assert parallel.own_batches(step) == step
        assert parallel.clock(lambda: 3.0)() == 3.0


@pytest.mark.parametrize(
    ("table", "started", "sizes"),
    [
        ({}, 1, Sizes()),
        ({}, 8, Sizes(data=8)),
        ({"shard": 4}, 8, Sizes(data=2, shard=4)),
        ({"data": 1, "shard": 2, "tensor": 4}, 8, Sizes(shard=2, tensor=4)),
    ],
)
def test_what_is_not_said_is_data(table: dict[str, int], started: int, sizes: Sizes) -> None:
    assert sizes_of({"WORLD_SIZE": str(started)}, **table) == sizes


@pytest.mark.parametrize(("table", "started"), [({"tensor": 2}, 1), ({"tensor": 4}, 6), ({"data": 2}, 4)])
def test_another_number_of_processes_is_refused(table: dict[str, int], started: int) -> None:
    with raises(UsageError, code="wrong-world-size", value=started):
        sizes_of({"WORLD_SIZE": str(started)}, **table)


def test_gpus_that_are_not_there_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with raises(UsageError, code="no-gpu", value="cuda"):
        device_of("cuda", {})
    for device in ("auto", "cpu"):
        with raises(UsageError, code="no-gpu", value="nccl"):
            device_of(device, {}, backend="nccl")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert device_of("auto", {"LOCAL_RANK": "1"}) == (torch.device("cuda", 1), "nccl")
    with raises(UsageError, code="too-many-processes", value=2):
        device_of("auto", {"LOCAL_RANK": "2"})


def test_heads_and_inner_width_have_to_divide() -> None:
    check_fits(MODERN, tensor=4)
    with raises(UsageError, code="uneven-split", value="heads"):
        check_fits(MODERN, tensor=3)


def test_a_model_without_our_encoder_is_refused() -> None:
    with raises(UsageError, code="unsupported-parallelism", value="Linear"):
        encoder_of(torch.nn.Linear(2, 2))


def test_a_state_of_another_run_or_a_damaged_one_is_refused(tmp_path: Path) -> None:
    running = Running(CASES[0], ALONE)
    running.train(1)
    path = running.save(tmp_path)
    (tmp_path / ".step-00000009.part").mkdir()
    assert list_states(tmp_path) == [path]
    remove_drafts(tmp_path)
    assert [found.name for found in tmp_path.iterdir()] == ["step-00000001"]
    with raises(UsageError, code="other-settings"):
        running.restore(path, identity="that")
    next(path.glob("*.distcp")).write_bytes(b"")
    with raises(CheckpointError, code="damaged-state"):
        running.restore(path)


def test_only_the_newest_states_are_kept(tmp_path: Path) -> None:
    running = Running(CASES[0], ALONE)
    for until in (1, 2):
        running.train(until)
        running.save(tmp_path)
    assert [path.name for path in list_states(tmp_path)] == ["step-00000002"]


def test_loading_into_new_optimizers_changes_no_weight() -> None:
    for kind in ("adamw", "muon"):
        running = Running(Case("new", Sizes(), optimizer=kind), ALONE)
        before = running.weights()
        running.optimizers.initialize_state()
        after = running.weights()
        assert all(torch.equal(before[name], after[name]) for name in before)
        assert sum(len(part.state) for part in running.optimizers.parts) == len(running.optimizers.masters)
