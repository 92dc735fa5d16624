"""The guide to the command line leaves no command out. tests/documents runs what it shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from tests.fakes.child_process import ROOT

GUIDE = (ROOT / "docs" / "guides" / "command_line.md").read_text()


def test_guide_names_every_command() -> None:
    listed = subprocess.run(
        [sys.executable, "-m", "millstream", "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "200"},
    ).stdout
    commands = re.findall(r"^│ ([a-z]+) +[A-Z]", listed, re.MULTILINE)
    assert len(commands) > 10
    for command in commands:
        assert f"| `{command}" in GUIDE, command
