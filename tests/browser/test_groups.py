"""Consumer groups in the dashboard: who reads what, how far behind, moved and deleted."""

from __future__ import annotations

from collections.abc import Iterator

import confluent_kafka
import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Watch
from tests.clients.broker_process import BrokerProcess
from tests.fakes.patience import HANG_S

pytestmark = pytest.mark.system

MESSAGES = 40


@pytest.fixture
def topic(web: httpx.Client, name: str) -> str:
    web.put(f"/topics/{name}", json={"partitions": 2}).raise_for_status()
    sent = [{"value": str(n), "partition": n % 2} for n in range(MESSAGES)]
    web.post(f"/topics/{name}/messages", json=sent).raise_for_status()
    return name


def test_first_group_is_told_of_with_the_port_of_the_broker(page: Page) -> None:
    told = {"doors": {"kafka": "127.0.0.1:19092"}}
    page.route("**/api/facts", lambda route: route.fulfill(json=told))
    none = 'event: groups\ndata: {"all": true, "set": {}, "gone": []}\n\n'
    page.route(
        "**/api/events?*", lambda route: route.fulfill(content_type="text/event-stream", body=none)
    )
    page.goto("/#/groups")
    expect(page.locator(".command")).to_contain_text("kcat -b 127.0.0.1:19092 -G")


@pytest.fixture(params=["classic", "consumer"])
def member(
    request: pytest.FixtureRequest, broker: BrokerProcess, topic: str
) -> Iterator[confluent_kafka.Consumer]:
    """A consumer that has read, and committed, ten messages."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": topic,
            "client.id": f"reader-{request.param}",
            "group.protocol": request.param,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    read = consumer.consume(10, timeout=HANG_S)
    assert len(read) == 10
    consumer.commit(asynchronous=False)
    yield consumer
    consumer.close()


def test_members_show_what_they_read_and_how_far_behind(
    page: Page, web: httpx.Client, member: confluent_kafka.Consumer, topic: str
) -> None:
    told = web.get(f"/groups/{topic}").json()
    assert told["members"][0]["assignments"] == [{"topic": topic, "partitions": [0, 1]}]
    page.goto("/#/groups")
    expect(page.locator("h1")).to_have_text("Consumer groups")
    row = page.locator(".list-row", has_text=topic)
    expect(row).to_contain_text("Stable")
    expect(row.get_by_role("gridcell").last).to_have_text(str(told["lag"]))
    row.click()
    expect(page.locator(".chips").first).to_contain_text(f"{told['lag']} behind")
    expect(page.locator("td", has_text="reader-")).to_be_visible()
    expect(page.locator(".badge.second")).to_have_text(f"{topic} 0\u20131")
    expect(page.locator(".chart .line, .chart .dot").first).to_be_visible()
    expect(page.get_by_role("button", name="Reset offsets")).to_be_disabled()
    expect(page.locator(".notice")).to_contain_text("stop its members first")


def test_group_without_members_is_moved_and_deleted(
    page: Page, watch: Watch, web: httpx.Client, topic: str
) -> None:
    offsets = [{"topic": topic, "partition": n, "offset": 5} for n in (0, 1)]
    web.post(f"/groups/{topic}/offsets", json={"offsets": offsets}).raise_for_status()
    page.goto(f"/#/groups/{topic}")
    expect(page.locator(".chips").first).to_contain_text("30 behind")
    dialog = page.get_by_role("dialog")
    for choice, fill, lag in (("latest", None, 0), ("earliest", None, 40), ("offset", "7", 26)):
        page.get_by_role("button", name="Reset offsets").click()
        dialog.get_by_label("Read on from").select_option(choice)
        if fill:
            dialog.get_by_label("Offset", exact=False).last.fill(fill)
        dialog.get_by_role("button", name="Reset offsets").click()
        expect(dialog).to_be_hidden()
        assert web.get(f"/groups/{topic}").json()["lag"] == lag
        expect(page.locator(".chips").first).to_contain_text(f"{lag} behind")
    page.get_by_role("button", name="Delete").click()
    dialog.get_by_label("Type").fill(topic)
    dialog.get_by_role("button", name="Delete group").click()
    expect(dialog).to_be_hidden()
    assert web.get(f"/groups/{topic}").status_code == 404
    expect(page.locator(".list-row", has_text=topic)).to_have_count(0)
