"""The process of an isolated broker: `python -m millstream.testing`.

Its first line says which broker to be; the end of its input is the sign to stop.
"""

from __future__ import annotations

import sys
import threading
from concurrent.futures import Future
from functools import partial
from typing import Any

from millstream.errors import MillstreamError
from millstream.testing.control_lines import line_of, told, value_of
from millstream.testing.plan import Plan
from millstream.testing.thread_host import ThreadHost

_one_at_a_time = threading.Lock()


def main() -> None:
    """Do what the lines of stdin say, all at once, and answer each on stdout."""
    host = ThreadHost()
    first = value_of(sys.stdin.buffer.readline() or b"{}")
    if not first:
        return
    try:
        host.start(Plan(**first["values"]))
    except (MillstreamError, OSError) as error:
        _answer(first["id"], told(error))
        return
    _answer(first["id"], {"result": None})
    try:
        for line in sys.stdin.buffer:
            asked = value_of(line)
            begun = host.begin(asked["do"], asked["values"])
            begun.add_done_callback(partial(_finish, asked["id"]))
    finally:
        host.stop()


def _finish(number: int, done: Future[Any]) -> None:
    if done.cancelled():
        return
    error = done.exception()
    _answer(number, {"result": done.result()} if error is None else told(error))


def _answer(number: int, answer: dict[str, Any]) -> None:
    with _one_at_a_time:
        sys.stdout.buffer.write(line_of({"id": number, **answer}))
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
