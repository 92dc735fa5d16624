"""A look at the metrics leaves room for others, and is told what the broker counts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import pairwise

import pytest

from millstream.broker import metrics
from millstream.broker.metrics import Metrics, at_ease
from millstream.telemetry.catalogue import TOPICS
from millstream.telemetry.metric import Reading


def test_long_look_lets_others_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = 0

    def steps() -> Iterator[None]:
        nonlocal now_ns
        for _ in range(100):
            now_ns += 1_000_000
            yield

    monkeypatch.setattr(metrics, "ticks_ns", lambda: now_ns)
    turns = []

    async def look() -> None:
        other = asyncio.create_task(watch())
        await at_ease(steps())
        other.cancel()

    async def watch() -> None:
        while True:
            turns.append(now_ns)
            await asyncio.sleep(0)

    asyncio.run(look())
    waits_ms = [(after - before) / 1e6 for before, after in pairwise(turns)]
    assert turns[-1] >= 90_000_000
    assert max(waits_ms) <= 5


def test_sources_are_asked_anew_at_every_look() -> None:
    metrics_of = Metrics()
    count = 0

    def source(reading: Reading) -> Iterator[None]:
        nonlocal count
        count += 1
        reading.add(TOPICS, count)
        yield

    metrics_of.add(source)
    looks = [asyncio.run(metrics_of.collect()).value(TOPICS) for _ in range(3)]
    assert looks == [1, 2, 3]
