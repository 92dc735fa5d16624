"""Spans of a client, for OpenTelemetry: sending a message, and what is done with one.

A message that is sent carries its span in the header `traceparent`. Who receives it joins that
trace, and so does the broker if it traces. Only connections with `tracing` use this.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from millstream import __version__
from millstream.client.link import Link
from millstream.client.messages import Outgoing, Received, Sent
from millstream.client.sending import Sender
from millstream.errors import MissingExtra
from millstream.telemetry.tracing import EXTRA, TRACEPARENT, TRACESTATE, trace_in

if TYPE_CHECKING:
    from opentelemetry.trace import Span, TracerProvider

_SYSTEM = {"messaging.system": "kafka"}


class ClientTracing:
    """Makes spans with a provider, or with the one that the program has set for all."""

    def __init__(self, provider: TracerProvider | None) -> None:
        """Raises MissingExtra."""
        try:
            from opentelemetry import trace
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ImportError as missing:
            package = missing.name or "opentelemetry-api"
            raise MissingExtra(what="tracing=True", package=package, extra=EXTRA) from None
        self._tracer = trace.get_tracer("millstream.client", __version__, provider)
        self._kinds = trace.SpanKind
        self._propagator = TraceContextTextMapPropagator()

    @contextmanager
    def sending(self, topic: str, messages: Sequence[Outgoing]) -> Iterator[list[Outgoing]]:
        """A span around a send; gives the messages as they are to be sent."""
        attributes: dict[str, str | int] = {
            **_SYSTEM,
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
            "messaging.destination.name": topic,
        }
        if len(messages) != 1:
            attributes["messaging.batch.message_count"] = len(messages)
        with self._tracer.start_as_current_span(
            f"send {topic}", kind=self._kinds.PRODUCER, attributes=attributes
        ):
            carried: dict[str, str] = {}
            self._propagator.inject(carried)
            own = tuple((name, value.encode()) for name, value in carried.items())
            yield [_carrying(each, own) for each in messages]

    @contextmanager
    def processing(self, message: Received) -> Iterator[Span]:
        """A span around what is done with a message, in the trace of its sender."""
        with self._tracer.start_as_current_span(
            f"process {message.topic}",
            context=self._propagator.extract(trace_in(message.headers)),
            kind=self._kinds.CONSUMER,
            attributes={
                **_SYSTEM,
                "messaging.operation.name": "process",
                "messaging.operation.type": "process",
                "messaging.destination.name": message.topic,
                "messaging.destination.partition.id": str(message.partition),
                "messaging.kafka.offset": message.offset,
            },
        ) as span:
            yield span


class TracedSender(Sender):
    """Sends messages over a link, with a span for each call."""

    def __init__(self, link: Link, tracing: ClientTracing, **more: Any) -> None:
        super().__init__(link, **more)
        self._tracing = tracing

    async def send(self, topic: str, message: Outgoing) -> Sent:
        with self._tracing.sending(topic, [message]) as [traced]:
            return await super().send(topic, traced)

    async def send_many(self, topic: str, messages: Sequence[Outgoing]) -> list[Sent]:
        with self._tracing.sending(topic, messages) as traced:
            return await super().send_many(topic, traced)


def _carrying(message: Outgoing, own: tuple[tuple[str, bytes], ...]) -> Outgoing:
    if not own:
        return message
    others = (each for each in message.headers if each[0] not in {TRACEPARENT, TRACESTATE})
    return message._replace(headers=(*others, *own))
