"""In which order messages come, when consumers go, refuse and are too slow."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from millstream.broker.subscriptions import Consumer
from millstream.settings.subscriptions import SubscriptionLimits
from tests.fakes.subscription_home import SubscriptionHome, new_disk

Home = SubscriptionHome
ORDERED = ["exclusive", "failover", "key_shared"]


@contextmanager
def subscribed(
    limits: SubscriptionLimits | None = None, partitions: int = 1, **settings: Any
) -> Iterator[Home]:
    home = Home(new_disk({"t": partitions, "t.dlq": 1}), subscriptions=limits)
    home.run(home.subscribe(**settings))
    try:
        yield home
    except BaseException:
        home.abandon()
        raise
    home.close()


def attach(home: Home, name: str = "c", **options: Any) -> Consumer:
    async def work() -> Consumer:
        return home.subscriptions.attach("t", "s", name, **options)

    return home.run(work())


def detach(home: Home, consumer: Consumer) -> None:
    async def work() -> None:
        consumer.detach()

    home.run(work())


def offsets(home: Home, consumer: Consumer, limit: int, **options: Any) -> list[int]:
    return [each.offset for each in home.run(consumer.receive(limit, 0, **options))]


def ids(*chosen: int) -> list[str]:
    return [f"0:{offset}" for offset in chosen]


def send(home: Home, count: int, key: bytes | None = b"k") -> None:
    home.run(home.send(*[b"v"] * count, key=key))


@pytest.mark.parametrize("kind", ORDERED)
def test_what_a_consumer_had_comes_first_to_the_next_one(kind: str) -> None:
    # More than are read ahead, so that later ones are ready when it goes.
    with subscribed(SubscriptionLimits(read_ahead=50), type=kind) as home:
        send(home, 120)
        first = attach(home)
        assert offsets(home, first, 10) == list(range(10))
        detach(home, first)
        second = attach(home)
        got: list[int] = []
        while some := offsets(home, second, 7):
            got += some
        assert got == list(range(120))


@pytest.mark.parametrize("kind", ORDERED)
def test_more_than_is_read_ahead_comes_again_in_order(kind: str) -> None:
    with subscribed(SubscriptionLimits(read_ahead=10), type=kind) as home:
        send(home, 100)
        first = attach(home)
        for _ in range(8):
            offsets(home, first, 10)
        home.run(first.ack(ids(*range(0, 80, 3))))
        detach(home, first)
        second = attach(home)
        got: list[int] = []
        while some := offsets(home, second, 7):
            got += some
        assert got == [n for n in range(100) if n >= 80 or n % 3]
        [queue] = home.subscriptions.find("t", "s").queues
        assert queue.ready_count == 0


@pytest.mark.parametrize("kind", ORDERED)
def test_message_refused_without_a_delay_comes_before_what_was_not_delivered(kind: str) -> None:
    with subscribed(SubscriptionLimits(read_ahead=20), type=kind) as home:
        send(home, 100)
        consumer = attach(home)
        assert offsets(home, consumer, 10) == list(range(10))
        home.run(consumer.nack(ids(7, 2, 4), delay_ms=0))
        assert offsets(home, consumer, 5) == [2, 4, 7, 10, 11]


@pytest.mark.parametrize("kind", ORDERED)
def test_messages_out_of_time_come_before_what_was_not_delivered(kind: str) -> None:
    with subscribed(type=kind, ack_timeout_ms=1000) as home:
        send(home, 3000)
        consumer = attach(home, max_in_flight=5000)
        got: list[int] = []
        while len(got) < 2500:
            got += offsets(home, consumer, 500)
        home.clock.advance_ms(1500)
        got = []
        # More than are dealt with at once when their time is over.
        while some := offsets(home, consumer, 500):
            got += some
        assert got == list(range(3000))


def test_message_refused_with_a_delay_lets_later_ones_pass() -> None:
    with subscribed(type="exclusive") as home:
        send(home, 5)
        consumer = attach(home)
        assert offsets(home, consumer, 2) == [0, 1]
        home.run(consumer.nack(ids(0), delay_ms=1000))
        assert offsets(home, consumer, 1) == [2]
        home.run(asyncio.sleep(1))
        assert offsets(home, consumer, 5) == [0, 3, 4]


def test_keys_of_another_consumer_do_not_keep_refused_messages_from_coming() -> None:
    with subscribed(SubscriptionLimits(read_ahead=20), type="key_shared") as home:
        mine, theirs = attach(home, "mine"), attach(home, "theirs")
        for number in range(40):
            home.run(home.send(b"v", key=b"%d" % number))
        got = offsets(home, mine, 100)
        assert got
        # All room for what is read ahead is taken by the other one's, who does not come.
        while some := offsets(home, mine, 100):
            got += some
        home.run(mine.nack(ids(*got), delay_ms=0))
        again: list[int] = []
        while some := offsets(home, mine, 100):
            again += some
        assert again == got
        their_own: list[int] = []
        while some := offsets(home, theirs, 100):
            their_own += some
            home.run(theirs.ack(ids(*some)))
        assert their_own == sorted(their_own)
        assert not set(their_own) & set(got)


def test_answers_are_bounded_in_bytes_and_hold_one_message_at_least() -> None:
    with subscribed(type="shared") as home:
        home.run(home.send(*[b"x" * 1000] * 20))
        consumer = attach(home)
        assert offsets(home, consumer, 100, max_bytes=5000) == [0, 1, 2, 3, 4]
        assert offsets(home, consumer, 100, max_bytes=1) == [5]
        detach(home, consumer)
        # What comes again is bounded, too.
        again = attach(home)
        assert offsets(home, again, 100, max_bytes=2000) == [0, 1]


def test_large_messages_are_not_all_read_ahead() -> None:
    with subscribed(type="shared") as home:
        for _ in range(12):
            home.run(home.send(b"x" * 500_000))
        consumer = attach(home)
        got: list[int] = []
        for _ in range(12):
            got += offsets(home, consumer, 1)
        detach(home, consumer)
        again = attach(home)
        assert offsets(home, again, 1) == [0]
        [queue] = home.subscriptions.find("t", "s").queues
        assert queue.ready.size_bytes < 3 << 20
        assert sorted(got) == list(range(12))


# What was never delivered


def test_ids_to_which_nothing_happens_are_told() -> None:
    with subscribed(type="shared") as home:
        send(home, 4)
        first, other = attach(home, "first"), attach(home, "other")
        assert offsets(home, first, 2) == [0, 1]
        # Only who has a message can refuse it; done is done, whoever says so.
        assert home.run(other.nack(ids(0), delay_ms=0)) == ids(0)
        assert home.run(first.nack(ids(0, 3), delay_ms=0)) == ids(3)
        assert home.run(first.ack(ids(1, 1))) == ids(1)
        assert home.run(home.subscriptions.ack("t", "s", ids(1, 2))) == ids(1)
        assert home.run(home.subscriptions.nack("t", "s", ids(1, 2))) == ids(1, 2)
        # 2 was acknowledged before it was delivered, and does not come.
        assert offsets(home, other, 9) == [0, 3]


def test_ids_of_a_subscription_that_began_anew_do_nothing() -> None:
    with subscribed(type="shared") as home:
        send(home, 3)
        old = home.run(home.receive())
        home.run(home.subscriptions.delete("t", "s"))
        home.run(home.subscribe(start="latest"))
        send(home, 1)
        chosen = [each.message_id for each in old]
        assert home.run(home.subscriptions.ack("t", "s", chosen)) == chosen
        assert home.run(home.subscriptions.nack("t", "s", chosen)) == chosen
        assert [each.offset for each in home.run(home.receive())] == [3]
