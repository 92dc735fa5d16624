"""What commands print: tables for people, a JSON object on each line for programs.

Whoever reads it may leave early, as `head` does: then the command ends, and has done well.
Invariant: no cell of a table can steer the terminal, whatever its message holds.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Annotated, Any

import typer

AsJson = Annotated[bool, typer.Option("--json", help="For programs: a JSON object on each line.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

_CELL_CHARACTERS = 100
# Where nothing is there to wrap lines at, they are not wrapped.
_FILE_COLUMNS = 10_000


def print_table(
    titles: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    elastic: Collection[str] = (),
    right: Collection[str] = (),
) -> None:
    """A line for each row, numbers to the right. Where there is no room, elastic columns give."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    filled = [list(row) for row in rows]
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for place, title in enumerate(titles):
        is_number = bool(filled) and all(isinstance(row[place], int) for row in filled)
        table.add_column(
            title,
            justify="right" if is_number or title in right else "left",
            no_wrap=title not in elastic,
        )
    for row in filled:
        table.add_row(*(Text(_cell(each), no_wrap=True, overflow="ellipsis") for each in row))
    console = Console(width=None if sys.stdout.isatty() else _FILE_COLUMNS)
    with console.capture() as capture:
        console.print(table)
    print_lines(*(line.rstrip() for line in capture.get().splitlines()))


def print_json(shape: Mapping[str, Any]) -> None:
    import orjson

    write(orjson.dumps(shape, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS))


def print_lines(*lines: str) -> None:
    text = "".join(f"{line}\n" for line in lines)
    # A terminal that knows few characters is no reason to fail.
    write(text.encode(sys.stdout.encoding, "backslashreplace"))


def write(data: bytes) -> None:
    """Write to stdout, all of it and now."""
    rest = memoryview(data)
    try:
        while rest:
            # Without a buffer (python -u), a signal cuts a write short.
            rest = rest[sys.stdout.buffer.write(rest) :]
        sys.stdout.buffer.flush()
    except OSError as error:
        # What is still in the buffer would complain when the process ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise typer.Exit from None
        raise


def end_if_nobody_reads() -> None:
    """For who waits long between two writes: the reader may have left meanwhile."""
    look = select.poll()
    look.register(sys.stdout.fileno(), 0)
    if any(events & select.POLLERR for _, events in look.poll(0)):
        raise typer.Exit


def note(line: str) -> None:
    """Tell a person something that is no part of the output."""
    print(f"millstream: {line}", file=sys.stderr)


def confirm(question: str, *, yes: bool) -> None:
    """Go on if a person says so, or has said so before. Raises typer.Abort."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise typer.BadParameter(f"nobody is there to ask ({question}): give --yes")
    typer.confirm(question, abort=True, err=True)


def size_text(count: int) -> str:
    """Bytes, as a person says them."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"


def time_text(timestamp_ms: int) -> str:
    """A moment in UTC. Who sent it may have given it any number, and then that is shown."""
    from datetime import UTC, datetime

    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return moment.isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00") + "Z"


def _cell(content: object) -> str:
    if content is None:
        return "-"
    text = content.decode(errors="backslashreplace") if isinstance(content, bytes) else str(content)
    if len(text) > _CELL_CHARACTERS:
        text = text[: _CELL_CHARACTERS - 3] + "..."
    return "".join(each if each.isprintable() else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()
