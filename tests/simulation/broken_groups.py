"""Group coordinators with one defect each, to prove that the checks of the simulation can fail.

A defect lies in what a client sees of a coordinator, or in the flusher below it; so none depends on
how the coordinator works inside.
"""

from __future__ import annotations

import asyncio
from typing import Any

from millstream.broker.groups import GroupCoordinator
from millstream.errors import IllegalGeneration, RebalanceInProgress
from millstream.groups.commands import Sync, Synced
from millstream.groups.offsets import Committer, OffsetToCommit
from tests.simulation.group_world import PARTITIONS


class BrokenGroups:
    """Passes every request on, as it is."""

    def __init__(self, groups: GroupCoordinator) -> None:
        self.groups = groups

    def __getattr__(self, name: str) -> Any:
        return getattr(self.groups, name)


class Greedy(BrokenGroups):
    """Assigns everything to everyone."""

    async def sync(self, group_id: str, command: Sync) -> Synced:
        synced = await self.groups.sync(group_id, command)
        return synced._replace(assignment=bytes(range(PARTITIONS)))


class Unsettled(BrokenGroups):
    """Tells offsets that may yet be lost."""

    async def fetch_offsets(self, group_id: str) -> object:
        return next(
            (dict(found) for group, found in self.groups.committed() if group.group_id == group_id),
            {},
        )


class Silent(BrokenGroups):
    """Does not answer a member whose assignment is given up."""

    async def sync(self, group_id: str, command: Sync) -> Synced:
        try:
            return await self.groups.sync(group_id, command)
        except RebalanceInProgress:
            await asyncio.get_running_loop().create_future()
            raise


class LateCommits(BrokenGroups):
    """Takes commits of other generations than the group's."""

    async def commit(
        self, group_id: str, committer: Committer, offsets: list[OffsetToCommit]
    ) -> object:
        try:
            return await self.groups.commit(group_id, committer, offsets)
        except IllegalGeneration as error:
            committer = committer._replace(generation=error.current)
            return await self.groups.commit(group_id, committer, offsets)


class LateSyncs(BrokenGroups):
    """Gives assignments to members of other generations than the group's."""

    async def sync(self, group_id: str, command: Sync) -> Synced:
        try:
            return await self.groups.sync(group_id, command)
        except IllegalGeneration as error:
            command = command._replace(generation=error.current)
            return await self.groups.sync(group_id, command)
