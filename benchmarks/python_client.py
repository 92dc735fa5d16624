"""A queue worked off by the asynchronous Python client, and what sending with it costs.

The client is in one process, which shares the machine with the broker.
"""

from __future__ import annotations

import asyncio
import time

from benchmarks.bench import Bench
from benchmarks.broker_process import BrokerProcess
from benchmarks.row import Bar, Row
from benchmarks.workload import value_of
from millstream.client import AsyncConnection, connect_async

_QUEUE = "bench"
_TASKS = 1000
_VALUE_BYTES = 100


def measure(bench: Bench) -> list[Row]:
    # As many as small requests of Kafka's protocol, scaled to what takes a second or two.
    messages = bench.scale.small_requests // 8
    work_s: list[float] = []
    send_s: list[float] = []
    with (
        bench.place("python_client") as directory,
        BrokerProcess(directory, has_http=True) as broker,
    ):
        url = f"http://{broker.http[0]}:{broker.http[1]}"
        for number in bench.rounds(bench.scale.server_rounds):
            topic = f"bench-{number}"
            send_s.append(asyncio.run(_send(url, topic, messages)))
            work_s.append(asyncio.run(_work(url, topic, messages)))
    return [
        Row(
            measure="Python client, shared queue, receive and acknowledge",
            figure=messages / min(work_s),
            unit="msg/s",
            bar=Bar(min_figure=10_000),
        ),
        Row(
            measure=f"Python client, send, {_TASKS} tasks, each waits for the disk",
            figure=messages / min(send_s),
            unit="msg/s",
        ),
    ]


async def _send(url: str, topic: str, messages: int) -> float:
    value = value_of(_VALUE_BYTES)

    async def send_some(client: AsyncConnection, count: int) -> None:
        for _ in range(count):
            await client.send(topic, value)

    async with connect_async(url) as client:
        await client.queues.create(topic, _QUEUE)
        tasks = min(_TASKS, messages)
        counts = [messages // tasks + (number < messages % tasks) for number in range(tasks)]
        begin_s = time.perf_counter()
        await asyncio.gather(*(send_some(client, count) for count in counts))
        return time.perf_counter() - begin_s


async def _work(url: str, topic: str, messages: int) -> float:
    async with connect_async(url) as client:
        begin_s = time.perf_counter()
        queue = await client.subscribe(topic, subscription=_QUEUE)
        done = 0
        async for message in queue:
            acknowledged = message.ack()
            done += 1
            if done == messages:
                # Those before it are answered with it or earlier.
                await acknowledged
                break
        took_s = time.perf_counter() - begin_s
        assert (await client.queues.describe(topic, _QUEUE)).backlog == 0
        return took_s
