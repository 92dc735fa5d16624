"""The assignors: everything goes to one subscriber, evenly, and moves no more than it must."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.groups.assignors import ASSIGNORS, Assignment, MemberSubscription
from millstream.groups.assignors.range import assign as assign_ranges
from millstream.groups.assignors.uniform import assign as assign_uniformly

T1, T2, T3 = (bytes([n]) * 16 for n in (1, 2, 3))
Counts = Mapping[bytes, int]
Members = Mapping[str, MemberSubscription]


def subscriber(*topics: bytes, **current: set[int]) -> MemberSubscription:
    names = {"t1": T1, "t2": T2, "t3": T3}
    return MemberSubscription(
        frozenset(topics), {names[name]: frozenset(numbers) for name, numbers in current.items()}
    )


def sizes(assignment: Assignment) -> dict[str, int]:
    return {m: sum(map(len, parts.values())) for m, parts in assignment.items()}


def pairs(assignment: Assignment) -> dict[tuple[bytes, int], str]:
    return {
        (topic, number): member_id
        for member_id, parts in assignment.items()
        for topic, numbers in parts.items()
        for number in numbers
    }


topic_ids = st.sampled_from((T1, T2, T3))
counts_of_topics = st.dictionaries(topic_ids, st.integers(0, 7))
member_names = st.text("abc", min_size=1, max_size=2)
current_partitions = st.dictionaries(topic_ids, st.frozensets(st.integers(0, 8), min_size=1))
subscriptions = st.builds(MemberSubscription, st.frozensets(topic_ids), current_partitions)
any_members = st.dictionaries(member_names, subscriptions, max_size=6)


@st.composite
def equal_members(draw: st.DrawFn) -> Members:
    topics = draw(st.frozensets(topic_ids, min_size=1))
    members = draw(st.dictionaries(member_names, subscriptions, min_size=1, max_size=6))
    return {m: member._replace(topics=topics) for m, member in members.items()}


@pytest.mark.parametrize("name", ASSIGNORS)
@given(members=any_members, counts=counts_of_topics)
def test_every_partition_goes_to_one_subscriber(
    name: str, members: Members, counts: Counts
) -> None:
    assignment = ASSIGNORS[name](members, counts)
    assert set(assignment) == set(members)
    owners = pairs(assignment)
    assert len(owners) == sum(sizes(assignment).values()), "a partition has two owners"
    subscribed = {topic for member in members.values() for topic in member.topics}
    expected = {(t, n) for t in subscribed for n in range(counts.get(t, 0))}
    assert set(owners) == expected
    for (topic, _), member_id in owners.items():
        assert topic in members[member_id].topics
    assert all(numbers for parts in assignment.values() for numbers in parts.values())


@pytest.mark.parametrize("name", ASSIGNORS)
@given(members=any_members, counts=counts_of_topics)
def test_order_of_input_makes_no_difference(name: str, members: Members, counts: Counts) -> None:
    backwards = dict(reversed(list(members.items())))
    fewer = dict(reversed(list(counts.items())))
    assert ASSIGNORS[name](members, counts) == ASSIGNORS[name](backwards, fewer)


@pytest.mark.parametrize("name", ASSIGNORS)
@given(members=any_members, counts=counts_of_topics)
def test_assigning_again_moves_nothing(name: str, members: Members, counts: Counts) -> None:
    first = ASSIGNORS[name](members, counts)
    again = {m: member._replace(current=first[m]) for m, member in members.items()}
    assert ASSIGNORS[name](again, counts) == first


@given(members=equal_members(), counts=counts_of_topics)
def test_uniform_differs_by_one_at_most_and_keeps_what_it_can(
    members: Members, counts: Counts
) -> None:
    assignment = assign_uniformly(members, counts)
    count = sizes(assignment)
    assert max(count.values()) - min(count.values()) <= 1
    taken: set[tuple[bytes, int]] = set()
    valid = {}
    for member_id in sorted(members):
        mine = {
            (topic, n)
            for topic, numbers in members[member_id].current.items()
            if topic in members[member_id].topics
            for n in numbers
            if n < counts.get(topic, 0)
        }
        valid[member_id] = mine - taken
        taken |= mine
    quota, extras = divmod(sum(count.values()), len(members))
    richer = sum(len(mine) > quota for mine in valid.values())
    most = sum(min(len(mine), quota) for mine in valid.values()) + min(extras, richer)
    owners = pairs(assignment)
    kept = sum(owners[part] == member_id for member_id, mine in valid.items() for part in mine)
    assert kept == most


@given(
    members=st.dictionaries(member_names, subscriptions, min_size=1, max_size=3),
    counts=st.dictionaries(topic_ids, st.integers(0, 2)),
)
def test_uniform_is_the_most_even_of_all_assignments(members: Members, counts: Counts) -> None:
    assignment = assign_uniformly(members, counts)
    readers = [
        [m for m, member in members.items() if topic in member.topics]
        for topic, count in counts.items()
        for _ in range(count)
    ]
    best = min(
        sum(choice.count(m) ** 2 for m in members)
        for choice in product(*(names for names in readers if names))
    )
    assert sum(size**2 for size in sizes(assignment).values()) == best


def test_uniform_passes_partitions_along_a_chain_of_members() -> None:
    members = {
        "a": subscriber(T1, t1={0, 1, 2}),
        "b": subscriber(T1, T2, t2={0, 1}),
        "c": subscriber(T2, t2={2}),
    }
    assert sizes(assign_uniformly(members, {T1: 3, T2: 3})) == {"a": 2, "b": 2, "c": 2}


def test_uniform_gives_a_newcomer_its_share_and_moves_nothing_else() -> None:
    members = {"a": subscriber(T1, t1={0, 1, 2}), "b": subscriber(T1, t1={3, 4, 5})}
    members["c"] = subscriber(T1)
    assignment = assign_uniformly(members, {T1: 6})
    assert assignment["a"][T1] < {0, 1, 2}
    assert assignment["b"][T1] < {3, 4, 5}
    assert sizes(assignment) == {"a": 2, "b": 2, "c": 2}


@given(members=any_members, counts=counts_of_topics)
def test_range_gives_runs_that_differ_by_one_at_most(members: Members, counts: Counts) -> None:
    assignment = assign_ranges(members, counts)
    for topic, count in counts.items():
        runs = [parts.get(topic, frozenset()) for parts in assignment.values()]
        for run in filter(None, runs):
            assert max(run) - min(run) == len(run) - 1
        shares = [len(assignment[m].get(topic, ())) for m in members if topic in members[m].topics]
        if shares:
            assert max(shares) - min(shares) <= 1
            assert sum(shares) == count


@given(members=equal_members(), count=st.integers(1, 7))
def test_range_shares_equal_topics_alike(members: Members, count: int) -> None:
    topics = next(iter(members.values())).topics
    assignment = assign_ranges(members, dict.fromkeys(topics, count))
    for parts in assignment.values():
        assert len(set(parts.values())) <= 1
        assert set(parts) in ({}.keys(), topics)


def test_range_keeps_the_order_of_members_when_one_joins_or_leaves() -> None:
    members = {"z": subscriber(T1, t1={0, 1}), "y": subscriber(T1, t1={2, 3})}
    members["a"] = subscriber(T1)
    assert assign_ranges(members, {T1: 4}) == {"z": {T1: {0, 1}}, "y": {T1: {2}}, "a": {T1: {3}}}
    del members["z"]
    assert assign_ranges(members, {T1: 4}) == {"y": {T1: {0, 1}}, "a": {T1: {2, 3}}}


def test_topics_that_are_gone_are_no_longer_assigned() -> None:
    members = {"a": subscriber(T1, T2, t1={0}, t2={0})}
    for assign in ASSIGNORS.values():
        assert assign(members, {T1: 1}) == {"a": {T1: {0}}}
