"""Syncing, heartbeating, leaving and falling silent in a classic group."""

from __future__ import annotations

import pytest

from millstream.errors import (
    FencedInstance,
    IllegalGeneration,
    InconsistentProtocol,
    RebalanceInProgress,
    UnknownMember,
)
from millstream.groups.classic_description import describe
from millstream.groups.classic_group import ClassicState, from_record, to_record
from millstream.groups.classic_subscription import subscribed_topics
from millstream.groups.classic_transitions import deadline_of
from millstream.groups.commands import Leaver
from millstream.groups.group_records import GroupMetadata
from millstream.protocol.codec import encode
from millstream.protocol.messages.consumer_protocol_subscription import (
    ConsumerProtocolSubscription,
)
from tests.fakes.classic_play import DELAY_MS, REBALANCE_MS, SESSION_MS, Play, protocols


def joined_pair() -> Play:
    """Two members that know of generation 1, and have not synced."""
    play = Play()
    play.join(new_id="a")
    play.join(new_id="b")
    play.pass_ms(DELAY_MS * 2)
    return play


def test_follower_waits_for_the_leader_and_both_get_their_assignment() -> None:
    play = joined_pair()
    follower = play.sync("b")
    assert follower not in play.answers
    leader = play.sync("a", a=b"1", b=b"2")
    assert play.synced(leader) == ("consumer", "range", b"1")
    assert play.synced(follower) == ("consumer", "range", b"2")
    assert play.group.state is ClassicState.STABLE


def test_assignment_is_stored_before_anyone_can_be_told() -> None:
    play = joined_pair()
    play.sync("a", a=b"1", b=b"2")
    [record] = play.records
    assert isinstance(record, GroupMetadata)
    assert record.generation == 1
    assert [(m.member_id, m.assignment) for m in record.members] == [("a", b"1"), ("b", b"2")]


def test_member_that_syncs_late_gets_its_assignment_at_once() -> None:
    play = joined_pair()
    play.sync("a", a=b"1", b=b"2")
    assert play.synced(play.sync("b")).assignment == b"2"


def test_member_without_an_assignment_gets_an_empty_one() -> None:
    play = joined_pair()
    play.sync("a", a=b"1", stranger=b"3")
    assert play.synced(play.sync("b")).assignment == b""


def test_sync_sent_again_answers_the_first_and_waits_in_its_place() -> None:
    play = joined_pair()
    first = play.sync("b")
    second = play.sync("b")
    assert isinstance(play.answers[first], RebalanceInProgress)
    play.sync("a", b=b"2")
    assert play.synced(second).assignment == b"2"


def test_sync_of_another_generation_is_refused() -> None:
    play = joined_pair()
    answer = play.answers[play.sync("b", generation=0)]
    assert isinstance(answer, IllegalGeneration)
    assert (answer.generation, answer.current) == (0, 1)


def test_sync_of_another_protocol_is_refused() -> None:
    play = joined_pair()
    answer = play.answers[play.sync("b", protocol_name="sticky")]
    assert isinstance(answer, InconsistentProtocol)


def test_sync_of_a_stranger_is_refused() -> None:
    play = joined_pair()
    assert isinstance(play.answers[play.sync("z")], UnknownMember)
    assert isinstance(play.answers[play.sync("z", instance_id="one")], UnknownMember)


def test_sync_in_a_group_that_rebalances_again_is_sent_back() -> None:
    play = joined_pair()
    play.join(new_id="c")
    assert isinstance(play.answers[play.sync("b")], RebalanceInProgress)


def test_members_that_never_sync_are_removed_after_the_rebalance_timeout() -> None:
    play = joined_pair()
    play.sync("a", a=b"1", b=b"2")
    for _ in range(REBALANCE_MS // 5000):
        play.heartbeat("a")
        play.heartbeat("b")
        play.pass_ms(5000)
    assert set(play.group.members) == {"a"}
    assert play.group.state is ClassicState.PREPARING_REBALANCE


def test_leader_that_never_syncs_is_removed_and_another_one_leads() -> None:
    play = joined_pair()
    waiting = play.sync("b")
    for _ in range(REBALANCE_MS // 5000):
        play.heartbeat("a")
        play.pass_ms(5000)
    assert isinstance(play.answers[waiting], RebalanceInProgress)
    assert play.joined(play.join("b")).leader_id == "b"


def test_nobody_syncs_and_the_group_is_empty() -> None:
    play = joined_pair()
    play.pass_ms(REBALANCE_MS)
    assert play.group.state is ClassicState.EMPTY
    assert play.group.generation == 2


def test_heartbeat_renews_the_session() -> None:
    play = Play()
    play.stable("a")
    for _ in range(5):
        play.pass_ms(SESSION_MS - 1)
        assert play.heartbeat("a") is None
    assert "a" in play.group.members


def test_heartbeat_between_join_and_sync_is_fine() -> None:
    play = joined_pair()
    assert play.heartbeat("a") is None
    assert isinstance(play.heartbeat("a", generation=0), IllegalGeneration)


def test_heartbeat_never_brings_a_deadline_closer() -> None:
    play = Play()
    play.stable("a", "b")
    play.pass_ms(1000)
    before = deadline_of(play.group)
    play.heartbeat("a")
    after = deadline_of(play.group)
    assert before is not None
    assert after is not None
    assert after >= before


def test_silent_member_is_removed_and_the_others_rebalance() -> None:
    play = Play()
    play.stable("a", "b")
    play.pass_ms(SESSION_MS - 1)
    play.heartbeat("b")
    play.pass_ms(1)
    assert set(play.group.members) == {"b"}
    assert play.group.leader_id == "b"
    assert isinstance(play.heartbeat("b"), RebalanceInProgress)
    assert isinstance(play.heartbeat("a"), UnknownMember)


def test_last_member_falls_silent_and_the_empty_group_is_stored() -> None:
    play = Play()
    play.stable("a")
    play.pass_ms(SESSION_MS)
    record = play.records[-1]
    assert isinstance(record, GroupMetadata)
    assert record.members == ()
    assert record.generation == 2
    assert record.state_since_ms == play.now_ms
    assert play.group.state is ClassicState.EMPTY
    assert play.group.protocol_type == "consumer"


def test_member_leaves_and_the_others_rebalance_at_once() -> None:
    play = Play()
    play.stable("a", "b")
    assert play.leave("a") == (None,)
    assert play.joined(play.join("b")).generation == 2


def test_several_leave_at_once_each_with_its_own_result() -> None:
    play = Play()
    play.stable("a", "b", "c", b="two", c="three")
    results = play.leave(
        Leaver("a", None), Leaver("", "two"), Leaver("z", None), Leaver("z", "three"), ""
    )
    assert [type(result) for result in results] == [
        type(None),
        type(None),
        UnknownMember,
        FencedInstance,
        UnknownMember,
    ]
    assert set(play.group.members) == {"c"}


def test_static_member_named_by_an_unknown_identity_does_not_leave() -> None:
    play = Play()
    play.stable("a")
    assert isinstance(play.leave(Leaver("", "nobody"))[0], UnknownMember)
    assert play.group.state is ClassicState.STABLE


def test_member_leaves_while_it_waits_and_both_requests_are_answered() -> None:
    play = joined_pair()
    waiting = play.sync("b")
    assert play.leave("b") == (None,)
    assert isinstance(play.answers[waiting], UnknownMember)


def test_last_member_that_is_waited_for_leaves_and_the_generation_begins() -> None:
    play = Play()
    play.stable("a", "b")
    ticket = play.join("a")
    play.leave("b")
    assert play.joined(ticket).generation == 2


def test_stable_group_comes_back_after_a_restart_with_whole_sessions() -> None:
    play = Play()
    play.stable("a", "b", b="two")
    play.pass_ms(SESSION_MS - 1)
    play.restart()
    assert play.group.state is ClassicState.STABLE
    play.pass_ms(SESSION_MS - 1)
    assert play.heartbeat("a") is None
    assert play.heartbeat("b", instance_id="two") is None
    assert play.synced(play.sync("b")).assignment == b"b"


def test_group_that_was_rebalancing_comes_back_in_its_last_generation() -> None:
    play = Play()
    play.stable("a", "b")
    play.join("a")
    play.join("b")
    assert play.group.generation == 2
    play.restart()
    assert play.group.generation == 1
    assert play.group.state is ClassicState.STABLE
    assert isinstance(play.answers[play.sync("a", generation=2)], IllegalGeneration)


def test_stored_group_is_the_group_but_for_what_is_not_stored() -> None:
    play = Play()
    play.stable("a", "b", b="two")
    again = from_record(to_record(play.group), play.now_ms)
    assert to_record(again) == to_record(play.group)


def test_description_shows_members_fully_only_while_stable() -> None:
    play = Play()
    play.stable("a", "b", b="two")
    shown = describe(play.group)
    assert (shown.state, shown.protocol_type, shown.protocol_name) == (
        "Stable",
        "consumer",
        "range",
    )
    assert [(m.member_id, m.instance_id, m.assignment) for m in shown.members] == [
        ("a", None, b"a"),
        ("b", "two", b"b"),
    ]
    play.join("a")
    shown = describe(play.group)
    assert shown.state == "PreparingRebalance"
    assert {(m.metadata, m.assignment) for m in shown.members} == {(b"", b"")}


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_subscribed_topics_are_read_from_every_version_of_metadata(version: int) -> None:
    play = Play()
    subscription = ConsumerProtocolSubscription(topics=["t", "ü"], user_data=b"x")
    metadata = version.to_bytes(2, "big") + encode(subscription, version)
    play.join(new_id="a", supported=protocols("range", metadata=metadata))
    assert subscribed_topics(play.group) == frozenset({"t", "ü"})


def test_metadata_that_is_no_subscription_leaves_topics_unknown() -> None:
    play = Play()
    play.join(new_id="a", supported=protocols("range", metadata=b"\x00"))
    assert subscribed_topics(play.group) is None


def test_other_kinds_of_groups_do_not_tell_their_topics() -> None:
    play = Play()
    play.join(new_id="a", protocol_type="connect")
    assert subscribed_topics(play.group) is None


def test_leader_that_is_killed_while_it_waits_to_join_is_not_waited_for() -> None:
    play = joined_pair()
    play.sync("a", a=b"1", b=b"2")
    leader = play.join("a", supported=protocols("range", metadata=b"changed"))
    play.drop_join(leader)
    assert leader not in play.answers
    follower = play.join("b")
    assert play.joined(follower).leader_id == "b"
    assert list(play.group.members) == ["b"]


def test_last_missing_member_is_killed_while_it_waits_and_the_others_go_on() -> None:
    play = joined_pair()
    play.sync("a", a=b"1", b=b"2")
    newcomer = play.join(new_id="c")
    waiting = play.join("a")
    play.drop_join(newcomer)
    assert waiting not in play.answers
    play.join("b")
    assert list(play.group.members) == ["a", "b"]
    assert play.joined(waiting).generation == 2


def test_first_member_is_killed_while_it_waits_and_leaves_an_empty_group() -> None:
    play = Play()
    play.drop_join(play.join(new_id="a"))
    assert play.group.state is ClassicState.EMPTY
    play.join(new_id="b")
    play.pass_ms(DELAY_MS)
    assert play.group.leader_id == "b"


def test_static_member_that_is_killed_while_it_waits_keeps_its_place_for_a_session() -> None:
    play = Play()
    play.join(new_id="a", instance_id="one")
    play.join(new_id="b")
    play.pass_ms(DELAY_MS * 2)
    play.sync("a", a=b"1", b=b"2", instance_id="one")
    play.join(new_id="c")
    play.drop_join(play.join("a", instance_id="one"))
    assert "a" in play.group.members
    waiting = play.join("b")
    assert waiting not in play.answers
    play.pass_ms(SESSION_MS)
    assert play.joined(waiting).leader_id == "b"
    assert list(play.group.members) == ["b", "c"]


def test_connection_that_closes_after_the_join_was_answered_changes_nothing() -> None:
    play = Play()
    ticket = play.join(new_id="a")
    play.pass_ms(DELAY_MS)
    before = play.group
    play.drop_join(ticket)
    assert play.group == before
