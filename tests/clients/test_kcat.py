"""kcat, with the older librdkafka that Debian has."""

from __future__ import annotations

import json
import subprocess

import pytest

from millstream.records import Codec
from tests.clients.broker_process import BrokerProcess
from tests.clients.client_shape import Message, produce, read_all
from tests.clients.confluent_client import Confluent
from tests.clients.stored_batches import batches_of
from tests.fakes.patience import HANG_S

TIME_MS = 1_700_000_000_000

pytestmark = [pytest.mark.system, pytest.mark.needs("kcat")]


def kcat(address: str, *arguments: str, stdin: str | None = None) -> str:
    done = subprocess.run(
        ["kcat", "-b", address, *arguments],
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_metadata_is_listed(broker: BrokerProcess, name: str) -> None:
    Confluent().admin(broker.address).create(name, partitions=3)
    listed = kcat(broker.address, "-L")
    assert f"broker 0 at {broker.address} (controller)" in listed
    assert f'topic "{name}" with 3 partitions:' in listed
    described = json.loads(kcat(broker.address, "-L", "-J", "-t", name))
    assert described["controllerid"] == 0
    (topic,) = described["topics"]
    assert [each["leader"] for each in topic["partitions"]] == [0, 0, 0]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_lines_are_produced_and_read_back_compressed(
    broker: BrokerProcess, codec: str, name: str
) -> None:
    lines = [f"key-{number}:value {number} {'x' * 100}" for number in range(500)]
    more = ["-H", "from=kcat", "-H", "empty="]
    kcat(broker.address, "-P", "-t", name, "-K:", "-z", codec, *more, stdin="\n".join(lines) + "\n")
    found = kcat(broker.address, "-C", "-t", name, "-e", "-q", "-f", "%k:%s\n")
    assert found.splitlines() == lines
    headers = kcat(broker.address, "-C", "-t", name, "-c", "1", "-q", "-f", "%h")
    assert headers == "from=kcat,empty="
    stored = [header for header, _ in batches_of(broker.segments(name)[0])]
    assert {header.codec for header in stored} == {Codec[codec.upper()]}
    size = sum(header.size_bytes for header in stored)
    assert codec == "none" or size < sum(map(len, lines))
    others = read_all(Confluent(), broker.address, {(name, 0): 0})
    assert [f"{(m.key or b'').decode()}:{(m.value or b'').decode()}" for m in others] == lines


def test_null_values_and_idempotence(broker: BrokerProcess, name: str) -> None:
    options = ["-X", "enable.idempotence=true", "-X", "acks=all"]
    kcat(broker.address, "-P", "-t", name, "-K:", "-Z", *options, stdin="gone:\nhere:1\n")
    found = read_all(Confluent(), broker.address, {(name, 0): 0})
    assert [(each.key, each.value) for each in found] == [(b"gone", None), (b"here", b"1")]
    (header, _), *_ = batches_of(broker.segments(name)[0])
    assert header.producer_id >= 0


def fill(broker: BrokerProcess, topic: str, count: int) -> None:
    messages = [
        Message(topic, b"%d" % number, timestamp_ms=TIME_MS + 10 * number)
        for number in range(count)
    ]
    produce(Confluent(), broker.address, messages)


def test_reading_starts_at_offsets_and_times(broker: BrokerProcess, name: str) -> None:
    fill(broker, name, 50)

    def read(*arguments: str) -> list[int]:
        found = kcat(broker.address, "-C", "-t", name, "-p", "0", "-e", "-q", *arguments)
        return list(map(int, found.split()))

    assert read("-o", "beginning") == list(range(50))
    assert read("-o", "45") == list(range(45, 50))
    assert read("-o", "-3") == [47, 48, 49]
    assert read("-o", f"s@{TIME_MS + 400}") == list(range(40, 50))
    assert read("-o", f"s@{TIME_MS + 95}", "-o", f"e@{TIME_MS + 200}") == list(range(10, 20))
    assert read("-o", "10", "-c", "2") == [10, 11]


def test_offsets_are_queried(broker: BrokerProcess, name: str) -> None:
    fill(broker, name, 50)

    def offset(time: int) -> str:
        return kcat(broker.address, "-Q", "-t", f"{name}:0:{time}").strip()

    assert offset(-2) == f"{name} [0] offset 0"
    assert offset(-1) == f"{name} [0] offset 50"
    assert offset(TIME_MS + 111) == f"{name} [0] offset 12"


def test_group_is_joined_and_resumed(broker: BrokerProcess, name: str) -> None:
    fill(broker, name, 20)
    group = ["-G", name, "-X", "auto.offset.reset=earliest", "-q"]
    first = kcat(broker.address, *group, "-c", "12", name)
    assert list(map(int, first.split())) == list(range(12))
    # What it took from the queue is stored, and committed as it leaves.
    rest = kcat(broker.address, *group, "-c", "8", name)
    assert list(map(int, rest.split())) == list(range(12, 20))
