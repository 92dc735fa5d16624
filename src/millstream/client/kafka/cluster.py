"""A blocking client of a Kafka cluster: our broker or Apache Kafka.

What a broker cannot do now is tried again until `timeout_s` is over; what it will not do is an
error at once. Unlike the clients that people know, it starts no threads, but for who joins a group.

    with Cluster("127.0.0.1:9092") as cluster:
        cluster.create_topic("orders", partitions=3, exist_ok=True)
        ends = cluster.offsets([("orders", 0)], LATEST)

Invariant: it holds nothing that matters; after a crash, another one goes on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import TracebackType
from typing import Self

from millstream.client.kafka import group_offsets, offset_lookup
from millstream.client.kafka.address import Address
from millstream.client.kafka.administration import Administration
from millstream.client.kafka.brokers import Brokers, check_topic
from millstream.client.kafka.connection import Connection
from millstream.client.kafka.error_codes import OFFSET_OUT_OF_RANGE, check
from millstream.client.kafka.fetch_messages import FetchResponse
from millstream.client.kafka.group_administration import GroupAdministration
from millstream.client.kafka.group_member import GroupMember
from millstream.client.kafka.offset_lookup import EARLIEST, LATEST
from millstream.client.kafka.patience import Patience
from millstream.client.kafka.persistence import Persistence
from millstream.client.kafka.places import Place
from millstream.client.kafka.producer import Producer
from millstream.client.kafka.reading import Fetched, fetch_request, fetched
from millstream.client.kafka.settings import ClusterSettings, Security
from millstream.client.kafka.topic_creation import create
from millstream.client.kafka.transactions import Transactions
from millstream.clock import Clock, MonotonicClock
from millstream.errors import OffsetOutOfRange


class Cluster:
    """A client. Its methods may be called from several threads."""

    def __init__(
        self,
        bootstrap: str | ClusterSettings,
        *,
        client_id: str = "millstream",
        timeout_s: float = 30.0,
        security: Security | None = None,
        clock: Clock | None = None,
    ) -> None:
        if isinstance(bootstrap, str):
            settings = ClusterSettings(
                bootstrap=bootstrap,
                client_id=client_id,
                timeout_s=timeout_s,
                security=security or Security(),
            )
        else:
            settings = bootstrap
        self.settings = settings
        self._clock = clock or MonotonicClock()
        self._brokers = Brokers(settings)
        self._persistence = Persistence(self._brokers, self._clock)
        self.transactions = Transactions(self._brokers, self._persistence)
        self.administration = Administration(self._brokers, self._persistence)
        self.groups = GroupAdministration(self._brokers, self._persistence)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._brokers.close()

    def partitions(
        self, topics: Iterable[str] | None = None, *, creates: bool = False
    ) -> dict[str, list[int]]:
        """The partitions of topics; of all that are not internal, if none are named.

        `creates` lets brokers create what is not there, where they are set to do so by themselves
        (`auto.create.topics.enable`). Raises UnknownTopic.
        """
        names = None if topics is None else list(topics)

        def attempt(patience: Patience) -> dict[str, list[int]]:
            found = {}
            for told in self._brokers.topics(names, patience, creates=creates):
                if names is None and (told.is_internal or told.error_code):
                    continue
                check_topic(told)
                found[told.name or ""] = sorted(each.partition_index for each in told.partitions)
            return found

        return self._persistence.run(attempt)

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        config: Mapping[str, str] | None = None,
        *,
        exist_ok: bool = False,
    ) -> None:
        """Create a topic, and wait until all its partitions can be used. Raises AlreadyExists."""
        create(
            self._brokers,
            self._persistence,
            name,
            partitions=partitions,
            config=config or {},
            exist_ok=exist_ok,
        )

    def offsets(
        self, places: Iterable[Place], at: int, *, committed: bool = False
    ) -> dict[Place, int]:
        """EARLIEST: where each log starts. LATEST: where it ends; the last stable offset, if
        `committed`. A time in milliseconds: the first offset of that time or later, or the end.
        """
        wanted = list(places)
        return self._persistence.run(
            lambda patience: offset_lookup.look_up(
                self._brokers, wanted, at=at, committed=committed, patience=patience
            )
        )

    def commit(self, group: str, offsets: Mapping[Place, int]) -> None:
        """Commit offsets for a group that has no members."""
        if offsets:
            self._persistence.run(
                lambda patience: group_offsets.commit(self._brokers, group, offsets, patience)
            )

    def committed(self, group: str, places: Collection[Place]) -> dict[Place, int | None]:
        """The offsets that a group has committed; None where it has none."""
        if not places:
            return {}
        return self._persistence.run(
            lambda patience: group_offsets.committed(self._brokers, group, places, patience)
        )

    def member(self, group: str, topics: Iterable[str]) -> GroupMember:
        """One who takes part in a group, once it joins."""
        return GroupMember(self.settings, self._clock, group, topics)

    def fetch(
        self,
        place: Place,
        offset: int,
        *,
        max_bytes: int = 1 << 20,
        max_wait_ms: int = 500,
        committed: bool = True,
    ) -> Fetched:
        """Batches from an offset on; none, if there are none in time. Raises OffsetOutOfRange.

        For a whole range, StreamFetcher is faster.
        """
        request = fetch_request(
            place, offset, max_bytes=max_bytes, max_wait_ms=max_wait_ms, committed=committed
        )

        def attempt(patience: Patience) -> Fetched:
            address = self._brokers.leader(place, patience)
            timeout_s = patience.left_s + max_wait_ms / 1000
            answer = self._brokers.ask(address, request, FetchResponse, timeout_s)
            found = fetched(answer, offset)
            if found.error_code == OFFSET_OUT_OF_RANGE:
                raise self.out_of_range(place, offset)
            check(found.error_code, f"reading {place[0]}/{place[1]}")
            return found

        return self._persistence.run(attempt)

    def producer(self, *, transactional_id: str | None = None, acks: int = -1) -> Producer:
        """What sends many batches, to many partitions."""
        return Producer(
            self._brokers, clock=self._clock, transactional_id=transactional_id, acks=acks
        )

    def produce(
        self,
        place: Place,
        batches: Iterable[bytes],
        *,
        transactional_id: str | None = None,
        acks: int = -1,
    ) -> list[int]:
        """Store batches in their order; the offset of the first record of each. See `Producer`."""
        producer = self.producer(transactional_id=transactional_id, acks=acks)
        try:
            for batch in batches:
                producer.send(place, batch)
            return producer.flush()
        finally:
            producer.close()

    def patience(self) -> Patience:
        """The patience that this client has for one operation."""
        return self._persistence.patience()

    def forget(self) -> None:
        """Ask anew where everything is."""
        self._brokers.forget()

    def connect_to_leader(self, place: Place, patience: Patience) -> Connection:
        """A connection of one's own to where a partition is. Raises Unavailable."""
        return self._brokers.open(self._brokers.leader(place, patience), patience.left_s)

    def leaders(self, places: Iterable[Place], patience: Patience) -> dict[Address, list[Place]]:
        """Places by where they are. Raises Unavailable."""
        found: dict[Address, list[Place]] = {}
        for place in places:
            found.setdefault(self._brokers.leader(place, patience), []).append(place)
        return found

    def connect(self, address: Address, patience: Patience) -> Connection:
        """A connection of one's own to a broker. Raises Unavailable."""
        return self._brokers.open(address, patience.left_s)

    def out_of_range(self, place: Place, offset: int) -> OffsetOutOfRange:
        """The error for an offset that is not there, with the range that is."""
        return OffsetOutOfRange(
            offset=offset,
            start_offset=self.offsets([place], EARLIEST)[place],
            end_offset=self.offsets([place], LATEST)[place],
        )
