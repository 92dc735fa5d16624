"""`millstream serve`: run a broker in the foreground."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from typing import Annotated

import typer


def serve(
    data_dir: Annotated[
        str | None,
        typer.Option(help="Directory that holds all data.", show_default="./data"),
    ] = None,
    kafka: Annotated[
        str | None,
        typer.Option(
            help="HOST:PORT for Kafka clients; port 0 takes a free one, off closes the door.",
            show_default="127.0.0.1:9092",
        ),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(
            help="HOST:PORT for HTTP clients; port 0 takes a free one, off closes the door.",
            show_default="127.0.0.1:8000",
        ),
    ] = None,
    pylogstreams: Annotated[
        str | None,
        typer.Option(
            help="HOST:PORT for PyLogStreams clients; port 0 takes a free one, off closes it.",
            show_default="127.0.0.1:1234",
        ),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            help="TOML file with settings; the environment and flags override it.",
            show_default="MILLSTREAM_CONFIG",
            metavar="FILE",
        ),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Any other setting, as log.segment.bytes=1024. May be repeated.",
            metavar="SECTION.NAME=VALUE",
        ),
    ] = None,
) -> None:
    """Run a broker until it is told to stop by SIGTERM or Ctrl-C. SIGHUP reloads its settings.

    At a terminal SIGHUP stops it, as a terminal that closes sends it, unless nohup runs it.
    """
    # Who reloads a broker that has just been started must not end it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    # The broker takes a while to import, and no other command needs it.
    from millstream import app
    from millstream.settings import loader
    from millstream.telemetry.logs import start_logging

    flags = {
        "data.dir": data_dir,
        "listeners": kafka,
        "http.listener": http,
        "pylogstreams.listener": pylogstreams,
    }
    given = {name: value for name, value in flags.items() if value is not None}

    def read() -> loader.Settings:
        return loader.load(
            config, environment=os.environ, flags=given, assignments=assignments or ()
        )

    settings = read()
    start_logging(settings.telemetry, sys.stderr)
    app.run(settings, say=_say, reread=read, stops_on_hangup=_is_at_terminal())


def _is_at_terminal() -> bool:
    """Whether a terminal that closes is to end the broker; not with nohup."""
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return sys.stdin is not None and sys.stdin.isatty() and not is_ignored


def _say(line: str) -> None:
    # Whoever waits for the line that says ready reads a pipe, and may leave after it.
    with suppress(OSError):
        print(line, flush=True)
