"""What is known of each client id: who is connected under it, and how far it has read.

Positions are offsets of the consumer group `pylogstreams.<id>`, so they are seen, moved and
forgotten like those of any group. They are committed a few times a second, all of a client at once,
and after what they count was taken by its socket.

Invariant: a position that is committed never lies past a message that was not delivered.
After a crash: what was delivered and not committed is delivered again; nothing is left out.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from millstream.broker.groups import GroupCoordinator
from millstream.errors import MillstreamError
from millstream.groups.offsets import Committer, OffsetToCommit, TopicPartition
from millstream.telemetry.client_log import ClientLog

_log = logging.getLogger(__name__)

GROUP_PREFIX = "pylogstreams."
_NOBODY = Committer(member_id="", instance_id=None, generation=-1)
_COMMIT_INTERVAL_S = 0.1
# With many clients commits get rarer, so that they never take more than a small part of the CPU.
_INTERVAL_PER_CLIENT_S = 0.001


class Holder(Protocol):
    """The connection on which a client is logged in."""

    def give_way(self) -> None:
        """Another connection has logged in under the same id."""


class Session:
    """One client id, for as long as it is in use."""

    __slots__ = ("client_id", "dirty", "group_id", "holder", "positions")

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.group_id = GROUP_PREFIX + client_id
        self.holder: Holder | None = None
        self.positions: dict[TopicPartition, int] = {}
        """The next offset that the client is to get."""
        # Where positions changed since they were last committed.
        self.dirty: set[TopicPartition] = set()

    def forget_topic(self, name: str) -> None:
        self.positions = {key: at for key, at in self.positions.items() if key[0] != name}
        self.dirty.intersection_update(self.positions)


class Sessions:
    """All client ids that are in use."""

    def __init__(self, groups: GroupCoordinator, client_log: ClientLog) -> None:
        self._groups = groups
        self._client_log = client_log
        self._sessions: dict[str, Session] = {}
        self._dirty: dict[Session, None] = {}
        self._has_dirty = asyncio.Event()

    async def open(self, client_id: str, holder: Holder) -> Session:
        """The session of an id, held by a connection; who held it before has to go.

        Any id will do: one that was never given out is simply new. Raises MillstreamError.
        """
        session = self._sessions.get(client_id)
        if session is None:
            found = await self._groups.fetch_offsets(GROUP_PREFIX + client_id)
            session = self._sessions.setdefault(client_id, Session(client_id))
            for key, committed in found.items():
                session.positions.setdefault(key, committed.offset)
        return self._held(session, holder)

    def open_new(self, client_id: str, holder: Holder) -> Session:
        """The same for an id that nobody had before."""
        return self._held(self._sessions.setdefault(client_id, Session(client_id)), holder)

    def leave(self, session: Session, holder: Holder) -> None:
        """A connection has ended. What it had delivered is committed soon."""
        if session.holder is holder:
            session.holder = None
            self._drop_if_done(session)

    def note(self, session: Session, key: TopicPartition, offset: int) -> None:
        """A client is now here. Hot: once per page."""
        session.positions[key] = offset
        session.dirty.add(key)
        self._mark(session)

    def renew(self) -> None:
        """Commit all positions in use once more, so that none of them expires."""
        for session in self._sessions.values():
            session.dirty.update(session.positions)
            self._mark(session)

    def forget_topic(self, name: str) -> None:
        """A topic is gone, and with it how far anyone had come."""
        for session in self._sessions.values():
            session.forget_topic(name)

    async def run(self) -> None:
        """Commit what changes, until cancelled."""
        while True:
            await self._has_dirty.wait()
            interval_s = len(self._dirty) * _INTERVAL_PER_CLIENT_S
            await asyncio.sleep(max(_COMMIT_INTERVAL_S, interval_s))
            await self.commit()

    async def commit(self) -> None:
        """Commit all that has changed; returns when it is on disk, or could not be stored."""
        changed, self._dirty = self._dirty, {}
        self._has_dirty.clear()
        await asyncio.gather(*(self._commit(session) for session in changed))

    async def _commit(self, session: Session) -> None:
        taken, session.dirty = session.dirty, set()
        offsets = [
            OffsetToCommit(topic, partition, session.positions[topic, partition], -1, "")
            for topic, partition in taken
        ]
        try:
            if offsets:
                await self._groups.commit(session.group_id, _NOBODY, offsets)
        except MillstreamError as error:
            self._client_log.write(
                _log,
                logging.ERROR,
                "pylogstreams: the position of client %(client)s is not stored: %(error)s",
                {"client": session.client_id, "error": error},
                kind=type(error).__name__,
                host="",
            )
            # Do not retry forever for a client that has disconnected.
            if session.holder is not None:
                session.dirty.update(taken.intersection(session.positions))
                self._mark(session)
        self._drop_if_done(session)

    def _held(self, session: Session, holder: Holder) -> Session:
        former = session.holder
        if former is not None and former is not holder:
            former.give_way()
        session.holder = holder
        return session

    def _mark(self, session: Session) -> None:
        self._dirty[session] = None
        self._has_dirty.set()

    def _drop_if_done(self, session: Session) -> None:
        if session.holder is None and not session.dirty:
            self._sessions.pop(session.client_id, None)
