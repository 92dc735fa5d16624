"""Dead letters: messages of a queue that were delivered in vain too often, and why.

A letter is a message of the dead letter topic, with its id there. It stays when it is sent back.
"""

from __future__ import annotations

from base64 import b64decode
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from millstream.client.messages import Headers, Received

LetterState = Literal["all", "outstanding", "replayed"]
"""Which letters to look at."""


class DeadLetter(Received):
    """A message of a dead letter topic. `delivery_count` says how often it came in vain."""

    __slots__ = ("is_replayed", "reason", "source_offset", "source_partition")

    source_partition: int | None
    source_offset: int | None
    reason: str
    """What who refused it last said."""
    is_replayed: bool
    """Whether it was sent back to its topic."""


class LetterCounts(NamedTuple):
    """How many letters a queue has."""

    outstanding: int
    """Those that were not sent back."""
    replayed: int
    is_complete: bool
    """False where there are too many to look at: there may be more."""


class DeadLetters(NamedTuple):
    """Some letters of a queue."""

    topic: str
    letters: tuple[DeadLetter, ...]
    next_offsets: dict[int, int]
    """By partition, where to look on; where that is where the look began, no more are there."""
    counts: LetterCounts | None = None
    """Where they were asked for."""


class UnsentLetter(NamedTuple):
    """A dead letter that its topic does not take any more. It stays where it is."""

    message_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Replayed:
    """What became of letters that were to be sent back."""

    count: int
    """How many were."""
    failed: tuple[UnsentLetter, ...]
    has_more: bool
    """Whether there may be more that were not tried yet."""


def replayed(answer: dict[str, Any]) -> Replayed:
    """From an answer of the broker."""
    failed = (UnsentLetter(each["message_id"], each["reason"]) for each in answer["failed"])
    return Replayed(answer["count"], tuple(failed), answer["has_more"])


def dead_letters(answer: dict[str, Any]) -> DeadLetters:
    """Those in an answer of the broker in which values and keys are in base64."""
    topic = answer["topic"]
    counts = answer.get("counts")
    return DeadLetters(
        topic,
        tuple(_letter(topic, shape) for shape in answer["messages"]),
        {int(partition): offset for partition, offset in answer["next_offsets"].items()},
        None if counts is None else LetterCounts(**counts),
    )


def _letter(topic: str, shape: dict[str, Any]) -> DeadLetter:
    letter = DeadLetter(
        topic,
        shape["partition"],
        shape["offset"],
        timestamp_ms=shape["timestamp"],
        key=_unpacked(shape["key"]),
        value=_unpacked(shape["value"]),
        headers=_headers(shape["headers"]),
        delivery_count=shape["delivery_count"] or 0,
    )
    letter.source_partition = shape["source_partition"]
    letter.source_offset = shape["source_offset"]
    letter.reason = shape["reason"]
    letter.is_replayed = shape["replayed"]
    return letter


def _headers(shape: dict[str, Any]) -> Headers:
    return tuple(
        (name, _header(each))
        for name, value in shape.items()
        for each in (value if isinstance(value, list) else [value])
    )


def _header(value: Any) -> bytes | None:
    if isinstance(value, dict):
        return b64decode(value["base64"])
    return None if value is None else str(value).encode()


def _unpacked(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)
