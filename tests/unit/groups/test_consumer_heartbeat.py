"""Members of a consumer group join, go on, give up, get and leave."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from millstream.errors import (
    FencedMember,
    GroupFull,
    IllegalGeneration,
    InvalidRegex,
    InvalidRequest,
    StaleMember,
    UnknownMember,
    UnsupportedAssignor,
)
from millstream.groups.consumer_group import MemberState, TopicFacts, deadline_of
from millstream.groups.consumer_target import assignor_of, subscribed_topics
from millstream.groups.consumer_validation import check_commit, check_fetch
from tests.fakes.consumer_play import (
    REBALANCE_MS,
    SESSION_MS,
    SETTINGS,
    ConsumerPlay,
    partitions_of,
    subscription,
    topic_id,
    topics_of,
)


@pytest.fixture
def play() -> ConsumerPlay:
    return ConsumerPlay(a=4)


@pytest.fixture
def pair(play: ConsumerPlay) -> ConsumerPlay:
    """m1 and m2 have two partitions each, in epoch 2."""
    play.join("m1")
    play.join("m2")
    play.settle("m1", "m2")
    assert play.state == "Stable"
    assert play.group.epoch == 2
    return play


def test_first_member_gets_everything_in_the_first_epoch(play: ConsumerPlay) -> None:
    reply = play.join("m1")
    assert reply.member_id == "m1"
    assert reply.member_epoch == 1
    assert reply.heartbeat_interval_ms == SETTINGS.consumer_heartbeat_interval_ms
    assert reply.assignment == partitions_of(a={0, 1, 2, 3})
    assert play.state == "Stable"


def test_member_without_an_id_is_given_one(play: ConsumerPlay) -> None:
    assert play.join("", new_member_id="made").member_id == "made"


def test_second_member_waits_until_the_first_has_given_up(play: ConsumerPlay) -> None:
    play.join("m1")
    assert play.join("m2").assignment == {}
    assert play.member("m2").current.state is MemberState.UNRELEASED_PARTITIONS
    assert play.state == "Reconciling"

    told = play.beat("m1", 1)
    assert told.member_epoch == 1, "it stays in its epoch until it has given up"
    kept = told.assignment
    assert kept is not None
    assert len(kept[topic_id("a")]) == 2
    assert play.beat("m2", 2).assignment is None
    assert play.beat("m1", 1, owned=partitions_of(a={0, 1, 2, 3})).member_epoch == 1
    assert play.beat("m1", 1).member_epoch == 1, "saying nothing is not giving up"

    assert play.beat("m1", 1, owned=kept).member_epoch == 2
    got = play.beat("m2", 2).assignment
    assert got is not None
    assert got[topic_id("a")] | kept[topic_id("a")] == {0, 1, 2, 3}
    assert play.state == "Stable"


def test_quiet_heartbeat_stores_nothing_and_says_nothing(pair: ConsumerPlay) -> None:
    reply = pair.beat("m1", 2)
    assert reply.assignment is None
    assert pair.records == []


def test_full_heartbeat_is_told_everything(pair: ConsumerPlay) -> None:
    owned = pair.member("m1").current.assigned
    reply = pair.beat("m1", 2, topics=("a",), rebalance_timeout_ms=REBALANCE_MS, owned=owned)
    assert reply.assignment == owned
    assert pair.group.epoch == 2


def test_member_that_missed_replies_is_believed_if_it_owns_nothing_else(pair: ConsumerPlay) -> None:
    pair.beat("m2", -1)
    assert pair.beat("m1", 2).member_epoch == 3
    before = partitions_of(a={0, 1})
    assert pair.beat("m1", 2, owned=before).member_epoch == 3
    assert pair.beat("m1", 2, owned=before).assignment == partitions_of(a={0, 1, 2, 3})


@pytest.mark.parametrize(
    ("epoch", "fields"),
    [
        (2, {}),
        (2, {"owned": partitions_of(a={0}, b={1})}),
        (1, {"owned": {}}),
        (4, {"owned": {}}),
    ],
)
def test_member_in_another_epoch_is_fenced(
    pair: ConsumerPlay, epoch: int, fields: dict[str, Any]
) -> None:
    pair.beat("m2", -1)
    pair.beat("m1", 2)
    group = pair.group
    with pytest.raises(FencedMember):
        pair.beat("m1", epoch, **fields)
    assert pair.group is group


def test_fenced_member_joins_again_and_keeps_what_is_meant_for_it(pair: ConsumerPlay) -> None:
    assigned = pair.member("m1").current.assigned
    reply = pair.join("m1")
    assert reply.member_epoch == 2
    assert reply.assignment == assigned
    assert pair.group.epoch == 2


def test_joining_again_gives_up_what_was_to_be_given_up(pair: ConsumerPlay) -> None:
    pair.join("m3")
    pair.beat("m2", 2)
    assert pair.member("m2").current.state is MemberState.UNREVOKED_PARTITIONS
    pair.join("m2")
    assert pair.member("m2").current.revoking == {}
    assert pair.beat("m3", 3).assignment


def test_unknown_member_is_told_so(pair: ConsumerPlay) -> None:
    with pytest.raises(UnknownMember):
        pair.beat("m3", 2)
    with pytest.raises(UnknownMember):
        pair.beat("m3", -1)
    with pytest.raises(UnknownMember):
        ConsumerPlay().beat("m1", 1)


def test_member_leaves_and_others_get_what_it_had(pair: ConsumerPlay) -> None:
    reply = pair.beat("m2", -1)
    assert (reply.member_id, reply.member_epoch, reply.assignment) == ("m2", -1, None)
    assert pair.state == "Assigning"
    assert pair.beat("m1", 2).assignment == partitions_of(a={0, 1, 2, 3})
    pair.beat("m1", -1)
    assert pair.state == "Empty"
    assert deadline_of(pair.group) is None


def test_silent_member_is_removed_when_its_session_ends(pair: ConsumerPlay) -> None:
    pair.pass_time(SESSION_MS - 1)
    pair.beat("m1", 2)
    assert deadline_of(pair.group) == pair.now_ms + 1
    pair.pass_time(1)
    assert set(pair.group.members) == {"m1"}
    assert pair.group.epoch == 3
    assert pair.records


def test_member_that_does_not_give_up_in_time_is_removed(play: ConsumerPlay) -> None:
    play.join("m1")
    play.join("m2")
    play.beat("m1", 1)
    for _ in range(2):
        play.pass_time(REBALANCE_MS // 2 - 1)
        play.beat("m1", 1, owned=partitions_of(a={0, 1, 2, 3}))
        play.beat("m2", 2)
    play.pass_time(2)
    assert set(play.group.members) == {"m2"}
    assert play.beat("m2", 2).assignment == partitions_of(a={0, 1, 2, 3})


def test_group_takes_no_more_members_than_it_may() -> None:
    play = ConsumerPlay(replace(SETTINGS, max_size=1), a=4)
    play.join("m1")
    with pytest.raises(GroupFull):
        play.join("m2")
    play.join("m1")


# What is subscribed to


def test_new_subscription_begins_an_epoch(pair: ConsumerPlay) -> None:
    pair.topics = topics_of(a=4, b=1)
    reply = pair.beat("m1", 2, topics=("b",))
    assert pair.group.epoch == 3
    assert reply.assignment == {}
    assert pair.beat("m1", 2, owned={}).assignment == partitions_of(b={0})


def test_other_changes_of_a_member_do_not_begin_an_epoch(pair: ConsumerPlay) -> None:
    pair.beat("m1", 2, rack_id="r", rebalance_timeout_ms=5, assignor="range")
    metadata = pair.member("m1").metadata
    assert (metadata.rack_id, metadata.rebalance_timeout_ms, metadata.assignor) == ("r", 5, "range")
    assert pair.group.epoch == 2
    assert pair.records


def test_grown_topic_begins_an_epoch(pair: ConsumerPlay) -> None:
    pair.topics = topics_of(a=6)
    pair.settle("m1", "m2")
    assert pair.group.epoch == 3
    assert [len(m.current.assigned[topic_id("a")]) for m in pair.group.members.values()] == [3, 3]


def test_topics_that_nobody_reads_make_no_difference(pair: ConsumerPlay) -> None:
    pair.topics = topics_of(a=4, b=9)
    pair.beat("m1", 2)
    assert pair.group.epoch == 2
    assert pair.records == []


def test_deleted_topic_is_taken_away_and_one_of_the_same_name_is_another(
    play: ConsumerPlay,
) -> None:
    play.join("m1")
    play.topics = {}
    assert play.beat("m1", 1).assignment == {}
    play.beat("m1", 1, owned={})
    play.topics = {"a": TopicFacts(b"another id of it", 1)}
    assert play.beat("m1", 2).assignment == {b"another id of it": frozenset({0})}


def test_regex_chooses_topics_that_exist_and_that_come(play: ConsumerPlay) -> None:
    play.topics = {
        **topics_of(orders_eu=1, other=1),
        "__orders": TopicFacts(b"i" * 16, 1, is_internal=True),
    }
    reply = play.join("m1", topics=None, regex="_*orders.*")
    assert reply.assignment == partitions_of(orders_eu={0})
    play.topics = {**play.topics, **topics_of(orders_us=1)}
    assert play.beat("m1", 1).assignment == partitions_of(orders_eu={0}, orders_us={0})
    assert subscribed_topics(play.group, play.topics) == {"orders_eu", "orders_us"}
    assert play.beat("m1", 2, topics=("other",), regex="").assignment == {}
    assert play.beat("m1", 2, owned={}).assignment == partitions_of(other={0})


def test_bad_regex_is_refused(play: ConsumerPlay) -> None:
    with pytest.raises(InvalidRegex):
        play.join("m1", topics=None, regex="(")


def test_most_wanted_assignor_is_used(play: ConsumerPlay) -> None:
    play.join("m1", assignor="range")
    assert assignor_of(play.group) == "range"
    play.join("m2", assignor="uniform")
    play.join("m3")
    assert assignor_of(play.group) == "range"
    with pytest.raises(UnsupportedAssignor):
        play.join("m4", assignor="rack")


@pytest.mark.parametrize(
    "fields",
    [
        {"member_id": ""},
        {"member_id": "m" * 40_000},
        {"rebalance_timeout_ms": -1},
        {"rebalance_timeout_ms": -2},
        {"owned": None},
        {"owned": partitions_of(a={0})},
        {"topics": None},
        {"instance_id": ""},
        {"rack_id": ""},
        {"epoch": -3},
        {"epoch": -2},
        {"epoch": 1, "member_id": ""},
        {"epoch": -1, "member_id": ""},
    ],
)
def test_bad_requests_are_refused(play: ConsumerPlay, fields: dict[str, Any]) -> None:
    good = {"member_id": "m1", "epoch": 0, "topics": ("a",), "rebalance_timeout_ms": 1, "owned": {}}
    given: dict[str, Any] = {**good, **fields}
    with pytest.raises(InvalidRequest):
        play.beat(given.pop("member_id"), given.pop("epoch"), **given)
    assert play.any_group is None


# Offsets


def test_commits_come_from_members_in_their_epoch(pair: ConsumerPlay) -> None:
    check_commit(pair.group, "m1", 2)
    check_fetch(pair.group, "m1", 2)
    check_fetch(pair.group, None, -1)
    for check in (check_commit, check_fetch):
        with pytest.raises(StaleMember):
            check(pair.group, "m1", 1)
        with pytest.raises(UnknownMember):
            check(pair.group, "m3", 2)
    with pytest.raises(UnknownMember):
        check_commit(pair.group, "", -1)


def test_commits_to_a_group_without_members_come_from_anywhere(pair: ConsumerPlay) -> None:
    pair.beat("m1", -1)
    pair.beat("m2", -1)
    check_commit(pair.group, "", -1)
    with pytest.raises(UnknownMember):
        check_commit(pair.group, "m1", 2)


def test_commit_of_a_classic_member_speaks_of_generations(pair: ConsumerPlay) -> None:
    pair.answer(pair.classic_join("", subscription("a"), new_member_id="old"))
    check_commit(pair.group, "old", 3)
    with pytest.raises(IllegalGeneration):
        check_commit(pair.group, "old", 2)
