"""Damage in a real data directory: what the broker says of it, and `millstream segment repair`."""

from __future__ import annotations

import sys
from pathlib import Path

import httpx
import pytest

from tests.cli.command import Command
from tests.clients.broker_process import BrokerProcess
from tests.fakes.child_process import ChildProcess
from tests.fakes.patience import HANG_S

pytestmark = pytest.mark.system

CATALOG = "__catalog/0/00000000000000000000.log"
KEPT = ("topic", "create", "kept", "-p", "1", "--set", "retention.ms=-1")


@pytest.fixture
def broker(tmp_path: Path) -> BrokerProcess:
    """A stopped broker with a topic that is kept for ever and three messages in it."""
    broker = BrokerProcess(tmp_path, http="127.0.0.1:0")
    with broker:
        cli = Command(broker.address)
        cli.output(*KEPT)
        cli.output("produce", "kept", stdin=b"1\n2\n3\n")
        broker.stop()
    return broker


def get(broker: BrokerProcess, path: str) -> httpx.Response:
    return httpx.get(f"{broker.url}{path}", timeout=HANG_S)


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def flip_topic_record(data: Path, *copies: str) -> None:
    """Damage what the catalog holds of the topic."""
    for copy in copies:
        path = data / copy / CATALOG
        flip(path, path.read_bytes().index(b"topic/kept"))


def test_damaged_copy_of_the_catalog_is_repaired_and_shown(broker: BrokerProcess) -> None:
    flip_topic_record(broker.data, "topics")
    with broker:
        cli = Command(broker.address)
        assert (
            cli.objects("topic", "describe", "kept")[0]["settings"]["retention.ms"]["value"] == "-1"
        )
        health = get(broker, "/health").json()
        assert health["status"] == "ok"
        [damage] = health["damage"]
        assert f"topics/{CATALOG}: bytes" in damage
        assert str(broker.data) not in damage
        assert "\nmillstream_log_repaired_places 1\n" in get(broker, "/metrics").text
        [complaint] = broker.complaints()
        assert f"{broker.data}/topics/{CATALOG}: bytes" in complaint
        broker.restart()
        assert get(broker, "/health").json()["damage"] == []


def test_catalog_damaged_in_both_copies_is_repaired_by_command(broker: BrokerProcess) -> None:
    flip_topic_record(broker.data, "topics", "copies")
    serve = (sys.executable, "-m", "millstream", "serve", "--data-dir", str(broker.data))
    with ChildProcess(*serve) as process:
        done = process.finish()
    assert done.returncode == 1
    assert done.stderr.startswith("millstream: both copies of __catalog/0 are damaged")
    assert "millstream segment repair" in done.stderr
    cli = Command(broker.address)
    repair = ("segment", "repair", str(broker.data))
    shown = cli.run(*repair, "--dry-run")
    assert shown.returncode == 1
    assert b"__catalog/0: offsets" in shown.stdout
    assert "repaired __catalog/0" in cli.output(*repair, "--yes")
    assert "nothing to repair" in cli.output(*repair)
    with broker:
        [topic] = cli.objects("topic", "describe", "kept")
        # Its record is lost: what is not known is not deleted.
        assert topic["settings"]["retention.ms"]["value"] == "-1"
        assert cli.output("consume", "kept") == "1\n2\n3\n"
        broker.stop()


def test_damaged_messages_are_shown_and_taken_out(broker: BrokerProcess) -> None:
    path = broker.data / "topics" / "kept" / "0" / "00000000000000000000.log"
    flip(path, 65)
    cli = Command(broker.address)
    with broker:
        answer = get(broker, "/topics/kept/messages?offset=0")
        assert answer.status_code == 500
        assert str(broker.data) not in answer.text
        health = get(broker, "/health").json()
        assert health["status"] == "degraded"
        assert "topics/kept/0/00000000000000000000.log: bytes 0 to" in health["damage"][0]
        assert "\nmillstream_log_damaged_places 1\n" in get(broker, "/metrics").text
        assert len(broker.complaints()) == 1
        broker.stop()
    assert "kept/0: offsets 0 to" in cli.output("segment", "repair", str(broker.data), "--yes")
    with broker:
        assert cli.objects("topic", "describe", "kept")[0]["partitions"]
        assert get(broker, "/topics/kept/messages?offset=0").status_code == 200
        assert get(broker, "/health").json()["damage"] == []
        broker.stop()
