"""The newest record of a query, looked for in a log that compaction has been at."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from millstream.client.kafka import Cluster
from millstream.client.kafka.transactions import ProducerIdentity
from millstream.clock import ManualClock
from millstream.spark.sink.commit_log import TOPIC, CommitLog, Found
from millstream.spark.sink.commit_record import CommitRecord
from tests.fakes.scripted_kafka import ScriptedKafka

DRIVER = ProducerIdentity(7, 0)


@pytest.fixture
def kafka() -> Iterator[ScriptedKafka]:
    with ScriptedKafka() as cluster:
        cluster.leaders = {TOPIC: [0]}
        yield cluster


@pytest.mark.parametrize("has_records", [True, False])
def test_log_whose_end_was_compacted_away_is_read_to_its_end(
    kafka: ScriptedKafka, has_records: bool
) -> None:
    record = CommitRecord(name="orders", batch=3)
    with Cluster(kafka.bootstrap) as cluster:
        log = CommitLog(cluster, ManualClock())
        if has_records:
            log.append("orders", record, identity=DRIVER, sequence=0)
        # The last that was written is the end of a job without a name.
        kafka.gap_at_end[TOPIC, 0] = 2
        assert log.newest("orders") == (Found(record, 3) if has_records else Found(None, 2))
        assert log.newest("customers").record is None
