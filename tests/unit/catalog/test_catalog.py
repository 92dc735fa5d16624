"""The catalog as a value: what records add up to."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.catalog import Catalog, CatalogRecord, TopicEntry, apply, replay
from millstream.catalog.commands import (
    add_partitions,
    allocate_producer_ids,
    alter_settings,
    begin_delete,
    create_topic,
    end_delete,
    set_cluster_id,
)
from millstream.errors import CorruptData, MillstreamError, UnknownTopic

ID = bytes(range(16))


def test_empty_catalog_has_nothing() -> None:
    catalog = replay([])
    assert catalog == Catalog()
    with pytest.raises(UnknownTopic):
        catalog.topic("orders")


def test_topic_record_is_readable_json() -> None:
    outcome = create_topic(
        Catalog(), "orders", topic_id=ID, partitions=3, overrides={"retention.ms": "7"}
    )
    [record] = outcome.records
    assert record.key == b"topic/orders"
    assert record.value is not None
    assert json.loads(record.value) == {
        "id": ID.hex(),
        "partitions": 3,
        "settings": {"retention.ms": "7"},
    }


def test_topic_is_found_by_name() -> None:
    catalog = create_topic(Catalog(), "orders", topic_id=ID, partitions=3, overrides={}).catalog
    assert catalog.topic("orders") == TopicEntry("orders", ID, 3, {})


def test_record_of_a_later_version_changes_nothing() -> None:
    assert apply(Catalog(), b"acl/7", b'{"x": 1}') == Catalog()
    assert replay([(b"acl/7", b'{"x": 1}'), (b"\xff", b"{}")]) == Catalog()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"topic/orders", b"nonsense"),
        (b"topic/orders", b"[]"),
        (b"topic/orders", b"{}"),
        (b"topic/orders", b'{"id": "zz", "partitions": 1, "settings": {}}'),
        (b"topic/orders", b'{"id": "00", "partitions": true, "settings": {}}'),
        (b"topic/orders", b'{"id": "00", "partitions": 1, "settings": []}'),
        (b"cluster", b'{"id": 7}'),
        (b"producer-ids", b'{"next": "7"}'),
    ],
)
def test_record_that_makes_no_sense_is_corrupt_data(key: bytes, value: bytes) -> None:
    with pytest.raises(CorruptData):
        apply(Catalog(), key, value)
    with pytest.raises(CorruptData):
        replay([(key, value)])


NAMES = st.sampled_from(["a", "b", "c.d", "c_d", "__own"])
SETTINGS = st.dictionaries(
    st.sampled_from(["retention.ms", "cleanup.policy"]), st.sampled_from(["5", "compact", "x"])
)
COMMANDS = st.one_of(
    st.tuples(st.just("create"), NAMES, st.integers(-1, 3), SETTINGS),
    st.tuples(st.just("begin"), NAMES, st.just(0), SETTINGS),
    st.tuples(st.just("end"), NAMES, st.just(0), SETTINGS),
    st.tuples(st.just("add"), NAMES, st.integers(-1, 5), SETTINGS),
    st.tuples(st.just("alter"), NAMES, st.just(0), SETTINGS),
    st.tuples(st.just("ids"), NAMES, st.integers(0, 5), SETTINGS),
    st.tuples(st.just("cluster"), NAMES, st.just(0), SETTINGS),
)


def carry_out(
    catalog: Catalog, command: tuple[str, str, int, dict[str, str]], topic_id: bytes
) -> tuple[Catalog, tuple[CatalogRecord, ...]]:
    kind, name, number, overrides = command
    if kind == "create":
        created = create_topic(
            catalog, name, topic_id=topic_id, partitions=number, overrides=overrides
        )
        return created.catalog, created.records
    if kind == "begin":
        deleting = begin_delete(catalog, name)
        return deleting.catalog, deleting.records
    if kind == "end":
        ended = end_delete(catalog, name)
        return ended.catalog, ended.records
    if kind == "add":
        added = add_partitions(catalog, name, total=number)
        return added.catalog, added.records
    if kind == "alter":
        altered = alter_settings(catalog, name, overrides)
        return altered.catalog, altered.records
    if kind == "ids":
        allocated = allocate_producer_ids(catalog, number)
        return allocated.catalog, allocated.records
    chosen = set_cluster_id(catalog, name)
    return chosen.catalog, chosen.records


@given(st.lists(COMMANDS, max_size=30))
def test_replay_of_all_records_gives_the_catalog_that_made_them(
    commands: list[tuple[str, str, int, dict[str, str]]],
) -> None:
    catalog, stored = Catalog(), list[CatalogRecord]()
    for number, command in enumerate(commands):
        try:
            catalog, records = carry_out(catalog, command, number.to_bytes(16, "big"))
        except MillstreamError:
            continue
        stored += records
    assert replay(stored) == catalog
    one_by_one = Catalog()
    for record in stored:
        one_by_one = apply(one_by_one, *record)
    assert one_by_one == catalog
    # As compaction leaves them.
    assert replay(dict(stored).items()) == catalog
    assert set(catalog.folded_names.values()) == set(catalog.topics)
