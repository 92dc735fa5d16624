"""Spans of the broker's work, for OpenTelemetry: one trace from a producer to its consumers.

A message carries the context of whoever sent it in its header `traceparent` (W3C Trace Context), as
OpenTelemetry's Kafka instrumentations put it there. A span of the broker is a child of that.

Nothing here is imported or called unless tracing is on: then other classes are in the place of
the usual ones, so the usual ones ask nothing. It changes nothing in the process besides: no
provider is made the global one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from millstream import __version__
from millstream.errors import MissingExtra
from millstream.settings.telemetry import TelemetrySettings

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span

TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"
EXTRA = "tracing"

_EXPORT_S = 2.0
_CLOSE_S = 1.0

Headers = Iterable[tuple[str, bytes | None]]
Attributes = Mapping[str, str | int]


def open_tracing(settings: TelemetrySettings, exporter: SpanExporter | None = None) -> Tracing:
    """Spans go to the collector of the settings, or to another exporter. Raises MissingExtra."""
    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
        from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

        provider = TracerProvider(
            resource=Resource.create(
                {"service.name": settings.tracing_service_name, "service.version": __version__}
            ),
            sampler=ParentBased(TraceIdRatioBased(settings.tracing_sample_ratio)),
            shutdown_on_exit=False,
        )
        if exporter is not None:
            provider.add_span_processor(SimpleSpanProcessor(exporter))
        else:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            otlp = OTLPSpanExporter(endpoint=settings.tracing_endpoint, timeout=_EXPORT_S)
            provider.add_span_processor(BatchSpanProcessor(otlp))
    except ImportError as missing:
        raise MissingExtra(
            what="tracing.enable = true", package=missing.name or "opentelemetry-sdk", extra=EXTRA
        ) from None
    return Tracing(provider)


class Tracing:
    """Begins spans. Any thread may."""

    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._tracer = provider.get_tracer("millstream", __version__)
        self._extract = TraceContextTextMapPropagator().extract
        self._kind = SpanKind.SERVER

    def begin(
        self, operation: str, topic: str, trace: Mapping[str, str], attributes: Attributes
    ) -> Span:
        """A span, which the caller is to end: a child of a trace, or the first of a new one."""
        from opentelemetry.context import Context

        return self._tracer.start_span(
            f"{operation} {topic}",
            context=self._extract(trace, context=Context()),
            kind=self._kind,
            attributes={
                "messaging.system": "kafka",
                "messaging.operation.name": operation,
                "messaging.destination.name": topic,
                **attributes,
            },
        )

    def fail(self, span: Span, error: BaseException) -> None:
        """End a span with what went wrong."""
        from opentelemetry.trace import Status, StatusCode

        span.set_attribute("error.type", type(error).__name__)
        span.set_status(Status(StatusCode.ERROR, str(error)))
        span.end()

    def close(self) -> None:
        """Send what is left, if the collector takes it soon."""
        # A collector that does not answer must not hold up the end of the broker.
        closing = threading.Thread(target=self._provider.shutdown, daemon=True)
        closing.start()
        closing.join(_CLOSE_S)


def trace_in(headers: Headers) -> dict[str, str]:
    """What the headers of a record say of the trace that it is part of; empty if nothing."""
    found = {
        name: value.decode("ascii", "replace")
        for name, value in headers
        if value is not None and name in {TRACEPARENT, TRACESTATE}
    }
    return found if TRACEPARENT in found else {}
