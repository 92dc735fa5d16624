"""Looking up random offsets: a log of 10 million records against one of 10 thousand.

Batches hold 10 records of 100 bytes. The same number of `log.read(offset, 1)` on both logs, at
other offsets in every round, all from the page cache: nothing waits, so CPU time is what counts.

The bar is for logs that were stopped and opened again, which are alike: no batch is trusted, and
each is proved by its checksum before it is handed out. Logs as they were appended are shown too,
but are not alike. The small one lies in its active segment, which the process has just written and
trusts; nearly all of the large one lies in a closed segment, which is proved as ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from benchmarks.bench import Bench, fill, open_log
from benchmarks.row import Bar, Row
from benchmarks.stopwatch import Stopwatch, Timing
from benchmarks.workload import batch_of
from millstream.records import parse_header
from millstream.storage.local_log import LocalLog

_RECORDS_PER_BATCH = 10
_BATCHES_PER_CALL = 100


def measure(bench: Bench) -> list[Row]:
    scale = bench.scale
    label = f"look up one of {scale.many_records:,} records"
    with bench.place("many") as many_path, bench.place("few") as few_path:
        bench.prepares(f"writing {scale.many_records:,} records")
        many = _filled(many_path, scale.many_records)
        few = _filled(few_path, scale.few_records)
        appended = _row(bench, f"{label}, as appended", many, few, None)
        many.close()
        few.close()
        many = open_log(many_path, checkpoint=many.checkpoint())
        few = open_log(few_path, checkpoint=few.checkpoint())
        reopened = _row(bench, label, many, few, Bar(max_ratio=1.3))
        many.close()
        few.close()
    return [reopened, appended]


def _filled(directory: str, records: int) -> LocalLog:
    log = open_log(directory)
    batches = [
        batch_of(records=_RECORDS_PER_BATCH, seed=number) for number in range(_BATCHES_PER_CALL)
    ]
    fill(log, batches, records // _RECORDS_PER_BATCH * len(batches[0]))
    assert log.end_offset == records
    log.sync()
    return log


def _row(bench: Bench, measure: str, many: LocalLog, few: LocalLog, bar: Bar | None) -> Row:
    random = Random(0)
    lookups = bench.scale.lookups

    def look_up(log: LocalLog) -> Timing:
        return _look_up(log, [random.randrange(log.end_offset) for _ in range(lookups)])

    # No round pays for mapping the files, and what is found is what was looked for.
    for log in (many, few):
        for _ in range(lookups):
            offset = random.randrange(log.end_offset)
            header = parse_header(log.read(offset, 1))
            assert header.base_offset <= offset <= header.last_offset
    long, short = bench.race(lambda: look_up(many), lambda: look_up(few))
    return Row(
        measure=measure,
        figure=long.cpu_s / lookups * 1e6,
        unit="us CPU",
        compared_with=f"one of {few.end_offset:,}",
        comparison=short.cpu_s / lookups * 1e6,
        bar=bar,
        details={"wall ratio": long.wall_s / short.wall_s},
    )


def _look_up(log: LocalLog, offsets: Sequence[int]) -> Timing:
    read = log.read
    with Stopwatch() as watch:
        for offset in offsets:
            read(offset, 1)
    return watch.timing
