"""What is stored of consumer groups: round trips, one known set of bytes, and any order."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import MalformedMessage
from millstream.groups.commands import SupportedProtocol
from millstream.groups.consumer_group import (
    ClassicMembership,
    ConsumerGroup,
    CurrentAssignment,
    MemberMetadata,
    MemberState,
    deadline_of,
)
from millstream.groups.consumer_records import (
    ConsumerRecord,
    CurrentRecord,
    GroupEpoch,
    GroupEpochRecord,
    MemberRecord,
    TargetEpochRecord,
    TargetRecord,
    apply,
    records_between,
    restored,
)
from millstream.groups.consumer_records_format import CURRENT_KEY, DECODERS, ENCODERS
from millstream.groups.consumer_transitions import deleted
from millstream.groups.group_records_format import number_of
from tests.fakes.consumer_play import REBALANCE_MS, SESSION_MS, SETTINGS, ConsumerPlay

names = st.text(max_size=5)
maybe_names = st.none() | st.text(min_size=1, max_size=5)
epochs = st.integers(-2, 2**31 - 1)
partitions = st.dictionaries(
    st.binary(min_size=16, max_size=16), st.frozensets(st.integers(0, 2**31 - 1), min_size=1)
)
protocols = st.lists(st.builds(SupportedProtocol, names, st.binary())).map(tuple)
members = st.builds(
    MemberMetadata,
    instance_id=maybe_names,
    rack_id=maybe_names,
    client_id=names,
    client_host=names,
    topics=st.frozensets(names),
    regex=maybe_names,
    rebalance_timeout_ms=st.integers(-1, 2**31 - 1),
    assignor=maybe_names,
    classic=st.none() | st.builds(ClassicMembership, st.integers(0, 2**31 - 1), protocols),
)
currents = st.builds(
    CurrentAssignment,
    epoch=epochs,
    previous_epoch=epochs,
    state=st.sampled_from(MemberState),
    assigned=partitions,
    revoking=partitions,
)
hashes = st.integers(-(2**63), 2**63 - 1)
records = st.one_of(
    st.builds(GroupEpochRecord, names, st.none() | st.builds(GroupEpoch, epochs, hashes)),
    st.builds(MemberRecord, names, names, st.none() | members),
    st.builds(TargetEpochRecord, names, st.none() | epochs),
    st.builds(TargetRecord, names, names, st.none() | partitions),
    st.builds(CurrentRecord, names, names, st.none() | currents),
)


@given(records)
def test_record_survives_being_written(record: ConsumerRecord) -> None:
    key, value = ENCODERS[type(record)](record)
    assert DECODERS[number_of(key)](key, value) == record


def test_bytes_are_those_of_kafka() -> None:
    record = CurrentRecord(
        "g",
        "m",
        CurrentAssignment(
            epoch=3,
            previous_epoch=2,
            state=MemberState.UNRELEASED_PARTITIONS,
            assigned={b"t" * 16: frozenset({1, 0})},
        ),
    )
    key, value = ENCODERS[CurrentRecord](record)
    assert key == b"\x00\x08\x00\x01g\x00\x01m"
    assert value == (
        b"\x00\x00"  # version
        b"\x00\x00\x00\x03" b"\x00\x00\x00\x02" b"\x02"  # epochs and state
        b"\x02" b"tttttttttttttttt" b"\x03\x00\x00\x00\x00\x00\x00\x00\x01" b"\x00"
        b"\x01"  # nothing to give up
        b"\x00"
    )  # fmt: skip
    epoch = GroupEpochRecord("g", GroupEpoch(7, 1))
    key, value = ENCODERS[GroupEpochRecord](epoch)
    assert key == b"\x00\x03\x00\x01g"
    hash_tag = b"\x01\x00\x08\x00\x00\x00\x00\x00\x00\x00\x01"
    assert value == b"\x00\x00\x00\x00\x00\x07" + hash_tag


def test_values_that_we_do_not_know_are_refused() -> None:
    key, value = ENCODERS[CurrentRecord](CurrentRecord("g", "m", CurrentAssignment()))
    assert value is not None
    with pytest.raises(MalformedMessage):
        DECODERS[CURRENT_KEY](key, b"\x00\x01" + value[2:])
    with pytest.raises(MalformedMessage):
        DECODERS[CURRENT_KEY](key, value[:10] + b"\x09" + value[11:])


def _grown() -> ConsumerGroup:
    play = ConsumerPlay(a=4, b=2)
    play.join("m1", "a", "b", instance_id="i1")
    play.join("m2", "a")
    play.beat("m1", 1, instance_id="i1")
    return play.group


def _without_deadlines(group: ConsumerGroup | None) -> ConsumerGroup:
    assert group is not None
    quiet = {
        m: replace(member, session_deadline_ms=0, rebalance_deadline_ms=None)
        for m, member in group.members.items()
    }
    return replace(group, members=quiet)


@given(st.permutations(records_between(None, _grown())))
def test_records_of_a_group_can_come_in_any_order(shuffled: list[ConsumerRecord]) -> None:
    group = None
    for record in shuffled:
        group = apply(group, record)
    assert _without_deadlines(group) == _without_deadlines(_grown())


def test_deleted_group_leaves_nothing() -> None:
    play = ConsumerPlay()
    play.join("m1")
    stored = list(play.records)
    play.beat("m1", -1)
    stored += play.records
    stored += deleted(play.group).records
    group = None
    for record in stored:
        assert isinstance(record, ConsumerRecord)
        group = apply(group, record)
    assert group is None
    newest = {ENCODERS[type(record)](record)[0]: record for record in stored}
    assert all(record.value is None for record in newest.values())  # type: ignore[attr-defined]


def test_tombstones_of_unknown_groups_are_passed_over() -> None:
    assert apply(None, MemberRecord("g", "m", None)) is None
    assert apply(None, GroupEpochRecord("g", None)) is None


def test_members_get_their_whole_time_after_a_restart() -> None:
    group = _without_deadlines(_grown())
    back = restored(group, 5000, SETTINGS)
    assert {m.session_deadline_ms for m in back.members.values()} == {5000 + SESSION_MS}
    assert back.members["m1"].current.state is MemberState.UNREVOKED_PARTITIONS
    assert back.members["m1"].rebalance_deadline_ms == 5000 + REBALANCE_MS
    assert back.members["m2"].rebalance_deadline_ms is None
    assert deadline_of(back) == 5000 + SESSION_MS
    assert _without_deadlines(back) == group


def test_restart_alone_begins_no_epoch() -> None:
    play = ConsumerPlay(a=4)
    play.join("m1")
    play.any_group = restored(replace(play.group, topics_seen=None), play.now_ms, SETTINGS)
    assert play.beat("m1", 1).assignment is None
    assert play.records == []
