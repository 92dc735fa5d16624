"""The page at /docs: it is all our own, and what it needs is there."""

from __future__ import annotations

import re

import httpx
import pytest

pytestmark = pytest.mark.system


def test_page_loads_nothing_from_elsewhere(web: httpx.Client) -> None:
    page = web.get("/docs")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    needed = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert len(needed) >= 3
    for each in needed:
        if each != "data:,":
            found = web.get(f"/{each}")
            assert found.status_code == 200, each
            assert "//" not in each
    for path in ("/docs/docs.js", "/docs/docs.css", "/docs"):
        text = web.get(path).text
        assert not re.search(r"https?://|@import|url\(|innerHTML|\beval\b", text), path


def test_kinds_of_its_files_are_told(web: httpx.Client) -> None:
    assert web.get("/docs/docs.js").headers["content-type"].startswith("text/javascript")
    assert web.get("/docs/docs.css").headers["content-type"].startswith("text/css")
    assert web.get("/redoc").status_code == 404
