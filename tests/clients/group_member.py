"""Members of groups as tests hold them: in a thread, or in a process that can be killed."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable

from tests.clients.client_shape import (
    Client,
    Committed,
    Consumer,
    Message,
    Refused,
    eventually,
    produce,
)
from tests.fakes.child_process import ChildProcess

_PAUSE_S = 0.02


class LocalMember:
    """Reads and commits in a thread of its own, as an application does."""

    def __init__(self, consumer: Consumer, topic: str) -> None:
        self.assigned: set[int] = set()
        # Partition and offset in the order in which they were read; all are committed.
        self.read: list[tuple[int, int]] = []
        self._consumer = consumer
        self._consumer.subscribe([topic])
        self._is_closing = False
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def poll(self) -> None:
        """It polls by itself; raises what stopped it."""
        if self._failure is not None:
            raise self._failure
        time.sleep(_PAUSE_S)

    def close(self) -> None:
        self._is_closing = True
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._is_closing:
                self._step()
        except (Refused, RuntimeError) as error:
            self._failure = error
        finally:
            self._consumer.close()

    def _step(self) -> None:
        found = self._consumer.poll()
        self.assigned = {partition for _, partition in self._consumer.assignment()}
        if found:
            reached = {(each.topic, each.partition): Committed(each.offset + 1) for each in found}
            self._consumer.commit(reached)
            self.read += [(each.partition, each.offset) for each in found]


class RemoteMember:
    """Reads in a process of its own."""

    def __init__(self, client: str, address: str, group: str, topic: str, *options: str) -> None:
        self.assigned: set[int] = set()
        self.read: list[tuple[int, int]] = []
        self.committed: dict[int, int] = {}
        # Records that came again after they were committed.
        self.repeated: list[tuple[int, int]] = []
        arguments = [client, address, group, topic, *options]
        self._process = ChildProcess.python(
            "-m", "tests.clients.member_process", *arguments, on_line=self._note
        )

    def poll(self) -> None:
        """It polls by itself."""
        time.sleep(_PAUSE_S)

    def kill(self) -> None:
        self._process.kill()

    def _note(self, line: str) -> None:
        match line.split():
            case ["assigned", *partitions]:
                self.assigned = set(map(int, partitions))
                # Others may have committed less since, for what it has no more.
                for lost in self.committed.keys() - self.assigned:
                    del self.committed[lost]
            case ["read", partition, offset]:
                place = int(partition), int(offset)
                self.read.append(place)
                if place[1] < self.committed.get(place[0], 0):
                    self.repeated.append(place)
            case ["committed", partition, offset]:
                self.committed[int(partition)] = int(offset)


Member = LocalMember | RemoteMember


def settle(members: Iterable[Member], shares: Iterable[int], *, partitions: int) -> None:
    """Wait until every partition has one owner, and the members' shares are of these sizes."""
    members = list(members)
    wanted = sorted(shares)

    def is_settled() -> bool:
        for member in members:
            member.poll()
        assigned = [set(member.assigned) for member in members]
        owners = Counter(partition for share in assigned for partition in share)
        return owners == Counter(range(partitions)) and sorted(map(len, assigned)) == wanted

    eventually(is_settled, f"shares of {wanted}")


def work_off(members: Iterable[Member], before: int, count: int) -> None:
    """Wait until the members have read so many records more than `before`."""
    members = list(members)

    def is_done() -> bool:
        for member in members:
            member.poll()
        return sum(len(member.read) for member in members) - before >= count

    eventually(is_done, f"{count} records")


def all_read(members: Iterable[Member]) -> list[tuple[int, int]]:
    return [each for member in members for each in member.read]


def spread(client: Client, address: str, topic: str, *, partitions: int, each: int) -> None:
    """Produce so many records to each partition."""
    produce(
        client,
        address,
        [
            Message(topic, b"%d" % number, partition=partition)
            for number in range(each)
            for partition in range(partitions)
        ],
    )
