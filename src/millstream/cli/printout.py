"""What commands print: tables for people, a JSON object on each line for programs.

Whoever reads it may leave early, as `head` does: then the command ends, and has done well.
Invariant: no cell of a table can steer the terminal, whatever its message holds.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Annotated, Any

import typer

AsJson = Annotated[
    bool, typer.Option("--json", help="For programs: a JSON object on each line.", is_flag=True)
]

_CELL_CHARACTERS = 100
# Where nothing is there to wrap lines at, they are not wrapped.
_FILE_COLUMNS = 10_000


def print_table(
    titles: Sequence[str], rows: Iterable[Sequence[object]], *, elastic: Collection[str] = ()
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
            title, justify="right" if is_number else "left", no_wrap=title not in elastic
        )
    for row in filled:
        table.add_row(*(Text(_cell(each), no_wrap=True, overflow="ellipsis") for each in row))
    console = Console(width=None if sys.stdout.isatty() else _FILE_COLUMNS)
    with console.capture() as capture:
        console.print(table)
    print_lines(*(line.rstrip() for line in capture.get().splitlines()))


def print_json(shape: Mapping[str, Any]) -> None:
    import orjson

    _write(orjson.dumps(shape, option=orjson.OPT_APPEND_NEWLINE))


def print_lines(*lines: str) -> None:
    text = "".join(f"{line}\n" for line in lines)
    # A terminal that knows few characters is no reason to fail.
    _write(text.encode(sys.stdout.encoding, "backslashreplace"))


def _write(data: bytes) -> None:
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        # What is still in the buffer would complain when the process ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit from None


def _cell(content: object) -> str:
    if content is None:
        return "-"
    text = content.decode(errors="backslashreplace") if isinstance(content, bytes) else str(content)
    if len(text) > _CELL_CHARACTERS:
        text = text[: _CELL_CHARACTERS - 3] + "..."
    return "".join(each if each.isprintable() else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()
