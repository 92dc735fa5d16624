"""Handlers that show and change settings, delete records, measure logs and give producer ids."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from millstream.gateways.kafka.handlers import (
    alter_configs,
    delete_records,
    describe_configs,
    describe_log_dirs,
    incremental_alter_configs,
    init_producer_id,
    list_config_resources,
)
from millstream.protocol.messages import alter_configs as replacing
from millstream.protocol.messages import incremental_alter_configs as changing
from millstream.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from millstream.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from millstream.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from millstream.protocol.messages.init_producer_id import InitProducerIdRequest
from millstream.protocol.messages.list_config_resources import ListConfigResourcesRequest
from millstream.settings.log import LogSettings
from millstream.settings.overrides import TOPIC_SETTINGS
from tests.fakes.admin_desk import AdminDesk, versions_of
from tests.fakes.log_steps import append
from tests.fakes.sample_batches import batch_of

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


@pytest.fixture
def desk() -> AdminDesk:
    return desk_with_topic()


def desk_with_topic(**settings: Any) -> AdminDesk:
    desk = AdminDesk(**settings)

    async def create() -> None:
        await desk.started()
        await desk.topics.create("orders", partitions=2, overrides={"retention.ms": "5"})

    asyncio.run(create())
    return desk


def overrides(desk: AdminDesk) -> dict[str, str]:
    return dict(desk.topics.get("orders").overrides)


# --- DescribeConfigs


def describe(
    desk: AdminDesk,
    kind: int,
    name: str,
    *,
    keys: list[str] | None = None,
    version: int = 4,
    **options: Any,
) -> Any:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    request = DescribeConfigsRequest(resources=[resource], **options)
    [result] = desk.ask(describe_configs, request, version).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


@pytest.mark.parametrize("version", versions_of(describe_configs))
def test_all_settings_of_a_topic_are_shown_with_their_source(version: int) -> None:
    desk = desk_with_topic(log=LogSettings(flush_ms=7))
    result = describe(desk, TOPIC, "orders", version=version, include_synonyms=True)
    assert result.error_code == 0
    shown = {each.name: each for each in result.configs}
    assert set(shown) == set(TOPIC_SETTINGS)
    assert not any(each.read_only or each.is_sensitive for each in shown.values())

    def layers(name: str) -> list[tuple[str, int]]:
        assert (shown[name].value, shown[name].config_source) == (
            shown[name].synonyms[0].value,
            shown[name].synonyms[0].source,
        )
        return [(each.value, each.source) for each in shown[name].synonyms]

    assert layers("retention.ms") == [("5", 1), ("604800000", 5)]
    assert layers("flush.ms") == [("7", 4), ("1000", 5)]
    assert layers("cleanup.policy") == [("delete", 5)]
    assert layers("unclean.leader.election.enable") == [("false", 5)]


def test_settings_of_the_brokers_own_topic_are_those_that_hold() -> None:
    desk = desk_with_topic(log=LogSettings(flush_ms=7))
    result = describe(desk, TOPIC, "__consumer_offsets")
    shown = {each.name: each.value for each in result.configs}
    assert (shown["flush.ms"], shown["cleanup.policy"]) == ("1000", "compact")


def test_types_and_documentation_are_shown_when_asked(desk: AdminDesk) -> None:
    result = describe(desk, TOPIC, "orders", include_documentation=True)
    shown = {each.name: each for each in result.configs}
    assert all(each.documentation for each in shown.values())
    assert all(each.synonyms == [] for each in shown.values())
    for name, kind in (
        ("unclean.leader.election.enable", 1),
        ("message.timestamp.type", 2),
        ("compression.type", 2),
        ("segment.bytes", 3),
        ("min.insync.replicas", 3),
        ("retention.ms", 5),
        ("min.cleanable.dirty.ratio", 6),
        ("cleanup.policy", 7),
    ):
        assert shown[name].config_type == kind, name
    silent = describe(desk, TOPIC, "orders")
    assert all(each.documentation is None for each in silent.configs)


def test_only_the_settings_asked_for_are_shown(desk: AdminDesk) -> None:
    result = describe(desk, TOPIC, "orders", keys=["retention.ms", "unknown"])
    assert [each.name for each in result.configs] == ["retention.ms"]


def test_settings_of_the_broker_are_shown_with_whether_they_can_change(desk: AdminDesk) -> None:
    result = describe(desk, BROKER, "0")
    shown = {each.name: each for each in result.configs}
    assert shown["num.partitions"].value == "1"
    assert shown["auto.create.topics.enable"].value == "true"
    assert {"data.dir", "listeners", "segment.bytes", "group.max.size"} <= set(shown)
    for name, is_read_only in (("data.dir", True), ("listeners", True), ("retention.ms", False)):
        assert shown[name].read_only == is_read_only, name
    assert describe(desk, BROKER, "").configs == []
    assert describe(desk, LOGGER, "0").configs == []


@pytest.mark.parametrize(
    ("kind", "name", "code"), [(TOPIC, "nope", 3), (BROKER, "7", 42), (METRICS, "all", 42)]
)
def test_settings_of_what_is_not_there_are_refused(
    desk: AdminDesk, kind: int, name: str, code: int
) -> None:
    result = describe(desk, kind, name)
    assert (result.error_code, result.configs) == (code, [])
    assert result.error_message


# --- AlterConfigs


def replace(
    desk: AdminDesk, values: dict[str, str | None], *, name: str = "orders", **options: Any
) -> int:
    resource = replacing.AlterConfigsResource(
        resource_type=TOPIC,
        resource_name=name,
        configs=[replacing.AlterableConfig(name=n, value=v) for n, v in values.items()],
    )
    request = replacing.AlterConfigsRequest(resources=[resource], **options)
    [answer] = desk.ask(alter_configs, request).responses
    assert bool(answer.error_message) == bool(answer.error_code)
    return int(answer.error_code)


@pytest.mark.parametrize("version", versions_of(alter_configs))
def test_all_settings_are_replaced(desk: AdminDesk, version: int) -> None:
    resource = replacing.AlterConfigsResource(
        resource_type=TOPIC,
        resource_name="orders",
        configs=[replacing.AlterableConfig(name="flush.ms", value="9")],
    )
    request = replacing.AlterConfigsRequest(resources=[resource])
    [answer] = desk.ask(alter_configs, request, version).responses
    assert (answer.resource_type, answer.resource_name) == (TOPIC, "orders")
    assert (answer.error_code, answer.error_message) == (0, None)
    assert overrides(desk) == {"flush.ms": "9"}


def test_replacement_that_cannot_be_changes_nothing(desk: AdminDesk) -> None:
    assert replace(desk, {"flush.ms": "9", "x": "y"}) == 40
    assert replace(desk, {"flush.ms": "soon"}) == 40
    assert replace(desk, {"flush.ms": None}) == 42
    assert replace(desk, {"flush.ms": "9"}, name="nope") == 3
    assert replace(desk, {"flush.ms": "9"}, name="__consumer_offsets") == 17
    assert replace(desk, {"flush.ms": "9"}, validate_only=True) == 0
    assert overrides(desk) == {"retention.ms": "5"}


# --- IncrementalAlterConfigs


def change(
    desk: AdminDesk,
    *changes: tuple[str, int, str | None],
    kind: int = TOPIC,
    name: str = "orders",
    repeated: int = 1,
    version: int = 1,
    **options: Any,
) -> list[int]:
    resource = changing.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            changing.AlterableConfig(name=n, config_operation=operation, value=value)
            for n, operation, value in changes
        ],
    )
    request = changing.IncrementalAlterConfigsRequest(resources=[resource] * repeated, **options)
    answers = desk.ask(incremental_alter_configs, request, version).responses
    return [each.error_code for each in answers]


@pytest.mark.parametrize("version", versions_of(incremental_alter_configs))
def test_settings_are_changed_one_by_one(desk: AdminDesk, version: int) -> None:
    assert change(desk, ("flush.ms", SET, "9"), version=version) == [0]
    assert overrides(desk) == {"retention.ms": "5", "flush.ms": "9"}
    assert change(desk, ("retention.ms", DELETE, None), ("segment.ms", DELETE, None)) == [0]
    assert overrides(desk) == {"flush.ms": "9"}


def test_deleting_a_setting_that_does_not_exist_succeeds(desk: AdminDesk) -> None:
    changes = [
        ("flush.ms", SET, "9"),
        ("follower.replication.throttled.replicas", DELETE, None),
        ("remote.storage.enable", DELETE, ""),
    ]
    assert change(desk, *changes) == [0]
    assert overrides(desk) == {"retention.ms": "5", "flush.ms": "9"}


def test_words_are_added_to_and_taken_from_a_list(desk: AdminDesk) -> None:
    policy = "cleanup.policy"
    assert change(desk, (policy, APPEND, "compact")) == [0]
    assert desk.topics.get("orders").settings.cleanup_policy == {"compact", "delete"}
    assert change(desk, (policy, APPEND, "compact")) == [0]
    assert change(desk, (policy, SUBTRACT, "delete")) == [0]
    assert overrides(desk)[policy] == "compact"
    # Something must be left of it.
    assert change(desk, (policy, SUBTRACT, "compact")) == [40]
    assert change(desk, (policy, APPEND, "shred")) == [40]
    assert overrides(desk)[policy] == "compact"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([("flush.ms", SET, "soon")], 40),
        ([("x", SET, "1")], 40),
        ([("x", APPEND, "1")], 40),
        ([("flush.ms", APPEND, "1")], 40),
        ([("flush.ms", SUBTRACT, "1")], 40),
        ([("flush.ms", SET, None)], 42),
        ([("flush.ms", 9, "1")], 42),
        ([("flush.ms", SET, "1"), ("flush.ms", DELETE, None)], 42),
    ],
)
def test_change_that_cannot_be_changes_nothing(
    desk: AdminDesk, changes: list[tuple[str, int, str | None]], code: int
) -> None:
    assert change(desk, ("segment.ms", SET, "9"), *changes) == [code]
    assert overrides(desk) == {"retention.ms": "5"}


def test_change_of_what_has_no_settings_to_change_is_refused(desk: AdminDesk) -> None:
    changes = ("flush.ms", SET, "9")
    assert change(desk, changes, kind=BROKER, name="0") == [42]
    assert change(desk, changes, name="nope") == [3]
    assert change(desk, changes, repeated=2) == [42]
    assert change(desk, changes, validate_only=True) == [0]
    assert overrides(desk) == {"retention.ms": "5"}


def test_settings_of_a_group_are_changed_and_shown(desk: AdminDesk) -> None:
    session, interval = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
    assert change(desk, (session, SET, "50000"), kind=GROUP, name="g") == [0]
    result = describe(desk, GROUP, "g", include_synonyms=True)
    shown = {each.name: (each.value, each.config_source, each.read_only) for each in result.configs}
    assert shown == {session: ("50000", 8, False), interval: ("5000", 5, False)}
    assert desk.broker.groups.settings_of("g").consumer_session_timeout_ms == 50_000
    assert desk.broker.groups.settings_of("h").consumer_session_timeout_ms == 45_000
    for name, value in ((session, "soon"), (session, "0"), ("retention.ms", "5")):
        assert change(desk, (name, SET, value), kind=GROUP, name="g") == [40]
    assert change(desk, (session, APPEND, "1"), kind=GROUP, name="g") == [40]
    assert change(desk, (session, SET, "1"), kind=GROUP, name="") == [42]
    assert list_resources(desk, GROUP) == [(GROUP, "g")]
    assert change(desk, (session, DELETE, None), kind=GROUP, name="g") == [0]
    assert list_resources(desk, GROUP) == []
    assert desk.broker.groups.settings_of("g").consumer_session_timeout_ms == 45_000


def test_settings_of_a_group_survive_a_restart(desk: AdminDesk) -> None:
    assert change(desk, ("consumer.session.timeout.ms", SET, "50000"), kind=GROUP, name="g") == [0]
    asyncio.run(desk.restart())
    assert desk.broker.groups.settings_of("g").consumer_session_timeout_ms == 50_000


# --- ListConfigResources


def list_resources(desk: AdminDesk, *kinds: int, version: int = 1) -> list[tuple[int, str]]:
    request = ListConfigResourcesRequest(resource_types=kinds)
    answer = desk.ask(list_config_resources, request, version)
    assert answer.error_code == 0
    return [(each.resource_type, each.resource_name) for each in answer.config_resources]


def test_everything_that_has_settings_is_listed(desk: AdminDesk) -> None:
    assert (TOPIC, "orders") in list_resources(desk)
    assert {(BROKER, "0"), (LOGGER, "0")} <= set(list_resources(desk))
    assert list_resources(desk, BROKER) == [(BROKER, "0")]
    assert list_resources(desk, version=0) == []
    request = ListConfigResourcesRequest(resource_types=[3])
    assert desk.ask(list_config_resources, request).error_code == 35


# --- DeleteRecords


def delete(desk: AdminDesk, topic: str, number: int, offset: int, version: int = 2) -> Any:
    partition = DeleteRecordsPartition(partition_index=number, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[partition])])
    [result] = desk.ask(delete_records, request, version).topics
    [answer] = result.partitions
    assert (result.name, answer.partition_index) == (topic, number)
    return answer.error_code, answer.low_watermark


@pytest.mark.parametrize("version", versions_of(delete_records))
def test_records_before_an_offset_are_deleted(desk: AdminDesk, version: int) -> None:
    append(desk.topics.partition("orders", 1).log, batch_of(*[b"."] * 10))
    assert delete(desk, "orders", 1, 4, version) == (0, 4)
    assert delete(desk, "orders", 1, 2, version) == (0, 4)
    assert delete(desk, "orders", 1, 11, version) == (1, -1)
    assert delete(desk, "orders", 1, -2, version) == (1, -1)
    # All of them.
    assert delete(desk, "orders", 1, -1, version) == (0, 10)


def test_records_that_are_not_to_be_deleted_are_refused(desk: AdminDesk) -> None:
    assert delete(desk, "orders", 2, 0) == (3, -1)
    assert delete(desk, "nope", 0, 0) == (3, -1)
    assert delete(desk, "__consumer_offsets", 0, -1) == (44, -1)


# --- DescribeLogDirs


@pytest.mark.parametrize("version", versions_of(describe_log_dirs))
def test_size_of_each_log_is_told(desk: AdminDesk, version: int) -> None:
    batch = batch_of(b"." * 1000)
    append(desk.topics.partition("orders", 1).log, batch)
    answer = desk.ask(describe_log_dirs, DescribeLogDirsRequest(topics=None), version)
    [directory] = answer.results
    assert (directory.error_code, directory.log_dir) == (0, "/data")
    sizes = {
        topic.name: {p.partition_index: p.partition_size for p in topic.partitions}
        for topic in directory.topics
    }
    assert sizes == {
        "orders": {0: 0, 1: len(batch)},
        "__consumer_offsets": {0: 0},
        "__transaction_state": {0: 0},
        "__subscriptions": {0: 0},
    }
    asked = [
        DescribableLogDirTopic(topic="orders", partitions=[1, 7]),
        DescribableLogDirTopic(topic="nope", partitions=[0]),
    ]
    [directory] = desk.ask(describe_log_dirs, DescribeLogDirsRequest(topics=asked)).results
    assert [
        (topic.name, [p.partition_index for p in topic.partitions]) for topic in directory.topics
    ] == [("orders", [1])]


# --- InitProducerId


def init(desk: AdminDesk, version: int = 5, **fields: Any) -> tuple[int, int, int]:
    answer = desk.ask(init_producer_id, InitProducerIdRequest(**fields), version)
    return answer.error_code, answer.producer_id, answer.producer_epoch


@pytest.mark.parametrize("version", versions_of(init_producer_id))
def test_each_producer_gets_an_id_of_its_own(desk: AdminDesk, version: int) -> None:
    assert init(desk, version) == (0, 0, 0)
    assert init(desk, version) == (0, 1, 0)


def test_id_that_a_producer_brings_is_not_given_to_it(desk: AdminDesk) -> None:
    assert init(desk) == (0, 0, 0)
    assert init(desk, producer_id=0, producer_epoch=0) == (0, 1, 0)


def test_producer_that_makes_no_sense_is_refused(desk: AdminDesk) -> None:
    assert init(desk, producer_id=5, producer_epoch=-1) == (42, -1, -1)
    assert init(desk, producer_id=-1, producer_epoch=3) == (42, -1, -1)
    assert init(desk, producer_id=-5, producer_epoch=-5) == (42, -1, -1)
