"""A workload through all doors whose every figure is known: each value that is told is compared.

What depends on time alone is only looked at for being possible. Nothing else may be told.
"""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from millstream import __version__
from millstream.broker.memory_budget import USES
from millstream.protocol.messages.init_producer_id import InitProducerIdRequest
from millstream.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.clients.broker_process import BrokerProcess
from tests.fakes.keyed_log import keyed_batch
from tests.fakes.patience import wait_until
from tests.fakes.sample_batches import batch_of
from tests.fakes.wire_client import (
    FETCH_VERSION,
    PRODUCE_VERSION,
    BlockingClient,
    fetch_request,
    fetched,
    produce_request,
)
from tests.metrics.scrapes import Sample, Web, histograms, sample
from tests.seeds.raw_pylogstreams import RawClient

pytestmark = pytest.mark.system

OWN_TOPICS = ("__consumer_offsets", "__transaction_state", "__subscriptions")
SETTINGS = """
[storage]
"log.retention.check.interval.ms" = 100
[log]
"retention.ms" = -1
"""
# What no workload decides.
VOLATILE = {
    "millstream_disk_free_bytes",
    "millstream_disk_total_bytes",
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "process_open_fds",
    "process_max_fds",
    "process_start_time_seconds",
}
BATCH = keyed_batch((b"k", bytes(500)))
BATCH_BYTES = len(BATCH)


class Workload:
    """Drives a broker through all its doors, and keeps account."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.web = Web(broker.url)
        self.kafka = BlockingClient(broker.port)
        self.stream = RawClient(broker.pylogstreams_port)
        self.requests: Counter[str] = Counter()
        self.messages_in: Counter[str] = Counter()
        self.messages_out: Counter[str] = Counter()
        self.bytes_out: Counter[str] = Counter()

    def close(self) -> None:
        self.web.close()
        self.kafka.close()
        self.stream.socket.close()

    # Kafka

    def create(self, topic: str, *, partitions: int = 1, **settings: str) -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        body = {"name": topic, "partitions": partitions, "settings": named}
        self.web.ask("POST", "/topics", "topics", 201, json=body)

    def produce(self, topic: str, batch: bytearray, count: int, *, acks: int, at: int = 0) -> None:
        assert self.kafka.produce(topic, batch, acks=acks, partition=at).error_code == 0
        self.requests["Produce"] += 1
        self.messages_in[topic] += count

    def fetch(self, topic: str, partition: int = 0, offset: int = 0) -> int:
        """Read a partition to its end; returns how many bytes that was."""
        size = 0
        while True:
            found = self.kafka.fetch(topic, offset, partitions=[partition])
            assert found.error_code == 0
            records = bytes(found.records or b"")
            offset = self._note_fetched(topic, records)
            size += len(records)
            if offset == found.high_watermark:
                return size

    def _note_fetched(self, topic: str, records: bytes) -> int:
        """Count an answer; returns the offset after it."""
        self.requests["Fetch"] += 1
        self.bytes_out[topic] += len(records)
        position = offset = 0
        while position < len(records):
            base, length = struct.unpack_from(">qi", records, position)
            (delta,) = struct.unpack_from(">i", records, position + 23)
            (count,) = struct.unpack_from(">i", records, position + 57)
            self.messages_out[topic] += count
            offset = base + delta + 1
            position += 12 + length
        return offset

    def produce_in_all_ways(self) -> None:
        kafka = self.kafka
        self.create("shop", partitions=2)
        self.produce("shop", batch_of(b"a", b"b", b"c"), 3, acks=1)
        self.produce("shop", batch_of(b"d", b"e"), 2, acks=-1, at=1)
        kafka.begin(
            produce_request("shop", batch_of(b"f"), acks=0), PRODUCE_VERSION, answered=False
        )
        self.requests["Produce"] += 1
        self.messages_in["shop"] += 1
        producer = kafka.ask(InitProducerIdRequest(transactional_id=None), 4)
        self.requests["InitProducerId"] += 1
        mine = batch_of(b"g", b"h", producer_id=producer.producer_id, epoch=0, sequence=0)
        self.produce("shop", mine, 2, acks=1)
        # What is repeated, and what is refused, is a request, and no message.
        self.produce("shop", mine, 0, acks=1)
        broken = batch_of(b"broken")
        broken[-1] ^= 1
        assert kafka.produce("shop", broken).error_code == 2
        self.requests["Produce"] += 1

    def wait_for_data(self) -> None:
        """A fetch at the end of a partition, which waits until there is something."""
        request = fetch_request("shop", 2, partitions=[1], max_wait_ms=60_000, min_bytes=1)
        other = BlockingClient(self.broker.port)
        try:
            other.begin(request, FETCH_VERSION)
            waiting = self.until(
                lambda found: found[sample("millstream_purgatory_size", operation="fetch")] == 1
            )
            assert waiting[sample("millstream_pending_requests", door="kafka")] == 1
            assert waiting[sample("millstream_held_bytes", door="kafka")] > 0
            assert waiting[sample("millstream_connections", door="kafka")] == 2
            self.produce("shop", batch_of(b"late"), 1, acks=1, at=1)
            self._note_fetched("shop", bytes(fetched(other.receive()).records or b""))
        finally:
            other.close()

    def commit(self, group: str, topic: str, *offsets: int) -> None:
        """By partition, how far a group has come."""
        partitions = [
            OffsetCommitRequestPartition(
                partition_index=number, committed_offset=offset, committed_metadata=None
            )
            for number, offset in enumerate(offsets)
        ]
        topics = [OffsetCommitRequestTopic(name=topic, partitions=partitions)]
        self.kafka.ask(OffsetCommitRequest(group_id=group, member_id="", topics=topics), 8)
        self.requests["OffsetCommit"] += 1

    def fill_segments(self) -> None:
        """Of each batch a segment: to be kept, to go, and to be compacted."""
        for topic, settings in {
            "rolled": {},
            "brief": {"retention_bytes": "1000"},
            "keyed": {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0"},
        }.items():
            self.create(topic, partitions=1, segment_bytes="700", **settings)
            if topic == "brief":
                self.commit("slow", topic, 0)
            for _ in range(4):
                self.produce(topic, BATCH[:], 1, acks=-1)

    # HTTP

    def use_http(self) -> None:
        ask = self.web.ask
        ask("POST", "/topics/mail/messages", "messages", json={"value": "hi", "key": "me"})
        ask("POST", "/topics/mail/messages", "messages", json=[{"value": "ho"}, {"value": "ha"}])
        self.messages_in["mail"] += 3
        read = ask("GET", "/topics/mail/messages?offset=1", "messages").json()
        assert [each["value"] for each in read["messages"]] == ["ho", "ha"]
        ask("GET", "/topics/mail/messages/0", "messages")
        self.messages_out["mail"] += 3
        self.bytes_out["mail"] += len("hohahime")
        ask("GET", "/topics/none/messages?offset=0", "messages", 404)
        ask("GET", "/nowhere", "other", 404)
        with self.web.client.stream("GET", "/topics/mail/stream?from=earliest") as answer:
            data = (line for line in answer.iter_lines() if line.startswith("data:"))
            assert [json.loads(next(data)[5:])["value"] for _ in range(3)] == ["hi", "ho", "ha"]
        self.web.asked["streams", 200] += 1
        self.messages_out["mail"] += 3
        self.bytes_out["mail"] += len("mehihoha")

    def use_a_queue(self) -> None:
        """Four messages: one acknowledged, one dead, one in flight, one untouched."""
        ask, path = self.web.ask, "/topics/jobs/subscriptions/workers"
        ask("PUT", path, "queues", json={"max_deliveries": 1})
        jobs = [{"value": f"job {number}"} for number in range(4)]
        ask("POST", "/topics/jobs/messages", "messages", json=jobs)
        self.messages_in["jobs"] += 4
        body = {"max_messages": 3, "wait_ms": 10_000, "visibility_timeout_ms": 600_000}
        got = ask("POST", f"{path}/receive", "queues", json=body).json()["messages"]
        first, second, _ = (each["message_id"] for each in got)
        self.messages_out["jobs"] += 3
        self.bytes_out["jobs"] += 3 * len("job 0")
        ask("POST", f"{path}/ack", "queues", json={"message_ids": [first]})
        ask("POST", f"{path}/nack", "queues", json={"message_ids": [second]})
        self.messages_in["jobs.dlq"] += 1
        labels = {"topic": "jobs", "subscription": "workers"}
        dead = sample("millstream_subscription_dead_letters_total", **labels)
        self.until(lambda found: found[dead] == 1)

    def run_a_pipeline(self) -> None:
        topic = "__millstream_pipelines"
        self.create(topic, cleanup_policy="compact")
        told = {"state": "running", "at": 10**15, "rows_in": 7, "rows_out": 5, "bad_rows": 2}
        for name, progress in {"etl": told | {"lag": 3}, "odd": {"rows_in": "many"}}.items():
            body = {"key": name, "value": json.dumps(progress)}
            self.web.ask("POST", f"/topics/{topic}/messages", "messages", json=body)
        self.messages_in[topic] += 2

    # PyLogStreams

    def use_pylogstreams(self) -> str:
        client_id = self.stream.register()
        self.stream.publish("chat", b"one", b"two", b"three")
        self.messages_in["chat"] += 3
        self.stream.subscribe("chat")
        assert self.stream.payloads("chat", 3) == [b"one", b"two", b"three"]
        self.stream.ping()
        self.messages_out["chat"] += 3
        self.bytes_out["chat"] += len("onetwothree")
        group = f"pylogstreams.{client_id}"
        labels = {"group": group, "topic": "chat", "partition": "0"}
        self.until(lambda found: found.get(sample("millstream_group_lag", **labels)) == 0)
        return group

    def until(self, holds: Callable[[dict[Sample, float]], bool]) -> dict[Sample, float]:
        found: dict[Sample, float] = {}

        def does_hold() -> bool:
            found.clear()
            found.update(self.web.scrape())
            return holds(found)

        wait_until(does_hold, "the values")
        return found


@pytest.fixture
def workload(tmp_path: Path) -> Iterator[Workload]:
    address = "127.0.0.1:0"
    with BrokerProcess(tmp_path, settings=SETTINGS, http=address, pylogstreams=address) as broker:
        workload = Workload(broker)
        yield workload
        workload.close()
        broker.stop()


def test_every_value_is_that_of_the_workload(workload: Workload) -> None:
    workload.produce_in_all_ways()
    workload.wait_for_data()
    workload.commit("billing", "shop", 4, 2)
    workload.fill_segments()
    workload.use_http()
    workload.use_a_queue()
    workload.run_a_pipeline()
    group = workload.use_pylogstreams()
    start = sample("millstream_log_start_offset", topic="brief", partition="0")
    saved = sample("millstream_cleaner_saved_bytes_total")
    ended = sample("millstream_http_requests_total", route="streams", code="200")
    workload.until(lambda found: found[start] == 2 and found[saved] == 2 * BATCH_BYTES)
    sizes = {
        (topic, 0): workload.fetch(topic) for topic in workload.messages_in if topic != "brief"
    }
    sizes["brief", 0] = workload.fetch("brief", offset=2)
    sizes["shop", 1] = workload.fetch("shop", 1)
    found = workload.until(
        lambda found: (
            found.get(ended) == 1
            and found[sample("millstream_connections", door="kafka")] == 1
            and found[sample("millstream_log_flush_queue")] == 0
        )
    )
    counts = histograms(found)
    parts = {f"{name}_{part}" for name, _ in counts for part in ("bucket", "sum", "count")}
    plain = {key: value for key, value in found.items() if key[0] not in VOLATILE | parts}
    assert plain == {
        **_whole(found),
        **_doors(workload, found),
        **_topics(workload, sizes),
        **_own_topics(workload.broker, found),
        **_groups(group),
        **_queues_and_pipelines(),
        **_upkeep(found),
    }
    _check_histograms(workload, counts)
    assert all(value > 0 for (name, _), value in found.items() if name in VOLATILE)


def _whole(found: dict[Sample, float]) -> dict[Sample, float]:
    [labels] = [dict(labels) for name, labels in found if name == "millstream_info"]
    assert labels["version"] == __version__
    names = ("offline_partitions", "refusing_partitions", "log_flush_failures_total")
    recovery = ("recovery_unclean_logs", "recovery_scanned_bytes", "recovery_torn_logs")
    damage = (
        "log_damaged_places",
        "log_repaired_places",
        "log_copies_behind",
        "log_rebuilt_indexes",
        "log_flush_queue",
        "unread_connections_dropped_total",
    )
    limit = sample("millstream_memory_limit_bytes")
    assert found[limit] >= 128 << 20
    held = {key: value for key, value in found.items() if key[0] == "millstream_memory_used_bytes"}
    assert len(held) == len(USES)
    # A request that came in pieces leaves its connection a buffer for a while.
    assert set(held.values()) <= {0, 64 << 10}
    return {
        sample("millstream_info", **labels): 1,
        sample("millstream_topics"): 9,
        sample("millstream_partitions"): 13,
        **{sample(f"millstream_{name}"): 0 for name in (*names, *recovery, *damage)},
        limit: found[limit],
        **held,
    }


def _doors(workload: Workload, found: dict[Sample, float]) -> dict[Sample, float]:
    opened = {"kafka": (1, 2), "http": (1, 2), "pylogstreams": (1, 1)}
    memory = {
        _of("request_memory_bytes", door=d): found[_of("request_memory_bytes", door=d)]
        for d in opened
    }
    # A request that came in pieces leaves its connection a buffer for a while.
    assert set(memory.values()) <= {0, 64 << 10}
    # The look itself is under way.
    pending = {"kafka": 0, "http": 1}
    asked = {(group, str(code)): count for (group, code), count in workload.web.seen.items()}
    return {
        **{_of("connections", door=d): now for d, (now, _) in opened.items()},
        **{_of("connections_accepted_total", door=d): ever for d, (_, ever) in opened.items()},
        **{_of("pending_requests", door=d): count for d, count in pending.items()},
        _of("held_bytes", door="kafka"): 0,
        **memory,
        **{_of("request_memory_waiting", door=d): 0 for d in opened},
        **{
            _of("purgatory_size", operation=each): 0
            for each in ("fetch", "produce", "read", "receive")
        },
        **{_of("pylogstreams_commands_total", command=c): 1 for c in ("REG", "SUB", "PNG")},
        **{
            _of("http_requests_total", route=group, code=code): count
            for (group, code), count in asked.items()
        },
    }


def _topics(workload: Workload, sizes: dict[tuple[str, int], int]) -> dict[Sample, float]:
    expected: dict[Sample, float] = {}
    gone_bytes = {"brief": 2 * BATCH_BYTES, "keyed": 2 * BATCH_BYTES}
    for topic, count in workload.messages_in.items():
        size = sum(size for (name, _), size in sizes.items() if name == topic)
        expected[_of("topic_messages_in_total", topic=topic)] = count
        expected[_of("topic_bytes_in_total", topic=topic)] = size + gone_bytes.get(topic, 0)
        expected[_of("topic_messages_out_total", topic=topic)] = workload.messages_out[topic]
        expected[_of("topic_bytes_out_total", topic=topic)] = workload.bytes_out[topic]
        partitions = [number for name, number in sizes if name == topic]
        files = sum(len(workload.broker.segments(topic, number)) for number in partitions)
        for state, those in {
            "active": len(partitions),
            "full": 0,
            "archived": files - len(partitions),
        }.items():
            expected[_of("log_segments", topic=topic, state=state)] = those
    ends = {("shop", 0): 6, ("shop", 1): 3}
    for (topic, number), size in sizes.items():
        labels = {"topic": topic, "partition": str(number)}
        expected[_of("log_start_offset", **labels)] = 2 if topic == "brief" else 0
        expected[_of("log_end_offset", **labels)] = ends.get(
            (topic, number), workload.messages_in[topic]
        )
        expected[_of("log_size_bytes", **labels)] = size
    return expected


def _own_topics(broker: BrokerProcess, found: dict[Sample, float]) -> dict[Sample, float]:
    """The broker's own topics: nobody sends to them or reads them, and how much they hold is its
    own business.
    """
    expected: dict[Sample, float] = {}
    for topic in OWN_TOPICS:
        for what in ("messages_in", "bytes_in", "messages_out", "bytes_out"):
            expected[_of(f"topic_{what}_total", topic=topic)] = 0
        for state, count in {"active": 1, "full": 0, "archived": 0}.items():
            expected[_of("log_segments", topic=topic, state=state)] = count
        labels = {"topic": topic, "partition": "0"}
        expected[_of("log_start_offset", **labels)] = 0
        for name in ("log_end_offset", "log_size_bytes"):
            expected[_of(name, **labels)] = found[_of(name, **labels)]
    return expected


def _groups(pylogstreams: str) -> dict[Sample, float]:
    expected: dict[Sample, float] = {_of("groups", state="Empty"): 3}
    for group, topic, number, offset, lag in (
        ("billing", "shop", "0", 4, 2),
        ("billing", "shop", "1", 2, 1),
        ("slow", "brief", "0", 0, 4),
        (pylogstreams, "chat", "0", 3, 0),
    ):
        labels = {"group": group, "topic": topic, "partition": number}
        expected[_of("group_committed_offset", **labels)] = offset
        expected[_of("group_lag", **labels)] = lag
    return expected


def _queues_and_pipelines() -> dict[Sample, float]:
    queue = {
        "consumers": 0,
        # One is in flight, and one was not received.
        "backlog": 2,
        "in_flight": 1,
        "delayed": 0,
        "waiting": 0,
        "redelivered_total": 0,
        "dead_letters_total": 1,
        "lost_total": 0,
    }
    labels = {"topic": "jobs", "subscription": "workers"}
    figures = {"up": 1, "rows_in_total": 7, "rows_out_total": 5, "bad_rows_total": 2, "lag": 3}
    return {
        **{_of(f"subscription_{name}", **labels): value for name, value in queue.items()},
        **{_of(f"pipeline_{name}", pipeline="etl"): value for name, value in figures.items()},
        _of("pipeline_up", pipeline="odd"): 0,
    }


def _upkeep(found: dict[Sample, float]) -> dict[Sample, float]:
    passes, read = _of("cleaner_passes_total"), _of("cleaner_read_bytes_total")
    # In how many passes depends on when the cleaner looks.
    assert 1 <= found[passes] <= 3
    assert 3 * BATCH_BYTES <= found[read] <= 6 * BATCH_BYTES
    return {
        _of("retention_deleted_segments_total"): 2,
        _of("retention_deleted_bytes_total"): 2 * BATCH_BYTES,
        _of("retention_lost_offsets_total", topic="brief", partition="0", group="slow"): 2,
        passes: found[passes],
        read: found[read],
        _of("cleaner_failures_total"): 0,
        _of("cleaner_saved_bytes_total"): 2 * BATCH_BYTES,
        _of("cleaner_running"): 0,
    }


def _check_histograms(workload: Workload, counts: dict[Sample, int]) -> None:
    by_name: dict[str, dict[str, int]] = {}
    for (name, labels), count in counts.items():
        by_name.setdefault(name, {})["".join(value for _, value in labels)] = count
    assert by_name.pop("millstream_kafka_request_seconds") == workload.requests
    routes: Counter[str] = Counter()
    for (group, _), count in workload.web.seen.items():
        routes[group] += count
    assert by_name.pop("millstream_http_request_seconds") == routes
    # Each acks=all, and each message by HTTP, was synced before it was answered.
    assert by_name.pop("millstream_log_flush_seconds")[""] > 13
    assert by_name.pop("millstream_event_loop_delay_seconds")[""] > 0
    assert 1 <= by_name.pop("millstream_cleaner_seconds")[""] <= 3
    assert by_name == {}


def _of(name: str, **labels: str) -> Sample:
    return sample(f"millstream_{name}", **labels)
