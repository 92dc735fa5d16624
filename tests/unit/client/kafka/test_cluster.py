"""A cluster of several scripted brokers: who is asked for what, and what is tried again."""

from __future__ import annotations

import pickle
import socket
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from millstream.client.kafka import EARLIEST, LATEST, Cluster, ClusterSettings, Security
from millstream.client.kafka.connection import Connection
from millstream.errors import (
    BrokerNotReady,
    ClientClosed,
    RefusedByBroker,
    TimedOut,
    TransactionLost,
    UnknownPartition,
    UnknownTopic,
    Unreachable,
    UnsupportedBroker,
)
from millstream.protocol.messages.end_txn import EndTxnResponse
from millstream.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from millstream.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from millstream.protocol.notation import Struct
from tests.fakes.patience import HANG_S, IMPATIENT_S
from tests.fakes.sample_batches import idempotent_batch
from tests.fakes.scripted_kafka import (
    API_VERSIONS,
    FETCH,
    FIND_COORDINATOR,
    HANG_UP,
    LIST_OFFSETS,
    METADATA,
    NOT_LEADER,
    SILENCE,
    Fault,
    ScriptedKafka,
)

COMMIT, END, LIST_TRANSACTIONS = 8, 26, 66
NOT_COORDINATOR, REFUSED = 16, 29


@pytest.fixture
def kafka() -> Iterator[ScriptedKafka]:
    with ScriptedKafka(brokers=3) as cluster:
        cluster.leaders = {"orders": [0, 1, 2], "clicks": [2]}
        yield cluster


@pytest.fixture
def cluster(kafka: ScriptedKafka) -> Iterator[Cluster]:
    with Cluster(kafka.bootstrap, timeout_s=HANG_S) as client:
        yield client


def test_each_leader_is_asked_for_its_own_partitions(
    kafka: ScriptedKafka, cluster: Cluster
) -> None:
    kafka.append(("orders", 1), bytes(idempotent_batch(0, count=5)))
    places = [("orders", 0), ("orders", 1), ("orders", 2), ("clicks", 0)]
    assert cluster.offsets(places, LATEST) == dict(zip(places, [0, 5, 0, 0], strict=True))
    assert cluster.offsets(places, EARLIEST) == dict.fromkeys(places, 0)
    assert [len(each.requests(LIST_OFFSETS)) for each in kafka.brokers] == [2, 2, 2]


def test_partitions_of_all_topics_or_of_those_named(cluster: Cluster) -> None:
    assert cluster.partitions() == {"orders": [0, 1, 2], "clicks": [0]}
    assert cluster.partitions(["clicks"]) == {"clicks": [0]}
    with pytest.raises(UnknownTopic, match="there is no topic 'nothing'"):
        cluster.partitions(["clicks", "nothing"])


def test_request_of_many_parts_is_sent(kafka: ScriptedKafka) -> None:
    # The system takes about a thousand at once.
    names = [f"nothing-{number}" for number in range(3000)]
    with Cluster(kafka.bootstrap, timeout_s=IMPATIENT_S) as cluster, pytest.raises(UnknownTopic):
        cluster.partitions(names)


def test_partition_that_moves_is_followed(kafka: ScriptedKafka, cluster: Cluster) -> None:
    cluster.offsets([("orders", 0)], LATEST)
    kafka.leaders["orders"][0] = 2
    assert cluster.offsets([("orders", 0)], LATEST) == {("orders", 0): 0}
    assert kafka.brokers[2].requests(LIST_OFFSETS)


def test_partition_that_was_added_is_found(kafka: ScriptedKafka, cluster: Cluster) -> None:
    cluster.offsets([("clicks", 0)], LATEST)
    kafka.leaders["clicks"].append(0)
    assert cluster.offsets([("clicks", 1)], LATEST) == {("clicks", 1): 0}
    with pytest.raises(UnknownPartition, match="it has 2"):
        cluster.offsets([("clicks", 2)], LATEST)


def test_coordinator_that_left_the_metadata_is_still_asked(
    kafka: ScriptedKafka, cluster: Cluster
) -> None:
    kafka.scripts[COMMIT] = lambda request: _committed(request, 0)
    cluster.commit("readers", {("orders", 0): 7})
    with kafka.lock:
        left = kafka.brokers.pop(0)
    cluster.partitions()
    cluster.commit("readers", {("orders", 0): 8})
    assert len(left.requests(COMMIT)) == 2
    left.stop()


def test_threads_share_a_client(kafka: ScriptedKafka, cluster: Cluster) -> None:
    for broker in kafka.brokers:
        broker.faults[LIST_OFFSETS].extend(["", "", HANG_UP, "", NOT_LEADER] * 4)
    places = [("orders", number) for number in range(3)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: cluster.offsets(places, LATEST), range(40)))
    assert found == [dict.fromkeys(places, 0)] * 40


@pytest.mark.parametrize("fault", [HANG_UP, NOT_LEADER])
def test_passing_fault_is_tried_again(kafka: ScriptedKafka, cluster: Cluster, fault: Fault) -> None:
    kafka.brokers[0].faults[LIST_OFFSETS].extend([fault, fault])
    assert cluster.offsets([("orders", 0)], LATEST) == {("orders", 0): 0}
    assert len(kafka.brokers[0].requests(LIST_OFFSETS)) == 3


def test_lasting_fault_is_told_at_once(kafka: ScriptedKafka, cluster: Cluster) -> None:
    kafka.brokers[0].faults[LIST_OFFSETS].append(REFUSED)
    with pytest.raises(RefusedByBroker, match="TOPIC_AUTHORIZATION_FAILED"):
        cluster.offsets([("orders", 0)], LATEST)
    assert len(kafka.brokers[0].requests(LIST_OFFSETS)) == 1


def test_fault_that_does_not_pass_in_time_is_told(kafka: ScriptedKafka) -> None:
    kafka.brokers[0].faults[LIST_OFFSETS].extend([NOT_LEADER] * 1000)
    with Cluster(kafka.bootstrap, timeout_s=IMPATIENT_S) as cluster, pytest.raises(BrokerNotReady):
        cluster.offsets([("orders", 0)], LATEST)
    assert len(kafka.brokers[0].requests(LIST_OFFSETS)) > 2


def test_broker_that_says_nothing_is_given_up(kafka: ScriptedKafka) -> None:
    kafka.brokers[0].faults[FETCH].extend([SILENCE] * 1000)
    with Cluster(kafka.bootstrap, timeout_s=0.2) as cluster, pytest.raises(TimedOut):
        cluster.fetch(("orders", 0), 0, max_wait_ms=0)


def test_first_broker_that_is_there_tells_of_the_others(kafka: ScriptedKafka) -> None:
    kafka.brokers[0].stop()
    kafka.leaders["orders"][0] = 1
    with Cluster(kafka.bootstrap, timeout_s=HANG_S) as cluster:
        assert cluster.offsets([("orders", 0)], LATEST) == {("orders", 0): 0}


def test_cluster_is_found_again_by_brokers_that_were_not_in_the_list(kafka: ScriptedKafka) -> None:
    with Cluster(kafka.brokers[0].address, timeout_s=HANG_S) as cluster:
        cluster.partitions()
        kafka.brokers[0].stop()
        kafka.leaders["orders"][0] = 1
        assert cluster.offsets([("orders", 0)], LATEST) == {("orders", 0): 0}


def test_coordinator_that_moves_is_followed(kafka: ScriptedKafka, cluster: Cluster) -> None:
    codes = iter([NOT_COORDINATOR, 0])

    def answer(request: OffsetCommitRequest) -> Struct:
        code = next(codes)
        kafka.coordinator = 1
        return _committed(request, code)

    kafka.scripts[COMMIT] = answer
    cluster.commit("readers", {("orders", 0): 7})
    assert len(kafka.brokers[0].requests(COMMIT)) == 1
    assert len(kafka.brokers[1].requests(COMMIT)) == 1
    found = [request for each in kafka.brokers for request in each.requests(FIND_COORDINATOR)]
    assert [each.key for each in found] == ["readers", "readers"]


def test_metadata_are_asked_for_once_while_nothing_fails(
    kafka: ScriptedKafka, cluster: Cluster
) -> None:
    for _ in range(5):
        cluster.offsets([("orders", 0), ("orders", 1)], LATEST)
    assert sum(len(each.requests(METADATA)) for each in kafka.brokers) == 1
    assert [each.connections for each in kafka.brokers] == [1, 1, 0]


def test_end_of_a_transaction_that_another_has_is_lost(
    kafka: ScriptedKafka, cluster: Cluster
) -> None:
    kafka.scripts[END] = lambda _: EndTxnResponse(error_code=90)
    with pytest.raises(TransactionLost, match=r"'tx' .producer 3, epoch 1. cannot be committed"):
        cluster.transactions.end("tx", 3, 1, commit=True)


def test_end_of_a_transaction_that_is_still_ending_is_tried_again(
    kafka: ScriptedKafka, cluster: Cluster
) -> None:
    codes = iter([51, 15, 0])
    kafka.scripts[END] = lambda _: EndTxnResponse(error_code=next(codes))
    cluster.transactions.end("tx", 3, 1, commit=True)
    assert len(kafka.brokers[0].requests(END)) == 3


def test_ongoing_transactions_are_those_of_all_coordinators(
    kafka: ScriptedKafka, cluster: Cluster
) -> None:
    names = iter([["etl-2", "other"], ["etl-1"], []])

    def answer(_: ListTransactionsRequest) -> Struct:
        states = [TransactionState(transactional_id=name) for name in next(names)]
        return ListTransactionsResponse(transaction_states=states)

    kafka.scripts[LIST_TRANSACTIONS] = answer
    assert cluster.transactions.ongoing("etl-") == ["etl-1", "etl-2"]
    for broker in kafka.brokers:
        [asked] = broker.requests(LIST_TRANSACTIONS)
        assert asked.state_filters == ["Ongoing"]


def test_broker_without_a_version_in_common_is_told(kafka: ScriptedKafka, cluster: Cluster) -> None:
    kafka.versions[FETCH] = (13, 17)
    with pytest.raises(UnsupportedBroker, match="versions 13 to 17 of Fetch"):
        cluster.fetch(("orders", 0), 0)


def test_older_version_of_a_broker_is_spoken(kafka: ScriptedKafka, cluster: Cluster) -> None:
    kafka.versions |= {
        FETCH: (0, 4),
        METADATA: (0, 1),
        LIST_OFFSETS: (1, 2),
        FIND_COORDINATOR: (0, 1),
    }
    kafka.append(("orders", 0), bytes(idempotent_batch(0)))
    assert cluster.offsets([("orders", 0)], LATEST) == {("orders", 0): 1}
    assert cluster.fetch(("orders", 0), 0).records


def test_something_else_that_listens_there_is_told(kafka: ScriptedKafka) -> None:
    for broker in kafka.brokers:
        broker.faults[API_VERSIONS].extend([b"HTTP/1.1 400 Bad Request\r\n\r\n"] * 100)
    with (
        Cluster(kafka.bootstrap, timeout_s=IMPATIENT_S) as cluster,
        pytest.raises(Unreachable, match="it answers with 1213486160 bytes"),
    ):
        cluster.partitions()


def test_answers_in_another_order_end_the_connection(kafka: ScriptedKafka) -> None:
    kafka.brokers[0].faults[LIST_OFFSETS].append(struct.pack(">iii", 8, 999, 0))
    with Cluster(kafka.bootstrap, timeout_s=HANG_S) as cluster:
        assert cluster.offsets([("orders", 0)], LATEST) == {("orders", 0): 0}
    assert kafka.brokers[0].connections == 2


def test_client_that_was_interrupted_goes_on(
    kafka: ScriptedKafka, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.offsets([("orders", 0)], LATEST)

    this_thread, receive = threading.current_thread(), socket.socket.recv_into

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def interrupt_client(*args: Any) -> int:
        # The broker has sockets, too, in another thread.
        if threading.current_thread() is this_thread:
            raise KeyboardInterrupt
        return receive(*args)

    with monkeypatch.context() as patch:
        patch.setattr(socket.socket, "recv_into", interrupt_client)
        with pytest.raises(KeyboardInterrupt):
            cluster.offsets([("orders", 0)], LATEST)
    with monkeypatch.context() as patch:
        patch.setattr(Connection, "receive", interrupt)
        with pytest.raises(KeyboardInterrupt):
            cluster.offsets([("orders", 0)], LATEST)
    kafka.append(("orders", 0), bytes(idempotent_batch(0, count=5)))
    assert cluster.offsets([("orders", 0)], LATEST) == {("orders", 0): 5}


def test_nobody_there_is_told_with_the_address() -> None:
    with (
        Cluster("127.0.0.1:1", timeout_s=0.1) as cluster,
        pytest.raises(Unreachable, match=r"127\.0\.0\.1:1 .Connection refused"),
    ):
        cluster.partitions()


def test_closed_client_says_so(kafka: ScriptedKafka) -> None:
    cluster = Cluster(kafka.bootstrap)
    cluster.partitions()
    cluster.close()
    with pytest.raises(ClientClosed):
        cluster.partitions()


def test_settings_travel(kafka: ScriptedKafka) -> None:
    settings = ClusterSettings(bootstrap=kafka.bootstrap, security=Security())
    with Cluster(pickle.loads(pickle.dumps(settings))) as cluster:
        assert cluster.settings == settings
        assert cluster.partitions(["clicks"]) == {"clicks": [0]}


def _committed(request: OffsetCommitRequest, code: int) -> Struct:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=code
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
