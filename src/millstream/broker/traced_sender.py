"""Sends records as any sender does, with a span for each call. Only a broker that traces has it."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.broker.sending import NewRecord, Sender, Sent
from millstream.broker.topics import Topics
from millstream.clock import Clock
from millstream.errors import MillstreamError
from millstream.storage.flusher import Flusher
from millstream.telemetry.tracing import Tracing, trace_in

APPEND = "append"


class TracedSender(Sender):
    """Its spans end when the records are on disk."""

    def __init__(self, topics: Topics, flusher: Flusher, *, clock: Clock, tracing: Tracing) -> None:
        super().__init__(topics, flusher, clock=clock)
        self._tracing = tracing

    async def send(self, topic: str, record: NewRecord, *, new_partitions: int = -1) -> Sent:
        span = self._tracing.begin(APPEND, topic, trace_in(record.headers), {})
        try:
            sent = await super().send(topic, record, new_partitions=new_partitions)
        except BaseException as error:
            self._tracing.fail(span, error)
            raise
        span.set_attribute("messaging.destination.partition.id", str(sent.partition))
        span.set_attribute("messaging.kafka.offset", sent.offset)
        span.end()
        return sent

    async def send_many(
        self, topic: str, records: Sequence[NewRecord], *, new_partitions: int = -1
    ) -> list[Sent | MillstreamError]:
        """The trace is that of the first record."""
        trace = trace_in(records[0].headers) if records else {}
        attributes = {"messaging.batch.message_count": len(records)}
        span = self._tracing.begin(APPEND, topic, trace, attributes)
        try:
            results = await super().send_many(topic, records, new_partitions=new_partitions)
        except BaseException as error:
            self._tracing.fail(span, error)
            raise
        refused = [each for each in results if isinstance(each, MillstreamError)]
        if refused:
            self._tracing.fail(span, refused[0])
        else:
            span.end()
        return results
