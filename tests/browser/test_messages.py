"""The message browser: read from anywhere, searched, followed live and shown in full."""

from __future__ import annotations

import base64
import json

import httpx
import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import expect_toast

pytestmark = pytest.mark.system

PAGE = 50


def put(web: httpx.Client, topic: str, messages: list[dict[str, object]]) -> None:
    web.post(f"/topics/{topic}/messages", json=messages).raise_for_status()


@pytest.fixture
def numbered(web: httpx.Client, name: str) -> str:
    """A topic of two partitions with 120 messages, each a second after the one before."""
    settings = {"retention.ms": -1}
    web.put(f"/topics/{name}", json={"partitions": 2, "settings": settings}).raise_for_status()
    put(
        web,
        name,
        [
            {
                "value": json.dumps({"number": n}),
                "key": f"key-{n}",
                "partition": n % 2,
                "timestamp": 1_700_000_000_000 + n * 1000,
            }
            for n in range(120)
        ],
    )
    return name


def rows(page: Page) -> Locator:
    return page.locator(".browser .list-row")


def first(page: Page) -> Locator:
    return page.locator(".browser [aria-rowindex='2']")


def test_pages_go_back_and_forth_through_all_partitions(page: Page, numbered: str) -> None:
    page.goto(f"/#/topics/{numbered}")
    expect(first(page)).to_contain_text('{"number": 119}')
    for number, count in enumerate([PAGE, PAGE, 20], start=1):
        expect(page.locator(".status-line")).to_contain_text(f"Page {number}")
        rowcount = str(count + 1)
        expect(page.locator(".browser .list")).to_have_attribute("aria-rowcount", rowcount)
        if count == PAGE:
            page.get_by_role("button", name="Next page").click()
    expect(page.get_by_role("button", name="Next page")).to_be_disabled()
    page.get_by_role("button", name="Previous page").click()
    expect(first(page)).to_contain_text('{"number": 69}')
    page.get_by_label("Where to begin").select_option("oldest")
    expect(first(page)).to_contain_text('{"number": 0}')


def test_places_are_found_by_offset_and_time(page: Page, numbered: str) -> None:
    page.goto(f"/#/topics/{numbered}")
    page.get_by_label("Partition", exact=True).select_option("1")
    expect(first(page)).to_contain_text('{"number": 119}')
    page.get_by_label("Where to begin").select_option("offset")
    page.get_by_label("Offset").fill("7")
    page.keyboard.press("Enter")
    expect(first(page)).to_contain_text("1:7")
    expect(first(page)).to_contain_text('{"number": 15}')
    page.get_by_label("Where to begin").select_option("time")
    at = page.evaluate(
        "new Date(1700000100000 - new Date(1700000100000).getTimezoneOffset() * 60000)"
        ".toISOString().slice(0, 19)"
    )
    page.get_by_label("Time", exact=True).fill(at)
    page.get_by_role("button", name="Search", exact=True).click()
    expect(first(page)).to_contain_text('{"number": 101}')


def test_text_and_keys_are_found_on_many_pages(page: Page, web: httpx.Client, name: str) -> None:
    web.put(f"/topics/{name}", json={"partitions": 3}).raise_for_status()
    for at in range(0, 9000, 3000):
        put(
            web,
            name,
            [
                {
                    "value": f"needle {n}" if n % 100 == 0 else f"straw {n}",
                    "key": f"k{n}",
                    "partition": n % 3,
                }
                for n in range(at, at + 3000)
            ],
        )
    page.goto(f"/#/topics/{name}")
    expect(first(page)).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("NEEDLE")
    page.keyboard.press("Enter")
    expect(page.locator(".status-line")).to_contain_text("50 found")
    expect(page.get_by_role("button", name="Next page")).to_be_enabled()
    page.get_by_role("button", name="Next page").click()
    expect(page.locator(".status-line")).to_contain_text("40 found, 9,000 of 9,000 messages")
    page.get_by_label("Search in messages").fill("")
    page.get_by_label("Key, exactly").fill("k4321")
    page.keyboard.press("Enter")
    expect(page.locator(".status-line")).to_contain_text("1 found")
    expect(first(page)).to_contain_text("straw 4321")
    page.get_by_label("Search in messages").fill("needle")
    page.keyboard.press("Enter")
    expect(page.locator(".empty h2")).to_have_text("No message holds that")


def test_search_can_be_stopped(page: Page, web: httpx.Client, name: str) -> None:
    put(web, name, [{"value": "straw"}] * 10)
    page.goto(f"/#/topics/{name}")
    expect(first(page)).to_be_visible()
    # A slice that takes its time.
    page.route("**/api/search?*text=*", lambda _: None)
    page.get_by_label("Search in messages").fill("needle")
    page.keyboard.press("Enter")
    expect(page.get_by_role("progressbar")).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    expect(page.locator(".status-line")).to_contain_text("Stopped: 0 found")
    expect(page.get_by_role("button", name="Stop")).to_be_hidden()


def test_message_is_shown_in_full_and_copied(page: Page, web: httpx.Client, name: str) -> None:
    value = '{"id":12345678901234567890,"tags":["a",{"b":null}],"empty":{}}'
    put(
        web,
        name,
        [
            {"value": value, "key": "first", "headers": {"trace": "abc", "twice": ["1", "2"]}},
            {"value": "plain words"},
            {"value": base64.b64encode(b"\x00\xffbytes").decode(), "encoding": "base64"},
            {"value": None, "key": "gone"},
        ],
    )
    page.goto(f"/#/topics/{name}")
    page.get_by_label("Where to begin").select_option("oldest")
    expect(first(page)).to_contain_text("first")
    first(page).click()
    detail = page.get_by_role("region", name="Message")
    # A number that JavaScript cannot hold stays as it was written.
    lines = ['"id": 12345678901234567890,', '  "tags": [', '      "b": null', '  "empty": {}']
    for line in lines:
        expect(detail.locator(".value")).to_contain_text(line)
    expect(detail.locator("table tr")).to_have_count(3)
    detail.get_by_role("button", name="Copy the value").click()
    expect_toast(page, "Copied")
    assert page.evaluate("navigator.clipboard.readText()") == value
    detail.get_by_role("button", name="Text").click()
    expect(detail.locator(".value")).to_have_text(value)
    page.keyboard.press("ArrowRight")
    expect(detail.locator(".value")).to_have_text("plain words")
    page.keyboard.press("ArrowRight")
    expect(detail.locator(".value")).to_contain_text("000000  00 ff 62 79 74 65 73")
    page.keyboard.press("ArrowRight")
    expect(detail.locator(".value")).to_contain_text("deletes its key")
    page.keyboard.press("Escape")
    expect(detail).to_be_hidden()
    expect(page.locator(".list-row:focus")).to_contain_text("gone")


def test_tail_shows_what_comes_and_can_pause(page: Page, web: httpx.Client, name: str) -> None:
    put(web, name, [{"value": "before"}])
    page.goto(f"/#/topics/{name}")
    expect(first(page)).to_contain_text("before")
    with page.expect_response(lambda answer: "/stream?" in answer.url):
        page.get_by_role("button", name="Live tail").click()
    expect(rows(page)).to_have_count(0)
    put(web, name, [{"value": "one"}, {"value": "two"}])
    expect(first(page)).to_contain_text("two")
    expect(rows(page)).to_have_count(2)
    page.get_by_role("button", name="Pause").click()
    put(web, name, [{"value": "three"}])
    expect(page.locator(".status-line")).to_contain_text("Paused, 1 more came")
    expect(rows(page)).to_have_count(2)
    page.get_by_role("button", name="Go on").click()
    expect(first(page)).to_contain_text("three")
    page.get_by_role("button", name="End tail").click()
    expect(rows(page)).to_have_count(4)


def test_live_tail_shows_what_the_search_box_asks_for(
    page: Page, web: httpx.Client, name: str
) -> None:
    put(web, name, [{"value": "before"}])
    page.goto(f"/#/topics/{name}")
    page.get_by_label("Search in messages").fill("Grain")
    with page.expect_response(lambda answer: "/stream?" in answer.url):
        page.get_by_role("button", name="Live tail").click()
    put(
        web,
        name,
        [{"value": "flour"}, {"value": "a GRAIN of"}, {"value": "x", "headers": {"grain": "1"}}],
    )
    expect(rows(page)).to_have_count(2)
    expect(first(page)).to_contain_text("x")
    expect(page.locator(".status-line")).to_contain_text("2 so far, of 3 that came")
    page.get_by_label("Key, exactly").fill("k")
    with page.expect_response(lambda answer: "/stream?" in answer.url):
        page.get_by_label("Search in messages").press("Enter")
    put(web, name, [{"value": "grain 1"}, {"value": "grain 2", "key": "k"}])
    expect(rows(page)).to_have_count(1)
    expect(first(page)).to_contain_text("grain 2")


def test_message_that_is_shown_stays_in_sight_of_its_list(page: Page, numbered: str) -> None:
    page.goto(f"/#/topics/{numbered}")
    first(page).click()
    expect(page.get_by_role("region", name="Message").locator("h2")).to_contain_text("offset 59")
    for _ in range(40):
        page.keyboard.press("ArrowRight")
    row = page.locator(".list-row.selected")
    expect(row).to_contain_text('{"number": 79}')
    expect(row).to_be_in_viewport()
    page.locator(".list-scroll").evaluate("each => { each.scrollTop = 0; }")
    expect(row).to_have_count(0)
    page.locator(".list-scroll").evaluate("each => { each.scrollTop = each.scrollHeight; }")
    expect(row).to_have_count(1)
