"""A running server with one stream, and a way to use it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from benchmarks.pipeline import More


class Session(Protocol):
    """One connection to a server that runs in a process of its own."""

    @property
    def pid(self) -> int: ...

    def produce(self, more: More) -> int:
        """Pipelined and batched as the protocol does best; how many messages were acknowledged."""

    def produce_one(self) -> None:
        """A message alone, until it is acknowledged."""

    def consume(self, messages: int) -> int:
        """From the first message on, in order, at least so many; how many they were.

        So many must have been produced by a call of `produce`.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A server that can take part in a comparison, or the reason why it cannot."""

    name: str
    absent: str = ""
    # Takes a directory that exists, and the message to send.
    run: Callable[[str, bytes], AbstractContextManager[Session]]
