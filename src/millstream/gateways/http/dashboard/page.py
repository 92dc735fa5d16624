"""`/`: the page itself, with its scripts and styles.

All of it is our own and comes from here: nothing is loaded from elsewhere, which the page's policy
has the browser make sure of. Scripts and styles lie under a path that holds a digest of them all,
so a browser keeps them for good and asks for them anew after an upgrade; the page itself is asked
for each time, and answered with 304 where it has not changed.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from millstream.errors import NotFound

router = APIRouter(include_in_schema=False)

_ASSETS = Path(__file__).with_name("assets")
_PAGE = "index.html"
_KINDS = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_GUARDED = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_KEPT = {"Cache-Control": "public, max-age=31536000, immutable"}
_ASKED = {"Cache-Control": "no-cache"}
_DIGEST_CHARACTERS = 16


class _Assets(NamedTuple):
    """Everything that a browser loads."""

    digest: str
    page: bytes
    files: dict[str, bytes]


@router.get("/")
@router.head("/")
async def page(request: Request) -> Response:
    assets = _assets()
    tag = f'"{assets.digest}"'
    headers = {**_GUARDED, **_ASKED, "ETag": tag}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(assets.page, media_type="text/html", headers=headers)


@router.get("/dashboard/{digest}/{name:path}")
async def asset(digest: str, name: str) -> Response:
    """A digest of another version is that of a page which was loaded before an upgrade."""
    assets = _assets()
    content = assets.files.get(name)
    if content is None:
        raise NotFound(kind="file of the dashboard", name=name[:100])
    kept = _KEPT if digest == assets.digest else _ASKED
    kind = _KINDS[Path(name).suffix]
    return Response(content, media_type=kind, headers={**_GUARDED, **kept})


@cache
def _assets() -> _Assets:
    """Read once: they change only with the version."""
    files = {
        path.relative_to(_ASSETS).as_posix(): path.read_bytes()
        for path in sorted(_ASSETS.rglob("*"))
        if path.is_file()
    }
    known = sha256()
    for name, content in files.items():
        known.update(f"{name}\0{len(content)}\0".encode() + content)
    digest = known.hexdigest()[:_DIGEST_CHARACTERS]
    text = files.pop(_PAGE).replace(b"{digest}", digest.encode())
    return _Assets(digest, text, files)
