"""Shared subscriptions: receive, acknowledge, refuse, time out; what is kept, and what is not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from millstream.broker.subscriptions import Delivery, SubscriptionSettings
from millstream.errors import (
    DiskFull,
    InvalidMessageId,
    InvalidName,
    InvalidSetting,
    LimitReached,
    NotInFlight,
    SubscriptionConflict,
    Unavailable,
    UnknownSubscription,
    UnknownTopic,
)
from millstream.records import Record, build
from millstream.settings.names import SUBSCRIPTIONS_TOPIC
from millstream.settings.subscriptions import SubscriptionLimits
from tests.fakes.sample_batches import abort_marker, commit_marker, transactional_batch
from tests.fakes.subscription_home import SubscriptionHome, new_disk, values

Home = SubscriptionHome


@contextmanager
def subscribed(
    partitions: int = 1, limits: SubscriptionLimits | None = None, **settings: Any
) -> Iterator[Home]:
    """A home with the subscription `s` of topic `t`."""
    home = Home(new_disk({"t": partitions, "t.dlq": 1}), subscriptions=limits)
    home.run(home.subscribe(**settings))
    try:
        yield home
    except BaseException:
        home.abandon()
        raise
    home.close()


def test_message_is_received_as_it_was_sent() -> None:
    with subscribed() as home:
        home.run(home.send(b"v", key=b"k", headers=(("h", b"1"),), timestamp_ms=5))
        [found] = home.run(home.receive())
        assert found == Delivery("0:0", "t", 0, 0, b"k", b"v", (("h", b"1"),), 5, 1)


def test_message_in_flight_comes_again_only_out_of_time_and_acknowledged_never() -> None:
    with subscribed(ack_timeout_ms=1000) as home:
        home.run(home.send(b"a", b"b"))
        a, _ = home.run(home.receive())
        home.run(home.ack(a))
        assert home.received() == []
        assert home.received(wait_ms=999) == []
        [again] = home.run(home.receive(wait_ms=50))
        assert (again.value, again.delivery_count) == (b"b", 2)
        home.run(home.ack(again))
        assert home.received(wait_ms=60_000) == []
        found = home.run(described(home))
        assert (found.backlog, found.in_flight, found.redelivered) == (0, 0, 1)


async def described(home: Home, name: str = "s") -> Any:
    return home.subscriptions.describe("t", name)


def test_receiver_waits_for_a_message() -> None:
    with subscribed() as home:

        async def test() -> None:
            waiting = asyncio.ensure_future(home.receive(wait_ms=10_000))
            await asyncio.sleep(1)
            assert not waiting.done()
            await home.send(b"a")
            began_ms = home.clock.now_ms()
            assert values(await waiting) == [b"a"]
            assert home.clock.now_ms() == began_ms
            assert not home.topics.partition("t", 0).waiters

        home.run(test())


def test_refused_message_waits_twice_as_long_each_time() -> None:
    with subscribed(redelivery_min_ms=100, redelivery_max_ms=300) as home:

        async def test() -> list[tuple[int, int]]:
            await home.send(b"a")
            waits = []
            for _ in range(4):
                began_ms = home.clock.now_ms()
                [got] = await home.receive(wait_ms=5000)
                waits.append((home.clock.now_ms() - began_ms, got.delivery_count))
                await home.nack(got)
            return waits

        assert home.run(test()) == [(0, 1), (100, 2), (200, 3), (300, 4)]


def test_refused_message_waits_as_long_as_asked() -> None:
    with subscribed() as home:
        home.run(home.send(b"a", b"b"))
        a, b = home.run(home.receive())
        home.run(home.nack(a, delay_ms=0))
        home.run(home.nack(b, delay_ms=5000))
        assert home.received() == [b"a"]
        assert home.received(wait_ms=4999) == []
        assert home.received(wait_ms=1) == [b"b"]


def test_refused_message_comes_before_newer_ones() -> None:
    with subscribed() as home:
        home.run(home.send(b"a", b"b", b"c"))
        a, b = home.run(home.receive(2))
        home.run(home.nack(b, a, delay_ms=0))
        assert home.received() == [b"a", b"b", b"c"]


def test_extended_message_has_more_time_from_now() -> None:
    with subscribed(ack_timeout_ms=1000) as home:
        home.run(home.send(b"a", b"b"))
        a, _ = home.run(home.receive())
        home.run(home.subscriptions.extend("t", "s", [a.message_id], 3000))
        [b] = home.run(home.receive(wait_ms=1500))
        assert b.value == b"b"
        home.run(home.ack(b))
        assert home.received(wait_ms=1999) == []
        assert home.received(wait_ms=2) == [b"a"]


def test_what_is_not_in_flight_cannot_be_extended() -> None:
    with subscribed() as home:
        home.run(home.send(b"a", b"b"))
        [a] = home.run(home.receive(1))
        with pytest.raises(NotInFlight) as refused:
            home.run(home.subscriptions.extend("t", "s", [a.message_id, "0:1"], 3000))
        assert refused.value.message_ids == ["0:1"]


def test_receive_may_set_its_own_time() -> None:
    with subscribed() as home:
        home.run(home.send(b"a"))
        home.run(home.receive(timeout_ms=50))
        assert home.received(wait_ms=49) == []
        assert home.received(wait_ms=2) == [b"a"]


def test_late_and_repeated_acknowledgements_count() -> None:
    with subscribed(ack_timeout_ms=100) as home:
        home.run(home.send(b"a"))
        [a] = home.run(home.receive())
        home.run(asyncio.sleep(1))
        home.run(home.ack(a))
        assert home.received(wait_ms=1000) == []
        home.run(home.ack(a, a))
        home.run(home.nack(a))
        assert home.received(wait_ms=100_000) == []


@pytest.mark.parametrize(
    "message_id", ["", "0", "0:", ":0", "0:1", "0:-1", "1:0", "a:b", "0:0:0", "0:" + "9" * 99]
)
def test_id_of_no_message_changes_nothing(message_id: str) -> None:
    with subscribed() as home:
        home.run(home.send(b"a"))
        [a] = home.run(home.receive())
        for settle in (home.subscriptions.ack, home.subscriptions.nack):
            with pytest.raises(InvalidMessageId):
                home.run(settle("t", "s", [a.message_id, message_id]))
        assert home.run(described(home)).in_flight == 1


def test_all_partitions_are_received_from() -> None:
    with subscribed(partitions=3) as home:
        for number in range(3):
            home.run(home.send(*[b"%d" % number] * 3, partition=number))
        got = home.run(home.receive())
        assert sorted(each.partition for each in got) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
        home.run(home.ack(*got))
        assert home.run(described(home)).floors == [3, 3, 3]


def test_two_subscriptions_each_get_all() -> None:
    with subscribed() as home:
        home.run(home.subscribe("other"))
        home.run(home.send(b"a"))
        [a] = home.run(home.receive())
        home.run(home.ack(a))
        other = home.run(home.subscriptions.receive("t", "other", 9, 0))
        assert values(other) == [b"a"]


def test_acknowledgements_of_one_turn_are_one_batch() -> None:
    with subscribed() as home:
        home.run(home.send(*[b"v"] * 300))
        got = home.run(home.receive(300))
        log = home.topics.partition(SUBSCRIPTIONS_TOPIC, 0).log
        before = log.end_offset

        async def test() -> None:
            await asyncio.gather(*(home.ack(each) for each in got))

        home.run(test())
        # The floor alone: they were in order.
        assert log.end_offset == before + 1


def test_in_flight_is_bounded() -> None:
    with subscribed(limits=SubscriptionLimits(max_in_flight=10)) as home:
        home.run(home.send(*[b"v"] * 30))
        got = home.run(home.receive(100))
        assert len(got) == 10
        assert home.received(wait_ms=50) == []

        async def test() -> None:
            waiting = asyncio.ensure_future(home.receive(wait_ms=10_000))
            await asyncio.sleep(0.01)
            await home.ack(*got[:4])
            assert len(await waiting) == 4

        home.run(test())


def test_ten_thousand_are_in_flight_and_read_ahead_is_bounded() -> None:
    with subscribed() as home:
        for _ in range(12):
            home.run(home.send(*[b"v"] * 1000))
        got = [each for _ in range(20) for each in home.run(home.receive(1000))]
        assert len(got) == len({each.offset for each in got}) == 10_000
        [queue] = home.subscriptions.find("t", "s").queues
        assert queue.ready_count <= 1000
        home.run(home.ack(*got[::2]))
        home.run(home.ack(*got[1::2]))
        assert home.run(described(home)).floors == [10_000]


def test_what_was_read_ahead_is_dropped_when_nobody_receives_and_read_again() -> None:
    with subscribed() as home:
        home.run(home.send(*[b"%d" % n for n in range(100)]))
        [first] = home.run(home.receive(1))
        home.run(home.ack(first))
        [queue] = home.subscriptions.find("t", "s").queues
        assert queue.ready_count == 99
        home.run(asyncio.sleep(30))
        assert queue.ready_count == 0
        assert home.received(1000) == [b"%d" % n for n in range(1, 100)]


def test_who_hangs_up_gets_nothing_and_nothing_is_lost() -> None:
    with subscribed() as home:

        async def test() -> None:
            waiting = asyncio.ensure_future(home.receive(wait_ms=10_000))
            await asyncio.sleep(1)
            # Answered and gone in the same turn of the loop.
            await home.send(b"a")
            waiting.cancel()
            await asyncio.wait([waiting])
            [got] = await home.receive(wait_ms=10)
            assert (got.value, got.delivery_count) == (b"a", 1)

        home.run(test())


def test_waiting_receivers_share_what_comes() -> None:
    with subscribed() as home:

        async def test() -> list[int]:
            waiting = [asyncio.ensure_future(home.receive(wait_ms=1000)) for _ in range(4)]
            await asyncio.sleep(0.1)
            await home.send(*[b"v"] * 10)
            return [len(got) for got in await asyncio.gather(*waiting)]

        assert sorted(home.run(test())) == [2, 2, 3, 3]


# Creating and deleting


def test_start_says_where_a_subscription_begins() -> None:
    with subscribed() as home:
        home.run(home.send(b"a", b"b", b"c"))
        for start, expected in (("earliest", 3), ("latest", 0), (2, 1), (99, 0)):
            name = f"from-{start}"
            home.run(home.subscribe(name, start=start))
            got = home.run(home.subscriptions.receive("t", name, 9, 0))
            assert len(got) == expected


def test_created_again_it_must_be_the_same() -> None:
    with subscribed(max_deliveries=5) as home:
        home.run(home.subscribe(max_deliveries=5, start="latest"))
        with pytest.raises(SubscriptionConflict):
            home.run(home.subscribe(max_deliveries=6))

        async def both() -> Any:
            one, two = home.subscribe("n"), home.subscribe("n", max_deliveries=1)
            return await asyncio.gather(one, two, return_exceptions=True)

        done, refused = home.run(both())
        assert done is None
        assert isinstance(refused, SubscriptionConflict)


def test_bad_names_and_unknown_things_are_refused() -> None:
    with subscribed() as home:
        with pytest.raises(InvalidName):
            home.run(home.subscribe("a/b"))
        with pytest.raises(InvalidName):
            home.run(home.subscriptions.create(SUBSCRIPTIONS_TOPIC, "s"))
        with pytest.raises(UnknownSubscription):
            home.run(home.subscriptions.receive("t", "nope", 1, 0))
        with pytest.raises(UnknownTopic):
            home.run(home.subscriptions.ack("nope", "s", []))
        for count in (0, -1):
            with pytest.raises(InvalidSetting):
                home.run(home.receive(count))
        with pytest.raises(InvalidSetting):
            home.run(home.nack(delay_ms=-1))


def test_deleted_subscription_is_gone_and_begins_anew() -> None:
    with subscribed() as home:
        home.run(home.send(*[b"v"] * 10))
        got = home.run(home.receive())
        home.run(home.ack(*got[1:]))

        async def delete() -> None:
            waiting = asyncio.ensure_future(home.receive(wait_ms=1000))
            await asyncio.sleep(0.01)
            await home.subscriptions.delete("t", "s")
            with pytest.raises(UnknownSubscription):
                await waiting

        home.run(delete())
        with pytest.raises(UnknownSubscription):
            home.run(home.receive())
        assert home.subscriptions.list("t") == []
        home.run(home.subscribe())
        assert len(home.received()) == 10


def test_deletion_survives_a_crash() -> None:
    home = Home(new_disk())
    home.run(home.subscribe())
    home.run(home.subscribe("kept"))
    home.run(home.subscriptions.delete("t", "s"))
    home = home.restarted()
    home.run(asyncio.sleep(0))
    assert [each.name for each in home.subscriptions.list()] == ["kept"]
    home.close()


def test_closed_broker_sends_all_away() -> None:
    home = Home(new_disk())
    home.run(home.subscribe())

    async def test() -> None:
        waiting = asyncio.ensure_future(home.receive(wait_ms=1000))
        await asyncio.sleep(0.01)
        await home.subscriptions.close()
        with pytest.raises(Unavailable):
            await waiting
        with pytest.raises(Unavailable):
            await home.receive()

    home.run(test())
    home.abandon()


# What happens to logs


def append_unsynced(home: Home, *payload: bytes) -> None:
    log = home.topics.partition("t", 0).log
    log.append([build([Record(n, 0, None, value) for n, value in enumerate(payload)])])


def test_acknowledged_records_that_a_crash_took_do_not_hide_new_ones() -> None:
    home = Home(new_disk())
    home.run(home.subscribe())
    append_unsynced(home, b"gone-0", b"gone-1", b"gone-2")
    got = home.run(home.receive())
    home.run(home.ack(got[0], got[2]))
    home = home.restarted("lost")
    home.run(asyncio.sleep(0))
    home.run(home.send(b"new-0", b"new-1"))
    # Nothing was stored since but that the log was cut.
    home = home.restarted("lost")
    assert home.received() == [b"new-0", b"new-1"]
    home.close()


def test_records_deleted_before_they_were_acknowledged_are_counted_as_lost() -> None:
    with subscribed() as home:
        home.run(home.send(*[b"%d" % n for n in range(10)]))
        got = home.run(home.receive(4))
        home.run(home.ack(got[1]))

        async def delete() -> None:
            await home.topics.delete_records(home.topics.partition("t", 0), 7)

        home.run(delete())
        found = home.run(described(home))
        # 0, 2 and 3 are in flight, and may yet be acknowledged.
        assert (found.lost, found.floors) == (3, [7])
        assert home.received(wait_ms=60_000) == [b"7", b"8", b"9"]
        assert home.run(described(home)).in_flight == 6
        home.run(asyncio.sleep(60))
        # Those that are not there any more do not come again.
        assert home.received(wait_ms=60_000) == [b"7", b"8", b"9"]
        assert home.run(described(home)).in_flight == 3


def test_storage_that_fails_is_told_and_stays_told() -> None:
    with subscribed() as home:
        home.run(home.send(b"a"))
        [a] = home.run(home.receive())
        home.disk.fail_sync("*__subscriptions*", count=1)
        for _ in range(2):
            with pytest.raises(Unavailable):
                home.run(home.ack(a))


def test_settings_survive_a_restart() -> None:
    settings: dict[str, Any] = {
        "type": "failover",
        "ack_timeout_ms": 5,
        "max_deliveries": 4,
        "dead_letter_topic": "d",
        "redelivery_min_ms": 1,
        "redelivery_max_ms": 2,
    }
    home = Home(new_disk())
    home.run(home.subscribe(**settings))
    home = home.restarted()
    assert home.run(described(home)).settings == SubscriptionSettings(**settings)
    home.close()


def test_only_what_was_committed_is_received() -> None:
    with subscribed() as home:

        async def test() -> None:
            await home.send(b"plain")
            partition = home.topics.partition("t", 0)
            waiting = asyncio.ensure_future(home.receive(9, 60_000))
            assert values(await waiting) == [b"plain"]
            partition.log.append([transactional_batch(0, producer=1)])
            partition.log.append([transactional_batch(0, producer=2)])
            await home.send(b"behind")
            assert await home.receive(wait_ms=100) == []
            waiting = asyncio.ensure_future(home.receive(9, 60_000))
            await asyncio.sleep(0.01)
            partition.log.append([abort_marker(producer=1)])
            partition.log.append([commit_marker(producer=2)])
            partition.wake()
            got = await waiting
            assert [each.offset for each in got] == [2, 3]
            assert got[1].value == b"behind"
            await home.ack(*got)
            assert home.subscriptions.describe("t", "s").floors == [0]
            await home.subscriptions.ack("t", "s", ["0:0"])
            found = home.subscriptions.describe("t", "s")
            # Markers, and what was aborted, are nobody's to acknowledge.
            assert await home.receive() == []
            found = home.subscriptions.describe("t", "s")
            assert (found.floors, found.backlog) == ([6], 0)

        home.run(test())


def test_acknowledgement_that_found_no_space_is_told_and_stored_when_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home = Home(new_disk())
    home.run(home.subscribe())
    home.run(home.send(b"a", b"b"))
    a, _ = home.run(home.receive())

    def refuse(*_: object, **__: object) -> list[DiskFull]:
        return [DiskFull("/data")]

    with monkeypatch.context() as patched:
        patched.setattr(home.topics.partition(SUBSCRIPTIONS_TOPIC, 0).log, "append", refuse)
        with pytest.raises(Unavailable):
            home.run(home.ack(a))
    # Nobody asks again, and it is stored all the same.
    home.run(asyncio.sleep(2))
    home = home.restarted("lost")
    assert home.received() == [b"b"]
    home.close()


def test_subscriptions_are_bounded() -> None:
    async def main() -> None:
        await home.subscribe("second")
        with pytest.raises(LimitReached, match=r"subscription\.max\.count"):
            await home.subscribe("third")
        # One that is there already is no other.
        await home.subscribe("second")

    with subscribed(limits=SubscriptionLimits(max_count=2)) as home:
        home.run(main())
