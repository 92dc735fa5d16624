"""`millstream queue` and `millstream dlq` as a person or a script meets them: real processes."""

from __future__ import annotations

import json
import os
import pty
import socket
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from millstream.client import Connection
from tests.clients.broker_process import BrokerProcess
from tests.fakes.patience import HANG_S
from tests.fakes.patient_client import connect

pytestmark = pytest.mark.system

HOSTILE = "red \x1b[31m and [bold]markup[/bold]\nnext"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker"), http="127.0.0.1:0") as process:
        yield process
        process.stop()
        assert process.complaints() == []


@pytest.fixture(scope="module")
def client(broker: BrokerProcess) -> Iterator[Connection]:
    with connect(broker.url) as connection:
        yield connection


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """One for each test."""
    return str(request.node.name)[:100].replace("[", ".").rstrip("]")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "millstream", *arguments],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )


def output(*arguments: str) -> str:
    """What a command that goes well prints."""
    done = run(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def objects(*arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output(*arguments, "--json").splitlines()]


def failure(*arguments: str, code: int = 1) -> str:
    """The one line of a command that must fail."""
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("millstream: ")
    return done.stderr


def let_die(
    client: Connection, topic: str, values: list[bytes], *, names: tuple[str, ...] = ("workers",)
) -> None:
    """Send messages, and refuse them once for each subscription, which is once too often."""
    for name in names:
        client.queues.create(topic, name, max_deliveries=1)
    for value in values:
        client.send(topic, value, key="k", headers={"trace": b"\xff", "kind": b"job"})
    for name in names:
        refuse(client, topic, len(values), name=name)


def refuse(client: Connection, topic: str, count: int, *, name: str = "workers") -> None:
    with client.subscribe(topic, subscription=name) as queue:
        for _ in range(count):
            message = queue.receive(timeout_s=HANG_S)
            assert message is not None
            message.nack(delay=0, reason=f"no {name}")
        # A letter is written first; only then is its message done with.
        while client.queues.describe(topic, name).backlog:
            assert queue.receive(timeout_s=0.01) is None


def test_letters_are_browsed_by_people(
    broker: BrokerProcess, client: Connection, topic: str
) -> None:
    let_die(client, topic, [b"poison", b"\xff\x00", HOSTILE.encode()])
    said = output("dlq", "browse", topic, "--url", broker.url)
    title, _, first, second, third, _, counts = said.splitlines()
    assert title.split()[:3] == ["ID", "SUBSCRIPTION", "SOURCE"]
    assert counts == "3 outstanding, 0 replayed"
    assert first.split()[:4] == ["0:0", "workers", "0:0", "1"]
    assert first.split()[-4:] == ["k", "no", "workers", "poison"]
    assert second.endswith(r"\xff\x00")
    assert third.endswith(r"red \x1b[31m and [bold]markup[/bold]\nnext")


def test_letters_are_browsed_by_programs(
    broker: BrokerProcess, client: Connection, topic: str
) -> None:
    let_die(client, topic, [b"poison", b"\xff\x00"])
    first, second = objects("dlq", "browse", topic, "--url", broker.url)
    assert (first["topic"], first["subscription"]) == (f"{topic}.dlq", "workers")
    assert (first["message_id"], first["source_partition"], first["source_offset"]) == ("0:0", 0, 0)
    assert (first["key"], first["value"], first["reason"]) == ("k", "poison", "no workers")
    assert first["delivery_count"] == 1
    assert first["headers"]["kind"] == "job"
    assert first["headers"]["trace"] == {"base64": "/w=="}
    assert (second["value"], second["encoding"]) == ("/wA=", "base64")


def test_letters_of_all_subscriptions_are_browsed_unless_one_is_named(
    broker: BrokerProcess, client: Connection, topic: str
) -> None:
    let_die(client, topic, [b"poison"], names=("a", "b"))
    both = objects("dlq", "browse", topic, "--url", broker.url)
    assert [each["subscription"] for each in both] == ["a", "b"]
    [one] = objects("dlq", "browse", topic, "--subscription", "b", "--url", broker.url)
    assert one == both[1]


def test_limit_holds_and_more_pages_than_one_are_browsed(
    broker: BrokerProcess, client: Connection, topic: str
) -> None:
    client.topics.create(f"{topic}.dlq", partitions=3)
    values = [str(number).encode() for number in range(250)]
    let_die(client, topic, values)
    arguments = ("dlq", "browse", topic, "--url", broker.url)
    every = objects(*arguments, "--limit", "1000")
    assert sorted(each["source_offset"] for each in every) == list(range(250))
    assert objects(*arguments, "--limit", "120") == every[:120]
    assert "there are more than these 249" in output(*arguments, "--limit", "249")
    assert "there are more" not in output(*arguments, "--limit", "250")


def test_letters_are_sent_back_once(broker: BrokerProcess, client: Connection, topic: str) -> None:
    let_die(client, topic, [b"one", b"two", b"three"])
    arguments = ("dlq", "replay", topic, "--url", broker.url)
    said = output(*arguments, "--limit", "2")
    assert said.splitlines() == [
        f"2 letters of subscription 'workers' sent back to topic '{topic}'",
        "more letters remain: run it again to send them back",
    ]
    [answer] = objects(*arguments, "--subscription", "workers")
    assert answer == {
        "topic": topic,
        "subscription": "workers",
        "count": 1,
        "failed": [],
        "has_more": False,
    }
    assert output(*arguments).startswith("0 letters of")
    with client.subscribe(topic, subscription="workers") as queue:
        again = [queue.receive(timeout_s=HANG_S) for _ in range(3)]
    assert [each.text for each in again if each] == ["one", "two", "three"]


def test_letters_that_were_sent_back_are_marked_and_sent_again_only_if_told(
    broker: BrokerProcess, client: Connection, topic: str
) -> None:
    let_die(client, topic, [b"one", b"two"])
    browse = ("dlq", "browse", topic, "--url", broker.url)
    replay = ("dlq", "replay", topic, "--url", broker.url)
    assert output(*replay, "--id", "0:1").startswith("1 letter of")
    assert [each["replayed"] for each in objects(*browse)] == [False, True]
    [left] = objects(*browse, "--state", "outstanding")
    assert left["value"] == "one"
    said = output(*browse).splitlines()
    assert said[0].split()[:3] == ["ID", "SUBSCRIPTION", "REPLAYED"]
    assert said[-1] == "1 outstanding, 1 replayed"
    assert "has sent back 1 of these letters before (0:1)" in failure(*replay, "--id", "0:1")
    assert output(*replay, "--id", "0:1", "--again").startswith("1 letter of")
    assert output(*replay).startswith("1 letter of")
    assert "that are outstanding" in output(*browse, "--state", "outstanding")
    assert "--again needs --id" in failure(*replay, "--again", code=2)


def test_letters_that_cannot_be_sent_back_are_named(
    broker: BrokerProcess, client: Connection, topic: str
) -> None:
    let_die(client, topic, [b"one", b"x" * 5000, b"three"])
    client.topics.configure(topic, settings={"max.message.bytes": 1000})
    done = run("dlq", "replay", topic, "--url", broker.url)
    assert done.returncode == 1
    first, second = done.stdout.splitlines()
    assert first == f"2 letters of subscription 'workers' sent back to topic '{topic}'"
    assert second.startswith("letter 0:1 was not: ")
    assert "Traceback" not in done.stderr


def test_replay_wants_to_know_whose_letters(
    broker: BrokerProcess, client: Connection, topic: str
) -> None:
    let_die(client, topic, [b"poison"], names=("a", "b"))
    message = failure("dlq", "replay", topic, "--url", broker.url)
    assert message.endswith("--subscription: a, b\n")
    assert client.topics.describe(topic).partitions[0].end_offset == 1


def test_letters_are_purged_unless_others_would_go_too(
    broker: BrokerProcess, client: Connection, topic: str
) -> None:
    let_die(client, topic, [b"one", b"two"], names=("a", "b"))
    arguments = ("dlq", "purge", topic, "--url", broker.url)
    assert "nobody is there to ask" in failure(*arguments, code=2)
    refused = failure(*arguments, "--subscription", "a", "--yes")
    assert f"letters of {topic}/b lie in {topic}.dlq too" in refused
    assert len(objects("dlq", "browse", topic, "--url", broker.url)) == 4
    assert output(*arguments, "--yes") == f"4 letters deleted from '{topic}.dlq'\n"
    assert objects("dlq", "browse", topic, "--url", broker.url) == []
    [answer] = objects(*arguments, "--yes")
    assert answer == {"topic": topic, "dead_letter_topic": f"{topic}.dlq", "deleted": 0}
    # Who dies later is found, and sent back, as before.
    client.send(topic, b"late")
    refuse(client, topic, 1, name="a")
    assert output("dlq", "replay", topic, "--subscription", "a", "--url", broker.url).startswith(
        "1 "
    )


def test_topic_without_letters_is_said_to_have_none(
    broker: BrokerProcess, client: Connection, topic: str
) -> None:
    client.queues.create(topic, "workers")
    arguments = ("dlq", "browse", topic, "--url", broker.url)
    assert output(*arguments) == f"topic '{topic}' has no dead letters\n"
    assert objects(*arguments) == []


def test_topic_without_queues_is_said_to_have_none(
    broker: BrokerProcess, client: Connection, topic: str
) -> None:
    client.topics.create(topic)
    assert "has no subscriptions" in failure("dlq", "browse", topic, "--url", broker.url)
    assert output("queue", "list", topic, "--url", broker.url) == f"topic '{topic}' has no queues\n"


def test_dead_letter_topic_is_answered_with_the_topic_to_name(
    broker: BrokerProcess, client: Connection, topic: str
) -> None:
    let_die(client, topic, [b"poison"])
    message = failure("dlq", "browse", f"{topic}.dlq", "--url", broker.url)
    assert message.endswith(f"first sent to: {topic}\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ("dlq", "browse", "nowhere"),
        ("dlq", "replay", "nowhere"),
        ("dlq", "browse", "nowhere", "--subscription", "s"),
        ("queue", "list", "nowhere"),
        ("queue", "describe", "nowhere", "s"),
    ],
)
def test_unknown_topic_is_named(broker: BrokerProcess, arguments: tuple[str, ...]) -> None:
    message = failure(*arguments, "--url", broker.url, code=3)
    assert "'nowhere'" in message
    assert "millstream queue list" in message


def test_unknown_subscription_is_named(
    broker: BrokerProcess, client: Connection, topic: str
) -> None:
    client.queues.create(topic, "workers")
    for command in (
        ("dlq", "browse", topic, "--subscription", "nobody"),
        ("queue", "describe", topic, "nobody"),
    ):
        assert "'nobody'" in failure(*command, "--url", broker.url, code=3)


def test_queues_are_listed(broker: BrokerProcess, client: Connection, topic: str) -> None:
    client.queues.create(topic, "workers")
    client.send_many(topic, ["one", "two"])
    said = output("queue", "list", topic, "--url", broker.url)
    title, _, row = said.splitlines()
    assert title.split()[:4] == ["TOPIC", "SUBSCRIPTION", "TYPE", "BACKLOG"]
    assert row.split()[:4] == [topic, "workers", "shared", "2"]
    [listed] = objects("queue", "list", topic, "--url", broker.url)
    assert (listed["backlog"], listed["dead_letter_topic"]) == (2, f"{topic}.dlq")
    assert listed in objects("queue", "list", "--url", broker.url)


def test_queue_is_described(broker: BrokerProcess, client: Connection, topic: str) -> None:
    client.queues.create(topic, "workers", max_deliveries=7)
    arguments = ("queue", "describe", topic, "workers", "--url", broker.url)
    with client.subscribe(topic, subscription="workers", consumer="me"):
        described = dict(line.split() for line in output(*arguments).splitlines()[2:])
        assert (described["max_deliveries"], described["consumers"]) == ("7", "me")
        [shape] = objects(*arguments)
    assert (shape["max_deliveries"], shape["consumers"], shape["lost"]) == (7, ["me"], 0)


def test_reader_that_leaves_ends_the_command_well(
    broker: BrokerProcess, client: Connection, topic: str
) -> None:
    let_die(client, topic, [b"poison"])
    for form in ([], ["--json"]):
        command = ["dlq", "browse", topic, "--url", broker.url, *form]
        read_end, write_end = os.pipe()
        os.close(read_end)
        with os.fdopen(write_end, "wb") as closed:
            done = subprocess.run(
                [sys.executable, "-m", "millstream", *command],
                stdout=closed,
                stderr=subprocess.PIPE,
                timeout=HANG_S,
                check=False,
            )
        assert (done.returncode, done.stderr) == (0, b"")


def test_terminal_that_knows_few_characters_gets_all_letters(
    broker: BrokerProcess, client: Connection, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_die(client, topic, ["日本 \N{GRINNING FACE}".encode()])
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    arguments = ("dlq", "browse", topic, "--url", broker.url)
    assert "\\u65e5\\u672c \\U0001f600\n" in output(*arguments)
    assert objects(*arguments)[0]["value"] == "日本 \N{GRINNING FACE}"


def test_narrow_terminal_gets_a_line_for_each_letter(
    broker: BrokerProcess, client: Connection, topic: str
) -> None:
    let_die(client, topic, [b"long " * 30, b"short"])
    controller, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, 80))
    with os.fdopen(controller, "rb", buffering=0) as screen, os.fdopen(terminal, "wb") as shown:
        subprocess.run(
            [sys.executable, "-m", "millstream", "dlq", "browse", topic, "--url", broker.url],
            stdout=shown,
            env={**os.environ, "TERM": "dumb", "COLUMNS": "80"},
            timeout=HANG_S,
            check=True,
        )
        lines = screen.read(65536).decode().splitlines()
    assert len(lines) == 6
    assert all(len(line) <= 80 for line in lines)
    assert "  long lo" in lines[2]
    assert lines[3].endswith("short")


def test_name_that_is_no_text_is_refused(broker: BrokerProcess) -> None:
    assert "is no name" in failure("queue", "list", os.fsdecode(b"\xff"), "--url", broker.url)


def test_door_of_another_protocol_is_no_broker() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"

        def hang_up() -> None:
            server.accept()[0].close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        message = failure("queue", "list", "--url", url, code=4)
        thread.join()
    assert f"no broker answers at {url}" in message


def test_broker_that_is_not_there_is_named() -> None:
    with socket.socket() as taken:
        # Bound and not listening: nobody else can answer there.
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        message = failure("queue", "list", "--url", url, code=4)
    assert f"no broker answers at {url}" in message
    assert "millstream serve" in message


def test_server_that_is_no_broker_is_named() -> None:
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # its name there
            pass

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.server_port}"
            message = failure("queue", "list", "--url", url, code=4)
        finally:
            server.shutdown()
            thread.join()
    assert "what answers there is no broker" in message


@pytest.mark.parametrize(
    "url", ["localhost:8000", "ftp://a", "http://", "http://a:99999", "http://[a"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    assert f"{url!r} is no address of a broker" in failure("queue", "list", "--url", url)


@pytest.mark.parametrize("limit", ["0", "-1", "many", "10001"])
def test_bad_limit_is_a_usage_error(limit: str) -> None:
    done = run("dlq", "replay", "jobs", "--limit", limit)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_command_line_starts_without_broker_and_client() -> None:
    code = (
        "import sys, millstream.cli; millstream.cli._add_commands([]);"
        "print(*(m for m in sys.modules if 'millstream.' in m))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG_S, check=True
    ).stdout.split()
    packages = {name.split(".")[1] for name in loaded}
    assert packages == {"cli", "clock", "errors"}
