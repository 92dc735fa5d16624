"""What the wall clock does to queues when it is set."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from millstream.subscriptions.delivery_time import DELIVER_AFTER, DELIVER_AT
from tests.fakes.subscription_home import SubscriptionHome, new_disk, values

Home = SubscriptionHome
SECOND_MS = 1000
HOUR_MS = 3600 * SECOND_MS
DAY_MS = 24 * HOUR_MS


@pytest.fixture
def home() -> Iterator[Home]:
    home = Home(new_disk())
    home.run(home.subscribe())
    yield home
    home.abandon()


async def send_after(home: Home, delay_ms: int, value: bytes) -> None:
    await home.send(value, headers=home.subscriptions.delay_headers(delay_ms))


async def send_at(home: Home, delay_ms: int, value: bytes) -> None:
    at = b"%d" % (home.wall.now_ms() + delay_ms)
    await home.send(value, headers=((DELIVER_AT, at),))


@pytest.mark.parametrize("is_read_before", [True, False])
@pytest.mark.parametrize("step_ms", [DAY_MS, -DAY_MS])
def test_delay_takes_as_long_as_it_says_when_the_clock_is_set(
    home: Home, step_ms: int, *, is_read_before: bool
) -> None:
    async def test() -> None:
        began_ms = home.clock.now_ms()
        await send_after(home, HOUR_MS, b"v")
        if is_read_before:
            assert await home.receive() == []
        home.wall.step_ms(step_ms)
        [later] = await home.receive(wait_ms=2 * DAY_MS)
        assert later.value == b"v"
        assert HOUR_MS <= home.clock.now_ms() - began_ms < HOUR_MS + 100

    home.run(test())


@pytest.mark.parametrize("step_ms", [DAY_MS, -DAY_MS])
def test_refused_message_comes_again_after_its_delay_when_the_clock_is_set(
    home: Home, step_ms: int
) -> None:
    async def begin() -> None:
        await home.send(b"v")
        [delivery] = await home.receive()
        home.wall.step_ms(step_ms)
        await home.nack(delivery, delay_ms=HOUR_MS)

    home.run(begin())
    home = home.restarted()

    async def go_on() -> None:
        began_ms = home.clock.now_ms()
        [again] = await home.receive(wait_ms=2 * DAY_MS)
        assert again.delivery_count == 2
        assert HOUR_MS - 100 <= home.clock.now_ms() - began_ms < HOUR_MS + 100

    home.run(go_on())
    home.close()


def test_date_follows_a_clock_that_is_set_ahead(home: Home) -> None:
    async def test() -> None:
        looking = asyncio.create_task(home.subscriptions.run())
        await send_at(home, DAY_MS, b"v")
        receiving = asyncio.create_task(home.receive(wait_ms=2 * DAY_MS))
        await asyncio.sleep(5)
        assert not receiving.done()
        set_ms = home.clock.now_ms()
        home.wall.step_ms(DAY_MS)
        assert values(await receiving) == [b"v"]
        assert home.clock.now_ms() - set_ms < 3 * SECOND_MS
        looking.cancel()

    home.run(test())


def test_date_follows_a_clock_that_is_set_back(home: Home) -> None:
    async def test() -> None:
        looking = asyncio.create_task(home.subscriptions.run())
        await send_at(home, HOUR_MS, b"first")
        await send_at(home, HOUR_MS, b"second")
        home.wall.step_ms(DAY_MS)
        await asyncio.sleep(3)
        [first] = await home.receive(1)
        assert first.value == b"first"
        home.wall.step_ms(-DAY_MS)
        await asyncio.sleep(3)
        # The one that was delivered meanwhile was due, and is so still.
        await home.nack(first, delay_ms=0)
        [again] = await home.receive()
        assert again.value == b"first"
        await home.ack(again)
        set_ms = home.clock.now_ms()
        [second] = await home.receive(wait_ms=2 * HOUR_MS)
        assert second.value == b"second"
        assert home.clock.now_ms() - set_ms > HOUR_MS - 10 * SECOND_MS
        looking.cancel()

    home.run(test())


def test_restart_with_a_clock_in_the_past_holds_no_delay_longer_than_it_says(home: Home) -> None:
    async def begin() -> None:
        for number in range(30):
            await send_after(home, 2 * SECOND_MS, b"%d" % number)
        await home.send(b"refused")
        [refused] = await home.receive()
        await home.nack(refused, delay_ms=3 * SECOND_MS)
        await asyncio.sleep(1)

    home.run(begin())
    home.wall.step_ms(-DAY_MS)
    home = home.restarted()

    async def go_on() -> None:
        began_ms = home.clock.now_ms()
        delayed = await home.receive(wait_ms=2 * DAY_MS)
        assert len(delayed) == 30
        assert home.clock.now_ms() - began_ms < 2 * SECOND_MS + 100
        [refused] = await home.receive(wait_ms=2 * DAY_MS)
        assert refused.value == b"refused"
        assert home.clock.now_ms() - began_ms < 3 * SECOND_MS + 100

    home.run(go_on())
    home.close()


def test_restart_with_a_clock_in_the_past_delivers_again_what_was_due_once(home: Home) -> None:
    async def begin() -> None:
        await send_at(home, SECOND_MS, b"v")
        [delivery] = await home.receive(wait_ms=5 * SECOND_MS)
        await home.nack(delivery, delay_ms=0)

    home.run(begin())
    home.wall.step_ms(-DAY_MS)
    home = home.restarted()
    assert home.received() == [b"v"]
    home.close()


def test_dead_letter_of_a_delayed_message_is_not_delayed(home: Home) -> None:
    async def test() -> None:
        await home.subscriptions.delete("t", "s")
        await home.subscribe(max_deliveries=1)
        await send_after(home, SECOND_MS, b"v")
        [delivery] = await home.receive(wait_ms=5 * SECOND_MS)
        await home.nack(delivery)
        await home.let_time_work()

    home.run(test())
    [letter] = home.records("t.dlq")
    assert {DELIVER_AT, DELIVER_AFTER}.isdisjoint(dict(letter.headers))
