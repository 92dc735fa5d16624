"""A broker for tests: real, wire-compatible, on free ports, and gone when the test is.

    with Broker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

It runs in a thread of this process and keeps its data in memory, unless told otherwise. Guide:
docs/guides/testing.md.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Self

from millstream.errors import BrokerNotRunning, InvalidSetting, NotForThisBroker
from millstream.testing.controls import Message
from millstream.testing.faults import PATIENCE_S, Faults
from millstream.testing.plan import Plan
from millstream.testing.process_host import ProcessHost
from millstream.testing.reserved_port import ReservedPort
from millstream.testing.thread_host import ThreadHost

Data = bytes | str
Headers = Mapping[str, Data | None] | Iterable[tuple[str, Data | None]]

# Some thousand years.
_FARTHEST_S = 1e11
_OURS = {"listeners", "http.listener", "data.dir"}
_LEFT_TO_US = (
    "to be left to the broker, which takes free ports; directory= says where its data lies"
)


class Clock:
    """The broker's clock, which a test can move ahead."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.moved_ms = 0

    def advance(self, *, seconds: float) -> None:
        """Move it ahead; return when what was due by then is done.

        It moves retention, session timeouts of groups, delayed messages, timeouts of transactions,
        and the delays of faults. The clocks of clients stay where they are.
        """
        if not 0 <= seconds <= _FARTHEST_S:
            raise InvalidSetting(
                name="seconds", value=seconds, expected=f"a number from 0 to {_FARTHEST_S:g}"
            )
        milliseconds = round(seconds * 1000)
        self._broker.call("advance", {"milliseconds": milliseconds})
        self.moved_ms += milliseconds

    def now_ms(self) -> int:
        """Milliseconds since the epoch, as the broker has it."""
        return int(self._broker.call("now_ms", {}))


class Broker:
    """A broker, from `start` to `stop`, or for the time of a `with` block."""

    def __init__(
        self,
        *,
        directory: str | os.PathLike[str] | None = None,
        isolated: bool = False,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        """Data lies in memory, or in a directory. `isolated` is in a process of its own.

        `settings` are the broker's, by their names: `{"auto.create.topics.enable": False}`.
        """
        self._directory = None if directory is None else os.path.abspath(directory)
        self._settings = {name: _written(value) for name, value in (settings or {}).items()}
        for name in _OURS & self._settings.keys():
            raise InvalidSetting(name=name, value=self._settings[name], expected=_LEFT_TO_US)
        self._is_isolated = isolated
        self._host = self._new_host()
        self._ports: tuple[ReservedPort, ReservedPort] | None = None
        self.faults = Faults(self.call)
        self.clock = Clock(self)

    # Its life

    def start(self) -> Self:
        """Return when it serves. Raises what keeps it from that."""
        if self._ports is None:
            self._ports = (ReservedPort(), ReservedPort())
        if not self._host.is_running:
            try:
                self._host.start(self._plan())
            except BaseException:
                self.stop()
                raise
        return self

    def stop(self) -> None:
        """Stop it in good order. Memory is forgotten, a directory stays. May be called twice."""
        try:
            self._host.stop()
        finally:
            for port in self._ports or ():
                port.release()
            self._ports = None
            self._host = self._new_host()
            self.clock.moved_ms = 0

    def restart(self) -> None:
        """Stop it, and start it again at the same address, with its data and without faults.

        A broker that was killed is started again.
        """
        if self._is_isolated and self._directory is None:
            raise NotForThisBroker(
                operation="restart()", needs="directory=, or isolated=False: its data would be gone"
            )
        self._host.stop()
        self.start()

    def kill(self) -> None:
        """End its process at once, as `kill -9` or a crash would."""
        if not isinstance(self._host, ProcessHost):
            raise NotForThisBroker(operation="kill()", needs="isolated=True")
        self._host.kill()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # Where it is

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT for Kafka clients."""
        return self._addresses()[0]

    @property
    def http_url(self) -> str:
        """Where the REST API, the streams and the dashboard are."""
        return f"http://{self._addresses()[1]}"

    # What is in it: not through its doors, so that no fault is in the way

    def create_topic(
        self, name: str, *, partitions: int = 1, config: Mapping[str, object] | None = None
    ) -> None:
        """Create a topic; `config` are its settings by Kafka's names. Raises AlreadyExists."""
        written = {key: _written(value) for key, value in (config or {}).items()}
        self.call("create_topic", {"name": name, "partitions": partitions, "config": written})

    def topics(self) -> list[str]:
        """The names of all topics but the broker's own."""
        return list(self.call("topics", {}))

    def produce(
        self,
        topic: str,
        value: Data | None,
        *,
        key: Data | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> tuple[int, int]:
        """Store a message; returns its partition and offset."""
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        values = {
            "topic": topic,
            "value": _bytes(value),
            "key": _bytes(key),
            "headers": [(name, _bytes(content)) for name, content in pairs],
            "partition": partition,
            "timestamp_ms": timestamp_ms,
        }
        stored, offset = self.call("produce", values)
        return int(stored), int(offset)

    def messages(
        self, topic: str, *, at_least: int = 0, timeout_s: float = PATIENCE_S
    ) -> list[Message]:
        """All messages of a topic, by partition and offset; those of open transactions are not.

        Waits until there are `at_least` so many, and the topic. Raises TimedOut.
        """
        values = {"topic": topic, "at_least": at_least, "timeout_s": timeout_s}
        return [
            Message(value, key, tuple((n, v) for n, v in headers), *rest)
            for value, key, headers, *rest in self.call("messages", values)
        ]

    def end_offsets(self, topic: str) -> dict[int, int]:
        """For each partition, the offset that its next message gets."""
        return dict(enumerate(self.call("end_offsets", {"topic": topic})))

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """What a group has committed, by topic and partition."""
        found = self.call("committed", {"group": group})
        return {(topic, partition): offset for topic, partition, offset in found}

    def reset(self) -> None:
        """Delete all topics and groups, and end all faults. Members of groups must have left."""
        self.call("reset", {})

    def call(self, name: str, values: dict[str, Any]) -> Any:
        """Do something to the running broker; see `Controls`."""
        return self._host.call(name, values)

    def _new_host(self) -> ThreadHost | ProcessHost:
        return ProcessHost() if self._is_isolated else ThreadHost()

    def _plan(self) -> Plan:
        kafka, http = self._addresses()
        return Plan(
            kafka=kafka,
            http=http,
            directory=self._directory,
            settings=self._settings,
            moved_ms=self.clock.moved_ms,
        )

    def _addresses(self) -> tuple[str, str]:
        if self._ports is None:
            raise BrokerNotRunning
        return self._ports[0].address, self._ports[1].address


def _bytes(data: Data | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data


def _written(value: object) -> str:
    """A setting as it stands in a file."""
    return str(value).lower() if isinstance(value, bool) else str(value)
