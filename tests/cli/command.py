"""The command line as a person or a script runs it.

Most commands are run in this process, as that takes a tenth of the time; what is about pipes and
signals, and what waits, is run in one of its own.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

from millstream.cli import main
from tests.fakes.child_process import ChildProcess, Stream


class Done(NamedTuple):
    returncode: int
    stdout: bytes
    stderr: bytes


class Command:
    """Runs `millstream` against one broker."""

    def __init__(self, bootstrap: str, url: str = "") -> None:
        self.environment = {
            "MILLSTREAM_BOOTSTRAP": bootstrap,
            "MILLSTREAM_URL": url,
            "COLUMNS": "200",
        }

    def run(self, *arguments: str, stdin: bytes = b"") -> Done:
        """In this process."""
        with _streams(stdin) as (output, errors):
            code = 0
            with (
                patch.object(sys, "argv", ["millstream", *arguments]),
                patch.dict(os.environ, self.environment),
            ):
                try:
                    main()
                except SystemExit as end:
                    code = end.code if isinstance(end.code, int) else 0
            sys.stdout.flush()
            sys.stderr.flush()
            return Done(code, _content(output), _content(errors))

    def start(
        self, *arguments: str, stdout: Stream = subprocess.PIPE, stderr: Stream = subprocess.PIPE
    ) -> ChildProcess:
        """In a process of its own."""
        words = [sys.executable, "-m", "millstream", *arguments]
        environment = {**os.environ, **self.environment}
        return ChildProcess(*words, env=environment, stdout=stdout, stderr=stderr)

    def output(self, *arguments: str, stdin: bytes = b"") -> str:
        """What a command that goes well prints."""
        done = self.run(*arguments, stdin=stdin)
        assert (done.returncode, done.stderr) == (0, b""), done
        return done.stdout.decode()

    def objects(self, *arguments: str, stdin: bytes = b"") -> list[dict[str, Any]]:
        said = self.output(*arguments, "--json", stdin=stdin)
        return [json.loads(line) for line in said.splitlines()]

    def failure(self, code: int, *arguments: str, stdin: bytes = b"") -> str:
        """The one line of a command that must fail."""
        done = self.run(*arguments, stdin=stdin)
        said = done.stderr.decode()
        assert (done.returncode, done.stdout, said.count("\n")) == (code, b"", 1), done
        assert said.startswith("millstream: ")
        return said.removeprefix("millstream: ").rstrip("\n")


@contextmanager
def _streams(stdin: bytes) -> Iterator[tuple[io.TextIOWrapper, io.TextIOWrapper]]:
    """Files take the place of the three streams: what is written to the end of one is there."""
    with (
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as written,
        tempfile.TemporaryFile() as told,
    ):
        given.write(stdin)
        given.seek(0)
        output = io.TextIOWrapper(written, encoding="utf-8", write_through=True)
        errors = io.TextIOWrapper(told, encoding="utf-8", write_through=True)
        source = io.TextIOWrapper(given)
        with (
            patch.object(sys, "stdin", source),
            patch.object(sys, "stdout", output),
            patch.object(sys, "stderr", errors),
        ):
            yield output, errors
        for text in (source, output, errors):
            text.detach()


def _content(stream: io.TextIOWrapper) -> bytes:
    descriptor = stream.fileno()
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)
