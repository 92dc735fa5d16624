"""One number for a message's place in a topic, as Mini Pulsar's clients need it.

It is the partition times 2**46, plus the offset. So in a topic of one partition it is the offset;
in any other it is unique, grows within a partition, stays the same when partitions are added, and
fits into 63 bits. A partition holds no more than 2**46 records, which takes a million a second
for two years. Languages whose numbers are doubles have it exactly in the first 128 partitions.

Where a client names a message, `PARTITION:OFFSET` is understood as well: streams and queues call it
by that.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from millstream.errors import InvalidRequest

_OFFSET_BITS = 46
_OFFSETS = 1 << _OFFSET_BITS
MAX_MESSAGE_ID = 2**63 - 1
PATTERN = "^[0-9]+(:[0-9]+)?$"
_TEXT = re.compile("([0-9]+)(?::([0-9]+))?", re.ASCII)
_LONGEST = 40


class Place(NamedTuple):
    """Where a message is in its topic."""

    partition: int
    offset: int


def message_id_of(partition: int, offset: int) -> int:
    return partition << _OFFSET_BITS | offset


def place_of(message_id: int) -> Place:
    return Place(*divmod(message_id, _OFFSETS))


def place_of_text(text: str) -> Place:
    """Raises InvalidRequest."""
    if len(text) <= _LONGEST and (found := _TEXT.fullmatch(text)):
        first, second = found.groups()
        if second is not None:
            return Place(int(first), int(second))
        if int(first) <= MAX_MESSAGE_ID:
            return place_of(int(first))
    raise InvalidRequest(
        f"{text[:_LONGEST]!r} is no id of a message: expected a number, or PARTITION:OFFSET"
    )
