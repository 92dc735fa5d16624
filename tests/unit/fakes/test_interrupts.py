"""Programs that tests start can be interrupted, however the tests were started."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from tests.fakes.child_process import ROOT
from tests.fakes.patience import HANG_S

_PROBE = """
import subprocess, sys

def test_child_can_be_interrupted():
    program = "import signal; print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout == b"False\\n"
"""


def test_tests_of_a_background_job_start_programs_that_can_be_interrupted(tmp_path: Path) -> None:
    probe = tmp_path / "test_probe.py"
    probe.write_text(_PROBE)
    # As a shell without job control starts a background job.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-n0", str(probe)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
        )
    finally:
        signal.signal(signal.SIGINT, before)
    output, _ = process.communicate(timeout=HANG_S)
    assert process.returncode == 0, output.decode()
