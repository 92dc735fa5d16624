"""One random schedule of transactions: who does what, is slow or goes away, and crashes, by a seed.

Each transactional id is used by two clients that do not know of each other, so that each fences the
other now and then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from itertools import product
from typing import Any
from unittest.mock import patch

from millstream.errors import MillstreamError
from millstream.transactions import transitions
from millstream.transactions.transaction import MAX_EPOCH
from tests.fakes.fake_filesystem import Crash, CrashMoment
from tests.simulation.group_checker import Violation
from tests.simulation.transaction_broker import SimulatedBroker
from tests.simulation.transaction_checker import Outcome
from tests.simulation.transaction_clients import Client
from tests.simulation.transaction_world import FLEETING, LASTING, LONGEST_TIMEOUT_MS, World

_MOMENTS: tuple[CrashMoment, ...] = ("before", "halfway", "after")
_NAMES = ("x", "y", "z")
_SLOTS = tuple(product(_NAMES, range(2)))
_CHAOS_MS = 6_000
_OPERATIONS = 400
"""What the disk has to do in about that time."""
_CRASHES = 4
_LATE_MS = 20_000


class Schedule:
    """Clients at random, then peace."""

    def __init__(
        self,
        seed: int,
        *,
        gives_up: bool = False,
        slow_log: str | None = None,
        broker: type[SimulatedBroker] = SimulatedBroker,
    ) -> None:
        """Clients repeat what was not answered; or all are old, have no rival, and give it up.

        Without `slow_log`, the seed chooses one.
        """
        self._world = World(seed, broker=broker)
        if slow_log is not None:
            self._world.slow_log = slow_log
        self._gives_up = self._world.is_slow_network = gives_up
        self._random = self._world.random
        # What arrives late does harm where its client writes again: more often in few places.
        self._places = (*LASTING, FLEETING)[: self._random.choice((2, 2, 4)) if gives_up else 4]
        self._clients: dict[tuple[str, int], Client] = {}
        self._until_ms = self._world.clock.now_ms() + _CHAOS_MS
        self._crashes = self._random.randint(0, 1 if gives_up else _CRASHES)

    def run(self) -> None:
        self._prepare_crash()
        while not self._world.live(self._chaos):
            self._power_on()
            self._prepare_crash()
        self._power_on()
        self._world.live(self._peace)

    def _prepare_crash(self) -> None:
        """It may come while the broker starts."""
        if self._crashes and self._random.random() < 0.5:
            self._crashes -= 1
            moment = self._random.choice(_MOMENTS)
            operations = self._random.choice((60, _OPERATIONS))
            self._world.crash_soon(self._random.randint(1, operations), moment)

    def _power_on(self) -> None:
        """Some clients do not come back either."""
        for slot in [slot for slot in self._clients if self._random.random() < 0.3]:
            del self._clients[slot]
        self._world.power_on(self._random.choice(("kept", "lost", "lost", "torn")))

    async def _chaos(self) -> None:
        self._world.is_slow_disk = self._random.random() < 0.2
        slots = _SLOTS[:: 2 if self._gives_up else 1]
        await _all(self._look(), self._come_and_go(), *(self._run_slot(*slot) for slot in slots))
        await rest(self._world)

    async def _peace(self) -> None:
        """Nothing was open when the power failed last."""
        self._world.checker.check_rest()
        await go_on(self._world, _NAMES)

    def _goes_on(self) -> bool:
        return self._world.clock.now_ms() < self._until_ms

    async def _look(self) -> None:
        while self._goes_on():
            await self._world.sleep_ms(1, 1_000)
            self._world.check_alive()
            self._world.checker.look()

    async def _come_and_go(self) -> None:
        """A topic does."""
        topics = self._world.broker.topics
        name = FLEETING[0]
        while self._goes_on():
            await self._world.sleep_ms(300, 3_000)
            try:
                await topics.delete(name)
                await self._world.sleep_ms(0, 500)
                await topics.create(name, partitions=1, overrides={})
            except MillstreamError:
                await self._world.sleep_ms(0, 500)

    async def _run_slot(self, name: str, number: int) -> None:
        slot = name, number
        while self._goes_on():
            client = self._clients.get(slot)
            if client is None or client.is_over or self._random.random() < 0.01:
                await self._world.sleep_ms(0, 1_500)
                timeout_ms = self._random.choice((700, 3_000, LONGEST_TIMEOUT_MS))
                is_new = self._random.random() < 0.5 and not self._gives_up
                client = Client(self._world, name, is_new, timeout_ms)
                self._clients[slot] = client
            await self._pause()
            await self._step(client)

    async def _pause(self) -> None:
        kind = self._random.random()
        await self._world.sleep_ms(0, 100 if kind < 0.9 else 1_000 if kind < 0.98 else 5_000)

    async def _step(self, client: Client) -> None:
        attempt = client.attempt
        if client.unanswered:
            if self._gives_up and client.may_give_up and self._random.random() < 0.8:
                await client.give_up()
            else:
                await client.repeat()
        elif client.pair is None or self._random.random() < (0.01 if self._gives_up else 0.05):
            await client.init()
        elif client.must_begin_anew:
            if attempt is not None and attempt.is_begun and self._random.random() < 0.5:
                await client.end(is_commit=False)
            else:
                await client.init()
        elif attempt is not None and attempt.is_begun and self._random.random() < 0.35:
            if self._crashes and self._random.random() < 0.3:
                # The end is when most can go wrong.
                self._crashes -= 1
                self._world.crash_soon(self._random.randint(1, 12), "after")
            await self._end(client)
        elif self._random.random() < (0.4 if self._gives_up else 0.2):
            await self._commit_offset(client)
        else:
            await self._write(client)

    async def _end(self, client: Client) -> None:
        is_commit = self._random.random() < 0.8
        if is_commit and client.unwritten:
            await asyncio.gather(*map(client.write, client.unwritten))
        else:
            await client.end(is_commit=is_commit)

    async def _commit_offset(self, client: Client) -> None:
        if client.has_added_offsets:
            await client.commit_offset()
        else:
            await client.add_offsets()

    async def _write(self, client: Client) -> None:
        count = min(len(self._places), self._random.choice((1, 1, 2, 3)))
        places = self._random.sample(self._places, count)
        missing = [place for place in places if not client.has_added(place)]
        if missing and self._random.random() < 0.95:
            await client.add(*missing)
        else:
            await asyncio.gather(*map(client.write, places))


async def rest(world: World) -> None:
    """Left alone, everything ends by itself."""
    world.is_calm = True
    world.is_slow_disk = False
    await asyncio.sleep((LONGEST_TIMEOUT_MS + _LATE_MS) / 1000)
    world.check_alive()
    world.checker.check_rest()


async def go_on(world: World, names: Iterable[str]) -> None:
    """All transactional ids can be used."""
    for name in names:
        client = Client(world, name, is_new=True, timeout_ms=LONGEST_TIMEOUT_MS)
        await client.init()
        await asyncio.gather(*map(client.write, LASTING))
        await client.commit_offset()
        attempt = client.attempt
        await client.end(is_commit=True)
        if attempt is None or attempt.outcome is not Outcome.COMMITTED:
            raise Violation(f"{name} cannot go on")
        found = await world.broker.groups.fetch_stable_offsets(name)
        if [getattr(each, "offset", None) for each in found.values()] != [attempt.offset]:
            raise Violation(f"{name} has committed {attempt.offset}, and a group is told {found}")
    world.checker.check_rest()


async def _all(*work: Coroutine[Any, Any, None]) -> None:
    """Until all are done, or one has failed."""
    tasks = [asyncio.get_running_loop().create_task(each) for each in work]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    failures = [failure for task in done if (failure := task.exception())]
    for failure in sorted(failures, key=lambda failure: isinstance(failure, Crash)):
        raise failure


def run_schedules(seeds: range, **options: Any) -> None:
    """Raises Violation, which names the seed. For the options, see `Schedule`."""
    for seed in seeds:
        # With few epochs to a producer, they are used up now and then.
        with patch.object(transitions, "MAX_EPOCH", {0: 1, 2: 2}.get(seed % 4, MAX_EPOCH)):
            try:
                Schedule(seed, **options).run()
            except Exception as failure:
                raise Violation(f"seed {seed}: {failure}") from failure
