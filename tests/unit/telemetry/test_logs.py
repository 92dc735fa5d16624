"""An event is one line: a sentence for people, a JSON object for programs."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream import app
from millstream.broker.recovery_reports import log_reports
from millstream.protocol.messages.metadata import MetadataRequest
from millstream.settings.loader import load
from millstream.settings.telemetry import TelemetrySettings
from millstream.storage.recovery_report import RecoveryReport
from millstream.telemetry.log_writer import LogWriter
from millstream.telemetry.logs import JsonLines, TextLines, set_level, start_logging
from tests.fakes.wire_client import WireClient

_log = logging.getLogger("millstream.broker.mill")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def usual_logging() -> Iterator[None]:
    root, own = logging.getLogger(), logging.getLogger("millstream")
    handlers, levels = root.handlers[:], (root.level, own.level)
    yield
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    own.setLevel(levels[1])


def events(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_program_gets_the_names_and_values_of_an_event() -> None:
    stream = io.StringIO()
    start_logging(TelemetrySettings(), stream)
    _log.info("topic %(topic)s has %(partitions)d", {"topic": "orders", "partitions": 3})
    _log.warning("%(error)s", {"error": ValueError("bad"), "level": "mine"})
    first, second = events(stream)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first.pop("time"))
    assert first == {
        "level": "info",
        "event": "topic orders has 3",
        "source": "broker.mill",
        "topic": "orders",
        "partitions": 3,
    }
    assert (second["level"], second["error"]) == ("warning", "bad")


def test_person_gets_a_sentence() -> None:
    stream = Terminal()
    start_logging(TelemetrySettings(), stream)
    _log.info("topic %(topic)s is deleted", {"topic": "orders"})
    line = stream.getvalue()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d [\d:]{8}\.\d{3} INFO    topic orders is deleted\n", line)


@pytest.mark.parametrize(
    ("log_format", "stream", "kind"),
    [
        ("text", io.StringIO(), TextLines),
        ("json", Terminal(), JsonLines),
        ("auto", io.StringIO(), JsonLines),
        ("auto", Terminal(), TextLines),
    ],
)
def test_format_can_be_chosen(
    log_format: str, stream: io.StringIO, kind: type[logging.Formatter]
) -> None:
    start_logging(TelemetrySettings(log_format=log_format), stream)
    [handler] = logging.getLogger().handlers
    assert type(handler.formatter) is kind


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_name_of_a_client_makes_no_line_of_its_own(stream: io.StringIO) -> None:
    start_logging(TelemetrySettings(), stream)
    _log.info("%(client)s is here", {"client": "x\n2026-01-01 ERROR all is lost\x1b[2J"})
    assert stream.getvalue().count("\n") == 1
    assert "\x1b" not in stream.getvalue()


def test_json_keeps_what_ends_a_line_for_some_readers_within_it() -> None:
    stream = io.StringIO()
    start_logging(TelemetrySettings(), stream)
    client = "a\u2028b\u0085c\u009b31m\x7f\udcff Grüße"
    _log.info("%(client)s has come", {"client": client})
    assert stream.getvalue()[:-1].isprintable()
    [event] = events(stream)
    assert event["client"] == client


def test_defect_is_told_with_its_traceback() -> None:
    people, programs = Terminal(), io.StringIO()
    for stream in (people, programs):
        start_logging(TelemetrySettings(), stream)
        try:
            raise KeyError("lost")
        except KeyError:
            _log.exception("it failed")
    assert "Traceback (most recent call last):\n" in people.getvalue()
    [event] = events(programs)
    assert event["event"] == "it failed"
    assert event["traceback"].endswith("KeyError: 'lost'")


def test_what_may_stall_is_written_by_a_thread_and_a_file_at_once(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as file:
        start_logging(TelemetrySettings(), file)
        _log.info("here")
        assert "here" in (tmp_path / "log").read_text()
    reading, writing = os.pipe()
    with open(reading) as reader, open(writing, "w") as writer:
        start_logging(TelemetrySettings(), writer)
        [handler] = logging.getLogger().handlers
        assert isinstance(handler, LogWriter)
        _log.info("there")
        assert "there" in reader.readline()


def test_level_is_that_of_the_settings_also_when_they_change() -> None:
    stream = io.StringIO()
    start_logging(TelemetrySettings(log_level="warning"), stream)
    _log.info("unheard")
    set_level(TelemetrySettings(log_level="debug"))
    _log.debug("heard")
    logging.getLogger("websockets").debug("a frame")
    assert [event["event"] for event in events(stream)] == ["heard"]


def test_recovery_is_reported_log_by_log_or_in_sum_where_there_are_many() -> None:
    stream = io.StringIO()
    start_logging(TelemetrySettings(), stream)
    torn = RecoveryReport("a/0", scanned_bytes=10, batches=2, torn=["3 bytes at 7"])
    log_reports([torn, RecoveryReport("b/0", clean=True)])
    assert [(e["log"], e["event"]) for e in events(stream)] == [
        ("a/0", "a/0: not stopped cleanly; scanned 10 bytes, kept 2 batches"),
        ("a/0", "a/0: cut a torn tail: 3 bytes at 7"),
    ]
    stream.truncate(0)
    stream.seek(0)
    log_reports([torn, *(RecoveryReport(f"c/{n}", scanned_bytes=1) for n in range(30))])
    first, second = events(stream)
    assert (first["unclean"], first["logs"], first["scanned_bytes"]) == (31, 31, 40)
    assert second["torn"] == "3 bytes at 7"


def test_slow_request_is_logged_with_its_client(tmp_path: Path) -> None:
    stream = io.StringIO()
    start_logging(TelemetrySettings(), stream)
    settings = load(
        assignments=[
            f"storage.data.dir={tmp_path}",
            "kafka.listeners=127.0.0.1:0",
            "http.http.listener=off",
            "pylogstreams.pylogstreams.listener=off",
        ]
    )
    off = load(assignments=["telemetry.slow.request.ms=0"])

    async def scenario() -> None:
        async with app.running(settings, say=lambda _: None) as running:
            requests = running.broker.metrics.requests
            assert requests.slow_ns == 1_000_000_000
            host, _, port = running.addresses["kafka"].rpartition(":")
            client = await WireClient.connect(host, int(port))
            # Slower than this is everything.
            requests.slow_ns = -1
            await client.ask(MetadataRequest(topics=[]), 9)
            running.reconfigure(off)
            assert requests.slow_ns == sys.maxsize
            await client.ask(MetadataRequest(topics=[]), 9)
            await client.close()

    asyncio.run(scenario())
    [slow] = [event for event in events(stream) if event["event"].startswith("slow request")]
    assert (slow["request"], slow["client"]) == ("Metadata", "test")
    assert slow["peer"].startswith("127.0.0.1:")
    assert slow["elapsed_ms"] >= 0
