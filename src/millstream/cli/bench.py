"""`millstream bench`: how fast a running broker is, from where this is run.

It makes a topic of its own, fills it, reads it back, sends messages one at a time to see how long
each takes to arrive, and deletes the topic. What it measures holds for this client, which is one
process in Python; benchmarks that compare brokers are in `benchmarks/`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from millstream.cli.printout import AsJson, print_json, print_lines, print_table, size_text
from millstream.cli.progress import shown
from millstream.cli.remote import DEFAULT_BOOTSTRAP, Bootstrap, Connection, connected
from millstream.clock import ticks_ns

if TYPE_CHECKING:
    from millstream.client.kafka import Cluster

_PHASES = ("produce", "consume", "latency")
_ACKS = {"all": -1, "1": 1, "0": 0}
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_WAIT_S = 10.0
_PERCENTILES = (50, 95, 99, 100)


class _Load(NamedTuple):
    """What is measured with."""

    topic: str
    size: int
    messages: int
    samples: int
    acks: str
    compression: str
    batch: int


class _Row(NamedTuple):
    """One phase: how much in which time, and how long each request took."""

    phase: str
    messages: int
    bytes: int
    seconds: float
    latencies_ns: list[int]
    unit: str
    """What the latencies are of."""

    def shape(self) -> dict[str, Any]:
        per_second = self.messages / self.seconds
        shape: dict[str, Any] = {
            "phase": self.phase,
            "messages": self.messages,
            "seconds": round(self.seconds, 3),
            "messages_per_second": round(per_second),
            "bytes_per_second": round(self.bytes / self.seconds),
            "latency_of": self.unit,
        }
        ordered = sorted(self.latencies_ns)
        for percent in _PERCENTILES:
            name = "max_ms" if percent == 100 else f"p{percent}_ms"
            place = min(len(ordered) * percent // 100, len(ordered) - 1)
            shape[name] = round(ordered[place] / 1e6, 3)
        return shape


def bench(
    phases: Annotated[
        list[str] | None,
        typer.Argument(help="produce, consume, latency.", show_default="all three"),
    ] = None,
    *,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="So many messages.")] = 200_000,
    size: Annotated[int, typer.Option("--size", "-s", min=1, help="Bytes of each.")] = 100,
    partitions: Annotated[int, typer.Option("--partitions", "-p", min=1)] = 1,
    batch: Annotated[int, typer.Option(min=1, help="Messages in a batch.")] = 1000,
    samples: Annotated[
        int, typer.Option(min=1, help="Messages that are sent one by one, for latency.")
    ] = 500,
    acks: Annotated[str, typer.Option(help=f"{', '.join(_ACKS)}.")] = "all",
    compression: Annotated[str, typer.Option(help=f"{', '.join(_CODECS)}.")] = "none",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    connection: Connection = None,
    json: AsJson = False,
) -> None:
    """Measure a running broker: rates, and how long requests take."""
    from millstream.identity import new_name
    from millstream.settings.domain import INT_MAX

    wanted = phases or list(_PHASES)
    for given, known in ((wanted, _PHASES), ([acks], tuple(_ACKS)), ([compression], _CODECS)):
        for each in given:
            if each not in known:
                raise typer.BadParameter(f"{each!r}: give one of {', '.join(known)}")
    if size * min(batch, count) > INT_MAX:
        raise typer.BadParameter("no batch can be so large: give less for --size or --batch")
    load = _Load(new_name("millstream-bench"), size, count, samples, acks, compression, batch)
    with connected(bootstrap, connection) as cluster, _topic(cluster, load.topic, partitions):
        rows = [row for row in _measured(cluster, load, wanted) if row.phase in wanted]
    _print(rows, load, partitions, json=json)


def _measured(cluster: Cluster, load: _Load, phases: Sequence[str]) -> Iterator[_Row]:
    if "produce" in phases or "consume" in phases:
        yield _produce(cluster, load)
    if "consume" in phases:
        yield _consume(cluster, load)
    if "latency" in phases:
        yield _latency(cluster, load)


@contextmanager
def _topic(cluster: Cluster, name: str, partitions: int) -> Iterator[None]:
    cluster.create_topic(name, partitions)
    try:
        yield
    finally:
        cluster.administration.delete_topic(name)


def _produce(cluster: Cluster, load: _Load) -> _Row:
    places = [(load.topic, number) for number in cluster.partitions([load.topic])[load.topic]]
    producer = cluster.producer(acks=_ACKS[load.acks])
    latencies, sent = [], 0
    began_ns = ticks_ns()
    try:
        with shown("producing", load.messages) as tell:
            while sent < load.messages:
                some = min(load.batch, load.messages - sent)
                batch = _batch(load, some)
                before_ns = ticks_ns()
                producer.send(places[(sent // load.batch) % len(places)], batch)
                latencies.append(ticks_ns() - before_ns)
                sent += some
                tell(sent, f"{sent:,} messages")
        producer.flush()
    finally:
        producer.close()
    seconds = (ticks_ns() - began_ns) / 1e9
    return _Row("produce", sent, sent * load.size, seconds, latencies, "handing over a batch")


def _consume(cluster: Cluster, load: _Load) -> _Row:
    from millstream.client.kafka import EARLIEST, LATEST, PartitionsReader
    from millstream.client.kafka.visible_records import visible_batches
    from millstream.records import records_of

    places = [(load.topic, number) for number in cluster.partitions([load.topic])[load.topic]]
    ends = cluster.offsets(places, LATEST)
    reader = PartitionsReader(cluster, cluster.offsets(places, EARLIEST))
    latencies, received = [], 0
    total = sum(ends.values())
    began_ns = ticks_ns()
    try:
        with shown("consuming", total) as tell:
            while received < total:
                before_ns = ticks_ns()
                for _, found in reader.poll(_WAIT_S):
                    latencies.append(ticks_ns() - before_ns)
                    for _, batch in visible_batches(found):
                        received += sum(1 for _ in records_of(batch, limit_bytes=1 << 30))
                    before_ns = ticks_ns()
                tell(received, f"{received:,} messages")
    finally:
        reader.close()
    seconds = (ticks_ns() - began_ns) / 1e9
    return _Row(
        "consume", received, received * load.size, seconds, latencies, "waiting for a fetch"
    )


def _latency(cluster: Cluster, load: _Load) -> _Row:
    """From before a message is sent until it has been read: one at a time."""
    from millstream.client.kafka import LATEST, PartitionsReader

    place = (load.topic, 0)
    reader = PartitionsReader(cluster, cluster.offsets([place], LATEST))
    producer = cluster.producer(acks=_ACKS[load.acks])
    latencies = []
    # Let the reader's request wait at the broker, as that of any consumer does.
    for _ in reader.poll(0):
        pass
    began_ns = ticks_ns()
    try:
        with shown("one by one", load.samples) as tell:
            for number in range(load.samples):
                batch = _batch(load, 1)
                before_ns = ticks_ns()
                producer.send(place, batch)
                while not list(reader.poll(_WAIT_S)):
                    pass
                latencies.append(ticks_ns() - before_ns)
                producer.flush()
                tell(number, f"{number:,} messages")
    finally:
        producer.close()
        reader.close()
    seconds = (ticks_ns() - began_ns) / 1e9
    count = load.samples
    return _Row("latency", count, count * load.size, seconds, latencies, "from sent to received")


def _batch(load: _Load, count: int) -> bytes:
    from millstream.clock import SystemClock
    from millstream.records import Codec
    from millstream.records.pair_batch import build_pairs

    value = (b"0123456789abcdef" * (load.size // 16 + 1))[: load.size]
    batch = build_pairs(
        None,
        [value] * count,
        timestamp_ms=SystemClock().now_ms(),
        codec=Codec[load.compression.upper()],
    )
    return bytes(batch)


def _print(rows: list[_Row], load: _Load, partitions: int, *, json: bool) -> None:
    shapes = [row.shape() for row in rows]
    if json:
        for shape in shapes:
            print_json({**load._asdict(), "partitions": partitions, **shape})
        return
    print_lines(
        f"{load.messages:,} messages of {load.size} bytes, {partitions} partitions, "
        f"acks={load.acks}, compression={load.compression}, batches of {load.batch:,}",
        "",
    )
    titles = ("PHASE", "MESSAGES/S", "BYTES/S", "P50 MS", "P95 MS", "P99 MS", "MAX MS", "OF")
    print_table(
        titles,
        [
            (
                shape["phase"],
                f"{shape['messages_per_second']:,}",
                f"{size_text(shape['bytes_per_second'])}",
                *(f"{shape[name]:.2f}" for name in ("p50_ms", "p95_ms", "p99_ms", "max_ms")),
                shape["latency_of"],
            )
            for shape in shapes
        ],
        right=titles[1:-1],
    )
