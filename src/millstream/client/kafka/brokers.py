"""The brokers of a cluster: where they are, which partitions they lead, and a connection to each.

What is known comes from Metadata and FindCoordinator and is kept until something fails; then all
of it is forgotten, and asked for again.

Invariant: no lock is held while a broker is waited for, but that of the connection to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from threading import Lock

from millstream.client.kafka.address import Address, parse_addresses
from millstream.client.kafka.connecting import open_connection
from millstream.client.kafka.connection import Answer, Connection
from millstream.client.kafka.error_codes import UNKNOWN_TOPIC_OR_PARTITION, check, failure
from millstream.client.kafka.patience import Patience
from millstream.client.kafka.places import Place
from millstream.client.kafka.settings import ClusterSettings
from millstream.errors import (
    AnswerLost,
    ClientClosed,
    Unavailable,
    UnknownPartition,
    UnknownTopic,
)
from millstream.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from millstream.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from millstream.protocol.notation import Struct

GROUP, TRANSACTION = 0, 1

_LEADER_NOT_AVAILABLE = 5


@dataclass(slots=True)
class _Known:
    """What brokers have told."""

    addresses: dict[int, Address] = field(default_factory=dict)
    controller: int = -1
    leaders: dict[str, dict[int, int]] = field(default_factory=dict)
    coordinators: dict[tuple[int, str], Address] = field(default_factory=dict)


class _Seat:
    """The connection to one address, for one request at a time."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.connection: Connection | None = None


class Brokers:
    """Where to ask for what. For several threads at once."""

    def __init__(self, settings: ClusterSettings) -> None:
        self.settings = settings
        self._bootstrap = parse_addresses(settings.bootstrap)
        self._lock = Lock()
        self._known = _Known()
        self._addresses: list[Address] = []
        """The last that were known: where to ask when those of the settings are gone."""
        self._seats: dict[Address, _Seat] = {}
        self._is_closed = False

    def forget(self) -> None:
        """Something was not as we took it to be."""
        with self._lock:
            self._known = _Known()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            seats, self._seats = list(self._seats.values()), {}
        for seat in seats:
            with seat.lock:
                if seat.connection is not None:
                    seat.connection.close()

    def topics(
        self, names: Iterable[str] | None, patience: Patience, *, creates: bool = False
    ) -> Sequence[MetadataResponseTopic]:
        """Topics as the cluster knows them; None for all. See `Cluster.partitions`."""
        return self._learn(names, patience, creates=creates)[1]

    def leader(self, place: Place, patience: Patience) -> Address:
        """Raises UnknownTopic, or BrokerNotReady while there is none."""
        topic, partition = place
        known = self._known
        if partition not in known.leaders.get(topic, {}):
            known, topics = self._learn([topic], patience)
            for told in topics:
                check_topic(told)
        leaders = known.leaders.get(topic, {})
        if partition not in leaders:
            raise UnknownPartition(topic, partition, count=len(leaders))
        address = known.addresses.get(leaders[partition])
        if address is None:
            what = f"finding the leader of {topic}/{partition}"
            raise failure(_LEADER_NOT_AVAILABLE, what)
        return address

    def controller(self, patience: Patience) -> Address:
        """Where topics are created; any broker will do where none is named."""
        known = self._known
        if not known.addresses:
            known, _ = self._learn([], patience)
        address = known.addresses.get(known.controller)
        if address is None:
            address = next(iter(known.addresses.values()), None)
        if address is None:
            raise failure(_LEADER_NOT_AVAILABLE, "finding the controller")
        return address

    def everyone(self, patience: Patience) -> list[Address]:
        """All brokers that are there now."""
        known, _ = self._learn([], patience)
        return list(known.addresses.values())

    def coordinator(self, kind: int, key: str, patience: Patience) -> Address:
        known = self._known
        address = known.coordinators.get((kind, key))
        if address is None:
            request = FindCoordinatorRequest(key=key, key_type=kind)
            answer = self.ask_any(request, FindCoordinatorResponse, patience)
            what = f"finding the coordinator of {key!r}"
            check(answer.error_code, what, answer.error_message)
            address = known.coordinators[kind, key] = Address(answer.host, answer.port)
        return address

    def ask_any(self, request: Struct, answer: type[Answer], patience: Patience) -> Answer:
        """Ask whoever is there. Raises Unavailable when nobody is."""
        places = list(dict.fromkeys([*self._addresses, *self._bootstrap]))
        cause: Unavailable | None = None
        for number, address in enumerate(places, start=1):
            share_s = patience.left_s if number == len(places) else patience.left_s / 2
            try:
                return self.ask(address, request, answer, share_s)
            except Unavailable as error:
                cause = error
        assert cause is not None
        raise cause

    def ask(
        self, address: Address, request: Struct, answer: type[Answer], timeout_s: float
    ) -> Answer:
        """Ask one broker. Raises Unavailable.

        A connection that has been idle may be gone without our knowing: then there is one more
        attempt, through a new one.
        """
        seat = self._seat(address)
        with seat.lock:
            connection = seat.connection
            if connection is not None and connection.is_idle:
                connection.limit(timeout_s)
                try:
                    return connection.ask(request, answer)
                except AnswerLost:
                    seat.connection = None
            elif connection is not None:
                # Whoever asked last was interrupted.
                connection.close()
            connection = seat.connection = open_connection(address, self.settings, timeout_s)
            with self._lock:
                is_closed = self._is_closed
            if is_closed:
                connection.close()
                raise ClientClosed(what="client of the cluster")
            return connection.ask(request, answer)

    def open(self, address: Address, timeout_s: float) -> Connection:
        """A connection of one's own, on which several requests may be under way."""
        return open_connection(address, self.settings, timeout_s)

    def _learn(
        self, names: Iterable[str] | None, patience: Patience, *, creates: bool = False
    ) -> tuple[_Known, Sequence[MetadataResponseTopic]]:
        """What is known now; by what was told, if another thread forgets it meanwhile."""
        wanted = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=creates)
        answer = self.ask_any(request, MetadataResponse, patience)
        with self._lock:
            known = self._known
            known.addresses = {
                each.node_id: Address(each.host, each.port) for each in answer.brokers
            }
            known.controller = answer.controller_id
            self._addresses = list(known.addresses.values()) or self._addresses
            for topic in answer.topics:
                if not topic.error_code and topic.name is not None:
                    known.leaders[topic.name] = {
                        each.partition_index: each.leader_id for each in topic.partitions
                    }
        return known, answer.topics

    def _seat(self, address: Address) -> _Seat:
        with self._lock:
            if self._is_closed:
                raise ClientClosed(what="client of the cluster")
            return self._seats.setdefault(address, _Seat())


def check_topic(told: MetadataResponseTopic) -> None:
    """Raises UnknownTopic, or what else a broker tells of a topic."""
    if told.error_code == UNKNOWN_TOPIC_OR_PARTITION:
        raise UnknownTopic(told.name or "")
    check(told.error_code, f"looking up topic {told.name!r}")
