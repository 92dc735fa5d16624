"""What the guide and the README show of HTTP works as it stands there."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.clients.broker_process import ROOT, BrokerProcess

ADDRESS = "localhost:8000"
RECEIVING = "curl -sS --fail-with-body $queue/receive"
JOBS = '[{"value": "0"}, {"value": "1"}, {"value": "2"}]'


def curls(document: str) -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)
    found = [block for block in blocks if ADDRESS in block]
    assert found
    return found


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_commands_of_the_documents_run(tmp_path: Path) -> None:
    known = subprocess.run(["curl", "--help", "all"], check=True, capture_output=True).stdout
    if b"--json" not in known:
        pytest.skip("this curl is too old")
    with BrokerProcess(tmp_path, http="127.0.0.1:0") as broker:
        address = broker.url.removeprefix("http://")
        for block in curls("docs/guides/http.md") + curls("README.md"):
            script = block.replace(ADDRESS, address).replace("curl ", "curl -sS --fail-with-body ")
            if RECEIVING in script:
                # What it receives and acknowledges, somebody must have sent.
                jobs = f"curl -sS {address}/topics/jobs/messages --json '{JOBS}'\n"
                script = script.replace(RECEIVING, jobs + RECEIVING)
            command = ["sh", "-e", "-c", script]
            ran = subprocess.run(command, check=False, capture_output=True, text=True)
            assert ran.returncode == 0, f"{script}\n{ran.stdout}\n{ran.stderr}"
        broker.stop()
        assert broker.complaints() == []
