"""What went wrong, as HTTP tells it: a status and a problem document (RFC 9457).

The table is complete: a test walks the tree of errors. An error without a row of its own is told by
the nearest class above it. 400 is for what cannot be read, 422 for what can be read and not done.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import orjson
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from millstream import errors
from millstream.errors import MillstreamError
from millstream.gateways.http.excerpt import excerpt

MEDIA_TYPE = "application/problem+json"

STATUSES: dict[type[MillstreamError], HTTPStatus] = {
    errors.InvalidRequest: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.MalformedMessage: HTTPStatus.BAD_REQUEST,
    errors.InvalidBatch: HTTPStatus.BAD_REQUEST,
    errors.MessageTooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    errors.BodyTooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    errors.BodyStalled: HTTPStatus.REQUEST_TIMEOUT,
    errors.UnsupportedMediaType: HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    errors.MetadataTooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    errors.OffsetOutOfRange: HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
    errors.NotFound: HTTPStatus.NOT_FOUND,
    errors.Conflict: HTTPStatus.CONFLICT,
    errors.Fenced: HTTPStatus.CONFLICT,
    errors.Unavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.DiskFull: HTTPStatus.INSUFFICIENT_STORAGE,
    errors.TimedOut: HTTPStatus.GATEWAY_TIMEOUT,
    errors.CorruptData: HTTPStatus.INTERNAL_SERVER_ERROR,
    errors.StorageFailure: HTTPStatus.SERVICE_UNAVAILABLE,
}

_LONGEST_DETAIL = 1000
_LONGEST_VALUE = 100
_MOST_WRONGS = 20
_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])")
_DATA = {
    errors.OffsetOutOfRange: ("offset", "start_offset", "end_offset"),
    errors.MessageTooLarge: ("size_bytes", "limit_bytes"),
    errors.RecordTooLarge: ("offset", "next_offset"),
}
"""What a program will want to know without reading the text."""
_HINTS: dict[type[MillstreamError], str] = {
    errors.UnknownTopic: "GET /topics lists those that there are; PUT /topics/{topic} creates one",
    errors.UnknownSubscription: (
        "GET /subscriptions lists those that there are; "
        "PUT /topics/{topic}/subscriptions/{subscription} creates one"
    ),
}
"""What to do where the text names only what is missing."""


def status_of(error: MillstreamError) -> HTTPStatus:
    return next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)


def problem_of(error: MillstreamError) -> dict[str, Any]:
    """The document that tells of an error."""
    name = _WORDS.sub(" ", type(error).__name__).lower()
    data = {field: getattr(error, field) for field in _DATA.get(type(error), ())}
    if type(error) in _HINTS:
        data["hint"] = _HINTS[type(error)]
    return {
        "type": f"urn:millstream:{name.replace(' ', '-')}",
        "title": name.capitalize(),
        "status": status_of(error).value,
        "detail": _clean(str(error)),
        **data,
    }


def answer_of(error: MillstreamError, **more: Any) -> Response:
    """A response that tells of an error; `more` are members of the document."""
    response = _response({**problem_of(error), **more})
    if isinstance(error, errors.BodyStalled):
        # Whatever came next would be the rest of the body.
        response.headers["connection"] = "close"
    return response


def plain_problem(status: int, detail: str, **more: Any) -> Response:
    """For what HTTP itself has a name for."""
    return _response(
        {
            "type": "about:blank",
            "title": HTTPStatus(status).phrase,
            "status": status,
            "detail": _clean(detail),
            **more,
        }
    )


def defect_answer() -> Response:
    """What it was goes to the broker's log, which is where somebody can mend it."""
    return plain_problem(
        HTTPStatus.INTERNAL_SERVER_ERROR, "this is a defect of the broker: see its log"
    )


def install(app: FastAPI) -> None:
    """Let every error of the application be answered with a problem document."""
    app.add_exception_handler(MillstreamError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(ClientDisconnect, _on_hung_up)
    app.add_exception_handler(Exception, _on_defect)


async def _on_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, MillstreamError)
    return answer_of(error)


async def _on_invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    wrongs = error.errors()
    found = [
        {"where": [str(part)[:_LONGEST_VALUE] for part in each["loc"]], "what": each["msg"]}
        for each in wrongs[:_MOST_WRONGS]
    ]
    if any(each["type"] == "json_invalid" for each in wrongs):
        return answer_of(errors.MalformedMessage("the body is not JSON"), errors=found)
    lines = [_wrong(each) for each in wrongs[:_MOST_WRONGS]]
    return answer_of(errors.InvalidRequest("; ".join(lines)), errors=found)


def _wrong(found: Mapping[str, Any]) -> str:
    """One thing that is wrong with a request: its name, its value and what is expected."""
    place, *inner = map(str, found["loc"])
    name = ".".join(part[:_LONGEST_VALUE] for part in inner) or f"the {place}"
    expected = str(found["msg"])
    if found["type"] == "missing":
        return f"{name} is missing"
    shown = excerpt(found.get("input"))
    if found["type"] == "extra_forbidden":
        return f"{name} = {shown}: there is nothing of this name"
    kind, should, rest = expected.partition(" should ")
    if should:
        rest = rest.removeprefix("be ")
        expected = rest if kind == "Input" else f"{kind.lower()} that should {rest}"
    return f"{name} = {shown}: expected {expected}"


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    details = {
        HTTPStatus.NOT_FOUND: f"there is no {request.url.path}: see /docs for what there is",
        HTTPStatus.METHOD_NOT_ALLOWED: f"{request.url.path} takes no {request.method}: see /docs",
    }
    detail = details.get(HTTPStatus(error.status_code), str(error.detail))
    response = plain_problem(error.status_code, detail)
    response.headers.update(error.headers or {})
    return response


async def _on_defect(_: Request, __: Exception) -> Response:
    return defect_answer()


async def _on_hung_up(_: Request, __: Exception) -> Response:
    # Nobody will read it.
    return plain_problem(HTTPStatus.BAD_REQUEST, "the request has ended early")


def _response(document: dict[str, Any]) -> Response:
    return Response(orjson.dumps(document), document["status"], media_type=MEDIA_TYPE)


def _clean(text: str) -> str:
    """JSON is UTF-8, and a path in a request need not be; nobody reads more than a page."""
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= _LONGEST_DETAIL else text[:_LONGEST_DETAIL] + "..."
