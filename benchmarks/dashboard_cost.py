"""What an open dashboard costs an idle broker, and how fast it searches.

Starts a broker with many topics, opens each page in headless Chromium, and compares the CPU time of
the broker's process with that of the same broker when nobody looks. Then searches a topic of many
messages for a text that none holds, and one that the last holds, while another client asks for
the broker's health all the time: its slowest answer tells how long the event loop was held.

    python -m benchmarks.dashboard_cost --topics 1000 --seconds 20 --messages 1000000
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import confluent_kafka
import httpx
from playwright.sync_api import sync_playwright

from tests.clients.broker_process import BrokerProcess

_PAGES = ("", "topics", "groups", "connections", "topics/topic-0000")
_TICKS_PER_S = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--messages", type=int, default=1_000_000)
    wanted = parser.parse_args()
    home = Path(tempfile.mkdtemp())
    try:
        with BrokerProcess(home, http="127.0.0.1:0") as broker:
            _fill(broker, wanted.topics)
            _watch(broker, wanted.seconds)
            _search(broker, wanted.messages)
            broker.stop()
    finally:
        shutil.rmtree(home)


def _fill(broker: BrokerProcess, topics: int) -> None:
    with httpx.Client(base_url=broker.url, timeout=60) as web, ThreadPoolExecutor(16) as pool:
        for answer in pool.map(lambda n: web.put(f"/topics/topic-{n:04}", json={}), range(topics)):
            answer.raise_for_status()


def _watch(broker: BrokerProcess, seconds: float) -> None:
    chromium = shutil.which("chromium")
    time.sleep(3)
    alone = _share(broker, seconds)
    print(f"nobody looks: {alone:.2%} of a core")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for path in _PAGES:
            page = browser.new_page(base_url=broker.url)
            page.goto(f"/#/{path}")
            page.wait_for_timeout(4000)
            share = _share(broker, seconds)
            print(f"/#/{path}: {share:.2%} of a core, {share - alone:+.2%}")
            page.close()
        browser.close()


def _search(broker: BrokerProcess, messages: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.address, "linger.ms": 5})
    for number in range(messages):
        while True:
            try:
                producer.produce("large", f'{{"order": {number}, "note": "a hundred bytes or so"}}')
            except BufferError:
                producer.poll(0.1)
            else:
                break
    producer.flush()
    with httpx.Client(base_url=broker.url, timeout=60) as web:
        for order in ("oldest", "newest"):
            slowest = _Slowest(broker.url)
            begin = time.perf_counter()
            scanned = _scan(web, order)
            took = time.perf_counter() - begin
            print(
                f"search, {order} first: {scanned:,} messages in {took:.2f} s, "
                f"others waited at most {slowest.stop() * 1000:.1f} ms"
            )


def _scan(web: httpx.Client, order: str) -> int:
    """Look for what is not there; returns how many messages were looked at."""
    place: dict[str, int] = {}
    while True:
        wanted: dict[str, str | int] = {
            "topic": "large",
            "text": "no such text",
            "order": order,
            **place,
        }
        told = web.get("/api/search", params=wanted).json()
        following = told["next"]
        if following is None:
            return int(told["scanned"])
        place = {"at_partition": following["partition"], "at_offset": following["offset"]}


class _Slowest:
    """Another client, and the longest that it has waited."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._slowest_s = 0.0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()

    def stop(self) -> float:
        self._is_over.set()
        self._thread.join()
        return self._slowest_s

    def _ask(self) -> None:
        with httpx.Client(base_url=self._url, timeout=60) as web:
            web.get("/health/live")
            while not self._is_over.is_set():
                begin = time.perf_counter()
                web.get("/health/live")
                self._slowest_s = max(self._slowest_s, time.perf_counter() - begin)


def _share(broker: BrokerProcess, seconds: float) -> float:
    begin = _cpu_s(broker.pid)
    time.sleep(seconds)
    return (_cpu_s(broker.pid) - begin) / seconds


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


if __name__ == "__main__":
    main()
