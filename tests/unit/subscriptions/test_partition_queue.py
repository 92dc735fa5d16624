"""One partition as a queue, without a log or a loop."""

from __future__ import annotations

import tracemalloc
from typing import Any

from millstream.records import Record
from millstream.subscriptions.delivery_time import DELIVER_AT
from millstream.subscriptions.partition_queue import (
    LONGEST_REASON,
    NOBODY,
    PartitionQueue,
    Tally,
)
from millstream.subscriptions.progress import Block, Failure, Head, Progress
from millstream.subscriptions.subscription import SubscriptionSettings


def record(offset: int, key: bytes | None = None, at: bytes | None = None) -> Record:
    headers = () if at is None else ((DELIVER_AT, at),)
    return Record(offset, 0, key, b"%d" % offset, headers)


class Play:
    """A queue, and a time."""

    def __init__(self, progress: Progress | None = None, **settings: Any) -> None:
        self.tally = Tally()
        self.now_ms = 1000
        self.queue = PartitionQueue(
            SubscriptionSettings(**settings),
            progress or Progress(Head(0)),
            self.tally,
            started_ms=1000,
        )

    def feed(self, *offsets: int, up_to: int | None = None) -> None:
        next_offset = offsets[-1] + 1 if up_to is None else up_to
        self.queue.feed(
            [record(offset) for offset in offsets],
            next_offset,
            now_ms=self.now_ms,
            wall_ms=self.now_ms,
        )

    def take(self, limit: int = 100, consumer: int = NOBODY) -> list[tuple[int, int]]:
        taken = self.queue.take(limit, consumer, self.now_ms)
        return [(each.offset, count) for each, count in taken]

    def wait(self, ms: int) -> None:
        self.now_ms += ms
        self.queue.tick(self.now_ms, self.now_ms)

    def read_again(self) -> list[int]:
        offsets = self.queue.take_again(100)
        found = {offset: record(offset) for offset in offsets}
        self.queue.feed_again(offsets, found, now_ms=self.now_ms, wall_ms=self.now_ms)
        return offsets


def test_offsets_without_a_message_are_done() -> None:
    play = Play()
    play.feed(2, 5, up_to=9)
    assert play.take() == [(2, 1), (5, 1)]
    play.queue.acknowledge([2])
    assert play.queue.progress.floor == 5
    play.queue.acknowledge([5])
    assert play.queue.progress.floor == play.queue.position == 9


def test_what_is_done_is_not_ready() -> None:
    play = Play(Progress(Head(3), {0: Block(1 << 5, {})}))
    assert play.queue.position == 3
    play.feed(3, 4, 5, 6)
    play.queue.acknowledge([6])
    assert play.take() == [(3, 1), (4, 1)]


def test_count_and_wait_of_an_earlier_process_go_on() -> None:
    failures = {1: Failure(2, 1500), 2: Failure(2, 900), 3: Failure(3, 0, "why")}
    play = Play(Progress(Head(0), {0: Block(0, failures)}), max_deliveries=3)
    play.feed(0, 1, 2, 3)
    assert play.take() == [(0, 1), (2, 3)]
    assert play.queue.dead == {3: failures[3]}
    assert play.queue.next_ms() == 1500
    play.wait(500)
    assert play.read_again() == [1]
    assert play.take() == [(1, 3)]


def test_message_that_is_gone_when_it_is_read_again_is_lost() -> None:
    play = Play()
    play.feed(0, 1)
    play.take()
    play.queue.refuse([0, 1], play.now_ms, delay_ms=0)
    offsets = play.queue.take_again(100)
    play.queue.feed_again(offsets, {1: record(1)}, now_ms=0, wall_ms=0)
    assert play.take() == [(1, 2)]
    assert (play.queue.progress.lost, play.queue.progress.floor) == (1, 1)


def test_messages_that_could_not_be_read_again_are_tried_again() -> None:
    play = Play()
    play.feed(0)
    play.take()
    play.queue.refuse([0], play.now_ms, delay_ms=0)
    play.queue.put_back(play.queue.take_again(100))
    assert play.read_again() == [0]


def test_extended_message_is_out_of_time_only_then() -> None:
    play = Play(ack_timeout_ms=100)
    play.feed(0)
    play.take()
    play.wait(50)
    assert play.queue.extend([0, 1], play.now_ms, 500) == [1]
    play.wait(499)
    assert play.tally.total == 1
    play.wait(1)
    assert play.tally.total == 0
    assert play.read_again() == [0]


def test_message_that_is_extended_again_and_again_takes_no_more_memory() -> None:
    play = Play()
    play.feed(0)
    play.take()
    tracemalloc.start()
    for number in range(50_000):
        play.queue.extend([0], number, 1_000_000)
    size_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size_bytes < 500_000


def test_tally_is_of_who_has_what() -> None:
    play = Play()
    play.feed(*range(10))
    play.take(3, consumer=1)
    play.take(4, consumer=2)
    assert play.tally.by_consumer == {1: 3, 2: 4}
    play.queue.acknowledge([0])
    play.queue.refuse([1, 4], play.now_ms, consumer=1)
    assert play.tally.by_consumer == {1: 1, 2: 4}
    play.queue.release(2)
    assert (play.tally.total, play.tally.by_consumer) == (1, {1: 1, 2: 0})


def test_what_reached_nobody_was_not_delivered() -> None:
    play = Play()
    play.feed(0)
    play.take()
    play.queue.undo([0])
    play.queue.undo([0])
    assert play.read_again() == [0]
    assert play.take() == [(0, 1)]


def test_deadlines_of_what_is_acknowledged_do_not_pile_up() -> None:
    play = Play()
    for offset in range(20_000):
        play.feed(offset)
        play.take()
        play.queue.acknowledge([offset])
    assert len(play.queue._deadlines) < 2000


def test_reason_is_kept_where_it_will_be_told() -> None:
    play = Play(max_deliveries=2)
    play.feed(0)
    for _ in range(2):
        play.take()
        play.queue.refuse([0], play.now_ms, delay_ms=0, reason="x" * 10_000)
        if not play.queue.dead:
            assert play.queue.progress.failure(0) == Failure(1, 1000)
            play.read_again()
    assert play.queue.dead == {0: Failure(2, 1000, "x" * LONGEST_REASON)}


def test_dead_message_may_be_acknowledged_late() -> None:
    play = Play(max_deliveries=1)
    play.feed(0)
    play.take()
    play.queue.refuse([0], play.now_ms)
    play.queue.acknowledge([0])
    play.queue.bury(0)
    assert (play.queue.dead, play.queue.progress.dead) == ({}, 0)


def test_what_the_log_has_lost_is_nowhere_any_more() -> None:
    play = Play(max_deliveries=1)
    play.feed(*range(8))
    play.take(4)
    play.queue.refuse([0], play.now_ms)
    play.queue.lose(6)
    assert play.queue.dead == {}
    assert play.take() == [(6, 1), (7, 1)]
    # In flight were 1, 2 and 3; never delivered 4 and 5, and 0 was to be a dead letter.
    assert play.queue.progress.lost == 3
    play.wait(60_000)
    assert play.read_again() == []
