"""One random schedule of a group: who comes, goes, hangs and crashes when, all from one seed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from millstream.clock import ManualClock
from millstream.errors import MillstreamError
from tests.fakes.simulated_loop import SimulatedLoop
from tests.simulation.group_checker import Violation
from tests.simulation.group_clients import Consumer, Rogue, fetch_all
from tests.simulation.group_world import GROUP, PARTITIONS, ConnectionLost, GroupWorld

_MOST_CONSUMERS = 5
_STEPS = 18
_CALM_S = 90


class Schedule:
    def __init__(self, seed: int, clock: ManualClock, **defects: Any) -> None:
        self._world = GroupWorld(seed, clock, **defects)
        self._consumers: dict[Consumer, asyncio.Task[None]] = {}
        self._rogues: list[asyncio.Task[None]] = []
        self._number = 0

    async def run(self) -> None:
        await self._world.start()
        try:
            await self._chaos()
            await self._calm()
        finally:
            everyone = [*self._consumers.values(), *self._rogues]
            for task in everyone:
                task.cancel()
            await asyncio.gather(*everyone, return_exceptions=True)
            self._world.coordinator.close()

    async def _chaos(self) -> None:
        world = self._world
        for _ in range(world.random.choice([0, 0, 1, 2])):
            self._start_rogue()
        actions: dict[Callable[[], Awaitable[None] | None], int] = {
            self._start_consumer: 6,
            self._start_static: 4,
            self._kill: 3,
            self._leave: 3,
            world.cut_connection: 5,
            world.crash: 1,
            self._crash_during_sync: 3,
            world.restart: 1,
            world.expire: 1,
        }
        for _ in range(_STEPS):
            [action] = world.random.choices(list(actions), list(actions.values()))
            if (work := action()) is not None:
                await work
            await world.sleep_ms(0, 4_000)
            self._check_health()

    async def _calm(self) -> None:
        """Left alone, the group comes to rest with exactly the consumers that live."""
        self._world.is_calm = True
        for task in self._rogues:
            task.cancel()
        for _ in range(_CALM_S):
            await asyncio.sleep(1)
            self._check_health()
            if not self._unrest():
                break
        else:
            raise Violation(f"the group does not come to rest: {self._unrest()}")
        await self._world.crash()
        if self._living() and (unrest := self._unrest()):
            raise Violation(f"a restart changed a group at rest: {unrest}")
        await fetch_all(self._world)

    def _unrest(self) -> str:
        group = self._world.coordinator.describe(GROUP)
        consumers = self._living()
        expected = "Stable" if consumers else "Empty"
        if group.state != expected and not (not consumers and group.state == "Dead"):
            return f"it is {group.state} with {len(consumers)} consumers"
        members = sorted(member.member_id for member in group.members)
        if members != sorted(consumer.member_id for consumer in consumers):
            return f"its members are {members}"
        owned = sorted(number for consumer in consumers for number in consumer.partitions)
        if consumers and owned != list(range(PARTITIONS)):
            return f"partitions {owned} have owners"
        return ""

    def _living(self) -> list[Consumer]:
        return [consumer for consumer in self._consumers if not consumer.is_fenced]

    def _check_health(self) -> None:
        self._world.check_patience()
        for task in [*self._consumers.values(), *self._rogues]:
            if task.done() and not task.cancelled():
                task.result()

    def _start_consumer(self, instance_id: str | None = None) -> None:
        if len(self._living()) < _MOST_CONSUMERS:
            self._number += 1
            consumer = Consumer(self._world, f"c{self._number}", instance_id)
            self._consumers[consumer] = _task(consumer.run(), consumer.name)

    def _start_static(self) -> None:
        """There may be one with the identity already, which is then fenced."""
        self._start_consumer(self._world.random.choice(["one", "two"]))

    def _start_rogue(self) -> None:
        rogue = Rogue(self._world, "rogue", self._consumers)
        self._rogues.append(_task(rogue.run(), rogue.name))

    def _kill(self) -> None:
        consumer = self._some_consumer()
        if consumer is not None:
            self._consumers.pop(consumer).cancel()

    def _leave(self) -> None:
        consumer = self._some_consumer()
        if consumer is not None:
            self._consumers.pop(consumer).cancel()
            self._rogues.append(_task(consumer.leave(), consumer.name))

    async def _crash_during_sync(self) -> None:
        """A client fetches offsets just before the crash, and again right after the restart."""
        await self._world.sync_begun()
        self._start_fetch()
        await self._world.sleep_ms(50, 400)
        await self._world.crash()
        self._start_fetch()

    def _start_fetch(self) -> None:
        self._rogues.append(_task(self._fetch(), "reader"))

    async def _fetch(self) -> None:
        with suppress(MillstreamError, ConnectionLost):
            await fetch_all(self._world)

    def _some_consumer(self) -> Consumer | None:
        living = self._living()
        return self._world.random.choice(living) if living else None


def _task(work: Any, name: str) -> asyncio.Task[None]:
    return asyncio.get_running_loop().create_task(work, name=name)


def run_schedules(seeds: range, **defects: Any) -> None:
    """Raises Violation, which names the seed. For defects, see `GroupWorld`."""
    clock = ManualClock()
    loop = SimulatedLoop(clock)
    try:
        for seed in seeds:
            try:
                loop.run_until_complete(Schedule(seed, clock, **defects).run())
            except Exception as failure:
                raise Violation(f"seed {seed}: {failure}") from failure
    finally:
        loop.close()
