"""`millstream produce` from a file and `millstream consume` to a pipe, as a person runs them.

Start of the process and all else is counted, and the broker shares the machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.broker_process import BrokerProcess
from benchmarks.row import Bar, Row

_LINE = b"%08d " + b"x" * 91 + b"\n"
_KEYED = b"key-%06d:" + b"x" * 89 + b"\n"
_KEYS = 1000
_ENOUGH = 200_000
"""Messages a second that a person is not to wait for."""


def measure(bench: Bench) -> list[Row]:
    messages = bench.scale.small_requests * 5
    with bench.place("command_line") as directory, BrokerProcess(directory) as broker:
        lines, keyed = Path(directory, "lines"), Path(directory, "keyed")
        lines.write_bytes(b"".join(_LINE % number for number in range(messages)))
        keyed.write_bytes(b"".join(_KEYED % (number % _KEYS) for number in range(messages)))
        run = _Runs(f"{broker.address[0]}:{broker.address[1]}")
        run("topic", "create", "plain")
        run("topic", "create", "keyed", "--partitions", "3")
        rounds = bench.rounds(bench.scale.server_rounds)
        took = [
            (
                run("produce", "plain", str(lines)),
                run("produce", "keyed", str(keyed), "--key-separator", ":"),
                run("consume", "plain", "--from", f"-{messages}", lines=messages),
            )
            for _ in rounds
        ]
        # What was not stored was not produced.
        for topic in ("plain", "keyed"):
            run("consume", topic, lines=messages * len(took))
    names = ("produce from a file", "produce with keys, 3 partitions", "consume to a pipe")
    return [
        Row(
            measure=f"command line, {name}",
            figure=messages / min(seconds),
            unit="msg/s",
            bar=Bar(min_figure=_ENOUGH),
        )
        for name, seconds in zip(names, zip(*took, strict=True), strict=True)
    ]


class _Runs:
    """Runs commands against one broker, and tells how long each took."""

    def __init__(self, bootstrap: str) -> None:
        self._environment = {**os.environ, "MILLSTREAM_BOOTSTRAP": bootstrap}

    def __call__(self, *words: str, lines: int | None = None) -> float:
        """Raises where it fails, or prints another number of lines than it should."""
        begin_s = time.perf_counter()
        process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-m", "millstream", *words],
            env=self._environment,
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        printed = 0
        with process.stdout as output:
            while piece := output.read(1 << 20):
                printed += piece.count(b"\n")
        code = process.wait()
        took_s = time.perf_counter() - begin_s
        if code or (lines is not None and printed != lines):
            what = f"millstream {' '.join(words)}"
            raise RuntimeError(f"{what} ended with {code} and {printed} lines, not {lines}")
        return took_s
