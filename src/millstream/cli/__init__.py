"""The command line: one file per command, or per noun that several commands are about."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from millstream import __version__
from millstream.cli import dlq, queue
from millstream.cli.serve import serve
from millstream.errors import MillstreamError

__all__ = ["main"]

_commands = typer.Typer(
    name="millstream",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
_commands.command()(serve)
_commands.add_typer(queue.commands, name="queue")
_commands.add_typer(dlq.commands, name="dlq")


def main() -> None:
    """Run one command. What a user can put right is one line, not a traceback."""
    try:
        _commands()
    except MillstreamError as error:
        print(f"millstream: {error}", file=sys.stderr)
        sys.exit(1)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"millstream {__version__}")
        raise typer.Exit


@_commands.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """A durable message log that speaks the Kafka wire protocol."""
