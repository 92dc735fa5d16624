"""The running broker that a command asks: over Kafka's protocol, or over HTTP what Kafka has not.

Clients are imported when there is something to ask, so that help comes at once. What is asked about
and is not there is answered with the name that may have been meant.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, TypeVar
from urllib.parse import urlsplit

import typer

from millstream.errors import (
    InvalidRequest,
    MillstreamError,
    NotFound,
    UnknownGroup,
    UnknownPartition,
    UnknownTopic,
)

if TYPE_CHECKING:
    from millstream.client.kafka import Cluster
    from millstream.client.queues import AsyncQueues
    from millstream.client.rest import Rest

DEFAULT_URL = "http://127.0.0.1:8000"
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
_BOOTSTRAP_VARIABLE = "MILLSTREAM_BOOTSTRAP"

Url = Annotated[
    str,
    typer.Option(help="Address of the broker's HTTP door.", metavar="URL", envvar="MILLSTREAM_URL"),
]
Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        help="Address of the broker, or of some with commas between.",
        metavar="HOST:PORT",
        envvar=_BOOTSTRAP_VARIABLE,
    ),
]
Connection = Annotated[
    list[str] | None,
    typer.Option("-X", help="For the connection, as security.protocol=SSL.", metavar="NAME=VALUE"),
]

_TIMEOUT_S = 30.0
_COMPLETION_S = 1.0
_SAME = 0.6

Answer = TypeVar("Answer")


@contextmanager
def connected(bootstrap: str, options: Iterable[str] | None = None) -> Iterator[Cluster]:
    """A client of a cluster that is there. Raises Unreachable at once if it is not.

    In its block, a topic or group that is not there becomes a NotFound with what may be meant.
    """
    from millstream.client.kafka import Cluster, ClusterSettings

    given = pairs(options or (), "-X", "security.protocol=SSL")
    with Cluster(ClusterSettings.from_options({"bootstrap.servers": bootstrap, **given})) as found:
        found.administration.check_reachable()
        try:
            yield found
        except UnknownPartition:
            raise
        except UnknownTopic as error:
            names = [each.name for each in found.administration.topics()]
            otherwise = f"`millstream topic create {error.name}` makes it"
            raise _hinted("topic", error.name, names, otherwise) from None
        except UnknownGroup as error:
            names = [each.name for each in found.groups.list()]
            otherwise = "`millstream group list` shows what there is"
            raise _hinted("group", error.name, names, otherwise) from None


def default_bootstrap() -> str:
    """The address where none is given."""
    return os.environ.get(_BOOTSTRAP_VARIABLE) or DEFAULT_BOOTSTRAP


def pairs(words: Iterable[str], flag: str, example: str) -> dict[str, str]:
    """What was given as NAME=VALUE. A usage error if it was not."""
    found = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name.strip():
            raise typer.BadParameter(f"{flag} {word}: give a name and a value, as {example}")
        found[name.strip()] = text.strip()
    return found


def complete_topic(context: typer.Context, incomplete: str) -> list[str]:
    """For shells: topics that begin so. Nothing where no broker answers soon."""
    return _completed(context, incomplete, lambda cluster: sorted(cluster.partitions()))


def complete_group(context: typer.Context, incomplete: str) -> list[str]:
    """The same for groups."""
    return _completed(
        context, incomplete, lambda cluster: [each.name for each in cluster.groups.list()]
    )


def ask(url: str, question: Callable[[AsyncQueues], Awaitable[Answer]]) -> Answer:
    """Ask about queues. Raises Unreachable, InvalidRequest, and what the broker answers."""

    async def about_queues(rest: Rest) -> Answer:
        from millstream.client.queues import AsyncQueues

        return await question(AsyncQueues(rest))

    return ask_rest(url, about_queues)


def ask_rest(url: str, question: Callable[[Rest], Awaitable[Answer]]) -> Answer:
    """Ask anything over HTTP. Raises as `ask`."""
    import asyncio  # It takes a while, and most commands do without.

    _check(url)
    return asyncio.run(_ask(url, question))


async def _ask(url: str, question: Callable[[Rest], Awaitable[Answer]]) -> Answer:
    from millstream.client.failures import Told
    from millstream.client.rest import Rest

    rest = Rest(url, timeout_s=_TIMEOUT_S)
    try:
        return await question(rest)
    except NotFound as error:
        if isinstance(error, Told):
            error.detail += ": `millstream queue list` shows what there is"
        raise
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"{error.object!r} is no name that there can be: give text") from None
    finally:
        await rest.close()


def _completed(
    context: typer.Context, incomplete: str, names: Callable[[Cluster], list[str]]
) -> list[str]:
    from millstream.client.kafka import Cluster

    given = context.params.get("bootstrap") or default_bootstrap()
    try:
        with Cluster(given, timeout_s=_COMPLETION_S) as cluster:
            cluster.administration.check_reachable()
            return [name for name in names(cluster) if name.startswith(incomplete)]
    except MillstreamError:
        return []


def _hinted(kind: str, name: str, names: list[str], otherwise: str) -> NotFound:
    close = get_close_matches(name, names, n=1, cutoff=_SAME)
    hint = f"did you mean {close[0]!r}?" if close else otherwise
    return NotFound(kind=kind, name=name, hint=hint)


def _check(url: str) -> None:
    try:
        parts = urlsplit(url)
        # A port that is none raises too.
        is_good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good:
        raise InvalidRequest(f"{url!r} is no address of a broker: give one like {DEFAULT_URL}")
