"""Produce and Fetch are written by hand: the same bytes as kio's, in both directions."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millstream.errors import MalformedMessage
from millstream.protocol.headers import response_header
from millstream.protocol.messages import fetch, produce
from tests.fakes.examples import examples
from tests.unit.protocol.kio_values import (
    Plain,
    as_entity,
    entity_bytes,
    entity_class,
    plain_messages,
)

PRODUCE_VERSIONS = range(3, produce.VERSIONS[1] + 1)
FETCH_VERSIONS = range(fetch.VERSIONS[0], fetch.VERSIONS[1] + 1)

NOT_SENT: Plain = {
    "current_leader": {"leader_id": -1, "leader_epoch": -1},
    "diverging_epoch": {"epoch": -1, "end_offset": -1},
    "snapshot_id": {"end_offset": -1, "epoch": -1},
}
"""Tagged fields as they are when nobody sends them."""

quickly = settings(max_examples=examples(5), suppress_health_check=[HealthCheck.too_slow])


def topic_of(plain: Plain) -> str | bytes:
    """A topic's name or id; requests say `topic` or `name`, as their schema has it."""
    found = plain.get("topic_id") or plain.get("name", plain.get("topic"))
    assert isinstance(found, str | bytes)
    return found


def draw(data: st.DataObject, api_key: int, version: int, kind: str) -> tuple[Plain, bytes]:
    entity = entity_class(api_key, version, kind)
    plain = data.draw(plain_messages(entity))
    return plain, entity_bytes(as_entity(entity, plain))


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@quickly
@given(data=st.data())
def test_produce_request_is_read(version: int, data: st.DataObject) -> None:
    plain, raw = draw(data, produce.API_KEY, version, "Request")
    request = produce.parse_request(memoryview(raw), 0, version)
    assert request.transactional_id == plain["transactional_id"]
    assert (request.acks, request.timeout_ms) == (plain["acks"], plain["timeout_ms"])
    assert [
        (topic.topic, [(n, raw[start:end]) for n, start, end in topic.partitions])
        for topic in request.topics
    ] == [
        (topic_of(t), [(p["index"], p["records"] or b"") for p in t["partition_data"]])
        for t in plain["topic_data"]
    ]


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@quickly
@given(data=st.data())
def test_produce_answer_is_written(version: int, data: st.DataObject) -> None:
    entity = entity_class(produce.API_KEY, version, "Response")
    plain = data.draw(plain_messages(entity))
    plain["throttle_time_ms"] = 0
    plain["node_endpoints"] = []
    topics = []
    for topic in plain["responses"]:
        for part in topic["partition_responses"]:
            part["record_errors"] = []
            part.update(NOT_SENT)
        results = [
            produce.PartitionResult(
                part["index"],
                part["error_code"],
                part["base_offset"],
                -1 if part["log_append_time_ms"] is None else part["log_append_time_ms"],
                part.get("log_start_offset", -1),
                part.get("error_message"),
            )
            for part in topic["partition_responses"]
        ]
        topics.append((topic_of(topic), results))
    assert produce.encode_response(version, topics) == entity_bytes(as_entity(entity, plain))


@pytest.mark.parametrize("version", range(5, produce.VERSIONS[1] + 1))
@pytest.mark.parametrize("code", [0, 87])
def test_packed_produce_answer_is_the_general_one(version: int, code: int) -> None:
    topic = b"0123456789abcdef" if version >= produce.TOPIC_IDS else "orders"
    layout, before, after = produce.answer_struct(version, topic)
    packed = layout.pack(layout.size - 4, 7, before, 3, code, 40, -1, 2, after)
    body = produce.encode_response(
        version, [(topic, [produce.PartitionResult(3, code, 40, -1, 2)])]
    )
    head = response_header(7, flexible=version >= produce.FLEXIBLE)
    assert packed == struct.pack(">i", len(head) + len(body)) + head + body


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@quickly
@given(data=st.data())
def test_fetch_request_is_read(version: int, data: st.DataObject) -> None:
    plain, raw = draw(data, fetch.API_KEY, version, "Request")
    request = fetch.parse_request(memoryview(raw), 0, version)
    assert request[:3] == (plain["max_wait_ms"], plain["min_bytes"], plain["max_bytes"])
    assert request.read_committed == (plain["isolation_level"] == 1)
    assert request.session_id == plain.get("session_id", fetch.NO_SESSION)
    assert request.topics == [
        (
            topic_of(topic),
            [
                (
                    part["partition"],
                    part.get("current_leader_epoch", -1),
                    part["fetch_offset"],
                    part["partition_max_bytes"],
                )
                for part in topic["partitions"]
            ],
        )
        for topic in plain["topics"]
    ]


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@quickly
@given(data=st.data())
def test_fetch_answer_is_written(version: int, data: st.DataObject) -> None:
    entity = entity_class(fetch.API_KEY, version, "Response")
    plain = data.draw(plain_messages(entity))
    plain |= {"throttle_time_ms": 0, "session_id": 0, "node_endpoints": []}
    if version < 7:
        plain["error_code"] = 0
    topics = []
    for topic in plain["responses"]:
        found = []
        for part in topic["partitions"]:
            part.update(aborted_transactions=None, preferred_read_replica=-1)
            part["records"] = part["records"] or b""
            part.update(NOT_SENT)
            found.append(
                fetch.FetchedPartition(
                    part["partition_index"],
                    part["error_code"],
                    part["high_watermark"],
                    part["last_stable_offset"],
                    part.get("log_start_offset", -1),
                    part["records"],
                )
            )
        topics.append((topic_of(topic), found))
    parts = fetch.encode_response(version, 7, topics, error_code=plain["error_code"])
    head = response_header(7, flexible=version >= fetch.FLEXIBLE)
    body = entity_bytes(as_entity(entity, plain))
    assert b"".join(parts) == struct.pack(">i", len(head) + len(body)) + head + body


@pytest.mark.parametrize("module", [produce, fetch])
@settings(max_examples=examples(50))
@given(data=st.data())
def test_mangled_request_is_refused_or_read(module: Any, data: st.DataObject) -> None:
    version = data.draw(st.integers(max(3, module.VERSIONS[0]), module.VERSIONS[1]))
    _, raw = draw(data, module.API_KEY, version, "Request")
    mangled = bytearray(raw)
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(mangled) - 1))
        mangled[at] = data.draw(st.integers(0, 255))
    mangled = mangled[: data.draw(st.integers(0, len(mangled)))]
    try:
        module.parse_request(memoryview(mangled), 0, version)
    except MalformedMessage:
        return
