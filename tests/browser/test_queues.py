"""Queues in the dashboard: made, watched, and their dead letters looked at, replayed and purged."""

from __future__ import annotations

import httpx
import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import expect_toast

pytestmark = pytest.mark.system

# The page has drawn all that it was told before.
_TWO_FRAMES = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


@pytest.fixture
def letters(web: httpx.Client, name: str) -> str:
    """A topic with a queue `work` that has three dead letters."""
    web.put(f"/topics/{name}", json={"partitions": 1}).raise_for_status()
    web.put(f"/topics/{name}/subscriptions/work", json={"max_deliveries": 1}).raise_for_status()
    send(web, name, 4)
    refuse(web, name, 3)
    return name


def send(web: httpx.Client, topic: str, count: int) -> None:
    sent = [{"value": f"job {n}", "key": f"k{n}"} for n in range(count)]
    web.post(f"/topics/{topic}/messages", json=sent).raise_for_status()


def refuse(web: httpx.Client, topic: str, count: int) -> None:
    """Let the next messages of the queue die."""
    queue = f"/topics/{topic}/subscriptions/work"
    while count:
        # It answers with what there is, which may be less than asked for.
        wanted = {"max_messages": count, "wait_ms": 5000}
        got = web.post(f"{queue}/receive", json=wanted).raise_for_status().json()["messages"]
        ids = [each["message_id"] for each in got]
        if ids:
            refused = {"message_ids": ids, "reason": "no such customer"}
            web.post(f"{queue}/nack", json=refused).raise_for_status()
        count -= len(ids)


def test_queue_is_created_and_deleted(page: Page, web: httpx.Client, name: str) -> None:
    web.post(f"/topics/{name}/messages", json=[{"value": "x"}] * 3).raise_for_status()
    page.goto("/#/queues")
    page.get_by_role("button", name="Create queue").first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Topic").fill(name)
    dialog.get_by_label("Name").fill("mill-hands")
    dialog.get_by_label("Type").select_option("key_shared")
    dialog.get_by_label("Seconds to acknowledge").fill("5")
    dialog.get_by_role("button", name="Create queue").click()
    row = page.locator(".list-row", has_text=name)
    expect(row).to_contain_text("key shared")
    told = web.get(f"/topics/{name}/subscriptions/mill-hands").json()
    assert (told["type"], told["ack_timeout_ms"], told["backlog"]) == ("key_shared", 5000, 3)
    row.click()
    expect(page.locator(".tile", has_text="Backlog").locator("b")).to_have_text("3")
    page.get_by_role("button", name="Delete").click()
    dialog.get_by_label("Type").fill("mill-hands")
    dialog.get_by_role("button", name="Delete queue").click()
    expect(page.locator("h1")).to_have_text("Queues")
    assert web.get(f"/topics/{name}/subscriptions").json() == {"subscriptions": []}


def test_letters_are_read_and_replayed(page: Page, web: httpx.Client, letters: str) -> None:
    page.goto(f"/#/queues/{letters}/work")
    rows = page.locator(".list-row")
    expect(rows).to_have_count(3)
    expect(rows.first).to_contain_text("no such customer")
    rows.first.click()
    detail = page.get_by_role("region", name="Message")
    expect(detail.locator(".value")).to_have_text("job 0")
    expect(detail.locator("table")).to_contain_text("millstream-reason")
    page.keyboard.press("Escape")
    page.get_by_label("Choose letter 0:1").check()
    page.get_by_role("button", name="Replay chosen").click()
    page.get_by_role("dialog").get_by_role("button", name="Replay", exact=True).click()
    expect_toast(page, "1 letter sent back")
    values = [
        each["value"] for each in web.get(f"/topics/{letters}/messages?offset=4").json()["messages"]
    ]
    assert values == ["job 1"]
    status = page.get_by_text("2 outstanding, 1 replayed")
    expect(status).to_be_visible()
    page.get_by_label("Which letters").select_option("replayed")
    expect(rows).to_have_count(1)
    page.get_by_label("Choose letter 0:1").check()
    page.get_by_role("button", name="Replay chosen").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".notice")).to_contain_text("1 letter of these was replayed before")
    dialog.get_by_role("button", name="Replay", exact=True).click()
    expect_toast(page, "1 letter sent back")
    page.get_by_label("Which letters").select_option("all")
    page.get_by_role("button", name="Replay all").click()
    page.get_by_role("dialog").get_by_role("button", name="Replay", exact=True).click()
    expect_toast(page, "2 letters sent back")
    assert web.get(f"/topics/{letters}").json()["messages"] == 8
    expect(page.get_by_text("0 outstanding, 3 replayed")).to_be_visible()
    expect(page.get_by_role("button", name="Replay all")).to_be_disabled()


def test_letters_are_purged(page: Page, web: httpx.Client, letters: str) -> None:
    web.put(f"/topics/{letters}/subscriptions/other", json={}).raise_for_status()
    page.goto(f"/#/queues/{letters}/work")
    expect(page.locator(".list-row")).to_have_count(3)
    page.get_by_role("button", name="Purge").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".notice")).to_contain_text(f"{letters}/other")
    dialog.get_by_label("Type").fill(f"{letters}.dlq")
    dialog.get_by_role("button", name="Purge").click()
    expect(page.locator(".empty h2")).to_have_text("No dead letters")
    assert web.get(f"/topics/{letters}.dlq").json()["messages"] == 0
    assert web.get(f"/topics/{letters}/subscriptions/work/dlq").json()["messages"] == []


def test_letter_that_is_chosen_stays_so_until_it_is_gone(
    page: Page, web: httpx.Client, letters: str
) -> None:
    page.goto(f"/#/queues/{letters}/work")
    box = page.get_by_label("Choose letter 0:1")
    box.check()
    rows = page.locator(".list-row")
    rows.first.click()
    expect(rows.first).to_have_class("list-row selected")
    expect(box).to_be_checked()
    page.keyboard.press("Escape")
    expect(page.locator(".list-row:focus")).to_contain_text("0:0")
    expect(box).to_be_checked()
    refuse(web, letters, 1)
    expect(rows).to_have_count(4)
    expect(box).to_be_checked()
    web.delete(f"/topics/{letters}.dlq/messages").raise_for_status()
    send(web, letters, 1)
    refuse(web, letters, 1)
    expect(rows).to_have_count(1)
    expect(page.get_by_role("button", name="Replay chosen")).to_be_disabled()


def test_letters_that_are_read_twice_at_once_are_shown_once(
    page: Page, web: httpx.Client, letters: str
) -> None:
    held: list[Route] = []
    page.goto(f"/#/queues/{letters}/work")
    expect(page.locator(".list-row")).to_have_count(3)
    page.route("**/dlq?*", lambda route: held.append(route))  # noqa: PLW0108 - it marks handlers
    page.get_by_role("button", name="Replay all").click()
    page.get_by_role("dialog").get_by_role("button", name="Replay", exact=True).click()
    refuse(web, letters, 1)
    while len(held) < 2:
        page.wait_for_timeout(50)
    for each in reversed(held):
        with page.expect_response(each.request.url) as answer:
            each.continue_()
        answer.value.finished()
    page.evaluate(_TWO_FRAMES)
    expect(page.locator(".list-row")).to_have_count(4)
    assert page.locator(".list").get_attribute("aria-rowcount") == "5"


def test_many_letters_are_loaded_from_all_partitions(
    page: Page, web: httpx.Client, name: str
) -> None:
    web.put(f"/topics/{name}.dlq", json={"partitions": 2}).raise_for_status()
    web.put(f"/topics/{name}", json={"partitions": 1}).raise_for_status()
    web.put(f"/topics/{name}/subscriptions/work", json={"max_deliveries": 1}).raise_for_status()
    # All of one key, which lie in one partition, and some of others.
    same = [{"value": "x", "key": "a"}] * 310
    web.post(f"/topics/{name}/messages", json=same).raise_for_status()
    send(web, name, 10)
    refuse(web, name, 320)
    page.goto(f"/#/queues/{name}/work")
    list_ = page.locator(".list")
    expect(list_).to_have_attribute("aria-rowcount", "101")
    more = page.get_by_role("button", name="Load more")
    while (shown := list_.get_attribute("aria-rowcount")) != "321":
        more.click()
        expect(list_).not_to_have_attribute("aria-rowcount", shown or "")
    expect(more).to_be_hidden()


def test_purge_warns_of_a_queue_of_the_same_name(
    page: Page, web: httpx.Client, letters: str
) -> None:
    shared = {"dead_letter_topic": f"{letters}.dlq"}
    web.put(f"/topics/{letters}-2", json={"partitions": 1}).raise_for_status()
    web.put(f"/topics/{letters}-2/subscriptions/work", json=shared).raise_for_status()
    page.goto(f"/#/queues/{letters}/work")
    expect(page.locator(".list-row")).to_have_count(3)
    page.get_by_role("button", name="Purge").click()
    expect(page.get_by_role("dialog").locator(".notice")).to_contain_text(f"{letters}-2/work")


def test_queue_that_comes_later_is_shown(page: Page, web: httpx.Client, name: str) -> None:
    web.put(f"/topics/{name}", json={"partitions": 1}).raise_for_status()
    page.goto(f"/#/queues/{name}/work")
    expect(page.locator(".empty h2")).to_have_text("There is no queue of this name")
    expect(page.get_by_role("button", name="Delete")).to_be_hidden()
    web.put(f"/topics/{name}/subscriptions/work", json={}).raise_for_status()
    expect(page.locator(".tile", has_text="Backlog").locator("b")).to_have_text("0")
    expect(page.get_by_role("button", name="Delete")).to_be_visible()
