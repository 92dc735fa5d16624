"""Pages of other origins that may use the broker: `http.allowed.origins`.

A browser asks before it lets such a page write (a preflight, `OPTIONS` with
`Access-Control-Request-Method`), and shows it only answers that name its origin. Nobody logs in, so
no credentials are allowed.
"""

from __future__ import annotations

from collections.abc import Collection

from starlette.datastructures import MutableHeaders
from starlette.types import Message, Scope, Send

ANY = "*"
_METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE"
_MAX_AGE_S = "600"
_EXPOSED = "Location, Retry-After"
_REQUEST_METHOD = b"access-control-request-method"
_REQUEST_HEADERS = b"access-control-request-headers"
_PRIVATE_NETWORK = b"access-control-request-private-network"


class CrossOrigin:
    """Knows the origins whose pages may use the broker."""

    def __init__(self, origins: Collection[str]) -> None:
        self._is_any = ANY in origins
        self._origins = frozenset(each.encode("latin-1") for each in origins)

    @property
    def has_any(self) -> bool:
        return bool(self._origins)

    def allows(self, origin: bytes) -> bool:
        """Whether pages of an origin may. `null`, that of files and sandboxes, counts for `*`."""
        return self._is_any or origin.lower() in self._origins

    def origin_of(self, scope: Scope) -> bytes:
        """The origin of the page that sends a request, if it is one that may; else nothing."""
        for name, value in scope["headers"]:
            if name == b"origin":
                return value if self.allows(value) else b""
        return b""


def is_preflight(scope: Scope) -> bool:
    if scope["method"] != "OPTIONS":
        return False
    return any(name == _REQUEST_METHOD for name, _ in scope["headers"])


async def answer_preflight(scope: Scope, send: Send, origin: bytes) -> None:
    """Allow what a page asks for, with whichever headers."""
    asked = dict(scope["headers"])
    headers = MutableHeaders()
    _name_origin(headers, origin)
    headers["access-control-allow-methods"] = _METHODS
    headers["access-control-max-age"] = _MAX_AGE_S
    if _REQUEST_HEADERS in asked:
        headers["access-control-allow-headers"] = asked[_REQUEST_HEADERS].decode("latin-1")
    if asked.get(_PRIVATE_NETWORK) == b"true":
        headers["access-control-allow-private-network"] = "true"
    await send({"type": "http.response.start", "status": 204, "headers": headers.raw})
    await send({"type": "http.response.body", "body": b""})


def naming_origin(send: Send, origin: bytes) -> Send:
    """Adds to an answer that pages of an origin may see it."""

    async def named(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=list(message.get("headers", ())))
            _name_origin(headers, origin)
            headers["access-control-expose-headers"] = _EXPOSED
            message = {**message, "headers": headers.raw}
        await send(message)

    return named


def _name_origin(headers: MutableHeaders, origin: bytes) -> None:
    headers["access-control-allow-origin"] = origin.decode("latin-1")
    headers.add_vary_header("Origin")
