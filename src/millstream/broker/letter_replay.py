"""Dead letters of a subscription, sent back to where they came from.

Which were sent back is kept with the offsets of a consumer group, `replay/<topic>/<subscription>`
(see `replay_marks`), so none is sent back twice unless that is asked for. A letter that is sent
back is a new message of its topic: all who read the topic get it. One that its topic does not take
is passed over, and told: it stays where it is, outstanding, and can be sent back by its id.

Invariant: of one subscription, letters are sent back by one caller at a time. All is done in pieces
that are bounded in bytes, and others have their turn between them.
After a crash: letters that had been sent back, and were not noted as such, are sent back again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from millstream.broker.broker import Broker
from millstream.broker.dead_letters import (
    SOURCE_PARTITION,
    without_own_headers,
)
from millstream.broker.letter_browsing import (
    LIMITS,
    MOST_PASSED,
    Letter,
    LetterLook,
    Letters,
    LetterState,
    ReplayLimits,
    group_of,
    is_letter_of,
    letter_topic,
    marks_of,
)
from millstream.broker.message_ids import message_id_of
from millstream.broker.replay_marks import ReplayMarks
from millstream.broker.sending import NewRecord
from millstream.broker.subscription_reading import read_offsets
from millstream.broker.topics import Topic
from millstream.errors import (
    InvalidMessageId,
    InvalidRequest,
    MillstreamError,
    SubscriptionConflict,
)
from millstream.groups.offsets import Committer, OffsetToCommit
from millstream.records import Record

_log = logging.getLogger(__name__)

_T = TypeVar("_T")

_SENT_BYTES = 4 << 20
_MOST_NAMED = 10
_NOBODY = Committer("", None, -1)
_RETENTION_MS = 100 * 365 * 24 * 3600 * 1000
"""How far letters were sent back is not forgotten, as long as there are letters."""


class Unsent(NamedTuple):
    """A letter that could not be sent back."""

    message_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Replayed:
    """What became of letters that were to be sent back."""

    count: int
    """How many were."""
    failed: list[Unsent]
    has_more: bool
    """Whether there may be more that were not tried yet."""


async def replay(
    broker: Broker, topic: str, subscription: str, *, limit: int, limits: ReplayLimits = LIMITS
) -> Replayed:
    """Send back letters that were not yet. Raises what sending raises, if none could be sent."""
    hosted = broker.subscriptions.find(topic, subscription)
    name = broker.subscriptions.describe(topic, subscription).dead_letter_topic
    async with hosted.replaying:
        found = letter_topic(broker, name)
        if found is None:
            return Replayed(0, [], has_more=False)
        return await _replay(broker, (topic, subscription), found, limit, limits)


async def replay_some(
    broker: Broker,
    topic: str,
    subscription: str,
    places: Sequence[tuple[int, int]],
    *,
    again: bool = False,
) -> Replayed:
    """Send back these letters, each once; with `again`, also those that were before.

    Raises InvalidMessageId and SubscriptionConflict before any is sent, and what sending raises if
    none could be.
    """
    hosted = broker.subscriptions.find(topic, subscription)
    name = broker.subscriptions.describe(topic, subscription).dead_letter_topic
    async with hosted.replaying:
        found, chosen = letter_topic(broker, name), sorted(set(places))
        # All of them first: a request with a wrong id changes nothing.
        async for letters in _letters_at(broker, found, chosen):
            for letter in letters:
                if not is_letter_of(letter.record, topic, subscription):
                    raise InvalidMessageId(letter.message_id)
        if found is None:
            return Replayed(0, [], has_more=False)
        of = (topic, subscription)
        marks = await marks_of(broker, of, found)
        if not again:
            _check_outstanding(of, marks, chosen)
        _check_room(broker, of, marks, chosen)
        count, failed = 0, list[Unsent]()
        async for letters in _letters_at(broker, found, chosen):
            sent = await _finished(_send_and_mark(broker, of, found.name, marks, letters))
            if not count and not sent.count and sent.stopped_by is not None:
                raise sent.stopped_by
            count += sent.count
            failed += sent.failed
        return Replayed(count, failed, has_more=False)


def _check_outstanding(
    of: tuple[str, str], marks: Mapping[int, ReplayMarks], places: Sequence[tuple[int, int]]
) -> None:
    done = [message_id_of(*place) for place in places if marks[place[0]].is_done(place[1])]
    if done:
        shown = ", ".join(done[:_MOST_NAMED]) + (", ..." if len(done) > _MOST_NAMED else "")
        reason = (
            f"has sent back {len(done)} of these letters before ({shown}): set again to true to "
            "send them twice"
        )
        raise SubscriptionConflict(topic=of[0], name=of[1], reason=reason)


def _check_room(
    broker: Broker,
    of: tuple[str, str],
    marks: Mapping[int, ReplayMarks],
    places: Sequence[tuple[int, int]],
) -> None:
    """Letters that could not be marked as sent back are not sent."""
    limit_bytes = broker.groups.settings.offset_metadata_max_bytes
    for number, offsets in _by_partition(places).items():
        if not marks[number].with_done(offsets).fits(limit_bytes):
            reason = (
                "has sent back too many letters out of order: send the oldest ones back first, "
                "without their ids"
            )
            raise SubscriptionConflict(topic=of[0], name=of[1], reason=reason)


def _by_partition(places: Iterable[tuple[int, int]]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for number, offset in places:
        found.setdefault(number, []).append(offset)
    return found


async def _replay(
    broker: Broker, of: tuple[str, str], found: Topic, limit: int, limits: ReplayLimits
) -> Replayed:
    marks = await marks_of(broker, of, found)
    offsets = {number: each.next_offset for number, each in marks.items()}
    count, failed, passed = 0, list[Unsent](), 0
    while True:
        left = min(limit - count - len(failed), limits.sent_records)
        look = LetterLook(
            broker, of, left, _SENT_BYTES, limits, marks=marks, state=LetterState.OUTSTANDING
        )
        some = await look.at(found, offsets)
        sent = await _finished(_send_and_pass(broker, of, found.name, marks, some))
        next_offsets = {**some.next_offsets, **sent.stopped_at}
        if sent.stopped_by is not None and not count and not sent.count:
            raise sent.stopped_by
        count += sent.count
        failed += sent.failed
        passed += look.looked_at
        is_moved, offsets = next_offsets != offsets, next_offsets
        has_more = any(
            offsets[each.number] < each.log.last_stable_offset for each in found.partitions
        )
        is_full = count + len(failed) >= limit or passed >= MOST_PASSED
        if sent.stopped_by is not None or is_full or not is_moved or not has_more:
            return Replayed(count, failed, has_more)


async def _send_and_mark(
    broker: Broker,
    of: tuple[str, str],
    topic: str,
    marks: dict[int, ReplayMarks],
    letters: Sequence[Letter],
) -> _SentBack:
    """Send letters back, and mark those that were."""
    sent = await _send_back(broker, of[0], letters)
    unsent = {each.message_id for each in sent.failed}
    done = _by_partition(
        (letter.partition, letter.record.offset)
        for letter in letters
        if letter.message_id not in unsent
    )
    after = {number: marks[number].with_done(some) for number, some in done.items()}
    await _commit(broker, of, topic, marks, after)
    marks.update(after)
    return sent


async def _send_and_pass(
    broker: Broker,
    of: tuple[str, str],
    topic: str,
    marks: dict[int, ReplayMarks],
    some: Letters,
) -> _SentBack:
    """Send the next letters back, and move the marks behind them."""
    sent = await _send_back(broker, of[0], some.letters)
    # Durable after the letters are: a crash in between sends them back again.
    refused = _by_partition(sent.refused)
    after = {
        number: marks[number].passed(at, refused.get(number, ()))
        for number, at in {**some.next_offsets, **sent.stopped_at}.items()
    }
    await _commit(broker, of, topic, marks, after)
    marks.update(after)
    return sent


async def _finished(work: Coroutine[Any, Any, _T]) -> _T:
    """Run to completion even if the caller is cancelled; then raise the cancellation."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


async def _commit(
    broker: Broker,
    of: tuple[str, str],
    topic: str,
    before: Mapping[int, ReplayMarks],
    after: Mapping[int, ReplayMarks],
) -> None:
    limit_bytes = broker.groups.settings.offset_metadata_max_bytes
    moved = []
    for number, marks in after.items():
        if marks != before[number]:
            metadata = ""
            if marks.fits(limit_bytes):
                metadata = marks.metadata()
            else:
                _log.warning(
                    "topic %(topic)s, partition %(partition)d: too many refused dead letters to "
                    "remember: all before offset %(offset)d count as sent back",
                    {"topic": topic, "partition": number, "offset": marks.next_offset},
                )
            moved.append(OffsetToCommit(topic, number, marks.next_offset, -1, metadata))
    if moved:
        group = group_of(of)
        results = await broker.groups.commit(group, _NOBODY, moved, retention_ms=_RETENTION_MS)
        for each in results:
            if isinstance(each, MillstreamError):
                raise each


async def _letters_at(
    broker: Broker, topic: Topic | None, places: Sequence[tuple[int, int]]
) -> AsyncIterator[list[Letter]]:
    """Letters at places, given in order, some at a time. Raises InvalidMessageId."""
    left = list(places)
    while left:
        number, first = left[0]
        offsets = [offset for at, offset in left[: LIMITS.sent_records] if at == number]
        partitions = () if topic is None else topic.partitions
        log = partitions[number].log if number < len(partitions) else None
        if log is None or not log.start_offset <= first <= offsets[-1] < log.last_stable_offset:
            is_first = log is None or not log.start_offset <= first < log.last_stable_offset
            raise InvalidMessageId(message_id_of(number, first if is_first else offsets[-1]))
        found = read_offsets(broker.reader, partitions[number], offsets, max_bytes=_SENT_BYTES)
        for offset in offsets[: found.looked_at]:
            if offset not in found.records:
                raise InvalidMessageId(message_id_of(number, offset))
        yield [Letter(number, found.records[offset]) for offset in offsets[: found.looked_at]]
        await asyncio.sleep(0)
        left = left[found.looked_at :]


@dataclass(slots=True)
class _SentBack:
    """What became of some letters."""

    count: int = 0
    failed: list[Unsent] = field(default_factory=list)
    refused: list[tuple[int, int]] = field(default_factory=list)
    """Partition and offset of those that failed by their own fault."""
    stopped_at: dict[int, int] = field(default_factory=dict)
    """By partition, the first that failed for no fault of its own: it is to be tried again."""
    stopped_by: MillstreamError | None = None


async def _send_back(broker: Broker, topic: str, letters: Sequence[Letter]) -> _SentBack:
    """Raises what is wrong with the topic."""
    sent = _SentBack()
    if not letters:
        return sent
    partitions = len(broker.topics.get(topic).partitions)
    records = [_message(each.record, partitions) for each in letters]
    results = await broker.sender.send_many(topic, records)
    for letter, result in zip(letters, results, strict=True):
        if not isinstance(result, MillstreamError):
            sent.count += 1
            continue
        sent.failed.append(Unsent(letter.message_id, str(result)))
        if isinstance(result, InvalidRequest):
            sent.refused.append((letter.partition, letter.record.offset))
        else:
            sent.stopped_at.setdefault(letter.partition, letter.record.offset)
            sent.stopped_by = sent.stopped_by or result
    if sent.failed:
        first, reason = sent.failed[0]
        _log.info(
            "topic %(topic)s: %(count)d dead letters not sent back, the first is %(message_id)s: "
            "%(error)s",
            {"topic": topic, "count": len(sent.failed), "message_id": first, "error": reason},
        )
    return sent


def _message(letter: Record, partitions: int) -> NewRecord:
    """As it was before, in the partition where it was."""
    text = dict(letter.headers).get(SOURCE_PARTITION) or b""
    number = int(text) if text.isdigit() else partitions
    return NewRecord(
        letter.value,
        letter.key,
        headers=without_own_headers(letter.headers),
        partition=number if number < partitions else None,
    )
