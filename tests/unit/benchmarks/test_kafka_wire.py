"""The few messages that the drivers read and write, against an independent implementation."""

from __future__ import annotations

import io
import struct

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v4.request import MetadataRequest
from kio.schema.produce.v7.response import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from kio.schema.types import TopicName
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32, i64

from benchmarks.kafka_wire import (
    KafkaRefused,
    ProduceAnswers,
    check_produced,
    fetched,
    metadata_request,
    produce_answer_bytes,
)
from benchmarks.workload import batch_of

TOPIC = "bench"
HEADER_BYTES = 4 + 8 + 2 + len("bench")


def produce_answer(code: ErrorCode) -> bytes:
    partition = PartitionProduceResponse(index=i32(0), error_code=code, base_offset=i64(7))
    topic = TopicProduceResponse(name=TopicName(TOPIC), partition_responses=(partition,))
    buffer = io.BytesIO()
    entity_writer(ProduceResponse)(buffer, ProduceResponse(responses=(topic,)))
    content = bytes(4) + buffer.getvalue()
    return struct.pack(">i", len(content)) + content


def fetch_answer(records: bytes, *, code: int = 0) -> memoryview:
    partition = struct.pack(">ihqqii", 0, code, 9, 9, -1, len(records)) + records
    topic = struct.pack(">h", len(TOPIC)) + TOPIC.encode() + struct.pack(">i", 1) + partition
    return memoryview(struct.pack(">iii", 0, 0, 1) + topic)


def test_metadata_request_asks_for_the_topic_and_to_make_it() -> None:
    request, _ = entity_reader(MetadataRequest)(metadata_request(TOPIC), HEADER_BYTES)
    assert [topic.name for topic in request.topics or ()] == [TOPIC]
    assert request.allow_auto_topic_creation


def test_answers_without_an_error_are_counted_and_pass() -> None:
    received = produce_answer(ErrorCode.none) * 3
    assert len(received) == 3 * produce_answer_bytes(TOPIC)
    answers = ProduceAnswers(TOPIC, request_messages=10)
    assert [answers.count(received[:70]), answers.count(received[70:])] == [10, 20]
    answers.check()


def test_one_error_among_many_answers_is_found() -> None:
    good, bad = produce_answer(ErrorCode.none), produce_answer(ErrorCode.message_too_large)
    with pytest.raises(KafkaRefused, match="10"):
        check_produced(good + bad + good, TOPIC)


def test_fetched_records_are_counted_up_to_the_last_whole_batch() -> None:
    batches = batch_of(records=3) + batch_of(records=2)
    records, next_offset = fetched(fetch_answer(bytes(batches) + bytes(batches[:-1])), TOPIC)
    assert records == 3 + 2 + 3
    assert next_offset == 3


def test_fetch_error_is_raised() -> None:
    with pytest.raises(KafkaRefused, match="3"):
        fetched(fetch_answer(b"", code=3), TOPIC)
