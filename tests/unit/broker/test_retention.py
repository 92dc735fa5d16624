"""Retention that waits for groups, and warns of what they are about to lose."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

import pytest

from millstream.broker.retention import Reader
from millstream.groups.offsets import Committer, OffsetToCommit
from millstream.settings.log import LogSettings
from millstream.storage.local_log import LocalLog
from tests.fakes.fake_broker import FakeBroker
from tests.fakes.group_home import GroupHome
from tests.fakes.log_steps import append
from tests.fakes.sample_batches import batch_of

RETENTION_MS = 100_000
HOLD_MS = 100_000
SEGMENT = 2
"""Offsets in each segment."""


class Place:
    """One log of which groups have read so much, with a retention that looks when told to."""

    def __init__(self, *holding: str, hold_bytes: int = 10_000) -> None:
        self.broker = asyncio.run(FakeBroker().start())
        settings = LogSettings(
            segment_bytes=1,
            retention_ms=RETENTION_MS,
            retention_hold_groups=frozenset(holding),
            retention_hold_max_ms=HOLD_MS,
            retention_hold_max_bytes=hold_bytes,
        )
        self.log: LocalLog = self.broker.directory.create("orders", 0, settings)
        for _ in range(5):
            times = [self.broker.clock.now_ms()] * SEGMENT
            append(self.log, batch_of(b"a", b"b", timestamps_ms=times))
        self.log.sync()
        self.read: dict[str, int] = {}
        self.retention = self.broker.housekeeping.retention
        self.retention.readers = self._readers

    async def _readers(self, topic: str, partition: int) -> Mapping[str, int]:
        return self.read if (topic, partition) == ("orders", 0) else {}

    def look(self, later_ms: int = 0) -> int:
        """Pass some time and let retention look; where the log begins then."""
        self.broker.clock.advance_ms(later_ms)
        asyncio.run(self.retention.expire(self.log))
        self.log.sync()
        return self.log.start_offset

    def reader(self, group: str) -> Reader:
        return Reader("orders", 0, group)


@pytest.fixture
def place() -> Place:
    return Place("pipeline")


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    caplog.clear()
    return found


def test_without_groups_all_goes_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    place = Place()
    assert place.look(RETENTION_MS + 1) == 8
    assert place.look() == 10
    assert warnings(caplog) == []
    assert not place.retention.lost


def test_named_group_keeps_what_it_has_not_read(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.read = {"pipeline": 5, "other": 10}
    assert place.look(RETENTION_MS + 1) == 4
    assert place.look() == 4
    assert place.retention.held_bytes[("orders", 0)] > 0
    assert warnings(caplog) == []
    place.read["pipeline"] = 10
    assert place.look() == 10
    assert place.retention.held_bytes == {}


def test_slowest_of_the_named_groups_counts() -> None:
    place = Place("fast", "slow")
    place.read = {"fast": 10, "slow": 2}
    assert place.look(RETENTION_MS + 1) == 2


def test_named_group_that_has_committed_nothing_keeps_all(place: Place) -> None:
    assert place.look(RETENTION_MS + 1) == 0
    place.look()
    assert place.retention.held_bytes[("orders", 0)] == sum(s.size for s in place.log.segments())


def test_hold_is_told_once(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    place.read = {"pipeline": 3}
    place.look(RETENTION_MS + 1)
    place.look(1)
    told = [line for line in caplog.messages if "waits" in line]
    assert told == ["orders/0: retention waits for group 'pipeline' at 3"]


def test_dead_group_does_not_fill_the_disk(caplog: pytest.LogCaptureFixture) -> None:
    segment_bytes = Place().log.segments()[0].size
    place = Place("dead", hold_bytes=2 * segment_bytes)
    place.read = {"dead": 1}
    place.look(RETENTION_MS + 1)
    assert place.look() == 6
    assert place.retention.held_bytes[("orders", 0)] == 2 * segment_bytes
    assert place.retention.lost[place.reader("dead")] == 5
    [loss] = [line for line in warnings(caplog) if "deletes offsets" in line]
    assert loss == "orders/0: retention deletes offsets 1 to 3, which group 'dead' has not read"


def test_hold_ends_with_its_time(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    place.read = {"pipeline": 0}
    assert place.look(RETENTION_MS + HOLD_MS) == 0
    [soon] = warnings(caplog)
    assert "group 'pipeline' has not read 8 offsets that retention deletes soon" in soon
    assert "millstream.retention.hold.max.ms" in soon
    assert place.retention.at_risk == {place.reader("pipeline"): 8}
    assert place.look(1) == 10
    [loss] = warnings(caplog)
    assert "deletes offsets 0 to 9" in loss
    assert place.retention.lost[place.reader("pipeline")] == 10


def test_any_group_is_warned_of_once_before_and_once_when_it_loses(
    caplog: pytest.LogCaptureFixture,
) -> None:
    place = Place()
    place.read = {"late": 3, "done": 10}
    assert place.look(RETENTION_MS * 85 // 100) == 0
    assert warnings(caplog) == []
    place.look(RETENTION_MS * 10 // 100)
    [soon] = warnings(caplog)
    assert "group 'late' has not read 5 offsets" in soon
    assert "name it in millstream.retention.hold.groups" in soon
    place.look(1)
    assert warnings(caplog) == []
    assert place.look(RETENTION_MS) == 8
    [loss] = warnings(caplog)
    assert loss == "orders/0: retention deletes offsets 3 to 7, which group 'late' has not read"
    assert place.look() == 10
    assert warnings(caplog) == []
    assert place.retention.lost == {place.reader("late"): 7}


def test_group_that_caught_up_is_warned_of_again(caplog: pytest.LogCaptureFixture) -> None:
    place = Place()
    place.read = {"late": 3}
    place.look(RETENTION_MS * 95 // 100)
    assert len(warnings(caplog)) == 1
    place.read = {"late": 10}
    place.look()
    assert place.retention.at_risk == {}
    place.read = {"late": 3}
    place.look()
    assert len(warnings(caplog)) == 1


def test_nothing_is_remembered_of_a_topic_that_is_gone(place: Place) -> None:
    place.read = {"other": 1}
    place.look(RETENTION_MS + HOLD_MS + 1)
    retention = place.retention
    assert retention.lost
    retention.forget("payments")
    assert retention.lost
    retention.forget("orders")
    assert (retention.lost, retention.at_risk, retention.held_bytes) == ({}, {}, {})


def test_topic_that_goes_while_groups_are_asked_is_left_alone(place: Place) -> None:
    async def gone(_topic: str, _partition: int) -> Mapping[str, int]:
        place.log.discard()
        return {}

    place.retention.readers = gone
    place.broker.clock.advance_ms(RETENTION_MS + 1)
    assert asyncio.run(place.retention.expire(place.log)) == []


def test_upkeep_of_a_topic_that_goes_meanwhile_fails_nowhere(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    async def gone(_topic: str, _partition: int) -> Mapping[str, int]:
        place.log.discard()
        return {}

    place.retention.readers = gone
    place.broker.clock.advance_ms(RETENTION_MS + 1)
    asyncio.run(place.broker.housekeeping.clean())
    assert warnings(caplog) == []


def test_groups_tell_who_reads_a_partition() -> None:
    async def test() -> None:
        home = await GroupHome().start()
        nobody = Committer("", None, -1)
        await home.groups.commit("a", nobody, [OffsetToCommit("t", 0, 7, -1, "")])
        await home.groups.commit("b", nobody, [OffsetToCommit("t", 1, 8, -1, "")])
        assert await home.groups.readers("t", 0) == {"a": 7}
        assert await home.groups.readers("t", 1) == {"b": 8}
        assert await home.groups.readers("u", 0) == {}

    asyncio.run(test())
