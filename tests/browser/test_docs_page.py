"""The page at /docs: it lists every route and sends requests."""

from __future__ import annotations

import httpx
from playwright.sync_api import Page, expect


def test_page_lists_every_route(page: Page, web: httpx.Client) -> None:
    paths = web.get("/openapi.json").json()["paths"]
    page.goto("/docs")
    expect(page.locator("summary")).to_have_count(sum(len(verbs) for verbs in paths.values()))
    page.get_by_label("Find").fill("get /health/ready")
    expect(page.locator("summary:visible")).to_have_count(1)


def test_request_is_sent_and_shown_as_curl(page: Page, web: httpx.Client) -> None:
    web.put("/topics/documented", json={}).raise_for_status()
    page.goto("/docs")
    route = page.locator("details").filter(
        has=page.locator("summary", has_text="GET").get_by_text("/topics/{topic}", exact=True)
    )
    route.locator("summary").click()
    route.get_by_label("topic").fill("documented")
    expect(route.locator("pre", has_text="curl")).to_contain_text("/topics/documented'")
    route.get_by_role("button", name="Send").click()
    expect(route.locator("pre", has_text="200 OK")).to_contain_text('"documented"')
