"""What a start found out after a crash is told, and so is that nothing was wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.broker_process import BrokerProcess
from tests.fakes.sample_batches import batch_of
from tests.fakes.wire_client import BlockingClient
from tests.metrics.scrapes import Sample, Web, sample

pytestmark = pytest.mark.system

SCANNED = sample("millstream_recovery_scanned_bytes")
UNCLEAN = sample("millstream_recovery_unclean_logs")
TORN = sample("millstream_recovery_torn_logs")
END = sample("millstream_log_end_offset", topic="orders", partition="0")
MESSAGES_IN = sample("millstream_topic_messages_in_total", topic="orders")


def look(broker: BrokerProcess) -> dict[Sample, float]:
    web = Web(broker.url)
    try:
        return web.scrape()
    finally:
        web.close()


def test_start_after_a_crash_tells_what_it_had_to_read(tmp_path: Path) -> None:
    settings = '[storage]\n"millstream.checkpoint.ms" = 3600000\n'
    with BrokerProcess(tmp_path, settings=settings, http="127.0.0.1:0") as broker:
        client = BlockingClient(broker.port)
        web = Web(broker.url)
        web.ask("POST", "/topics", "topics", 201, json={"name": "orders", "partitions": 1})
        web.close()
        batch = batch_of(b"a", b"b")
        for _ in range(10):
            assert client.produce("orders", batch).error_code == 0
        client.close()
        broker.kill()
        log = broker.data / "topics" / "orders" / "0" / "00000000000000000000.log"
        # As a crash of the machine may leave it: the last batch is half there.
        with log.open("r+b") as file:
            file.truncate(10 * len(batch) - 5)
        broker.start()
        found = look(broker)
        assert found[UNCLEAN] >= 1
        assert found[SCANNED] >= 9 * len(batch)
        assert found[TORN] == 1
        assert (found[END], found[MESSAGES_IN]) == (18, 0)
        broker.restart()
        found = look(broker)
        assert (found[UNCLEAN], found[SCANNED], found[TORN], found[END]) == (0, 0, 0, 18)
        broker.stop()
