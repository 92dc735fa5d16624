"""Subscriptions against a simple model: random sends, receives, acks, refusals, time and crashes.

The model knows of each message whether its acknowledgement was answered, who has it and until when,
how often it was delivered in vain, and from when on it may be delivered. Whatever happens:

- what is delivered was sent, is not acknowledged, is in nobody's hands, and its time has come;
- it comes with the right count;
- nothing older of its partition, or of its key, is there to be delivered;
- when all is quiet, every message is acknowledged, or a dead letter after the right number of
  deliveries, and those alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from millstream.broker.dead_letters import SOURCE_OFFSET, SOURCE_PARTITION
from millstream.broker.subscriptions import Consumer, Delivery
from millstream.settings.subscriptions import SubscriptionLimits
from tests.fakes.fake_disk import CrashMode
from tests.fakes.fake_filesystem import FakeFilesystem
from tests.fakes.subscription_home import SubscriptionHome, ids, new_disk

PARTITIONS = 2
STEPS = 120
ACK_TIMEOUT_MS = 2000
MIN_MS, MAX_MS = 100, 400
MAX_DELIVERIES = 3
SETTINGS: dict[str, Any] = {
    "ack_timeout_ms": ACK_TIMEOUT_MS,
    "max_deliveries": MAX_DELIVERIES,
    "redelivery_min_ms": MIN_MS,
    "redelivery_max_ms": MAX_MS,
}

Place = tuple[int, int]


@dataclass
class Message:
    """What the model knows of one."""

    due_ms: int = 0
    failures: int = 0
    is_acked: bool = False
    deadline_ms: int | None = None
    """While it is in somebody's hands."""
    holder: Consumer | None = None
    key: bytes | None = None

    @property
    def is_dead(self) -> bool:
        return self.failures >= MAX_DELIVERIES


@dataclass
class Model:
    is_keyed: bool = False
    messages: dict[Place, Message] = field(default_factory=dict)

    def tick(self, now_ms: int) -> None:
        for message in self.messages.values():
            if message.deadline_ms is not None and message.deadline_ms <= now_ms:
                self.fail(message, now_ms, 0)

    def fail(self, message: Message, now_ms: int, delay_ms: int | None) -> None:
        message.failures += 1
        if delay_ms is None:
            delay_ms = min(MIN_MS * 2 ** (message.failures - 1), MAX_MS)
        message.due_ms = now_ms + delay_ms
        message.deadline_ms = message.holder = None

    def deliver(self, delivery: Delivery, now_ms: int, holder: Consumer | None) -> None:
        message = self.messages[delivery.partition, delivery.offset]
        assert not message.is_acked, "delivered, and was acknowledged"
        assert message.deadline_ms is None, "delivered, and in somebody's hands"
        assert not message.is_dead, "delivered, and dead"
        assert message.due_ms <= now_ms, "delivered too early"
        assert delivery.delivery_count == message.failures + 1
        self._prove_order(delivery, now_ms)
        message.deadline_ms, message.holder = now_ms + ACK_TIMEOUT_MS, holder
        if message.key is not None:
            self._prove_one_holder(delivery.partition, message)

    def _prove_order(self, delivery: Delivery, now_ms: int) -> None:
        """Older ones are done, in somebody's hands, or wait for their time."""
        for (number, offset), older in self.messages.items():
            if number != delivery.partition or offset >= delivery.offset:
                continue
            if self.is_keyed and (older.key is None or older.key != delivery.key):
                continue
            is_there = not older.is_acked and not older.is_dead and older.deadline_ms is None
            assert not (is_there and older.due_ms <= now_ms), f"{offset} was to come first"

    def _prove_one_holder(self, partition: int, delivered: Message) -> None:
        holders = {
            id(message.holder)
            for (number, _), message in self.messages.items()
            if number == partition
            and message.key == delivered.key
            and message.deadline_ms is not None
        }
        assert len(holders) == 1, "two consumers have messages of one key"

    def crash(self) -> None:
        for message in self.messages.values():
            message.deadline_ms = message.holder = None


class World:
    """The real thing and the model, side by side."""

    def __init__(self, seed: int, kind: str) -> None:
        self.random = Random(seed)
        self.kind = kind
        self.model = Model(is_keyed=kind == "key_shared")
        self.disk: FakeFilesystem = new_disk({"t": PARTITIONS, "t.dlq": 1})
        self.consumers: list[Consumer] = []
        self.held: list[Delivery] = []
        # With little room, what comes again pushes out what was read ahead.
        self.limits = SubscriptionLimits(read_ahead=7 if seed % 2 else 1000)
        self.home = SubscriptionHome(self.disk, subscriptions=self.limits)

    def run(self) -> None:
        self.home.run(self.home.subscribe(type=self.kind, **SETTINGS))
        for _ in range(STEPS):
            self.home.run(self._step())
            if self.random.random() < 0.03:
                self._restart(self.random.choice(("kept", "lost")))
        self.home.run(self._drain())
        self._prove_end()
        self.home.close()

    def _restart(self, mode: CrashMode) -> None:
        self._tick()
        now_ms = self.home.clock.now_ms()
        self.home.abandon()
        self.disk = self.disk.after_crash(mode)
        self.home = SubscriptionHome(self.disk, now_ms=now_ms, subscriptions=self.limits)
        self.model.crash()
        self.consumers, self.held = [], []
        self.home.run(self.home.subscribe(type=self.kind, **SETTINGS))

    def _tick(self) -> None:
        self.model.tick(self.home.clock.now_ms())

    async def _step(self) -> None:
        steps = [self._send, self._receive, self._receive, self._ack, self._nack, self._wait]
        if self.kind != "exclusive" or not self.consumers:
            steps.append(self._come)
        steps.append(self._go)
        await self.random.choice(steps)()

    async def _send(self) -> None:
        number, now_ms = self.random.randrange(PARTITIONS), self.home.clock.now_ms()
        due_ms = now_ms + self.random.choice((0, 0, 0, 50, 3000))
        headers = (("millstream-deliver-at", b"%d" % due_ms),) if due_ms > now_ms else ()
        values = [b"v"] * self.random.randint(1, 20)
        key = None
        if self.kind == "key_shared":
            key = self.random.choice((None, b"a", b"b", b"c", b"d", b"e"))
        for sent in await self.home.send(*values, partition=number, headers=headers, key=key):
            self.model.messages[sent.partition, sent.offset] = Message(due_ms, key=key)

    async def _come(self) -> None:
        name = f"c{len(self.consumers)}"
        self.consumers.append(self.home.subscriptions.attach("t", "s", name, max_in_flight=15))

    async def _go(self) -> None:
        if self.consumers:
            self._tick()
            consumer = self.consumers.pop(self.random.randrange(len(self.consumers)))
            consumer.detach()
            now_ms = self.home.clock.now_ms()
            for message in self.model.messages.values():
                if message.holder is consumer:
                    # No failure of the message.
                    message.due_ms, message.deadline_ms, message.holder = now_ms, None, None

    async def _receive(self) -> None:
        limit, wait_ms = self.random.randint(1, 30), self.random.choice((0, 0, 10, 700))
        if self.consumers and (self.kind != "shared" or self.random.random() < 0.6):
            holder = self.random.choice(self.consumers)
            got = await holder.receive(limit, wait_ms)
            assert len(got) <= 15
        elif self.kind == "shared":
            holder, got = None, await self.home.receive(limit, wait_ms)
        else:
            return
        self._tick()
        for delivery in got:
            self.model.deliver(delivery, self.home.clock.now_ms(), holder)
        self.held += got

    async def _ack(self) -> None:
        chosen = self._chosen()
        # Late ones, too: whoever has it now.
        await self.home.ack(*chosen)
        self._tick()
        for each in chosen:
            message = self.model.messages[each.partition, each.offset]
            message.is_acked, message.deadline_ms = True, None

    async def _nack(self) -> None:
        self._tick()
        now_ms = self.home.clock.now_ms()
        chosen = self._chosen()
        delay_ms = self.random.choice((None, None, 0, 1500))
        await self.home.nack(*chosen, delay_ms=delay_ms, reason="so")
        for each in chosen:
            message = self.model.messages[each.partition, each.offset]
            if message.deadline_ms is not None and not message.is_acked:
                self.model.fail(message, now_ms, delay_ms)

    def _chosen(self) -> list[Delivery]:
        count = min(self.random.randint(1, 20), len(self.held))
        chosen = self.random.sample(self.held, count)
        self.held = [each for each in self.held if each not in chosen]
        return chosen

    async def _wait(self) -> None:
        self.home.clock.advance_ms(self.random.choice((1, 40, 300, 2500)))
        # Those whose time is over are looked at now, with or without anyone who receives.
        await self.home.let_time_work()
        self._tick()

    async def _drain(self) -> None:
        while self.kind == "key_shared" and self.consumers:
            await self._go()
        if self.kind != "shared" and not self.consumers:
            await self._come()
        until_ms = self.home.clock.now_ms() + 20_000
        while self.home.clock.now_ms() < until_ms:
            if self.kind == "shared":
                holder, got = None, await self.home.receive(100, 500)
            else:
                holder = self.consumers[0]
                got = await holder.receive(100, 500)
            self._tick()
            for delivery in got:
                self.model.deliver(delivery, self.home.clock.now_ms(), holder)
            await self.home.subscriptions.ack("t", "s", ids(got))
            for each in got:
                message = self.model.messages[each.partition, each.offset]
                message.is_acked, message.deadline_ms = True, None

    def _prove_end(self) -> None:
        dead = set()
        for record in self.home.records("t.dlq"):
            headers = dict(record.headers)
            number, offset = headers[SOURCE_PARTITION], headers[SOURCE_OFFSET]
            dead.add((int(number or b""), int(offset or b"")))
        for place, message in self.model.messages.items():
            assert message.is_acked or message.is_dead, f"{place} was lost"
            if not message.is_acked:
                assert place in dead
        assert all(self.model.messages[place].is_dead for place in dead)

        async def look() -> None:
            found = self.home.subscriptions.describe("t", "s")
            assert (found.backlog, found.in_flight, found.lost) == (0, 0, 0)
            assert (found.delayed, found.waiting) == (0, 0)

        self.home.run(look())


@pytest.mark.parametrize("kind", ["shared", "exclusive", "failover", "key_shared"])
@pytest.mark.parametrize("seed", range(10))
def test_subscription_does_what_the_model_says(seed: int, kind: str) -> None:
    World(seed, kind).run()
