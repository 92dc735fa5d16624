"""What can be done to a catalog, and what cannot."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from millstream.catalog import Catalog
from millstream.catalog.commands import (
    add_partitions,
    adopt_topic,
    allocate_producer_ids,
    alter_settings,
    begin_delete,
    create_topic,
    end_delete,
)
from millstream.errors import (
    AlreadyExists,
    InvalidName,
    InvalidPartitions,
    InvalidSetting,
    UnknownTopic,
)
from millstream.settings.topics import MAX_PARTITIONS

ID = bytes(range(16))


def created(
    name: str = "orders",
    *,
    catalog: Catalog | None = None,
    partitions: int = 2,
    overrides: Mapping[str, str] | None = None,
    internal: bool = False,
) -> Catalog:
    return create_topic(
        catalog or Catalog(),
        name,
        topic_id=name.encode().ljust(16)[:16],
        partitions=partitions,
        overrides=overrides or {},
        internal=internal,
    ).catalog


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", "a b", "é", "a\n", "a" * 250])
def test_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(InvalidName):
        created(name)


@pytest.mark.parametrize("name", ["a" * 249, "A.b-c_9", "...", "-"])
def test_odd_name_is_taken(name: str) -> None:
    assert created(name).topic(name).name == name


def test_name_is_taken_once() -> None:
    with pytest.raises(AlreadyExists):
        created(catalog=created())


def test_names_that_differ_only_in_dot_and_underscore_clash() -> None:
    catalog = created("a.b_c")
    with pytest.raises(InvalidName, match=r"'a\.b_c'"):
        created("a_b.c", catalog=catalog)
    assert "a-b.c" in created("a-b.c", catalog=catalog).topics


def test_name_of_the_brokers_own_is_refused_to_clients() -> None:
    with pytest.raises(InvalidName, match="broker's own"):
        created("__catalog")
    assert "__mine" in created("__mine").topics
    catalog = created("__consumer_offsets", internal=True)
    with pytest.raises(InvalidName):
        begin_delete(catalog, "__consumer_offsets")
    with pytest.raises(InvalidName):
        add_partitions(catalog, "__consumer_offsets", total=9)
    with pytest.raises(InvalidName):
        alter_settings(catalog, "__consumer_offsets", {"cleanup.policy": "delete"})


@pytest.mark.parametrize("partitions", [0, -1, -5, MAX_PARTITIONS + 1])
def test_number_of_partitions_must_make_sense(partitions: int) -> None:
    with pytest.raises(InvalidPartitions):
        created(partitions=partitions)


@pytest.mark.parametrize(
    ("name", "value"),
    [("retention.ms", "soon"), ("retension.ms", "1"), ("min.insync.replicas", "2"), ("", "")],
)
def test_setting_that_makes_no_sense_is_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidSetting):
        created(overrides={name: value})
    with pytest.raises(InvalidSetting):
        alter_settings(created(), "orders", {name: value})


def test_misspelt_setting_is_answered_with_the_right_one() -> None:
    with pytest.raises(InvalidSetting, match=r"did you mean retention\.ms\?"):
        created(overrides={"retension.ms": "1"})


def test_partitions_only_grow() -> None:
    catalog = add_partitions(created(partitions=2), "orders", total=5).catalog
    assert catalog.topic("orders").partitions == 5
    for total in (5, 4, 0, -1, MAX_PARTITIONS + 1):
        with pytest.raises(InvalidPartitions):
            add_partitions(catalog, "orders", total=total)


def test_settings_are_set_and_given_back_one_by_one() -> None:
    catalog = created(overrides={"retention.ms": "1", "segment.bytes": "100"})
    changes = {"retention.ms": None, "flush.ms": "7", "segment.ms": None}
    changed = alter_settings(catalog, "orders", changes).catalog
    assert changed.topic("orders").overrides == {"segment.bytes": "100", "flush.ms": "7"}


def test_topic_that_is_being_deleted_is_gone_but_its_name_is_taken() -> None:
    catalog = begin_delete(created(), "orders").catalog
    with pytest.raises(UnknownTopic):
        catalog.topic("orders")
    with pytest.raises(UnknownTopic):
        begin_delete(catalog, "orders")
    with pytest.raises(AlreadyExists):
        created(catalog=catalog)
    assert not created(catalog=end_delete(catalog, "orders").catalog).topics["orders"].is_deleting


@pytest.mark.parametrize(
    "command",
    [
        lambda catalog: begin_delete(catalog, "nope"),
        lambda catalog: add_partitions(catalog, "nope", total=3),
        lambda catalog: alter_settings(catalog, "nope", {}),
    ],
)
def test_command_on_a_topic_that_is_not_there_is_refused(command: object) -> None:
    assert callable(command)
    with pytest.raises(UnknownTopic):
        command(created())


def test_adopted_topic_keeps_what_is_known_of_it() -> None:
    catalog = created(partitions=2, overrides={"retention.ms": "1"})
    before = catalog.topic("orders")
    grown = adopt_topic(catalog, "orders", topic_id=ID, partitions=4).catalog.topic("orders")
    assert (grown.topic_id, grown.overrides) == (before.topic_id, before.overrides)
    assert grown.partitions == 4
    found = adopt_topic(catalog, "payments", topic_id=ID, partitions=1).catalog
    assert found.topic("payments").topic_id == ID


def test_producer_ids_are_given_once() -> None:
    first = allocate_producer_ids(Catalog(), 1000)
    second = allocate_producer_ids(first.catalog, 1000)
    assert (first.reply, second.reply) == (range(1000), range(1000, 2000))
