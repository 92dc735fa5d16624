"""What becomes of a run when its queries end, without Spark."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from millstream.clock import SystemClock
from millstream.errors import PipelineFailed, SparkLost
from millstream.spark.pipeline import queries
from millstream.spark.pipeline.declaration import parse
from millstream.spark.pipeline.runner import Runner, Tell, reason_of

FILE = """\
name: shop
sources: [{name: orders, topic: orders}]
sinks: [{from: orders, topic: copy}]
"""
SLOW = "terminated with exception: Python worker failed to connect back. SQLSTATE: XXKST"


class Query:
    """One that has ended, well or with an error."""

    isActive = False  # noqa: N815 (Spark's name)
    lastProgress = None  # noqa: N815
    recentProgress = ()  # noqa: N815

    def __init__(self, error: str | None) -> None:
        self._error = error

    def exception(self) -> str | None:
        return self._error


class Published:
    """A registry that keeps what it is given."""

    def __init__(self) -> None:
        self.snapshots: list[dict[str, Any]] = []

    def publish(self, _: str, snapshot: dict[str, Any]) -> None:
        self.snapshots.append(snapshot)

    def ends(self, _: object) -> dict[tuple[str, int], int]:
        return {}


@pytest.fixture
def published() -> Published:
    return Published()


def runner(
    monkeypatch: pytest.MonkeyPatch,
    published: Published,
    outcomes: list[str | Exception | None],
    tell: Tell = lambda _: None,
) -> Runner:
    def start(*_: object) -> Query:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return Query(outcome)

    monkeypatch.setattr(queries, "start", start)
    pipeline, _ = parse(FILE, Path("shop.yaml"), {})
    assert pipeline is not None
    registry: Any = published
    session: Any = None
    return Runner(pipeline, session, registry, SystemClock(), generation=1, tell=tell)


def test_query_whose_python_was_slow_to_start_is_started_again(
    monkeypatch: pytest.MonkeyPatch, published: Published
) -> None:
    outcomes: list[str | Exception | None] = [SLOW, SLOW, None]
    runner(monkeypatch, published, outcomes).run()
    assert outcomes == []
    assert published.snapshots[-1]["state"] == "finished"


def test_query_that_cannot_be_planned_in_time_is_started_again(
    monkeypatch: pytest.MonkeyPatch, published: Published
) -> None:
    outcomes: list[str | Exception | None] = [PySparkException(SLOW), None]
    runner(monkeypatch, published, outcomes).run()
    assert outcomes == []
    assert published.snapshots[-1]["state"] == "finished"


def test_phases_of_a_start_are_told(monkeypatch: pytest.MonkeyPatch, published: Published) -> None:
    phases: list[str | None] = []
    running = runner(
        monkeypatch, published, [SLOW, None], tell=lambda told: phases.append(told["phase"])
    )
    running.run()
    shown = [phase for phase in dict.fromkeys(phases) if phase]
    assert shown[0] == "starting query 1 of 1: orders-topic"
    assert shown[1].startswith("starting query 1 of 1 again: orders-topic: a Python process took")
    assert phases[-1] is None


@pytest.mark.parametrize(
    "told",
    [
        "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: millstream. Make sure",
        "ModuleNotFoundError: No module named 'millstream'",
        "ModuleNotFoundError: No module named 'pyspark_millstream'",
    ],
)
def test_workers_that_run_another_python_are_named(told: str) -> None:
    reason = reason_of(told)
    assert sys.executable in reason
    assert "PYSPARK_PYTHON" in reason


def test_query_whose_python_is_always_slow_fails_and_says_why(
    monkeypatch: pytest.MonkeyPatch, published: Published
) -> None:
    outcomes: list[str | Exception | None] = [*[SLOW] * 10, None]
    with pytest.raises(PipelineFailed, match=r"orders-topic.*10 s.*too busy"):
        runner(monkeypatch, published, outcomes).run()
    assert len(outcomes) == 1
    assert published.snapshots[-1]["state"] == "failed"


def test_query_with_another_error_is_not_started_again(
    monkeypatch: pytest.MonkeyPatch, published: Published
) -> None:
    outcomes: list[str | Exception | None] = ["the disk is full", None]
    with pytest.raises(PipelineFailed, match="the disk is full"):
        runner(monkeypatch, published, outcomes).run()
    assert len(outcomes) == 1


def test_spark_that_is_gone_is_told_in_words(
    monkeypatch: pytest.MonkeyPatch, published: Published
) -> None:
    with pytest.raises(SparkLost, match="'shop'"):
        runner(monkeypatch, published, [ConnectionRefusedError()]).run()
    assert published.snapshots[-1]["state"] == "failed"
    assert "Spark's process has ended" in published.snapshots[-1]["error"]


class EndingQuery(Query):
    """One that is seen to run some times, and then to have ended."""

    status = {"message": "Processing new data", "isTriggerActive": True}  # noqa: RUF012

    def __init__(self, error: str | None, looks: int) -> None:
        super().__init__(error)
        self._looks = looks

    @property
    def isActive(self) -> bool:  # type: ignore[override]  # noqa: N802
        self._looks -= 1
        return self._looks >= 0


@pytest.mark.parametrize("looks", range(8))
def test_slow_query_that_ends_between_two_looks_is_started_again(
    monkeypatch: pytest.MonkeyPatch, published: Published, looks: int
) -> None:
    outcomes: list[str | Exception | None] = [None]
    running = runner(monkeypatch, published, outcomes)
    start = queries.start
    first = [EndingQuery(SLOW, looks)]
    monkeypatch.setattr(queries, "start", lambda *told: first.pop() if first else start(*told))
    running.run()
    assert outcomes == []
    assert published.snapshots[-1]["state"] == "finished"
