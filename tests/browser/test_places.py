"""Where a page stands: its address, the ways to it, and what becomes of it when things change."""

from __future__ import annotations

import json

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Watch, expect_toast
from tests.browser.test_messages import first, put, rows

pytestmark = pytest.mark.system


def test_search_is_kept_in_the_address(page: Page, web: httpx.Client, name: str) -> None:
    web.put(f"/topics/{name}", json={"partitions": 2}).raise_for_status()
    put(web, name, [{"value": f"grain {n}", "partition": n % 2} for n in range(10)])
    page.goto(f"/#/topics/{name}")
    expect(first(page)).to_be_visible()
    page.get_by_label("Partition", exact=True).select_option("1")
    page.get_by_label("Where to begin").select_option("offset")
    page.get_by_label("Offset").fill("3")
    page.get_by_label("Search in messages").fill("GRAIN")
    page.keyboard.press("Enter")
    expect(page.locator(".status-line")).to_contain_text("2 found")
    page.reload()
    expect(page.locator(".status-line")).to_contain_text("2 found")
    expect(page.get_by_label("Offset")).to_have_value("3")
    expect(first(page)).to_contain_text("1:3")
    page.get_by_role("tab", name="Messages").click()
    expect(rows(page)).to_have_count(10)
    page.goto(f"/#/topics/{name}?where=77&from=nowhere")
    expect(rows(page)).to_have_count(10)


def test_addresses_that_lead_nowhere_say_so(page: Page, web: httpx.Client, name: str) -> None:
    web.put(f"/topics/{name}", json={}).raise_for_status()
    for address in ("constructor", "nonsense", "toString/x"):
        page.goto(f"/#/{address}")
        expect(page.locator(".empty h2")).to_have_text("There is no such page")
        expect(page.locator("nav a[aria-current]")).to_have_count(0)
    for tab in ("constructor", "nonsense"):
        page.goto(f"/#/topics/{name}/{tab}")
        expect(page.get_by_role("tab", name="Messages")).to_have_attribute("aria-selected", "true")


def test_keyboard_skips_to_the_content(page: Page) -> None:
    page.goto("/#/topics")
    expect(page.locator("h1")).to_have_text("Topics")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    expect(page.locator("h1")).to_have_text("Topics")


def test_dialog_closes_when_the_page_goes_elsewhere(page: Page) -> None:
    page.goto("/#/queues")
    page.goto("/#/topics")
    page.get_by_role("button", name="Create topic").first.click()
    expect(page.get_by_role("dialog")).to_be_visible()
    page.go_back()
    expect(page.locator("h1")).to_have_text("Queues")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_what_comes_is_offered_and_what_is_gone_is_not_shown(
    page: Page, web: httpx.Client, name: str
) -> None:
    web.put(f"/topics/{name}", json={}).raise_for_status()
    page.goto(f"/#/topics/{name}")
    expect(page.locator(".empty h2")).to_have_text("No messages yet")
    put(web, name, [{"value": "one"}])
    expect(first(page)).to_contain_text("one")
    put(web, name, [{"value": "two"}])
    page.get_by_role("button", name="Show newer").click()
    expect(first(page)).to_contain_text("two")
    expect(page.get_by_role("button", name="Show newer")).to_be_hidden()
    web.delete(f"/topics/{name}").raise_for_status()
    web.put(f"/topics/{name}", json={"partitions": 2}).raise_for_status()
    expect(page.locator(".empty h2")).to_have_text("No messages yet")
    expect(page.get_by_label("Partition", exact=True)).to_be_visible()


def test_group_that_comes_later_is_shown(
    page: Page, web: httpx.Client, watch: Watch, name: str
) -> None:
    put(web, name, [{"value": "x"}] * 3)
    page.goto(f"/#/groups/{name}")
    expect(page.locator(".empty h2")).to_have_text("There is no group of this name")
    offsets = {"offsets": [{"topic": name, "partition": 0, "offset": 1}]}
    web.post(f"/groups/{name}/offsets", json=offsets).raise_for_status()
    expect(page.locator("td a")).to_have_text(name)
    expect(page.locator(".empty")).to_have_count(0)


def test_messages_of_great_depth_and_length_are_shown(
    page: Page, web: httpx.Client, name: str
) -> None:
    deep = 49_000
    long_headers = {f"h{n}": "x" for n in range(500)}
    put(
        web,
        name,
        [
            {"value": "[" * deep + "]" * deep, "key": "k" * 10_000},
            {"value": json.dumps(list(range(17_000))), "headers": long_headers},
        ],
    )
    page.goto(f"/#/topics/{name}?from=oldest")
    first(page).click()
    detail = page.get_by_role("region", name="Message")
    expect(detail.locator(".value")).to_contain_text("see it as text")
    expect(detail.locator(".facts")).to_contain_text("and 8,000 more characters")
    page.keyboard.press("ArrowRight")
    expect(detail.locator("h2")).to_contain_text("offset 1")
    expect(detail.locator("table tr")).to_have_count(200)
    expect(detail).to_contain_text("and 300 more")


def test_header_may_be_called_like_anything_of_an_object(
    page: Page, web: httpx.Client, name: str
) -> None:
    web.put(f"/topics/{name}", json={}).raise_for_status()
    page.goto(f"/#/topics/{name}")
    page.get_by_role("button", name="Send message").first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Value", exact=True).fill("x")
    dialog.get_by_label("Headers").fill("constructor: a\n__proto__: b")
    dialog.get_by_role("button", name="Send").click()
    expect(first(page)).to_contain_text("x")
    (sent,) = web.get(f"/topics/{name}/messages?offset=0").json()["messages"]
    assert sent["headers"] == {"constructor": "a", "__proto__": "b"}


def test_refusal_of_what_a_button_asks_for_is_told(page: Page, watch: Watch) -> None:
    watch.expected.add(503)
    page.goto("/#/topics")
    page.route("**/api/topic-settings", lambda route: route.fulfill(status=503, json=_PROBLEM))
    page.get_by_role("button", name="Create topic").first.click()
    expect_toast(page, "not now")


_PROBLEM = {"status": 503, "title": "Unavailable", "detail": "not now"}
