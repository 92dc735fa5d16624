"""Lines that clients cause: a few of each kind and address, and then their number."""

from __future__ import annotations

import asyncio
import logging

import pytest

from millstream.clock import ManualClock
from millstream.telemetry.client_log import LINES_PER_MINUTE, ClientLog
from tests.fakes.simulated_loop import run_simulated

_log = logging.getLogger("millstream.test_client_log")


class Scribe:
    """Writes lines of one kind and host."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.log = ClientLog(self.clock)

    def write(self, count: int, *, kind: str = "kind", host: str = "host") -> None:
        for number in range(count):
            self.log.write(
                _log,
                logging.WARNING,
                "%(host)s: number %(number)d",
                {"host": host, "number": number},
                kind=kind,
                host=host,
            )


def test_lines_past_the_limit_are_counted_and_summarised_at_the_end_of_the_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        scribe = Scribe()
        scribe.write(1000)
        assert caplog.messages == [f"host: number {number}" for number in range(LINES_PER_MINUTE)]
        caplog.clear()
        scribe.clock.advance_ms(60_000)
        scribe.write(1)
        assert caplog.messages == [
            "995 more of these in the last minute: host: number 999",
            "host: number 0",
        ]
        scribe.log.close()

    asyncio.run(main())


def test_summary_is_written_when_nothing_follows(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        scribe = Scribe()
        scribe.write(LINES_PER_MINUTE + 1)
        caplog.clear()
        scribe.log.close()
        assert caplog.messages == ["1 more of these in the last minute: host: number 5"]

    asyncio.run(main())


def test_summary_is_written_by_a_timer_at_the_end_of_the_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scribe = Scribe()

    async def main() -> None:
        scribe.write(LINES_PER_MINUTE + 1, host="first")
        await asyncio.sleep(30)
        scribe.write(LINES_PER_MINUTE + 2, host="second")
        caplog.clear()
        await asyncio.sleep(31)
        assert caplog.messages == ["1 more of these in the last minute: first: number 5"]
        await asyncio.sleep(31)
        assert caplog.messages[1:] == ["2 more of these in the last minute: second: number 6"]

    run_simulated(main(), scribe.clock)


def test_each_kind_and_each_host_has_its_own_lines(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        scribe = Scribe()
        scribe.write(LINES_PER_MINUTE)
        scribe.write(LINES_PER_MINUTE, kind="other")
        scribe.write(LINES_PER_MINUTE, host="other")
        assert len(caplog.messages) == 3 * LINES_PER_MINUTE
        caplog.clear()
        scribe.log.close()
        assert caplog.messages == []

    asyncio.run(main())


def test_hosts_without_number_share_one_count(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        scribe = Scribe()
        for number in range(1000):
            scribe.write(1, host=f"host {number}")
        assert len(caplog.messages) == 1000
        for number in range(1000, 2000):
            scribe.write(1, host=f"host {number}")
        assert len(caplog.messages) == 1000 + LINES_PER_MINUTE
        scribe.log.close()
        assert caplog.messages[-1] == "995 more of these in the last minute: host 1999: number 0"

    asyncio.run(main())


def test_lines_below_the_level_of_the_log_are_not_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR, logger="millstream"):
        asyncio.run(_write_and_close())
    assert caplog.messages == []


async def _write_and_close() -> None:
    scribe = Scribe()
    scribe.write(100)
    scribe.log.close()
