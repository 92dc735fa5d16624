"""Many faults at once: an idempotent producer still stores every message once and in order."""

from __future__ import annotations

from random import Random

import pytest
from confluent_kafka import Producer

from millstream.testing import Broker
from tests.fakes.patience import HANG_S

pytestmark = pytest.mark.system

PARTITIONS = 3
ROUNDS = 25
BURST = 20


def bring_about_a_fault(broker: Broker, random: Random) -> None:
    partition = random.choice([None, *range(PARTITIONS)])
    place = {"topic": "orders", "partition": partition, "times": random.randint(1, 2)}
    faults = broker.faults
    match random.choice(["delay", "refuse", "before", "after", "metadata", "stall"]):
        case "delay":
            faults.delay("Produce", seconds=random.choice([0.01, 0.05]), **place)
        case "refuse":
            errors = ["NOT_LEADER_OR_FOLLOWER", "REQUEST_TIMED_OUT", "NOT_ENOUGH_REPLICAS"]
            faults.refuse("Produce", error=random.choice(errors), **place)
        case "before":
            faults.disconnect("Produce", **place)
        case "after":
            faults.disconnect("Produce", after_work=True, **place)
        case "metadata":
            faults.refuse("Metadata", error="LEADER_NOT_AVAILABLE", topic="orders", times=1)
        case "stall":
            faults.stall("orders", partition)


@pytest.mark.parametrize("seed", range(2))
def test_idempotent_producer_weathers_a_storm_of_faults(seed: int) -> None:
    random = Random(seed)
    failed: list[object] = []
    with Broker() as broker:
        broker.create_topic("orders", partitions=PARTITIONS)
        settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "enable.idempotence": True,
            "linger.ms": 2,
            "reconnect.backoff.ms": 5,
            "reconnect.backoff.max.ms": 20,
            "retry.backoff.ms": 5,
            "retry.backoff.max.ms": 20,
            "log_level": 0,
        }
        producer = Producer(settings)
        for number in range(ROUNDS):
            bring_about_a_fault(broker, random)
            for step in range(BURST):
                producer.produce(
                    "orders",
                    str(number * BURST + step),
                    partition=step % PARTITIONS,
                    on_delivery=lambda error, _: failed.append(error) if error else None,
                )
            producer.poll(random.choice([0, 0.01, 0.02]))
            if random.random() < 0.3:
                broker.faults.clear()
        broker.faults.clear()
        assert producer.flush(HANG_S) == 0
        assert not failed
        stored: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
        for message in broker.messages("orders"):
            stored[message.partition].append(int(message.value or b""))
    sent = [(number * BURST + step, step) for number in range(ROUNDS) for step in range(BURST)]
    for partition, values in stored.items():
        assert values == [value for value, step in sent if step % PARTITIONS == partition]
