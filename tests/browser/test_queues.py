"""Queues in the dashboard: made, watched, and their dead letters looked at, replayed and purged."""

from __future__ import annotations

import httpx
import pytest
from playwright.sync_api import Page, expect


@pytest.fixture
def letters(web: httpx.Client, name: str) -> str:
    """A topic with a queue `work` that has three dead letters."""
    queue = f"/topics/{name}/subscriptions/work"
    sent = [{"value": f"job {n}", "key": f"k{n}"} for n in range(4)]
    web.put(f"/topics/{name}", json={"partitions": 1}).raise_for_status()
    web.post(f"/topics/{name}/messages", json=sent).raise_for_status()
    web.put(queue, json={"max_deliveries": 1}).raise_for_status()
    got = web.post(f"{queue}/receive", json={"max_messages": 3}).json()["messages"]
    refused = {"message_ids": [each["message_id"] for each in got], "reason": "no such customer"}
    web.post(f"{queue}/nack", json=refused).raise_for_status()
    return name


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
    expect(page.locator(".toast")).to_have_text("1 letter sent back")
    values = [
        each["value"] for each in web.get(f"/topics/{letters}/messages?offset=4").json()["messages"]
    ]
    assert values == ["job 1"]
    page.get_by_role("button", name="Replay all").click()
    page.get_by_role("dialog").get_by_role("button", name="Replay", exact=True).click()
    expect(page.locator(".toast").last).to_have_text("3 letters sent back")
    assert web.get(f"/topics/{letters}").json()["messages"] == 8


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
