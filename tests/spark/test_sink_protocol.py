"""The commit record of the exactly-once sink, with no Spark: every step may be the last one."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from millstream.client.kafka import LATEST, Cluster
from millstream.clock import SystemClock
from millstream.errors import BatchForgotten, BatchTorn, QueryTakenOver, TransactionExpired
from millstream.spark.sink.claim import Claim
from millstream.spark.sink.commit_log import CommitLog, Found
from millstream.spark.sink.commit_record import CommitRecord
from millstream.spark.sink.committer import Batch
from millstream.spark.sink.task import Attempt
from tests.clients.apache_kafka import ApacheKafka
from tests.clients.broker_process import BrokerProcess
from tests.fakes.patience import wait_until
from tests.fakes.ports import fixed_port
from tests.spark.records import create_topic
from tests.spark.sink_driver import Died, Life, Query, committed_values

TASKS = 2
# About as long as a batch takes.
LATEST_KILL_S = 0.2


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    with ApacheKafka(tmp_path_factory.mktemp("apache")) as process:
        yield process


@pytest.fixture(params=["millstream", pytest.param("apache", marks=pytest.mark.kafka)])
def address(request: pytest.FixtureRequest) -> str:
    """Of our broker and of Apache Kafka."""
    name = "broker" if request.param == "millstream" else "apache"
    found: str = request.getfixturevalue(name).address
    return found


def test_driver_dies_at_every_step_then_every_row_is_there_once(address: str, topic: str) -> None:
    create_topic(address, topic)
    clean = Query(address, f"{topic}-clean", topic)
    clean.run_batch(0, _tasks("clean", 0), Life())
    life = Life()
    clean.run_batch(1, _tasks("clean", 1), life)
    assert life.count >= 5
    names = ["clean"]
    for last in range(1, life.count + 1):
        for after in (False, True):
            name = f"{last}-{'after' if after else 'before'}"
            names.append(name)
            query = Query(address, f"{topic}-{name}", topic)
            query.run_batch(0, _tasks(name, 0), Life())
            with pytest.raises(Died):
                query.run_batch(1, _tasks(name, 1), Life(last, after=after))
            query.run = "restart"
            query.run_batch(1, _tasks(name, 1), Life())
            query.run_batch(2, _tasks(name, 2), Life())

    expected = [
        value
        for name in names
        for batch in range(2 if name == "clean" else 3)
        for values in _tasks(name, batch)
        for value in values
    ]
    assert Counter(committed_values(address, topic)) == Counter(expected)
    _assert_nothing_is_open(address, topic)


def test_driver_that_was_replaced_can_decide_nothing(address: str, topic: str) -> None:
    create_topic(address, topic)
    query = Query(address, topic, topic)
    with Cluster(address) as old, Cluster(address) as new:
        log = CommitLog(old, SystemClock())
        log.create()
        record = CommitRecord(name=topic)
        own_id = f"{topic}-driver"
        claim = Claim.take(log, topic, lambda: old.transactions.init(own_id, 60_000))
        taken = Claim.take(
            CommitLog(new, SystemClock()),
            topic,
            lambda: new.transactions.init(own_id, 60_000),
        )
        # What was on its way when the other took over comes too late, however late.
        with pytest.raises(QueryTakenOver, match="another driver writes as query"):
            claim.change(record)
        taken.change(record)
    query.run_batch(0, _tasks("a", 0), Life())
    assert len(committed_values(address, topic)) == 6


def test_claim_knows_what_was_decided_while_it_was_taken(address: str, topic: str) -> None:
    with Cluster(address) as old, Cluster(address) as new:
        log = CommitLog(old, SystemClock())
        log.create()
        claim = Claim.take(log, topic, lambda: old.transactions.init(topic, 60_000))

        class Late(CommitLog):
            """Between its look at the log and its first record, the other driver decides."""

            def newest(self, name: str) -> Found:
                found = super().newest(name)
                claim.change(CommitRecord(name=name, batch=7))
                return found

        taken = Claim.take(
            Late(new, SystemClock()), topic, lambda: new.transactions.init(topic, 60_000)
        )
        assert taken.record.batch == 7
        newest = log.newest(topic).record
        assert newest is not None
        assert newest.batch == 7


def test_what_a_dead_run_left_open_is_aborted_before_tasks_run(address: str, topic: str) -> None:
    create_topic(address, topic)
    query = Query(address, topic, topic)
    query.write(query.plan(), 0, 5, [b"left open"])
    with Cluster(address) as cluster:
        committer = query.committer(cluster)
        committer.recover()
        committer.sweep()
    _assert_nothing_is_open(address, topic)
    assert committed_values(address, topic) == []


def test_commit_that_failed_after_its_decision_is_finished_by_abort(
    address: str, topic: str
) -> None:
    create_topic(address, topic)
    query = Query(address, topic, topic)
    with pytest.raises(Died):
        # Claimed, decided.
        query.run_batch(0, _tasks("a", 0), Life(3, after=True))
    assert committed_values(address, topic) == []
    with Cluster(address) as cluster:
        query.committer(cluster).abort()
    assert len(committed_values(address, topic)) == 6
    query.run_batch(0, _tasks("a", 0), Life())
    assert len(committed_values(address, topic)) == 6


def test_decision_that_nobody_carried_out_in_time_is_taken_back(address: str, topic: str) -> None:
    create_topic(address, topic)
    query = Query(address, topic, topic)
    with pytest.raises(Died):
        query.run_batch(0, _tasks("a", 0), Life(3, after=True))
    _time_out(address, topic, tasks=(0, 1))
    query.run_batch(0, _tasks("a", 0), Life())
    assert Counter(committed_values(address, topic)) == Counter(_values("a", 0))


def test_torn_batch_is_written_again_where_it_was_lost(address: str, topic: str) -> None:
    create_topic(address, topic)
    query = Query(address, topic, topic)
    with pytest.raises(Died):
        query.run_batch(0, _tasks("a", 0), Life(3, after=True))
    _time_out(address, topic, tasks=(1,))
    # The warning names the batch, the task, and where its rows should be.
    said = rf"batch 0 of query .*task 1 \(3 rows for {topic}-0\)"
    with pytest.warns(UserWarning, match=said), pytest.raises(BatchTorn, match=said):
        query.run_batch(0, _tasks("other", 0), Life())
    assert Counter(committed_values(address, topic)) == Counter(_tasks("a", 0)[0])
    with pytest.warns(UserWarning, match=said):
        query.run_batch(0, _tasks("a", 0), Life())
    query.run_batch(1, _tasks("a", 1), Life())
    expected = _values("a", 0) + _values("a", 1)
    assert Counter(committed_values(address, topic)) == Counter(expected)
    _assert_nothing_is_open(address, topic)


def test_batch_that_the_cluster_has_forgotten_is_not_written_twice(
    tmp_path: Path, topic: str
) -> None:
    port = fixed_port()
    with BrokerProcess(tmp_path, port=port) as broker:
        create_topic(broker.address, topic)
        query = Query(broker.address, topic, topic)
        with pytest.raises(Died):
            # Claimed, decided, and both transactions committed.
            query.run_batch(0, _tasks("a", 0), Life(5, after=True))
        assert Counter(committed_values(broker.address, topic)) == Counter(_values("a", 0))
        broker.stop()
    # Only this one forgets, so that a slow machine loses nothing earlier or later.
    settings = '[transactions]\n"transactional.id.expiration.ms" = 100\n'
    with BrokerProcess(tmp_path, port=port, settings=settings) as broker:
        _wait_until_forgotten(broker.address, topic)
        broker.stop()
    with BrokerProcess(tmp_path, port=port) as broker:
        query.run = "restart"
        with pytest.raises(BatchForgotten, match=rf"task 1 \(3 rows for {topic}-0\)"):
            query.run_batch(0, _tasks("a", 0), Life())
        assert Counter(committed_values(broker.address, topic)) == Counter(_values("a", 0))


def test_transaction_that_timed_out_fails_its_batch_before_anything_is_decided(
    address: str, topic: str
) -> None:
    create_topic(address, topic)
    query = Query(address, topic, topic)
    plan = query.plan()
    parts = [query.write(plan, 0, task, values).part for task, values in enumerate(_tasks("a", 0))]
    _time_out(address, topic, tasks=(1,))
    with Cluster(address) as cluster:
        committer = query.committer(cluster)
        with pytest.raises(TransactionExpired, match=r"task 1 .*transactionTimeout"):
            committer.commit(Batch(query_id=query.query_id, number=0, parts=parts))
        committer.abort()
    assert committed_values(address, topic) == []
    query.run_batch(0, _tasks("a", 0), Life())
    assert Counter(committed_values(address, topic)) == Counter(_values("a", 0))


def test_batch_of_many_tasks_is_committed_through_several_connections(
    address: str, topic: str
) -> None:
    create_topic(address, topic)
    query = Query(address, topic, topic)
    tasks = [[f"{task}".encode()] for task in range(20)]
    query.run_batch(0, [*tasks, []], Life())
    assert Counter(committed_values(address, topic)) == Counter(map(b"".join, tasks))
    _assert_nothing_is_open(address, topic)


@pytest.mark.system
def test_broker_is_killed_in_every_batch_then_every_row_is_there_once(
    tmp_path: Path, topic: str
) -> None:
    batches = 8
    moments = Random(7)
    with BrokerProcess(tmp_path, port=fixed_port()) as broker, ThreadPoolExecutor(1) as pool:
        create_topic(broker.address, topic)
        query = Query(broker.address, topic, topic)

        def kill(after_s: float) -> None:
            time.sleep(after_s)
            broker.kill_and_restart()

        for batch in range(batches):
            killing = pool.submit(kill, moments.uniform(0.0, LATEST_KILL_S))
            query.run_batch(batch, _tasks("a", batch), Life())
            killing.result()
        expected = [value for batch in range(batches) for value in _values("a", batch)]
        assert Counter(committed_values(broker.address, topic)) == Counter(expected)
        _assert_nothing_is_open(broker.address, topic)


def _values(name: str, batch: int) -> list[bytes]:
    return [value for values in _tasks(name, batch) for value in values]


def _time_out(address: str, name: str, *, tasks: tuple[int, ...]) -> None:
    """What a coordinator does with a transaction that took too long: abort it, and fence."""
    with Cluster(address) as cluster:
        for task in tasks:
            attempt = Attempt(task=task, attempt=0, run="run")
            cluster.transactions.init(attempt.transactional_id(name), 60_000)


def _wait_until_forgotten(address: str, name: str) -> None:
    """Until the coordinator knows nothing more of the tasks' transactions."""
    ids = [Attempt(task=task, attempt=0, run="run").transactional_id(name) for task in range(TASKS)]
    with Cluster(address) as cluster:
        wait_until(
            lambda: {cluster.transactions.state(each) for each in ids} == {None},
            "the transactions to be forgotten",
        )


def _tasks(name: str, batch: int) -> list[list[bytes]]:
    return [[f"{name}:{batch}:{task}:{row}".encode() for row in range(3)] for task in range(TASKS)]


def _assert_nothing_is_open(address: str, topic: str) -> None:
    """Readers of committed rows are not kept waiting."""
    place = (topic, 0)
    with Cluster(address) as cluster:
        ends = {
            committed: cluster.offsets([place], LATEST, committed=committed)[place]
            for committed in (True, False)
        }
    assert ends[True] == ends[False]
