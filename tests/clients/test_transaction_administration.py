"""What administrators are told of transactions, by the clients that ask for it."""

from __future__ import annotations

import time
import warnings

import pytest
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import OffsetSpec

from tests.clients.broker_process import BrokerProcess
from tests.clients.client_shape import eventually
from tests.clients.confluent_client import Confluent
from tests.clients.kafka_python_client import KafkaPython, KafkaPythonAdmin
from tests.clients.transaction_content import numbered, run, transactional
from tests.fakes.patience import HANG_S

pytestmark = pytest.mark.system

with warnings.catch_warnings():
    # It reads its resources in a way that Python 3.11 no longer likes.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import TopicPartition as PythonPartition
    from kafka.errors import KafkaError

TRANSACTIONAL_ID_NOT_FOUND = 105
UNKNOWN_TOPIC = 3
TIMEOUT_MS = 54_321


def listed(admin: KafkaPythonAdmin, **filters: object) -> dict[str, str]:
    """The states of all transactions that are told, by transactional id."""
    found = admin.raw.list_transactions(**filters)
    return {each.transactional_id: each.state.value for some in found.values() for each in some}


def states_of(admin: KafkaPythonAdmin, name: str) -> dict[str, str]:
    """Of this test's transactions. A broker may answer a commit before it has completed it."""
    found: dict[str, str] = {}

    def are_settled() -> bool:
        found.update(listed(admin))
        return not any(state.startswith("Prepare") for state in found.values())

    eventually(are_settled, "all ends")
    return {
        each.removeprefix(f"{name}-"): state
        for each, state in found.items()
        if each.startswith(name)
    }


def test_transactions_are_listed_and_described(broker: BrokerProcess, name: str) -> None:
    client = Confluent()
    admin = KafkaPython().admin(broker.address)
    begin_ms = int(time.time() * 1000)
    with (
        transactional(client, broker.address, f"{name}-open", timeout_ms=TIMEOUT_MS) as producer,
        transactional(client, broker.address, f"{name}-done") as done,
        transactional(client, broker.address, f"{name}-dropped") as dropped,
        transactional(client, broker.address, f"{name}-new"),
    ):
        run(done, numbered(name, range(3)))
        run(dropped, numbered(name, range(3)), is_commit=False)
        producer.begin()
        producer.send_many(numbered(name, range(3)))
        producer.flush()
        assert states_of(admin, name) == {
            "open": "Ongoing",
            "done": "CompleteCommit",
            "dropped": "CompleteAbort",
            "new": "Empty",
        }
        assert f"{name}-open" in listed(admin, state_filters=["Ongoing"])
        assert f"{name}-done" not in listed(admin, state_filters=["Ongoing"])
        assert f"{name}-open" not in listed(admin, duration_filter_ms=3_600_000)
        found = admin.raw.describe_transactions([f"{name}-open", f"{name}-done"])
        ongoing, ended = found[f"{name}-open"], found[f"{name}-done"]
        assert ongoing.state.value == "Ongoing"
        assert ongoing.transaction_timeout_ms == TIMEOUT_MS
        assert begin_ms - 1000 <= ongoing.transaction_start_time_ms <= begin_ms + 60_000
        assert ongoing.topic_partitions == {PythonPartition(name, 0)}
        assert ended.topic_partitions == set()
        alone = listed(admin, producer_id_filters=[ongoing.producer_id])
        assert alone == {f"{name}-open": "Ongoing"}
        producer.commit()
    assert states_of(admin, name)["open"] == "CompleteCommit"
    admin.close()


def test_transaction_that_nobody_knows_is_not_described(broker: BrokerProcess, name: str) -> None:
    admin = KafkaPython().admin(broker.address)
    with pytest.raises(KafkaError) as refused:
        admin.raw.describe_transactions([name])
    assert refused.value.errno == TRANSACTIONAL_ID_NOT_FOUND
    admin.close()


def test_producers_of_a_partition_are_described(broker: BrokerProcess, name: str) -> None:
    admin = KafkaPython().admin(broker.address)
    place = PythonPartition(name, 0)
    with transactional(Confluent(), broker.address, name) as producer:
        run(producer, numbered(name, range(4)))
        producer.begin()
        producer.send_many(numbered(name, range(3)))
        producer.flush()
        described = admin.raw.describe_transactions([name])[name]
        (active,) = admin.raw.describe_producers([place])[place].active_producers
        assert active.producer_id == described.producer_id
        assert active.current_transaction_start_offset == 5
        assert active.last_timestamp > 0
        producer.abort()
        (idle,) = admin.raw.describe_producers([place])[place].active_producers
        assert idle.producer_id == described.producer_id
        assert idle.current_transaction_start_offset == -1
    with pytest.raises(KafkaError) as refused:
        admin.raw.describe_producers([PythonPartition(name, 99)], broker_id=_broker(admin))
    assert refused.value.errno == UNKNOWN_TOPIC
    admin.close()


def test_latest_offset_depends_on_the_isolation_level(broker: BrokerProcess, name: str) -> None:
    ours = Confluent().admin(broker.address).raw
    theirs = KafkaPython().admin(broker.address)
    place, same_place = TopicPartition(name, 0), PythonPartition(name, 0)

    def latest(level: str) -> set[int]:
        spec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = ours.list_offsets({place: spec}, isolation_level=IsolationLevel[level.upper()])
        told = theirs.raw.list_partition_offsets({same_place: -1}, isolation_level=level)
        return {asked[place].result(HANG_S).offset, told[same_place].offset}

    with transactional(Confluent(), broker.address, name) as producer:
        run(producer, numbered(name, range(3)))
        producer.begin()
        producer.send_many(numbered(name, range(5)))
        producer.flush()
        assert latest("read_committed") == {4}
        assert latest("read_uncommitted") == {9}
        producer.abort()
    assert latest("read_committed") == latest("read_uncommitted") == {10}
    theirs.close()


def _broker(admin: KafkaPythonAdmin) -> int:
    ((node, _, _),) = admin.brokers()
    return node
