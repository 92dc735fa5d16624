"""Consumers of exclusive, failover, shared and key_shared subscriptions: who gets what."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from millstream.broker.subscriptions import Consumer, Delivery
from millstream.errors import InvalidSetting, NotInFlight, SubscriptionConflict
from tests.fakes.subscription_home import SubscriptionHome, ids, new_disk, values

Home = SubscriptionHome


@contextmanager
def subscribed(partitions: int = 1, **settings: Any) -> Iterator[Home]:
    home = Home(new_disk({"t": partitions, "t.dlq": 1}))
    home.run(home.subscribe(**settings))
    try:
        yield home
    except BaseException:
        home.abandon()
        raise
    home.close()


def attach(home: Home, name: str, **options: Any) -> Consumer:
    async def work() -> Consumer:
        return home.subscriptions.attach("t", "s", name, **options)

    return home.run(work())


def detach(home: Home, consumer: Consumer) -> None:
    async def work() -> None:
        consumer.detach()

    home.run(work())


def received(home: Home, consumer: Consumer, limit: int = 100, wait_ms: int = 0) -> list[Delivery]:
    return home.run(consumer.receive(limit, wait_ms))


def test_exclusive_subscription_has_one_consumer() -> None:
    with subscribed(type="exclusive") as home:
        first = attach(home, "first")
        with pytest.raises(SubscriptionConflict, match="'first' has it"):
            attach(home, "second")
        detach(home, first)
        detach(home, first)
        second = attach(home, "second")
        home.run(home.send(b"a"))
        assert values(received(home, second)) == [b"a"]
        with pytest.raises(SubscriptionConflict, match="detached"):
            received(home, first)


@pytest.mark.parametrize("kind", ["exclusive", "failover", "key_shared"])
def test_only_shared_ones_are_received_from_without_a_consumer(kind: str) -> None:
    with subscribed(type=kind) as home, pytest.raises(SubscriptionConflict):
        home.run(home.receive())


def test_failover_hands_over_to_who_stands_by() -> None:
    with subscribed(type="failover") as home:
        active, standby = attach(home, "active"), attach(home, "standby")
        assert (active.is_active, standby.is_active) == (True, False)
        home.run(home.send(b"a", b"b", b"c"))
        assert received(home, standby, wait_ms=50) == []
        a, _ = received(home, active, 2)
        home.run(active.ack([a.message_id]))

        async def take_over() -> list[Delivery]:
            waiting = asyncio.ensure_future(standby.receive(10, 10_000))
            await asyncio.sleep(0.01)
            active.detach()
            return await waiting

        began_ms = home.clock.now_ms()
        got = home.run(take_over())
        assert [(each.value, each.delivery_count) for each in got] == [(b"b", 1), (b"c", 1)]
        assert home.clock.now_ms() - began_ms == 10
        assert standby.is_active


def test_what_a_consumer_had_goes_to_others_at_once() -> None:
    with subscribed() as home:
        one, two = attach(home, "one"), attach(home, "two")
        home.run(home.send(*[b"v"] * 6))
        assert len(received(home, one, 4)) == 4
        assert one.in_flight == 4
        assert len(received(home, two)) == 2
        detach(home, one)
        again = received(home, two)
        assert [each.delivery_count for each in again] == [1, 1, 1, 1]
        assert two.in_flight == 6


def test_consumer_has_no_more_than_it_may() -> None:
    with subscribed() as home:
        one = attach(home, "one", max_in_flight=3)
        home.run(home.send(*[b"v"] * 10))
        got = received(home, one)
        assert len(got) == 3
        assert received(home, one, wait_ms=100) == []
        home.run(one.ack(ids(got[:2])))
        assert len(received(home, one)) == 2
        with pytest.raises(InvalidSetting):
            attach(home, "two", max_in_flight=0)


def test_consumer_does_not_settle_what_another_has() -> None:
    with subscribed(ack_timeout_ms=1000) as home:
        one, two = attach(home, "one"), attach(home, "two")
        home.run(home.send(b"a"))
        [late] = received(home, one)
        [a] = received(home, two, wait_ms=2000)
        # Late refusals change nothing, and are no error.
        home.run(one.nack([late.message_id], delay_ms=0))
        assert received(home, one) == []
        with pytest.raises(NotInFlight):
            home.run(one.extend([a.message_id], 500))
        # A late acknowledgement counts: the work is done.
        home.run(one.ack([a.message_id]))
        assert two.in_flight == 0


def test_shared_consumers_that_wait_take_turns() -> None:
    with subscribed() as home:
        consumers = [attach(home, f"c{n}") for n in range(3)]

        async def test() -> list[int]:
            waiting = [asyncio.ensure_future(each.receive(10, 1000)) for each in consumers]
            await asyncio.sleep(0.01)
            await home.send(*[b"v"] * 9)
            return [len(got) for got in await asyncio.gather(*waiting)]

        assert home.run(test()) == [3, 3, 3]


# Keys


def keys_of(deliveries: list[Delivery]) -> set[bytes]:
    return {each.key or b"" for each in deliveries}


def send_keyed(home: Home, keys: int, each: int) -> None:
    async def send() -> None:
        for number in range(each):
            for key in range(keys):
                await home.send(b"%d" % number, key=b"k%d" % key)

    home.run(send())


def test_key_goes_to_one_consumer_and_in_order() -> None:
    with subscribed(type="key_shared", partitions=2) as home:
        consumers = [attach(home, f"c{n}") for n in range(3)]
        send_keyed(home, keys=30, each=4)
        got = [received(home, each) for each in consumers]
        assert sum(map(len, got)) == 120
        assert all(got)
        for one in got:
            for other in got:
                assert one is other or not keys_of(one) & keys_of(other)
            for key in keys_of(one):
                assert [each.value for each in one if each.key == key] == [b"0", b"1", b"2", b"3"]


def test_slow_consumer_of_some_keys_does_not_hold_up_others() -> None:
    with subscribed(type="key_shared") as home:
        slow, fast = attach(home, "slow"), attach(home, "fast")
        send_keyed(home, keys=40, each=5)
        theirs = received(home, fast, 1000)
        mine = received(home, slow, 1000)
        assert len(theirs) + len(mine) == 200
        assert min(len(theirs), len(mine)) > 20


def test_key_changes_hands_only_when_nothing_of_it_is_in_flight() -> None:
    with subscribed(type="key_shared") as home:
        first = attach(home, "first")
        send_keyed(home, keys=40, each=1)
        held = received(home, first)
        assert len(held) == 40
        second = attach(home, "second")
        send_keyed(home, keys=40, each=1)
        # Some of these keys are the second's now, and the first has messages of all of them.
        assert received(home, second) == []
        home.run(first.ack(ids(held)))
        theirs = received(home, second)
        ours = received(home, first)
        assert theirs
        assert len(theirs) + len(ours) == 40
        assert not keys_of(theirs) & keys_of(ours)


def test_keys_of_who_has_gone_go_to_others() -> None:
    with subscribed(type="key_shared") as home:
        one, two = attach(home, "one"), attach(home, "two")
        send_keyed(home, keys=20, each=3)
        theirs = received(home, one)
        assert theirs
        detach(home, one)
        got = received(home, two)
        assert len(got) == 60
        for key in keys_of(got):
            assert [each.value for each in got if each.key == key] == [b"0", b"1", b"2"]


def test_messages_without_a_key_are_spread() -> None:
    with subscribed(type="key_shared") as home:
        one, two = attach(home, "one"), attach(home, "two")
        home.run(home.send(*[b"v"] * 10))
        assert (len(received(home, one)), len(received(home, two))) == (5, 5)
