"""Requests to the REST API of a broker, over connections that are made when first needed.

Nothing is repeated when its answer is lost: `AnswerLost` says that it may have happened.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from millstream.client.failures import failure_of
from millstream.errors import AnswerLost, ClientClosed, InvalidName, TimedOut, Unreachable

if TYPE_CHECKING:
    import httpx

_FIRST_ERROR_STATUS = 400


class Rest:
    """One broker's REST API. Used within one event loop."""

    def __init__(self, url: str, *, timeout_s: float) -> None:
        self._url = url.rstrip("/")
        self._timeout_s = timeout_s
        self._http: httpx.AsyncClient | None = None
        self._is_closed = False

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, str | int] | None = None,
    ) -> dict[str, Any]:
        """Raises what the broker answers, ClientClosed, Unreachable, TimedOut, AnswerLost."""
        import httpx  # Most programs never need it, and it takes a while to import.

        if self._is_closed:
            raise ClientClosed(what="connection to the broker")
        if self._http is None:
            self._http = httpx.AsyncClient(
                base_url=self._url, timeout=self._timeout_s, trust_env=False
            )
        try:
            answer = await self._http.request(method, path, json=body, params=query)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise Unreachable(address=self._url, reason=str(error)) from None
        except httpx.TimeoutException:
            timeout_ms = round(self._timeout_s * 1000)
            raise TimedOut(operation=f"{method} {path}", timeout_ms=timeout_ms) from None
        except httpx.TransportError as error:
            if method == "GET":
                # Nothing can have happened, and who answers so may be no broker.
                reason = str(error) or type(error).__name__
                raise Unreachable(address=self._url, reason=reason) from None
            raise AnswerLost(operation=f"{method} {path}") from None
        result = self._parsed(answer)
        if answer.status_code >= _FIRST_ERROR_STATUS:
            raise failure_of(result)
        return result

    async def close(self) -> None:
        self._is_closed = True
        if self._http is not None:
            await self._http.aclose()
            self._http = None

    def _parsed(self, answer: httpx.Response) -> dict[str, Any]:
        try:
            result = answer.json()
        except ValueError:
            result = None
        if not isinstance(result, dict):
            raise Unreachable(address=self._url, reason="what answers there is no broker")
        return result


def path_part(name: str, kind: str) -> str:
    """A name as one part of a path. Raises InvalidName for one that no path can hold."""
    if name in ("", ".", ".."):
        raise InvalidName(kind=kind, name=name, expected="one that is not empty, . or ..")
    return quote(name, safe="")
