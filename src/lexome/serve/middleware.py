"""What every request passes: who asks, the token, how much there is at once, security headers, and the count of it."""

import hmac
import json
import time
from collections.abc import Sequence
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lexome.errors import UsageError
from lexome.serve.limits import Limits, RequestError
from lexome.serve.metrics import Metrics

_LOCAL = ("localhost", "127.0.0.1", "::1")


class Callers:
    """The pages elsewhere that may ask, by their origins, and the names by which the service may be asked for."""

    def __init__(self, origins: Sequence[str], hosts: Sequence[str] | None) -> None:
        for origin in origins:
            _check_origin(origin)
        self.origins = frozenset(origins)
        named = (urlsplit(origin).hostname or "" for origin in origins)
        self._hosts = None if hosts is None else frozenset((*hosts, *named))

    def origin(self, headers: Headers) -> str | None:
        """The origin of the page that asks, if it is one that is named."""
        origin = headers.get("origin") if self.origins else None
        return origin if origin in self.origins else None

    def refusal(self, method: str, headers: Headers) -> str | None:
        """Why a request is not answered, or None."""
        host = headers.get("host", "")
        if self._hosts is not None and _name(host) not in self._hosts:
            return (
                f"the service is asked for as {host[:100]!r}; expected a name of its own machine. Start it with a "
                "token, or name the page with --allow-origin."
            )
        if self.origin(headers) is None and _is_foreign(method, headers):
            return "a page of another origin asks; expected none. Name its origin with --allow-origin if it may."
        return None


def local_names(host: str) -> tuple[str, ...] | None:
    """The names of this machine, where `host` is an address that no other one reaches; else None."""
    try:
        is_local = host in _LOCAL or ip_address(host).is_loopback
    except ValueError:
        is_local = False
    return (*_LOCAL, host) if is_local else None


def _is_foreign(method: str, headers: Headers) -> bool:
    """Whether a page of another origin asks, and not a reader who follows a link."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        follows = method == "GET" and headers.get("sec-fetch-mode") == "navigate"
        return site in ("cross-site", "same-site") and not follows
    # Browsers say so only to this machine and over TLS.
    origin = headers.get("origin")
    return origin is not None and origin.partition("://")[2] != headers.get("host")


def _name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _check_origin(origin: str) -> None:
    scheme, mark, rest = origin.partition("://")
    if scheme not in ("http", "https") or not mark or not rest or set("/?#*@ ") & set(rest):
        raise UsageError(f"{origin!r} is no origin; expected a scheme and a name alone, such as https://lab.example")


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
OPEN = ("/", "/health", "/ready")
_STATIC = "/static/"
# A larger answer is held until its client has taken it; a smaller one fits into the system's buffers.
_LARGE = 1 << 16


class Gate:
    """An ASGI application around another one."""

    def __init__(self, app: ASGIApp, *, limits: Limits, metrics: Metrics, token: str | None, callers: Callers) -> None:
        self.app, self.limits, self.metrics = app, limits, metrics
        self._token = _checked(token).encode() if token is not None else None
        self.callers = callers
        self.held = 0  # bytes of bodies and answers, of all open requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.perf_counter()
        passing = _Passing(self, receive, send, Headers(scope=scope))
        self.metrics.in_flight += 1
        try:
            refusal = self._refusal(scope, passing.headers)
            if refusal is not None:
                await _refuse(passing.send, *refusal)
            else:
                await self.app(scope, passing.receive, passing.send)
        finally:
            self.held -= passing.held
            self.metrics.in_flight -= 1
            self.metrics.add(_route(scope), passing.status, time.perf_counter() - began)

    def _refusal(self, scope: Scope, headers: Headers) -> tuple[int, str, dict[str, str]] | None:
        """Why a request is not let in: status, reason, headers."""
        path, method = scope["path"], scope["method"]
        is_open = path in OPEN or path.startswith(_STATIC)
        if not is_open and self.metrics.in_flight > self.limits.requests:
            reason = f"{self.limits.requests:,} requests are open already, and no more may be. Try again in 1 s."
            return 429, reason, {"retry-after": "1"}
        if not is_open and (foreign := self.callers.refusal(method, headers)) is not None:
            return 403, foreign, {}
        if method == "OPTIONS" and self.callers.origin(headers) is not None:
            return 204, "", {}
        if is_open or self._may_enter(headers):
            return None
        reason = "no token, or a wrong one; expected the header `Authorization: Bearer TOKEN`."
        return 401, reason, {"www-authenticate": "Bearer"}

    def _may_enter(self, headers: Headers) -> bool:
        if self._token is None:
            return True
        given = headers.get("authorization", "")
        kind, _, token = given.partition(" ")
        # In a time that does not tell how much of it was right.
        return kind.lower() == "bearer" and hmac.compare_digest(token.strip().encode(), self._token)

    def add_headers(self, headers: MutableHeaders, origin: str | None) -> None:
        """Give an answer what every answer has, and one to a page elsewhere what its browser asks for."""
        for name, held in _HEADERS.items():
            headers.setdefault(name, held)
        headers.setdefault("cache-control", "no-store")
        if self.callers.origins:
            headers.add_vary_header("Origin")
        if origin is not None:
            headers["access-control-allow-origin"] = origin
            headers["access-control-allow-methods"] = "GET, POST"
            headers["access-control-allow-headers"] = "authorization, content-type"
            headers["access-control-expose-headers"] = "retry-after, lexome-unknown"
            headers["cross-origin-resource-policy"] = "cross-origin"


class _Passing:
    """One request on its way through: its status, and the bytes of it that are held."""

    def __init__(self, gate: Gate, receive: Receive, send: Send, headers: Headers) -> None:
        self.gate, self.headers = gate, headers
        self.status, self.held = 500, 0
        self._receive, self._send = receive, send

    async def receive(self) -> Message:
        """A part of the body; RequestError where too much is held already."""
        message = await self._receive()
        size = len(message.get("body", b""))
        self._hold(size)
        most = self.gate.limits.held_bytes
        # What nothing else is held beside is taken: it has bounds of its own.
        if size and self.gate.held > most and self.gate.held > self.held:
            reason = f"{most:,} bytes of requests are held already, and no more may be. Try again in 1 s."
            raise RequestError(429, reason, retry_after_s=1)
        return message

    async def send(self, message: Message) -> None:
        """A part of the answer; a large one is held until the client has taken it."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.gate.add_headers(MutableHeaders(scope=message), self.gate.callers.origin(self.headers))
        elif len(body := message.get("body", b"")) > _LARGE:
            self._hold(len(body))
            await self._send({**message, "more_body": True})
            # Before what comes next, the server waits.
            message = {**message, "body": b""}
        await self._send(message)

    def _hold(self, size: int) -> None:
        self.held += size
        self.gate.held += size


def _checked(token: str) -> str:
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError("the token is empty, or not one word of ASCII; expected letters, digits and signs. Change it.")
    return token


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
