"""Entry point of `millstream` and of `python -m millstream`."""

from __future__ import annotations

import sys

_INTERRUPTED = 130


def main() -> None:
    """Run a command. Ctrl-C while it is still being loaded is no reason for a traceback."""
    try:
        from millstream.cli import main as run_command

        run_command()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
