"""Shapes of requests and answers, as the OpenAPI document shows them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from millstream.gateways.http.message_ids import PATTERN
from millstream.settings.topics import MAX_PARTITIONS

LONG_MAX = 2**63 - 1

Whole = Annotated[int, Field(ge=0, le=LONG_MAX)]
Encoding = Literal["text", "base64"]
MOST_PARTITIONS = 1000
"""More than can be made while a client waits are for Kafka's tools."""
PartitionCount = Annotated[
    int,
    Field(
        ge=1,
        le=MOST_PARTITIONS,
        description="If left out, as many as the broker is set to. Kafka's tools can make more.",
    ),
]
MOST_OFFSETS = 1000
"""In one request: they are committed all at once, and everybody waits for that."""
MOST_SETTINGS = 1000
PartitionNumber = Annotated[int, Field(ge=0, le=MAX_PARTITIONS)]
MessageId = Annotated[
    str,
    Field(pattern=PATTERN, max_length=40, description="A message_id, or PARTITION:OFFSET."),
]


class Strict(BaseModel):
    """Of requests: a name that nothing has is refused, so that a typo is told."""

    model_config = ConfigDict(extra="forbid")


class Problem(BaseModel):
    """What went wrong (RFC 9457)."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str


# Messages


class NewMessage(Strict):
    """A message to send: `value`, or `data` or `message` for clients of other systems."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"value": "hello", "key": "en", "headers": {"source": "docs"}}],
            "oneOf": [
                {"required": ["value"]},
                {"required": ["data"]},
                {"required": ["message"]},
            ],
        }
    )

    value: Any = Field(default=None, description="Text; null; or JSON, stored as its text.")
    data: str = Field(default="", description="The value, as Mini Pulsar calls it.")
    message: str = Field(default="", description="The value, as FastQueue2 calls it.")
    key: str | None = None
    headers: dict[str, Any] | None = None
    partition: PartitionNumber | None = None
    timestamp: Whole | None = Field(default=None, description="Milliseconds since the epoch.")
    deliver_at: Whole | None = Field(
        default=None, description="When subscriptions hand it out: milliseconds since the epoch."
    )
    deliver_after: Whole | None = Field(
        default=None, description="The same, in milliseconds from now."
    )
    encoding: Literal["text", "base64"] = Field(default="text", description="Of value and key.")


class NewMessages(Strict):
    messages: list[NewMessage]


class Stored(BaseModel):
    """Where a message was stored."""

    message_id: int = Field(description="Partition times 2**46, plus offset.")
    partition: int
    offset: int
    timestamp: int


class StoredMany(BaseModel):
    """Where messages were stored, in the order in which they were sent."""

    count: int
    messages: list[Stored]


class StoredRange(BaseModel):
    """What a stream of messages added to a partition."""

    partition: int
    count: int
    first_offset: int
    last_offset: int


class StoredStream(BaseModel):
    """What became of a stream; `messages` only for up to 10,000 of them."""

    count: int
    partitions: list[StoredRange]
    messages: list[Stored] | None = None


class Message(BaseModel):
    """A message that was read."""

    message_id: int
    partition: int
    offset: int
    timestamp: int
    key: str | None
    value: str | None
    headers: dict[str, Any]
    encoding: Literal["base64"] | None = None
    key_encoding: Literal["base64"] | None = None


class Messages(BaseModel):
    """Some messages of a partition, and where to read on."""

    topic: str
    partition: int
    messages: list[Message]
    next_offset: int
    start_offset: int
    end_offset: int


class Received(Message):
    """The message at a consumer's cursor."""

    data: str | None


class ReadMessage(Message):
    """A message with the names that FastQueue2 has for its parts."""

    message: str | None


class Done(BaseModel):
    status: Literal["ok"] = "ok"


class Purged(BaseModel):
    """How many messages are gone from a topic that stays."""

    topic: str
    deleted: int


# Topics


class NewTopic(Strict):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"name": "orders", "partitions": 3, "settings": {"retention.ms": 86400000}}
            ]
        },
    )

    name: str
    partitions: PartitionCount | None = None
    settings: dict[str, str | int | float | bool] = Field(
        default_factory=dict, description="By Kafka's names.", max_length=MOST_SETTINGS
    )


class TopicShape(Strict):
    """A topic to create whose name is in the path."""

    partitions: PartitionCount | None = None
    settings: dict[str, str | int | float | bool] = Field(
        default_factory=dict, max_length=MOST_SETTINGS
    )


class TopicChange(Strict):
    """More partitions, other settings, or both; null gives a setting back to the broker."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"settings": {"retention.ms": 3600000}}]},
    )

    partitions: PartitionCount | None = None
    settings: dict[str, str | int | float | bool | None] = Field(
        default_factory=dict, max_length=MOST_SETTINGS
    )


class TopicSummary(BaseModel):
    name: str
    partitions: int
    messages: int = Field(description="End offsets less start offsets.")
    size_bytes: int
    is_internal: bool


class TopicList(BaseModel):
    topics: list[TopicSummary]


class SegmentShape(BaseModel):
    base_offset: int
    next_offset: int
    size_bytes: int
    state: Literal["Active", "Full", "Archived", "Deleted"]


class PartitionShape(BaseModel):
    partition: int
    start_offset: int | None
    end_offset: int | None
    stable_offset: int | None
    size_bytes: int
    segments: list[SegmentShape]
    failure: str | None = Field(description="Why it takes no messages, if so.")


class TopicDescription(TopicSummary):
    topic_id: str
    settings: dict[str, str]
    own_settings: dict[str, str] = Field(description="Those that the topic sets for itself.")
    details: list[PartitionShape]


class OffsetRange(BaseModel):
    partition: int
    start_offset: int
    end_offset: int
    stable_offset: int


class TopicOffsets(BaseModel):
    """The offsets of partition 0 also stand for the whole, as in topics of one partition."""

    topic: str
    start_offset: int
    end_offset: int
    partitions: list[OffsetRange]


# Groups


class GroupSummary(BaseModel):
    group: str
    state: str
    type: str
    protocol_type: str


class GroupList(BaseModel):
    groups: list[GroupSummary]


class PipelineProgress(BaseModel):
    """What a pipeline told of itself, with all that it put in."""

    model_config = ConfigDict(extra="allow")

    pipeline: str
    is_stale: bool = Field(description="It said that it runs, and was silent for long since.")


class PipelineList(BaseModel):
    pipelines: list[PipelineProgress]


class GroupAssignment(BaseModel):
    """Partitions of a topic that a member reads."""

    topic: str
    partitions: list[int]


class GroupMember(BaseModel):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    assignments: list[GroupAssignment]


class GroupOffset(BaseModel):
    topic: str
    partition: int
    offset: int | None = Field(description="The committed offset; null if there is none.")
    metadata: str
    end_offset: int | None
    lag: int | None = Field(
        description="How far behind the end, or all messages of a partition that was never read; "
        "null if the partition no longer exists."
    )
    never_read: bool = Field(description="Whether the group has committed no offset of it.")


class GroupDescription(GroupSummary):
    members: list[GroupMember]
    offsets: list[GroupOffset]
    lag: int = Field(description="Of all partitions of its topics, also those never read.")


class NewOffset(Strict):
    topic: str
    partition: PartitionNumber = 0
    offset: Whole
    metadata: str = ""


class NewOffsets(Strict):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"offsets": [{"topic": "orders", "partition": 0, "offset": 7}]}]
        },
    )

    offsets: Annotated[list[NewOffset], Field(max_length=MOST_OFFSETS)]


class OffsetReset(Strict):
    """Where a group is to read a topic from; all partitions, unless some are named."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"topic": "orders", "to": "earliest"}]},
    )

    topic: str
    partitions: Annotated[list[PartitionNumber], Field(max_length=10_000)] | None = None
    to: Literal["earliest", "latest", "offset", "timestamp"]
    offset: Whole | None = None
    timestamp: Whole | None = None


class GroupOffsets(BaseModel):
    group: str
    offsets: list[GroupOffset]


# Health


class Health(BaseModel):
    status: Literal["ok", "starting", "degraded"]
    message: str
    version: str
    damage: list[str] = []
    """Damaged places in stored data, by file and position; also those that were repaired."""


class Liveness(BaseModel):
    status: Literal["alive"] = "alive"


class Readiness(BaseModel):
    status: Literal["ready", "not ready"]
    reasons: list[str]
