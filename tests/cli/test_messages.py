"""`millstream produce` and `millstream consume`."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from millstream.broker.partitioner import partition_of
from millstream.testing import Broker
from tests.cli.command import Command
from tests.fakes.patience import HANG_S

pytestmark = pytest.mark.system

LINES = b"one\n\ntwo words\n\xff\x00 bytes\nlast"
SHAPES: list[dict[str, Any]] = [
    {"key": "a", "value": "text", "headers": {"h": ["1", "2"], "b": {"base64": "/w=="}}},
    {"key": "/w==", "key_encoding": "base64", "value": "AP8=", "encoding": "base64"},
    {"key": "gone", "value": None, "timestamp": 1_700_000_000_123, "headers": {"n": None}},
    {"value": {"any": ["json", 1]}, "partition": 2, "timestamp": "2026-07-01T12:00:00Z"},
]


def test_lines_come_back_as_they_were(cli: Command, topic: str, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(LINES)
    second.write_bytes(b"more\n")
    [sent] = cli.objects("produce", topic, "--create", str(first), str(second))
    assert (sent["messages"], sent["bytes"], sent["partitions"]) == (6, len(LINES) + 5, {"0": 6})
    done = cli.run("consume", topic)
    assert (done.returncode, done.stdout) == (0, LINES + b"\nmore\n")


def test_json_comes_back_as_it_was(cli: Command, topic: str) -> None:
    cli.output("topic", "create", topic, "-p", "3")
    cli.output("topic", "create", f"{topic}.copy", "-p", "3")
    lines = "".join(json.dumps(shape) + "\n" for shape in SHAPES).encode()
    cli.output("produce", topic, "--format", "json", stdin=lines)
    said = cli.run("consume", topic, "--json").stdout
    found = {each["key"]: each for each in map(json.loads, said.splitlines())}
    assert found["a"]["headers"] == SHAPES[0]["headers"]
    assert (found["/w=="]["key_encoding"], found["/w=="]["value"]) == ("base64", "AP8=")
    assert (found["gone"]["value"], found["gone"]["timestamp"]) == (None, 1_700_000_000_123)
    assert (found[None]["value"], found[None]["partition"]) == ('{"any":["json",1]}', 2)
    assert found[None]["timestamp"] == 1_782_907_200_000
    # What consume writes, produce reads: the copy is the same.
    cli.output("produce", f"{topic}.copy", "--format", "json", stdin=said)
    copied = cli.run("consume", f"{topic}.copy", "--json").stdout.replace(b".copy", b"")
    assert sorted(copied.splitlines()) == sorted(said.splitlines())


def test_keys_choose_partitions_as_every_kafka_client_does(cli: Command, topic: str) -> None:
    cli.output("topic", "create", topic, "-p", "5")
    pairs = [(f"key-{n}".encode(), b"%d" % n) for n in range(200)]
    stdin = b"".join(b"%b\t%b\n" % pair for pair in pairs)
    cli.output("produce", topic, "-K", r"\t", "--batch-messages", "7", stdin=stdin)
    said = cli.run("consume", topic, "--format", r"%p %k %v\n").stdout
    expected = {b"%d %b %b" % (partition_of(key, 5), key, value) for key, value in pairs}
    assert set(said.splitlines()) == expected


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["1", "all"])
def test_compressed_messages_are_read(cli: Command, topic: str, codec: str, acks: str) -> None:
    stdin = b"again and again\n" * 500
    options = ("--compression", codec, "--acks", acks, "-H", "trace=1", "-k", "same")
    cli.output("produce", topic, "--create", *options, stdin=stdin)
    assert cli.run("consume", topic).stdout == stdin
    last = cli.output("consume", topic, "-o", "-1", "--format", "%t|%o|%k|%h|%%\\x41")
    assert last == f"{topic}|499|same|trace=1|%A"


def test_messages_without_acknowledgement_arrive(cli: Command, topic: str) -> None:
    cli.output("produce", topic, "--create", "--acks", "0", stdin=b"fire\nand forget\n")
    with cli.start("consume", topic, "-f", "-n", "2") as process:
        assert process.finish() == (0, "fire\nand forget\n", "")


def test_reading_begins_where_it_is_told_to(cli: Command, topic: str) -> None:
    shapes = ({"value": str(n), "timestamp": 1_700_000_000_000 + n * 1000} for n in range(10))
    lines = "".join(json.dumps(shape) + "\n" for shape in shapes).encode()
    cli.output("produce", topic, "--create", "-F", "json", "--batch-messages", "4", stdin=lines)
    for begin, expected in (
        ("earliest", "0123456789"),
        ("latest", ""),
        ("7", "789"),
        ("99", ""),
        ("-2", "89"),
        ("-99", "0123456789"),
        ("2023-11-14T22:13:25Z", "56789"),
        ("2023-11-14 22:13:25", "56789"),
        ("@1700000008", "89"),
        ("@1700000008500", "9"),
        ("90m", ""),
    ):
        said = cli.output("consume", topic, "--from", begin, "--format", "%v")
        assert said == expected, begin
    assert cli.output("consume", topic, "--from", "3", "-n", "2", "--format", "%v") == "34"
    assert cli.output("consume", topic, "-o", "9", "--format", "hex", "-K", ":") == ":39\n"


def test_bad_input_is_told_with_its_line(cli: Command, topic: str, tmp_path: Path) -> None:
    cli.output("topic", "create", topic)
    path = tmp_path / "input"
    for form, line, told in (
        ("json", b"{", f"{path}:3:2: no JSON: "),
        ("json", b"[]", f"{path}:3: a message is an object"),
        ("json", b'{"valeu": 1}', f"{path}:3: no field 'valeu' is known: give "),
        ("json", b'{"partition": -1}', f"{path}:3: partition -1: "),
        ("json", b'{"timestamp": "soon"}', f"{path}:3: timestamp 'soon': "),
        (
            "json",
            b'{"timestamp": 9223372036854775808}',
            f"{path}:3: timestamp 9223372036854775808: ",
        ),
        ("json", b'{"value": 1, "encoding": []}', f"{path}:3: encoding []: "),
        ("json", b'{"headers": {"a": 1}}', f"{path}:3: header 'a': "),
        ("json", b'{"value": "?", "encoding": "base64"}', f"{path}:3: '?' is no base64"),
        ("hex", b"0g", f"{path}:3: no hexadecimal digits"),
    ):
        good = b'{"value": "good"}\n' if form == "json" else b"00\n"
        path.write_bytes(good * 2 + line + b"\n")
        assert told in cli.failure(1, "produce", topic, "-F", form, str(path))
    path.write_bytes(b"no separator\n")
    assert f"{path}:1: no '='" in cli.failure(1, "produce", topic, "-K", "=", str(path))
    assert cli.output("consume", topic) == ""


@pytest.mark.parametrize("options", [(), ("--json",), ("--follow",)])
def test_closed_pipe_ends_the_command_well(
    cli: Command, topic: str, options: tuple[str, ...]
) -> None:
    cli.output("produce", topic, "--create", stdin=b"line\n" * 50_000)
    assert b"line" in _first_line_before_the_pipe_is_closed(cli, "consume", topic, *options)


def test_follower_ends_when_its_reader_has_gone_and_nothing_comes(cli: Command, topic: str) -> None:
    cli.output("produce", topic, "--create", stdin=b"only\n")
    assert _first_line_before_the_pipe_is_closed(cli, "consume", topic, "-f") == b"only\n"


def _first_line_before_the_pipe_is_closed(cli: Command, *words: str) -> bytes:
    """The command then ends as if all had gone well."""
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb") as output:
        try:
            process = cli.start(*words, stdout=write_end)
        finally:
            os.close(write_end)
        with process:
            first = output.readline()
            output.close()
            assert process.finish() == (0, "", "")
    return first


def test_interrupted_command_says_nothing(cli: Command, topic: str) -> None:
    cli.output("produce", topic, "--create", stdin=b"first\n")
    with cli.start("consume", topic, "-f") as process:
        assert process.next_line() == "first"
        cli.output("produce", topic, stdin=b"second\n")
        assert process.next_line() == "second"
        process.signal(signal.SIGINT)
        assert process.finish() == (130, "", "")


def test_lines_are_sent_as_they_are_written(cli: Command, topic: str) -> None:
    cli.output("topic", "create", topic)
    with (
        cli.start("consume", topic, "-f", "-n", "2") as reader,
        cli.start("produce", topic) as writer,
    ):
        for line in ("first", "second"):
            writer.write(f"{line}\n")
            assert reader.next_line() == line
        assert writer.is_running
        assert writer.finish() == (0, "", "")
        assert reader.finish() == (0, "", "")


def test_long_input_shows_progress_on_a_terminal(cli: Command, topic: str, tmp_path: Path) -> None:
    cli.output("topic", "create", topic)
    path = tmp_path / "long"
    path.write_bytes(b"a line of some length\n" * 600_000)
    controller, terminal = pty.openpty()
    shown = b""
    with (
        os.fdopen(controller, "rb", buffering=0) as screen,
        cli.start("produce", topic, "-K", "line", str(path), stderr=terminal) as process,
    ):
        os.close(terminal)
        while True:
            try:
                shown += screen.read(65536)
            except OSError:
                break
        assert process.finish() == (0, "", "")
    assert b"sending" in shown
    assert b"%" in shown
    assert b"per second" in shown
    assert b"600,000 messages to topic" in shown


def test_headers_may_share_a_name_and_hold_any_bytes(cli: Command, topic: str) -> None:
    words = ("-H", "a=1", "-H", "a= 2 ", "-H", "b=\udcff", "-k", "\udcfe")
    cli.output("produce", topic, "--create", *words, stdin=b"x\n")
    [shape] = cli.objects("consume", topic)
    assert shape["headers"] == {"a": ["1", " 2 "], "b": {"base64": "/w=="}}
    assert (shape["key"], shape["key_encoding"]) == ("/g==", "base64")


@pytest.mark.parametrize(
    "words",
    [
        ("topic", "create", "\udcff"),
        ("topic", "create", "t", "-p", "99999999999"),
        ("consume", "t", "--group", "\udcff"),
        ("topic", "list", "--bootstrap", "localhost:²"),
    ],
)
def test_what_the_protocol_has_no_room_for_is_refused(cli: Command, words: tuple[str, ...]) -> None:
    cli.output("topic", "create", "t", "--if-absent")
    assert "Traceback" not in cli.failure(1, *words)


@pytest.mark.parametrize("moment", ["9" * 5000, "@" + "9" * 30, "9" * 30 + "w"])
def test_place_that_no_partition_has_is_refused(cli: Command, moment: str) -> None:
    assert "for --from: give earliest, " in cli.failure(2, "consume", "t", "--from", moment)


@pytest.mark.parametrize("host", ["\udcff", "a..b", "x" * 64])
def test_host_that_cannot_be_is_told_as_one_that_does_not_answer(cli: Command, host: str) -> None:
    said = cli.failure(4, "topic", "list", "--bootstrap", f"{host}:9092")
    assert said.startswith("no broker answers at ")


@pytest.mark.parametrize(
    "words", [("produce", "t"), ("segment", "dump"), ("segment", "verify"), ("segment", "list")]
)
def test_file_that_is_not_there_is_told_as_not_found(cli: Command, words: tuple[str, ...]) -> None:
    kind = "folder" if words[1] in {"verify", "list"} else "file"
    assert cli.failure(3, *words, "no/such") == f"there is no {kind} 'no/such'"


def test_bad_line_far_down_is_told_with_what_was_sent_before_it(
    cli: Command, topic: str, tmp_path: Path
) -> None:
    cli.output("topic", "create", topic)
    path = tmp_path / "input"
    path.write_bytes(b'{"value": "good"}\n' * 50_000 + b"{\n")
    said = cli.failure(1, "produce", topic, "-F", "json", str(path))
    stored = cli.output("consume", topic).count("\n")
    assert 0 < stored < 50_000
    assert said.startswith(f"{path}:50001:2: no JSON: ")
    assert said.endswith(f"; the first {stored:,} messages were sent")


def test_command_without_standard_streams_fails_and_commits_nothing(
    cli: Command, topic: str
) -> None:
    cli.output("produce", topic, "--create", stdin=b"x\n")
    shell = f"exec {sys.executable} -m millstream"
    for words in (f"consume {topic} -g {topic} >&-", f"produce {topic} <&-"):
        done = subprocess.run(
            ["/bin/sh", "-c", f"{shell} {words}"],
            env={**os.environ, **cli.environment},
            capture_output=True,
            check=False,
            timeout=HANG_S,
        )
        assert (done.returncode, done.stdout) == (1, b"")
        assert done.stderr == b"millstream: [Errno 9] Bad file descriptor\n"
    assert cli.output("consume", topic, "-g", topic) == "x\n"


def test_first_batch_that_is_refused_for_a_while_stays_the_first(topic: str) -> None:
    with Broker() as broker:
        broker.create_topic(topic)
        cli = Command(broker.bootstrap_servers)
        lines = b"".join(b"%d\n" % number for number in range(20))
        with broker.faults.refuse("Produce", error="NOT_LEADER_OR_FOLLOWER", times=2):
            cli.output("produce", topic, "--batch-messages", "1", stdin=lines)
        assert [message.value for message in broker.messages(topic)] == lines.split()
