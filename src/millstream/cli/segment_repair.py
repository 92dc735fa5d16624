"""`millstream segment repair`: shows what damage costs, asks, and takes it out of the logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import typer

from millstream.broker.catalog_repair import closing_record
from millstream.cli.printout import print_json, print_lines
from millstream.clock import SystemClock
from millstream.errors import CorruptData
from millstream.settings.names import CATALOG_TOPIC
from millstream.storage.filesystem import Filesystem
from millstream.storage.log_repair import LogRepair
from millstream.storage.recovery import LogCheckpoint


def repair_logs(
    filesystem: Filesystem,
    data: Path,
    names: Sequence[str],
    known: Mapping[str, LogCheckpoint],
    *,
    is_dry_run: bool,
    is_agreed: bool,
    as_json: bool,
) -> None:
    """Repair these logs. Raises typer.Exit when something is damaged and stays so."""
    with ExitStack() as opened:
        damaged, unopened = [], 0
        for name in names:
            try:
                log = LogRepair(filesystem, str(data), name, checkpoints=known, clock=SystemClock())
            except (CorruptData, OSError) as error:
                unopened += 1
                _show_unopened(name, error, as_json=as_json)
                continue
            opened.callback(log.close)
            if log.problems:
                damaged.append(log)
                _show(log, as_json=as_json)
        if not (damaged or unopened or as_json):
            print_lines(f"nothing to repair in {len(names)} logs")
        question = "Take the damage out? The damaged files are kept."
        if damaged and (is_dry_run or not (is_agreed or typer.confirm(question, err=True))):
            raise typer.Exit(1)
        for log in damaged:
            _repair(log, as_json=as_json)
        if unopened:
            raise typer.Exit(1)


def _repair(log: LogRepair, *, as_json: bool) -> None:
    is_catalog = log.name.startswith(f"{CATALOG_TOPIC}/")
    now_ms = SystemClock().now_ms()
    kept = log.run(closing_record(log.records(), now_ms) if is_catalog else None)
    if as_json:
        print_json({"kind": "repaired", "log": log.name, "kept": kept})
    else:
        print_lines(f"repaired {log.name}; the old files are in {kept}")


def _show_unopened(name: str, error: CorruptData | OSError, *, as_json: bool) -> None:
    if as_json:
        print_json({"kind": "unopened", "log": name, "error": str(error)})
    else:
        print_lines(f"{name} cannot be opened, and is left as it is: {error}")


def _show(log: LogRepair, *, as_json: bool) -> None:
    if as_json:
        lost = [[each.start, each.stop - 1] for each in log.lost]
        print_json({"kind": "damage", "log": log.name, "problems": log.problems, "lost": lost})
        return
    print_lines(*(f"{log.name}: {problem}" for problem in log.problems))
    ranges = ", ".join(f"{each.start} to {each.stop - 1}" for each in log.lost)
    print_lines(f"{log.name}: " + (f"offsets {ranges} are lost" if ranges else "nothing is lost"))
