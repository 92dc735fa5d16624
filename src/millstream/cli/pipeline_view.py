"""How a running pipeline shows itself: a view that is drawn anew, or JSON lines.

Rows that a console sink prints would be drawn over, so that such a pipeline is told in lines.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import typer

from millstream.cli.printout import print_json

if TYPE_CHECKING:
    from rich.console import RenderableType

    from millstream.spark.pipeline.model import Pipeline

Snapshot = dict[str, Any]
Tell = Callable[[Snapshot], None]

_TITLES = ("SINK", "BATCH", "BATCH MS", "IN/S", "OUT/S", "ROWS IN", "ROWS OUT", "LAG", "STATE")
_FIRST_TO_GO = ("BATCH", "ROWS IN")
"""Where there is no room: a number that is cut off says nothing."""
_WIDE_COLUMNS = 100


def is_drawn(pipeline: Pipeline) -> bool:
    """Whether there is a terminal to draw on, and nobody else who writes to it."""
    return sys.stdout.isatty() and all(sink.kind != "console" for sink in pipeline.sinks)


@contextmanager
def shown(*, is_live: bool) -> Iterator[Tell]:
    """What is called with each new snapshot, while it is shown."""
    if not is_live:
        yield print_json
        return
    from rich.live import Live

    with Live(auto_refresh=False) as live:
        yield lambda snapshot: live.update(_drawn(snapshot, live.console.width), refresh=True)


def until_nobody_reads(tell: Tell, stop: Callable[[], None]) -> Tell:
    """Who reads may leave early, as `head` does. That ends a run after its batch."""

    def told(snapshot: Snapshot) -> None:
        try:
            tell(snapshot)
        except typer.Exit:
            stop()

    return told


def described(snapshot: Snapshot, width: int = 120) -> list[str]:
    """A snapshot as lines, for a look from elsewhere."""
    from rich.console import Console

    console = Console(width=width, no_color=True)
    with console.capture() as capture:
        console.print(_drawn(snapshot, width))
    lines = [line.rstrip() for line in capture.get().splitlines()]
    host = f", host {snapshot['host']}" if snapshot.get("host") else ""
    return [*lines, f"as of {_time(snapshot.get('at', 0))}{host}"]


def _drawn(snapshot: Snapshot, width: int) -> RenderableType:
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from millstream.spark.pipeline.progress import lag_by_topic

    is_wide = width >= _WIDE_COLUMNS
    gap = (0, 1, 0, 0) if is_wide else (0, 0, 0, 0)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=gap)
    titles = [each for each in _TITLES if is_wide or each not in _FIRST_TO_GO]
    for title in titles:
        table.add_column(title, justify="left" if title == "SINK" else "right", no_wrap=True)
    for query in snapshot.get("queries", ()):
        cells = dict(zip(_TITLES, _cells(query), strict=True))
        table.add_row(*(Text(cells[title]) for title in titles))
    head = Text(f"{snapshot['pipeline']}  {snapshot['state']}", style="bold")
    head.append(
        f"  {snapshot.get('rows_in_per_s', 0):,.0f} rows/s in"
        f"  {snapshot.get('rows_out_per_s', 0):,.0f} rows/s out"
        f"  {snapshot.get('bad_rows', 0):,} bad rows  lag {snapshot.get('lag', 0):,}",
        style="not bold",
    )
    parts: list[RenderableType] = [head, table]
    if snapshot.get("phase"):
        parts.append(Text(str(snapshot["phase"])))
    lags = sorted(lag_by_topic(snapshot.get("queries", ())).items())
    if lags:
        parts.append(Text("lag  " + "  ".join(f"{topic} {rows:,}" for topic, rows in lags)))
    if snapshot.get("error"):
        parts.append(Text(str(snapshot["error"]), style="red"))
    return Group(*parts)


def _cells(query: Snapshot) -> list[str]:
    state = ""
    if query["state_rows"]:
        state = f"{query['state_rows']:,} rows {query['state_bytes'] / 1e6:,.1f} MB"
    return [
        query["sink"],
        "-" if query["batch"] is None else f"{query['batch']:,}",
        f"{query['batch_ms']:,}",
        f"{query['rows_in_per_s']:,.0f}",
        f"{query['rows_out_per_s']:,.0f}",
        f"{query['rows_in']:,}",
        f"{query['rows_out']:,}",
        # Nobody knows before the first batch.
        "-" if query["batch"] is None else f"{sum(query['lag'].values()):,}",
        state,
    ]


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC).strftime("%Y-%m-%d %H:%M:%SZ")
