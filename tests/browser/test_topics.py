"""Topics in the dashboard: a thousand of them are found at once; made, changed and deleted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import ANY_PORT, Watch, open_page
from tests.clients.broker_process import BrokerProcess
from tests.fakes.patience import HANG_S

pytestmark = pytest.mark.system

MANY = 1000
MOST_DRAWN = 60


@pytest.fixture(scope="module")
def crowded(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with a thousand topics."""
    with BrokerProcess(tmp_path_factory.mktemp("crowded"), http=ANY_PORT) as broker:
        with (
            httpx.Client(base_url=broker.url, timeout=HANG_S) as web,
            ThreadPoolExecutor(16) as pool,
        ):
            made = pool.map(lambda n: web.put(f"/topics/topic-{n:04}", json={}), range(MANY))
            assert {each.status_code for each in made} == {201}
        yield broker
        broker.stop()


def test_thousand_topics_are_searched_and_walked_by_keys(
    chromium: Browser, crowded: BrokerProcess
) -> None:
    with open_page(chromium, crowded) as page:
        watch = Watch(page)
        page.goto("/#/topics")
        expect(page.get_by_role("grid")).to_have_attribute("aria-rowcount", str(MANY + 1))
        assert page.locator(".list-row").count() <= MOST_DRAWN
        page.keyboard.press("/")
        expect(page.get_by_label("Find a topic")).to_be_focused()
        page.keyboard.type("topic-07")
        expect(page.get_by_role("grid")).to_have_attribute("aria-rowcount", "101")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowDown")
        expect(page.locator(".list-row:focus")).to_contain_text("topic-0701")
        page.keyboard.press("End")
        expect(page.locator(".list-row:focus")).to_contain_text("topic-0799")
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_contain_text("topic-0799")
        assert watch.troubles == []


def test_topic_is_created_with_settings(page: Page, web: httpx.Client, name: str) -> None:
    page.goto("/#/topics")
    page.get_by_role("button", name="Create topic").first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill(name)
    dialog.get_by_label("Partitions").fill("3")
    dialog.get_by_label("Add a setting").select_option("retention.ms")
    dialog.get_by_label("retention.ms").fill("86400000")
    expect(dialog).to_contain_text("1 d 0 h")
    dialog.get_by_role("button", name="Create topic").click()
    expect(page.locator("h1")).to_contain_text(name)
    told = web.get(f"/topics/{name}").json()
    assert told["partitions"] == 3
    assert told["own_settings"] == {"retention.ms": "86400000"}


def test_refusal_is_told_and_the_dialog_stays(
    page: Page, watch: Watch, web: httpx.Client, name: str
) -> None:
    watch.expected.add(422)
    page.goto("/#/topics")
    page.get_by_role("button", name="Create topic").first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("no/slash")
    dialog.get_by_role("button", name="Create topic").click()
    expect(dialog.get_by_role("alert")).to_contain_text("no/slash")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()


def test_topic_is_configured_and_grows(page: Page, web: httpx.Client, name: str) -> None:
    own = {"retention.ms": "86400000", "max.message.bytes": "5000"}
    web.put(f"/topics/{name}", json={"settings": own}).raise_for_status()
    page.goto(f"/#/topics/{name}/settings")
    expect(page.locator("tr", has_text="retention.ms").first).to_contain_text("this topic")
    page.get_by_role("button", name="Configure").first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Partitions").fill("2")
    dialog.get_by_label("max.message.bytes").fill("6000")
    dialog.locator(".setting-line", has_text="retention.ms").get_by_role("button").click()
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_be_hidden()
    expect(page.locator(".chips").first).to_contain_text("2 partitions")
    told = web.get(f"/topics/{name}").json()
    assert told["partitions"] == 2
    assert told["own_settings"] == {"max.message.bytes": "6000"}


def test_deletion_wants_the_name_typed(
    page: Page, watch: Watch, web: httpx.Client, name: str
) -> None:
    # The page may look for messages before it hears that the topic is gone.
    watch.expected.add(404)
    web.put(f"/topics/{name}", json={}).raise_for_status()
    page.goto(f"/#/topics/{name}")
    page.get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog")
    go = dialog.get_by_role("button", name="Delete topic")
    expect(go).to_be_disabled()
    dialog.get_by_label("Type").fill(name[:-1])
    expect(go).to_be_disabled()
    dialog.get_by_label("Type").fill(name)
    go.click()
    expect(page).to_have_url(re.compile(r"#/topics$"))
    assert web.get(f"/topics/{name}").status_code == 404
    page.goto(f"/#/topics/{name}")
    expect(page.locator(".empty h2")).to_have_text("There is no topic of this name")


def test_segments_show_their_state(page: Page, web: httpx.Client, name: str) -> None:
    web.put(f"/topics/{name}", json={"settings": {"segment.bytes": 16384}}).raise_for_status()
    for _ in range(5):
        web.post(f"/topics/{name}/messages", json={"value": "x" * 9000}).raise_for_status()
    page.goto(f"/#/topics/{name}/partitions")
    segments = web.get(f"/topics/{name}").json()["details"][0]["segments"]
    assert len(segments) > 2
    expect(page.locator(".segments i")).to_have_count(len(segments))
    expect(page.locator(".segments .active")).to_have_count(1)
    page.get_by_text(f"{len(segments)} segments").click()
    shown = page.locator("details .badge")
    expect(shown).to_have_count(len(segments))
    expect(shown.last).to_have_text("Active")
    # It stays open while news come.
    web.post(f"/topics/{name}/messages", json={"value": "x"}).raise_for_status()
    expect(page.locator("tbody tr td:nth-child(4)").first).to_have_text("6")
    expect(shown.last).to_be_visible()
