"""confluent-kafka, which is librdkafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka import Message as Received
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from tests.clients.client_shape import (
    POLL_S,
    PRODUCER_FENCED,
    Committed,
    Message,
    Place,
    Refused,
)
from tests.fakes.patience import HANG_S

_OFFSET_INVALID = -1001
# librdkafka says on stderr when a connection ends, which tests bring about on purpose.
_QUIET = {"log_level": 0, "reconnect.backoff.max.ms": 200}
_MANY = 10_000


class ConfluentProducer:
    def __init__(self, config: dict[str, Any]) -> None:
        self._producer = Producer(config)
        self._sent: list[Future[int]] = []

    def send(self, message: Message) -> None:
        future: Future[int] = Future()
        self._sent.append(future)

        def delivered(error: KafkaError | None, report: Received) -> None:
            if error is not None:
                future.set_exception(_refused_by(error))
            else:
                offset = report.offset()
                future.set_result(-1 if offset is None else offset)

        self._producer.produce(
            message.topic,
            value=message.value,
            key=message.key,
            headers=list(message.headers) or None,
            partition=message.partition,
            timestamp=message.timestamp_ms,
            on_delivery=delivered,
        )
        self._producer.poll(0)

    def flush(self) -> list[int]:
        assert self._producer.flush(HANG_S) == 0
        sent, self._sent = self._sent, []
        return [future.result(0) for future in sent]

    def close(self) -> None:
        self._producer.flush(HANG_S)


class ConfluentTransactionalProducer(ConfluentProducer):
    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config)
        self._call(self._producer.init_transactions, HANG_S)

    def begin(self) -> None:
        self._call(self._producer.begin_transaction)

    def send_many(self, messages: Iterable[Message]) -> None:
        for number, message in enumerate(messages, start=1):
            self.send(message)
            if number % _MANY == 0:
                # Its queue holds only so many.
                assert self._producer.flush(HANG_S) == 0

    def flush(self) -> list[int]:
        try:
            return super().flush()
        except KafkaException as error:
            raise _refused(error) from error
        except SystemError:
            # It raises a fatal error in the middle of its reports of deliveries, and trips over it.
            # Whatever is called next raises the error again.
            self.commit()
            raise

    def send_offsets(self, membership: Any, offsets: Mapping[Place, int]) -> None:
        places = [TopicPartition(*place, offset) for place, offset in offsets.items()]
        self._call(self._producer.send_offsets_to_transaction, places, membership)

    def commit(self) -> None:
        self._call(self._producer.commit_transaction, HANG_S)

    def abort(self) -> None:
        self._call(self._producer.abort_transaction, HANG_S)

    def _call(self, call: Callable[..., None], *arguments: Any) -> None:
        """Again for as long as the client says that this would help."""
        deadline = time.monotonic() + HANG_S
        while True:
            try:
                return call(*arguments)
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise _refused(error) from error


class ConfluentConsumer:
    def __init__(self, config: dict[str, Any]) -> None:
        self._consumer = Consumer(config)

    def assign(self, places: Mapping[Place, int]) -> None:
        self._consumer.assign([TopicPartition(*place, offset) for place, offset in places.items()])

    def subscribe(self, topics: Sequence[str]) -> None:
        self._consumer.subscribe(list(topics))

    def subscribe_pattern(self, pattern: str) -> None:
        self._consumer.subscribe([f"^{pattern.lstrip('^')}"])

    def poll(self) -> list[Message]:
        return [_message(each) for each in self._consumer.consume(_MANY, POLL_S)]

    def seek(self, place: Place, offset: int) -> None:
        self._consumer.seek(TopicPartition(*place, offset))

    def commit(self, offsets: Mapping[Place, Committed]) -> None:
        wanted = [TopicPartition(*place, c.offset, c.metadata) for place, c in offsets.items()]
        try:
            committed = self._consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException as error:
            raise _refused(error) from error
        assert committed is not None
        for each in committed:
            if each.error:
                raise Refused(each.error.code(), str(each.error))

    def committed(self, place: Place) -> Committed | None:
        (found,) = self._consumer.committed([TopicPartition(*place)], HANG_S)
        if found.offset == _OFFSET_INVALID:
            return None
        return Committed(found.offset, found.metadata or "")

    def assignment(self) -> set[Place]:
        return {(each.topic, each.partition) for each in self._consumer.assignment()}

    def membership(self) -> object:
        return self._consumer.consumer_group_metadata()

    def bounds(self, place: Place) -> tuple[int, int]:
        bounds = self._consumer.get_watermark_offsets(TopicPartition(*place), HANG_S)
        assert bounds is not None
        return bounds

    def offset_for_time(self, place: Place, timestamp_ms: int) -> int | None:
        asked = [TopicPartition(*place, timestamp_ms)]
        (found,) = self._consumer.offsets_for_times(asked, HANG_S)
        return found.offset if found.offset >= 0 else None

    def close(self) -> None:
        self._consumer.close()


class ConfluentAdmin:
    def __init__(self, config: dict[str, Any]) -> None:
        self.raw = AdminClient(config)

    def create(
        self, topic: str, *, partitions: int, configs: Mapping[str, str] | None = None
    ) -> None:
        new = NewTopic(topic, partitions, 1, config=dict(configs or {}))
        _wait(self.raw.create_topics([new]))

    def delete(self, topic: str) -> None:
        _wait(self.raw.delete_topics([topic]))

    def topics(self) -> dict[str, int]:
        listed = self.raw.list_topics(timeout=HANG_S).topics
        return {name: len(topic.partitions) for name, topic in listed.items()}

    def configs(self, topic: str) -> dict[str, str | None]:
        entries = _wait(self.raw.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
        return {name: entry.value for name, entry in entries.items()}

    def alter(self, topic: str, changes: Mapping[str, str]) -> None:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in changes.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        _wait(self.raw.incremental_alter_configs([resource]))

    def add_partitions(self, topic: str, total: int) -> None:
        _wait(self.raw.create_partitions([NewPartitions(topic, total)]))

    def delete_records(self, place: Place, before_offset: int) -> int:
        deleted = _wait(self.raw.delete_records([TopicPartition(*place, before_offset)]))
        return int(deleted.low_watermark)

    def groups(self) -> set[str]:
        listed = self.raw.list_consumer_groups(request_timeout=HANG_S).result()
        assert listed.errors == []
        return {each.group_id for each in listed.valid}

    def group_members(self, group: str) -> tuple[str, int]:
        described = _wait(self.raw.describe_consumer_groups([group]))
        return described.state.name.title(), len(described.members)

    def delete_group(self, group: str) -> None:
        _wait(self.raw.delete_consumer_groups([group]))

    def group_offsets(self, group: str) -> dict[Place, int]:
        found = _wait(self.raw.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]))
        return {(each.topic, each.partition): each.offset for each in found.topic_partitions}

    def brokers(self) -> list[tuple[int, str, int]]:
        cluster = self.raw.describe_cluster(request_timeout=HANG_S).result()
        return [(node.id, node.host, node.port) for node in cluster.nodes]

    def close(self) -> None:
        """There is nothing to close; it ends with its last reference."""


class Confluent:
    name = "confluent"

    def producer(
        self,
        address: str,
        *,
        compression: str = "none",
        idempotent: bool = False,
        max_bytes: int = 1_000_000,
        linger_ms: int = 5,
        acks: int = -1,
    ) -> ConfluentProducer:
        return ConfluentProducer(
            {
                "bootstrap.servers": address,
                "compression.type": compression,
                "enable.idempotence": idempotent,
                "acks": acks,
                "linger.ms": linger_ms,
                "message.max.bytes": max_bytes,
                **_QUIET,
            }
        )

    def transactional_producer(
        self,
        address: str,
        transactional_id: str,
        *,
        compression: str = "none",
        timeout_ms: int = 60_000,
        linger_ms: int = 5,
    ) -> ConfluentTransactionalProducer:
        return ConfluentTransactionalProducer(
            {
                "bootstrap.servers": address,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "message.timeout.ms": timeout_ms,
                "compression.type": compression,
                "linger.ms": linger_ms,
                **_QUIET,
            }
        )

    def consumer(
        self,
        address: str,
        *,
        group: str | None = None,
        instance: str | None = None,
        session_ms: int = 10_000,
        reset: str = "earliest",
        isolation: str = "read_uncommitted",
        fetch_max_bytes: int = 50 * 1024**2,
        cooperative: bool = False,
        protocol: str = "classic",
        remote_assignor: str = "uniform",
    ) -> ConfluentConsumer:
        config: dict[str, Any] = {
            "bootstrap.servers": address,
            # librdkafka makes no consumer without one, and needs none to assign.
            "group.id": group or "none",
            "auto.offset.reset": reset,
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "fetch.max.bytes": fetch_max_bytes,
            "fetch.message.max.bytes": min(fetch_max_bytes, 1024**2),
            "message.max.bytes": min(fetch_max_bytes, 1_000_000),
            "fetch.wait.max.ms": 100,
            "check.crcs": True,
            "topic.metadata.refresh.interval.ms": 500,
            **_QUIET,
        }
        if instance is not None:
            config["group.instance.id"] = instance
        if protocol == "consumer":
            config["group.protocol"] = "consumer"
            config["group.remote.assignor"] = remote_assignor
        else:
            config["session.timeout.ms"] = session_ms
            config["heartbeat.interval.ms"] = min(200, session_ms // 3)
            strategy = "cooperative-sticky" if cooperative else "range,roundrobin"
            config["partition.assignment.strategy"] = strategy
        return ConfluentConsumer(config)

    def admin(self, address: str) -> ConfluentAdmin:
        return ConfluentAdmin({"bootstrap.servers": address, **_QUIET})


def _message(received: Received) -> Message:
    error = received.error()
    if error is not None:
        raise Refused(error.code(), str(error))
    topic, partition, offset = received.topic(), received.partition(), received.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    headers: Any = received.headers() or ()
    value: Any = received.value()
    key: Any = received.key()
    return Message(
        topic=topic,
        value=value,
        key=key,
        headers=tuple(headers),
        partition=partition,
        timestamp_ms=received.timestamp()[1],
        offset=offset,
    )


def _wait(futures: Any) -> Any:
    """The answer to a question about one thing."""
    (future,) = futures.values()
    try:
        return future.result(HANG_S)
    except KafkaException as error:
        raise _refused(error) from error


def _refused(error: KafkaException) -> Refused:
    return _refused_by(error.args[0])


def _refused_by(error: KafkaError) -> Refused:
    code = PRODUCER_FENCED if error.code() == KafkaError._FENCED else error.code()
    return Refused(code, str(error))
