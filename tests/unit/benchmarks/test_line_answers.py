"""Counting answers that are made of lines, however they are cut."""

from __future__ import annotations

import pytest

from benchmarks.peers.line_answers import LineAnswers


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_answers_cut_anywhere_are_counted_once(size: int) -> None:
    received = b"$3\r\n1-0\r\n" * 7
    answers = LineAnswers(lines=2, error=b"-ERR")
    pieces = [received[at : at + size] for at in range(0, len(received), size)]
    assert sum(map(answers.count, pieces)) == 7


def test_error_stops_the_run() -> None:
    answers = LineAnswers(lines=2, error=b"-ERR")
    with pytest.raises(AssertionError, match="no such thing"):
        answers.count(b"$3\r\n1-0\r\n-ERR no such thing\r\n")
