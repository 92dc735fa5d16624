"""Classic groups: members come, go and die, and every record is read once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.clients.broker_process import BrokerProcess
from tests.clients.client_kinds import COOPERATIVE, FENCED, OTHERS, with_clients
from tests.clients.client_shape import Client, Committed, Refused, eventually, produce, read
from tests.clients.client_shape import Message as Record
from tests.clients.confluent_client import Confluent
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
from tests.clients.stored_batches import generation_of

pytestmark = pytest.mark.system

PARTITIONS = 6
EACH = 20
ROUND = PARTITIONS * EACH
SESSION_MS = 60_000
# Of members that die, which the group is to miss soon.
SHORT_SESSION_MS = 6000
GROUP_NOT_EMPTY = 68
GROUP_UNKNOWN = 69


class Cast:
    """A topic, and the members that read it."""

    def __init__(self, client: Client, broker: BrokerProcess, name: str) -> None:
        self.client = client
        self.broker = broker
        self.name = name
        self._remote: list[RemoteMember] = []
        self._local: list[LocalMember] = []
        admin = client.admin(broker.address)
        admin.create(name, partitions=PARTITIONS)
        admin.close()

    def local(self, *, instance: str | None = None, cooperative: bool = False) -> LocalMember:
        consumer = self.client.consumer(
            self.broker.address,
            group=self.name,
            instance=instance,
            session_ms=SESSION_MS,
            cooperative=cooperative,
        )
        member = LocalMember(consumer, self.name)
        self._local.append(member)
        return member

    def remote(self, *options: str) -> RemoteMember:
        member = RemoteMember(self.client.name, self.broker.address, self.name, self.name, *options)
        self._remote.append(member)
        return member

    def produce(self) -> None:
        spread(self.client, self.broker.address, self.name, partitions=PARTITIONS, each=EACH)

    def generation(self) -> int:
        return generation_of(self.broker.segments("__consumer_offsets"), self.name)

    def close(self) -> None:
        for doomed in self._remote:
            doomed.kill()
        for member in self._local:
            member.close()


@pytest.fixture
def cast(broker: BrokerProcess, client: Client, name: str) -> Iterator[Cast]:
    found = Cast(client, broker, name)
    yield found
    found.close()


@pytest.fixture
def own_cast(start_broker: StartBroker, client: Client, name: str) -> Iterator[Cast]:
    """On a broker that can be killed."""
    found = Cast(client, start_broker(), name)
    yield found
    found.close()


def offsets(first: int, rounds: int) -> Counter[tuple[int, int]]:
    """What a number of rounds of records are."""
    return Counter(
        (partition, offset)
        for partition in range(PARTITIONS)
        for offset in range(first * EACH, (first + rounds) * EACH)
    )


@with_clients()
def test_join_leave_and_death_lose_and_repeat_nothing(cast: Cast) -> None:
    first = cast.local()
    settle([first], [6], partitions=PARTITIONS)
    cast.produce()
    work_off([first], 0, ROUND)

    second = cast.local()
    doomed = cast.remote("--session-ms", str(SHORT_SESSION_MS))
    members: list[Member] = [first, second, doomed]
    settle(members, [2, 2, 2], partitions=PARTITIONS)
    cast.produce()
    work_off(members, ROUND, ROUND)
    assert Counter(all_read(members)) == offsets(0, 2)

    # What it read and never committed is read again, by those who are left.
    unfinished = list(doomed.read)
    assert len(unfinished) == ROUND // 3
    doomed.kill()
    settle([first, second], [3, 3], partitions=PARTITIONS)
    work_off([first, second], 2 * ROUND - len(unfinished), len(unfinished))
    assert Counter(all_read([first, second])) == offsets(0, 2)

    second.close()
    second_read = second.read
    settle([first], [6], partitions=PARTITIONS)
    cast.produce()
    work_off([first], 2 * ROUND - len(second_read), ROUND)
    assert Counter(first.read + second_read) == offsets(0, 3)


@with_clients(OTHERS)
def test_clients_of_two_kinds_share_a_group(
    broker: BrokerProcess, client: Client, name: str
) -> None:
    admin = client.admin(broker.address)
    admin.create(name, partitions=PARTITIONS)
    admin.close()
    members = []
    for kind in (Confluent(), client):
        consumer = kind.consumer(broker.address, group=name, session_ms=SESSION_MS)
        members.append(LocalMember(consumer, name))
        settle(members, [PARTITIONS // len(members)] * len(members), partitions=PARTITIONS)
    spread(client, broker.address, name, partitions=PARTITIONS, each=EACH)
    work_off(members, 0, ROUND)
    assert Counter(all_read(members)) == offsets(0, 1)
    for member in members:
        member.close()


@with_clients(COOPERATIVE)
def test_cooperative_members_keep_what_they_have(cast: Cast) -> None:
    first = cast.local(cooperative=True)
    settle([first], [6], partitions=PARTITIONS)
    cast.produce()
    work_off([first], 0, ROUND)
    second = cast.local(cooperative=True)
    before = first.assigned
    settle([first, second], [3, 3], partitions=PARTITIONS)
    assert first.assigned < before
    doomed = cast.remote("--session-ms", str(SHORT_SESSION_MS), "--cooperative", "--commit")
    settle([first, second, doomed], [2, 2, 2], partitions=PARTITIONS)
    cast.produce()
    work_off([first, second, doomed], ROUND, ROUND)
    eventually(lambda: _finished(doomed), "the last commit")
    doomed.kill()
    kept = first.assigned, second.assigned
    settle([first, second], [3, 3], partitions=PARTITIONS)
    assert kept[0] < first.assigned
    assert kept[1] < second.assigned
    cast.produce()
    work_off([first, second], 2 * ROUND - len(doomed.read), ROUND)
    assert Counter(all_read([first, second, doomed])) == offsets(0, 3)
    first.close()


def _finished(member: RemoteMember) -> bool:
    member.poll()
    return member.committed == dict.fromkeys(member.assigned, 2 * EACH)


@with_clients()
def test_member_that_dies_with_the_broker_is_missed_after_its_session(own_cast: Cast) -> None:
    first = own_cast.local()
    doomed = own_cast.remote("--session-ms", str(SHORT_SESSION_MS))
    settle([first, doomed], [3, 3], partitions=PARTITIONS)
    own_cast.broker.kill()
    doomed.kill()
    own_cast.broker.start()
    settle([first], [6], partitions=PARTITIONS)
    own_cast.produce()
    work_off([first], 0, ROUND)
    assert Counter(first.read) == offsets(0, 1)


@with_clients()
def test_static_member_comes_back_to_what_it_had(cast: Cast) -> None:
    first = cast.local(instance="first")
    second = cast.local(instance="second")
    settle([first, second], [3, 3], partitions=PARTITIONS)
    cast.produce()
    work_off([first, second], 0, ROUND)
    generation = cast.generation()
    had = second.assigned
    stays = first.assigned
    second.close()
    again = cast.local(instance="second")

    def is_back() -> bool:
        first.poll()
        again.poll()
        return again.assigned == had

    eventually(is_back, "the same assignment")
    cast.produce()
    work_off([first, again], ROUND - len(second.read), ROUND)
    assert first.assigned == stays
    assert cast.generation() == generation
    assert Counter(all_read([first, second, again])) == offsets(0, 2)
    first.close()


@with_clients(FENCED)
def test_commit_of_a_member_that_was_put_out_is_refused(
    broker: BrokerProcess, client: Client, name: str
) -> None:
    produce(client, broker.address, [Record(name, b"%d" % number) for number in range(10)])
    first = client.consumer(broker.address, group=name, instance="one")
    first.subscribe([name])
    read(first, 10)
    # A second member with the same instance id fences the first.
    second = client.consumer(broker.address, group=name, instance="one")
    second.subscribe([name])
    assert len(read(second, 10)) == 10
    with pytest.raises((Refused, RuntimeError)):
        first.commit({(name, 0): Committed(5)})
    assert second.committed((name, 0)) is None
    second.commit({(name, 0): Committed(10)})


@with_clients()
def test_commits_survive_the_group(broker: BrokerProcess, client: Client, name: str) -> None:
    produce(client, broker.address, [Record(name, b"%d" % number) for number in range(10)])
    member = client.consumer(broker.address, group=name)
    member.subscribe([name])
    read(member, 10)
    member.commit({(name, 0): Committed(7, "seven")})
    member.close()
    admin = client.admin(broker.address)
    assert name in admin.groups()
    assert admin.group_members(name) == ("Empty", 0)
    admin.close()
    again = client.consumer(broker.address, group=name)
    assert again.committed((name, 0)) == Committed(7, "seven")
    again.close()
