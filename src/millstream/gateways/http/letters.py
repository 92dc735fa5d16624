"""Dead letters of a queue, as HTTP and WebSockets tell of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from millstream.broker import letter_browsing, letter_replay
from millstream.broker.broker import Broker
from millstream.broker.dead_letters import (
    DELIVERY_COUNT,
    REASON,
    SOURCE_OFFSET,
    SOURCE_PARTITION,
)
from millstream.broker.letter_browsing import Letter, LetterState
from millstream.errors import InvalidRequest
from millstream.gateways.http.message_ids import place_of_text
from millstream.gateways.http.message_shapes import message_shape

DEFAULT_BROWSED = 100
DEFAULT_REPLAYED = 1000
MAX_LETTERS = 10_000
_ONE_TURN = 500

_NUMBERS = {
    "source_partition": SOURCE_PARTITION,
    "source_offset": SOURCE_OFFSET,
    "delivery_count": DELIVERY_COUNT,
}


async def browse(
    broker: Broker,
    topic: str,
    subscription: str,
    *,
    partition: int | None,
    offset: int,
    limit: int,
    encoding: str,
    state: LetterState = LetterState.ALL,
    counts: bool = False,
) -> dict[str, Any]:
    """Letters, the oldest first, and where to look on. Raises NotFound, InvalidRequest."""
    if partition is None and offset:
        raise InvalidRequest("an offset is one of a partition: say which")
    offsets = {} if partition is None else {partition: offset}
    found = await letter_browsing.browse(
        broker, topic, subscription, offsets, limit=limit, state=state
    )
    shapes: list[dict[str, Any]] = []
    for at in range(0, len(found.letters), _ONE_TURN):
        shapes += [_letter_shape(each, encoding) for each in found.letters[at : at + _ONE_TURN]]
        # Others have their turn in between.
        await asyncio.sleep(0)
    answer = {
        "topic": found.topic,
        "messages": shapes,
        "next_offsets": {str(number): at for number, at in found.next_offsets.items()},
    }
    if counts:
        answer["counts"] = (await letter_browsing.count(broker, topic, subscription))._asdict()
    return answer


async def replay(
    broker: Broker,
    topic: str,
    subscription: str,
    *,
    message_ids: Sequence[str] | None,
    limit: int,
    again: bool = False,
) -> dict[str, Any]:
    """Send letters back. Raises NotFound, InvalidRequest, and what sending raises."""
    if message_ids is None:
        if again:
            raise InvalidRequest("again is for message_ids: say which letters to send back again")
        done = await letter_replay.replay(broker, topic, subscription, limit=limit)
    else:
        places = [place_of_text(each) for each in message_ids]
        done = await letter_replay.replay_some(broker, topic, subscription, places, again=again)
    return {
        "count": done.count,
        "failed": [each._asdict() for each in done.failed],
        "has_more": done.has_more,
    }


def _letter_shape(letter: Letter, encoding: str) -> dict[str, Any]:
    record = letter.record
    shape = message_shape(record, letter.partition, encoding=encoding)
    shape["message_id"] = f"{letter.partition}:{record.offset}"
    about = dict(record.headers)
    for field, header in _NUMBERS.items():
        text = about.get(header) or b""
        shape[field] = int(text) if text.isdigit() else None
    shape["replayed"] = letter.is_replayed
    shape["reason"] = (about.get(REASON) or b"").decode(errors="replace")
    return shape
