"""`make demo`, with fewer events."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.clients.broker_process import ROOT, BrokerProcess
from tests.spark.conftest import JAVA_OPTIONS

PNG = b"\x89PNG\r\n"


def test_demo_runs_to_its_end_and_finds_every_row_once(java: None, tmp_path: Path) -> None:
    home = tmp_path / "demo"
    flags = ["--events", "2000", "--seconds", "2", "--directory", str(home)]
    ran = subprocess.run(
        [sys.executable, "examples/demo/demo.py", *flags],
        cwd=ROOT,
        env=os.environ | {"JAVA_TOOL_OPTIONS": JAVA_OPTIONS},
        capture_output=True,
        text=True,
        check=False,
    )
    logs = "".join(log.read_text() for log in home.glob("*.log"))
    assert ran.returncode == 0, ran.stdout + ran.stderr + logs
    assert "none lost" in ran.stdout
    assert "none twice" in ran.stdout
    assert "WRONG" not in ran.stdout
    assert (home / "revenue.png").read_bytes().startswith(PNG)
    paths = re.findall(r"curl '?localhost:8000(/[^'\n]+)", ran.stdout)
    assert len(paths) == 3
    (home / "broker").rename(tmp_path / "data")
    with BrokerProcess(tmp_path, http="127.0.0.1:0") as broker:
        for path in paths:
            with urllib.request.urlopen(f"{broker.url}{path}", timeout=30) as answer:
                assert b"shop" in answer.read(), path
        broker.stop()


@pytest.mark.torture
def test_demo_that_is_stopped_by_ctrl_c_ends_the_pipeline_before_the_broker(
    java: None, tmp_path: Path
) -> None:
    home = tmp_path / "demo"
    with subprocess.Popen(
        [sys.executable, "examples/demo/demo.py", "--directory", str(home)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as demo:
        assert demo.stdout is not None
        while "pipeline: read" not in (line := demo.stdout.readline()):
            assert line, "the demo has ended"
        # To all of the group, as a terminal sends it.
        os.killpg(demo.pid, signal.SIGINT)
        rest = demo.stdout.read()
    assert demo.returncode == 130
    assert "Traceback" not in rest
    assert '"state":"stopped"' in (home / "pipeline.log").read_text()


def test_demo_leaves_a_folder_alone_that_it_did_not_make(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    ran = subprocess.run(
        [sys.executable, "examples/demo/demo.py", "--directory", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    assert "holds something else" in ran.stdout
    assert [each.name for each in tmp_path.iterdir()] == ["precious"]
