"""Messages that are sent for later."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from millstream.settings.subscriptions import SubscriptionLimits
from millstream.subscriptions.delivery_time import DELIVER_AT
from tests.fakes.subscription_home import SubscriptionHome, new_disk, values

Home = SubscriptionHome


@contextmanager
def subscribed(limits: SubscriptionLimits | None = None) -> Iterator[Home]:
    home = Home(new_disk(), subscriptions=limits)
    home.run(home.subscribe())
    try:
        yield home
    except BaseException:
        home.abandon()
        raise
    home.close()


async def send_later(home: Home, delay_ms: int, *payload: bytes) -> None:
    at = b"%d" % (home.clock.now_ms() + delay_ms)
    await home.send(*payload, headers=((DELIVER_AT, at),))


def test_message_for_later_comes_when_it_is_due_and_holds_up_nobody() -> None:
    with subscribed() as home:

        async def test() -> None:
            await send_later(home, 5000, b"later")
            await home.send(b"now")
            began_ms = home.clock.now_ms()
            [now] = await home.receive(wait_ms=1)
            assert now.value == b"now"
            await home.ack(now)
            assert await home.receive() == []
            [later] = await home.receive(wait_ms=60_000)
            assert (later.value, later.delivery_count) == (b"later", 1)
            assert 5000 <= home.clock.now_ms() - began_ms <= 5100
            await home.ack(later)
            assert await home.receive(wait_ms=100_000) == []

        home.run(test())


def test_message_for_later_outlives_a_crash() -> None:
    home = Home(new_disk())
    home.run(home.subscribe())

    async def begin() -> int:
        await send_later(home, 5000, b"later")
        await home.send(b"now")
        [now] = await home.receive()
        await home.ack(now)
        return home.clock.now_ms() + 5000

    due_ms = home.run(begin())
    home = home.restarted("lost")

    async def go_on() -> None:
        assert await home.receive() == []
        [later] = await home.receive(wait_ms=60_000)
        assert later.value == b"later"
        assert due_ms <= home.clock.now_ms() <= due_ms + 100

    home.run(go_on())
    home.close()


def test_what_is_for_later_is_known_before_anyone_receives() -> None:
    limits = SubscriptionLimits(read_ahead=10)
    home = Home(new_disk(), subscriptions=limits)
    home.run(home.subscribe())

    async def begin() -> None:
        await send_later(home, 5000, *(b"%d" % n for n in range(30)))
        await home.send(*(b"now %d" % n for n in range(25)))
        await send_later(home, 5000, b"behind what is read ahead")

    home.run(begin())
    home = home.restarted("lost", subscriptions=limits)

    async def look() -> None:
        looking = asyncio.create_task(home.subscriptions.run())
        await asyncio.sleep(3)
        queue = home.subscriptions.find("t", "s").queues[0]
        # No more is kept of what anyone could have now than for those who receive.
        assert (queue.later_count, queue.waiting_count, queue.ready_count) == (30, 10, 0)
        first = await home.receive(40)
        assert [each.value for each in first] == [b"now %d" % n for n in range(len(first))]
        looking.cancel()

    home.run(look())
    home.close()


def test_messages_due_at_different_times_come_in_that_order() -> None:
    with subscribed() as home:

        async def test() -> list[bytes]:
            for delay_ms in (300, 100, 200):
                await send_later(home, delay_ms, b"%d" % delay_ms)
            return [value for _ in range(3) for value in values(await home.receive(9, 1000))]

        assert home.run(test()) == [b"100", b"200", b"300"]


def test_time_that_has_passed_or_is_none_is_at_once() -> None:
    with subscribed() as home:
        for text in (b"1", b"", b"soon", b"-5", b"9" * 30, None):
            home.run(home.send(b"v", headers=((DELIVER_AT, text),)))
        assert len(home.received()) == 6


def test_consumer_that_waits_gets_what_was_sent_for_a_moment_later() -> None:
    with subscribed() as home:

        async def test() -> None:
            waiting = asyncio.ensure_future(home.receive(wait_ms=60_000))
            await asyncio.sleep(1)
            await send_later(home, 50, b"v")
            began_ms = home.clock.now_ms()
            assert values(await waiting) == [b"v"]
            assert 50 <= home.clock.now_ms() - began_ms <= 150

        home.run(test())


def test_as_many_as_may_wait_do_and_those_behind_wait_for_them() -> None:
    with subscribed(SubscriptionLimits(max_delayed=5, read_ahead=5)) as home:

        async def test() -> None:
            await send_later(home, 1000, *[b"later"] * 5)
            await home.send(b"behind")
            assert await home.receive(wait_ms=500) == []
            got = await home.receive(wait_ms=10_000)
            assert values(got) == [b"later"] * 5
            assert values(await home.receive()) == [b"behind"]

        home.run(test())


def test_hundred_thousand_for_later_cost_little_memory_and_hold_up_nobody() -> None:
    with subscribed() as home:

        async def fill() -> None:
            for _ in range(100):
                await send_later(home, 3_600_000, *[b"x" * 100] * 1000)
            await home.send(b"now")

        home.run(fill())
        [now] = home.run(home.receive())
        assert now.value == b"now"
        home.run(home.ack(now))
        [queue] = home.subscriptions.find("t", "s").queues
        assert queue.later_count == 100_000
        heap = queue._later._heap
        taken_bytes = sys.getsizeof(heap) + sum(sys.getsizeof(entry) for entry in heap)
        assert taken_bytes < 10 << 20
        assert queue.ready_count == 0

        async def drain() -> int:
            home.clock.advance_ms(3_600_000)
            count = 0
            while got := await home.receive(1000):
                count += len(got)
                await home.ack(*got)
            return count

        assert home.run(drain()) == 100_000
