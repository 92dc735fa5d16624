"""Which pages are looked at most: page views are counted in windows of time, as they come.

    python examples/analytics.py report       in one terminal
    python examples/analytics.py visit        in another one; visitors come and go
    python examples/analytics.py --demo       shows it, and ends

Windows are cut by the time at which a page was looked at, not by when it was counted, so a report
about last night is the same as it was then: `report --since 2026-01-31T22:00+00:00`. Needs
a running broker: start one with `millstream serve`.
"""

# ruff: noqa: S311 - visitors need no secure randomness
from __future__ import annotations

import argparse
import asyncio
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

from millstream.client import AsyncConnection, AsyncSubscription, NewMessage, connect_async
from millstream.client.frames import Start
from millstream.errors import Unreachable

PAGES = ["/", "/prices", "/docs", "/docs/start", "/about"]
POPULARITY = [8, 3, 5, 4, 1]


async def visit(broker: AsyncConnection, topic: str) -> None:
    """Visitors come and go, until stopped."""
    while True:
        [page] = random.choices(PAGES, POPULARITY)
        await broker.send(topic, page, key=f"visitor-{random.randrange(100)}")
        await asyncio.sleep(random.uniform(0, 0.05))


async def windows(
    views: AsyncSubscription, width: timedelta
) -> AsyncIterator[tuple[datetime, Counter[str]]]:
    """Views by page, window after window. One is over when the next has begun."""
    counts: Counter[str] = Counter()
    current: datetime | None = None
    async for view in views:
        number = view.timestamp.timestamp() // width.total_seconds()
        begin = datetime.fromtimestamp(number * width.total_seconds(), UTC)
        if current is not None and begin > current:
            yield current, counts
            counts = Counter()
        # What comes late is counted in the window that is open.
        current = begin if current is None else max(begin, current)
        counts[view.text] += 1


def shown(begin: datetime, counts: Counter[str]) -> str:
    pages = ", ".join(f"{page} {count}" for page, count in counts.most_common(3))
    return f"{begin:%H:%M:%S}  {counts.total():5} views: {pages}"


async def report(broker: AsyncConnection, topic: str, *, start: Start, width: timedelta) -> None:
    async with await broker.subscribe(topic, start=start) as views:
        async for begin, counts in windows(views, width):
            print(shown(begin, counts), flush=True)


async def demo(broker: AsyncConnection) -> None:
    """Two minutes of an evening, counted in half minutes; then the second one once more."""
    topic = f"views-demo-{datetime.now(UTC):%Y%m%d%H%M%S%f}"
    evening = datetime(2026, 1, 31, 20, 0, tzinfo=UTC)
    chance = random.Random(7)
    looked_at = [
        NewMessage(
            chance.choices(PAGES, POPULARITY)[0], timestamp=evening + timedelta(seconds=n / 10)
        )
        for n in range(1201)
    ]
    await broker.topics.create(topic, partitions=1)
    await broker.send_many(topic, looked_at)
    width = timedelta(seconds=30)
    for start in (evening, evening + timedelta(minutes=1)):
        print(f"since {start:%H:%M:%S}:")
        async with await broker.subscribe(topic, start=start) as views:
            async for begin, counts in windows(views, width):
                print(shown(begin, counts))
                if begin == evening + timedelta(seconds=90):
                    break
    await broker.topics.delete(topic)


async def run(chosen: argparse.Namespace) -> None:
    async with connect_async(chosen.url) as broker:
        if chosen.demo:
            await demo(broker)
        elif chosen.task == "visit":
            await visit(broker, chosen.topic)
        else:
            width = timedelta(seconds=chosen.window)
            await report(broker, chosen.topic, start=chosen.since or "latest", width=width)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("task", nargs="?", choices=["visit", "report"])
    parser.add_argument("--topic", default="page-views", help="default: %(default)s")
    parser.add_argument("--window", type=float, default=10, help="seconds (default: %(default)s)")
    parser.add_argument(
        "--since", type=datetime.fromisoformat, help="report from this time on, with its zone"
    )
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="the broker's HTTP door")
    parser.add_argument("--demo", action="store_true", help="show it, and end")
    chosen = parser.parse_args()
    if not chosen.demo and not chosen.task:
        parser.error("say visit or report, or give --demo")
    try:
        asyncio.run(run(chosen))
    except (Unreachable, ValueError) as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
