"""`millstream segment`: the files of a broker that is stopped."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

import pytest

from millstream.client.kafka import Cluster
from millstream.records import Record, build
from millstream.records.pair_batch import build_pairs
from millstream.storage.filesystem import LocalFilesystem
from tests.cli.command import Command
from tests.clients.broker_process import BrokerProcess

pytestmark = pytest.mark.system

BATCHES = 40
RECORDS = 5


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that has written some segments, and runs no more."""
    with BrokerProcess(tmp_path_factory.mktemp("segments")) as broker:
        with Cluster(broker.address) as cluster:
            cluster.create_topic("t", 2, {"segment.bytes": "20000"})
            values = [b"x" * 200] * RECORDS
            batch = bytes(build_pairs([b"k"] * RECORDS, values, timestamp_ms=1_700_000_000_000))
            cluster.produce(("t", 0), [batch] * BATCHES)
        running = Command(broker.address).run("segment", "rebuild-index", str(broker.data))
        assert running.returncode == 1
        assert b"is in use by process" in running.stderr
        seen = Command(broker.address).run("segment", "verify", str(broker.data))
        assert seen.returncode == 0
        assert b"is in use by process" in seen.stderr
        broker.stop()
        yield broker


@pytest.fixture
def cli() -> Command:
    return Command("127.0.0.1:1")


@pytest.fixture
def data(stopped: BrokerProcess) -> Iterator[Path]:
    """Its directory, which is as it was after the test."""
    files = {path: path.read_bytes() for path in stopped.data.rglob("*") if path.is_file()}
    yield stopped.data
    for path, content in files.items():
        path.write_bytes(content)


def test_segments_are_listed(cli: Command, data: Path) -> None:
    found = cli.objects("segment", "list", str(data), "-t", "t", "-p", "0")
    assert len(found) >= 2
    assert [each["state"] for each in found][-2:] == ["archived", "active"]
    assert (found[0]["base_offset"], found[-1]["next_offset"]) == (0, BATCHES * RECORDS)
    for before, after in pairwise(found):
        assert before["next_offset"] == after["base_offset"]
    assert "archived" in cli.output("segment", "list", str(data))
    assert "holds topics: __catalog" in cli.failure(3, "segment", "list", str(data), "-t", "no")
    assert "is no data directory" in cli.failure(1, "segment", "list", str(data / "topics"))


def test_records_of_any_bytes_are_dumped(cli: Command, tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    headers = (("n\udcff", b"\xff"), ("m", b"1"), ("m", b"2"))
    path.write_bytes(build([Record(0, 7, b"\xfe", b"\xff", headers)]))
    [shape] = cli.objects("segment", "dump", str(path), "--records")
    assert shape["records"] == [
        {
            "offset": 0,
            "timestamp": 7,
            "key": "/g==",
            "key_encoding": "base64",
            "value": "/w==",
            "encoding": "base64",
            "headers": {"n\\xff": {"base64": "/w=="}, "m": ["1", "2"]},
        }
    ]


def test_batches_are_dumped(cli: Command, data: Path) -> None:
    path = next(iter(sorted((data / "topics" / "t" / "0").glob("*.log"))))
    first, second = cli.objects("segment", "dump", str(path), "-n", "2", "--records")
    assert (first["base_offset"], first["last_offset"], second["base_offset"]) == (0, 4, 5)
    assert second["position"] == first["bytes"]
    assert [each["key"] for each in first["records"]] == ["k"] * RECORDS
    content = bytearray(path.read_bytes())
    content[first["bytes"] + 100] ^= 1
    path.write_bytes(content)
    lines = cli.output("segment", "dump", str(path)).splitlines()
    assert lines[0].startswith("0..4 byte=0 ")
    assert "DAMAGED: " in lines[1]
    assert lines[2].startswith("10..14 ")
    assert cli.output("segment", "dump", str(path), "--from", "12").startswith("10..14 ")


def test_sound_directory_is_verified(cli: Command, data: Path) -> None:
    assert cli.output("segment", "verify", str(data), "--records").endswith(": all is sound\n")
    [summary] = cli.objects("segment", "verify", str(data), "-t", "t", "-p", "0")
    assert (summary["batches"], summary["records"]) == (BATCHES, BATCHES * RECORDS)
    assert (summary["damage"], summary["logs"]) == (0, 1)


def test_damage_is_told_with_its_place_and_fails(cli: Command, data: Path) -> None:
    path = next(iter(sorted((data / "topics" / "t" / "0").glob("*.log"))))
    content = bytearray(path.read_bytes())
    size = int.from_bytes(content[8:12], "big") + 12
    content[2 * size + 90] ^= 1
    path.write_bytes(content)
    (data / "checkpoint").write_bytes(b"00000000\n{}")
    done = cli.run("segment", "verify", str(data), "--json")
    assert (done.returncode, done.stderr) == (1, b"")
    checkpoint, batch, *_, summary = map(json.loads, done.stdout.splitlines())
    assert checkpoint["file"] == str(data / "checkpoint")
    assert (batch["file"], batch["position"], batch["offset"]) == (str(path), 2 * size, 10)
    assert batch["expected"].startswith("checksum 0x")
    assert batch["found"].startswith("checksum 0x")
    assert batch["expected"] != batch["found"]
    assert summary["damage"] == 2
    said = cli.run("segment", "verify", str(data), "-t", "t").stdout.decode()
    assert f"DAMAGE: {path} at byte {2 * size} (offset 10): " in said


def test_indexes_are_rebuilt(cli: Command, data: Path) -> None:
    index = next(iter(sorted((data / "topics" / "t" / "0").glob("*.index"))))
    before = index.read_bytes()
    index.write_bytes(b"\xff" * len(before))
    index.with_suffix(".timeindex").unlink()
    assert cli.run("segment", "verify", str(data)).returncode == 1
    assert "written anew" in cli.output("segment", "rebuild-index", str(data), "-t", "t")
    assert cli.output("segment", "verify", str(data)).endswith(": all is sound\n")
    assert index.read_bytes() == before


@pytest.mark.parametrize("command", ["verify", "rebuild-index"])
def test_directory_of_something_else_is_left_as_it_is(
    cli: Command, tmp_path: Path, command: str
) -> None:
    assert "is no data directory" in cli.failure(1, "segment", command, str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_what_can_only_be_read_is_verified(cli: Command, data: Path) -> None:
    refused = OSError(errno.EROFS, "Read-only file system")
    with patch.object(LocalFilesystem, "lock", side_effect=refused):
        done = cli.run("segment", "verify", str(data))
        assert cli.run("segment", "rebuild-index", str(data)).returncode == 1
    assert done.returncode == 0
    assert done.stdout.endswith(b": all is sound\n")
    assert b"cannot be locked (Read-only file system)" in done.stderr
