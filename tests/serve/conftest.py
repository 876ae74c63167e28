"""A service on a port of its own, with models whose words are known."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from dictionary_models import dictionary_model
from patience import PATIENCE_S
from services import Serving, library, patient_limits, running, table_model

from lexome.infer.annotator import Annotator
from lexome.serve.limits import Limits
from lexome.serve.server import make_app
from lexome.tasks import Classes, Questions, Relations


@pytest.fixture(scope="session")
def ner_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return dictionary_model(tmp_path_factory.mktemp("serve") / "words")


@pytest.fixture(scope="session")
def annotator(ner_folder: Path) -> Annotator:
    return Annotator.open(ner_folder, threads=1)


@pytest.fixture(scope="session")
def all_folders(tmp_path_factory: pytest.TempPathFactory, ner_folder: Path) -> list[Path]:
    """Models that find, relate, classify and answer."""
    root = tmp_path_factory.mktemp("tables")
    relations = Relations(["no", "raises"], none="no", pairs=[("Gene", "Disease")])
    return [
        ner_folder,
        table_model(root / "relations", relations, {"@gene$": 1}),
        table_model(root / "classes", Classes(["good", "bad"]), {"good": 0, "bad": 1}),
        table_model(root / "answers", Questions("factoid"), {"olaparib": 0, "cancer": 1}),
    ]


@pytest.fixture(scope="session")
def everything(all_folders: list[Path]) -> Annotator:
    return Annotator.open(*all_folders, threads=1)


@pytest.fixture(scope="session")
def serving() -> Serving:
    """A function that starts a service around an annotator and gives a client of it."""

    @contextmanager
    def start(annotator: Annotator, limits: Limits | None = None, **options: Any) -> Iterator[httpx.Client]:
        limits = limits or patient_limits(stop_s=5)
        app = make_app(annotator, limits=limits, threads=options.pop("threads", 2), **options)
        client = httpx.Client(timeout=PATIENCE_S)
        with running(app, limits) as port, client:
            client.base_url = httpx.URL(f"http://127.0.0.1:{port}")
            yield client

    return start


@pytest.fixture(scope="module")
def client(serving: Serving, annotator: Annotator) -> Iterator[httpx.Client]:
    """A client of a service that finds mentions."""
    with serving(annotator, library=library()) as made:
        yield made


@pytest.fixture(scope="module")
def full_client(serving: Serving, everything: Annotator) -> Iterator[httpx.Client]:
    """A client of a service that finds, relates, classifies and answers."""
    with serving(everything) as made:
        yield made


@pytest.fixture
def wire(client: httpx.Client) -> Iterator[socket.socket]:
    """A bare connection to the same service."""
    with socket.create_connection((client.base_url.host, client.base_url.port or 0), timeout=PATIENCE_S) as made:
        yield made
