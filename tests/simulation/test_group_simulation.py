"""Thousands of random schedules of a group, and proof that the checks can fail.

A failure names its seed: `run_schedules(range(seed, seed + 1))` plays it again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from millstream.groups import migration
from tests.fakes.tiers import sampled
from tests.simulation.broken_groups import Greedy, LateCommits, LateSyncs, Silent, Unsettled
from tests.simulation.group_checker import Violation
from tests.simulation.group_schedule import run_schedules
from tests.simulation.hasty_flusher import HastyFlusher

_CHUNK = 50
_ENOUGH = range(300)
"""Each broken group below is found in a tenth of them, so that another random stream also does."""


@pytest.mark.parametrize("chunk", sampled(range(500), 2, 10))
def test_group_keeps_its_promises_whatever_happens(chunk: int) -> None:
    run_schedules(range(chunk * _CHUNK, (chunk + 1) * _CHUNK))


def find_out(message: str, seeds: range = _ENOUGH, **defects: Any) -> None:
    with pytest.raises(Violation, match=message):
        run_schedules(seeds, **defects)


def test_everything_assigned_to_everyone_is_found_out() -> None:
    find_out("two owners", broken=Greedy)


def test_answer_before_it_is_durable_is_found_out() -> None:
    find_out("was promised|came after|two owners|restart changed", flusher=HastyFlusher)


def test_fetched_offset_that_may_be_lost_is_found_out() -> None:
    find_out("was promised", broken=Unsettled)


def test_forgotten_request_is_found_out() -> None:
    find_out("does not come", broken=Silent)


def test_commit_of_an_old_generation_is_found_out() -> None:
    find_out("was taken after", broken=LateCommits)


def test_request_answered_twice_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    sync = migration.sync

    def answer_twice(*arguments: Any, **options: Any) -> Any:
        outcome = sync(*arguments, **options)
        return replace(outcome, replies=outcome.replies * 2)

    monkeypatch.setattr(migration, "sync", answer_twice)
    with pytest.raises(AssertionError, match="answered twice"):
        run_schedules(_ENOUGH)


def test_sync_of_another_generation_is_found_out() -> None:
    find_out("was assigned after|two owners", broken=LateSyncs)
