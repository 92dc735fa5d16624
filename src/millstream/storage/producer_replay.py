"""Brings the state of a log's producers, and of its transactions, up to the end of the log.

The newest snapshot tells the state at its offset; the batches behind it are recorded as if they
were appended again. What tells of the aborted transactions of a segment is made on the way.

Invariant: the state is that of all batches of the log, replayed in their order, plus what a
snapshot still knows of batches that were deleted.
"""

from __future__ import annotations

from collections.abc import Callable

from millstream.errors import CorruptData
from millstream.storage.filesystem import Filesystem, read_whole, write_atomically
from millstream.storage.log_walk import sound_batches
from millstream.storage.producer_snapshots import ProducerSnapshots, RestoredProducers
from millstream.storage.producer_state import ProducerStates
from millstream.storage.segment import Segment, SegmentState
from millstream.storage.segment_chain import SegmentChain


def restore_producers(
    filesystem: Filesystem,
    chain: SegmentChain,
    snapshots: ProducerSnapshots,
    *,
    now_ms: int,
    on_damage: Callable[[CorruptData], object],
) -> RestoredProducers:
    """The state at the end of a log. Raises OSError.

    Damage on the way may have been a marker: see `TransactionStates.doubtful`.

    A producer found in the log counts as seen now. Its records' own times may be of any age, and
    to forget it too early would let a repeat through.

    Closed segments behind the snapshot get their files of aborted transactions anew, since after a
    crash nobody vouches for those.
    """
    restored = _at_snapshot(chain, snapshots, chain.end_offset)
    states, offset = restored.states, restored.snapshot_offset
    for segment in chain.segments_from(offset):
        _replay(chain, segment, states, from_offset=offset, now_ms=now_ms, on_damage=on_damage)
        if segment.state is not SegmentState.ACTIVE:
            _write_index(filesystem, segment, states)
    if states.transactions.segment_offset != chain.active.segment.base_offset:
        # The snapshot was made when some later segment had begun, which is gone.
        known = states_after(chain, chain.active.segment, snapshots).transactions
        states.transactions.take_segment(known)
    return restored


def states_after(
    chain: SegmentChain, segment: Segment, snapshots: ProducerSnapshots
) -> ProducerStates:
    """The state at the end of a segment, with all transactions that were aborted in it.

    Replays from the last snapshot before it, or from the start of the log.
    """
    states, offset, _ = _at_snapshot(chain, snapshots, segment.base_offset)
    for each in chain.segments_from(offset):
        if each.base_offset > segment.base_offset:
            break
        _replay(chain, each, states, from_offset=offset, now_ms=0)
    return states


def _at_snapshot(
    chain: SegmentChain, snapshots: ProducerSnapshots, end_offset: int
) -> RestoredProducers:
    restored = snapshots.newest(end_offset)
    if restored.snapshot_offset <= chain.base_offset:
        # Nothing is left of a transaction that was under way then. It ended since, or its
        # records were lost.
        restored.states.transactions.forget_under_way()
    return restored


def _replay(
    chain: SegmentChain,
    segment: Segment,
    states: ProducerStates,
    *,
    from_offset: int,
    now_ms: int,
    on_damage: Callable[[CorruptData], object] = lambda _: None,
) -> None:
    if from_offset <= segment.base_offset:
        states.transactions.begin_segment(segment.base_offset)

    def damaged(damage: CorruptData) -> None:
        if damage.offset < segment.next_offset:
            on_damage(damage)
            states.transactions.doubt_all()

    begin = max(from_offset, segment.base_offset)
    for header, batch in sound_batches(chain, begin, damaged):
        if header.base_offset >= segment.next_offset:
            break
        states.replay(header, batch, timestamp_ms=now_ms)


def _write_index(filesystem: Filesystem, segment: Segment, states: ProducerStates) -> None:
    transactions = states.transactions
    if transactions.segment_offset != segment.base_offset:
        # It began before the snapshot, which knows only what came after another segment.
        return
    content = transactions.index(segment.next_offset)
    if content and read_whole(filesystem, segment.aborted_path) != content:
        write_atomically(filesystem, segment.aborted_path, content)
