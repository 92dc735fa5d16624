"""Static members of a consumer group: they leave for a while, return, and are kept apart."""

from __future__ import annotations

import pytest

from millstream.errors import FencedInstance, InvalidRequest, UnknownMember, UnreleasedInstance
from tests.fakes.consumer_play import SESSION_MS, ConsumerPlay, partitions_of


@pytest.fixture
def play() -> ConsumerPlay:
    """m1, static as i1, and m2 have two partitions each, in epoch 2."""
    play = ConsumerPlay(a=4)
    play.join("m1", instance_id="i1")
    play.join("m2")
    play.settle("m1", "m2")
    return play


def test_member_that_returns_in_time_finds_its_partitions_under_its_new_id(
    play: ConsumerPlay,
) -> None:
    had = play.member("m1").current.assigned
    assert play.beat("m1", -2, instance_id="i1").member_epoch == -2
    assert play.state == "Reconciling"
    play.pass_time(SESSION_MS - 1)
    play.beat("m2", 2)
    reply = play.join("m3", instance_id="i1")
    assert reply.assignment == had
    assert reply.member_epoch == play.group.epoch == 2
    assert set(play.group.members) == {"m2", "m3"}
    assert set(play.group.target) == {"m2", "m3"}
    assert play.state == "Stable"


def test_member_that_does_not_return_loses_its_partitions(play: ConsumerPlay) -> None:
    play.beat("m1", -2, instance_id="i1")
    play.pass_time(SESSION_MS - 1)
    play.beat("m2", 2)
    play.pass_time(1)
    assert play.beat("m2", 2).assignment == partitions_of(a={0, 1, 2, 3})


def test_member_gives_up_what_it_was_to_give_up_by_leaving(play: ConsumerPlay) -> None:
    play.join("m3")
    play.beat("m1", 2, instance_id="i1")
    play.beat("m1", -2, instance_id="i1")
    assert play.member("m1").current.revoking == {}
    assert play.member("m1").rebalance_deadline_ms is None


def test_identity_in_use_is_not_given_to_another(play: ConsumerPlay) -> None:
    with pytest.raises(UnreleasedInstance):
        play.join("m3", instance_id="i1")


def test_member_joins_again_under_its_own_identity(play: ConsumerPlay) -> None:
    had = play.member("m1").current.assigned
    assert play.join("m1", instance_id="i1").assignment == had


def test_identity_is_not_taken_under_the_id_of_another_member(play: ConsumerPlay) -> None:
    play.beat("m1", -2, instance_id="i1")
    with pytest.raises(InvalidRequest):
        play.join("m2", instance_id="i1")


def test_id_of_a_static_member_does_not_join_without_its_identity(play: ConsumerPlay) -> None:
    with pytest.raises(UnknownMember):
        play.join("m1")


def test_member_that_was_replaced_is_fenced(play: ConsumerPlay) -> None:
    play.beat("m1", -2, instance_id="i1")
    play.join("m3", instance_id="i1")
    with pytest.raises(FencedInstance):
        play.beat("m1", 2, instance_id="i1")
    with pytest.raises(FencedInstance):
        play.beat("m1", -2, instance_id="i1")


def test_member_that_has_left_is_unknown_until_it_joins(play: ConsumerPlay) -> None:
    play.beat("m1", -1, instance_id="i1")
    assert set(play.group.members) == {"m2"}
    with pytest.raises(UnknownMember):
        play.beat("m1", 2, instance_id="i1")
    with pytest.raises(UnknownMember):
        play.beat("m1", -2, instance_id="i1")


def test_member_that_returns_with_another_subscription_begins_an_epoch(play: ConsumerPlay) -> None:
    play.beat("m1", -2, instance_id="i1")
    assert play.join("m3", "b", instance_id="i1").assignment == {}
    assert play.group.epoch == 3
    assert play.beat("m2", 2).assignment == partitions_of(a={0, 1, 2, 3})
