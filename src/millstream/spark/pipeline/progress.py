"""How a pipeline is doing, gathered from what Spark tells of each batch.

Pure: Spark's reports and the time come as arguments.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

STARTING, RUNNING, STOPPING = "starting", "running", "stopping"
STOPPED, FINISHED, FAILED = "stopped", "finished", "failed"
LIVE = (STARTING, RUNNING, STOPPING)
SILENT_MS = 30_000
"""A pipeline that should run and was not heard of for so long is gone."""

_WINDOW_MS = 10_000
_AT_REST = {"rows_in_per_s": 0.0, "rows_out_per_s": 0.0}

Report = Mapping[str, Any]
Snapshot = dict[str, Any]
Place = tuple[str, int]
"""A topic and the number of a partition."""


class Rate:
    """Events per second over the last seconds, or over as long as the last batch took."""

    def __init__(self) -> None:
        self._counts: deque[tuple[int, int]] = deque()
        self._begin_ms: int | None = None
        self._window_ms = _WINDOW_MS

    def add(self, count: int, now_ms: int, took_ms: int) -> None:
        if self._begin_ms is None:
            self._begin_ms = now_ms - took_ms
        if count:
            self._window_ms = max(_WINDOW_MS, took_ms)
        self._counts.append((now_ms, count))

    def per_second(self, now_ms: int) -> float:
        while self._counts and self._counts[0][0] <= now_ms - self._window_ms:
            self._counts.popleft()
        if self._begin_ms is None:
            return 0.0
        window_ms = min(self._window_ms, max(now_ms - self._begin_ms, 1000))
        return round(sum(count for _, count in self._counts) * 1000 / window_ms, 1)


@dataclass(slots=True)
class QueryProgress:
    """What is known of one query."""

    sink: str
    group: str
    batch: int | None = None
    batch_ms: int = 0
    rows_in: int = 0
    rows_out: int = 0
    state_rows: int = 0
    state_bytes: int = 0
    read: dict[Place, int] = field(default_factory=dict)
    """How far each partition was read."""
    ends: dict[Place, int] = field(default_factory=dict)
    """How far each partition goes, as it was last seen."""
    rate_in: Rate = field(default_factory=Rate)
    rate_out: Rate = field(default_factory=Rate)
    last_seen: tuple[str, int] = ("", -1)

    def is_new(self, report: Report) -> bool:
        return _identity(report) > self.last_seen

    def take(self, report: Report, now_ms: int) -> None:
        """Count a report. One that was counted changes nothing."""
        if not self.is_new(report):
            return
        self.last_seen = _identity(report)
        taken = int(report.get("numInputRows") or 0)
        given = int(((report.get("observedMetrics") or {}).get("rows") or {}).get("out") or 0)
        self.rows_in += taken
        self.rows_out += given
        took_ms = int(report.get("batchDuration") or 0)
        self.rate_in.add(taken, now_ms, took_ms)
        self.rate_out.add(given, now_ms, took_ms)
        self.batch = int(report["batchId"])
        if taken or given or not self.batch_ms:
            self.batch_ms = took_ms
        operators = report.get("stateOperators") or ()
        self.state_rows = sum(int(each.get("numRowsTotal") or 0) for each in operators)
        self.state_bytes = sum(int(each.get("memoryUsedBytes") or 0) for each in operators)
        self.read = _read(report.get("sources") or ())

    def see_ends(self, ends: Mapping[Place, int]) -> None:
        self.ends.update((place, end) for place, end in ends.items() if place in self.read)

    @property
    def lag(self) -> dict[str, int]:
        """Records of each topic that are there and were not read."""
        lag = dict.fromkeys((topic for topic, _ in self.read), 0)
        for place, offset in self.read.items():
            lag[place[0]] += max(self.ends.get(place, offset) - offset, 0)
        return lag

    def snapshot(self, now_ms: int) -> Snapshot:
        return {
            "sink": self.sink,
            "group": self.group,
            "batch": self.batch,
            "batch_ms": self.batch_ms,
            "rows_in": self.rows_in,
            "rows_out": self.rows_out,
            "rows_in_per_s": self.rate_in.per_second(now_ms),
            "rows_out_per_s": self.rate_out.per_second(now_ms),
            "state_rows": self.state_rows,
            "state_bytes": self.state_bytes,
            "lag": dict(self.lag),
        }


@dataclass(slots=True, kw_only=True)
class PipelineProgress:
    """What is known of all queries of a run. Bad rows are what the query for them put out."""

    pipeline: str
    generation: int
    started_at: int
    file: str
    host: str
    pid: int
    dead_letters: str
    queries: dict[str, QueryProgress] = field(default_factory=dict)
    state: str = STARTING
    phase: str | None = None
    """What a pipeline that starts is doing."""
    error: str | None = None

    def snapshot(self, now_ms: int) -> Snapshot:
        queries = [each.snapshot(now_ms) for each in self.queries.values()]
        sinks = [each for each in queries if each["sink"] != self.dead_letters]
        bad = [each for each in queries if each["sink"] == self.dead_letters]
        return {
            "pipeline": self.pipeline,
            "generation": self.generation,
            "state": self.state,
            "phase": self.phase,
            "at": now_ms,
            "started_at": self.started_at,
            "host": self.host,
            "pid": self.pid,
            "file": self.file,
            "rows_in": sum(each["rows_in"] for each in sinks),
            "rows_out": sum(each["rows_out"] for each in sinks),
            "bad_rows": sum(each["rows_out"] for each in bad),
            "rows_in_per_s": round(sum(each["rows_in_per_s"] for each in sinks), 1),
            "rows_out_per_s": round(sum(each["rows_out_per_s"] for each in sinks), 1),
            "lag": sum(lag_by_topic(queries).values()),
            "error": self.error,
            "queries": queries,
        }


def lag_by_topic(queries: Iterable[Snapshot]) -> dict[str, int]:
    """Of the query that is furthest behind: several may read one topic."""
    worst: dict[str, int] = {}
    for query in queries:
        for topic, rows in query["lag"].items():
            worst[topic] = max(worst.get(topic, 0), rows)
    return worst


def as_of(snapshot: Snapshot, now_ms: int) -> Snapshot:
    """What a published snapshot stands for by now: one that does not run has no rates."""
    state = state_now(snapshot, now_ms)
    return {**snapshot, "state": state, **({} if state in LIVE else _AT_REST)}


def state_now(snapshot: Snapshot, now_ms: int) -> str:
    """The state that a published snapshot stands for: one of a dead process claims to run."""
    state = str(snapshot.get("state", ""))
    if state in LIVE and now_ms - int(snapshot.get("at", 0)) > SILENT_MS:
        return "gone"
    return state


def _identity(report: Report) -> tuple[str, int]:
    # Times of Spark have a fixed width, so that they can be compared as text.
    return str(report.get("timestamp", "")), int(report.get("batchId", -1))


def _read(sources: Sequence[Mapping[str, Any]]) -> dict[Place, int]:
    """Where each partition goes on. One that is read twice is as late as its later reader."""
    read: dict[Place, int] = {}
    for source in sources:
        ends, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
        for topic in {**latest, **ends}:
            for number in {**latest.get(topic, {}), **ends.get(topic, {})}:
                place = topic, int(number)
                offset = int(ends.get(topic, {}).get(number, 0))
                read[place] = min(read.get(place, offset), offset)
    return read


def _offsets(told: object) -> dict[str, dict[str, int]]:
    if isinstance(told, str):
        told = json.loads(told)
    if not isinstance(told, dict):
        return {}
    return {topic: each for topic, each in told.items() if isinstance(each, dict)}
