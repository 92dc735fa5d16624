"""Opening a log of 1,000 segments after a clean stop: how long, and that no data is read.

Reads are counted underneath the engine, by a filesystem that passes everything on and takes note
of each record file that is mapped or read.
"""

from __future__ import annotations

from statistics import median

from benchmarks.bench import Bench, fill, open_log
from benchmarks.row import Bar, Row
from benchmarks.stopwatch import Stopwatch
from benchmarks.workload import batch_of_size
from millstream.settings.log import LogSettings
from millstream.storage.filesystem import File, LocalFile, LocalFilesystem
from millstream.storage.segment import LOG_SUFFIX


def measure(bench: Bench) -> list[Row]:
    segments = bench.scale.reopen_segments
    settings = LogSettings(segment_bytes=bench.scale.reopen_segment_bytes)
    filesystem = _CountingFilesystem()
    seconds = []
    with bench.place("reopen") as directory:
        bench.prepares(f"writing {segments:,} segments")
        batch = batch_of_size(settings.segment_bytes)
        log = open_log(directory, settings)
        fill(log, [batch], segments * len(batch))
        for _ in bench.rounds():
            log.close()
            checkpoint = log.checkpoint()
            with Stopwatch() as watch:
                log = open_log(directory, settings, checkpoint=checkpoint, filesystem=filesystem)
            seconds.append(watch.wall_s)
            assert log.report.clean
            assert len(log.segments()) == segments
        log.close()
    return [
        Row(
            measure=f"open after a clean stop, {segments:,} segments",
            figure=median(seconds),
            unit="s",
            bar=Bar(max_figure=1),
        ),
        Row(
            measure="the same, reads of record files",
            figure=filesystem.record_file_reads,
            bar=Bar(max_figure=0),
            details={"reads of other files": filesystem.other_reads / len(seconds)},
        ),
    ]


class _CountingFilesystem(LocalFilesystem):
    """Counts the reads and mappings of files."""

    def __init__(self) -> None:
        self.record_file_reads = 0
        self.other_reads = 0

    def open(self, path: str, *, create: bool = False) -> LocalFile:
        return _CountingFile(super().open(path, create=create), self)

    def open_for_reading(self, path: str) -> LocalFile:
        return _CountingFile(super().open_for_reading(path), self)

    def count(self, file: File) -> None:
        if file.path.endswith(LOG_SUFFIX):
            self.record_file_reads += 1
        else:
            self.other_reads += 1


class _CountingFile(LocalFile):
    """Takes over an open file."""

    __slots__ = ("_counter",)

    def __init__(self, file: LocalFile, counter: _CountingFilesystem) -> None:
        super().__init__(file.path, file._fd)
        self._counter = counter

    def read(self, position: int, size: int) -> bytes:
        self._counter.count(self)
        return super().read(position, size)

    def map(self) -> memoryview:
        self._counter.count(self)
        return super().map()
