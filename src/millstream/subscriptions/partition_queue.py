"""One partition as a queue: what is ready, in flight, waiting for its time, and done.

A message is read from the log and is ready; or it is for later, and then only its offset and time
are kept. Taken, it is in flight until it is acknowledged, refused, released or out of time. In the
latter cases it is read again, at once or after a while, or it is dead. Time comes as an argument:
that of the steady clock for timeouts and delays, and that of the wall clock for messages that were
sent for a date.

Invariant: every offset below `position` is done, or in exactly one of: ready, in flight, a schedule
that is to bring it back, `again`, or dead. Offsets in ready or `again` may be done meanwhile.
Nothing is taken while anything older is in `again`: so messages come in the order of the log, but
for those that wait for a time, and those that are in flight when they are refused.
After a crash: only the progress is left. All else is found by reading on from its floor.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from millstream.records.record import Record
from millstream.settings.domain import LONG_MAX
from millstream.subscriptions.delivery_time import LATEST_MS, due_time
from millstream.subscriptions.lanes import ANY_LANE
from millstream.subscriptions.progress import Failure, Progress
from millstream.subscriptions.ready_messages import LaneOf, ReadyMessages
from millstream.subscriptions.schedule import Schedule
from millstream.subscriptions.subscription import SubscriptionSettings

NOBODY = 0
"""Who holds a message that was received without a consumer."""
LONGEST_REASON = 200

OUT_OF_TIME = "not acknowledged in time"

_MOST_DELIVERIES = 2**31 - 1


class Flight(NamedTuple):
    """A message in somebody's hands."""

    consumer: int
    deadline_ms: int
    delivery_count: int
    key: bytes | None


class Tally:
    """How much is in flight, of all partitions of a subscription."""

    __slots__ = ("by_consumer", "total")

    def __init__(self) -> None:
        self.total = 0
        self.by_consumer: dict[int, int] = {}

    def add(self, consumer: int, count: int) -> None:
        self.total += count
        self.by_consumer[consumer] = self.by_consumer.get(consumer, 0) + count
        assert self.by_consumer[consumer] >= 0, "nobody gives back more than they had"


class PartitionQueue:
    """The state of a subscription in one partition."""

    __slots__ = (
        "_again",
        "_deadlines",
        "_delayed",
        "_is_keyed",
        "_keys",
        "_later",
        "_refused",
        "_settings",
        "_started_ms",
        "_tally",
        "dead",
        "flights",
        "position",
        "progress",
        "ready",
        "redelivered",
    )

    def __init__(
        self,
        settings: SubscriptionSettings,
        progress: Progress,
        tally: Tally,
        lane_of: LaneOf | None = None,
        *,
        started_ms: int,
    ) -> None:
        """With `lane_of`, a message is for the consumer that it names only.

        `started_ms` is when the process started, by its steady clock.
        """
        self._started_ms = started_ms
        self._settings = settings
        self.progress = progress
        self.position = progress.floor
        """The first offset that was never read."""
        self.flights: dict[int, Flight] = {}
        self.ready = ReadyMessages(lane_of)
        self.redelivered = 0
        self.dead: dict[int, Failure] = {}
        """Those that are to go to the dead letters."""
        self._tally = tally
        self._is_keyed = lane_of is not None
        # A heap: the oldest first.
        self._again: list[int] = []
        self._deadlines = Schedule()
        self._refused = Schedule()
        self._delayed = Schedule()
        self._later = Schedule()
        # By key, who has messages of it, and how many.
        self._keys: dict[bytes, tuple[int, int]] = {}

    # What there is

    @property
    def ready_count(self) -> int:
        """How many were read, and are in nobody's hands."""
        return self.ready.count

    @property
    def waiting_count(self) -> int:
        """How many can be given to who asks, read or not."""
        return self.ready.count + len(self._again)

    @property
    def later_count(self) -> int:
        """How many wait for the time at which they were to be delivered."""
        return len(self._later) + len(self._delayed)

    @property
    def refused_count(self) -> int:
        """How many wait to be delivered again."""
        return len(self._refused)

    def next_ms(self) -> int | None:
        """When `tick` has something to do, at the earliest, but for messages sent for later."""
        times = [at for at in (self._deadlines.next_ms, self._refused.next_ms) if at is not None]
        return min(times, default=None)

    def is_out_of_time(self, now_ms: int) -> bool:
        """Whether there may be messages in flight whose time is over: `tick` is to see to them."""
        at_ms = self._deadlines.next_ms
        return at_ms is not None and at_ms <= now_ms

    def next_delayed_ms(self) -> int | None:
        """When the first message that was sent with a delay is due, by the steady clock."""
        return self._delayed.next_ms

    def next_later_ms(self) -> int | None:
        """When the first message that was sent for a date is due, by the wall clock."""
        return self._later.next_ms

    # Reading

    def feed(
        self, records: Sequence[Record], next_offset: int, *, now_ms: int, wall_ms: int
    ) -> None:
        """What the log holds from `position` up to before an offset."""
        progress, offset = self.progress, self.position
        for record in records:
            if record.offset > offset:
                progress.skip(offset, record.offset)
            offset = record.offset + 1
            if not progress.is_done(record.offset):
                self._sort_in(record, now_ms, wall_ms)
        if next_offset > offset:
            progress.skip(offset, next_offset)
        self.position = next_offset

    def _sort_in(self, record: Record, now_ms: int, wall_ms: int) -> None:
        offset = record.offset
        if self.progress.has_failures and (failure := self.progress.failure(offset)) is not None:
            if self._settings.is_dead(failure.deliveries):
                self.dead[offset] = failure
                return
            if failure.due_ms > now_ms:
                self._refused.add(failure.due_ms, offset)
                return
            # It was delivered before, so it was due, whatever the wall clock reads now.
        elif record.headers and self._must_wait(record, now_ms, wall_ms):
            return
        self.ready.append(record)

    def _must_wait(self, record: Record, now_ms: int, wall_ms: int) -> bool:
        """Whether a message is for later; if so, it is scheduled."""
        due = due_time(record, started_ms=self._started_ms)
        if due is None or due.at_ms <= (now_ms if due.is_steady else wall_ms):
            return False
        (self._delayed if due.is_steady else self._later).add(due.at_ms, record.offset)
        return True

    @property
    def first_again(self) -> int | None:
        """The oldest that is to be read again now, if there is one."""
        again = self._again
        while again and self.progress.is_done(again[0]):
            heappop(again)
        return again[0] if again else None

    @property
    def is_behind(self) -> bool:
        """Whether something is to be read again before what is ready may be taken."""
        first = self.first_again
        return first is not None and first < self.ready.last_offset

    def take_again(self, limit: int) -> list[int]:
        """The oldest that are to be read again now, in order; `feed_again` must follow."""
        taken: list[int] = []
        while len(taken) < limit and self.first_again is not None:
            taken.append(heappop(self._again))
        return taken

    def feed_again(
        self, offsets: Collection[int], found: Mapping[int, Record], *, now_ms: int, wall_ms: int
    ) -> None:
        """What was read of them. What is not there any more is done.

        A date is compared with the wall clock again: it may have been set back.
        """
        due: list[Record] = []
        for offset in sorted(offsets):
            record = found.get(offset)
            if record is None:
                self.progress.miss(offset)
            elif (
                not record.headers
                or self.progress.failure(offset) is not None
                or not self._must_wait(record, now_ms, wall_ms)
            ):
                due.append(record)
        self.ready.merge(due)

    def put_back(self, offsets: Iterable[int]) -> None:
        """They are to be read again."""
        for offset in offsets:
            heappush(self._again, offset)

    def forget_ready(self) -> None:
        """Nobody asks for them now: read them again when somebody does."""
        if self.ready.count:
            self._again += self.ready.clear()
            heapify(self._again)

    def lose(self, start_offset: int) -> None:
        """The log now begins at an offset."""
        if start_offset <= self.progress.floor:
            return
        spared = sum(offset < start_offset for offset in self.flights)
        self.progress.lose(start_offset, spared=spared)
        self.position = max(self.position, start_offset)
        for offset in [offset for offset in self.dead if offset < start_offset]:
            del self.dead[offset]

    # Handing out

    def take(
        self,
        limit: int,
        consumer: int,
        now_ms: int,
        *,
        timeout_ms: int | None = None,
        max_bytes: int = LONG_MAX,
    ) -> list[tuple[Record, int]]:
        """Messages for a consumer, each with how often it is delivered now.

        No more are taken once there are so many bytes of them.
        """
        ready = self.ready
        lane = ready.lane(consumer if self._is_keyed else ANY_LANE)
        taken: list[tuple[Record, int]] = []
        if not lane:
            return taken
        progress, flights = self.progress, self.flights
        first_again = self.first_again
        deadline_ms = now_ms + (timeout_ms or self._settings.ack_timeout_ms)
        while lane and len(taken) < limit and max_bytes > 0:
            record = lane[0]
            offset = record.offset
            if first_again is not None and first_again < offset:
                break
            if self._is_keyed and not self._may_have(consumer, record.key):
                break
            size_bytes = ready.pop(lane)
            if progress.is_done(offset):
                continue
            failure = progress.failure(offset) if progress.has_failures else None
            count = 1 if failure is None else failure.deliveries + 1
            flights[offset] = Flight(consumer, deadline_ms, count, record.key)
            if self._is_keyed:
                self._hold_key(consumer, record.key)
            self._deadlines.add(deadline_ms, offset)
            taken.append((record, count))
            max_bytes -= size_bytes
            if count > 1:
                self.redelivered += 1
        self._tally.add(consumer, len(taken))
        return taken

    def _may_have(self, consumer: int, key: bytes | None) -> bool:
        """No two consumers have messages of one key at the same time."""
        if key is None:
            return True
        holder = self._keys.get(key)
        return holder is None or holder[0] == consumer

    def _hold_key(self, consumer: int, key: bytes | None) -> None:
        if key is not None:
            self._keys[key] = (consumer, self._keys.get(key, (consumer, 0))[1] + 1)

    def _land(self, offset: int) -> Flight | None:
        """Take a message out of its consumer's hands."""
        flight = self.flights.pop(offset, None)
        if flight is None:
            return None
        self._tally.add(flight.consumer, -1)
        if self._is_keyed and flight.key is not None:
            holder, count = self._keys[flight.key]
            if count == 1:
                del self._keys[flight.key]
            else:
                self._keys[flight.key] = (holder, count - 1)
        return flight

    # What becomes of it

    def acknowledge(self, offsets: Iterable[int]) -> list[int]:
        """Messages are done, whoever has them now, or nobody; returns those that were before."""
        progress, flights = self.progress, self.flights
        were_done = []
        for offset in offsets:
            if offset in flights:
                self._land(offset)
            if self.dead:
                self.dead.pop(offset, None)
            if not progress.finish(offset):
                were_done.append(offset)
        self._deadlines.prune(len(flights), self._is_deadline)
        return were_done

    def refuse(
        self,
        offsets: Iterable[int],
        now_ms: int,
        *,
        consumer: int | None = None,
        delay_ms: int | None = None,
        reason: str = "",
    ) -> list[int]:
        """Messages are to be delivered again, after a while. With a consumer, those that it has.

        Returns those that are not in flight: they are done, or will be delivered anyway.
        """
        missing = []
        for offset in offsets:
            flight = self.flights.get(offset)
            if flight is None or consumer not in {None, flight.consumer}:
                missing.append(offset)
                continue
            self._fail(offset, now_ms, delay_ms, reason)
        self._deadlines.prune(len(self.flights), self._is_deadline)
        return missing

    def extend(
        self, offsets: Iterable[int], now_ms: int, timeout_ms: int, *, consumer: int | None = None
    ) -> list[int]:
        """Give messages in flight more time from now; returns those that are not."""
        missing = []
        for offset in offsets:
            flight = self.flights.get(offset)
            if flight is None or consumer not in {None, flight.consumer}:
                missing.append(offset)
                continue
            deadline_ms = now_ms + timeout_ms
            self.flights[offset] = flight._replace(deadline_ms=deadline_ms)
            self._deadlines.add(deadline_ms, offset)
        self._deadlines.prune(len(self.flights), self._is_deadline)
        return missing

    def release(self, consumer: int) -> None:
        """A consumer has gone: what it has is delivered again at once.

        That is no failure of the messages, most of which it may not even have looked at.
        """
        self.undo([o for o, flight in self.flights.items() if flight.consumer == consumer])

    def undo(self, offsets: Iterable[int]) -> None:
        """Messages that were taken have reached nobody: it is as if they were ready."""
        for offset in offsets:
            if self._land(offset) is not None:
                heappush(self._again, offset)

    def tick(self, now_ms: int, wall_ms: int, limit: int = LONG_MAX) -> int:
        """What the time brings, up to a number of things; returns how many there were."""
        count = 0
        for at_ms, offset in self._deadlines.pop_due(now_ms, limit):
            count += 1
            if self._is_deadline(at_ms, offset):
                self._fail(offset, now_ms, 0, OUT_OF_TIME)
        schedules = ((self._refused, now_ms), (self._delayed, now_ms), (self._later, wall_ms))
        for schedule, time_ms in schedules:
            due = schedule.pop_due(time_ms, limit - count)
            count += len(due)
            self.put_back(offset for _, offset in due)
        return count

    def _is_deadline(self, at_ms: int, offset: int) -> bool:
        flight = self.flights.get(offset)
        return flight is not None and flight.deadline_ms == at_ms

    def _fail(self, offset: int, now_ms: int, delay_ms: int | None, reason: str) -> None:
        flight = self._land(offset)
        assert flight is not None
        if self.progress.is_done(offset):
            # The log was cut off below it while it was in flight.
            return
        count = min(flight.delivery_count, _MOST_DELIVERIES)
        wait_ms = self._settings.backoff_ms(count) if delay_ms is None else delay_ms
        is_dead = self._settings.is_dead(count)
        # Only the reason of the last one is ever told: others would cost with every change nearby.
        kept_reason = reason[:LONGEST_REASON] if is_dead else ""
        failure = Failure(count, min(now_ms + wait_ms, LATEST_MS), kept_reason)
        self.progress.fail(offset, failure)
        if is_dead:
            self.dead[offset] = failure
        elif wait_ms:
            self._refused.add(failure.due_ms, offset)
        else:
            heappush(self._again, offset)

    def bury(self, offset: int) -> None:
        """A message has gone to the dead letters, and is done."""
        if self.dead.pop(offset, None) is not None:
            self.progress.bury(offset)
