"""Counts answers of protocols made of lines: each answer is a fixed number of them.

Payloads hold no line feed, so that one more of them is one more line.
"""

from __future__ import annotations


class LineAnswers:
    """Counts whole answers in what arrives in pieces, and stops at an error."""

    def __init__(self, *, lines: int, error: bytes) -> None:
        self._lines = lines
        self._error = error
        self._rest = 0

    def count(self, received: bytes) -> int:
        if self._error in received:
            at = received.index(self._error)
            raise AssertionError(f"refused: {received[at : at + 200]!r}")
        answers, self._rest = divmod(self._rest + received.count(b"\n"), self._lines)
        return answers
