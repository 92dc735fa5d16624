"""The line in which the answers of one connection wait for their turn."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.gateways.kafka.answers import Answers, Parts


class Sent:
    """Everything that left the line."""

    def __init__(self) -> None:
        self.parts: list[bytes | memoryview] = []
        self.writes = 0
        self.answers = Answers(self._write)

    def _write(self, parts: Parts) -> None:
        self.parts += parts
        self.writes += 1


def test_answer_with_nobody_before_it_is_sent_at_once() -> None:
    sent = Sent()
    sent.answers.send([b"1"])
    assert sent.parts == [b"1"]
    assert sent.answers.unanswered == 0


def test_answer_waits_for_those_before_it_and_leaves_with_them_in_one_write() -> None:
    sent = Sent()
    first = sent.answers.take_place()
    sent.answers.send([b"2"])
    third = sent.answers.take_place()
    third.fill([b"3"])
    assert sent.parts == []
    assert sent.answers.unanswered == 3
    assert sent.answers.held_bytes == 2
    first.fill([b"1"])
    assert sent.parts == [b"1", b"2", b"3"]
    assert sent.writes == 1
    assert (sent.answers.unanswered, sent.answers.held_bytes) == (0, 0)


def test_one_place_can_stand_for_several_requests() -> None:
    sent = Sent()
    place = sent.answers.take_place(5)
    assert sent.answers.unanswered == 5
    place.fill([b"all five"])
    assert sent.answers.unanswered == 0


def test_request_that_is_kept_counts_until_it_is_answered() -> None:
    sent = Sent()
    first = sent.answers.take_place(request_bytes=100)
    second = sent.answers.take_place(request_bytes=10)
    assert sent.answers.held_bytes == 110
    second.fill([b"abc"])
    assert sent.answers.held_bytes == 103
    first.fill([b"d"])
    assert sent.answers.held_bytes == 0


@given(st.permutations(range(8)), st.sets(st.integers(0, 7)))
def test_answers_leave_in_the_order_of_requests(order: list[int], at_once: set[int]) -> None:
    sent = Sent()
    places = {}
    for number in range(8):
        if number in at_once:
            sent.answers.send([b"%d" % number])
        else:
            places[number] = sent.answers.take_place(request_bytes=3)
    for number in order:
        if number in places:
            places[number].fill([b"%d" % number])
    assert b"".join(sent.parts) == b"01234567"
    assert (sent.answers.unanswered, sent.answers.held_bytes) == (0, 0)
