"""Records to Arrow columns and back, on one core: values of 100 bytes, in batches of 1 MiB.

Reading checks each checksum and gives value, offset and timestamp; or all columns. Writing takes
values and keys. Figures count CPU seconds: nothing waits. Where nothing was compiled, Python's
own speed is held against the bar of the compiled twin, and misses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pyarrow as pa

from benchmarks.bench import Bench
from benchmarks.row import Bar, Row
from benchmarks.stopwatch import Stopwatch, Timing
from benchmarks.workload import VALUE_BYTES, batch_of
from millstream.records import arrow_pure, assign_offset
from millstream.records.arrow import COLUMNS, NATIVE, ColumnReader, encode
from millstream.records.arrow_twin import ColumnBuilder, RowEncoder

_BATCH_RECORDS = 9_000
_FEED_BATCHES = 4
_FEW_COLUMNS = ("value", "offset", "timestamp")
_MAX_BYTES = 1 << 20


def measure(bench: Bench) -> list[Row]:
    feed = bytes(_feed())
    table = _table(bench.scale.arrow_records)
    few = table.slice(0, bench.scale.arrow_records // 10)
    read, read_all, read_pure, write, write_pure = bench.race(
        partial(_read, feed, ColumnBuilder, _FEW_COLUMNS, bench.scale.arrow_records),
        partial(_read, feed, ColumnBuilder, COLUMNS, bench.scale.arrow_records),
        partial(_read, feed, arrow_pure.ColumnBuilder, _FEW_COLUMNS, few.num_rows),
        partial(_write, table, RowEncoder),
        partial(_write, few, arrow_pure.RowEncoder),
    )
    kind = "compiled" if NATIVE else "not compiled"
    reads, writes = "records to columns", "rows to records"
    return [
        _row(f"{reads}, {kind}", read, _read_count(table.num_rows), Bar(min_figure=8e6)),
        _row(f"{reads}, {kind}, all columns", read_all, _read_count(table.num_rows), None),
        _row(f"{reads}, in Python", read_pure, _read_count(few.num_rows), Bar(min_figure=3e5)),
        _row(f"{writes}, {kind}", write, table.num_rows, Bar(min_figure=2e6)),
        _row(f"{writes}, in Python", write_pure, few.num_rows, None),
    ]


def _row(measure: str, run: Timing, count: int, bar: Bar | None) -> Row:
    return Row(
        measure=measure,
        figure=count / run.cpu_s,
        unit="records/CPU s",
        bar=bar,
        details={"wall records/s": count / run.wall_s},
    )


def _feed() -> bytearray:
    out = bytearray()
    for number in range(_FEED_BATCHES):
        batch = batch_of(records=_BATCH_RECORDS, seed=number)
        assign_offset(batch, number * _BATCH_RECORDS, 0)
        out += batch
    return out


def _read_count(wanted: int) -> int:
    """Whole feeds alone are read."""
    return max(wanted // (_FEED_BATCHES * _BATCH_RECORDS), 1) * _FEED_BATCHES * _BATCH_RECORDS


def _read(feed: bytes, builder: type[ColumnBuilder], columns: Sequence[str], wanted: int) -> Timing:
    rows = 0
    with Stopwatch() as watch:
        for _ in range(_read_count(wanted) // (_FEED_BATCHES * _BATCH_RECORDS)):
            reader = ColumnReader(
                "bench", 0, columns=columns, start=0, end=None, committed=True, builder=builder
            )
            for table in reader.feed(feed):
                rows += table.num_rows
            rows += sum(table.num_rows for table in reader.rest())
    assert rows == _read_count(wanted)
    return watch.timing


def _table(rows: int) -> pa.RecordBatch:
    values = pa.array([bytes([n % 256]) * VALUE_BYTES for n in range(rows)], pa.binary())
    keys = pa.array([b"%08d" % n for n in range(rows)], pa.binary())
    return pa.RecordBatch.from_arrays([keys, values], names=["key", "value"])


def _write(table: pa.RecordBatch, encoder: type[RowEncoder]) -> Timing:
    with Stopwatch() as watch:
        batches = encode(table, now_ms=0, max_bytes=_MAX_BYTES, encoder=encoder)
    assert batches
    return watch.timing
