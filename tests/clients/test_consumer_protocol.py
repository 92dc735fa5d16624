"""Groups of the consumer protocol (KIP-848), whose partitions the broker shares out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.clients.broker_process import BrokerProcess
from tests.clients.client_shape import Committed, Message, Refused, eventually, produce, read
from tests.clients.confluent_client import Confluent, ConfluentAdmin
from tests.clients.conftest import StartBroker
from tests.clients.group_member import (
    LocalMember,
    Member,
    RemoteMember,
    all_read,
    settle,
    spread,
    work_off,
)

pytestmark = pytest.mark.system

PARTITIONS = 6
EACH = 20
MANY = 16
ROUND = PARTITIONS * EACH
CLIENT = Confluent()
SESSION_MS = 60_000
UNSUPPORTED_ASSIGNOR = 112
# librdkafka's own code for an error after which a client is of no more use.
FATAL = -150


class Cast:
    """A topic, and the members that read it."""

    def __init__(self, broker: BrokerProcess, name: str) -> None:
        self.broker = broker
        self.name = name
        self.admin: ConfluentAdmin = CLIENT.admin(broker.address)
        self.admin.create(name, partitions=PARTITIONS)
        self._local: list[LocalMember] = []
        self._remote: list[RemoteMember] = []

    def local(
        self,
        *,
        protocol: str = "consumer",
        instance: str | None = None,
        remote_assignor: str = "uniform",
    ) -> LocalMember:
        consumer = CLIENT.consumer(
            self.broker.address,
            group=self.name,
            protocol=protocol,
            instance=instance,
            session_ms=SESSION_MS,
            remote_assignor=remote_assignor,
        )
        member = LocalMember(consumer, self.name)
        self._local.append(member)
        return member

    def remote(self, *options: str) -> RemoteMember:
        member = RemoteMember(
            CLIENT.name,
            self.broker.address,
            self.name,
            self.name,
            "--protocol",
            "consumer",
            *options,
        )
        self._remote.append(member)
        return member

    def produce(self) -> None:
        spread(CLIENT, self.broker.address, self.name, partitions=PARTITIONS, each=EACH)

    def committed(self) -> dict[int, int]:
        found = self.admin.group_offsets(self.name)
        return {partition: offset for (_, partition), offset in found.items()}

    def forget(self, member: LocalMember) -> None:
        """It has ended by itself, as it should."""
        self._local.remove(member)

    def close(self) -> None:
        for doomed in self._remote:
            doomed.kill()
        for member in self._local:
            member.close()


@pytest.fixture
def cast(broker: BrokerProcess, name: str) -> Iterator[Cast]:
    found = Cast(broker, name)
    yield found
    found.close()


@pytest.fixture
def own_cast(start_broker: StartBroker, name: str) -> Iterator[Cast]:
    """On a broker that can be killed."""
    found = Cast(start_broker(), name)
    yield found
    found.close()


def rounds(count: int) -> Counter[tuple[int, int]]:
    """What a number of rounds of records are."""
    return Counter(
        (partition, offset) for partition in range(PARTITIONS) for offset in range(count * EACH)
    )


def test_join_leave_and_death_lose_and_repeat_nothing(cast: Cast) -> None:
    first = cast.local()
    settle([first], [6], partitions=PARTITIONS)
    cast.produce()
    work_off([first], 0, ROUND)

    second = cast.local()
    doomed = cast.remote()
    members: list[Member] = [first, second, doomed]
    settle(members, [2, 2, 2], partitions=PARTITIONS)
    assert cast.admin.group_members(cast.name) == ("Stable", 3)
    cast.produce()
    work_off(members, ROUND, ROUND)
    assert Counter(all_read(members)) == rounds(2)

    # What it read and never committed is read again, by those who are left.
    unfinished = list(doomed.read)
    assert len(unfinished) == ROUND // 3
    doomed.kill()
    settle([first, second], [3, 3], partitions=PARTITIONS)
    work_off([first, second], 2 * ROUND - len(unfinished), len(unfinished))
    assert Counter(all_read([first, second])) == rounds(2)

    second.close()
    settle([first], [6], partitions=PARTITIONS)
    cast.produce()
    work_off([first, second], 2 * ROUND, ROUND)
    assert Counter(all_read([first, second])) == rounds(3)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_many_members_come_and_go_at_once(broker: BrokerProcess, protocol: str, name: str) -> None:
    CLIENT.admin(broker.address).create(name, partitions=MANY)
    members = [
        LocalMember(CLIENT.consumer(broker.address, group=name, protocol=protocol), name)
        for _ in range(MANY)
    ]
    settle(members, [1] * MANY, partitions=MANY)
    stay, leave = members[: MANY // 4], members[MANY // 4 :]
    for member in leave:
        member.close()
    settle(stay, [4] * len(stay), partitions=MANY)
    spread(CLIENT, broker.address, name, partitions=MANY, each=10)
    work_off(stay, 0, 10 * MANY)
    for member in stay:
        member.close()


def test_range_assignor_gives_neighbours(cast: Cast) -> None:
    members = [cast.local(remote_assignor="range") for _ in range(2)]
    settle(members, [3, 3], partitions=PARTITIONS)
    assert {frozenset(each.assigned) for each in members} == {
        frozenset({0, 1, 2}),
        frozenset({3, 4, 5}),
    }


def test_unknown_assignor_is_refused(cast: Cast) -> None:
    member = cast.local(remote_assignor="by-the-moon")
    with pytest.raises(Refused) as refused:
        settle([member], [6], partitions=PARTITIONS)
    assert refused.value.code in {UNSUPPORTED_ASSIGNOR, FATAL}
    cast.forget(member)


def test_members_keep_what_they_have_when_others_come(cast: Cast) -> None:
    first = cast.local()
    settle([first], [6], partitions=PARTITIONS)
    second = cast.local()
    settle([first, second], [3, 3], partitions=PARTITIONS)
    before = set(first.assigned), set(second.assigned)
    third = cast.local()
    settle([first, second, third], [2, 2, 2], partitions=PARTITIONS)
    assert first.assigned < before[0]
    assert second.assigned < before[1]


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_group_goes_on_after_the_broker_comes_back(own_cast: Cast, end: str) -> None:
    first, second = own_cast.local(), own_cast.local()
    settle([first, second], [3, 3], partitions=PARTITIONS)
    own_cast.produce()
    work_off([first, second], 0, ROUND)
    shares = set(first.assigned), set(second.assigned)
    if end == "kill":
        own_cast.broker.kill_and_restart()
    else:
        own_cast.broker.restart()
    own_cast.produce()
    work_off([first, second], ROUND, ROUND)
    assert Counter(all_read([first, second])) == rounds(2)
    assert (first.assigned, second.assigned) == shares
    third = own_cast.local()
    settle([first, second, third], [2, 2, 2], partitions=PARTITIONS)
    own_cast.produce()
    work_off([first, second, third], 2 * ROUND, ROUND)
    assert Counter(all_read([first, second, third])) == rounds(3)


def test_member_that_dies_with_the_broker_is_missed_after_its_session(own_cast: Cast) -> None:
    first, doomed = own_cast.local(), own_cast.remote()
    settle([first, doomed], [3, 3], partitions=PARTITIONS)
    own_cast.broker.kill()
    doomed.kill()
    own_cast.broker.start()
    settle([first], [6], partitions=PARTITIONS)
    own_cast.produce()
    work_off([first], 0, ROUND)
    assert Counter(first.read) == rounds(1)


def test_classic_group_moves_online_and_back(cast: Cast) -> None:
    classic = [cast.local(protocol="classic"), cast.local(protocol="classic")]
    settle(classic, [3, 3], partitions=PARTITIONS)
    cast.produce()
    work_off(classic, 0, ROUND)

    # Both protocols at once, while members move one by one.
    modern = [cast.local()]
    settle([*classic, *modern], [2, 2, 2], partitions=PARTITIONS)
    cast.produce()
    work_off([*classic, *modern], ROUND, ROUND)
    for member in classic:
        member.close()
    modern.append(cast.local())
    settle(modern, [3, 3], partitions=PARTITIONS)
    cast.produce()
    work_off([*classic, *modern], 2 * ROUND, ROUND)
    assert Counter(all_read([*classic, *modern])) == rounds(3)
    assert cast.committed() == dict.fromkeys(range(PARTITIONS), 3 * EACH)

    # And back.
    for member in modern:
        member.close()
    last = cast.local(protocol="classic")
    settle([last], [6], partitions=PARTITIONS)
    cast.produce()
    work_off([*classic, *modern, last], 3 * ROUND, ROUND)
    assert Counter(all_read([*classic, *modern, last])) == rounds(4)


def test_empty_group_moves_with_its_offsets(broker: BrokerProcess, name: str) -> None:
    produce(CLIENT, broker.address, [Message(name, b"%d" % number) for number in range(10)])
    for protocol, first in (("classic", 0), ("consumer", 4), ("classic", 8)):
        member = CLIENT.consumer(broker.address, group=name, protocol=protocol)
        member.subscribe([name])
        assert read(member, 10 - first)[0].offset == first
        member.commit({(name, 0): Committed(first + 4 if first < 8 else 10, protocol)})
        member.close()
    again = CLIENT.consumer(broker.address, group=name)
    assert again.committed((name, 0)) == Committed(10, "classic")
    again.close()


def test_static_member_comes_back_to_what_it_had(cast: Cast) -> None:
    first, second = cast.local(instance="first"), cast.local(instance="second")
    settle([first, second], [3, 3], partitions=PARTITIONS)
    cast.produce()
    work_off([first, second], 0, ROUND)
    stays, had = set(first.assigned), set(second.assigned)
    second.close()
    again = cast.local(instance="second")

    def is_back() -> bool:
        first.poll()
        again.poll()
        # Whoever has read nothing yet has nothing to lose.
        assert first.assigned == stays
        return again.assigned == had

    eventually(is_back, "the same assignment")
    cast.produce()
    work_off([first, second, again], ROUND, ROUND)
    assert Counter(all_read([first, second, again])) == rounds(2)


def test_new_partitions_are_shared_out(broker: BrokerProcess, name: str) -> None:
    admin = CLIENT.admin(broker.address)
    admin.create(name, partitions=2)
    members = [
        LocalMember(CLIENT.consumer(broker.address, group=name, protocol="consumer"), name)
        for _ in range(2)
    ]
    settle(members, [1, 1], partitions=2)
    admin.add_partitions(name, 6)
    settle(members, [3, 3], partitions=6)
    spread(CLIENT, broker.address, name, partitions=6, each=5)
    work_off(members, 0, 30)
    for member in members:
        member.close()


def test_pattern_is_matched_by_the_broker(broker: BrokerProcess, name: str) -> None:
    produce(CLIENT, broker.address, [Message(f"{name}-first", b"1")])
    produce(CLIENT, broker.address, [Message(f"other-{name}", b"1")])
    member = CLIENT.consumer(broker.address, group=name, protocol="consumer")
    member.subscribe_pattern(f"^{name}-.*")
    assert {each.topic for each in read(member, 1)} == {f"{name}-first"}
    produce(CLIENT, broker.address, [Message(f"{name}-second", b"1")])
    assert {each.topic for each in read(member, 1)} == {f"{name}-second"}
    member.close()
