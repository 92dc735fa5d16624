"""Five thousand idle connections and a hundred busy ones, against a real broker process."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.fakes.sample_batches import batch_of
from tests.fakes.wire_client import produce_request, produced
from tests.fuzz.broker_load import (
    MIB,
    clients,
    create_topic,
    many_files,
    own_memory_bytes,
    running_broker,
)

pytestmark = pytest.mark.system

IDLE, BUSY, ROUNDS = 5000, 100, 20
IDLE_CONNECTION_BYTES = 8 * 1024


def test_many_idle_connections_leave_the_busy_ones_alone(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    with ExitStack() as stack:
        stack.enter_context(many_files())
        broker = stack.enter_context(running_broker(tmp_path))
        create_topic(broker.port, "t")
        before = own_memory_bytes(broker.pid)
        idle = stack.enter_context(clients(broker.port, IDLE))
        busy = stack.enter_context(clients(broker.port, BUSY))
        # One after the other: when the last is served, all others were accepted.
        assert busy[-1].produce("t", batch_of(b"first")).base_offset == 0
        each_bytes = (own_memory_bytes(broker.pid) - before) / (IDLE + BUSY)
        record_property("bytes_per_idle_connection", round(each_bytes))
        print(f"{each_bytes:.0f} bytes per idle connection")
        assert each_bytes < IDLE_CONNECTION_BYTES

        offsets = set()
        batch = bytes(batch_of(b"x" * 100))
        for _ in range(ROUNDS):
            for client in busy:
                client.begin(produce_request("t", batch), 9)
            for client in busy:
                stored = produced(client.receive())
                assert stored.error_code == 0
                offsets.add(stored.base_offset)
        assert offsets == set(range(1, ROUNDS * BUSY + 1))
        assert own_memory_bytes(broker.pid) - before < IDLE * IDLE_CONNECTION_BYTES + 16 * MIB

        for client in idle:
            client.close()
        assert busy[0].produce("t", batch_of(b"last")).error_code == 0
