"""Producers as the workload uses them, of two client libraries, each with one face.

Invariant: callbacks of sends run in `flush`, in the thread that calls it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from queue import Empty, Queue
from typing import Any, Protocol, TypeVar

import confluent_kafka as ck
from aiokafka import AIOKafkaProducer
from aiokafka.errors import IllegalOperation
from aiokafka.errors import KafkaError as AiokafkaError

from tests.transactions.history import UNKNOWN_OFFSET, Position

# Longer than a broker is ever away. A client that takes longer fails no test: the worker notes that
# it does not know what became of the action, and goes on.
PATIENCE_S = 60.0
OFFSETS_S = 6.0
# Reconnect soon: a broker that was killed is back at once.
CONFLUENT: dict[str, Any] = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 250,
    "log_level": 0,
    "broker.address.family": "v4",
}

_T = TypeVar("_T")
# Takes the offset, and what went wrong or nothing.
Done = Callable[[int, str], None]


class ProducerTrouble(Exception):
    """An action did not succeed; whether it happened all the same is not known."""

    def __init__(self, error: str, *, can_abort: bool = False) -> None:
        super().__init__(error)
        self.error = error
        # The producer is still of use once its transaction is aborted.
        self.can_abort = can_abort


class ProducerClient(Protocol):
    # Whether it can go on after a send that failed, if the transaction is aborted: it must see to
    # it that what is still on its way does not get into the next one.
    recovers: bool

    def open(self) -> None: ...

    def begin(self) -> None: ...

    def send(self, topic: str, partition: int, value: str, done: Done) -> None: ...

    def flush(self) -> None: ...

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


class ConfluentProducer:
    recovers = True

    def __init__(self, bootstrap: str, transactional_id: str = "", timeout_ms: int = 60_000):
        config: dict[str, Any] = {"bootstrap.servers": bootstrap, "enable.idempotence": True}
        if transactional_id:
            config["transactional.id"] = transactional_id
            config["transaction.timeout.ms"] = timeout_ms
        self._producer = ck.Producer(CONFLUENT | config)
        self._has_transactions = bool(transactional_id)
        self._hangs = False

    def open(self) -> None:
        if self._has_transactions:
            self._patiently(lambda: self._producer.init_transactions(2.0))

    def begin(self) -> None:
        self._patiently(self._producer.begin_transaction)

    def send(self, topic: str, partition: int, value: str, done: Done) -> None:
        def deliver(error: ck.KafkaError | None, message: ck.Message) -> None:
            offset = message.offset()
            known = offset if offset is not None and offset >= 0 else UNKNOWN_OFFSET
            done(known, error.name() if error else "")

        try:
            self._producer.produce(topic, value.encode(), partition=partition, on_delivery=deliver)
        except ck.KafkaException as error:
            raise _trouble(error) from error

    def flush(self) -> None:
        # It raises what went fatally wrong in the background, and that even under the callbacks
        # that it calls, which makes it a SystemError.
        try:
            self._producer.flush(PATIENCE_S)
        except ck.KafkaException as error:
            raise _trouble(error) from error
        except SystemError as error:
            raise ProducerTrouble("_FATAL") from error

    def send_offsets(self, positions: Iterable[Position], metadata: Any) -> None:
        """In a thread: after a broker was away it may hang for good (librdkafka issue 5456)."""
        offsets = [ck.TopicPartition(*position) for position in positions]
        ended: Queue[ProducerTrouble | None] = Queue()

        def send() -> None:
            call = self._producer.send_offsets_to_transaction
            try:
                self._patiently(lambda: call(offsets, metadata, 2.0))
            except ProducerTrouble as trouble:
                ended.put(trouble)
            else:
                ended.put(None)

        threading.Thread(target=send, daemon=True).start()
        try:
            trouble = ended.get(timeout=OFFSETS_S)
        except Empty:
            self._hangs = True
            raise ProducerTrouble("hangs") from None
        if trouble is not None:
            raise trouble

    def commit(self) -> None:
        self._patiently(lambda: self._producer.commit_transaction(2.0))

    def abort(self) -> None:
        self._patiently(lambda: self._producer.abort_transaction(2.0))

    def close(self) -> None:
        if self._hangs:
            return
        self._producer.purge()
        with suppress(ck.KafkaException, SystemError):
            self._producer.poll(0)

    def _patiently(self, call: Callable[[], object]) -> None:
        """A call that timed out is to be taken up again by the same call."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                call()
            except ck.KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise _trouble(error) from error
            else:
                return


def _trouble(error: ck.KafkaException) -> ProducerTrouble:
    cause: ck.KafkaError = error.args[0]
    return ProducerTrouble(cause.name(), can_abort=cause.txn_requires_abort())


class LoopThread:
    """An event loop that runs while its owner does other things."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        async def within_patience() -> _T:
            async with asyncio.timeout(PATIENCE_S):
                return await work

        # A client that does not let itself be cancelled is left to itself.
        running = asyncio.run_coroutine_threadsafe(within_patience(), self._loop)
        return running.result(PATIENCE_S + 5.0)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)


class AiokafkaProducer:
    recovers = False

    def __init__(self, bootstrap: str, transactional_id: str = "", timeout_ms: int = 60_000):
        self._loop = LoopThread()
        self._sent: list[tuple[asyncio.Future[Any], Done]] = []
        config: dict[str, Any] = {
            "bootstrap_servers": bootstrap,
            "enable_idempotence": True,
            "retry_backoff_ms": 20,
            "request_timeout_ms": 10_000,
        }
        if transactional_id:
            config |= {"transactional_id": transactional_id, "transaction_timeout_ms": timeout_ms}
        self._producer = self._loop.run(self._made(config))

    async def _made(self, config: dict[str, Any]) -> Any:
        return AIOKafkaProducer(**config)

    def open(self) -> None:
        self._try(self._producer.start())

    def begin(self) -> None:
        self._try(self._producer.begin_transaction())

    def send(self, topic: str, partition: int, value: str, done: Done) -> None:
        sent = self._try(self._producer.send(topic, value.encode(), partition=partition))
        self._sent.append((sent, done))

    def flush(self) -> None:
        sent, self._sent = self._sent, []
        with suppress(ProducerTrouble):
            self._try(self._settled([future for future, _ in sent]))
        for future, done in sent:
            if not future.done() or future.cancelled():
                done(UNKNOWN_OFFSET, "TimeoutError")
            elif (error := future.exception()) is not None:
                done(UNKNOWN_OFFSET, type(error).__name__)
            else:
                done(future.result().offset, "")

    async def _settled(self, futures: list[asyncio.Future[Any]]) -> None:
        if futures:
            await asyncio.wait(futures)

    def commit(self) -> None:
        self._try(self._producer.commit_transaction())

    def abort(self) -> None:
        self._try(self._producer.abort_transaction())

    def close(self) -> None:
        # It tells of its own failures again here.
        with suppress(ProducerTrouble):
            self._try(self._producer.stop())
        self._loop.close()

    def _try(self, work: Coroutine[Any, Any, _T]) -> _T:
        try:
            return self._loop.run(work)
        except (AiokafkaError, IllegalOperation, TimeoutError, AssertionError) as error:
            raise ProducerTrouble(type(error).__name__) from error
