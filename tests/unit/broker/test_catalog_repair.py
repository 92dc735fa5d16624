"""A catalog of which records are lost gives out no producer id twice."""

from __future__ import annotations

from millstream.broker.catalog_repair import closing_record
from millstream.catalog.catalog import TopicEntry, producer_ids_record, replay, topic_record
from millstream.records import Record, records_of


def next_id_after(*pairs: tuple[bytes, bytes | None], now_ms: int = 0) -> int:
    records = [Record(offset, 0, key, value) for offset, (key, value) in enumerate(pairs)]
    closing = records_of(closing_record(records, now_ms), limit_bytes=1000)
    stored = [(bytes(each.key or b""), bytes(each.value or b"")) for each in closing]
    return replay([*pairs, *stored]).next_producer_id


def test_producer_ids_continue_far_above_the_ones_that_are_known() -> None:
    topic = topic_record(TopicEntry("t", bytes(16), 1, {}))
    assert next_id_after(topic) == 1 << 40
    assert next_id_after(producer_ids_record(3000), topic, producer_ids_record(2000)) == 3000 + (
        1 << 40
    )


def test_second_repair_continues_above_the_first_although_nothing_is_left_of_it() -> None:
    first, second = (
        next_id_after(now_ms=now_ms) for now_ms in (1_800_000_000_000, 1_800_000_001_000)
    )
    assert first + (1 << 29) < second
