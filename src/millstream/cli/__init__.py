"""The command line: one file per command, or per noun that several commands are about.

Exit codes: 0 good; 1 failed; 2 the command was given wrongly; 3 what it is about is not there;
4 no broker answers; 130 Ctrl-C. A reader of the output that leaves early, as `head` does, is good.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from millstream import __version__
from millstream.errors import (
    AnswerLost,
    BrokerNotReady,
    MillstreamError,
    NotFound,
    TimedOut,
    Unreachable,
)

__all__ = ["main"]

FAILED = 1
USAGE = 2
NOT_FOUND = 3
UNREACHABLE = 4

_commands = typer.Typer(
    name="millstream",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog=(
        "Exit codes: 0 good, 1 failed, 2 given wrongly, 3 not found, 4 no broker answers, 130 "
        "Ctrl-C."
    ),
)


def main() -> None:
    """Run one command. What a user can put right is one line, not a traceback."""
    _add_commands(sys.argv[1:2])
    try:
        sys.exit(_commands(standalone_mode=False))
    except _ClickException as error:
        _fail(_usage(error), USAGE)
    except typer.Abort:
        _fail("not done", FAILED)
    except MillstreamError as error:
        _fail(str(error), _code_of(error))
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error), FAILED)


def _add_commands(words: list[str]) -> None:
    """The one that is wanted, if it is one: to load all of them takes longer than most take."""
    for name, add in _ADD.items():
        if name in words or not _ADD.keys() & words:
            add()


def _fail(line: str, code: int) -> None:
    print(f"millstream: {line}", file=sys.stderr)
    sys.exit(code)


def _code_of(error: MillstreamError) -> int:
    if isinstance(error, NotFound):
        return NOT_FOUND
    if isinstance(error, Unreachable | AnswerLost | TimedOut | BrokerNotReady):
        return UNREACHABLE
    return FAILED


def _usage(error: Any) -> str:
    if type(error).__name__ == "NoArgsIsHelpError":
        # The command alone was given: it says what else there is.
        error.show()
        sys.exit(USAGE)
    message = " ".join(error.format_message().split())
    message = message.removesuffix(".").removeprefix("Invalid value: ")
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "millstream"
    return f"{message}: see `{path} --help`"


# Typer has a click of its own from some version on, and gives these classes no name.
_ClickException: Any = next(
    each for each in typer.BadParameter.__mro__ if each.__name__ == "ClickException"
)


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


def _add_serve() -> None:
    from millstream.cli.serve import serve

    _commands.command()(serve)


def _add_topic() -> None:
    from millstream.cli import topic

    _commands.add_typer(topic.commands, name="topic")


def _add_produce() -> None:
    from millstream.cli.produce import produce

    _commands.command()(produce)


def _add_consume() -> None:
    from millstream.cli.consume import consume

    _commands.command()(consume)


def _add_group() -> None:
    from millstream.cli import group

    _commands.add_typer(group.commands, name="group")


def _add_queue() -> None:
    from millstream.cli import queue

    _commands.add_typer(queue.commands, name="queue")


def _add_dlq() -> None:
    from millstream.cli import dlq

    _commands.add_typer(dlq.commands, name="dlq")


def _add_segment() -> None:
    from millstream.cli import segment

    _commands.add_typer(segment.commands, name="segment")


def _add_config() -> None:
    from millstream.cli import config

    _commands.add_typer(config.commands, name="config")


def _add_pipeline() -> None:
    from millstream.cli import pipeline

    _commands.add_typer(pipeline.commands, name="pipeline")


def _add_replay() -> None:
    from millstream.cli.replay import replay

    _commands.command()(replay)


def _add_bench() -> None:
    from millstream.cli.bench import bench

    _commands.command()(bench)


def _add_doctor() -> None:
    from millstream.cli.doctor import doctor

    _commands.command()(doctor)


_ADD = {
    "serve": _add_serve,
    "topic": _add_topic,
    "produce": _add_produce,
    "consume": _add_consume,
    "group": _add_group,
    "queue": _add_queue,
    "dlq": _add_dlq,
    "segment": _add_segment,
    "config": _add_config,
    "pipeline": _add_pipeline,
    "replay": _add_replay,
    "bench": _add_bench,
    "doctor": _add_doctor,
}
