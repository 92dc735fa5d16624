"""A program in a process of its own.

One thread reads each pipe from the first byte to the last. No output is lost between two ways of
reading it, and no program blocks on a full pipe. A wait ends on an event; one that hangs fails with
everything that the program has written.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple, Self

from tests.fakes.patience import HANG_S

ROOT = Path(__file__).parents[2]
# After the end of a program, for what is still in its pipes.
LAST_WORDS_S = 60.0

OnLine = Callable[[str], None]
# A file, or one of the constants of subprocess. None shares the stream of the test process.
Stream = int | IO[bytes] | None


class Finished(NamedTuple):
    returncode: int
    # What was not yet taken line by line.
    stdout: str
    stderr: str


class ChildProcess:
    """Runs a command until it ends, is killed, or the block of the context manager is left.

    `on_line` is called with each line of stdout as it comes, in the thread that reads it. An
    unterminated last line is returned only by `finish` and `kill`.
    """

    def __init__(
        self,
        *command: str,
        cwd: Path = ROOT,
        env: Mapping[str, str] | None = None,
        stdin: Stream = subprocess.PIPE,
        stdout: Stream = subprocess.PIPE,
        stderr: Stream = subprocess.PIPE,
        on_line: OnLine | None = None,
    ) -> None:
        self._command = command
        self._process = subprocess.Popen(
            command, cwd=cwd, env=env, stdin=stdin, stdout=stdout, stderr=stderr
        )
        self._stdout = _PipeReader(self._process.stdout, on_line)
        self._stderr = _PipeReader(self._process.stderr, None)

    @classmethod
    def python(cls, *arguments: str, on_line: OnLine | None = None) -> Self:
        """Runs this interpreter; what it writes to stderr goes where that of the test goes."""
        return cls(sys.executable, *arguments, stderr=None, on_line=on_line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def next_line(self) -> str:
        """The next line of stdout, without its end."""
        return self._next(self._stdout, "stdout")

    def next_error(self) -> str:
        """The next line of stderr, without its end."""
        return self._next(self._stderr, "stderr")

    def lines(self) -> Iterator[str]:
        """The lines of stdout until it ends."""
        while (line := self._take(self._stdout, "stdout")) is not None:
            yield line

    def write(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text.encode())
        self._process.stdin.flush()

    def close_stdin(self) -> None:
        """A stream that the test gave is the test's to close."""
        if self._process.stdin is None:
            return
        # What was not flushed cannot be written to a program that has ended.
        with suppress(BrokenPipeError):
            self._process.stdin.close()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def ends_within(self, seconds: float) -> bool:
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def finish(self) -> Finished:
        """End its input, and wait for its end."""
        self.close_stdin()
        if not self.ends_within(HANG_S):
            self._end()
            raise AssertionError(self._report(f"has not ended for {HANG_S:.0f} s"))
        return self._result()

    def kill(self) -> Finished:
        """As `kill -9`, which does nothing to a process that has ended."""
        self._end()
        return self._result()

    def _end(self) -> None:
        self._process.kill()
        self.close_stdin()
        self._process.wait()

    def _result(self) -> Finished:
        for name, pipe in (("stdout", self._stdout), ("stderr", self._stderr)):
            # A child of the program may still write to it.
            assert pipe.join(), self._report(f"has ended, but not its {name}")
        return Finished(self._process.returncode, self._stdout.rest(), self._stderr.rest())

    def _next(self, pipe: _PipeReader, name: str) -> str:
        line = self._take(pipe, name)
        if line is None:
            # The report is better with the exit code and the rest of stderr.
            if self.ends_within(LAST_WORDS_S):
                self._stderr.join()
            raise AssertionError(self._report(f"has ended its {name}"))
        return line

    def _take(self, pipe: _PipeReader, name: str) -> str | None:
        try:
            return pipe.take()
        except TimeoutError:
            silence = f"has written no line to {name} for {HANG_S:.0f} s"
            raise AssertionError(self._report(silence)) from None

    def _report(self, what: str) -> str:
        """What went wrong, and all that the program has written."""
        return "\n".join(
            [
                f"{' '.join(self._command)}: {what}; its exit code is {self._process.poll()}",
                f"stdout:\n{self._stdout.text()}",
                f"stderr:\n{self._stderr.text()}",
            ]
        )


class _PipeReader:
    """The one reader of a pipe; of none, it reads nothing."""

    def __init__(self, pipe: IO[bytes] | None, on_line: OnLine | None) -> None:
        self._lines: list[str] = []
        self._taken = 0
        # The last line, if it has no end.
        self._cut = ""
        self._is_open = pipe is not None
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        if pipe is not None:
            self._thread = threading.Thread(target=self._read, args=(pipe, on_line), daemon=True)
            self._thread.start()

    def take(self) -> str | None:
        """Wait for the next line; None at the end of the pipe."""
        with self._changed:
            if not self._changed.wait_for(self._has_news, HANG_S):
                raise TimeoutError
            if self._taken == len(self._lines):
                return None
            self._taken += 1
            return self._lines[self._taken - 1]

    def join(self) -> bool:
        """Wait for the end of the pipe, after that of the program."""
        if self._thread is None:
            return True
        self._thread.join(LAST_WORDS_S)
        return not self._thread.is_alive()

    def rest(self) -> str:
        return self._joined(self._lines[self._taken :])

    def text(self) -> str:
        with self._changed:
            return self._joined(self._lines)

    def _has_news(self) -> bool:
        return self._taken < len(self._lines) or not self._is_open

    def _joined(self, lines: list[str]) -> str:
        return "".join(f"{line}\n" for line in lines) + self._cut

    def _read(self, pipe: IO[bytes], on_line: OnLine | None) -> None:
        try:
            with pipe:
                for raw in pipe:
                    text = raw.decode(errors="backslashreplace")
                    if text.endswith("\n"):
                        self._add(text[:-1], on_line)
                    else:
                        self._cut = text
        finally:
            with self._changed:
                self._is_open = False
                self._changed.notify_all()

    def _add(self, line: str, on_line: OnLine | None) -> None:
        if on_line is not None:
            on_line(line)
        with self._changed:
            self._lines.append(line)
            self._changed.notify_all()
