"""What one client can do to a broker process, and what that costs the others: little."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from millstream.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from millstream.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from millstream.protocol.messages.describe_groups import DescribeGroupsRequest
from millstream.protocol.messages.find_coordinator import FindCoordinatorRequest
from millstream.protocol.messages.init_producer_id import InitProducerIdRequest
from millstream.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from millstream.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from millstream.protocol.notation import Struct
from tests.fakes.sample_batches import idempotent_batch
from tests.fakes.wire_client import BlockingClient, request_frame
from tests.fuzz.broker_load import MIB, clients, many_files
from tests.hostile.full_requests import full_arrays
from tests.hostile.siege import besieged_broker

pytestmark = [pytest.mark.system, pytest.mark.hostile]

NO_TOPICS = "[topics]\nauto.create.topics.enable = false\n"
# As much as a request may list, but for what leads to it.
FULL = 49_990


def _storm(port: int, frame: bytes, *, connections: int = 4, times: int = 2) -> None:
    """Send a request through several connections at once, and read what comes back, if it does."""

    def attack() -> None:
        client = BlockingClient(port)
        with contextlib.suppress(EOFError, ConnectionError):
            for _ in range(times):
                client.socket.sendall(frame)
                (size,) = struct.unpack(">i", _exactly(client, 4))
                _exactly(client, size)
        client.close()

    attackers = [Thread(target=attack) for _ in range(connections)]
    for attacker in attackers:
        attacker.start()
    for attacker in attackers:
        attacker.join()


def _exactly(client: BlockingClient, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        chunk = client.socket.recv(min(size - len(received), MIB))
        if not chunk:
            raise EOFError("the broker hung up")
        received += chunk
    return bytes(received)


def _topics(count: int) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=f"{n:x}") for n in range(count)])


def _keys(count: int) -> list[str]:
    return [f"{number:x}" for number in range(count)]


REQUESTS: dict[str, tuple[Callable[[], Struct], int]] = {
    "topics": (lambda: _topics(1_000_000), 9),
    "allowed topics": (lambda: _topics(FULL), 9),
    "keys": (lambda: FindCoordinatorRequest(coordinator_keys=[""] * 8_000_000), 4),
    "allowed keys": (lambda: FindCoordinatorRequest(coordinator_keys=_keys(FULL)), 4),
    "groups": (lambda: DescribeGroupsRequest(groups=[""] * 8_000_000), 5),
    "allowed groups": (lambda: DescribeGroupsRequest(groups=_keys(FULL)), 5),
}


@pytest.mark.parametrize("what", REQUESTS)
def test_request_that_names_very_many_things(what: str, tmp_path: Path) -> None:
    build, version = REQUESTS[what]
    frame = request_frame(build(), version, 1)
    with besieged_broker(tmp_path, NO_TOPICS) as siege:
        _storm(siege.port, frame)


def test_every_array_of_every_request_at_its_limit(tmp_path: Path) -> None:
    settings = f"{NO_TOPICS}[groups]\ngroup.initial.rebalance.delay.ms = 0\n"
    with besieged_broker(tmp_path, settings) as siege:
        for array in full_arrays():
            frame = request_frame(array.request(FULL), array.version, 1)
            _storm(siege.port, frame, connections=1, times=1)


def test_topics_that_are_created_because_somebody_names_them(tmp_path: Path) -> None:
    with besieged_broker(tmp_path) as siege:
        _storm(siege.port, request_frame(_topics(2000), 9, 1), connections=2, times=1)


def test_patterns_that_repeat_or_are_long(tmp_path: Path) -> None:
    with besieged_broker(tmp_path) as siege:
        client = BlockingClient(siege.port)
        names = [f"{number:0>240}" for number in range(300)]
        topics = [CreatableTopic(name=n, num_partitions=1, replication_factor=1) for n in names]
        client.ask(CreateTopicsRequest(topics=topics, timeout_ms=60_000), 4)
        patterns = ["(.?){999}", "((.?){30}){30}", "a|" * 2_000_000, "(a?b?c?.?){200}"]
        codes = [
            client.ask(
                ConsumerGroupHeartbeatRequest(
                    group_id=f"g{number}",
                    member_id="m",
                    rebalance_timeout_ms=1000,
                    subscribed_topic_regex=pattern,
                    topic_partitions=[],
                ),
                1,
            ).error_code
            for number, pattern in enumerate(patterns)
        ]
        assert codes == [0, 0, 128, 128]
        client.close()


def test_members_with_large_metadata(tmp_path: Path) -> None:
    def join(group: str, size: int) -> JoinGroupRequest:
        protocol = JoinGroupRequestProtocol(name="range", metadata=bytes(size))
        return JoinGroupRequest(
            group_id=group,
            session_timeout_ms=30_000,
            protocol_type="consumer",
            protocols=[protocol],
        )

    with besieged_broker(tmp_path) as siege, clients(siege.port, 150) as members:
        for number, member in enumerate(members):
            assert member.ask(join(f"large-{number}", 7 * MIB), 2).error_code == 42
        for number, member in enumerate(members):
            member.begin(join(f"allowed-{number}", MIB - 4096), 2)
        codes = [member.receive().error_code for member in members]
        assert set(codes) == {0, 81}
        assert codes.count(0) < 130


def test_producer_ids_without_end(tmp_path: Path) -> None:
    with besieged_broker(tmp_path, "[log]\nmillstream.producer.ids.max.count = 2000\n") as siege:
        client = BlockingClient(siege.port)
        for number in range(10_000):
            batch = bytes(idempotent_batch(0, producer=number))
            assert client.produce("honest", batch).error_code == 0
        client.close()


def test_transactional_ids_without_end(tmp_path: Path) -> None:
    with besieged_broker(
        tmp_path, "[transactions]\nmillstream.transactional.ids.max.count = 100\n"
    ) as siege:
        client = BlockingClient(siege.port)
        codes = [
            client.ask(
                InitProducerIdRequest(transactional_id=f"t{number}", transaction_timeout_ms=1000), 2
            ).error_code
            for number in range(120)
        ]
        client.close()
        assert codes == [0] * 100 + [44] * 20


def test_connections_that_say_nothing(tmp_path: Path) -> None:
    with many_files(), besieged_broker(tmp_path) as siege, clients(siege.port, 2000) as silent:
        assert len(silent) == 2000
