"""Entry point of `millstream` and of `python -m millstream`."""

from __future__ import annotations

import os
import sys

_INTERRUPTED = 130


def main() -> None:
    """Run a command. Ctrl-C while it is still being loaded is no reason for a traceback."""
    _open_closed_streams()
    try:
        from millstream.cli import main as run_command

        run_command()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


def _open_closed_streams() -> None:
    """Put something in the place of standard streams that whoever started us has closed.

    Otherwise the first files that are opened get their numbers, and what is meant for the terminal
    is written into them. To read from such a stream or to write to it fails, as it must; only
    what is told on the side is told to nobody.
    """
    for number, flags in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free, which is this one.
            os.open(os.devnull, flags)
    if sys.stdin is None:
        sys.stdin = os.fdopen(0, closefd=False)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)


if __name__ == "__main__":
    main()
