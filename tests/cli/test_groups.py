"""`millstream group`, and `millstream consume` as a member of one."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from millstream.client.kafka import Cluster
from millstream.testing import Broker
from tests.cli.command import Command
from tests.clients.broker_process import BrokerProcess
from tests.fakes.child_process import ChildProcess
from tests.fakes.patience import HANG_S, wait_until


def test_group_goes_on_where_it_was(cli: Command, topic: str) -> None:
    cli.output("topic", "create", topic, "-p", "2")
    cli.output("produce", topic, "-p", "1", stdin=b"1\n2\n3\n4\n5\n")
    read = ("consume", topic, "--group", topic, "--format", "%v")
    assert cli.output(*read, "-n", "2") == "12"
    [listed] = [each for each in cli.objects("group", "list") if each["group"] == topic]
    assert (listed["lag"], listed["state"], listed["topics"]) == (3, "Empty", [topic])
    [shape] = cli.objects("group", "describe", topic)
    [second] = [each for each in shape["partitions"] if each["partition"] == 1]
    assert (second["committed_offset"], second["end_offset"], second["lag"]) == (2, 5, 3)
    assert cli.output(*read) == "345"
    assert cli.output(*read) == ""


def test_partition_that_was_never_read_counts_and_is_marked(cli: Command, topic: str) -> None:
    cli.output("topic", "create", topic, "-p", "2")
    for number in ("0", "1"):
        cli.output("produce", topic, "-p", number, stdin=b"1\n2\n3\n4\n5\n")
    cli.output("group", "reset", topic, "--topic", f"{topic}:0", "--to", "3", "--yes")
    [listed] = [each for each in cli.objects("group", "list") if each["group"] == topic]
    assert (listed["lag"], listed["never_read"]) == (7, 1)
    [shape] = cli.objects("group", "describe", topic)
    assert (shape["lag"], shape["never_read"]) == (7, 1)
    told = [(e["committed_offset"], e["lag"], e["never_read"]) for e in shape["partitions"]]
    assert told == [(3, 2, False), (None, 5, True)]
    described = cli.output("group", "describe", topic)
    assert "lag 7 (1 partitions never read)" in described
    assert "never read" in described.splitlines()[-1]


def test_group_is_moved_and_deleted(cli: Command, topic: str) -> None:
    cli.output("topic", "create", topic, "-p", "2")
    for number in ("0", "1"):
        cli.output("produce", topic, "-p", number, stdin=b"1\n2\n3\n4\n5\n")
    reset = ("group", "reset", topic)
    assert "say what it is to read" in cli.failure(1, *reset, "--to", "earliest")

    def moved(*options: str) -> list[tuple[int, int | None, int]]:
        shapes = cli.objects(*reset, *options)
        return [(each["partition"], each["from_offset"], each["to_offset"]) for each in shapes]

    assert moved("--to", "latest", "-t", topic, "--yes") == [(0, None, 5), (1, None, 5)]
    assert moved("--to", "-2", "--dry-run") == [(0, 5, 3), (1, 5, 3)]
    assert moved("--to", "earliest", "-t", f"{topic}:1", "--yes") == [(1, 5, 0)]
    assert moved("--to", "1h", "--yes") == [(0, 5, 0), (1, 0, 0)]
    assert moved("--to", "4", "--yes") == [(0, 0, 4), (1, 0, 4)]
    assert cli.output("consume", topic, "-g", topic) == "5\n5\n"
    assert "nothing was changed" in cli.output(*reset, "--to", "earliest", "--dry-run")
    assert cli.output("group", "delete", topic, "--yes") == f"group '{topic}' is deleted\n"
    assert "there is no group" in cli.failure(3, "group", "delete", topic, "--yes")


def test_two_consumers_share_a_topic(broker: BrokerProcess, cli: Command, topic: str) -> None:
    cli.output("topic", "create", topic, "-p", "4")
    with Cluster(broker.address, timeout_s=HANG_S) as cluster, _consumer(cli, topic) as first:
        with _consumer(cli, topic) as second:
            _await_shares(cluster, topic, [2, 2])
            [shape] = cli.objects("group", "describe", topic)
            assert (shape["state"], len(shape["members"])) == ("Stable", 2)
            described = cli.output("group", "describe", topic)
            assert f"group '{topic}': Stable, 2 members, lag 0, assigned by range" in described
            refused = cli.failure(1, "group", "reset", topic, "--to", "latest", "-t", topic)
            assert "has members: stop them first" in refused
            assert "has members" in cli.failure(1, "group", "delete", topic, "--yes")
            for number in range(4):
                line = b"%d\n" % number
                cli.output("produce", topic, "-p", str(number), stdin=line)
            mine = {first.next_line() for _ in range(2)}
            others = {second.next_line() for _ in range(2)}
            assert mine | others == {"0", "1", "2", "3"}
        # Who leaves gives its partitions to the other at once.
        _await_shares(cluster, topic, [4])
        cli.output("produce", topic, "-p", "3", stdin=b"next\n")
        assert first.next_line() == "next"
    assert cli.objects("group", "describe", topic)[0]["lag"] == 0


def test_what_comes_while_a_group_reads_to_the_end_is_read_the_next_time(topic: str) -> None:
    with Broker() as broker:
        cli = Command(broker.bootstrap_servers)
        broker.create_topic(topic)
        broker.produce(topic, "before")
        read = ("consume", topic, "--group", topic)
        with (
            broker.faults.delay("Fetch", seconds=HANG_S, times=1) as fault,
            cli.start(*read) as process,
        ):
            fault.wait(timeout_s=HANG_S)
            # It has asked where the end is, and its answer goes beyond that.
            broker.produce(topic, "since")
            fault.release()
            assert process.finish() == (0, "before\n", "")
        assert broker.committed(topic) == {(topic, 0): 1}
        assert cli.output(*read) == "since\n"


def test_interrupt_while_it_commits_commits_again(topic: str) -> None:
    with Broker() as broker:
        broker.create_topic(topic)
        broker.produce(topic, "printed")
        with (
            broker.faults.delay("OffsetCommit", seconds=HANG_S, times=1) as fault,
            Command(broker.bootstrap_servers).start(
                "consume", topic, "--group", topic, "--follow"
            ) as process,
        ):
            assert process.next_line() == "printed"
            fault.wait(timeout_s=HANG_S)
            process.signal(signal.SIGINT)
            assert process.finish() == (130, "", "")
        assert broker.committed(topic) == {(topic, 0): 1}


def test_interrupt_while_it_prints_prints_all_and_commits_it(topic: str) -> None:
    read_end, write_end = os.pipe()
    value = b"x" * 500_000
    with Broker() as broker, open(read_end, "rb") as output:
        broker.create_topic(topic)
        broker.produce(topic, value)
        with Command(broker.bootstrap_servers).start(
            "consume", topic, "--group", topic, "--follow", stdout=write_end
        ) as process:
            os.close(write_end)
            # It is still writing: the pipe holds less than the message.
            assert output.read(1) == b"x"
            process.signal(signal.SIGINT)
            assert output.read() == value[1:] + b"\n"
            assert process.finish() == (130, "", "")
        assert broker.committed(topic) == {(topic, 0): 1}


@contextmanager
def _consumer(cli: Command, topic: str) -> Iterator[ChildProcess]:
    with cli.start("consume", topic, "--group", topic, "--follow") as process:
        yield process
        process.signal(signal.SIGINT)
        assert process.finish() == (130, "", "")


def _await_shares(cluster: Cluster, group: str, sizes: list[int]) -> None:
    def has_shares() -> bool:
        if all(each.name != group for each in cluster.groups.list()):
            return False
        found = cluster.groups.describe(group)
        return found.state == "Stable" and [len(each.places) for each in found.members] == sizes

    wait_until(has_shares, f"members with {sizes} partitions")
