"""Groups whose members come and die while the broker is killed under them.

Members of both protocols share one group, so it also moves between them on the way. Whatever
happens, every record is read, and in the end all is committed and every partition has one owner.
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest

from tests.clients.broker_process import BrokerProcess
from tests.clients.client_shape import eventually
from tests.clients.confluent_client import Confluent
from tests.clients.group_member import RemoteMember, settle
from tests.clients.remote_producer import RemoteProducer

pytestmark = pytest.mark.system

TOPIC = GROUP = "churned"
PARTITIONS = 6
MAX_MEMBERS = 4
MAX_ACKS = 1000
SETTINGS = """
[groups]
group.min.session.timeout.ms = 500
group.initial.rebalance.delay.ms = 50
group.consumer.session.timeout.ms = 3000
group.consumer.heartbeat.interval.ms = 200
"""
PROTOCOLS = {
    "classic": ("--session-ms", "3000"),
    "cooperative": ("--session-ms", "3000", "--cooperative"),
    "consumer": ("--protocol", "consumer"),
}


class Churn:
    """A group, a producer that feeds it, and what befalls them."""

    def __init__(self, broker: BrokerProcess, running: ExitStack, *, seed: int) -> None:
        self._broker = broker
        self._running = running
        self._random = Random(seed)
        # Eager and cooperative members cannot share a group.
        self._kinds = ["consumer", self._random.choice(["classic", "cooperative"])]
        self._producers: list[RemoteProducer] = []
        self.members: list[RemoteMember] = []
        self.dead: list[RemoteMember] = []
        Confluent().admin(broker.address).create(TOPIC, partitions=PARTITIONS)
        self._feeding = self._producer("feeding")
        self.join()

    def step(self) -> None:
        """Let some records through, then do something to the group or to the broker."""
        wanted = len(self._feeding.acked) + self._random.randint(1, MAX_ACKS)
        eventually(lambda: self._reaches(wanted), f"{wanted} acknowledgements")
        chance = self._random.random()
        if chance < 0.35 and len(self.members) < MAX_MEMBERS:
            self.join()
        elif chance < 0.6 and len(self.members) > 1:
            self.die()
        else:
            self._broker.kill_and_restart()

    def join(self) -> None:
        kind = self._random.choice(self._kinds)
        options = ("--commit", *PROTOCOLS[kind])
        member = RemoteMember("confluent", self._broker.address, GROUP, TOPIC, *options)
        self._running.callback(member.kill)
        self.members.append(member)

    def die(self) -> None:
        member = self.members.pop(self._random.randrange(len(self.members)))
        member.kill()
        self.dead.append(member)

    def finish(self) -> None:
        self._feeding.finish()
        share, rest = divmod(PARTITIONS, len(self.members))
        sizes = [share + (number < rest) for number in range(len(self.members))]
        settle(self.members, sizes, partitions=PARTITIONS)
        # A last record for each owner to commit: before, another may have committed less.
        self._producer("last", count=1).finish()
        ends = {p: sum(each.sent[p] for each in self._producers) for p in range(PARTITIONS)}
        admin = Confluent().admin(self._broker.address)

        def are_committed() -> bool:
            self.members[0].poll()
            found = admin.group_offsets(GROUP)
            return {partition: offset for (_, partition), offset in found.items()} == ends

        eventually(are_committed, "the last commit")
        seen = Counter(place for member in (*self.members, *self.dead) for place in member.read)
        assert seen.keys() == {(p, offset) for p, end in ends.items() for offset in range(end)}
        assert [place for member in self.members for place in member.repeated] == []

    def _producer(self, name: str, count: int | None = None) -> RemoteProducer:
        producer = RemoteProducer(
            self._broker.address, TOPIC, partitions=PARTITIONS, name=name, count=count
        )
        self._producers.append(self._running.enter_context(producer))
        return producer

    def _reaches(self, acks: int) -> bool:
        self.members[0].poll()
        return len(self._feeding.acked) >= acks


def churn(path: Path, *, steps: int, seed: int) -> None:
    with (
        BrokerProcess(path, settings=SETTINGS) as broker,
        ExitStack() as running,
    ):
        group = Churn(broker, running, seed=seed)
        for _ in range(steps):
            group.step()
        group.finish()
        broker.stop()
        assert broker.complaints() == []


def test_group_outlives_its_members_and_its_broker(tmp_path: Path) -> None:
    churn(tmp_path / "broker", steps=8, seed=1)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(10, 20))
def test_group_outlives_many_members_and_many_brokers(tmp_path: Path, seed: int) -> None:
    churn(tmp_path / "broker", steps=40, seed=seed)
