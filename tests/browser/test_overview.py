"""The overview: it tells what the API tells, live, and what to do where there is nothing yet."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import ANY_PORT, Watch, open_page
from tests.clients.broker_process import BrokerProcess
from tests.fakes.patience import HANG_S

pytestmark = pytest.mark.system


def test_traffic_shows_as_it_happens(page: Page, web: httpx.Client, name: str) -> None:
    page.goto("/")
    expect(page.locator("#live")).to_have_text("Live")
    expect(page.locator(".health")).to_have_text("All is well")
    tile = page.locator(".tile", has_text="Messages in").locator("b")
    busy = page.locator(".busy", has_text=name)
    while (shown := tile.inner_text()) in {"\u2013", "0/s"} or not busy.is_visible():
        web.post(f"/topics/{name}/messages", json=[{"value": "x"}] * 500).raise_for_status()
        page.wait_for_timeout(100)
    assert re.fullmatch(r"[\d,.]+k?/s", shown)
    delay = page.locator(".tile", has_text="Loop delay").locator("b")
    expect(delay).not_to_have_text("\u2013")
    expect(page.locator(".chart .line").first).to_be_visible()


def test_facts_are_those_of_the_api(page: Page, web: httpx.Client, name: str) -> None:
    web.put(f"/topics/{name}", json={"partitions": 3}).raise_for_status()
    topics = web.get("/topics").json()["topics"]
    partitions = sum(each["partitions"] for each in topics)
    page.goto("/")
    facts = page.locator(".facts")
    expect(facts).to_contain_text(f"{len(topics)} topics, {partitions} partitions")
    messages = sum(each["messages"] for each in topics)
    expect(facts).to_contain_text(f"Messages{messages:,}")
    expect(facts).to_contain_text(web.get("/health").json()["version"])


def test_new_broker_says_what_to_do_first(chromium: Browser, tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path, http=ANY_PORT) as broker,
        open_page(chromium, broker) as page,
    ):
        watch = Watch(page)
        page.goto("/")
        expect(page.locator(".welcome")).to_contain_text("has no topics yet")
        for path, words in {
            "topics": "No topics yet",
            "groups": "No consumer groups yet",
            "queues": "No queues yet",
            "pipelines": "No pipelines yet",
        }.items():
            page.goto(f"/#/{path}")
            expect(page.locator(".empty h2")).to_have_text(words)
        page.goto("/")
        page.get_by_role("button", name="Create topic").click()
        page.get_by_label("Name").fill("first")
        page.get_by_role("dialog").get_by_role("button", name="Create topic").click()
        expect(page.locator("h1")).to_contain_text("first")
        expect(page.locator(".empty h2")).to_have_text("No messages yet")
        assert httpx.get(f"{broker.url}/topics/first", timeout=HANG_S).json()["partitions"] == 1
        page.goto("/")
        expect(page.locator(".health")).to_have_text("All is well")
        broker.kill()
        expect(page.locator("#live")).to_have_text("Reconnecting")
        expect(page.locator(".health")).to_contain_text("The broker does not answer")
        expect(page.locator(".toast.bad")).to_contain_text("What is shown is from before")
        page.goto("/#/settings")
        expect(page.locator(".problem")).to_contain_text("Is it running?")
        broker.start()
        expect(page.locator("#live")).to_have_text("Live")
        expect(page.locator(".toast.bad")).to_have_count(0)
        expect(page.locator("td", has_text="data.dir").first).to_be_visible()
        page.goto("/")
        expect(page.locator(".health")).to_have_text("All is well")
        told = [each for each in watch.troubles if "ERR_" not in each and "/api/events" not in each]
        assert told == []
        broker.stop()


def test_hidden_page_has_no_stream(page: Page, web: httpx.Client) -> None:
    page.goto("/")
    expect(page.locator("#live")).to_have_text("Live")
    hide = (
        "Object.defineProperty(document, 'hidden', {value: %s, configurable: true});"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )
    page.evaluate(hide % "true")
    expect(page.locator("#live")).to_have_text("Paused")
    page.evaluate(hide % "false")
    expect(page.locator("#live")).to_have_text("Live")
