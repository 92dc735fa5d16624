"""WebSockets: `/ws` for everything over one connection, `/topics/{topic}/ws` for one topic.

Format: docs/formats/websocket.md.
"""

from __future__ import annotations

from fastapi import APIRouter
from starlette.websockets import WebSocket

from millstream.errors import InvalidRequest, MillstreamError, StorageFailure, Unavailable
from millstream.gateways.http.context import context_of
from millstream.gateways.http.origins import origin_of_text
from millstream.gateways.http.parameters import check_parameters
from millstream.gateways.http.simple_session import SimpleSession
from millstream.gateways.http.socket_fields import Fields
from millstream.gateways.http.socket_operations import queue, subscribe
from millstream.gateways.http.socket_session import Session, closing_reason
from millstream.gateways.http.tail import tails_of

router = APIRouter()

_TRY_LATER = 1013
_REFUSED = 1008
_NUMBERS = {"partition", "prefetch"}
_PARAMETERS = {"from", "group", "queue", "type", "consumer", "produce", "create", *_NUMBERS}


@router.websocket("/ws")
async def everything(socket: WebSocket) -> None:
    await socket.accept()
    try:
        check_parameters(socket, ())
        tails = tails_of(socket)
    except MillstreamError as error:
        await _refuse(socket, error)
        return
    await Session(socket, context_of(socket), tails).run()


@router.websocket("/topics/{topic}/ws")
async def one_topic(socket: WebSocket, topic: str) -> None:
    await socket.accept()
    try:
        tails = tails_of(socket)
        session = SimpleSession(socket, context_of(socket), tails, topic=topic)
        await _subscribe(session, socket, topic)
    except MillstreamError as error:
        await _refuse(socket, error)
        return
    await session.run()


async def _refuse(socket: WebSocket, error: MillstreamError) -> None:
    is_passing = isinstance(error, Unavailable | StorageFailure)
    await socket.close(_TRY_LATER if is_passing else _REFUSED, closing_reason(error))


async def _subscribe(session: SimpleSession, socket: WebSocket, topic: str) -> None:
    """Begin with what the parameters ask for. Raises what is wrong with them."""
    check_parameters(socket, _PARAMETERS)
    given = dict(socket.query_params)
    produce = given.pop("produce", None)
    if produce is not None:
        if produce != "only" or given:
            raise InvalidRequest("produce=only goes with no other parameter")
        return
    shape: dict[str, object] = {"topic": topic}
    for name, text in given.items():
        shape[name] = _whole(name, text) if name in _NUMBERS else text
    if "from" in shape:
        shape["from"] = origin_of_text(given["from"])
    if "partition" in shape:
        shape["partitions"] = [shape.pop("partition")]
    shape["create"] = given.get("create") == "true"
    shape["name"] = given.get("queue")
    begin = queue if "queue" in given else subscribe
    answer = await begin(session, Fields(shape), None)
    assert callable(answer)
    answer()


def _whole(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InvalidRequest(f"{name} is {text!r}: expected a number")
    return int(text)
