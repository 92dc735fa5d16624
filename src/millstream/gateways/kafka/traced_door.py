"""The Kafka door of a broker that traces: a span for each batch that is appended or delivered.

Of each batch the first record's headers are read, and nothing else. A batch that says nothing of a
trace begins one when it is appended, and has no span when it is delivered.

Invariant: clients are answered as through the usual door, and no sooner or later.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from millstream.broker.batch_traces import batch_trace
from millstream.broker.broker import Broker
from millstream.broker.fetch import Reading
from millstream.broker.partition import Partition
from millstream.broker.traced_sender import APPEND
from millstream.errors import MillstreamError, StorageFailure
from millstream.gateways.kafka.answers import Parts
from millstream.gateways.kafka.handlers.fetch import Fetch
from millstream.gateways.kafka.handlers.produce import Producing
from millstream.gateways.kafka.listener import Door
from millstream.gateways.kafka.produce_request import ParsedRequest, Stored
from millstream.protocol.messages.produce import ALL_REPLICAS
from millstream.records.batch import HEADER_BYTES, parse_header
from millstream.settings.kafka import KafkaSettings
from millstream.storage.batch_walk import split_batches
from millstream.telemetry.tracing import Tracing

if TYPE_CHECKING:
    from opentelemetry.trace import Span

DELIVER = "deliver"


class TracedDoor(Door):
    """Listens for Kafka clients."""

    def __init__(self, broker: Broker, settings: KafkaSettings) -> None:
        assert broker.tracing is not None
        tracing, limit_bytes = broker.tracing, broker.settings.storage.max_decompressed_bytes
        self.new_producing = partial(TracedProducing, tracing, limit_bytes)
        self.new_fetch = partial(TracedFetch, tracing, limit_bytes)
        super().__init__(broker, settings)


class TracedProducing(Producing):
    """The produce requests of one connection."""

    __slots__ = ("_limit_bytes", "_tracing")

    def __init__(self, tracing: Tracing, limit_bytes: int, /, *answers: Any, **more: Any) -> None:
        super().__init__(*answers, **more)
        self._tracing = tracing
        self._limit_bytes = limit_bytes

    def flush(self) -> None:
        appends = list(self._appends())
        super().flush()
        for append in appends:
            self._end(append)

    def _appends(self) -> Iterator[_Append]:
        """What is about to be stored. Afterwards the batches are no longer there to be read."""
        for request, _, stored in self._entries:
            if stored is not None:
                yield self._begin(stored, request.acks)
            elif isinstance(request, ParsedRequest):
                for _, results in request.topics:
                    for _, judged in results:
                        if isinstance(judged, tuple):
                            yield self._begin(judged, request.acks)

    def _begin(self, stored: Stored, acks: int) -> _Append:
        appended, place = stored
        batch = appended.batches[place]
        partition = appended.partition
        count = parse_header(batch).records_count if len(batch) >= HEADER_BYTES else 0
        span = self._tracing.begin(
            APPEND,
            partition.topic.name,
            batch_trace(batch, limit_bytes=self._limit_bytes),
            {
                "messaging.destination.partition.id": str(partition.number),
                "messaging.batch.message_count": count,
                "messaging.message.body.size": len(batch),
            },
        )
        return _Append(span, stored, acks)

    def _end(self, append: _Append) -> None:
        """Now, or when it is on disk if that is what the client waits for."""
        appended, place = append.stored
        outcome = appended.outcomes[place]
        span = append.span
        if isinstance(outcome, MillstreamError):
            self._tracing.fail(span, outcome)
            return
        span.set_attribute("messaging.kafka.offset", outcome)
        if append.acks != ALL_REPLICAS:
            span.end()
            return

        def settle(failure: StorageFailure | None) -> None:
            if failure is None:
                span.end()
            else:
                self._tracing.fail(span, failure)

        log = appended.partition.log
        self._flusher.when_durable(log, log.end_offset, settle)


class _Append(NamedTuple):
    """A batch that is being stored, and its span."""

    span: Span
    stored: Stored
    acks: int


class TracedFetch(Fetch):
    """One fetch request."""

    __slots__ = ("_limit_bytes", "_tracing")

    def __init__(self, tracing: Tracing, limit_bytes: int, /, *request: Any) -> None:
        super().__init__(*request)
        self._tracing = tracing
        self._limit_bytes = limit_bytes

    def encode(self, reading: Reading) -> Parts:
        spans = list(self._begun(reading))
        parts = super().encode(reading)
        for span in spans:
            span.end()
        return parts

    def _begun(self, reading: Reading) -> Iterator[Span]:
        for wanted, one in zip(self._wanted, reading.found, strict=True):
            if not one.records or not isinstance(wanted.partition, Partition):
                continue
            partition = wanted.partition
            for header, batch in split_batches(memoryview(one.records)):
                trace = batch_trace(batch, limit_bytes=self._limit_bytes)
                if trace:
                    attributes: dict[str, str | int] = {
                        "messaging.destination.partition.id": str(partition.number),
                        "messaging.kafka.offset": header.base_offset,
                        "messaging.batch.message_count": header.records_count,
                    }
                    yield self._tracing.begin(DELIVER, partition.topic.name, trace, attributes)
