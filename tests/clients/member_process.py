"""A member of a group in a process of its own, so that it can be killed.

    python -m tests.clients.member_process CLIENT ADDRESS GROUP TOPIC [--commit] ...

It says on stdout what it is assigned whenever that changes, each record that it reads, and each
offset once it is committed:

    assigned 0 3
    read 3 17
    committed 3 18

and, for what went wrong, `refused` or `trouble` with a code.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from importlib import import_module

from tests.clients.client_shape import Client, Committed, Consumer, Message, Refused

_CLIENTS = {
    "confluent": "tests.clients.confluent_client:Confluent",
    "aiokafka": "tests.clients.aiokafka_client:Aiokafka",
    "kafka-python": "tests.clients.kafka_python_client:KafkaPython",
}

_REBALANCE_IN_PROGRESS = 27


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("client", choices=_CLIENTS)
    parser.add_argument("address")
    parser.add_argument("group")
    parser.add_argument("topic")
    parser.add_argument("--session-ms", type=int, default=10_000)
    parser.add_argument("--instance")
    parser.add_argument("--cooperative", action="store_true")
    parser.add_argument("--protocol")
    parser.add_argument("--commit", action="store_true")
    options = parser.parse_args()
    more = {"protocol": options.protocol} if options.protocol else {}
    consumer = _client(options.client).consumer(
        options.address,
        group=options.group,
        instance=options.instance,
        session_ms=options.session_ms,
        cooperative=options.cooperative,
        **more,
    )
    consumer.subscribe([options.topic])
    _consume(consumer, commit=options.commit)


def _client(name: str) -> Client:
    # One client alone is imported: each takes its time.
    module, _, kind = _CLIENTS[name].partition(":")
    client: Client = getattr(import_module(module), kind)()
    return client


def _consume(consumer: Consumer, *, commit: bool) -> None:
    assigned: set[int] | None = None
    while True:
        found = _poll(consumer)
        now = {partition for _, partition in consumer.assignment()}
        if now != assigned:
            assigned = now
            _say("assigned", *sorted(now))
        for message in found:
            print("read", message.partition, message.offset)
        sys.stdout.flush()
        if commit and found:
            _commit(consumer, found)


def _poll(consumer: Consumer) -> list[Message]:
    try:
        return consumer.poll()
    except Refused as refused:
        # A client's own codes are below zero: it has lost the broker, and looks for it. librdkafka
        # also tells that it joins again because the group has moved to another protocol.
        if refused.code >= 0 and refused.code != _REBALANCE_IN_PROGRESS:
            raise
        _say("trouble", refused.code)
        return []


def _commit(consumer: Consumer, found: Iterable[Message]) -> None:
    reached = {(each.topic, each.partition): Committed(each.offset + 1) for each in found}
    try:
        consumer.commit(reached)
    except Refused as refused:
        _say("refused", refused.code)
        return
    for (_, partition), committed in reached.items():
        _say("committed", partition, committed.offset)


def _say(*words: object) -> None:
    print(*words, flush=True)


if __name__ == "__main__":
    main()
