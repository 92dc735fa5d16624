"""Millstream itself: acks=1, or acks=all, which syncs before it answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.broker_process import BrokerProcess
from benchmarks.peers.kafka_session import KafkaSession
from benchmarks.peers.session import Contender, Session


def millstream(*, synced: bool) -> Contender:
    @contextmanager
    def run(directory: str, value: bytes) -> Iterator[Session]:
        with BrokerProcess(directory) as broker:
            connection = broker.connect()
            try:
                yield KafkaSession(broker, connection, value, acks=-1 if synced else 1)
            finally:
                connection.close()

    return Contender(name="Millstream", run=run)
