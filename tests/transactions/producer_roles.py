"""Workers that write: in transactions, and without."""

from __future__ import annotations

from collections.abc import Callable

from tests.transactions.producer_client import ProducerClient, ProducerTrouble
from tests.transactions.worker_role import NotedProducer, Work

MakeProducer = Callable[..., ProducerClient]

MAX_SENDS = 8
ABORT_SHARE = 1 / 32
# Some producers use an id that others use too, so that they fence each other.
SHARED_SHARE = 0.7
SHARED_ID = "shared"
# Some producers have hardly any time for a transaction, and some of their transactions take longer.
HASTY_SHARE = 0.3
HASTY_MS = 1000
EASY_MS = 30_000
STALL_SHARE = 0.1
STALL_S = HASTY_MS / 1000 + 1.5
PAUSE_S = 0.08
RETRY_S = 0.5
MAX_TRANSACTIONS = 40


def run_transactions(work: Work, make_producer: MakeProducer) -> None:
    """One producer after the other; each ends because it is broken, fenced, or has done enough."""
    while not work.stop.is_set():
        is_shared = work.random.random() < SHARED_SHARE
        transactional_id = SHARED_ID if is_shared else work.slot
        is_hasty = work.random.random() < HASTY_SHARE
        timeout_ms = HASTY_MS if is_hasty else EASY_MS
        client = make_producer(work.bootstrap, transactional_id, timeout_ms)
        producer = NotedProducer(work, client, transactional_id)
        try:
            producer.open()
            for _ in range(work.random.randint(1, MAX_TRANSACTIONS)):
                if work.stop.is_set():
                    break
                _run_transaction(work, producer, is_hasty=is_hasty)
                work.pause(PAUSE_S)
        except ProducerTrouble:
            work.pause(RETRY_S)
        finally:
            producer.close()


def _run_transaction(work: Work, producer: NotedProducer, *, is_hasty: bool) -> None:
    producer.begin()
    try:
        for _ in range(work.random.randint(1, MAX_SENDS)):
            producer.send(*work.any_partition(*work.sinks))
            if work.random.random() < 0.1:
                work.pause(PAUSE_S)
        # What is only queued would not be a transaction yet for the broker.
        producer.flush()
        if is_hasty and work.random.random() < STALL_SHARE:
            producer.stall(STALL_S)
            if work.random.random() < 0.5:
                raise ProducerTrouble("given up")
        if work.random.random() < ABORT_SHARE:
            producer.abort()
        else:
            producer.commit()
    except ProducerTrouble as trouble:
        if not trouble.can_abort:
            raise
        producer.abort()


def run_plain(work: Work, make_producer: MakeProducer) -> None:
    """An idempotent producer without transactions."""
    while not work.stop.is_set():
        client = make_producer(work.bootstrap)
        producer = NotedProducer(work, client)
        try:
            producer.open()
            while not work.stop.is_set():
                for _ in range(work.random.randint(1, MAX_SENDS)):
                    producer.send(*work.any_partition(*work.sinks))
                producer.flush()
                work.pause(4 * PAUSE_S)
        except ProducerTrouble:
            work.pause(RETRY_S)
        finally:
            producer.close()
