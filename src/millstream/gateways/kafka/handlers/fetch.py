"""Fetch (1): read batches; wait for some where there are too few.

5 the answer has the start of the log; 7 sessions, which are answered with none; 9 leader epoch;
11 rack and preferred replica; 12 flexible; 13 topic ids.

A fetch that starts inside a batch gets that whole batch. At most `max_bytes` in all and
`partition_max_bytes` of a partition, except that the first batch found always comes, or a client
with too small a limit would never get on. Fewer than `min_bytes` wait for `max_wait_ms`.
Cost: benchmarks/consume.py.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from millstream.broker.fetch import Found, Reading, Wanted, read
from millstream.broker.partition import Partition
from millstream.broker.purgatory import Waiting
from millstream.broker.topics import Topics
from millstream.errors import MillstreamError, UnknownLeaderEpoch
from millstream.gateways.kafka.answers import Answers, Parts, Place
from millstream.gateways.kafka.error_codes import ErrorCode, code_of
from millstream.gateways.kafka.request_times import RequestTimes
from millstream.protocol.headers import read_client_id
from millstream.protocol.messages.fetch import (
    FLEXIBLE,
    NO_SESSION,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    encode_response,
    parse_request,
)
from millstream.storage.batch_walk import LEADER_EPOCH

API_KEY = 1
VERSIONS = (4, 17)


class Fetch:
    """One request."""

    __slots__ = (
        "_began_ns",
        "_correlation_id",
        "_generation",
        "_max_bytes",
        "_min_bytes",
        "_place",
        "_request",
        "_siblings",
        "_times",
        "_topics",
        "_version",
        "_waiting",
        "_wanted",
    )

    def __init__(
        self,
        request: FetchRequest,
        version: int,
        correlation_id: int,
        topics: Topics,
        max_bytes: int,
    ) -> None:
        self._request = request
        self._version = version
        self._correlation_id = correlation_id
        self._max_bytes = min(request.max_bytes, max_bytes)
        # Nobody waits for more than the answer could hold.
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._topics = topics
        self._generation = topics.generation
        self._wanted = self._find_wanted()
        self._place: Place | None = None
        self._times: RequestTimes | None = None
        self._began_ns = 0
        self._waiting: Waiting | None = None
        self._siblings: set[Fetch] = set()

    def _find_wanted(self) -> list[Wanted]:
        is_committed = self._request.read_committed
        return [
            _wanted(self._topics, topic.topic, place, is_committed=is_committed)
            for topic in self._request.topics
            for place in topic.partitions
        ]

    def read(self) -> Reading:
        if self._generation != self._topics.generation:
            # A topic may have been deleted while it waited.
            self._generation = self._topics.generation
            self._wanted = self._find_wanted()
        return read(self._wanted, max_bytes=self._max_bytes)

    def is_enough(self, reading: Reading) -> bool:
        return reading.size >= self._min_bytes or reading.has_errors

    def encode(self, reading: Reading) -> Parts:
        """The answer; what it holds is counted as sent."""
        for wanted, one in zip(self._wanted, reading.found, strict=True):
            if one.records and isinstance(wanted.partition, Partition):
                count = wanted.partition.log.count_messages(one.records)
                wanted.partition.topic.traffic.sent(count, len(one.records))
        found = iter(reading.found)
        topics = [
            (topic.topic, [_told(each) for each in islice(found, len(topic.partitions))])
            for topic in self._request.topics
        ]
        return encode_response(self._version, self._correlation_id, topics)

    def wait(self, place: Place, siblings: set[Fetch], times: RequestTimes) -> None:
        """Park; the answer goes to `place`."""
        self._place = place
        self._times, self._began_ns = times, times.began_ns
        self._siblings = siblings
        siblings.add(self)
        self._waiting = Waiting(
            {each.partition for each in self._wanted if isinstance(each.partition, Partition)},
            timeout_ms=self._request.max_wait_ms,
            attempt=self._attempt,
        )

    def give_up(self) -> None:
        self._siblings.discard(self)
        if self._waiting is not None:
            self._waiting.give_up()

    def finish(self) -> None:
        """Answer with what there is."""
        self._attempt(True)  # noqa: FBT003 - as the purgatory calls it
        self.give_up()

    def _attempt(self, is_last: bool) -> bool:
        reading = self.read()
        if not is_last and not self.is_enough(reading):
            return False
        assert self._place is not None
        assert self._times is not None
        self._siblings.discard(self)
        self._place.fill(self.encode(reading))
        self._times.answered_after_wait(API_KEY, self._began_ns)
        return True


class Fetching:
    """The fetch requests of one connection."""

    __slots__ = ("_answers", "_max_bytes", "_new_fetch", "_times", "_topics", "_waiting")

    def __init__(
        self,
        answers: Answers,
        *,
        topics: Topics,
        max_bytes: int,
        times: RequestTimes,
        new_fetch: Callable[[FetchRequest, int, int, Topics, int], Fetch] = Fetch,
    ) -> None:
        self._answers = answers
        self._new_fetch = new_fetch
        self._times = times
        self._topics = topics
        self._max_bytes = max_bytes
        self._waiting: set[Fetch] = set()

    def begin(self, frame: memoryview, version: int, correlation_id: int) -> None:
        """Answer a request now, or when there is something. Raises MalformedMessage."""
        _, position = read_client_id(frame, flexible=version >= FLEXIBLE)
        request = parse_request(frame, position, version)
        fetch = self._new_fetch(request, version, correlation_id, self._topics, self._max_bytes)
        if request.session_id != NO_SESSION:
            code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            self._answers.send(encode_response(version, correlation_id, [], error_code=code))
            self._times.answered(API_KEY, self._times.began_ns)
            return
        reading = fetch.read()
        if fetch.is_enough(reading) or request.max_wait_ms <= 0:
            self._answers.send(fetch.encode(reading))
            self._times.answered(API_KEY, self._times.began_ns)
        else:
            place = self._answers.take_place(request_bytes=len(frame))
            fetch.wait(place, self._waiting, self._times)

    @property
    def waiting(self) -> int:
        """How many wait for data."""
        return len(self._waiting)

    def close(self) -> None:
        """Nobody waits any longer."""
        for fetch in list(self._waiting):
            fetch.give_up()

    def hurry(self) -> None:
        """Answer all who wait with what there is."""
        for fetch in list(self._waiting):
            fetch.finish()


def _wanted(
    topics: Topics, topic: str | bytes, place: FetchPartition, *, is_committed: bool
) -> Wanted:
    partition: Partition | MillstreamError
    try:
        partition = topics.find(topic, place.partition)
        if place.leader_epoch > LEADER_EPOCH:
            partition = UnknownLeaderEpoch(place.leader_epoch)
    except MillstreamError as error:
        partition = error.with_traceback(None)
    return Wanted(place.partition, partition, place.offset, place.max_bytes, is_committed)


def _told(found: Found) -> FetchedPartition:
    aborted = found.aborted
    return FetchedPartition(
        found.number,
        code_of(found.error),
        found.end_offset,
        found.stable_offset,
        found.start_offset,
        found.records,
        None if aborted is None else [(each.producer_id, each.first_offset) for each in aborted],
    )
