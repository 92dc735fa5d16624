"""One page as a reader follows it: its blocks in their order, in one folder, with one broker.

Blocks of Python share a namespace, and blocks of shell their exported variables, as in a terminal
that stays open. A page has a broker of its own, so that it finds no topics but those it made.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import tomllib
from configparser import ConfigParser
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml
from playwright.sync_api import sync_playwright

from millstream.settings.loader import load
from tests.clients.broker_process import BrokerProcess
from tests.fakes.documents import ROOT, Block, with_addresses
from tests.fakes.patience import HANG_S
from tests.fakes.programs import chromium_path

STAND_INS = ROOT / "tests" / "documents" / "stand_ins.sh"
_FOR_JAVASCRIPT = "for JavaScript"
_DATA = "/var/lib/millstream"


def programs_of(blocks: list[Block]) -> list[str]:
    """The programs of tests/fakes/programs.py that these blocks use."""
    texts = [block.text for block in blocks if block.language == "sh"]
    used = {name for name in ("curl", "kcat") if any(f"{name} " in text for text in texts)}
    if any(block.language == "javascript" for block in blocks):
        used.add("chromium")
    return sorted(used)


@dataclass
class PageRun:
    home: Path
    broker: BrokerProcess
    old: BrokerProcess | None = None
    """Plays the server that a page moves over from, whose routes and protocol it has."""
    said: str = ""
    """What blocks of shell have printed."""
    _names: dict[str, Any] = field(default_factory=lambda: {"__name__": "__main__"})

    def run(self, block: Block) -> None:
        text = with_addresses(block.text, self.broker).replace(_DATA, str(self.broker.data))
        text = text.replace('"localhost", 1234', f'"localhost", {self.broker.pylogstreams_port}')
        if self.old is not None:
            text = text.replace("http://127.0.0.1:8001", self.old.url)
            text = text.replace('"localhost", 1235', f'"localhost", {self.old.pylogstreams_port}')
        if block.file is not None:
            (self.home / block.file).write_text(text)
        run = getattr(self, f"_{block.language}")
        try:
            run(block, text)
        except BaseException as error:
            error.add_note(f"in the block at {block.place}")
            raise

    def forget(self) -> None:
        """Let clients go that no block has closed, while there is a broker to take leave of."""
        self._names.clear()

    def run_tests(self) -> str:
        """Hand to pytest what is written for it; returns its last line."""
        flags = ["-q", "-W", "error", "-p", "millstream.pytest_plugin"]
        tested = subprocess.run(
            [sys.executable, "-m", "pytest", *flags],
            cwd=self.home,
            env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            capture_output=True,
            text=True,
            timeout=HANG_S,
            check=False,
        )
        assert tested.returncode == 0, tested.stdout + tested.stderr
        return tested.stdout.splitlines()[-1]

    def _python(self, block: Block, text: str) -> None:
        if block.file is not None and block.file.startswith("test_"):
            return  # for pytest
        padding = "\n" * block.line  # so that a traceback names the line of the page
        exec(compile(padding + text, str(ROOT / block.page), "exec"), self._names)

    def _sh(self, block: Block, text: str) -> None:
        kept = self.home / ".exported"
        kept.touch()
        script = f". {STAND_INS}\n. {kept}\n{text}\nexport -p > {kept}"
        ran = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", script],
            cwd=self.home,
            env={
                **os.environ,
                "PYTHON": sys.executable,
                "PYTHONPATH": str(ROOT),
                "ROOT": str(ROOT),
                "DATA": str(self.broker.data),
                "BROKER_PID": str(self.broker.pid) if self.broker.is_running else "",
                "MILLSTREAM_BOOTSTRAP": self.broker.address,
                "MILLSTREAM_URL": self.broker.url,
            },
            capture_output=True,
            text=True,
            timeout=HANG_S,
            check=False,
        )
        self.said += ran.stdout
        assert ran.returncode == 0, f"{text}\n{ran.stdout}\n{ran.stderr}"

    def _toml(self, block: Block, text: str) -> None:
        """Ours is taken as settings; that of Telegraf is TOML at least."""
        if "inputs" not in tomllib.loads(text):
            config = self.home / "checked.toml"
            config.write_text(text)
            load(str(config))

    def _json(self, block: Block, text: str) -> None:
        json.loads(text)

    def _yaml(self, block: Block, text: str) -> None:
        assert yaml.safe_load(text)

    def _ini(self, block: Block, text: str) -> None:
        """A unit of systemd: what it starts can be started."""
        unit = ConfigParser(interpolation=None, strict=False)
        unit.optionxform = str  # type: ignore[assignment, method-assign]
        unit.read_string(text)
        command = unit["Service"]["ExecStart"]
        self._sh(block, re.sub(r"^\S*/(?=millstream )", "", command) + "\n")

    def _javascript(self, block: Block, text: str) -> None:
        """It prints a message that is sent while it runs."""
        topic = re.findall(r"/topics/(\w+)/", text)[0]
        self._send(topic)  # now it is there
        printed: list[str] = []
        errors: list[str] = []
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=chromium_path(), args=["--no-sandbox"]
            )
            # A page of the broker's own, since pages of other sites may not read from it.
            page = browser.new_page()
            page.on("console", lambda message: printed.append(message.text))
            page.on("pageerror", lambda error: errors.append(str(error)))
            page.goto(f"{self.broker.url}/openapi.json")
            page.add_script_tag(content=text)
            deadline = time.monotonic() + HANG_S
            while not any(line.endswith(_FOR_JAVASCRIPT) for line in printed):
                assert errors == []
                assert time.monotonic() < deadline, f"it prints {printed}"
                self._send(topic)
                page.wait_for_timeout(100)
            browser.close()

    def _send(self, topic: str) -> None:
        url = f"{self.broker.url}/topics/{topic}/messages"
        httpx.post(url, json={"value": _FOR_JAVASCRIPT}, timeout=HANG_S).raise_for_status()
