"""Clients of the broker: ours, and those that its users know from elsewhere.

Each is imported when it is first asked for: who uses one does not pay for the others.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.client.asynchronous import AsyncConnection, connect_async
    from millstream.client.blocking import Connection, connect
    from millstream.client.blocking_subscription import Message, Subscription
    from millstream.client.messages import NewMessage, Sent
    from millstream.client.pulsar import PulsarClient
    from millstream.client.pylogstreams import Client
    from millstream.client.subscription import AsyncMessage, AsyncSubscription

__all__ = [
    "connect",
    "Connection",
    "Subscription",
    "Message",
    "connect_async",
    "AsyncConnection",
    "AsyncSubscription",
    "AsyncMessage",
    "NewMessage",
    "Sent",
    "Client",
    "PulsarClient",
]

_HOMES = {
    "connect": "blocking",
    "Connection": "blocking",
    "Subscription": "blocking_subscription",
    "Message": "blocking_subscription",
    "connect_async": "asynchronous",
    "AsyncConnection": "asynchronous",
    "AsyncSubscription": "subscription",
    "AsyncMessage": "subscription",
    "NewMessage": "messages",
    "Sent": "messages",
    "Client": "pylogstreams",
    "PulsarClient": "pulsar",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
