"""`kill -9` of a broker with real clients at work, again and again on one directory.

Producers with acks=all and idempotence, and groups that commit, run in processes of their own and
outlive it. No acknowledged record is lost, none comes twice, order is kept, and every offset that
a producer was told is where its record lies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest

from tests.clients.broker_process import BrokerProcess
from tests.clients.client_shape import eventually
from tests.clients.confluent_client import Confluent
from tests.clients.group_member import RemoteMember, settle
from tests.clients.remote_producer import RemoteProducer
from tests.clients.stored_batches import records_in

pytestmark = pytest.mark.system

TOPIC = "under-load"
PARTITIONS = 3
PRODUCERS = 2
# What a broker is let do between two kills, in acknowledgements.
MAX_ACKS = 1500
EARLY_SHARE = 0.2
SETTINGS = """
[groups]
group.initial.rebalance.delay.ms = 50
group.consumer.session.timeout.ms = 45000
group.consumer.heartbeat.interval.ms = 500

[storage]
millstream.checkpoint.ms = 500
"""


class Load:
    """Clients that work while the broker is killed."""

    def __init__(self, broker: BrokerProcess, running: ExitStack) -> None:
        Confluent().admin(broker.address).create(TOPIC, partitions=PARTITIONS)

        def member(group: str, *options: str) -> RemoteMember:
            found = RemoteMember("confluent", broker.address, group, TOPIC, "--commit", *options)
            running.callback(found.kill)
            return found

        session = ("--session-ms", "45000")
        self.groups = {
            "classic": [member("classic", *session), member("classic", *session)],
            "consumer": [member("consumer", "--protocol", "consumer")],
        }
        settle(self.groups["classic"], [1, 2], partitions=PARTITIONS)
        settle(self.groups["consumer"], [3], partitions=PARTITIONS)
        self.producers = [
            running.enter_context(
                RemoteProducer(
                    broker.address, TOPIC, partitions=PARTITIONS, name=f"producer-{number}"
                )
            )
            for number in range(PRODUCERS)
        ]

    @property
    def acks(self) -> int:
        return sum(len(producer.acked) for producer in self.producers)

    @property
    def members(self) -> Iterator[RemoteMember]:
        for members in self.groups.values():
            yield from members

    def wait_for_acks(self, count: int) -> None:
        """Until that many more records were acknowledged."""
        member = next(self.members)
        wanted = self.acks + count

        def are_enough() -> bool:
            member.poll()
            return self.acks >= wanted

        eventually(are_enough, f"{count} acknowledgements")

    def finish_producing(self) -> list[int]:
        """Wait until all that was sent is acknowledged; how much that is in each partition."""
        for producer in self.producers:
            producer.finish()
        return [sum(producer.sent[p] for producer in self.producers) for p in range(PARTITIONS)]

    def finish_reading(self, ends: list[int]) -> None:
        """Wait until each group has committed all of it."""
        wanted = dict(enumerate(ends))
        eventually(
            lambda: all(_committed(members) == wanted for members in self.groups.values()),
            f"commits of {wanted}",
        )


def _committed(members: Sequence[RemoteMember]) -> dict[int, int]:
    found: dict[int, int] = {}
    for member in members:
        member.poll()
        found |= member.committed
    return found


def kill_again_and_again(path: Path, *, cycles: int, seed: int) -> None:
    random = Random(seed)
    with (
        BrokerProcess(path, settings=SETTINGS) as broker,
        ExitStack() as running,
    ):
        load = Load(broker, running)
        for _ in range(cycles):
            load.wait_for_acks(random.randint(1, MAX_ACKS))
            broker.kill()
            if random.random() < EARLY_SHARE:
                broker.start_and_kill(random.random())
            broker.start()
        ends = load.finish_producing()
        prove_records(broker, load, ends)
        load.finish_reading(ends)
        prove_reading(load, ends)
        broker.stop()
        assert broker.complaints() == []


def prove_records(broker: BrokerProcess, load: Load, ends: list[int]) -> None:
    """Every record is there once, in its producer's order, at the offset that it was told."""
    for partition, end in enumerate(ends):
        offsets: dict[str, list[int]] = {producer.name: [] for producer in load.producers}
        expected = 0
        for record in records_in(broker.segments(TOPIC, partition)):
            assert record.offset == expected
            expected += 1
            name, number = (record.value or b"").decode().split()
            assert int(number) == len(offsets[name]), "lost, twice, or out of order"
            offsets[name].append(record.offset)
        assert expected == end
        for producer in load.producers:
            sent = range(producer.sent[partition])
            assert offsets[producer.name] == [producer.acked[partition, n] for n in sent]


def prove_reading(load: Load, ends: list[int]) -> None:
    """Each group has read everything, and nothing again that it had committed."""
    everything = {(p, offset) for p, end in enumerate(ends) for offset in range(end)}
    for members in load.groups.values():
        assert {place for member in members for place in member.read} == everything
        assert [place for member in members for place in member.repeated] == []


def test_broker_killed_under_load_loses_and_repeats_nothing(tmp_path: Path) -> None:
    kill_again_and_again(tmp_path / "broker", cycles=20, seed=1)


@pytest.mark.torture
def test_broker_killed_two_hundred_times_loses_and_repeats_nothing(tmp_path: Path) -> None:
    kill_again_and_again(tmp_path / "broker", cycles=200, seed=2)
