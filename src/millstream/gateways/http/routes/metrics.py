"""The broker's metrics, for Prometheus and for InfluxDB.

A look is taken and told in pieces: clients are served between them, however many topics there are.
"""

from __future__ import annotations

from enum import StrEnum

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from millstream.broker.metrics import at_ease
from millstream.gateways.http.context import broker_of
from millstream.gateways.http.documentation import problems
from millstream.gateways.http.parameters import StrictRoute
from millstream.telemetry import exposition, line_protocol
from millstream.telemetry.catalogue import CATALOGUE

router = APIRouter(tags=["metrics"], route_class=StrictRoute)


class Format(StrEnum):
    """How metrics are told."""

    PROMETHEUS = "prometheus"
    INFLUX = "influx"


@router.get(
    "/metrics",
    summary="All metrics, for Prometheus or InfluxDB",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **problems()},
)
async def metrics(request: Request, format: Format = Format.PROMETHEUS) -> Response:  # noqa: A002
    """Each is described in the guide on monitoring."""
    broker = broker_of(request)
    reading = await broker.metrics.collect()
    pieces: list[str] = []
    if format is Format.INFLUX:
        lines = line_protocol.line_protocol(reading, CATALOGUE, timestamp_ms=broker.clock.now_ms())
        await at_ease(map(pieces.append, lines))
        return Response("".join(pieces), media_type=line_protocol.CONTENT_TYPE)
    await at_ease(map(pieces.append, exposition.exposition(reading, CATALOGUE)))
    return Response("".join(pieces), headers={"content-type": exposition.CONTENT_TYPE})
