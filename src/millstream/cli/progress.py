"""How far a long command has come, shown to a person who waits: on stderr, if that is a terminal.

What is over soon shows nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from millstream.clock import ticks_ns

_SOON_NS = 500_000_000

Tell = Callable[[int, str], None]
"""Told how much is done of the total, and what to say beside it."""


@contextmanager
def shown(what: str, total: int | None) -> Iterator[Tell]:
    """A bar, or a line that counts where the total is not known."""
    if not sys.stderr.isatty():
        yield _say_nothing
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

    columns = [TextColumn("{task.description}"), SpinnerColumn()]
    if total:
        columns = [
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeRemainingColumn(compact=True),
        ]
    progress = Progress(
        *columns, TextColumn("{task.fields[beside]}"), console=Console(stderr=True), transient=True
    )
    task = progress.add_task(what, total=total, beside="")
    began_ns = ticks_ns()

    def tell(done: int, beside: str) -> None:
        if not progress.live.is_started:
            if ticks_ns() - began_ns < _SOON_NS:
                return
            progress.start()
        progress.update(task, completed=done, beside=beside)

    try:
        yield tell
    finally:
        progress.stop()


def _say_nothing(done: int, beside: str) -> None:
    """Nobody looks."""
