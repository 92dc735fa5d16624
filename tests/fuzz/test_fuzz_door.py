"""A hundred thousand inputs that no client sends, after which the broker is as it was before.

Most go straight into connections, without sockets; some thousands over real ones. Everything is
drawn from one seed. A failure prints the inputs that came last.
"""

from __future__ import annotations

import asyncio
import gc
import random
import sys
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from millstream.errors import AlreadyExists
from millstream.gateways.kafka.connection import Connection
from millstream.settings.groups import GroupSettings
from millstream.settings.kafka import KafkaSettings
from millstream.settings.loader import Settings
from millstream.settings.topics import TopicSettings
from tests.fakes.direct_transport import DirectTransport
from tests.fakes.open_door import OpenDoor, open_door, run, until
from tests.fakes.patience import HANG_S
from tests.fakes.sample_batches import batch_of, records_in
from tests.fakes.wire_client import WireClient
from tests.fuzz.mutations import LAST_MUTATIONS, MUTATIONS, truncate
from tests.fuzz.random_requests import all_requests, known_ids, random_request
from tests.fuzz.witness import LogWitness, watched_log

pytestmark = pytest.mark.system

SEED = 20261116
SHARES = 4
DIRECT_INPUTS = 100_000 // SHARES
SOCKET_INPUTS = 3_000
INPUTS_PER_CONNECTION = 40
TOPICS_EVERY = 20
# Code that is compiled at first use, and the groups and topics that stay, are all that may grow.
GROWTH_BYTES = 8 << 20
SETTINGS = Settings(
    kafka=KafkaSettings(listener="127.0.0.1:0"),
    topics=TopicSettings(auto_create=False),
    groups=GroupSettings(initial_rebalance_delay_ms=0),
)
REQUESTS = tuple(all_requests())
CREATE_OR_DELETE = {19, 20}


class Attack:
    """Inputs from a seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self._ids = count(1)

    def request(self) -> bytes:
        api_key, version = self.chance.choice(REQUESTS)
        if api_key in CREATE_OR_DELETE and self.chance.random() < 0.9:
            api_key, version = 0, 9  # topics come and go often enough
        return random_request(self.chance, api_key, version, next(self._ids))

    def input(self) -> bytes:
        """One after which a connection may go on."""
        return self.chance.choice(MUTATIONS)(self.chance, self.request())

    def last_input(self) -> bytes:
        return self.chance.choice(LAST_MUTATIONS)(self.chance, self.request())


async def _set_up(opened: OpenDoor) -> None:
    """Have the topics that requests are about, which some of them delete."""
    known = {topic.name for topic in opened.broker.topics.all()}
    with suppress(AlreadyExists):  # it is being deleted
        if "first" not in known:
            await opened.topic("first", partitions=3)
        if "second" not in known:
            await opened.topic("second")
        if "compacted" not in known:
            await opened.topic("compacted", cleanup_policy="compact")
    known_ids[:] = [opened.broker.topics.get(name).topic_id for name in known]


async def _is_healthy(opened: OpenDoor) -> None:
    """A client with no bad intentions notices nothing."""
    client = await opened.connect()
    await opened.topic("healthy")
    for n in range(3):
        stored = await client.produce("healthy", batch_of(b"value %d" % n), acks=-1)
        assert (stored.error_code, stored.base_offset) == (0, n)
    found = await client.fetch("healthy", 0)
    assert found.records is not None
    assert [r.value for r in records_in(memoryview(found.records))] == [
        b"value 0",
        b"value 1",
        b"value 2",
    ]
    await client.close()


async def _nothing_is_left(opened: OpenDoor) -> None:
    """Nothing remembers a connection, once the disk is done with what it was asked for."""
    await until(lambda: not _connections())
    assert not opened.door.connections
    assert not opened.door.pool.holders
    assert not opened.door.pool.is_tight
    assert not opened.broker.memory.used_bytes, "memory was not given back"
    for topic in opened.broker.topics.all():
        assert not any(partition.waiters for partition in topic.partitions)


def _connections() -> list[Connection]:
    gc.collect()
    return [each for each in gc.get_objects() if isinstance(each, Connection)]


def _resident_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("RssAnon")]
    return int(line.split()[1]) * 1024


async def _attack_directly(
    opened: OpenDoor, attack: Attack, witness: LogWitness, *, inputs: int
) -> int:
    """Feed inputs to connections without sockets; returns how many answers came."""
    answers = connections = sent = 0
    while sent < inputs:
        connections += 1
        name = f"direct-{sent}"
        transport, _ = DirectTransport.connect(opened.door, name)
        for number in range(INPUTS_PER_CONNECTION):
            is_last = number == INPUTS_PER_CONNECTION - 1
            data = attack.last_input() if is_last else attack.input()
            witness.recent.append(data)
            transport.feed(data)
            sent += 1
            if transport.is_closed:
                break
        answers += len(transport.answers)
        if transport.is_closed:
            assert witness.bad or witness.closed[-1] == f"{name}:1", "a peer was not named"
        await asyncio.sleep(0)
        if connections % TOPICS_EVERY == 0:
            # Meanwhile the disk does what requests wait for.
            await _set_up(opened)
        transport.hang_up()
        await asyncio.sleep(0)
        witness.check()
    return answers


@pytest.mark.parametrize("share", range(SHARES))
def test_inputs_of_all_kinds_leave_the_broker_as_it_was(
    share: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A request for a hundred thousand partitions is a valid one, and takes its time.
    monkeypatch.setattr("millstream.catalog.commands.MAX_PARTITIONS", 4)
    # Every line is to be seen.
    monkeypatch.setattr("millstream.telemetry.client_log.LINES_PER_MINUTE", sys.maxsize)

    async def main() -> None:
        attack = Attack(SEED + share)
        async with open_door(tmp_path, SETTINGS) as opened:
            await _set_up(opened)
            with watched_log() as witness:
                first = DIRECT_INPUTS // 4
                await _attack_directly(opened, attack, witness, inputs=first)
                gc.collect()
                before = _resident_bytes()
                answers = await _attack_directly(
                    opened, attack, witness, inputs=DIRECT_INPUTS - first
                )
                gc.collect()
                grown = _resident_bytes() - before
                await _nothing_is_left(opened)
                await _is_healthy(opened)
                witness.check()
            assert answers > DIRECT_INPUTS / 4, "too few inputs were worth an answer"
            assert grown < GROWTH_BYTES, f"{grown} bytes more than after the first quarter"

    run(main())


async def _attack_by_socket(opened: OpenDoor, attack: Attack, witness: LogWitness) -> int:
    """One connection; returns the number of inputs."""
    client = await WireClient.connect("127.0.0.1", opened.port)
    inputs = [attack.input() for _ in range(attack.chance.randrange(6))] + [attack.last_input()]
    witness.recent.extend(inputs)
    data = b"".join(inputs)
    manner = attack.chance.randrange(4)
    try:
        if manner == 0:
            # One byte at a time, and then silence.
            for position in range(min(len(data), 60)):
                await client.send(data[position : position + 1])
                await asyncio.sleep(0)
        else:
            await client.send(data)
        if manner == 1:
            client.half_close()
            await asyncio.wait_for(client.ended(), HANG_S)
        if manner == 2:
            client.abort()
    except ConnectionError:
        pass  # it was hung up on already
    await client.close()
    return len(inputs)


def test_inputs_over_real_sockets_leave_the_broker_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.catalog.commands.MAX_PARTITIONS", 4)
    # Every line is to be seen.
    monkeypatch.setattr("millstream.telemetry.client_log.LINES_PER_MINUTE", sys.maxsize)

    async def main() -> None:
        attack = Attack(SEED + SHARES)
        async with open_door(tmp_path, SETTINGS) as opened:
            await _set_up(opened)
            with watched_log() as witness:
                sent = 0
                while sent < SOCKET_INPUTS:
                    sent += await _attack_by_socket(opened, attack, witness)
                    witness.check()
                await _nothing_is_left(opened)
                await _is_healthy(opened)
                witness.check()
                assert all(peer.startswith("127.0.0.1:") for peer in witness.closed)
                assert len(witness.closed) > 100

    run(main())


def test_slow_loris_keeps_nobody_out(tmp_path: Path) -> None:
    async def main() -> None:
        attack = Attack(SEED + SHARES + 1)
        async with open_door(tmp_path, SETTINGS) as opened:
            await _set_up(opened)
            with watched_log() as witness:
                slow = [await opened.connect() for _ in range(200)]
                rest = [truncate(attack.chance, attack.request()) for _ in slow]
                for place in range(20):
                    for client, data in zip(slow, rest, strict=True):
                        await client.send(data[place : place + 1])
                    if place % 10 == 0:
                        await _is_healthy_again(opened)
                for client in slow:
                    await client.close()
                await _nothing_is_left(opened)
                witness.check()

    run(main())


async def _is_healthy_again(opened: OpenDoor) -> None:
    client = await opened.connect()
    stored = await client.produce("second", batch_of(b"still here"))
    assert stored.error_code == 0
    await client.close()
