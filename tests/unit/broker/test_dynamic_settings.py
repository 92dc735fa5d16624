"""Settings of the broker that clients change while it runs."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from millstream.app import Running, running
from millstream.errors import InvalidRequest, InvalidSetting
from millstream.settings.groups import GroupSettings
from millstream.settings.http import HttpSettings
from millstream.settings.kafka import KafkaSettings
from millstream.settings.loader import Settings
from millstream.settings.log import LogSettings
from millstream.settings.pylogstreams import PyLogStreamsSettings
from millstream.settings.storage import StorageSettings


def settings_in(path: Path, **sections: object) -> Settings:
    quiet = Settings(
        storage=StorageSettings(data_dir=os.fspath(path)),
        kafka=KafkaSettings(listener="127.0.0.1:0"),
        http=HttpSettings(listener="off"),
        pylogstreams=PyLogStreamsSettings(listener="off"),
    )
    return replace(quiet, **sections)  # type: ignore[arg-type]  # by section


async def alter(served: Running, **changes: str | None) -> None:
    """Settings with underscores for dots."""
    named = {name.replace("_", "."): value for name, value in changes.items()}
    await served.broker.dynamic.alter_broker(named)


def test_change_takes_effect_and_is_taken_back(tmp_path: Path) -> None:
    async def main() -> None:
        read = settings_in(tmp_path, log=LogSettings(retention_ms=7))
        async with running(read, say=lambda _: None) as served:
            broker = served.broker
            await broker.topics.create("t", partitions=1, overrides={})
            await alter(served, retention_ms="9", num_partitions="3", max_connections="5")
            assert broker.topics.get("t").settings.retention_ms == 9
            assert broker.settings.topics.num_partitions == 3
            assert served.kafka.settings.max_connections == 5
            await alter(served, retention_ms=None)
            assert broker.topics.get("t").settings.retention_ms == 7
            assert dict(broker.dynamic.of_broker) == {
                "num.partitions": "3",
                "max.connections": "5",
            }

    asyncio.run(main())


def test_change_holds_after_a_restart_and_over_what_is_read_again(tmp_path: Path) -> None:
    async def main() -> None:
        read = settings_in(tmp_path)
        async with running(read, say=lambda _: None) as served:
            await alter(served, num_partitions="3")
        async with running(read, say=lambda _: None) as served:
            assert served.broker.settings.topics.num_partitions == 3
            served.reconfigure(replace(read, log=LogSettings(retention_ms=8)))
            assert served.broker.settings.topics.num_partitions == 3
            assert served.broker.settings.log.retention_ms == 8
            await alter(served, num_partitions=None)
            assert served.broker.settings.topics.num_partitions == 1
            assert served.broker.settings.log.retention_ms == 8

    asyncio.run(main())


def test_change_that_cannot_be_changes_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(settings_in(tmp_path), say=lambda _: None) as served:
            for changes, kind in (
                ({"data_dir": "/elsewhere"}, InvalidRequest),
                ({"num_partitions": "many"}, InvalidSetting),
                ({"no_such_setting": "1"}, InvalidSetting),
                # Each can be, and both together cannot.
                (
                    {
                        "group_min_session_timeout_ms": str(
                            GroupSettings().max_session_timeout_ms + 1
                        )
                    },
                    InvalidSetting,
                ),
            ):
                with pytest.raises(kind):
                    await alter(served, flush_ms="5", **changes)
            assert served.broker.settings.topics.num_partitions == 1
            assert not served.broker.dynamic.of_broker

    asyncio.run(main())


def test_groups_with_settings_of_their_own_are_limited_in_number(tmp_path: Path) -> None:
    async def main() -> None:
        read = settings_in(tmp_path, groups=GroupSettings(configured_max_count=2))
        change = {"consumer.session.timeout.ms": "50000"}
        async with running(read, say=lambda _: None) as served:
            dynamic = served.broker.dynamic
            await dynamic.alter_group("a", change)
            await dynamic.alter_group("b", change)
            with pytest.raises(InvalidRequest, match=r"groups\.configured\.max\.count"):
                await dynamic.alter_group("c", change)
            await dynamic.alter_group("b", change)
            await dynamic.alter_group("a", dict.fromkeys(change))
            await dynamic.alter_group("c", change)
            assert sorted(dynamic.groups) == ["b", "c"]

    asyncio.run(main())
