"""Which dead letters were sent back, as it is kept."""

from __future__ import annotations

from random import Random

import pytest

from millstream.broker.replay_marks import ReplayMarks, read_marks


def test_marks_are_what_a_set_of_offsets_is() -> None:
    random = Random(7)
    for _ in range(50):
        marks, done, tried = ReplayMarks(), set[int](), 0
        for _ in range(20):
            if random.random() < 0.5:
                some = random.sample(range(300), 5)
                marks, done = marks.with_done(some), done.union(some)
            else:
                following = tried + random.randrange(20)
                failed = {at for at in range(tried, following) if random.random() < 0.2} - done
                marks = marks.passed(following, failed)
                done.update(set(range(tried, following)) - failed)
                tried = following
            assert [at for at in range(320) if marks.is_done(at)] == sorted(done)
            assert marks.next_offset == tried
            assert read_marks(marks.next_offset, marks.metadata()) == marks


def test_letters_that_the_log_no_longer_has_are_forgotten() -> None:
    marks = ReplayMarks().with_done([2, 9]).forgetting(5)
    assert (marks.floor, marks.next_offset) == (5, 5)
    assert [at for at in range(5, 12) if marks.is_done(at)] == [9]
    assert marks.forgetting(3) == marks


@pytest.mark.parametrize("metadata", ["", "so far", "1:x:", "1:3:!", "1:3:AAAA", "2:3:"])
def test_offset_without_marks_counts_as_all_sent_back(metadata: str) -> None:
    assert read_marks(7, metadata) == ReplayMarks(7, 7)


def test_many_letters_with_some_that_failed_take_little_room() -> None:
    marks = ReplayMarks().passed(1_000_000, range(0, 1_000_000, 50_000))
    assert len(marks.metadata()) < 4096


def test_marks_that_could_not_be_read_again_do_not_fit() -> None:
    marks = ReplayMarks().passed(9_000_000, [0])
    assert len(marks.metadata()) < 4096
    assert not marks.fits(4096)
    assert read_marks(marks.next_offset, marks.metadata()) == ReplayMarks(9_000_000, 9_000_000)


def test_metadata_of_somebody_else_counts_as_none() -> None:
    for metadata in ("1:²:", "1:1:", "1:99999999999999999999:eJwDAAAAAAE=", "x", "1:1:!"):
        assert read_marks(5, metadata).next_offset == 5
