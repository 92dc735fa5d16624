"""Dead letters that are sent back, where the disk or the topic does not take them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest

from millstream.broker import letter_browsing, letter_replay
from millstream.broker.broker import Broker
from millstream.broker.letter_browsing import ReplayLimits
from millstream.broker.letter_replay import Replayed
from millstream.broker.sending import NewRecord
from millstream.errors import DiskFull, MillstreamError, SubscriptionConflict
from tests.fakes.subscription_home import SubscriptionHome, new_disk

Home = SubscriptionHome


@contextmanager
def dead(*values: bytes) -> Iterator[tuple[Home, Broker]]:
    """A home whose subscription has dead letters, and its broker."""
    home = Home(new_disk())
    home.run(home.subscribe(max_deliveries=1))

    async def let_die() -> Broker:
        await home.send(*values)
        while got := await home.receive(1000):
            await home.nack(*got)
        await home.let_time_work()
        return home.broker

    broker = home.run(let_die())
    assert len(home.records("t.dlq")) == len(values)
    try:
        yield home, broker
    except BaseException:
        home.abandon()
        raise
    home.close()


def replay(home: Home, broker: Broker, limit: int = 1000, **options: Any) -> Replayed:
    return home.run(letter_replay.replay(broker, "t", "s", limit=limit, **options))


def sent_back(home: Home, count: int) -> list[bytes]:
    return [bytes(each.value or b"") for each in home.records("t")[count:]]


def refuse(home: Home, monkeypatch: pytest.MonkeyPatch, *refused: bytes) -> None:
    """Let the disk have no room for some values."""
    send_many = home.sender.send_many

    async def send(topic: str, records: list[NewRecord]) -> Any:
        results: list[Any] = []
        for record in records:
            if record.value in refused:
                results.append(DiskFull("/data"))
            else:
                results += await send_many(topic, [record])
        return results

    monkeypatch.setattr(home.sender, "send_many", send)


def test_letters_that_no_disk_takes_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with dead(b"a", b"b") as (home, broker):
        with monkeypatch.context() as patched:
            refuse(home, patched, b"a", b"b")
            with pytest.raises(MillstreamError):
                replay(home, broker)
        assert replay(home, broker) == Replayed(2, [], has_more=False)
        assert sent_back(home, 2) == [b"a", b"b"]


def test_disk_that_is_full_in_between_stops_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with dead(b"a", b"b", b"c") as (home, broker):
        with monkeypatch.context() as patched:
            refuse(home, patched, b"b", b"c")
            done = replay(home, broker)
        assert (done.count, done.has_more) == (1, True)
        assert [each.message_id for each in done.failed] == ["0:1", "0:2"]
        assert replay(home, broker) == Replayed(2, [], has_more=False)
        assert sent_back(home, 3) == [b"a", b"b", b"c"]


def test_letters_far_behind_those_of_others_are_found_and_sent_in_pieces() -> None:
    limits = ReplayLimits(page_records=3, looked_at=10, sent_records=2)
    values = [b"%d" % number for number in range(5)]
    with dead(*values) as (home, broker):
        home.run(home.send(*[b"somebody's"] * 100, topic="t.dlq"))
        assert replay(home, broker, limit=4, limits=limits) == Replayed(4, [], has_more=True)
        assert replay(home, broker, limits=limits) == Replayed(1, [], has_more=False)
        assert sent_back(home, 5) == values
        browse = letter_browsing.browse(broker, "t", "s", {0: 3}, limit=9, limits=limits)
        found = home.run(browse)
        assert ([each.message_id for each in found.letters], found.next_offsets) == (
            ["0:3", "0:4"],
            {0: 15},
        )


def test_letters_that_could_not_be_marked_are_not_sent() -> None:
    with dead(*(b"%d" % number for number in range(200))) as (home, broker):
        broker.groups.settings = replace(broker.groups.settings, offset_metadata_max_bytes=40)
        some = [(0, offset) for offset in random.Random(3).sample(range(200), 60)]
        with pytest.raises(SubscriptionConflict, match="out of order"):
            home.run(letter_replay.replay_some(broker, "t", "s", some))
        assert sent_back(home, 200) == []
        assert replay(home, broker) == Replayed(200, [], has_more=False)


def test_how_far_letters_were_sent_back_is_not_forgotten_with_old_offsets() -> None:
    with dead(b"one", b"two") as (home, broker):
        assert replay(home, broker) == Replayed(2, [], has_more=False)
        home.clock.advance_ms(1000 * 24 * 3600 * 1000)
        broker.groups.expire()
        assert replay(home, broker) == Replayed(0, [], has_more=False)


def test_client_that_goes_while_letters_are_sent_back_leaves_them_marked() -> None:
    with dead(*(b"%d" % number for number in range(50))) as (home, broker):

        async def go(turns: int) -> None:
            asked = asyncio.ensure_future(letter_replay.replay(broker, "t", "s", limit=1000))
            for _ in range(turns):
                await asyncio.sleep(0)
            asked.cancel()
            with suppress(asyncio.CancelledError):
                await asked

        for turns in range(40):
            home.run(go(turns))
        replay(home, broker)
        assert sorted(sent_back(home, 50)) == sorted(b"%d" % number for number in range(50))
