"""Routes for who runs the service: is it alive, does it take work, what has it done."""

from typing import cast

from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.responses import JSONResponse, Response

from lexome.serve.limits import Refused
from lexome.serve.metrics import MEDIA_TYPE
from lexome.serve.schemas import problems
from lexome.serve.service import Service

router = APIRouter(tags=["state"])


class State(BaseModel):
    """One word."""

    status: str


def service_of(request: Request) -> Service:
    """The service that a request is for."""
    return cast(Service, request.app.state.service)


@router.get("/health", response_model=State)
async def health() -> Response:
    """Whether the service lives."""
    return JSONResponse({"status": "alive"})


@router.get("/ready", response_model=State, responses=problems(503))
async def ready(request: Request) -> Response:
    """Whether it takes work: its models are loaded, and it is not stopping."""
    if not service_of(request).ready:
        raise Refused(503, "the service is starting or stopping. Try again.", retry_after_s=1)
    return JSONResponse({"status": "ready"})


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def metrics(request: Request) -> Response:
    """Counts and times for Prometheus."""
    service = service_of(request)
    return Response(service.metrics.text(service.queue), media_type=MEDIA_TYPE)
