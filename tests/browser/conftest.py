"""A headless Chromium for the tests of each file, and a broker whose dashboard it looks at.

A page that complains in its console, or asks for something and is not answered well, fails the test
that looked at it, unless the test said that it would.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Page,
    Request,
    Response,
    expect,
    sync_playwright,
)

from tests.clients.broker_process import BrokerProcess
from tests.fakes.patience import HANG_S
from tests.fakes.programs import chromium_path

ANY_PORT = "127.0.0.1:0"
PATIENCE_MS = HANG_S * 1000
expect.set_options(timeout=PATIENCE_MS)
# A stream ends when its page goes elsewhere, and a search when it is stopped.
_ENDED_BY_PAGE = "net::ERR_ABORTED"
_MAY_BE_ENDED = ("/api/events", "/stream?", "/api/search")
# A toast disappears after some seconds, which a busy machine may need to look at the page once.
_KEEP_TOASTS = """
window.toastsShown = [];
new MutationObserver((changes) => {
  for (const change of changes)
    for (const node of change.addedNodes)
      if (node.classList?.contains("toast")) window.toastsShown.push(node.textContent);
}).observe(document, { childList: true, subtree: true });
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.needs("chromium"))


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Not for longer: Playwright has an event loop running, beside which no other can run."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    home = tmp_path_factory.mktemp("dashboard")
    with BrokerProcess(home, http=ANY_PORT) as broker:
        yield broker
        broker.stop()
        assert broker.complaints() == []


@pytest.fixture
def web(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.url, timeout=HANG_S) as client:
        yield client


class Watch:
    """What went wrong on a page."""

    def __init__(self, page: Page) -> None:
        self.troubles: list[str] = []
        self.expected: set[int] = set()
        """Statuses that the test makes the broker answer with."""
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.troubles.append(str(error)))
        page.on("requestfailed", self._failed)
        page.on("response", self._answered)

    def _console(self, message: ConsoleMessage) -> None:
        is_expected = any(f"status of {status}" in message.text for status in self.expected)
        if message.type in {"error", "warning"} and not is_expected:
            self.troubles.append(message.text)

    def _failed(self, request: Request) -> None:
        may_end = any(part in request.url for part in _MAY_BE_ENDED)
        if not may_end or request.failure != _ENDED_BY_PAGE:
            self.troubles.append(f"{request.url}: {request.failure}")

    def _answered(self, response: Response) -> None:
        if response.status >= 400 and response.status not in self.expected:
            self.troubles.append(f"{response.url}: {response.status}")


@contextmanager
def open_page(chromium: Browser, broker: BrokerProcess, **options: Any) -> Iterator[Page]:
    """A page of a context of its own, on the dashboard of a broker."""
    with chromium.new_context(base_url=broker.url, **options) as context:
        context.set_default_timeout(PATIENCE_MS)
        context.add_init_script(_KEEP_TOASTS)
        yield context.new_page()


def expect_toast(page: Page, text: str) -> None:
    """Wait until the page has shown a toast, be it gone or not."""
    page.wait_for_function("text => window.toastsShown.includes(text)", arg=text)


@pytest.fixture
def page(chromium: Browser, broker: BrokerProcess) -> Iterator[Page]:
    with open_page(
        chromium,
        broker,
        viewport={"width": 1440, "height": 900},
        permissions=["clipboard-read", "clipboard-write"],
    ) as page:
        yield page


@pytest.fixture(autouse=True)
def watch(request: pytest.FixtureRequest) -> Iterator[Watch | None]:
    if "page" not in request.fixturenames:
        yield None
        return
    watch = Watch(request.getfixturevalue("page"))
    yield watch
    assert watch.troubles == []
