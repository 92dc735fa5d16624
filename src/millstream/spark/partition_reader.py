"""Reads one range of one partition in an executor: bytes from the broker, Arrow batches out.

Invariant: every record of the range comes out once, in order, or an error is raised; with
failOnDataLoss=false what is gone is passed over with a warning.
After a crash: nothing is kept; the task reads its range again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.client.kafka import Cluster, ClusterSettings, StreamFetcher
from millstream.errors import OffsetOutOfRange, ReadStalled, TimedOut, UnknownTopic
from millstream.errors.spark import LostRange
from millstream.records.arrow import ColumnReader
from millstream.records.batch import parse_header
from millstream.spark.offsets import LATEST, OffsetRange, Offsets, Place
from millstream.spark.options import SourceOptions
from millstream.spark.planning import report_loss

if TYPE_CHECKING:
    import pyarrow as pa

_SAMPLE_BYTES = 256 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSettings:
    """What a task must know besides its range."""

    cluster: ClusterSettings
    columns: tuple[str, ...]
    committed: bool
    fail_on_data_loss: bool

    @classmethod
    def of(cls, options: SourceOptions) -> ReadSettings:
        return cls(
            cluster=options.cluster,
            columns=options.columns,
            committed=options.committed,
            fail_on_data_loss=options.fail_on_data_loss,
        )


def read_range(whole: OffsetRange, settings: ReadSettings) -> Iterator[pa.RecordBatch]:
    """Raises DataLost, CorruptData, or Unavailable when brokers stay away."""
    with Cluster(settings.cluster) as cluster:
        start = whole.start
        while start < whole.end:
            reader = ColumnReader(
                whole.topic,
                whole.partition,
                columns=settings.columns,
                start=start,
                end=whole.end,
                committed=settings.committed,
            )
            lost = None
            try:
                for fetched in StreamFetcher(
                    cluster, whole.place, start=start, end=whole.end, committed=settings.committed
                ):
                    yield from reader.feed(fetched.records, fetched.aborted)
            except OffsetOutOfRange as outside:
                lost = _lost_outside(whole, reader.next_offset, outside)
            except TimedOut:
                lost = _lost_at_end(cluster, whole, reader.next_offset, settings)
            except UnknownTopic:
                lost = _lost_rest(whole, reader.next_offset, "the partition is gone")
            yield from reader.rest()
            if lost is None:
                return
            report_loss([lost], fail=settings.fail_on_data_loss)
            start = lost.end or whole.end


def bytes_per_offset(cluster: Cluster, starts: Offsets, *, committed: bool) -> dict[Place, float]:
    """How many stored bytes an offset takes, by a sample of each partition from its start on."""
    rates: dict[Place, float] = {}
    for place, start in starts.items():
        fetched = cluster.fetch(
            place, start, max_bytes=_SAMPLE_BYTES, max_wait_ms=0, committed=committed
        )
        if fetched.records:
            first = parse_header(fetched.records).base_offset
            rates[place] = len(fetched.records) / max(fetched.next_offset - first, 1)
    return rates


def _lost_outside(whole: OffsetRange, at: int, outside: OffsetOutOfRange) -> LostRange:
    """What a range has lost of which the broker has neither an offset nor what follows."""
    if outside.start_offset <= at:
        return _lost_rest(whole, at, f"the log now ends at {outside.end_offset}")
    return LostRange(
        topic=whole.topic,
        partition=whole.partition,
        start=at,
        end=min(outside.start_offset, whole.end),
        reason=f"the log now begins at {outside.start_offset}",
    )


def _lost_at_end(
    cluster: Cluster, whole: OffsetRange, at: int, settings: ReadSettings
) -> LostRange:
    """What is lost of a range where no more came in time. Raises ReadStalled where it is there."""
    latest = cluster.offsets([whole.place], LATEST, committed=settings.committed)[whole.place]
    if latest >= whole.end:
        raise ReadStalled(topic=whole.topic, partition=whole.partition, offset=at, end=whole.end)
    return _lost_rest(whole, at, f"the log now ends at {latest}")


def _lost_rest(whole: OffsetRange, at: int, reason: str) -> LostRange:
    return LostRange(
        topic=whole.topic, partition=whole.partition, start=at, end=whole.end, reason=reason
    )
