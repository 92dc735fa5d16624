"""Five thousand idle connections and a hundred busy ones, against a real broker process."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

from tests.fakes.sample_batches import batch_of
from tests.fakes.wire_client import BlockingClient, produce_request, produced
from tests.fuzz.broker_load import MIB, create_topic, many_files, own_memory_bytes, running_broker

IDLE, BUSY, ROUNDS = 5000, 100, 20
IDLE_CONNECTION_BYTES = 8 * 1024


def test_many_idle_connections_leave_the_busy_ones_alone(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    with many_files(), running_broker(tmp_path) as broker:
        create_topic(broker.port, "t")
        before = own_memory_bytes(broker.pid)
        idle = [socket.create_connection(("127.0.0.1", broker.port)) for _ in range(IDLE)]
        busy = [BlockingClient(broker.port) for _ in range(BUSY)]
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

        for each in [*idle, *(client.socket for client in busy)]:
            each.close()
        last = BlockingClient(broker.port)
        assert last.produce("t", batch_of(b"last")).error_code == 0
        last.close()
