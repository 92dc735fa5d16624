"""Something that is not as it should be in a log's files, and exactly where."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a verification tells."""

    path: str
    problem: str
    position: int | None = None
    """The byte in the file."""
    offset: int | None = None
    """The first offset that it is about."""
    expected: str = ""
    found: str = ""
    is_damage: bool = True
    """False for what a broker puts right by itself when it starts, or leaves as it is."""

    def __str__(self) -> str:
        at = "" if self.position is None else f" at byte {self.position}"
        about = "" if self.offset is None else f" (offset {self.offset})"
        told = f": expected {self.expected}, found {self.found}" if self.expected else ""
        return f"{self.path}{at}{about}: {self.problem}{told}"
