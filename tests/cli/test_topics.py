"""`millstream topic`, and what all commands have in common: exit codes, hints, completion."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

from tests.cli.command import Command
from tests.fakes.patience import HANG_S


def test_topic_lives_from_creation_to_deletion(cli: Command, topic: str) -> None:
    said = cli.output("topic", "create", topic, "-p", "2", "-s", "retention.ms=1000")
    assert said == f"topic '{topic}' is there, with 2 partitions\n"
    cli.output("produce", topic, "-p", "1", stdin=b"one\ntwo\n")

    [shape] = cli.objects("topic", "describe", topic)
    first, second = shape["partitions"]
    assert (first["start_offset"], first["end_offset"], first["messages"]) == (0, 0, 0)
    assert (second["start_offset"], second["end_offset"], second["messages"]) == (0, 2, 2)
    assert second["bytes"] > 2 * len(b"one")
    assert shape["settings"]["retention.ms"] == {"value": "1000", "origin": "topic"}
    assert shape["settings"]["cleanup.policy"] == {"value": "delete", "origin": "default"}

    changed = ("topic", "alter", topic, "-p", "3", "-s", "cleanup.policy=compact,delete")
    assert "has 3 partitions" in cli.output(*changed, "-u", "retention.ms")
    [shape] = cli.objects("topic", "describe", topic)
    assert len(shape["partitions"]) == 3
    assert shape["settings"]["retention.ms"]["origin"] == "default"
    assert shape["settings"]["cleanup.policy"] == {"value": "compact,delete", "origin": "topic"}

    listed = {each["topic"]: each for each in cli.objects("topic", "list")}
    assert (listed[topic]["partitions"], listed[topic]["messages"]) == (3, 2)
    assert "__catalog" not in listed
    assert "nobody is there to ask" in cli.failure(2, "topic", "delete", topic)
    assert cli.output("topic", "delete", topic, "--yes") == f"topic '{topic}' is deleted\n"
    assert topic not in cli.output("topic", "list", "--internal")


def test_description_for_people_tells_all(cli: Command, topic: str) -> None:
    cli.output("topic", "create", topic, "-s", "segment.bytes=1000000")
    cli.output("produce", topic, stdin=b"one\n")
    lines = cli.output("topic", "describe", topic).splitlines()
    assert lines[0].startswith(f"topic '{topic}': 1 message in 1 partition, ")
    [partition] = [line.split() for line in lines if line.split()[:1] == ["0"]]
    assert partition[:4] == ["0", "0", "1", "1"]
    [setting] = [line.split() for line in lines if line.startswith("segment.bytes")]
    assert setting == ["segment.bytes", "1000000", "topic"]


def test_what_is_not_there_is_answered_with_what_may_be_meant(cli: Command, topic: str) -> None:
    cli.output("topic", "create", topic)
    near = f"{topic}s"
    for command in (
        ("topic", "describe", near),
        ("topic", "alter", near, "-p", "2"),
        ("topic", "delete", near, "--yes"),
        ("consume", near),
        ("consume", near, "--group", "g"),
        ("group", "reset", "g", "--to", "latest", "--topic", near),
    ):
        message = cli.failure(3, *command)
        assert message == f"there is no topic '{near}': did you mean '{topic}'?"
    assert "`millstream group list`" in cli.failure(3, "group", "describe", "quite another")
    assert "has no partition 7" in cli.failure(3, "consume", topic, "-p", "7")
    assert "has no partition 7" in cli.failure(3, "produce", topic, "-p", "7", stdin=b"x\n")


def test_what_a_broker_refuses_says_why(cli: Command, topic: str) -> None:
    message = cli.failure(1, "topic", "create", topic, "-s", "retentoin.ms=1")
    assert "did you mean retention.ms?" in message
    assert "'soon'" in cli.failure(1, "topic", "create", topic, "-s", "retention.ms=soon")
    cli.output("topic", "create", topic, "-p", "2")
    assert "exists already" in cli.failure(1, "topic", "create", topic)
    cli.output("topic", "create", topic, "--if-absent")
    assert "never taken away" in cli.failure(1, "topic", "alter", topic, "-p", "1")
    assert "INVALID_TOPIC" in cli.failure(1, "topic", "create", "no/name")


def test_what_was_given_wrongly_is_one_line(cli: Command) -> None:
    for command, told in (
        (("topic", "creat"), "Did you mean 'create'?: see `"),
        (("topic", "create"), "topic create --help`"),
        (("topic", "alter", "t"), "nothing to change"),
        (("topic", "create", "t", "-s", "retention.ms"), "as retention.ms=86400000"),
        (("topic", "create", "t", "-X", "x=y"), "expected one of bootstrap.servers"),
        (("consume", "t", "--from", "yesterday"), "'yesterday' for --from: give earliest"),
        (("consume", "t", "--format", "xml"), "'xml' for --format: give one of text, json, hex"),
        (("consume", "t", "--format", "%q"), "%q in --format"),
        (("consume", "t", "-g", "g", "-p", "0"), "shares out partitions itself"),
        (("produce", "t", "--acks", "2"), "'2' for --acks: give one of"),
        (("bench", "sleep"), "'sleep': give one of produce, consume, latency"),
    ):
        done = cli.run(*command)
        said = done.stderr.decode()
        assert done.returncode in {1, 2}
        assert (said.count("\n"), done.stdout) == (1, b"")
        assert told in said


def test_broker_that_is_not_there_is_told_at_once() -> None:
    with socket.socket() as taken:
        # Bound and not listening: nobody else can answer there.
        taken.bind(("127.0.0.1", 0))
        cli = Command(f"127.0.0.1:{taken.getsockname()[1]}")
        message = cli.failure(4, "topic", "list")
    assert message.startswith("no broker answers at 127.0.0.1:")
    assert "millstream serve" in message


def test_shells_complete_commands_and_topics(cli: Command, topic: str) -> None:
    cli.output("topic", "create", topic)
    program = os.path.join(os.path.dirname(sys.executable), "millstream")
    for words, wanted in (
        (f"millstream topic describe {topic[:-2]}", topic),
        (f"millstream consume {topic[:-2]}", topic),
        ("millstream topic des", "describe"),
    ):
        environment = {
            **os.environ,
            **cli.environment,
            "_MILLSTREAM_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split()) - 1),
        }
        done = subprocess.run(
            [program], env=environment, capture_output=True, timeout=HANG_S, check=False
        )
        assert wanted in done.stdout.decode().split()
    for shell in ("bash", "zsh", "fish"):
        script = subprocess.run(
            [program],
            env={**os.environ, **cli.environment, "_MILLSTREAM_COMPLETE": f"source_{shell}"},
            capture_output=True,
            timeout=HANG_S,
            check=False,
        ).stdout
        assert b"_MILLSTREAM_COMPLETE" in script


def test_topic_that_is_not_there_is_made_by_what_is_sent_to_it(cli: Command, topic: str) -> None:
    said = cli.run("produce", topic, stdin=b"first\n")
    assert (said.returncode, said.stderr.decode()) == (0, f"millstream: topic {topic!r} is new\n")
    assert cli.run("produce", topic, stdin=b"second\n").stderr == b""
    assert cli.output("consume", topic) == "first\nsecond\n"
