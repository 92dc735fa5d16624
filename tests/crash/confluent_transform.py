"""The worker's loop with librdkafka: one transactional id, which is the worker's own.

The broker knows by the group's generation that a worker's offsets are no longer its own to commit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from tests.crash.transform_process import CALL_S, MAX_RECORDS, POLL_S, SESSION_MS, key_of

if TYPE_CHECKING:
    from tests.crash.transform_process import Job

_CLASSIC = {
    "session.timeout.ms": SESSION_MS,
    "heartbeat.interval.ms": 200,
    "partition.assignment.strategy": "range",
}
_CONSUMER = {"group.protocol": "consumer"}


def work_classic(job: Job) -> None:
    _work(job, _CLASSIC)


def work_consumer(job: Job) -> None:
    _work(job, _CONSUMER)


def _work(job: Job, protocol: dict[str, Any]) -> None:
    while job.has_time():
        worker = _Worker(job, protocol)
        try:
            while job.has_time():
                worker.step()
        except (KafkaException, SystemError) as error:
            # Its binding trips over an error of the whole client when it reports deliveries.
            job.say("trouble", repr(error))
        finally:
            worker.close()


class _Worker:
    """A consumer and a producer. An error that neither can go on after ends both."""

    def __init__(self, job: Job, protocol: dict[str, Any]) -> None:
        self._job = job
        self._found: list[Message] = []
        self._is_classic = "group.protocol" not in protocol
        self._membership: object = None
        common = {
            "bootstrap.servers": job.address,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100,
            "log_level": 0,
            # Else a client that has lost all brokers forgets them, and send_offsets_to_transaction
            # may wait for ever for one of those: confluentinc/librdkafka issues 5511 and 5456.
            "metadata.recovery.strategy": "none",
        }
        self._producer = Producer(
            {**common, "transactional.id": job.name, "linger.ms": 0, "retry.backoff.ms": 20}
        )
        self._consumer = Consumer(
            {
                **common,
                **protocol,
                "group.id": job.group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 100,
            }
        )
        _insist(self._producer.init_transactions, CALL_S)
        self._consumer.subscribe(
            [job.input],
            on_assign=self._assigned,
            on_revoke=self._revoked,
            on_lost=self._revoked,
        )

    def close(self) -> None:
        self._consumer.close()

    def step(self) -> None:
        """One transaction, if there is something to read."""
        self._read()
        if not self._found:
            return
        self._producer.begin_transaction()
        try:
            self._transform()
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self._job.say("trouble", repr(error))
            self._abort()

    def _read(self) -> None:
        message = self._consumer.poll(POLL_S)
        while message is not None:
            # An error is a message too: the client has lost the broker, and looks for it.
            if not message.error():
                self._found.append(message)
            if len(self._found) >= MAX_RECORDS:
                break
            message = self._consumer.poll(0)

    def _transform(self) -> None:
        reached: dict[int, int] = {}
        for message in self._found:
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            self._producer.produce(
                self._job.output,
                key=key_of(partition, offset),
                value=message.value(),
                partition=self._job.target(offset),
            )
            reached[partition] = offset + 1
        self._producer.flush(CALL_S)
        count = len(self._found)
        self._job.say("open", count)
        if self._job.changes_its_mind():
            self._abort()
            self._job.say("aborted", count)
            return
        offsets = [TopicPartition(self._job.input, *place) for place in reached.items()]
        _insist(self._producer.send_offsets_to_transaction, offsets, self._standing(), CALL_S)
        self._job.say("ending", count)
        _insist(self._producer.commit_transaction, CALL_S)
        self._job.say("committed", count)
        self._found = []

    def _standing(self) -> object:
        """The worker's place in its group when it was given what it has read.

        A classic member that was thrown out has no name any more, and offsets that come in no
        name are taken from anybody. A member of the newer protocol keeps its name.
        """
        return self._membership if self._is_classic else self._consumer.consumer_group_metadata()

    def _abort(self) -> None:
        """End the transaction, and read again what belonged to it."""
        _insist(self._producer.abort_transaction, CALL_S)
        self._found = []
        places = self._consumer.committed(self._consumer.assignment(), CALL_S)
        for place in places:
            # Where nothing is committed, from the start.
            where = max(place.offset, 0)
            self._consumer.seek(TopicPartition(place.topic, place.partition, where))

    def _assigned(self, consumer: Consumer, _: list[TopicPartition]) -> None:
        self._membership = consumer.consumer_group_metadata()

    def _revoked(self, *_: object) -> None:
        """What was read of partitions that go is another's, and all else is read again."""
        self._found = []


def _insist(call: Callable[..., None], *arguments: Any) -> None:
    """Again for as long as the client says that this helps."""
    while True:
        try:
            return call(*arguments)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
