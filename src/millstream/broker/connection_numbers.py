"""Connections are numbered in the order in which they come, from 1."""

from __future__ import annotations


class ConnectionNumbers:
    """Gives out the numbers."""

    def __init__(self) -> None:
        self.newest = 0

    def next(self) -> int:
        self.newest += 1
        return self.newest
