"""What every request passes: the token, the number of requests at once, security headers, and the count of it all."""

import hmac
import json
import time
from collections.abc import Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lexome.serve.limits import Limits
from lexome.serve.metrics import Metrics

# Everything comes from this service itself; nothing may frame the page or be sent elsewhere.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
# For who watches the service and has no token, and the page, which asks its user for one.
_OPEN = ("/", "/health", "/ready")
_STATIC = "/static/"


class Gate:
    """An ASGI application around another one."""

    def __init__(
        self, app: ASGIApp, *, limits: Limits, metrics: Metrics, token: str | None, origins: Sequence[str]
    ) -> None:
        self.app, self.limits, self.metrics = app, limits, metrics
        self._token = token.encode() if token is not None else None
        self._origins = frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.perf_counter()
        status = 500
        origin = self._origin(scope)

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                self._add_headers(MutableHeaders(scope=message), origin)
            await send(message)

        self.metrics.in_flight += 1
        try:
            refusal = self._refusal(scope)
            if refusal is not None:
                await _refuse(watched, *refusal)
            else:
                await self.app(scope, receive, watched)
        finally:
            self.metrics.in_flight -= 1
            self.metrics.add(_route(scope), status, time.perf_counter() - began)

    def _refusal(self, scope: Scope) -> tuple[int, str, dict[str, str]] | None:
        """Why a request is not let in: status, reason, headers."""
        path, method = scope["path"], scope["method"]
        is_open = path in _OPEN or path.startswith(_STATIC)
        if not is_open and self.metrics.in_flight > self.limits.requests:
            reason = f"{self.limits.requests:,} requests are open already, and no more may be. Try again in 1 s."
            return 429, reason, {"retry-after": "1"}
        if method == "OPTIONS" and self._origin(scope) is not None:
            return 204, "", {}
        if is_open or self._may_enter(scope):
            return None
        reason = "no token, or a wrong one; expected the header `Authorization: Bearer TOKEN`."
        return 401, reason, {"www-authenticate": "Bearer"}

    def _may_enter(self, scope: Scope) -> bool:
        if self._token is None:
            return True
        given = Headers(scope=scope).get("authorization", "")
        kind, _, token = given.partition(" ")
        # In a time that does not tell how much of it was right.
        return kind.lower() == "bearer" and hmac.compare_digest(token.strip().encode(), self._token)

    def _origin(self, scope: Scope) -> str | None:
        """The page of another origin that asks, if it is one of those allowed."""
        if not self._origins:
            return None
        origin = Headers(scope=scope).get("origin")
        return origin if origin in self._origins else None

    def _add_headers(self, headers: MutableHeaders, origin: str | None) -> None:
        for name, held in _HEADERS.items():
            headers.setdefault(name, held)
        headers.setdefault("cache-control", "no-store")
        if self._origins:
            headers.add_vary_header("Origin")
        if origin is not None:
            headers["access-control-allow-origin"] = origin
            headers["access-control-allow-methods"] = "GET, POST"
            headers["access-control-allow-headers"] = "authorization, content-type"
            headers["access-control-expose-headers"] = "retry-after, lexome-unknown"
            headers["cross-origin-resource-policy"] = "cross-origin"


async def _refuse(send: Send, status: int, reason: str, headers: dict[str, str]) -> None:
    body = json.dumps({"error": reason}).encode() if reason else b""
    named = {"content-type": "application/json", "content-length": str(len(body)), **headers} if body else headers
    raw = [(name.encode(), held.encode()) for name, held in named.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})


def _route(scope: Scope) -> str:
    """The route's own path, so that there are no more names than routes."""
    route = scope.get("route")
    path = getattr(route, "path", None)
    if path is None:
        return _STATIC if scope["path"].startswith(_STATIC) else "other"
    return str(path)
