"""Errors of our own in one group: they are logged, and nothing else stops for them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from millstream.broker import group_steps
from millstream.clock import ManualClock
from millstream.groups import migration
from millstream.groups.offsets import Committer, OffsetToCommit
from tests.fakes.group_home import GROUP, SESSION_MS, GroupHome, stable
from tests.fakes.simulated_loop import run_simulated

NOBODY = Committer("", None, -1)
EIGHT_DAYS_S = 8 * 86_400


def play(scene: Callable[[GroupHome], Awaitable[None]]) -> None:
    clock = ManualClock()

    async def run() -> None:
        home = await GroupHome(clock=clock).start()
        await scene(home)
        await home.stop()

    run_simulated(run(), clock)


def test_group_whose_clock_fails_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(home: GroupHome) -> None:
        await stable(home)
        with monkeypatch.context() as patched:
            patched.setattr(migration, "tick", broken)
            await asyncio.sleep(2 * SESSION_MS / 1000)
            assert home.groups.describe(GROUP).state == "Stable"
        assert "the passing of time went wrong" in caplog.text
        await asyncio.sleep(2)
        assert home.groups.describe(GROUP).state == "Empty"

    play(scene)


def test_group_that_cannot_expire_leaves_the_others_to(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    expire = group_steps.expire

    def expire_others(hosted: group_steps.Hosted, *arguments: Any) -> group_steps.Result:
        return broken() if hosted.group_id == "bad" else expire(hosted, *arguments)

    async def scene(home: GroupHome) -> None:
        for group_id in ("bad", "good"):
            await home.groups.commit(group_id, NOBODY, [OffsetToCommit("t", 0, 1, -1, "")])
        monkeypatch.setattr(group_steps, "expire", expire_others)
        upkeep = asyncio.create_task(home.groups.run())
        await asyncio.sleep(EIGHT_DAYS_S)
        assert not upkeep.done()
        assert [listing.group_id for listing in home.groups.list()] == ["bad"]
        assert "offsets not expired" in caplog.text
        upkeep.cancel()

    play(scene)


def broken(*_: object, **__: object) -> Any:
    raise RuntimeError("a bug")
