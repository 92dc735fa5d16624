"""The log of a running broker: a line for each event, on standard error.

For a person it is a sentence. For a program it is a JSON object whose members are the sentence and
the values in it, by name:

    _log.info("topic %(topic)s is deleted", {"topic": name})

    2026-11-16 08:30:00.123 INFO    topic orders is deleted
    {"time": "2026-11-16T08:30:00.123Z", "level": "info", "event": "topic orders is deleted",
     "source": "broker.topics", "topic": "orders"}

Invariant: whatever a client calls itself, an event is one line, and cannot steer the terminal. Only
what a defect leaves behind is told to people in several lines.
"""

from __future__ import annotations

import json
import logging
import os
import stat
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TextIO

from millstream.settings.telemetry import TelemetrySettings
from millstream.telemetry.log_writer import LogWriter

_PACKAGE = "millstream."


def start_logging(settings: TelemetrySettings, stream: TextIO) -> None:
    """Write the log of this process to a stream from now on, and to nothing else."""
    is_text = settings.log_format == "text" or (settings.log_format == "auto" and stream.isatty())
    handler = LogWriter(stream) if _can_stall(stream) else logging.StreamHandler(stream)
    handler.setFormatter(TextLines() if is_text else JsonLines())
    logging.basicConfig(handlers=[handler], force=True)
    # It tells of its own start and end, and of what strangers send; neither is our news.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    set_level(settings)


def set_level(settings: TelemetrySettings) -> None:
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    logging.getLogger("millstream").setLevel(level)
    # Libraries tell of every frame when they are asked for details, which nobody has asked for.
    logging.getLogger().setLevel(max(level, logging.INFO))


def _can_stall(stream: TextIO) -> bool:
    """Whether it waits for a reader: all but files do, and of these nothing is lost in a crash."""
    try:
        return not stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):
        return False


class TextLines(logging.Formatter):
    """For people."""

    def format(self, record: logging.LogRecord) -> str:
        time = _time(record).isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")
        line = f"{time} {record.levelname:<7} {_printable(record.getMessage())}"
        traceback = _traceback(self, record)
        return f"{line}\n{traceback}" if traceback else line


class JsonLines(logging.Formatter):
    """For programs."""

    def format(self, record: logging.LogRecord) -> str:
        members: dict[str, Any] = {
            "time": _time(record).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "source": record.name.removeprefix(_PACKAGE),
        }
        if isinstance(record.args, Mapping):
            members |= {name: value for name, value in record.args.items() if name not in members}
        if traceback := _traceback(self, record):
            members["traceback"] = traceback
        line = json.dumps(members, ensure_ascii=False, default=str)
        if line.isprintable():
            return line
        # JSON lets stand what ends a line for some readers, and what steers some terminals.
        return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in line)


def _time(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, tz=UTC)


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    return formatter.formatException(record.exc_info) if record.exc_info else ""


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )
