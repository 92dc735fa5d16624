"""A log that nobody reads holds up nobody, and what is left out of it is told."""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Iterator

import pytest

from millstream.telemetry.log_writer import MOST_WAITING, LogWriter

PIPE_BYTES = 1 << 16


@pytest.fixture
def pipe() -> Iterator[tuple[io.TextIOWrapper, io.TextIOWrapper]]:
    """Both ends; one that is full takes no more."""
    reading, writing = os.pipe()
    with open(reading, encoding="utf-8") as reader, open(writing, "w", encoding="utf-8") as writer:
        yield reader, writer


def event(text: str) -> logging.LogRecord:
    return logging.LogRecord("mill", logging.INFO, __file__, 1, text, None, None)


def test_events_are_written_in_their_order(
    pipe: tuple[io.TextIOWrapper, io.TextIOWrapper],
) -> None:
    reader, writer = pipe
    log = LogWriter(writer)
    for number in range(1000):
        log.emit(event(str(number)))
    assert [int(reader.readline()) for _ in range(1000)] == list(range(1000))


def test_reader_that_stalls_holds_up_nobody_and_is_told_what_was_left_out(
    pipe: tuple[io.TextIOWrapper, io.TextIOWrapper],
) -> None:
    reader, writer = pipe
    log = LogWriter(writer)
    total = 3 * MOST_WAITING
    for number in range(total):
        # More than a pipe takes, so that the thread is held up and this one is not.
        log.emit(event(f"{number} {'x' * 100}"))
    log.flush()
    told: list[int] = []
    left_out = 0
    while len(told) + left_out < total:
        line = reader.readline()
        if "were left out" in line:
            left_out += int(line.split()[0])
        else:
            told.append(int(line.split()[0]))
    assert left_out >= total - 2 * MOST_WAITING - PIPE_BYTES // 100
    assert told == sorted(told)
    log.emit(event("again"))
    assert reader.readline() == "again\n"


class ClosedPipe(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_stream_that_is_closed_ends_nothing() -> None:
    log = LogWriter(ClosedPipe())
    for _ in range(2):
        log.emit(event("unheard"))
        log.flush()
        assert log._is_idle()
