"""The writer process as the kernel sees it: when it syncs, and what it says when that fails."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.crash.killed_writer import Transcript, prove_directory, writer

ACKS = 60

pytestmark = [pytest.mark.system, pytest.mark.needs("strace")]


class Call(NamedTuple):
    """One system call, by the numbers of the lines where it began and ended."""

    name: str
    arguments: str
    result: str
    began: int
    ended: int


_LINE = re.compile(r"(?P<thread>\d+) +(?P<text>.*)")
_WHOLE = re.compile(r"(?P<name>\w+)\((?P<arguments>.*)\) += (?P<result>.*)")
_BEGUN = re.compile(r"(?P<name>\w+)\((?P<arguments>.*?) <unfinished \.\.\.>")
_RESUMED = re.compile(r"<\.\.\. (?P<name>\w+) resumed>.*\) += (?P<result>.*)")


def calls_in(trace: Path) -> Iterator[Call]:
    """The calls of a trace, in the order in which they ended."""
    begun: dict[str, tuple[str, int]] = {}
    for number, line in enumerate(trace.read_text().splitlines()):
        parts = _LINE.fullmatch(line)
        if parts is None:
            continue
        thread, text = parts["thread"], parts["text"]
        if whole := _WHOLE.fullmatch(text):
            yield Call(whole["name"], whole["arguments"], whole["result"], number, number)
        elif first := _BEGUN.fullmatch(text):
            begun[thread] = first["arguments"], number
        elif rest := _RESUMED.fullmatch(text):
            arguments, began = begun.pop(thread)
            yield Call(rest["name"], arguments, rest["result"], began, number)


def test_acknowledgement_is_said_after_the_sync_that_follows_the_write(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    options = ["-f", "-y", "-s", "64", "-e", "trace=pwritev,fdatasync,write", "-o", str(trace)]
    with writer(
        tmp_path / "data", "--acks", "all", "--topics", "1", tracer=["strace", *options]
    ) as process:
        acks = 0
        for line in process.lines():
            acks += line.startswith("ack ")
            if acks == ACKS:
                process.close_stdin()
        assert process.finish().returncode == 0
    calls = list(calls_in(trace))
    writes = [c for c in calls if c.name == "pwritev" and ".log>" in c.arguments]
    said = [c for c in calls if c.name == "write" and '"ack all ' in c.arguments]
    syncs = [c for c in calls if c.name == "fdatasync" and c.result == "0"]
    assert len(said) >= ACKS
    # This writer has one log and appends one batch at a time, so the calls come in pairs.
    for write, ack in zip(writes, said, strict=False):
        file = file_of(write)
        assert any(
            write.ended < sync.began <= sync.ended < ack.began and file_of(sync) == file
            for sync in syncs
        ), f"{ack.arguments} was said before {file} was synced"


def file_of(call: Call) -> str:
    found = re.match(r"\d+<([^>]+)>", call.arguments)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("failing", [2, 7, 30])
def test_failed_sync_ends_the_acknowledgements_of_its_log_alone(
    tmp_path: Path, failing: int
) -> None:
    # Calls are counted by thread, and one thread syncs both logs: this hits one of them, once.
    # (The first sync of the main thread is that of the checkpoint, without which nothing opens.)
    inject = f"inject=fdatasync:error=EIO:when={failing}"
    options = ["-f", "-e", "trace=fdatasync", "-e", inject, "-o", str(tmp_path / "trace")]
    transcript = Transcript()
    path = tmp_path / "data"
    stopped_at = None
    with writer(path, "--acks", "all", "--topics", "2", tracer=["strace", *options]) as process:
        for line in process.lines():
            transcript.note(line)
            if stopped_at is None and transcript.stopped():
                stopped_at = transcript.acks
            if stopped_at is not None and transcript.acks >= stopped_at + ACKS:
                process.close_stdin()
        assert process.finish().returncode == 0
    assert len(transcript.stopped()) == 1
    assert transcript.last == "closed"
    assert "EIO" in (tmp_path / "trace").read_text()
    prove_directory(path, transcript, close=True)
