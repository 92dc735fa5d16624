"""`/api/events`: what an open page shows, as server-sent events.

A page has one stream: the broker's pulse every second, and the table that it shows. A browser that
loses it connects again and gets all of it first, so events need no ids.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import HTTPConnection, Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from millstream.gateways.http.context import Context, context_of
from millstream.gateways.http.dashboard.channels import Channels, Viewer
from millstream.gateways.http.dashboard.views import PULSE, Views
from millstream.gateways.http.parameters import StrictRoute
from millstream.gateways.http.streamed_answer import StreamedAnswer

router = APIRouter(include_in_schema=False, route_class=StrictRoute)

_RETRY = b"retry: 2000\n\n"
_HEARTBEAT_S = 15.0
_HEARTBEAT = b": still here\n\n"


class Live:
    """What the application has of the dashboard."""

    def __init__(self, context: Context) -> None:
        self.views = Views(context)
        self.channels = Channels()


def live_of(connection: HTTPConnection) -> Live:
    """The application's. Raises Unavailable while the broker recovers."""
    state = connection.app.state
    if not hasattr(state, "live"):
        state.live = Live(context_of(connection))
    live: Live = state.live
    return live


@router.get("/api/events")
async def events(
    request: Request,
    view: str = "overview",
    name: Annotated[str, Query(description="Of the topic or group that is shown.")] = "",
) -> StreamingResponse:
    live = live_of(request)
    wanted = [
        ((PULSE, ""), live.views.pulse()),
        ((view, name), live.views.source(view, name)),
    ]
    viewer = Viewer()
    live.channels.follow(viewer, wanted)
    return _Stream(viewer, live.channels, context_of(request))


class _Stream(StreamedAnswer):
    """A response that follows nothing any more when it ends, however that is."""

    media_type = "text/event-stream"

    def __init__(self, viewer: Viewer, channels: Channels, context: Context) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(_frames(viewer, context), headers=headers)
        self._viewer = viewer
        self._channels = channels

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._channels.leave(self._viewer)


async def _frames(viewer: Viewer, context: Context) -> AsyncIterator[bytes]:
    closing = asyncio.get_running_loop().create_task(context.closing.wait())
    closing.add_done_callback(lambda _: viewer.end())
    try:
        yield _RETRY
        while True:
            try:
                async with asyncio.timeout(_HEARTBEAT_S):
                    frame = await viewer.next()
            except TimeoutError:
                frame = _HEARTBEAT
            if frame is None:
                return
            yield frame
    finally:
        closing.cancel()
