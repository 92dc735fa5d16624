"""Clients of the simulated group: consumers as real ones are, and rogues as they should not be."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from millstream.broker.groups import GroupCoordinator
from millstream.errors import (
    FencedInstance,
    GroupFull,
    IllegalGeneration,
    InconsistentProtocol,
    MemberIdRequired,
    MillstreamError,
    RebalanceInProgress,
    Unavailable,
    UnknownGroup,
    UnknownMember,
)
from millstream.groups.commands import (
    Heartbeat,
    Join,
    Joined,
    Leave,
    Leaver,
    SupportedProtocol,
    Sync,
    Synced,
)
from millstream.groups.offsets import Committer, OffsetToCommit
from millstream.groups.outcome import NO_TICKET
from tests.simulation.group_world import (
    GROUP,
    LONGEST_REBALANCE_MS,
    PARTITIONS,
    TOPIC,
    ConnectionLost,
    GroupWorld,
)


class Consumer:
    """Joins, syncs, heartbeats, commits, and does what it is told."""

    def __init__(self, world: GroupWorld, name: str, instance_id: str | None = None) -> None:
        random = world.random
        self.world = world
        self.name = name
        self.instance_id = instance_id
        self.is_fenced = False
        self.is_hanging = False
        self.member_id = ""
        self.generation = -1
        self.partitions: tuple[int, ...] = ()
        self._sent_back = random.random() < 0.7
        self._can_skip = random.random() < 0.5
        self._session_ms = random.randint(6_000, 10_000)
        self._rebalance_ms = random.randint(5_000, LONGEST_REBALANCE_MS)
        self._subscription = 0

    @property
    def identity(self) -> str:
        return self.instance_id or self.member_id

    async def run(self) -> None:
        while not self.is_fenced:
            try:
                await self._be_member()
            except MemberIdRequired as error:
                self.member_id = error.member_id
            except (UnknownMember, UnknownGroup):
                self._lose_membership()
            except FencedInstance:
                self.is_fenced = True
            except (IllegalGeneration, RebalanceInProgress):
                self.partitions = ()
            except (ConnectionLost, Unavailable, GroupFull, InconsistentProtocol):
                await self.world.sleep_ms(50, 500)

    async def leave(self) -> None:
        with suppress(MillstreamError, ConnectionLost):
            leaver = Leaver(self.member_id, self.instance_id)
            await self.world.send(lambda groups: groups.leave(GROUP, Leave(NO_TICKET, (leaver,))))

    async def _be_member(self) -> None:
        joined = await self._join()
        self.member_id, self.generation = joined.member_id, joined.generation
        if not self.world.is_calm and self.world.random.random() < 0.15:
            life = self.world.life
            await self._hang()
            if self.world.life != life:
                # After a crash, another generation may have this number: see GroupChecker.crashed.
                raise ConnectionLost
        synced = await self._sync(joined)
        self.partitions = tuple(synced.assignment)
        await self._consume()

    async def _join(self) -> Joined:
        command = Join(
            ticket=NO_TICKET,
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.name,
            client_host="/127.0.0.1",
            session_timeout_ms=self._session_ms,
            rebalance_timeout_ms=self._rebalance_ms,
            protocol_type="consumer",
            protocols=(
                SupportedProtocol("range", b"%d" % self._subscription),
                SupportedProtocol("cooperative-sticky", b"%d" % self._subscription),
            ),
            new_member_id="",
            must_return=self._sent_back,
            may_skip_assignment=self._can_skip,
        )

        async def ask(groups: GroupCoordinator) -> Joined:
            joined = await groups.join(GROUP, command)
            self.world.checker.joined(joined.generation)
            return joined

        return await self.world.send(ask)

    async def _sync(self, joined: Joined) -> Synced:
        assignments: tuple[tuple[str, bytes], ...] = ()
        if joined.leader_id == joined.member_id and not joined.skip_assignment:
            members = [member.member_id for member in joined.members]
            assignments = tuple(
                (member_id, bytes(range(place, PARTITIONS, len(members))))
                for place, member_id in enumerate(members)
            )
        command = Sync(
            ticket=NO_TICKET,
            member_id=self.member_id,
            instance_id=self.instance_id,
            generation=self.generation,
            protocol_type="consumer",
            protocol_name=joined.protocol_name,
            assignments=assignments,
        )

        async def ask(groups: GroupCoordinator) -> Synced:
            synced = await groups.sync(GROUP, command)
            self.world.checker.synced(self.identity, self.generation, synced.assignment)
            return synced

        return await self.world.send(ask)

    async def _consume(self) -> None:
        world = self.world
        while True:
            step = world.random.random() * (0.4 if world.is_calm else 1)
            try:
                if step < 0.3:
                    await self._commit()
                elif step < 0.4:
                    await self._fetch()
                elif step < 0.43:
                    self._subscription += 1
                    return
                elif step < 0.45:
                    return
                elif step < 0.47:
                    await self._hang()
                await self._heartbeat()
            except (ConnectionLost, Unavailable):
                await world.sleep_ms(50, 500)
            await world.sleep_ms(1_500, 2_500)

    async def _hang(self) -> None:
        """The process stops for a while. Then it continues as if no time had passed."""
        self.is_hanging = True
        await self.world.sleep_ms(0, 15_000)
        self.is_hanging = False

    async def _heartbeat(self) -> None:
        command = Heartbeat(NO_TICKET, self.member_id, self.instance_id, self.generation)
        await self.world.send(lambda groups: groups.heartbeat(GROUP, command))

    async def _commit(self) -> None:
        world, committer = self.world, Committer(self.member_id, self.instance_id, self.generation)
        partitions = self.partitions

        async def ask(groups: GroupCoordinator) -> None:
            newest = world.checker.highest_synced
            offsets = {number: world.checker.next_offset(number) for number in partitions}
            wanted = [
                OffsetToCommit(TOPIC, number, offset, -1, "") for number, offset in offsets.items()
            ]
            await groups.commit(GROUP, committer, wanted)
            world.checker.committed(committer.generation, offsets, newest=newest)

        await world.send(ask)

    async def _fetch(self) -> None:
        await fetch_all(self.world)

    def _lose_membership(self) -> None:
        self.member_id, self.generation, self.partitions = "", -1, ()


async def fetch_all(world: GroupWorld) -> None:
    """Look at every offset there is."""

    async def ask(groups: GroupCoordinator) -> None:
        promised = world.checker.promises()
        found = await groups.fetch_offsets(GROUP)
        world.checker.fetched({key[1]: each.offset for key, each in found.items()}, promised)

    await world.send(ask)


class Rogue:
    """Knows the protocol and not the rules."""

    def __init__(self, world: GroupWorld, name: str, victims: Iterable[Consumer]) -> None:
        self.world = world
        self.name = name
        self._victims = victims
        self._member_id = ""
        self._generation = -1

    async def run(self) -> None:
        requests = (
            self._join,
            self._join_as_another,
            self._sync,
            self._beat,
            self._kick,
            self._commit,
        )
        while True:
            hanging = [each.member_id for each in self._victims if each.is_hanging]
            with suppress(MillstreamError, ConnectionLost):
                if hanging and self.world.random.random() < 0.8:
                    await self._impersonate(self.world.random.choice(hanging))
                else:
                    await self.world.random.choice(requests)()
            await self.world.sleep_ms(100, 3_000)

    async def _impersonate(self, member_id: str) -> None:
        """Join correctly, in the name of a consumer that does not notice."""
        rebalance_ms = self.world.random.choice([1_000, LONGEST_REBALANCE_MS])
        command = self._command(member_id)._replace(rebalance_timeout_ms=rebalance_ms)
        await self.world.send(lambda groups: groups.join(GROUP, command))

    async def _join(self) -> None:
        await self._join_as(self._member_id, self.world.random.choice([None, None, "rogue"]))

    async def _join_as_another(self) -> None:
        await self._join_as(self._some_member_id(), None)

    async def _join_as(self, member_id: str, instance_id: str | None) -> None:
        random = self.world.random
        command = self._command(member_id)
        command = command._replace(
            instance_id=instance_id,
            session_timeout_ms=random.choice([1, 6_000, 9_000]),
            rebalance_timeout_ms=random.choice([0, 1_000, LONGEST_REBALANCE_MS]),
            protocol_type=random.choice(["consumer", "consumer", "connect"]),
            protocols=tuple(random.sample(command.protocols, random.randint(0, 2))),
            must_return=random.random() < 0.5,
        )
        try:
            joined = await self.world.send(lambda groups: groups.join(GROUP, command))
        except MemberIdRequired as error:
            self._member_id = error.member_id
            raise
        if not member_id:
            self._member_id, self._generation = joined.member_id, joined.generation

    def _command(self, member_id: str) -> Join:
        return Join(
            ticket=NO_TICKET,
            member_id=member_id,
            instance_id=None,
            client_id=self.name,
            client_host="/127.0.0.1",
            session_timeout_ms=9_000,
            rebalance_timeout_ms=LONGEST_REBALANCE_MS,
            protocol_type="consumer",
            protocols=(
                SupportedProtocol("range", b"x"),
                SupportedProtocol("cooperative-sticky", b"x"),
            ),
            new_member_id="",
            must_return=False,
            may_skip_assignment=False,
        )

    async def _sync(self) -> None:
        assignments = (("nobody", b"\0\1"), (self._member_id, b""))
        generation = self._generation + self.world.random.choice([0, 0, 1])
        command = Sync(NO_TICKET, self._member_id, None, generation, None, None, assignments)
        await self.world.send(lambda groups: groups.sync(GROUP, command))

    async def _beat(self) -> None:
        generation = self.world.random.randint(-1, self.world.checker.highest_synced + 1)
        command = Heartbeat(NO_TICKET, self._some_member_id(), None, generation)
        await self.world.send(lambda groups: groups.heartbeat(GROUP, command))

    async def _kick(self) -> None:
        leavers = tuple(Leaver(self._some_member_id(), None) for _ in range(2))
        await self.world.send(lambda groups: groups.leave(GROUP, Leave(NO_TICKET, leavers)))

    async def _commit(self) -> None:
        committer = Committer(self._some_member_id(), None, self._generation - 1)

        async def ask(groups: GroupCoordinator) -> None:
            newest = self.world.checker.highest_synced
            offset = self.world.checker.next_offset(0)
            await groups.commit(GROUP, committer, [OffsetToCommit(TOPIC, 0, offset, -1, "")])
            self.world.checker.committed(committer.generation, {0: offset}, newest=newest)

        if committer.generation >= 0:
            await self.world.send(ask)

    def _some_member_id(self) -> str:
        ids = [consumer.member_id for consumer in self._victims if consumer.member_id]
        return self.world.random.choice([*ids, self._member_id, "nobody"])
