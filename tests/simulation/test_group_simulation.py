"""Thousands of random schedules of a group, and proof that the checks can fail.

A failure names its seed: `run_schedules(range(seed, seed + 1))` plays it again.
"""

from __future__ import annotations

from typing import Any

import pytest

from millstream.broker import group_steps
from millstream.broker.group_runner import GroupRunner, HostedGroup
from millstream.groups import classic_rebalance, classic_transitions
from millstream.groups.classic_group import ClassicGroup
from millstream.groups.classic_rebalance import Draft
from millstream.groups.commands import Sync
from millstream.groups.outcome import Outcome
from tests.simulation.group_checker import Violation
from tests.simulation.group_schedule import run_schedules
from tests.simulation.group_world import PARTITIONS

_CHUNK = 100
_ENOUGH = range(300)
"""Schedules in which every broken group below is found out."""


@pytest.mark.parametrize("chunk", range(20))
def test_group_keeps_its_promises_whatever_happens(chunk: int) -> None:
    run_schedules(range(chunk * _CHUNK, (chunk + 1) * _CHUNK))


@pytest.mark.torture
@pytest.mark.parametrize("chunk", range(20, 500))
def test_group_keeps_its_promises_for_long(chunk: int) -> None:
    run_schedules(range(chunk * _CHUNK, (chunk + 1) * _CHUNK))


def test_everything_assigned_to_everyone_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assign = classic_transitions._assign

    def greedy(draft: Draft, assignments: dict[str, bytes]) -> None:
        assign(draft, dict.fromkeys(draft.group.members, bytes(range(PARTITIONS))))

    monkeypatch.setattr(classic_transitions, "_assign", greedy)
    with pytest.raises(Violation, match="two owners"):
        run_schedules(_ENOUGH)


def test_answer_before_it_is_durable_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    run = GroupRunner._run

    def hasty(
        self: GroupRunner[Any], hosted: HostedGroup[Any], outcome: Outcome[Any, Any], *rest: Any
    ) -> None:
        run(self, hosted, Outcome(outcome.group, outcome.records), *rest)
        hosted.unsettled = None
        self._deliver(outcome.replies)

    monkeypatch.setattr(GroupRunner, "_run", hasty)
    with pytest.raises(Violation, match="was promised"):
        run_schedules(_ENOUGH)


def test_fetched_offset_that_may_be_lost_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(self: GroupRunner[Any], hosted: HostedGroup[Any]) -> None:
        pass

    monkeypatch.setattr(GroupRunner, "settled", at_once)
    with pytest.raises(Violation, match="was promised"):
        # Rare: a crash must come while the disk is busy and somebody has looked.
        run_schedules(range(650, 1_200))


def test_forgotten_ticket_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def forget(draft: Draft) -> None:
        draft.change_all(lambda member: member._replace(sync_ticket=None))

    monkeypatch.setattr(classic_rebalance, "_give_up_assignment", forget)
    with pytest.raises(Violation, match="does not come"):
        run_schedules(_ENOUGH)


def test_commit_of_an_old_generation_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_steps, "commit_refusal", lambda group, committer: None)
    with pytest.raises(Violation, match="was taken after"):
        run_schedules(_ENOUGH)


def test_ticket_answered_twice_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = classic_rebalance._answer_both

    def twice(*arguments: Any) -> None:
        answer(*arguments)
        answer(*arguments)

    monkeypatch.setattr(classic_rebalance, "_answer_both", twice)
    with pytest.raises(Violation, match="answered twice"):
        run_schedules(_ENOUGH)


def test_sync_of_an_old_generation_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = classic_transitions._sync_refusal

    def forgiving(group: ClassicGroup, command: Sync) -> object:
        return refusal(group, command._replace(generation=group.generation))

    monkeypatch.setattr(classic_transitions, "_sync_refusal", forgiving)
    with pytest.raises(Violation, match="two owners"):
        run_schedules(_ENOUGH)
