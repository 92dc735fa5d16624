"""`/docs`: the OpenAPI document for people, with a way to try each route.

The page, its script and its style are our own and come from here: nothing is loaded from elsewhere,
which the page's policy has the browser make sure of.
"""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter
from starlette.responses import Response

router = APIRouter(include_in_schema=False)

_ASSETS = Path(__file__).with_name("assets")
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
}


def _file(name: str, media_type: str) -> Response:
    return Response((_ASSETS / name).read_bytes(), media_type=media_type, headers=_HEADERS)


@router.get("/docs")
def page() -> Response:
    return _file("docs.html", "text/html")


@router.get("/docs/docs.js")
def script() -> Response:
    return _file("docs.js", "text/javascript")


@router.get("/docs/docs.css")
def style() -> Response:
    return _file("docs.css", "text/css")
