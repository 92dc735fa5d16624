"""`make demo`, with fewer events."""

from __future__ import annotations

import os
import re
import signal
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.clients.broker_process import BrokerProcess
from tests.fakes.child_process import ChildProcess
from tests.fakes.patience import HANG_S
from tests.spark.conftest import JAVA_OPTIONS

pytestmark = pytest.mark.system

DEMO = [sys.executable, "examples/demo/demo.py"]
PNG = b"\x89PNG\r\n"


def test_demo_runs_to_its_end_and_finds_every_row_once(java: None, tmp_path: Path) -> None:
    home = tmp_path / "demo"
    flags = ["--events", "2000", "--seconds", "2", "--directory", str(home)]
    environment = os.environ | {"JAVA_TOOL_OPTIONS": JAVA_OPTIONS}
    with ChildProcess(*DEMO, *flags, env=environment) as demo:
        ran = demo.finish()
    logs = "".join(log.read_text() for log in home.glob("*.log"))
    assert ran.returncode == 0, ran.stdout + ran.stderr + logs
    assert "none lost" in ran.stdout
    assert "no duplicates" in ran.stdout
    assert "WRONG" not in ran.stdout
    assert (home / "revenue.png").read_bytes().startswith(PNG)
    paths = re.findall(r"curl '?localhost:8000(/[^'\n]+)", ran.stdout)
    assert len(paths) == 3
    (home / "broker").rename(tmp_path / "data")
    with BrokerProcess(tmp_path, http="127.0.0.1:0") as broker:
        for path in paths:
            with urllib.request.urlopen(f"{broker.url}{path}", timeout=HANG_S) as answer:
                assert b"shop" in answer.read(), path
        broker.stop()


@pytest.mark.torture
def test_demo_that_is_stopped_by_ctrl_c_ends_the_pipeline_before_the_broker(
    java: None, tmp_path: Path
) -> None:
    home = tmp_path / "demo"
    # In a process group of its own.
    with ChildProcess("setsid", *DEMO, "--directory", str(home)) as demo:
        while "pipeline: read" not in demo.next_line():
            pass
        # To all of the group, as a terminal sends it.
        os.killpg(demo.pid, signal.SIGINT)
        ended = demo.finish()
    assert ended.returncode == 130
    assert "Traceback" not in ended.stdout + ended.stderr
    assert '"state":"stopped"' in (home / "pipeline.log").read_text()


def test_demo_leaves_a_folder_alone_that_it_did_not_make(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    with ChildProcess(*DEMO, "--directory", str(tmp_path)) as demo:
        ran = demo.finish()
    assert ran.returncode == 1
    assert "holds something else" in ran.stdout
    assert [each.name for each in tmp_path.iterdir()] == ["precious"]
