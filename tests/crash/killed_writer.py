"""Starts the writer process, notes what it writes, and proves what it left behind."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from millstream.clock import SystemClock
from millstream.records import BatchHeader
from millstream.records.batch import CRC_FROM
from millstream.storage.batch_walk import checked_batch, split_batches
from millstream.storage.data_directory import DataDirectory
from millstream.storage.filesystem import LocalFilesystem
from millstream.storage.local_log import LocalLog
from tests.crash.writer_process import RETENTION_BYTES, SETTINGS, STORAGE, sequenced_batch
from tests.fakes.child_process import ChildProcess

READ_BYTES = 50_000


@dataclass
class Heard:
    """What the writer said of one topic, over all its lives."""

    # Checksum of each batch that was acknowledged, by its offset.
    acked: dict[int, int] = field(default_factory=dict)
    durable: dict[int, int] = field(default_factory=dict)
    trimmed: int = 0
    trim_begun: int = 0
    stopped: bool = False


class Transcript:
    """All that was said."""

    def __init__(self) -> None:
        self.topics: dict[str, Heard] = defaultdict(Heard)
        self.acks = 0
        self.last = ""

    def stopped(self) -> list[str]:
        return [topic for topic, heard in self.topics.items() if heard.stopped]

    def note(self, line: str) -> None:
        self.last = line
        match line.split():
            case ["ack", acks, topic, offset, crc]:
                heard = self.topics[topic]
                assert not (heard.stopped and acks == "all"), f"after it had stopped: {line}"
                heard.acked[int(offset)] = int(crc)
                if acks == "all":
                    heard.durable[int(offset)] = int(crc)
                self.acks += 1
            case ["trim", topic, offset]:
                self.topics[topic].trim_begun = int(offset)
            case ["trimmed", topic, offset]:
                self.topics[topic].trimmed = int(offset)
            case ["stopped", topic, *_]:
                self.topics[topic].stopped = True


def writer(directory: Path, *options: str, tracer: Sequence[str] = ()) -> ChildProcess:
    command = [*tracer, sys.executable, "-m", "tests.crash.writer_process", str(directory)]
    return ChildProcess(*command, *options)


def prove_directory(path: Path, transcript: Transcript, *, close: bool) -> None:
    """Open the directory and prove all that was heard of it."""
    directory = DataDirectory(
        LocalFilesystem(), str(path), storage=STORAGE, defaults=SETTINGS, clock=SystemClock()
    )
    try:
        for log in directory.logs():
            topic, _, _ = log.name.partition("/")
            assert log.report.damage == []
            prove_log(log, topic, transcript.topics[topic])
        assert {log.name.partition("/")[0] for log in directory.logs()} >= transcript.topics.keys()
    finally:
        if close:
            directory.close()
        else:
            # Leave it as the dead process did, but for the lock.
            directory._lock.release()


def prove_log(log: LocalLog, topic: str, heard: Heard) -> None:
    found = {header.base_offset: header for header in _batches(log, topic)}
    acked = {o: crc for o, crc in heard.acked.items() if o >= log.start_offset}
    assert acked == {o: found[o].crc for o in acked if o in found}
    assert heard.trimmed <= log.start_offset
    if log.start_offset > heard.trim_begun:
        # Only its size can have taken away what nobody deleted.
        assert sum(segment.size for segment in log.segments()) >= RETENTION_BYTES


def _batches(log: LocalLog, topic: str) -> Iterator[BatchHeader]:
    """Every batch of a log, proved to be whole, in its place, and just what its sender sent."""
    sequences: dict[int, int] = {}
    offset = log.start_offset
    first = True
    while view := log.read(offset, READ_BYTES):
        for header, batch in split_batches(view):
            checked_batch(batch, 0, len(batch))
            assert header.base_offset == offset or (first and header.base_offset < offset)
            first = False
            sent = sequenced_batch(topic, header.producer_id, header.base_sequence)
            assert batch[CRC_FROM:] == sent[CRC_FROM:]
            expected = sequences.get(header.producer_id, header.base_sequence)
            assert header.base_sequence == expected
            sequences[header.producer_id] = header.last_sequence + 1
            offset = header.next_offset
            yield header
    assert offset == log.end_offset
