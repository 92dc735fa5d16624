"""Pipelines, connections and settings; the theme and the keys; and names that are markup."""

from __future__ import annotations

import json

import confluent_kafka
import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import Watch, open_page
from tests.clients.broker_process import BrokerProcess
from tests.fakes.patience import HANG_S

pytestmark = pytest.mark.system

HOSTILE = "<img src=x onerror=\"document.title='broken'\">"
FAR_AHEAD_MS = 10**15


def test_pipelines_tell_how_far_they_have_come(page: Page, web: httpx.Client) -> None:
    told = {
        "pipeline": "shop",
        "state": "running",
        "at": FAR_AHEAD_MS,
        "host": "mill-1",
        "rows_in": 1200,
        "rows_out": 1100,
        "rows_in_per_s": 12.5,
        "rows_out_per_s": 11.0,
        "lag": 7,
        "bad_rows": 3,
        "error": None,
        "queries": [],
    }
    stopped = {**told, "pipeline": HOSTILE, "state": "failed", "error": f"Traceback:\n{HOSTILE}"}
    gone = {**told, "pipeline": "mill", "at": 1}
    odd = {"pipeline": "odd", "state": ["x"], "error": {}, "queries": [None, 1], "lag": -1e308}
    for each in (told, stopped, gone, odd):
        message = {"key": each["pipeline"], "value": json.dumps(each)}
        web.post("/topics/__millstream_pipelines/messages", json=message).raise_for_status()
    page.goto("/#/pipelines")
    card = page.locator(".card", has_text="shop")
    expect(card.locator(".badge")).to_have_text("running")
    expect(card.locator(".tile", has_text="Bad rows").locator("b")).to_have_text("3")
    expect(card.locator(".tile", has_text="Lag").locator("b")).to_have_text("7")
    expect(card.locator(".tile", has_text="Rows in")).to_contain_text("1,200 in all")
    expect(page.locator(".problem")).to_contain_text(HOSTILE)
    assert page.locator(".problem").inner_text() == f"Traceback:\n{HOSTILE}"
    # What it did last is not what it does.
    card = page.locator(".card", has_text="mill gone")
    expect(card.locator(".tile", has_text="Rows in").locator("b")).to_have_text("\u2013")
    expect(page.locator(".card", has_text="odd").locator(".badge")).to_have_text("unknown")
    card = page.locator(".card", has_text="Traceback")
    expect(card.locator(".tile", has_text="Rows in").locator("b")).to_have_text("\u2013")


def test_connections_of_all_doors_are_shown(page: Page, broker: BrokerProcess) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.address, "client.id": "the-miller"}
    )
    producer.list_topics(timeout=HANG_S)
    page.goto("/#/connections")
    row = page.locator(".list-row", has_text="the-miller").first
    expect(row).to_contain_text("kafka")
    expect(row).to_contain_text("127.0.0.1:")
    expect(page.locator(".list-row", has_text="http").first).to_contain_text("Chrome")
    page.get_by_label("Find a client").fill("nobody")
    expect(page.locator(".empty h2")).to_have_text("No connection is like that")


def test_settings_tell_where_they_come_from(page: Page, broker: BrokerProcess) -> None:
    page.goto("/#/settings")
    row = page.locator("tr", has_text="data.dir").first
    expect(row).to_contain_text(str(broker.data))
    expect(row.locator(".badge")).to_be_visible()
    page.get_by_label("Find a setting").fill("segment.bytes")
    row = page.locator("tr", has_text="segment.bytes").first
    expect(row).to_contain_text("1073741824 1.07 GB")
    expect(row).to_contain_text("default")
    page.get_by_label("Find a setting").fill("")
    page.get_by_label("Only those that were set").check()
    expect(page.locator("tr", has_text="flush.threads")).to_have_count(0)
    expect(page.locator("tr", has_text="data.dir").first).to_be_visible()


def test_theme_follows_the_system_until_one_is_chosen(
    chromium: Browser, broker: BrokerProcess
) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    with open_page(chromium, broker, color_scheme="dark") as page:
        page.goto("/")
        dark = page.evaluate(ground)
        page.get_by_role("button", name="Theme").click()
        expect(page.get_by_role("button", name="Theme: light")).to_be_visible()
        assert page.evaluate(ground) != dark
        page.reload()
        expect(page.get_by_role("button", name="Theme: light")).to_be_visible()
        assert page.evaluate(ground) != dark
        page.get_by_role("button", name="Theme").click()
        assert page.evaluate(ground) == dark


def test_keys_are_told_and_unknown_pages_lead_back(page: Page) -> None:
    page.goto("/#/nowhere")
    expect(page.locator(".empty h2")).to_have_text("There is no such page")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Go to the search field")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_role("link", name="Go to the overview").click()
    expect(page.locator("h1")).to_have_text("Overview")


@pytest.mark.parametrize("width", [390, 768])
def test_narrow_pages_do_not_scroll_sideways(page: Page, width: int, name: str) -> None:
    page.set_viewport_size({"width": width, "height": 844})
    for path in ("", "topics", "groups", "queues", "pipelines", "connections", "settings"):
        page.goto(f"/#/{path}")
        expect(page.locator("h1")).to_be_visible()
        expect(page.locator("#live")).to_have_text("Live")
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, path


def test_markup_in_names_and_messages_stays_text(
    page: Page, watch: Watch, web: httpx.Client, name: str
) -> None:
    web.put(f"/topics/{name}", json={"partitions": 1}).raise_for_status()
    message = {"value": HOSTILE, "key": HOSTILE, "headers": {HOSTILE: HOSTILE}}
    web.post(f"/topics/{name}/messages", json=[message, {"value": json.dumps({HOSTILE: HOSTILE})}])
    offsets = [{"topic": name, "partition": 0, "offset": 1, "metadata": HOSTILE}]
    web.post(f"/groups/{HOSTILE}/offsets", json={"offsets": offsets}).raise_for_status()
    page.goto(f"/#/topics/{name}")
    page.get_by_label("Where to begin").select_option("oldest")
    row = page.locator(".list-row[aria-rowindex='2']")
    expect(row).to_contain_text(HOSTILE)
    row.click()
    detail = page.get_by_role("region", name="Message")
    expect(detail.locator(".value")).to_have_text(HOSTILE)
    expect(detail.locator("td").first).to_have_text(HOSTILE)
    page.keyboard.press("ArrowRight")
    expect(detail.locator(".j-key")).to_have_text(json.dumps(HOSTILE))
    page.goto("/#/groups")
    expect(page.locator("h1")).to_have_text("Consumer groups")
    page.locator(".list-row", has_text="onerror").click()
    expect(page.locator("h1")).to_contain_text(HOSTILE)
    watch.expected |= {404, 422}
    page.goto(f"/#/topics/{HOSTILE}")
    expect(page.locator("h1")).to_contain_text(HOSTILE)
    page.goto("/#/topics")
    page.get_by_role("button", name="Create topic").first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill(f"{name}-2")
    dialog.get_by_label("Add a setting").select_option("retention.ms")
    dialog.get_by_label("retention.ms").fill(HOSTILE)
    dialog.get_by_role("button", name="Create topic").click()
    expect(dialog.get_by_role("alert")).to_contain_text("onerror")
    assert page.locator("img:not([src*=mark])").count() == 0
    assert "broken" not in page.title()
