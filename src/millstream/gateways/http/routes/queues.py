"""Subscriptions: topics as queues, in which each message is acknowledged by itself.

A message's id is `PARTITION:OFFSET` here; the number that other routes call it by is taken too.
Who receives over HTTP has no standing consumer: what it does not acknowledge in time is delivered
again, to whoever asks next.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from millstream.broker.letter_browsing import LetterState
from millstream.broker.subscriptions import (
    Delivery,
    SubscriptionDescription,
    SubscriptionSettings,
)
from millstream.gateways.http import letters
from millstream.gateways.http.bodies import LimitedRoute
from millstream.gateways.http.context import broker_of, context_of
from millstream.gateways.http.documentation import answer, problems
from millstream.gateways.http.message_shapes import TEXT, message_shape
from millstream.gateways.http.models import LONG_MAX, Done, Encoding
from millstream.gateways.http.queue_models import (
    Acks,
    Extension,
    Nacks,
    NewSubscription,
    Receive,
    Replay,
    Replayed,
    Settled,
    SubscriptionList,
    SubscriptionShape,
)
from millstream.records import Record
from millstream.settings.topics import MAX_PARTITIONS

router = APIRouter(tags=["queues"], route_class=LimitedRoute)

_QUEUE = "/topics/{topic}/subscriptions/{subscription}"

# For requests without a body.
_AS_BROKER_SETS, _ONE, _OLDEST = NewSubscription(), Receive(), Replay()

SubscriptionName = Annotated[str, Path(min_length=1)]


@router.get("/subscriptions", summary="List all subscriptions", responses=problems())
async def list_all(request: Request) -> SubscriptionList:
    return _listed(broker_of(request).subscriptions.list())


@router.get(
    "/topics/{topic}/subscriptions",
    summary="List the subscriptions of a topic",
    responses=problems(404),
)
async def list_some(request: Request, topic: str) -> SubscriptionList:
    return _listed(broker_of(request).subscriptions.list(topic))


@router.put(
    _QUEUE,
    summary="Create a subscription, if there is none of these settings",
    responses=problems(400, 404, 409, 413, 507),
)
async def create(
    request: Request,
    topic: str,
    subscription: SubscriptionName,
    wanted: NewSubscription = _AS_BROKER_SETS,
) -> SubscriptionShape:
    """The topic is created too, if the broker is set to. One with other settings is a conflict."""
    subscriptions = broker_of(request).subscriptions
    given = wanted.model_dump(exclude_none=True)
    await subscriptions.create(topic, subscription, SubscriptionSettings(**given))
    return shape_of(subscriptions.describe(topic, subscription))


@router.get(_QUEUE, summary="Describe a subscription", responses=problems(404))
async def describe(
    request: Request, topic: str, subscription: SubscriptionName
) -> SubscriptionShape:
    return shape_of(broker_of(request).subscriptions.describe(topic, subscription))


@router.delete(_QUEUE, summary="Delete a subscription", responses=problems(404, 507))
async def delete(request: Request, topic: str, subscription: SubscriptionName) -> Done:
    await broker_of(request).subscriptions.delete(topic, subscription)
    return Done()


@router.post(
    _QUEUE + "/receive",
    summary="Receive messages of a shared subscription",
    responses={**answer("Deliveries", "The messages."), **problems(400, 404, 409, 413)},
)
async def receive(
    request: Request, topic: str, subscription: SubscriptionName, wanted: Receive = _ONE
) -> Response:
    """They are not delivered to others until their time is over, or they are refused."""
    context = context_of(request)
    receiving = asyncio.ensure_future(
        context.broker.subscriptions.receive(
            topic,
            subscription,
            wanted.max_messages,
            min(wanted.wait_ms, context.settings.long_poll_max_ms),
            timeout_ms=wanted.visibility_timeout_ms,
        )
    )
    await context.first_of([asyncio.wait([receiving])], request=request)
    if not receiving.done():
        receiving.cancel()
        await asyncio.wait([receiving])
    deliveries = [] if receiving.cancelled() else receiving.result()
    shapes = [delivery_shape(each, wanted.encoding) for each in deliveries]
    return Response(orjson.dumps({"messages": shapes}), media_type="application/json")


@router.post(_QUEUE + "/ack", summary="Messages are done", responses=problems(400, 404, 413, 507))
async def ack(
    request: Request, topic: str, subscription: SubscriptionName, wanted: Acks
) -> Settled:
    """Answered when that is on disk."""
    subscriptions = broker_of(request).subscriptions
    return Settled(ignored=await subscriptions.ack(topic, subscription, wanted.message_ids))


@router.post(
    _QUEUE + "/nack",
    summary="Messages are to be delivered again",
    responses=problems(400, 404, 413, 507),
)
async def nack(
    request: Request, topic: str, subscription: SubscriptionName, wanted: Nacks
) -> Settled:
    """After `max_deliveries` they go to the dead letter topic instead."""
    ignored = await broker_of(request).subscriptions.nack(
        topic,
        subscription,
        wanted.message_ids,
        delay_ms=wanted.delay_ms,
        reason=wanted.reason,
    )
    return Settled(ignored=ignored)


@router.post(
    _QUEUE + "/extend",
    summary="Messages need more time",
    responses=problems(400, 404, 409, 413),
)
async def extend(
    request: Request, topic: str, subscription: SubscriptionName, wanted: Extension
) -> Done:
    await broker_of(request).subscriptions.extend(
        topic, subscription, wanted.message_ids, wanted.timeout_ms
    )
    return Done()


@router.get(
    _QUEUE + "/dlq",
    summary="Look at the dead letters of a subscription",
    responses={
        **answer("DeadLetters", "Letters, the oldest first."),
        **problems(404),
    },
)
async def browse(
    request: Request,
    topic: str,
    subscription: SubscriptionName,
    *,
    partition: Annotated[int | None, Query(ge=0, le=MAX_PARTITIONS)] = None,
    offset: Annotated[int, Query(ge=0, le=LONG_MAX, description="Needs a partition.")] = 0,
    limit: Annotated[int, Query(ge=1, le=letters.MAX_LETTERS)] = letters.DEFAULT_BROWSED,
    state: Annotated[
        LetterState, Query(description="All, or those that were sent back, or those that were not.")
    ] = LetterState.ALL,
    counts: Annotated[bool, Query(description="Count all letters, too.")] = False,
    encoding: Encoding = TEXT,
) -> Response:
    """They stay where they are until the dead letter topic's retention ends them."""
    answered = await letters.browse(
        broker_of(request),
        topic,
        subscription,
        partition=partition,
        offset=offset,
        limit=limit,
        encoding=encoding,
        state=state,
        counts=counts,
    )
    return Response(orjson.dumps(answered), media_type="application/json")


@router.post(
    _QUEUE + "/dlq/replay",
    summary="Send dead letters back to the topic",
    responses=problems(400, 404, 409, 413, 507),
)
async def replay(
    request: Request, topic: str, subscription: SubscriptionName, wanted: Replay = _OLDEST
) -> Replayed:
    """Those with these ids, else the oldest that were not sent back yet: as new messages."""
    done = await letters.replay(
        broker_of(request),
        topic,
        subscription,
        message_ids=wanted.message_ids,
        limit=wanted.limit,
        again=wanted.again,
    )
    return Replayed(**done)


def shape_of(description: SubscriptionDescription) -> SubscriptionShape:
    settings = description.settings
    return SubscriptionShape(
        topic=description.topic,
        name=description.name,
        type=str(settings.type),
        ack_timeout_ms=settings.ack_timeout_ms,
        max_deliveries=settings.max_deliveries,
        redelivery_min_ms=settings.redelivery_min_ms,
        redelivery_max_ms=settings.redelivery_max_ms,
        dead_letter_topic=description.dead_letter_topic,
        consumers=description.consumers,
        backlog=description.backlog,
        in_flight=description.in_flight,
        delayed=description.delayed,
        waiting=description.waiting,
        redelivered=description.redelivered,
        dead=description.dead,
        lost=description.lost,
    )


def delivery_shape(delivery: Delivery, encoding: str) -> dict[str, Any]:
    record = Record(
        delivery.offset, delivery.timestamp_ms, delivery.key, delivery.value, delivery.headers
    )
    shape = message_shape(record, delivery.partition, encoding=encoding)
    shape["message_id"] = delivery.message_id
    shape["delivery_count"] = delivery.delivery_count
    return shape


def _listed(descriptions: list[SubscriptionDescription]) -> SubscriptionList:
    return SubscriptionList(subscriptions=[shape_of(each) for each in descriptions])
