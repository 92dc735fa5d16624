"""A living group moves between the protocols, and both kinds of members notice little of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from millstream.errors import (
    GroupFull,
    InvalidRequest,
    RebalanceInProgress,
    UnknownGroup,
    UnknownMember,
)
from millstream.groups import migration
from millstream.groups.classic_group import ClassicGroup, from_record
from millstream.groups.commands import Leaver, Left
from millstream.groups.consumer_embedded_protocol import write_assignment
from millstream.groups.consumer_group import ConsumerGroup
from millstream.groups.consumer_records import ConsumerRecord, GroupEpochRecord, MemberRecord
from millstream.groups.group_records import GroupMetadata, GroupTombstone
from tests.fakes.consumer_play import (
    GROUP_ID,
    SETTINGS,
    ConsumerPlay,
    partitions_of,
    subscription,
)

WITHOUT = {
    policy: replace(SETTINGS, consumer_migration_policy=policy)
    for policy in ("disabled", "upgrade", "downgrade")
}


@pytest.fixture
def play() -> ConsumerPlay:
    """old1 and old2 have two partitions each, in generation 1."""
    play = ConsumerPlay(replace(SETTINGS, initial_rebalance_delay_ms=10), a=4)
    data = subscription("a")
    first = play.classic_join("", data, new_member_id="old1", session_timeout_ms=20_000)
    second = play.classic_join("", data, new_member_id="old2", session_timeout_ms=20_000)
    while play.is_waiting(first):
        play.pass_time(10)
    assert play.answer(first).generation == play.answer(second).generation == 1
    parts = {"old1": partitions_of(a={0, 1}), "old2": partitions_of(a={2, 3})}
    given = [(m, write_assignment(each, play.topics, version=1)) for m, each in parts.items()]
    play.answer(play.classic_sync("old1", 1, *given))
    play.answer(play.classic_sync("old2", 1))
    assert play.state == "Stable"
    return play


def test_classic_group_becomes_a_consumer_group_when_a_new_member_joins(play: ConsumerPlay) -> None:
    reply = play.join("new")
    assert reply.member_epoch == play.group.epoch == 2
    assert reply.assignment == {}, "all of it is had by others"
    assert isinstance(play.records[0], GroupTombstone)
    assert {r.member_id for r in play.records if isinstance(r, MemberRecord)} == {
        *("old1", "old2", "new")
    }
    old = play.member("old1")
    assert old.current.epoch == 1
    assert old.current.assigned == partitions_of(a={0, 1})
    assert old.session_deadline_ms == play.now_ms + 20_000
    with pytest.raises(RebalanceInProgress):
        play.answer(play.classic_beat("old1", 1))


def test_all_come_to_rest_after_the_move(play: ConsumerPlay) -> None:
    play.join("new")
    for name, owned in (("old1", {0, 1}), ("old2", {2, 3})) * 2:
        current = play.member(name).current
        if current.epoch != play.group.epoch:
            had = owned if current.state == 0 else set(*current.assigned.values())
            joined = play.answer(play.classic_join(name, subscription("a", a=had)))
            play.answer(play.classic_sync(name, joined.generation))
        play.beat("new", 2)
    assert play.state == "Stable"
    sizes = [sum(map(len, m.current.assigned.values())) for m in play.group.members.values()]
    assert sorted(sizes) == [1, 1, 2]


def test_those_who_wait_are_told_to_join_again(play: ConsumerPlay) -> None:
    waiting = play.classic_join("old1", subscription("a", "b", a={0, 1}))
    assert play.is_waiting(waiting)
    play.join("new")
    with pytest.raises(RebalanceInProgress):
        play.answer(waiting)
    assert play.member("old1").current.assigned == partitions_of(a={0, 1})


def test_what_a_rebalancing_member_still_owns_is_not_given_away(play: ConsumerPlay) -> None:
    """Its leader took partition 1 from it, and it has not heard of that."""
    tickets = [
        play.classic_join(name, subscription("a", a=owned))
        for name, owned in (("old1", {0, 1}), ("old2", {2, 3}))
    ]
    for ticket in tickets:
        play.answer(ticket)
    data = write_assignment(partitions_of(a={0}), play.topics, version=1)
    play.classic_sync("old1", 2, ("old1", data))
    assert play.state == "Stable"
    play.join("new")
    assert play.member("old1").current.held == partitions_of(a={0, 1})
    assert play.member("old2").current.held == partitions_of(a={2, 3})


def test_partition_that_was_assigned_twice_has_one_holder_after_the_move(
    play: ConsumerPlay,
) -> None:
    group = play.classic_group
    both = group.members["old2"]._replace(assignment=group.members["old1"].assignment)
    play.any_group = group._replace(members={**group.members, "old2": both})
    play.join("new")
    assert play.member("old1").current.assigned == partitions_of(a={0, 1})
    assert play.member("old2").current.assigned == {}


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_group_is_not_moved_where_that_is_not_allowed(play: ConsumerPlay, policy: str) -> None:
    play.settings = WITHOUT[policy]
    group = play.any_group
    with pytest.raises(UnknownGroup):
        play.join("new")
    assert play.any_group is group


def test_group_that_cannot_be_understood_is_not_moved(play: ConsumerPlay) -> None:
    group = play.classic_group
    play.any_group = group._replace(protocol_type="connect")
    with pytest.raises(UnknownGroup):
        play.join("new")
    odd = group.members["old1"]._replace(assignment=b"\x00\x00\x00")
    play.any_group = group._replace(members={**group.members, "old1": odd})
    with pytest.raises(UnknownGroup):
        play.join("new")
    assert isinstance(play.any_group, ClassicGroup)


def test_full_group_is_not_moved(play: ConsumerPlay) -> None:
    play.settings = replace(SETTINGS, max_size=2)
    with pytest.raises(GroupFull):
        play.join("new")


def test_only_a_join_moves_a_group(play: ConsumerPlay) -> None:
    with pytest.raises(UnknownMember):
        play.beat("new", 1)
    assert isinstance(play.any_group, ClassicGroup)


def test_refused_join_does_not_move_a_group(play: ConsumerPlay) -> None:
    group = play.classic_group
    with pytest.raises(UnknownMember):
        play.beat("new", -1)
    assert play.any_group is group
    static = group.members["old1"]._replace(instance_id="i1")
    play.any_group = group = group._replace(members={**group.members, "old1": static})
    with pytest.raises(InvalidRequest):
        play.join("old2", instance_id="i1")
    assert play.any_group is group
    assert play.records == []


def test_group_moves_back_when_the_last_new_member_leaves(play: ConsumerPlay) -> None:
    play.join("new")
    reply = play.beat("new", -1)
    records = play.records
    assert reply.member_epoch == -1
    group = play.classic_group
    assert play.state == "PreparingRebalance"
    assert group.generation == 1
    with pytest.raises(RebalanceInProgress):
        play.answer(play.classic_beat("old2", 1))
    assert set(group.members) == {"old1", "old2"}
    assert group.leader_id == "old1"
    stored = records[-1]
    assert isinstance(stored, GroupMetadata)
    assert set(from_record(stored, 0).members) == {"old1", "old2"}
    newest = {
        (type(r), getattr(r, "member_id", "")): r.value
        for r in records
        if isinstance(r, ConsumerRecord)
    }
    assert set(newest.values()) == {None}
    assert (GroupEpochRecord, "") in newest

    tickets = [play.classic_join(name, subscription("a")) for name in ("old1", "old2")]
    assert [play.answer(ticket).generation for ticket in tickets] == [2, 2]


def test_group_moves_back_when_the_last_new_member_dies(play: ConsumerPlay) -> None:
    play.join("new")
    for _ in range(5):
        play.pass_time(9_500)
        if isinstance(play.any_group, ConsumerGroup):
            for name in ("old1", "old2"):
                with pytest.raises(RebalanceInProgress):
                    play.answer(play.classic_beat(name, 1))
    assert isinstance(play.any_group, ClassicGroup)


@pytest.mark.parametrize("policy", ["disabled", "upgrade"])
def test_group_stays_where_moving_back_is_not_allowed(play: ConsumerPlay, policy: str) -> None:
    play.join("new")
    play.settings = WITHOUT[policy]
    play.beat("new", -1)
    assert set(play.group.members) == {"old1", "old2"}


def test_static_member_that_takes_up_the_old_protocol_moves_the_group_back_a_little_later() -> None:
    play = ConsumerPlay(a=2)
    play.join("new", instance_id="i1")
    joined = play.answer(
        play.classic_join("", subscription("a"), instance_id="i1", new_member_id="old")
    )
    assert joined.generation == play.group.epoch
    play.answer(play.classic_sync("old", joined.generation, instance_id="i1"))
    assert set(play.classic_group.members) == {"old"}


def test_empty_groups_change_their_kind_whatever_the_policy() -> None:
    play = ConsumerPlay(WITHOUT["disabled"], a=2)
    play.join("new")
    play.beat("new", -1)
    play.classic_join("", subscription("a"), new_member_id="old")
    assert set(play.classic_group.members) == {"old"}
    assert any(isinstance(r, GroupEpochRecord) and r.value is None for r in play.records)
    play.pass_time(1)
    play.answer(play.classic_leave(Leaver("old", None)))
    assert play.state == "Empty"
    play.join("new")
    assert set(play.group.members) == {"new"}
    assert isinstance(play.records[0], GroupTombstone)


def test_pending_member_of_an_empty_classic_group_is_welcome_after_the_move() -> None:
    play = ConsumerPlay(WITHOUT["disabled"], a=2)
    play.classic_join("", subscription("a"), new_member_id="old", must_return=True)
    play.join("new")
    joined = play.answer(play.classic_join("old", subscription("a")))
    assert joined.member_id == "old"
    assert set(play.group.members) == {"new", "old"}


def test_requests_to_a_group_that_does_not_exist() -> None:
    play = ConsumerPlay()
    for ticket in (play.classic_beat("m", 1), play.classic_sync("m", 1)):
        with pytest.raises(UnknownMember):
            play.answer(ticket)
    with pytest.raises(UnknownMember):
        play.answer(play.classic_join("m", subscription("a")))
    left = play.answer(play.classic_leave(Leaver("m", None)))
    assert isinstance(left, Left)
    assert isinstance(left.results[0], UnknownMember)
    assert play.any_group is None


def test_deadlines_are_those_of_either_kind(play: ConsumerPlay) -> None:
    assert play.any_group is not None
    assert migration.deadline_of(play.any_group) == play.now_ms + 20_000
    play.join("new")
    assert migration.deadline_of(play.group) == play.now_ms + 20_000
    assert play.group.group_id == GROUP_ID
