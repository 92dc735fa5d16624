"""The worker's loop with aiokafka: a transactional id for each partition that is read.

aiokafka commits offsets in the name of the group and of no member, so the group cannot tell that
they are no longer the worker's own. As it was done before KIP-447, whoever is given a partition
takes over the producer that belongs to it, and so fences the one who had it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener
from aiokafka.errors import KafkaError

from tests.crash.transform_process import CALL_S, MAX_RECORDS, POLL_S, SESSION_MS, key_of

if TYPE_CHECKING:
    from tests.crash.transform_process import Job

_STEP_S = 100.0


def work(job: Job) -> None:
    asyncio.run(_work(job))


async def _work(job: Job) -> None:
    while job.has_time():
        worker = _Worker(job)
        try:
            await worker.start()
            while job.has_time():
                await _bounded(worker.step())
        except (KafkaError, AssertionError, TimeoutError) as error:
            # It asserts that a producer that has failed is asked for nothing.
            job.say("trouble", repr(error))
            await asyncio.sleep(POLL_S)
        finally:
            await worker.close()


async def _bounded(step: Coroutine[Any, Any, None]) -> None:
    """aiokafka has no limit of its own for a transaction. Raises TimeoutError."""
    task = asyncio.create_task(step)
    done, _ = await asyncio.wait([task], timeout=_STEP_S)
    if not done:
        # Shows where it waits, should the test fail.
        for each in asyncio.all_tasks():
            each.print_stack(file=sys.stderr)
        task.cancel()
        raise TimeoutError
    task.result()


class _Worker(ConsumerRebalanceListener):  # type: ignore[misc]
    """A consumer, and a producer for each partition that it has."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._producers: dict[Any, Any] = {}
        # Held while there is a transaction: a partition goes only between two of them.
        self._busy = asyncio.Lock()
        self._consumer: Any = AIOKafkaConsumer(
            bootstrap_servers=job.address,
            group_id=job.group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=200,
            fetch_max_wait_ms=100,
            metadata_max_age_ms=1000,
        )

    async def start(self) -> None:
        await self._consumer.start()
        self._consumer.subscribe([self._job.input], listener=self)

    async def close(self) -> None:
        await self._drop_producers()
        # aiokafka cancels a fetch that waits to be tried again, and lets that out of `stop`. Nobody
        # cancels this task.
        with suppress(KafkaError, TimeoutError, asyncio.CancelledError):
            await asyncio.wait_for(self._consumer.stop(), CALL_S)

    async def step(self) -> None:
        """One transaction for each partition that has something to read."""
        found = await self._consumer.getmany(timeout_ms=int(POLL_S * 1000), max_records=MAX_RECORDS)
        async with self._busy:
            for place, records in found.items():
                producer = self._producers.get(place)
                # They may have been read before the partition went to another, or came back.
                if producer is not None:
                    await self._go_on(producer, place, records)

    async def _go_on(self, producer: _Producer, place: Any, records: list[Any]) -> None:
        """Transform what comes next for a producer, whatever was read."""
        fresh = [record for record in records if record.offset >= producer.position]
        if fresh and fresh[0].offset == producer.position:
            await self._transform(producer, place, fresh)
        elif fresh:
            self._consumer.seek(place, producer.position)

    async def _transform(self, producer: _Producer, place: Any, records: list[Any]) -> None:
        client = producer.client
        await client.begin_transaction()
        sent = [
            await client.send(
                self._job.output,
                key=key_of(place.partition, record.offset),
                value=record.value,
                partition=self._job.target(record.offset),
            )
            for record in records
        ]
        await asyncio.gather(*sent)
        self._job.say("open", len(records))
        if self._job.changes_its_mind():
            await client.abort_transaction()
            self._consumer.seek(place, records[0].offset)
            self._job.say("aborted", len(records))
            return
        reached = records[-1].offset + 1
        await client.send_offsets_to_transaction({place: reached}, self._job.group)
        self._job.say("ending", len(records))
        await client.commit_transaction()
        self._job.say("committed", len(records))
        producer.position = reached

    async def on_partitions_revoked(self, _: object) -> None:
        async with self._busy:
            await self._drop_producers()

    async def on_partitions_assigned(self, assigned: Any) -> None:
        async with self._busy:
            for place in assigned:
                producer = await self._producer_of(place)
                # Asked after all that another has begun with this producer has ended.
                producer.position = await self._consumer.committed(place) or 0
                self._consumer.seek(place, producer.position)
                self._producers[place] = producer

    async def _producer_of(self, place: Any) -> _Producer:
        client = AIOKafkaProducer(
            bootstrap_servers=self._job.address,
            transactional_id=f"{self._job.group}-{place.partition}",
            metadata_max_age_ms=1000,
        )
        await client.start()
        return _Producer(client)

    async def _drop_producers(self) -> None:
        producers, self._producers = self._producers, {}
        for producer in producers.values():
            with suppress(KafkaError, TimeoutError):
                await asyncio.wait_for(producer.client.stop(), CALL_S)


class _Producer:
    """One that transforms a partition, and the offset that it goes on from."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.position = 0
