"""The broker as its doors see it: one object per kind of use case."""

from __future__ import annotations

from dataclasses import dataclass, field

from millstream.broker.connections import Connections
from millstream.broker.dynamic_settings import DynamicSettings
from millstream.broker.groups import GroupCoordinator
from millstream.broker.memory_budget import MemoryBudget
from millstream.broker.metrics import Metrics
from millstream.broker.pipelines import Pipelines
from millstream.broker.producer_ids import ProducerIds
from millstream.broker.reading import Reader
from millstream.broker.sending import Sender
from millstream.broker.subscriptions import Subscriptions
from millstream.broker.topics import Topics
from millstream.broker.transactions import TransactionCoordinator
from millstream.clock import Clock
from millstream.settings.loader import Settings
from millstream.storage.flusher import Flusher
from millstream.telemetry.client_log import ClientLog
from millstream.telemetry.tracing import Tracing

NODE_ID = 0
"""There is one broker, and this is its number."""


@dataclass(slots=True, kw_only=True)
class Broker:
    """Everything that a request can be about. Only its settings may become others."""

    topics: Topics
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    subscriptions: Subscriptions
    pipelines: Pipelines
    producer_ids: ProducerIds
    sender: Sender
    reader: Reader
    flusher: Flusher
    memory: MemoryBudget
    clock: Clock
    settings: Settings
    dynamic: DynamicSettings
    tracing: Tracing | None = None
    """None in a broker that does not trace."""
    connections: Connections = field(default_factory=Connections)
    metrics: Metrics = field(default_factory=Metrics)
    client_log: ClientLog = field(default_factory=ClientLog)
