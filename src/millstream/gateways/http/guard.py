"""Who may call: nobody has to log in, so web pages must not reach the broker through a browser.

A page of another site is known by the `Origin` and `Sec-Fetch-Site` that browsers send: it may not
write, nor open a WebSocket, unless its origin is one of `http.allowed.origins`. (A browser does not
show it the answers to what only reads.) A page
whose name was made to lead here after it was loaded (DNS rebinding) looks like one of ours; it is
known by the name that it calls the broker by. On a loopback address that has to be a name of
loopback, or one that `http.allowed.hosts` has.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from ipaddress import ip_address
from typing import NamedTuple

from starlette.types import Receive, Scope, Send

from millstream.gateways.http.cross_origin import CrossOrigin
from millstream.gateways.http.problems import plain_problem
from millstream.settings.domain import split_address
from millstream.settings.http import HttpSettings

_READING = {"GET", "HEAD", "OPTIONS"}
_ANY = "*"
_OURS = {b"same-origin", b"none"}
_MOST_KNOWN = 100
_PORT = re.compile(r":[0-9]*", re.ASCII)


class Complaint(NamedTuple):
    """Why a request is not carried out."""

    status: HTTPStatus
    detail: str


_FOREIGN = Complaint(
    HTTPStatus.FORBIDDEN,
    "a page of another site may not do this: send it from a program, or add the page's origin to "
    "http.allowed.origins",
)
_TWO_HOSTS = Complaint(HTTPStatus.BAD_REQUEST, "the request has several Host headers: expected one")


class Guard:
    """Looks at every request before it is carried out."""

    def __init__(self, settings: HttpSettings) -> None:
        host, _ = split_address(settings.listener) or ("", 0)
        self._names = settings.allowed_hosts
        self._origins = CrossOrigin(settings.allowed_origins)
        self._is_loopback = _is_loopback(host)
        self._is_open = _ANY in self._names or not (self._is_loopback or self._names)
        # Names that were fine before, as they stood in requests.
        self._known: set[bytes] = set()

    def complaint(self, scope: Scope) -> Complaint | None:
        """What is wrong with who sends a request; None if nothing is."""
        host = origin = b""
        hosts = 0
        site = b"none"
        for name, value in scope["headers"]:
            if name == b"host":
                host = value
                hosts += 1
            elif name == b"origin":
                origin = value
            elif name == b"sec-fetch-site":
                site = value
        if hosts > 1:
            return _TWO_HOSTS
        if not (self._is_open or host in self._known or self._is_called(host)):
            name = _name_of(host)
            return Complaint(
                HTTPStatus.FORBIDDEN,
                f"the broker is called {name[:100]!r} here, a name that it does not know: call it "
                f"localhost or by its address, or set http.allowed.hosts = {name[:100]!r}",
            )
        if scope["type"] == "http" and scope["method"] in _READING:
            return None
        if origin:
            is_own = origin.partition(b"://")[2] == host or _name_of_origin(origin) in self._names
            return None if is_own or self._origins.allows(origin) else _FOREIGN
        return None if site in _OURS else _FOREIGN

    def _is_called(self, host: bytes) -> bool:
        """Whether this is a name of ours. No name at all is that of no browser."""
        name = _name_of(host)
        is_ours = not name or name in self._names or _is_loopback(name)
        # An address is nobody's to point elsewhere.
        is_ours = is_ours or (not self._is_loopback and _is_address(name))
        if is_ours and len(self._known) < _MOST_KNOWN:
            self._known.add(host)
        return is_ours


async def refuse(complaint: Complaint, scope: Scope, receive: Receive, send: Send) -> None:
    """Tell why, also to who wants a WebSocket."""
    await plain_problem(*complaint)(scope, receive, send)


def _name_of(host: bytes) -> str:
    """A `Host` without its port, in lower case and without the dot that may end it."""
    text = host.decode("latin-1").strip().lower()
    if text.startswith("["):
        address, _, rest = text[1:].partition("]")
        # What stands behind it can only be a port; else all of it is a name, and none of ours.
        return address if not rest or _PORT.fullmatch(rest) else text
    return text.rpartition(":")[0].rstrip(".") if ":" in text else text.rstrip(".")


def _name_of_origin(origin: bytes) -> str:
    return _name_of(origin.partition(b"://")[2])


def _is_loopback(name: str) -> bool:
    if name == "localhost" or name.endswith(".localhost"):
        return True
    return _is_address(name) and ip_address(name).is_loopback


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
