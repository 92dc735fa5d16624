"""Anomalies of how consumers moved, and of what groups processed.

The order that they are held to is what all readers together saw in a partition: without values that
should not have been seen, or that were seen in two places, because those are told of as what they
are. What nobody saw is lost, and not skipped.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from tests.transactions.anomaly import Anomaly, Kind
from tests.transactions.history import Event
from tests.transactions.reading import Read, Readings, Stint
from tests.transactions.write_checks import is_missing
from tests.transactions.write_ledger import Outcome, Partition, Write, WriteLedger

Order = dict[Partition, list[int]]


def reader_anomalies(ledger: WriteLedger, readings: Readings) -> Iterator[Anomaly]:
    order = _order(ledger, readings)
    for stint in readings.stints:
        yield from _nonmonotonic_polls(stint)
        yield from _poll_skips(stint, order)
    yield from _group_skips(readings, order)
    yield from _processing(ledger, readings, order)


def _order(ledger: WriteLedger, readings: Readings) -> Order:
    offsets: dict[Partition, set[int]] = {}
    for value, reads in readings.reads.items():
        write = ledger.writes.get(value)
        is_right = write is not None and write.outcome is not Outcome.ABORTED
        if is_right and len(readings.places(value)) == 1:
            record = reads[0].record
            offsets.setdefault(record[:2], set()).add(record.offset)
    return {partition: sorted(found) for partition, found in offsets.items()}


def _within(offsets: Sequence[int], span: range) -> Sequence[int]:
    return offsets[bisect_left(offsets, span.start) : bisect_left(offsets, span.stop)]


def _nonmonotonic_polls(stint: Stint) -> Iterator[Anomaly]:
    position, before = stint.start, stint.began
    for record, event in stint.reads:
        if record.offset < position:
            is_internal = event is before
            kind = Kind.INTERNAL_NONMONOTONIC_POLL if is_internal else Kind.NONMONOTONIC_POLL
            detail = f"{record} was read at position {position}"
            yield Anomaly(kind, detail, (event,) if is_internal else (before, event))
        position, before = record.offset + 1, event


def _poll_skips(stint: Stint, order: Order) -> Iterator[Anomaly]:
    """One anomaly for each gap, however wide."""
    skipped = _skipped_by(stint, order)
    if not skipped:
        return
    reads = sorted(stint.reads, key=lambda read: read.record.offset)
    gaps: dict[int, list[int]] = {}
    for offset in skipped:
        gaps.setdefault(_index_after(reads, offset), []).append(offset)
    for index, offsets in gaps.items():
        before = reads[index - 1].event if index else stint.began
        after = reads[index].event if index < len(reads) else stint.ended
        assert after is not None
        is_internal = before is after
        kind = Kind.INTERNAL_POLL_SKIP if is_internal else Kind.POLL_SKIP
        detail = f"{stint.client} did not see {_some(offsets)} of {stint.partition}"
        yield Anomaly(kind, detail, (before,) if is_internal else (before, after))


def _skipped_by(stint: Stint, order: Order) -> list[int]:
    seen = stint.read_offsets()
    known = _within(order.get(stint.partition, ()), stint.span)
    return [offset for offset in known if offset not in seen]


def _index_after(reads: Sequence[Read], offset: int) -> int:
    return bisect_left(reads, offset, key=lambda read: read.record.offset)


def _group_skips(readings: Readings, order: Order) -> Iterator[Anomaly]:
    """What fell between members; what one of them skipped by itself was told already."""
    stints: dict[tuple[str, Partition], list[Stint]] = {}
    for stint in readings.stints:
        if stint.group and stint.reads:
            stints.setdefault((stint.group, stint.partition), []).append(stint)
    for (group, partition), members in stints.items():
        spans = [stint.span for stint in members]
        whole = range(min(span.start for span in spans), max(span.stop for span in spans))
        covered = {offset for span in spans for offset in span}
        known = _within(order.get(partition, ()), whole)
        missed = [offset for offset in known if offset not in covered]
        if missed:
            detail = f"no member of {group} saw {_some(missed)} of {partition}"
            yield Anomaly(Kind.GROUP_SKIP, detail, tuple(each.began for each in members))


def _processing(ledger: WriteLedger, readings: Readings, order: Order) -> Iterator[Anomaly]:
    """A group's records and offsets go together: each record has the results of one transaction."""
    certain: dict[tuple[str, Partition], dict[int, list[Write]]] = {}
    possible: dict[tuple[str, Partition], set[int]] = {}
    for write in ledger.writes.values():
        if write.outcome is Outcome.ABORTED:
            continue
        for topic, number, offset in write.sources:
            key = write.sent.group, (topic, number)
            if readings.is_seen(write.value):
                certain.setdefault(key, {}).setdefault(offset, []).append(write)
            if write.outcome is Outcome.COMMITTED or not is_missing(write, readings):
                possible.setdefault(key, set()).add(offset)
    for (group, partition), results in certain.items():
        yield from _processed_twice(group, partition, results)
        known = _within(order.get(partition, ()), range(max(results) + 1))
        never = [offset for offset in known if offset not in possible[group, partition]]
        if never:
            detail = f"{group} went past {_some(never)} of {partition}"
            yield Anomaly(Kind.NEVER_PROCESSED, detail, results[max(results)][0].events)


def _processed_twice(
    group: str, partition: Partition, results: dict[int, list[Write]]
) -> Iterator[Anomaly]:
    for offset, writes in results.items():
        if len(writes) > 1:
            values = [write.value for write in writes]
            detail = f"{group} made {values} of {offset} of {partition}"
            events: tuple[Event, ...] = tuple(write.sent for write in writes)
            yield Anomaly(Kind.PROCESSED_TWICE, detail, events)


def _some(offsets: Sequence[int]) -> str:
    shown = ", ".join(str(offset) for offset in offsets[:8])
    return shown if len(offsets) <= 8 else f"{shown} and {len(offsets) - 8} more"
