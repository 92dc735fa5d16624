"""Several processes with a client each, and a broker that is killed under them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter

from millstream.client import connect
from tests.clients.broker_process import ROOT, BrokerProcess
from tests.python_client.conftest import StartBroker

_WAIT_S = 90


def begin(
    task: str, broker: BrokerProcess, topic: str, count: int, name: str
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "tests.python_client.worker_process"),
            *(task, broker.url, topic, str(count), name),
        ],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def lines_of(process: subprocess.Popen[str]) -> list[str]:
    said, _ = process.communicate(timeout=_WAIT_S)
    assert process.returncode == 0
    return said.splitlines()


def wait_until_worked_off(broker: BrokerProcess, topic: str) -> None:
    deadline_s = time.monotonic() + _WAIT_S
    with connect(broker.url) as connection:
        while connection.queues.describe(topic, "work").backlog:
            assert time.monotonic() < deadline_s
            time.sleep(0.02)


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
    senders = [begin("send", broker, name, 200, f"s{n}") for n in range(2)]
    workers = [begin("work", broker, name, 0, f"w{n}") for n in range(2)]
    sent = [line for process in senders for line in lines_of(process)]
    wait_until_worked_off(broker, name)
    done = [line for process in workers for line in lines_of(process)]
    assert sorted(stored(broker, name)) == sorted(sent)
    assert sorted(done) == sorted(sent)


def test_killed_broker_loses_nothing_that_was_answered_and_all_go_on(
    start_broker: StartBroker,
) -> None:
    broker = start_broker()
    with connect(broker.url) as connection:
        connection.queues.create("t", "work", redelivery_min=0, redelivery_max=0)
    sender = begin("send", broker, "t", 400, "s")
    worker = begin("work", broker, "t", 0, "w")
    assert sender.stdout is not None
    told = []
    for _ in range(2):
        told += [sender.stdout.readline().strip() for _ in range(100)]
        broker.kill_and_restart()
    sent = told + lines_of(sender)
    wait_until_worked_off(broker, "t")
    done = lines_of(worker)
    assert sent == [f"s-{number}" for number in range(400)]
    found = stored(broker, "t")
    # A send that was repeated may be stored twice, and nothing is missing or out of order.
    assert list(dict.fromkeys(found)) == sent
    # Whose acknowledgement was answered is not delivered again: only what was stored twice is.
    assert Counter(done) <= Counter(found)
    assert set(done) == set(sent)
