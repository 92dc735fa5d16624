"""Settings of consumer groups."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.errors import InvalidSetting
from millstream.settings.declaration import check, setting
from millstream.settings.domain import INT_MAX, LONG_MAX, OneOf, Whole

_WEEK_MINUTES = 7 * 24 * 60


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """How long members may be silent, and how long offsets are kept."""

    min_session_timeout_ms: int = setting(
        "group.min.session.timeout.ms",
        6000,
        Whole(1, INT_MAX),
        "Shortest session timeout that a classic member may ask for.",
    )
    max_session_timeout_ms: int = setting(
        "group.max.session.timeout.ms",
        1_800_000,
        Whole(1, INT_MAX),
        "Longest session timeout that a classic member may ask for.",
    )
    initial_rebalance_delay_ms: int = setting(
        "group.initial.rebalance.delay.ms",
        100,
        Whole(0, INT_MAX),
        "How long the first rebalance of an empty group waits for more members.",
    )
    max_size: int = setting(
        "group.max.size",
        10_000,
        Whole(1, INT_MAX),
        "Most members that a group may have.",
    )
    member_max_bytes: int = setting(
        "millstream.group.member.max.bytes",
        1024 * 1024,
        Whole(1024, INT_MAX),
        "Most bytes that one member may have in a group: its metadata, or its assignment.",
    )
    groups_max_bytes: int = setting(
        "millstream.groups.max.bytes",
        128 * 1024 * 1024,
        Whole(1024, LONG_MAX),
        "Most memory that members, subscriptions and committed offsets of all groups may take; "
        "what needs more is refused.",
    )
    configured_max_count: int = setting(
        "millstream.groups.configured.max.count",
        1000,
        Whole(0, INT_MAX),
        "Most groups that may have settings of their own.",
    )
    offsets_retention_minutes: int = setting(
        "offsets.retention.minutes",
        _WEEK_MINUTES,
        Whole(1, INT_MAX),
        "Offsets of a group without members are forgotten after this time.",
    )
    offsets_retention_check_ms: int = setting(
        "offsets.retention.check.interval.ms",
        600_000,
        Whole(1, LONG_MAX),
        "Time between two looks for offsets to forget.",
    )
    offset_metadata_max_bytes: int = setting(
        "offset.metadata.max.bytes",
        4096,
        Whole(0, INT_MAX),
        "Longest text that may be committed with an offset.",
    )
    consumer_session_timeout_ms: int = setting(
        "group.consumer.session.timeout.ms",
        45_000,
        Whole(1, INT_MAX),
        "A member of a consumer-protocol group that is silent for this long is removed.",
    )
    consumer_heartbeat_interval_ms: int = setting(
        "group.consumer.heartbeat.interval.ms",
        5000,
        Whole(1, INT_MAX),
        "How often members of consumer-protocol groups are told to heartbeat.",
    )
    consumer_migration_policy: str = setting(
        "group.consumer.migration.policy",
        "bidirectional",
        OneOf(("disabled", "upgrade", "downgrade", "bidirectional")),
        "Which moves between the classic and the consumer protocol a live group may make.",
    )

    def __post_init__(self) -> None:
        check(self)
        if self.min_session_timeout_ms > self.max_session_timeout_ms:
            raise InvalidSetting(
                name="group.min.session.timeout.ms",
                value=self.min_session_timeout_ms,
                expected="no more than group.max.session.timeout.ms, "
                f"which is {self.max_session_timeout_ms}",
            )
