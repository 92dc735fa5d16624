"""What stands before the application: the guard, and a short way for the most frequent request.

The short way is for sending messages, past routing and middleware. What it does not know it leaves
to the application behind it, which has the same route. Cost: benchmarks/http.py.
"""

from __future__ import annotations

import logging

from fastapi import FastAPI
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from millstream.errors import MillstreamError
from millstream.gateways.http.bodies import HELD, let_go
from millstream.gateways.http.context import CONNECTION, Context
from millstream.gateways.http.cross_origin import (
    CrossOrigin,
    answer_preflight,
    is_preflight,
    naming_origin,
)
from millstream.gateways.http.guard import Guard, refuse
from millstream.gateways.http.metrics import GROUP, MESSAGES, Measured
from millstream.gateways.http.problems import answer_of, defect_answer
from millstream.gateways.http.produce import produce

_log = logging.getLogger(__name__)

_BEFORE = "/topics/"
_AFTER = "/messages"


class FastLane:
    """An application in front of another one."""

    def __init__(self, app: FastAPI, guard: Guard, context: Context) -> None:
        self._app = app
        self._guard = guard
        self._context = context
        self._origins = CrossOrigin(context.settings.allowed_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._guarded(scope, receive, send, self._app)
            return
        measured = Measured(scope, send)
        context = self._context
        context.pending_requests += 1
        has_failed = True
        try:
            # Nothing is made for a client that has not taken what was made before.
            if (connection := scope.get(CONNECTION)) is not None and connection.flow.write_paused:
                await connection.drained()
            await self._guarded(scope, receive, measured.send, self._serve)
            has_failed = False
        finally:
            context.pending_requests -= 1
            measured.end(context.latencies, has_failed=has_failed)

    async def _guarded(self, scope: Scope, receive: Receive, send: Send, serve: ASGIApp) -> None:
        complaint = self._guard.complaint(scope)
        if self._origins.has_any and scope["type"] == "http":
            origin = self._origins.origin_of(scope)
            if origin:
                if complaint is None and is_preflight(scope):
                    await answer_preflight(scope, send, origin)
                    return
                send = naming_origin(send, origin)
        if complaint is not None:
            await refuse(complaint, scope, receive, send)
            return
        try:
            await serve(scope, receive, send)
        finally:
            if HELD in scope:
                let_go(scope, self._context)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "POST":
            path: str = scope["path"]
            if path.endswith(_AFTER) and path.startswith(_BEFORE):
                topic = path[len(_BEFORE) : -len(_AFTER)]
                if topic and "/" not in topic:
                    scope["app"] = self._app
                    scope[GROUP] = MESSAGES
                    try:
                        response = await _answer(Request(scope, receive), topic)
                    except ClientDisconnect:
                        return
                    await response(scope, receive, send)
                    return
        await self._app(scope, receive, send)


async def _answer(request: Request, topic: str) -> Response:
    try:
        return await produce(request, topic)
    except MillstreamError as error:
        return answer_of(error)
    except ClientDisconnect:
        raise
    except Exception:  # Outer edge of a request: the next one is none of its business.
        _log.exception("sending to %(topic)s failed", {"topic": topic})
        return defect_answer()
