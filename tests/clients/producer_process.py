"""A producer in a process of its own, which says which of its records were acknowledged.

    python -m tests.clients.producer_process ADDRESS TOPIC PARTITIONS NAME [--count N]

It sends records numbered per partition, as fast as the broker takes them, until N were sent or its
stdin ends; then it waits until all are acknowledged. On stdout it says, for each acknowledgement:

    acked PARTITION NUMBER OFFSET

and at the end `done`, with the number of records sent to each partition.
"""

from __future__ import annotations

import argparse
import select
import sys

from confluent_kafka import KafkaError, Message, Producer

from tests.fakes.patience import HANG_S

# Few enough that a broker that is gone stops the producer soon, and that acks keep up.
_MAX_QUEUED = 500
_FLUSH_S = HANG_S
# Records per partition between two looks at stdin.
_BATCH_SENDS = 4


class NumberedProducer:
    """Sends numbered records to each partition in turn."""

    def __init__(self, address: str, topic: str, *, partitions: int, name: str) -> None:
        self._topic = topic
        self._name = name
        self._partitions = partitions
        self.sent = [0] * partitions
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "batch.num.messages": 50,
                "queue.buffering.max.messages": _MAX_QUEUED,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                "message.timeout.ms": round(1000 * HANG_S),
                "log_level": 0,
            }
        )

    def send(self, count: int | None) -> None:
        """One record to each partition, if there is room for it and it has not had its share."""
        for partition in range(self._partitions):
            number = self.sent[partition]
            if number == count:
                continue
            try:
                self._producer.produce(
                    self._topic,
                    value=f"{self._name} {number}",
                    key=str(number),
                    partition=partition,
                    on_delivery=self._delivered,
                )
            except BufferError:
                self._producer.poll(0.05)
                continue
            self.sent[partition] += 1
        self._producer.poll(0)
        sys.stdout.flush()

    def finish(self) -> None:
        left = self._producer.flush(_FLUSH_S)
        print(f"unfinished {left}" if left else f"done {' '.join(map(str, self.sent))}", flush=True)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        key = message.key()
        assert isinstance(key, bytes)
        if error is not None:
            print("failed", message.partition(), key.decode(), error)
        else:
            print("acked", message.partition(), key.decode(), message.offset())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("topic")
    parser.add_argument("partitions", type=int)
    parser.add_argument("name")
    parser.add_argument("--count", type=int)
    options = parser.parse_args()
    producer = NumberedProducer(
        options.address, options.topic, partitions=options.partitions, name=options.name
    )
    while not _is_enough(producer.sent, options.count):
        for _ in range(_BATCH_SENDS):
            producer.send(options.count)
    producer.finish()


def _is_enough(sent: list[int], count: int | None) -> bool:
    if count is not None:
        return min(sent) >= count
    return bool(select.select([sys.stdin], [], [], 0.005)[0])


if __name__ == "__main__":
    main()
