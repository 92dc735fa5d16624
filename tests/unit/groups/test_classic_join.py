"""Joining a classic group, and the rebalances that follow."""

from __future__ import annotations

import pytest

from millstream.errors import (
    FencedInstance,
    GroupFull,
    InconsistentProtocol,
    InvalidTimeout,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMember,
)
from millstream.groups.classic_group import ClassicState
from millstream.groups.classic_transitions import deadline_of
from millstream.settings.groups import GroupSettings
from tests.fakes.classic_play import DELAY_MS, REBALANCE_MS, SESSION_MS, Play, protocols


def test_first_members_join_and_generation_begins_after_the_initial_delay() -> None:
    play = Play()
    first = play.join(new_id="a")
    play.pass_ms(DELAY_MS - 1)
    assert play.answers == {}
    play.pass_ms(1)
    joined = play.joined(first)
    assert joined.generation == 1
    assert joined.leader_id == joined.member_id == "a"
    assert [member.member_id for member in joined.members] == ["a"]
    assert play.group.state is ClassicState.COMPLETING_REBALANCE


def test_newcomer_in_the_initial_delay_draws_it_out_once() -> None:
    play = Play()
    first = play.join(new_id="a")
    play.pass_ms(DELAY_MS - 1)
    second = play.join(new_id="b")
    play.pass_ms(DELAY_MS)
    assert play.answers == {}
    play.pass_ms(1)
    assert play.joined(first).members[1].member_id == "b"
    assert play.joined(second).members == ()
    assert play.joined(second).leader_id == "a"


def test_newcomers_draw_the_initial_delay_out_to_the_rebalance_timeout_at_most() -> None:
    play = Play()
    first = play.join(new_id="a", rebalance_ms=10_000)
    for number in range(5):
        play.pass_ms(1_999)
        play.join(new_id=f"b{number}", rebalance_ms=10_000)
    play.pass_ms(4)
    assert play.answers == {}
    play.pass_ms(1)
    assert len(play.joined(first).members) == 6


def test_no_initial_delay_begins_the_generation_at_the_next_tick() -> None:
    play = Play(GroupSettings(initial_rebalance_delay_ms=0))
    ticket = play.join(new_id="a")
    play.pass_ms(0)
    assert play.joined(ticket).generation == 1


def test_all_leave_in_the_initial_delay_and_the_group_is_empty() -> None:
    play = Play()
    ticket = play.join(new_id="a")
    assert play.leave("a") == (None,)
    assert isinstance(play.answers[ticket], UnknownMember)
    assert play.group.state is ClassicState.EMPTY
    assert deadline_of(play.group) is None


def test_new_dynamic_member_is_sent_back_with_its_id_and_then_joins() -> None:
    play = Play()
    refused = play.answers[play.join(new_id="a", must_return=True)]
    assert isinstance(refused, MemberIdRequired)
    assert refused.member_id == "a"
    assert play.group.members == {}
    ticket = play.join("a", new_id="other")
    play.pass_ms(DELAY_MS)
    assert play.joined(ticket).member_id == "a"


def test_pending_member_that_does_not_return_is_forgotten() -> None:
    play = Play()
    play.join(new_id="a", must_return=True)
    play.pass_ms(SESSION_MS)
    assert play.is_gone
    assert isinstance(play.answers[play.join("a")], UnknownMember)


def test_rebalance_waits_for_a_pending_member_until_it_expires() -> None:
    play = Play()
    play.stable("a")
    play.join(new_id="b", must_return=True, session_ms=8_000)
    ticket = play.join("a")
    assert ticket not in play.answers
    play.pass_ms(7_999)
    assert ticket not in play.answers
    play.pass_ms(1)
    assert play.joined(ticket).generation == 2


def test_pending_member_leaves_and_the_rebalance_goes_on() -> None:
    play = Play()
    play.stable("a")
    play.join(new_id="b", must_return=True)
    ticket = play.join("a")
    assert play.leave("b") == (None,)
    assert play.joined(ticket).generation == 2


def test_pending_member_leaves_a_stable_group_and_nothing_happens() -> None:
    play = Play()
    play.stable("a")
    play.join(new_id="b", must_return=True)
    assert play.leave("b") == (None,)
    assert play.group.state is ClassicState.STABLE


def test_unknown_member_id_is_refused() -> None:
    play = Play()
    play.stable("a")
    assert isinstance(play.answers[play.join("z")], UnknownMember)


def test_pending_id_used_with_a_static_identity_is_refused() -> None:
    play = Play()
    play.join(new_id="a", must_return=True)
    assert isinstance(play.answers[play.join("a", instance_id="one")], UnknownMember)


def test_new_member_joins_a_stable_group_and_others_must_rejoin() -> None:
    play = Play()
    play.stable("a")
    newcomer = play.join(new_id="b")
    assert isinstance(play.heartbeat("a"), RebalanceInProgress)
    returning = play.join("a")
    assert play.joined(newcomer).generation == play.joined(returning).generation == 2
    assert play.joined(newcomer).leader_id == "a"


def test_member_that_does_not_rejoin_in_time_is_removed() -> None:
    play = Play()
    play.stable("a", "b")
    ticket = play.join(new_id="c")
    play.join("b")
    for _ in range(REBALANCE_MS // 5000):
        play.heartbeat("a")
        play.pass_ms(5000)
    joined = play.joined(ticket)
    assert joined.generation == 2
    assert joined.leader_id == "b"
    assert set(play.group.members) == {"b", "c"}


def test_longest_rebalance_timeout_of_all_members_counts() -> None:
    play = Play()
    play.join(new_id="a", rebalance_ms=20_000)
    play.join(new_id="b", rebalance_ms=40_000)
    play.pass_ms(DELAY_MS * 2)
    play.settle("a", "b")
    play.join("a", rebalance_ms=20_000)
    assert play.group.join_deadline_ms == play.now_ms + 40_000


def test_newcomer_whose_process_is_gone_is_removed_while_it_waits() -> None:
    play = Play()
    play.stable("a")
    ticket = play.join(new_id="b", rebalance_ms=10 * 60_000)
    for _ in range(5 * 60 // 5):
        play.heartbeat("a")
        play.pass_ms(5000)
    assert isinstance(play.answers[ticket], UnknownMember)
    assert play.group.state is ClassicState.PREPARING_REBALANCE
    assert set(play.group.members) == {"a"}


def test_waiting_member_has_no_session_to_lose() -> None:
    play = Play()
    play.stable("a", "b")
    ticket = play.join("a", supported=protocols("range", metadata=b"other"))
    for _ in range(8):
        play.pass_ms(5000)
        play.heartbeat("b")
    assert ticket not in play.answers
    play.join("b")
    assert play.joined(ticket).generation == 2


def test_join_sent_again_answers_the_first_and_waits_in_its_place() -> None:
    play = Play()
    play.stable("a", "b")
    first = play.join("a", supported=protocols("range", metadata=b"other"))
    second = play.join("a")
    assert isinstance(play.answers[first], RebalanceInProgress)
    play.join("b")
    assert play.joined(second).generation == 2


def test_newcomer_that_joins_again_keeps_its_long_wait() -> None:
    play = Play()
    play.stable("a")
    play.join(new_id="b")
    second = play.join("b")
    for _ in range(4):
        play.pass_ms(5000)
        play.heartbeat("a")
    assert second not in play.answers
    assert "b" in play.group.members


def test_follower_rejoins_unchanged_and_is_told_of_the_running_generation() -> None:
    play = Play()
    play.stable("a", "b")
    joined = play.joined(play.join("b"))
    assert joined.generation == 1
    assert joined.members == ()
    assert play.group.state is ClassicState.STABLE


def test_follower_rejoins_with_another_subscription_and_the_group_rebalances() -> None:
    play = Play()
    play.stable("a", "b")
    play.join("b", supported=protocols("range", metadata=b"more topics"))
    assert play.group.state is ClassicState.PREPARING_REBALANCE


def test_leader_rejoins_unchanged_and_the_group_rebalances() -> None:
    play = Play()
    play.stable("a", "b")
    play.join("a")
    assert play.group.state is ClassicState.PREPARING_REBALANCE


def test_leader_that_missed_the_answer_is_told_again_before_it_synced() -> None:
    play = Play()
    play.join(new_id="a")
    play.pass_ms(DELAY_MS)
    again = play.joined(play.join("a"))
    assert again.generation == 1
    assert [member.member_id for member in again.members] == ["a"]
    assert play.group.state is ClassicState.COMPLETING_REBALANCE


def test_changed_member_while_others_wait_for_the_leader_sends_them_back() -> None:
    play = Play()
    play.join(new_id="a")
    play.join(new_id="b")
    play.pass_ms(DELAY_MS * 2)
    waiting = play.sync("b")
    play.join("a", supported=protocols("range", metadata=b"other"))
    assert isinstance(play.answers[waiting], RebalanceInProgress)
    assert play.group.state is ClassicState.PREPARING_REBALANCE


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001])
def test_session_timeout_outside_the_limits_is_refused(session_ms: int) -> None:
    play = Play()
    answer = play.answers[play.join(new_id="a", session_ms=session_ms)]
    assert isinstance(answer, InvalidTimeout)
    assert play.is_gone


def test_member_without_a_common_protocol_is_refused() -> None:
    play = Play()
    play.stable("a")
    for ticket in (
        play.join(new_id="b", supported=protocols("sticky")),
        play.join(new_id="b", protocol_type="connect"),
        play.join("a", supported=protocols("sticky")),
    ):
        assert isinstance(play.answers[ticket], InconsistentProtocol)
    assert play.group.state is ClassicState.STABLE


@pytest.mark.parametrize("names", [(), ("range",)])
def test_first_member_needs_a_protocol_and_a_type(names: tuple[str, ...]) -> None:
    play = Play()
    ticket = play.join(new_id="a", supported=protocols(*names), protocol_type="")
    assert isinstance(play.answers[ticket], InconsistentProtocol)
    assert play.is_gone


def test_protocol_of_most_votes_among_the_common_ones_is_chosen() -> None:
    play = Play()
    play.join(new_id="a", supported=protocols("range", "sticky", "cooperative"))
    play.join(new_id="b", supported=protocols("cooperative", "sticky", "own"))
    ticket = play.join(new_id="c", supported=protocols("cooperative", "range", "sticky"))
    play.pass_ms(DELAY_MS * 3)
    assert play.joined(ticket).protocol_name == "cooperative"


def test_rolling_change_of_protocol_ends_with_the_new_one() -> None:
    """As KIP-429 has it: first all support both, then each drops the old one."""
    play = Play()
    both, new = protocols("range", "cooperative"), protocols("cooperative")
    play.join(new_id="a", supported=both)
    play.join(new_id="b", supported=both)
    play.pass_ms(DELAY_MS * 2)
    play.settle("a", "b")
    assert play.group.protocol_name == "range"
    play.join("a", supported=new)
    ticket = play.join("b", supported=both)
    assert play.joined(ticket).protocol_name == "cooperative"


def test_full_group_refuses_newcomers_and_takes_members_back() -> None:
    play = Play(GroupSettings(initial_rebalance_delay_ms=DELAY_MS, max_size=2))
    play.stable("a", "b")
    assert isinstance(play.answers[play.join(new_id="c")], GroupFull)
    play.join("a")
    ticket = play.join("b")
    assert play.joined(ticket).generation == 2


def test_pending_member_that_finds_the_group_full_is_not_waited_for() -> None:
    play = Play(GroupSettings(initial_rebalance_delay_ms=DELAY_MS, max_size=1))
    play.join(new_id="a")
    play.join(new_id="b", must_return=True)
    assert isinstance(play.answers[play.join("b")], GroupFull)
    assert play.group.pending == {}


def test_restarted_static_member_goes_on_in_a_stable_group() -> None:
    play = Play()
    play.stable("a", "b", b="two")
    joined = play.joined(play.join(new_id="b2", instance_id="two"))
    assert joined.generation == 1
    assert joined.members == ()
    assert joined.leader_id == "a"
    assert play.synced(play.sync("b2", instance_id="two")).assignment == b"b"
    assert isinstance(play.heartbeat("b", instance_id="two"), FencedInstance)
    assert isinstance(play.heartbeat("b"), UnknownMember)
    play.restart()
    assert set(play.group.members) == {"a", "b2"}


def test_restarted_static_leader_may_skip_the_assignment() -> None:
    play = Play()
    play.stable("a", "b", a="one")
    joined = play.joined(play.join(new_id="a2", instance_id="one"))
    assert joined.skip_assignment
    assert joined.leader_id == "a2"
    assert [member.member_id for member in joined.members] == ["a2", "b"]
    assert play.group.state is ClassicState.STABLE


def test_restarted_static_leader_that_cannot_skip_is_told_that_it_follows() -> None:
    play = Play()
    play.stable("a", "b", a="one")
    joined = play.joined(play.join(new_id="a2", instance_id="one", may_skip=False))
    assert not joined.skip_assignment
    assert joined.leader_id == "a"
    assert joined.members == ()
    assert play.synced(play.sync("a2", instance_id="one")).assignment == b"a"
    assert play.group.leader_id == "a2"


def test_restarted_static_member_with_another_vote_rebalances_the_group() -> None:
    play = Play()
    play.join(new_id="a", supported=protocols("range", "sticky"), instance_id="one")
    play.pass_ms(DELAY_MS)
    play.settle("a")
    supported = protocols("sticky", "range")
    joined = play.joined(play.join(new_id="a2", instance_id="one", supported=supported))
    assert joined.generation == 2
    assert joined.protocol_name == "sticky"


def test_duplicate_static_member_fences_the_one_that_waits_to_join() -> None:
    play = Play()
    first = play.join(new_id="a", instance_id="one")
    second = play.join(new_id="a2", instance_id="one")
    assert isinstance(play.answers[first], FencedInstance)
    play.pass_ms(DELAY_MS * 2)
    assert play.joined(second).member_id == "a2"


def test_duplicate_static_member_fences_the_one_that_waits_to_sync() -> None:
    play = Play()
    play.join(new_id="a")
    play.join(new_id="b", instance_id="two")
    play.pass_ms(DELAY_MS * 2)
    waiting = play.sync("b", instance_id="two")
    play.join(new_id="b2", instance_id="two")
    assert isinstance(play.answers[waiting], FencedInstance)
    assert play.group.state is ClassicState.PREPARING_REBALANCE


def test_static_member_that_misses_a_rebalance_stays_until_its_session_ends() -> None:
    play = Play()
    play.stable("a", "b", b="two")
    ticket = play.join("a")
    play.heartbeat("b")
    play.pass_ms(SESSION_MS - 1)
    assert ticket not in play.answers
    play.pass_ms(1)
    assert play.joined(ticket).generation == 2
    assert set(play.group.members) == {"a"}


def test_static_member_kept_over_a_rebalance_can_return_under_its_identity() -> None:
    play = Play()
    play.join(new_id="a", rebalance_ms=6_000)
    play.join(new_id="b", instance_id="two", rebalance_ms=6_000)
    play.pass_ms(DELAY_MS * 2)
    play.settle("a", "b")
    ticket = play.join("a", rebalance_ms=6_000)
    play.pass_ms(6_000)
    assert [member.member_id for member in play.joined(ticket).members] == ["a", "b"]


def test_no_static_member_rejoins_and_the_rebalance_is_tried_again() -> None:
    play = Play()
    play.stable("a", "b", a="one", b="two")
    play.leave("a")
    assert play.group.state is ClassicState.PREPARING_REBALANCE
    for _ in range(REBALANCE_MS // 5000 + 1):
        play.heartbeat("b")
        play.pass_ms(5000)
    assert play.group.state is ClassicState.PREPARING_REBALANCE
    assert play.joined(play.join("b", instance_id="two")).generation == 2


def test_rebalance_timeout_of_nothing_does_not_tick_without_end() -> None:
    play = Play()
    play.stable("a", "b", a="one", b="two")
    hasty = {name: m._replace(rebalance_timeout_ms=0) for name, m in play.group.members.items()}
    play._group = play.group._replace(members=hasty)
    play.leave("a")
    play.pass_ms(0)
    deadline_ms = deadline_of(play.group)
    assert deadline_ms is not None
    assert deadline_ms > play.now_ms


def test_ids_that_never_come_back_push_out_the_oldest() -> None:
    play = Play()
    for number in range(5002):
        play.join(new_id=f"m{number}", must_return=True)
    assert list(play.group.pending) == [f"m{number}" for number in range(2, 5002)]
    late = play.join("m0")
    assert isinstance(play.answers[late], UnknownMember)
    in_time = play.join("m2")
    assert in_time not in play.answers
