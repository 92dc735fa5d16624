"""Who may commit, when offsets are forgotten, and how they are stored."""

from __future__ import annotations

import pytest

from millstream.errors import (
    FencedInstance,
    IllegalGeneration,
    MalformedMessage,
    MetadataTooLarge,
    NonEmptyGroup,
    RebalanceInProgress,
    UnknownMember,
)
from millstream.groups.group_records import (
    Committed,
    GroupMetadata,
    GroupTombstone,
    MemberMetadata,
    OffsetCommitted,
    OffsetTombstone,
)
from millstream.groups.group_records_format import DECODERS, ENCODERS, number_of
from millstream.groups.offsets import (
    Committer,
    OffsetToCommit,
    TopicPartition,
    Usage,
    apply_offset,
    commit_records,
    commit_refusal,
    deletion_refusal,
    expired,
    metadata_refusal,
    transactional_commit_refusal,
    usage_of,
)
from tests.fakes.classic_play import DELAY_MS, Play

DAY_MS = 86_400_000
NOBODY = Committer("", None, -1)


def committed(at_ms: int = 0, *, offset: int = 7, expire_ms: int = -1) -> Committed:
    return Committed(offset, 3, "note", at_ms, expire_ms)


def test_member_commits_in_its_generation() -> None:
    play = Play()
    play.stable("a", "b", b="two")
    assert commit_refusal(play.group, Committer("a", None, 1)) is None
    assert commit_refusal(play.group, Committer("b", "two", 1)) is None


def test_static_member_that_was_replaced_commits_no_more_in_transactions_either() -> None:
    play = Play()
    play.stable("a", "b", b="two")
    assert transactional_commit_refusal(play.group, Committer("b", "two", 1)) is None
    refusal = transactional_commit_refusal(play.group, Committer("a", "two", 1))
    assert isinstance(refusal, FencedInstance)
    assert isinstance(commit_refusal(play.group, Committer("a", "two", 1)), FencedInstance)


def test_member_may_commit_while_the_group_prepares_to_rebalance() -> None:
    play = Play()
    play.stable("a", "b")
    play.join("b")
    play.join(new_id="c")
    assert commit_refusal(play.group, Committer("a", None, 1)) is None


def test_commit_between_join_and_sync_is_sent_back() -> None:
    play = Play()
    play.join(new_id="a")
    play.pass_ms(DELAY_MS)
    refusal = commit_refusal(play.group, Committer("a", None, 1))
    assert isinstance(refusal, RebalanceInProgress)


@pytest.mark.parametrize(
    ("committer", "refusal"),
    [
        (Committer("a", None, 0), IllegalGeneration),
        (Committer("a", None, -1), IllegalGeneration),
        (Committer("z", None, 1), UnknownMember),
        (NOBODY, UnknownMember),
    ],
)
def test_commit_beside_the_members_of_a_group_is_refused(
    committer: Committer, refusal: type[Exception]
) -> None:
    play = Play()
    play.stable("a")
    assert isinstance(commit_refusal(play.group, committer), refusal)


def test_anyone_commits_to_an_empty_group() -> None:
    play = Play()
    play.stable("a")
    play.leave("a")
    assert commit_refusal(play.group, NOBODY) is None
    assert isinstance(commit_refusal(play.group, Committer("a", None, 1)), UnknownMember)


def test_metadata_is_limited_in_bytes_not_characters() -> None:
    assert metadata_refusal("üü", 4) is None
    assert isinstance(metadata_refusal("üü", 3), MetadataTooLarge)


def test_applied_records_leave_the_newest_offset_of_each_partition() -> None:
    offsets: dict[TopicPartition, Committed] = {}
    wanted = [OffsetToCommit("t", 0, 5, -1, ""), OffsetToCommit("t", 1, 6, -1, "")]
    for record in commit_records("g", wanted, now_ms=1):
        apply_offset(offsets, record)
    apply_offset(offsets, OffsetCommitted("g", "t", 0, committed(offset=9)))
    apply_offset(offsets, OffsetTombstone("g", "t", 1))
    apply_offset(offsets, OffsetTombstone("g", "t", 2))
    assert {key: value.offset for key, value in offsets.items()} == {("t", 0): 9}


def test_old_client_says_how_long_its_offset_is_kept() -> None:
    [record] = commit_records("g", [OffsetToCommit("t", 0, 5, -1, "")], now_ms=10, retention_ms=5)
    assert record.committed.expire_timestamp_ms == 15
    offsets = {("t", 0): record.committed}
    assert expired(offsets, Usage(), now_ms=14, retention_ms=DAY_MS) == set()
    assert expired(offsets, Usage(), now_ms=15, retention_ms=DAY_MS) == {("t", 0)}


def test_offsets_of_a_simple_group_expire_from_their_commit() -> None:
    offsets = {("t", 0): committed(at_ms=100), ("t", 1): committed(at_ms=200)}
    usage = usage_of(None)
    assert expired(offsets, usage, now_ms=99 + DAY_MS, retention_ms=DAY_MS) == set()
    assert expired(offsets, usage, now_ms=100 + DAY_MS, retention_ms=DAY_MS) == {("t", 0)}


def test_offsets_of_a_group_expire_from_when_its_last_member_left() -> None:
    play = Play()
    play.stable("a")
    play.leave("a")
    offsets = {("t", 0): committed(at_ms=0)}
    usage = usage_of(play.group)
    end_ms = play.now_ms + DAY_MS
    assert expired(offsets, usage, now_ms=end_ms - 1, retention_ms=DAY_MS) == set()
    assert expired(offsets, usage, now_ms=end_ms, retention_ms=DAY_MS) == {("t", 0)}


def test_offset_reset_long_after_the_last_member_left_is_kept_from_then_on() -> None:
    play = Play()
    play.stable("a")
    play.leave("a")
    reset_ms = play.now_ms + 10 * DAY_MS
    offsets = {("t", 0): committed(at_ms=reset_ms)}
    usage = usage_of(play.group)
    assert expired(offsets, usage, now_ms=reset_ms + DAY_MS - 1, retention_ms=DAY_MS) == set()


def test_offsets_of_a_living_group_do_not_expire() -> None:
    play = Play()
    play.stable("a")
    offsets = {("t", 0): committed(at_ms=0)}
    assert expired(offsets, usage_of(play.group), now_ms=10**15, retention_ms=1) == set()
    play.join("a")
    assert expired(offsets, usage_of(play.group), now_ms=10**15, retention_ms=1) == set()


def test_offsets_of_a_topic_that_no_member_reads_any_more_expire() -> None:
    offsets = {("t", 0): committed(), ("u", 0): committed()}
    usage = Usage(topics=frozenset({"t"}))
    assert expired(offsets, usage, now_ms=DAY_MS, retention_ms=DAY_MS) == {("u", 0)}


def test_offsets_of_a_living_group_that_hides_its_topics_are_not_deleted() -> None:
    play = Play()
    play.join(new_id="a", protocol_type="connect")
    assert isinstance(deletion_refusal(play.group), NonEmptyGroup)
    play.leave("a")
    assert deletion_refusal(play.group) is None


RECORDS = [
    OffsetCommitted("g", "t", 3, Committed(2**40, 5, "mëta", 1_700_000_000_000)),
    OffsetCommitted("g", "t", 3, Committed(1, -1, "", 5, expire_timestamp_ms=9)),
    OffsetTombstone("g", "t", 3),
    GroupTombstone("g"),
    GroupMetadata("g", "", 0, None, None, 12, ()),
    GroupMetadata(
        "g",
        "consumer",
        4,
        "range",
        "m",
        99,
        (
            MemberMetadata("m", "one", "client", "/::1", 300, 100, b"sub", b"ass"),
            MemberMetadata("n", None, "client", "/::1", 0, 100, b"", b""),
        ),
    ),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_record_comes_back_from_its_bytes(record: object) -> None:
    key, value = ENCODERS[type(record)](record)
    assert DECODERS[number_of(key)](key, value) == record


def test_offset_has_the_bytes_that_kafka_writes() -> None:
    key, value = ENCODERS[OffsetCommitted](RECORDS[0])
    assert key == b"\0\1" + b"\0\1g" + b"\0\1t" + b"\0\0\0\3"
    assert value == (
        b"\0\3"
        + (2**40).to_bytes(8, "big")
        + b"\0\0\0\5"
        + b"\0\5"
        + "mëta".encode()
        + (1_700_000_000_000).to_bytes(8, "big")
    )


def test_offset_of_the_newest_kafka_is_read_with_its_topic_id_passed_over() -> None:
    key, _ = ENCODERS[OffsetCommitted](RECORDS[0])
    value = b"\0\4" + (5).to_bytes(8, "big") + b"\0\0\0\1" + b"\2m" + (6).to_bytes(8, "big")
    value += b"\1" + b"\0" + b"\x10" + bytes(range(16))
    record = DECODERS[1](key, value)
    assert record.committed == Committed(5, 1, "m", 6)


def test_group_of_an_old_kafka_gets_its_session_as_rebalance_timeout() -> None:
    value = b"\0\0" + b"\0\1c" + b"\0\0\0\2" + b"\0\1r" + b"\0\1m" + b"\0\0\0\1"
    value += b"\0\1m" + b"\0\1i" + b"\0\1h" + b"\0\0\0\x09" + b"\0\0\0\0" + b"\0\0\0\0"
    record = DECODERS[2](b"\0\2\0\1g", value)
    assert record.state_since_ms == -1
    assert record.members == (MemberMetadata("m", None, "i", "h", 9, 9, b"", b""),)


@pytest.mark.parametrize("value", [b"", b"\0", b"\0\x09", b"\0\3\0", b"\xff\xff"])
def test_value_that_is_none_is_refused(value: bytes) -> None:
    key, _ = ENCODERS[OffsetCommitted](RECORDS[0])
    with pytest.raises(MalformedMessage):
        DECODERS[1](key, value)
