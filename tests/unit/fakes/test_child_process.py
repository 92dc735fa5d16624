"""What tests with real processes rely on: no output is lost, and no process is left."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from tests.fakes.child_process import ChildProcess
from tests.fakes.patience import HANG_S

MANY = 20_000


def test_lines_taken_one_by_one_and_the_rest_are_all_that_was_written() -> None:
    program = f"for n in range({MANY}): print(n)"
    with ChildProcess.python("-c", program) as child:
        taken = [child.next_line() for _ in range(100)]
        done = child.finish()
    assert done.returncode == 0
    assert [*taken, *done.stdout.splitlines()] == [str(n) for n in range(MANY)]


def test_program_that_fills_both_pipes_does_not_block() -> None:
    program = "import sys; sys.stderr.write('e' * 1_000_000); sys.stdout.write('o' * 1_000_000)"
    with ChildProcess(*_python(program)) as child:
        assert child.finish() == (0, "o" * 1_000_000, "e" * 1_000_000)


def test_program_reads_what_is_written_and_ends_with_its_input() -> None:
    with ChildProcess(
        *_python("import sys\nfor line in sys.stdin: print(line, end='', flush=True)")
    ) as child:
        for word in ("one", "two"):
            child.write(f"{word}\n")
            assert child.next_line() == word
        assert child.is_running
        assert child.finish() == (0, "", "")


def test_killed_program_leaves_its_last_words_which_are_no_line() -> None:
    heard: list[str] = []
    program = "import sys; print('whole\\ncut', end='', flush=True); sys.stdin.read()"
    with ChildProcess.python("-c", program, on_line=heard.append) as child:
        assert child.next_line() == "whole"
        assert child.kill() == (-signal.SIGKILL, "cut", "")
        assert list(child.lines()) == []
    assert heard == ["whole"]


def test_program_is_gone_after_its_block() -> None:
    with ChildProcess.python(
        "-c", "print('up', flush=True); import time; time.sleep(1000)"
    ) as child:
        child.next_line()
        assert child.is_running
    assert not child.is_running


def test_line_that_does_not_come_fails_with_all_that_was_written() -> None:
    program = "import sys; print('one'); print('two', file=sys.stderr); sys.exit(3)"
    with ChildProcess(*_python(program)) as child:
        assert child.next_line() == "one"
        with pytest.raises(AssertionError, match=r"(?s)exit code is 3.*one\n.*two\n"):
            child.next_line()


def test_grandchild_that_keeps_the_pipe_open_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fakes.child_process.LAST_WORDS_S", 0.1)
    keep_open = "import time; time.sleep(1000)"
    program = f"""
import subprocess, sys
print(subprocess.Popen([sys.executable, "-c", {keep_open!r}]).pid, flush=True)
"""
    child = ChildProcess.python("-c", program)
    grandchild = int(child.next_line())
    try:
        for end in (child.finish, child.kill):
            with pytest.raises(AssertionError, match="has ended, but not its stdout"):
                end()
    finally:
        os.kill(grandchild, signal.SIGKILL)


def test_input_that_a_program_did_not_read_is_no_error_at_its_end() -> None:
    with ChildProcess.python("-c", "import sys; sys.stdin.close(); print('deaf')") as child:
        assert child.next_line() == "deaf"
        assert child.ends_within(HANG_S)
        with pytest.raises(BrokenPipeError):
            child.write("who is there?")
        assert child.finish().returncode == 0


def _python(program: str) -> list[str]:
    return [sys.executable, "-c", program]
