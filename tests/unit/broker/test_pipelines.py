"""What the broker knows of pipelines, and the bounds of that."""

from __future__ import annotations

import asyncio

from millstream.broker import pipelines as module
from millstream.broker.pipelines import Pipelines
from millstream.records import Record, build
from millstream.settings.names import PIPELINES_TOPIC
from millstream.storage.local_log import LocalLog
from tests.fakes.fake_broker import FakeBroker
from tests.fakes.log_steps import append


async def place() -> tuple[Pipelines, LocalLog]:
    host = await FakeBroker().start()
    topic = await host.topics.create(PIPELINES_TOPIC, partitions=1, overrides={})
    return host.broker.pipelines, topic.partitions[0].log


def tell(log: LocalLog, *names: bytes) -> None:
    append(log, build([Record(n, 1, name, b'{"a": 1}') for n, name in enumerate(names)]))


def test_names_beyond_the_bound_push_out_the_most_silent() -> None:
    async def test() -> None:
        pipelines, log = await place()
        names = [b"%04d" % number for number in range(module.MAX_PIPELINES)]
        tell(log, *names)
        tell(log, names[0], b"one more", b"\xff", b"")
        found = [each["pipeline"] for each in await pipelines.all()]
        assert len(found) == module.MAX_PIPELINES
        assert "0000" in found
        assert "one more" in found
        assert "0001" not in found

    asyncio.run(test())


def test_records_that_are_gone_are_passed_over() -> None:
    async def test() -> None:
        pipelines, log = await place()
        tell(log, b"a", b"b")
        assert [each["pipeline"] for each in await pipelines.all()] == ["a", "b"]
        tell(log, b"c", b"d")
        log.delete_records(3)
        assert [each["pipeline"] for each in await pipelines.all()] == ["a", "b", "d"]
        log.truncate(0)
        tell(log, b"e")
        assert (await pipelines.get("e"))["a"] == 1

    asyncio.run(test())
