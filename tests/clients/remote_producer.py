"""Producers in processes of their own, as tests hold them."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Self

from tests.clients.broker_process import ROOT

END_S = 60.0


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
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.clients.producer_process", *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.kill()
        self._process.wait()
        self._thread.join()
        self._process.stdout.close()

    def finish(self) -> None:
        """Let it end, with every record acknowledged."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(END_S) == 0
        self._thread.join()
        assert self.complaints == []
        assert self.sent

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            match line.split():
                case ["acked", partition, number, offset]:
                    place = int(partition), int(number)
                    if place in self.acked:
                        self.complaints.append(f"twice: {line}")
                    self.acked[place] = int(offset)
                case ["done", *sent]:
                    self.sent = list(map(int, sent))
                case _:
                    self.complaints.append(line.strip())
