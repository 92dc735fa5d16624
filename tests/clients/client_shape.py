"""What a scenario needs of a Kafka client, whichever it is.

Each client has its adapter beside this file; an adapter translates names and nothing else, so that
what is tested is the client as its users have it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from tests.fakes.patience import wait_until

# Long enough to be no busy loop, and short enough to cost nothing.
POLL_S = 0.1
# What every adapter says where a client was fenced, whichever way the client tells it.
PRODUCER_FENCED = 90
# Unknown topic or partition, unknown topic id.
_UNKNOWN = {3, 100}

Place = tuple[str, int]
Headers = tuple[tuple[str, bytes | None], ...]


class Message(NamedTuple):
    """A record, as it is to be sent or as it was read.

    For a partition of -1 the client chooses one, for a timestamp of 0 it takes the time.
    """

    topic: str
    value: bytes | None = None
    key: bytes | None = None
    headers: Headers = ()
    partition: int = 0
    timestamp_ms: int = 0
    offset: int = -1

    def content(self) -> tuple[bytes | None, bytes | None, Headers]:
        return self.key, self.value, self.headers


class Committed(NamedTuple):
    offset: int
    metadata: str = ""


class Refused(Exception):
    """The broker's answer was an error, or the client's own that stands for one."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code = code


class Producer(Protocol):
    def send(self, message: Message) -> None:
        """Queue a record."""

    def flush(self) -> list[int]:
        """Wait for all that was sent since the last time; the offsets in that order.

        An offset that nobody told, as with acks=0, is -1. Raises Refused.
        """

    def close(self) -> None: ...


class TransactionalProducer(Producer, Protocol):
    """Has a transactional id, and has fenced whoever had it before. All of it raises Refused."""

    def begin(self) -> None: ...

    def send_many(self, messages: Iterable[Message]) -> None:
        """Queue records, however many."""

    def send_offsets(self, membership: Any, offsets: Mapping[Place, int]) -> None:
        """Commit offsets of a group with the transaction, as a member of it."""

    def commit(self) -> None: ...

    def abort(self) -> None: ...


class Pollable(Protocol):
    def poll(self) -> list[Message]:
        """Records that there are, after waiting for some. Raises Refused."""


class Consumer(Pollable, Protocol):
    def assign(self, places: Mapping[Place, int]) -> None:
        """Read partitions from the given offsets, without a group."""

    def subscribe(self, topics: Sequence[str]) -> None: ...

    def subscribe_pattern(self, pattern: str) -> None: ...

    def seek(self, place: Place, offset: int) -> None: ...

    def commit(self, offsets: Mapping[Place, Committed]) -> None: ...

    def committed(self, place: Place) -> Committed | None: ...

    def assignment(self) -> set[Place]: ...

    def membership(self) -> object:
        """What its client tells a producer of its group, and of its place in it."""

    def bounds(self, place: Place) -> tuple[int, int]:
        """The first offset and the next one."""

    def offset_for_time(self, place: Place, timestamp_ms: int) -> int | None: ...

    def close(self) -> None: ...


class Admin(Protocol):
    def create(
        self, topic: str, *, partitions: int, configs: Mapping[str, str] | None = None
    ) -> None:
        """Raises Refused."""

    def delete(self, topic: str) -> None:
        """Raises Refused."""

    def topics(self) -> dict[str, int]:
        """How many partitions each topic has."""

    def configs(self, topic: str) -> dict[str, str | None]: ...

    def alter(self, topic: str, changes: Mapping[str, str]) -> None: ...

    def add_partitions(self, topic: str, total: int) -> None: ...

    def delete_records(self, place: Place, before_offset: int) -> int:
        """Returns where the partition begins now."""

    def groups(self) -> set[str]: ...

    def group_members(self, group: str) -> tuple[str, int]:
        """The state of a group and how many members it has."""

    def delete_group(self, group: str) -> None:
        """Raises Refused."""

    def brokers(self) -> list[tuple[int, str, int]]:
        """Id, host and port of each."""

    def close(self) -> None: ...


class Client(Protocol):
    """One of the clients."""

    name: str

    def producer(
        self,
        address: str,
        *,
        compression: str = "none",
        idempotent: bool = False,
        max_bytes: int = 1_000_000,
        linger_ms: int = 5,
        acks: int = -1,
    ) -> Producer: ...

    def transactional_producer(
        self,
        address: str,
        transactional_id: str,
        *,
        compression: str = "none",
        timeout_ms: int = 60_000,
        linger_ms: int = 5,
    ) -> TransactionalProducer: ...

    def consumer(
        self,
        address: str,
        *,
        group: str | None = None,
        instance: str | None = None,
        session_ms: int = 10_000,
        reset: str = "earliest",
        isolation: str = "read_uncommitted",
        fetch_max_bytes: int = 50 * 1024**2,
        cooperative: bool = False,
    ) -> Consumer: ...

    def admin(self, address: str) -> Admin: ...


class Patient:
    """A consumer that does not mind being told that a topic is unknown."""

    def __init__(self, consumer: Pollable) -> None:
        self._consumer = consumer

    def poll(self) -> list[Message]:
        try:
            return self._consumer.poll()
        except Refused as refused:
            if refused.code not in _UNKNOWN:
                raise
            return []


def eventually(condition: Callable[[], bool], what: str) -> None:
    """Wait until something holds. The condition is to wait a little itself, as a poll does."""
    wait_until(condition, what, pause_s=0)


def read(consumer: Pollable, count: int) -> list[Message]:
    """So many records, and no more."""
    found: list[Message] = []

    def is_enough() -> bool:
        found.extend(consumer.poll())
        return len(found) >= count

    eventually(is_enough, f"{count} records")
    assert len(found) == count, found
    return found


def read_to(consumer: Pollable, offset: int) -> list[Message]:
    """Records of one partition up to an offset, however many that is."""
    found: list[Message] = []

    def is_there() -> bool:
        found.extend(consumer.poll())
        return bool(found) and found[-1].offset >= offset

    eventually(is_there, f"the record at offset {offset}")
    return found


def read_all(client: Client, address: str, places: Mapping[Place, int]) -> list[Message]:
    """All records of some partitions, from the given offsets to the ends."""
    consumer = client.consumer(address)
    try:
        # Asked first: a question waits behind a fetch that is under way on the same connection.
        wanted = sum(consumer.bounds(place)[1] - offset for place, offset in places.items())
        consumer.assign(places)
        return read(consumer, wanted) if wanted else []
    finally:
        consumer.close()


def produce(client: Client, address: str, messages: Sequence[Message]) -> list[int]:
    producer = client.producer(address)
    try:
        for message in messages:
            producer.send(message)
        return producer.flush()
    finally:
        producer.close()
