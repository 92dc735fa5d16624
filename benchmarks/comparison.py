"""Millstream beside its peers, in one run: all servers are up, and take turns in every round.

Messages go in pipelined and batched as each protocol does best, come out in order from the first
one on, and go in one at a time. Twice: where answers come from the page cache or less (Redis syncs
every second, as we do; the others leave it to the kernel or to a longer interval), and where every
answer waits for a sync. A peer that is not there is named with the reason, never guessed.

Clients send bytes made beforehand, so that only servers are compared. Where messages travel in
batches that the server need not open, that flatters it: a real client makes the batches and is the
limit long before the server is (see the measure `produce`).
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from benchmarks.bench import Bench
from benchmarks.peers.apache_kafka import apache_kafka
from benchmarks.peers.millstream_broker import millstream
from benchmarks.peers.nats_jetstream import nats_jetstream
from benchmarks.peers.rabbitmq_streams import rabbitmq_streams
from benchmarks.peers.redis_streams import redis_streams
from benchmarks.peers.session import Contender, Session
from benchmarks.percentile import percentile
from benchmarks.pipeline import More, for_seconds
from benchmarks.row import Row
from benchmarks.server_meter import ServerMeter
from benchmarks.server_process import ServerFailed
from benchmarks.workload import value_of

_MESSAGE_BYTES = 100
_PEERS = (redis_streams, nats_jetstream, rabbitmq_streams, apache_kafka)


@dataclass(slots=True)
class _Figures:
    """The best of one contender over all rounds, and every time that a message took alone."""

    in_per_s: float = 0.0
    in_cpu_us: float = float("inf")
    out_per_s: float = 0.0
    out_cpu_us: float = float("inf")
    alone_s: list[float] = field(default_factory=list)

    @property
    def alone_p50_ms(self) -> float:
        return percentile(self.alone_s, 50) * 1e3


class _Line(NamedTuple):
    """What is compared, and the CPU time that goes with it, if any."""

    measure: str
    unit: str
    figure: Callable[[_Figures], float]
    cpu_us: Callable[[_Figures], float] | None = None


_PRODUCE = _Line(
    "produce {size} B{kind}", "messages/s", attrgetter("in_per_s"), attrgetter("in_cpu_us")
)
_CONSUME = _Line(
    "consume {size} B", "messages/s", attrgetter("out_per_s"), attrgetter("out_cpu_us")
)
_ALONE = _Line("produce {size} B and wait{kind}, p50", "ms", attrgetter("alone_p50_ms"))
_LINES = (_PRODUCE, _CONSUME, _ALONE)


@dataclass(slots=True)
class _Field:
    """Who takes part, and why the others do not."""

    sessions: dict[str, Session] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)


def measure(bench: Bench) -> list[Row]:
    return [
        *_compare(bench, synced=False),
        *_compare(bench, synced=True),
    ]


def _compare(bench: Bench, *, synced: bool) -> list[Row]:
    ours = millstream(synced=synced)
    peers = [peer(synced=synced) for peer in _PEERS]
    kind = ", synced" if synced else ""
    # How a message came in makes no difference to how it comes out.
    consumes = not synced
    value = value_of(bench.load.message_bytes or _MESSAGE_BYTES)
    with bench.place("peers") as directory, ExitStack() as stack:
        contenders = _start(bench, stack, [ours, *peers], directory, value)
        figures = {name: _Figures() for name in contenders.sessions}
        for number in bench.rounds(bench.scale.server_rounds):
            turns = list(contenders.sessions.items())
            for name, session in turns if number % 2 == 0 else reversed(turns):
                # What others wrote before is not this one's to wait for.
                os.sync()
                more = for_seconds(bench.scale.peer_s, at_most=bench.scale.peer_messages)
                messages = _produce(session, figures[name], more)
                if consumes:
                    _consume(session, figures[name], messages)
                _one_at_a_time(session, figures[name], bench.scale.peer_round_trips)
    rows = _rows(len(value), kind, figures, ours.name, consumes=consumes)
    rows += [
        Row(
            measure=_PRODUCE.measure.format(size=len(value), kind=kind),
            figure=figures[ours.name].in_per_s,
            unit=_PRODUCE.unit,
            compared_with=name,
            absent=reason,
        )
        for name, reason in contenders.absent.items()
    ]
    return rows


def _start(
    bench: Bench, stack: ExitStack, contenders: Sequence[Contender], directory: str, value: bytes
) -> _Field:
    started = _Field()
    for contender in contenders:
        if contender.absent:
            started.absent[contender.name] = contender.absent
            continue
        bench.prepares(f"starting {contender.name}")
        own_directory = os.path.join(directory, contender.name.replace(" ", "_"))
        os.makedirs(own_directory)
        try:
            session = stack.enter_context(contender.run(own_directory, value))
        except (ServerFailed, subprocess.CalledProcessError) as error:
            if contender is contenders[0]:
                raise
            started.absent[contender.name] = f"did not start: {error}"
        else:
            started.sessions[contender.name] = session
    return started


def _produce(session: Session, figures: _Figures, more: More) -> int:
    with ServerMeter(session.pid) as meter:
        messages = session.produce(more)
    figures.in_per_s = max(figures.in_per_s, messages / meter.usage.wall_s)
    figures.in_cpu_us = min(figures.in_cpu_us, meter.usage.server_cpu_s / messages * 1e6)
    return messages


def _consume(session: Session, figures: _Figures, messages: int) -> None:
    with ServerMeter(session.pid) as meter:
        consumed = session.consume(messages)
    figures.out_per_s = max(figures.out_per_s, consumed / meter.usage.wall_s)
    figures.out_cpu_us = min(figures.out_cpu_us, meter.usage.server_cpu_s / consumed * 1e6)


def _one_at_a_time(session: Session, figures: _Figures, count: int) -> None:
    for _ in range(count):
        begin_s = time.perf_counter()
        session.produce_one()
        figures.alone_s.append(time.perf_counter() - begin_s)


def _rows(
    size: int, kind: str, figures: Mapping[str, _Figures], our_name: str, *, consumes: bool
) -> list[Row]:
    ours = figures[our_name]
    return [
        Row(
            measure=line.measure.format(size=size, kind=kind),
            figure=line.figure(ours),
            unit=line.unit,
            compared_with=name,
            comparison=line.figure(theirs),
            details={"our us CPU": line.cpu_us(ours), "their us CPU": line.cpu_us(theirs)}
            if line.cpu_us
            else {},
        )
        for line in _LINES
        if consumes or line is not _CONSUME
        for name, theirs in figures.items()
        if name != our_name
    ]
