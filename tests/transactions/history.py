"""What clients did and saw, one file of JSON lines for each worker.

A line is in the file before an action begins and after it has ended, so a killed worker's history
tells what it was about. Invariant: within a worker, lines are in the order in which things were;
between workers, times compare, because they are of one clock of the system.
After a crash: the last line may be torn, and then it is left out.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, Self

UNKNOWN_OFFSET = -1
NO_TRANSACTION = -1


class Phase(StrEnum):
    """How far an action is. After a failure it has certainly not happened; UNKNOWN is either."""

    INVOKE = "invoke"
    OK = "ok"
    FAIL = "fail"
    UNKNOWN = "unknown"


class Action(StrEnum):
    # A producer gets its transactional id, and fences whoever had it before.
    OPEN = "open"
    BEGIN = "begin"
    SEND = "send"
    # Offsets of a group, committed with the transaction.
    OFFSETS = "offsets"
    # The transaction is left alone for longer than it may take.
    STALL = "stall"
    COMMIT = "commit"
    ABORT = "abort"
    # A consumer has partitions from now on; a position that it was not told is UNKNOWN_OFFSET.
    ASSIGN = "assign"
    REVOKE = "revoke"
    SEEK = "seek"
    POLL = "poll"
    # A reader has read all below these positions, and no transaction is open there.
    END = "end"


class Record(NamedTuple):
    """A value in a partition; values are unique."""

    topic: str
    partition: int
    offset: int
    value: str


class Position(NamedTuple):
    topic: str
    partition: int
    offset: int


class Event(NamedTuple):
    """One line. `client` numbers the producers and the consumers that a worker had.

    `positions` of a send are those of the records that its value was made of.
    """

    worker: str
    line: int
    time_ns: int
    phase: Phase
    action: Action
    client: int = 0
    transaction: int = NO_TRANSACTION
    transactional_id: str = ""
    group: str = ""
    records: tuple[Record, ...] = ()
    positions: tuple[Position, ...] = ()
    error: str = ""


class Recorder:
    """Writes one worker's history."""

    def __init__(self, directory: Path, worker: str) -> None:
        self.worker = worker
        self._file = os.open(directory / f"{worker}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        self._line = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def note(self, phase: Phase, action: Action, **details: Any) -> None:
        """Not buffered: what is noted outlives this process."""
        event = Event(self.worker, self._line, time.monotonic_ns(), phase, action, **details)
        self._line += 1
        os.write(self._file, encode(event).encode() + b"\n")


def encode(event: Event) -> str:
    fields = zip(Event._fields, event, strict=True)
    defaults = Event._field_defaults
    kept = {name: each for name, each in fields if name not in defaults or each != defaults[name]}
    return json.dumps(kept, separators=(",", ":"))


def decode(line: str) -> Event:
    found = json.loads(line)
    found["phase"] = Phase(found["phase"])
    found["action"] = Action(found["action"])
    found["records"] = tuple(Record(*each) for each in found.get("records", ()))
    found["positions"] = tuple(Position(*each) for each in found.get("positions", ()))
    return Event(**found)


def read_history(directory: Path) -> list[Event]:
    return [event for path in sorted(directory.glob("*.jsonl")) for event in read_file(path)]


def read_file(path: Path) -> list[Event]:
    whole = path.read_text().split("\n")[:-1]
    return [decode(line) for line in whole]


def by_worker(history: Iterable[Event]) -> dict[str, Sequence[Event]]:
    """Each worker's events, in their order."""
    found: dict[str, list[Event]] = {}
    for event in history:
        found.setdefault(event.worker, []).append(event)
    for events in found.values():
        events.sort(key=lambda event: event.line)
    return dict(found)
