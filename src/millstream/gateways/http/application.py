"""The application: all routes, and what the OpenAPI document says of them as a whole."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from millstream import __version__
from millstream.gateways.http import (
    docs_page,
    models,
    problems,
    queue_models,
    sockets,
    streams,
)
from millstream.gateways.http.context import Context
from millstream.gateways.http.dashboard import events, facts, page, search
from millstream.gateways.http.documentation import refusals
from millstream.gateways.http.fast_lane import FastLane
from millstream.gateways.http.guard import Guard
from millstream.gateways.http.routes import (
    fastqueue,
    groups,
    health,
    messages,
    metrics,
    pipelines,
    pulsar,
    queues,
    topics,
)

_DESCRIPTION = (
    "Topics, messages, consumer groups and queues of a Millstream broker. Whatever is sent here is "
    "read through any other door, and the other way round. Errors are problem documents (RFC 9457)."
)
_ROUTERS = (
    messages,
    pulsar,
    topics,
    fastqueue,
    groups,
    queues,
    pipelines,
    health,
    metrics,
    streams,
    sockets,
    docs_page,
    page,
    facts,
    events,
    search,
)
_FOREIGN = {str(status): told for status, told in refusals(400, 403).items()}
"""The guard refuses it, whatever route would be next."""
_BY_HAND = (
    models.Problem,
    models.NewMessage,
    models.NewMessages,
    models.Stored,
    models.StoredMany,
    models.StoredStream,
    models.Message,
    models.Messages,
    models.Received,
    models.ReadMessage,
    models.TopicDescription,
    queue_models.Deliveries,
    queue_models.DeadLetters,
)
"""Shapes of routes that read and write JSON themselves, for speed."""


def new_application(context: Context) -> FastLane:
    """All routes of the door, for a context of its own."""
    app = FastAPI(
        title="Millstream",
        version=__version__,
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
    )
    app.state.context = context
    problems.install(app)
    for each in _ROUTERS:
        app.include_router(each.router)
    app.openapi = lambda: _document(app)  # type: ignore[method-assign]
    return FastLane(app, Guard(context.settings), context)


def _document(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        _, found = models_json_schema(
            [(each, "serialization") for each in _BY_HAND],
            ref_template="#/components/schemas/{model}",
        )
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        schemas.update(found["$defs"])
        for verbs in document["paths"].values():
            for told in verbs.values():
                told["responses"].update(_FOREIGN)
        app.openapi_schema = document
    return app.openapi_schema
