"""Parameters of a query: a name that nothing has is refused, so that a typo is told."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine
from difflib import get_close_matches
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from millstream.errors import InvalidRequest

_LONGEST_SHOWN = 100


def check_parameters(connection: HTTPConnection, known: Collection[str]) -> None:
    """Raises InvalidRequest for the first that is not known here."""
    for name in connection.query_params:
        if name not in known:
            raise InvalidRequest(_complaint(name, known))


class StrictRoute(APIRoute):
    """A route that takes the parameters that it tells of, and no others."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        known = {field.alias for field in self.dependant.query_params}
        told = (self.openapi_extra or {}).get("parameters", ())
        known |= {each["name"] for each in told if each["in"] == "query"}

        async def strict(request: Request) -> Response:
            if request.scope["query_string"]:
                check_parameters(request, known)
            return await handle(request)

        return strict


def _complaint(name: str, known: Collection[str]) -> str:
    complaint = f"there is no parameter {name[:_LONGEST_SHOWN]!r} here"
    if not known:
        return f"{complaint}, nor any other"
    close = get_close_matches(name[:_LONGEST_SHOWN], known, n=1)
    if close:
        return f"{complaint}: did you mean {close[0]}?"
    return f"{complaint}: expected {', '.join(sorted(known))}"
