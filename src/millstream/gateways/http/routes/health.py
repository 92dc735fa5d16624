"""Whether the broker lives, and whether it can do its work."""

from __future__ import annotations

import os
from typing import NamedTuple

import orjson
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from millstream import __version__
from millstream.broker.broker import Broker
from millstream.broker.partition import Partition
from millstream.gateways.http.context import Context, context_of
from millstream.gateways.http.models import Health, Liveness, Readiness
from millstream.gateways.http.parameters import StrictRoute

router = APIRouter(tags=["health"], route_class=StrictRoute)

_MOST_REASONS = 20


@router.get("/health", summary="How the broker is", response_model=Health)
@router.head("/health", include_in_schema=False)
async def health(request: Request) -> Health:
    """In FastQueue2's shape: a status and a message for people."""
    context = context_of(request)
    reasons = troubles_of(context)
    if not context.has_started:
        return Health(status="starting", message=reasons[0], version=__version__)
    damage = damage_of(context)
    reasons += damage.unresolved
    found = [*damage.unresolved, *damage.repaired]
    if reasons:
        message = "; ".join(reasons)
        return Health(status="degraded", message=message, version=__version__, damage=found)
    message = "Millstream is running"
    return Health(status="ok", message=message, version=__version__, damage=found)


@router.get("/health/live", summary="Whether the broker lives")
@router.head("/health/live", include_in_schema=False)
async def live() -> Liveness:
    return Liveness()


@router.get(
    "/health/ready",
    summary="Whether the broker can do its work",
    response_model=Readiness,
    responses={503: {"model": Readiness, "description": "It cannot; the reasons say why."}},
)
@router.head("/health/ready", include_in_schema=False)
async def ready(request: Request) -> Response:
    """Not while it recovers or stops, when the disk is full, or when a partition has stopped."""
    reasons = troubles_of(context_of(request))
    answer = {"status": "not ready" if reasons else "ready", "reasons": reasons}
    status = 503 if reasons else 200
    return Response(orjson.dumps(answer), status, media_type="application/json")


class DamageFound(NamedTuple):
    """Damage in stored data, for people."""

    unresolved: list[str]
    repaired: list[str]


def damage_of(context: Context) -> DamageFound:
    """What is damaged, by files named from the data directory on."""
    if not context.has_started:
        return DamageFound([], [])
    topics = context.broker.topics
    root = os.path.join(topics.data_path, "")
    unresolved, repaired = [], []
    for report in topics.reports:
        unresolved += [f"{report.log}: {each}".replace(root, "") for each in report.unresolved]
        repaired += [f"{report.log}: {each}".replace(root, "") for each in report.repaired]
        if report.copy_failure:
            unresolved.append(f"{report.log}: its second copy is behind: {report.copy_failure}")
    return DamageFound(unresolved[:_MOST_REASONS], repaired[:_MOST_REASONS])


def troubles_of(context: Context) -> list[str]:
    """Why the broker cannot do its work; none if it can."""
    if not context.has_started:
        return ["the broker is starting"]
    if context.closing.is_set():
        return ["the broker is stopping"]
    return _troubles(context.broker)[:_MOST_REASONS]


def _troubles(broker: Broker) -> list[str]:
    return [
        trouble
        for topic in broker.topics.all()
        for partition in topic.partitions
        if (trouble := _trouble(partition)) is not None
    ]


def _trouble(partition: Partition) -> str | None:
    name = f"{partition.topic.name}/{partition.number}"
    failure = partition.failure or partition.log.failure
    if failure is not None:
        return f"{name} has stopped: {failure}"
    return f"{name} takes no messages: the disk is full" if partition.is_refusing else None
