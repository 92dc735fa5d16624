"""What is told of a run, from what Spark tells of its batches."""

from __future__ import annotations

import json
from typing import Any

import pytest

from millstream.spark.pipeline.progress import (
    PipelineProgress,
    QueryProgress,
    Rate,
    as_of,
    state_now,
)
from millstream.spark.pipeline.runner import reason_of


def report(batch: int, *, rows: int = 0, out: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "batchId": batch,
        "timestamp": f"2026-01-01T00:00:{batch:02}.000Z",
        "numInputRows": rows,
        "batchDuration": 250,
        "observedMetrics": {"rows": {"out": out}},
        **more,
    }


def test_batches_are_counted_once_each() -> None:
    query = QueryProgress("table", "shop.table")
    for each in (report(0, rows=10, out=8), report(0, rows=10, out=8), report(1, rows=5, out=5)):
        query.take(each, 1000)
    query.take(report(0, rows=10, out=8), 2000)
    assert (query.batch, query.rows_in, query.rows_out) == (1, 15, 13)


def test_lag_is_what_each_topic_has_and_the_query_has_not_read() -> None:
    query = QueryProgress("table", "shop.table")
    end = {"orders": {"0": 5, "1": 7}}
    latest = {"orders": {"0": 9, "1": 7, "2": 4}}
    sources = [
        {"endOffset": json.dumps(end), "latestOffset": json.dumps(latest)},
        {"endOffset": {"clicks": {"0": 1}}, "latestOffset": {"clicks": {"0": 3}}},
        {"endOffset": latest, "latestOffset": latest},
        {"endOffset": None, "latestOffset": None},
    ]
    query.take(report(3, sources=sources), 0)
    assert query.lag == {"orders": 0, "clicks": 0}
    query.see_ends({("orders", 0): 9, ("orders", 1): 7, ("orders", 2): 4, ("clicks", 0): 3})
    assert query.lag == {"orders": 8, "clicks": 2}
    # Of what nobody reads, nothing is told; what is read since is no longer behind.
    query.see_ends({("others", 0): 100})
    query.take(report(4, sources=[{"endOffset": latest, "latestOffset": latest}]), 0)
    assert query.lag == {"orders": 0}
    query.see_ends({("orders", 2): 10})
    assert query.lag == {"orders": 6}


def test_idle_query_keeps_the_time_of_its_last_batch() -> None:
    query = QueryProgress("table", "shop.table")
    query.take(report(1, rows=3), 0)
    query.take({**report(2), "batchDuration": 1}, 0)
    assert query.batch_ms == 250


def test_rate_forgets_what_is_long_ago() -> None:
    rate = Rate()
    rate.add(500, 10_000, took_ms=100)
    assert rate.per_second(10_000) == 500.0
    assert rate.per_second(14_900) == 100.0
    assert rate.per_second(60_000) == 0.0


def test_rate_of_a_long_batch_is_over_the_time_that_it_took() -> None:
    rate = Rate()
    rate.add(60_000, 40_000, took_ms=30_000)
    assert rate.per_second(40_000) == 2000.0
    rate.add(60_000, 70_000, took_ms=30_000)
    assert rate.per_second(70_000) == 2000.0
    assert rate.per_second(99_000) == 2000.0
    assert rate.per_second(100_000) == 0.0


def new_run() -> PipelineProgress:
    return PipelineProgress(
        pipeline="shop",
        generation=1,
        started_at=0,
        file="shop.yaml",
        host="h",
        pid=1,
        dead_letters="dead-letters",
    )


def test_bad_rows_are_those_of_the_dead_letter_query() -> None:
    run = new_run()
    for sink, out in (("table", 90), ("dead-letters", 10)):
        run.queries[sink] = QueryProgress(sink, f"shop.{sink}")
        run.queries[sink].take(report(0, rows=100, out=out), 0)
    told = run.snapshot(0)
    assert (told["rows_in"], told["rows_out"], told["bad_rows"]) == (100, 90, 10)


def test_lag_of_a_pipeline_is_that_of_the_sink_that_is_furthest_behind() -> None:
    run = new_run()
    for sink, read in (("table", 40), ("revenue", 70)):
        query = run.queries[sink] = QueryProgress(sink, f"shop.{sink}")
        query.read = {("orders", 0): read, ("clicks", 0): 5}
        query.see_ends({("orders", 0): 100, ("clicks", 0): 7})
    assert run.snapshot(0)["lag"] == 62


@pytest.mark.parametrize(
    ("state", "age_ms", "expected"),
    [("running", 1000, "running"), ("running", 31_000, "gone"), ("stopped", 10**9, "stopped")],
)
def test_pipeline_that_claims_to_run_and_is_silent_is_gone(
    state: str, age_ms: int, expected: str
) -> None:
    assert state_now({"state": state, "at": 0}, age_ms) == expected


@pytest.mark.parametrize(("age_ms", "expected"), [(1000, 7.0), (31_000, 0.0)])
def test_pipeline_that_does_not_run_has_no_rate(age_ms: int, expected: float) -> None:
    told = as_of({"state": "running", "at": 0, "rows_in_per_s": 7.0}, age_ms)
    assert told["rows_in_per_s"] == expected


def test_reason_of_a_failed_query_is_the_error_without_its_traceback() -> None:
    told = (
        "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: "
        "[PYTHON_DATA_SOURCE_ERROR] Failed when Python data source instance latestOffset: "
        "Traceback (most recent call last):\n"
        '  File "reader.py", line 3, in latestOffset\n    raise it\n'
        "millstream.errors.DataLost: data was lost:\noffsets 1 to 2 of orders-0\n"
        "\nDuring handling of the above exception, another exception occurred:\n\n"
        'Traceback (most recent call last):\n  File "x.py"\nUnboundLocalError: reader\n'
        " SQLSTATE: 38000 SQLSTATE: XXKST\n=== Streaming Query ===\nIdentifier: shop"
    )
    assert reason_of(told) == "data was lost: offsets 1 to 2 of orders-0"
    assert reason_of("Job aborted. SQLSTATE: 38000") == "Job aborted."
