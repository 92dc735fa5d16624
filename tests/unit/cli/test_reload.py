"""SIGHUP lets a running broker read its settings again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from millstream import app
from millstream.settings.domain import Flag, Fraction, OneOf, Whole
from millstream.settings.loader import Settings, load
from millstream.settings.reload import merged
from millstream.settings.sections import PLACES, SECTIONS, Place
from tests.clients.broker_process import BrokerProcess
from tests.fakes.patience import HANG_S, wait_until

OFF = ["kafka.listeners=off", "http.http.listener=off", "pylogstreams.pylogstreams.listener=off"]


def other_value(place: Place) -> object:
    """An allowed value that is not the default; None where there is none to be made up."""
    domain, default = place.setting.domain, place.setting.default
    if isinstance(domain, Whole):
        assert isinstance(default, int)
        if place.key == "kafka.queued.max.request.bytes":
            # Any number below the size of a request is refused.
            return domain.maximum
        return default - 1 if default > domain.minimum else default + 1
    if isinstance(domain, Fraction):
        return float(domain.minimum if default != domain.minimum else domain.maximum)
    if isinstance(domain, Flag):
        return not default
    if isinstance(domain, OneOf):
        return next(word for word in domain.words if word != default)
    return None


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.key)
def test_setting_changes_or_waits_for_a_restart(place: Place) -> None:
    value = other_value(place)
    if value is None:
        assert place.setting.needs_restart or place.section == "log"
        return
    current = Settings(origins={place.key: "before.toml:1"})
    component = replace(getattr(current, place.section), **{place.field_name: value})
    read = replace(current, **{place.section: component}, origins={place.key: "after.toml:1"})
    reload = merged(current, read)
    if place.setting.needs_restart:
        assert reload.settings == current
        assert reload.settings.origins == current.origins
        assert [change.place for change in reload.postponed] == [place]
        assert reload.changed == ()
    else:
        assert reload.settings == read
        assert reload.settings.origins == read.origins
        assert [change.place for change in reload.changed] == [place]
        assert reload.postponed == ()


def test_every_component_works_with_its_new_settings(tmp_path: Path) -> None:
    data = f"storage.data.dir={tmp_path}"
    started = load(assignments=[data, *OFF])
    changes = [
        f"{place.key}={other_value(place)}"
        for place in PLACES
        if isinstance(place.setting.domain, Whole) and not place.setting.needs_restart
    ]
    read = load(assignments=[data, *OFF, *changes])

    async def scenario() -> None:
        async with app.running(started, say=lambda _: None) as running:
            broker = running.broker
            await broker.topics.create("plain", partitions=1, overrides={})
            await broker.topics.create("own", partitions=1, overrides={"retention.ms": "7"})
            running.reconfigure(read)
            assert broker.settings == read
            assert broker.topics.settings is broker.settings.topics
            plain, own = broker.topics.get("plain"), broker.topics.get("own")
            assert plain.settings == plain.partitions[0].log.settings == read.log
            assert own.partitions[0].log.settings == replace(read.log, retention_ms=7)
            parts: dict[str, Any] = {
                "storage": running.housekeeping._storage,
                "log": broker.topics.defaults,
                "topics": broker.topics.settings,
                "groups": broker.groups.settings,
                "transactions": broker.transactions.settings,
                "subscriptions": broker.subscriptions._tools.limits,
                "kafka": running.kafka.settings,
                "http": running.http.settings,
                "pylogstreams": running.pylogstreams.settings,
                "telemetry": broker.settings.telemetry,
                # All of it waits for a restart.
                "memory": started.memory,
            }
            assert {name: parts[name] == getattr(read, name) for name in SECTIONS} == dict.fromkeys(
                SECTIONS, True
            )
            limit_ns = read.telemetry.slow_request_ms * 1_000_000
            assert broker.metrics.requests.slow_ns == limit_ns

    asyncio.run(scenario())


def test_running_broker_takes_over_what_has_changed(tmp_path: Path) -> None:
    config, errors = tmp_path / "broker.toml", tmp_path / "broker.err"

    def events() -> list[dict[str, Any]]:
        return [json.loads(line) for line in errors.read_text().splitlines()]

    def reload(text: str, told: str) -> list[dict[str, Any]]:
        before = len(events())
        config.write_text(text)
        os.kill(broker.pid, signal.SIGHUP)
        wait_until(lambda: any(each["event"].startswith(told) for each in events()[before:]), told)
        return events()[before:]

    def send(topic: str) -> None:
        url = f"{broker.url}/topics/{topic}/messages"
        httpx.post(url, json={"value": "x"}, timeout=HANG_S).raise_for_status()

    def partitions(topic: str) -> object:
        return httpx.get(f"{broker.url}/topics/{topic}", timeout=HANG_S).json()["partitions"]

    with BrokerProcess(tmp_path, http="127.0.0.1:0") as broker:
        send("old")
        told = reload(
            "[topics]\nnum.partitions = 3\n[storage]\nmillstream.flush.threads = 2\n",
            "settings reloaded",
        )
        changed = next(each for each in told if each.get("setting") == "topics.num.partitions")
        assert (changed["before"], changed["after"]) == ("1", "3")
        assert any(
            each["level"] == "warning"
            and each["event"].startswith("waits for a restart: storage.millstream.flush.threads")
            for each in told
        )
        send("new")
        assert partitions("new") == 3
        [refusal] = reload("[topics]\nnum.partitions = 0\n", "settings stay as they are")
        assert f"{config}:2: num.partitions = 0" in refusal["event"]
        send("more")
        assert partitions("more") == 3
        broker.stop()
