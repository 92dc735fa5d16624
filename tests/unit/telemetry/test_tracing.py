"""One trace spans a producer, the broker and a consumer, and costs nothing where it is off."""

from __future__ import annotations

import asyncio
import gzip
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from millstream import app
from millstream.errors import InvalidRecord, MissingExtra
from millstream.gateways.kafka.handlers.fetch import Fetch
from millstream.gateways.kafka.handlers.produce import Producing
from millstream.gateways.kafka.listener import Door
from millstream.settings.loader import load
from millstream.telemetry.tracing import open_tracing
from tests.clients.broker_process import BrokerProcess
from tests.fakes.patient_client import connect, connect_async

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01".encode()
UNKEPT = f"00-{TRACE}-{PARENT}-00".encode()


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@asynccontextmanager
async def serving(
    path: Path, exporter: InMemorySpanExporter, *settings: str
) -> AsyncIterator[app.Running]:
    """A broker in this process that traces."""
    read = load(
        assignments=[
            f"storage.data.dir={path}",
            "kafka.listeners=127.0.0.1:0",
            "http.http.listener=127.0.0.1:0",
            "pylogstreams.pylogstreams.listener=off",
            "telemetry.tracing.enable=true",
            *settings,
        ]
    )
    surroundings = app.Surroundings(open_tracing=partial(open_tracing, exporter=exporter))
    async with app.running(read, say=lambda _: None, surroundings=surroundings) as running:
        yield running


def run(scenario: Coroutine[None, None, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 60))


def by_name(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in exporter.get_finished_spans()}


def trace_of(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"{span.context.trace_id:032x}"


def parent_of(span: ReadableSpan) -> str | None:
    return None if span.parent is None else f"{span.parent.span_id:016x}"


@pytest.mark.parametrize("acks", ["all", 1])
@pytest.mark.parametrize("compression", [None, "gzip"])
def test_kafka_batch_joins_the_trace_in_its_headers(
    tmp_path: Path, exporter: InMemorySpanExporter, acks: str | int, compression: str | None
) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, exporter) as running:
            address = running.addresses["kafka"]
            async with AIOKafkaProducer(
                bootstrap_servers=address, acks=acks, compression_type=compression
            ) as producer:
                for _ in range(2):  # the second goes the way of repeated requests
                    await producer.send_and_wait(
                        "orders", b"x" * 100, headers=[("traceparent", TRACEPARENT)]
                    )
            async with AIOKafkaConsumer(
                "orders", bootstrap_servers=address, auto_offset_reset="earliest"
            ) as consumer:
                await consumer.getone()

    run(scenario())
    spans = exporter.get_finished_spans()
    appends = [span for span in spans if span.name == "append orders"]
    delivers = [span for span in spans if span.name == "deliver orders"]
    assert len(appends) == 2
    assert delivers
    for span in (*appends, *delivers):
        assert (trace_of(span), parent_of(span)) == (TRACE, PARENT)
        assert span.attributes is not None
        assert span.attributes["messaging.destination.name"] == "orders"
        assert span.attributes["messaging.batch.message_count"] == 1
    assert [(span.attributes or {})["messaging.kafka.offset"] for span in appends] == [0, 1]


def test_batch_without_a_trace_begins_one_and_an_unkept_trace_is_not_kept(
    tmp_path: Path, exporter: InMemorySpanExporter
) -> None:
    async def scenario() -> None:
        async with (
            serving(tmp_path, exporter) as running,
            AIOKafkaProducer(bootstrap_servers=running.addresses["kafka"]) as producer,
        ):
            await producer.send_and_wait("plain", b"x")
            await producer.send_and_wait("unkept", b"x", headers=[("traceparent", UNKEPT)])
            await producer.send_and_wait("broken", b"x", headers=[("traceparent", b"\xff")])

    run(scenario())
    spans = by_name(exporter)
    assert set(spans) == {"append plain", "append broken"}
    assert {parent_of(span) for span in spans.values()} == {None}


def test_python_client_and_broker_are_in_one_trace(
    tmp_path: Path, exporter: InMemorySpanExporter
) -> None:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    async def scenario() -> None:
        async with serving(tmp_path, exporter) as running:
            url = f"http://{running.addresses['http']}"
            async with connect_async(url, tracing=provider) as client:
                await client.send("orders", "x", headers={"kind": "new", "traceparent": "stale"})
                await client.send_many("many", ["a", "b"])
                async with await client.subscribe("orders", start="earliest") as messages:
                    message = await messages.receive(timeout_s=20)
                    assert message is not None
                    assert [name for name, _ in message.headers] == ["kind", "traceparent"]
                    with message.processing():
                        pass

    run(scenario())
    spans = by_name(exporter)
    send, append, process = (spans[f"{word} orders"] for word in ("send", "append", "process"))
    assert trace_of(send) == trace_of(append) == trace_of(process)
    assert send.context is not None
    assert parent_of(append) == parent_of(process) == f"{send.context.span_id:016x}"
    assert [span.kind.name for span in (send, append, process)] == [
        "PRODUCER",
        "SERVER",
        "CONSUMER",
    ]
    assert trace_of(spans["send many"]) == trace_of(spans["append many"])


def test_span_of_a_blocking_client_is_a_child_of_the_callers(
    tmp_path: Path, exporter: InMemorySpanExporter
) -> None:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    def work(url: str) -> None:
        with (
            connect(url, tracing=provider) as client,
            provider.get_tracer("test").start_as_current_span("outer"),
        ):
            client.send("orders", "x")
            messages = client.subscribe("orders", start="earliest")
            with messages, next(messages).processing():
                pass

    async def scenario() -> None:
        async with serving(tmp_path, exporter) as running:
            await asyncio.to_thread(work, f"http://{running.addresses['http']}")

    run(scenario())
    spans = by_name(exporter)
    assert len({trace_of(span) for span in spans.values()}) == 1
    assert {"outer", "send orders", "append orders", "process orders"} <= set(spans)


def test_refused_record_is_told_in_its_span(tmp_path: Path, exporter: InMemorySpanExporter) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, exporter) as running:
            url = f"http://{running.addresses['http']}"
            await running.broker.topics.create(
                "keyed", partitions=1, overrides={"cleanup.policy": "compact"}
            )
            async with connect_async(url) as client:
                with pytest.raises(InvalidRecord):
                    await client.send("keyed", "x")

    run(scenario())
    append = by_name(exporter)["append keyed"]
    assert append.status.status_code is StatusCode.ERROR
    assert (append.attributes or {})["error.type"] == "InvalidRecord"


def test_broker_that_does_not_trace_has_nothing_of_it() -> None:
    """Not slower, because nothing is there to ask: other classes are used, or none at all."""
    assert Door.new_producing is Producing
    assert Door.new_fetch is Fetch
    code = (
        "import sys, asyncio, tempfile\n"
        "from millstream import app\n"
        "from millstream.settings.loader import load\n"
        "off = ['kafka.listeners=127.0.0.1:0', 'http.http.listener=off',"
        " 'pylogstreams.pylogstreams.listener=off', 'storage.data.dir=' + tempfile.mkdtemp()]\n"
        "async def main():\n"
        "    async with app.running(load(assignments=off), say=lambda _: None) as running:\n"
        "        assert type(running.kafka).__name__ == 'Door'\n"
        "        assert type(running.broker.sender).__name__ == 'Sender'\n"
        "asyncio.run(main())\n"
        "traced = [name for name in sys.modules if 'traced' in name or 'opentelemetry' in name]\n"
        "assert not traced, traced\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(MissingExtra) as caught:
        open_tracing(load().telemetry)
    assert str(caught.value) == (
        "tracing.enable = true needs the package opentelemetry.sdk.trace, which is not installed: "
        "pip install 'millstream[tracing]'"
    )


@pytest.fixture
def receiver() -> Iterator[tuple[str, Queue[ExportTraceServiceRequest]]]:
    """A collector that takes OTLP over HTTP: its URL, and what has come."""
    received: Queue[ExportTraceServiceRequest] = Queue()

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            received.put(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1/traces", received
        server.shutdown()
        thread.join()


def test_real_broker_sends_its_spans_to_a_collector_before_it_ends(
    tmp_path: Path, receiver: tuple[str, Queue[ExportTraceServiceRequest]]
) -> None:
    url, received = receiver
    settings = (
        "[telemetry]\ntracing.enable = true\ntracing.service.name = 'mill'\n"
        f"tracing.endpoint = '{url}'\n"
    )

    async def scenario() -> None:
        async with AIOKafkaProducer(bootstrap_servers=broker.address) as producer:
            headers = [("traceparent", TRACEPARENT)]
            await producer.send_and_wait("orders", b"x", headers=headers)

    with BrokerProcess(tmp_path, settings=settings) as broker:
        run(scenario())
        broker.stop()
        assert broker.complaints() == []
    [resource] = received.get(timeout=20).resource_spans
    attributes = {each.key: each.value.string_value for each in resource.resource.attributes}
    assert attributes["service.name"] == "mill"
    [span] = resource.scope_spans[0].spans
    assert (span.name, span.trace_id.hex(), span.parent_span_id.hex()) == (
        "append orders",
        TRACE,
        PARENT,
    )


def test_collector_that_is_not_there_does_not_hold_up_the_end(tmp_path: Path) -> None:
    settings = "[telemetry]\ntracing.enable = true\ntracing.endpoint = 'http://127.0.0.1:1/'\n"

    async def scenario() -> None:
        async with AIOKafkaProducer(bootstrap_servers=broker.address) as producer:
            await producer.send_and_wait("orders", b"x")

    with BrokerProcess(tmp_path, settings=settings) as broker:
        run(scenario())
        began = time.monotonic()
        broker.stop()
        assert time.monotonic() - began < 5
