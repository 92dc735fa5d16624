"""A crash at every single step of a subscription's life, and what is delivered after it.

No message whose acknowledgement was answered comes again; every other one does, or is among the
dead letters. How often a message was refused is still known.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from millstream.broker.dead_letters import SOURCE_OFFSET, SOURCE_PARTITION
from millstream.broker.subscriptions import Delivery, SubscriptionSettings
from millstream.errors import UnknownSubscription
from tests.fakes.crash_points import PHASES, STEPS
from tests.fakes.fake_disk import CrashMode
from tests.fakes.fake_filesystem import Crash, CrashMoment, FakeFilesystem
from tests.fakes.subscription_home import SubscriptionHome, ids, new_disk

MOMENTS: tuple[CrashMoment, ...] = ("before", "halfway")
TOPICS = {"t": 2, "t.dlq": 1}
SETTINGS = SubscriptionSettings(
    ack_timeout_ms=5000, max_deliveries=2, redelivery_min_ms=100, redelivery_max_ms=100
)
LATER_MS = 60_000

Place = tuple[int, int]


class Life:
    """A subscription at work, and what was answered."""

    def __init__(self, disk: FakeFilesystem) -> None:
        self.disk = disk
        self.is_created = False
        self.sent: set[Place] = set()
        self.acked: set[Place] = set()
        """Whose acknowledgement was answered."""
        self.asked: set[Place] = set()
        """Whose acknowledgement was asked for."""
        self.refused: dict[Place, int] = {}
        """How often a message was surely refused."""
        self.home: SubscriptionHome | None = None

    def run(self) -> None:
        self.home = home = SubscriptionHome(self.disk)
        home.run(self._live(home))
        home.close()

    async def _live(self, home: SubscriptionHome) -> None:
        await home.subscriptions.create("t", "s", SETTINGS)
        self.is_created = True
        for round_number in range(3):
            at = b"%d" % (home.clock.now_ms() + LATER_MS)
            await self._send(home, 0, 4)
            await self._send(home, 1, 2)
            await self._send(home, 0, 1, headers=(("millstream-deliver-at", at),))
            got = await home.receive(100)
            # Out of order, so that there are holes; one by one and several at once.
            await self._ack(home, *got[1::3])
            await self._ack(home, *got[2::3])
            await self._nack(home, *got[0:1])
            if round_number < 2:
                # Refused once more, it is dead.
                await self._nack(home, *await home.receive(1, wait_ms=200))
        # What is left is out of time, and comes again.
        await home.receive(1, wait_ms=SETTINGS.ack_timeout_ms + 500)

    async def _send(self, home: SubscriptionHome, number: int, count: int, **fields: Any) -> None:
        for sent in await home.send(*[b"v"] * count, partition=number, **fields):
            self.sent.add((sent.partition, sent.offset))

    async def _ack(self, home: SubscriptionHome, *deliveries: Delivery) -> None:
        places = {(each.partition, each.offset) for each in deliveries}
        self.asked |= places
        await home.ack(*deliveries)
        self.acked |= places

    async def _nack(self, home: SubscriptionHome, *deliveries: Delivery) -> None:
        await home.nack(*deliveries)
        for each in deliveries:
            self.refused[each.partition, each.offset] = each.delivery_count

    def dead(self, home: SubscriptionHome) -> set[Place]:
        found = set()
        for record in home.records("t.dlq"):
            headers = dict(record.headers)
            number, offset = headers[SOURCE_PARTITION], headers[SOURCE_OFFSET]
            found.add((int(number or b""), int(offset or b"")))
        return found

    def prove(self, disk: FakeFilesystem) -> None:
        """Prove that the next process delivers what it must, and nothing else."""
        now_ms = 0 if self.home is None else self.home.clock.now_ms()
        home = SubscriptionHome(disk, now_ms=now_ms or None)
        try:
            delivered = home.run(self._deliver_all(home))
        except UnknownSubscription:
            assert not self.is_created
            home.close()
            return
        places = [(each.partition, each.offset) for each in delivered]
        assert len(places) == len(set(places))
        assert not self.acked & set(places), "acknowledged, and delivered again"
        dead = self.dead(home)
        assert self.sent - self.asked <= set(places) | dead, "lost"
        for each in delivered:
            least = self.refused.get((each.partition, each.offset), 0)
            assert each.delivery_count > least
        home.close()

    async def _deliver_all(self, home: SubscriptionHome) -> list[Delivery]:
        home.subscriptions.describe("t", "s")
        delivered = []
        deadline_ms = home.clock.now_ms() + LATER_MS + 1000
        while (left_ms := deadline_ms - home.clock.now_ms()) > 0:
            got = await home.receive(100, wait_ms=left_ms)
            delivered += got
            await home.subscriptions.ack("t", "s", ids(got))
        assert home.subscriptions.describe("t", "s").backlog == 0
        return delivered


def crashed_lives(moment: CrashMoment, every: int, phase: int) -> Iterator[Life]:
    whole = Life(new_disk(TOPICS))
    first = whole.disk.operation_count + 1
    whole.run()
    for operation in range(first + phase % every, whole.disk.operation_count + 1, every):
        if moment == "halfway" and not whole.disk.operations[operation - 1].startswith("write"):
            continue
        ended = Life(new_disk(TOPICS))
        ended.disk.crash_at(operation, moment)
        with pytest.raises(Crash):
            ended.run()
        if ended.home is not None:
            ended.home.abandon()
        yield ended


def test_whole_life_leaves_holes_dead_letters_and_messages_for_later() -> None:
    whole = Life(new_disk(TOPICS))
    whole.run()
    home = SubscriptionHome(whole.disk.after_crash("kept"))

    async def look() -> None:
        found = home.subscriptions.describe("t", "s")
        assert found.dead >= 1
        assert found.backlog >= 3

    home.run(look())
    assert len(whole.dead(home)) == 2
    home.close()
    whole.prove(whole.disk.after_crash("kept"))


@STEPS
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("mode", ["kept", "lost"])
def test_crash_at_any_step_loses_nothing_and_repeats_nothing_acknowledged(
    mode: CrashMode, moment: CrashMoment, every: int
) -> None:
    for ended in crashed_lives(moment, every, PHASES[mode]):
        ended.prove(ended.disk.after_crash(mode))


@STEPS
@pytest.mark.parametrize("seed", range(2))
def test_crash_on_a_torn_disk(seed: int, every: int) -> None:
    for ended in crashed_lives("before", every, PHASES["torn"] + seed):
        ended.prove(ended.disk.after_crash("torn", seed * 1000 + ended.disk.operation_count))
