"""Several processes with a client each, and a broker that is killed under them."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack

import pytest

from tests.clients.broker_process import BrokerProcess
from tests.fakes.child_process import ChildProcess
from tests.fakes.patience import wait_until
from tests.fakes.patient_client import connect
from tests.python_client.conftest import StartBroker

pytestmark = pytest.mark.system


def begin(task: str, broker: BrokerProcess, topic: str, count: int, name: str) -> ChildProcess:
    return ChildProcess.python(
        *("-m", "tests.python_client.worker_process"),
        *(task, broker.url, topic, str(count), name),
    )


def remaining_lines(process: ChildProcess) -> list[str]:
    done = process.finish()
    assert done.returncode == 0
    return done.stdout.splitlines()


def wait_until_worked_off(broker: BrokerProcess, topic: str) -> None:
    with connect(broker.url) as connection:
        wait_until(
            lambda: not connection.queues.describe(topic, "work").backlog, "an empty backlog"
        )


def stored(broker: BrokerProcess, topic: str) -> list[str]:
    with connect(broker.url) as connection:
        end = connection.topics.describe(topic).partitions[0].end_offset
        subscription = connection.subscribe(topic, start="earliest")
        return [message.text for _, message in zip(range(end), subscription, strict=False)]


def test_processes_send_and_work_together_with_exact_counts(
    broker: BrokerProcess, name: str
) -> None:
    with connect(broker.url) as connection:
        connection.queues.create(name, "work")
    with ExitStack() as running:
        senders = [
            running.enter_context(begin("send", broker, name, 200, f"s{n}")) for n in range(2)
        ]
        workers = [running.enter_context(begin("work", broker, name, 0, f"w{n}")) for n in range(2)]
        sent = [line for process in senders for line in remaining_lines(process)]
        wait_until_worked_off(broker, name)
        done = [line for process in workers for line in remaining_lines(process)]
    assert sorted(sent) == sorted(f"s{n}-{number}" for n in range(2) for number in range(200))
    assert sorted(stored(broker, name)) == sorted(sent)
    assert sorted(done) == sorted(sent)


def test_killed_broker_loses_nothing_that_was_answered_and_all_go_on(
    start_broker: StartBroker,
) -> None:
    broker = start_broker()
    with connect(broker.url) as connection:
        connection.queues.create("t", "work", redelivery_min=0, redelivery_max=0)
    with (
        begin("send", broker, "t", 400, "s") as sender,
        begin("work", broker, "t", 0, "w") as worker,
    ):
        sent = []
        for _ in range(2):
            sent += [sender.next_line() for _ in range(100)]
            broker.kill_and_restart()
        sent += remaining_lines(sender)
        wait_until_worked_off(broker, "t")
        done = remaining_lines(worker)
    assert sent == [f"s-{number}" for number in range(400)]
    found = stored(broker, "t")
    # A send that was repeated may be stored twice, and nothing is missing or out of order.
    assert list(dict.fromkeys(found)) == sent
    # Whose acknowledgement was answered is not delivered again: only what was stored twice is.
    assert Counter(done) <= Counter(found)
    assert set(done) == set(sent)
