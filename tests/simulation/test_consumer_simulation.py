"""Thousands of random lives of one group, from a seed each. See `consumer_broker` for the checks.

To see one again: `play(seed)`; the seed is in the failure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from millstream.groups import consumer_classic_members, consumer_records, consumer_transitions
from millstream.groups.consumer_group import ConsumerGroup, CurrentAssignment, Member, target_of
from millstream.groups.consumer_partitions import NO_PARTITIONS, difference
from millstream.groups.consumer_reconciliation import reconciled
from millstream.groups.consumer_records import GroupEpochRecord
from tests.fakes.tiers import sampled
from tests.simulation.consumer_broker import SESSION_MS, SimulatedBroker, Violation
from tests.simulation.consumer_clients import Client, NewClient, OldClient

TOPICS = ("a", "b", "c")
MOST_CLIENTS = 6
_CHUNK = 100


class Life:
    """One seed's sequence of events."""

    def __init__(self, seed: int, *, has_old_clients: bool) -> None:
        self.random = Random(seed)
        self.broker = SimulatedBroker()
        self.clients: list[Client] = []
        self.has_old_clients = has_old_clients
        self.is_eager = self.random.random() < 0.5
        for name in TOPICS[: self.random.randint(1, 3)]:
            self.broker.set_topic(name, self.random.randint(1, 5))

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.broker.now_ms += self.random.choice((0, 10, 500, 1000, 1000, 3000))
            self._event()
            self._check()
        self._calm_down()

    def _event(self) -> None:
        chance = self.random.random()
        if chance < 0.12 and len(self._living()) < MOST_CLIENTS:
            self._new_client()
        elif chance < 0.18:
            self._some(lambda client: client.leave())
        elif chance < 0.21:
            self._some(self._crash)
        elif chance < 0.25:
            self._change_topics()
        elif chance < 0.28:
            self._restart()
        elif chance < 0.31:
            self._some(self._resubscribe)
        elif chance < 0.33:
            self.broker.now_ms += self.random.randint(1, SESSION_MS * 2)
            self.broker.tick()
        else:
            self._some(lambda client: client.act())

    def _new_client(self) -> None:
        topics = {name for name in TOPICS if self.random.random() < 0.7} or {"a"}
        instance_id = self.random.choice((None, None, "i1", "i2"))
        client: Client
        if self.has_old_clients and self.random.random() < 0.5:
            client = OldClient(
                self.broker, self.random, topics, instance_id, is_eager=self.is_eager
            )
        else:
            client = NewClient(self.broker, self.random, topics, instance_id)
        client.loss = self.random.choice((0.0, 0.05, 0.2))
        self.clients.append(client)
        client.act()

    def _crash(self, client: Client) -> None:
        client.is_gone = True

    def _resubscribe(self, client: Client) -> None:
        if isinstance(client, NewClient):
            client.subscribe({name for name in TOPICS if self.random.random() < 0.7})

    def _change_topics(self) -> None:
        name = self.random.choice(TOPICS)
        known = self.broker.topics.get(name)
        if known is not None and self.random.random() < 0.3:
            self.broker.delete_topic(name)
        elif known is None or known.partitions < 8:
            partitions = 1 if known is None else known.partitions
            self.broker.set_topic(name, partitions + self.random.randint(1, 2))

    def _restart(self) -> None:
        self.broker.restart(is_compacted=self.random.random() < 0.5)
        for client in self._living():
            client.forget_connection()

    def _some(self, action: object) -> None:
        if living := self._living():
            action(self.random.choice(living))  # type: ignore[operator]  # takes a client

    def _living(self) -> list[Client]:
        return [client for client in self.clients if not client.is_gone]

    def _check(self) -> None:
        for client in self.clients:
            client.check()

    def _calm_down(self) -> None:
        """Nothing is lost any more: the group must come to rest, and share everything out."""
        for client in self.clients:
            client.loss = 0.0
        rest_ms = 0
        for _ in range(200):
            self.broker.now_ms += 1000
            for client in self._living():
                client.act()
                self._check()
            self.broker.tick()
            rest_ms = rest_ms + 1000 if self._is_at_rest() else 0
            if rest_ms > 2 * SESSION_MS:  # whoever is dead, or too slow, has been removed
                break
        else:
            raise Violation(f"does not come to rest: {self.broker.group}")
        if isinstance(self.broker.group, ConsumerGroup):
            self._check_end(self.broker.group)

    def _is_at_rest(self) -> bool:
        return all(client.is_settled for client in self._living())

    def _check_end(self, group: ConsumerGroup) -> None:
        self.broker.check_converged()
        living = {client.member_id: client for client in self._living()}
        if set(living) != set(group.members):
            raise Violation(f"{sorted(living)} live, {sorted(group.members)} are members")
        for member_id, member in group.members.items():
            if living[member_id].owned != member.current.assigned:
                raise Violation(f"{member_id} owns {living[member_id].owned}, but has {member}")
        if group.members and all(member.speaks_classic for member in group.members.values()):
            raise Violation(f"only the classic protocol is spoken in {group}")


def play(seed: int, *, has_old_clients: bool = True, steps: int = 60) -> Life:
    life = Life(seed, has_old_clients=has_old_clients)
    try:
        life.run(steps)
    except Exception as error:
        raise AssertionError(
            f"seed {seed}, has_old_clients={has_old_clients}: {error!r}"
        ) from error
    return life


def play_many(first: int, count: int, *, has_old_clients: bool, steps: int = 60) -> None:
    for seed in range(first, first + count):
        play(seed, has_old_clients=has_old_clients, steps=steps)


@pytest.mark.parametrize("first", sampled(range(0, 1000, _CHUNK), 1, 3))
def test_consumer_members_never_share_a_partition_and_come_to_rest(first: int) -> None:
    play_many(first, _CHUNK, has_old_clients=False)


@pytest.mark.parametrize("first", sampled(range(0, 1000, _CHUNK), 1, 3))
def test_members_of_both_protocols_never_share_a_partition_and_come_to_rest(first: int) -> None:
    play_many(first, _CHUNK, has_old_clients=True)


@pytest.mark.torture
@pytest.mark.parametrize("has_old_clients", [False, True])
def test_long_lives_of_many_seeds(has_old_clients: bool) -> None:
    play_many(1_000_000, 5000, has_old_clients=has_old_clients, steps=150)


def test_what_seeds_do_is_worth_checking() -> None:
    """Both moves between the protocols happen, and members are asked to give partitions up."""
    kinds = {type(play(seed).broker.group).__name__ for seed in range(30)}
    assert {"ConsumerGroup", "ClassicGroup"} <= kinds


def replace_reconciled(
    monkeypatch: pytest.MonkeyPatch, broken: Callable[..., CurrentAssignment]
) -> None:
    """Let members of both protocols make their steps with a defect."""
    for module in (consumer_transitions, consumer_classic_members):
        monkeypatch.setattr(module, "reconciled", broken)


def test_checker_finds_partitions_given_out_while_another_holds_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def careless(group: ConsumerGroup, member: Member, **owned: Any) -> CurrentAssignment:
        return reconciled(replace(group, members={member.member_id: member}), member, **owned)

    replace_reconciled(monkeypatch, careless)
    with pytest.raises(AssertionError, match="is held by another one too"):
        play_many(0, 100, has_old_clients=False)


def test_checker_finds_partitions_taken_without_the_owner_knowing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def impatient(group: ConsumerGroup, member: Member, **_: Any) -> CurrentAssignment:
        return reconciled(group, member, owned=NO_PARTITIONS)

    replace_reconciled(monkeypatch, impatient)
    with pytest.raises(AssertionError, match=r"owns .* but holds"):
        play_many(0, 100, has_old_clients=False)


def test_checker_finds_members_that_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    def timid(group: ConsumerGroup, member: Member, **owned: Any) -> CurrentAssignment:
        wanted = difference(target_of(group, member.member_id), member.current.assigned)
        holder = replace(member, current=replace(member.current, assigned=wanted))
        holder = replace(holder, member_id="holder")
        members = {**group.members, holder.member_id: holder}
        return reconciled(replace(group, members=members), member, **owned)

    replace_reconciled(monkeypatch, timid)
    with pytest.raises(AssertionError, match="is assigned where"):
        play_many(0, 100, has_old_clients=False)


def test_checker_finds_records_that_were_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    real = consumer_records.records_between

    def forgetful(*groups: ConsumerGroup | None) -> object:
        return tuple(r for r in real(*groups) if not isinstance(r, GroupEpochRecord))

    monkeypatch.setattr(consumer_transitions, "records_between", forgetful)
    with pytest.raises(AssertionError, match="stored is"):
        play_many(0, 100, has_old_clients=False)
