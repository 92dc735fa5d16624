"""The broker's topics, with a power cut at every step that touches the disk.

What was told is so after the cut; what was under way happened as a whole, or not at all.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

import pytest

from millstream.clock import ManualClock
from millstream.settings.names import is_internal_topic
from tests.fakes.crash_points import PHASES, STEPS
from tests.fakes.fake_broker import FakeBroker
from tests.fakes.fake_disk import CrashMode
from tests.fakes.fake_filesystem import Crash, CrashMoment, FakeFilesystem
from tests.fakes.log_steps import append
from tests.fakes.sample_batches import batch_of, values_of
from tests.fakes.simulated_loop import run_simulated

PARTS = 4


class State(NamedTuple):
    """What a client can see of topics and their content."""

    topics: Mapping[str, tuple[int, Mapping[str, str]]]
    content: Mapping[str, list[bytes]]


Step = Callable[[FakeBroker], Awaitable[object]]


def store(host: FakeBroker, topic: str, number: int, value: bytes) -> None:
    log = host.topics.partition(topic, number).log
    append(log, batch_of(value))
    log.sync()


async def do_store(host: FakeBroker, topic: str, number: int, value: bytes) -> None:
    store(host, topic, number, value)


async def do_clean(host: FakeBroker) -> None:
    await host.housekeeping.remove_deleted()


async def do_checkpoint(host: FakeBroker) -> None:
    await host.housekeeping.checkpoint()


OWN = {"retention.ms": "5"}
ALTERED = {**OWN, "segment.bytes": "1000"}

# Each step, and what is to be seen once it is done.
SCRIPT: list[tuple[Step, State]] = [
    (lambda host: host.start(), State({}, {})),
    (
        lambda host: host.topics.create("a", partitions=2, overrides=OWN),
        State({"a": (2, OWN)}, {}),
    ),
    (lambda host: do_store(host, "a", 1, b"1"), State({"a": (2, OWN)}, {"a/1": [b"1"]})),
    (
        lambda host: host.topics.add_partitions("a", 3),
        State({"a": (3, OWN)}, {"a/1": [b"1"]}),
    ),
    (
        lambda host: host.topics.alter("a", {"segment.bytes": "1000"}),
        State({"a": (3, ALTERED)}, {"a/1": [b"1"]}),
    ),
    (
        lambda host: host.topics.create("b", partitions=1, overrides={}),
        State({"a": (3, ALTERED), "b": (1, {})}, {"a/1": [b"1"]}),
    ),
    (
        lambda host: do_store(host, "b", 0, b"old"),
        State({"a": (3, ALTERED), "b": (1, {})}, {"a/1": [b"1"], "b/0": [b"old"]}),
    ),
    (do_checkpoint, State({"a": (3, ALTERED), "b": (1, {})}, {"a/1": [b"1"], "b/0": [b"old"]})),
    (lambda host: host.topics.delete("b"), State({"a": (3, ALTERED)}, {"a/1": [b"1"]})),
    (
        lambda host: host.topics.create("b", partitions=2, overrides={}),
        State({"a": (3, ALTERED), "b": (2, {})}, {"a/1": [b"1"]}),
    ),
    (
        lambda host: do_store(host, "b", 0, b"new"),
        State({"a": (3, ALTERED), "b": (2, {})}, {"a/1": [b"1"], "b/0": [b"new"]}),
    ),
    (do_checkpoint, State({"a": (3, ALTERED), "b": (2, {})}, {"a/1": [b"1"], "b/0": [b"new"]})),
    (do_clean, State({"a": (3, ALTERED), "b": (2, {})}, {"a/1": [b"1"], "b/0": [b"new"]})),
    (lambda host: host.topics.delete("a"), State({"b": (2, {})}, {"b/0": [b"new"]})),
]


def play(disk: FakeFilesystem) -> int:
    """Go through the script; returns the number of steps that were done before a crash."""
    done = 0

    async def steps() -> None:
        nonlocal done
        host = FakeBroker(disk)
        for step, _ in SCRIPT:
            await step(host)
            done += 1

    with suppress(Crash):
        run_simulated(steps(), ManualClock())
    return done


def seen(host: FakeBroker) -> State:
    logs = [p.log for t in host.topics.all() if not t.is_internal for p in t.partitions]
    content = {log.name: [v for v in values_of(log) if v is not None] for log in logs}
    for log in logs:
        assert log.start_offset == 0, "a new log must not begin where an old one ended"
    return State(host.shape(), {name: values for name, values in content.items() if values})


async def started(disk: FakeFilesystem) -> FakeBroker:
    return await FakeBroker(disk, first_id=1000).start()


async def prove_usable(host: FakeBroker) -> None:
    """All that is left over can be taken away, and every name is free that is not in use."""
    used = set(host.shape())
    await host.housekeeping.remove_deleted()
    assert {name for name in host.topic_directories() if not is_internal_topic(name)} <= used
    for name in {"a", "b", "c"} - used:
        await host.topics.create(name, partitions=1, overrides={})
        store(host, name, 0, b"after")
        assert values_of(host.topics.partition(name, 0).log) == [b"after"]


def recovered(disk: FakeFilesystem) -> State:
    async def look() -> State:
        state = seen(await started(disk))
        # What the first start found, the next one finds, after whatever end.
        host = await started(disk.after_crash("lost"))
        assert seen(host) == state
        await prove_usable(host)
        return state

    return run_simulated(look(), ManualClock())


def test_script_runs_to_its_end_without_a_crash() -> None:
    disk = FakeFilesystem()
    assert play(disk) == len(SCRIPT)
    assert recovered(disk.after_crash("kept")) == SCRIPT[-1][1]


@STEPS
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("mode", ["kept", "lost", "torn"])
def test_crash_at_any_step_leaves_topics_as_they_were_told(
    mode: CrashMode, moment: CrashMoment, part: int, every: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "millstream")
    counted = FakeFilesystem()
    play(counted)
    first = 1 + part + PARTS * (PHASES[mode] % every)
    for operation in range(first, counted.operation_count + 1, PARTS * every):
        disk = FakeFilesystem()
        disk.crash_at(operation, moment)
        done = play(disk)
        before = SCRIPT[done - 1][1] if done else State({}, {})
        after = SCRIPT[min(done, len(SCRIPT) - 1)][1]
        state = recovered(disk.after_crash(mode, operation))
        assert state in (before, after), (operation, disk.operations[-1])
        assert "found on disk" not in caplog.text
        assert "cannot" not in caplog.text
        caplog.clear()
