"""Pipelines by HTTP: what they told last, and nothing that they did not tell well."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.clients.broker_process import BrokerProcess
from tests.fakes.patience import HANG_S
from tests.http.conftest import ANY_PORT

TOPIC = "__millstream_pipelines"
LONG_AGO_MS = 1_700_000_000_000
FAR_AHEAD_MS = 10**15


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[httpx.Client]:
    """A client of a broker that no other test uses: there is one topic for all pipelines."""
    with (
        BrokerProcess(tmp_path, http=ANY_PORT) as broker,
        httpx.Client(base_url=broker.url, timeout=HANG_S) as web,
    ):
        yield web
        broker.stop()
        assert broker.complaints() == []


def tell(web: httpx.Client, name: str, progress: Any) -> None:
    value = progress if isinstance(progress, str | None) else json.dumps(progress)
    answer = web.post(f"/topics/{TOPIC}/messages", json={"key": name, "value": value})
    answer.raise_for_status()


def shown(web: httpx.Client) -> list[dict[str, Any]]:
    answer = web.get("/pipelines")
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["pipelines"]
    return found


def test_newest_progress_of_each_pipeline_is_shown(alone: httpx.Client) -> None:
    assert shown(alone) == []
    assert alone.get("/pipelines/orders").status_code == 404
    settings = {"cleanup.policy": "compact"}
    made = alone.post("/topics", json={"name": TOPIC, "partitions": 1, "settings": settings})
    assert made.status_code == 201
    assert shown(alone) == []
    queries = [{"sink": "table", "lag": {"shop": 3}}]
    for rows in range(3):
        running = {"state": "running", "at": FAR_AHEAD_MS, "rows_in": rows, "queries": queries}
        tell(alone, "orders", running)
        tell(alone, "clicks", {"state": "running", "at": LONG_AGO_MS, "rows_in": rows})
        clicks, orders = shown(alone)
        assert orders == {"pipeline": "orders", "is_stale": False, **running}
        assert clicks["rows_in"] == rows
        assert clicks["is_stale"] is True
        assert alone.get("/pipelines/orders").json() == orders
    tell(alone, "clicks", {"state": "stopped", "at": LONG_AGO_MS})
    assert alone.get("/pipelines/clicks").json()["is_stale"] is False
    tell(alone, "clicks", None)
    assert [each["pipeline"] for each in shown(alone)] == ["orders"]


def test_progress_that_is_no_object_is_left_out(alone: httpx.Client) -> None:
    tell(alone, "good", {"state": "running"})
    for number, bad in enumerate(
        [
            *[
                "{",
                "[1]",
                '"text"',
                '{"a": NaN}',
                "[" * 30_000,
                '{"a": "\\ud800"}',
                "1" * 70_000,
                "",
            ],
            '{"a": ' + "[" * 600 + "]" * 600 + "}",
        ]
    ):
        tell(alone, f"bad-{number}", bad)
    assert [each["pipeline"] for each in shown(alone)] == ["good"]
    assert alone.get("/pipelines/bad-0").status_code == 404


def test_topic_that_was_made_again_is_read_from_its_start(alone: httpx.Client) -> None:
    for number in range(5):
        tell(alone, f"old-{number}", {"state": "stopped"})
    assert len(shown(alone)) == 5
    assert alone.delete(f"/topics/{TOPIC}").status_code == 200
    assert shown(alone) == []
    tell(alone, "new", {"state": "stopped", "at": 1})
    assert shown(alone) == [{"pipeline": "new", "is_stale": False, "state": "stopped", "at": 1}]


def test_state_that_is_no_text_is_told_as_it_is(alone: httpx.Client) -> None:
    tell(alone, "odd", {"state": ["running"], "at": {}, "rows_in": "many", "queries": "none"})
    tell(alone, "even", {"state": "stopped"})
    even, odd = shown(alone)
    assert (odd["state"], odd["is_stale"]) == (["running"], False)
    assert even["state"] == "stopped"
    assert alone.get("/metrics").status_code == 200
