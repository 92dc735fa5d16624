"""What a client can ask for in a WebSocket frame: one function for each `op`.

A function does what can be done at once or must be waited for. It returns the result, or a function
that gives it: that one is called when it is the answer's turn to be written, with nothing between,
so that a client can tell what was delivered before and after.
Format: docs/formats/websocket.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from millstream.broker.letter_browsing import LetterState
from millstream.broker.sending import Sent
from millstream.broker.topics import Topic
from millstream.errors import InvalidRequest, MillstreamError, NotFound, UnknownPartition
from millstream.gateways.http import letters
from millstream.gateways.http.excerpt import excerpt
from millstream.gateways.http.feed import Feed
from millstream.gateways.http.group_member import GroupMember, SharedSubscription
from millstream.gateways.http.message_shapes import (
    TEXT,
    check_encoding,
    new_record,
    new_records,
)
from millstream.gateways.http.origins import is_whole, position_of, positions_of
from millstream.gateways.http.pages import EARLIEST, LATEST
from millstream.gateways.http.problems import problem_of
from millstream.gateways.http.socket_fields import Fields
from millstream.gateways.http.socket_subscriptions import (
    GroupPositions,
    LogSubscription,
    QueueSubscription,
    SubscriptionId,
)
from millstream.identity import new_name
from millstream.subscriptions.subscription import SubscriptionSettings

if TYPE_CHECKING:
    from millstream.gateways.http.socket_session import Session

Result = dict[str, Any]
Answer = Result | Callable[[], Result | Awaitable[Result]]
Operation = Callable[["Session", Fields, SubscriptionId], Awaitable[Answer]]

_ENVELOPE = ("id", "op", "topic")
DEFAULT_PREFETCH = 1000
_QUEUE_NUMBERS = ("ack_timeout_ms", "max_deliveries", "redelivery_min_ms", "redelivery_max_ms")


# Sending


async def send(session: Session, fields: Fields, _: SubscriptionId) -> Answer:
    return await send_to(session, fields.text("topic"), fields)


async def send_to(session: Session, topic: str, fields: Fields) -> Result:
    """One message, whose refusal is raised, or many, each with a result of its own."""
    broker = session.broker
    delayed = broker.subscriptions.delay_headers
    if "messages" in fields:
        records = new_records(fields.many("messages"), delayed=delayed)
        results = await broker.sender.send_many(topic, records)
        return {"places": [_place(each) for each in results]}
    record = new_record(fields.without(*_ENVELOPE), delayed=delayed)
    return {"places": [_place(await broker.sender.send(topic, record))]}


def _place(sent: Sent | MillstreamError) -> Result:
    if isinstance(sent, MillstreamError):
        return {"error": problem_of(sent)}
    return {
        "partition": sent.partition,
        "offset": sent.offset,
        "timestamp": sent.timestamp_ms,
        "message_id": f"{sent.partition}:{sent.offset}",
    }


# Subscriptions to a log


async def subscribe(session: Session, fields: Fields, number: SubscriptionId) -> Answer:
    session.check_new(number)
    broker = session.broker
    topic = await _topic_to_read(session, fields.text("topic"), create=fields.flag("create"))
    group = fields.optional_text("group")
    prefetch = fields.optional_whole("prefetch", minimum=1)
    origin = fields.any("from", default=EARLIEST if group else LATEST)
    if fields.flag("share"):
        return _shared(session, fields, topic, number)
    partitions = _partitions(topic, fields)
    positions = await positions_of(broker, topic, partitions, origin=origin, group=group)

    def begin() -> Result:
        session.check_new(number)
        feed = Feed(session.tails, topic, positions)
        subscription = LogSubscription(
            number, feed, session, queue_messages=session.queue_messages, prefetch=prefetch
        )
        cursor = GroupPositions(broker, group, topic.name) if group else None
        session.add(subscription, cursor)
        return {
            "subscription": number,
            "topic_id": topic.topic_id.hex(),
            "positions": _told(positions),
        }

    return begin


def _shared(session: Session, fields: Fields, topic: Topic, number: SubscriptionId) -> Answer:
    """As a member of a group, which is assigned some partitions."""
    group = fields.text("group")
    if "partitions" in fields:
        raise InvalidRequest("members of a group are assigned partitions: leave partitions out")
    origin = fields.any("from", default=EARLIEST)
    for partition in topic.partitions:
        # What is wrong with it is told now, not when a partition is assigned.
        position_of(partition, origin)
    prefetch = fields.optional_whole("prefetch", minimum=1)
    member_id = fields.optional_text("member") or new_name("websocket")

    def begin() -> Result:
        session.check_new(number)
        member = GroupMember(
            session.broker,
            group,
            topic,
            member_id=member_id,
            origin=origin,
            client_host=session.client_host,
        )
        subscription = SharedSubscription(
            number,
            Feed(session.tails, topic, {}),
            session,
            member,
            queue_messages=session.queue_messages,
            prefetch=prefetch,
        )
        session.add(subscription, member)
        return {"subscription": number, "topic_id": topic.topic_id.hex(), "positions": {}}

    return begin


async def seek(session: Session, fields: Fields, _: SubscriptionId) -> Answer:
    subscription, cursor = session.log_subscription(_subscription(fields))

    def move() -> Result:
        feed = subscription.feed
        numbers = list(feed.positions)
        if "partition" in fields:
            number = fields.whole("partition")
            if number not in numbers:
                count = len(feed.topic.partitions)
                raise UnknownPartition(feed.topic.name, number, count=count)
            numbers = [number]
        target = fields.any("to")
        # All or none: nothing moves before everything is found.
        found = {n: position_of(feed.topic.partitions[n], target) for n in numbers}
        if cursor is not None:
            cursor.forget()
        return {"positions": _told(subscription.seek(found))}

    return move


async def credit(session: Session, fields: Fields, _: SubscriptionId) -> Answer:
    subscription, _cursor = session.log_subscription(_subscription(fields))
    subscription.grant(fields.whole("messages", minimum=1))
    return {}


async def unsubscribe(session: Session, fields: Fields, _: SubscriptionId) -> Answer:
    number = _subscription(fields)
    session.subscription(number)

    def end() -> Result:
        session.end(number)
        return {}

    return end


# Queues


async def queue(session: Session, fields: Fields, number: SubscriptionId) -> Answer:
    session.check_new(number)
    subscriptions = session.broker.subscriptions
    topic, name = fields.text("topic"), fields.text("name")
    prefetch = fields.optional_whole("prefetch", minimum=1) or DEFAULT_PREFETCH
    consumer_name = fields.optional_text("consumer") or new_name("websocket")
    try:
        settings = subscriptions.describe(topic, name).settings
    except NotFound:
        settings = SubscriptionSettings()
    settings = replace(settings, **_queue_settings(fields))
    await subscriptions.create(topic, name, settings)

    def begin() -> Result:
        session.check_new(number)
        consumer = subscriptions.attach(topic, name, consumer_name, max_in_flight=prefetch)
        session.add(QueueSubscription(number, consumer, session))
        return {"subscription": number, "type": settings.type, "consumer": consumer_name}

    return begin


def _queue_settings(fields: Fields) -> dict[str, Any]:
    """Those that were given, by their names in SubscriptionSettings."""
    given: dict[str, Any] = {name: fields.whole(name) for name in _QUEUE_NUMBERS if name in fields}
    given |= {name: fields.text(name) for name in ("type", "dead_letter_topic") if name in fields}
    if "from" in fields:
        given["start"] = fields.any("from")
        if type(given["start"]) not in {str, int}:
            raise InvalidRequest(
                f"from is {excerpt(given['start'])}: expected earliest, latest or an offset"
            )
    return given


# Acknowledgements


async def ack(session: Session, fields: Fields, _: SubscriptionId) -> Answer:
    return _settled(await session.ack(_subscription(fields), fields.texts("ids")))


async def nack(session: Session, fields: Fields, _: SubscriptionId) -> Answer:
    consumer = session.queue_subscription(_subscription(fields)).consumer
    delay_ms = fields.optional_whole("delay_ms")
    reason = fields.optional_text("reason") or ""
    return _settled(await consumer.nack(fields.texts("ids"), delay_ms=delay_ms, reason=reason))


def _settled(ignored: list[str]) -> Answer:
    return {"ignored": ignored} if ignored else {}


async def extend(session: Session, fields: Fields, _: SubscriptionId) -> Answer:
    consumer = session.queue_subscription(_subscription(fields)).consumer
    await consumer.extend(fields.texts("ids"), fields.whole("timeout_ms", minimum=1))
    return {}


# Dead letters


async def dead_letters(session: Session, fields: Fields, _: SubscriptionId) -> Answer:
    topic, name = fields.text("topic"), fields.text("name")
    partition = fields.optional_whole("partition")
    offset = fields.optional_whole("offset") or 0
    limit = _letters(fields, letters.DEFAULT_BROWSED)
    encoding = check_encoding(fields.any("encoding", TEXT))
    state = _letter_state(fields)
    counts = fields.flag("counts")

    # In its turn: letters are not to wait in memory for a client that does not read.
    async def look() -> Result:
        return await letters.browse(
            session.broker,
            topic,
            name,
            partition=partition,
            offset=offset,
            limit=limit,
            encoding=encoding,
            state=state,
            counts=counts,
        )

    return look


async def replay(session: Session, fields: Fields, _: SubscriptionId) -> Answer:
    return await letters.replay(
        session.broker,
        fields.text("topic"),
        fields.text("name"),
        message_ids=fields.texts("ids") if "ids" in fields else None,
        limit=_letters(fields, letters.DEFAULT_REPLAYED),
        again=fields.flag("again"),
    )


def _letter_state(fields: Fields) -> LetterState:
    text = fields.any("state", LetterState.ALL)
    try:
        return LetterState(text)
    except ValueError:
        expected = ", ".join(LetterState)
        raise InvalidRequest(f"state {excerpt(text)}: expected {expected}") from None


def _letters(fields: Fields, default: int) -> int:
    if "limit" not in fields:
        return default
    return fields.whole("limit", minimum=1, maximum=letters.MAX_LETTERS)


# Topics


async def topics(session: Session, _: Fields, __: SubscriptionId) -> Answer:
    return {
        "topics": sorted(each.name for each in session.broker.topics.all() if not each.is_internal)
    }


async def create_topic(session: Session, fields: Fields, _: SubscriptionId) -> Answer:
    partitions = fields.whole("partitions", minimum=1) if "partitions" in fields else -1
    topic = await session.broker.topics.create(
        fields.text("topic"), partitions=partitions, overrides=fields.settings("settings")
    )
    return _described(topic)


async def describe_topic(session: Session, fields: Fields, _: SubscriptionId) -> Answer:
    return _described(session.broker.topics.get(fields.text("topic")))


async def delete_topic(session: Session, fields: Fields, _: SubscriptionId) -> Answer:
    await session.broker.topics.delete(fields.text("topic"))
    return {}


async def ping(session: Session, _: Fields, __: SubscriptionId) -> Answer:
    return {"time": session.broker.clock.now_ms()}


OPERATIONS: dict[str, Operation] = {
    operation.__name__: operation
    for operation in (
        send,
        subscribe,
        seek,
        credit,
        unsubscribe,
        queue,
        ack,
        nack,
        extend,
        dead_letters,
        replay,
        topics,
        create_topic,
        describe_topic,
        delete_topic,
        ping,
    )
}


async def _topic_to_read(session: Session, name: str, *, create: bool) -> Topic:
    if create:
        return await session.broker.topics.ensure(name)
    return session.broker.topics.get(name)


def _partitions(topic: Topic, fields: Fields) -> Sequence[int]:
    count = len(topic.partitions)
    if "partitions" not in fields:
        return range(count)
    numbers = fields.many("partitions")
    for number in numbers:
        if not is_whole(number):
            raise InvalidRequest(f"partitions has {excerpt(number)}: expected numbers from 0 on")
        if number >= count:
            raise UnknownPartition(topic.name, number, count=count)
    return sorted(set(numbers))


def _subscription(fields: Fields) -> SubscriptionId:
    number = fields.any("subscription")
    if type(number) not in {int, str}:
        raise InvalidRequest(f"subscription is {excerpt(number)}: expected the id of one")
    return number  # type: ignore[no-any-return]


def _described(topic: Topic) -> Result:
    return {
        "name": topic.name,
        "partitions": [
            {
                "partition": each.number,
                "start_offset": each.log.start_offset,
                "end_offset": each.log.end_offset,
            }
            for each in topic.partitions
        ],
        "settings": dict(topic.overrides),
    }


def _told(positions: dict[int, int]) -> dict[str, int]:
    return {str(number): position for number, position in positions.items()}
