"""How far groups are behind, where some partitions cannot be read."""

from __future__ import annotations

import asyncio
from pathlib import Path

from millstream.broker.group_lag import partition_lags
from millstream.broker.partition import Partition
from millstream.errors import CorruptData
from millstream.groups.group_records import Committed
from millstream.storage.filesystem import LocalFilesystem
from tests.fakes.fake_broker import FakeBroker


def test_partition_that_cannot_be_opened_has_no_lag(tmp_path: Path) -> None:
    async def main() -> None:
        host = await FakeBroker(LocalFilesystem(), str(tmp_path)).start()
        await host.topics.create("t", partitions=2, overrides={})
        topic = host.topics.get("t")
        damage = CorruptData(path="/data/topics/t/0/log-start-offset", position=0, reason="?")
        whole, topic.partitions[0] = topic.partitions[0], Partition(topic, 0, None, damage)
        committed = {("t", 0): Committed(5, -1, "", 0), ("t", 1): Committed(0, -1, "", 0)}
        lags = list(partition_lags(host.topics, committed, end_of=lambda each: each.log.end_offset))
        assert [each.lag for each in lags] == [None, 0]
        assert "/data" not in str(topic.partitions[0].failure)
        topic.partitions[0] = whole
        await host.stop()

    asyncio.run(main())
