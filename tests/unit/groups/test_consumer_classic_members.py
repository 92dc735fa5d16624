"""Classic members inside a consumer group: they join, sync and heartbeat as they always did."""

from __future__ import annotations

import pytest

from millstream.errors import (
    FencedInstance,
    GroupFull,
    IllegalGeneration,
    InconsistentProtocol,
    InvalidTimeout,
    MalformedMessage,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMember,
)
from millstream.groups.commands import Joined, Leaver, Left, Synced
from millstream.groups.consumer_embedded_protocol import (
    read_assignment,
    read_subscription,
    write_assignment,
)
from millstream.groups.consumer_group import MemberState
from millstream.groups.consumer_partitions import Partitions
from millstream.settings.groups import GroupSettings
from tests.fakes.consumer_play import (
    REBALANCE_MS,
    ConsumerPlay,
    partitions_of,
    subscription,
    topics_of,
)


def assigned(play: ConsumerPlay, member_id: str, generation: int) -> Partitions:
    synced = play.answer(play.classic_sync(member_id, generation))
    assert isinstance(synced, Synced)
    return read_assignment(synced.assignment, play.topics)


@pytest.fixture
def play() -> ConsumerPlay:
    """new speaks the consumer protocol, old the classic one; each has two partitions."""
    play = ConsumerPlay(a=4)
    play.join("new")
    joined = play.answer(play.classic_join("", subscription("a"), new_member_id="old"))
    assert joined == Joined(2, "consumer", "cooperative-sticky", "", "old", ())
    assert assigned(play, "old", 2) == {}
    play.settle("new")
    with pytest.raises(RebalanceInProgress):
        play.answer(play.classic_beat("old", 2))
    assert play.answer(play.classic_join("old", subscription("a"))).generation == 2
    assert assigned(play, "old", 2) == partitions_of(a={2, 3})
    assert play.state == "Stable"
    return play


def test_quiet_member_is_told_that_all_is_well(play: ConsumerPlay) -> None:
    assert play.answer(play.classic_beat("old", 2)) is None
    assert play.records == []
    assert play.member("old").session_deadline_ms == play.now_ms + 10_000
    assert play.member("old").rebalance_deadline_ms is None


def test_grown_topic_is_noticed_by_a_heartbeat(play: ConsumerPlay) -> None:
    play.topics = topics_of(a=5)
    with pytest.raises(RebalanceInProgress):
        play.answer(play.classic_beat("old", 2))
    assert play.group.epoch == 3
    assert play.records


def test_member_that_waits_for_others_is_not_sent_to_join() -> None:
    play = ConsumerPlay(a=4)
    play.join("new")
    play.answer(play.classic_join("", subscription("a"), new_member_id="old"))
    assert assigned(play, "old", 2) == {}
    assert play.member("old").current.state is MemberState.UNRELEASED_PARTITIONS
    assert play.answer(play.classic_beat("old", 2)) is None
    play.beat("new", 1)
    assert play.answer(play.classic_beat("old", 2)) is None
    play.beat("new", 1, owned=partitions_of(a={0, 1}))
    with pytest.raises(RebalanceInProgress):
        play.answer(play.classic_beat("old", 2))


def test_cooperative_member_gives_up_in_two_steps(play: ConsumerPlay) -> None:
    play.join("new2")
    play.settle("new", "new2")
    with pytest.raises(RebalanceInProgress):
        play.answer(play.classic_beat("old", 2))
    owning = subscription("a", a={2, 3})
    assert play.answer(play.classic_join("old", owning)).generation == 2
    assert play.member("old").current.state is MemberState.UNREVOKED_PARTITIONS
    kept = assigned(play, "old", 2)
    assert kept == partitions_of(a={2})
    assert play.beat("new2", 3).assignment is None
    with pytest.raises(RebalanceInProgress):
        play.answer(play.classic_beat("old", 2))
    assert play.answer(play.classic_join("old", subscription("a", a={2}))).generation == 3
    assert assigned(play, "old", 3) == kept
    assert play.beat("new2", 3).assignment == partitions_of(a={3})
    assert play.state == "Stable"


def test_eager_member_gives_up_by_joining(play: ConsumerPlay) -> None:
    play.join("new2")
    play.settle("new", "new2")
    assert play.answer(play.classic_join("old", subscription("a", version=0))).generation == 3
    assert assigned(play, "old", 3) == partitions_of(a={2})
    assert play.beat("new2", 3).assignment == partitions_of(a={3})


def test_member_that_syncs_too_late_joins_again(play: ConsumerPlay) -> None:
    play.answer(play.classic_join("old", subscription("a", a={2, 3})))
    play.join("new2")
    with pytest.raises(RebalanceInProgress):
        play.answer(play.classic_sync("old", 2))


def test_member_that_does_not_join_in_time_is_removed(play: ConsumerPlay) -> None:
    play.join("new2")
    for _ in range(9):
        with pytest.raises(RebalanceInProgress):
            play.answer(play.classic_beat("old", 2))
        play.settle("new", "new2")
        play.pass_time(REBALANCE_MS // 8)
        if "old" not in play.group.members:
            break
    assert "old" not in play.group.members


def test_member_that_does_not_sync_in_time_is_removed(play: ConsumerPlay) -> None:
    play.answer(play.classic_join("old", subscription("a", a={2, 3})))
    for _ in range(8):
        play.answer(play.classic_beat("old", 2))
        play.beat("new", play.member("new").current.epoch)
        play.pass_time(REBALANCE_MS // 8)
    assert "old" not in play.group.members


def test_silent_member_is_removed_after_its_own_session(play: ConsumerPlay) -> None:
    play.pass_time(9_999)
    assert "old" in play.group.members
    play.pass_time(1)
    assert set(play.group.members) == {"new"}


def test_member_leaves(play: ConsumerPlay) -> None:
    left = play.answer(
        play.classic_leave(Leaver("old", None), Leaver("old", None), Leaver("new", None))
    )
    assert isinstance(left, Left)
    assert [type(error) for error in left.results] == [type(None), UnknownMember, UnknownMember]
    assert set(play.group.members) == {"new"}
    assert play.beat("new", 2).assignment == partitions_of(a={0, 1, 2, 3})


def test_static_member_is_replaced_by_its_new_process(play: ConsumerPlay) -> None:
    data = subscription("a")
    play.answer(play.classic_join("", data, instance_id="i1", new_member_id="s1"))
    target = play.group.target["s1"]
    play.answer(play.classic_join("", data, instance_id="i1", new_member_id="s2"))
    assert "s1" not in play.group.members
    assert play.member("s2").metadata.instance_id == "i1"
    assert play.group.target["s2"] == target
    with pytest.raises(FencedInstance):
        play.answer(play.classic_beat("s1", 3, instance_id="i1"))
    with pytest.raises(FencedInstance):
        play.answer(play.classic_join("s1", data, instance_id="i1"))
    left = play.answer(play.classic_leave(Leaver("", "i1"), Leaver("", "i2")))
    assert left.results[0] is None
    assert isinstance(left.results[1], UnknownMember)


def test_what_is_wrong_is_said(play: ConsumerPlay) -> None:
    data = subscription("a")
    cases: list[tuple[int, type[Exception]]] = [
        (play.classic_beat("old", 1), IllegalGeneration),
        (play.classic_beat("nobody", 2), UnknownMember),
        (play.classic_beat("new", 2), UnknownMember),
        (play.classic_sync("old", 2, protocol_name="range"), InconsistentProtocol),
        (play.classic_sync("old", 2, protocol_type="connect"), InconsistentProtocol),
        (play.classic_join("new", data), UnknownMember),
        (play.classic_join("", data, must_return=True), MemberIdRequired),
        (play.classic_join("", data, protocol="range"), InconsistentProtocol),
        (play.classic_join("", data, protocol_type="connect"), InconsistentProtocol),
        (play.classic_join("", b""), InconsistentProtocol),
        (play.classic_join("", data, session_timeout_ms=1), InvalidTimeout),
        (play.classic_join("back", subscription("a", a={0})), UnknownMember),
    ]
    for ticket, error in cases:
        with pytest.raises(error):
            play.answer(ticket)
    assert play.group.epoch == 2


def test_group_takes_no_more_members_than_it_may() -> None:
    play = ConsumerPlay(GroupSettings(max_size=1), a=1)
    play.join("new")
    with pytest.raises(GroupFull):
        play.answer(play.classic_join("", subscription("a")))


# What is embedded


def test_subscription_of_a_newer_version_is_read_as_the_newest_known() -> None:
    data = b"\x00\x09" + subscription("a", version=3, a={1})[2:] + b"more"
    parsed = read_subscription(data)
    assert parsed.version == 3
    assert parsed.topics == {"a"}
    assert list(parsed.owned["a"]) == [1]


def test_subscription_that_is_older_than_it_says_is_read() -> None:
    data = b"\x00\x01" + subscription("a", version=0)[2:]
    assert read_subscription(data).topics == {"a"}


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff\xff", b"\x00\x00\x00"])
def test_what_is_no_subscription_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        read_subscription(data)


def test_assignment_survives_being_written() -> None:
    topics = topics_of(a=3, b=1)
    partitions = partitions_of(a={0, 2}, b={0})
    data = write_assignment(partitions, topics, version=1)
    assert read_assignment(data, topics) == partitions
    assert read_assignment(data, topics_of(b=1)) == partitions_of(b={0})
    assert read_assignment(b"", topics) == {}
