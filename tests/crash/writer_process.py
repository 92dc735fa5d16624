"""A real process that writes to a data directory until it is killed, or its input ends.

It says on standard output, a line each, and only when it is so:

    opening                                      it begins to recover the directory
    ready
    ack <acks> <topic> <offset> <crc>            a batch is stored as its acks promise: 1 or all
    trim <topic> <offset>                        records are about to be deleted
    trimmed <topic> <offset>                     and are
    stopped <topic> <reason>                     the disk failed under this log
    closed                                       all logs are closed

What a batch holds follows from its topic, producer and sequence alone, so that whoever reads the
directory later can tell what was written from what was not.

    python -m tests.crash.writer_process DIRECTORY [--acks all] [--topics 4] [--trim]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from functools import partial

from millstream.broker.housekeeping import Housekeeping
from millstream.clock import SystemClock
from millstream.errors import StorageFailure
from millstream.records import parse_header
from millstream.settings.log import LogSettings
from millstream.settings.storage import StorageSettings
from millstream.storage.data_directory import DataDirectory
from millstream.storage.filesystem import LocalFilesystem
from millstream.storage.flusher import Flusher
from millstream.storage.local_log import LocalLog
from tests.fakes.sample_batches import START_MS, batch_of

PRODUCERS = 3
RETENTION_BYTES = 100_000
SETTINGS = LogSettings(
    segment_bytes=16_000,
    index_interval_bytes=1000,
    retention_bytes=RETENTION_BYTES,
    retention_ms=-1,
    flush_ms=10,
    file_delete_delay_ms=20,
)
STORAGE = StorageSettings(
    cached_segments=4, checkpoint_ms=15, retention_check_ms=25, flush_threads=1
)


def topic_of(number: int) -> str:
    return f"topic-{number}"


def sequenced_batch(topic: str, producer: int, sequence: int) -> bytearray:
    """The batch that a producer writes with a sequence: always the same."""
    count = 1 + sequence % 3
    size = (sequence * 131 + producer * 17) % 1500
    values = [b"%b %d %d " % (topic.encode(), producer, sequence + n) for n in range(count)]
    values[-1] += b"." * size
    times_ms = [START_MS + sequence + n for n in range(count)]
    return batch_of(
        *values, timestamps_ms=times_ms, producer_id=producer, epoch=0, sequence=sequence
    )


def say(*words: object) -> None:
    # One write of a short line to a pipe is never mixed with another, nor half there.
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


class Writer:
    """Keeps one log busy."""

    def __init__(self, topic: str, log: LocalLog, flusher: Flusher, *, acks: str) -> None:
        self._topic = topic
        self._log = log
        self._flusher = flusher
        self._acks = acks
        self._next = dict.fromkeys(range(PRODUCERS), 0)
        for known in log.producers.producers():
            last = known.batches[-1]
            self._next[known.producer_id] = last.last_sequence + 1
            self._repeat(known.producer_id, last.base_sequence, last.base_offset)

    def _repeat(self, producer: int, sequence: int, offset: int) -> None:
        """A client that missed an answer asks again, and must be told the same."""
        assert self._log.append([sequenced_batch(self._topic, producer, sequence)]) == [offset]

    async def run(self, *, trim: bool) -> None:
        rounds = 0
        while self._log.failure is None:
            acks = self._acks or ("all" if rounds % 3 else "1")
            batches = self._batches(1 if self._acks else 1 + rounds % 5)
            await self._append(batches, acks)
            rounds += 1
            if trim and rounds % 10 == 0:
                self._trim()
            await asyncio.sleep(0)
        say("stopped", self._topic, self._log.failure)

    def _batches(self, count: int) -> list[bytearray]:
        batches = []
        for number in range(count):
            producer = (self._log.end_offset + number) % PRODUCERS
            batch = sequenced_batch(self._topic, producer, self._next[producer])
            self._next[producer] = parse_header(batch).last_sequence + 1
            batches.append(batch)
        return batches

    async def _append(self, batches: list[bytearray], acks: str) -> None:
        outcomes = self._log.append(batches)
        if not all(isinstance(outcome, int) for outcome in outcomes):
            assert self._log.failure is not None, outcomes
            return
        if acks == "all":
            failure = await durable(self._flusher, self._log)
            if failure is not None:
                return
        for batch, offset in zip(batches, outcomes, strict=True):
            say("ack", acks, self._topic, offset, parse_header(batch).crc)

    def _trim(self) -> None:
        offset = (self._log.start_offset + self._log.end_offset) // 2
        say("trim", self._topic, offset)
        self._log.delete_records(offset)
        say("trimmed", self._topic, offset)


async def durable(flusher: Flusher, log: LocalLog) -> StorageFailure | None:
    """Return when all that was appended is on disk, or cannot be."""
    done: asyncio.Future[StorageFailure | None] = asyncio.get_running_loop().create_future()

    def tell(failure: StorageFailure | None) -> None:
        if not done.cancelled():
            done.set_result(failure)

    flusher.when_durable(log, log.end_offset, tell)
    return await done


async def main(path: str, *, topics: int, acks: str, trim: bool) -> None:
    loop = asyncio.get_running_loop()
    filesystem, clock = LocalFilesystem(), SystemClock()
    say("opening")
    directory = DataDirectory(filesystem, path, storage=STORAGE, defaults=SETTINGS, clock=clock)
    present = {log.name for log in directory.logs()}
    for number in range(topics):
        if f"{topic_of(number)}/0" not in present:
            directory.create(topic_of(number), 0)

    def wake() -> None:
        loop.call_soon_threadsafe(flusher.collect)

    flusher = Flusher(threads=STORAGE.flush_threads, wake=wake)
    housekeeping = Housekeeping(
        directory, flusher, filesystem, storage=STORAGE, defaults=SETTINGS, clock=clock
    )
    say("ready")
    tasks = [asyncio.create_task(housekeeping.run())]
    for number in range(topics):
        topic = topic_of(number)
        writer = Writer(topic, directory.log(topic, 0), flusher, acks=acks)
        tasks.append(asyncio.create_task(writer.run(trim=trim and number == 0)))
    for task in tasks:
        task.add_done_callback(partial(end_if_failed, loop))
    await loop.run_in_executor(None, sys.stdin.read)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    flusher.close()
    directory.close()
    say("closed")


def end_if_failed(loop: asyncio.AbstractEventLoop, task: asyncio.Task[None]) -> None:
    """Our own bug must not look like a quiet writer."""
    if not task.cancelled() and (error := task.exception()):
        loop.call_exception_handler({"message": "a writer failed", "exception": error})
        os._exit(1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    parser.add_argument("--acks", default="")
    parser.add_argument("--topics", type=int, default=4)
    parser.add_argument("--trim", action="store_true")
    options = parser.parse_args()
    asyncio.run(
        main(options.directory, topics=options.topics, acks=options.acks, trim=options.trim)
    )
