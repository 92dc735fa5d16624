"""What the OpenAPI document says of routes that read their requests themselves, for speed."""

from __future__ import annotations

from typing import Any

from millstream.gateways.http.problems import MEDIA_TYPE

Responses = dict[int | str, dict[str, Any]]

_PROBLEM = {"$ref": "#/components/schemas/Problem"}
_MEANINGS = {
    400: "The request cannot be read.",
    403: "The host is not one that the broker is called by; or a page of another site writes.",
    404: "There is no such thing.",
    408: "The body did not come in time.",
    409: "The state is not what the request took it to be.",
    413: "The request, or a message in it, is too large.",
    415: "The body is of a kind that is not known here.",
    416: "The offset is not in the log.",
    422: "The request can be read and cannot be carried out as it stands.",
    500: "Stored data is damaged.",
    503: "Not now: the broker is starting or stopping, or the partition has stopped.",
    504: "It took too long.",
    507: "The disk is full; nothing was stored.",
}
_ALWAYS = (422, 500, 503)
_WITH_BODY = {413: (408, 415)}
"""What else can be wrong where a body can be too large."""
_EXAMPLE = {
    "type": "urn:millstream:unknown-topic",
    "title": "Unknown topic",
    "status": 404,
    "detail": "there is no topic 'orders'",
}


def problems(*statuses: int) -> Responses:
    """The refusals of a route, with those that any route can have."""
    more = [each for status in statuses for each in _WITH_BODY.get(status, ())]
    return refusals(*statuses, *more, *_ALWAYS)


def refusals(*statuses: int) -> Responses:
    return {
        status: {
            "description": _MEANINGS[status],
            "content": {MEDIA_TYPE: {"schema": _PROBLEM, "example": {**_EXAMPLE, "status": status}}}
            if status == 404
            else {MEDIA_TYPE: {"schema": _PROBLEM}},
        }
        for status in sorted(set(statuses))
    }


def answer(schema: str, description: str, example: Any = None) -> Responses:
    """What a route answers when all is well."""
    content: dict[str, Any] = {"schema": {"$ref": f"#/components/schemas/{schema}"}}
    if example is not None:
        content["example"] = example
    return {200: {"description": description, "content": {"application/json": content}}}


def path_parameter(name: str, description: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": description,
        "schema": {"type": "string", "minLength": 1},
    }


def query_parameter(name: str, description: str, **schema: Any) -> dict[str, Any]:
    return {"name": name, "in": "query", "description": description, "schema": schema}
