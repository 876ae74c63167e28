"""ASGI middleware around every request: its id, metrics, log, memory limit, security headers; access control."""

import hmac
import json
import logging
import re
import time
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lexome.errors import UsageError
from lexome.serve.limits import Limits, RequestError
from lexome.serve.service import Metrics

_LOCAL = ("localhost", "127.0.0.1", "::1")
# Open without a token: for monitoring, and for the page, which asks its user for the token.
STATE_PATHS = ("/health", "/healthz", "/ready", "/readyz")
OPEN_PATHS = ("/", "/docs", *STATE_PATHS)
_STATIC = "/static/"

# Key of the request's id in its scope, and what an id that a proxy sends may be.
REQUEST_ID = "lexome.request_id"
_GIVEN_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
# One line of JSON for each request, without anything of its text or its query.
access_log = logging.getLogger("lexome.access")

# Everything comes from this service; the page cannot be framed and sends nothing elsewhere.
_SECURITY_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
}
# A larger response stays in memory until its client has read it; a smaller one fits into the system's buffers.
_LARGE_BYTES = 1 << 16


class Gate:
    """Counts and logs requests, limits the bytes held by all of them together, and adds id and security headers.

    `reload` opens the models again, from any thread.
    """

    def __init__(
        self, app: ASGIApp, *, limits: Limits, metrics: Metrics, reload: Callable[[], None] = lambda: None
    ) -> None:
        self.app, self.limits, self.metrics, self.reload = app, limits, metrics, reload
        self.held_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        exchange = _Exchange(self, scope, receive, send)
        start = time.perf_counter()
        self.metrics.in_flight += 1
        try:
            await self.app(exchange.scope, exchange.receive, exchange.send)
        finally:
            self.held_bytes -= exchange.held_bytes
            self.metrics.in_flight -= 1
            seconds = time.perf_counter() - start
            self.metrics.add(exchange.path, exchange.status, seconds)
            # Monitors ask a healthy service for its state every few seconds.
            if access_log.isEnabledFor(logging.INFO) and not (exchange.path in STATE_PATHS and exchange.status == 200):
                access_log.info(json.dumps(exchange.as_dict(seconds)))


class _Exchange:
    """One request and its response, as they pass the gate.

    scope       of the request, for the application
    held_bytes  bytes of this exchange that the gate counts
    """

    def __init__(self, gate: Gate, scope: Scope, receive: Receive, send: Send) -> None:
        self._gate, self._receive, self._send = gate, receive, send
        given = Headers(scope=scope).get("x-request-id", "")
        self.id = scope[REQUEST_ID] = given if _GIVEN_ID.fullmatch(given) else uuid.uuid4().hex
        # HEAD is answered like GET, without the body: monitors and link checkers use it.
        self.method = scope["method"]
        self.scope = {**scope, "method": "GET"} if self.method == "HEAD" else scope
        self.status = 500
        self.held_bytes = self.received = self.sent = 0

    @property
    def path(self) -> str:
        """The path of the route, so that metrics have no more labels than there are routes."""
        other = _STATIC if self.scope["path"].startswith(_STATIC) else "other"
        return getattr(self.scope.get("route"), "path", other)

    async def receive(self) -> Message:
        """The next part of the request; RequestError if too many bytes of all requests are held."""
        message = await self._receive()
        size = len(message.get("body", b""))
        self.received += size
        self._hold(size)
        limit, held = self._gate.limits.held_bytes, self._gate.held_bytes
        # A request is accepted if no other is held: it has its own limit.
        if size and held > limit and held > self.held_bytes:
            reason = f"{limit:,} bytes of requests are held, which is the limit. Retry in 1 s."
            raise RequestError(429, reason, retry_after_s=1)
        return message

    async def send(self, message: Message) -> None:
        """Send a part of the response, with id and security headers; the body of an answer to HEAD is left out."""
        if self.method == "HEAD" and message["type"] == "http.response.body":
            message = {**message, "body": b""}
        self.sent += len(message.get("body", b""))
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers["x-request-id"] = self.id
            for name, value in _SECURITY_HEADERS.items():
                headers.setdefault(name, value)
        elif len(body := message.get("body", b"")) > _LARGE_BYTES:
            self._hold(len(body))
            await self._send({**message, "more_body": True})
            # The server waits for the client before it accepts the next part.
            message = {**message, "body": b""}
        await self._send(message)

    def as_dict(self, seconds: float) -> dict[str, object]:
        """The line of the access log."""
        return {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "id": self.id,
            "client": (self.scope.get("client") or ("-",))[0],
            "method": self.method,
            "path": self.path,
            "status": self.status,
            "seconds": round(seconds, 4),
            "bytes_in": self.received,
            "bytes_out": self.sent,
        }

    def _hold(self, size: int) -> None:
        self.held_bytes += size
        self._gate.held_bytes += size


class AccessControl:
    """Refuses requests without the token, from web pages of other origins, for other hosts, or beyond the limit."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        limits: Limits,
        metrics: Metrics,
        token: str | None,
        origins: Sequence[str],
        hosts: Sequence[str] | None,
    ) -> None:
        for origin in origins:
            scheme, separator, rest = origin.partition("://")
            if scheme not in ("http", "https") or not separator or not rest or set("/?#*@ ") & set(rest):
                message = f"{origin!r} is not an origin; expected scheme and host only, such as https://lab.example"
                raise UsageError(message, code="invalid-origin", value=origin)
        if token is not None and (not token or not token.isascii() or not token.isprintable() or " " in token):
            message = "the token is empty or not printable ASCII without spaces. Choose another."
            raise UsageError(message, code="invalid-token")
        self.app, self.limits, self.metrics = app, limits, metrics
        self._token = None if token is None else token.encode()
        self._origins = frozenset(origins)
        origin_hosts = (urlsplit(origin).hostname or "" for origin in origins)
        self._hosts = None if hosts is None else frozenset((*hosts, *origin_hosts))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        app = self.app if refusal is None else refusal
        await app(scope, receive, send)

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        path, headers = scope["path"], Headers(scope=scope)
        if path in OPEN_PATHS or path.startswith(_STATIC):
            return None
        if self.metrics.in_flight > self.limits.requests:
            reason = f"{self.limits.requests:,} requests are open, which is the limit. Retry in 1 s."
            return JSONResponse({"error": reason}, 429, {"retry-after": "1"})
        host = headers.get("host", "")
        if self._hosts is not None and _host_name(host) not in self._hosts:
            reason = f"requests for host {host[:100]!r} are refused. Set a token, or list the page with --allow-origin."
            return JSONResponse({"error": reason}, 403)
        if headers.get("origin") not in self._origins and _is_cross_site(scope["method"], headers):
            reason = "requests from web pages of other origins are refused. List the origin with --allow-origin."
            return JSONResponse({"error": reason}, 403)
        scheme, _, token = headers.get("authorization", "").partition(" ")
        # In constant time, which does not reveal how much of it was right.
        if self._token is None or (
            scheme.lower() == "bearer" and hmac.compare_digest(token.strip().encode(), self._token)
        ):
            return None
        reason = "no token, or a wrong one; expected the header `Authorization: Bearer TOKEN`."
        return JSONResponse({"error": reason}, 401, {"www-authenticate": "Bearer"})


def local_names(host: str) -> tuple[str, ...] | None:
    """The host names of this machine, if `host` is a loopback address; else None."""
    try:
        is_local = host in _LOCAL or ip_address(host).is_loopback
    except ValueError:
        is_local = False
    return (*_LOCAL, host) if is_local else None


def _is_cross_site(method: str, headers: Headers) -> bool:
    """Whether a page of another origin sends the request, and not a user who follows a link."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        follows_link = method == "GET" and headers.get("sec-fetch-mode") == "navigate"
        return site in ("cross-site", "same-site") and not follows_link
    # Browsers send Sec-Fetch-Site only to this machine and over TLS.
    origin = headers.get("origin")
    return origin is not None and origin.partition("://")[2] != headers.get("host")


def _host_name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
