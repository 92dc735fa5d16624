"""A broker for the tests of programs that use Kafka. Guide: docs/guides/testing.md."""

from __future__ import annotations

from millstream.testing.async_broker import AsyncBroker
from millstream.testing.broker import Broker, Clock
from millstream.testing.controls import Message
from millstream.testing.faults import Fault, Faults

__all__ = ["Broker", "AsyncBroker", "Message", "Faults", "Fault", "Clock"]
