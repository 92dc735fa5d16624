"""Clients of the broker: ours, and those that its users know from elsewhere."""

from __future__ import annotations

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
