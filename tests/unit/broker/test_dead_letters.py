"""Messages that were delivered in vain too often, and what happens to subscriptions with topics."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from millstream.errors import UnknownSubscription, UnknownTopic
from millstream.settings.names import SUBSCRIPTIONS_TOPIC
from tests.fakes.open_door import until
from tests.fakes.subscription_home import SubscriptionHome, new_disk, values

Home = SubscriptionHome


@contextmanager
def subscribed(*, has_graves: bool = True, **settings: Any) -> Iterator[Home]:
    """Without graves, the topics for dead letters do not exist yet."""
    topics = {"t": 1, "t.dlq": 1, "graves": 1} if has_graves else {"t": 1}
    home = Home(new_disk(topics))
    home.run(home.subscribe(**settings))
    try:
        yield home
    except BaseException:
        home.abandon()
        raise
    home.close()


async def refuse(home: Home, times: int, reason: str = "bad") -> None:
    for _ in range(times):
        got = await home.receive(wait_ms=60_000)
        await home.nack(*got, reason=reason)


def test_message_refused_too_often_is_a_dead_letter_that_says_why() -> None:
    with subscribed(max_deliveries=2, redelivery_min_ms=10) as home:
        sent_headers = (("h", b"1"), ("millstream-deliver-at", b"5"))
        home.run(home.send(b"v", key=b"k", headers=sent_headers))
        home.run(refuse(home, 2, reason="no such customer"))
        assert home.received(wait_ms=100_000) == []
        [letter] = home.records("t.dlq")
        assert (letter.key, letter.value) == (b"k", b"v")
        assert letter.headers == (
            ("h", b"1"),
            ("millstream-source-topic", b"t"),
            ("millstream-source-partition", b"0"),
            ("millstream-source-offset", b"0"),
            ("millstream-subscription", b"s"),
            ("millstream-delivery-count", b"2"),
            ("millstream-reason", b"no such customer"),
        )
        found = home.subscriptions.describe("t", "s")
        assert (found.dead, found.backlog, found.in_flight) == (1, 0, 0)


def test_message_out_of_time_too_often_is_dead_without_anyone_who_receives() -> None:
    with subscribed(max_deliveries=1, ack_timeout_ms=100) as home:
        home.run(home.send(b"v"))
        home.run(home.receive())
        home.run(asyncio.sleep(1))
        [letter] = home.records("t.dlq")
        assert dict(letter.headers)["millstream-reason"] == b"not acknowledged in time"


def test_messages_of_consumers_that_come_and_go_do_not_die_of_it() -> None:
    with subscribed(max_deliveries=2) as home:
        home.run(home.send(b"a", b"b"))

        async def come_and_go() -> None:
            consumer = home.subscriptions.attach("t", "s", "c")
            assert len(await consumer.receive(2, 100)) == 2
            consumer.detach()

        for _ in range(5):
            home.run(come_and_go())
        home.run(home.let_time_work())
        assert home.records("t.dlq") == []


def test_dead_letters_go_where_they_are_to_go() -> None:
    with subscribed(max_deliveries=1, dead_letter_topic="graves") as home:
        home.run(home.send(b"a", b"b"))
        home.run(refuse(home, 1))
        home.run(home.let_time_work())
        assert [letter.value for letter in home.records("graves")] == [b"a", b"b"]
        assert home.records("t.dlq") == []


def test_without_a_limit_nothing_is_dead() -> None:
    with subscribed(max_deliveries=0, redelivery_min_ms=0, redelivery_max_ms=0) as home:
        home.run(home.send(b"a"))
        home.run(refuse(home, 50))
        [got] = home.run(home.receive())
        assert got.delivery_count == 51


def test_counts_outlive_a_crash() -> None:
    home = Home(new_disk())
    home.run(home.subscribe(max_deliveries=3, redelivery_min_ms=1000))
    home.run(home.send(b"a", b"b"))
    home.run(refuse(home, 1, reason="first"))
    home.run(refuse(home, 1, reason="second"))
    home = home.restarted("lost")

    async def go_on() -> None:
        assert await home.receive() == []
        began_ms = home.clock.now_ms()
        got = await home.receive(wait_ms=60_000)
        assert [each.delivery_count for each in got] == [3, 3]
        assert home.clock.now_ms() - began_ms == 2000
        await home.nack(got[0])
        await home.ack(got[1])
        await home.let_time_work()

    home.run(go_on())
    assert [letter.value for letter in home.records("t.dlq")] == [b"a"]
    home.close()


def test_dead_letters_that_cannot_be_sent_are_tried_again() -> None:
    with subscribed(max_deliveries=1) as home:
        home.run(home.send(b"a"))
        got = home.run(home.receive())
        home.disk.space_bytes = 0
        home.run(home.nack(*got))
        home.run(asyncio.sleep(3))
        assert home.records("t.dlq") == []
        home.disk.space_bytes = None
        home.run(asyncio.sleep(60))
        assert [letter.value for letter in home.records("t.dlq")] == [b"a"]
        assert home.subscriptions.describe("t", "s").backlog == 0


# With topics that are created, changed and deleted


def test_dead_letters_that_cannot_be_sent_hold_up_no_others(caplog: Any) -> None:
    with subscribed(has_graves=False, max_deliveries=1, dead_letter_topic="graves") as home:

        async def test() -> None:
            overrides = {"max.message.bytes": "1000"}
            await home.topics.create("graves", partitions=1, overrides=overrides)
            # More than are sent at once.
            await home.send(*[b"x" * 2000] * 150, b"small")
            await home.nack(*await home.receive(200))
            await until(lambda: home.subscriptions.describe("t", "s").dead == 1)
            [queue] = home.subscriptions.find("t", "s").queues
            assert len(queue.dead) == 150
            # Those who die meanwhile do not wait for them either.
            await home.send(b"later")
            await home.nack(*await home.receive(wait_ms=1000))
            await until(lambda: home.subscriptions.describe("t", "s").dead == 2)

        home.run(test())
        assert [letter.value for letter in home.records("graves")] == [b"small", b"later"]
    told = [each for each in caplog.messages if "not sent" in each]
    assert len(told) == 1
    assert "message 0:0" in told[0]


def test_topic_of_dead_letters_is_created_and_takes_the_largest_message() -> None:
    with subscribed(has_graves=False, max_deliveries=1) as home:
        largest = b"x" * (home.topics.get("t").settings.max_message_bytes - 200)

        async def test() -> None:
            await home.send(largest)
            await home.nack(*await home.receive())
            await until(lambda: home.subscriptions.describe("t", "s").dead == 1)

        home.run(test())
        [letter] = home.records("t.dlq")
        assert letter.value == largest


def test_new_partitions_are_received_from() -> None:
    with subscribed(has_graves=False, start="latest") as home:

        async def test() -> None:
            waiting = asyncio.ensure_future(home.receive(wait_ms=10_000))
            await asyncio.sleep(0)
            await home.topics.add_partitions("t", 3)
            await home.send(b"v", partition=2)
            [got] = await waiting
            assert got.message_id == "2:0"
            await home.ack(got)
            assert home.subscriptions.describe("t", "s").floors == [0, 0, 1]

        home.run(test())
        again = Home(home.disk.after_crash("lost"))
        assert again.received() == []
        again.run(again.send(b"w", partition=1))
        assert again.received() == [b"w"]
        again.close()


def test_deleted_topic_takes_its_subscriptions_with_it() -> None:
    with subscribed(has_graves=False) as home:

        async def test() -> None:
            await home.send(b"old", b"old")
            await home.ack((await home.receive())[1])
            waiting = asyncio.ensure_future(home.receive(wait_ms=10_000))
            await asyncio.sleep(0)
            await home.topics.delete("t")
            with pytest.raises((UnknownTopic, UnknownSubscription)):
                await waiting
            with pytest.raises(UnknownTopic):
                await home.receive()
            await home.topics.create("t", partitions=1, overrides={})
            with pytest.raises(UnknownSubscription):
                await home.receive()
            await home.subscribe()
            await home.send(b"new")
            assert values(await home.receive()) == [b"new"]

        home.run(test())


def test_subscriptions_of_a_topic_that_is_not_there_any_more_are_forgotten_at_start() -> None:
    async def create(broker: Home) -> None:
        await broker.topics.create("t", partitions=1, overrides={})

    with subscribed(has_graves=False) as home:
        home.run(home.send(b"a", b"b", b"c"))
        got = home.run(home.receive())
        home.run(home.ack(got[1]))

        async def delete() -> None:
            # As if a crash came before they were forgotten.
            home.topics.forgetting.clear()
            await home.topics.delete("t")

        home.run(delete())
        found = Home(home.disk.after_crash("lost"))
        found.run(asyncio.sleep(0))
        assert found.subscriptions.list() == []
        log = found.topics.partition(SUBSCRIPTIONS_TOPIC, 0).log
        assert log.synced_offset == log.end_offset
        found.close()
        # A topic of the same name inherits nothing.
        again = Home(found.disk.after_crash("lost"))
        again.run(create(again))
        assert again.subscriptions.list() == []
        again.close()
