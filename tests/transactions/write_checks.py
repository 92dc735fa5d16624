"""Anomalies of what was written: whether it is there, once, whole, and where it was said to be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tests.transactions.anomaly import Anomaly, Kind
from tests.transactions.history import UNKNOWN_OFFSET, Event
from tests.transactions.reading import Readings
from tests.transactions.write_ledger import Client, Outcome, Partition, Write, WriteLedger


def write_anomalies(ledger: WriteLedger, readings: Readings) -> Iterator[Anomaly]:
    yield from _lost_writes(ledger, readings)
    yield from _torn_transactions(ledger, readings)
    yield from _duplicates(readings)
    yield from _inconsistent_offsets(ledger, readings)
    yield from _forbidden_reads(ledger, readings)
    yield from _nonmonotonic_sends(ledger.writes.values())
    yield from _zombie_commits(ledger)


def is_missing(write: Write, readings: Readings) -> bool:
    """Nobody saw it, though somebody went past it."""
    if readings.is_seen(write.value):
        return False
    if write.offset == UNKNOWN_OFFSET:
        return readings.has_end(write.partition)
    return readings.goes_past(write.partition, write.offset)


def _lost_writes(ledger: WriteLedger, readings: Readings) -> Iterator[Anomaly]:
    for write in ledger.writes.values():
        is_due = write.is_acked and write.outcome is Outcome.COMMITTED
        if is_due and is_missing(write, readings):
            commits = write.transaction.commits if write.transaction else ()
            detail = f"{write.value} at {write.offset} of {write.partition} was never read"
            yield Anomaly(Kind.LOST_WRITE, detail, (*write.events, *commits))


def _torn_transactions(ledger: WriteLedger, readings: Readings) -> Iterator[Anomaly]:
    for transaction in ledger.transactions.values():
        if transaction.outcome is Outcome.ABORTED:
            continue
        seen = [write for write in transaction.writes if readings.is_seen(write.value)]
        acked = [write for write in transaction.writes if write.is_acked]
        missing = [write for write in acked if is_missing(write, readings)]
        if seen and missing:
            there, away = ([each.value for each in group] for group in (seen, missing))
            events = (transaction.began, *missing[0].events, *transaction.commits)
            yield Anomaly(Kind.TORN_TRANSACTION, f"{there} are there, {away} are not", events)


def _duplicates(readings: Readings) -> Iterator[Anomaly]:
    for value, reads in readings.reads.items():
        first_at = {read.record[:3]: read.event for read in reversed(reads)}
        if len(first_at) > 1:
            detail = f"{value} is at {sorted(first_at)}"
            yield Anomaly(Kind.DUPLICATE, detail, tuple(first_at.values()))


def _inconsistent_offsets(ledger: WriteLedger, readings: Readings) -> Iterator[Anomaly]:
    told: dict[tuple[str, int, int], dict[str, Event]] = {}
    for write in ledger.writes.values():
        if write.offset != UNKNOWN_OFFSET and write.ended is not None:
            told.setdefault((*write.partition, write.offset), {})[write.value] = write.ended
    for read in readings.all_reads():
        told.setdefault(read.record[:3], {}).setdefault(read.record.value, read.event)
    for place, values in told.items():
        if len(values) > 1:
            detail = f"{sorted(values)} are all at {place}"
            yield Anomaly(Kind.INCONSISTENT_OFFSETS, detail, tuple(values.values()))
    for write in ledger.writes.values():
        places = readings.places(write.value)
        # What was read in two places is told as a duplicate.
        if write.offset != UNKNOWN_OFFSET and len(places) == 1:
            [place] = places
            if place[:2] == write.partition and place[2] != write.offset:
                detail = f"{write.value} was to be at {write.offset}, and was read at {place}"
                events = (*write.events, readings.reads[write.value][0].event)
                yield Anomaly(Kind.INCONSISTENT_OFFSETS, detail, events)


def _forbidden_reads(ledger: WriteLedger, readings: Readings) -> Iterator[Anomaly]:
    """Each value once, with the first read that shows it."""
    for value, reads in readings.reads.items():
        write = ledger.writes.get(value)
        strange = [r for r in reads if write is None or r.record[:2] != write.partition]
        if strange:
            detail = f"{value} was never sent to {strange[0].record[:2]}"
            yield Anomaly(Kind.PHANTOM_READ, detail, (strange[0].event,))
        if write is None:
            continue
        first = min((read.event for read in reads), key=lambda event: event.time_ns)
        transaction = write.transaction
        commit_ns = transaction.commit_invoked_ns if transaction else None
        if write.outcome is Outcome.ABORTED:
            yield Anomaly(Kind.ABORTED_READ, f"{value} was read", (*write.events, first))
        elif transaction and commit_ns is not None and first.time_ns < commit_ns:
            detail = f"{value} was read before its commit"
            yield Anomaly(Kind.INTERMEDIATE_READ, detail, (*transaction.commits, first))


def _nonmonotonic_sends(writes: Iterable[Write]) -> Iterator[Anomaly]:
    """What a producer sent later has a larger offset, among what was acknowledged."""
    highest: dict[tuple[Client, Partition], Write] = {}
    for write in writes:
        if write.offset == UNKNOWN_OFFSET:
            continue
        before = highest.setdefault((write.client, write.partition), write)
        if write.offset < before.offset:
            is_internal = write.transaction is not None and write.transaction is before.transaction
            kind = Kind.INTERNAL_NONMONOTONIC_SEND if is_internal else Kind.NONMONOTONIC_SEND
            detail = f"{write.value} at {write.offset} came after {before.value} at {before.offset}"
            yield Anomaly(kind, detail, (*before.events, *write.events))
        else:
            highest[write.client, write.partition] = write


def _zombie_commits(ledger: WriteLedger) -> Iterator[Anomaly]:
    for transaction in ledger.transactions.values():
        if transaction.fenced and transaction.outcome is Outcome.COMMITTED:
            detail = f"{transaction.transactional_id} belonged to {transaction.fenced.client}"
            events = (transaction.began, transaction.fenced.done, *transaction.commits)
            yield Anomaly(Kind.ZOMBIE_COMMIT, detail, events)
