"""What is read for subscriptions costs no more than it must, and is read a piece at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from millstream.broker.reading import Page
from millstream.broker.subscription_reading import MOST_WORK, read_offsets
from tests.fakes.subscription_home import SubscriptionHome, new_disk

Home = SubscriptionHome


@contextmanager
def filled(batches: int, each: int) -> Iterator[Home]:
    """A home whose topic has batches of so many messages each."""
    home = Home(new_disk())
    home.run(home.subscribe(redelivery_min_ms=0))
    for _ in range(batches):
        home.run(home.send(*[b"v"] * each))
    try:
        yield home
    except BaseException:
        home.abandon()
        raise
    home.close()


class Counted:
    """Counts the reads of a home."""

    def __init__(self, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        read = home.reader.read

        def counted(*args: object, **options: object) -> Page:
            self.count += 1
            return read(*args, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(home.reader, "read", counted)


def test_scattered_messages_of_a_batch_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with filled(batches=2, each=2000) as home:
        reads = Counted(home, monkeypatch)
        partition = home.topics.partition("t", 0)
        wanted = list(range(0, 4000, 70))
        found = read_offsets(home.reader, partition, wanted, max_bytes=1 << 20)
        assert list(found.records) == wanted
        assert found.looked_at == len(wanted)
        assert reads.count == 2


def test_scattered_refusals_are_received_with_few_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    with filled(batches=1, each=3000) as home:
        got = []
        while some := home.run(home.receive(1000)):
            got += some
        refused = got[::70]
        home.run(home.ack(*(each for each in got if each not in refused)))
        home.run(home.nack(*refused, delay_ms=0))
        reads = Counted(home, monkeypatch)
        assert [each.offset for each in home.run(home.receive(1000))] == list(range(0, 3000, 70))
        assert reads.count == 1


def test_work_of_one_read_is_bounded_in_records_and_in_bytes() -> None:
    with filled(batches=600, each=1) as home:
        partition = home.topics.partition("t", 0)
        wanted = list(range(0, 600, 100))
        found = read_offsets(home.reader, partition, wanted, max_bytes=1)
        assert (list(found.records), found.looked_at) == ([0], 1)
        # Far apart, each is a read of its own.
        scattered = [*range(0, 600, 2)]
        found = read_offsets(home.reader, partition, scattered, max_bytes=1 << 20)
        assert found.work <= 2 * MOST_WORK
        assert list(found.records) == scattered[: found.looked_at]


def test_what_time_brings_is_done_in_pieces() -> None:
    with filled(batches=5, each=1000) as home:
        for _ in range(5):
            home.run(home.receive(1000))
        home.clock.advance_ms(40_000)
        hosted = home.subscriptions.find("t", "s")

        async def look() -> list[int]:
            left = []
            for _ in range(3):
                hosted.serve()
                left.append(hosted.tally.total)
            return left

        assert home.run(look()) == [3000, 1000, 0]
        assert [each.offset for each in home.run(home.receive(1000))] == list(range(1000))
