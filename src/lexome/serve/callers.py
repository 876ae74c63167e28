"""Who asks: a person or program, or a web page that was opened elsewhere and asks behind its reader's back.

A browser sends what any page tells it to, and to this machine as well. So a page of another origin is refused unless it
is named, whether or not it could read the answer. And where the service is for this machine alone, it answers only to
this machine's own names: a page whose own name was made to point here would pass for ours.
"""

from collections.abc import Sequence
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from lexome.errors import UsageError

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
