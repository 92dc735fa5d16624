#!/usr/bin/env python3
"""Run a make target several times, with and without other load, and print a row for each run.

    scripts/repeat.py test --times 10 --busy 5
    scripts/repeat.py test --times 3 ARGS="tests/crash -k recovery"

Further arguments are passed to make. The busy loops end when this process ends, however it ends:
each of them watches its parent. Every run's log is kept. Exits with 1 if a run failed.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STOP_TIMEOUT_S = 60
ROW = "{:>3}  {:<5} {:<9} {:>8} {:>8} {:>8}  {}"

_BUSY_LOOP = """
import os, sys
while os.getppid() == int(sys.argv[1]):
    for _ in range(1_000_000):
        pass
"""
_CLOSING_LINE = re.compile(r"^(?:=+ )?\d+ [a-z]+\b.* in \d+\.\d+s\b")
_PASSED = re.compile(r"\b(\d+) passed\b")
# Written by tests/fakes/programs.py.
_LEFT_OUT = re.compile(r"^left out (\d+) tests?\b", re.MULTILINE)
_FAILURE = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Run:
    """How one run of make ended."""

    exit_code: int
    seconds: float
    output: str

    @property
    def result(self) -> str:
        return "ok" if self.exit_code == 0 else f"exit {self.exit_code}"

    @property
    def passed(self) -> int:
        closing = [line for line in self.output.splitlines() if _CLOSING_LINE.match(line)]
        return sum(int(number) for line in closing for number in _PASSED.findall(line))

    @property
    def left_out(self) -> int:
        """How many tests were not run because a program is absent."""
        return sum(map(int, _LEFT_OUT.findall(self.output)))

    @property
    def failures(self) -> list[str]:
        return sorted(set(_FAILURE.findall(self.output)))


def main() -> int:
    options = _options()
    # So that the clean-up below happens then too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.default_int_handler)
    logs = options.logs or Path(tempfile.mkdtemp(prefix=f"repeat-{options.target}-"))
    logs.mkdir(parents=True, exist_ok=True)
    print(f"logs in {logs}", flush=True)
    print(ROW.format("run", "load", "result", "seconds", "passed", "left out", "failed tests"))
    failed_count = 0
    for number in range(1, options.times + 1):
        is_busy = number > options.times - options.busy
        with busy_loops(options.loops if is_busy else 0):
            run = run_make([options.target, *options.words], logs / f"{number:03}.log")
        failed_count += run.exit_code != 0
        load = "busy" if is_busy else "-"
        counts = run.passed, run.left_out
        names = " ".join(run.failures) or "-"
        print(
            ROW.format(number, load, run.result, f"{run.seconds:.0f}", *counts, names), flush=True
        )
    print(f"{options.times - failed_count} of {options.times} runs passed")
    return 1 if failed_count else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Run a make target several times and print a row for each run."
    )
    parser.add_argument("target", help="the target of make")
    parser.add_argument("words", nargs="*", help='more arguments for make, as ARGS="-k recovery"')
    parser.add_argument("--times", type=int, default=10, help="how many runs (%(default)s)")
    parser.add_argument(
        "--busy",
        type=int,
        default=0,
        metavar="N",
        help="run busy loops beside the last N runs (%(default)s)",
    )
    parser.add_argument("--loops", type=int, default=4, help="how many busy loops (%(default)s)")
    parser.add_argument("--logs", type=Path, help="directory for the logs (a new temporary one)")
    return parser.parse_intermixed_args()


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    command = [sys.executable, "-c", _BUSY_LOOP, str(os.getpid())]
    loops = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
        for loop in loops:
            loop.wait()


def run_make(words: list[str], log: Path) -> Run:
    started_at = time.monotonic()
    with log.open("w") as output:
        # In a process group of its own, which is stopped as a whole.
        make = subprocess.Popen(
            ["make", *words],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            exit_code = make.wait()
        except KeyboardInterrupt:
            stop_group(make)
            raise
    seconds = time.monotonic() - started_at
    return Run(exit_code, seconds, log.read_text(errors="replace"))


def stop_group(leader: subprocess.Popen[bytes]) -> None:
    """Interrupt a process group, and kill it if it does not end."""
    os.killpg(leader.pid, signal.SIGINT)
    try:
        leader.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(leader.pid, signal.SIGKILL)
        leader.wait()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted")
