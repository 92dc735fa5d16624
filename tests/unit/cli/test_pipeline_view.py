"""How a pipeline is shown on a terminal."""

from __future__ import annotations

from typing import Any

from millstream.cli.pipeline_view import described


def query(sink: str, **changed: Any) -> dict[str, Any]:
    told = {
        "sink": sink,
        "batch": 12_345,
        "batch_ms": 12_345,
        "rows_in": 12_345_678,
        "rows_out": 12_345_678,
        "rows_in_per_s": 12_345.6,
        "rows_out_per_s": 12_345.6,
        "lag": {"orders": 1_234_567},
        "state_rows": 12_345,
        "state_bytes": 1_200_000,
    }
    return {**told, **changed}


def snapshot(*queries: dict[str, Any]) -> dict[str, Any]:
    return {"pipeline": "shop", "state": "running", "queries": list(queries), "at": 0}


def test_numbers_are_whole_on_a_terminal_of_80_columns() -> None:
    lines = described(snapshot(query("revenue"), query("dead-letters")), width=80)
    assert max(map(len, lines)) <= 80
    assert "…" not in "".join(lines)
    assert "1,234,567" in lines[3]
    assert "ROWS IN" not in lines[1]
    assert "ROWS IN" in described(snapshot(query("revenue")))[1]


def test_lag_is_not_told_before_the_first_batch() -> None:
    fresh = query("revenue", batch=None, lag={}, state_rows=0)
    assert described(snapshot(fresh))[3].split()[-1] == "-"
