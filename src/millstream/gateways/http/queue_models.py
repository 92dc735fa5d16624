"""Shapes of requests and answers about subscriptions, as the OpenAPI document shows them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
)

from millstream.gateways.http.letters import DEFAULT_REPLAYED, MAX_LETTERS
from millstream.gateways.http.message_ids import MAX_MESSAGE_ID, PATTERN, place_of_text
from millstream.gateways.http.models import Done, Message, Strict, Whole
from millstream.settings.domain import INT_MAX

Milliseconds = Annotated[int, Field(ge=0, le=INT_MAX)]
SomeMilliseconds = Annotated[int, Field(ge=1, le=INT_MAX)]


def _text_of(message_id: object) -> object:
    return str(message_id) if type(message_id) is int else message_id


def _with_partition(message_id: str) -> str:
    """As subscriptions have it. Raises InvalidRequest for a number that is none."""
    if ":" in message_id:
        return message_id
    partition, offset = place_of_text(message_id)
    return f"{partition}:{offset}"


QueueMessageId = Annotated[
    str,
    Field(pattern=PATTERN, max_length=31),
    BeforeValidator(_text_of),
    AfterValidator(_with_partition),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": PATTERN, "maxLength": 31},
                {"type": "integer", "minimum": 0, "maximum": MAX_MESSAGE_ID},
            ]
        }
    ),
]
MessageIds = Annotated[
    list[QueueMessageId],
    Field(
        min_length=1,
        max_length=10_000,
        description="As received: PARTITION:OFFSET; or the numbers that sending answers.",
    ),
]


class NewSubscription(Strict):
    """What is left out is as the broker has it."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"type": "shared", "ack_timeout_ms": 30000, "max_deliveries": 5}]
        },
    )

    type: Literal["exclusive", "shared", "failover", "key_shared"] = "shared"
    ack_timeout_ms: SomeMilliseconds | None = None
    max_deliveries: Annotated[int, Field(ge=0, le=30_000)] | None = None
    dead_letter_topic: str | None = None
    redelivery_min_ms: Milliseconds | None = None
    redelivery_max_ms: Milliseconds | None = None
    start: Literal["earliest", "latest"] | Whole = "earliest"


class SubscriptionShape(BaseModel):
    topic: str
    name: str
    type: str
    ack_timeout_ms: int
    max_deliveries: int
    redelivery_min_ms: int
    redelivery_max_ms: int
    dead_letter_topic: str
    consumers: list[str]
    backlog: int = Field(description="Not acknowledged yet, at most.")
    in_flight: int
    delayed: int
    waiting: int = Field(description="Refused, and to be delivered again.")
    redelivered: int
    dead: int
    lost: int = Field(description="Deleted before they were acknowledged, at most.")


class SubscriptionList(BaseModel):
    subscriptions: list[SubscriptionShape]


class Receive(Strict):
    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"max_messages": 10, "wait_ms": 1000}]}
    )

    max_messages: Annotated[int, Field(ge=1, le=10_000)] = 1
    wait_ms: Milliseconds = 0
    visibility_timeout_ms: SomeMilliseconds | None = Field(
        default=None, description="How long to acknowledge them; else the subscription's own."
    )
    encoding: Literal["text", "base64"] = "text"


class QueueMessage(Message):
    """A message of a queue."""

    message_id: str  # type: ignore[assignment]
    delivery_count: int


class Deliveries(BaseModel):
    messages: list[QueueMessage]


class Acks(Strict):
    message_ids: MessageIds


class Nacks(Strict):
    message_ids: MessageIds
    delay_ms: Milliseconds | None = Field(
        default=None, description="Else by the subscription's rule: longer each time."
    )
    reason: Annotated[str, Field(max_length=1000)] = ""


class Extension(Strict):
    message_ids: MessageIds
    timeout_ms: SomeMilliseconds


class DeadLetter(Message):
    """A message that was delivered in vain too often, and why. Its id is that of the letter."""

    message_id: str  # type: ignore[assignment]
    source_partition: int | None
    source_offset: int | None
    delivery_count: int | None
    replayed: bool = Field(description="Whether it was sent back to its topic.")
    reason: str | None


class LetterCounts(BaseModel):
    outstanding: int = Field(description="Letters that were not sent back.")
    replayed: int
    is_complete: bool = Field(
        description="False where there are too many to look at: there may be more."
    )


class DeadLetters(BaseModel):
    topic: str = Field(description="The dead letter topic.")
    messages: list[DeadLetter]
    next_offsets: dict[str, int] = Field(description="By partition, where to look on.")
    counts: LetterCounts | None = Field(default=None, description="Where they were asked for.")


class Replay(Strict):
    """Which letters to send back: these, or up to a number that were not sent back yet."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"limit": 100}]})

    message_ids: MessageIds | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_LETTERS)] = DEFAULT_REPLAYED
    again: bool = Field(
        default=False, description="Send letters of `message_ids` that were sent back before, too."
    )


class UnsentLetter(BaseModel):
    message_id: str
    reason: str


class Replayed(BaseModel):
    count: int = Field(description="How many were sent back.")
    failed: list[UnsentLetter] = Field(
        description="Those that the topic does not take: they are passed over, and can be sent "
        "back by their ids."
    )
    has_more: bool = Field(description="Whether there may be more that were not tried yet.")


class Settled(Done):
    ignored: list[str] = Field(
        description="Those to which nothing happened: acknowledged before; or, for a nack, in "
        "nobody's hands."
    )
