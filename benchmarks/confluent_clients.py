"""A producer and a consumer of confluent-kafka, set up for large batches."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.server_process import Address

_BATCH_BYTES = 1_000_000
# Requests of a full batch each are what is wanted, and not one more than a client's queue holds.
_LINGER_MS = 50
_QUEUED_KIB = 1 << 20
_QUEUED_MESSAGES = 10_000_000
_POLL_EVERY = 20_000
_CONSUMED_AT_ONCE = 10_000
_WAIT_S = 60.0


def servers(address: Address) -> dict[str, str | int | float | bool]:
    """Where to connect to, and to print nothing: what goes wrong is raised."""
    return {"bootstrap.servers": f"{address[0]}:{address[1]}", "log_level": 0}


def batching_producer(address: Address, *, acks: str, batch_bytes: int | None) -> Producer:
    return Producer(
        {
            **servers(address),
            "acks": acks,
            "linger.ms": _LINGER_MS,
            "batch.size": batch_bytes or _BATCH_BYTES,
            "batch.num.messages": 1_000_000,
            "queue.buffering.max.kbytes": _QUEUED_KIB,
            "queue.buffering.max.messages": _QUEUED_MESSAGES,
        }
    )


def produce_all(producer: Producer, topic: str, value: bytes, messages: int) -> None:
    """Send so many messages to partition 0, and wait until all are acknowledged."""
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    produce = producer.produce
    for first in range(0, messages, _POLL_EVERY):
        for _ in range(min(_POLL_EVERY, messages - first) - 1):
            produce(topic, value, partition=0)
        # One callback in so many keeps the cost of the client down; a lost batch still fails.
        produce(topic, value, partition=0, on_delivery=delivered)
        producer.poll(0)
    left = producer.flush(_WAIT_S)
    if left or failures:
        raise KafkaException(failures[0] if failures else KafkaError(KafkaError._TIMED_OUT))


def batching_consumer(address: Address, topic: str) -> Consumer:
    """Reads partition 0 from its start, outside of any group's care."""
    consumer = Consumer(
        {
            **servers(address),
            "group.id": "bench",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.message.max.bytes": 4 << 20,
            "fetch.max.bytes": 16 << 20,
            "queued.max.messages.kbytes": 64 << 10,
            "queued.min.messages": 1_000_000,
            # A client whose queue is full waits so long before it fetches again: by itself, 1 s.
            "fetch.queue.backoff.ms": 5,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    return consumer


def consume_all(consumer: Consumer, messages: int) -> None:
    done = 0
    while done < messages:
        some = consumer.consume(min(_CONSUMED_AT_ONCE, messages - done), _WAIT_S)
        if not some:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        # An error is a message too; after the first there may be more, but one is enough.
        if error := some[-1].error() or some[0].error():
            raise KafkaException(error)
        done += len(some)


def create_topics(address: Address, names: list[str], *, partitions: int = 1) -> None:
    topics = [NewTopic(name, num_partitions=partitions, replication_factor=1) for name in names]
    with AdminClient(servers(address)) as admin:
        for created in admin.create_topics(topics, request_timeout=_WAIT_S).values():
            created.result()
