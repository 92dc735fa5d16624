"""Every partition goes to one member that wants it, by Kafka's own rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.client.kafka.group_assignment import ASSIGNORS, assign_in_turns, assign_ranges

TOPICS = st.sampled_from("abc")


@pytest.mark.parametrize("name", ASSIGNORS)
@given(
    wishes=st.dictionaries(st.text("xyz", min_size=1, max_size=3), st.sets(TOPICS), min_size=1),
    counts=st.dictionaries(TOPICS, st.integers(0, 9)),
)
def test_each_partition_has_one_reader_that_wants_it(
    name: str, wishes: dict[str, set[str]], counts: dict[str, int]
) -> None:
    shares = ASSIGNORS[name](wishes, counts)
    assert shares.keys() == wishes.keys()
    given_out = [place for places in shares.values() for place in places]
    wanted = set().union(*wishes.values())
    expected = [
        (topic, n) for topic in sorted(counts) if topic in wanted for n in range(counts[topic])
    ]
    assert sorted(given_out) == expected
    assert all(topic in wishes[member] for member, places in shares.items() for topic, _ in places)


def test_ranges_are_neighbours_and_the_first_get_more() -> None:
    shares = assign_ranges({"b": {"t"}, "a": {"t"}}, {"t": 5, "other": 3})
    assert shares == {"a": [("t", 0), ("t", 1), ("t", 2)], "b": [("t", 3), ("t", 4)]}


def test_turns_go_round_all_topics() -> None:
    shares = assign_in_turns({"a": {"t", "u"}, "b": {"t", "u"}}, {"t": 3, "u": 1})
    assert shares == {"a": [("t", 0), ("t", 2)], "b": [("t", 1), ("u", 0)]}
