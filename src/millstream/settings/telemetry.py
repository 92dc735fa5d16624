"""Settings of what the broker tells of itself: logs and traces."""

from __future__ import annotations

import re
from dataclasses import dataclass

from millstream.settings.declaration import check, setting
from millstream.settings.domain import Flag, Fraction, OneOf, Text, Whole

_URL = re.compile(r"https?://([\w.-]+|\[[0-9a-fA-F:.]+\])(:[1-9]\d{0,4})?(/[!-~]*)?")
_DAY_MS = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class Url:
    """An address of HTTP."""

    expected: str = "a URL that begins with http:// or https://"

    def convert(self, raw: object) -> object:
        return raw

    def contains(self, value: object) -> bool:
        return isinstance(value, str) and _URL.fullmatch(value) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySettings:
    """What is logged and traced, and how."""

    log_level: str = setting(
        "log.level",
        "info",
        OneOf(("debug", "info", "warning", "error")),
        "Events of less weight than this are not logged; debug tells of each connection, too.",
    )
    log_format: str = setting(
        "log.format",
        "auto",
        OneOf(("auto", "text", "json")),
        "How events are written to standard error: as text for people, or as one JSON object on "
        "each line; auto is text on a terminal and JSON elsewhere.",
        needs_restart=True,
    )
    slow_request_ms: int = setting(
        "slow.request.ms",
        1000,
        Whole(0, _DAY_MS, "0 for never"),
        "A request that takes longer than this is logged, but not the time that a client asked to "
        "wait for data or for other members.",
    )
    tracing: bool = setting(
        "tracing.enable",
        default=False,
        domain=Flag(),
        doc="Whether spans of produce and fetch requests are sent to an OpenTelemetry collector. "
        "Needs the extra `tracing`.",
        needs_restart=True,
    )
    tracing_endpoint: str = setting(
        "tracing.endpoint",
        "http://127.0.0.1:4318/v1/traces",
        Url(),
        "Where the collector takes spans, by OTLP over HTTP.",
        needs_restart=True,
    )
    tracing_service_name: str = setting(
        "tracing.service.name",
        "millstream",
        Text("a name"),
        "How this broker is called in traces.",
        needs_restart=True,
    )
    tracing_sample_ratio: float = setting(
        "tracing.sample.ratio",
        1.0,
        Fraction(0, 1),
        "Share of the traces that begin here which are kept. One that a client has begun is kept "
        "if the client keeps it.",
        needs_restart=True,
    )

    def __post_init__(self) -> None:
        check(self)
