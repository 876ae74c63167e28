"""The Ray engine makes the bytes that the local one makes, also when workers or a node die under it."""

import os
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import bulk
import pytest
from patience import wait_until

from lexome.pipeline import Engine, StageResult, run

ray = pytest.importorskip("ray", reason="Ray is not installed (the extra 'cluster')")

# Ray leaves sockets and processes of its own to the garbage collector, and announces changes to come.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning")

TEXTS = {f"abstract{n}": f"p53 and MDM2, {n}. " * 8 * n for n in range(1, 13)}


@pytest.fixture(autouse=True)
def _works_found_by_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(bulk.__file__).parent), prepend=os.pathsep)


def beside(folder: Path) -> Path:
    """Another place for outputs and marks of the same inputs."""
    other = folder.with_name("ray")
    other.mkdir()
    (other / "in").symlink_to(folder / "in")
    return other


def test_a_cluster_of_its_own_does_what_processes_do_and_is_ended(tmp_path: Path) -> None:
    local = bulk.texts(tmp_path / "local", {"bad": "RAISE", "deadly": "EXIT", **TEXTS})
    alone = run(bulk.stage(local, bulk.choke_on_poison), engine=Engine(workers=2))
    folder = beside(local)
    outcome = run(bulk.stage(folder, bulk.choke_on_poison), engine=Engine("ray", workers=2))
    assert (outcome.reports, bulk.made(folder)) == (alone.reports, bulk.made(local))
    assert outcome.failures["texts/bad"] == alone.failures["texts/bad"]
    assert outcome.failures["texts/deadly"].startswith("lost its worker or node 4 times")
    assert not ray.is_initialized()


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A cluster on this machine, with a first node that does no jobs."""
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    yield made
    made.shutdown()


@pytest.mark.nightly
def test_jobs_of_a_node_that_dies_are_done_by_another(tmp_path: Path, cluster: Any) -> None:
    local = bulk.texts(tmp_path / "local", TEXTS)
    gate = tmp_path / "gate"
    local_stage = bulk.stage(local, bulk.wait_at_gate, settings=gate)
    folder = beside(local)
    stage = bulk.stage(folder, bulk.wait_at_gate, settings=gate)
    node = cluster.add_node(num_cpus=2)
    outcomes: list[StageResult] = []
    engine = Engine("ray", address=cluster.address)
    running = Thread(target=lambda: outcomes.append(run(stage, engine=engine)))
    running.start()
    # The other jobs wait for the gate, which opens when the node is dead.
    wait_until(lambda: marks(folder) == 2)
    cluster.remove_node(node, allow_graceful=False)
    gate.touch()
    cluster.add_node(num_cpus=2)
    running.join()
    run(local_stage, engine=Engine(workers=2))
    assert (outcomes[0].failures, bulk.made(folder)) == ({}, bulk.made(local))


def marks(folder: Path) -> int:
    return len(list((folder / "marks" / "texts").glob("abstract*.json")))
