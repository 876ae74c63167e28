"""The description is true: requests made from it, right and wrong, get answers that it names, and never a 500."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance
from services import Serving, library

from lexome.infer.annotator import Annotator


def test_every_route_is_described(client: httpx.Client) -> None:
    held = client.get("/openapi.json").json()
    assert set(held["paths"]) == {
        "/annotate",
        "/ask",
        "/classify",
        "/health",
        "/healthz",
        "/metrics",
        "/model",
        "/plain",
        "/publications/export/{form}",
        "/pubmed/{ids}",
        "/ready",
        "/readyz",
        "/reload",
        "/search",
        "/search/ask",
    }
    body = held["paths"]["/annotate"]["post"]["requestBody"]["content"]
    assert set(body) == {"application/json", "text/plain", "application/octet-stream"}
    assert "Document" in held["components"]["schemas"]
    assert set(held["components"]["schemas"]["Problem"]["properties"]) == {"error"}


BARE = ("health", "metrics", "model", "ready")
ASKED = ("annotate", "ask", "classify", "plain", "publications", "pubmed")
RIGHT, WRONG = schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE
# /classify takes what /annotate takes; of /pubmed nothing that is no path can be asked.
CASES = [(name, RIGHT) for name in (*BARE, *ASKED)]
CASES += [(name, WRONG) for name in ASKED if name not in ("classify", "pubmed")]

QUICKLY = settings(deadline=None, suppress_health_check=list(HealthCheck), database=None, derandomize=True)


@pytest.fixture(scope="module")
def described(serving: Serving, everything: Annotator) -> Iterator[dict[str, Any]]:
    """The operations of a service that can do everything, by name."""
    with serving(everything, library=library()) as client:
        schema = schemathesis.openapi.from_url(f"{client.base_url}/openapi.json")
        found = [result.ok() for result in schema.get_all_operations()]
        yield {str(operation.definition.raw["operationId"]).partition("_")[0]: operation for operation in found}


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_no_request_that_can_be_made_from_it_breaks_the_service(
    described: dict[str, Any], name: str, mode: schemathesis.GenerationMode
) -> None:
    @settings(QUICKLY, max_examples=15 if mode is RIGHT else 8)
    @given(case=described[name].as_strategy(generation_mode=mode))
    def ask(case: schemathesis.Case) -> None:
        # A mention that is not in its text fits the description, and is refused.
        case.call_and_validate(excluded_checks=[positive_data_acceptance])

    ask()
