"""One path through the dashboard, in the quick tests: a message is sent, stored and shown."""

from __future__ import annotations

import httpx
from playwright.sync_api import Page, expect

from tests.browser.conftest import expect_toast


def test_message_sent_from_the_dashboard_is_stored_and_shown(
    page: Page, web: httpx.Client, name: str
) -> None:
    web.put(f"/topics/{name}", json={"partitions": 2}).raise_for_status()
    page.goto(f"/#/topics/{name}")
    page.get_by_role("button", name="Send message").first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Value", exact=True).fill('{"a": 1}')
    dialog.get_by_label("Key", exact=True).fill("köln")
    dialog.get_by_label("Headers").fill("source: test\nother: a: b")
    dialog.get_by_label("Partition", exact=True).select_option("1")
    dialog.get_by_role("button", name="Send").click()
    expect_toast(page, "Stored in partition 1 at offset 0")
    expect(page.locator(".browser [aria-rowindex='2']")).to_contain_text('{"a": 1}')
    (sent,) = web.get(f"/topics/{name}/messages?offset=0&partition=1").json()["messages"]
    assert (sent["value"], sent["key"]) == ('{"a": 1}', "köln")
    assert sent["headers"] == {"source": "test", "other": "a: b"}
    page.get_by_role("button", name="Send message").first.click()
    dialog.get_by_label("Value is sent").select_option("base64")
    dialog.get_by_label("Value", exact=True).fill("AP8=")
    dialog.get_by_label("Partition", exact=True).select_option("0")
    dialog.get_by_role("button", name="Send").click()
    expect(dialog).to_be_hidden()
    told = web.get(f"/topics/{name}/messages?offset=0&partition=0").json()["messages"]
    assert [(each["value"], each["encoding"]) for each in told] == [("AP8=", "base64")]
