"""Ways to spoil a valid history, each with the anomalies that it must be found by.

A mutation takes a history and a source of choices; it says None where there is nothing to spoil.
The last reader of a history, which read all partitions to their ends, is called `final`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from random import Random

from tests.transactions.anomaly import Kind
from tests.transactions.history import UNKNOWN_OFFSET, Action, Event, Position, Record
from tests.transactions.reading import Readings, Stint
from tests.transactions.write_ledger import Outcome, Write, WriteLedger

History = Sequence[Event]
Mutation = Callable[[History, Random], "list[Event] | None"]


def drop_committed_write(history: History, random: Random) -> list[Event] | None:
    readings = Readings(history)
    due = [
        write.value
        for write in WriteLedger(history).writes.values()
        if write.outcome is Outcome.COMMITTED and readings.is_seen(write.value)
    ]
    return _without(history, random.choice(due)) if due else None


def repeat_write(history: History, random: Random) -> list[Event] | None:
    """At the end of its partition, once more."""
    final = [stint for stint in _final_stints(history) if stint.reads]
    if not final:
        return None
    stint = random.choice(final)
    repeated = random.choice(stint.reads).record._replace(offset=stint.end_offset)
    mutated = _with_record(history, stint, repeated)
    return [_end_moved(event, stint) if event == stint.ended else event for event in mutated]


def show_aborted_write(history: History, random: Random) -> list[Event] | None:
    aborted = [
        write
        for write in WriteLedger(history).writes.values()
        if write.outcome is Outcome.ABORTED and write.offset != UNKNOWN_OFFSET
    ]
    if not aborted:
        return None
    write = random.choice(aborted)
    shown = Record(*write.partition, write.offset, write.value)
    [stint] = [each for each in _final_stints(history) if each.partition == write.partition]
    return _with_record(history, stint, shown)


def split_transaction(history: History, random: Random) -> list[Event] | None:
    readings = Readings(history)
    candidates = [
        transaction.writes
        for transaction in WriteLedger(history).transactions.values()
        if len([w for w in transaction.writes if w.is_acked and readings.is_seen(w.value)]) > 1
    ]
    if not candidates:
        return None
    acked = [write for write in random.choice(candidates) if write.is_acked]
    return _without(history, random.choice(acked).value)


def swap_reads(history: History, random: Random) -> list[Event] | None:
    pairs = [
        (event, index)
        for event in history
        for index, (one, next_one) in enumerate(pairwise(event.records))
        if one[:2] == next_one[:2]
    ]
    if not pairs:
        return None
    spoiled, index = random.choice(pairs)
    records = list(spoiled.records)
    records[index], records[index + 1] = records[index + 1], records[index]
    return _with_records(history, spoiled, records)


def repeat_poll(history: History, random: Random) -> list[Event] | None:
    """A consumer is given again what it has had."""
    stints = [stint for stint in Readings(history).stints if stint.reads]
    if not stints:
        return None
    stint = random.choice(stints)
    [first, *_], last = stint.reads, stint.reads[-1]
    again = [*last.event.records, first.record]
    return _with_records(history, last.event, again)


def skip_in_poll(history: History, random: Random) -> list[Event] | None:
    """One consumer goes past what others see."""
    chances = []
    readings = Readings(history)
    for stint in readings.stints:
        last = max(stint.read_offsets(), default=0)
        for read in stint.reads:
            is_inside = read.record.offset < last or stint.ended is not None
            is_first = stint.start == UNKNOWN_OFFSET and read is stint.reads[0]
            is_shared = len({each.event for each in readings.reads[read.record.value]}) > 1
            if is_inside and is_shared and not is_first:
                chances.append(read)
    if not chances:
        return None
    skipped = random.choice(chances)
    kept = [record for record in skipped.event.records if record != skipped.record]
    return _with_records(history, skipped.event, kept)


def move_offset(history: History, random: Random) -> list[Event] | None:
    """All readers see a value elsewhere than its producer was told."""
    readings = Readings(history)
    moved = [
        write
        for write in WriteLedger(history).writes.values()
        if write.offset != UNKNOWN_OFFSET and readings.is_seen(write.value)
    ]
    if not moved:
        return None
    value, shift = random.choice(moved).value, random.choice([-1, 1, 1000])
    return [
        event._replace(records=tuple(_moved(record, value, shift) for record in event.records))
        if event.action is Action.POLL
        else event
        for event in history
    ]


def swap_acknowledgements(history: History, random: Random) -> list[Event] | None:
    """A producer is told that its later write is the earlier one."""
    by_place: dict[object, list[Write]] = {}
    for write in WriteLedger(history).writes.values():
        if write.offset != UNKNOWN_OFFSET:
            by_place.setdefault((write.client, write.partition), []).append(write)
    pairs = [writes for writes in by_place.values() if len(writes) > 1]
    if not pairs:
        return None
    first, second = sorted(random.sample(random.choice(pairs), 2), key=lambda each: each.offset)
    assert first.ended is not None
    assert second.ended is not None
    later = [first.ended.records[0]._replace(offset=second.offset)]
    earlier = [second.ended.records[0]._replace(offset=first.offset)]
    return _with_records(_with_records(history, first.ended, later), second.ended, earlier)


def delay_commit(history: History, random: Random) -> list[Event] | None:
    """What was read had not even been asked to be committed."""
    readings = Readings(history)
    begun = [
        transaction
        for transaction in WriteLedger(history).transactions.values()
        if any(readings.is_seen(write.value) for write in transaction.writes)
    ]
    if not begun:
        return None
    late = set(random.choice(begun).commits)
    end_ns = max(event.time_ns for event in history)
    return [
        event._replace(time_ns=event.time_ns + end_ns) if event in late else event
        for event in history
    ]


# Each with the kinds of which at least one must be found.
MUTATIONS: Sequence[tuple[Mutation, frozenset[Kind]]] = (
    (drop_committed_write, frozenset({Kind.LOST_WRITE})),
    (repeat_write, frozenset({Kind.DUPLICATE})),
    (show_aborted_write, frozenset({Kind.ABORTED_READ})),
    (split_transaction, frozenset({Kind.TORN_TRANSACTION})),
    (swap_reads, frozenset({Kind.INTERNAL_NONMONOTONIC_POLL})),
    (repeat_poll, frozenset({Kind.NONMONOTONIC_POLL, Kind.INTERNAL_NONMONOTONIC_POLL})),
    (skip_in_poll, frozenset({Kind.POLL_SKIP, Kind.INTERNAL_POLL_SKIP})),
    (move_offset, frozenset({Kind.INCONSISTENT_OFFSETS})),
    (swap_acknowledgements, frozenset({Kind.NONMONOTONIC_SEND, Kind.INTERNAL_NONMONOTONIC_SEND})),
    # To be late may also mean to be fenced by then.
    (
        delay_commit,
        frozenset({Kind.INTERMEDIATE_READ, Kind.ABORTED_READ, Kind.ZOMBIE_COMMIT}),
    ),
)


def _final_stints(history: History) -> list[Stint]:
    return [stint for stint in Readings(history).stints if stint.ended is not None]


def _without(history: History, value: str) -> list[Event]:
    """No reader has seen it."""
    return [
        event._replace(records=tuple(each for each in event.records if each.value != value))
        if event.action is Action.POLL
        else event
        for event in history
    ]


def _with_records(history: History, spoiled: Event, records: Iterable[Record]) -> list[Event]:
    return [
        event._replace(records=tuple(records)) if event == spoiled else event for event in history
    ]


def _with_record(history: History, stint: Stint, record: Record) -> list[Event]:
    """The reader finds it where it belongs by its offset."""
    for read in stint.reads:
        if read.record.offset > record.offset:
            index = read.event.records.index(read.record)
            found = list(read.event.records)
            found.insert(index, record)
            return _with_records(history, read.event, found)
    if stint.reads:
        last = stint.reads[-1].event
        return _with_records(history, last, [*last.records, record])
    return _with_poll(history, stint, record)


def _with_poll(history: History, stint: Stint, record: Record) -> list[Event]:
    """A poll more, just before the reader is at the end."""
    ended = stint.ended
    assert ended is not None
    poll = ended._replace(action=Action.POLL, positions=(), records=(record,))
    moved = [
        event._replace(line=event.line + 1)
        if event.worker == ended.worker and event.line >= ended.line
        else event
        for event in history
    ]
    return [*moved, poll]


def _moved(record: Record, value: str, shift: int) -> Record:
    return record._replace(offset=record.offset + shift) if record.value == value else record


def _end_moved(event: Event, stint: Stint) -> Event:
    moved = Position(*stint.partition, stint.end_offset + 1)
    kept = [each for each in event.positions if each[:2] != stint.partition]
    return event._replace(positions=(*kept, moved))
