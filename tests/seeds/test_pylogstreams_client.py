"""The client of PyLogStreams, as its users know it, with a running broker."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from millstream.client import Client
from millstream.errors import ClientClosed, InvalidName, Unreachable
from tests.clients.broker_process import BrokerProcess
from tests.fakes.child_process import ChildProcess
from tests.fakes.patience import HANG_S
from tests.seeds.conftest import StartBroker

# As in the README of PyLogStreams, but for the import and the port.
README_EXAMPLE = """
from millstream.client import Client

client = Client("localhost", {port})

# Register and receive unique client ID
cid = client.register()
print("Registered with ID:", cid)

# Produce a message
client.produce("news", "Breaking: PyLogStreams is live!")

# Subscribe to a topic
client.subscribe("news")

# Consume messages
msg = client.consume()
print("Received:", msg)
"""


def connect(broker: BrokerProcess) -> Client:
    return Client("127.0.0.1", broker.pylogstreams_port)


def run_program(text: str, home: Path) -> str:
    program = home / "program.py"
    program.write_text(text)
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=HANG_S, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_example_of_the_readme_runs(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = start_broker(http="off")
    said = run_program(README_EXAMPLE.format(port=broker.pylogstreams_port), tmp_path)
    assert re.fullmatch(
        r"Registered with ID: \S+\nReceived: news Breaking: PyLogStreams is live!\n", said
    )
    assert broker.complaints() == []


def test_the_address_is_that_of_pylogstreams_by_default() -> None:
    defaults = Client.__init__.__defaults__
    assert defaults == ("localhost", 1234)
    assert (Client.ping_interval, Client.outgoing_buffer_capacity) == (30, 1000)


def test_consume_gives_topic_and_message_in_order(broker: BrokerProcess, name: str) -> None:
    with connect(broker) as client:
        client.register()
        client.subscribe(name)
        for number in range(5_000):
            client.produce(name, f"message {number}")
        for number in range(5_000):
            assert client.consume(HANG_S) == f"{name} message {number}"


def test_login_goes_on_where_the_client_was(broker: BrokerProcess, name: str) -> None:
    with connect(broker) as client:
        client_id = client.register()
        client.subscribe(name)
        client.produce(name, "0")
        assert client.consume(HANG_S) == f"{name} 0"
        client.produce(name, "1")
        assert client.consume(HANG_S) == f"{name} 1"
    with connect(broker) as client:
        client.login(client_id)
        client.subscribe(name)
        client.produce(name, "2")
        assert client.consume(HANG_S) == f"{name} 2"


def test_the_offset_can_be_reset_to_the_oldest_and_to_the_latest(
    broker: BrokerProcess, name: str
) -> None:
    with connect(broker) as client:
        client.register()
        client.produce(name, "0")
        client.produce(name, "1")
        client.reset_offset_latest(name)
        client.subscribe(name)
        client.produce(name, "2")
        assert client.consume(HANG_S) == f"{name} 2"
        client.reset_offset_oldest(name)
        assert [client.consume(HANG_S) for _ in range(3)] == [f"{name} {n}" for n in range(3)]


@pytest.mark.parametrize("message", ["", "two words", "ünïcödé 🌀", "x" * 5_000_000])
def test_any_text_arrives_as_it_was(broker: BrokerProcess, name: str, message: str) -> None:
    with connect(broker) as client:
        client.register()
        client.subscribe(name)
        client.produce(name, message)
        assert client.consume(HANG_S) == f"{name} {message}"


def test_bytes_that_are_no_text_arrive_as_they_were(broker: BrokerProcess, name: str) -> None:
    raw = bytes(range(256))
    with connect(broker) as client:
        client.register()
        client.subscribe(name)
        client.produce(name, raw)
        assert client.consume_bytes(HANG_S) == (name, raw)
        client.produce(name, raw)
        text = client.consume(HANG_S)
        assert text is not None
        client.produce(name, text.removeprefix(f"{name} "))
        assert client.consume_bytes(HANG_S) == (name, raw)


PRODUCE_AND_EXIT = """
from millstream.client import Client

def produce():
    client = Client("127.0.0.1", {port})
    client.register()
    client.subscribe("{topic}")
    for number in range({messages}):
        client.produce("{topic}", f"{{number}} " + "x" * 100)

produce()
"""


def test_a_program_that_produces_and_ends_loses_nothing(
    broker: BrokerProcess, name: str, tmp_path: Path
) -> None:
    messages = 20_000
    run_program(
        PRODUCE_AND_EXIT.format(port=broker.pylogstreams_port, topic=name, messages=messages),
        tmp_path,
    )
    with connect(broker) as client:
        client.register()
        client.subscribe(name)
        for number in range(messages):
            assert client.consume(HANG_S) == f"{name} {number} " + "x" * 100


def test_a_program_that_fails_after_it_produced_loses_nothing(
    broker: BrokerProcess, name: str, tmp_path: Path
) -> None:
    text = PRODUCE_AND_EXIT.format(port=broker.pylogstreams_port, topic=name, messages=100)
    program = tmp_path / "program.py"
    program.write_text(text + "\nraise SystemExit(3)\n")
    done = subprocess.run([sys.executable, str(program)], timeout=HANG_S, check=False)
    assert done.returncode == 3
    with connect(broker) as client:
        client.register()
        client.subscribe(name)
        for number in range(100):
            assert client.consume(HANG_S) == f"{name} {number} " + "x" * 100


PRODUCER = """
from millstream.client import Client

with Client("127.0.0.1", {port}) as client:
    client.register()
    for number in range({messages}):
        client.produce("{topic}", f"{producer} {{number}}")
    client.flush()
"""


def test_processes_that_produce_and_consume_at_once_agree(
    broker: BrokerProcess, name: str, tmp_path: Path
) -> None:
    producers, messages = 3, 3_000
    seen: dict[int, list[int]] = {producer: [] for producer in range(producers)}
    with ExitStack() as running, connect(broker) as client:
        processes = []
        for producer in range(producers):
            text = PRODUCER.format(
                port=broker.pylogstreams_port, topic=name, messages=messages, producer=producer
            )
            program = tmp_path / f"{producer}.py"
            program.write_text(text)
            processes.append(running.enter_context(ChildProcess(sys.executable, str(program))))
        client.register()
        client.subscribe(name)
        for _ in range(producers * messages):
            text_of = client.consume(HANG_S)
            assert text_of is not None
            _, sender, number = text_of.split(" ")
            seen[int(sender)].append(int(number))
        for process in processes:
            assert process.finish() == (0, "", "")
    assert all(numbers == list(range(messages)) for numbers in seen.values())


@pytest.mark.system
def test_positions_are_restored_after_the_broker_was_killed(
    start_broker: StartBroker, name: str
) -> None:
    broker = start_broker(http="off")
    with connect(broker) as client:
        client_id = client.register()
        client.subscribe(name)
        for number in range(10):
            client.produce(name, str(number))
        for number in range(5):
            assert client.consume(HANG_S) == f"{name} {number}"
    broker.kill_and_restart()
    with connect(broker) as client:
        client.login(client_id)
        client.subscribe(name)
        client.produce(name, "10")
        # What was delivered and not yet committed comes again; nothing is left out.
        first = client.consume(HANG_S)
        assert first is not None
        for number in range(int(first.split()[1]) + 1, 11):
            assert client.consume(HANG_S) == f"{name} {number}"


# What goes wrong


def test_nobody_answers_at_the_address() -> None:
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1"):
        Client("127.0.0.1", 1)


@pytest.mark.parametrize("topic", ["../../x", "", "two words", "x" * 250])
def test_what_is_no_topic_is_refused_before_it_is_sent(broker: BrokerProcess, topic: str) -> None:
    with connect(broker) as client:
        client.register()
        for use in (client.subscribe, client.reset_offset_oldest, client.reset_offset_latest):
            with pytest.raises(InvalidName):
                use(topic)
        with pytest.raises(InvalidName):
            client.produce(topic, "message")


def test_consume_waits_no_longer_than_it_is_told(broker: BrokerProcess, name: str) -> None:
    with connect(broker) as client:
        client.register()
        client.subscribe(name)
        with pytest.raises(TimeoutError):
            client.consume(0.05)
        client.produce(name, "late")
        assert client.consume(HANG_S) == f"{name} late"


def test_consume_gives_nothing_when_the_broker_is_gone(start_broker: StartBroker) -> None:
    broker = start_broker(http="off")
    with connect(broker) as client:
        client.register()
        client.subscribe("topic")
        stopping = threading.Thread(target=broker.kill)
        stopping.start()
        assert client.consume(HANG_S) is None
        stopping.join()


def test_a_producer_is_told_that_the_broker_is_gone(start_broker: StartBroker) -> None:
    broker = start_broker(http="off")
    client = connect(broker)
    client.register()
    client.produce("topic", "taken")
    client.flush(HANG_S)
    broker.kill()
    with pytest.raises(Unreachable):  # noqa: PT012 - which of them is told depends on the system
        for _ in range(100_000):
            client.produce("topic", "x" * 1000)
        client.close()
    with pytest.raises(Unreachable):
        client.close()


@pytest.mark.system
@pytest.mark.parametrize("has_unread", [False, True])
@pytest.mark.parametrize("end", [BrokerProcess.kill, BrokerProcess.stop])
def test_nothing_is_taken_after_the_broker_has_hung_up(
    start_broker: StartBroker, end: Callable[[BrokerProcess], None], has_unread: bool
) -> None:
    broker = start_broker(http="off")
    client = connect(broker)
    client.register()
    client.produce("topic", "taken")
    client.flush(HANG_S)
    if has_unread:
        client.subscribe("topic")
        client.produce("topic", "also taken")
        assert client.consume(HANG_S) == "topic taken"
    end(broker)
    with pytest.raises(Unreachable, match="hung up"):
        client.flush(HANG_S)
    with pytest.raises(Unreachable, match="hung up"):
        client.produce("topic", "lost")
    with pytest.raises(Unreachable, match="hung up"):
        client.close()


PRODUCE_TOO_LATE = """
from millstream.client import Client

client = Client("127.0.0.1", {port})
client.register()
client.produce("topic", "message")
client.flush()
print("ready", flush=True)
input()
"""


def test_a_program_that_ends_too_late_says_what_was_not_sent(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = start_broker(http="off")
    program = tmp_path / "program.py"
    program.write_text(PRODUCE_TOO_LATE.format(port=broker.pylogstreams_port))
    with ChildProcess(sys.executable, str(program)) as process:
        assert process.next_line() == "ready"
        broker.kill()
        process.write("\n")
        said = process.finish().stderr
    assert said.startswith("millstream: messages that were produced were not stored, or not all: ")
    assert said.count("\n") == 1


def test_a_client_that_is_closed_takes_nothing_more(broker: BrokerProcess, name: str) -> None:
    client = connect(broker)
    client.register()
    client.close()
    client.close()
    with pytest.raises(ClientClosed):
        client.produce(name, "message")
    assert client.consume() is None


def test_heartbeats_keep_an_idle_client_connected(
    start_broker: StartBroker, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Four heartbeats are so long that no busy machine misses as many.
    broker = start_broker("[pylogstreams]\nheartbeat.ms = 750\n", http="off")
    monkeypatch.setattr(Client, "ping_interval", 0.1)
    with connect(broker) as client:
        client.register()
        client.subscribe(name)
        with pytest.raises(TimeoutError):
            client.consume(4.0)
        client.produce(name, "alive")
        assert client.consume(HANG_S) == f"{name} alive"
    assert broker.complaints() == []
