"""`millstream serve`: run a broker in the foreground."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

import typer

from millstream import app
from millstream.settings import loader


def serve(
    data_dir: Annotated[
        str | None,
        typer.Option(help="Directory that holds all data.", show_default="./data"),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(help="TOML file with settings; flags override it."),
    ] = None,
) -> None:
    """Run a broker until it is told to stop by SIGTERM or Ctrl-C."""
    flags = {} if data_dir is None else {"data.dir": data_dir}
    app.run(loader.load(config, flags=flags), say=_say)


def _say(line: str) -> None:
    # Whoever waits for the line that says ready reads a pipe, and may leave after it.
    with suppress(OSError):
        print(line, flush=True)
