"""The plugin as pytest loads it: by its entry point, wherever Millstream is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.patience import HANG_S

pytestmark = pytest.mark.system

IDLE = """
import sys

def test_nothing_of_the_broker_is_imported():
    assert "millstream.pytest_plugin" in sys.modules
    loaded = {name for name in sys.modules if name.split(".")[0] == "millstream"}
    assert loaded == {"millstream", "millstream.pytest_plugin"}
"""
BUSY = """
import asyncio
import pytest

@pytest.mark.parametrize("number", range(4))
def test_topic_is_new(millstream_broker, millstream_topic, number):
    assert millstream_broker.messages(millstream_topic) == []
    millstream_broker.produce(millstream_topic, str(number))
    [message] = millstream_broker.messages(millstream_topic)
    assert message.value == str(number).encode()

def test_methods_of_the_broker_can_be_awaited(millstream_async_broker, millstream_topic):
    produced = millstream_async_broker.produce(millstream_topic, "one")
    assert asyncio.run(produced) == (0, 0)

def test_fresh_broker_is_another(millstream_broker, millstream_fresh_broker):
    assert millstream_fresh_broker.topics() == []
    assert millstream_fresh_broker.bootstrap_servers != millstream_broker.bootstrap_servers
"""


def run(home: Path, *words: str, **environment: str) -> str:
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, *words],
        cwd=home,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    return done.stdout + done.stderr


def test_plugin_that_is_not_used_costs_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_idle.py").write_text(IDLE)
    said = run(tmp_path)
    assert "1 passed" in said, said


def test_fixtures_serve_the_workers_of_xdist(tmp_path: Path) -> None:
    (tmp_path / "test_busy.py").write_text(BUSY)
    # Other plugins take several times as long to load as all of this.
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    said = run(tmp_path, "-p", "xdist", "-p", "millstream.pytest_plugin", "-n", "2", **alone)
    assert "6 passed" in said, said
