"""The smallest log with transactions that is right, in memory."""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """A value, or the mark that ends a transaction."""

    value: str | None
    transaction: int | None


class ModelPartition:
    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._open: dict[int, int] = {}
        self._aborted: set[int] = set()

    @property
    def last_stable_offset(self) -> int:
        return min(self._open.values(), default=len(self.entries))

    def append(self, value: str, transaction: int | None) -> int:
        offset = len(self.entries)
        if transaction is not None:
            self._open.setdefault(transaction, offset)
        self.entries.append(Entry(value, transaction))
        return offset

    def finish(self, transaction: int, *, is_commit: bool) -> None:
        if self._open.pop(transaction, None) is None:
            return
        self.entries.append(Entry(None, transaction))
        if not is_commit:
            self._aborted.add(transaction)

    def read(self, position: int, limit: int) -> tuple[list[tuple[int, str]], int]:
        """Committed values, and where to go on."""
        found: list[tuple[int, str]] = []
        while position < self.last_stable_offset and len(found) < limit:
            value, transaction = self.entries[position]
            if value is not None and transaction not in self._aborted:
                found.append((position, value))
            position += 1
        return found, position
