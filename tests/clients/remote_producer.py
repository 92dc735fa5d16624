"""Producers in processes of their own, as tests hold them."""

from __future__ import annotations

from typing import Self

from tests.fakes.child_process import ChildProcess


class RemoteProducer:
    """Knows what was acknowledged to it."""

    def __init__(
        self, address: str, topic: str, *, partitions: int, name: str, count: int | None = None
    ) -> None:
        self.name = name
        # By partition and number, the offset that the broker gave.
        self.acked: dict[tuple[int, int], int] = {}
        # How many records were sent to each partition, once it is done.
        self.sent: list[int] = []
        self.complaints: list[str] = []
        limit = [] if count is None else ["--count", str(count)]
        arguments = [address, topic, str(partitions), name, *limit]
        self._process = ChildProcess.python(
            "-m", "tests.clients.producer_process", *arguments, on_line=self._note
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()

    def finish(self) -> None:
        """Let it end, with every record acknowledged."""
        assert self._process.finish().returncode == 0
        assert self.complaints == []
        assert self.sent

    def _note(self, line: str) -> None:
        match line.split():
            case ["acked", partition, number, offset]:
                place = int(partition), int(number)
                if place in self.acked:
                    self.complaints.append(f"twice: {line}")
                self.acked[place] = int(offset)
            case ["done", *sent]:
                self.sent = list(map(int, sent))
            case _:
                self.complaints.append(line)
