"""All measures, by the name that `--only` takes, in the order of the report."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from benchmarks import (
    append,
    cleaning,
    disk_sync,
    group_commit,
    lookup,
    many_logs,
    read,
    recovery,
    reopen,
    validation,
)
from benchmarks.bench import Bench
from benchmarks.row import Row

SUITE: Mapping[str, Callable[[Bench], list[Row]]] = {
    "append": append.measure,
    "group_commit": group_commit.measure,
    "read": read.measure,
    "lookup": lookup.measure,
    "reopen": reopen.measure,
    "recovery": recovery.measure,
    "compaction": cleaning.measure,
    "validation": validation.measure,
    "disk_sync": disk_sync.measure,
    "many_logs": many_logs.measure,
}
