"""Takes out of a log what is past its keep, and warns before a group loses what it has not read.

Groups that a topic names in `millstream.retention.hold.groups` hold retention back, within bounds.
A group that is named and has committed nothing is taken to have read nothing.

Each group is warned of once, when unread data of it comes near its end, and once more when such
data goes; after that only if it had been out of danger between. The gauges and the counter are for
whoever shows metrics.
After a crash: nothing is remembered; the next look finds the same again.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from millstream.storage.local_log import LocalLog
from millstream.storage.retention import looking_ahead, past_retention
from millstream.storage.segment import Segment, SegmentState

_log = logging.getLogger(__name__)

Readers = Callable[[str, int], Awaitable[Mapping[str, int]]]
"""The committed offset of each group that reads a partition."""


class Reader(NamedTuple):
    """A group in a partition."""

    topic: str
    partition: int
    group_id: str


async def _nobody(_topic: str, _partition: int) -> Mapping[str, int]:
    return {}


class Retention:
    """The retention of all logs. Lives on the event loop."""

    def __init__(self) -> None:
        self.readers: Readers = _nobody
        """Whom to ask how far groups have come."""
        self.held_bytes: dict[tuple[str, int], int] = {}
        """Gauge: what each partition keeps only because a group has still to read it."""
        self.at_risk: dict[Reader, int] = {}
        """Gauge: how many offsets that a group has not read go soon."""
        self.lost: Counter[Reader] = Counter()
        """Counter: how many offsets went that a group had not read."""
        self.deleted_segments = 0
        """Counter: how many segments went."""
        self.deleted_bytes = 0
        """Counter: how many bytes they had."""
        self._losing: set[Reader] = set()

    async def expire(self, log: LocalLog) -> list[str]:
        """See LocalLog.expire; holds, warns and counts. Raises what that raises."""
        log.roll_if_due()
        place = _place_of(log)
        soon = looking_ahead(log.settings)
        if not past_retention(log, soon).doomed:
            # As for most logs, most of the time: nobody has to be asked.
            self._note(log, place, {}, [])
            self.held_bytes.pop(place, None)
            return self._expire(log, None)
        readers = dict(await self.readers(*place))
        if log.is_closed:
            # Its topic was deleted since.
            return []
        holding = {group: readers.get(group, 0) for group in log.settings.retention_hold_groups}
        held_from = min(holding.values(), default=None)
        readers |= holding
        self._forgive(log, place, readers)
        self._note_loss(place, readers, log, held_from)
        paths = self._expire(log, held_from)
        self._note(log, place, readers, past_retention(log, soon, held_from=held_from).doomed)
        self._note_held(log, place, holding, held_from)
        return paths

    def _expire(self, log: LocalLog, held_from: int | None) -> list[str]:
        segments = log.segments()
        try:
            return log.expire(held_from=held_from)
        finally:
            gone = [each.size for each in segments if each.state is SegmentState.DELETED]
            self.deleted_segments += len(gone)
            self.deleted_bytes += sum(gone)

    def forget(self, topic: str) -> None:
        """A topic is gone."""
        self.held_bytes = {at: size for at, size in self.held_bytes.items() if at[0] != topic}
        self.at_risk = {at: count for at, count in self.at_risk.items() if at.topic != topic}
        self.lost = Counter({at: count for at, count in self.lost.items() if at.topic != topic})
        self._losing = {at for at in self._losing if at.topic != topic}

    def _forgive(self, log: LocalLog, place: tuple[str, int], readers: Mapping[str, int]) -> None:
        """A group that has gone on behind the loss is warned of again the next time."""
        for reader in [each for each in self._losing if each[:2] == place]:
            if readers.get(reader.group_id, log.start_offset) >= log.start_offset:
                self._losing.discard(reader)

    def _note_loss(
        self,
        place: tuple[str, int],
        readers: Mapping[str, int],
        log: LocalLog,
        held_from: int | None,
    ) -> None:
        """Before it happens."""
        doomed = past_retention(log, log.settings, held_from=held_from).doomed
        for group, unread in _unread(log, readers, doomed).items():
            reader = Reader(*place, group)
            self.lost[reader] += unread
            if reader not in self._losing:
                self._losing.add(reader)
                _log.warning(
                    "%(log)s: retention deletes offsets %(first_offset)d to %(last_offset)d, "
                    "which group %(group)r has not read",
                    {
                        "log": log.name,
                        "first_offset": doomed[-1].next_offset - unread,
                        "last_offset": doomed[-1].next_offset - 1,
                        "group": group,
                    },
                )

    def _note(
        self,
        log: LocalLog,
        place: tuple[str, int],
        readers: Mapping[str, int],
        soon_doomed: list[Segment],
    ) -> None:
        """Who is at risk from now on; a group that was not before is warned of."""
        unread_by_group = _unread(log, readers, soon_doomed)
        known = [reader for reader in self.at_risk if reader[:2] == place]
        for reader in known:
            if reader.group_id not in unread_by_group:
                del self.at_risk[reader]
        for group, unread in unread_by_group.items():
            reader = Reader(*place, group)
            if reader not in self.at_risk and reader not in self._losing:
                _log.warning(
                    "%(log)s: group %(group)r has not read %(unread)d offsets that retention "
                    "deletes soon: let it catch up, or raise %(limits)s",
                    {
                        "log": log.name,
                        "group": group,
                        "unread": unread,
                        "limits": _limits_of(log, group),
                    },
                )
            self.at_risk[reader] = unread

    def _note_held(
        self,
        log: LocalLog,
        place: tuple[str, int],
        holding: Mapping[str, int],
        held_from: int | None,
    ) -> None:
        held = past_retention(log, log.settings, held_from=held_from).held
        if not held:
            self.held_bytes.pop(place, None)
            return
        if place not in self.held_bytes:
            slowest = min(holding, key=lambda group: (holding[group], group))
            _log.info(
                "%(log)s: retention waits for group %(group)r at %(offset)d",
                {"log": log.name, "group": slowest, "offset": held_from},
            )
        self.held_bytes[place] = sum(segment.size for segment in held)


def _unread(log: LocalLog, readers: Mapping[str, int], doomed: list[Segment]) -> dict[str, int]:
    """How many offsets of segments each group has not read, where there are any."""
    if not doomed:
        return {}
    end = doomed[-1].next_offset
    unread = {group: end - max(offset, log.start_offset) for group, offset in readers.items()}
    return {group: count for group, count in unread.items() if count > 0}


def _limits_of(log: LocalLog, group: str) -> str:
    if group in log.settings.retention_hold_groups:
        return "millstream.retention.hold.max.bytes and millstream.retention.hold.max.ms"
    return "retention.ms and retention.bytes, or name it in millstream.retention.hold.groups"


def _place_of(log: LocalLog) -> tuple[str, int]:
    topic, _, partition = log.name.rpartition("/")
    return topic, int(partition)
