"""The running broker that a command asks, over HTTP.

The client is imported when there is something to ask, so that help comes at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar
from urllib.parse import urlsplit

import typer

from millstream.errors import InvalidRequest, NotFound

if TYPE_CHECKING:
    from millstream.client.queues import AsyncQueues

DEFAULT_URL = "http://127.0.0.1:8000"
Url = Annotated[str, typer.Option(help="Address of the broker's HTTP door.", metavar="URL")]

_TIMEOUT_S = 30.0

Answer = TypeVar("Answer")


def ask(url: str, question: Callable[[AsyncQueues], Awaitable[Answer]]) -> Answer:
    """Ask about queues. Raises Unreachable, InvalidRequest, and what the broker answers."""
    _check(url)
    return asyncio.run(_ask(url, question))


async def _ask(url: str, question: Callable[[AsyncQueues], Awaitable[Answer]]) -> Answer:
    from millstream.client.queues import AsyncQueues
    from millstream.client.rest import Rest

    rest = Rest(url, timeout_s=_TIMEOUT_S)
    try:
        return await question(AsyncQueues(rest))
    except NotFound as error:
        raise InvalidRequest(f"{error}: `millstream queue list` shows what there is") from None
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"{error.object!r} is no name that there can be: give text") from None
    finally:
        await rest.close()


def _check(url: str) -> None:
    try:
        parts = urlsplit(url)
        # A port that is none raises too.
        is_good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good:
        raise InvalidRequest(f"{url!r} is no address of a broker: give one like {DEFAULT_URL}")
