"""`python -m benchmarks`: run the measures and report each figure beside its bar."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from math import isnan, nan
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from benchmarks.bench import Bench
from benchmarks.environment import environment
from benchmarks.load import Load
from benchmarks.report import as_json, print_table
from benchmarks.row import Row
from benchmarks.scale import FULL, QUICK, Scale
from benchmarks.suite import SUITE
from benchmarks.warm_memory import warm_memory

_DEFAULT_PARENT = "data"


def main(
    as_document: Annotated[bool, typer.Option("--json", help="Print JSON, not a table.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Do too little to trust the figures.")
    ] = False,
    only: Annotated[
        list[str] | None, typer.Option(help=f"Run this measure alone: {', '.join(SUITE)}.")
    ] = None,
    directory: Annotated[
        str, typer.Option(help="Where to write; what is written is removed.")
    ] = _DEFAULT_PARENT,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 when a bar is missed.")
    ] = False,
    message_bytes: Annotated[
        int | None, typer.Option(min=1, help="Size of messages: produce, consume, peers.")
    ] = None,
    messages: Annotated[
        int | None, typer.Option(min=1, help="How many: produce, consume, small_requests.")
    ] = None,
    batch_bytes: Annotated[
        int | None, typer.Option(min=1, help="Size of a producer's batches: produce, consume.")
    ] = None,
    acks: Annotated[str | None, typer.Option(help="0, 1 or all: produce.")] = None,
) -> None:
    """Measure the speed of the storage engine and of the broker against their bars."""
    names = only or list(SUITE)
    if unknown := [name for name in names if name not in SUITE]:
        raise typer.BadParameter(f"no measure is called {unknown[0]}", param_hint="--only")
    load = Load(message_bytes=message_bytes, messages=messages, batch_bytes=batch_bytes, acks=acks)
    with _scratch(directory) as path:
        facts = environment(path)
        results = _run(names, path, QUICK if quick else FULL, load)
    if as_document:
        print(as_json(results, facts))
    else:
        print_table(results, facts)
    rows = [row for some in results.values() for row in some]
    has_failed = any(isnan(row.figure) for row in rows)
    if has_failed or (strict and any(row.met is False for row in rows)):
        raise typer.Exit(1)


def _run(names: Sequence[str], directory: str, scale: Scale, load: Load) -> dict[str, list[Row]]:
    results = {}
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
        transient=True,
    )
    with progress:
        task = progress.add_task("warming memory", total=len(names) + 1)
        warm_memory(scale.warm_bytes, tell=lambda share: progress.update(task, completed=share))
        for number, name in enumerate(names, start=1):
            tell = partial(_tell, progress, task, number, name)
            tell("begins", 0)
            try:
                results[name] = SUITE[name](Bench(directory, scale, tell=tell, load=load))
            except Exception as error:  # Outer edge of a measure: the others still count.
                progress.console.print_exception()
                results[name] = [Row(measure=name, figure=nan, absent=f"it failed: {error!r}")]
    return results


def _tell(
    progress: Progress, task: TaskID, number: int, name: str, what: str, share: float
) -> None:
    progress.update(task, completed=number + share, description=f"{name}: {what}")


@contextmanager
def _scratch(parent: str) -> Iterator[str]:
    """A directory of our own in another, both gone afterwards if they were not there before."""
    is_new = not os.path.isdir(parent)
    os.makedirs(parent, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix="bench-", dir=parent) as path:
            yield path
    finally:
        if is_new:
            with suppress(OSError):
                os.rmdir(parent)


if __name__ == "__main__":
    command = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    command.command()(main)
    command()
